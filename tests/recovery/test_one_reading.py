"""Apply reads a log once, for the second reading and for all derived files, and finds every defect in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from krepair.commit.reports import ApplyReport
from krepair.derive.index_entries import IndexEntries
from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.plan.model import ReplaceFile
from tests.commit.txfixture import SEGMENTS
from tests.flips import flip
from tests.ops.scene import tree
from tests.recovery.scene import Verbs, planned, points_of, write_unclean

OLD, RAISED = {"t": 250, "o": 0}, {"t": 450, "o": 3}


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Name and number of items of every job from here on."""
    jobs: list[tuple[str, int]] = []
    real = InlineEngine.map

    def run(engine: InlineEngine, function: Any, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        if items:
            jobs.append((function.__name__, len(items)))
        return real(engine, function, items)

    monkeypatch.setattr(InlineEngine, "map", run)
    return jobs


def codes(report: ApplyReport) -> dict[str, set[int | None]]:
    """The exit codes of the partitions that failed, but of the lines that stayed because of it."""
    found: dict[str, set[int | None]] = {}
    for one in report.results:
        if one.outcome == "failed":
            found.setdefault(one.partition, set()).add(one.exit_code)
    return found


def test_indexes_snapshots_and_epochs_are_made_in_the_second_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_unclean(tmp_path / "logs", {"t": 0, "o": 0})
    (path / "t-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
    verbs = Verbs(path)
    plan = verbs.plan()
    names = {one.name for part in plan.partitions for one in part.changes if isinstance(one, ReplaceFile)}
    assert {Path(name).suffix for name in names} >= {".index", ".timeindex", ".snapshot", ""}
    jobs = noted(monkeypatch)
    verbs.apply(plan)
    readers = [job for job in jobs if job[0] in {"verify_recovered", "scan", "repair_indexes"}]
    assert readers == [("verify_recovered", len(SEGMENTS) + 1)]  # those of t-0, and that of o-0
    assert points_of(path) == RAISED
    assert verbs.wrong(plan) == []


@pytest.mark.parametrize("file", ["index", "timeindex"])
def test_indexes_that_are_made_wrong_in_plan_and_apply_are_found_before_anything_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    path = write_unclean(tmp_path / "logs")
    verbs = Verbs(path)
    real = IndexEntries.entries

    def off_by_one(entries: IndexEntries) -> tuple[Any, Any]:
        offsets, times = (made.copy() for made in real(entries))
        if file == "index":
            offsets[-1:, 1] += 1
        else:
            times[-1:, 0] += 1
        return offsets, times

    monkeypatch.setattr(IndexEntries, "entries", off_by_one)
    plan = verbs.plan()
    before = tree(path / "t-0")
    report = apply(plan, verbs.options())
    assert codes(report)["t-0"] == {ExitCode.VERIFY_FAILED}
    assert tree(path / "t-0") == before
    assert points_of(path)["t"] == OLD["t"]


@pytest.mark.parametrize("base", [200, 300, 400])
def test_damage_between_plan_and_apply_under_the_old_size_and_time_stops_its_partition_alone(
    tmp_path: Path, base: int
) -> None:
    path, verbs, plan = planned(tmp_path / "logs")
    log = path / "t-0" / f"{base:020d}.log"
    flip(log, log.stat().st_size // 2 + 3)
    before = tree(path / "t-0")
    report = apply(plan, verbs.options())
    assert codes(report) == {"t-0": {ExitCode.VERIFY_FAILED}}
    assert tree(path / "t-0") == before
    assert points_of(path) == OLD | {"o": RAISED["o"]}
