"""Asks other brokers for the keys of tombstones, answers for the records that are here, and reads the answers.

All tables ascend by the hash of the key and are read forward, some buckets at a time, so that neither side holds a
whole one. A key is looked up by all 128 bits of its hash. Two keys with one hash look like one key: then a tombstone
may stay that could go, and never the other way, since what goes is decided by other hashes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from krepair.durable.scratch import write_scratch
from krepair.formats.arrays import Int64s
from krepair.formats.facts_file import FactsDamagedError, FactsReader, FactsWriter
from krepair.formats.facts_tables import Table, packed, unpacked
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.question_file import (
    ANSWER_COLUMNS,
    KEY_COLUMNS,
    AskedPartition,
    PartitionDigest,
    table_of,
)
from krepair.kernels.compact_keys import LARGEST
from krepair.pipeline.compaction.items import (
    KeysItem,
    OffsetFile,
    Result,
    RowFile,
    ranges_of,
    touching,
)
from krepair.pipeline.compaction.keys import BUCKET_SHIFT, BUCKETS, Rows, rows_of, starts_of
from krepair.pipeline.compaction.partitions import rows_inline_of
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import LogsItem, Place
from krepair.pipeline.jobs import FIND_ABORTED, FIND_KEYS

_ROWS_AT_ONCE: Final = 1 << 20
_BUCKETS_AT_ONCE: Final = 16
_OFFSETS_INLINE: Final = 1 << 12
_NO_ROWS: Final = np.empty((0, KEY_COLUMNS), np.uint64)


class NotReadError(Exception):
    """Why the records of a log could not be read."""


@dataclass(frozen=True)
class Log:
    """A log whose keys are read.

    Attributes:
        place: where.
        segments: (base offset, bytes of valid batches) of all segments, ascending: transactions are followed in them.
        after: only records of segments that begin below this offset count.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]
    after: int = INT64_MAX


# -- rows


def tombstones_of(engine: Engine, log: Log, secret: bytes, scratch: str) -> dict[int, tuple[RowFile, ...]]:
    """The keys of the tombstones of a log that were not aborted: of each the last one.

    Args:
        engine: where tasks run.
        log: to be read.
        secret: 16 bytes, the key of the hashes.
        scratch: path of a scratch folder, empty if there is none.

    Returns:
        Base offset of each segment -> its rows.

    Raises:
        NotReadError: a log cannot be read.
    """
    aborted: Int64s = np.empty((0, 3), np.int64)
    for _, ranges in engine.run(FIND_ABORTED, [LogsItem(place=log.place, segments=log.segments)]):
        _check(log, ranges)
        aborted = ranges_of(ranges.ranges)
    segments = [(base, size) for base, size in log.segments if size and base < log.after]
    items = [
        KeysItem(
            place=log.place,
            base_offset=base,
            size=size,
            aborted=touching(aborted, base, INT64_MAX),
            secret=secret,
            rows_inline=rows_inline_of(len(segments)),
            scratch=scratch,
            only_tombstones=True,
        )
        for base, size in segments
    ]
    found: dict[int, tuple[RowFile, ...]] = {}
    for index, keys in engine.run(FIND_KEYS, items):
        _check(log, keys)
        found[items[index].base_offset] = keys.files
    return found


def _check(log: Log, result: Result) -> None:
    if result.failure or result.problem:
        raise NotReadError(f"{log.place.path}: {result.why or result.problem}")


def _ranges(files: Sequence[RowFile]) -> Iterator[tuple[int, int]]:
    """Buckets whose rows are taken together: (first, after the last)."""
    counts = np.zeros(BUCKETS, np.int64)
    for file in files:
        counts += np.diff(starts_of(file))
    before = np.append(0, np.cumsum(counts))
    first = 0
    while first < BUCKETS:
        after = int(np.searchsorted(before, before[first] + _ROWS_AT_ONCE, side="right")) - 1
        after = min(max(after, first + 1), first + _BUCKETS_AT_ONCE, BUCKETS)
        yield first, after
        first = after


