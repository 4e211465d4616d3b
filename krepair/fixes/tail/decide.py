"""Decisions of ``--fix tail``: the map of damaged logs, the loss of each repair, and the changes.

A torn tail is cut. Other damage is repaired only if a consent names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from krepair.checks.catalogue import Finding, Severity, counts, of_version
from krepair.engine.items import Failed
from krepair.errors import UsageError
from krepair.fixes.analysis import PartitionAnalysis, ResultKey, next_start_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.damage import damaged_logs, damages_in, map_damaged_logs, maps_of
from krepair.fixes.fix import Proposal, skipped_for_leftovers
from krepair.fixes.gate import LEFTOVERS_FIRST, analysis_apart, why_untouched
from krepair.fixes.logs import Ranges
from krepair.formats.filenames import log_name, offset_name, segment_name
from krepair.logdir.values import LogDir
from krepair.next_command import NOTHING, PLAN, Next
from krepair.options import Options, consents_of
from krepair.plan.model import KeepOriginal, MendLog, NewCompanion, RemovedRange, SetAside
from krepair.rules.damage import (
    DamageAssessment,
    rule_of,
    valid_ranges,
    why_not_mapped,
)
from krepair.rules.model import SegmentFacts, Skipped
from krepair.rules.tail import (
    LogCut,
    LogEnd,
    TailChoice,
    TailLog,
    TailMode,
    choose_cuts,
    notes_on_end,
    parts_of_consent,
)

if TYPE_CHECKING:
    from krepair.rewrite.damage import RepairedLogItem, RepairedLogResult


def damage_findings(log_dir: LogDir, analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield one finding per damaged range, with the loss that each repair costs."""
    folder = analysis.partition.folder
    why = why_not_mapped(damaged_logs(analysis)) if maps_of(analysis) else ""
    for base_offset, mapped in sorted(maps_of(analysis).items()):
        if mapped.failure == "unreadable":
            yield Finding(rule="KR308", partition=folder, file=log_name(base_offset), evidence=mapped.why)
    if why:
        for facts in analysis.segments:
            if facts.summary.damage:
                yield _unmapped_finding(analysis, facts, why)
        return
    for damage in damages_in(log_dir, analysis):
        yield Finding(
            rule=damage.rule,
            partition=folder,
            file=log_name(damage.base_offset),
            position=damage.range.start,
            evidence=f"{damage.range.text}; {_where(damage)}; {damage.description}",
            bytes=0 if damage.range.zeros else damage.range.bytes,
            command=_command(log_dir, damage),
            first_offset=damage.loss_if_excised.first,
            last_offset=damage.loss_if_excised.last,
            records_lost=0 if damage.harmless else damage.loss_if_excised.records,
            bytes_lost=0 if damage.harmless else damage.loss_if_excised.bytes,
            severity=_severity(log_dir, analysis, damage),
        )


def damage_that_stays(context: Context, analyses: Sequence[PartitionAnalysis]) -> dict[str, list[Finding]]:
    """Return important findings on damage that no proposed change removes or repairs, by folder."""
    damaged_partitions = {
        analysis.partition.folder: analysis
        for analysis in analyses
        if any(map(_is_damaged, analysis.segments_after))
    }
    map_damaged_logs(context, [analysis for analysis in damaged_partitions.values() if not maps_of(analysis)])
    by_folder = {}
    for folder, analysis in damaged_partitions.items():
        changed_logs = {log_name(base) for change in analysis.changes for base in change.segments}
        stay = [
            finding
            for finding in damage_findings(context.view, analysis)
            if finding.file not in changed_logs and counts(finding)
        ]
        if stay:
            by_folder[folder] = stay
    return by_folder


def _is_damaged(facts: SegmentFacts) -> bool:
    return bool(facts.summary.damage)


def _severity(log_dir: LogDir, analysis: PartitionAnalysis, damage: DamageAssessment) -> Severity | None:
    """Return INFORMATION for padding, unless the next start recovers its segment and deletes all later ones."""
    if not damage.padding:
        return None
    starts = next_start_of(analysis).by_version.values()
    recovers = not log_dir.clean_shutdown and any(damage.base_offset in loaded.recovered for loaded in starts)
    return None if recovers and damage.deletes_later_segments else Severity.INFORMATION


def _command(log_dir: LogDir, damage: DamageAssessment) -> Next:
    """Return the command that repairs the damage with the least loss; empty if no repair is offered."""
    if not damage.harmless and not damage.consent:
        return NOTHING
    consent = () if damage.harmless else ("--accept-data-loss", damage.consent)
    mode = "tail=broker" if damage.why_not_excisable else "tail"
    return Next.of("plan", log_dir.path, "--fix", mode, *consent, out=PLAN)


