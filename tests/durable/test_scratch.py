"""The scratch folder is removed at the end, on a signal that ends krepair, or by the next run."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from krepair.durable.scratch import Scratch, remove_scratch, write_scratch
from krepair.errors import RefusedError
from tests.durable.descriptors import open_descriptors

SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests run under nohup it is ignored
from krepair.durable.scratch import Scratch, write_scratch
scratch = Scratch(sys.argv[1], ())
with open(scratch.path + "/rows", "wb") as file:
    file.write(bytes(1000))
print(scratch.path, flush=True)
time.sleep(60)
"""


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def ended_by(parent: Path, number: signal.Signals) -> tuple[Path, int]:
    """A process that has made its folder and is ended by a signal: the folder, and how the process ended."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(parent)], stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        path = Path(one.stdout.readline().strip())
        assert (path / "rows").stat().st_size == 1000
        one.send_signal(number)
        return path, one.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_removes_it_and_is_how_the_process_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    path, code = ended_by(tmp_path, number)
    assert code == -number
    assert not path.exists()
    assert left(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_what_has_an_owner_stays(
    tmp_path: Path,
) -> None:
    dead, _ = ended_by(tmp_path, signal.SIGKILL)
    assert (dead / "rows").exists()
    alive = Scratch(str(tmp_path), ())
    there = Path(alive.path)
    assert left(tmp_path) == [there.name]
    (there / "rows").write_bytes(b"1")
    other = Scratch(str(tmp_path), ())
    beside = Path(other.path)
    assert left(tmp_path) == sorted([there.name, beside.name])
    assert (there / "rows").exists()
    other.close()
    alive.close()
    assert left(tmp_path) == []


def test_a_link_a_file_and_a_folder_without_a_lock_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner.lock").touch()
    parent = tmp_path / "scratch"
    parent.mkdir()
    (parent / "krepair-scratch-link").symlink_to(elsewhere)
    (parent / "krepair-scratch-file").touch()
    (parent / "krepair-scratch-older").mkdir()
    (parent / "krepair-scratch-linked").mkdir()
    (parent / "krepair-scratch-linked" / "owner.lock").symlink_to(elsewhere / "owner.lock")
    before = left(parent)
    one = Scratch(str(parent), ())
    assert one.path
    one.close()
    assert left(parent) == before
    assert left(elsewhere) == ["owner.lock"]


def test_the_handlers_of_signals_are_as_before_afterwards(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    one = Scratch(str(tmp_path), ())
    assert os.path.isdir(one.path)
    one.close()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before


@pytest.fixture
def plain_signals() -> Iterator[None]:
    """Both signals end the process, whatever the tests run under."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_handler_of_a_signal_removes_the_folder_and_then_lets_the_signal_end_the_process(
    tmp_path: Path, number: signal.Signals, plain_signals: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Scratch(str(tmp_path), ())
    path = Path(one.path)
    sent: list[tuple[int, int, bool, object]] = []
    monkeypatch.setattr(
        os, "kill", lambda pid, what: sent.append((pid, what, path.exists(), signal.getsignal(number)))
    )
    handler = signal.getsignal(number)
    assert callable(handler)
    handler(number, None)
    assert sent == [(os.getpid(), number, False, signal.SIG_DFL)]
    one.close()


def test_a_handler_that_somebody_else_has_set_stays(tmp_path: Path, plain_signals: None) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    one = Scratch(str(tmp_path), ())
    assert one.path
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL
    one.close()
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_it_is_made_in_another_thread_too_where_no_handler_can_be_set(
    tmp_path: Path, plain_signals: None
) -> None:
    first, one, made = Scratch(str(tmp_path), ()), Scratch(str(tmp_path), ()), []
    assert os.path.isdir(first.path)
    first.close()

    def work() -> None:
        made.append(os.path.isdir(one.path))
        one.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made == [True]
    assert left(tmp_path) == []


def test_a_pipe_in_the_place_of_a_folder_or_of_its_lock_stays_and_nobody_waits_for_its_other_end(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "krepair-scratch-pipe")
    (tmp_path / "krepair-scratch-folder").mkdir()
    os.mkfifo(tmp_path / "krepair-scratch-folder" / "owner.lock")
    before = left(tmp_path)
    one = Scratch(str(tmp_path), ())
    assert one.path
    one.close()
    assert left(tmp_path) == before


def test_where_nothing_can_be_locked_it_is_made_and_what_is_left_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("krepair.durable.scratch.fcntl.flock", fail)
    alive, other = Scratch(str(tmp_path), ()), Scratch(str(tmp_path), ())
    there = [Path(alive.path), Path(other.path)]
    assert left(tmp_path) == sorted(path.name for path in there)
    assert [left(path) for path in there] == [["new-owner.lock"]] * 2
    alive.close()
    other.close()
    assert left(tmp_path) == []


