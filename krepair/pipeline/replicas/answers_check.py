"""The third reading of answers: was each tombstone that is gone asked for, and does every answer let it go?

The decision asks which tombstones have to stay, so a tombstone that the question forgot would go. Here it is the other
way round: what is gone needs its leave. See ``evidence_check`` for markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from krepair.formats.arrays import Int64s
from krepair.formats.facts_file import FactsDamagedError
from krepair.formats.facts_tables import Table, unpacked
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.question_file import ANSWER_COLUMNS, AskedPartition, PartitionDigest, table_of
from krepair.pipeline.compaction.items import OffsetFile, RowFile
from krepair.pipeline.replicas.questions import Answer, asked_rows

_AT_ONCE: Final = 1 << 20


def tombstone_without_leave(
    gone: Sequence[OffsetFile],
    one: AskedPartition,
    secret: bytes,
    files: dict[int, tuple[RowFile, ...]],
    answers: Sequence[Answer],
    reach: int,
) -> int:
    """Offset of a tombstone that is gone although it was not asked for, or not every answer lets it go; -1 if none is.

    Args:
        gone: offsets of the tombstones that are gone.
        one: the partition as it was asked for.
        secret: of the question.
        files: base offset -> rows of the tombstones as they were.
        answers: of all brokers of which there are facts.
        reach: no answer speaks for this offset or a later one.

    Raises:
        OSError: a file fails.
        FactsDamagedError: an answer is not as it says, or the question was another one.
    """
    for offsets in _pieces(gone):
        allowed = np.zeros(len(offsets), bool)
        for free in _free(one, secret, files, answers, reach):
            at = np.searchsorted(offsets, free)
            inside = at < len(offsets)
            at, free = at[inside], free[inside]
            allowed[at[offsets[at] == free]] = True
        if not allowed.all():
            return int(offsets[np.flatnonzero(~allowed)[0]])
    return -1


def _pieces(gone: Sequence[OffsetFile]) -> Iterator[Int64s]:
    """All offsets, ascending within a piece."""
    waiting: list[Int64s] = []
    for file in gone:
        every: Int64s = (
            np.memmap(file.path, np.int64, "r") if file.path else np.frombuffer(file.data, np.int64)
        )
        for first in range(0, len(every), _AT_ONCE):
            waiting.append(np.array(every[first : first + _AT_ONCE]))
            if sum(map(len, waiting)) >= _AT_ONCE:
                yield np.sort(np.concatenate(waiting))
                waiting = []
    if waiting:
        yield np.sort(np.concatenate(waiting))


def _free(
    one: AskedPartition,
    secret: bytes,
    files: dict[int, tuple[RowFile, ...]],
    answers: Sequence[Answer],
    reach: int,
) -> Iterator[Int64s]:
    """Offsets of the tombstones of the question that every answer lets go."""
    digest, place = PartitionDigest(secret, one), 0
    tables = [_Rows(unpacked(each.reader.blocks(table_of(each.number)), ANSWER_COLUMNS)) for each in answers]
    for rows in asked_rows([file for base, found in files.items() if base < one.end for file in found]):
        digest.take(rows)
        free = rows[:, 2] < min(reach, INT64_MAX)
        for table in tables:
            for held_at, lowest in table.below(place + len(rows)):
                free[held_at - place] &= rows[held_at - place, 2] <= lowest
        place += len(rows)
        yield rows[free, 2]
    if (digest.text, place) != (one.digest, one.keys):
        raise FactsDamagedError("the answers are to a question about another log")


class _Rows:
    """The rows of an answer, read forward."""

    def __init__(self, pieces: Iterable[Table]) -> None:
        self._pieces = iter(pieces)
        self._left: Table = np.empty((0, ANSWER_COLUMNS), np.int64)

    def below(self, place: int) -> Iterator[tuple[Int64s, Int64s]]:
        """(places in the question, lowest offsets) of the next rows up to a place."""
        while True:
            if len(self._left) == 0:
                following = next(self._pieces, None)
                if following is None:
                    return
                self._left = following
            count = int((self._left[:, 0] < place).sum())
            yield self._left[:count, 0], self._left[:count, 1]
            self._left = self._left[count:]
            if len(self._left):
                return
