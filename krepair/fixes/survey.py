"""Looks at the partitions of a log directory and decides: the common beginning of check, plan and apply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from krepair.checks.rehearsal.behaviour import VersionNumber
from krepair.fixes.swaps import SeenLeftovers
from krepair.formats import producer_snapshot, txn_index
from krepair.formats.damage import Damage
from krepair.formats.filenames import FileKind, parse_file_name
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.config import Settings, TopicSettings
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, Partition, Segment, Snapshot
from krepair.options import Options
from krepair.pipeline.damage import MapResult
from krepair.pipeline.engine import Engine
from krepair.pipeline.indexes import InspectResult
from krepair.pipeline.items import Place, ScanItem, ScanResult
from krepair.pipeline.jobs import SCAN
from krepair.pipeline.progress import Progress
from krepair.pipeline.rehearse import Rehearsed
from krepair.pipeline.txn_indexes import TxnResult
from krepair.pipeline.wire import decode_summary
from krepair.plan.build import version_of
from krepair.plan.model import MendLog, SetAside
from krepair.rules.epochs import SeenEpochs
from krepair.rules.markers import decide
from krepair.rules.model import (
    LeftAlone,
    MarkerPolicy,
    NeedsRescan,
    PartitionDecision,
    ProducerSnapshotState,
    SegmentFacts,
)
from krepair.rules.snapshots import SeenSnapshots


class TailDecision(NamedTuple):
    """What is planned for the damage of a partition.

    Attributes:
        changes: in the order in which they are carried out.
        notes: for the reviewer.
        bases: base offsets of the segments that change.
        left: what is left for want of a consent, None if nothing is.
    """

    changes: tuple[MendLog | SetAside, ...]
    notes: tuple[str, ...]
    bases: frozenset[int]
    left: LeftAlone | None = None


NEVER_TOUCHED = "__cluster_metadata"
SNAPSHOT_AT_MOST_BYTES = 1 << 30
STAMPS_SINCE = (3, 1, 0)


@dataclass
class Surveyed:
    """One partition, looked at.

    Attributes:
        partition: as listed.
        settings: of its topic.
        segments: facts per segment, ascending; empty if it was not scanned.
        txn_entries: bytes of each segment's ``.txnindex`` by base offset.
        outcome: the decisions, or why it is left alone; None if it was only scanned.
        policy: inputs of the decisions, None if it was left alone before.
        high_watermark: from the checkpoint, -1 if none.
        indexes: what looking at the offset and time indexes came to, by base offset.
        txn: what looking at the transaction indexes came to.
        epochs: its leader epochs, None if they were not looked at.
        snapshots: its producer snapshots, None if they were not looked at.
        damage: maps of its damaged logs, by base offset.
        tail: what is planned for its damage, None if that was not asked for.
        leftovers: what brokers left behind, None if there is nothing or it was not looked at.
        rehearsed: what the next start comes to, by version; empty where nothing is wrong.
    """

    partition: Partition
    settings: TopicSettings
    segments: tuple[SegmentFacts, ...] = ()
    txn_entries: dict[int, bytes] = field(default_factory=dict)
    outcome: PartitionDecision | LeftAlone | None = None
    policy: MarkerPolicy | None = None
    high_watermark: int = -1
    indexes: dict[int, InspectResult] = field(default_factory=dict)
    txn: TxnResult = field(default_factory=TxnResult)
    epochs: SeenEpochs | None = None
    snapshots: SeenSnapshots | None = None
    damage: dict[int, MapResult] = field(default_factory=dict)
    tail: TailDecision | None = None
    leftovers: SeenLeftovers | None = None
    rehearsed: dict[VersionNumber, Rehearsed] = field(default_factory=dict)


def place_of(log_dir: LogDir, partition: Partition) -> Place:
    """Where a partition's files are, as work items name it."""
    return Place(
        host=log_dir.host, log_dir=log_dir.path, log_dir_inode=log_dir.inode, folder=partition.folder
    )


def cannot_touch(partition: Partition, settings: TopicSettings) -> LeftAlone | None:
    """Why a partition is left alone whatever its log holds, or None."""
    reasons = (
        (
            partition.topic == NEVER_TOUCHED,
            "refused-topic",
            f"{NEVER_TOUCHED} is the KRaft metadata log; krepair never changes it",
        ),
        (
            settings.remote_storage_enable,
            "tiered",
            "the topic is tiered (remote.storage.enable); krepair never changes it",
        ),
        (bool(partition.unreadable), "unreadable", partition.unreadable),
        (
            not settings.compacts,
            "not-compacted",
            "cleanup.policy has no compact; only compacted topics are cleaned",
        ),
    )
    for applies, code, text in reasons:
        if applies:
            return LeftAlone(code, text, damaged=code == "unreadable")
    odd = _odd_file(partition)
    if odd is None and not partition.segments:
        return LeftAlone("empty", "the folder has no .log file")
    return odd


