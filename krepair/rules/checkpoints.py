"""The four offset checkpoints of the root: which lines a broker may read, and how the others are mended.

Every line is mended so that a broker can only keep more: a high watermark or a recovery point past the log end comes
down to it, a log start or a cleaner's offset past it goes, which counts as the start of the log. Lines that cannot be
read go; nothing is put in their place, since what they said cannot be known.

Source: ``OffsetCheckpointFile.scala``, ``LogManager.scala``, ``LogCleanerManager.scala`` (2.2.1, 3.9.0), and brokers
2.2.1, 3.9.2 and 4.3.1 started on damaged files.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from krepair.formats.bulk import many_values
from krepair.formats.checkpoint import Checkpoint, OffsetEntry, decode_offsets, encode_offsets
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)

if TYPE_CHECKING:
    from krepair.formats.offset_lines import OffsetLines

Key = tuple[str, int]
"""Topic and partition number."""


class PastEnd(StrEnum):
    """What becomes of an offset past the log end."""

    LOWER = "lowered to the log end"
    DROP = "dropped, which counts as the start of the log"


@dataclass(frozen=True, slots=True)
class CheckpointKind:
    """One of the four files.

    Attributes:
        name: of the file.
        rule: the finding of it.
        word: what its offsets are.
        past_end: what becomes of an offset past the log end.
        missing: what a broker takes for a line that is not there.
        of_each: whether a broker writes a line for each partition.
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


class LineReason(StrEnum):
    """Why a line is not as it was."""

    ABSENT = "its partition is not in this log directory"
    NEGATIVE = "a negative offset"
    PAST_END = "past the log end"
    REPEATED = "another line of its partition"


class LineDecision(NamedTuple):
    """One line that does not stay as it is.

    Attributes:
        reason: why.
        topic: of the line, as it stands.
        partition: number in the line.
        offset: in the line.
        end: log end offset, -1 if that does not matter.
        becomes: the new offset, None if the line goes.
    """

    reason: LineReason
    topic: str
    partition: int
    offset: int
    end: int
    becomes: int | None

    @property
    def text(self) -> str:
        """One line with both sides."""
        end = f" {self.end}" if self.end >= 0 else ""
        becomes = "the line goes" if self.becomes is None else f"becomes {self.becomes}"
        return f"{shown(self.topic)}-{self.partition} at {self.offset}: {self.reason.value}{end}; {becomes}"


class MendedOffsets(NamedTuple):
    """One checkpoint, mended.

    Attributes:
        kind: which.
        before: entries of the file as it was.
        entries: of the new file.
        decisions: lines that are not as they were.
        damage: what is wrong with the file itself.
        broker_reads: whether a broker would take it as it is.
        without: partitions of the log directory that have no line in a damaged file which should have one of each.
        needed: whether the file has to be replaced.
    """

    kind: CheckpointKind
    before: tuple[OffsetEntry, ...]
    entries: tuple[OffsetEntry, ...]
    decisions: tuple[LineDecision, ...]
    damage: tuple[Damage, ...]
    broker_reads: bool
    without: tuple[Key, ...]
    needed: bool

    @property
    def data(self) -> bytes:
        """The new file as a broker writes it."""
        return encode_offsets(self.entries)

    @property
    def past_end(self) -> tuple[LineDecision, ...]:
        """The lines past the log end."""
        return tuple(one for one in self.decisions if one.reason is LineReason.PAST_END)

    def others(self, at_most: int) -> tuple[int, tuple[LineDecision, ...]]:
        """How many other lines are not as they were, and the first of them."""
        others = [one for one in self.decisions if one.reason is not LineReason.PAST_END]
        return len(others), tuple(others[:at_most])


