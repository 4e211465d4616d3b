"""Fix ``checkpoints``: compare the offset checkpoints of the root with the logs, and plan their repair."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, of_version
from krepair.commit.by_disk import LARGEST_BYTES
from krepair.durable.attributes import read_attributes
from krepair.engine.engine import Engine
from krepair.errors import StalePlanError, UsageError
from krepair.fixes.analysis import PartitionAnalysis, ResultKey
from krepair.fixes.context import Context
from krepair.fixes.evidence import is_only_replica, read_metadata, recorded_as_only_replica
from krepair.fixes.files import RebuiltFile, put_staged, rebuild_change
from krepair.fixes.fix import Fix, Proposal, Purpose, RootProposal
from krepair.fixes.logs import read_active_segments
from krepair.fixes.missing_tails import end_now, missing_tails
from krepair.fixes.second_readings import LINES, SecondReading, as_planned, read_here
from krepair.fixes.staging import Staging, Work
from krepair.formats.checkpoint import decode_offsets
from krepair.formats.damage import UnknownVersion, shown
from krepair.formats.filenames import METADATA_TOPIC
from krepair.formats.words import count_text
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole
from krepair.logdir.values import FileRef, LogDir, OffsetCheckpoint, Partition
from krepair.logdir.view import beside
from krepair.next_command import Next
from krepair.options import consents_of
from krepair.plan.model import Change, ChangeLines, KeepOriginal, ReplaceFile
from krepair.rules.changed_entries import changed_entries, has_new_entries, with_entries
from krepair.rules.checkpoints import (
    KIND_OF,
    KINDS,
    CheckpointKind,
    Key,
    PastEnd,
    RepairedOffsets,
    repair_offsets,
)
from krepair.rules.missing_tails import RULE, MissingTail, wrong_consent

_SHOWN_AT_MOST = 20
_FEW = 3


class CheckpointFacts(NamedTuple):
    """Checkpoint file of the root, with the entries that the file should have.

    Attributes:
        mended: entries that the file should have.
        left: reason for not replacing the file, or empty.
    """

    file: FileRef
    mended: RepairedOffsets
    left: str = ""


LINES_AND_ORIGINAL: Final = LINES._replace(how="its lines against the plan and its original")
MISSING_TAILS_RESULT: ResultKey[tuple[MissingTail, ...]] = ResultKey("missing log tails")
CHECKPOINTS_RESULT: ResultKey[tuple[CheckpointFacts, ...]] = ResultKey("checkpoints of the root")


class Checkpoints(Fix):
    """Fix ``checkpoints``, which corrects untrue entries in the four offset checkpoints of the root."""

    name = "checkpoints"
    after = ("tail",)
    of_root = True

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Compare the files with the log end offsets after the changes of earlier fixes.

        Raises:
            UsageError: a consent does not name a missing log tail.
        """
        ends = log_ends(context.view, context.engine, context.analyses)
        now = {
            analysis.partition.key: end_now(context.view, analysis)
            for analysis in context.analyses.values()
            if analysis.segments
        }
        gone = missing_tails(context.view, ends | now, partial(is_only_replica, context))
        accepted = context.options.accepted_losses if purpose == "plan" else ()
        for text in consents_of(self.name, accepted):
            if wrong := wrong_consent(text, gone):
                raise UsageError(wrong, next_command=Next.of("check", context.view.path))
        held = held_entries(gone, accepted)
        context.root.put(MISSING_TAILS_RESULT, gone)
        context.root.put(CHECKPOINTS_RESULT, compare_checkpoints(context.view, ends, held))

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        return Proposal()

    def propose_root(self, context: Context) -> RootProposal:
        """Return findings KR312 (missing log tails), KR403 to KR406 and KR410, and the changes to the files."""
        gone, checkpoints = (
            context.root.result(MISSING_TAILS_RESULT) or (),
            context.root.result(CHECKPOINTS_RESULT) or (),
        )
        mends = sorted(
            (checkpoint for checkpoint in checkpoints if checkpoint.mended.needed and not checkpoint.left),
            key=lambda checkpoint: checkpoint.file.name,
        )
        return RootProposal(
            chain(_gone_findings(context.view, gone), checkpoint_findings(context.view, checkpoints)),
            changes=tuple(_change(checkpoint) for checkpoint in mends),
            notes=tuple(
                f"{checkpoint.file.name}: {text}"
                for checkpoint in mends
                for text in _notes(checkpoint.mended)
            ),
        )

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
        """Return the rebuilt bytes of a damaged file.

        The plan may have been made after a clean stop whose clean-shutdown marker is gone now. So the file is built
        twice: first with the entries of all missing log tails, then only with the entries of partitions without other
        replicas. The digest in the plan shows which of the two files is right.
        """
        planned = {partition.folder: partition.changes for partition in work.plan.partitions}
        ends = log_ends(work.view, work.engine, changes=planned)
        gone = missing_tails(work.view._replace(clean_shutdown=True), ends)
        others, accepted = work.plan.policy.others, work.plan.policy.accepted_losses
        metadata = read_metadata(work.view, others.own_metadata)
        alone = [
            end
            for end in gone
            if recorded_as_only_replica(work.view, metadata, others.only_replica, end.folder)
        ]
        data = b""
        for held in (held_entries(gone, accepted), held_entries(alone, accepted)):
            checkpoints = compare_checkpoints(work.view, ends, held)
            data = next(
                (file.mended.data for file in checkpoints if file.file.name == change.name and not file.left),
                b"",
            )
            if digest_bytes(data) == change.digest_after or work.view.clean_shutdown:
                break
        return RebuiltFile(data)

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Stage the files; in an intact file, change only the planned entries of its present content."""
        super().stage(work, stagings)
        for staging in stagings:
            with staging.taking_problems():
                for change in staging.changes:
                    if isinstance(change, ChangeLines):
                        data = _with_new_lines(work, staging, change)
                        like = read_attributes(staging.folder.at(change.name), work.disk.tree)
                        put_staged(work, staging, change.name, data, like)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield the checks of applied changes.

        A rebuilt file has the plan's bytes; any other file equals its original except for the planned entries.
        """
        for change in staging.changes:
            if isinstance(change, ChangeLines):
                yield _lines_again(staging, change)
            elif isinstance(change, ReplaceFile):
                yield as_planned(staging, change)