def _odd_file(partition: Partition) -> LeftAlone | None:
    """Leftovers of a broker, and names of its files that are no regular files."""
    for leftover in partition.leftovers:
        if leftover.kind != "foreign":
            advice = "finish or remove it first (--fix leftovers), then plan again"
            why = f"{leftover.file.name}: a broker left it; {advice}"
            return LeftAlone("leftovers", why, "krepair plan LOGDIR --fix leftovers --out PLAN", damaged=True)
    for special in partition.specials:
        if parse_file_name(special.name).kind is not FileKind.FOREIGN:
            text = f"{special.name}: a regular file was expected, found a {special.kind}"
            return LeftAlone("special-file", text, damaged=True)
    return None


def survey(
    log_dir: LogDir,
    partitions: Sequence[Partition],
    settings: Settings,
    options: Options,
    engine: Engine,
    progress: Progress,
) -> list[Surveyed]:
    """Scan partitions and decide on each; one partition's failure never stops the others (KIP-346)."""
    surveyed = [Surveyed(partition, settings.topic(partition.topic)) for partition in partitions]
    for each in surveyed:
        each.high_watermark = watermark_of(log_dir, each.partition)
        each.outcome = cannot_touch(each.partition, each.settings)
    to_scan = [each for each in surveyed if each.outcome is None]
    scan_partitions(log_dir, to_scan, options, engine, progress)
    for each in to_scan:
        if each.outcome is None:
            decide_surveyed(log_dir, each, settings, options, engine)
    return surveyed


def scan_partitions(
    log_dir: LogDir,
    surveyed: Sequence[Surveyed],
    options: Options,
    engine: Engine,
    progress: Progress,
    *,
    only_active: bool = False,
    check_crc: bool = True,
) -> None:
    """Scan segments of partitions in one job and put the facts into ``surveyed``."""
    work = [
        (each, segment)
        for each in surveyed
        for segment in (each.partition.segments[-1:] if only_active else each.partition.segments)
    ]
    items = [scan_item(log_dir, each, segment, options, check_crc=check_crc) for each, segment in work]
    progress.start("scan", sum(item.size for item in items))
    scanned = Scanned()
    for index, result in engine.run(SCAN, items):
        progress.advance(items[index].size)
        scanned.take(*work[index], result)
    progress.finish()
    scanned.put_into(surveyed)


class Scanned:
    """Collects the results of scans as they come, in any order."""

    def __init__(self) -> None:
        self._facts: dict[tuple[str, int], SegmentFacts] = {}

    def take(self, each: Surveyed, segment: Segment, result: ScanResult) -> None:
        """One result; a failure becomes the partition's outcome."""
        problem = _scan_problem(result)
        if problem is not None:
            each.outcome = each.outcome or problem
        if result.failure:
            return
        # what the log says is known whatever its transaction index is worth
        if not result.txn_damage:
            each.txn_entries[segment.base_offset] = result.entries
        self._facts[each.partition.folder, segment.base_offset] = facts_of(segment, result)

    def put_into(self, surveyed: Sequence[Surveyed]) -> None:
        """The facts of each partition, by offset."""
        for each in surveyed:
            here = (
                self._facts.get((each.partition.folder, segment.base_offset))
                for segment in each.partition.segments
            )
            each.segments = tuple(facts for facts in here if facts is not None)


def _scan_problem(result: ScanResult) -> LeftAlone | None:
    if result.failure:
        return LeftAlone(result.failure, result.why, damaged=True)
    if result.txn_damage:
        return LeftAlone(
            "txnindex-damage", result.txn_damage, "krepair plan LOGDIR --fix index --out PLAN", damaged=True
        )
    return None


def scan_item(
    log_dir: LogDir, each: Surveyed, segment: Segment, options: Options, *, check_crc: bool = True
) -> ScanItem:
    """The scan of one segment."""
    high_watermark = (
        INT64_MAX if options.assume_high_watermark or each.high_watermark < 0 else each.high_watermark
    )
    return ScanItem(
        place=place_of(log_dir, each.partition),
        base_offset=segment.base_offset,
        size=segment.log.size,
        now_ms=options.now_ms,
        high_watermark=high_watermark,
        check_crc=check_crc,
    )


