"""Fix ``leftovers``: complete or remove the files that an interrupted broker left in partition folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity
from krepair.commit.status import half_done
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, PartitionItem, Place, ScanItem, ScanResult
from krepair.fixes.analysis import PartitionAnalysis, ResultKey, log_end_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.files import RebuiltFile, rebuild_change, removal_change
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.logs import read_logs, scan_item
from krepair.fixes.second_readings import SecondReading, as_planned, check_removed
from krepair.fixes.staging import Kind, Staging, Work
from krepair.formats import txn_index
from krepair.formats.broker_version import Version
from krepair.formats.filenames import (
    INDEX,
    INDEX_KINDS,
    INDEX_SUFFIXES,
    LOG,
    SWAP,
    TIME_INDEX,
    FileKind,
    log_name,
    offset_name,
    parse_file_name,
)
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import count_text
from krepair.kernels.classes import D_NONE
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import FileRef, Leftover, Partition, Segment
from krepair.next_command import Next
from krepair.plan.model import CompleteSwap, KeepOriginal, NewFile, ReplaceFile
from krepair.rules.leftovers import (
    Completion,
    LiveSegment,
    PendingSwap,
    Removal,
    SwapDecision,
    decide_removals,
    decide_swaps,
    no_brokers_name,
)
from krepair.rules.model import Skipped

if TYPE_CHECKING:
    from krepair.rewrite.indexes.segment import InspectResult
    from krepair.rewrite.swaps import SwapItem


class SwapFacts(NamedTuple):
    """Pending swap that was read completely.

    Attributes:
        pending: contents of the swap.
        new_indexes: indexes that a recovery would build for the swap.
    """

    pending: PendingSwap
    new_indexes: tuple[NewFile, ...]


class LeftoverFacts(NamedTuple):
    """Leftovers of one partition, with all decisions on these files.

    Attributes:
        swaps: decision on the partition's swaps.
        new_indexes: indexes to build for each swap, by base offset.
        removals: files to remove, in the order of removal.
        skip_reason: reason for skipping this partition, or empty.
        damaged: base offsets of live segments that are damaged before their ends.
        renames: index swaps without a log swap that replace a missing or a wrong index.
        copies: reason for keeping a ``.deleted`` file that the next start would delete, by file name.
    """

    swaps: SwapDecision = SwapDecision()
    new_indexes: dict[int, tuple[NewFile, ...]] = {}  # noqa: RUF012
    removals: tuple[Removal, ...] = ()
    skip_reason: str = ""
    damaged: frozenset[int] = frozenset()
    renames: tuple[FileRef, ...] = ()
    copies: dict[str, str] = {}  # noqa: RUF012


class IndexSwaps(NamedTuple):
    """Index swaps of one partition that have a segment but no log swap.

    Attributes:
        renames: correct index swaps whose index is missing or wrong.
        skip_reason: reason for skipping the partition, or empty.
    """

    renames: tuple[FileRef, ...] = ()
    skip_reason: str = ""


LEFTOVERS_RESULT: ResultKey[LeftoverFacts] = ResultKey("leftovers")
RULE = "KR601"
_COMPARE: Final = Next.of("compare", "ID=LOGDIR", "ID=FACTS")
"""Command for swaps that this replica alone cannot judge."""

_REMOVED_BEFORE_SWAPS: Final = frozenset({"deleted", "void swap", "cleaned"})
"""Kinds of files that are removed before swaps are completed.

