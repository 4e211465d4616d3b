"""Marker-only compaction of hand-made logs: each shows in a few batches what must stay, and why."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from krepair.rules.markers import _rescan, decide, stage_inputs
from krepair.rules.model import MarkerPolicy, NeedsRescan, PartitionDecision, ProducerSnapshotState, Skipped
from krepair.rules.producers import ProducerNeeds
from tests.builders import NOW_MS, Batch, Partition, abort, commit, data, emptied
from tests.rules.facts import POLICY, facts, partition, row, rows
from tests.rules.scanned import decided, holding, scan

UNLIMITED = replace(POLICY, horizon=str(2**60), producer_expiry_ms=-1)
"""Every unstamped marker may go, and no producer is active but by an open transaction."""


def decision(made: Partition, policy: MarkerPolicy = UNLIMITED) -> PartitionDecision:
    """It is decided, not left alone."""
    found = decided(holding(made), policy)
    assert isinstance(found, PartitionDecision), found
    return found


def reasons(made: Partition, policy: MarkerPolicy = UNLIMITED) -> dict[int, list[str]]:
    """Base offset of a segment -> the reasons of its batches, one word for each."""
    return {
        outcome.base_offset: [tally.reason for tally in outcome.reasons for _ in range(tally.batches)]
        for outcome in decision(made, policy).outcomes
    }


def of_snapshot(producer: int, last: int) -> MarkerPolicy:
    """A broker's newest snapshot, at the log end, says where the producer's last data was."""
    state = ProducerSnapshotState(producer, 0, last, NOW_MS, -1)
    return replace(POLICY, horizon=str(2**60), snapshot_offset=20, snapshot=(state,))


ACTIVE = [data(30, 1)]
ANY_AGE = replace(POLICY, horizon=str(2**60))
CASES: dict[str, tuple[list[list[Batch]], MarkerPolicy, dict[int, list[str]]]] = {
    "a marker goes with its data and stays with it": (
        [[data(0, 1, pid=7, txn=True), commit(1, pid=7), commit(2, pid=8), data(3, 1)], ACTIVE],
        UNLIMITED,
        {0: ["K01", "K01", "K02", "D03"]},
    ),
    "a marker stays for data in an earlier segment": (
        [[data(0, 1, pid=7, txn=True)], [commit(10, pid=7), commit(11, pid=8), data(12, 1)], ACTIVE],
        UNLIMITED,
        {0: ["K01"], 10: ["K01", "K02", "D03"]},
    ),
    "only the first marker after the data stays for it": (
        [
            [data(0, 1, pid=7, txn=True)],
            [commit(10, pid=7), commit(11, pid=7), data(12, 1)],
            [commit(20, pid=7), data(21, 1)],
            ACTIVE,
        ],
        UNLIMITED,
        {0: ["K01"], 10: ["K01", "K02", "D03"], 20: ["K01", "D03"]},
    ),
    "a stamped marker goes when its own horizon has passed, whatever the age of the segment": (
        [
            [
                commit(0, pid=8, delete_horizon=NOW_MS - 1),
                commit(1, pid=8, delete_horizon=NOW_MS + 1),
                data(2, 1),
            ],
            ACTIVE,
        ],
        replace(UNLIMITED, horizon="0"),
        {0: ["K01", "K04", "D04"]},
    ),
    "the last batch of the span is emptied": (
        [[data(0, 1), commit(1, pid=8)], ACTIVE],
        UNLIMITED,
        {0: ["K01", "E01"]},
    ),
    "a last marker that stays anyway is left as it is": (
        [[data(0, 1, pid=7, txn=True), commit(1, pid=7)], ACTIVE],
        UNLIMITED,
        {0: ["K01", "K02"]},
    ),
    "the abort of data that stays, beside one of data that does not": (
        [
            [emptied(0, pid=6), data(1, 1, pid=7, txn=True)],
            [abort(10, pid=6), abort(11, pid=7), data(12, 1)],
            ACTIVE,
        ],
        UNLIMITED,
        {0: ["K01", "D01"], 10: ["K01", "K02", "D03"]},
    ),
    "the marker of the current epoch of an active producer without data": (
        [[commit(0, pid=8, epoch=3), commit(1, pid=8, epoch=4), data(2, 1)], ACTIVE],
        ANY_AGE,
        {0: ["K01", "K05", "D03"]},
    ),
    "a marker that stays for two batches is counted once": (
        [
            [data(0, 1, pid=7, txn=True)],
            [emptied(10, pid=7), commit(11, pid=7), data(12, 1)],
            ACTIVE,
        ],
        ANY_AGE,
        {0: ["K01"], 10: ["K01", "K02", "K07"]},
    ),
    "the last batch that the scan found of a producer, where the snapshot names an offset that the log lacks": (
        [[emptied(0, pid=7, txn=False), data(1, 1)], ACTIVE],
        of_snapshot(7, 9),
        {0: ["K01", "K07"]},
    ),
    "the last batch by the snapshot, where a later epoch made the scan forget it": (
        [
            [emptied(5, pid=7), commit(6, pid=7), data(7, 1)],
            [commit(10, pid=7, epoch=1), data(11, 1)],
            ACTIVE,
        ],
        of_snapshot(7, 5),
        {5: ["K01", "K02", "K07"], 10: ["K01", "K05"]},
    ),
    "the last batch of a producer that is not active": (
        [[emptied(0, pid=7, txn=False), data(1, 1)], ACTIVE],
        replace(of_snapshot(7, 9), producer_expiry_ms=-1),
        {0: ["K01", "D01"]},
    ),
}


@pytest.mark.parametrize(("segments", "policy", "expected"), CASES.values(), ids=CASES)
def test_each_batch_has_the_reason_of_the_case(
    segments: list[list[Batch]], policy: MarkerPolicy, expected: dict[int, list[str]]
) -> None:
    made = partition()
    for batches in segments:
        made.segment(*batches)
    assert reasons(made, policy) == expected


def test_horizon_keeps_markers_of_segments_younger_than_it() -> None:
    made = (
        partition()
        .segment(commit(0, pid=8), data(1, 1), mtime_ms=100)
        .segment(commit(10, pid=8), data(11, 1), mtime_ms=101)
        .segment(data(20, 1))
    )
    policy = replace(UNLIMITED, horizon="100")
    assert reasons(made, policy) == {0: ["K01", "D03"], 10: ["K01", "K03"]}
    found = decision(made, policy)
    told = {one.name: (one.markers_dropped, one.log_bytes_after, one.horizon_ms) for one in found.horizons}
    size = len(data(1, 1).raw) + len(data(11, 1).raw)
    assert told == {
        "none": (0, size + 2 * 78, 0),
        "next-pass": (0, size + 2 * 78, 0),
        "newest": (2, size, 101),
        "TIME": (1, size + 78, 100),
        "unlimited": (2, size, 2**63 - 1),
    }
    assert [one.name for one in found.horizons if one.chosen] == ["TIME"]
    assert found.horizon_ms == 100


@pytest.mark.parametrize("merge", [False, True])
def test_no_horizon_promises_what_stays_as_the_last_batch(merge: bool) -> None:
    made = (
        partition()
        .segment(commit(0, pid=8), mtime_ms=100)
        .segment(commit(10, pid=8), mtime_ms=101)
        .segment(commit(20, pid=8), mtime_ms=102)
        .segment(data(30, 1))
    )
    found = decision(made, replace(UNLIMITED, horizon="100", merge=merge))
    left = {one.name: one.log_bytes_after for one in found.horizons}
    assert left["unlimited"] == (61 if merge else 3 * 61)
    assert left["TIME"] == (2 * 78 if merge else 61 + 2 * 78)
    assert left["TIME"] == sum(one.kept_bytes for one in found.outcomes)


def test_aborted_transaction_without_its_entry_leaves_the_partition_alone() -> None:
    made = (
        partition()
        .segment(data(0, 1, pid=7, txn=True))
        .segment(abort(10, pid=7), data(11, 1))
        .segment(data(20, 1))
    )
    whole = holding(made)
    assert isinstance(decided(whole, UNLIMITED), PartitionDecision)
    first, second, third = whole.segments
    bare = replace(whole, segments=(first, replace(second, txnindex=b""), third))
    found = decided(bare, UNLIMITED)
    assert isinstance(found, Skipped)
    assert found.code == "txnindex-disagrees"
    assert found.why.startswith(f"{10:020d}.txnindex: 1 aborted transaction(s)")
    assert str(found.next_command) == "krepair plan LOGDIR --fix index=regenerate --out PLAN"


@pytest.mark.parametrize("count", [1, 2])
def test_aborts_within_one_segment_without_entries_are_counted(count: int) -> None:
    batches = [
        each for n in range(count) for each in (data(2 * n, 1, pid=n, txn=True), abort(2 * n + 1, pid=n))
    ]
    made = partition().segment(*batches).segment(data(20, 1))
    whole = holding(made)
    bare = replace(whole, segments=(replace(whole.segments[0], txnindex=b""), whole.segments[1]))
    found = decided(bare, UNLIMITED)
    assert isinstance(found, Skipped)
    assert f"{0:020d}.txnindex: {count} aborted" in found.why


def test_committed_transaction_over_a_border_needs_no_entry() -> None:
    made = (
        partition()
        .segment(data(0, 1, pid=7, txn=True))
        .segment(commit(10, pid=7), data(11, 1))
        .segment(data(20, 1))
    )
    found = decision(made)
    assert found.outcomes[1].carried_open == (7,)
    assert found.outcomes[1].aborted_kept == ()


def notes(policy: MarkerPolicy, log: bytes = b"") -> tuple[str, ...]:
    whole = holding(partition().segment(data(0, 1)).segment(data(20, 1)))
    last = replace(whole.segments[1], log=whole.segments[1].log + log)
    found = decided(replace(whole, segments=(whole.segments[0], last)), policy)
    assert isinstance(found, PartitionDecision)
    return found.notes


def test_missing_snapshot_and_torn_tail_are_noted() -> None:
    missing = "no valid producer snapshot was found; producer state is from the scan alone"
    assert notes(UNLIMITED) == (missing,)
    assert notes(replace(UNLIMITED, snapshot_offset=0)) == ()
    size = len(data(20, 1).raw)
    torn = notes(replace(UNLIMITED, snapshot_offset=0), b"\1\2\3")
    what = "a whole batch was expected, 3 bytes are left; a broker truncates it there"
    assert torn == (f"the active segment ends at position {size} of {size + 3}: {what}",)


def test_without_a_snapshot_the_scan_speaks_for_the_broker_too() -> None:
    made = partition().segment(emptied(5, pid=7, txn=False), data(6, 1)).segment(data(20, 1))
    assert reasons(made, POLICY)[5] == ["K01", "K07"]
    state = ProducerSnapshotState(8, 0, 3, NOW_MS, 4)
    unread = replace(POLICY, snapshot_offset=-1, snapshot=(state,))
    assert reasons(made, unread)[5] == ["K01", "K07"]
    read = decision(made, replace(unread, snapshot_offset=0))
    assert (read.cleanable.limit, read.active_producers) == ("open transaction", 2)
    alone = decision(made, unread)
    assert (alone.cleanable.limit, alone.active_producers) == ("active segment", 1)


def test_figures_of_the_whole_are_told() -> None:
    made = partition().segment(data(0, 3)).segment(data(20, 5))
    found = decision(made, replace(UNLIMITED, snapshot_offset=0))
    assert (found.log_end_offset, found.kept_last, found.active_producers) == (25, (), 0)


NEEDS = ProducerNeeds(np.empty((0, 2), np.int64), np.array([[5, 2], [9, 4]], np.int64), 2)


@pytest.mark.parametrize(
    ("of", "asked"),
    [
        (row(5, epoch=2, free_markers=1), True),
        (row(5, epoch=2, free_markers=0), False),
        (row(5, epoch=1, free_markers=1), False),
        (row(5, epoch=1, epochs_mixed=1), True),
        (row(5, epoch=-1), True),
        (row(5, epoch=1), False),
        (row(9, epoch=4, free_markers=3), True),
        (row(9, epoch=2, free_markers=3), False),
        (row(6, epoch=2, free_markers=1), False),
        (row(12, epoch=4, free_markers=1), False),
        (row(6, epoch=-1), False),
    ],
)
def test_segment_is_scanned_again_where_a_marker_of_a_protected_epoch_may_be(
    of: list[int], asked: bool
) -> None:
    segments = [facts(0, rows=rows(row(1, epoch=2, free_markers=1))), facts(10, rows=rows(of))]
    found = _rescan(segments, NEEDS, None)
    assert (found is not None) == asked
    if found is not None:
        assert found.base_offsets == (10,)
        assert found.protected.tolist() == [[5, 2], [9, 4]]


def test_scan_that_knew_of_the_protection_is_not_done_again() -> None:
    segments = [facts(0, rows=rows(row(5, epoch=2, free_markers=1)))]
    known = np.array([[5, 2], [9, 4]], np.int64)
    assert _rescan(segments, NEEDS, known) is None
    assert _rescan(segments, NEEDS, known[1:]) is not None
    assert _rescan(segments, NEEDS, np.array([[5, 3], [9, 4]], np.int64)) is not None
    none = ProducerNeeds(NEEDS.data, NEEDS.markers[:0], 0)
    assert _rescan(segments, none, None) is None


def test_damage_and_a_wrong_snapshot_are_told_before_anything_is_decided() -> None:
    made = partition().segment(emptied(5, pid=7), data(6, 1, pid=7)).segment(data(20, 1))
    whole = holding(made)
    state = ProducerSnapshotState(7, 0, 5, NOW_MS, -1)
    found = decided(whole, replace(POLICY, snapshot_offset=20, snapshot=(state,)))
    assert isinstance(found, Skipped)
    assert found.code == "snapshot-disagrees"
    torn = replace(
        whole, segments=(replace(whole.segments[0], log=whole.segments[0].log[:-1]), whole.segments[1])
    )
    broken = decided(torn, POLICY)
    assert isinstance(broken, Skipped)
    assert (broken.code, broken.damaged) == ("damage", True)


def test_a_marker_of_an_epoch_that_is_needed_has_its_segment_scanned_again() -> None:
    made = partition().segment(commit(0, pid=8, epoch=3), commit(1, pid=8, epoch=4), data(2, 1))
    whole = holding(made.segment(data(20, 1)))
    first = decide([scan(segment, ANY_AGE) for segment in whole.segments], ANY_AGE)
    assert isinstance(first, NeedsRescan)
    assert (first.base_offsets, first.protected.tolist()) == ((0,), [[8, 4]])
    found = decided(whole, ANY_AGE)
    assert isinstance(found, PartitionDecision)
    assert (found.outcomes[0].protected, found.active_producers) == (((8, 4),), 1)


def test_last_batch_of_the_span_may_lie_before_an_empty_segment() -> None:
    made = partition().segment(data(0, 1), commit(1, pid=8)).segment(base_offset=10).segment(data(20, 1))
    assert reasons(made) == {0: ["K01", "E01"], 10: []}


def test_snapshot_at_offset_0_is_one_when_a_rewrite_is_staged() -> None:
    made = partition().segment(emptied(5, pid=7, txn=False), data(6, 1)).segment(data(20, 1))
    state = ProducerSnapshotState(8, 0, 3, NOW_MS, 4)
    policy = replace(POLICY, snapshot_offset=0, snapshot=(state,))
    segments = [scan(segment, policy) for segment in holding(made).segments]
    assert stage_inputs(segments, policy, {}) == {}
    staged = stage_inputs(segments, replace(policy, snapshot_offset=-1), {})
    assert staged[5].keep_positions == (0,)