def facts_of(segment: Segment, result: ScanResult) -> SegmentFacts:
    """What the rules see of a scanned segment."""
    view = txn_index.view(result.entries)
    columns = [view[name] for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")]
    return SegmentFacts(
        base_offset=segment.base_offset,
        mtime_ms=segment.log.mtime_ns // 1_000_000,
        summary=decode_summary(result.summary),
        entries=np.column_stack(columns).astype(np.int64),
    )


def watermark_of(log_dir: LogDir, partition: Partition) -> int:
    """The high watermark that is recorded for a partition, -1 if none is."""
    return log_dir.high_watermark.offsets.get((partition.topic, partition.number), -1)


def decide_surveyed(
    log_dir: LogDir, each: Surveyed, settings: Settings, options: Options, engine: Engine
) -> None:
    """Decide on a partition that was scanned whole; the outcome is put into ``each``."""
    log_end = log_end_of(each.segments)
    if each.high_watermark < 0 and not options.assume_high_watermark:
        each.outcome = LeftAlone(
            "no-high-watermark",
            "replication-offset-checkpoint has no line for it, so it is not known what is replicated",
            "krepair plan LOGDIR --assume-high-watermark log-end --out PLAN",
        )
        return
    try:
        each.policy = marker_policy(log_dir, each, settings, options, log_end)
    except OSError as error:
        each.outcome = LeftAlone("unreadable", f"{each.partition.folder}: {why(error)}", damaged=True)
        return
    outcome = decide(each.segments, each.policy)
    if isinstance(outcome, NeedsRescan):
        outcome = _rescan(log_dir, each, outcome, options, engine)
    each.outcome = outcome


def _rescan(
    log_dir: LogDir, each: Surveyed, needed: NeedsRescan, options: Options, engine: Engine
) -> PartitionDecision | LeftAlone:
    """Scan segments again, now that it is known whose markers stay."""
    protected = tuple((int(pid), int(epoch)) for pid, epoch in needed.protected)
    segments = {segment.base_offset: segment for segment in each.partition.segments}
    items = [
        ScanItem(
            place=place_of(log_dir, each.partition),
            base_offset=base_offset,
            size=segments[base_offset].log.size,
            now_ms=options.now_ms,
            high_watermark=each.policy.high_watermark if each.policy else INT64_MAX,
            protected=protected,
            check_crc=False,
        )
        for base_offset in needed.base_offsets
    ]
    again: dict[int, SegmentFacts] = {}
    for index, result in engine.run(SCAN, items):
        problem = _scan_problem(result)
        if problem is not None:
            return problem
        again[items[index].base_offset] = facts_of(segments[items[index].base_offset], result)
    each.segments = tuple(again.get(facts.base_offset, facts) for facts in each.segments)
    outcome = decide(each.segments, each.policy, needed.protected) if each.policy else None
    if outcome is None or isinstance(outcome, NeedsRescan):
        return LeftAlone(
            "changed", "the partition changed while it was read", "krepair plan LOGDIR --out PLAN"
        )
    return outcome


def log_end_of(segments: Iterable[SegmentFacts]) -> int:
    """The offset after the last valid batch."""
    return max((segment.summary.last_offset + 1 for segment in segments), default=0)


def marker_policy(
    log_dir: LogDir, each: Surveyed, settings: Settings, options: Options, log_end: int
) -> MarkerPolicy:
    """Inputs of marker-only compaction for a partition.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    topic, key = each.settings, (each.partition.topic, each.partition.number)
    snapshot_offset, snapshot = newest_snapshot(each.partition.snapshots, log_end)
    version = version_of(options.broker_version)
    stamped = any(facts.summary.stamped for facts in each.segments)
    high_watermark = each.high_watermark
    if options.assume_high_watermark == "log-end":
        high_watermark = max(high_watermark, log_end)
    return MarkerPolicy(
        now_ms=options.now_ms,
        horizon=options.delete_horizon,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        producer_expiry_ms=settings.producer_expiry_ms,
        high_watermark=high_watermark,
        first_dirty_offset=log_dir.cleaner.offsets.get(key, -1),
        stamps=stamped or (version is not None and version >= STAMPS_SINCE),
        merge=options.merge,
        snapshot_offset=snapshot_offset,
        snapshot=snapshot,
    )


def newest_snapshot(
    snapshots: Sequence[Snapshot], log_end: int
) -> tuple[int, tuple[ProducerSnapshotState, ...]]:
    """The snapshot that a broker would load: the newest valid one not past the log end; (-1, ()) if none is.

    Raises:
        OSError: one cannot be read.
    """
    for snapshot in reversed(snapshots):
        if snapshot.offset > log_end:
            continue
        decoded = producer_snapshot.decode(read_whole(snapshot.file.path, SNAPSHOT_AT_MOST_BYTES))
        if isinstance(decoded, Damage):
            continue
        states = (
            ProducerSnapshotState(
                producer_id=entry.producer_id,
                epoch=entry.producer_epoch,
                last_data_offset=entry.last_offset,
                timestamp=entry.timestamp,
                open_first_offset=entry.current_txn_first_offset,
            )
            for entry in decoded.entries
        )
        return snapshot.offset, tuple(states)
    return -1, ()
