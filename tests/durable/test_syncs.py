"""A disk call syncs the file itself, after its last byte and its attributes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable import medium, real_disk
from krepair.durable.disk import Attributes
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import WritingError, file_system_of


class Synced:
    """Each fsync of this process: the inode, its size and modification time at that moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, int, int]] = []
        real = os.fsync

        def noting(descriptor: int) -> None:
            real(descriptor)
            found = os.fstat(descriptor)
            self.seen.append((found.st_ino, found.st_size, found.st_mtime_ns))

        monkeypatch.setattr(os, "fsync", noting)


def state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


LIKE = Attributes(uid=os.getuid(), gid=os.getgid(), mode=0o600, mtime_ns=7_000_000_007, xattrs={})

WRITES: dict[str, Callable[[RealDisk, Path], Path]] = {}


def writes(do: Callable[[RealDisk, Path], Path]) -> Callable[[RealDisk, Path], Path]:
    WRITES[do.__name__] = do
    return do


@writes
def create(disk: RealDisk, folder: Path) -> Path:
    disk.create(str(folder / "new"), b"x" * 100, LIKE)
    return folder / "new"


@writes
def append(disk: RealDisk, folder: Path) -> Path:
    disk.append(str(folder / "old"), b"more")
    return folder / "old"


@writes
def copy(disk: RealDisk, folder: Path) -> Path:
    disk.copy(str(folder / "old"), str(folder / "copy"))
    return folder / "copy"


@writes
def sync_file(disk: RealDisk, folder: Path) -> Path:
    disk.sync_file(str(folder / "old"))
    return folder / "old"


@writes
def sync_dir(disk: RealDisk, folder: Path) -> Path:
    disk.sync_dir(str(folder))
    return folder


@pytest.mark.parametrize("name", WRITES)
def test_file_is_synced_once_as_it_is_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "old").write_bytes(b"something")
    synced = Synced(monkeypatch)
    path = WRITES[name](RealDisk(), tmp_path)
    assert synced.seen == [state(path)]


@pytest.mark.parametrize("name", ["create", "append", "copy"])
def test_failed_fsync_is_a_failure_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "old").write_bytes(b"something")

    def failing(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=r"Input/output|reports an I/O error"):
        WRITES[name](RealDisk(), tmp_path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("old", b"something")]