def _unmapped_finding(analysis: PartitionAnalysis, facts: SegmentFacts, why: str) -> Finding:
    rest = facts.summary.file_size - facts.summary.valid_bytes
    mapped = maps_of(analysis).get(facts.base_offset)
    unknown = mapped is not None and mapped.unknown
    described = f"{facts.summary.damage_text}; {rest} bytes from here to the end of the file; "
    finding = Finding(
        rule=rule_of(facts.summary.damage),
        partition=analysis.partition.folder,
        file=log_name(facts.base_offset),
        position=facts.summary.valid_bytes,
        evidence=why if unknown else described + why,
        bytes=0 if unknown else rest,
        fix="none",
    )
    return of_version(finding, unknown=unknown)


def _where(damage: DamageAssessment) -> str:
    if damage.range.next_offset >= 0:
        following = (
            f"the next valid batch, at position {damage.range.end} (offset {damage.range.next_offset})"
        )
        return f"{damage.range.bytes} bytes to {following}"
    nothing = "" if damage.range.checksummed else ", no valid batch among them"
    return f"{damage.range.bytes} bytes to the end of the file{nothing}"


TAIL_RESULT: ResultKey[Proposal] = ResultKey("repair of damaged logs")


def decide(context: Context, touched: Sequence[PartitionAnalysis]) -> None:
    """Decide how to repair mapped damage, and build the resulting files; results are stored under ``TAIL_RESULT``."""
    from krepair.rewrite.damage import write_repaired_log

    choices = [
        (analysis, _choice(context.options, analysis, damages_in(context.view, analysis)))
        for analysis in touched
    ]
    for analysis, choice in choices:
        analysis.put(TAIL_RESULT, Proposal(notes=choice.notes, left=choice.left))
    jobs = [(analysis, cut) for analysis, choice in choices for cut in choice.cuts]
    made: dict[str, dict[int, RepairedLogResult]] = {}
    failed: dict[str, dict[int, Failed]] = {}
    items = (
        (
            (analysis, cut),
            mended_item(
                context.view,
                analysis,
                cut.log.base_offset,
                cut.log.size,
                cut.bounds,
                tuple((loss.first, loss.last) for loss in cut.losses),
                torn=all(damage.harmless for damage in cut.damages)
                and _has_writers(analysis)
                and context.analysis(analysis.partition) is analysis,
            ),
        )
        for analysis, cut in jobs
    )
    for (analysis, cut), result in context.engine.each(write_repaired_log, items):
        folder, base_offset = analysis.partition.folder, cut.log.base_offset
        if isinstance(result, Failed):
            failed.setdefault(folder, {})[base_offset] = result
        else:
            made.setdefault(folder, {})[base_offset] = result
    for analysis, choice in choices:
        folder = analysis.partition.folder
        if folder in failed:
            base_offset, why_not = min(failed[folder].items())
            reason = Skipped(why_not.kind, f"{log_name(base_offset)}: {why_not.why}", damaged=True)
            analysis.put(TAIL_RESULT, Proposal(notes=choice.notes, left=reason))
        elif choice.cuts:
            analysis.put(TAIL_RESULT, _decision(context, analysis, choice, made[folder]))


def _choice(
    options: Options, analysis: PartitionAnalysis, damages: tuple[DamageAssessment, ...]
) -> TailChoice:
    why = why_not_mapped(damaged_logs(analysis)) if maps_of(analysis) or not analysis.segments else ""
    if why and analysis.partition.segments:
        return TailChoice(left=Skipped("damage", f"its damage is not repaired: {why}", damaged=True))
    logs = [
        TailLog(segment.base_offset, segment.log.size, segment.log.nlink)
        for segment in analysis.partition.segments
    ]
    mode: TailMode = "broker" if "tail=broker" in options.fixes else "excise"
    return choose_cuts(damages, logs, frozenset(options.accepted_losses), mode)


def check_untouched(options: Options, analyses: Sequence[PartitionAnalysis]) -> None:
    """Raise ``UsageError`` for a consent to a skipped partition, with the reason and the fix that comes first."""
    for analysis in analyses:
        folder = analysis.partition.folder
        why = why_untouched(analysis.partition, analysis.settings)
        mine = consents_of("tail", options.accepted_losses)
        if why and any(parts_of_consent(text)[1] == folder for text in mine):
            raise UsageError(
                f"--accept-data-loss: {folder}: its logs are not changed: {why}",
                next_command=(LEFTOVERS_FIRST if analysis.partition.waiting_swap else NOTHING),
            )


def skipped_proposal(analysis: PartitionAnalysis, why: str) -> Proposal:
    """Return the note or the reason for a skipped partition, whose logs may still be damaged."""
    waiting = analysis_apart(analysis)
    if waiting is None or not any(facts.summary.damage for facts in waiting.segments):
        return Proposal(notes=(f"its logs are not changed: {why}",))
    return skipped_for_leftovers(analysis, "logs")