def held_entries(gone: Iterable[MissingTail], accepted: Collection[str]) -> frozenset[str]:
    """Return the folders whose recovery point and high watermark must not be lowered yet.

    These entries are the only evidence of a lost log tail, so krepair keeps the entries until a person consents to the
    loss.
    """
    return frozenset(end.folder for end in gone if end.consent not in accepted)


def _lines_again(staging: Staging, change: ChangeLines) -> SecondReading:
    """Check the changed entries of a file, and compare the file with its original as long as a backup exists.

    After a purge there is no original, and a broker may have written the other entries since.
    """
    folder, tree = staging.folder, staging.folder.tree
    data = read_whole(folder.at(change.name), LARGEST_BYTES, tree)
    kept = folder.at(folder.names.keep(change.name))
    wrong, kind = "", LINES
    if not has_new_entries(data, change.lines):
        wrong = "its lines are not those of the plan"
    if tree.is_there(kept):
        kind = LINES_AND_ORIGINAL
        if not wrong and with_entries(read_whole(kept, LARGEST_BYTES, tree), change.lines) != data:
            wrong = "is not its original with the lines of the plan"
    return read_here(change, kind, wrong)


def _with_new_lines(work: Work, staging: Staging, change: ChangeLines) -> bytes:
    data = read_whole(staging.folder.at(change.name), LARGEST_BYTES, work.disk.tree)
    made, path = with_entries(data, change.lines), staging.folder.at(change.name)
    if made is None:
        raise StalePlanError(f"{path}: its lines are not those that the plan changes")
    # Entries past the log end are determined again from the present logs, which apply may have changed.
    mended = repair_offsets(KIND_OF[change.name], decode_offsets(data), log_ends(work.view, work.engine))
    if not set(change.lines) <= set(changed_entries(mended.before, mended.entries)):
        raise StalePlanError(f"{path}: the entries, decided again, are not those of the plan")
    return made


