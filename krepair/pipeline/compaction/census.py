"""What ``plan --fix compact`` tells of a partition of ``__consumer_offsets``: what goes, by kind and by group.

The records are counted in the reading that finds the exact size of what stays. Of a partition with very many groups the
counts of its segments do not travel: a task of its own reads it once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.formats import group_metadata
from krepair.formats.arrays import Int64s
from krepair.kernels import key_census as n
from krepair.kernels.compact_filter import T_KEPT, T_TOMBSTONES_DROPPED
from krepair.kernels.compact_records import SLACK
from krepair.kernels.scan import ReadInto, fill
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.compaction.items import CompactItem, SegmentCensus
from krepair.pipeline.compaction.log import Stay
from krepair.pipeline.compaction.stays import stay_of
from krepair.pipeline.coordinators.walk import KeptDamage, RecordWalk
from krepair.pipeline.items import Outcome, Place
from krepair.pipeline.place import at_its_place
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


class CensusResult(Outcome, frozen=True, kw_only=True):
    """What goes.

    Attributes:
        kinds: kinds of record, those that occur.
        groups: with the most bytes.
    """

    kinds: tuple[KindOfRecord, ...] = ()
    groups: tuple[GroupBytes, ...] = ()


class _Tables:
    """What is counted, over one segment or all segments of a partition.

    Args:
        before: all records of the segment, which were counted before: only those that stay are still to be counted.
    """

    def __init__(self, before: SegmentCensus | None = None) -> None:
        self.kinds = np.zeros((n.KINDS, n.KIND_COLUMNS), np.int64)
        self.state = np.zeros(n.STATE_SIZE, np.int64)
        self.groups: Any = np.zeros((_FIRST_GROUPS, n.GROUP_COLUMNS), np.int64)
        self.slots: Any = np.full(_FIRST_GROUPS * _SLOTS_A_ROW, -1, np.int32)
        self.arena: Any = np.zeros(_FIRST_ARENA, np.uint8)
        self._only_kept = before is not None
        if before is not None:
            self.add(before)

    def take(self, buf: Any, batches: Any, counts: Any, records: Any, stay: Stay) -> None:
        """Count the records of some batches."""
        self.state[[n.S_BATCH, n.S_RECORD]] = 0
        while not n.count_keys(
            buf, batches, counts, records, stay.offsets, stay.held, np.array(stay.aborted),
            _inputs(stay, only_kept=self._only_kept), self.kinds, self.groups, self.slots, self.arena, self.state,
        ):  # fmt: skip
            self._grow()

    def take_window(self, window: Any, filled: int, stay: Stay) -> int:
        """Count the whole uncompressed v2 batches at the front of a window; the place after them."""
        self.state[n.S_BATCH] = 0
        while (
            n.count_window(
                window, filled, stay.offsets, stay.held, np.array(stay.aborted),
                _inputs(stay, only_kept=self._only_kept), self.kinds, self.groups, self.slots, self.arena, self.state,
            )
            == n.TABLES_FULL
        ):  # fmt: skip
            self._grow()
        return int(self.state[n.S_BATCH])

    def add(self, part: SegmentCensus) -> None:
        """Add what was counted in one segment."""
        self.kinds += np.frombuffer(part.kinds, np.int64).reshape(self.kinds.shape)
        groups = np.frombuffer(bytearray(part.groups), np.int64).reshape(-1, n.GROUP_COLUMNS)
        names = np.frombuffer(bytearray(part.names), np.uint8)
        while not n.add_groups(names, groups, self.groups, self.slots, self.arena, self.state):
            self._grow(len(groups), len(names))

    def counted(self) -> SegmentCensus:
        """What was counted, to be added to that of other segments."""
        if self._only_kept:
            gone = self.kinds[:, n.K_KEPT] + self.kinds[:, n.K_TOMBSTONES_DROPPED]
            self.kinds[:, n.K_SUPERSEDED] = self.kinds[:, n.K_RECORDS] - gone
        return SegmentCensus(
            kinds=self.kinds.tobytes(),
            groups=self.groups[: self.state[n.S_GROUPS]].tobytes(),
            names=self.arena[: self.state[n.S_ARENA]].tobytes(),
        )

    def _grow(self, groups: int = 0, names: int = 0) -> None:
        """Make twice the room, and room for so many groups and bytes of names more."""
        old, known, arena = self.groups, int(self.state[n.S_GROUPS]), self.arena
        self.groups = np.zeros((2 * (len(old) + groups), n.GROUP_COLUMNS), np.int64)
        self.slots = np.full(_power_of_two(len(self.groups) * _SLOTS_A_ROW), -1, np.int32)
        self.arena = np.zeros(2 * (len(arena) + names), np.uint8)
        self.state[[n.S_GROUPS, n.S_ARENA]] = 0
        n.add_groups(arena, old[:known], self.groups, self.slots, self.arena, self.state)

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
        """Those with the most bytes, the largest first, and by name where they have as many."""
        rows = self.groups[: self.state[n.S_GROUPS]]
        if len(rows) > MOST_GROUPS:
            rows = rows[rows[:, n.G_BYTES] >= np.partition(rows[:, n.G_BYTES], -MOST_GROUPS)[-MOST_GROUPS]]
        largest = sorted(rows, key=lambda row: (-row[n.G_BYTES], _text(self.arena, row)))[:MOST_GROUPS]
        return tuple(
            GroupBytes(
                group=_text(self.arena, row),
                records=int(row[n.G_RECORDS]),
                kept=int(row[n.G_KEPT]),
                bytes_before=int(row[n.G_BYTES]),
                bytes_after=int(row[n.G_BYTES_KEPT]),
            )
            for row in largest
        )


def _text(arena: Any, row: Any) -> str:
    raw = arena[row[n.G_NAME] : row[n.G_NAME] + row[n.G_NAME_SIZE]].tobytes()
    return bytes(raw).decode("utf-8", "backslashreplace")


def _name(kind: int) -> str:
    if kind == n.NO_KEY:
        return "without key"
    known = group_metadata.RECORDS.types.get(kind)
    return "unknown" if known is None else f"{known.name} (key version {kind})"


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _inputs(stay: Stay, *, only_kept: bool) -> Any:
    inputs = np.zeros(n.INPUT_SIZE, np.int64)
    inputs[n.N_NOW_MS], inputs[n.N_FORCED] = stay.now_ms, stay.forced
    inputs[n.N_DROP_UNSTAMPED], inputs[n.N_DROP_STAMPED] = stay.drop_unstamped, stay.drop_stamped
    inputs[n.N_ONLY_KEPT] = only_kept
    return inputs


class Counting:
    """Counts the records of one segment in windows that somebody else has read.

    Args:
        item: the segment.
        stay: what decides which of its records stay.
        tallies: int64[TALLY_COUNT], of what was decided on up to the end of the window, see ``CompactedLog``.
    """

    def __init__(self, item: CompactItem, stay: Stay, tallies: Int64s) -> None:
        self._item = item
        self._stay = stay
        self._tallies = tallies
        self._last_before = 0
        self._tables = _Tables(item.counted)
        self._position = 0
        self._goes_on = True

    def take(self, window: Any, end: int) -> None:
        """Count the batches of the next window, until there is one that ``count_window`` does not take.

        Args:
            window: uint8[W] with ``SLACK`` bytes behind it.
            end: place after its last batch; more than W if that passes the window.
        """
        last = int(self._tallies[T_KEPT] + self._tallies[T_TOMBSTONES_DROPPED])
        none, self._last_before = last == self._last_before, last
        if not self._goes_on:
            return
        if none and self._item.counted is not None:
            self._position += end  # no record in it is the last of its key
        else:
            done = self._tables.take_window(window, min(end, len(window)), self._stay)
            self._position += done
            self._goes_on = done == end and not self._too_many

    @property
    def _too_many(self) -> bool:
        return bool(self._tables.state[n.S_GROUPS] > self._item.most_groups)

    def end(self, read_into: ReadInto) -> SegmentCensus | None:
        """What it came to, once the rest is read; None if there are too many groups.

        Raises:
            OSError: the rest cannot be read.
        """
        if not self._too_many:
            _walk_rest(read_into, self._item, self._position, self._stay, self._tables)
        return None if self._too_many else self._tables.counted()


def census_of(parts: Sequence[SegmentCensus]) -> CensusResult:
    """What goes of a partition, from what was counted in its segments, which ascend."""
    tables = _Tables()
    for part in parts:
        tables.add(part)
    return CensusResult(kinds=tables.kinds_found(), groups=tables.largest_groups())


def _front(read_into: ReadInto, size: int, stay: Stay, tables: _Tables) -> int:
    """Count the uncompressed v2 batches at the front of a log, which is all of most; where they end."""
    window: Any = np.empty(_WINDOW_BYTES + SLACK, np.uint8)[:_WINDOW_BYTES]
    position = 0
    tables.state[n.S_RECORD] = 0
    while position < size:
        filled = fill(read_into, window.data, position, size)
        done = tables.take_window(window, filled, stay)
        position += done
        if done == 0:
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
        stay: Stay,
        tables: _Tables,
    ) -> None:
        super().__init__(_from(read_into, start), item.size - start, item.base_offset, KeptDamage())
        self._tables = tables
        self._stay = stay

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        self._tables.take(np.asarray(buf), rows, counts, records, self._stay)
        yield from ()


def _walk_rest(read_into: ReadInto, item: CompactItem, start: int, stay: Stay, tables: _Tables) -> None:
    """Count the records of a segment from a position on, whatever its batches are."""
    if start < item.size:
        for _ in _CensusWalk(read_into, item, start, stay, tables).lines():
            pass


@at_its_place(CensusResult)
def take_census(item: CensusItem, tree: Tree) -> CensusResult:
    """Count the records of one partition, by kind and by group."""
    tables = _Tables()
    for segment in item.segments:
        with opened_for_reading(f"{segment.place.stem(segment.base_offset)}.log", tree) as descriptor:
            read_into, stay = read_into_from(descriptor), stay_of(segment)
            start = _front(read_into, segment.size, stay, tables)
            _walk_rest(read_into, segment, start, stay, tables)
    return CensusResult(kinds=tables.kinds_found(), groups=tables.largest_groups())
