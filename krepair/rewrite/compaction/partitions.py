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
from krepair.kernels.scan import SegmentSummary
from krepair.logdir.reading import why
from krepair.next_command import COMPARE_REPLICAS, LOG_DIR, NOTHING, PLAN, Next
from krepair.plan.model import CompactedSource, SourceSegment
from krepair.rewrite.compaction.content import TOO_LARGE
from krepair.rewrite.compaction.headers import NO_NOTES, BatchNotes, note_bytes_of
from krepair.rewrite.compaction.items import (
    CheckItem,
    CompactItem,
    CompactResult,
    CompactStageItem,
    JoinItem,
    JoinResult,
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
_ROWS_INLINE_AT_LEAST: Final = 1 << 10
_JOIN_ROWS: Final = 1 << 21
"""Approximate number of rows that one task joins."""
_MOST_PACKED: Final = 6 << 20
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
class Prepared:
    """Result of the first two waves for one partition, and input of the third.

    Attributes:
        compaction_range: compaction range, and the rules that hold for all its segments.
        aborted: int64[N, 3], aborted transactions.
        stays: offsets of the last record of each key.
        held: offsets in ``stays`` of keys that have an older kept record, here or in another replica. A tombstone at
            such an offset must be kept.
        found: keys of each segment, by base offset.
        keys: number of distinct keys.
        keyless: number of records without a key, by base offset.
        planned: offsets of the last record of each key from a plan, by base offset; no other offsets are known then.
        noted: notes on the batches, by base offset.
        problem: reason for skipping the partition, None if there is none.
        scratch: path of the scratch folder, empty if there is none.
    """

    partition: CompactionInput
    compaction_range: CompactionRange | None = None
    aborted: Int64s = field(default_factory=lambda: _NO_RANGES)
    stays: tuple[OffsetFile, ...] = ()
    held: tuple[OffsetFile, ...] = ()
    found: dict[int, KeysResult] = field(default_factory=dict)
    keys: int = 0
    keyless: dict[int, int] = field(default_factory=dict)
    planned: dict[int, OffsetFile] = field(default_factory=dict)
    noted: dict[int, BatchNotes] = field(default_factory=dict)
    problem: Skipped | None = None
    scratch: str = ""

    @property
    def span(self) -> tuple[SegmentFacts, ...]:
        """Segments in the compaction range."""
        return (
            self.partition.segments[: self.compaction_range.cleanable.segments]
            if self.compaction_range is not None
            else ()
        )

    @property
    def follows_from_keys(self) -> bool:
        """True if only keys decide which records are kept: no transactions, no other replicas."""
        return (
            self.compaction_range is not None
            and not self.compaction_range.transactions
            and not self.partition.elsewhere
            and not len(self.partition.policy.held_markers)
            and not any(file.path or file.data for file in self.held)
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
def prepare(engine: Engine, partitions: Sequence[CompactionInput], scratch: str) -> list[Prepared]:
    """Determine the compaction range, the aborted transactions and the last offset of each key of every partition.

    Args:
        partitions: partitions whose segments were scanned.
        scratch: path of a scratch folder on the hosts of the tasks, empty if there is none.
    """
    prepared = [Prepared(partition) for partition in partitions]
    for each in prepared:
        compaction_range = compaction_range_of(each.partition.segments, each.partition.policy)
        if isinstance(compaction_range, Skipped):
            each.problem = compaction_range
        else:
            each.compaction_range = compaction_range
    _find_aborted(
        engine,
        [
            partition
            for partition in prepared
            if partition.compaction_range and partition.compaction_range.transactions and partition.span
        ],
    )
    _find_keys(engine, [partition for partition in prepared if partition.problem is None], scratch)
    for each in prepared:
        each.scratch = scratch
    _join(engine, [each for each in prepared if each.problem is None])
    _hold_tombstones_at_end(engine, [each for each in prepared if each.problem is None and each.span])
    return prepared


def _find_aborted(engine: Engine, prepared: Sequence[Prepared]) -> None:
    from krepair.rewrite.compaction.tasks import find_aborted_for_certain

    items = [
        LogsItem(
            place=partition.partition.place,
            segments=tuple(
                (facts.base_offset, facts.summary.valid_bytes) for facts in partition.partition.segments
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
    return max(_INLINE_BYTES // ROW_BYTES // max(segments, 1), _ROWS_INLINE_AT_LEAST)


def _find_keys(engine: Engine, prepared: Sequence[Prepared], scratch: str) -> None:
    from krepair.rewrite.compaction.tasks import find_keys

    every = [(partition, facts) for partition in prepared for facts in partition.span]
    rows_inline = rows_inline_of(len(every))

    def take(each: Prepared, base_offset: int, result: KeysResult) -> None:
        each.problem = each.problem or _problem(result, log_name(base_offset), each)
        each.keyless[base_offset] = result.keyless
        each.noted[base_offset] = result.noted
        each.found[base_offset] = result

    work = []
    for each, facts in every:
        known = each.partition.keys.get(facts.base_offset, KeysResult())
        # These keys did not fit together with those of the segments above the range; alone they may fit.
        if known.found and known.failure != "disk":
            take(each, facts.base_offset, known)
        else:
            work.append((each, facts))
    items = [
        KeysItem(
            place=each.partition.place,
            base_offset=facts.base_offset,
            size=facts.summary.file_size,
            aborted=touching(each.aborted, facts.base_offset, facts.summary.last_offset + 1),
            secret=each.partition.secret,
            rows_inline=rows_inline,
            scratch=scratch,
            note_bytes=note_bytes_of(len(every)),
        )
        for each, facts in work
    ]
    for index, result in engine.map(find_keys, items):
        take(work[index][0], work[index][1].base_offset, result)


def _join(engine: Engine, work: Sequence[Prepared]) -> None:
    """Join the keys of partitions."""
    from krepair.rewrite.compaction.tasks import join_keys

    items: list[JoinItem] = []
    owners: list[Prepared] = []
    parts: dict[int, JoinResult] = {}
    for each in work:
        each.held = ()
        for item in _join_items(each):
            items.append(item)
            owners.append(each)
    for index, result in engine.map(join_keys, items):
        each = owners[index]
        each.problem = each.problem or _problem(result, "", each)
        each.keys += result.keys
        parts[index] = result
    # In the order of the items, not of the results: a plan must not depend on which worker was faster.
    for index in sorted(parts):
        owners[index].stays += (parts[index].offsets,)
        owners[index].held += (parts[index].held,)


def _hold_tombstones_at_end(engine: Engine, work: Sequence[Prepared]) -> None:
    """Keep the tombstones of the last batch with records in the range, if a log must end with records."""
    from krepair.rewrite.compaction.tasks import find_last_data_batch, offsets_between

    work = [each for each in work if each.partition.policy.ends_in_records]
    items = [
        LogsItem(
            place=each.partition.place,
            segments=tuple((facts.base_offset, facts.summary.valid_bytes) for facts in each.span),
        )
        for each in work
    ]
    for index, bounds in engine.map(find_last_data_batch, items):
        each = work[index]
        if isinstance(bounds, Failed):
            each.problem = _failed(bounds.kind, bounds.why)
            continue
        try:
            last = offsets_between(each.stays, *bounds)
        except OSError as error:
            each.problem = _failed("disk", f"{error.filename}: {why(error)}")
            continue
        each.held += (OffsetFile(data=last.tobytes()),)


def _join_items(each: Prepared) -> Iterator[JoinItem]:
    elsewhere = each.partition.elsewhere
    mine, others = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    files: list[RowFile] = []
    for result in each.found.values():
        mine += np.frombuffer(result.buckets, np.int64)
        files += result.files
    for file in elsewhere:
        others += np.diff(file.starts())
    counts = np.where(mine > 0, mine + others, 0)  # a key without rows here has no tombstone here
    for first, after in cut(counts, _JOIN_ROWS):
        rows = int(mine[first:after].sum())
        if rows:
            yield JoinItem(
                place=each.partition.place,
                files=tuple(file.part(first, after) for file in files),
                first_bucket=first,
                after_bucket=after,
                rows=rows,
                offsets_inline=_INLINE_BYTES // 8 // 64,
                scratch=each.scratch,
                elsewhere=tuple(file.part(first, after) for file in elsewhere),
                elsewhere_rows=int(others[first:after].sum()),
            )


def _problem(result: Result, name: str, each: Prepared) -> Skipped | None:
    if result.problem:
        where = f"{name}, position {result.position}" if name else each.partition.place.folder
        too = "" if result.problem.endswith(TOO_LARGE) else "Kafka's cleaner would stop here too, so "
        return Skipped(
            "compacted-content",
            f"{where}: {result.problem}; {too}the partition is left alone whole",
            Next.of("check", LOG_DIR, "--deep"),
            damaged=True,
        )
    return _failed(result.failure, result.why) if result.failure else None


def _failed(kind: FailureKind, why: str) -> Skipped:
    # --fix index must not be advised here: an index rebuilt from this log would mark all those records as aborted.
    command = COMPARE_REPLICAS if kind == "txnindex-disagrees" else NOTHING
    return Skipped(kind, why, command, damaged=kind == "unreadable")


# -- the third wave ---------------------------------------------------------------------------------
def compact_item(each: Prepared, number: int, most_packed: int = 0) -> CompactItem:
    """Build the item that computes segment ``number`` of the range as compaction leaves it."""
    assert each.compaction_range is not None
    facts, policy = each.partition.segments[number], each.partition.policy
    next_base = each.partition.segments[number + 1].base_offset
    return CompactItem(
        place=each.partition.place,
        base_offset=facts.base_offset,
        next_base=next_base,
        size=facts.summary.file_size,
        now_ms=policy.now_ms,
        high_watermark=policy.high_watermark,
        protected=each.compaction_range.protected,
        drop_unstamped=each.compaction_range.drop_unstamped[number],
        aborted=touching(each.aborted, facts.base_offset, facts.summary.last_offset + 1),
        stays=_stays(each, facts.base_offset, next_base),
        keyless=each.keyless.get(facts.base_offset, 1) > 0,
        noted=each.noted.get(facts.base_offset, NO_NOTES),
        keeps_all=policy.keeps_all,
        held=tuple(_between(file, facts.base_offset, next_base) for file in each.held),
        held_markers=_held_markers(policy, facts.base_offset, next_base),
        most_packed=most_packed,
    )


def _stays(each: Prepared, first: int, after: int) -> tuple[OffsetFile, ...]:
    if first in each.planned:
        return (each.planned[first],)
    return tuple(_between(file, first, after) for file in each.stays)


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
class _Deciding:
    """Partition on which a decision is being made while its segments are read."""

    prepared: Prepared
    results: dict[int, CompactResult] = field(default_factory=dict)
    packed: int = 0
    outcome: Skipped | None = None


def decide_compaction(engine: Engine, prepared: Sequence[Prepared]) -> list[Compaction | Skipped]:
    """Run the third wave, and decide on the prepared partitions: exact sizes, groups, counts.

    Args:
        prepared: result of ``prepare`` for each partition.

    Returns:
        The decisions for each partition, or the reason for skipping it.
    """
    work = [_Deciding(partition, outcome=partition.problem) for partition in prepared]
    _read(engine, work)
    return [deciding.outcome or _decide(deciding) for deciding in work]


def _read(engine: Engine, work: Sequence[_Deciding]) -> None:
    from krepair.rewrite.compaction.tasks import compact

    todo = [
        (deciding, number)
        for deciding in work
        if deciding.outcome is None
        for number in range(len(deciding.prepared.span))
    ]
    most_packed = _most_packed(len(work))
    items = [
        compact_item(
            deciding.prepared,
            number,
            most_packed if deciding.prepared.follows_from_keys else 0,
        )
        for deciding, number in todo
    ]
    for index, result in engine.map(compact, items):
        deciding, _ = todo[index]
        base_offset = items[index].base_offset
        deciding.outcome = deciding.outcome or _problem(result, log_name(base_offset), deciding.prepared)
        deciding.packed += len(result.stays or b"")
        deciding.results[base_offset] = (
            replace(result, stays=None) if deciding.packed > most_packed else result
        )


def _most_packed(partitions: int) -> int:
    """Return the largest size in bytes of one partition's encoded offsets in a plan with ``partitions`` partitions."""
    return min(MOST_BYTES, _MOST_PACKED // max(partitions, 1))


def _decide(deciding: _Deciding) -> Compaction | Skipped:
    each = deciding.prepared
    assert each.compaction_range is not None
    segments = tuple(
        _facts_as_compacted(facts, deciding.results[facts.base_offset])
        if facts.base_offset in deciding.results
        else facts
        for facts in each.partition.segments
    )
    policy = each.partition.policy
    protected = np.array(each.compaction_range.protected, np.int64).reshape(-1, 2)
    decision = decide(segments, policy, protected)
    if isinstance(decision, NeedsRescan) or (
        isinstance(decision, PartitionDecision) and decision.cleanable.segments != len(each.span)
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


def _compaction(deciding: _Deciding, decision: PartitionDecision) -> Compaction:
    each = deciding.prepared
    assert each.compaction_range is not None
    tallies: dict[int, RecordTally] = {}
    sources: dict[int, CompactedSource] = {}
    for facts in each.span:
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
        sources=_with_stays(deciding, sources),
        tallies=tallies,
        keys=each.keys,
        horizons=tombstone_horizons(
            each.partition.segments,
            list(tallies.values()),
            each.compaction_range.cleanable,
            each.partition.policy,
        ),
        changed=changed,
    )


def _with_stays(deciding: _Deciding, sources: dict[int, CompactedSource]) -> dict[int, CompactedSource]:
    """Add the encoded offsets of the kept records, if they fit for all segments and only keys decide what is kept."""
    packed = {base: deciding.results[base].stays for base in sources}
    if None in packed.values() or not deciding.prepared.follows_from_keys:
        return sources
    return {base: replace(source, stays=as_text(packed[base] or b"")) for base, source in sources.items()}


# -- applying ---------------------------------------------------------------------------------------
def reading_items(each: Prepared, compacted: Mapping[int, CompactedSource]) -> dict[int, CompactItem]:
    """Build, for each source with an entry in the plan, the item that computes it, by base offset.

    Args:
        each: partition prepared again from the present files.
        compacted: entry of each source in the plan, by base offset.
    """
    return {
        facts.base_offset: replace(compact_item(each, number), source_headers=facts.summary.headers)
        for number, facts in enumerate(each.span)
        if facts.base_offset in compacted
    }


def stage_items(
    readings: Mapping[int, CompactItem],
    sources: Sequence[SourceSegment],
    compacted: Mapping[int, CompactedSource],
    target: str,
    checks: Mapping[int, CheckItem] = MappingProxyType({}),
) -> list[CompactStageItem]:
    """Build the items that write one group.

    Args:
        readings: item that reads each source, by base offset.
        sources: sources of the group, from the plan.
        compacted: entry of key compaction in the plan, by base offset.
        target: absolute path of the new ``.log``, which exists.
        checks: item that proves each source while it is written, by base offset; without it the source is read again
            for the proof.
    """
    positions = accumulate((source.kept_bytes for source in sources), initial=0)
    return [
        CompactStageItem(
            compact=readings[source.base_offset],
            source=source,
            target=target,
            out_position=position,
            headers=compacted[source.base_offset].headers,
            check=checks.get(source.base_offset),
        )
        for source, position in zip(sources, positions, strict=False)
    ]


def scratch_bytes_at_most(partitions: Sequence[CompactionInput]) -> int:
    """Return an upper bound of the scratch folder's size in bytes, known before anything is read.

    The folder holds the hash and offset of each record, and each offset once more.

    A v2 record takes at least 7 bytes in a log, and a key that occurs twice in a table is in it once; so this is
    usually far more than needed.
    """
    records = 0
    for partition in partitions:
        for facts in partition.segments:
            records += int(facts.summary.tallies[0, 2])
    return records * (ROW_BYTES + 8)
