"""The offset checkpoints in the root: held against the logs, turned into findings, and into changes of a plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity
from krepair.commit.by_disk import LARGEST_BYTES
from krepair.durable.attributes import read_attributes
from krepair.engine.engine import Engine
from krepair.engine.items import ScanItem, ScanResult
from krepair.errors import StalePlanError, UsageError
from krepair.fixes.context import Context, place_of
from krepair.fixes.evidence import is_only_replica, read_metadata, said_to_be_alone
from krepair.fixes.files import Made, made_anew, put_staged
from krepair.fixes.fix import Fix, Purpose, Seen, SeenRoot
from krepair.fixes.gone_ends import end_now, gone_ends
from krepair.fixes.logs import LogPart, facts_of, parts_after
from krepair.fixes.second_readings import (
    LINES,
    SecondReading,
    as_planned,
    seen_here,
)
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Sight, Survey
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.damage import UnknownVersion, shown
from krepair.formats.filenames import METADATA_TOPIC
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import count_text
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole
from krepair.logdir.values import FileRef, LogDir, OffsetCheckpoint, Partition
from krepair.next_command import Next
from krepair.options import consents_of
from krepair.plan.model import Change, ChangeLines, KeepOriginal, ReplaceFile
from krepair.rules.checkpoint_lines import has_new_lines, lines_between, with_lines
from krepair.rules.checkpoints import (
    KIND_OF,
    KINDS,
    CheckpointKind,
    Key,
    MendedOffsets,
    PastEnd,
    mend_offsets,
)
from krepair.rules.gone_ends import RULE, GoneEnd, wrong_consent
from krepair.rules.model import SegmentFacts

_SHOWN_AT_MOST = 20
_FEW = 3


class SeenCheckpoint(NamedTuple):
    """One checkpoint file that is there.

    Attributes:
        file: the file.
        mended: what should be there.
        left: why it is not to be replaced, or empty.
    """

    file: FileRef
    mended: MendedOffsets
    left: str = ""


LINES_AND_ORIGINAL: Final = LINES._replace(how="its lines against the plan and its original")
GONE_SEEN: Sight[tuple[GoneEnd, ...]] = Sight("ends that are gone")
CHECKPOINTS_SEEN: Sight[tuple[SeenCheckpoint, ...]] = Sight("checkpoints of the root")


class Checkpoints(Fix):
    """The four offset checkpoints of the root: lines that a broker would trust, and that cannot be true, are mended."""

    name = "checkpoints"
    after = ("tail",)
    of_root = True

    def read(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Hold the files against the ends of the logs, as they will be after the changes of earlier fixes.

        Raises:
            UsageError: a consent does not name an end that is gone.
        """
        ends = log_ends(context.view, context.engine, context.surveys)
        now = {
            one.partition.key: end_now(context.view, one) for one in context.surveys.values() if one.segments
        }
        gone = gone_ends(context.view, ends | now, partial(is_only_replica, context))
        accepted = context.options.accepted_losses if purpose == "plan" else ()
        for text in consents_of(self.name, accepted):
            if wrong := wrong_consent(text, gone):
                raise UsageError(wrong, next_command=Next.of("check", context.view.path))
        held = held_lines(gone, accepted)
        context.root.put(GONE_SEEN, gone)
        context.root.put(CHECKPOINTS_SEEN, see_checkpoints(context.view, ends, held))

    def look(self, context: Context, survey: Survey) -> Seen:
        return Seen()

    def look_root(self, context: Context) -> SeenRoot:
        """KR312 of ends that are gone; KR403 to KR406, and KR410."""
        gone, seen = context.root.seen(GONE_SEEN) or (), context.root.seen(CHECKPOINTS_SEEN) or ()
        mends = sorted(
            (one for one in seen if one.mended.needed and not one.left), key=lambda one: one.file.name
        )
        return SeenRoot(
            chain(_gone_findings(gone), checkpoint_findings(context.view, seen)),
            changes=tuple(_change(one) for one in mends),
            notes=tuple(f"{one.file.name}: {text}" for one in mends for text in _notes(one.mended)),
        )

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> Made:
        """A damaged file is made anew from the logs, with the lines of ends that are gone as they are.

        So it is if the plan was made after a clean stop.
        """
        planned = {partition.folder: partition.changes for partition in work.plan.partitions}
        ends = log_ends(work.view, work.engine, changes=planned)
        gone = gone_ends(work.view._replace(clean_shutdown=True), ends)
        others, accepted = work.plan.policy.others, work.plan.policy.accepted_losses
        metadata = read_metadata(work.view, others.own_metadata)
        alone = [
            one for one in gone if said_to_be_alone(work.view, metadata, others.only_replica, one.folder)
        ]
        made = b""
        for held in (held_lines(gone, accepted), held_lines(alone, accepted)):
            seen = see_checkpoints(work.view, ends, held)
            made = next(
                (one.mended.data for one in seen if one.file.name == change.name and not one.left), b""
            )
            if digest_bytes(made) == change.digest_after or work.view.clean_shutdown:
                break
        return Made(made)

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Of an intact file the lines are changed on the disk as it is."""
        super().stage(work, stagings)
        for staging in stagings:
            with staging.taking_problems():
                for change in staging.changes:
                    if isinstance(change, ChangeLines):
                        data = _with_new_lines(work, staging, change)
                        like = read_attributes(staging.folder.at(change.name), work.disk.tree)
                        put_staged(work, staging, change.name, data, like)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """A file made anew has the plan's bytes; another is its original with the lines that change."""
        for change in staging.changes:
            if isinstance(change, ChangeLines):
                yield _lines_again(staging, change)
            elif isinstance(change, ReplaceFile):
                yield as_planned(staging, change)


