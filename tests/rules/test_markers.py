"""Marker-only compaction against the slow twin, which shares no code with it: reasons, bytes, groups."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from krepair.rules.markers import StageInputs, stage_inputs
from krepair.rules.model import PartitionDecision, Skipped
from tests import naive
from tests.builders import NOW_MS
from tests.rules.scanned import Held, decided, held, policy_of, scan
from tests.rules.skipping import at_most_skipped, skip_unless
from tests.strategies import History, Shape, histories, history, shapes

UNLIMITED = 2**60
MANY = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def rules(draw: st.DrawFn, partition: Held) -> naive.Rules:
    """Every setting that a decision depends on, near the values where it turns."""
    mtimes = [segment.mtime_ms for segment in partition.segments]
    return naive.Rules(
        now_ms=NOW_MS + draw(st.sampled_from([0, 1, 4_999_999, 5_000_000, 10**10])),
        horizon_ms=draw(st.sampled_from([0, UNLIMITED, *mtimes, *(m - 1 for m in mtimes)])),
        high_watermark=draw(st.none() | st.integers(0, partition.log_end)),
        segment_bytes=draw(st.sampled_from([200, 700, 3000, 1 << 30])),
        segment_index_bytes=draw(st.sampled_from([12, 60, 10 << 20])),
        index_interval_bytes=draw(st.sampled_from([100, 200, 4096])),
        expiration_ms=draw(st.sampled_from([0, 1, 600_000, 1_800_000, 604_800_000])),
        min_compaction_lag_ms=draw(st.sampled_from([0, 0, 600_000, 1_800_000, 3_000_000])),
        merge=draw(st.booleans()),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Held, naive.Rules]:
    """A partition and the rules for it."""
    made = draw(histories())
    partition = held(made, snapshots=draw(st.booleans()))
    if partition.snapshots and draw(st.booleans()):
        # the clean stop's snapshot is lost, or more than that: the broker's state comes from an older one
        left = sorted(partition.snapshots)[: draw(st.integers(1, len(partition.snapshots)))]
        partition = replace(partition, snapshots={offset: partition.snapshots[offset] for offset in left})
    return partition, draw(rules(partition))


def by_segment(outcome: naive.Outcome) -> dict[int, dict[str, int]]:
    """Base offset -> reason -> batches."""
    out: dict[int, dict[str, int]] = {}
    for decision in outcome.decisions:
        counts = out.setdefault(decision.segment, {})
        counts[decision.reason] = counts.get(decision.reason, 0) + 1
    return out


def assert_alike(ours: PartitionDecision | Skipped, twin: naive.Outcome, partition: Held) -> None:
    assert isinstance(ours, PartitionDecision), ours
    first = partition.segments[0].base_offset
    assert ours.cleanable.end_offset == (twin.span_end if ours.outcomes else first)
    assert {
        o.base_offset: {tally.reason: tally.batches for tally in o.reasons} for o in ours.outcomes
    } == by_segment(twin)
    kept = dict.fromkeys(by_segment(twin), 0)
    for decision in twin.decisions:
        kept[decision.segment] += decision.bytes_after
    assert {o.base_offset: o.kept_bytes for o in ours.outcomes} == kept
    assert [tuple(s.base_offset for s in group.sources) for group in ours.groups] == [
        group.sources for group in twin.groups
    ]
    entries = {segment.base_offset: segment.txnindex for segment in partition.segments}
    carried = [
        b"".join(entries[s.base_offset][34 * n : 34 * n + 34] for s in group.sources for n in s.aborted_kept)
        for group in ours.groups
    ]
    assert carried == [group.txnindex for group in twin.groups]
    assert [group.kept_bytes for group in ours.groups] == [len(group.log) for group in twin.groups]
    assert_counts_alike(ours, twin)


def assert_counts_alike(ours: PartitionDecision, twin: naive.Outcome) -> None:
    """Batches, records and markers that stay, and where a batch stays only as the last one."""
    for outcome in ours.outcomes:
        of_segment = [each for each in twin.decisions if each.segment == outcome.base_offset]
        kept = [each for each in of_segment if each.verdict != naive.DROP]
        assert outcome.kept_batches == len(kept)
        assert outcome.kept_records == sum(each.batch.records for each in kept if not each.batch.control)
        markers = [each for each in kept if each.reason in {"K02", "K03", "K04", "K05", "K06"}]
        assert outcome.kept_markers == len(markers)
        assert outcome.batches == len(of_segment)
        assert outcome.log_bytes == sum(each.batch.size for each in of_segment)
        assert {tally.reason: tally.bytes for tally in outcome.reasons} == {
            reason: sum(each.batch.size for each in of_segment if each.reason == reason)
            for reason in {each.reason for each in of_segment}
        }
        last = [each.batch.position for each in kept if each.reason in {"E01", "K08"}]
        assert outcome.last_position == (last[0] if last else -1)
        positions = [each.batch.position for each in kept if each.reason == "K07"]
        assert sorted({*outcome.keep_positions, outcome.last_position} - {-1}) == sorted([*positions, *last])


def stage_alike(partition: Held, given_rules: naive.Rules, ours: PartitionDecision) -> None:
    """What apply works out anew for a rewrite is what the plan was made with."""
    policy = policy_of(given_rules, partition)
    protected = sorted({pair for outcome in ours.outcomes for pair in outcome.protected})
    told = np.array(protected, np.int64).reshape(-1, 2)
    segments = [scan(segment, policy, told) for segment in partition.segments]
    staged = stage_inputs(segments, policy, dict(ours.kept_last))
    assert staged == {
        outcome.base_offset: StageInputs(
            outcome.carried_open, outcome.keep_positions, outcome.protected, outcome.drop_unstamped
        )
        for outcome in ours.outcomes
    }


def result_of(partition: Held, twin: naive.Outcome) -> Held:
    """The partition as it is after what the twin decided."""
    groups = [naive.Segment(g.base_offset, g.log, g.mtime_ms, g.txnindex) for g in twin.groups]
    return replace(partition, segments=(*groups, *twin.rest))


@at_most_skipped(0.1)
@MANY
@given(cases())
def test_every_decision_is_the_slow_twins_and_a_second_round_finds_nothing(
    case: tuple[Held, naive.Rules],
) -> None:
    partition, given_rules = case
    twin = naive.compact(partition.segments, given_rules, partition.snapshots)
    after = result_of(partition, twin)
    # a merged segment has the time of its last source, by which a marker of another source may be old enough now
    skip_unless(not naive.compact(after.segments, given_rules, partition.snapshots).changes)
    for reason in twin.tally():
        event(reason)
    ours = decided(partition, policy_of(given_rules, partition))
    assert_alike(ours, twin, partition)
    assert isinstance(ours, PartitionDecision)
    stage_alike(partition, given_rules, ours)
    again = decided(after, policy_of(given_rules, after))
    assert isinstance(again, PartitionDecision)
    assert [group for group in again.groups if group.changes] == []


@pytest.mark.parametrize("seed", range(40))
def test_every_decision_is_the_slow_twins_on_long_histories(seed: int) -> None:
    chance = random.Random(seed)
    shape = Shape(
        segments=chance.randint(6, 20),
        steps=chance.randint(20, 60),
        producers=chance.randint(1, 9),
        emptied=seed % 2 == 0,
        stamps=seed % 3 == 0,
        tombstones=seed % 5 == 0,
        epoch_per_marker=seed % 4 == 0,
        open_at_end=seed % 7 != 0,
    )
    partition = held(history(seed, shape))
    given_rules = naive.Rules(
        now_ms=NOW_MS,
        horizon_ms=UNLIMITED if seed % 3 else NOW_MS - 1_800_000,
        segment_bytes=chance.choice([2000, 20_000, 1 << 30]),
        expiration_ms=chance.choice([0, 600_000, 604_800_000]),
    )
    twin = naive.compact(partition.segments, given_rules, partition.snapshots)
    assert_alike(decided(partition, policy_of(given_rules, partition)), twin, partition)


@MANY
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_segments_are_scanned_makes_no_difference(
    case: tuple[Held, naive.Rules], chance: random.Random
) -> None:
    partition, given_rules = case
    policy = policy_of(given_rules, partition)
    order = list(range(len(partition.segments)))
    chance.shuffle(order)
    assert decided(partition, policy, order) == decided(partition, policy)


def joined(partition: Held, cuts: list[int]) -> Held:
    """The same log with only the segment borders named; the active segment is as it was."""
    inside, active = partition.segments[:-1], partition.segments[-1]
    groups: list[list[naive.Segment]] = []
    for number, segment in enumerate(inside):
        if number in cuts or not groups:
            groups.append([])
        groups[-1].append(segment)
    merged = [
        naive.Segment(
            group[0].base_offset,
            b"".join(s.log for s in group),
            inside[0].mtime_ms,
            b"".join(s.txnindex for s in group),
        )
        for group in groups
    ]
    return replace(partition, segments=(*merged, active))


@at_most_skipped(0.25)
@MANY
@given(histories(open_at_end=False), st.data())
def test_segments_joined_at_their_borders_decide_as_one_big_segment_does(
    made: History, data: st.DataObject
) -> None:
    partition = held(made)
    skip_unless(len(partition.segments) > 2)
    expiry = data.draw(st.sampled_from([0, 600_000, 604_800_000]))
    horizon = data.draw(st.sampled_from([0, UNLIMITED]))
    given_rules = naive.Rules(now_ms=NOW_MS, horizon_ms=horizon, expiration_ms=expiry)
    cuts = data.draw(st.sets(st.integers(1, len(partition.segments) - 2)))
    totals = []
    for cut in (sorted(cuts), []):
        case = joined(partition, cut)
        ours = decided(case, policy_of(given_rules, case))
        assert isinstance(ours, PartitionDecision)
        skip_unless(ours.cleanable.limit == "active segment")
        tally: dict[str, tuple[int, int]] = {}
        for outcome in ours.outcomes:
            for counted in outcome.reasons:
                batches, size = tally.get(counted.reason, (0, 0))
                tally[counted.reason] = (batches + counted.batches, size + counted.bytes)
        aborted = sum(len(outcome.aborted_kept) for outcome in ours.outcomes)
        totals.append((tally, sum(outcome.kept_bytes for outcome in ours.outcomes), aborted))
    assert totals[0] == totals[1]


@MANY
@given(shapes(), st.integers(0, 2**32), st.sampled_from([0, 600_000, 604_800_000]))
def test_horizon_zero_drops_no_marker_without_a_stamp(shape: Shape, seed: int, expiry: int) -> None:
    partition = held(history(seed, replace(shape, stamps=False)))
    given_rules = naive.Rules(now_ms=NOW_MS, horizon_ms=0, expiration_ms=expiry)
    ours = decided(partition, policy_of(given_rules, partition))
    assert isinstance(ours, PartitionDecision)
    # an emptied marker restores nothing, so it has no horizon
    assert {tally.reason for o in ours.outcomes for tally in o.reasons} <= {
        "K01",
        "K02",
        "K03",
        "K05",
        "K07",
        "K08",
        "D01",
        "D02",
    }
