"""Grouping of adjacent segments into one: at each limit, and one past it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from krepair.rules.grouping import group, index_bytes_at_most, index_entries_at_most
from krepair.rules.model import MarkerPolicy
from krepair.rules.outcome import SourceSegment
from tests.builders import NOW_MS, data, indexes
from tests.plan.plans import source
from tests.rules.facts import POLICY


def outcome(base: int, kept: int) -> SourceSegment:
    return source(base, kept_bytes=kept, aborted_kept=())


def grouped(policy: MarkerPolicy, *outcomes: SourceSegment, last: int | None = None) -> list[tuple[int, ...]]:
    """Base offsets of each group; a segment ends 9 offsets past its base, the last one at ``last``."""
    ends = {outcome.base_offset: outcome.base_offset + 9 for outcome in outcomes}
    if last is not None:
        ends[outcomes[-1].base_offset] = last
    groups = group(outcomes, ends, policy)
    assert [made.last_offset for made in groups] == [ends[made.sources[-1].base_offset] for made in groups]
    return [tuple(source.base_offset for source in made.sources) for made in groups]


@pytest.mark.parametrize(("limit", "expected"), [(500, [(0, 10)]), (499, [(0,), (10,)])])
def test_group_may_be_as_large_as_segment_bytes(limit: int, expected: list[tuple[int, ...]]) -> None:
    policy = replace(POLICY, segment_bytes=limit)
    assert grouped(policy, outcome(0, 200), outcome(10, 300)) == expected


def test_group_that_is_full_is_followed_by_a_new_one() -> None:
    policy = replace(POLICY, segment_bytes=500)
    kept = [outcome(10 * number, 250) for number in range(5)]
    assert grouped(policy, *kept) == [(0, 10), (20, 30), (40,)]


def test_segment_larger_than_segment_bytes_stays_alone() -> None:
    policy = replace(POLICY, segment_bytes=100)
    assert grouped(policy, outcome(0, 900), outcome(10, 0)) == [(0,), (10,)]


def test_segment_of_the_newest_snapshot_begins_a_group() -> None:
    """A broker since 2.8 deletes a snapshot that is named after no segment: all producers would be forgotten."""
    loaded = replace(POLICY, loaded_base=100)
    assert grouped(loaded, outcome(0, 10), outcome(100, 10), outcome(200, 10)) == [(0,), (100, 200)]


def test_without_merging_each_is_alone() -> None:
    assert grouped(replace(POLICY, merge=False), outcome(0, 1), outcome(10, 1)) == [(0,), (10,)]


@pytest.mark.parametrize(("limit", "expected"), [(36, [(0, 10)]), (35, [(0,), (10,)])])
def test_time_index_of_a_group_fits_segment_index_bytes(limit: int, expected: list[tuple[int, ...]]) -> None:
    """200 bytes of log with an entry after more than 99 bytes: two, and one that closes it, of 12 bytes each."""
    policy = replace(POLICY, index_interval_bytes=99, segment_index_bytes=limit)
    assert grouped(policy, outcome(0, 100), outcome(10, 100)) == expected


@pytest.mark.parametrize(("last", "expected"), [(2**31 - 1, [(0, 10)]), (2**31, [(0,), (10,)])])
def test_offsets_of_a_group_fit_32_bits(last: int, expected: list[tuple[int, ...]]) -> None:
    assert grouped(POLICY, outcome(0, 1), outcome(10, 1), last=last) == expected
    shifted = [tuple(base + 7 for base in bases) for bases in expected]
    assert grouped(POLICY, outcome(7, 1), outcome(17, 1), last=last + 7) == shifted


@pytest.mark.parametrize(
    ("log_bytes", "interval", "aborted", "most"),
    [(0, 4096, 0, 20), (4096, 4096, 0, 20), (4097, 4096, 0, 40), (10, 0, 3, 322)],
)
def test_indexes_take_20_bytes_for_each_entry_and_34_for_each_aborted_transaction(
    log_bytes: int, interval: int, aborted: int, most: int
) -> None:
    assert index_bytes_at_most(log_bytes, interval, aborted) == most


@pytest.mark.parametrize("interval", [60, 61, 99, 4096])
def test_indexes_that_recovery_makes_are_never_larger_and_at_most_two_entries_smaller(interval: int) -> None:
    closest = 1 << 30
    for number in range(1, 60):
        batches = [data(offset, 1, timestamp=NOW_MS + offset) for offset in range(number)]
        offset_index, time_index = indexes(0, batches, interval)
        log_bytes = sum(len(batch.raw) for batch in batches)
        most = index_bytes_at_most(log_bytes, interval)
        assert len(offset_index) + len(time_index) <= most
        assert len(time_index) <= 12 * index_entries_at_most(log_bytes, interval)
        closest = min(closest, most - len(offset_index) - len(time_index))
    assert (
        closest <= 28
    )  # an entry of both that the last batch did not need, and the closing one of the offset index


def test_group_ends_with_its_last_segment_that_has_batches() -> None:
    empty = structs.replace(outcome(10, 0), batches=0)
    (made,) = group([outcome(0, 1), empty], {0: 9, 10: 9}, POLICY)
    assert made.last_offset == 9
    (made,) = group([empty], {10: 9}, POLICY)
    assert made.last_offset == -1
