"""What a picture shows of one change: stretches of logs before and after, files, zeros of a time index, markers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class Content(StrEnum):
    """What a stretch of a log holds, in the words that a legend uses."""

    RECORDS = "records"
    MARKERS = "markers"
    EMPTIED = "emptied"
    OTHER = "other batches"
    DAMAGED = "damaged"
    CUT = "cut off from the damage on"
    ASIDE = "set aside"
    REPLACED = "replaced by a broker's swap"
    LEFT = "left as it is"


class Run(NamedTuple):
    """A stretch of one kind.

    Attributes:
        content: of which kind.
        bytes: how long.
    """

    content: Content
    bytes: int


def runs_of(stretches: Iterable[tuple[Content, int]]) -> tuple[Run, ...]:
    """One run for each kind that has bytes, in the order of ``Content``."""
    sums = dict.fromkeys(Content, 0)
    for content, size in stretches:
        sums[content] += max(size, 0)
    return tuple(Run(content, size) for content, size in sums.items() if size)


class ZeroTail(NamedTuple):
    """A time index whose zeros are cut.

    Attributes:
        file: file name.
        entry_bytes: bytes of its entries.
        zero_bytes: bytes of zeros behind them.
    """

    file: str
    entry_bytes: int
    zero_bytes: int


class MarkerCount(NamedTuple):
    """The markers of one segment.

    Attributes:
        base_offset: of the segment.
        kept: how many stay.
        gone: how many are removed.
    """

    base_offset: int
    kept: int
    gone: int


class Sketch(NamedTuple):
    """One change as pictures show it; what is empty is not drawn.

    Attributes:
        before: base offset -> what the segment holds.
        after: base offset -> what it holds afterwards; nothing where nothing is left of it.
        files: bytes of its files that are no logs, before and after; None if it has none of its own.
        zero_tail: of a time index, or None.
        markers: of the segments that it reads.
        swaps: whether new segments are swapped in, else files are replaced one by one.
    """

    before: Mapping[int, tuple[Run, ...]] = {}
    after: Mapping[int, tuple[Run, ...]] = {}
    files: tuple[int, int] | None = None
    zero_tail: ZeroTail | None = None
    markers: tuple[MarkerCount, ...] = ()
    swaps: bool = False