def test_one_that_was_never_needed_is_never_made_and_its_end_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[str] = []
    monkeypatch.setattr("krepair.durable.scratch.remove_scratch", removed.append)
    with_no_place = Scratch("", [str(tmp_path)])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert not with_no_place.path
    for one in (Scratch(str(tmp_path), ()), with_no_place):
        one.close()
    assert (removed, left(tmp_path)) == ([], [])


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "krepair-scratch-dead").mkdir()
    (tmp_path / "krepair-scratch-dead" / "owner.lock").touch()
    (tmp_path / "krepair-scratch-without-a-lock").mkdir()
    before = open_descriptors(tmp_path)
    one = Scratch(str(tmp_path), ())
    path = Path(one.path)
    assert left(tmp_path) == sorted([path.name, "krepair-scratch-without-a-lock"])
    one.close()
    assert open_descriptors(tmp_path) == before


def test_folder_and_files_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = Scratch(str(tmp_path), ())
        written = write_scratch(one.path, "keys", [np.arange(3)])
    finally:
        os.umask(before)
    modes = [os.stat(path).st_mode & 0o777 for path in (one.path, f"{one.path}/owner.lock", written)]
    assert modes == [0o700, 0o600, 0o600]
    one.close()


def test_arrays_are_written_one_behind_the_other_into_a_file_of_their_own(tmp_path: Path) -> None:
    arrays = [np.arange(3), np.zeros((0, 2), np.int64), np.full((2, 2), 7, np.uint8)]
    paths = [Path(write_scratch(str(tmp_path), "keys", arrays)) for _ in range(2)]
    assert paths[0] != paths[1]
    for path in paths:
        assert (path.parent, path.name.startswith("keys-")) == (tmp_path, True)
        assert path.read_bytes() == arrays[0].tobytes() + arrays[2].tobytes()


def test_arrays_that_cannot_be_written_leave_no_file(tmp_path: Path) -> None:
    def arrays() -> Iterator[object]:
        yield np.arange(3)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = open_descriptors(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        write_scratch(str(tmp_path), "keys", arrays())
    assert left(tmp_path) == []
    assert open_descriptors(tmp_path) == before


def test_a_lock_on_descriptor_0_is_given_back_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what an open gives where standard input was closed."""
    one, closed = Scratch(str(tmp_path), ()), list[int]()
    one._lock = 0
    monkeypatch.setattr(os, "close", closed.append)
    one.close()
    monkeypatch.undo()
    assert closed == [0]


def test_a_folder_that_is_gone_already_is_no_error(tmp_path: Path) -> None:
    one = Scratch(str(tmp_path), ())
    os.unlink(f"{one.path}/owner.lock")
    os.rmdir(one.path)
    one.close()
    remove_scratch(str(tmp_path / "none"))
    assert left(tmp_path) == []


def test_without_a_place_it_is_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one = Scratch("", ())
    assert Path(one.path).parent == tmp_path
    one.close()
    assert left(tmp_path) == []


def test_a_place_that_cannot_be_used_is_refused_if_it_was_named_and_else_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RefusedError, match="no folder can be made there: " + os.strerror(errno.ENOENT)):
        _ = Scratch(str(tmp_path / "none"), ()).path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert not Scratch("", ()).path


@pytest.mark.parametrize("place", ["", "beside", "kraft", "below"])
@pytest.mark.parametrize("asked", [True, False], ids=["named", "not named"])
@pytest.mark.parametrize("other_device", [True, False], ids=["other file system", "same file system"])
def test_it_is_never_in_a_log_directory_and_only_if_named_on_the_file_system_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, asked: bool, other_device: bool
) -> None:
    log_dirs = [tmp_path / "other", tmp_path / "kraft"]
    parent = log_dirs[1] / "t-0" if place == "below" else tmp_path / place
    for folder in (*log_dirs, parent):
        folder.mkdir(parents=True, exist_ok=True)
    real = os.stat

    def stat(path: str, **named: int) -> os.stat_result:
        found = real(path, **named)
        device = found.st_dev + (other_device and path == str(parent))
        return os.stat_result((*found[:2], device, *found[3:]))

    monkeypatch.setattr(tempfile, "tempdir", str(parent))
    one = Scratch(str(parent) if asked else "", [str(log_dir) for log_dir in log_dirs])
    with monkeypatch.context() as patch:
        patch.setattr("krepair.durable.scratch.os.stat", stat)
        outside = place in {"", "beside"}
        if outside and (asked or other_device):
            assert Path(one.path).parent == parent
        elif asked:
            with pytest.raises(RefusedError, match="is inside the log directory"):
                _ = one.path
        else:
            assert not one.path
    one.close()
    assert not [name for name in left(parent) if name.startswith("krepair-scratch-")]


@pytest.mark.parametrize("asked", [True, False], ids=["named", "not named"])
def test_a_folder_whose_lock_cannot_be_made_is_removed_since_no_later_run_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    real, before = os.open, open_descriptors(tmp_path)

    def no_lock(path: str, flags: int, *more: int, **named: int) -> int:
        if path.endswith("owner.lock"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "open", no_lock)
    one = Scratch(str(tmp_path) if asked else "", ())
    if asked:
        with pytest.raises(RefusedError, match="no folder can be made there: " + os.strerror(errno.EMFILE)):
            _ = one.path
    else:
        assert not one.path
    one.close()
    assert (left(tmp_path), open_descriptors(tmp_path)) == ([], before)
