"""Before anything is said to be done, it is on the disk: no barrier may be left out of any verb.

A ledger follows every call that changes a file and knows what no fsync has reached yet: the entries of a folder until
the folder is synced, the bytes and attributes of a file until the file is. Three things may be lost: the lock's file;
that something left krepair's own folder, since it is removed from there again, but for ``keep/``: what comes back there
after the last record is an original of which no record says whose it is; and bytes of staged logs, which staging
writes and syncs itself and reads back before the first record.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.commit.scene import UnsyncedDisk
from tests.durable.disks import Call, RecordingDisk
from tests.ops import pending
from tests.ops.checkpoints import FILES as CHECKPOINTS
from tests.ops.checkpoints import options as checkpoint_options
from tests.ops.checkpoints import planned as checkpoints_planned
from tests.ops.scene import TV2, scene
from tests.ops.tail import CONSENT, TAILS, Torn, damaged
from tests.ops.tail import options as tail_options
from tests.ops.written import padded

JOURNAL = "/journal"
PRIVATE = "/krepair~"
KEEP = "/keep/"
KEPT = re.compile(r"/(keep|fence)(/|$)|/krepair~[0-9a-f]+$")
OF_STAGED = frozenset({"reserve", "write_at", "set_attributes"})


@dataclass
class Ledger:
    """What no barrier has reached yet."""

    folders: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Folders of kept files, some of which left."""

    def take(self, call: Call) -> None:
        """Follow one call."""
        if os.path.basename(call.path) == ".lock" or ("/stage/" in call.path and call.kind in OF_STAGED):
            return
        if call.kind in {"rename", "unlink"} and KEEP in call.path:
            self.gone.add(os.path.dirname(call.path))
        if call.kind == "unlink" and PRIVATE in call.path:
            self.files.discard(call.path)
            return
        if call.kind in {"make_dir", "create", "copy", "link", "rename", "unlink", "remove_dir"}:
            self.folders.add(os.path.dirname(call.target or call.path))
        if call.kind == "rename":
            if PRIVATE not in call.path:
                self.folders.add(os.path.dirname(call.path))
            if call.path in self.files:
                self.files.add(call.target)
        if call.kind in {"rename", "unlink"}:
            self.files.discard(call.path)
        if call.kind == "remove_dir":
            self.folders.discard(call.path)
            self.gone.discard(call.path)
        unsynced = call.kind == "create" and call.detail.endswith("not synced")
        if unsynced or call.kind in {"truncate", "write_at", "reserve", "set_attributes"}:
            self.files.add(call.path)
        if call.kind == "sync_file":
            self.files.discard(call.path)
        if call.kind == "sync_dir":
            self.folders.discard(call.path)
            self.gone.discard(call.path)

        if call.kind == "sync_file_system" and not call.detail:
            self.folders.clear()
            self.files.clear()
            self.gone.clear()

    def open(self) -> set[str]:
        """What would be lost by a power cut now."""
        return self.folders | self.files


def after_each_record(calls: list[Call]) -> list[tuple[int, set[str]]]:
    """(call, what is not on the disk) at each record of a journal and at the end."""
    ledger = Ledger()
    found = []
    for number, call in enumerate(calls):
        if call.kind == "append" and call.path.endswith(JOURNAL):
            found.append((number, ledger.open() | ledger.gone))
        ledger.take(call)
    return [*found, (len(calls), ledger.open() | ledger.gone)]


Made = tuple[Plan, Options]


def markers(root: Path) -> Made:
    one = scene(root, TV2)
    (one.path / ".kafka_cleanshutdown").write_bytes(b"")
    return one.plan(merge=False), one.options()


def replaced(root: Path) -> Made:
    options = Options(fixes=("index",), now_ms=1_700_000_000_000)
    return make_plan(str(padded(root, 3)), options), options


def removed(root: Path) -> Made:
    options = Options(fixes=("leftovers",), now_ms=1_700_000_000_000)
    for number in range(3):
        (padded(root, 3) if not number else root).joinpath(f"t-0/{number * 10:020d}.log.deleted").write_bytes(
            b"x"
        )
    return make_plan(str(root), options), options


