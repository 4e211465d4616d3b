"""The test disks behave as the tests assume."""

from __future__ import annotations

import errno
import inspect
import os
from pathlib import Path

import pytest

from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from tests.durable.disks import (
    ALL_KINDS,
    NAME_CHANGING,
    Call,
    FailingDisk,
    RecordingDisk,
    SimulatedCrash,
    StoppingDisk,
)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path.resolve())


def do_everything(disk: Disk, root: str) -> None:
    disk.make_dir(f"{root}/p")
    disk.create(f"{root}/p/a", b"x")
    disk.append(f"{root}/p/a", b"y")
    disk.reserve(f"{root}/p/b", 4)
    disk.write_at(f"{root}/p/b", 1, [memoryview(b"zz")])
    disk.truncate(f"{root}/p/b", 3)
    disk.link(f"{root}/p/a", f"{root}/l")
    disk.copy(f"{root}/p/b", f"{root}/c")
    disk.set_attributes(f"{root}/c", read_attributes(root)._replace(mode=0o600))
    disk.sync_file(f"{root}/c")
    disk.sync_file_system(root)
    disk.check_written(f"{root}/c")
    disk.rename(f"{root}/c", f"{root}/p/b")
    disk.unlink(f"{root}/p/a")
    disk.unlink(f"{root}/p/b")
    disk.remove_dir(f"{root}/p")
    disk.sync_dir(root)


def test_the_kinds_are_all_calls_of_a_disk() -> None:
    methods = {name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if not name.startswith("_")}
    assert methods == ALL_KINDS


def test_everything_passes_through_and_is_written_down(root: str) -> None:
    disk = RecordingDisk(RealDisk(root))
    do_everything(disk, root)
    assert set(disk.kinds()) == ALL_KINDS
    assert os.listdir(root) == ["l"]
    assert disk.calls[6] == Call("link", f"{root}/p/a", f"{root}/l")
    assert disk.calls[4].shown(root) == "write_at p/b 2 bytes at 1"


def test_a_call_that_raised_is_not_written_down(root: str) -> None:
    disk = RecordingDisk(RealDisk(root))
    with pytest.raises(FileNotFoundError):
        disk.unlink(f"{root}/none")
    assert disk.calls == []


def test_a_crash_stops_before_the_nth_call_of_the_kinds_and_all_after(root: str) -> None:
    recording = RecordingDisk(RealDisk(root))
    disk = StoppingDisk(recording, 3, NAME_CHANGING)
    with pytest.raises(SimulatedCrash):
        do_everything(disk, root)
    assert disk.stopped_at == Call("link", f"{root}/p/a", f"{root}/l")
    assert recording.kinds() == ["make_dir", "create", "append", "reserve", "write_at", "truncate"]
    with pytest.raises(SimulatedCrash):
        disk.sync_dir(root)


def test_a_crash_is_not_an_exception_that_code_could_swallow() -> None:
    assert not issubclass(SimulatedCrash, Exception)


@pytest.mark.parametrize(("forever", "expected"), [(False, 1), (True, 2)])
def test_the_nth_call_fails_once_or_from_then_on(root: str, forever: bool, expected: int) -> None:
    disk = FailingDisk(RealDisk(root), 2, errno.ENOSPC, forever=forever, kinds={"create"})
    disk.create(f"{root}/a", b"")
    for name in ("b", "c"):
        try:
            disk.create(f"{root}/{name}", b"")
        except OSError as error:
            if (error.errno, error.filename) != (errno.ENOSPC, f"{root}/{name}"):
                raise
    assert len(disk.failed) == expected
    assert sorted(os.listdir(root)) == (["a"] if forever else ["a", "c"])