def _rows(files: Sequence[RowFile], first: int, after: int) -> Rows:
    """The rows of some buckets by hash, of each hash the one with the greatest number."""
    rows = np.concatenate([_NO_ROWS, *(rows_of(file, first, after) for file in files)])
    rows = rows[np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))]
    last = np.ones(len(rows), bool)
    last[:-1] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
    found: Rows = rows[last]
    return found


def asked_rows(files: Sequence[RowFile]) -> Iterator[Table]:
    """The table of a question, some buckets at a time."""
    for first, after in _ranges(files):
        rows = _rows(files, first, after)
        rows[:, 2] -= np.uint64(1)  # a row holds the offset + 1
        yield rows.view(np.int64)


# -- the question


def write_question(
    writer: FactsWriter, number: int, one: AskedPartition, secret: bytes, files: Sequence[RowFile]
) -> AskedPartition:
    """Write the table of one partition; the partition with what it came to.

    Raises:
        OSError: a file fails.
    """
    digest, keys = PartitionDigest(secret, one), 0

    def pieces() -> Iterator[Table]:
        nonlocal keys
        for rows in asked_rows(files):
            digest.take(rows)
            keys += len(rows)
            yield rows

    writer.section(table_of(number), packed(pieces()))
    return AskedPartition(
        topic=one.topic,
        partition=one.partition,
        topic_id=one.topic_id,
        end=one.end,
        keys=keys,
        digest=digest.text,
    )


# -- the answer


class _Forward:
    """Rows that come in pieces, ascending by their first column, read forward.

    Args:
        pieces: of the rows.
        none: no row, of the same columns.
    """

    def __init__(self, pieces: Iterator[Any], none: Any) -> None:
        self._pieces, self._piece = pieces, none
        self.place = 0

    def below(self, bound: int, shift: int | np.uint64 = 0) -> tuple[int, Any]:
        """(place of the first, rows) of those not given yet whose first column, shifted right, is below a bound."""
        parts, place = [self._piece[:0]], self.place
        while True:
            if len(self._piece) == 0:
                following = next(self._pieces, None)
                if following is None:
                    break
                self._piece = following
            inside = int(np.searchsorted(self._piece[:, 0] >> shift, bound, "left"))
            parts.append(self._piece[:inside])
            self._piece = self._piece[inside:]
            self.place += inside
            if len(self._piece):
                break
        return place, np.concatenate(parts)

    def has_ended(self) -> bool:
        """Whether all rows were given; to be asked last."""
        return not len(self._piece) and next(self._pieces, None) is None


def write_answer(writer: FactsWriter, number: int, question: FactsReader, files: Sequence[RowFile]) -> int:
    """Write of each asked key of a partition the lowest offset of a record below the tombstone; how many there are.

    Args:
        writer: of the answer.
        number: of the partition in the question.
        question: the question.
        files: rows of lowest offsets of all that is here.

    Raises:
        OSError: a file fails.
        FactsDamagedError: the question is not as it says.
    """
    held = 0

    def pieces() -> Iterator[Table]:
        nonlocal held
        table = unpacked(question.blocks(table_of(number)), KEY_COLUMNS)
        asked = _Forward((piece.view(np.uint64) for piece in table), _NO_ROWS)
        for first, after in _ranges(files):
            place, wanted = asked.below(after, BUCKET_SHIFT)
            if len(wanted):
                rows = _found(wanted, _rows(files, first, after), place)
                held += len(rows)
                yield rows

    writer.section(table_of(number), packed(pieces()))
    return held


