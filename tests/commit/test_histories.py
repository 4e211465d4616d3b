"""Random histories of apply, crash, broker start and undo: at any instant a broker serves a group "
"old or new, whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from krepair.commit.result import ChangeResult
from krepair.errors import ExitCode
from krepair.plan.model import Commit
from tests.commit.loader_model import loading, served
from tests.commit.scene import BASES, EXTENSIONS, FENCED, GROUPS, P2, POINTS, Scene, UnsyncedDisk, name, put
from tests.durable.disks import FILE_CHANGING, SimulatedCrash, StoppingDisk

MAY_REFUSE = (
    "by a broker started in between",
    "was interrupted and has to end first",
    "was begun and has to end first",
)
"""Why nothing more is done, and what is there stays whole."""


class Histories(RuleBasedStateMachine):
    """One directory; every verb may crash at any call; brokers come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.scratch = Path(tempfile.mkdtemp(prefix="krepair-histories-"))
        self.scene = Scene(self.scratch / "logs", index_change=False)
        self.marker_may_be_there = True

    def teardown(self) -> None:
        try:
            self.undo_whole()
        finally:
            shutil.rmtree(self.scratch)

    def _run(self, verb: str, commit: Commit, stop_before: int) -> list[ChangeResult]:
        try:
            return getattr(self.scene, verb)(commit, StoppingDisk(UnsyncedDisk(), stop_before, FILE_CHANGING))
        except SimulatedCrash:
            return ()

    @rule(commit=st.sampled_from([FENCED, P2]), stop_before=st.integers(1, 110))
    def apply(self, commit: Commit, stop_before: int) -> None:
        for outcome in self._run("apply", commit, stop_before):
            if outcome.failed:
                assert outcome.exit_code in {ExitCode.STALE_PLAN, ExitCode.REFUSED, ExitCode.PARTLY}, outcome
                # Partly: the group is half done, and a broker that was started then has removed a file of it.
                assert outcome.exit_code == ExitCode.PARTLY or any(why in outcome.why for why in MAY_REFUSE)
                assert (
                    outcome.exit_code == ExitCode.REFUSED or str(outcome.next_command) == "krepair undo PLAN"
                ), outcome

    @rule(commit=st.sampled_from([FENCED, P2]), stop_before=st.integers(1, 110))
    def undo(self, commit: Commit, stop_before: int) -> None:
        for outcome in self._run("undo", commit, stop_before):
            assert not outcome.failed, outcome

    @rule(stopped_cleanly=st.booleans(), loses_snapshots=st.booleans())
    def broker(self, stopped_cleanly: bool, loses_snapshots: bool) -> None:
        marker = self.scene.root / ".kafka_cleanshutdown"
        folder = self.scene.path
        names = {path.name for path in folder.iterdir() if path.is_file()}
        for operation, source, target in loading(names, clean=marker.exists()):
            path = folder / source
            if operation == "unlink":
                path.unlink()
            elif operation == "rename":
                path.rename(folder / target)
            elif operation == "create":
                put(path, b"rebuilt by a broker", 8_000)
            else:
                put(path, path.read_bytes(), 8_000 + os.stat(path).st_mtime_ns // 10**9)
        if loses_snapshots:
            logs = {path.name[:20] for path in folder.glob("*.log")}
            for snapshot in sorted(folder.glob("*.snapshot"))[:-1]:
                if snapshot.name[:20] not in logs:
                    snapshot.unlink()
        marker.unlink(missing_ok=True)
        self.marker_may_be_there = stopped_cleanly
        if stopped_cleanly:
            marker.write_bytes(b"a broker's own")
            (self.scene.root / "recovery-point-offset-checkpoint").write_bytes(POINTS)

    @invariant()
    def every_group_is_whole(self) -> None:
        logs = served(self.scene.path)
        for base, sources in GROUPS:
            found = {each: logs.pop(each) for each in map(name, sources) if each in logs}
            old = {each: self.scene.before[f"t-0/{each}"][2] for each in map(name, sources)}
            assert found in (old, {name(base): self.scene.staged[base][".log"]})
        assert logs == {name(each): self.scene.before[f"t-0/{name(each)}"][2] for each in (0, 600)}

    @invariant()
    def no_clean_shutdown_is_forged(self) -> None:
        assert self.marker_may_be_there or not (self.scene.root / ".kafka_cleanshutdown").exists()

    @rule()
    def undo_whole(self) -> None:
        outcomes = self.scene.undo(FENCED)
        assert not [each for each in outcomes if each.failed], outcomes
        now = self.scene.now()
        closed = [f"t-0/{name(base, e)}" for base in BASES[:-1] for e in EXTENSIONS]
        assert {k: v for k, v in self.scene.before.items() if k in closed} == {
            k: v for k, v in now.items() if k in closed
        }
        assert not [k for k in now if k.endswith((".swap", ".cleaned"))]
        assert not list(self.scene.path.glob("krepair~*"))


TestHistories = Histories.TestCase
TestHistories.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestHistories.settings = settings(
    max_examples=60, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
