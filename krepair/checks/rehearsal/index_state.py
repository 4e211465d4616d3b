"""The three indexes of a segment while a broker has them open.

Source: AbstractIndex, OffsetIndex, TimeIndex, TransactionIndex (2.2.1, 2.8, 3.9, 4.4).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, overload

from krepair.checks.rehearsal.behaviour import Broker, Brokers
from krepair.checks.rehearsal.failures import CorruptIndexError, InvalidOffsetError, StartFailsError
from krepair.checks.rehearsal.log_file import ReadAt
from krepair.formats import offset_index, time_index, txn_index
from krepair.formats.words import count_text

LARGEST_RELATIVE_OFFSET: Final = 2**31 - 1
_WARM_BYTES: Final = 8192
_TXN_FRONT: Final = struct.Struct(">h16xq")
"""The version of an entry, and its last offset."""


def _reads_whole_txn_version(broker: Broker) -> bool:
    return broker.behaviour.reads_whole_txn_version


class FileEntries(Sequence[tuple[int, int]]):
    """The entries of an index file. An entry is read when it is needed, because a preallocated file has a million.

    Attributes:
        layout: layout of one entry.
        base_offset: base offset of the segment, which is added to relative offsets.
        offset_column: which of the two numbers is the relative offset.
    """

    def __init__(
        self, read_at: ReadAt, size: int, layout: struct.Struct, base_offset: int, offset_column: int
    ) -> None:
        self._read_at = read_at
        self._count = size // layout.size
        self.layout = layout
        self.base_offset = base_offset
        self.offset_column = offset_column

    def __len__(self) -> int:
        """Number of whole entries, with those of zeros."""
        return self._count

    @overload
    def __getitem__(self, number: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, number: slice) -> list[tuple[int, int]]: ...

    def __getitem__(self, number: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        """One entry, or a list of entries for a slice."""
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(self._count))]
        place = number % self._count * self.layout.size
        pair = list(self.layout.unpack(self._read_at(place, self.layout.size)))
        pair[self.offset_column] += self.base_offset
        return pair[0], pair[1]


class IndexState:
    """The common part of both mapped indexes: pairs of numbers, a size that may not fit them, and a limit.

    Attributes:
        name: name of the file.
        base_offset: base offset of the segment.
        entries: (offset, position) or (timestamp, offset), offsets absolute.
        size: bytes of the file as it was found; a whole number of entries once it was resized.
        most_bytes: ``segment.index.bytes``.
    """

    entry_size = 0
    reserved_entries = 0

    def __init__(
        self, name: str, base_offset: int, entries: Sequence[tuple[int, int]], size: int, most_bytes: int
    ) -> None:
        self.name = name
        self.base_offset = base_offset
        self.entries = entries
        self.size = size
        self.most_bytes = most_bytes

    @property
    def most_entries(self) -> int:
        """Number of entries that fit into the index of an active segment."""
        return self.most_bytes // self.entry_size

    def reset(self) -> None:
        """Empty it for a recovery."""
        self.entries = []
        self.grow()

    def grow(self) -> None:
        """Resize it to its limit, as for the active segment.

        Raises:
            StartFailsError: it has more entries than fit (``Buffer.position`` past its limit).
        """
        if len(self.entries) > self.most_entries:
            text = (
                f"{count_text(len(self.entries), 'entry', 'entries')}, segment.index.bytes leaves room for "
                f"{self.most_entries}"
            )
            raise StartFailsError(self.name, text)
        self.size = self.most_entries * self.entry_size

    def _add(self, entry: tuple[int, int]) -> None:
        if not isinstance(self.entries, list):
            self.entries = list(self.entries)
        self.entries.append(entry)

    def trim(self) -> None:
        """Truncate it to its entries."""
        self.size = len(self.entries) * self.entry_size

    def _refuse_full(self) -> None:
        if len(self.entries) >= self.most_entries - self.reserved_entries:
            raise StartFailsError(
                self.name, f"is full with {count_text(len(self.entries), 'entry', 'entries')}"
            )

    def _check_size(self) -> None:
        if self.size % self.entry_size:
            raise CorruptIndexError

    def _lower_bound(self, target: int, column: int) -> int:
        """Number of the last entry that is not above the target, -1 if there is none.

        The search is the one of a broker: if the index does not ascend, its result depends on where the search begins.
        """
        entries = self.entries
        if not entries:
            return -1
        first_warm = max(0, len(entries) - 1 - _WARM_BYTES // self.entry_size)
        if entries[first_warm][column] < target:
            return self._search(target, column, first_warm, len(entries) - 1)
        if entries[0][column] > target:
            return -1
        return self._search(target, column, 0, first_warm)

    def _search(self, target: int, column: int, low: int, high: int) -> int:
        while low < high:
            middle = (low + high + 1) // 2
            found = self.entries[middle][column]
            if found > target:
                high = middle - 1
            elif found < target:
                low = middle
            else:
                return middle
        return low

    def _truncate_to(self, offset: int, column: int) -> None:
        slot = self._lower_bound(offset, column)
        keep = slot if slot >= 0 and self.entries[slot][column] == offset else slot + 1
        self.entries = self.entries[:keep]


class OffsetIndexState(IndexState):
    """An ``.index``: (offset, position)."""

    entry_size = offset_index.ENTRY_SIZE

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset if there is none."""
        return self.entries[-1][0] if self.entries else self.base_offset

    def fits(self, offset: int) -> bool:
        """Whether an offset can be stored relative to the base offset."""
        return 0 <= offset - self.base_offset <= LARGEST_RELATIVE_OFFSET

    def sanity_check(self) -> None:
        """Raise ``CorruptIndexError`` as brokers up to 2.2 do."""
        if self.entries and self.last_offset < self.base_offset:
            raise CorruptIndexError
        self._check_size()

    def position_of(self, offset: int) -> int:
        """Position in the log at which a search for an offset begins."""
        slot = self._lower_bound(offset, 0)
        return 0 if slot < 0 else self.entries[slot][1]

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            InvalidOffsetError: its offset is not above the last one.
            StartFailsError: the index is full.
        """
        self._refuse_full()
        if self.entries and offset <= self.entries[-1][0]:
            raise InvalidOffsetError(
                self.name, f"an entry for offset {offset} would follow {self.last_offset}"
            )
        self._add((offset, position))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on."""
        self._truncate_to(offset, 0)


