"""Find wrong entries of the four offset checkpoints of the root, and repair them.

A repair never makes a broker keep less. A high watermark or a recovery point past the log end is lowered to the log
end. A log start or a cleaner offset past the log end is removed; a broker then uses the start of the log. Entries that
cannot be read are removed without a replacement, because their content is not known. An entry of a partition that does
not exist here is kept: somebody may have moved the partition away, to bring it back. A broker removes the entry of a
deleted partition.

Source: ``OffsetCheckpointFile.scala``, ``LogManager.scala``, ``LogCleanerManager.scala`` (2.2.1, 3.9.0), and starts of
brokers 2.2.1, 3.9.2 and 4.3.1 on damaged files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from krepair.formats.bulk import many_values
from krepair.formats.checkpoint import Checkpoint, CheckpointEntry, encode_offsets
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    TOPIC_NAME,
)

Key = tuple[str, int]
"""Topic and partition number."""


class PastEnd(StrEnum):
    """The repair of an offset past the log end."""

    LOWER = "lowered to the log end"
    DROP = "dropped, so that the start of the log counts"


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """One of the four offset checkpoints.

    Attributes:
        name: name of the file.
        rule: code of its finding.
        word: meaning of its offsets, in a word.
        past_end: repair of an offset past the log end.
        missing: what a broker assumes if an entry is missing.
        of_each: True if a broker writes an entry for each partition.
    """

    name: str
    rule: str
    word: str
    past_end: PastEnd
    missing: str
    of_each: bool = True


KINDS = (
    CheckpointKind(
        RECOVERY_POINT_CHECKPOINT,
        "KR403",
        "recovery point",
        PastEnd.LOWER,
        "0: after an unclean stop its whole log is recovered",
    ),
    CheckpointKind(
        REPLICATION_CHECKPOINT,
        "KR404",
        "high watermark",
        PastEnd.LOWER,
        "0: it rises again as followers fetch",
    ),
    CheckpointKind(
        LOG_START_CHECKPOINT,
        "KR405",
        "log start",
        PastEnd.DROP,
        "the first segment's base offset: records deleted by request are back",
        of_each=False,
    ),
    CheckpointKind(
        CLEANER_CHECKPOINT,
        "KR410",
        "first dirty offset",
        PastEnd.DROP,
        "the log start: the cleaner reads the whole partition again",
        of_each=False,
    ),
)
KIND_OF = {kind.name: kind for kind in KINDS}


class EntryReason(StrEnum):
    """Reason for changing or removing an entry."""

    NO_TOPIC = "no topic has that name"
    NEGATIVE = "a negative offset"
    PAST_END = "past the log end"
    REPEATED = "another line of its partition"


class EntryDecision(NamedTuple):
    """One entry that is changed or removed.

    Attributes:
        reason: fault of the entry.
        topic: topic in the entry.
        partition: partition number in the entry.
        offset: offset in the entry.
        end: log end offset, -1 if it does not matter.
        becomes: the new offset, None if the entry is removed.
    """

    reason: EntryReason
    topic: str
    partition: int
    offset: int
    end: int
    becomes: int | None

    @property
    def text(self) -> str:
        """The decision in one line: the fault, and the repair."""
        end = f" {self.end}" if self.end >= 0 else ""
        becomes = "the line is removed" if self.becomes is None else f"becomes {self.becomes}"
        return f"{shown(self.topic)}-{self.partition} at {self.offset}: {self.reason.value}{end}; {becomes}"


class RepairedOffsets(NamedTuple):
    """One checkpoint after its repair.

    Attributes:
        kind: kind of the checkpoint file.
        before: entries before the repair.
        entries: entries after the repair.
        decisions: entries that are changed or removed.
        damage: faults of the file itself.
        without: partitions of the log directory without an entry, if the file is damaged and should have one for each.
        needed: True if the file has to be replaced.
        away: partitions of entries that are not in the log directory, in the order of the file.
    """

    kind: CheckpointKind
    before: tuple[CheckpointEntry, ...]
    entries: tuple[CheckpointEntry, ...]
    decisions: tuple[EntryDecision, ...]
    damage: tuple[Damage, ...]
    without: tuple[Key, ...]
    needed: bool
    away: tuple[Key, ...] = ()

    @property
    def data(self) -> bytes:
        """The new file as a broker writes it."""
        return encode_offsets(self.entries)

    @property
    def past_end(self) -> tuple[EntryDecision, ...]:
        """Entries past the log end."""
        return tuple(decision for decision in self.decisions if decision.reason is EntryReason.PAST_END)

    @property
    def others(self) -> tuple[EntryDecision, ...]:
        """Changed or removed entries that do not lie past the log end."""
        return tuple(decision for decision in self.decisions if decision.reason is not EntryReason.PAST_END)


def repair_offsets(
    kind: CheckpointKind, file: Checkpoint[CheckpointEntry], ends: Mapping[Key, int | None]
) -> RepairedOffsets:
    """Repair one checkpoint. Repairing a repaired file again changes nothing.

    Args:
        kind: kind of the checkpoint file.
        file: decoded content of the file.
        ends: log end offset by partition, for all partitions of the log directory; None if it is not known. An entry of
            such a partition, or of a partition that is not here, never counts as past the log end.
    """
    with many_values():
        return _repair(kind, file, ends)


def _repair(
    kind: CheckpointKind, file: Checkpoint[CheckpointEntry], ends: Mapping[Key, int | None]
) -> RepairedOffsets:
    kept: dict[Key, CheckpointEntry] = {}
    decisions: list[EntryDecision] = []
    for entry in file.entries:
        if entry[:2] not in ends and not TOPIC_NAME.fullmatch(entry.topic):
            decisions.append(EntryDecision(EntryReason.NO_TOPIC, *entry, -1, None))
            continue
        new = _repair_entry(kind, entry, ends, decisions)
        if new is None:
            continue
        key = (new.topic, new.partition)
        other = kept.get(key)
        if other is None:
            kept[key] = new
        else:
            # The lower of two offsets only costs time. The higher one may skip a recovery and leave a torn tail in the
            # log, or hide records.
            low, high = sorted((other, new), key=lambda candidate: candidate.offset)
            kept[key] = low
            decisions.append(
                EntryDecision(EntryReason.REPEATED, high.topic, high.partition, high.offset, -1, None)
            )
    entries = tuple(kept.values())
    without = tuple(sorted(set(ends) - set(kept))) if file.damage and kind.of_each else ()
    needed = bool(file.damage) or entries != file.entries
    away = tuple(key for key in kept if key not in ends)
    return RepairedOffsets(
        kind,
        file.entries,
        entries,
        tuple(decisions),
        file.damage,
        without,
        needed,
        away,
    )


def _repair_entry(
    kind: CheckpointKind,
    entry: CheckpointEntry,
    ends: Mapping[Key, int | None],
    decisions: list[EntryDecision],
) -> CheckpointEntry | None:
    end = ends.get((entry.topic, entry.partition))
    if entry.offset < 0:
        decisions.append(EntryDecision(EntryReason.NEGATIVE, *entry, -1, None))
        return None
    if end is None or entry.offset <= end:
        return entry
    becomes = end if kind.past_end is PastEnd.LOWER else None
    decisions.append(EntryDecision(EntryReason.PAST_END, *entry, end, becomes))
    return None if becomes is None else entry._replace(offset=becomes)
