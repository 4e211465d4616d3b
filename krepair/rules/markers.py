"""Decisions of marker-only compaction for one partition: which transaction markers and empty batches may be removed.

A scan has given each batch a class (``kernels.classes``) by what its own segment shows. This module looks at all
segments in offset order, and corrects the classes for what crosses segments: transactions, producers that are active at
the log end, the delete horizon, and the last batch, which must be kept. Batches with records never change. Deciding
again on the result changes nothing more.

Source: ``LogCleaner.scala`` (2.2.1: cleanInto, shouldDiscardBatch, CleanedTransactionMetadata) with KAFKA-8351,
KAFKA-13727, KAFKA-14055 and KAFKA-17076; KIP-534 for delete horizons in batches; see ``docs/rules.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from msgspec import UNSET

from krepair.formats.arrays import Bools, Int64s
from krepair.formats.batch_v2 import HEADER_SIZE
from krepair.formats.filenames import segment_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels import classes as c
from krepair.kernels.scan_window import decision_delta
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.rules import cleanable_range as cleanable_ranges
from krepair.rules.coordinator_load import keeps_end_of, why_not_loaded
from krepair.rules.grouping import group
from krepair.rules.model import (
    GroupDecision,
    MarkerPolicy,
    NeedsRescan,
    PartitionDecision,
    SegmentFacts,
    Skipped,
)
from krepair.rules.outcome import HorizonChoice, ReasonTally, SourceSegment
from krepair.rules.producers import ProducerNeeds, needs_of, states_of, undecidable
from krepair.rules.reasons import REASONS, Reason, Verdict

RULES = "2.2.1+KAFKA-8351+KAFKA-13727+KAFKA-14055+KAFKA-17076+KIP-534"

REASON_OF_CLASS: dict[int, Reason] = {
    c.RECORDS: Reason.RECORDS,
    c.MARKER_DATA_REMAINS: Reason.MARKER_DATA_REMAINS,
    c.MARKER_STAMP_TO_COME: Reason.MARKER_STAMP,
    c.MARKER_STAMP_PAST: Reason.MARKER_STAMP_PAST,
    c.MARKER_EPOCH: Reason.MARKER_EPOCH,
    c.CONTROL_OTHER: Reason.CONTROL_OTHER,
    c.EMPTIED: Reason.EMPTIED,
    c.EMPTIED_PRODUCER: Reason.EMPTIED_PRODUCER,
    c.EMPTIED_MARKER: Reason.EMPTIED_MARKER,
    c.LAST_EMPTIED_NOW: Reason.LAST_EMPTIED_NOW,
    c.EMPTIED_LAST: Reason.EMPTIED_LAST,
    c.MARKER_HELD: Reason.MARKER_HELD,
}
_NOWHERE = -2  # no batch has this position; -1 already means that there is no batch
_MARKER_CLASSES = (
    c.MARKER_DATA_REMAINS,
    c.MARKER_UNSTAMPED,
    c.MARKER_STAMP_TO_COME,
    c.MARKER_STAMP_PAST,
    c.MARKER_EPOCH,
    c.CONTROL_OTHER,
    c.MARKER_HELD,
)


def reason_of(batch_class: int, *, drop_unstamped: bool, keeps_all: bool = False) -> Reason:
    """Return the reason for a class; for markers without a delete horizon in their batch, time decides.

    Args:
        batch_class: class of the batch, from ``kernels.classes``.
        drop_unstamped: True if markers without a delete horizon in their batch are old enough to be removed.
        keeps_all: True if transaction markers are kept whatever their age.
    """
    if keeps_all and batch_class in (c.MARKER_UNSTAMPED, c.MARKER_STAMP_PAST):
        return Reason.MARKER_HELD
    if batch_class == c.MARKER_UNSTAMPED:
        return Reason.MARKER if drop_unstamped else Reason.MARKER_HORIZON
    return REASON_OF_CLASS[batch_class]


def stays(batch_class: int, *, drop_unstamped: bool, keeps_all: bool = False) -> bool:
    """Return whether a batch of this class is kept in the new log, with or without records."""
    reason = reason_of(batch_class, drop_unstamped=drop_unstamped, keeps_all=keeps_all)
    return REASONS[reason].verdict is not Verdict.DROP


class _Times(NamedTuple):
    """Decision on the markers of one segment by their age; ``reason_of`` uses it."""

    drop_unstamped: bool
    keeps_all: bool

    @classmethod
    def of(cls, facts: SegmentFacts, horizon_ms: int, *, keeps_all: bool) -> _Times:
        return cls(not keeps_all and facts.mtime_ms <= horizon_ms, keeps_all)

    def reason(self, batch_class: int) -> Reason:
        return reason_of(batch_class, drop_unstamped=self.drop_unstamped, keeps_all=self.keeps_all)

    def stays(self, batch_class: int) -> bool:
        return stays(batch_class, drop_unstamped=self.drop_unstamped, keeps_all=self.keeps_all)


@dataclass
class _Corrected:
    """Batch classes of one segment, corrected by what other segments show."""

    facts: SegmentFacts
    tallies: Int64s
    decisions: int
    carried_open: tuple[int, ...]
    keep_positions: tuple[int, ...]
    protected: tuple[tuple[int, int], ...]
    entry_flags: np.ndarray[tuple[int], np.dtype[np.uint8]]
    last_position: int = -1

    def move(self, position: int, size: int, old_class: int, new_class: int) -> None:
        """Move the batch at ``position`` to another class."""
        if old_class == new_class:
            return
        self.tallies[old_class, : c.T_RECORDS] -= (1, size)
        self.tallies[new_class, : c.T_RECORDS] += (1, size)
        delta = int(decision_delta(position, old_class, new_class))
        self.decisions = (self.decisions + delta + 2**63) % 2**64 - 2**63


def decide(
    segments: Sequence[SegmentFacts], policy: MarkerPolicy, protected: Int64s | None = None
) -> PartitionDecision | NeedsRescan | Skipped:
    """Make all decisions for one partition.

    Args:
        segments: all segments of the partition, ascending; the last one is active.
        policy: inputs that do not come from the log.
        protected: int64[N, 2], pairs (producer id, epoch) that the scans knew; None if they knew none.

    Returns:
        The decisions; or the segments that must be scanned again, with the new input; or the reason for skipping the
        partition.
    """
    problem = cleanable_ranges.first_problem(segments)
    if problem is not None:
        return problem
    ids, scan, broker = states_of(segments, policy)
    problem = undecidable(scan, broker, policy)
    if problem is not None:
        return problem
    cleanable = cleanable_ranges.find_cleanable_range(segments, scan, broker, policy)
    inside, keeps_end = segments[: cleanable.segments], keeps_end_of(segments, cleanable, policy)
    needs = needs_of(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    rescan = _rescan(inside, needs, protected)
    if rescan is not None:
        return rescan
    choices = cleanable_ranges.horizon_choices(segments, cleanable, policy)
    horizon_ms = next(horizon for _, horizon, chosen in choices if chosen)
    last_data: dict[int, int] = {}
    while True:
        corrected = _correct(inside, ids, needs, last_data)
        problem = _index_disagreement(corrected)
        if problem is not None:
            return problem
        # _outcomes changes the classes of last batches, so the figures for each other horizon need a copy.
        before = _copy_all(corrected)
        outcomes, groups, more = _outcomes(corrected, horizon_ms, policy, keeps_end=keeps_end)
        if not more:
            break
        # Only the lowest one: its marker is kept too, perhaps in a later group, which then needs no other batch.
        lowest = min(more)
        last_data[lowest] = more[lowest]
    problem = why_not_loaded(segments, groups) if policy.ends_in_records else None
    if problem is not None:
        return problem
    log_end_offset = max(segment.summary.last_offset + 1 for segment in segments)
    return PartitionDecision(
        log_end_offset=log_end_offset,
        cleanable=cleanable,
        horizon_ms=horizon_ms,
        horizons=tuple(_horizon_result(before, policy, *choice, keeps_end=keeps_end) for choice in choices),
        outcomes=outcomes,
        groups=groups,
        active_producers=needs.active,
        kept_last=tuple(sorted(last_data.items())),
        notes=_notes(segments, policy),
    )


def _notes(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> tuple[str, ...]:
    notes = []
    if policy.snapshot_offset < 0:
        notes.append("no valid producer snapshot was found; producer state is from the scan alone")
    active = segments[-1].summary
    if not active.is_whole:
        notes.append(
            f"the active segment ends at position {active.valid_bytes} of {active.file_size}: {active.damage_text}; "
            "a broker truncates it there"
        )
    return tuple(notes)


def _rescan(
    inside: Sequence[SegmentFacts], needs: ProducerNeeds, protected: Int64s | None
) -> NeedsRescan | None:
    """Find the segments whose scans did not know yet that one of their markers must be kept; they are scanned again."""
    known = set() if protected is None else {(int(pid), int(epoch)) for pid, epoch in protected}
    new = [pair for pair in needs.markers.tolist() if (pair[0], pair[1]) not in known]
    if not new:
        return None
    wanted = np.array([pair[0] for pair in new], np.int64)
    epochs = np.array([pair[1] for pair in new], np.int64)
    bases = []
    for segment in inside:
        rows = segment.summary.rows
        at = np.minimum(np.searchsorted(wanted, rows[:, c.P_ID]), len(wanted) - 1)
        ours = wanted[at] == rows[:, c.P_ID]
        same = (rows[:, c.P_EPOCH] == epochs[at]) & (rows[:, c.P_FREE_MARKERS] > 0)
        if (ours & (same | (rows[:, c.P_EPOCHS_MIXED] == 1) | (rows[:, c.P_EPOCH] == -1))).any():
            bases.append(segment.base_offset)
    return NeedsRescan(needs.markers, tuple(bases)) if bases else None


def _correct(
    inside: Sequence[SegmentFacts], ids: Int64s, needs: ProducerNeeds, last_data: Mapping[int, int]
) -> list[_Corrected]:
    """Update the classes for transactions that cross segments, and for batches that active producers need.

    Args:
        inside: facts of the segments in the cleanable range.
        last_data: base offset -> position of an empty data batch that is kept because its group has no other batch. The
            marker of its transaction is then kept too, in whatever segment the marker is.
    """
    needed = np.full(len(ids), -1, np.int64)
    # By the scan and by the broker's snapshot, two different last batches of one producer may be needed.
    also_needed = np.full(len(ids), -1, np.int64)
    for producer_id, offset in needs.data.tolist():
        place = int(np.searchsorted(ids, producer_id))
        (needed if needed[place] < 0 else also_needed)[place] = offset
    carried = np.zeros(len(ids), bool)
    corrected = []
    for segment in inside:
        rows = segment.summary.rows
        at = np.searchsorted(ids, rows[:, c.P_ID])
        result = _Corrected(
            facts=segment,
            tallies=segment.summary.tallies.copy(),
            decisions=segment.summary.decisions,
            carried_open=tuple(rows[carried[at] & (rows[:, c.P_MARKERS] > 0), c.P_ID].tolist()),
            keep_positions=(),
            protected=_protected_here(rows, needs),
            entry_flags=segment.summary.entry_flags.copy(),
        )
        open_kept = rows[:, c.P_OPEN_KEPT] == 1
        _keep_leading(result, rows, carried[at])
        kept_last = rows[:, c.P_LAST_DATA_POSITION] == last_data.get(segment.base_offset, _NOWHERE)
        ours = _needs_last_data(rows, needed[at], also_needed[at]) | kept_last
        open_kept |= _keep_needed(result, rows, ours, carried[at])
        if kept_last.any():
            result.move(segment.summary.last_position, HEADER_SIZE, c.EMPTIED_PRODUCER, c.EMPTIED_LAST)
            result.last_position = segment.summary.last_position
        ends = rows[:, c.P_MARKERS] > 0
        carried[at] = np.where(ends, open_kept, carried[at] | open_kept)
        corrected.append(result)
    return corrected


def _protected_here(rows: Int64s, needs: ProducerNeeds) -> tuple[tuple[int, int], ...]:
    here = np.isin(needs.markers[:, 0], rows[:, c.P_ID])
    return tuple((int(pid), int(epoch)) for pid, epoch in needs.markers[here])


def _keep_leading(segment: _Corrected, rows: Int64s, carried: Bools) -> None:
    """Keep the marker of each transaction that keeps a batch in an earlier segment.

    Without the marker the next recovery would find that batch in a transaction that never ends (KAFKA-8351).
    """
    for row in rows[carried & (rows[:, c.P_MARKERS] > 0) & (rows[:, c.P_LEAD_KEPT] == 0)]:
        _keep_marker(
            segment, row, c.P_LEAD_POSITION, c.P_LEAD_CLASS, c.P_LEAD_SIZE, c.P_LEAD_ENTRY, c.P_LEAD_ABORT
        )


def _needs_last_data(rows: Int64s, needed: Int64s, also_needed: Int64s) -> Bools:
    """Mark the producers whose last data batch is empty but must be kept, because the producer is active."""
    last = rows[:, c.P_LAST_DATA_OFFSET]
    wanted: Bools = (
        (last >= 0) & (rows[:, c.P_LAST_DATA_EMPTIED] == 1) & ((last == needed) | (last == also_needed))
    )
    return wanted


def _keep_needed(segment: _Corrected, rows: Int64s, ours: Bools, carried: Bools) -> Bools:
    """Keep the empty last data batch of these producers, and the marker that ends its transaction.

    Returns:
        For each row, True if the transaction of that batch is still open at the end of the segment.
    """
    positions = []
    for row, was_carried in zip(rows[ours], carried[ours], strict=True):
        position = int(row[c.P_LAST_DATA_POSITION])
        positions.append(position)
        segment.move(position, HEADER_SIZE, c.EMPTIED, c.EMPTIED_PRODUCER)
        if row[c.P_NEXT_POSITION] < 0 or row[c.P_NEXT_KEPT] == 1:
            continue
        if was_carried and row[c.P_NEXT_POSITION] == row[c.P_LEAD_POSITION]:
            continue  # already kept, because of data in an earlier segment
        _keep_marker(
            segment, row, c.P_NEXT_POSITION, c.P_NEXT_CLASS, c.P_NEXT_SIZE, c.P_NEXT_ENTRY, c.P_NEXT_ABORT
        )
    segment.keep_positions = tuple(sorted(positions))
    still_open: Bools = ours & (rows[:, c.P_NEXT_POSITION] < 0) & (rows[:, c.P_OPEN_FIRST] >= 0)
    return still_open


def _keep_marker(
    segment: _Corrected, row: Int64s, position: int, batch_class: int, size: int, entry: int, abort: int
) -> None:
    segment.move(int(row[position]), int(row[size]), int(row[batch_class]), c.MARKER_DATA_REMAINS)
    # The entry of an aborted transaction is kept with its data: without the entry, consumers would read aborted
    # records.
    if row[entry] >= 0:
        segment.entry_flags[row[entry]] = c.ENTRY_DATA
    elif row[abort] == 1:
        segment.entry_flags = np.append(segment.entry_flags, np.uint8(c.ENTRY_OTHER_PRODUCER))


def _index_disagreement(corrected: Sequence[_Corrected]) -> Skipped | None:
    """Return why a ``.txnindex`` cannot be used: it lacks an aborted transaction whose data is in the log."""
    for segment in corrected:
        unknown = (
            int((segment.entry_flags == c.ENTRY_OTHER_PRODUCER).sum())
            + segment.facts.summary.aborts_unindexed
        )
        if unknown:
            text = (
                f"{unknown} aborted transaction(s) with batches in the log are missing in it, or have another producer "
                "id there"
            )
            return untrue_entry(segment.facts.base_offset, text)
    return None


def untrue_entry(base_offset: int, text: str) -> Skipped:
    """Build the reason for skipping a partition whose ``.txnindex`` contradicts the log."""
    return Skipped(
        "txnindex-disagrees",
        f"{segment_name(base_offset, '.txnindex')}: {text}; read_committed consumers would see aborted records, or "
        "miss committed ones",
        Next.of("plan", LOG_DIR, "--fix", "index=regenerate", out=PLAN),
    )


def _kept_bytes(tallies: Int64s, times: _Times) -> int:
    total = 0
    for batch_class in range(c.CLASS_COUNT):
        if times.stays(batch_class):
            size = int(tallies[batch_class, c.T_BYTES])
            total += (
                HEADER_SIZE * int(tallies[batch_class, c.T_BATCHES])
                if batch_class == c.LAST_EMPTIED_NOW
                else size
            )
    return total


def _copy_all(corrected: Sequence[_Corrected]) -> list[_Corrected]:
    return [replace(segment, tallies=segment.tallies.copy()) for segment in corrected]


def _horizon_result(
    corrected: Sequence[_Corrected],
    policy: MarkerPolicy,
    name: str,
    horizon_ms: int,
    chosen: bool,
    *,
    keeps_end: bool,
) -> HorizonChoice:
    keeps_all = name == cleanable_ranges.NONE
    # Which batch is kept as the last of its group depends on the removed batches, so each choice has its own outcomes.
    outcomes, _, more = _outcomes(
        _copy_all(corrected), horizon_ms, replace(policy, keeps_all=keeps_all), keeps_end=keeps_end
    )
    dropped = 0
    for segment in corrected:
        times = _Times.of(segment.facts, horizon_ms, keeps_all=keeps_all)
        for batch_class in (c.MARKER_UNSTAMPED, c.MARKER_STAMP_PAST):
            dropped += 0 if times.stays(batch_class) else int(segment.tallies[batch_class, c.T_BATCHES])
    return HorizonChoice(
        name=name,
        horizon_ms=min(horizon_ms, INT64_MAX),
        log_bytes_after=sum(outcome.kept_bytes for outcome in outcomes) + HEADER_SIZE * len(more),
        markers_dropped=dropped,
        chosen=chosen,
    )


def _outcomes(
    corrected: Sequence[_Corrected], horizon_ms: int, policy: MarkerPolicy, *, keeps_end: bool
) -> tuple[tuple[SourceSegment, ...], tuple[GroupDecision, ...], dict[int, int]]:
    """Compute the outcome of each segment, and the groups of segments that become one.

    The last batch of the cleanable range is kept, and one batch of each group that would otherwise have none. But if
    each new segment must end with records, such a group joins its neighbour. If the kept batch is an empty data batch,
    all decisions must be made again, because the marker of its transaction is then kept too.

    Returns:
        (outcomes, groups, position of each such empty data batch by base offset).
    """
    times = {
        segment.facts.base_offset: _Times.of(segment.facts, horizon_ms, keeps_all=policy.keeps_all)
        for segment in corrected
    }
    filled = [segment for segment in corrected if segment.facts.summary.batches]
    if filled and keeps_end:
        _keep_last(filled[-1], times[filled[-1].facts.base_offset])
    outcomes = [_outcome(segment, times[segment.facts.base_offset], policy) for segment in corrected]
    last_offsets = {segment.facts.base_offset: segment.facts.summary.last_offset for segment in corrected}
    groups = group(outcomes, last_offsets, policy)
    if policy.ends_in_records:
        return tuple(outcomes), tuple(groups), {}
    by_base = {segment.facts.base_offset: segment for segment in corrected}
    last_data: dict[int, int] = {}
    for each in groups:
        with_batches = [source for source in each.sources if source.log_bytes]
        if each.kept_bytes or not with_batches:
            continue
        last = by_base[with_batches[-1].base_offset]
        if last.facts.summary.last_class == c.EMPTIED and _ends_with_producer_data(last):
            last_data[last.facts.base_offset] = last.facts.summary.last_position
        else:
            _keep_last(last, times[last.facts.base_offset])
    outcomes = [_outcome(segment, times[segment.facts.base_offset], policy) for segment in corrected]
    return tuple(outcomes), tuple(_groups_with_outcomes(groups, outcomes)), last_data


def _ends_with_producer_data(segment: _Corrected) -> bool:
    rows = segment.facts.summary.rows
    return bool((rows[:, c.P_LAST_DATA_POSITION] == segment.facts.summary.last_position).any())


def _groups_with_outcomes(
    groups: Sequence[GroupDecision], outcomes: Sequence[SourceSegment]
) -> list[GroupDecision]:
    by_base = {outcome.base_offset: outcome for outcome in outcomes}
    return [
        replace(group, sources=tuple(by_base[source.base_offset] for source in group.sources))
        for group in groups
    ]


def _keep_last(segment: _Corrected, times: _Times) -> None:
    summary = segment.facts.summary
    batch_class = _class_of_last(segment)
    if times.stays(batch_class):
        return
    now = c.EMPTIED_LAST if batch_class in (c.EMPTIED, c.EMPTIED_MARKER) else c.LAST_EMPTIED_NOW
    segment.move(summary.last_position, summary.last_size, batch_class, now)
    segment.last_position = summary.last_position


def _class_of_last(segment: _Corrected) -> int:
    """Return the class of the segment's last batch after the corrections."""
    summary = segment.facts.summary
    if summary.last_position in segment.keep_positions:
        return c.EMPTIED_PRODUCER
    if summary.last_class not in (c.MARKER_UNSTAMPED, c.MARKER_STAMP_PAST, c.MARKER_STAMP_TO_COME):
        return summary.last_class
    rows = summary.rows
    leads = rows[rows[:, c.P_LEAD_POSITION] == summary.last_position]
    if len(leads) and int(leads[0, c.P_ID]) in segment.carried_open:
        return c.MARKER_DATA_REMAINS
    follows = rows[rows[:, c.P_NEXT_POSITION] == summary.last_position]
    if len(follows) and int(follows[0, c.P_LAST_DATA_POSITION]) in segment.keep_positions:
        return c.MARKER_DATA_REMAINS
    return summary.last_class


