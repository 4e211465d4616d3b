"""The driver's part of key compaction: it sends the tasks of partitions to an engine, and decides by their results.

There are three waves of tasks: find the keys of each segment, join the keys of each partition, and compute each segment
as compaction leaves it. ``Prepared`` is the result of the first two waves. A plan runs the third wave to learn exact
sizes; ``apply`` runs all three again to write the new logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType
from typing import Final

import numpy as np
from msgspec.structs import replace

from krepair.engine.engine import Engine
from krepair.engine.items import Failed, FailureKind, LogsItem, Place
from krepair.formats import txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.formats.offset_set import MOST_BYTES, as_text
from krepair.kernels import classes as c
from krepair.kernels.scan import SegmentSummary
from krepair.logdir.reading import why
from krepair.next_command import COMPARE_REPLICAS, LOG_DIR, NOTHING, PLAN, Next
from krepair.plan.model import CompactedSource, SourceSegment
from krepair.rewrite.compaction.headers import NO_NOTES, BatchNotes, note_bytes_of
from krepair.rewrite.compaction.items import (
    CheckItem,
    CompactItem,
    CompactResult,
    CompactStageItem,
    JoinItem,
    KeysItem,
    KeysResult,
    OffsetFile,
    Result,
    ranges_of,
    touching,
)
from krepair.rewrite.compaction.rows import BUCKETS, ROW_BYTES, RowFile, cut
from krepair.rules.compaction import (
    CompactionRange,
    RecordTally,
    compacted_facts,
    compaction_range_of,
    tally_of,
    tombstone_horizons,
    too_large,
)
from krepair.rules.markers import decide
from krepair.rules.model import MarkerPolicy, NeedsRescan, PartitionDecision, SegmentFacts, Skipped
from krepair.rules.outcome import TombstoneHorizon

_INLINE_BYTES: Final = 64 << 20
"""Bytes of rows that all results of a run together may hold in memory; more are written to the scratch folder."""
_MIN_ROWS_INLINE: Final = 1 << 10
_OFFSETS_INLINE: Final = _INLINE_BYTES // 8 // 64
"""Offsets of 8 bytes that one of 64 joins may hold in memory."""
_JOIN_ROWS: Final = 1 << 21
"""Approximate number of rows that one task joins."""
_MAX_ENCODED_BYTES: Final = 6 << 20
"""Largest size in bytes of the encoded offsets in a plan, over all partitions; base64 adds a third."""
_NO_RANGES: Final = np.empty((0, 3), np.int64)


@dataclass(frozen=True)
class CompactionInput:
    """Partition that is to be compacted.

    Attributes:
        segments: all segments of the partition, scanned with checksums, ascending; the last one is active.
        policy: inputs that do not come from the log.
        secret: 16 bytes, key of the hash, see ``rules.compaction.secret_of``.
        keys: keys of segments that were found with this secret while the segments were scanned, by base offset.
        elsewhere: rows of the records of other replicas, hashed with this secret, with the lowest offset of each key,
            see ``kernels.compact_keys.LARGEST``.
    """

    place: Place
    segments: tuple[SegmentFacts, ...]
    policy: MarkerPolicy
    secret: bytes
    keys: Mapping[int, KeysResult] = field(default_factory=dict)
    elsewhere: tuple[RowFile, ...] = ()


@dataclass
class PreparedPartition:
    """Result of the first two waves for one partition, and input of the third.

    Attributes:
        compaction_range: offsets and segments that may be compacted, with the rules for all of them.
        aborted: int64[N, 3], aborted transactions.
        latest_offsets: offsets of the last record of each key.
        protected_tombstones: offsets in ``latest_offsets`` of keys that have an older kept record, here or in another
            replica. A tombstone at such an offset must be kept.
        keys_by_segment: keys of each segment, by base offset.
        keys: number of distinct keys.
        keyless: number of records without a key, by base offset.
        planned: offsets of the last record of each key from a plan, by base offset; no other offsets are known then.
        batch_notes: notes on the batches, by base offset.
        problem: reason for skipping the partition, None if there is none.
        scratch: path of the scratch folder, empty if there is none.
    """

    input: CompactionInput
    compaction_range: CompactionRange | None = None
    aborted: Int64s = field(default_factory=lambda: _NO_RANGES)
    latest_offsets: tuple[OffsetFile, ...] = ()
    protected_tombstones: tuple[OffsetFile, ...] = ()
    keys_by_segment: dict[int, KeysResult] = field(default_factory=dict)
    keys: int = 0
    keyless: dict[int, int] = field(default_factory=dict)
    planned: dict[int, OffsetFile] = field(default_factory=dict)
    batch_notes: dict[int, BatchNotes] = field(default_factory=dict)
    problem: Skipped | None = None
    scratch: str = ""

    @property
    def cleanable_segments(self) -> tuple[SegmentFacts, ...]:
        """Segments in the compaction range."""
        return (
            self.input.segments[: self.compaction_range.cleanable.segments]
            if self.compaction_range is not None
            else ()
        )

    @property
    def decided_by_keys_alone(self) -> bool:
        """True if only keys decide which records are kept: no transactions, no other replicas."""
        return (
            self.compaction_range is not None
            and not self.compaction_range.transactions
            and not self.input.elsewhere
            and not len(self.input.policy.held_markers)
            and not any(file.path or file.data for file in self.protected_tombstones)
        )


@dataclass(frozen=True)
class Compaction:
    """Decisions for one partition.

    Attributes:
        decision: decision by the rules of markers over the compacted segments: groups, sizes, reasons. The
            ``log_bytes`` of its outcomes are sizes of compacted streams.
        sources: entry of each source in a plan, by base offset.
        tallies: counts of the records' fates, by base offset.
        keys: number of distinct keys in the compaction range.
        horizons: effect of each horizon on tombstones.
        changed: base offsets of the first source of each group that changes.
    """

    decision: PartitionDecision
    sources: dict[int, CompactedSource]
    tallies: dict[int, RecordTally]
    keys: int
    horizons: tuple[TombstoneHorizon, ...]
    changed: tuple[int, ...]

    @property
    def total(self) -> RecordTally:
        """Counts of the fates of all records in the compaction range."""
        return sum(self.tallies.values(), RecordTally())


# -- the first two waves ----------------------------------------------------------------------------
def prepare(engine: Engine, partitions: Sequence[CompactionInput], scratch: str) -> list[PreparedPartition]:
    """Determine the compaction range, the aborted transactions and the last offset of each key of every partition.

    Args:
        partitions: partitions whose segments were scanned.
        scratch: path of a scratch folder on the hosts of the tasks, empty if there is none.
    """
    prepared = [PreparedPartition(partition) for partition in partitions]
    for partition in prepared:
        compaction_range = compaction_range_of(partition.input.segments, partition.input.policy)
        if isinstance(compaction_range, Skipped):
            partition.problem = compaction_range
        else:
            partition.compaction_range = compaction_range
    _find_aborted(
        engine,
        [
            partition
            for partition in prepared
            if partition.compaction_range
            and partition.compaction_range.transactions
            and partition.cleanable_segments
        ],
    )
    _find_keys(engine, [partition for partition in prepared if partition.problem is None], scratch)
    for partition in prepared:
        partition.scratch = scratch
    _join(engine, [partition for partition in prepared if partition.problem is None])
    _protect_tombstones_at_end(
        engine,
        [partition for partition in prepared if partition.problem is None and partition.cleanable_segments],
    )
    return prepared


def _find_aborted(engine: Engine, prepared: Sequence[PreparedPartition]) -> None:
    """Find the aborted transactions by replaying the logs, because a ``.txnindex`` has no checksum to trust."""
    from krepair.rewrite.compaction.tasks import find_aborted_for_certain

    items = [
        LogsItem(
            place=partition.input.place,
            segments=tuple(
                (facts.base_offset, facts.summary.valid_bytes) for facts in partition.input.segments
            ),
        )
        for partition in prepared
    ]
    for index, result in engine.map(find_aborted_for_certain, items):
        if isinstance(result, Failed):
            prepared[index].problem = _failed(result.kind, result.why)
        else:
            prepared[index].aborted = ranges_of(result)


def rows_inline_of(segments: int) -> int:
    """Return how many rows each of ``segments`` segments may return without a scratch folder."""
    return max(_INLINE_BYTES // ROW_BYTES // max(segments, 1), _MIN_ROWS_INLINE)


def _find_keys(engine: Engine, prepared: Sequence[PreparedPartition], scratch: str) -> None:
    from krepair.rewrite.compaction.tasks import find_keys

    every = [(partition, facts) for partition in prepared for facts in partition.cleanable_segments]
    rows_inline = rows_inline_of(len(every))

    def take(partition: PreparedPartition, base_offset: int, result: KeysResult) -> None:
        partition.problem = partition.problem or _problem(result, log_name(base_offset), partition)
        partition.keyless[base_offset] = result.keyless
        partition.batch_notes[base_offset] = result.batch_notes
        partition.keys_by_segment[base_offset] = result

    work = []
    for partition, facts in every:
        known = partition.input.keys.get(facts.base_offset, KeysResult())
        # The scan had no disk space for the keys of all segments. The cleanable segments alone may fit: read them
        # again.
        if known.searched and known.failure != "disk":
            take(partition, facts.base_offset, known)
        else:
            work.append((partition, facts))
    items = [
        KeysItem(
            place=partition.input.place,
            base_offset=facts.base_offset,
            size=facts.summary.file_size,
            aborted=touching(partition.aborted, facts.base_offset, facts.summary.last_offset + 1),
            secret=partition.input.secret,
            rows_inline=rows_inline,
            scratch=scratch,
            note_bytes=note_bytes_of(len(every)),
        )
        for partition, facts in work
    ]
    # In the order of the items: the reason for skipping a partition must not depend on which worker was faster.
    for index, result in sorted(dict(engine.map(find_keys, items)).items()):
        take(work[index][0], work[index][1].base_offset, result)


def _join(engine: Engine, work: Sequence[PreparedPartition]) -> None:
    """Join the keys of partitions."""
    from krepair.rewrite.compaction.tasks import join_keys

    items: list[JoinItem] = []
    owners: list[PreparedPartition] = []
    for partition in work:
        partition.protected_tombstones = ()
        for item in _join_items(partition):
            items.append(item)
            owners.append(partition)
    parts = dict(engine.map(join_keys, items))
    # In the order of the items, not of the results: a plan must not depend on which worker was faster.
    for index in sorted(parts):
        partition = owners[index]
        partition.problem = partition.problem or _problem(parts[index], "", partition)
        partition.keys += parts[index].keys
        partition.latest_offsets += (parts[index].offsets,)
        partition.protected_tombstones += (parts[index].protected_tombstones,)


def _protect_tombstones_at_end(engine: Engine, work: Sequence[PreparedPartition]) -> None:
    """Keep the tombstones of the last batch with records in the range, if a log must end with records."""
    from krepair.rewrite.compaction.tasks import find_last_data_batch, offsets_between

    work = [partition for partition in work if partition.input.policy.ends_in_records]
    items = [
        LogsItem(
            place=partition.input.place,
            segments=tuple(
                (facts.base_offset, facts.summary.valid_bytes) for facts in partition.cleanable_segments
            ),
        )
        for partition in work
    ]
    for index, bounds in engine.map(find_last_data_batch, items):
        partition = work[index]
        if isinstance(bounds, Failed):
            partition.problem = _failed(bounds.kind, bounds.why)
            continue
        try:
            last = offsets_between(partition.latest_offsets, *bounds)
        except OSError as error:
            partition.problem = _failed("disk", f"{error.filename}: {why(error)}")
            continue
        partition.protected_tombstones += (OffsetFile(data=last.tobytes()),)


def _join_items(partition: PreparedPartition) -> Iterator[JoinItem]:
    elsewhere = partition.input.elsewhere
    mine, others = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    files: list[RowFile] = []
    for result in partition.keys_by_segment.values():
        mine += np.frombuffer(result.buckets, np.int64)
        files += result.files
    for file in elsewhere:
        others += np.diff(file.starts())
    counts = np.where(mine > 0, mine + others, 0)  # a key without rows here has no tombstone here
    for first, after in cut(counts, _JOIN_ROWS):
        rows = int(mine[first:after].sum())
        if rows:
            yield JoinItem(
                place=partition.input.place,
                files=tuple(file.part(first, after) for file in files),
                first_bucket=first,
                after_bucket=after,
                rows=rows,
                offsets_inline=_OFFSETS_INLINE,
                scratch=partition.scratch,
                elsewhere=tuple(file.part(first, after) for file in elsewhere),
                elsewhere_rows=int(others[first:after].sum()),
            )


def _problem(result: Result, name: str, partition: PreparedPartition) -> Skipped | None:
    if result.problem:
        where = f"{name}, position {result.position}" if name else partition.input.place.folder
        cleaner_note = "" if result.beyond_limit else "Kafka's cleaner would stop here too, so "
        return Skipped(
            "compacted-content",
            f"{where}: {result.problem}; {cleaner_note}the whole partition is skipped",
            Next.of("check", LOG_DIR, "--deep"),
            damaged=True,
        )
    return _failed(result.failure, result.why) if result.failure else None


def _failed(kind: FailureKind, why: str) -> Skipped:
    # --fix index must not be advised here: an index rebuilt from this log would mark all those records as aborted.
    command = COMPARE_REPLICAS if kind == "txnindex-disagrees" else NOTHING
    return Skipped(kind, why, command, damaged=kind == "unreadable")


# -- the third wave ---------------------------------------------------------------------------------
def compact_item(partition: PreparedPartition, number: int, max_encoded_bytes: int = 0) -> CompactItem:
    """Build the task that compacts segment ``number`` of the cleanable range and returns its new content's facts."""
    assert partition.compaction_range is not None
    facts, policy = partition.input.segments[number], partition.input.policy
    next_base = partition.input.segments[number + 1].base_offset
    return CompactItem(
        place=partition.input.place,
        base_offset=facts.base_offset,
        next_base=next_base,
        size=facts.summary.file_size,
        now_ms=policy.now_ms,
        high_watermark=policy.high_watermark,
        protected=partition.compaction_range.protected,
        drop_unstamped=partition.compaction_range.drop_unstamped[number],
        aborted=touching(partition.aborted, facts.base_offset, facts.summary.last_offset + 1),
        latest_offsets=_latest_offsets(partition, facts.base_offset, next_base),
        # If it is not known, assume that the segment has records without a key: their offsets are then kept too.
        keyless=partition.keyless.get(facts.base_offset, 1) > 0,
        batch_notes=partition.batch_notes.get(facts.base_offset, NO_NOTES),
        keeps_all=policy.keeps_all,
        protected_tombstones=tuple(
            _between(file, facts.base_offset, next_base) for file in partition.protected_tombstones
        ),
        held_markers=_held_markers(policy, facts.base_offset, next_base),
        max_encoded_bytes=max_encoded_bytes,
    )