def held_lines(gone: Iterable[GoneEnd], accepted: Collection[str]) -> frozenset[str]:
    """Folders whose recovery point and high watermark stay, since they tell of a loss and nobody consented."""
    return frozenset(one.folder for one in gone if one.consent not in accepted)


def _lines_again(staging: Staging, change: ChangeLines) -> SecondReading:
    """After a purge there is no original, and a broker may have written the other lines."""
    folder, tree = staging.folder, staging.folder.tree
    data = read_whole(folder.at(change.name), LARGEST_BYTES, tree)
    kept = folder.at(folder.names.keep(change.name))
    wrong, kind = "", LINES
    if not has_new_lines(data, change.lines):
        wrong = "its lines are not those of the plan"
    if tree.is_there(kept):
        kind = LINES_AND_ORIGINAL
        if not wrong and with_lines(read_whole(kept, LARGEST_BYTES, tree), change.lines) != data:
            wrong = "is not its original with the lines of the plan"
    return seen_here(change, kind, wrong)


def _with_new_lines(work: Work, staging: Staging, change: ChangeLines) -> bytes:
    data = read_whole(staging.folder.at(change.name), LARGEST_BYTES, work.disk.tree)
    made, path = with_lines(data, change.lines), staging.folder.at(change.name)
    if made is None:
        raise StalePlanError(f"{path}: its lines are not those that the plan changes")
    # What is past the log end is decided again, by the logs as they are by now.
    mended = mend_offsets(KIND_OF[change.name], decode_offsets(data), log_ends(work.view, work.engine))
    if not set(change.lines) <= set(lines_between(mended.before, mended.entries)):
        raise StalePlanError(f"{path}: the lines, worked out again, are not those of the plan")
    return made


CHECKPOINTS = Checkpoints()


