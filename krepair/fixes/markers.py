"""Marker-only spans: transaction markers and emptied batches that no reader needs any more go (KAFKA-8335)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.fixes.compact_seen import COMPACT_SEEN, decided_by_key
from krepair.fixes.context import Context, recorded
from krepair.fixes.evidence import evidence_of, find_evidence, with_bytes
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.histories import why_forked
from krepair.fixes.logs import facts_of, read_logs, scan_item, scan_problem
from krepair.fixes.producers_at_end import newest_snapshot
from krepair.fixes.second_readings import Applied, SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Sight, Survey, log_end_of
from krepair.fixes.untouched import cannot_compact
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.kernels import classes as c
from krepair.logdir.reading import why
from krepair.logdir.values import Partition
from krepair.plan.model import (
    Change,
    KeepOriginal,
    RewriteSegments,
    SourceSegment,
    Span,
)
from krepair.plan.view import time_text
from krepair.rules import span as spans
from krepair.rules.evidence import NONE, WITH_CLUSTER, latest_horizon_ms
from krepair.rules.grouping import index_bytes_at_most
from krepair.rules.markers import decide, held_between
from krepair.rules.model import (
    GroupDecision,
    LeftAlone,
    MarkerPolicy,
    NeedsRescan,
    PartitionDecision,
    SegmentFacts,
)
from krepair.rules.open_snapshot import why_a_start_would_fail

STAMPS_SINCE = (3, 1, 0)
_LATEST: Final = "unlimited"
TXN_CODES = frozenset({"txnindex-disagrees", "txnindex-damage"})
MARKER_CLASSES = (
    c.MARKER_DATA_REMAINS,
    c.MARKER_UNSTAMPED,
    c.MARKER_STAMP_TO_COME,
    c.MARKER_STAMP_PAST,
    c.MARKER_EPOCH,
)


class SeenMarkers(NamedTuple):
    """What was decided on one partition.

    Attributes:
        decision: for each segment; None if it is left alone.
        left: why, else None.
    """

    decision: PartitionDecision | None
    left: LeftAlone | None


MARKERS_SEEN: Sight[SeenMarkers] = Sight("markers")


class Markers(Fix):
    """Segments are written anew without the markers and emptied batches that go, neighbours merged."""

    name = "markers"
    after = ("leftovers", "compact")
    mends = frozenset({"KR101"})
    previews = True
    asks_others = True
    takes = (
        "__consumer_offsets, __transaction_state, and topics that --topic-config FILE, the broker's configuration or "
        "--set says are compacted"
    )

    def wants(self, context: Context, partition: Partition) -> bool:
        """Where nothing was named: every partition that the cleaner would compact."""
        options = context.options
        named = bool(options.topics or options.partitions)
        return named or context.settings.topic(partition.topic).compacts or bool(partition.unreadable)

    def reads_whole(self, partition: Partition, way: str) -> bool:
        """Every batch is decided on."""
        return bool(partition.segments)

    def look(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Decide on each; one partition's failure never stops the others (KIP-346)."""
        left_to_us = [survey for survey in surveys if decided_by_key(survey) is None]
        left_alone = {one.partition.folder: cannot_compact(one.partition, one.settings) for one in left_to_us}
        read_logs(context, [one for one in left_to_us if left_alone[one.partition.folder] is None])
        find_evidence(
            context, [one.partition for one in left_to_us if left_alone[one.partition.folder] is None]
        )
        for survey in left_to_us:
            left = left_alone[survey.partition.folder]
            if left is None and survey.log is not None:
                left = survey.log.problem
            survey.put(MARKERS_SEEN, SeenMarkers(None, left) if left else _decide(context, survey))

    def findings(self, context: Context, survey: Survey) -> Iterator[Finding]:
        """KR101."""
        return bloat_findings(context, survey)

    def propose(self, context: Context, survey: Survey) -> Proposal:
        seen = survey.seen(MARKERS_SEEN)
        if seen is None:
            return Proposal()
        if seen.decision is None:
            assert seen.left is not None
            note = f"its markers are left alone ({seen.left.code}): {seen.left.why}"
            return Proposal(left=seen.left, left_note=note)
        return _proposal(context, survey, seen.decision)

    def owns(self, change: Change) -> bool:
        """Segments that are written anew without markers and emptied batches, and with all their records."""
        return isinstance(change, RewriteSegments) and not change.loses_records

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Copy what stays; the decisions are made again and must be the plan's."""
        from krepair.fixes.markers_staging import stage_groups

        stage_groups(work, stagings)

    def second_readings(self, applied: Applied) -> Iterator[SecondReading]:
        """Every batch and every index entry of the new segments; with the originals, each batch against them."""
        from krepair.fixes.markers_readings import groups_again

        return groups_again(applied)


