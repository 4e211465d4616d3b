"""Index files, and the problems that their own bytes show: KR201, KR202, KR203, KR205, KR207.

``index_judge`` compares their entries with the log.

Source: AbstractIndex, TimeIndex (2.2.1, 3.9).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from krepair.formats import fixed_entries, offset_index, time_index
from krepair.formats.arrays import Int64s
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX, TIME_INDEX
from krepair.formats.words import count_text

ENTRY_SIZES: Final = {INDEX: offset_index.ENTRY_SIZE, TIME_INDEX: time_index.ENTRY_SIZE}

LARGEST_INDEX_BYTES: Final = 2**31 - 1
"""A broker cannot map a larger file."""


class IndexFile(NamedTuple):
    """One index file that was read, without the zero padding behind its entries.

    Attributes:
        size: bytes of the file, -1 if it is not there.
        data: its bytes up to the last entry that is not all zero; empty if the file was too long to read.
        padded: number of entries of zeros behind them.
        torn: bytes behind the last whole entry.
        unread: whether the file has more bytes than the log can need, so that it was not read.
    """

    size: int
    data: bytes = b""
    padded: int = 0
    torn: int = 0
    unread: bool = False


MISSING: Final = IndexFile(-1)


class IndexProblem(NamedTuple):
    """One thing that is wrong with an index file.

    Attributes:
        suffix: ``.index``, ``.timeindex`` or ``.txnindex``.
        rule: ``KRnnn``.
        position: byte in the file, -1 if the problem is about the whole file.
        text: evidence.
        tail: whether it is enough to truncate the file to its entries.
        misleads: whether a fetch by offset or a search by timestamp gets a wrong answer because of it.
    """

    suffix: str
    rule: str
    position: int
    text: str
    tail: bool = False
    misleads: bool = False


def offset_entries(file: IndexFile, base_offset: int) -> Int64s:
    """int64[N, 2] (absolute offset, position), the real entries of an offset index."""
    view = offset_index.view(file.data)
    return _columns(view["relative_offset"].astype(np.int64) + base_offset, view["position"])


def time_entries(file: IndexFile, base_offset: int) -> Int64s:
    """int64[N, 2] (timestamp, absolute offset), the real entries of a time index."""
    view = time_index.view(file.data)
    return _columns(view["timestamp"], view["relative_offset"].astype(np.int64) + base_offset)


def _columns(first: Any, second: Any) -> Int64s:
    entries = np.empty((len(first), 2), np.int64)
    entries[:, 0], entries[:, 1] = first, second
    return entries


def entries_of(file: IndexFile, suffix: str) -> int:
    """Number of real entries in a file."""
    return len(file.data) // ENTRY_SIZES[suffix]


def last_timestamp_read(file: IndexFile) -> int:
    """The timestamp in ms that a broker takes for the segment's largest: of the last whole entry, -1 if there is none.

    Source: TimeIndex.lastEntryFromIndexFile (2.2.1, 3.9).
    """
    if file.padded:
        return 0
    count = entries_of(file, TIME_INDEX)
    return int(time_index.view(file.data)["timestamp"][count - 1]) if count else -1


def byte_problems(suffix: str, file: IndexFile, *, active: bool) -> list[IndexProblem]:
    """The problems that a file's own bytes show.

    Args:
        suffix: ``.index`` or ``.timeindex``.
        file: the file.
        active: whether the segment is the last of its partition; then zero padding is normal.
    """
    if file.size > LARGEST_INDEX_BYTES:
        text = f"{file.size} bytes; a broker maps at most {LARGEST_INDEX_BYTES}"
        return [IndexProblem(suffix, "KR207", -1, text)]
    if file.unread:
        return [IndexProblem(suffix, _rule(suffix), -1, f"{file.size} bytes, more than its log could need")]
    problems = []
    if file.torn:
        size = ENTRY_SIZES[suffix]
        text = f"{file.size} bytes, which is no multiple of {size}"
        problems.append(IndexProblem(suffix, "KR205", file.size - file.torn, text, tail=True))
    if file.padded and not active:
        problems.append(_padding(suffix, file))
    found: list[Damage] = (offset_index if suffix == INDEX else time_index).damage(file.data)
    problems += [
        IndexProblem(
            suffix, _rule(suffix), problem.position, f"{problem.expected} was expected, found {problem.found}"
        )
        for problem in found
    ]
    return problems


def _rule(suffix: str) -> str:
    return "KR203" if suffix == INDEX else "KR202"


def _padding(suffix: str, file: IndexFile) -> IndexProblem:
    real = entries_of(file, suffix)
    text = f"{count_text(real, 'entry', 'entries')}, then {file.padded} of zeros"
    if suffix == TIME_INDEX:
        text += "; a broker reads 0 (1970) as the segment's largest timestamp"
    rule = "KR201" if suffix == TIME_INDEX else "KR203"
    return IndexProblem(suffix, rule, real * ENTRY_SIZES[suffix], text, tail=True)


def real_bytes(raw: bytes, suffix: str) -> int:
    """Number of bytes up to the end of the last entry that is not all zero."""
    size = ENTRY_SIZES[suffix]
    return fixed_entries.padding_start(raw, size) * size
