"""Decisions of ``--fix markers``: the transaction markers and retained empty batches to remove (KAFKA-8335)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.engine.items import Failed, LogsItem
from krepair.fixes.analysis import PartitionAnalysis, ResultKey, log_end_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.evidence import OTHERS, OtherReplicas, evidence_of, why_forked
from krepair.fixes.gate import missing_segment
from krepair.fixes.logs import facts_of, scan_item, scan_problem
from krepair.fixes.producers_at_end import newest_snapshot
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import TRANSACTIONS_TOPIC, offset_name
from krepair.formats.words import count_text, time_text
from krepair.kernels import classes as c
from krepair.logdir.reading import why
from krepair.logdir.values import Partition
from krepair.next_command import LOG_DIR, NOTHING, PLAN, Next
from krepair.plan.model import KeepOriginal, RewriteSegments, SourceSegment
from krepair.rules import cleanable_range as cleanable_ranges
from krepair.rules.evidence import NONE, WITH_CLUSTER, latest_horizon_ms
from krepair.rules.grouping import index_bytes_at_most
from krepair.rules.markers import decide, held_between, untrue_entry
from krepair.rules.model import (
    GroupDecision,
    MarkerPolicy,
    NeedsRescan,
    PartitionDecision,
    SegmentFacts,
    Skipped,
)
from krepair.rules.open_snapshot import why_a_start_would_fail

if TYPE_CHECKING:
    from krepair.rewrite.compaction.partitions import Compaction


WRITES_HORIZONS_SINCE = (3, 1, 0)
_LATEST: Final = "unlimited"
TXN_CODES = frozenset({"txnindex-disagrees", "txnindex-damage"})
MARKER_CLASSES = (
    c.MARKER_DATA_REMAINS,
    c.MARKER_UNSTAMPED,
    c.MARKER_STAMP_TO_COME,
    c.MARKER_STAMP_PAST,
    c.MARKER_EPOCH,
)


MARKERS_RESULT: ResultKey[PartitionDecision | Skipped] = ResultKey("markers")


class KeyFacts(NamedTuple):
    """Key compaction of one partition, whose decisions replace those of ``markers``.

    Attributes:
        compaction: decisions of the key compaction.
        scratch_bytes: upper limit of the disk space, in bytes, that the keys take in a scratch folder.
    """

    compaction: Compaction
    scratch_bytes: int


COMPACT_RESULT: ResultKey[KeyFacts | Skipped] = ResultKey("keys")


def decided_by_key(analysis: PartitionAnalysis) -> Compaction | None:
    """Return the decisions of key compaction, which include those on markers; None without key compaction."""
    decided = analysis.result(COMPACT_RESULT)
    return decided.compaction if isinstance(decided, KeyFacts) else None


def left_alone(analysis: PartitionAnalysis) -> Skipped | None:
    """Return why no decision on a partition is possible; None if a decision was made or none was requested."""
    if analysis.log is not None and analysis.log.problem is not None:
        return analysis.log.problem
    decided = analysis.result(MARKERS_RESULT) or analysis.result(COMPACT_RESULT)
    return decided if isinstance(decided, Skipped) else None


def transaction_indexes_disagree(analysis: PartitionAnalysis) -> bool:
    """Return whether the scan found a transaction index that is damaged or contradicts the markers."""
    reason = left_alone(analysis)
    return reason is not None and reason.code in TXN_CODES


# -- decisions


def policy_or_left(context: Context, analysis: PartitionAnalysis) -> MarkerPolicy | Skipped:
    """Return the inputs of compaction for a partition that was read, or the reason why inputs are missing."""
    missing = missing_segment(context.view, analysis)
    if missing is not None:
        return missing
    if analysis.high_watermark < 0 and not context.options.assume_high_watermark:
        return Skipped(
            "no-high-watermark",
            "replication-offset-checkpoint has no line for it, so it is not known what is replicated",
            Next.of("plan", LOG_DIR, "--assume-high-watermark", "log-end", out=PLAN),
        )
    try:
        policy = marker_policy(context, analysis)
    except OSError as error:
        return Skipped("unreadable", f"{analysis.partition.folder}: {why(error)}", damaged=True)
    return why_forked(context, analysis, policy.high_watermark) or policy


def decide_markers(context: Context, analysis: PartitionAnalysis) -> PartitionDecision | Skipped:
    policy = policy_or_left(context, analysis)
    if isinstance(policy, Skipped):
        return policy
    problem = _scan_held(context, analysis, policy)
    if problem is not None:
        return problem
    outcome = decide(analysis.segments, policy)
    if isinstance(outcome, NeedsRescan):
        outcome = _scan_again(context, analysis, policy, outcome)
    if isinstance(outcome, Skipped):
        return outcome
    changed = [group for group in outcome.groups if group.changes]
    return left_by_a_start(context, analysis, policy, outcome, changed) or outcome


def check_transaction_indexes(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Skip a partition if a transaction index entry that would be carried over is untrue.

    After the markers are removed, nothing could prove such an entry wrong.
    """
    carrying = [(analysis, logs) for analysis in analyses if (logs := _replayed(context, analysis))]
    if not carrying:
        return
    from krepair.rewrite.indexes.transactions import inspect_txn

    items = (
        (analysis, LogsItem(place=place_of(context.view, analysis.partition), segments=logs))
        for analysis, logs in carrying
    )
    for analysis, result in context.engine.each(inspect_txn, items):
        if isinstance(result, Failed):
            analysis.put(MARKERS_RESULT, Skipped("unreadable", result.why, damaged=True))
        elif result.problems:
            analysis.put(
                MARKERS_RESULT, untrue_entry(result.problems[0].base_offset, result.problems[0].text)
            )