def cut(root: Path) -> Made:
    torn = Torn.make(root)
    torn.tear(TAILS["part of a batch"])
    return torn.plan(), tail_options()


def excised(root: Path) -> Made:
    return damaged(root).plan(accepted_losses=(CONSENT,)), tail_options()


def set_aside(root: Path) -> Made:
    plan = damaged(root).plan(fixes=("tail=broker",), accepted_losses=(CONSENT,))
    return plan, tail_options()


def swapped(root: Path) -> Made:
    return make_plan(str(pending.write(root)), pending.options()), pending.options()


def of_the_root(root: Path) -> Made:
    path = scene(root, "leader-epochs-2.2.1").path
    for name in CHECKPOINTS:
        (path / name).write_bytes(b"0\n1\ne-all 0 999999999\n")
    return checkpoints_planned(path), checkpoint_options()


SCENES: dict[str, Callable[[Path], Made]] = {
    "markers under a fence": markers,
    "indexes": replaced,
    "leftovers": removed,
    "torn tail": cut,
    "damage cut out": excised,
    "segments set aside": set_aside,
    "swap": swapped,
    "checkpoints": of_the_root,
}


@pytest.mark.parametrize(
    ("name", "many"),
    [
        *((name, medium.MANY) for name in SCENES),
        ("indexes", 1),
        ("checkpoints", 1),
        ("markers under a fence", 1),
    ],
)
def test_nothing_is_journalled_or_reported_before_it_is_on_the_disk(
    memory_dir: Path, name: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one barrier serves all that is staged."""
    monkeypatch.setattr(medium, "MANY", many)
    plan, options = SCENES[name](memory_dir / "logs")
    assert any(partition.changes for partition in plan.partitions) or plan.root is not None
    for verb in (apply, undo, apply, purge):
        disk = RecordingDisk(UnsyncedDisk())
        assert verb(plan, options, disk=disk).exit_code == ExitCode.DONE
        assert disk.calls
        for number, left in after_each_record(disk.calls):
            assert left == set(), (verb.__name__, number, disk.calls[max(0, number - 6) : number + 1])


@pytest.mark.parametrize("name", SCENES)
def test_what_is_kept_is_on_the_disk_before_anything_that_a_broker_reads_changes(
    memory_dir: Path, name: str
) -> None:
    """Kept files, the fence and what it has seen: a power cut after the change must find them."""
    plan, options = SCENES[name](memory_dir / "logs")
    for verb in (apply, undo, apply):
        disk = RecordingDisk(UnsyncedDisk())
        assert verb(plan, options, disk=disk).exit_code == ExitCode.DONE
        ledger = Ledger()
        for number, call in enumerate(disk.calls):
            served = [path for path in (call.path, call.target) if path and PRIVATE not in path]
            if call.kind in {"rename", "unlink", "truncate", "write_at"} and served:
                left = {path for path in ledger.open() if PRIVATE in path and KEPT.search(path)}
                assert left == set(), (verb.__name__, number, disk.calls[max(0, number - 6) : number + 1])
            ledger.take(call)


def test_segment_that_is_set_aside_is_never_there_without_its_indexes(memory_dir: Path) -> None:
    """Its log goes first and comes back last, each time with a barrier between: else a broker would load it bare."""
    plan, options = set_aside(memory_dir / "logs")
    goes, comes = RecordingDisk(UnsyncedDisk()), RecordingDisk(UnsyncedDisk())
    assert apply(plan, options, disk=goes).exit_code == ExitCode.DONE
    assert undo(plan, options, disk=comes).exit_code == ExitCode.DONE
    for disk, kind, neighbour in ((goes, "unlink", 1), (comes, "rename", -1)):
        folder = str(memory_dir / "logs" / "t-0")
        of_logs = [
            number
            for number, call in enumerate(disk.calls)
            if call.kind == kind
            and (call.target or call.path).endswith(".log")
            and os.path.dirname(call.target or call.path) == folder
        ]
        assert len(of_logs) == 2
        for number in of_logs:
            assert disk.calls[number + neighbour] == Call("sync_dir", folder)