def _latest_offsets(partition: PreparedPartition, first: int, after: int) -> tuple[OffsetFile, ...]:
    if first in partition.planned:
        return (partition.planned[first],)
    return tuple(_between(file, first, after) for file in partition.latest_offsets)


def _held_markers(policy: MarkerPolicy, first: int, after: int) -> bytes:
    start, end = np.searchsorted(policy.held_markers, [first, after])
    return policy.held_markers[start:end].tobytes()


def _between(file: OffsetFile, first: int, after: int) -> OffsetFile:
    if file.path:
        return file
    offsets = np.frombuffer(file.data, np.int64)
    start, end = np.searchsorted(offsets, [first, after])
    return OffsetFile(data=offsets[start:end].tobytes())


@dataclass
class _PendingDecision:
    """Partition on which a decision is being made while its segments are read."""

    prepared: PreparedPartition
    results: dict[int, CompactResult] = field(default_factory=dict)
    encoded_bytes: int = 0
    outcome: Skipped | None = None


def decide_compaction(engine: Engine, prepared: Sequence[PreparedPartition]) -> list[Compaction | Skipped]:
    """Run the third wave, and decide on the prepared partitions: exact sizes, groups, counts.

    Args:
        prepared: result of ``prepare`` for each partition.

    Returns:
        The decisions for each partition, or the reason for skipping it.
    """
    work = [_PendingDecision(partition, outcome=partition.problem) for partition in prepared]
    _compact_segments(engine, work)
    return [deciding.outcome or _decide(deciding) for deciding in work]