A void swap is removed before the ``.cleaned`` that makes it void: without the ``.cleaned``, a start in between would
complete the swap and delete the segments.
"""

SWAPS: Final = Kind("finished swaps", "every batch, and its indexes", is_log=True)


class Leftovers(Fix):
    """Fix ``leftovers``, which completes swaps if that is safe, and removes files that a start would delete."""

    name = "leftovers"

    def answers(self, finding: Finding) -> bool:
        """Return whether the fix repairs a finding.

        KR205 without a position means an index whose log is missing; other KR205 findings belong to ``--fix index``.
        """
        return finding.rule == RULE or (finding.rule == "KR205" and finding.position < 0)

    def reads_whole(self, partition: Partition, mode: str) -> bool:
        """Return whether a swap is pending."""
        return bool(log_swaps(partition))

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Read each swap completely, and decide on all leftovers.

        Segments that were not read before are scanned, in partitions with a ``.log.swap`` or with a ``.log.deleted``
        after the last segment.
        """
        touched = [
            analysis
            for analysis in analyses
            if holds_leftovers(analysis.partition) and not analysis.is_read_only
        ]
        with_swaps = [analysis for analysis in touched if log_swaps(analysis.partition)]
        read_logs(
            context, [*with_swaps, *(analysis for analysis in touched if _deleted_past_log_end(analysis))]
        )
        items = [
            _item(
                place_of(context.view, analysis.partition),
                analysis.partition,
                swap,
                analysis.settings.index_interval_bytes,
            )
            for analysis in with_swaps
            for swap in log_swaps(analysis.partition)
        ]
        read = _inspect_swaps(items, context.engine)
        index_swaps = _inspect_index_swaps(context, touched)
        for analysis in touched:
            folder = analysis.partition.folder
            swaps, indexes = read.get(folder, []), index_swaps.get(folder, IndexSwaps())
            analysis.put(LEFTOVERS_RESULT, _decide_leftovers(analysis, swaps, indexes, context.version))

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR601, the swaps to complete, and the files to remove."""
        findings, facts = leftover_findings(analysis), analysis.result(LEFTOVERS_RESULT)
        if facts is None:
            return Proposal(findings)
        comparisons = tuple(
            f"leftovers: {name}: {comparison}" for name, comparison in facts.swaps.comparisons
        )
        if facts.skip_reason:
            notes = (*comparisons, f"its leftovers are not changed: {facts.skip_reason}")
            return Proposal(
                findings, notes=notes, left=Skipped("leftovers", facts.skip_reason, _COMPARE, damaged=True)
            )
        folder = analysis.partition.folder
        # Completing a swap, and its undo, use the .deleted and .cleaned names of the replaced segments. A killed
        # broker's files with these names are removed first, so undo restores them last.
        removed_first: list[ReplaceFile] = []
        removed_last: list[ReplaceFile] = []
        for removal in facts.removals:
            removals = removed_first if removal.kind in _REMOVED_BEFORE_SWAPS else removed_last
            removals.append(removal_change(folder, removal.file, RULE, removal.why))
        completions = [_completion(analysis, facts, completion) for completion in facts.swaps.completions]
        try:
            renames = [_renamed(analysis.partition, swap) for swap in facts.renames]
        except OSError as error:
            return Proposal(findings, left=Skipped("unreadable", f"{folder}: {why(error)}", damaged=True))
        kept = (f"leftovers: {name} is kept: {why}" for name, why in facts.copies.items())
        return Proposal(
            findings, (*removed_first, *completions, *renames, *removed_last), (*comparisons, *kept)
        )

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
        return RebuiltFile(
            read_whole(staging.folder.at(change.name + SWAP), change.size_after + 1, work.disk.tree)
        )

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Stage the rebuilt indexes of swaps; a removal has no staged file."""
        from krepair.rewrite.swaps import stage_swap

        super().stage(work, stagings)
        jobs: list[tuple[Staging, tuple[PartitionItem, CompleteSwap, int, str]]] = []
        for staging in stagings:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                interval_bytes = work.settings(staging).index_interval_bytes
                jobs += [
                    (staging, (_item_of(work, staging, change), change, interval_bytes, staging.stage_folder))
                    for change in staging.changes
                    if isinstance(change, CompleteSwap)
                ]
        for staging, failed in work.engine.each(stage_swap, jobs):
            staging.record_failure(failed)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield the checks of applied changes.

        The log and the indexes of a completed swap are read completely. A removed file must be absent from the folder
        and present in the backup.
        """
        from krepair.rewrite.swaps import verify_swap

        for change in staging.changes:
            if isinstance(change, CompleteSwap):
                item = (
                    _item_of(work, staging, change),
                    change,
                    work.settings(staging).index_interval_bytes,
                    staging.planned[f"{log_name(change.base_offset)}{SWAP}"].mtime_ns,
                )
                yield SecondReading(change, SWAPS, verify_swap, (item,))
                continue
            assert isinstance(change, ReplaceFile)
            is_removal = change.method == "remove"
            yield (
                check_removed(staging, change, (change.name,)) if is_removal else as_planned(staging, change)
            )


def _item_of(work: Work, staging: Staging, change: CompleteSwap) -> PartitionItem:
    return PartitionItem(place=work.place(staging), bytes_to_read=change.log_bytes)


LEFTOVERS = Leftovers()


def holds_leftovers(partition: Partition) -> bool:
    """Return whether the partition has a file that the next start completes or deletes."""
    has_leftovers = any(leftover.kind != "foreign" for leftover in partition.leftovers)
    return not partition.unreadable and (has_leftovers or bool(partition.orphan_indexes))


def _decide_leftovers(
    analysis: PartitionAnalysis, swaps: Sequence[SwapFacts], indexes: IndexSwaps, version: Version
) -> LeftoverFacts:
    """Decide which swaps of one partition are completed, and which leftovers are removed, renamed or kept.

    Args:
        swaps: contents of the partition's ``.log.swap`` files, ascending.
        indexes: decision on its index swaps.
        version: version of the broker that starts next, None if it is not known.
    """
    partition = analysis.partition
    new_indexes = {swap.pending.base_offset: swap.new_indexes for swap in swaps}
    decision, damaged = SwapDecision(), frozenset[int]()
    if swaps:
        live = _live(analysis)
        damaged = frozenset(segment.base_offset for segment in live if segment.damaged)
        decision = decide_swaps([swap.pending for swap in swaps], live, _cleaned_bases(partition), version)
        if not decision.skip_reason and len(live) != len(partition.segments):
            decision = SwapDecision(
                skip_reason="not all of its segments could be read", comparisons=decision.comparisons
            )
    reason = _skip_reason(partition) or decision.skip_reason or indexes.skip_reason
    if reason:
        return LeftoverFacts(decision, new_indexes, (), reason, damaged)
    logs = frozenset(swap.base_offset for swap in log_swaps(partition))
    removals = decide_removals(
        partition.leftovers, partition.orphan_indexes, partition.missing_logs, logs, decision, version
    )
    copies = _only_copies(analysis, decision)
    removed_files = tuple(removal for removal in removals if removal.file.name not in copies)
    return LeftoverFacts(
        decision, new_indexes, removed_files, damaged=damaged, renames=indexes.renames, copies=copies
    )


def _live(analysis: PartitionAnalysis) -> list[LiveSegment]:
    sizes = {segment.base_offset: segment.log.size for segment in analysis.partition.segments}
    return [
        LiveSegment(
            base_offset=facts.base_offset,
            end_offset=facts.end_offset,
            log_bytes=sizes[facts.base_offset],
            batches=facts.summary.batches,
            damaged=facts.summary.damage != D_NONE,
        )
        for facts in analysis.segments
    ]


def log_swaps(partition: Partition) -> list[Leftover]:
    """Return a partition's ``.log.swap`` files whose names a broker can have written, ascending."""
    swaps = [
        leftover
        for leftover in partition.leftovers
        if leftover.kind == "swap" and leftover.file.name == f"{log_name(max(leftover.base_offset, 0))}{SWAP}"
    ]
    return sorted(swaps, key=lambda each: each.base_offset)


