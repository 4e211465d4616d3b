"""Large offset checkpoints as columns, because a Python object for each of a million lines takes long.

``lines_as_written`` reads only files that ``encode_offsets`` would write again byte for byte, with one line per
partition. All other files, and all small files, are read by ``krepair.formats.checkpoint``, which names every damaged
line.

Source: ``OffsetCheckpointFile.scala`` (2.2.1, 3.9.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from krepair.formats.arrays import Int64s, Uint8s, Uint64s
from krepair.formats.offset_entry import AS_WRITTEN_HEAD, AS_WRITTEN_HEAD_BYTES, MAX_ENTRIES, CheckpointEntry

_LONGEST_TOPIC: Final = 249
_LONGEST_PARTITION: Final = 9
_LONGEST_OFFSET: Final = 18
_SEARCHED_ONE_BY_ONE: Final = 64
_BLOCK_LINES: Final = 1 << 14
_WORD: Final = 8
_MASK: Final = (1 << 64) - 1
_ODD: Final = 0x9E37_79B9_7F4A_7C15
_NUMBER: Final = re.compile("0|[1-9][0-9]*")

_SPACE, _END, _BAD = 1, 2, 3
_KINDS: Final = bytes(
    {ord(" "): _SPACE, ord("\n"): _END}.get(letter, _BAD if letter < ord(" ") or letter > ord("~") else 0)
    for letter in range(256)
)

_last: list[tuple[bytes, OffsetLines | None]] = []
"""The file that was read last: a fence reads the same bytes again and again."""


class OffsetLines(Mapping[tuple[str, int], int]):
    """The lines of a file: (topic, partition) -> offset.

    Args:
        data: the bytes of the file.
        starts: int64[N], position of each line.
        ends: int64[N], position of the blank before the offset of each line.
        offsets: int64[N], offset of each line.
        hashes: uint64[N], hash of topic and partition of each line, see ``_hash``; no two are equal.
    """

    def __init__(self, data: bytes, starts: Int64s, ends: Int64s, offsets: Int64s, hashes: Uint64s) -> None:
        self.data = data
        self.offsets = offsets
        self._starts = starts
        self._ends = ends
        self._hashes = hashes
        self._searched = 0

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return (self.entry(place)[:2] for place in range(len(self)))

    def __getitem__(self, key: tuple[str, int]) -> int:
        place = self.place(*key)
        if place < 0:
            raise KeyError(key)
        return int(self.offsets[place])

    def place(self, topic: str, partition: int) -> int:
        """Number of the line of a partition, from 0; -1 if there is none."""
        key = f"{topic} {partition}".encode("utf-8", "surrogateescape")
        found = self._find(_hash(key))
        # No two keys of the file have the same hash, but a key that is not in the file may have the hash of one.
        return found if found >= 0 and self.data[self._starts[found] : self._ends[found]] == key else -1

    def entry(self, place: int) -> CheckpointEntry:
        """The entry of one line."""
        topic, _, partition = (
            self.data[self._starts[place] : self._ends[place]].decode("ascii").partition(" ")
        )
        return CheckpointEntry(topic, int(partition), int(self.offsets[place]))

    def with_offset(self, place: int, offset: int) -> bytes:
        """The bytes of the file with another offset in one line."""
        start = int(self._ends[place]) + 1
        end = self.data.index(b"\n", start)
        return b"".join((memoryview(self.data)[:start], b"%d" % offset, memoryview(self.data)[end:]))

    def _find(self, wanted: int) -> int:
        self._searched += 1
        if self._searched <= _SEARCHED_ONE_BY_ONE:
            here = np.flatnonzero(self._hashes == np.uint64(wanted))
            return int(here[0]) if len(here) else -1
        order, ascending = self._sorted
        at = int(np.searchsorted(ascending, np.uint64(wanted)))
        return int(order[at]) if at < len(ascending) and int(ascending[at]) == wanted else -1

    @cached_property
    def _sorted(self) -> tuple[Int64s, Uint64s]:
        order = np.argsort(self._hashes)
        return order, self._hashes[order]


def lines_as_written(data: bytes) -> OffsetLines | None:
    """The lines of a file that is exactly as a broker writes it; None for every other file."""
    if not _last or _last[0][0] != data:
        _last[:] = [(data, _read(data))]
    return _last[0][1]


def _read(data: bytes) -> OffsetLines | None:
    head = AS_WRITTEN_HEAD.match(data[:AS_WRITTEN_HEAD_BYTES])
    if head is None or not _NUMBER.fullmatch(head[1].decode()) or int(head[1]) > MAX_ENTRIES:
        return None
    places = _places(data, head.end(), int(head[1]))
    if places is None:
        return None
    starts, names, partitions, ends = places
    array = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(data) + 1,), "<u8", data + bytes(_WORD), strides=(1,))
    offsets, hashes = np.empty(len(starts), np.int64), np.empty(len(starts), np.uint64)
    # Blocks that fit into the processor's cache are faster.
    for first in range(0, len(starts), _BLOCK_LINES):
        block = slice(first, first + _BLOCK_LINES)
        numbers = _numbers(array, names[block] + 1, partitions[block], _LONGEST_PARTITION)
        found = _numbers(array, partitions[block] + 1, ends[block], _LONGEST_OFFSET)
        if numbers is None or found is None:
            return None
        offsets[block] = found
        hashes[block] = _hashes(words, starts[block], partitions[block])
    ascending = np.sort(hashes)
    # A partition has two lines, or two keys have the same hash. The reader of single lines can tell which.
    once = bool((ascending[1:] != ascending[:-1]).all())
    return OffsetLines(data, starts, partitions, offsets, hashes) if once else None


def _places(data: bytes, start: int, count: int) -> tuple[Int64s, Int64s, Int64s, Int64s] | None:
    """Positions, int64[N] each: start of the line, end of topic, of partition, of the line. None for another form."""
    kinds = np.frombuffer(data.translate(_KINDS), np.uint8)[start:]
    marks = np.flatnonzero(kinds)
    if not count or len(marks) != 3 * count or int(marks[-1]) != len(kinds) - 1:
        return None
    if (kinds[marks].reshape(-1, 3) != (_SPACE, _SPACE, _END)).any():
        return None
    names, partitions, ends = np.ascontiguousarray((marks + start).reshape(-1, 3).T)
    starts = np.concatenate(([start], ends[:-1] + 1))
    lengths = names - starts
    return (
        (starts, names, partitions, ends) if lengths.min() >= 1 and lengths.max() <= _LONGEST_TOPIC else None
    )


def _numbers(array: Uint8s, starts: Int64s, ends: Int64s, longest: int) -> Int64s | None:
    """The numbers at these places, int64[N]; None if one is not a number, is too long, or has a leading zero."""
    lengths = ends - starts
    if lengths.min() < 1 or lengths.max() > longest:
        return None
    if ((array[starts] == ord("0")) & (lengths > 1)).any():
        return None
    values = np.zeros(len(starts), np.int64)
    for digit in range(int(lengths.max())):
        here = digit < lengths
        letters = array[np.where(here, starts + digit, starts)]
        if ((letters < ord("0")) | (letters > ord("9"))).any():
            return None
        values = np.where(here, values * 10 + (letters - ord("0")), values)
    return values


def _hashes(words: Uint64s, starts: Int64s, ends: Int64s) -> Uint64s:
    """``_hash`` of the bytes from each start to its end. ``words`` holds, for each position, the eight bytes there."""
    lengths = ends - starts
    found = lengths.astype(np.uint64) * np.uint64(_ODD)
    for at in range(0, int(lengths.max()), _WORD):
        left = np.clip(lengths - at, 0, _WORD)
        shift = ((_WORD - left) * 8).astype(np.uint64)
        # A shift by 64 bits is undefined.
        empty = left == 0
        word = words[np.where(empty, starts, starts + at)] << np.where(empty, np.uint64(0), shift)
        mixed = (found ^ word) * np.uint64(_ODD)
        mixed ^= mixed >> np.uint64(29)
        found = np.where(empty, found, mixed)
    return found


def _hash(key: bytes) -> int:
    """A 64-bit hash of some bytes."""
    found = len(key) * _ODD & _MASK
    for at in range(0, len(key), _WORD):
        piece = key[at : at + _WORD]
        word = int.from_bytes(piece, "little") << (8 * (_WORD - len(piece)))
        found = (found ^ word) * _ODD & _MASK
        found ^= found >> 29
    return found
