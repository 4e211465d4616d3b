"""Decisions of ``--fix compact``: the partitions that are compacted by key, and the records that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from krepair.checks.catalogue import Finding, Severity
from krepair.engine.items import Failed
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context, place_of
from krepair.fixes.dead_cleaner import has_cleaner_entry, waiting_segments
from krepair.fixes.evidence import OTHERS, NotKnownError, forget_logs, rows_elsewhere
from krepair.fixes.gate import cannot_compact
from krepair.fixes.logs import Scanned, scan_item
from krepair.fixes.markers.decide import COMPACT_RESULT, KeyFacts, left_by_a_start, policy_or_left
from krepair.formats.filenames import TRANSACTIONS_TOPIC, log_name
from krepair.formats.words import count_text
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.plan.model import KeyCompaction
from krepair.rules.coordinator_load import load_stops
from krepair.rules.model import GroupDecision, Skipped
from krepair.rules.outcome import CompactedSource
from krepair.rules.own_policy import not_asked_for

if TYPE_CHECKING:
    from krepair.rewrite.compaction.items import KeysResult
    from krepair.rewrite.compaction.partitions import Compaction, CompactionInput
    from krepair.rewrite.compaction.rows import RowFile

_SCRATCH_COMMAND = Next.of("plan", LOG_DIR, "--fix", "compact", "--scratch", "DIR", out=PLAN)


def waiting_findings(context: Context, analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield KR108 if the cleaner makes no progress and the topic's own configuration allows key compaction."""
    partition, view = analysis.partition, context.view
    if partition.unreadable or why_skipped(analysis) is not None:
        return
    waiting = waiting_segments(view, analysis, context.options.now_ms)
    size = sum(segment.log.size for segment in waiting)
    if size:
        no_entry = "; cleaner-offset-checkpoint has no entry for this partition"
        never = "" if has_cleaner_entry(view, analysis) else no_entry
        yield Finding(
            rule="KR108",
            partition=partition.folder,
            evidence=(
                f"{count_text(len(waiting), 'segment')} with {size} bytes in total not cleaned yet; "
                f"krepair plan --fix compact says how many of these bytes can be removed{never}"
            ),
            bytes=size,
        )