CHECKPOINTS = Checkpoints()


def log_ends(
    view: LogDir,
    engine: Engine,
    analyses: Mapping[str, PartitionAnalysis] = {},
    *,
    changes: Mapping[str, Sequence[Change]] = {},
    of: Sequence[Partition] | None = None,
    unread: dict[str, str] | None = None,
) -> dict[Key, int | None]:
    """Return the log end offset of each partition; None where the log end cannot be determined.

    Args:
        engine: engine that scans last segments without known facts.
        analyses: analyses of partitions whose logs and changes are known, by folder.
        changes: changes that are assumed to be made, by folder.
        of: partitions whose log ends are returned; all by default.
        unread: receives the reason why a last segment could not be read, by folder.
    """
    partitions = view.partitions if of is None else of
    with_end = [part for part in partitions if part.has_an_end and part.topic != METADATA_TOPIC]
    proposed = {folder: analysis.changes for folder, analysis in analyses.items()}
    last = read_active_segments(
        view, engine, with_end, analyses, changes={**proposed, **changes}, unread=unread
    )
    ends: dict[Key, int | None] = {folder.key: None for folder in view.marked}
    for partition in partitions:
        facts = last.get(partition.folder)
        ends[partition.key] = None if facts is None or facts.summary.damage else facts.end_offset
    return ends


def _files_of(view: LogDir) -> tuple[tuple[CheckpointKind, OffsetCheckpoint], ...]:
    files = (view.recovery_point, view.high_watermark, view.log_start, view.cleaner)
    return tuple(zip(KINDS, files, strict=True))


def compare_checkpoints(
    view: LogDir, ends: Mapping[Key, int | None], held: Collection[str] = ()
) -> tuple[CheckpointFacts, ...]:
    """Compare those of the four files that exist with the logs.

    Args:
        ends: log end offset by partition, None if unknown.
        held: folders whose recovery point and high watermark are not lowered.
    """
    checkpoints = []
    not_lowered = {key: None if f"{key[0]}-{key[1]}" in held else end for key, end in ends.items()}
    for kind, checkpoint in _files_of(view):
        known = not_lowered if kind.past_end is PastEnd.LOWER else ends
        if checkpoint.file is None:
            continue
        too_large = checkpoint.file.size > 0 and not checkpoint.data
        mended = repair_offsets(kind, checkpoint.lines, known)
        if too_large:
            mended = mended._replace(damage=checkpoint.damage, needed=True)
        unknown = next((damage.text for damage in mended.damage if isinstance(damage, UnknownVersion)), "")
        reason = "too large to be read" if too_large else unknown
        checkpoints.append(CheckpointFacts(checkpoint.file, mended, reason))
    return tuple(checkpoints)


def _gone_findings(view: LogDir, gone: Iterable[MissingTail]) -> Iterator[Finding]:
    """Yield KR312 for each partition whose log tail is missing."""
    keys = {partition.folder: partition.key for partition in view.partitions}
    for end in gone:
        keeps = f"; --fix checkpoints keeps these lines without --accept-data-loss {end.consent}"
        again = "" if end.is_alone else ", or fetch the partition from another replica,"
        yield Finding(
            rule=RULE,
            partition=end.folder,
            evidence=f"{end.text}; first copy the files back{again} before this broker starts"
            f"{beside(view, keys[end.folder])}{keeps if end.consent else ''}",
            first_offset=end.end,
            last_offset=end.last,
        )