def _item(place: Place, partition: Partition, swap: Leftover, interval_bytes: int) -> SwapItem:
    """Return the work item that reads a ``.log.swap``.

    If a ``.cleaned`` makes the swap void, the segments are read as well: a broker discards a void swap, so it
    matters whether the swap has records that no segment has.
    """
    from krepair.rewrite.swaps import SwapItem

    void = any(base <= swap.base_offset for base in _cleaned_bases(partition))
    return SwapItem(
        place=place,
        base_offset=swap.base_offset,
        size=swap.file.size,
        interval_bytes=interval_bytes,
        segments=partition.log_sizes if void else None,
    )


def _inspect_swaps(items: Sequence[SwapItem], engine: Engine) -> dict[str, list[SwapFacts]]:
    """Read swaps completely; return their contents by partition folder, in the order of the items."""
    if not items:
        return {}
    from krepair.rewrite.swaps import inspect_swap

    results = dict(engine.map(inspect_swap, items))
    by_folder: dict[str, list[SwapFacts]] = {}
    for index, item in enumerate(items):
        contents = results[index]
        pending = PendingSwap(
            base_offset=item.base_offset,
            end_offset=contents.end_offset,
            log_bytes=item.size,
            batches=contents.batches,
            problem=contents.problem,
            missing=contents.missing,
        )
        by_folder.setdefault(item.place.folder, []).append(SwapFacts(pending, contents.makes))
    return by_folder