MARKERS = Markers()


def decision_of(survey: Survey) -> PartitionDecision | None:
    """What was decided, None if nothing was."""
    seen = survey.seen(MARKERS_SEEN)
    return None if seen is None else seen.decision


def left_alone(survey: Survey) -> LeftAlone | None:
    """Why no decision can be made on a partition: its log, or the rules; None if one was made, or none asked."""
    if survey.log is not None and survey.log.problem is not None:
        return survey.log.problem
    seen = survey.seen(MARKERS_SEEN)
    by_key = survey.seen(COMPACT_SEEN)
    if seen is None and by_key is not None:
        return by_key.left
    return None if seen is None else seen.left


def transaction_indexes_disagree(survey: Survey) -> bool:
    """Whether reading the logs found a transaction index that is damaged, or that the markers contradict."""
    left = left_alone(survey)
    return left is not None and left.code in TXN_CODES


# -- decisions


def policy_or_left(context: Context, survey: Survey) -> MarkerPolicy | LeftAlone:
    """Inputs of compaction for a partition that was read, or why they cannot be had."""
    if survey.high_watermark < 0 and not context.options.assume_high_watermark:
        return LeftAlone(
            "no-high-watermark",
            "replication-offset-checkpoint has no line for it, so it is not known what is replicated",
            "krepair plan LOGDIR --assume-high-watermark log-end --out PLAN",
        )
    try:
        policy = marker_policy(context, survey)
    except OSError as error:
        return LeftAlone("unreadable", f"{survey.partition.folder}: {why(error)}", damaged=True)
    return why_forked(context, survey, policy.high_watermark) or policy


def _decide(context: Context, survey: Survey) -> SeenMarkers:
    policy = policy_or_left(context, survey)
    if isinstance(policy, LeftAlone):
        return SeenMarkers(None, policy)
    problem = _scan_held(context, survey, policy)
    if problem is not None:
        return SeenMarkers(None, problem)
    outcome = decide(survey.segments, policy)
    if isinstance(outcome, NeedsRescan):
        outcome = _scan_again(context, survey, policy, outcome)
    if isinstance(outcome, LeftAlone):
        return SeenMarkers(None, outcome)
    changed = [group for group in outcome.groups if group.changes]
    left = why_a_start_would_fail(
        survey.partition.folder,
        policy,
        outcome.log_end_offset,
        changed,
        version=context.version,
        clean_shutdown=context.view.clean_shutdown,
    )
    return SeenMarkers(None, left) if left else SeenMarkers(outcome, None)


def _scan_held(context: Context, survey: Survey, policy: MarkerPolicy) -> LeftAlone | None:
    """Scan segments with markers that stay for other replicas again, now that these are known."""
    bases = [base for base, _ in _with_held(survey, policy)]
    nobody = NeedsRescan(np.empty((0, 2), np.int64), tuple(bases))
    return _scanned(context, survey, policy, nobody)


