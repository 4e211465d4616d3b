"""The lock against second processes: Python with fcntl, and a JVM with ``FileChannel.tryLock``."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.writing_error import FileSystem
from krepair.errors import LockedError, RefusedError, UnreadableError
from krepair.logdir import lock as locks
from krepair.logdir.lock import UNKNOWN_PID, Holder, Lock, hold_lock, hold_own_lock, is_locked
from tests.durable.disks import FailingDisk, RecordingDisk

Hold = Callable[[str, Disk], AbstractContextManager[object]]
POSIX_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""
KREPAIR_HOLDER = """
import sys
from krepair.durable.real_disk import RealDisk
from krepair.logdir.lock import hold_lock
folder = sys.argv[1].rpartition("/")[0]
with hold_lock(folder, RealDisk(folder)):
    print("held", flush=True)
    sys.stdin.read()
"""
JAVA_LOCKER = """
import java.nio.channels.*;
import java.nio.file.*;
public class Locker {
    public static void main(String[] args) throws Exception {
        try (FileChannel channel = FileChannel.open(Path.of(args[0]),
                StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            FileLock lock = channel.tryLock();
            System.out.println(lock == null ? "refused" : "held");
            System.out.flush();
            System.in.read();
        }
    }
}
"""


@contextmanager
def running(arguments: list[str]) -> Iterator[tuple[int, str]]:
    """A process that says a word, then waits; ends with the body. Yields its pid and the word."""
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.communicate("", timeout=60)


@contextmanager
def python_holder(program: str, log_dir: Path) -> Iterator[int]:
    with running([sys.executable, "-c", program, str(log_dir / ".lock")]) as (pid, word):
        assert word == "held"
        yield pid


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "logs"
    root.mkdir(mode=0o750)
    return root


def held(log_dir: Path) -> AbstractContextManager[Lock]:
    return hold_lock(str(log_dir), RealDisk(str(log_dir)))


def refused(log_dir: Path, error: type[Exception], words: str, hold: Hold = hold_lock) -> None:
    """It is not to be had, for this reason."""
    with pytest.raises(error, match=words), hold(str(log_dir), RealDisk(str(log_dir))):
        pytest.fail("it was held")


def removed_before_locking(log_dir: Path, monkeypatch: pytest.MonkeyPatch, *, times: int) -> None:
    """The file is deleted between its opening and its locking, so many times."""
    real, left = fcntl.fcntl, iter(range(times))

    def removing(descriptor: int, command: int, argument: bytes | int = 0) -> object:
        if command == fcntl.F_OFD_SETLK and next(left, None) is not None:
            (log_dir / ".lock").unlink()
        return real(descriptor, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", removing)


class TestHolding:
    def test_a_missing_file_is_created_with_the_directorys_mode_and_removed(self, log_dir: Path) -> None:
        with held(log_dir) as lock:
            status = (log_dir / ".lock").stat()
            assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o640, 0)
            assert (status.st_uid, status.st_gid) == (log_dir.stat().st_uid, log_dir.stat().st_gid)
            lock.check()
        assert os.listdir(log_dir) == []

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
    def test_a_created_file_gets_the_directorys_owner(self, log_dir: Path) -> None:
        os.chown(log_dir, 1234, 2345)
        with held(log_dir):
            status = (log_dir / ".lock").stat()
            assert (status.st_uid, status.st_gid) == (1234, 2345)

    def test_a_file_that_was_there_stays_as_it_is(self, log_dir: Path) -> None:
        (log_dir / ".lock").write_bytes(b"kept")
        before = (log_dir / ".lock").stat()
        disk = RecordingDisk(RealDisk(str(log_dir)))
        with hold_lock(str(log_dir), disk) as lock:
            lock.check()
        assert disk.calls == []
        after = (log_dir / ".lock").stat()
        assert (after.st_ino, after.st_mtime_ns, after.st_size) == (before.st_ino, before.st_mtime_ns, 4)

    def test_it_is_free_again_after_the_body_raised(self, log_dir: Path) -> None:
        with pytest.raises(ZeroDivisionError), held(log_dir):
            raise ZeroDivisionError
        assert is_locked(str(log_dir)) is None
        assert os.listdir(log_dir) == []

    def test_closing_another_descriptor_of_the_file_does_not_lose_it(self, log_dir: Path) -> None:
        (log_dir / ".lock").touch()
        with held(log_dir):
            (log_dir / ".lock").read_bytes()
            with running([sys.executable, "-c", POSIX_HOLDER, str(log_dir / ".lock")]) as (_, word):
                assert word == ""

    def test_a_second_holder_in_this_process_is_refused(self, log_dir: Path) -> None:
        with held(log_dir):
            refused(log_dir, LockedError, f"process {os.getpid()} ")


class TestHeldByAnother:
    @pytest.mark.parametrize("program", [POSIX_HOLDER, KREPAIR_HOLDER], ids=["posix", "krepair"])
    def test_the_error_names_pid_and_command(self, log_dir: Path, program: str) -> None:
        (log_dir / ".lock").touch()
        with python_holder(program, log_dir) as pid:
            command = Path(f"/proc/{pid}/comm").read_text().strip()
            refused(log_dir, LockedError, f"process {pid} \\({command}\\)")
            assert is_locked(str(log_dir)) == Holder(pid, command)
        assert is_locked(str(log_dir)) is None
        assert (log_dir / ".lock").exists()

    @pytest.mark.broker
    @pytest.mark.skipif(shutil.which("java") is None, reason="no java")
    def test_a_jvm_and_krepair_keep_each_other_out(self, log_dir: Path, tmp_path: Path) -> None:
        source = tmp_path / "Locker.java"
        source.write_text(JAVA_LOCKER)
        locker = ["java", "-Xmx64m", str(source), str(log_dir / ".lock")]
        with held(log_dir), running(locker) as (_, word):
            assert word == "refused"
        with running(locker) as (pid, word):
            assert word == "held"
            refused(log_dir, LockedError, f"process {pid} \\(java\\)")
            holder = is_locked(str(log_dir))
            assert holder is not None
            assert holder.pid == pid
        with held(log_dir) as lock:
            lock.check()


class TestReplacedFile:
    def test_check_refuses_when_the_file_is_gone(self, log_dir: Path) -> None:
        with held(log_dir) as lock:
            (log_dir / ".lock").unlink()
            with pytest.raises(RefusedError, match="gone"):
                lock.check()

    def test_check_refuses_when_the_file_was_replaced(self, log_dir: Path) -> None:
        with held(log_dir) as lock:
            (log_dir / "other").write_bytes(b"")
            (log_dir / "other").rename(log_dir / ".lock")
            with pytest.raises(RefusedError, match="replaced"):
                lock.check()
        # Not ours any more: it must not be removed.
        assert (log_dir / ".lock").exists()

    def test_check_names_who_holds_the_new_file(self, log_dir: Path) -> None:
        with held(log_dir) as lock:
            (log_dir / "other").write_bytes(b"")
            (log_dir / "other").rename(log_dir / ".lock")
            with python_holder(POSIX_HOLDER, log_dir) as pid, pytest.raises(LockedError, match=str(pid)):
                lock.check()

    def test_a_file_deleted_between_open_and_lock_is_tried_again(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As when a broker of 3.9 ends its clean stop just then."""
        (log_dir / ".lock").touch()
        removed_before_locking(log_dir, monkeypatch, times=1)
        with held(log_dir) as lock:
            lock.check()
            assert lock.created
        assert os.listdir(log_dir) == []

