"""The offset checkpoints in the root: held against the logs, turned into findings, and into changes of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding
from krepair.fixes.survey import NEVER_TOUCHED, Surveyed, facts_of, place_of
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.values import FileRef, LogDir, OffsetCheckpoint, Partition
from krepair.pipeline.engine import Engine
from krepair.pipeline.items import ScanItem
from krepair.pipeline.jobs import SCAN
from krepair.plan.model import FileFingerprint, KeepOriginal, ReplaceFile, RootPlan
from krepair.rules.checkpoints import KINDS, CheckpointKind, Key, LineReason, MendedOffsets, mend_lines
from krepair.rules.model import SegmentFacts

CHECKPOINTS_FIX = "checkpoints"
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


def log_ends(view: LogDir, engine: Engine, surveyed: Iterable[Surveyed] = ()) -> dict[Key, int | None]:
    """Log end offset of each partition that is there, None where it cannot be told.

    Args:
        view: the log directory.
        engine: scans the last segments that are not known yet.
        surveyed: partitions that were scanned already.
    """
    last = {each.partition.folder: each.segments[-1] for each in surveyed if each.segments}
    to_scan = [
        each for each in view.partitions if _can_tell(each) and not _is_last(each, last.get(each.folder))
    ]
    items = [
        ScanItem(
            place=place_of(view, each),
            base_offset=each.segments[-1].base_offset,
            size=each.segments[-1].log.size,
            now_ms=0,
            high_watermark=INT64_MAX,
        )
        for each in to_scan
    ]
    for index, result in engine.run(SCAN, items):
        partition = to_scan[index]
        if not result.failure:
            last[partition.folder] = facts_of(partition.segments[-1], result)
    ends: dict[Key, int | None] = {(each.topic, each.number): None for each in view.marked}
    for each in view.partitions:
        facts = last.get(each.folder)
        known = facts if _can_tell(each) and _is_last(each, facts) else None
        ends[each.topic, each.number] = None if known is None else _end_of(known)
    return ends


def _can_tell(partition: Partition) -> bool:
    """Whether the last segment listed is the one that a broker would append to."""
    pending = any(leftover.kind in {"swap", "cleaned"} for leftover in partition.leftovers)
    odd = any(special.name.endswith(".log") for special in partition.specials)
    usable = not partition.unreadable and partition.topic != NEVER_TOUCHED
    return usable and bool(partition.segments) and not pending and not odd


def _is_last(partition: Partition, facts: SegmentFacts | None) -> bool:
    return facts is not None and facts.base_offset == partition.segments[-1].base_offset


def _end_of(facts: SegmentFacts) -> int | None:
    return None if facts.summary.damage else max(facts.base_offset, facts.summary.last_offset + 1)


def _files_of(view: LogDir) -> tuple[tuple[CheckpointKind, OffsetCheckpoint], ...]:
    files = (view.recovery_point, view.high_watermark, view.log_start, view.cleaner)
    return tuple(zip(KINDS, files, strict=True))


def see_checkpoints(view: LogDir, ends: Mapping[Key, int | None]) -> tuple[SeenCheckpoint, ...]:
    """Hold the four files, as far as they are there, against the logs."""
    seen = []
    for kind, checkpoint in _files_of(view):
        if checkpoint.file is None:
            continue
        too_large = checkpoint.file.size > 0 and not checkpoint.data
        mended = mend_lines(kind, checkpoint.lines, ends)
        if too_large:
            mended = mended._replace(damage=checkpoint.damage, broker_reads=False, needed=True)
        seen.append(SeenCheckpoint(checkpoint.file, mended, "too large to be read" if too_large else ""))
    return tuple(seen)


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
            )
        for line in mended.past_end:
            deadly = "; the next start deletes every segment of it" if kind.rule == "KR405" else ""
            yield Finding(
                rule=kind.rule,
                partition=f"{line.topic}-{line.partition}",
                file=kind.name,
                evidence=f"{kind.word} {line.offset} is past the log end {line.end}{deadly}",
            )
        others = [line for line in mended.decisions if line.reason is not LineReason.PAST_END]
        if others:
            shown = "; ".join(line.text for line in others[:_FEW])
            yield Finding(
                rule=kind.rule,
                file=kind.name,
                evidence=f"{len(others)} lines that say nothing true: {shown}",
            )
    for file in view.temporary:
        yield Finding(
            rule="KR406",
            file=file.name,
            evidence=f"{file.size} bytes of an unfinished write",
            bytes=file.size,
        )


def damage_text(mended: MendedOffsets) -> str:
    """What is wrong with the file itself, in one line."""
    first = mended.damage[0]
    more = f" and {len(mended.damage) - 1} more damaged lines" if len(mended.damage) > 1 else ""
    return f"expected {first.expected}, found {first.found}{more}"


def _lost(mended: MendedOffsets) -> str:
    if not mended.without:
        return ""
    names = ", ".join(f"{topic}-{number}" for topic, number in mended.without[:_FEW])
    more = " ..." if len(mended.without) > _FEW else ""
    counts_as = mended.kind.missing
    return (
        f"; {len(mended.without)} partitions have no line in it ({names}{more}), which counts as {counts_as}"
    )


def keeper_of(view: LogDir, changing: Sequence[str] = ()) -> str:
    """The partition folder that holds what is staged and kept of the root's files; empty if there is none.

    Args:
        view: the log directory.
        changing: folders of partitions that change; one of these is taken, so that no other is touched.
    """
    usable = [each.folder for each in view.partitions if not each.unreadable and each.topic != NEVER_TOUCHED]
    return next((folder for folder in usable if folder in changing), usable[0] if usable else "")


def root_plan(seen: Sequence[SeenCheckpoint], keeper: str) -> RootPlan | None:
    """The changes of the root's files, None if there are none.

    Args:
        seen: the files.
        keeper: see ``keeper_of``.
    """
    mends = sorted((one for one in seen if one.mended.needed and not one.left), key=lambda one: one.file.name)
    if not mends or not keeper:
        return None
    return RootPlan(
        keeper=keeper,
        files=tuple(
            FileFingerprint(
                name=one.file.name,
                size=one.file.size,
                mtime_ns=one.file.mtime_ns,
                inode=one.file.inode,
                digest="",
            )
            for one in mends
        ),
        changes=tuple(_change(one) for one in mends),
        notes=tuple(f"{one.file.name}: {text}" for one in mends for text in _notes(one.mended)),
    )


def _change(one: SeenCheckpoint) -> ReplaceFile:
    data = one.mended.data
    parts = [damage_text(one.mended)] if one.mended.damage else []
    if one.mended.decisions:
        parts.append(f"{len(one.mended.decisions)} lines that cannot be true")
    parts.append(f"{len(one.mended.entries)} lines stay")
    return ReplaceFile(
        change_id=f"./{one.file.name}",
        name=one.file.name,
        method="regenerate",
        rule=one.mended.kind.rule,
        size_before=one.file.size,
        size_after=len(data),
        digest_after=digest_bytes(data),
        reason="; ".join(parts),
        undo=KeepOriginal(),
    )


def _notes(mended: MendedOffsets) -> list[str]:
    lines = [line.text for line in mended.decisions[:_SHOWN_AT_MOST]]
    if len(mended.decisions) > _SHOWN_AT_MOST:
        lines.append(f"{len(mended.decisions) - _SHOWN_AT_MOST} more lines like these")
    lost = _lost(mended).removeprefix("; ")
    return [*lines, lost] if lost else lines
