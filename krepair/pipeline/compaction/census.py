"""Task of ``plan --fix compact``: what goes of one partition of ``__consumer_offsets``, by kind and by group."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.formats import group_metadata
from krepair.kernels import key_census as n
from krepair.kernels.compact_records import SLACK
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, why
from krepair.pipeline.compaction.items import CompactItem, ranges_of
from krepair.pipeline.compaction.tasks import offsets_between
from krepair.pipeline.coordinators.walk import KeptDamage, RecordWalk
from krepair.pipeline.indexes.regenerate import read_into_from
from krepair.pipeline.items import FailureKind, Place
from krepair.pipeline.place import reached
from krepair.rules.outcome import GroupBytes, KindOfRecord

MOST_GROUPS: Final = 20
_FIRST_GROUPS: Final = 1 << 12
_FIRST_ARENA: Final = 1 << 18
_SLOTS_A_ROW: Final = 4
_WINDOW_BYTES: Final = 1 << 20


class CensusItem(Struct, frozen=True, kw_only=True):
    """One partition.

    Attributes:
        place: where.
        segments: how each segment below the bound is compacted, ascending.
    """

    place: Place
    segments: tuple[CompactItem, ...]

    @property
    def bytes_to_read(self) -> int:
        """The logs below the bound."""
        return sum(segment.bytes_to_read for segment in self.segments)


class CensusResult(Struct, frozen=True, kw_only=True):
    """What goes.

    Attributes:
        failure: kind of failure, empty if it could be read.
        why: of a failure.
        kinds: kinds of record, those that occur.
        groups: with the most bytes.
    """

    failure: FailureKind = ""
    why: str = ""
    kinds: tuple[KindOfRecord, ...] = ()
    groups: tuple[GroupBytes, ...] = ()


class _Tables:
    """What is counted, over all segments of a partition."""

    def __init__(self) -> None:
        self.kinds = np.zeros((n.KINDS, n.KIND_COLUMNS), np.int64)
        self.state = np.zeros(n.STATE_SIZE, np.int64)
        self.groups: Any = np.zeros((_FIRST_GROUPS, n.GROUP_COLUMNS), np.int64)
        self.slots: Any = np.full(_FIRST_GROUPS * _SLOTS_A_ROW, -1, np.int32)
        self.arena: Any = np.zeros(_FIRST_ARENA, np.uint8)

    def take(self, buf: Any, batches: Any, counts: Any, records: Any, known: _Decided) -> None:
        """Count the records of some batches."""
        self.state[[n.S_BATCH, n.S_RECORD]] = 0
        while not n.count_keys(
            buf, batches, counts, records, known.stays, known.held, known.aborted, known.inputs,
            self.kinds, self.groups, self.slots, self.arena, self.state,
        ):  # fmt: skip
            self._grow()

    def take_window(self, window: Any, filled: int, known: _Decided) -> int:
        """Count the batches of a window from ``S_BATCH`` on; see ``count_window``."""
        while True:
            status = n.count_window(
                window, filled, known.stays, known.held, known.aborted, known.inputs, self.kinds, self.groups,
                self.slots, self.arena, self.state,
            )  # fmt: skip
            if status != n.TABLES_FULL:
                return int(status)
            self._grow()

    def _grow(self) -> None:
        old, names, known = self.groups, self.arena, int(self.state[n.S_GROUPS])
        self.groups = np.zeros((len(old) * 2, n.GROUP_COLUMNS), np.int64)
        self.slots = np.full(len(self.groups) * _SLOTS_A_ROW, -1, np.int32)
        self.arena = np.zeros(len(names) * 2, np.uint8)
        self.state[[n.S_GROUPS, n.S_ARENA]] = 0
        for row in range(known):
            size = int(old[row, n.G_NAME_SIZE])
            place = n.group_row(
                names, int(old[row, n.G_NAME]), size, self.groups, self.slots, self.arena, self.state
            )
            self.groups[place, n.G_RECORDS :] = old[row, n.G_RECORDS :]

    def kinds_found(self) -> tuple[KindOfRecord, ...]:
        """Those that occur, by the version of their key."""
        return tuple(
            KindOfRecord(
                kind=_name(kind),
                records=int(row[n.K_RECORDS]),
                kept=int(row[n.K_KEPT]),
                superseded=int(row[n.K_SUPERSEDED]),
                tombstones_dropped=int(row[n.K_TOMBSTONES_DROPPED]),
                tombstones_kept=int(row[n.K_TOMBSTONES_KEPT]),
                aborted=int(row[n.K_ABORTED]),
                bytes_before=int(row[n.K_BYTES]),
                bytes_after=int(row[n.K_BYTES_KEPT]),
            )
            for kind, row in enumerate(self.kinds)
            if row[n.K_RECORDS]
        )

    def largest_groups(self) -> tuple[GroupBytes, ...]:
        """Those with the most bytes, the largest first."""
        rows = self.groups[: self.state[n.S_GROUPS]]
        order = np.argsort(-rows[:, n.G_BYTES], kind="stable")[:MOST_GROUPS]
        return tuple(
            GroupBytes(
                group=_text(self.arena, row),
                records=int(row[n.G_RECORDS]),
                kept=int(row[n.G_KEPT]),
                bytes_before=int(row[n.G_BYTES]),
                bytes_after=int(row[n.G_BYTES_KEPT]),
            )
            for row in rows[order]
        )


def _text(arena: Any, row: Any) -> str:
    raw = arena[row[n.G_NAME] : row[n.G_NAME] + row[n.G_NAME_SIZE]].tobytes()
    return bytes(raw).decode("utf-8", "backslashreplace")


def _name(kind: int) -> str:
    if kind == n.NO_KEY:
        return "without key"
    known = group_metadata.RECORDS.types.get(kind)
    return "unknown" if known is None else f"{known.name} (key version {kind})"


@dataclass
class _Decided:
    """What is known of the records of one segment; see ``count_keys``."""

    stays: Any
    held: Any
    aborted: Any
    inputs: Any


def _decided(item: CompactItem) -> _Decided:
    return _Decided(
        stays=offsets_between(item.stays, item.base_offset, item.next_base),
        held=offsets_between(item.held, item.base_offset, item.next_base),
        aborted=np.array(ranges_of(item.aborted)),
        inputs=np.array([item.now_ms, item.drop_unstamped, item.forced, item.drops_stamped], np.int64),
    )


def _front(read_into: ReadInto, size: int, known: _Decided, tables: _Tables) -> int:
    """Count the uncompressed v2 batches at the front of a log, which is all of most; where they end."""
    window: Any = np.empty(_WINDOW_BYTES + SLACK, np.uint8)[:_WINDOW_BYTES]
    position = 0
    tables.state[n.S_RECORD] = 0
    while position < size:
        view, filled = window.data, 0
        wanted = min(len(window), size - position)
        while filled < wanted and (got := read_into(view[filled:wanted], position + filled)):
            filled += got
        tables.state[n.S_BATCH] = 0
        status = tables.take_window(window, filled, known)
        position += int(tables.state[n.S_BATCH])
        if status == n.OTHER or tables.state[n.S_BATCH] == 0:
            break
    return position


def _from(read_into: ReadInto, start: int) -> ReadInto:
    return lambda buffer, position: read_into(buffer, start + position)


class _CensusWalk(RecordWalk):
    """Hands every record of a segment, from a position on, to the tables."""

    def __init__(
        self,
        read_into: ReadInto,
        item: CompactItem,
        start: int,
        known: _Decided,
        kept: KeptDamage,
        tables: _Tables,
    ) -> None:
        super().__init__(_from(read_into, start), item.size - start, item.base_offset, kept)
        self._tables = tables
        self._known = known

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        self._tables.take(np.asarray(buf), rows, counts, records, self._known)
        yield from ()


def take_census(item: CensusItem) -> CensusResult:
    """Count the records of one partition, by kind and by group."""
    tree, wrong = reached(item.place)
    if wrong:
        return CensusResult(failure="elsewhere", why=wrong)
    tables, kept = _Tables(), KeptDamage()
    path = ""
    try:
        for segment in item.segments:
            path = f"{segment.place.stem(segment.base_offset)}.log"
            with opened_for_reading(path, tree) as descriptor:
                read_into, known = read_into_from(descriptor), _decided(segment)
                start = _front(read_into, segment.size, known, tables)
                for _ in _CensusWalk(read_into, segment, start, known, kept, tables).lines():
                    pass
    except OSError as error:
        return CensusResult(failure="unreadable", why=f"{error.filename or path}: {why(error)}")
    return CensusResult(kinds=tables.kinds_found(), groups=tables.largest_groups())