    def test_a_file_replaced_every_time_is_given_up(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed_before_locking(log_dir, monkeypatch, times=sys.maxsize)
        refused(log_dir, RefusedError, "replaced")


class TestBadFile:
    @pytest.mark.parametrize("kind", ["symlink", "FIFO", "folder"])
    def test_what_is_no_regular_file_is_refused(self, log_dir: Path, kind: str) -> None:
        path = log_dir / ".lock"
        if kind == "symlink":
            (log_dir / "target").touch()
            path.symlink_to(log_dir / "target")
        elif kind == "FIFO":
            os.mkfifo(path)
        else:
            path.mkdir()
        with pytest.raises(RefusedError, match="regular file"):
            is_locked(str(log_dir))
        refused(log_dir, RefusedError, "regular file")

    @pytest.mark.parametrize("call", ["create", "set_attributes"])
    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            (errno.ENOSPC, RefusedError),
            (errno.EROFS, RefusedError),
            (errno.EACCES, RefusedError),
            (errno.EIO, UnreadableError),
        ],
    )
    def test_where_it_cannot_be_made_nothing_is_left_behind(
        self, log_dir: Path, call: str, code: int, expected: type[Exception]
    ) -> None:
        disk = FailingDisk(RealDisk(str(log_dir)), 1, code, kinds={call})
        with pytest.raises(expected, match=os.strerror(code)), hold_lock(str(log_dir), disk):
            pytest.fail("held a file that could not be made")
        assert os.listdir(log_dir) == []

    def test_asking_creates_nothing_and_changes_nothing(self, log_dir: Path) -> None:
        assert is_locked(str(log_dir)) is None
        assert os.listdir(log_dir) == []
        (log_dir / ".lock").touch(mode=0o400)
        before = (log_dir / ".lock").stat()
        assert is_locked(str(log_dir)) is None
        assert (log_dir / ".lock").stat() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_file_that_a_killed_krepair_left_with_root_as_its_owner_does_not_stay(tmp_path: Path) -> None:
    """Killed between making the file and giving it away: a broker of another user could not open it."""
    os.chown(tmp_path, 4242, 4343)
    (tmp_path / ".lock").touch(0o600)
    with held(tmp_path) as lock:
        found = (tmp_path / ".lock").stat()
        assert (found.st_uid, found.st_gid) == (4242, 4343)
        lock.check()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_lock_file_of_the_directory_s_owner_stays(tmp_path: Path) -> None:
    os.chown(tmp_path, 4242, 4343)
    (tmp_path / ".lock").touch(0o600)
    os.chown(tmp_path / ".lock", 4242, 4343)
    with held(tmp_path):
        pass
    assert (tmp_path / ".lock").exists()