def _replayed(context: Context, analysis: PartitionAnalysis) -> tuple[tuple[int, int], ...]:
    """Return (base offset, bytes) of the logs that prove the index entries; empty if no marker is removed.

    Entries after damage cannot be proven; only the active log may be damaged.
    """
    decision = analysis.result(MARKERS_RESULT)
    if not isinstance(decision, PartitionDecision) or not any(group.changes for group in decision.groups):
        return ()
    active_tells = not context.beside_broker and analysis.segments[-1].summary.is_whole
    logs = analysis.segments if active_tells else analysis.segments[:-1]
    if not any(len(facts.entries) for facts in logs):
        return ()
    return tuple((facts.base_offset, facts.summary.file_size) for facts in logs)


def left_by_a_start(
    context: Context,
    analysis: PartitionAnalysis,
    policy: MarkerPolicy,
    decision: PartitionDecision,
    changed: Sequence[GroupDecision],
) -> Skipped | None:
    """Return why a start would fail after these groups are rewritten, or None."""
    return why_a_start_would_fail(
        analysis.partition.folder,
        policy,
        decision.log_end_offset,
        changed,
        version=context.version,
        clean_shutdown=context.view.clean_shutdown,
    )


def _scan_held(context: Context, analysis: PartitionAnalysis, policy: MarkerPolicy) -> Skipped | None:
    """Scan segments again that have markers kept for other replicas, now that these markers are known."""
    bases = [base for base, _ in _segments_with_held_markers(analysis, policy)]
    nobody = NeedsRescan(np.empty((0, 2), np.int64), tuple(bases))
    return _scanned(context, analysis, policy, nobody)


