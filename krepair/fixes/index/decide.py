"""Decisions of ``--fix index``: the problems of a log directory's index files, and the files that are replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.checks.retention import Deletions, SegmentClock, deletions
from krepair.engine.items import Failed, LogsItem
from krepair.fixes.analysis import INDEXES_RESULT, PartitionAnalysis, ResultKey, indexes_of, next_start_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.files import replaced
from krepair.fixes.gate import Unsound, unsound_ranges, waits_for_leftovers_alone, why_unsound, why_untouched
from krepair.fixes.logs import Scanned, scan_item
from krepair.fixes.markers.decide import transaction_indexes_disagree
from krepair.formats.broker_version import Version, version_of
from krepair.formats.filenames import base_offset_of, log_name, offset_name, segment_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import time_text
from krepair.logdir.values import FileRef, Segment
from krepair.options import Options
from krepair.plan.model import ReplaceFile
from krepair.rules.aborts import may_be_untrue

if TYPE_CHECKING:
    from krepair.rewrite.indexes.segment import Depth, InspectItem, InspectResult
    from krepair.rewrite.indexes.transactions import TxnProblem, TxnResult

TRANSACTION_INDEXES_RESULT: ResultKey[TxnResult | Failed] = ResultKey("transaction indexes")


def transaction_indexes_of(analysis: PartitionAnalysis) -> TxnResult | Failed:
    """Return the result of checking the transaction indexes."""
    from krepair.rewrite.indexes.transactions import TxnResult

    return analysis.result(TRANSACTION_INDEXES_RESULT) or TxnResult()


def inspect_indexes(
    context: Context, analyses: Sequence[PartitionAnalysis], depth: Depth, *, trim_active: bool = False
) -> None:
    """Examine the offset and time indexes of partitions in one job.

    Padding in the active segment's indexes is normal and is not removed, unless ``trim_active``. A ``recovery`` in the
    same plan closes the active segment and itself rebuilds the indexes, which must then have all entries; so this
    function skips these indexes.
    """
    from krepair.rewrite.indexes.segment import inspect

    closes = "recovery" in context.options.fixes and not context.view.clean_shutdown and not trim_active
    work = [
        (analysis, segment)
        for analysis in analyses
        if not analysis.partition.unreadable
        for segment in _segments_to_judge(context, analysis)
        if not closes or segment is not analysis.partition.segments[-1]
    ]
    items = ((job, _inspect_item(context, *job, depth, trim_active=trim_active)) for job in work)
    by_folder: dict[str, dict[int, InspectResult | Failed]] = {}
    for (analysis, segment), result in context.engine.each(inspect, items):
        by_folder.setdefault(analysis.partition.folder, {})[segment.base_offset] = result
    for analysis in analyses:
        analysis.put(INDEXES_RESULT, by_folder.get(analysis.partition.folder, {}))


def _segments_to_judge(context: Context, analysis: PartitionAnalysis) -> tuple[Segment, ...]:
    """Return the segments whose indexes can be judged: a running broker still writes the active segment's indexes."""
    segments = analysis.partition.segments
    return segments[:-1] if context.beside_broker else segments


def _inspect_item(
    context: Context,
    analysis: PartitionAnalysis,
    segment: Segment,
    depth: Depth,
    *,
    trim_active: bool = False,
) -> InspectItem:
    from krepair.rewrite.indexes.segment import InspectItem

    return InspectItem(
        place=place_of(context.view, analysis.partition),
        base_offset=segment.base_offset,
        log_bytes=segment.log.size,
        interval_bytes=analysis.settings.index_interval_bytes,
        active=segment is analysis.partition.segments[-1] and not trim_active,
        depth=depth,
        clean=context.view.clean_shutdown,
    )


