"""Message of a failed write: the operating system's own words, and the file system concerned."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from krepair.durable import writing_error
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import (
    FileSystem,
    WritingError,
    as_writing_error,
    file_system_of,
    folder_with_room,
)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB with a blank in its name, and 12 inodes."""
    folder = tmp_path / "a disk"
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=12", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(argv, check=False).returncode:
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_with_its_file_system_and_the_file_that_was_to_be_written(small: Path) -> None:
    with pytest.raises(WritingError) as full:
        RealDisk().create(str(small / "new"), bytes(2 << 20))
    assert full.value.filename == str(small / "new")
    assert full.value.errno == errno.ENOSPC
    assert full.value.strerror == (
        f"could not be written: no space is left on the file system {small} (tmpfs)"
    )
    assert not (small / "new").exists()


def test_a_disk_without_inodes_says_that_it_is_inodes_that_are_missing(small: Path) -> None:
    for number in range(12):
        with contextlib.suppress(OSError):
            (small / f"{number}").touch()
    with pytest.raises(WritingError, match="has no inode left for another file"):
        RealDisk().create(str(small / "new"), b"")


def test_of_two_names_the_one_that_is_made_is_told(small: Path, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(bytes(2 << 20))
    with pytest.raises(OSError, match="o space") as full:
        RealDisk().copy(str(tmp_path / "source"), str(small / "copy"))
    assert full.value.errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EIO, "reports an I/O error; the kernel's log (dmesg) says more"),
        (errno.EDQUOT, "the disk quota on the file system"),
        (errno.EROFS, "is mounted read-only"),
    ],
)
def test_each_reason_has_its_own_words(number: int, words: str) -> None:
    said = as_writing_error(OSError(number, os.strerror(number)), "/proc/self/x")
    assert isinstance(said, WritingError)
    assert words in str(said.strerror)
    assert "/proc (proc)" in str(said.strerror)
    assert said.filename == "/proc/self/x"


def test_an_error_that_is_none_of_writing_stays_as_it_is() -> None:
    error = FileExistsError(errno.EEXIST, "is there", "/x")
    assert as_writing_error(error, "/x") is error
    with pytest.raises(FileNotFoundError):
        RealDisk().unlink("/proc/nothing")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ((), "/tried"),
        (("/one",), "/one"),
        ((b"/one",), "/one"),
        (("/source", None, "/made"), "/made"),
        (("one",), "/tried"),
        ((7,), "/tried"),
    ],
)
def test_the_file_that_the_system_names_is_told_and_else_the_one_that_was_to_be_written(
    names: tuple[object, ...], told: str
) -> None:
    said = as_writing_error(OSError(errno.EIO, os.strerror(errno.EIO), *names), "/tried")
    assert (type(said), said.filename) == (WritingError, told)


@pytest.mark.parametrize(
    ("inodes", "free", "none_is_left"),
    [(1, 0, True), (12, 0, True), (12, 1, False), (0, 0, False)],
)
def test_inodes_are_missing_only_where_a_file_system_counts_them_and_has_none_free(
    inodes: int, free: int, none_is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_files=inodes, f_favail=free))
    said = as_writing_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "/proc/x")
    assert ("no inode left" in str(said.strerror)) == none_is_left
    assert ("no space is left" in str(said.strerror)) == (not none_is_left)


def test_a_file_system_that_cannot_be_asked_for_its_inodes_has_no_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "statvfs", fail)
    said = as_writing_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "/proc/x")
    assert "no space is left on the file system /proc (proc)" in str(said.strerror)


def mounts(folder: Path, patch: pytest.MonkeyPatch, *given: tuple[str, str]) -> None:
    """The kernel says that these are mounted: place and kind."""
    lines = [f"1 0 0:1 / {place} rw - {kind} none rw\n" for place, kind in given]
    (folder / "mountinfo").write_text("".join(lines))
    patch.setattr(writing_error, "_MOUNTS", str(folder / "mountinfo"))


def test_the_file_system_of_a_path_is_the_innermost_one(small: Path) -> None:
    assert file_system_of(str(small / "x"))[:2] == (str(small), "tmpfs")
    assert file_system_of(f"{small}x").mounted_at != str(small)
    assert file_system_of("/proc/self/status")[:2] == ("/proc", "proc")


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/", 0),
        ("/a", 0),
        ("/a/b", 2),
        ("/a/b/", 2),
        ("/a/b/c", 2),
        ("/a/b~", 3),
        ("/a/b~/c", 3),
        ("/a/bc", 0),
        ("/a/c", 0),
        ("/c", 4),
    ],
)
def test_a_file_system_holds_its_mount_point_and_what_is_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, number: int
) -> None:
    places = ["/", "/a/b", "/a/b", "/a/b~", "/c"]
    mounts(tmp_path, monkeypatch, *zip(places, "01234", strict=True))
    assert file_system_of(path) == FileSystem(places[number], str(number), "rw")


def test_a_path_that_no_file_system_is_known_to_hold_is_told_by_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(tmp_path, monkeypatch, ("/c", "ext4"))
    assert file_system_of("/a/b") == FileSystem("/a")


def test_options_of_a_file_system_over_a_network_are_those_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "81 30 0:48 / /mnt/a\\040b rw,relatime shared:7 - nfs4 10.0.0.1:/x rw,vers=4.2,local_lock=none\n"
    (tmp_path / "mountinfo").write_text(line)
    monkeypatch.setattr(writing_error, "_MOUNTS", str(tmp_path / "mountinfo"))
    found = file_system_of("/mnt/a b/c")
    assert found == FileSystem("/mnt/a b", "nfs4", "rw,vers=4.2,local_lock=none")
    assert str(found) == "/mnt/a b (nfs4)"


def test_where_the_kernel_does_not_say_what_is_mounted_none_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing_error, "_MOUNTS", str(tmp_path / "mountinfo"))
    assert file_system_of(str(tmp_path / "a")) == FileSystem(str(tmp_path))


def test_a_folder_with_room_is_on_another_file_system_and_large_enough(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(small))
    assert folder_with_room(str(tmp_path), 1000) == str(small)
    assert folder_with_room(str(tmp_path), 2 << 20) != str(small)
    assert folder_with_room(str(small), 1000) != str(small)