def _with_held(survey: Survey, policy: MarkerPolicy) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(base offset, markers that stay for other replicas) of the segments that have some."""
    for facts in survey.segments:
        held = held_between(policy, facts.base_offset, facts.summary.last_offset + 1)
        if held:
            yield facts.base_offset, held


def _scan_again(
    context: Context, survey: Survey, policy: MarkerPolicy, needed: NeedsRescan
) -> PartitionDecision | LeftAlone:
    """Scan segments again, now that it is known whose markers stay."""
    problem = _scanned(context, survey, policy, needed)
    if problem is not None:
        return problem
    outcome = decide(survey.segments, policy, needed.protected)
    if isinstance(outcome, NeedsRescan):
        why_left = "the partition changed while it was read"
        return LeftAlone("changed", why_left, "krepair plan LOGDIR --out PLAN")
    return outcome


def _scanned(context: Context, survey: Survey, policy: MarkerPolicy, needed: NeedsRescan) -> LeftAlone | None:
    """Scan some segments again; why that failed, or None."""
    from krepair.pipeline.scan import scan

    assert survey.log is not None
    segments = {segment.base_offset: segment for segment in survey.partition.segments}
    held = dict(_with_held(survey, policy))
    protected = tuple((int(pid), int(epoch)) for pid, epoch in needed.protected)
    items = [
        replace(
            scan_item(context, survey, segments[base], check_crc=False),
            high_watermark=policy.high_watermark,
            protected=protected,
            held_markers=np.array(held.get(base, ()), np.int64).tobytes(),
        )
        for base in needed.base_offsets
    ]
    again = {}
    for index, result in context.engine.map(scan, items):
        problem = scan_problem(result)
        if problem is not None:
            return problem
        base_offset = items[index].base_offset
        again[base_offset] = facts_of(segments[base_offset], result)
    facts = tuple(again.get(one.base_offset, one) for one in survey.segments)
    survey.log = survey.log._replace(segments=facts)
    return None


def marker_policy(context: Context, survey: Survey) -> MarkerPolicy:
    """Inputs of marker-only compaction for a partition that was read.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    topic, options = survey.settings, context.options
    log_end = log_end_of(survey.segments)
    snapshot_offset, snapshot = newest_snapshot(survey.partition.snapshots, log_end)
    version = version_of(options.broker_version)
    stamped = any(facts.summary.stamped for facts in survey.segments)
    high_watermark = survey.high_watermark
    if options.assume_high_watermark == "log-end":
        high_watermark = max(high_watermark, log_end)
    kind = evidence_of(context, survey.partition).kind
    held = context.others.get(survey.partition.folder)
    return MarkerPolicy(
        now_ms=options.now_ms,
        horizon=options.delete_horizon,
        delete_retention_ms=topic.delete_retention_ms,
        min_compaction_lag_ms=topic.min_compaction_lag_ms,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        producer_expiry_ms=context.settings.producer_expiry_ms,
        high_watermark=high_watermark,
        first_dirty_offset=recorded(context.view.cleaner.offsets, survey.partition, -1),
        stamps=stamped or (version is not None and version >= STAMPS_SINCE),
        merge=options.merge,
        snapshot_offset=snapshot_offset,
        snapshot=snapshot,
        keeps_all=kind == NONE,
        latest_horizon_ms=latest_horizon_ms(kind, options.now_ms, topic.delete_retention_ms),
        mixed_epochs=kind == "only-replica",
        held_markers=np.empty(0, np.int64) if held is None else held.markers,
    )


# -- findings


def bloat_findings(context: Context, survey: Survey) -> Iterator[Finding]:
    """KR101: what compaction of markers would free."""
    decision = decision_of(survey)
    if decision is None:
        return
    unlimited = next((choice for choice in decision.horizons if choice.name == _LATEST), None)
    before = sum(outcome.log_bytes for outcome in decision.outcomes)
    now = sum(outcome.kept_bytes for outcome in decision.outcomes)
    most = before - unlimited.log_bytes_after if unlimited is not None else before - now
    if most <= 0:
        return
    tallies = sum_tallies(survey.segments)
    markers = sum(int(tallies[number, c.T_BATCHES]) for number in MARKER_CLASSES)
    emptied = int(tallies[c.EMPTIED, c.T_BATCHES])
    needs_evidence = now == before and _keeps_all(decision)
    by_time = before - min(choice.log_bytes_after for choice in decision.horizons if choice.name != _LATEST)
    goes = (
        f"0 of {before:,} bytes can go whatever other replicas hold, {by_time:,} with evidence that no other replica "
        f"needs them, {most:,} with it and the latest horizon"
        if needs_evidence
        else f"{before - now:,} of {before:,} bytes can go {_by_what(decision)}, {most:,} with the latest horizon"
    )
    yield Finding(
        rule="KR101",
        partition=survey.partition.folder,
        evidence=(
            f"{count_text(markers, 'marker')} and {count_text(emptied, 'emptied batch', 'emptied batches')}; {goes}"
        ),
        bytes=most,
        command=_with_evidence(context, later=not by_time) if needs_evidence else "",
    )


