"""Fix ``markers``: remove transaction markers and retained empty batches that no reader needs any more (KAFKA-8335)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.commit.begin import StagedGroup, check_fresh
from krepair.commit.folder import PartitionFolder
from krepair.durable.attributes import read_attributes
from krepair.engine.items import Failed, FinishItem, LogsItem, Place, ScanResult, StageItem
from krepair.errors import StalePlanError, UnreadableError
from krepair.fixes.analysis import PartitionAnalysis, ResultKey, log_end_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.evidence import (
    OTHERS,
    NotKnownError,
    OtherReplicas,
    Staged,
    evidence_of,
    find_evidence,
    planned_logs_now,
    prove_markers,
    read_others,
    why_forked,
    with_bytes,
)
from krepair.fixes.fix import Compacted, Fix, Proposal, Purpose
from krepair.fixes.gate import missing_segment
from krepair.fixes.logs import facts_of, read_logs, scan_item, scan_problem
from krepair.fixes.producers_at_end import newest_snapshot
from krepair.fixes.replicas import ReplicaLog
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Kind, Staging, Work
from krepair.fixes.untouched import cannot_compact
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import LOG, TRANSACTIONS_TOPIC, log_name, offset_name
from krepair.formats.words import count_text, time_text
from krepair.kernels import classes as c
from krepair.logdir.reading import why
from krepair.logdir.values import Partition
from krepair.logdir.view import replica_state
from krepair.next_command import LOG_DIR, NOTHING, PLAN, Next
from krepair.plan.model import (
    FileFingerprint,
    KeepOriginal,
    MendLog,
    RewriteSegments,
    SourceSegment,
)
from krepair.rules import cleanable_range as cleanable_ranges
from krepair.rules.evidence import NONE, WITH_CLUSTER, Evidence, latest_horizon_ms
from krepair.rules.grouping import index_bytes_at_most
from krepair.rules.markers import (
    StageInputs,
    decide,
    held_between,
    limit_now,
    stage_inputs,
    untrue_entry,
    why_undecided,
)
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
NEW_SEGMENTS: Final = Kind(
    "new segments", "every batch, every entry of its indexes, and the plan's counts", is_log=True
)
ORIGINALS: Final = Kind("new segments", "its batches against the kept originals")


MARKERS_RESULT: ResultKey[PartitionDecision | Skipped] = ResultKey("markers")


class KeyFacts(NamedTuple):
    """Key compaction of one partition, whose decisions replace those of ``markers``.

    Attributes:
        compaction: decisions of the key compaction.
        scratch_bytes: upper limit of the disk space that its keys take in a scratch folder, in bytes.
    """

    compaction: Compaction
    scratch_bytes: int


COMPACT_RESULT: ResultKey[KeyFacts | Skipped] = ResultKey("keys")


class Markers(Fix):
    """Fix ``markers``, which rewrites segments without obsolete markers and empty batches, and merges neighbours."""

    name = "markers"
    reads_logs = True
    after = ("leftovers", "compact")
    previews = True
    asks_others = True
    takes = (
        "__consumer_offsets, __transaction_state, and topics that --topic-config FILE, the broker's configuration or "
        "--set says are compacted"
    )

    def wants(self, context: Context, partition: Partition) -> bool:
        """Return whether to take a partition; if none was named, every one that the cleaner would compact."""
        options = context.options
        named = bool(options.topics or options.partitions)
        return named or context.settings.topic(partition.topic).compacts or bool(partition.unreadable)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Decide on each partition; one failure never stops the others (as KIP-346 asks of the cleaner)."""
        left_to_us = [analysis for analysis in analyses if decided_by_key(analysis) is None]
        left_alone = {
            analysis.partition.folder: cannot_compact(analysis.partition, analysis.settings)
            for analysis in left_to_us
        }
        read_logs(
            context, [analysis for analysis in left_to_us if left_alone[analysis.partition.folder] is None]
        )
        find_evidence(
            context,
            [analysis.partition for analysis in left_to_us if left_alone[analysis.partition.folder] is None],
        )
        for analysis in left_to_us:
            reason = left_alone[analysis.partition.folder]
            if reason is None and analysis.log is not None:
                reason = analysis.log.problem
            analysis.put(MARKERS_RESULT, reason or _decide(context, analysis))
        if purpose == "plan":  # check compares every .txnindex with its log anyway
            _check_transaction_indexes(context, left_to_us)

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return KR101, and the segments that are rewritten."""
        decision = analysis.result(MARKERS_RESULT)
        if decision is None:
            return Proposal()
        if isinstance(decision, Skipped):
            note = f"its markers are left alone ({decision.code}): {decision.why}"
            return Proposal(left=decision, left_note=note)
        evidence = with_bytes(evidence_of(context, analysis.partition), decision)
        return Proposal(
            bloat_findings(context, analysis, decision),
            changes=tuple(rewrite_of(analysis, group) for group in decision.groups if group.changes),
            notes=notes_of(decision),
            compacted=Compacted(decision, evidence),
        )

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Copy what stays; the decisions are made again and must be the plan's."""
        stage_groups(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield readings of every new batch and index entry; with originals, also of each batch against them."""
        return verify_groups(work, staging)


MARKERS = Markers()


def decided_by_key(analysis: PartitionAnalysis) -> Compaction | None:
    """Return the decisions of key compaction, which include the rules of markers; None if there are none."""
    decided = analysis.result(COMPACT_RESULT)
    return decided.compaction if isinstance(decided, KeyFacts) else None


def left_alone(analysis: PartitionAnalysis) -> Skipped | None:
    """Return why no decision on a partition is possible; None if one was made, or none was requested."""
    if analysis.log is not None and analysis.log.problem is not None:
        return analysis.log.problem
    decided = analysis.result(MARKERS_RESULT) or analysis.result(COMPACT_RESULT)
    return decided if isinstance(decided, Skipped) else None


def transaction_indexes_disagree(analysis: PartitionAnalysis) -> bool:
    """Return whether reading the logs met a transaction index that is damaged or contradicts the markers."""
    reason = left_alone(analysis)
    return reason is not None and reason.code in TXN_CODES


# -- decisions


def policy_or_left(context: Context, analysis: PartitionAnalysis) -> MarkerPolicy | Skipped:
    """Return the inputs of compaction for a partition that was read, or why they are missing."""
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


def _decide(context: Context, analysis: PartitionAnalysis) -> PartitionDecision | Skipped:
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


def _check_transaction_indexes(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Skip a partition if an index entry that would be carried over is not true.

    Once its markers are removed, nothing could prove such an entry wrong any more.
    """
    carrying = [(analysis, logs) for analysis in analyses if (logs := _replayed(context, analysis))]
    if not carrying:
        return
    from krepair.rewrite.indexes.transactions import TxnItem, inspect_txn

    items = (
        (analysis, TxnItem(place=place_of(context.view, analysis.partition), segments=logs, present=()))
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
    """Return (base offset, bytes) of the logs that prove the partition's index entries; none where nothing is lost.

    Entries behind damage, which only the active log may have, cannot be proven.
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
    """Return why a start would fail once these groups are rewritten, or None."""
    return why_a_start_would_fail(
        analysis.partition.folder,
        policy,
        decision.log_end_offset,
        changed,
        version=context.version,
        clean_shutdown=context.view.clean_shutdown,
    )


def _scan_held(context: Context, analysis: PartitionAnalysis, policy: MarkerPolicy) -> Skipped | None:
    """Scan segments with markers that stay for other replicas again, now that these are known."""
    bases = [base for base, _ in _segments_with_held_markers(analysis, policy)]
    nobody = NeedsRescan(np.empty((0, 2), np.int64), tuple(bases))
    return _scanned(context, analysis, policy, nobody)


def _segments_with_held_markers(
    analysis: PartitionAnalysis, policy: MarkerPolicy
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (base offset, markers that stay for other replicas) of the segments that have some."""
    for facts in analysis.segments:
        held = held_between(policy, facts.base_offset, facts.summary.last_offset + 1)
        if held:
            yield facts.base_offset, held


def _scan_again(
    context: Context, analysis: PartitionAnalysis, policy: MarkerPolicy, needed: NeedsRescan
) -> PartitionDecision | Skipped:
    """Scan segments again, now that it is known whose markers stay."""
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
    """Scan some segments again; why that failed, or None."""
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
        _policy(context, analysis, others),
        first_dirty_offset=context.view.cleaner.offsets.get(analysis.partition.key, -1),
        writes_horizons=stamped or (version is not None and version >= WRITES_HORIZONS_SINCE),
        keeps_all=kind == NONE,
        latest_horizon_ms=latest_horizon_ms(kind, now_ms, analysis.settings.delete_retention_ms),
        mixed_epochs=kind == "only-replica",
    )


def _policy(context: Context, analysis: PartitionAnalysis, others: OtherReplicas) -> MarkerPolicy:
    """Return the inputs that ``plan`` and ``apply`` share, without those on evidence and time, which the plan holds.

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
    """Return the high watermark that decisions use: the log end if the user asked for it."""
    if context.options.assume_high_watermark == "log-end":
        return max(analysis.high_watermark, log_end_of(analysis.segments))
    return analysis.high_watermark


# -- findings


def bloat_findings(
    context: Context, analysis: PartitionAnalysis, decision: PartitionDecision
) -> Iterator[Finding]:
    """Yield KR101: the bytes that compaction of markers would free."""
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
    """Return the command for a plan that may remove markers; without evidence it would change nothing.

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
    """Return the lines for the reviewer."""
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
    """Return the base offset of the segment whose producer snapshot a broker since 2.8 loads, -1 if it loads another.

    A clean stop leaves a snapshot at the log end. Without it, all snapshots behind the last segment but the newest are
    deleted at the start, and so are those that are named after no segment.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    bases = [segment.base_offset for segment in partition.segments]
    if not bases or newest >= bases[-1]:
        return -1
    return newest_snapshot([one for one in partition.snapshots if one.offset in bases], newest)[0]


def _merged_away_snapshots(partition: Partition, sources: Sequence[SourceSegment]) -> tuple[str, ...]:
    """Return the snapshots of merged segments: 2.8+ deletes them too (KAFKA-9393), but never the newest."""
    gone = {source.base_offset for source in sources[1:]}
    return tuple(snapshot.file.name for snapshot in partition.snapshots[:-1] if snapshot.offset in gone)


# -- apply


def groups_of(staging: Staging) -> list[RewriteSegments]:
    """Return the groups of segments among the changes of a staging."""
    return [change for change in staging.changes if isinstance(change, RewriteSegments)]


def stage_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Copy, recheck, finish and verify the groups; each partition's problem goes into its ``Staging``."""
    _copy(work, stagings)
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                _recheck(work, staging)
    finish_groups(work, stagings)
    _prove(work, stagings)


def _prove(work: Work, stagings: Sequence[Staging]) -> None:
    """Prove that no other replica needs the removed markers, before the first swap.

    A replica that keeps a transaction's batches without its marker would serve aborted records as committed ones, or
    hold back its last stable offset for ever.
    """
    staged: list[Staged] = []
    for staging in stagings:
        with staging.taking_problems():
            if staging.problem is None and groups_of(staging):
                place = work.place(staging)
                results = {
                    source.base_offset: f"{staging.stage_folder}/{log_name(group.base_offset)}"
                    for group in groups_of(staging)
                    for source in group.sources
                }
                excised = {
                    change.base_offset
                    for change in staging.plan.changes
                    if isinstance(change, MendLog) and change.method != "cut"
                }
                logs = tuple(
                    (base_offset, f"{place.stem(base_offset)}.log", size)
                    for base_offset, size in _logs_now(staging, work.all_facts(staging))
                    if base_offset not in excised  # still damaged at this point, and no source of a group
                )
                staged.append(Staged(staging, place, other_logs_now(work, staging), logs, results))
    prove_markers(work, staged)


def _logs_now(staging: Staging, facts: Sequence[SegmentFacts]) -> list[tuple[int, int]]:
    """Return (base offset, bytes of valid batches) of all logs; a finished group has those of its new log.

    Nobody needs the markers that a finished group has lost, as is proven, so its new log stands for its sources.
    """
    sizes = {segment.base_offset: segment.summary.valid_bytes for segment in facts}
    for group in staging.plan.changes:
        if isinstance(group, RewriteSegments) and not group.loses_records and group.change_id in staging.made:
            for source in group.sources:
                sizes.pop(source.base_offset, None)
            sizes[group.base_offset] = group.log_bytes
    return sorted(sizes.items())


# -- copy


def _copy(work: Work, stagings: Sequence[Staging]) -> None:
    from krepair.rewrite.segments.stage import stage

    jobs = [
        (staging, item)
        for staging in stagings
        if staging.problem is None
        for item in _prepared(work, staging)
    ]
    items = [item for _, item in jobs]
    crcs: dict[tuple[str, int], int] = {}
    for index, result in work.engine.map(stage, items):
        staging, item = jobs[index]
        source = item.change.sources[item.source]
        work.take_facts(staging, source.base_offset, result, with_txn_index=True)
        if isinstance(result, ScanResult):
            crcs[item.change.change_id, source.base_offset] = result.written_crc
    for staging in stagings:
        for group in groups_of(staging):
            parts = tuple(
                (source.kept_bytes, crcs.get((group.change_id, source.base_offset), 0))
                for source in group.sources
            )
            staging.staged[group.change_id] = StagedGroup(parts)


def _prepared(work: Work, staging: Staging) -> list[StageItem]:
    """Make the folders and files that the copies are written into; return the items that write them."""
    items: list[StageItem] = []
    planned = staging.planned
    with staging.taking_problems():
        for group in groups_of(staging):
            check_fresh(staging.folder, staging.plan, group)
        staging.folder.make_private_folders()
        for group in groups_of(staging):
            items.extend(_stage_items(work, staging, group, planned))
    return items if staging.problem is None else []


def _stage_items(
    work: Work, staging: Staging, group: RewriteSegments, planned: Mapping[str, FileFingerprint]
) -> list[StageItem]:
    target = f"{staging.stage_folder}/{log_name(group.base_offset)}"
    if work.disk.tree.is_there(target):
        work.disk.unlink(target)
    work.disk.reserve(target, group.log_bytes)
    items = []
    position = 0
    for source in group.sources:
        file = planned.get(log_name(source.base_offset))
        items.append(
            StageItem(
                place=work.place(staging),
                change=replace(group, sources=(source,)),  # the other groups need not travel with the item
                source=0,
                target=target,
                out_position=position,
                headers="" if file is None else file.digest,
                now_ms=work.plan.policy.now_ms,
                high_watermark=work.scan_watermark(staging),
            )
        )
        position += source.kept_bytes
    return items


# -- recheck


def _recheck(work: Work, staging: Staging) -> None:
    """Decide again from fresh scans, and compare with the plan.

    Raises:
        StalePlanError: the decisions differ.
        UnreadableError: a producer snapshot could not be read.
    """
    if staging.decided:
        check_decisions(staging, staging.decided)
        return
    facts = work.all_facts(staging, with_txn_index=True)
    policy = policy_now(work, staging, facts, read_others_now(work, staging, facts, work.place(staging)))
    minded = why_undecided(facts, policy)
    if minded is not None:
        raise StalePlanError(f"{staging.plan.folder}: {minded.why}")
    staging.decided.update(stage_inputs(facts, policy, dict(staging.plan.kept_last)))
    check_decisions(
        staging, staging.decided, lambda: f"may no longer be compacted: {limit_now(facts, policy)}"
    )


def check_decisions(
    staging: Staging, decided: Mapping[int, StageInputs], why_not: Callable[[], str] | None = None
) -> None:
    """Check that the repeated decisions on each source are those of the plan.

    Args:
        staging: staging of the partition.
        decided: base offset -> repeated decision, for the segments that may still be compacted.
        why_not: gives the reason why a segment may no longer be compacted.

    Raises:
        StalePlanError: a decision differs; the message names the segment.
    """
    for source in (source for group in groups_of(staging) for source in group.sources):
        planned = StageInputs(
            source.carried_open,
            source.keep_positions,
            source.protected,
            source.drop_unstamped,
            source.keeps,
        )
        now = decided.get(source.base_offset)
        if now != planned:
            why = (
                why_not()
                if now is None and why_not
                else "what stays was decided again, and is not what the plan has"
            )
            where = f"{staging.plan.folder}/{log_name(source.base_offset)}"
            raise StalePlanError(f"{where}: {why}")


def other_logs_now(work: Work, staging: Staging) -> tuple[ReplicaLog, ...]:
    """Return the logs of the other replicas on which a partition's part of the plan rests, as they are now.

    Raises:
        StalePlanError: a log is gone or has changed.
    """
    evidence = staging.plan.evidence
    if not isinstance(evidence, Evidence) or evidence.kind == "none":
        return ()
    mine = replica_state(work.view, staging.listed)
    moved = work.moved.get((mine.topic, mine.partition))
    if moved is not None:
        raise StalePlanError(moved)
    return tuple(planned_logs_now(evidence.logs, work.view, mine, work.other_dirs))


def read_others_now(
    work: Work, staging: Staging, facts: Sequence[SegmentFacts], place: Place
) -> OtherReplicas:
    """Read the other replicas on which a partition's part of the plan rests.

    Raises:
        StalePlanError: a log is gone, has changed, or is no longer readable.
    """
    logs = other_logs_now(work, staging)
    closed = tuple(_logs_now(staging, facts[:-1]))
    [others_read] = read_others(
        work.engine, work.scratch.path, [(LogsItem(place=place, segments=closed), logs)]
    )
    if isinstance(others_read, NotKnownError):
        raise StalePlanError(f"{staging.plan.folder}: {others_read}") from others_read
    return others_read


def policy_now(
    work: Work, staging: Staging, facts: Sequence[SegmentFacts], others: OtherReplicas
) -> MarkerPolicy:
    """Return the plan's inputs of compaction, with the high watermark and the producers as they are now.

    Raises:
        StalePlanError: there is no high watermark any more.
        UnreadableError: a producer snapshot could not be read.
    """
    # Without a high watermark nobody knows what is committed: a removed record might have been the last committed one
    # of its key.
    if work.high_watermark(staging) < 0 <= staging.plan.high_watermark:
        text = f"{staging.plan.folder}: its high watermark is no longer recorded"
        if not work.plan.policy.assume_high_watermark:
            raise StalePlanError(f"{text}; the plan has {staging.plan.high_watermark}")
    try:
        policy = _policy(work.context, work.analysis(staging, facts), others)
    except OSError as error:
        raise UnreadableError(f"{staging.plan.folder}: {error}") from error
    planned = staging.plan
    return dataclasses.replace(policy, horizon=str(planned.horizon_ms), keeps_all=planned.keeps_all)


# -- finish


def finish_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Build the indexes of staged logs, and read all staged files again."""
    from krepair.rewrite.segments.stage import finish

    jobs: list[tuple[tuple[Staging, str], FinishItem]] = []
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                jobs += [
                    ((staging, group.change_id), finish_item(work, staging, group, staging.stage_folder))
                    for group in groups_of(staging)
                ]
    for (staging, change_id), result in work.engine.each(finish, jobs):
        if isinstance(result, Failed):
            staging.fails(result)
            continue
        known = staging.staged.get(change_id, StagedGroup())
        staging.staged[change_id] = known._replace(made=result.made)


def finish_item(
    work: Work, staging: Staging, group: RewriteSegments, folder: str, *, make: bool = True
) -> FinishItem:
    """Return the item that finishes a group in a folder, or with ``make=False`` only verifies it there.

    Raises:
        OSError: the file whose owner and mode the new files take over cannot be read.
    """
    known = staging.staged.get(group.change_id, StagedGroup())
    like = read_attributes(_owner_and_mode_from(staging.folder, group), staging.folder.tree)
    return FinishItem(
        place=work.place(staging),
        change=group,
        stage=folder,
        attributes=like._replace(mtime_ns=group.mtime_ns),
        index_interval_bytes=work.settings(staging).index_interval_bytes,
        make=make,
        parts=known.parts,
        made=dict(known.made),
        ends_in_records=_ends_in_records(staging, group),
    )


def _ends_in_records(staging: Staging, group: RewriteSegments) -> bool:
    """Return whether a new segment has to end with records: if more segments of a coordinator's log follow it."""
    if staging.plan.topic != TRANSACTIONS_TOPIC:
        return False
    last = log_name(group.sources[-1].base_offset)
    return any(name.endswith(LOG) and name > last and file.size for name, file in staging.planned.items())


def _owner_and_mode_from(folder: PartitionFolder, group: RewriteSegments) -> str:
    """Return the file whose owner and mode the new files take over: the last original, in place or in the backups."""
    name = log_name(group.sources[-1].base_offset)
    for path in (f"{folder.private}/keep/{name}", f"{folder.path}/{name}"):
        if folder.tree.is_there(path):
            return path
    return f"{folder.path}/{log_name(group.base_offset)}"  # purged: only the new one is left


# -- verify


def verify_groups(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Compare new segments with the plan; with ``work.originals`` also with the backups.

    A purge removes the backups.
    """
    from krepair.rewrite.segments.verify import OriginalsItem, compare_originals

    yield from verify_finished_groups(work, staging)
    if work.originals and staging.keep:
        for group in groups_of(staging):
            if log_name(group.base_offset) not in staging.freed:
                item = OriginalsItem(place=work.place(staging), change=group, keep=staging.keep)
                yield SecondReading(group, ORIGINALS, compare_originals, (item,))


def verify_finished_groups(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield readings of every batch, every index entry and the plan's counts of new segments."""
    from krepair.rewrite.segments.stage import finish

    for group in groups_of(staging):
        item = finish_item(work, staging, group, staging.folder.path, make=False)
        yield SecondReading(group, NEW_SEGMENTS, finish, (item,))