def _segments_with_held_markers(
    analysis: PartitionAnalysis, policy: MarkerPolicy
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (base offset, markers kept for other replicas) for each segment with such markers."""
    for facts in analysis.segments:
        held = held_between(policy, facts.base_offset, facts.summary.last_offset + 1)
        if held:
            yield facts.base_offset, held


def _scan_again(
    context: Context, analysis: PartitionAnalysis, policy: MarkerPolicy, needed: NeedsRescan
) -> PartitionDecision | Skipped:
    """Scan segments again, now that the producers whose markers are kept are known."""
    problem = _scanned(context, analysis, policy, needed)
    if problem is not None:
        return problem
    outcome = decide(analysis.segments, policy, needed.protected)
    if isinstance(outcome, NeedsRescan):
        why_left = "the partition changed while it was read"
        return Skipped("changed", why_left, Next.of("plan", LOG_DIR, out=PLAN))
    return outcome


def _scanned(
    context: Context, analysis: PartitionAnalysis, policy: MarkerPolicy, needed: NeedsRescan
) -> Skipped | None:
    """Scan some segments again; return the reason for a failure, else None."""
    from krepair.scan.scan import scan

    assert analysis.log is not None
    segments = {segment.base_offset: segment for segment in analysis.partition.segments}
    held = dict(_segments_with_held_markers(analysis, policy))
    protected = tuple((int(pid), int(epoch)) for pid, epoch in needed.protected)
    items = [
        replace(
            scan_item(context, analysis, segments[base], check_crc=False),
            high_watermark=policy.high_watermark,
            protected=protected,
            held_markers=np.array(held.get(base, ()), np.int64).tobytes(),
        )
        for base in needed.base_offsets
    ]
    again = {}
    for index, result in context.engine.map(scan, items):
        problem = scan_problem(result)
        if problem is not None or isinstance(result, Failed):
            return problem
        base_offset = items[index].base_offset
        again[base_offset] = facts_of(segments[base_offset], result)
    facts = tuple(again.get(segment.base_offset, segment) for segment in analysis.segments)
    analysis.log = analysis.log._replace(segments=facts)
    return None


def marker_policy(context: Context, analysis: PartitionAnalysis) -> MarkerPolicy:
    """Return the inputs of marker-only compaction for a partition that was read.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    now_ms, version = context.options.now_ms, version_of(context.options.broker_version)
    stamped = any(facts.summary.stamped for facts in analysis.segments)
    kind = evidence_of(context, analysis.partition).kind
    others = analysis.result(OTHERS) or OtherReplicas()
    return dataclasses.replace(
        policy_with(context, analysis, others),
        first_dirty_offset=context.view.cleaner.offsets.get(analysis.partition.key, -1),
        writes_horizons=stamped or (version is not None and version >= WRITES_HORIZONS_SINCE),
        keeps_all=kind == NONE,
        latest_horizon_ms=latest_horizon_ms(kind, now_ms, analysis.settings.delete_retention_ms),
        mixed_epochs=kind == "only-replica",
    )


def policy_with(context: Context, analysis: PartitionAnalysis, others: OtherReplicas) -> MarkerPolicy:
    """Return the inputs that ``plan`` and ``apply`` share, except evidence and time, which the plan records.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    topic, options = analysis.settings, context.options
    snapshot_offset, snapshot = newest_snapshot(analysis.partition.snapshots, log_end_of(analysis.segments))
    return MarkerPolicy(
        now_ms=options.now_ms,
        horizon=options.delete_horizon,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        producer_expiry_ms=context.settings.producer_expiry_ms,
        high_watermark=high_watermark_of(context, analysis),
        first_dirty_offset=-1,
        writes_horizons=False,
        merge=options.merge,
        snapshot_offset=snapshot_offset,
        loaded_base=_loaded_base(analysis.partition, snapshot_offset),
        snapshot=snapshot,
        held_markers=others.markers,
        ends_in_records=analysis.partition.topic == TRANSACTIONS_TOPIC,
    )


def high_watermark_of(context: Context, analysis: PartitionAnalysis) -> int:
    """Return the high watermark for decisions: the checkpoint's, or the log end if the user requested that."""
    if context.options.assume_high_watermark == "log-end":
        return max(analysis.high_watermark, log_end_of(analysis.segments))
    return analysis.high_watermark


# -- findings


def bloat_findings(
    context: Context, analysis: PartitionAnalysis, decision: PartitionDecision
) -> Iterator[Finding]:
    """Yield finding KR101 with the bytes that compaction of markers would free."""
    unlimited = next((choice for choice in decision.horizons if choice.name == _LATEST), None)
    before = sum(outcome.log_bytes for outcome in decision.outcomes)
    now = sum(outcome.kept_bytes for outcome in decision.outcomes)
    most = before - unlimited.log_bytes_after if unlimited is not None else before - now
    if most <= 0:
        return
    tallies = sum_tallies(analysis.segments)
    markers = sum(int(tallies[number, c.T_BATCHES]) for number in MARKER_CLASSES)
    emptied = int(tallies[c.EMPTIED, c.T_BATCHES])
    keeps_all = any(choice.chosen and choice.name == cleanable_ranges.NONE for choice in decision.horizons)
    needs_evidence = now == before and keeps_all
    by_what = "whatever other replicas hold" if keeps_all else "by --delete-horizon"
    by_time = before - min(choice.log_bytes_after for choice in decision.horizons if choice.name != _LATEST)
    goes = (
        f"0 of {before:,} bytes can go whatever other replicas hold, {by_time:,} with evidence that no other replica "
        f"needs them, {most:,} with it and the latest horizon"
        if needs_evidence
        else f"{before - now:,} of {before:,} bytes can go {by_what}, {most:,} with the latest horizon"
    )
    yield Finding(
        rule="KR101",
        partition=analysis.partition.folder,
        evidence=(
            f"{count_text(markers, 'marker')} and {count_text(emptied, 'emptied batch', 'emptied batches')}; {goes}"
        ),
        bytes=most,
        command=_with_evidence(context, later=not by_time) if needs_evidence else NOTHING,
    )


def _with_evidence(context: Context, *, later: bool) -> Next:
    """Return the command for a plan with evidence, without which the plan would remove no markers.

    Args:
        later: True if the command must also name a later horizon.
    """
    words = ["--delete-horizon", time_text(context.options.now_ms)] if later else []
    return Next.of("plan", context.view.path, *words, *WITH_CLUSTER, out=PLAN)


def sum_tallies(segments: Sequence[SegmentFacts]) -> c.Tallies:
    """Return the tallies of all segments together."""
    total = c.no_tallies()
    for facts in segments:
        total += facts.summary.tallies
    return total


# -- plan


def notes_of(decision: PartitionDecision) -> tuple[str, ...]:
    """Return notes for the reviewer on a decision."""
    return (*decision.notes, f"{count_text(decision.active_producers, 'active producer')} at the log end")


def rewrite_of(analysis: PartitionAnalysis, group: GroupDecision) -> RewriteSegments:
    """Return the change that turns a group of segments into one."""
    sources = group.sources
    refs = {segment.base_offset: segment for segment in analysis.partition.segments}
    aborted = sum(len(source.aborted_kept) for source in sources)
    log_bytes = group.kept_bytes
    return RewriteSegments(
        change_id=f"{analysis.partition.folder}/{offset_name(sources[0].base_offset)}",
        base_offset=sources[0].base_offset,
        sources=sources,
        log_bytes=log_bytes,
        index_bytes_at_most=index_bytes_at_most(log_bytes, analysis.settings.index_interval_bytes, aborted),
        batches=sum(source.kept_batches for source in sources),
        mtime_ns=refs[sources[-1].base_offset].log.mtime_ns,
        last_offset=group.last_offset,
        removes_snapshots=_merged_away_snapshots(analysis.partition, sources),
        undo=KeepOriginal(),
    )


def _loaded_base(partition: Partition, newest: int) -> int:
    """Return the base offset of the segment whose producer snapshot a broker since 2.8 loads, else -1.

    A clean stop leaves a snapshot at the log end. If that snapshot is missing, the start deletes all snapshots behind
    the last segment except the newest, and all snapshots whose offset is no segment's base offset.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    bases = [segment.base_offset for segment in partition.segments]
    if not bases or newest >= bases[-1]:
        return -1
    return newest_snapshot([one for one in partition.snapshots if one.offset in bases], newest)[0]


def _merged_away_snapshots(partition: Partition, sources: Sequence[SourceSegment]) -> tuple[str, ...]:
    """Return the snapshots of merged segments, never the newest; a broker since 2.8 deletes them too (KAFKA-9393)."""
    gone = {source.base_offset for source in sources[1:]}
    return tuple(snapshot.file.name for snapshot in partition.snapshots[:-1] if snapshot.offset in gone)