def _index_swaps(partition: Partition) -> Iterator[tuple[Segment, Leftover, str]]:
    """Yield (segment, ``.swap``, suffix) of each index swap without a log swap that a start would use."""
    logs = {swap.base_offset for swap in log_swaps(partition)}
    lowest = min(_cleaned_bases(partition), default=INT64_MAX)
    segments = {segment.base_offset: segment for segment in partition.segments}
    for leftover in partition.leftovers:
        suffix = leftover.file.name.removesuffix(SWAP)[20:]
        segment = segments.get(leftover.base_offset)
        waits = leftover.kind == "swap" and suffix in {INDEX, TIME_INDEX}
        if (
            waits
            and segment is not None
            and leftover.base_offset not in logs
            and leftover.base_offset < lowest
        ):
            yield segment, leftover, suffix


class _IndexSwap(NamedTuple):
    """Index swap without a log swap that a start would use.

    Attributes:
        analysis: analysis of the partition.
        segment: segment of the swap.
        swap: the ``.swap`` file.
        suffix: suffix of the index that the swap replaces.
    """

    analysis: PartitionAnalysis
    segment: Segment
    swap: Leftover
    suffix: str


def _inspect_index_swaps(context: Context, analyses: Sequence[PartitionAnalysis]) -> dict[str, IndexSwaps]:
    """Return the decisions on index swaps by partition folder; only a reading of the logs proves a swap correct."""
    work = [
        _IndexSwap(analysis, *index_swap)
        for analysis in analyses
        for index_swap in _index_swaps(analysis.partition)
    ]
    if not work:
        return {}
    from krepair.rewrite.indexes.segment import InspectItem, inspect_with_swaps

    def item_of(index_swap: _IndexSwap, swapped: tuple[str, ...]) -> tuple[ScanItem, InspectItem]:
        analysis, segment = index_swap.analysis, index_swap.segment
        return scan_item(context, analysis, segment), InspectItem(
            place=place_of(context.view, analysis.partition),
            base_offset=segment.base_offset,
            log_bytes=segment.log.size,
            interval_bytes=analysis.settings.index_interval_bytes,
            active=segment is analysis.partition.segments[-1],
            depth="check",
            swapped=swapped,
        )

    by_folder: dict[str, IndexSwaps] = {}
    correct_beside_index: list[_IndexSwap] = []

    def note(analysis: PartitionAnalysis, renames: tuple[FileRef, ...], reason: str = "") -> None:
        known = by_folder.get(analysis.partition.folder, IndexSwaps())
        by_folder[analysis.partition.folder] = IndexSwaps(
            (*known.renames, *renames), known.skip_reason or reason
        )

    # Results arrive in any order, and the plan must not depend on that order.
    of_swaps = dict(
        context.engine.map(
            inspect_with_swaps, [item_of(index_swap, (index_swap.suffix,)) for index_swap in work]
        )
    )
    for number, index_swap in enumerate(work):
        (scanned, inspected), (analysis, segment, swap, suffix) = of_swaps[number], index_swap
        is_missing = not any(file.name == swap.file.name.removesuffix(SWAP) for file in segment.files())
        reason = _why_index_swap_kept(scanned, inspected, swap.file.name, suffix, is_missing=is_missing)
        note(analysis, (swap.file,) if is_missing and not reason else (), reason)
        if not is_missing and not reason and not _has_problem(inspected, suffix):
            correct_beside_index.append(index_swap)
    # A start from 3.0 on renames a correct swap over the present index; the fix does the same if that index is wrong.
    items = [item_of(index_swap, ()) for index_swap in correct_beside_index]
    of_indexes = dict(context.engine.map(inspect_with_swaps, items))
    for number, (analysis, _, swap, suffix) in enumerate(correct_beside_index):
        _, inspected = of_indexes[number]
        if not isinstance(inspected, Failed) and _has_problem(inspected, suffix):
            note(analysis, (swap.file,))
    return by_folder