class TimeIndexState(IndexState):
    """A ``.timeindex``: (timestamp, offset)."""

    entry_size = time_index.ENTRY_SIZE
    reserved_entries = 1

    @property
    def last(self) -> tuple[int, int]:
        """The last entry; without entries no timestamp and the base offset."""
        return self.entries[-1] if self.entries else (-1, self.base_offset)

    def sanity_check(self) -> None:
        """Raise ``CorruptIndexError`` as brokers up to 2.2 do."""
        if self.entries and (self.last[0] < self.entries[0][0] or self.last[1] < self.base_offset):
            raise CorruptIndexError
        self._check_size()

    def maybe_append(self, timestamp: int, offset: int, *, closing: bool = False) -> None:
        """Add an entry if its timestamp is larger than the last one's.

        Raises:
            InvalidOffsetError: its offset is lower than the last one.
            StartFailsError: the index is full.
        """
        if not closing:
            self._refuse_full()
        if self.entries and offset < self.last[1]:
            raise InvalidOffsetError(self.name, f"an entry for offset {offset} would follow {self.last[1]}")
        if timestamp > self.last[0]:
            self._add((timestamp, offset))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on."""
        self._truncate_to(offset, 1)


class TransactionIndexState:
    """A ``.txnindex``. A start reads only its versions and last offsets.

    Attributes:
        name: name of the file.
        base_offset: base offset of the segment.
        brokers: who starts.
    """

    def __init__(self, name: str, base_offset: int, data: bytes, brokers: Brokers) -> None:
        self.name = name
        self.base_offset = base_offset
        self.brokers = brokers
        whole = len(data) // txn_index.ENTRY_SIZE
        self._entries = [
            _TXN_FRONT.unpack_from(data, number * txn_index.ENTRY_SIZE) for number in range(whole)
        ]
        self._last_appended: int | None = None

    def sanity_check(self) -> None:
        """Check every entry. All versions do that, after a clean stop too.

        Raises:
            CorruptIndexError: a last offset is below the base offset.
            StartFailsError: an unknown version: up to 4.3 one whose first byte is above 0, later any but 0.
        """
        for number, (version, last_offset) in enumerate(self._entries):
            self._refuse_version(number, version)
            if last_offset < self.base_offset:
                raise CorruptIndexError

    def _refuse_version(self, number: int, version: int) -> None:
        if version == txn_index.VERSION:
            return
        if version >> 8 > 0 or self.brokers.do(_reads_whole_txn_version):
            where = f"position {number * txn_index.ENTRY_SIZE}"
            raise StartFailsError(self.name, f"{where}: an entry of the unknown version {version}")

    def reset(self) -> None:
        """Empty it for a recovery."""
        self._entries = []
        self._last_appended = None

    def append(self, last_offset: int) -> None:
        """Add an entry for an abort.

        Raises:
            StartFailsError: its last offset is not above that of the entry before it.
        """
        if self._last_appended is not None and last_offset <= self._last_appended:
            text = f"an abort at offset {last_offset} would follow one at {self._last_appended}"
            raise StartFailsError(self.name, text)
        self._last_appended = last_offset
        self._entries.append((txn_index.VERSION, last_offset))

    def truncate_to(self, offset: int) -> None:
        """Drop the entries from an offset on.

        Raises:
            StartFailsError: see ``sanity_check``.
        """
        kept: int | None = None
        for number, (version, last_offset) in enumerate(self._entries):
            self._refuse_version(number, version)
            if last_offset >= offset:
                del self._entries[number:]
                self._last_appended = kept
                return
            kept = last_offset