@pytest.mark.parametrize("name", ["create", "append", "copy"])
def test_failure_of_the_cleaning_up_does_not_hide_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "old").write_bytes(b"something")

    def failing(number: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        return fail

    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    monkeypatch.setattr(os, "ftruncate", failing(errno.EACCES))
    monkeypatch.setattr(os, "unlink", failing(errno.EACCES))
    with pytest.raises(OSError, match=r"Input/output|reports an I/O error"):
        WRITES[name](RealDisk(), tmp_path)


def test_copy_is_whole_where_the_kernel_says_too_early_that_it_is_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    (tmp_path / "old").write_bytes(b"x" * 70_000)
    RealDisk().copy(str(tmp_path / "old"), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b"x" * 70_000


def test_file_that_is_not_to_be_synced_yet_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch)
    RealDisk().create(str(tmp_path / "new"), b"x" * 100, LIKE, synced=False)
    assert synced.seen == []
    assert (tmp_path / "new").read_bytes() == b"x" * 100


def test_barrier_is_only_believed_of_file_systems_that_are_known_to_write_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of FUSE, and of a file system over a network, nobody knows what it makes durable."""
    asked: list[int] = []

    def syncfs(descriptor: int) -> int:
        asked.append(descriptor)
        return 0

    monkeypatch.setattr(medium, "_SYNCFS", syncfs)
    disk = RealDisk()
    assert not medium.can_sync_file_system(disk.tree, "/proc")
    assert not disk.sync_file_system("/proc")
    assert asked == []
    kind = file_system_of(str(tmp_path / "file")).kind
    known = kind in {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "f2fs", "zfs"}
    assert medium.can_sync_file_system(disk.tree, str(tmp_path)) == known
    assert disk.sync_file_system(str(tmp_path)) == known
    assert medium.can_sync_file_system(disk.tree, str(tmp_path), [str(tmp_path)]) == known
    assert not medium.can_sync_file_system(disk.tree, str(tmp_path), [str(tmp_path), "/proc"])
    assert not medium.can_sync_file_system(disk.tree, str(tmp_path), [str(tmp_path / "gone")])
    assert len(asked) == known
    monkeypatch.setattr(medium, "_SYNC_FILE_RANGE", None)
    assert not medium.can_sync_file_system(disk.tree, str(tmp_path)), (
        "without it nobody learns of a lost page"
    )


def failing_call(code: int) -> Callable[..., int]:
    """A function of the C library that fails with this error number."""

    def fail(*_: int) -> int:
        ctypes.set_errno(code)
        return -1

    return fail


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_page_that_was_not_written_is_learned_of_after_the_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    synced = Synced(monkeypatch)
    monkeypatch.setattr(medium, "_SYNC_FILE_RANGE", failing_call(code))
    with pytest.raises(WritingError) as caught:
        RealDisk().check_written(str(tmp_path / "file"))
    assert (caught.value.errno, caught.value.filename) == (code, str(tmp_path / "file"))
    assert synced.seen == []


def test_all_pages_are_waited_for_behind_the_barrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    asked: list[tuple[int, ...]] = []

    def sync_file_range(_: int, *what: int) -> int:
        asked.append(what)
        return 0

    monkeypatch.setattr(medium, "_SYNC_FILE_RANGE", sync_file_range)
    RealDisk().check_written(str(tmp_path / "file"))
    to_the_end, wait_write_wait = 0, 7  # sync_file_range(2)
    assert asked == [(0, to_the_end, wait_write_wait)]


@pytest.mark.parametrize("code", [None, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE])
def test_file_is_synced_by_itself_where_its_pages_cannot_be_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    synced = Synced(monkeypatch)
    monkeypatch.setattr(medium, "_SYNC_FILE_RANGE", None if code is None else failing_call(code))
    RealDisk().check_written(str(tmp_path / "file"))
    assert synced.seen == [state(tmp_path / "file")]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_barrier_that_the_system_does_not_have_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(medium, "kind_of", lambda _: medium.XFS)
    monkeypatch.setattr(medium, "_SYNCFS", failing_call(code))
    assert not RealDisk().sync_file_system(str(tmp_path))


def test_barrier_that_fails_is_an_error_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(medium, "kind_of", lambda _: medium.XFS)
    monkeypatch.setattr(medium, "_SYNCFS", failing_call(errno.EIO))
    with pytest.raises(WritingError) as caught:
        RealDisk().sync_file_system(str(tmp_path))
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, str(tmp_path))


def test_folder_that_cannot_be_looked_at_is_not_covered_by_a_barrier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "kind_of", lambda _: medium.XFS)
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to("inner")
    tree = RealDisk().tree
    assert medium.can_sync_file_system(tree, str(tmp_path), [str(tmp_path / "inner")])
    assert not medium.can_sync_file_system(tree, str(tmp_path), [str(tmp_path / "link" / "x")])


@pytest.mark.parametrize(
    ("kind", "by_barrier", "one_host"),
    [(medium.XFS, True, True), (medium.TMPFS, True, True), (0x794C7630, False, True), (0x6969, False, False)],
    ids=["xfs", "tmpfs", "overlay", "nfs"],
)
def test_kind_of_file_system_says_what_a_barrier_writes_and_whom_a_lock_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, by_barrier: bool, one_host: bool
) -> None:
    monkeypatch.setattr(medium, "kind_of", lambda _: kind)
    tree = RealDisk().tree
    assert medium.can_sync_file_system(tree, str(tmp_path)) == by_barrier
    assert medium.is_of_one_host(tree, str(tmp_path)) == one_host


@pytest.mark.parametrize("failing", [True, False], ids=["call fails", "no such call"])
def test_kind_that_cannot_be_asked_for_is_none_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: bool
) -> None:
    monkeypatch.setattr(medium, "_FSTATFS", failing_call(errno.ENOSYS) if failing else None)
    with (tmp_path / "file").open("wb") as file:
        assert medium.kind_of(file.fileno()) == -1
        assert not medium.is_open_on_one_host(file.fileno())


def dropping(path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[..., None]) -> None:
    """Both ways to drop the pages of a file, the one that says so if it cannot be done last."""
    monkeypatch.setattr(os, "posix_fadvise", answer)
    real_disk.drop_from_cache(str(path), RealDisk().tree)
    with path.open("rb") as file:
        medium.forget_pages(file.fileno())


def test_all_pages_of_a_file_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    asked: list[tuple[int, ...]] = []
    dropping(tmp_path / "file", monkeypatch, lambda _, *what: asked.append(what))
    assert asked == [(0, 0, os.POSIX_FADV_DONTNEED)] * 2  # 0 bytes: to the end


def test_pages_that_cannot_be_dropped_are_an_error_only_where_the_disk_is_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"x")
    asked: list[int] = []

    def fail(descriptor: int, *_: int) -> None:
        asked.append(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        dropping(tmp_path / "file", monkeypatch, fail)
    assert len(asked) == 2