def _has_problem(inspected: InspectResult | Failed, suffix: str) -> bool:
    return isinstance(inspected, Failed) or any(
        suffix_with_problem == suffix for suffix_with_problem, *_ in inspected.problems
    )


def _why_index_swap_kept(
    scanned: ScanResult | Failed,
    inspected: InspectResult | Failed,
    name: str,
    suffix: str,
    *,
    is_missing: bool,
) -> str:
    """Return why an index swap without a ``.log.swap`` is neither renamed nor removed, or empty."""
    later = "a broker of 3.0 or later renames it at its start: start one, or move it out of the folder"
    if isinstance(scanned, Failed) or isinstance(inspected, Failed) or not scanned.summary.is_whole:
        return f"{name}: the log of its segment is damaged, so nothing proves the index; {later}"
    problem = next((text for other, _, _, text in inspected.problems if other == suffix), "")
    if problem and is_missing:
        return (
            f"{name}: it is wrong ({problem}), and the index that it would become is missing; move it out of the "
            "folder, then --fix index=regenerate"
        )
    return ""


def _renamed(partition: Partition, swap: FileRef) -> ReplaceFile:
    """Return the change that makes a swap the index; another change then removes the swap.

    Raises:
        OSError: the swap could not be read.
    """
    data = read_whole(swap.path, swap.size + 1)
    name = swap.name.removesuffix(SWAP)
    before = next((file for file in partition.files() if file.name == name), None)
    state = "missing" if before is None else "wrong"
    why_made = (
        f"index swap without a log swap; the present index is {state}. A broker from 3.0 on renames the swap"
    )
    return rebuild_change(partition.folder, name, before, data, RULE, why_made)


def _cleaned_bases(partition: Partition) -> list[int]:
    return [leftover.base_offset for leftover in partition.leftovers if leftover.kind == "cleaned"]


def _skip_reason(partition: Partition) -> str:
    """Return why no decision on a folder's leftovers is possible, or empty."""
    return (
        half_done(partition)
        or no_brokers_name(partition.leftovers, partition.specials)
        or _why_txn_swap_kept(partition)
    )


def _deleted_past_log_end(analysis: PartitionAnalysis) -> list[Leftover]:
    """Return each ``.log.deleted`` after the last segment and below the recorded high watermark."""
    last = max((segment.base_offset for segment in analysis.partition.segments), default=-1)
    return [
        leftover
        for leftover in analysis.partition.leftovers
        if leftover.kind == "deleted"
        and parse_file_name(leftover.file.name).kind is FileKind.LOG
        and last < leftover.base_offset < analysis.high_watermark
        and leftover.file.size
    ]


def _only_copies(analysis: PartitionAnalysis, decision: SwapDecision) -> dict[str, str]:
    """Return the reason for keeping each file that a start deletes but that may hold the only copy of records, by name.

    Retention deletes segments below the log start offset, and a cleaner deletes segments that it has rewritten. A
    follower that truncates its log deletes segments past the new log end and, except after an unclean leader election,
    no committed records. So if a
    ``.log.deleted`` after the log end has committed records, a start truncated these records, and no other copy may
    exist.
    """
    swapped = (completion.swap.end_offset for completion in decision.completions)
    end = max((log_end_of(analysis.segments), *swapped))
    return {
        leftover.file.name: f"the log ends at {end} and the recorded high watermark is {analysis.high_watermark}, so "
        "it may hold the only copy of committed records: move it out of the log directory, or fetch the partition again"
        for leftover in _deleted_past_log_end(analysis)
        if leftover.base_offset >= end
    }


def _why_txn_swap_kept(partition: Partition) -> str:
    """Return why a lone ``.txnindex.swap`` is kept: no other file may list its aborted transactions; or empty."""
    logs = {swap.base_offset for swap in log_swaps(partition)}
    segments = {segment.base_offset: segment for segment in partition.segments}
    lowest = min(_cleaned_bases(partition), default=None)
    for leftover in partition.leftovers:
        if leftover.kind != "swap" or parse_file_name(leftover.file.name).kind is not FileKind.TXN_INDEX:
            continue
        void = lowest is not None and leftover.base_offset >= lowest
        segment = segments.get(leftover.base_offset)
        if (
            leftover.base_offset in logs
            or void
            or segment is None
            or _same_bytes(leftover.file, segment.txn_index)
        ):
            continue
        return (
            f"{leftover.file.name}: it has no .log{SWAP}, and it differs from the present .txnindex; "
            "brokers from 3.0 on overwrite the .txnindex with the swap without reading it; earlier brokers delete the "
            ".txnindex and keep the swap"
        )
    return ""