def _outcome(segment: _Corrected, times: _Times, policy: MarkerPolicy) -> SourceSegment:
    summary = segment.facts.summary
    kept_batches = kept_markers = 0
    tallies: dict[Reason, tuple[int, int]] = {}
    for batch_class in range(c.CLASS_COUNT):
        batches = int(segment.tallies[batch_class, c.T_BATCHES])
        if batches == 0:
            continue
        reason = times.reason(batch_class)
        before = tallies.get(reason, (0, 0))
        tallies[reason] = (before[0] + batches, before[1] + int(segment.tallies[batch_class, c.T_BYTES]))
        if times.stays(batch_class):
            kept_batches += batches
            kept_markers += batches if batch_class in _MARKER_CLASSES else 0
    return SourceSegment(
        base_offset=segment.facts.base_offset,
        log_bytes=summary.file_size,
        batches=summary.batches,
        kept_bytes=_kept_bytes(segment.tallies, times),
        kept_batches=kept_batches,
        kept_records=int(segment.tallies[c.RECORDS, c.T_RECORDS]),
        kept_markers=kept_markers,
        reasons=tuple(
            ReasonTally(reason=reason.value, batches=tallies[reason][0], bytes=tallies[reason][1])
            for reason in Reason
            if reason in tallies
        ),
        drop_unstamped=times.drop_unstamped,
        carried_open=segment.carried_open,
        keep_positions=segment.keep_positions,
        protected=segment.protected,
        last_position=segment.last_position,
        decisions=f"{segment.decisions & (2**64 - 1):016x}",
        aborted_kept=tuple(np.flatnonzero(segment.entry_flags == c.ENTRY_DATA).tolist()),
        keeps_all=times.keeps_all,
        held_markers=held_between(policy, segment.facts.base_offset, summary.last_offset + 1) or UNSET,
    )