def coordinator_load_findings(context: Context, analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield KR109 if a transaction coordinator cannot load the partition to its end."""
    if analysis.partition.topic != TRANSACTIONS_TOPIC or analysis.is_read_only:
        return
    stops = load_stops(analysis.segments, analysis.log_start, context.version)
    for stop in stops:
        where = (
            f"offset {stop.offset}, the last one of this segment, has an emptied batch"
            if stop.position >= 0
            else f"nothing from offset {stop.offset} up to the log end {stop.base_offset}"
        )
        way = (
            "no later segment has a batch, so nothing can take its place: start 3.9.2 or later"
            if stop.is_end
            else "--fix compact removes it if it lies in the cleanable range"
        )
        yield Finding(
            rule="KR109",
            partition=analysis.partition.folder,
            file=log_name(stop.base_offset),
            position=stop.position,
            evidence=f"{where}: a broker before {stop.fixed_in} reads it forever; {way}",
            severity=None if context.options.broker_version else Severity.INFORMATION,
            fix="none" if stop.is_end else "",
        )


def why_not_asked_for(partition: Partition, settings: TopicSettings) -> str:
    policy = next(setting for setting in settings.settings if setting.key == "cleanup.policy")
    return not_asked_for(partition.topic, policy.value, policy.source)


def why_skipped(analysis: PartitionAnalysis) -> Skipped | None:
    """Return why a partition must not be compacted by key, whatever its log holds; None if nothing forbids it."""
    partition, settings = analysis.partition, analysis.settings
    why = "" if partition.unreadable else why_not_asked_for(partition, settings)
    return Skipped("not-asked", why) if why else cannot_compact(partition, settings)


def read_logs_and_keys(
    context: Context, analyses: Sequence[PartitionAnalysis]
) -> dict[str, dict[int, KeysResult]]:
    """Scan the logs that were not read yet, and find the keys of all closed segments in the same reading.

    Returns:
        Keys by partition folder and base offset. The compaction range is known only after the scan; keys past it are
            unused.
    """
    from krepair.rewrite.compaction.headers import note_bytes_of
    from krepair.rewrite.compaction.items import KeysItem
    from krepair.rewrite.compaction.partitions import rows_inline_of
    from krepair.rewrite.compaction.tasks import find_keys
    from krepair.scan.scan import scan

    unread = [analysis for analysis in analyses if analysis.log is None]
    closed = [(analysis, segment) for analysis in unread for segment in analysis.partition.segments[:-1]]
    active = [
        (analysis, analysis.partition.segments[-1]) for analysis in unread if analysis.partition.segments
    ]
    items = [
        KeysItem(
            place=place_of(context.view, analysis.partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
            aborted=b"",
            secret=_secret(analysis.partition),
            rows_inline=rows_inline_of(len(closed)),
            scratch=context.scratch.path,
            scan=scan_item(context, analysis, segment),
            note_bytes=note_bytes_of(len(closed)),
        )
        for analysis, segment in closed
    ]
    scans = [scan_item(context, *job) for job in active]
    scanned = Scanned(beside_broker=context.beside_broker)
    keys: dict[str, dict[int, KeysResult]] = {}
    for index, result in context.engine.map(find_keys, items):
        analysis, segment = closed[index]
        keys.setdefault(analysis.partition.folder, {})[segment.base_offset] = result
        scanned.take(analysis, segment, result.scan or Failed(result.failure, result.why))
    for index, scan_result in context.engine.map(scan, scans):
        scanned.take(*active[index], scan_result)
    scanned.put_into(unread)
    return keys


def _secret(partition: Partition) -> bytes:
    """Return the secret for the hashes of keys, which is known before anything is read."""
    from krepair.rules.compaction import secret_of

    logs = (segment.log for segment in partition.segments)
    return secret_of(f"{log.name} {log.size} {log.mtime_ns}" for log in logs)


def compaction_input(
    context: Context, analysis: PartitionAnalysis, keys: Mapping[int, KeysResult]
) -> CompactionInput | Skipped:
    from krepair.rewrite.compaction.partitions import CompactionInput

    if analysis.log is not None and analysis.log.problem is not None:
        return analysis.log.problem
    policy = policy_or_left(context, analysis)
    if isinstance(policy, Skipped):
        return policy
    place, secret = place_of(context.view, analysis.partition), _secret(analysis.partition)
    elsewhere: tuple[RowFile, ...] = ()
    others = analysis.result(OTHERS)
    if others is not None:
        try:
            elsewhere = rows_elsewhere(context.engine, others, secret, context.scratch.path)
        except NotKnownError as error:
            forget_logs(context, analysis.partition, str(error))
            return compaction_input(context, analysis, keys)
    return CompactionInput(
        place,
        analysis.segments,
        policy,
        secret,
        keys,
        elsewhere=elsewhere,
    )


def decide_keys(context: Context, able: Sequence[tuple[PartitionAnalysis, CompactionInput]]) -> None:
    if not able:
        return
    from krepair.rewrite.compaction.partitions import decide_compaction, prepare, scratch_bytes_at_most

    prepared = prepare(context.engine, [job for _, job in able], context.scratch.path)
    outcomes = decide_compaction(context.engine, prepared)
    for (analysis, job), outcome in zip(able, outcomes, strict=True):
        needs = scratch_bytes_at_most([job])
        if not isinstance(outcome, Skipped):
            changed = changed_groups(outcome)
            outcome = left_by_a_start(context, analysis, job.policy, outcome.decision, changed) or outcome
        if isinstance(outcome, Skipped):
            analysis.put(COMPACT_RESULT, _with_advice(outcome, needs))
        else:
            analysis.put(COMPACT_RESULT, KeyFacts(outcome, needs))


def changed_groups(compaction: Compaction) -> list[GroupDecision]:
    """Return the groups of segments that are rewritten."""
    return [
        group for group in compaction.decision.groups if group.sources[0].base_offset in compaction.changed
    ]


def _with_advice(reason: Skipped, needs: int) -> Skipped:
    """Return the reason with the command to type and the space needed, if the keys do not fit into memory."""
    if reason.code != "disk":
        return reason
    room = f"in a scratch folder its keys take at most {needs} bytes"
    return Skipped("scratch", f"{reason.why}; {room}", _SCRATCH_COMMAND)


def group_with_keys(group: GroupDecision, keys: Mapping[int, CompactedSource]) -> GroupDecision:
    sources = (replace(source, compacted=keys[source.base_offset]) for source in group.sources)
    return GroupDecision(tuple(sources), group.last_offset)


def keys_of(decided: KeyFacts, bytes_before: int) -> KeyCompaction:
    """Return the figures of a partition's key compaction."""
    compaction = decided.compaction
    total = compaction.total
    return KeyCompaction(
        records=total.records,
        kept=total.kept,
        superseded=total.superseded,
        tombstones_dropped=total.tombstones_dropped,
        tombstones_kept=total.tombstones_kept,
        aborted=total.aborted,
        keyless=total.keyless,
        keys=compaction.keys,
        rewritten=total.rewritten,
        emptied=total.emptied,
        bytes_before=bytes_before,
        bytes_after=sum(outcome.kept_bytes for outcome in compaction.decision.outcomes),
        scratch_bytes=decided.scratch_bytes,
        horizons=compaction.horizons,
    )