def rebuilt_by_a_load(
    context: Context, analyses: Sequence[PartitionAnalysis]
) -> Iterator[tuple[PartitionAnalysis, Segment, InspectResult | Failed]]:
    """Yield the segments that a broker up to 2.2 recovers when it loads the log, judged only by their index files."""
    from krepair.rewrite.indexes.segment import inspect

    items = (
        ((analysis, segment), replace(_inspect_item(context, analysis, segment, "truncate"), active=True))
        for analysis in analyses
        for segment in analysis.partition.segments
    )
    for (analysis, segment), inspected in context.engine.each(inspect, items):
        if (
            isinstance(inspected, Failed)
            or inspected.torn
            or inspected.last_timestamp < inspected.first_timestamp
        ):
            yield analysis, segment, inspected


def read_logs_and_indexes(
    context: Context,
    analyses: Sequence[PartitionAnalysis],
    depth: Depth = "check",
    *,
    trim_active: bool = False,
) -> None:
    """Scan every segment and examine its indexes in the same reading, because a log may be larger than memory."""
    from krepair.rewrite.indexes.segment import inspect_with_swaps

    readable = [analysis for analysis in analyses if not analysis.partition.unreadable]
    work = [(analysis, segment) for analysis in readable for segment in analysis.partition.segments]
    items = (
        (
            job,
            (scan_item(context, *job), _inspect_item(context, *job, depth, trim_active=trim_active)),
        )
        for job in work
    )
    scanned = Scanned()
    by_folder: dict[str, dict[int, InspectResult | Failed]] = {}
    for (analysis, segment), (scan_result, result) in context.engine.each(inspect_with_swaps, items):
        scanned.take(analysis, segment, scan_result)
        by_folder.setdefault(analysis.partition.folder, {})[segment.base_offset] = result
    scanned.put_into(readable)
    for analysis in readable:
        analysis.put(INDEXES_RESULT, by_folder.get(analysis.partition.folder, {}))


def inspect_transaction_indexes(
    context: Context, analyses: Sequence[PartitionAnalysis], depth: Depth
) -> None:
    """Compare transaction indexes with a replay of their logs, where a difference is possible.

    The comparison reads the whole partition. So the mode ``auto`` compares only if the reading for ``markers``
    contradicted the indexes, if a compacted partition has entries, or if a segment has no ``.index``. ``check``
    compares if entries exist or aborts are possible. ``regenerate`` always compares.
    """
    from krepair.rewrite.indexes.transactions import inspect_txn

    items = []
    for analysis in analyses:
        judged = _segments_to_judge(context, analysis)
        if judged and _replay_pays(context, analysis, depth):
            item = LogsItem(
                place=place_of(context.view, analysis.partition),
                segments=tuple((segment.base_offset, segment.log.size) for segment in judged),
            )
            items.append((analysis, item))
    results = list(context.engine.each(inspect_txn, items))
    doubted = [analysis for analysis, result in results if not isinstance(result, Failed) and result.problems]
    unsound = unsound_ranges(context, doubted) if doubted else {}
    for analysis, result in results:
        ranges = unsound.get(analysis.partition.folder)
        analysis.put(
            TRANSACTION_INDEXES_RESULT,
            result if isinstance(result, Failed) or not ranges else _without_unproven(result, ranges),
        )


def _without_unproven(result: TxnResult, ranges: Sequence[Unsound]) -> TxnResult:
    """Return the result without the problems that only a damaged part of the log could prove.

    The broker that wrote an entry had read the marker. If the entry were removed because the marker is unreadable now,
    consumers would read aborted records as committed records.
    """
    why = {
        problem.base_offset: why_unsound(ranges, problem.first_offset, problem.last_offset)
        for problem in result.problems
    }
    unproven = tuple(f"{segment_name(base, '.txnindex')}: {text}" for base, text in why.items() if text)
    problems = tuple(problem for problem in result.problems if not why[problem.base_offset])
    return replace(result, problems=problems, left=result.left + unproven)