def checkpoint_findings(view: LogDir, checkpoints: Sequence[CheckpointFacts]) -> Iterator[Finding]:
    """Yield the findings on the checkpoints of the root."""
    for checked in checkpoints:
        kind, mended = checked.mended.kind, checked.mended
        if mended.damage:
            first = mended.damage[0]
            text = f"{damage_text(mended)}{_lost(mended)}"
            damaged = Finding(rule=kind.rule, file=kind.name, position=first.position, evidence=text)
            yield of_version(damaged, unknown=isinstance(first, UnknownVersion))
        for line in mended.past_end:
            more = "; the next start deletes every segment of it" if kind.rule == "KR405" else ""
            if kind.rule == "KR404":
                records = count_text(line.offset - line.end, "record is", "records are")
                more = (
                    f": up to {records} to be fetched from the leader, as is usual after a crash. If no other replica "
                    "has them, they are lost: first copy the files back"
                    f"{beside(view, (line.topic, line.partition))}"
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


def absent_partitions(checkpoints: Sequence[CheckpointFacts]) -> dict[Key, int]:
    """Return the partitions that are not in this directory, each with the highest offset of its entries."""
    absent: dict[Key, int] = {}
    for checkpoint in checkpoints:
        if not checkpoint.mended.kind.of_each:
            continue
        away = set(checkpoint.mended.away)
        for entry in checkpoint.mended.before:
            key = (entry.topic, entry.partition)
            if key in away:
                absent[key] = max(absent.get(key, 0), entry.offset)
    return absent


def absent_text(absent: Mapping[Key, int]) -> str:
    """Return text with the number of absent partitions and the names of the first."""
    names = [f"{shown(topic)}-{number} (up to {offset})" for (topic, number), offset in absent.items()]
    more = " ..." if len(names) > _FEW else ""
    return (
        f"{count_text(len(names), 'partition')} with a line in a checkpoint: {', '.join(names[:_FEW])}{more}"
    )


def moved_away(checkpoints: Sequence[CheckpointFacts]) -> str:
    """Return a warning if entries name partitions that are not in this directory; else empty."""
    absent = absent_partitions(checkpoints)
    if not absent:
        return ""
    return (
        f"{absent_text(absent)} not here. Put one that was moved away by hand back before any broker starts: else "
        "the broker begins it again, without its records. The line of a deleted one is removed by the broker"
    )


def damage_text(mended: RepairedOffsets) -> str:
    """Return the damage of the file itself, in one line."""
    first = mended.damage[0]
    more = f" and {len(mended.damage) - 1} more damaged lines" if len(mended.damage) > 1 else ""
    return f"{first.text}{more}"


def _lost(mended: RepairedOffsets) -> str:
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


def _change(checked: CheckpointFacts) -> ReplaceFile | ChangeLines:
    """Return the change to a file: a damaged file is rebuilt; in an intact file only the wrong entries change."""
    mended = checked.mended
    lines = () if mended.damage else changed_entries(mended.before, mended.entries)
    parts = [damage_text(mended)] if mended.damage else []
    if mended.decisions:
        parts.append(f"{count_text(len(mended.decisions), 'line')} that cannot be true")
    parts.append(count_text(len(mended.entries), "line stays", "lines stay"))
    if lines and all(line.topic.isprintable() for line in lines):
        return ChangeLines(
            change_id=f"./{checked.file.name}",
            name=checked.file.name,
            rule=mended.kind.rule,
            lines=lines,
            size_before=checked.file.size,
            reason="; ".join(parts),
            undo=KeepOriginal(),
        )
    return rebuild_change(
        ".", checked.file.name, checked.file, mended.data, mended.kind.rule, "; ".join(parts)
    )


def _notes(mended: RepairedOffsets) -> list[str]:
    lines = [line.text for line in mended.decisions[:_SHOWN_AT_MOST]]
    if len(mended.decisions) > _SHOWN_AT_MOST:
        lines.append(
            f"{count_text(len(mended.decisions) - _SHOWN_AT_MOST, 'more line', 'more lines')} like these"
        )
    lost = _lost(mended).removeprefix("; ")
    return [*lines, lost] if lost else lines