def _with_evidence(context: Context, *, later: bool) -> str:
    """The plan that lets markers go; without evidence it would change nothing.

    Args:
        context: of the log directory.
        later: whether a later horizon has to be named, too.
    """
    words = ["--delete-horizon", time_text(context.options.now_ms)] if later else []
    return shlex.join(["krepair", "plan", context.view.path, *words, *WITH_CLUSTER, "--out", "PLAN"])


def _keeps_all(decision: PartitionDecision) -> bool:
    return any(choice.chosen and choice.name == spans.NONE for choice in decision.horizons)


def _by_what(decision: PartitionDecision) -> str:
    return "whatever other replicas hold" if _keeps_all(decision) else "by --delete-horizon"


def sum_tallies(segments: Sequence[SegmentFacts]) -> c.Tallies:
    """Tallies of all segments together."""
    total = c.no_tallies()
    for facts in segments:
        total += facts.summary.tallies
    return total


# -- plan


def _proposal(context: Context, survey: Survey, decision: PartitionDecision) -> Proposal:
    evidence = with_bytes(evidence_of(context, survey.partition), decision)
    return Proposal(
        changes=tuple(rewrite_of(survey, group) for group in decision.groups if group.changes),
        notes=notes_of(decision),
        fields={**fields_of(decision), "evidence": evidence},
    )


def notes_of(decision: PartitionDecision) -> tuple[str, ...]:
    """Lines for the reviewer."""
    return (*decision.notes, f"{count_text(decision.active_producers, 'active producer')} at the log end")


def fields_of(decision: PartitionDecision) -> dict[str, Any]:
    """What a plan says of the decisions on one partition, by field of ``PartitionPlan``."""
    span = decision.span
    return {
        "log_end_offset": decision.log_end_offset,
        "span": Span(
            start_offset=span.start_offset,
            end_offset=span.end_offset,
            limit=span.limit,
            limit_text=span.limit_text,
        ),
        "horizon_ms": decision.horizon_ms,
        "horizons": decision.horizons,
        "kept_last": decision.kept_last,
    }


def rewrite_of(survey: Survey, group: GroupDecision) -> RewriteSegments:
    """The change that makes one segment of a group."""
    sources = group.sources
    refs = {segment.base_offset: segment for segment in survey.partition.segments}
    aborted = sum(len(source.aborted_kept) for source in sources)
    log_bytes = group.kept_bytes
    return RewriteSegments(
        change_id=f"{survey.partition.folder}/{offset_name(sources[0].base_offset)}",
        base_offset=sources[0].base_offset,
        sources=sources,
        log_bytes=log_bytes,
        index_bytes_at_most=index_bytes_at_most(log_bytes, survey.settings.index_interval_bytes, aborted),
        batches=sum(source.kept_batches for source in sources),
        mtime_ns=refs[sources[-1].base_offset].log.mtime_ns,
        last_offset=group.last_offset,
        removes_snapshots=_merged_away_snapshots(survey.partition, sources),
        freed_at_purge=0,
        peak_extra_bytes=0,
        undo=KeepOriginal(),
    )


def _merged_away_snapshots(partition: Partition, sources: Sequence[SourceSegment]) -> tuple[str, ...]:
    """Snapshots named after segments that are merged away go, as on 2.8+ (KAFKA-9393); the newest never does."""
    gone = {source.base_offset for source in sources[1:]}
    return tuple(snapshot.file.name for snapshot in partition.snapshots[:-1] if snapshot.offset in gone)
