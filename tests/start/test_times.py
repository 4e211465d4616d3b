"""Timestamps in another unit, or in the future: where retention stands still, and what of the young a start deletes."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding, Severity, severity_of
from krepair.ops.check import check
from krepair.options import Engine, Options
from tests.builders import NOW_MS, LogDir, data

DAY = 86_400_000
SETTINGS = (("cleanup.policy", "delete"), ("retention.ms", str(2 * DAY)))


def found(root: Path, times: list[int], settings: tuple[tuple[str, str], ...] = SETTINGS) -> list[Finding]:
    """KR704 of a partition with a segment of ten records for each time."""
    log_dir = LogDir(root)
    partition = log_dir.partition("t")
    for number, time in enumerate(times):
        partition.segment(data(10 * number, 10, timestamp=time), mtime_ms=NOW_MS - DAY)
    options = Options(engine=Engine.INLINE, now_ms=NOW_MS, settings=settings)
    (report,) = check([str(log_dir.write())], options).log_dirs
    return [one for one in report.findings if one.rule == "KR704"]


OLD = NOW_MS - 40 * DAY


@pytest.mark.parametrize(
    ("time", "says"),
    [(OLD * 1000, "look like microseconds"), (NOW_MS + 400 * DAY, "lie in the future")],
)
def test_a_time_in_the_future_stops_retention_and_says_what_waits_behind_it(
    time: int, says: str, tmp_path: Path
) -> None:
    (one,) = found(tmp_path / "logs", [OLD, time, OLD, OLD, NOW_MS - DAY])
    assert one.file == f"{10:020d}.log"
    assert says in one.evidence
    assert "behind it 2 segments" in one.evidence
    assert severity_of(one) is Severity.CONFUSING


def test_seconds_are_of_1970_for_a_broker_and_the_young_is_deleted(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "logs", [NOW_MS // 1000, NOW_MS // 1000, NOW_MS])
    assert "look like seconds" in one.evidence
    assert "1970-" in one.evidence
    assert "deletes 2 segments" in one.evidence
    assert severity_of(one) is Severity.DATA_LOSS


def test_times_as_they_should_be_and_topics_without_retention_are_not_told(tmp_path: Path) -> None:
    assert found(tmp_path / "a", [OLD, NOW_MS - DAY, NOW_MS]) == []
    assert found(tmp_path / "b", [OLD * 1000, OLD], (("cleanup.policy", "compact"),)) == []
    assert found(tmp_path / "c", [OLD * 1000, OLD], (("retention.ms", "-1"),)) == []