class TestNetworkStorage:
    @pytest.fixture(autouse=True)
    def _of_many_hosts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(medium, "is_open_on_one_host", lambda descriptor: False)

    @pytest.mark.parametrize("hold", [hold_lock, hold_own_lock])
    @pytest.mark.parametrize(
        ("kind", "option"),
        [
            ("nfs4", "local_lock=all"),
            ("nfs", "local_lock=posix"),
            ("nfs4", "local_lock=flock"),
            ("nfs", "nolock"),
            ("cifs", "nobrl"),
            ("lustre", "localflock"),
            ("ocfs2", "localflocks"),
            ("fuse.sshfs", ""),
            ("9p", ""),
            ("ext5", ""),
            ("", ""),
        ],
    )
    def test_where_a_lock_may_not_reach_other_hosts_nothing_may_be_changed(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch, hold: Hold, kind: str, option: str
    ) -> None:
        mounted = FileSystem("/data", kind, f"rw,{option},addr=x")
        monkeypatch.setattr(locks, "file_system_of", lambda path: mounted)
        of_mount = rf"/data \({kind}\) is mounted with {option}"
        of_kind = "does not know whether a lock reaches other hosts"
        refused(log_dir, RefusedError, of_mount if option else of_kind, hold)
        assert not (log_dir / ".lock").exists()

    @pytest.mark.parametrize(
        ("kind", "options"),
        [("nfs4", "rw,local_lock=none"), ("nfs", "rw"), ("ext4", "rw,nolock"), ("ceph", "rw"), ("jfs", "rw")],
    )
    def test_other_mounts_are_locked_as_ever(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: str
    ) -> None:
        monkeypatch.setattr(locks, "file_system_of", lambda path: FileSystem("/data", kind, options))
        with held(log_dir) as lock:
            lock.check()

    def test_a_process_that_this_host_does_not_know_may_be_on_another_one(
        self, log_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "pid_of_lock", lambda wanted: UNKNOWN_PID)
        (log_dir / ".lock").touch()
        with python_holder(POSIX_HOLDER, log_dir):
            holder = is_locked(str(log_dir))
        assert holder == Holder(UNKNOWN_PID, "", many_hosts=True)
        assert "a broker or a krepair on another host" in str(holder)
        assert "another host" not in str(Holder(UNKNOWN_PID, ""))