def _decision(
    context: Context, analysis: PartitionAnalysis, choice: TailChoice, made: Mapping[int, RepairedLogResult]
) -> Proposal:
    """Return the changes and notes that follow from the contents of the new files."""
    mended = [_mend(analysis, cut, made[cut.log.base_offset]) for cut in choice.cuts]
    aside = [_set_aside(analysis, base, choice.cuts[-1]) for base in choice.aside]
    writers = any(len(facts.summary.rows) for facts in analysis.segments)
    ends = _log_end(context.view, analysis, choice, made)
    notes = notes_on_end(choice, ends, context.options.fixes, writers=writers)
    return Proposal(changes=(*aside, *mended), notes=(*choice.notes, *notes), left=choice.left)


def _log_end(
    view: LogDir, analysis: PartitionAnalysis, choice: TailChoice, made: Mapping[int, RepairedLogResult]
) -> LogEnd | None:
    """Return the new log end, or None if no cut moves it."""
    last = choice.cuts[-1]
    if not last.as_broker and last.log.base_offset != analysis.partition.segments[-1].base_offset:
        return None
    points = {
        "recovery point": view.recovery_point.offsets.get(analysis.partition.key, -1),
        "high watermark": view.high_watermark.offsets.get(analysis.partition.key, -1),
    }
    snapshots = {
        snapshot.offset: snapshot.file.name
        for snapshot in analysis.partition.snapshots
        if snapshot.offset not in choice.aside
    }
    end = made[last.log.base_offset].last_offset + 1
    return LogEnd(end, points, snapshots, analysis.log_start)


def _mend(analysis: PartitionAnalysis, cut: LogCut, made: RepairedLogResult) -> MendLog:
    segment = next(each for each in analysis.partition.segments if each.base_offset == cut.log.base_offset)
    return MendLog(
        change_id=f"{analysis.partition.folder}/{segment.log.name}",
        name=segment.log.name,
        base_offset=segment.base_offset,
        method="cut" if cut.at_end else "excise",
        removed=tuple(
            RemovedRange(
                start=start,
                end=end,
                rule=damage.rule,
                consent=damage.consent,
                first_lost=loss.first,
                last_lost=loss.last,
                records=loss.records,
            )
            for damage, (start, end), loss in zip(cut.damages, cut.bounds, cut.losses, strict=True)
        ),
        size_before=cut.log.size,
        size_after=made.size,
        digest_removed=made.digest_gone,
        digest_after=made.digest,
        mtime_ns=segment.log.mtime_ns,
        last_offset=made.last_offset,
        companions=tuple(
            NewCompanion(
                name=segment_name(segment.base_offset, companion.suffix),
                size_before=companion.size_before,
                size_after=companion.size_after,
                digest_after=companion.digest_after,
            )
            for companion in made.companions
            if not companion.same
        ),
        front_bytes=max((companion.front_bytes for companion in made.companions), default=0),
        reason=cut.reason,
        undo=KeepOriginal(),
    )


def _set_aside(analysis: PartitionAnalysis, base_offset: int, cut: LogCut) -> SetAside:
    """Return the change that moves a segment after a cut to backup."""
    partition, cause = analysis.partition, cut.damages[0]
    segment = next(each for each in partition.segments if each.base_offset == base_offset)
    facts = next(each for each in analysis.segments if each.base_offset == base_offset)
    files = [
        *segment.files(),
        *(snapshot.file for snapshot in partition.snapshots if snapshot.offset == base_offset),
    ]
    return SetAside(
        change_id=f"{partition.folder}/{offset_name(base_offset)}",
        base_offset=base_offset,
        names=tuple(file.name for file in files),
        bytes=sum(file.size for file in files),
        records=sum(valid.records for valid in valid_ranges(damaged_logs(analysis), facts)),
        rule=cause.rule,
        consent=cause.consent,
        reason=f"it lies behind the cut in {log_name(cause.base_offset)}",
        undo=KeepOriginal(),
    )


def mended_item(
    view: LogDir,
    analysis: PartitionAnalysis,
    base_offset: int,
    size: int,
    without: Ranges,
    lost: Ranges,
    *,
    torn: bool,
) -> RepairedLogItem:
    """Return the work item that builds a segment's files without some ranges.

    The item rebuilds the ``.txnindex`` too if the tail is torn, because fix ``index`` can never finish there. Fix
    ``recovery`` alone reads no more than a start would, so it does not change a wrong ``.txnindex``.
    """
    from krepair.rewrite.damage import RepairedLogItem

    return RepairedLogItem(
        place=place_of(view, analysis.partition),
        base_offset=base_offset,
        size=size,
        without=without,
        lost=lost,
        interval_bytes=analysis.settings.index_interval_bytes,
        replayed=(
            *(sized for sized in analysis.partition.log_sizes if sized[0] < base_offset),
            (base_offset, without[0][0]),
        )
        if torn
        else (),
    )


def _has_writers(analysis: PartitionAnalysis) -> bool:
    """Return whether the logs or their transaction indexes may hold a transaction."""
    indexes = any(segment.txn_index and segment.txn_index.size for segment in analysis.partition.segments)
    return indexes or any(len(facts.summary.rows) for facts in analysis.segments)
