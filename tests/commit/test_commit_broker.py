"""Kafka's own loader at every rename, link and unlink of apply and undo: it serves exactly what it "
"served before."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints
from krepair.commit.partition import commit_partition, undo_partition
from krepair.commit.result import ChangeResult
from krepair.durable.disk import Disk
from krepair.errors import ExitCode
from krepair.plan.model import Change, Commit, PartitionPlan, RewriteSegments
from tests.commit import txfixture
from tests.commit.scene import (
    FENCED,
    P1,
    P2,
    PLAN_ID,
    FreeLock,
    UnsyncedDisk,
    fingerprint,
    rewrite,
    tree,
    write_staged,
)
from tests.commit.states_disk import StatesDisk, load, verdict, verdicts
from tests.durable.disks import NAME_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.lab.jars import LATEST, VERSIONS
from tests.lab.judge import Judge, Loaded
from tests.ops.stops import EVERY_CALL, telling_stops

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ORDERS = [pytest.param(FENCED, version, id=f"P1 fenced, {version}") for version in VERSIONS] + [
    pytest.param(P1, "2.2.1", id="P1, 2.2.1"),
    pytest.param(P2, "3.9.2", id="P2, 3.9.2"),
    pytest.param(P2, LATEST, id=f"P2, {LATEST}"),
]
JudgeOf = Callable[[str], Judge]


class TxScene:
    """The transactional log directory, its plan of one group, and the verbs on it."""

    def __init__(self, root: Path) -> None:
        self.root = txfixture.write_log_dir(root)
        self.path = root / "t-0"
        self.staged = txfixture.merged()
        mtime_ns = (self.path / f"{300:020d}.log").stat().st_mtime_ns
        self.change = rewrite(self.path, 100, txfixture.GROUP, self.staged, mtime_ns, 399)
        self.partition = PartitionPlan(
            topic="t",
            partition=0,
            folder="t-0",
            status="change",
            files=tuple(fingerprint(path) for path in sorted(self.path.iterdir())),
            changes=(self.change,),
        )
        self.before = tree(root)

    def stage(self, change: Change) -> None:
        assert isinstance(change, RewriteSegments)
        write_staged(self.path, change.base_offset, self.staged, change.mtime_ns)

    def guards(self) -> Guards:
        return Guards(FreeLock(), SafePoints())

    def folder(self, disk: Disk) -> PartitionFolder:
        return PartitionFolder(disk, str(self.root), "t-0", PLAN_ID)

    def apply(self, commit: Commit, disk: Disk | None = None) -> list[ChangeResult]:
        folder = self.folder(disk or UnsyncedDisk())
        return commit_partition(folder, self.partition, commit, self.guards(), self.stage)

    def undo(self, commit: Commit, disk: Disk | None = None) -> list[ChangeResult]:
        return undo_partition(self.folder(disk or UnsyncedDisk()), self.partition, commit, self.guards())


@pytest.mark.parametrize(("commit", "version"), ORDERS)
def test_a_broker_started_at_any_instant_serves_the_old_records_or_the_new(
    judge: JudgeOf, tmp_path: Path, commit: Commit, version: str
) -> None:
    scene = TxScene(tmp_path / "logs")
    disk = StatesDisk(scene.root, tmp_path / "apply")
    scene.apply(commit, disk)
    found = verdicts(judge(version), disk)
    words = list(found.values())
    at = words.index("NEW") if "NEW" in words else len(words)
    assert {k: v for k, v in found.items() if v not in {"OLD", "NEW"}} == {}
    assert words == ["OLD"] * at + ["NEW"] * (len(words) - at)
    assert (at > 0, len(words) - at >= 18) == (True, True), found

    disk = StatesDisk(scene.root, tmp_path / "undo")
    scene.undo(commit, disk)
    found = verdicts(judge(version), disk)
    words = list(found.values())
    at = words.index("OLD") if "OLD" in words else len(words)
    assert {k: v for k, v in found.items() if v not in {"OLD", "NEW"}} == {}
    assert words == ["NEW"] * at + ["OLD"] * (len(words) - at)
    assert at >= 18, found
    assert scene.before == tree(scene.root)


def test_the_fence_is_what_makes_the_order_right_on_new_brokers(judge: JudgeOf, tmp_path: Path) -> None:
    """The prover can tell: the same order without the fence shows aborted records on 3.9.2 (KIP-98)."""
    scene = TxScene(tmp_path / "logs")
    disk = StatesDisk(scene.root, tmp_path / "states")
    scene.apply(P1, disk)
    wrong = [v for v in verdicts(judge("3.9.2"), disk).values() if v not in {"OLD", "NEW"}]
    assert len(wrong) >= 10


@pytest.mark.parametrize(("commit", "version"), ORDERS)
@pytest.mark.parametrize("stopped", ["apply", "undo"])
def test_after_a_crash_and_a_broker_at_any_call_apply_and_undo_still_end_right(
    judge: JudgeOf, tmp_path: Path, commit: Commit, version: str, stopped: str
) -> None:
    """A broker that was killed after loading: what it did to the folder stays, the marker is gone."""
    ended: set[str] = set()
    recording = RecordingDisk(UnsyncedDisk())
    getattr(begun(tmp_path / "whole", commit, stopped), stopped)(commit, recording)
    told = telling_stops(recording.calls, NAME_CHANGING)
    # In the gate versions take turns; part ``loads`` of torture asks all of them about all states of a power loss.
    for stops in told if EVERY_CALL else told[VERSIONS.index(version) % 2 :: 2]:
        scene = begun(tmp_path / str(stops), commit, stopped)
        with pytest.raises(SimulatedCrash):
            getattr(scene, stopped)(commit, StoppingDisk(UnsyncedDisk(), stops, NAME_CHANGING))
        served = verdict(load(judge(version), scene.root))
        assert served in {"OLD", "NEW"}, stops
        (scene.root / ".kafka_cleanshutdown").unlink(missing_ok=True)
        if stopped == "apply":
            outcome = scene.apply(commit)[0]
            after = verdict(load_copy(judge(version), scene.root, tmp_path / "copy"))
            if outcome.failed:
                assert outcome.exit_code == ExitCode.STALE_PLAN, (stops, outcome)
                assert (served, after) == ("OLD", "OLD"), (stops, outcome)
            else:
                assert after == "NEW", stops
            ended.add("refused" if outcome.failed else "committed")
            assert not (scene.root / ".kafka_cleanshutdown").exists(), "a clean stop was forged"
        undone = scene.undo(commit)[0]
        assert not undone.failed, (stops, undone)
        assert verdict(load_copy(judge(version), scene.root, tmp_path / "copy")) == "OLD", stops
        logs = {name: each for name, each in tree(scene.root).items() if name.endswith(".log")}
        assert {n: each for n, each in scene.before.items() if n.endswith(".log")} == logs, stops
        assert not list(scene.path.glob("*.swap")), stops
        assert not (scene.root / ".kafka_cleanshutdown").exists(), "a clean stop was forged"
        shutil.rmtree(scene.root)
    assert stopped == "undo" or ended == {"refused", "committed"} or not commit.fence


def begun(root: Path, commit: Commit, verb: str) -> TxScene:
    """A scene in which a verb can begin."""
    scene = TxScene(root)
    if verb == "undo":
        scene.apply(commit)
    return scene


def load_copy(judge: Judge, root: Path, copy: Path) -> Loaded:
    """A start on a copy, so that it leaves no trace in the directory under test."""
    shutil.copytree(root, copy)
    try:
        return load(judge, copy)
    finally:
        shutil.rmtree(copy)