def _same_bytes(swap_file: FileRef, other: FileRef | None) -> bool:
    if other is None or swap_file.size != other.size:
        return False
    try:
        first, second = (read_whole(file.path, txn_index.AT_MOST_BYTES) for file in (swap_file, other))
    except OSError:
        return False
    return first == second


# -- changes


def _completion(analysis: PartitionAnalysis, facts: LeftoverFacts, completion: Completion) -> CompleteSwap:
    swap, replaced = completion
    bases = {swap.base_offset, *(segment.base_offset for segment in replaced)}
    removed_files = [
        file.name
        for file in analysis.partition.files()
        if _stem_base(file.name) in bases
        and parse_file_name(file.name).kind in {FileKind.LOG, *INDEX_KINDS}
        and not parse_file_name(file.name).state
    ]
    own = {f"{offset_name(swap.base_offset)}{suffix}{SWAP}" for suffix in INDEX_SUFFIXES}
    removed_files += [
        leftover.file.name for leftover in analysis.partition.leftovers if leftover.file.name in own
    ]
    return CompleteSwap(
        change_id=f"{analysis.partition.folder}/{swap.name}",
        base_offset=swap.base_offset,
        rule=RULE,
        log_bytes=swap.log_bytes,
        last_offset=swap.end_offset - 1,
        batches=swap.batches,
        replaces=tuple(segment.base_offset for segment in replaced),
        goes=tuple(sorted(removed_files)),
        copied=tuple(base for base in sorted(bases) if base in facts.damaged),
        makes=facts.new_indexes[swap.base_offset],
        reason="every broker completes it at its next start, with the same records",
        undo=KeepOriginal(),
    )


def _stem_base(name: str) -> int:
    offset = parse_file_name(name).base_offset
    return -1 if offset is None else offset


# -- findings