def held_between(policy: MarkerPolicy, first: int, after: int) -> tuple[int, ...]:
    """Return the offsets, from ``first`` to before ``after``, of the markers that are kept for other replicas."""
    start, end = np.searchsorted(policy.held_markers, [first, after])
    return tuple(policy.held_markers[start:end].tolist())


@dataclass(frozen=True)
class StageInputs:
    """Input for the rewrite of one segment, computed again from new scans."""

    carried_open: tuple[int, ...]
    keep_positions: tuple[int, ...]
    protected: tuple[tuple[int, int], ...]
    drop_unstamped: bool
    keeps_all: bool = False


def stage_inputs(
    segments: Sequence[SegmentFacts], policy: MarkerPolicy, last_data: Mapping[int, int]
) -> dict[int, StageInputs]:
    """Compute again what the rewrite of each segment needs from the whole partition, by base offset.

    ``apply`` compares the result with the plan before it commits anything: it covers producers and open transactions,
    which the digests of batch classes do not.

    Args:
        segments: all segments of the partition, ascending, from the scans of apply.
        policy: inputs that do not come from the log.
        last_data: base offset -> position of the empty data batches that the plan keeps as the last of a group.
    """
    ids, scan, broker = states_of(segments, policy)
    cleanable = cleanable_ranges.find_cleanable_range(segments, scan, broker, policy)
    needs = needs_of(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    horizon_ms = cleanable_ranges.chosen_horizon(segments, cleanable, policy)
    return {
        corrected.facts.base_offset: StageInputs(
            corrected.carried_open,
            corrected.keep_positions,
            corrected.protected,
            *_Times.of(corrected.facts, horizon_ms, keeps_all=policy.keeps_all),
        )
        for corrected in _correct(segments[: cleanable.segments], ids, needs, last_data)
    }


def why_undecided(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> Skipped | None:
    """Return why the partition, in its present state, must be skipped; None if it need not be skipped."""
    _, scan, broker = states_of(segments, policy)
    return undecidable(scan, broker, policy)


def limit_now(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> str:
    """Describe in one line what limits the cleanable range in the partition's present state."""
    _, scan, broker = states_of(segments, policy)
    return cleanable_ranges.find_cleanable_range(segments, scan, broker, policy).limit_text
