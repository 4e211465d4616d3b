"""``plan --keep until-verified``: each group is verified and freed before the next one is begun.

Stopped and failed at every call: ``commit/test_every_kind`` is the proof for each kind of change, and ``torture`` kills
whole verbs and fails their calls, in every scene (parts ``kills`` and ``failing_calls``).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from krepair.commit.by_disk import telling
from krepair.commit.kept import kept_report
from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_partition
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import FreeWhenVerified, KeepOriginal, RewriteSegments
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.journeys import built
from tools.torture.scenes import FREEING, Placed, Tree, build, differences, look, private, visible

VERBS = {"apply": apply, "undo": undo, "purge": purge}


class Journey:
    """A scene and its ends.

    Attributes:
        scene: the scene.
        before: what a broker sees before apply.
        after: what it sees after it.
        calls: how many calls of apply change a file.

    Args:
        name: of the scene.
        folder: for its copies; one at a time.
        seed: of the scene.
    """

    def __init__(self, name: str, folder: Path, seed: int = 0) -> None:
        self.scene = build(name, seed)
        self.folder = folder
        self._copies = 0
        placed, disk = self.fresh(), RecordingDisk(RealDisk())
        self.before = seen(placed)
        report = self.run("apply", placed, disk)
        assert report.exit_code == ExitCode.DONE, report.results
        self.calls = sum(call.kind in FILE_CHANGING for call in disk.calls)
        self.after = seen(placed)

    def fresh(self) -> Placed:
        """A copy; the one before is gone."""
        shutil.rmtree(self.folder / str(self._copies), ignore_errors=True)
        self._copies += 1
        (self.folder / str(self._copies)).mkdir(parents=True)
        return self.scene.place(self.folder / str(self._copies))

    def run(self, verb: str, placed: Placed, disk: Disk | None = None) -> ApplyReport:
        return VERBS[verb](placed.plan, self.scene.options, disk=disk)

    def ends(self, verb: str, placed: Placed) -> None:
        """The verb comes to its end, and to the tree that it comes to when nothing befalls it."""
        report = self.run(verb, placed)
        assert report.exit_code == ExitCode.DONE, report.results
        assert differences(seen(placed), self.after) == ""
        if verb == "apply":
            assert verify_plan(placed.plan, self.scene.options).problems == ()
        changes = [change for part in self.scene.plan.partitions for change in part.changes]
        if verb == "purge" or (
            self.scene.plan.root is None and all(isinstance(one.undo, FreeWhenVerified) for one in changes)
        ):
            assert private(look(placed.path)) == []


def seen(placed: Placed) -> Tree:
    """What a broker sees."""
    return visible(look(placed.path))


@pytest.fixture
def markers(memory_dir: Path) -> Journey:
    return Journey("markers~until-verified", memory_dir)


@pytest.mark.parametrize("name", FREEING)
def test_a_plan_that_frees_what_it_verified_makes_the_same_tree_and_leaves_only_what_was_lost_by_consent(
    memory_dir: Path, name: str
) -> None:
    expected = Journey(name.partition("~")[0], memory_dir / "other", seed=2).after
    journey = Journey(name, memory_dir, seed=2)
    assert differences(journey.after, expected) == ""
    scene, placed = journey.scene, journey.fresh()
    report = journey.run("apply", placed)
    assert (report.exit_code, [one.why for one in report.results if one.why]) == (ExitCode.DONE, [])
    kept = [entry for entry in private(look(placed.path)) if "/keep/" in entry]
    assert verify_plan(placed.plan, scene.options).problems == ()
    journey.ends("apply", placed)
    by_consent = [
        change for part in scene.plan.partitions for change in part.changes if not is_freed_by_apply(change)
    ]
    assert bool(kept) == bool(by_consent or scene.plan.root)
    journey.ends("purge", placed)


def test_groups_are_freed_and_what_is_lost_by_consent_is_kept() -> None:
    scene = built("xattrs-and-tail~until-verified")
    kinds = {type(change): type(change.undo) for part in scene.plan.partitions for change in part.changes}
    assert kinds[RewriteSegments] is FreeWhenVerified
    assert KeepOriginal in kinds.values()


def test_a_partition_that_cannot_be_read_again_keeps_its_originals_and_the_next_apply_ends_right(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journey = Journey("everything~until-verified", memory_dir)
    placed, whole = journey.fresh(), read_partition

    def broken(view: LogDir, folder: str) -> Partition | None:
        found = whole(view, folder)
        return found and found._replace(segments=(), unreadable=f"{folder}: Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("krepair.ops.apply.read_partition", broken)
        report = journey.run("apply", placed)
    assert report.exit_code == ExitCode.PARTLY
    assert "Input/output error; what it kept was not freed" in " ".join(one.why for one in report.results)
    journey.ends("apply", placed)


def test_what_is_read_again_and_is_wrong_is_taken_back_and_nothing_is_freed(
    markers: Journey, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = markers.fresh()
    groups = [change for part in placed.plan.partitions for change in part.changes]
    assert len(groups) > 1
    from krepair.ops.apply import _Apply

    real = _Apply._read_again
    second = groups[1].change_id

    def lying(self: _Apply, staging: object, changes: object) -> dict[str, str]:
        found = real(self, staging, changes)  # type: ignore[arg-type]
        return {second: "a bit is another"} if changes[0].change_id == second else found  # type: ignore[index]

    with monkeypatch.context() as patch:
        patch.setattr(_Apply, "_read_again", lying)
        report = markers.run("apply", placed)
    assert report.exit_code == ExitCode.PARTLY
    bad = next(one for one in report.results if one.change_id == second)
    assert (bad.outcome, bad.exit_code) == ("failed", ExitCode.VERIFY_FAILED)
    assert "a bit is another; its originals are back" in bad.why
    # undo would take away what is right, and refuse what is freed
    assert str(report.next_command) == "krepair verify PLAN"
    now = seen(placed)
    ours = [f"b-0/{file.name}" for group in groups[1:] for file in telling(group)]
    assert {name: now.get(name) for name in ours} == {name: markers.before[name] for name in ours}
    markers.ends("apply", placed)


def test_the_log_that_rots_on_the_disk_before_it_is_read_again_is_found_out(
    markers: Journey, monkeypatch: pytest.MonkeyPatch
) -> None:
    from krepair.ops import apply as module

    placed = markers.fresh()

    def rot(path: str, tree: object) -> None:
        if path.endswith(".log"):
            found = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(70)
                file.write(b"\xff")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    monkeypatch.setattr(module, "drop_from_cache", rot)
    report = markers.run("apply", placed)
    assert report.exit_code != ExitCode.DONE
    assert not any(one.outcome == "committed" for one in report.results)
    assert differences(seen(placed), markers.before) == ""
    assert "its originals are back" in report.results[0].why


def test_what_an_interrupted_run_freed_is_listed_as_not_to_be_undone(markers: Journey) -> None:
    placed = markers.fresh()
    with pytest.raises(SimulatedCrash):
        markers.run("apply", placed, StoppingDisk(RealDisk(), markers.calls * 3 // 4))
    markers.run("undo", placed)
    listed = kept_report(str(placed.path), markers.scene.options.now_ms)
    assert [(one.plan_id, one.undo) for one in listed.plans] == [(placed.plan.plan_id, "no")]
    assert "were freed" in listed.plans[0].why_not