def log_ends(
    view: LogDir,
    engine: Engine,
    surveys: Mapping[str, Survey] = {},
    *,
    changes: Mapping[str, Sequence[Change]] = {},
    of: Sequence[Partition] | None = None,
    unread: dict[str, str] | None = None,
) -> dict[Key, int | None]:
    """Log end offset of each partition that is there, None where it cannot be told.

    Args:
        view: the log directory.
        engine: scans the last segments that are not known yet.
        surveys: folder -> survey, of partitions that were looked at: their logs are known, and what changes of them.
        changes: folder -> changes after which the logs end where they end.
        of: partitions that were asked for; all by default.
        unread: gets folder -> why the last segment could not be read.
    """
    from krepair.scan.scan import scan

    partitions = view.partitions if of is None else of
    last: dict[str, SegmentFacts] = {}
    to_scan: list[tuple[Partition, LogPart]] = []
    for partition in partitions:
        if not partition.has_an_end or partition.topic == METADATA_TOPIC:
            continue
        known = surveys.get(partition.folder)
        parts = parts_after(partition, changes.get(partition.folder, () if known is None else known.changes))
        facts = known.segments_after[-1] if known is not None and known.segments_after else None
        if facts is not None and parts and facts.base_offset == parts[-1].base_offset:
            last[partition.folder] = facts
        elif parts:
            to_scan.append((partition, parts[-1]))
    asked = []
    for partition, part in to_scan:
        item = ScanItem(
            place=place_of(view, partition),
            base_offset=part.base_offset,
            size=part.segment.log.size,
            now_ms=0,
            high_watermark=INT64_MAX,
            without=part.without,
        )
        asked.append(((partition, part), item))
    for (partition, part), result in engine.each(scan, asked):
        if isinstance(result, ScanResult):
            last[partition.folder] = facts_of(part.segment, result)
        elif unread is not None:
            unread[partition.folder] = result.why
    ends: dict[Key, int | None] = {folder.key: None for folder in view.marked}
    for partition in partitions:
        facts = last.get(partition.folder)
        ends[partition.key] = None if facts is None or facts.summary.damage else facts.end_offset
    return ends


def _files_of(view: LogDir) -> tuple[tuple[CheckpointKind, OffsetCheckpoint], ...]:
    files = (view.recovery_point, view.high_watermark, view.log_start, view.cleaner)
    return tuple(zip(KINDS, files, strict=True))


def see_checkpoints(
    view: LogDir, ends: Mapping[Key, int | None], held: Collection[str] = ()
) -> tuple[SeenCheckpoint, ...]:
    """Hold the four files, as far as they are there, against the logs.

    Args:
        view: the log directory.
        ends: log end offset by partition, None where it is not known.
        held: folders whose recovery point and high watermark are not lowered.
    """
    seen = []
    not_lowered = {key: None if f"{key[0]}-{key[1]}" in held else end for key, end in ends.items()}
    for kind, checkpoint in _files_of(view):
        known = not_lowered if kind.past_end is PastEnd.LOWER else ends
        if checkpoint.file is None:
            continue
        too_large = checkpoint.file.size > 0 and not checkpoint.data
        mended = mend_offsets(kind, checkpoint.lines, known)
        if too_large:
            mended = mended._replace(damage=checkpoint.damage, needed=True)
        unknown = next((one.text for one in mended.damage if isinstance(one, UnknownVersion)), "")
        seen.append(SeenCheckpoint(checkpoint.file, mended, "too large to be read" if too_large else unknown))
    return tuple(seen)


def _gone_findings(gone: Iterable[GoneEnd]) -> Iterator[Finding]:
    """KR312: one for each partition."""
    for one in gone:
        keeps = f"; --fix checkpoints keeps these lines without --accept-data-loss {one.consent}"
        again = "" if one.is_alone else ", or fetch the partition from another replica,"
        yield Finding(
            rule=RULE,
            partition=one.folder,
            evidence=f"{one.text}; first copy the files back{again} before this broker starts"
            f"{keeps if one.consent else ''}",
            first_offset=one.end,
            last_offset=one.last,
        )


def checkpoint_findings(view: LogDir, seen: Sequence[SeenCheckpoint]) -> Iterator[Finding]:
    """What is wrong with the checkpoints of the root."""
    for one in seen:
        kind, mended = one.mended.kind, one.mended
        if mended.damage:
            first = mended.damage[0]
            yield Finding(
                rule=kind.rule,
                file=kind.name,
                position=first.position,
                evidence=f"{damage_text(mended)}{_lost(mended)}",
                severity=Severity.CONFUSING if isinstance(first, UnknownVersion) else None,
                fix="none" if isinstance(first, UnknownVersion) else "",
            )
        for line in mended.past_end:
            more = "; the next start deletes every segment of it" if kind.rule == "KR405" else ""
            if kind.rule == "KR404":
                records = count_text(line.offset - line.end, "record is", "records are")
                more = (
                    f": up to {records} to be fetched from the leader, as is usual after a crash. If no other replica "
                    "has them, they are lost: first copy the files back"
                )
            yield Finding(
                rule=kind.rule,
                partition=f"{line.topic}-{line.partition}",
                file=kind.name,
                evidence=f"{kind.word} {line.offset} is past the log end {line.end}{more}",
            )
        count = len(mended.others)
        if count:
            shown = "; ".join(line.text for line in mended.others[:_FEW])
            yield Finding(
                rule=kind.rule,
                file=kind.name,
                evidence=f"{count_text(count, 'line')} that cannot be true: {shown}",
            )
    for file in view.temporary:
        yield Finding(
            rule="KR406",
            file=file.name,
            evidence=f"{file.size} bytes of an unfinished write",
            bytes=file.size,
        )