def _compact_segments(engine: Engine, work: Sequence[_PendingDecision]) -> None:
    from krepair.rewrite.compaction.tasks import compact

    todo = [
        (deciding, number)
        for deciding in work
        if deciding.outcome is None
        for number in range(len(deciding.prepared.cleanable_segments))
    ]
    max_encoded_bytes = _max_encoded_bytes(len(work))
    items = [
        compact_item(
            deciding.prepared,
            number,
            max_encoded_bytes if deciding.prepared.decided_by_keys_alone else 0,
        )
        for deciding, number in todo
    ]
    problems: dict[int, Skipped | None] = {}
    for index, result in engine.map(compact, items):
        deciding, _ = todo[index]
        base_offset = items[index].base_offset
        problems[index] = _problem(result, log_name(base_offset), deciding.prepared)
        deciding.encoded_bytes += len(result.encoded_offsets or b"")
        deciding.results[base_offset] = (
            replace(result, encoded_offsets=None) if deciding.encoded_bytes > max_encoded_bytes else result
        )
    # In the order of the items: the reason for skipping a partition must not depend on which worker was faster.
    for index, problem in sorted(problems.items()):
        deciding, _ = todo[index]
        deciding.outcome = deciding.outcome or problem


def _max_encoded_bytes(partitions: int) -> int:
    """Return the largest size in bytes of one partition's encoded offsets in a plan with ``partitions`` partitions."""
    return min(MOST_BYTES, _MAX_ENCODED_BYTES // max(partitions, 1))


def _decide(deciding: _PendingDecision) -> Compaction | Skipped:
    partition = deciding.prepared
    assert partition.compaction_range is not None
    segments = tuple(
        _facts_as_compacted(facts, deciding.results[facts.base_offset])
        if facts.base_offset in deciding.results
        else facts
        for facts in partition.input.segments
    )
    policy = partition.input.policy
    protected = np.array(partition.compaction_range.protected, np.int64).reshape(-1, 2)
    decision = decide(segments, policy, protected)
    if isinstance(decision, NeedsRescan) or (
        isinstance(decision, PartitionDecision)
        and decision.cleanable.segments != len(partition.cleanable_segments)
    ):
        decision = Skipped(
            "changed", "the partition changed while it was read", Next.of("plan", LOG_DIR, out=PLAN)
        )
    if isinstance(decision, Skipped):
        return decision
    return too_large(decision) or _compaction(deciding, decision)


def _facts_as_compacted(facts: SegmentFacts, result: CompactResult) -> SegmentFacts:
    entries = txn_index.view(result.entries)
    columns = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
    table = np.column_stack([entries[name].astype(np.int64) for name in columns])
    return compacted_facts(facts, _summary(result), table)


def _summary(result: CompactResult) -> SegmentSummary:
    assert result.summary is not None, "a segment that could not be read is not decided on"
    return result.summary


def _compaction(deciding: _PendingDecision, decision: PartitionDecision) -> Compaction:
    partition = deciding.prepared
    assert partition.compaction_range is not None
    tallies: dict[int, RecordTally] = {}
    sources: dict[int, CompactedSource] = {}
    for facts in partition.cleanable_segments:
        base, result = facts.base_offset, deciding.results[facts.base_offset]
        tallies[base] = tally_of(np.frombuffer(result.tallies, np.int64))
        sources[base] = CompactedSource(
            file_bytes=facts.summary.file_size,
            records=tallies[base].records,
            kept=tallies[base].kept,
            headers=_summary(result).headers,
            superseded=tallies[base].superseded,
            tombstones=tallies[base].tombstones_dropped,
            aborted=tallies[base].aborted,
            keyless=tallies[base].keyless,
            emptied=tallies[base].emptied,
        )
    changed = tuple(
        group.sources[0].base_offset
        for group in decision.groups
        if group.changes or any(tallies[source.base_offset].changes for source in group.sources)
    )
    return Compaction(
        decision=decision,
        sources=_with_encoded_offsets(deciding, sources),
        tallies=tallies,
        keys=partition.keys,
        horizons=tombstone_horizons(
            partition.input.segments,
            list(tallies.values()),
            partition.compaction_range.cleanable,
            partition.input.policy,
        ),
        changed=changed,
    )


def _with_encoded_offsets(
    deciding: _PendingDecision, sources: dict[int, CompactedSource]
) -> dict[int, CompactedSource]:
    """Add the encoded offsets of the kept records, if they fit for all segments and only keys decide what is kept."""
    packed = {base: deciding.results[base].encoded_offsets for base in sources}
    if None in packed.values() or not deciding.prepared.decided_by_keys_alone:
        return sources
    return {base: replace(source, stays=as_text(packed[base] or b"")) for base, source in sources.items()}


# -- applying ---------------------------------------------------------------------------------------
def compact_items(
    partition: PreparedPartition, compacted: Mapping[int, CompactedSource]
) -> dict[int, CompactItem]:
    """Build the task that compacts each source with an entry in the plan, by base offset.

    Args:
        each: partition prepared again from the present files.
        compacted: entry of each source in the plan, by base offset.
    """
    return {
        facts.base_offset: replace(compact_item(partition, number), source_headers=facts.summary.headers)
        for number, facts in enumerate(partition.cleanable_segments)
        if facts.base_offset in compacted
    }


def stage_items(
    compact_items: Mapping[int, CompactItem],
    sources: Sequence[SourceSegment],
    compacted: Mapping[int, CompactedSource],
    target: str,
    checks: Mapping[int, CheckItem] = MappingProxyType({}),
) -> list[CompactStageItem]:
    """Build the items that write one group.

    Args:
        compact_items: item that reads each source, by base offset.
        sources: sources of the group, from the plan.
        compacted: entry of key compaction in the plan, by base offset.
        target: absolute path of the new ``.log``, which exists.
        checks: item that proves each source while it is written, by base offset; without it the source is read again
            for the proof.
    """
    positions = accumulate((source.kept_bytes for source in sources), initial=0)
    return [
        CompactStageItem(
            compact=compact_items[source.base_offset],
            source=source,
            target=target,
            out_position=position,
            headers=compacted[source.base_offset].headers,
            check=checks.get(source.base_offset),
        )
        # accumulate yields one position more: the end of the new log
        for source, position in zip(sources, positions, strict=False)
    ]


def scratch_bytes_at_most(partitions: Sequence[CompactionInput]) -> int:
    """Return an upper bound of the scratch folder's size in bytes, known before anything is read.

    The folder holds the hash and offset of each record, and each offset once more.

    Repeated keys within one segment are stored once, so this is usually far more than needed.
    """
    records = 0
    for partition in partitions:
        for facts in partition.segments:
            records += int(facts.summary.tallies[c.RECORDS, c.T_RECORDS])
    return records * (ROW_BYTES + 8)