@dataclass(eq=False)
class MendedTable:
    """One large checkpoint that is as a broker writes it, mended: the same as ``MendedOffsets``.

    How many lines are wrong, and the first of them, is told from the columns. A value for each line is made only for
    whoever asks.

    Attributes:
        kind: which.
        found: its lines.
        ends: as of ``mend_offsets``.
    """

    kind: CheckpointKind
    found: OffsetLines
    ends: Mapping[Key, int | None]
    damage: tuple[Damage, ...] = ()
    broker_reads: bool = True
    without: tuple[Key, ...] = ()

    @cached_property
    def _whole(self) -> MendedOffsets:
        return mend_offsets(self.kind, self.found.data, self.ends)

    @cached_property
    def _known(self) -> dict[int, int | None]:
        """Number of each line of a partition that is there -> its log end, in the order of the file."""
        places = ((self.found.place(*key), end) for key, end in self.ends.items())
        return dict(sorted((place, end) for place, end in places if place >= 0))

    @property
    def before(self) -> tuple[OffsetEntry, ...]:
        """As of ``MendedOffsets``."""
        return self._whole.before

    @property
    def entries(self) -> tuple[OffsetEntry, ...]:
        """As of ``MendedOffsets``."""
        return self._whole.entries

    @property
    def decisions(self) -> tuple[LineDecision, ...]:
        """As of ``MendedOffsets``."""
        return self._whole.decisions

    @property
    def data(self) -> bytes:
        """As of ``MendedOffsets``."""
        return self._whole.data

    @property
    def needed(self) -> bool:
        """As of ``MendedOffsets``."""
        return len(self._known) < len(self.found) or bool(self.past_end)

    @cached_property
    def past_end(self) -> tuple[LineDecision, ...]:
        """As of ``MendedOffsets``."""
        decisions: list[LineDecision] = []
        for place in self._known:
            _mended(self.kind, self.found.entry(place), self.ends, decisions)
        return tuple(decisions)

    def others(self, at_most: int) -> tuple[int, tuple[LineDecision, ...]]:
        """As of ``MendedOffsets``: here lines of partitions that are not there, and nothing else."""
        absent = (place for place in range(len(self.found)) if place not in self._known)
        first = tuple(
            LineDecision(LineReason.ABSENT, *self.found.entry(place), -1, None)
            for place in itertools.islice(absent, at_most)
        )
        return len(self.found) - len(self._known), first


Mended = MendedOffsets | MendedTable


def mend_offsets(kind: CheckpointKind, data: bytes, ends: Mapping[Key, int | None]) -> MendedOffsets:
    """Mend one file; pure, and it comes to rest.

    Args:
        kind: which file.
        data: its bytes.
        ends: log end offset of each partition that is there; None where it is not known: its lines stay as they are.
    """
    return mend_lines(kind, decode_offsets(data), ends)


def mend_lines(
    kind: CheckpointKind, found: Checkpoint[OffsetEntry], ends: Mapping[Key, int | None]
) -> MendedOffsets:
    """Mend what was read of one file, as ``mend_offsets``."""
    with many_values():
        return _mend(kind, found, ends)


def _mend(
    kind: CheckpointKind, found: Checkpoint[OffsetEntry], ends: Mapping[Key, int | None]
) -> MendedOffsets:
    kept: dict[Key, OffsetEntry] = {}
    decisions: list[LineDecision] = []
    for entry in found.entries:
        if entry[:2] not in ends:
            decisions.append(LineDecision._make((LineReason.ABSENT, *entry, -1, None)))
            continue
        new = _mended(kind, entry, ends, decisions)
        if new is None:
            continue
        key = (new.topic, new.partition)
        other = kept.get(key)
        if other is None:
            kept[key] = new
        else:
            low, high = sorted((other, new), key=lambda one: one.offset)
            kept[key] = low
            decisions.append(
                LineDecision(LineReason.REPEATED, high.topic, high.partition, high.offset, -1, None)
            )
    entries = tuple(kept.values())
    without = tuple(sorted(set(ends) - set(kept))) if found.damage and kind.of_each else ()
    needed = bool(found.damage) or entries != found.entries
    return MendedOffsets(
        kind, found.entries, entries, tuple(decisions), found.damage, found.broker_reads, without, needed
    )


def _mended(
    kind: CheckpointKind, entry: OffsetEntry, ends: Mapping[Key, int | None], decisions: list[LineDecision]
) -> OffsetEntry | None:
    end = ends[entry.topic, entry.partition]
    if entry.offset < 0:
        decisions.append(LineDecision(LineReason.NEGATIVE, *entry, -1, None))
        return None
    if end is None or entry.offset <= end:
        return entry
    becomes = end if kind.past_end is PastEnd.LOWER else None
    decisions.append(LineDecision(LineReason.PAST_END, *entry, end, becomes))
    return None if becomes is None else entry._replace(offset=becomes)