def absent_partitions(seen: Sequence[SeenCheckpoint]) -> dict[Key, int]:
    """Partitions that are not here -> the highest offset that a line of each has; only files with a line for each."""
    found: dict[Key, int] = {}
    for one in seen:
        if not one.mended.kind.of_each:
            continue
        away = set(one.mended.away)
        for entry in one.mended.before:
            key = (entry.topic, entry.partition)
            if key in away:
                found[key] = max(found.get(key, 0), entry.offset)
    return found


def absent_text(absent: Mapping[Key, int]) -> str:
    """How many they are, and the names of the first."""
    names = [f"{shown(topic)}-{number} (up to {offset})" for (topic, number), offset in absent.items()]
    more = " ..." if len(names) > _FEW else ""
    return (
        f"{count_text(len(names), 'partition')} with a line in a checkpoint: {', '.join(names[:_FEW])}{more}"
    )


def moved_away(seen: Sequence[SeenCheckpoint]) -> str:
    """That lines speak of partitions that are not here, and what must not happen then; empty where none does."""
    absent = absent_partitions(seen)
    if not absent:
        return ""
    return (
        f"{absent_text(absent)} not here. Put one that was moved away by hand back before any broker starts: else "
        "the broker begins it again, without its records. The line of a deleted one is removed by the broker"
    )


def damage_text(mended: MendedOffsets) -> str:
    """What is wrong with the file itself, in one line."""
    first = mended.damage[0]
    more = f" and {len(mended.damage) - 1} more damaged lines" if len(mended.damage) > 1 else ""
    return f"{first.text}{more}"


def _lost(mended: MendedOffsets) -> str:
    if not mended.without:
        return ""
    names = ", ".join(f"{topic}-{number}" for topic, number in mended.without[:_FEW])
    more = " ..." if len(mended.without) > _FEW else ""
    counts_as = mended.kind.missing
    return (
        f"; {count_text(len(mended.without), 'partition has', 'partitions have')} no line in it "
        f"({names}{more}), which counts "
        f"as {counts_as}"
    )


def _change(one: SeenCheckpoint) -> ReplaceFile | ChangeLines:
    """A damaged file is made anew; of an intact one only the wrong lines change."""
    mended = one.mended
    lines = () if mended.damage else lines_between(mended.before, mended.entries)
    parts = [damage_text(mended)] if mended.damage else []
    if mended.decisions:
        parts.append(f"{count_text(len(mended.decisions), 'line')} that cannot be true")
    parts.append(count_text(len(mended.entries), "line stays", "lines stay"))
    if lines and all(line.topic.isprintable() for line in lines):
        return ChangeLines(
            change_id=f"./{one.file.name}",
            name=one.file.name,
            rule=mended.kind.rule,
            lines=lines,
            size_before=one.file.size,
            reason="; ".join(parts),
            undo=KeepOriginal(),
        )
    return made_anew(".", one.file.name, one.file, mended.data, mended.kind.rule, "; ".join(parts))


def _notes(mended: MendedOffsets) -> list[str]:
    lines = [line.text for line in mended.decisions[:_SHOWN_AT_MOST]]
    if len(mended.decisions) > _SHOWN_AT_MOST:
        lines.append(
            f"{count_text(len(mended.decisions) - _SHOWN_AT_MOST, 'more line', 'more lines')} like these"
        )
    lost = _lost(mended).removeprefix("; ")
    return [*lines, lost] if lost else lines