def _replay_pays(context: Context, analysis: PartitionAnalysis, depth: Depth) -> bool:
    if analysis.partition.unreadable or depth == "truncate":
        return False
    entries = any(
        segment.txn_index and segment.txn_index.size for segment in _segments_to_judge(context, analysis)
    )
    if depth == "auto":
        # A start that recovers a segment without an .index rebuilds the .txnindex; with an .index the start trusts the
        # .txnindex.
        recovered = any(segment.index is None for segment in analysis.partition.segments)
        compacts = entries and analysis.settings.compacts
        return transaction_indexes_disagree(analysis) or compacts or recovered
    if depth == "regenerate":
        return True
    return may_be_untrue(entries=entries, summaries=(facts.summary for facts in analysis.segments))


def index_findings(analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield the findings on the index files of one partition."""
    time_indexes = {segment.base_offset: segment.time_index for segment in analysis.partition.segments}
    for base_offset, inspected in sorted(indexes_of(analysis).items()):
        if isinstance(inspected, Failed):
            yield Finding(rule="KR308", partition=analysis.partition.folder, evidence=inspected.why)
            continue
        for suffix, rule, position, text in inspected.problems:
            yield Finding(
                rule=rule,
                partition=analysis.partition.folder,
                file=segment_name(base_offset, suffix),
                position=position,
                evidence=text,
                bytes=_zeros(time_indexes[base_offset], position) if rule == "KR201" else 0,
            )
    replayed = transaction_indexes_of(analysis)
    if isinstance(replayed, Failed):
        yield Finding(rule="KR308", partition=analysis.partition.folder, evidence=replayed.why)
    for problem in () if isinstance(replayed, Failed) else replayed.problems:
        yield Finding(
            rule="KR204",
            partition=analysis.partition.folder,
            file=segment_name(problem.base_offset, ".txnindex"),
            position=problem.position,
            evidence=f"{problem.text}; read_committed consumers see aborted records, or miss committed ones",
        )
    missing = analysis.partition.missing_logs
    for orphan in analysis.partition.orphan_indexes:
        is_kept = base_offset_of(orphan.name) in missing
        sign = "; krepair keeps it, because its segment may be missing" if is_kept else ""
        yield Finding(
            rule="KR205",
            partition=analysis.partition.folder,
            file=orphan.name,
            evidence=f"{orphan.size} bytes without a .log of that base offset; the next start deletes it{sign}",
            bytes=orphan.size,
            fix="none" if is_kept else "",
        )


def _zeros(file: FileRef | None, position: int) -> int:
    """Return the number of zero bytes after a time index's entries; 0 if they do not begin at one position."""
    return file.size - position if file is not None and position >= 0 else 0


def index_changes(
    analysis: PartitionAnalysis, rewritten: set[int]
) -> tuple[tuple[ReplaceFile, ...], tuple[str, ...]]:
    """Return the files of one partition to replace, and notes on files that are not changed.

    Args:
        rewritten: base offsets of segments that get new indexes anyway.
    """
    from krepair.rewrite.indexes.segment import damaged_log

    folder = analysis.partition.folder
    changes: list[ReplaceFile] = []
    notes: list[str] = []
    damaged = {
        facts.base_offset: damaged_log(
            facts.base_offset, facts.summary.valid_bytes, facts.summary.damage_text
        )
        for facts in analysis.segments_after
        if facts.summary.damage
    }
    for base_offset, inspected in sorted(indexes_of(analysis).items()):
        if base_offset in rewritten:
            continue
        if isinstance(inspected, Failed):
            notes.append(f"index left as it is: {inspected.why}")
            continue
        # Damage of the log is known only if another fix or a rebuild has read the log.
        why_not = inspected.not_repaired or (damaged.get(base_offset, "") if inspected.repairs else "")
        if why_not:
            notes.append(f"index left as it is: {why_not}")
        if (
            inspected.padded
            and not inspected.repairs
            and analysis.partition.segments[-1].base_offset == base_offset
        ):
            notes.append(
                f"{offset_name(base_offset)} is the active segment (the last one): "
                "its preallocated indexes are normal and are left"
            )
        for mend in () if base_offset in damaged else inspected.repairs:
            name = segment_name(base_offset, mend.suffix)
            sizes = (mend.size_before, mend.size_after)
            changes.append(
                replaced(folder, name, mend.method, mend.rule, *sizes, mend.digest_after, mend.reason)
            )
    replayed = transaction_indexes_of(analysis)
    if isinstance(replayed, Failed):
        notes.append(f"transaction indexes left as they are: {replayed.why}")
    else:
        notes += [f"transaction index left as it is: {text}" for text in replayed.left]
    changes += [
        transaction_index(folder, problem, "KR204")
        for problem in (() if isinstance(replayed, Failed) else replayed.problems)
        if problem.base_offset not in rewritten
    ]
    return tuple(sorted(changes, key=lambda change: change.name)), tuple(notes)


def transaction_index(folder: str, problem: TxnProblem, rule: str) -> ReplaceFile:
    """Return the change that rebuilds a ``.txnindex`` from a replay."""
    name = segment_name(problem.base_offset, ".txnindex")
    sizes = (problem.size_before, problem.size_after)
    return replaced(folder, name, "regenerate", rule, *sizes, problem.digest_after, problem.text)


_IF_DELETE: Final = "if its cleanup.policy is delete, which is not known here, "


def deletions_of(analysis: PartitionAnalysis, options: Options) -> Deletions:
    """Return the segments that time-based retention deletes at the next start, and those that it should delete."""
    settings = analysis.settings
    version = version_of(options.broker_version)
    clocks = clocks_of(analysis, version) if "delete" in settings.cleanup_policy else []
    going = deletions(clocks, retention_ms=settings.retention_ms, now_ms=options.now_ms, version=version)
    return going if settings.policy_is_known else going._replace(if_delete=_IF_DELETE)


def clocks_of(analysis: PartitionAnalysis, version: Version) -> list[SegmentClock]:
    """Return the values that determine each segment's age, ascending; empty if unknown."""
    settings, partition = analysis.settings, analysis.partition
    if bool(why_untouched(partition, settings)) and not waits_for_leftovers_alone(partition, settings):
        return []
    # Segments below the first swap do not change, whatever becomes of the swaps.
    swaps = [leftover.base_offset for leftover in partition.leftovers if leftover.kind == "swap"]
    below = min(swaps, default=INT64_MAX)
    loaded = next_start_of(analysis).of(version)
    recovered = () if loaded is None else loaded.recovered
    clocks = []
    for segment in partition.segments:
        if segment.base_offset >= below:
            break
        inspected = indexes_of(analysis).get(segment.base_offset)
        if inspected is None or isinstance(inspected, Failed):
            return []
        clocks.append(
            SegmentClock(
                base_offset=segment.base_offset,
                log_bytes=segment.log.size,
                mtime_ms=segment.log.mtime_ns // 1_000_000,
                has_index=inspected.has_index,
                first_timestamp=inspected.first_timestamp,
                last_timestamp=inspected.last_timestamp,
                torn=inspected.torn,
                recovered=segment.base_offset in recovered,
                largest=inspected.largest,
            )
        )
    return clocks


def deletion_findings(analysis: PartitionAnalysis, going: Deletions, options: Options) -> Iterator[Finding]:
    """Yield segments that retention would delete before their time (KR802)."""
    who = f"broker {options.broker_version}" if options.broker_version else "a broker of 2.3 or later"
    refs = {segment.base_offset: segment for segment in analysis.partition.segments}
    for base_offset in going.too_early:
        inspected = indexes_of(analysis)[base_offset]
        assert not isinstance(inspected, Failed), "the age of a segment is not known then"
        read = (
            inspected.last_timestamp
            if inspected.last_timestamp >= 0
            else refs[base_offset].log.mtime_ns // 1_000_000
        )
        size = refs[base_offset].log.size
        yield Finding(
            rule="KR802",
            partition=analysis.partition.folder,
            file=log_name(base_offset),
            evidence=(
                f"{who} reads {time_text(read)} as its largest timestamp, the log has {time_text(inspected.largest)}; "
                f"{going.if_delete}retention.ms={analysis.settings.retention_ms} deletes it at the next start"
            ),
            bytes=size,
        )