def leftover_findings(analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield a finding for each leftover of one partition, with the effect of the next start on this file."""
    for leftover in analysis.partition.leftovers:
        if leftover.kind != "foreign":
            yield Finding(
                rule=RULE,
                partition=analysis.partition.folder,
                file=leftover.file.name,
                evidence=_evidence(analysis, leftover),
                bytes=leftover.file.size,
                severity=_severity(analysis, leftover),
                fix="none" if _is_kept(analysis, leftover) else "",
            )
    yield from _mistaken_for_logs(analysis.partition)


def _mistaken_for_logs(partition: Partition) -> Iterator[Finding]:
    """Yield findings on files that a broker mistakes for logs because of the number before the first dot."""
    bases = {segment.base_offset for segment in partition.segments}
    for leftover in partition.leftovers:
        file, base = leftover.file, leftover.base_offset
        if leftover.kind == "foreign" and file.name.endswith(LOG) and base >= 0 and base not in bases:
            yield Finding(
                rule=RULE,
                partition=partition.folder,
                file=file.name,
                evidence=(
                    f"{file.size} bytes; the next start mistakes it for the log of offset {base} and creates an empty "
                    f"{log_name(base)}, which hides records or moves the log end. Move the file out of the folder "
                    "before you start the broker"
                ),
                bytes=file.size,
                fix="none",
            )


def _severity(analysis: PartitionAnalysis, leftover: Leftover) -> Severity | None:
    """Return CONFUSING for files that every start deletes, unless a swap or a possible only copy is involved."""
    facts = analysis.result(LEFTOVERS_RESULT)
    swaps = bool(analysis.partition.waiting_swap)
    loses = swaps or (facts is not None and leftover.file.name in facts.copies)
    return Severity.CONFUSING if leftover.kind in {"deleted", "cleaned"} and not loses else None


def _why_removed(facts: LeftoverFacts, leftover: Leftover) -> str:
    """Return why ``--fix leftovers`` removes a swap; empty if the fix keeps the swap."""
    return next((removal.why for removal in facts.removals if removal.file == leftover.file), "")


def _is_kept(analysis: PartitionAnalysis, leftover: Leftover) -> bool:
    facts = analysis.result(LEFTOVERS_RESULT)
    if facts is None or leftover.file.name in facts.copies:
        return True
    return bool(facts.skip_reason) and not _why_removed(facts, leftover)


def _evidence(analysis: PartitionAnalysis, leftover: Leftover) -> str:
    """Return the evidence line of a leftover, which begins with the file's size."""
    facts = analysis.result(LEFTOVERS_RESULT)
    size = f"{leftover.file.size} bytes"
    if facts is None:
        return f"{size}; not changed: krepair never changes this topic"
    if leftover.kind != "swap":
        more = "; not removed because of the swap in its folder" if facts.skip_reason else ""
        if leftover.file.name in facts.copies:
            more = f"; not removed: {facts.copies[leftover.file.name]}"
        return f"{size}; the next start deletes it{more}"
    if leftover.file in facts.renames:
        return f"{size}; becomes {leftover.file.name.removesuffix(SWAP)}"
    removed = _why_removed(facts, leftover)
    if removed:
        return f"{size}; {removed}"
    kept = f"; not changed: {facts.skip_reason}" if facts.skip_reason else ""
    name = f"{log_name(max(leftover.base_offset, 0))}{SWAP}"
    if leftover.file.name != name:
        has_log = any(swap.file.name == name for swap in log_swaps(analysis.partition))
        return f"{size}; belongs to {name}{kept}" if has_log else f"{size}{kept}"
    comparison = dict(facts.swaps.comparisons).get(name, size)
    return f"{comparison}{kept or '; the next start completes it, as --fix leftovers does'}"


def swap_forecast(analysis: PartitionAnalysis) -> str:
    """Describe what the next start does with the swaps of a partition; empty without a swap."""
    facts = analysis.result(LEFTOVERS_RESULT)
    if facts is None or not analysis.partition.waiting_swap:
        return ""
    if facts.skip_reason:
        return (
            "the start first completes a .swap, with a result that depends on the version or loses records: "
            f"{facts.skip_reason}"
        )
    texts = []
    for completion in facts.swaps.completions:
        replaced = f"replaces segments {', '.join(str(base.base_offset) for base in completion.replaces)}"
        effect = replaced if completion.replaces else "it becomes the segment"
        texts.append(f"{completion.swap.name} is completed first: {effect}")
    texts += [f"{swap.name} is deleted" for swap in facts.swaps.void]
    texts += [
        f"{removal.file.name}: {removal.why}" for removal in facts.removals if removal.kind == "index swap"
    ]
    return "; ".join(texts)


def freed_at_start(
    analyses: Iterable[PartitionAnalysis], deleted_folders: Iterable[Partition]
) -> Finding | None:
    """Return KR701 with the space that the broker frees at its next start, if the start gets that far; else None.

    Sizes are allocated bytes: what the file system frees.
    """
    counts: dict[tuple[str, str], tuple[int, int]] = {}

    def add(one: str, many: str, sizes: Iterable[int]) -> None:
        known = list(sizes)
        if known:
            count, size = counts.get((one, many), (0, 0))
            counts[one, many] = (count + len(known), size + sum(known))

    for analysis in analyses:
        for kind, one, many in (
            ("deleted", ".deleted file", ".deleted files"),
            ("cleaned", ".cleaned file", ".cleaned files"),
        ):
            add(
                one,
                many,
                (leftover.file.blocks for leftover in analysis.partition.leftovers if leftover.kind == kind),
            )
        add(
            "index without a log",
            "indexes without a log",
            (file.blocks for file in analysis.partition.orphan_indexes),
        )
    for partition in deleted_folders:
        add(
            "file in -delete folders", "files in -delete folders", (file.blocks for file in partition.files())
        )
    total = sum(size for _, size in counts.values())
    if not total:
        return None
    parts = ", ".join(
        f"{count_text(count, one, many)} ({size} bytes)" for (one, many), (count, size) in counts.items()
    )
    return Finding(rule="KR701", evidence=f"{total} bytes: {parts}", bytes=total)
