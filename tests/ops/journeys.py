"""A scene, what each verb makes of it when nothing befalls it, and fresh copies of it to let something befall."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path

from krepair.commit.by_disk import telling
from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import FreeWhenVerified, MendLog
from tests import forgotten
from tests.builders import NOW_MS
from tests.commit import txfixture
from tests.durable.disks import Call, RecordingDisk
from tests.flips import flip
from tests.ops import pending
from tests.ops.inline import Inline
from tools.torture.scenes import (
    CLEAN_MARKER,
    LOCK,
    POINTS,
    SCENES,
    Placed,
    Scene,
    Setup,
    Tree,
    build,
    differences,
    look,
    private,
    visible,
)

VERBS = {"apply": apply, "undo": undo, "purge": purge}
ROOT = (CLEAN_MARKER, POINTS)


# -- scenes that only the tests have ----------------------------------------------------------------------
def _forgotten(path: Path, *fixes: str) -> Options:
    """A snapshot in which a transaction is open that the log has forgotten."""
    forgotten.made(path, forgotten.CASES[1])
    (path / LOCK).touch()
    return Inline(now_ms=NOW_MS + 60_000, fixes=fixes).options()


def _swap_of_active(path: Path, rng: random.Random) -> Options:
    """The fence watches the files of the active segment, and krepair's own change of them is not a broker's."""
    del rng
    txfixture.write_log_dir(path)
    for name in (LOCK, CLEAN_MARKER):
        (path / name).touch()
    for log in (path / pending.FOLDER).glob(f"{pending.name(400).removesuffix('.log')}.*"):
        if log.suffix in {
            ".log",
            ".txnindex",
        }:  # without its aborted transactions a swap is left to the start
            shutil.copy2(log, f"{log}.swap")
    return pending.options()


def _swap_before_3_0(path: Path, rng: random.Random) -> Options:
    """A swap is completed beside damage that recovery would meet: the order of 2.x, without the fence."""
    del rng
    pending.write(path, deleted=(300,), damage_elsewhere=True)
    return pending.options(broker_version="2.2.1", partitions=(("t", 0),))


def _swap_over_damage(path: Path, rng: random.Random) -> Options:
    """A segment that the swap replaces is damaged, so a real copy of it is kept."""
    del rng
    pending.write(path)
    flip(path / pending.FOLDER / pending.name(200), 3000)
    return pending.options(broker_version="3.9.2")


OWN: dict[str, Setup] = {
    "forgotten": lambda path, _: _forgotten(path, "snapshots"),
    "forgotten-and-recovery": lambda path, _: _forgotten(path, "snapshots", "recovery"),
    "swap-of-active": _swap_of_active,
    "swap-before-3.0": _swap_before_3_0,
    "swap-over-damage": _swap_over_damage,
}


@functools.cache
def built(name: str) -> Scene:
    """A scene of ``make torture``; made once in a process, since each test gets a copy from its ``place``."""
    return build(name)


def scene_of(name: str, seed: int = 0) -> Scene:
    """A scene of ``make torture``, or of the tests alone."""
    return build(name, seed, setup=OWN.get(name.partition("~")[0]))


class Journey:
    """A scene and its ends.

    Attributes:
        scene: the scene.
        before: what a broker sees before apply.
        after: what it sees after it.
        calls: verb -> what it asks the disk for; undo and purge of what was applied. No undo where apply frees.

    Args:
        name: of the scene.
        folder: for its copies; one at a time.
        seed: of the scene.
    """

    def __init__(self, name: str, folder: Path, seed: int = 0) -> None:
        self.scene = scene_of(name, seed)
        self.folder = folder
        self._copies = 0
        self.calls: dict[str, list[Call]] = {}
        placed = self.fresh()
        self.before = seen(placed)
        self.calls["apply"] = self._recorded("apply", placed)
        self.after = seen(placed)
        if self.scene.plan.root is None:  # what a fence sets aside is back
            assert [self.after.get(name) for name in ROOT] == [self.before.get(name) for name in ROOT]
        if self.frees == "":
            self.calls["undo"] = self._recorded("undo", placed)
            assert differences(seen(placed), self.before) == ""
        self.calls["purge"] = self._recorded("purge", self.applied())

    @property
    def frees(self) -> str:
        """What apply frees of the originals: nothing (empty), ``all`` or ``some``."""
        changes = [change for part in self.scene.plan.partitions for change in part.changes]
        if not any(map(is_freed_by_apply, changes)):
            return ""
        wholly = self.scene.plan.root is None and all(
            isinstance(change.undo, FreeWhenVerified) for change in changes
        )
        return "all" if wholly else "some"

    def fresh(self) -> Placed:
        """A copy; the one before is gone."""
        shutil.rmtree(self.folder / str(self._copies), ignore_errors=True)
        self._copies += 1
        (self.folder / str(self._copies)).mkdir(parents=True)
        return self.scene.place(self.folder / str(self._copies))

    def applied(self) -> Placed:
        """A copy on which apply came to its end."""
        placed = self.fresh()
        self.ends("apply", placed, "undisturbed")
        return placed

    def run(self, verb: str, placed: Placed, disk: Disk | None = None) -> ApplyReport:
        return VERBS[verb](placed.plan, self.scene.options, disk=disk)

    def _recorded(self, verb: str, placed: Placed) -> list[Call]:
        disk = RecordingDisk(RealDisk())
        report = self.run(verb, placed, disk)
        assert report.exit_code == ExitCode.DONE, report.results
        return disk.calls

    def ends(self, verb: str, placed: Placed, where: object) -> None:
        """The verb comes to its end, and to the tree that it comes to when nothing befalls it."""
        report = self.run(verb, placed)
        assert report.exit_code == ExitCode.DONE, (where, report.results)
        wanted = self.before if verb == "undo" else self.after
        assert differences(seen(placed), wanted) == "", where
        if verb == "apply":
            assert verify_plan(placed.plan, self.scene.options).problems == (), where
        if verb != "apply" or self.frees == "all":
            assert private(look(placed.path)) == [], where

    def undo_as_far_as_it_goes(self, placed: Placed, where: object) -> int:
        """Back to the beginning; or, where apply has freed originals, to the first change of which it has."""
        report = self.run("undo", placed)
        if report.exit_code == ExitCode.DONE:
            assert differences(seen(placed), self.before) == "", where
            assert self.frees or private(look(placed.path)) == [], where
            return ExitCode.DONE
        assert self.frees, (where, report.results)
        assert report.exit_code in {ExitCode.PARTLY, ExitCode.REFUSED}, (where, report.results)
        why = " ".join(one.why for one in report.results)
        assert "were freed" in why or "no journal of this plan is here" in why, (where, report.results)
        self.check_first_are_made(placed, where)
        return report.exit_code

    def check_first_are_made(self, placed: Placed, where: object) -> None:
        """Of each partition the first changes are made, the others are not, and no file is anything else."""
        now = seen(placed)
        for name in sorted(now.keys() | self.before.keys() | self.after.keys()):
            assert now.get(name) in (self.before.get(name), self.after.get(name)), (where, name)
        for partition in self.scene.plan.partitions:
            made = []
            for change in partition.changes:
                names = [f"{partition.folder}/{name}" for name in (file.name for file in telling(change))]
                old = all(now.get(name) == self.before.get(name) for name in names)
                new = all(now.get(name) == self.after.get(name) for name in names)
                assert old or new, (where, change.change_id)
                if old != new:
                    made.append(new)
            assert made == sorted(made, reverse=True), (where, partition.folder, made)

    def check_old_or_new(self, placed: Placed, where: object) -> None:
        """The bytes of each file that a broker reads are the old or the new ones.

        Names of pending swaps, and the two files that a fence sets aside, are judged by brokers elsewhere. A log that
        loses bytes in its middle has, on the way, indexes of its front alone.
        """
        mends = any(isinstance(change, MendLog) for part in placed.plan.partitions for change in part.changes)
        for name, found in seen(placed).items():
            if name in ROOT or name.endswith((".swap", ".cleaned")):
                continue
            if mends and name.endswith("index"):
                continue
            known = {tree[name].content for tree in (self.before, self.after) if name in tree}
            assert found.content in known, (where, name)


def seen(placed: Placed) -> Tree:
    """What a broker sees."""
    return visible(look(placed.path))


EVERY_SCENE = (*SCENES, *OWN)
