"""Compaction range of a partition and minimum age of its markers: at each limit and one past it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from krepair.formats.java_numbers import INT64_MAX
from krepair.rules.cleanable_range import find_cleanable_range, first_problem, horizon_choices
from krepair.rules.compaction import RecordTally, tombstone_horizons
from krepair.rules.model import CleanableRange, MarkerPolicy, SegmentFacts
from krepair.rules.producers import ProducerStates
from tests.builders import NOW_MS
from tests.rules.facts import POLICY, facts

SEGMENTS = [facts(0), facts(10), facts(20), facts(30)]


def states(open_first: int = -1, unreplicated: int = INT64_MAX) -> ProducerStates:
    made = ProducerStates(np.array([7, 8], np.int64))
    made.known[:] = True
    made.open_first[1] = open_first
    made.min_unreplicated = unreplicated
    return made


def span(
    segments: list[SegmentFacts] | None = None,
    scan: ProducerStates | None = None,
    broker: ProducerStates | None = None,
    **policy: Any,
) -> CleanableRange:
    return find_cleanable_range(
        segments or SEGMENTS, scan or states(), broker or states(), replace(POLICY, **policy)
    )


def test_active_segment_is_never_in_the_span() -> None:
    found = span()
    assert found == CleanableRange(0, 30, 3, "active segment", "the active segment begins there")
    assert span([facts(5)]) == CleanableRange(5, 5, 0, "active segment", "the active segment begins there")


@pytest.mark.parametrize(
    ("offset", "end", "count"), [(30, 30, 3), (29, 20, 2), (20, 20, 2), (19, 10, 1), (0, 0, 0)]
)
def test_open_transaction_ends_the_span_at_its_segment_whoever_knows_of_it(
    offset: int, end: int, count: int
) -> None:
    for known in ({"scan": states(offset)}, {"broker": states(offset)}):
        found = span(**known)
        assert (found.end_offset, found.segments) == (end, count)
        if offset < 30:
            assert found.limit == "open transaction"
            assert found.limit_text == f"producer 8 has a transaction open since offset {offset}"


@pytest.mark.parametrize(("offset", "end"), [(31, 30), (30, 30), (29, 20), (10, 10), (9, 0)])
def test_high_watermark_ends_the_span_at_its_segment(offset: int, end: int) -> None:
    found = span(high_watermark=offset)
    assert found.end_offset == end
    assert found.limit == ("high watermark" if offset < 30 else "active segment")


def test_transaction_that_ends_past_the_high_watermark_stays_whole() -> None:
    found = span(scan=states(unreplicated=12), high_watermark=25)
    assert (found.end_offset, found.limit) == (10, "high watermark")
    assert found.limit_text == "a transaction since offset 12 ends at or above the high watermark 25"
    assert span(broker=states(unreplicated=12), high_watermark=25).end_offset == 20


def test_records_younger_than_the_lag_end_the_span() -> None:
    young = [facts(0), facts(10, max_timestamp=NOW_MS - 100), facts(20), facts(30)]
    assert span(young, min_compaction_lag_ms=5).end_offset == 30
    found = span(young, min_compaction_lag_ms=6)
    assert (found.end_offset, found.limit) == (0, "min.compaction.lag.ms")
    assert (
        f"leaves {0:020d}.log and what follows alone until min.compaction.lag.ms=6 is over"
        in found.limit_text
    )
    assert found.limit_text.endswith("has a record of 2025-06-15T15:06:39.995Z")
    old_front = [facts(0, max_timestamp=NOW_MS - 100), *young[1:]]
    assert span(old_front, min_compaction_lag_ms=6).end_offset == 20
    assert span(young, min_compaction_lag_ms=0).end_offset == 30


def test_segment_without_timestamps_is_as_old_as_its_file() -> None:
    bare = [facts(0, max_timestamp=-1, mtime_ms=NOW_MS - 50), facts(10)]
    assert span(bare, min_compaction_lag_ms=50).end_offset == 10
    assert span(bare, min_compaction_lag_ms=51).end_offset == 0
    dated = [facts(0, max_timestamp=0, mtime_ms=NOW_MS), facts(10)]
    assert span(dated, min_compaction_lag_ms=50).end_offset == 10


def choices(segments: list[SegmentFacts], policy: MarkerPolicy) -> dict[str, tuple[int, bool]]:
    found = horizon_choices(segments, find_cleanable_range(segments, states(), states(), policy), policy)
    assert len(found) == len({name for name, _, _ in found})
    return {name: (horizon, chosen) for name, horizon, chosen in found}


OF_AGES = [facts(0, mtime_ms=100), facts(10, mtime_ms=200), facts(20, mtime_ms=300), facts(30, mtime_ms=400)]


@pytest.mark.parametrize("horizon", ["newest", "next-pass"])
def test_horizon_is_the_age_of_the_last_segment_of_the_span_or_of_the_last_one_cleaned(horizon: str) -> None:
    policy = replace(POLICY, horizon=horizon, delete_retention_ms=60, first_dirty_offset=20)
    assert choices(OF_AGES, policy) == {
        "none": (0, False),
        "next-pass": (140, horizon == "next-pass"),
        "newest": (240, horizon == "newest"),
        "unlimited": (INT64_MAX, False),
    }


def test_a_time_is_a_choice_of_its_own() -> None:
    policy = replace(POLICY, horizon="150")
    assert choices(OF_AGES, policy) == {
        "none": (0, False),
        "next-pass": (0, False),
        "newest": (300, False),
        "TIME": (150, True),
        "unlimited": (INT64_MAX, False),
    }


def test_horizon_is_never_negative() -> None:
    policy = replace(POLICY, delete_retention_ms=1000, first_dirty_offset=11)
    assert choices(OF_AGES, policy)["newest"] == (0, True)
    assert choices(OF_AGES, policy)["next-pass"] == (0, False)


def test_next_pass_drops_no_unstamped_marker_where_the_broker_stamps_or_has_never_cleaned() -> None:
    for fields in (
        {"first_dirty_offset": -1},
        {"first_dirty_offset": 0},
        {"first_dirty_offset": 20, "writes_horizons": True},
    ):
        assert choices(OF_AGES, replace(POLICY, **fields))["next-pass"] == (0, False)  # type: ignore[arg-type]


def test_newest_looks_at_the_last_segment_that_has_batches() -> None:
    hollow = [*OF_AGES[:2], facts(20, mtime_ms=300, batches=0), OF_AGES[3]]
    assert choices(hollow, POLICY)["newest"] == (200, True)
    bare = [facts(0, mtime_ms=100, batches=0), facts(10)]
    assert choices(bare, POLICY)["newest"] == (100, True)
    assert choices([facts(0, mtime_ms=100)], POLICY)["newest"] == (0, True)


def test_damage_in_any_segment_but_the_last_leaves_the_partition_alone() -> None:
    damaged = facts(10, valid_bytes=60, damage=1, damage_text="a bad CRC")
    found = first_problem([facts(0), damaged, facts(20)])
    assert found is not None
    assert (found.code, found.damaged) == ("damage", True)
    assert found.why == f"{10:020d}.log, position 60: a bad CRC"
    assert str(found.next_command) == "krepair check LOGDIR"
    assert first_problem([facts(0), damaged]) is None
    assert first_problem([facts(0), facts(10)]) is None


@pytest.mark.parametrize(("last_offset", "code"), [(9, ""), (10, "overlap"), (25, "overlap")])
def test_segments_that_overlap_are_left_alone(last_offset: int, code: str) -> None:
    """Merged, their offsets would go back, and apply would refuse what it has made."""
    found = first_problem([facts(0, last_offset=last_offset), facts(10)])
    assert (found.code if found else "") == code


def test_records_of_the_future_count_only_with_a_lag() -> None:
    future = [facts(0, max_timestamp=NOW_MS + 5), facts(10)]
    assert span(future, min_compaction_lag_ms=0).end_offset == 10
    now = [facts(0, max_timestamp=NOW_MS), facts(10)]
    assert span(now, min_compaction_lag_ms=1).end_offset == 0


# -- how many tombstones go with each horizon


TALLY = RecordTally(
    unstamped=3, unstamped_bytes=300, stamp_past=2, stamp_past_bytes=20, stamp_to_come=5, tombstones_kept=4
)


def test_what_goes_with_a_horizon_is_counted_with_its_bytes() -> None:
    segments = [facts(0, mtime_ms=NOW_MS - 5000), facts(10, mtime_ms=NOW_MS - 1000), facts(20)]
    span = CleanableRange(0, 20, 2, "", "")
    found = {one.name: one for one in tombstone_horizons(segments, [TALLY, TALLY], span, POLICY)}
    assert found.keys() >= {"unlimited", "none"}
    assert (found["unlimited"].dropped, found["unlimited"].dropped_bytes) == (10, 640)
    assert found["unlimited"].horizon_ms == 2**63 - 1
    assert (found["none"].dropped, found["none"].dropped_bytes) == (0, 0)
    for one in found.values():
        assert one.dropped + one.kept == 20


def test_of_any_tallies_bytes_go_with_their_tombstones() -> None:
    chance = random.Random(5)
    for _ in range(50):
        tallies = [
            replace(
                TALLY,
                unstamped=(n := chance.randrange(9)),
                unstamped_bytes=7 * n,
                stamp_past=(m := chance.randrange(9)),
                stamp_past_bytes=7 * m,
            )
            for _ in range(3)
        ]
        segments = [facts(10 * place, mtime_ms=NOW_MS - chance.randrange(10**6)) for place in range(4)]
        for one in tombstone_horizons(segments, tallies, CleanableRange(0, 30, 3, "", ""), POLICY):
            assert one.dropped_bytes == 7 * one.dropped, one