def _found(asked: Rows, rows: Rows, place: int) -> Table:
    """int64[H, 2] (place in the question, lowest offset) of the asked keys that have an older record."""
    every = np.concatenate([rows[:, :2], asked[:, :2]])
    is_asked = np.arange(len(every)) >= len(rows)
    order = np.lexsort((is_asked, every[:, 1], every[:, 0]))
    every, is_asked = every[order], is_asked[order]
    hit = np.zeros(len(every), bool)
    hit[1:] = is_asked[1:] & ~is_asked[:-1] & (every[1:] == every[:-1]).all(axis=1)
    places = order[hit] - len(rows)
    numbers = rows[order[np.flatnonzero(hit) - 1], 2]
    lowest = LARGEST - (numbers - np.uint64(1)).astype(np.int64)
    older = lowest < asked[places, 2].astype(np.int64)
    found: Table = np.column_stack([places + place, lowest])[older].astype(np.int64)
    return found


# -- what the answers hold back


@dataclass(frozen=True)
class Answer:
    """What one broker has answered for one partition.

    Attributes:
        reader: of its file.
        number: of the partition.
        held: rows in its table.
    """

    reader: FactsReader
    number: int
    held: int


def held_tombstones(
    one: AskedPartition,
    secret: bytes,
    files: dict[int, tuple[RowFile, ...]],
    answers: Sequence[Answer],
    reach: int,
    scratch: str,
) -> tuple[OffsetFile, ...] | None:
    """Offsets of the tombstones that stay.

    Args:
        one: the partition as it was asked for.
        secret: of the question.
        files: base offset -> rows of the tombstones that are there now, see ``tombstones_of``.
        answers: of all brokers of which there are facts.
        reach: tombstones at and above this offset stay.
        scratch: path of a scratch folder, empty if there is none.

    Returns:
        Each ascending; None if the question was of another log.

    Raises:
        OSError: a file fails.
        FactsDamagedError: an answer is not as it says.
    """
    asked = [file for base, found in files.items() if base < one.end for file in found]
    younger = [file for base, found in files.items() if base >= one.end for file in found]
    digest, keys = PartitionDigest(secret, one), 0
    found: list[OffsetFile] = []
    tables = [_Places(answer) for answer in answers]
    for rows in asked_rows(asked):
        digest.take(rows)
        stays = rows[:, 2] >= reach
        for table in tables:
            places, lowest = table.between(keys, keys + len(rows))
            stays[places - keys] |= lowest < rows[places - keys, 2]
        keys += len(rows)
        found += _offsets(rows[stays, 2], scratch)
    for rows in asked_rows(younger):
        found += _offsets(rows[:, 2], scratch)
    if (digest.text, keys) != (one.digest, one.keys):
        return None
    for table in tables:
        table.check_end()
    return tuple(found)


class _Places:
    """A table of an answer, read forward by places."""

    def __init__(self, answer: Answer) -> None:
        self._name, self._left = table_of(answer.number), answer.held
        pieces = unpacked(answer.reader.blocks(self._name), ANSWER_COLUMNS)
        self._rows = _Forward(pieces, np.empty((0, ANSWER_COLUMNS), np.int64))

    def between(self, first: int, after: int) -> tuple[Int64s, Int64s]:
        """(places, lowest offsets) of the rows of some places.

        Raises:
            FactsDamagedError: the rows do not ascend.
        """
        _, rows = self._rows.below(after)
        ascends = bool((np.diff(rows[:, 0]) > 0).all())
        if len(rows) and not (ascends and first <= rows[0, 0] and rows[-1, 0] < after):
            raise FactsDamagedError(f"{self._name}: places from {first} to {after} were expected, ascending")
        self._left -= len(rows)
        return rows[:, 0], rows[:, 1]

    def check_end(self) -> None:
        """Raise ``FactsDamagedError`` if there are other rows than were announced."""
        if self._left or not self._rows.has_ended():
            raise FactsDamagedError(f"{self._name}: it has other rows than its list says")


def _offsets(offsets: Int64s, scratch: str) -> Iterator[OffsetFile]:
    ordered = np.sort(offsets)
    if len(ordered) > _OFFSETS_INLINE and scratch:
        yield OffsetFile(path=write_scratch(scratch, "held", (ordered,)))
    elif len(ordered):
        yield OffsetFile(data=ordered.tobytes())
