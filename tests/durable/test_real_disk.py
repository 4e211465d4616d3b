"""The disk that writes real files."""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import stat
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krepair.durable import real_disk
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Attributes, Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from tests.durable.descriptors import open_descriptors

OLD_NS = 1_500_000_000_123_456_789


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path.resolve())


@pytest.fixture
def disk(root: str) -> RealDisk:
    return RealDisk(root)


def content(path: str) -> bytes:
    return Path(path).read_bytes()


def code_of(call: Callable[[], object]) -> int | None:
    """The number of the error with which a call fails."""
    with pytest.raises(OSError) as caught:
        call()
    return caught.value.errno


def raising(code: int) -> Callable[..., object]:
    def fail(*_: object, **__: object) -> object:
        raise OSError(code, os.strerror(code))

    return fail


class TestCreate:
    def test_a_new_file_holds_the_bytes_and_is_for_the_owner_only(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"abc")
        assert (content(f"{root}/a"), stat.S_IMODE(os.stat(f"{root}/a").st_mode)) == (b"abc", 0o600)

    @pytest.mark.parametrize("there", ["file", "symlink", "dangling symlink"])
    def test_what_is_there_is_never_written(self, disk: Disk, root: str, there: str) -> None:
        Path(root, "other").write_bytes(b"old")
        if there == "file":
            os.rename(f"{root}/other", f"{root}/a")
        else:
            os.symlink("other" if there == "symlink" else "nowhere", f"{root}/a")
        with pytest.raises(FileExistsError) as caught:
            disk.create(f"{root}/a", b"new")
        assert caught.value.filename == f"{root}/a"
        assert not os.path.lexists(f"{root}/nowhere")
        assert there == "dangling symlink" or content(f"{root}/a") == b"old"

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            pytest.param(raising(errno.ENOSPC), "no space is left on the file system", id="no space"),
            pytest.param(lambda *_: 0, "nothing could be written at position 0", id="nothing is taken"),
        ],
    )
    def test_a_failure_leaves_no_file(
        self,
        disk: Disk,
        root: str,
        monkeypatch: pytest.MonkeyPatch,
        answer: Callable[..., object],
        words: str,
    ) -> None:
        monkeypatch.setattr(os, "pwritev", answer)
        with pytest.raises(OSError, match=words):
            disk.create(f"{root}/a", b"abc")
        assert os.listdir(root) == []

    def test_a_new_file_that_cannot_be_looked_at_is_not_left(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, failed = os.fstat, []

        def fstat(descriptor: int) -> os.stat_result:
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/a"):
                failed.append(descriptor)
                raise OSError(errno.EIO, "made to fail")
            return real(descriptor)

        monkeypatch.setattr(os, "fstat", fstat)
        with pytest.raises(OSError):
            disk.create(f"{root}/a", b"", owner=(os.getuid(), os.getgid()))
        assert failed
        assert os.listdir(root) == []


class TestWrite:
    @given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 100), st.integers(1, 17))
    def test_pieces_land_in_order_however_short_the_writes_are(
        self, tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], position: int, at_once: int
    ) -> None:
        path = str(tmp_path_factory.mktemp("w").resolve() / "a")
        disk = RealDisk()
        disk.create(path, b"")
        real = os.pwritev
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "pwritev", lambda fd, bufs, at: real(fd, [bufs[0][:at_once]], at))
            written = disk.write_at(path, position, [memoryview(piece) for piece in pieces])
        joined = b"".join(pieces)
        assert written == len(joined)
        assert content(path) == (bytes(position) + joined if joined else b"")

    def test_more_pieces_than_one_call_takes_are_all_written(self, disk: Disk, root: str) -> None:
        pieces = [b"%05d" % number for number in range(3 * os.sysconf("SC_IOV_MAX") + 7)]
        disk.create(f"{root}/a", b"")
        assert disk.write_at(f"{root}/a", 0, [memoryview(piece) for piece in pieces]) == 5 * len(pieces)
        assert content(f"{root}/a") == b"".join(pieces)

    def test_pieces_of_other_items_count_in_bytes(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"")
        words = memoryview(bytearray(range(16))).cast("q")
        assert disk.write_at(f"{root}/a", 1, [words]) == 16
        assert content(f"{root}/a") == b"\0" + bytes(range(16))

    def test_a_missing_file_is_not_made(self, disk: Disk, root: str) -> None:
        with pytest.raises(FileNotFoundError):
            disk.write_at(f"{root}/a", 0, [memoryview(b"x")])
        assert os.listdir(root) == []

    def test_nothing_taken_by_the_kernel_is_an_error_not_a_loop(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"")
        monkeypatch.setattr(os, "pwritev", lambda *_: 0)
        with pytest.raises(OSError, match="nothing could be written at position 3"):
            disk.write_at(f"{root}/a", 3, [memoryview(b"x")])

    def test_append_adds_at_the_end(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/j", b"one\n")
        disk.append(f"{root}/j", b"two\n")
        assert content(f"{root}/j") == b"one\ntwo\n"

    def test_reserve_twice_keeps_what_another_task_wrote(self, disk: Disk, root: str) -> None:
        disk.reserve(f"{root}/a", 10)
        disk.write_at(f"{root}/a", 4, [memoryview(b"xy")])
        disk.reserve(f"{root}/a", 10)
        assert content(f"{root}/a") == b"\0\0\0\0xy\0\0\0\0"

    def test_reserved_file_is_its_owners_alone_and_has_its_length_from_one_call(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = os.umask(0)
        try:
            disk.reserve(f"{root}/a", 10)
        finally:
            os.umask(before)
        assert stat.S_IMODE(os.stat(f"{root}/a").st_mode) == 0o600
        monkeypatch.setattr(os, "ftruncate", raising(errno.EIO))
        disk.reserve(f"{root}/a", 10)
        assert content(f"{root}/a") == bytes(10)

    def test_reserve_never_shortens(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"12345")
        with pytest.raises(FileExistsError):
            disk.reserve(f"{root}/a", 4)
        assert content(f"{root}/a") == b"12345"

    @pytest.mark.parametrize(("size", "told"), [((1 << 20) - 1, False), (1 << 20, True)])
    def test_the_kernel_is_told_to_begin_with_large_writes(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch, size: int, told: bool
    ) -> None:
        calls: list[tuple[int, ...]] = []
        monkeypatch.setattr(real_disk, "_SYNC_FILE_RANGE", lambda _, *of: calls.append(of))
        disk.create(f"{root}/a", b"")
        assert disk.write_at(f"{root}/a", 7, [memoryview(bytes(size))]) == size
        begin = 2  # SYNC_FILE_RANGE_WRITE: it waits for nothing
        assert calls == ([(7, size, begin)] if told else [])

    def test_large_writes_do_without_a_kernel_that_cannot_be_told(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(real_disk, "_SYNC_FILE_RANGE", None)
        disk.create(f"{root}/a", b"")
        assert disk.write_at(f"{root}/a", 0, [memoryview(bytes(1 << 20))]) == 1 << 20

    def test_truncate_cuts(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"12345")
        disk.truncate(f"{root}/a", 2)
        assert content(f"{root}/a") == b"12"


class TestNames:
    def test_rename_replaces(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"new")
        disk.create(f"{root}/b", b"old")
        disk.rename(f"{root}/a", f"{root}/b")
        assert (os.listdir(root), content(f"{root}/b")) == (["b"], b"new")

    def test_link_is_the_same_file_and_needs_a_free_name(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"x")
        disk.link(f"{root}/a", f"{root}/b")
        assert os.stat(f"{root}/a").st_ino == os.stat(f"{root}/b").st_ino
        with pytest.raises(FileExistsError):
            disk.link(f"{root}/a", f"{root}/b")

    def test_a_symlink_is_never_linked_copied_or_written(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"x")
        os.symlink("a", f"{root}/s")
        calls: list[Callable[[], object]] = [
            lambda: disk.link(f"{root}/s", f"{root}/b"),
            lambda: disk.copy(f"{root}/s", f"{root}/b"),
            lambda: disk.append(f"{root}/s", b"y"),
            lambda: disk.truncate(f"{root}/s", 0),
            lambda: disk.write_at(f"{root}/s", 0, [memoryview(b"y")]),
            lambda: disk.reserve(f"{root}/s", 9),
            lambda: disk.sync_file(f"{root}/s"),
        ]
        for call in calls:
            assert code_of(call) == errno.ELOOP
        assert (sorted(os.listdir(root)), content(f"{root}/a")) == (["a", "s"], b"x")

    def test_a_fifo_is_refused_without_waiting(self, disk: Disk, root: str) -> None:
        os.mkfifo(f"{root}/f")
        for call in (lambda: disk.copy(f"{root}/f", f"{root}/b"), lambda: disk.append(f"{root}/f", b"y")):
            assert code_of(call) in {errno.EINVAL, errno.ENXIO}

    def test_what_is_no_regular_file_is_never_linked(self, disk: Disk, root: str) -> None:
        os.mkfifo(f"{root}/f")
        with pytest.raises(OSError, match="is not a regular file") as caught:
            disk.link(f"{root}/f", f"{root}/b")
        assert (caught.value.errno, os.listdir(root)) == (errno.EINVAL, ["f"])

    def test_a_symlink_that_takes_the_name_while_a_file_is_linked_is_not_followed(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        disk.create(f"{root}/of another", b"secret")

        def exchanged(_: os.stat_result) -> None:
            os.unlink(f"{root}/a")
            os.symlink("of another", f"{root}/a")

        monkeypatch.setattr(real_disk, "_must_be_regular", exchanged)
        disk.link(f"{root}/a", f"{root}/b")
        assert os.path.islink(f"{root}/b")
        assert os.stat(f"{root}/of another").st_nlink == 1

    def test_below_the_root_no_folder_may_be_a_symlink(self, disk: Disk, root: str) -> None:
        disk.make_dir(f"{root}/p")
        os.symlink("p", f"{root}/s")
        for path in (f"{root}/s/a", f"{root}/s/../s/a"):
            with pytest.raises(OSError) as caught:
                disk.create(path, b"")
            assert caught.value.errno in {errno.ELOOP, errno.ENOTDIR, errno.EXDEV}
        with pytest.raises(OSError):
            disk.sync_dir(f"{root}/s")
        assert os.listdir(f"{root}/p") == []

    def test_nothing_outside_of_the_root_is_changed(self, disk: Disk, root: str) -> None:
        disk.make_dir(f"{root}/p")
        disk.create(f"{root}/a", b"x")
        inner = RealDisk(f"{root}/p")
        outside = (
            lambda: inner.create(f"{root}/b", b""),
            lambda: inner.create(f"{root}/p/../b", b""),
            lambda: inner.make_dir(f"{root}/d"),
            lambda: inner.unlink(f"{root}/a"),
            lambda: inner.rename(f"{root}/a", f"{root}/p/a"),
            lambda: inner.link(f"{root}/a", f"{root}/p/a"),
            lambda: inner.write_at(f"{root}/a", 0, [memoryview(b"y")]),
            lambda: inner.sync_dir(f"{root}/pp"),
        )
        for call in outside:
            assert code_of(call) == errno.EXDEV
        assert (sorted(os.listdir(root)), content(f"{root}/a"), os.listdir(f"{root}/p")) == (
            ["a", "p"],
            b"x",
            [],
        )

    def test_without_a_root_no_folder_on_the_way_may_be_a_symlink(self, root: str) -> None:
        RealDisk().make_dir(f"{root}/p")
        os.symlink("p", f"{root}/s")
        with pytest.raises(OSError) as caught:
            RealDisk().create(f"{root}/s/a", b"x")
        assert (caught.value.errno, os.listdir(f"{root}/p")) == (errno.ELOOP, [])

    def test_a_file_with_a_second_name_is_not_changed(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/victim", b"old")
        os.link(f"{root}/victim", f"{root}/a")
        changes = (
            lambda: disk.write_at(f"{root}/a", 0, [memoryview(b"new")]),
            lambda: disk.append(f"{root}/a", b"new"),
            lambda: disk.truncate(f"{root}/a", 0),
            lambda: disk.reserve(f"{root}/a", 100),
            lambda: disk.set_attributes(f"{root}/a", Attributes(1, 1, 0o777, 0, {})),
        )
        before = os.stat(f"{root}/victim")
        for call in changes:
            with pytest.raises(OSError, match="hard links"):
                call()
        assert (content(f"{root}/victim"), os.stat(f"{root}/victim").st_mtime_ns) == (
            b"old",
            before.st_mtime_ns,
        )

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
    def test_a_file_of_another_file_system_that_is_mounted_over_a_name_is_not_changed(
        self, disk: Disk, root: str
    ) -> None:
        disk.create(f"{root}/a", b"old")
        with tempfile.NamedTemporaryFile(dir="/dev/shm") as victim:
            victim.write(b"victim")
            victim.flush()
            if subprocess.run(["mount", "--bind", victim.name, f"{root}/a"], check=False).returncode:
                pytest.skip("this system lets nobody mount")
            try:
                for call in (
                    lambda: disk.write_at(f"{root}/a", 0, [memoryview(b"new")]),
                    lambda: disk.truncate(f"{root}/a", 0),
                    lambda: disk.set_attributes(f"{root}/a", Attributes(1, 1, 0o777, 0, {})),
                ):
                    assert code_of(call) == errno.EXDEV
                assert content(victim.name) == b"victim"
            finally:
                subprocess.run(["umount", f"{root}/a"], check=True)

    def test_another_file_than_the_one_expected_is_not_changed(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"old")
        other = os.stat(f"{root}/a").st_ino + 1
        with pytest.raises(OSError, match="another file"):
            disk.set_attributes(f"{root}/a", Attributes(0, 0, 0o777, 0, {}), other)
        assert (content(f"{root}/a"), stat.S_IMODE(os.stat(f"{root}/a").st_mode)) == (b"old", 0o600)

    @pytest.mark.parametrize("path", ["a", "/", "/x/..", "/x/", "/x/."])
    def test_a_path_that_names_no_file_is_refused(self, path: str) -> None:
        assert code_of(lambda: RealDisk().create(path, b"")) == errno.EINVAL

    def test_names_of_any_bytes_work(self, disk: Disk, root: str) -> None:
        name = os.fsdecode(b"\xff\n \x1b")
        disk.create(f"{root}/{name}", b"x")
        disk.copy(f"{root}/{name}", f"{root}/{name}2")
        disk.unlink(f"{root}/{name}")
        assert os.listdir(os.fsencode(root)) == [b"\xff\n \x1b2"]

    def test_folders_get_their_mode_whatever_the_umask(self, disk: Disk, root: str) -> None:
        before = os.umask(0o077)
        try:
            disk.make_dir(f"{root}/p", 0o755)
        finally:
            os.umask(before)
        assert stat.S_IMODE(os.stat(f"{root}/p").st_mode) == 0o755
        disk.remove_dir(f"{root}/p")
        assert os.listdir(root) == []

    def test_a_folder_that_cannot_be_given_away_is_not_left_behind(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fchown", raising(errno.EPERM))
        before = open_descriptors(root)
        with pytest.raises(PermissionError):
            disk.make_dir(f"{root}/p", owner=(os.getuid() + 1, os.getgid()))
        assert os.listdir(root) == []
        assert open_descriptors(root) <= before + 1  # that of the root

    def test_an_owner_that_is_right_already_is_not_given_again(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who is not root may not even give a file to himself, on some file systems."""
        monkeypatch.setattr(os, "fchown", raising(errno.EPERM))
        found = os.stat(root)
        disk.make_dir(f"{root}/p", owner=(found.st_uid, found.st_gid))
        disk.create(f"{root}/a", b"x", owner=(found.st_uid, found.st_gid))
        assert sorted(os.listdir(root)) == ["a", "p"]

    def test_a_folder_that_cannot_be_synced_is_named(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fsync", raising(errno.EIO))
        with pytest.raises(OSError, match=r"Input/output|reports an I/O error") as caught:
            disk.sync_dir(root)
        assert caught.value.filename == root

    def test_a_tree_that_is_given_is_the_one_that_is_used(self, root: str) -> None:
        tree = Tree(root)
        assert RealDisk(tree).tree is tree
        assert RealDisk(root).tree.path == root

    def test_a_folder_with_a_file_stays(self, disk: Disk, root: str) -> None:
        disk.make_dir(f"{root}/p")
        disk.create(f"{root}/p/a", b"")
        with pytest.raises(OSError, match="not empty"):
            disk.remove_dir(f"{root}/p")

    def test_no_descriptor_is_left_open(self, disk: Disk, root: str) -> None:
        disk.make_dir(f"{root}/p")  # the root is opened once
        before = open_descriptors(root)
        disk.create(f"{root}/p/a", b"x")
        disk.copy(f"{root}/p/a", f"{root}/b")
        disk.sync_dir(f"{root}/p")
        for path in (f"{root}/none/a", f"{root}/p/a"):
            with pytest.raises(OSError):
                disk.create(path, b"")
        assert open_descriptors(root) == before

    def test_it_travels_to_other_processes(self, disk: RealDisk) -> None:
        assert pickle.loads(pickle.dumps(disk)).tree.path == disk.tree.path


class TestCopy:
    @pytest.mark.parametrize("way", ["as it comes", "no reflink", "no copy_file_range", "short ranges"])
    def test_bytes_and_attributes_are_the_same(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        data = os.urandom((1 << 20) + 4321)
        disk.create(f"{root}/a", data)
        give(f"{root}/a")
        real_range = os.copy_file_range
        if way != "as it comes":
            monkeypatch.setattr(fcntl, "ioctl", raising(errno.EOPNOTSUPP))
        if way == "no copy_file_range":
            monkeypatch.setattr(os, "copy_file_range", raising(errno.EXDEV))
        if way == "short ranges":
            monkeypatch.setattr(
                os, "copy_file_range", lambda r, w, n, at, to: real_range(r, w, min(n, 77_777), at, to)
            )
        disk.copy(f"{root}/a", f"{root}/b")
        assert content(f"{root}/b") == data
        assert read_attributes(f"{root}/b") == read_attributes(f"{root}/a")
        assert read_attributes(f"{root}/b").mtime_ns == OLD_NS
        assert os.stat(f"{root}/a").st_ino != os.stat(f"{root}/b").st_ino

    @pytest.mark.parametrize("by_chunks", [True, False], ids=["by chunks", "by ranges"])
    def test_all_is_copied_where_nobody_can_tell_where_holes_are(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch, by_chunks: bool
    ) -> None:
        data = os.urandom(70_000)
        disk.create(f"{root}/a", data)
        monkeypatch.setattr(fcntl, "ioctl", raising(errno.EOPNOTSUPP))
        monkeypatch.setattr(os, "lseek", raising(errno.EINVAL))
        if by_chunks:
            monkeypatch.setattr(os, "copy_file_range", raising(errno.EXDEV))
        disk.copy(f"{root}/a", f"{root}/b")
        assert content(f"{root}/b") == data

    def test_a_failure_leaves_no_copy(self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        disk.create(f"{root}/a", b"x" * 5000)
        monkeypatch.setattr(fcntl, "ioctl", raising(errno.EOPNOTSUPP))
        monkeypatch.setattr(os, "copy_file_range", raising(errno.ENOSPC))
        with pytest.raises(OSError, match="no space is left"):
            disk.copy(f"{root}/a", f"{root}/b")
        assert os.listdir(root) == ["a"]

    def test_an_io_error_of_a_copy_is_not_said_to_be_one_of_writing(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may be about the file that is read as well."""
        disk.create(f"{root}/a", b"x" * 5000)
        monkeypatch.setattr(fcntl, "ioctl", raising(errno.EOPNOTSUPP))
        monkeypatch.setattr(os, "copy_file_range", raising(errno.EIO))
        with pytest.raises(OSError, match="Input/output") as caught:
            disk.copy(f"{root}/a", f"{root}/b")
        assert "could not be written" not in str(caught.value)
        assert os.listdir(root) == ["a"]


class TestAttributes:
    def test_a_new_file_takes_over_all_of_them(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"x")
        give(f"{root}/a")
        disk.create(f"{root}/b", b"longer")
        disk.set_attributes(f"{root}/b", read_attributes(f"{root}/a"))
        assert read_attributes(f"{root}/b") == read_attributes(f"{root}/a")
        assert content(f"{root}/b") == b"longer"

    def test_attributes_of_users_that_were_not_there_go(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"x")
        plain = read_attributes(f"{root}/a")
        give(f"{root}/a")
        disk.set_attributes(f"{root}/a", plain)
        assert read_attributes(f"{root}/a") == plain

    def test_an_owner_that_is_right_already_is_left_alone(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        monkeypatch.setattr(os, "fchown", raising(errno.EPERM))
        wanted = read_attributes(f"{root}/a")._replace(mode=0o640, mtime_ns=OLD_NS)
        disk.set_attributes(f"{root}/a", wanted)
        assert read_attributes(f"{root}/a") == wanted

    def test_another_owner_that_cannot_be_set_is_an_error(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        monkeypatch.setattr(os, "fchown", raising(errno.EPERM))
        wanted = read_attributes(f"{root}/a")
        with pytest.raises(PermissionError):
            disk.set_attributes(f"{root}/a", wanted._replace(uid=wanted.uid + 1))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_root_gives_owner_and_group(self, disk: Disk, root: str) -> None:
        disk.create(f"{root}/a", b"x")
        disk.set_attributes(f"{root}/a", Attributes(1234, 2345, 0o640, OLD_NS, {}))
        assert read_attributes(f"{root}/a") == Attributes(1234, 2345, 0o640, OLD_NS, {})

    def test_a_file_system_without_extended_attributes_has_none(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        for name in ("listxattr", "getxattr", "setxattr"):
            monkeypatch.setattr(os, name, raising(errno.ENOTSUP))
        wanted = read_attributes(f"{root}/a")._replace(mtime_ns=OLD_NS, xattrs={"user.k": b"v"})
        disk.set_attributes(f"{root}/a", wanted)
        assert read_attributes(f"{root}/a") == wanted._replace(xattrs={})

    def test_hashes_of_the_content_are_not_taken_over(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path(root, "a").touch()
        monkeypatch.setattr(os, "listxattr", lambda _: ["security.ima", "security.evm", "user.k"])
        monkeypatch.setattr(os, "getxattr", lambda _, name: name.encode())
        assert read_attributes(f"{root}/a").xattrs == {"user.k": b"user.k"}

    def test_reading_them_leaves_no_descriptor_open(self, root: str) -> None:
        Path(root, "a").touch()
        read_attributes(f"{root}/a")
        before = open_descriptors(root)
        read_attributes(f"{root}/a")
        assert open_descriptors(root) == before

    def test_they_are_read_below_the_directory_that_was_opened(self, root: str) -> None:
        Path(root, "a").touch()
        another = Tree(root, os.stat(root).st_ino + 1)
        assert code_of(lambda: read_attributes(f"{root}/a", another)) == errno.ESTALE

    def test_an_extended_attribute_that_goes_meanwhile_is_not_taken_over(
        self, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path(root, "a").touch()
        monkeypatch.setattr(os, "listxattr", lambda _: ["user.k"])
        monkeypatch.setattr(os, "getxattr", raising(errno.ENODATA))
        assert read_attributes(f"{root}/a").xattrs == {}

    @pytest.mark.parametrize("name", ["listxattr", "getxattr"])
    def test_an_extended_attribute_that_cannot_be_read_is_an_error_with_the_name_of_the_file(
        self, root: str, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        Path(root, "a").touch()
        monkeypatch.setattr(os, "listxattr", lambda _: ["user.k"])
        monkeypatch.setattr(os, name, raising(errno.EIO))
        with pytest.raises(OSError, match=r"Input/output|reports an I/O error") as caught:
            read_attributes(f"{root}/a")
        assert caught.value.filename == f"{root}/a"

    def test_an_extended_attribute_that_may_not_be_set_is_an_error(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        monkeypatch.setattr(os, "listxattr", lambda _: [])
        monkeypatch.setattr(os, "setxattr", raising(errno.EPERM))
        with pytest.raises(PermissionError):
            disk.set_attributes(f"{root}/a", read_attributes(f"{root}/a")._replace(xattrs={"user.k": b"v"}))

    def test_what_the_new_file_was_born_with_goes_unless_the_system_put_it_there(
        self, disk: Disk, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk.create(f"{root}/a", b"x")
        born = {"user.k": b"1", "user.same": b"2", "system.posix_acl_access": b"3", "security.selinux": b"4"}
        changes: list[tuple[str, ...]] = []
        monkeypatch.setattr(os, "listxattr", lambda _: list(born))
        monkeypatch.setattr(os, "getxattr", lambda _, name: born[name])
        monkeypatch.setattr(os, "removexattr", lambda _, name: changes.append(("gone", name)))
        monkeypatch.setattr(os, "setxattr", lambda _, name, value: changes.append(("set", name, value)))
        wanted = {"user.same": b"2", "user.new": b"5", "security.ima": b"6"}
        disk.set_attributes(f"{root}/a", Attributes(os.getuid(), os.getgid(), 0o600, OLD_NS, wanted))
        assert sorted(changes) == [
            ("gone", "system.posix_acl_access"),
            ("gone", "user.k"),
            ("set", "user.new", b"5"),
        ]


def give(path: str) -> None:
    """Give a file unusual attributes, extended ones where the file system has them."""
    os.chmod(path, 0o604)
    try:
        os.setxattr(path, "user.krepair-test", b"\0value")
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
    os.utime(path, ns=(OLD_NS, OLD_NS))
