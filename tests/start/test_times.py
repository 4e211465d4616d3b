"""Timestamps in another unit, or in the future: where retention stands still, and what of the young a start deletes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding, Severity, severity_of
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir, data

DAY = 86_400_000
SETTINGS = (("cleanup.policy", "delete"), ("retention.ms", str(2 * DAY)))


def found(root: Path, times: list[int], settings: tuple[tuple[str, str], ...] = SETTINGS) -> list[Finding]:
    """KR704 of a partition with a segment of ten records for each time."""
    log_dir = LogDir(root)
    partition = log_dir.partition("t")
    for number, time in enumerate(times):
        partition.segment(data(10 * number, 10, timestamp=time), mtime_ms=NOW_MS - DAY)
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS, settings=settings)
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


COMPACT = (("cleanup.policy", "compact"), ("min.compaction.lag.ms", str(DAY)))


@pytest.mark.parametrize(
    ("times", "settings", "says"),
    [
        (
            [OLD, OLD * 1000, OLD, OLD],
            COMPACT,
            "holds the cleaner back at this segment forever; 2 closed segments",
        ),
        ([OLD, NOW_MS + 9 * DAY, OLD], COMPACT, "until then; 1 closed segment of"),
        ([OLD, OLD, OLD * 1000], COMPACT, ""),  # of the active segment the lag does not count yet
        ([OLD * 1000, OLD], COMPACT[:1], ""),  # without a lag the cleaner asks for no time
    ],
)
def test_a_time_in_the_future_holds_the_cleaner_of_a_topic_with_a_lag(
    times: list[int], settings: tuple[tuple[str, str], ...], says: str, tmp_path: Path
) -> None:
    told = found(tmp_path / "logs", times, settings)
    assert [says in one.evidence for one in told] == [True] * bool(says)


def test_a_clock_of_1970_makes_the_young_go_and_no_timestamp_is_no_time_of_1970(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a", [DAY, NOW_MS])
    assert "lie before Kafka; a broker reads 1970-01-02T00:00:00.000Z: the next start deletes" in one.evidence
    assert severity_of(one) is Severity.DATA_LOSS
    assert found(tmp_path / "b", [-1, -1, NOW_MS]) == []


def test_where_the_policy_is_not_known_the_loss_is_told_with_an_if(tmp_path: Path) -> None:
    (one,) = found(tmp_path / "a", [NOW_MS // 1000, NOW_MS], SETTINGS[1:])
    assert "if its cleanup.policy is delete, which is not known here, the next start deletes" in one.evidence
    assert severity_of(one) is Severity.CONFUSING


def test_plan_by_key_names_the_bound_the_segment_and_the_record(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path / "logs")
    for number, time in enumerate([OLD, OLD * 1000, OLD, OLD]):
        log_dir.partition("t").segment(data(10 * number, 10, timestamp=time), mtime_ms=OLD)
    path = log_dir.write()
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"t": dict(COMPACT)}))
    options = Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS,
        fixes=("compact",),
        topic_config=str(topics),
        only_replica=("*",),
    )
    (part,) = make_plan(str(path), options).partitions
    assert part.span is not None
    assert part.span.limit_text.startswith(
        f"the cleaner leaves {10:020d}.log and what follows alone until min.compaction.lag.ms={DAY} is over: the batch "
        "that ends at offset 19 has a record of"
    )
