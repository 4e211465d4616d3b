"""What travels to and from the tasks that read replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.formats.arrays import Int64s
from krepair.pipeline.items import LogsItem, Outcome
from krepair.rules.replicas.judge import DamagedOffsets

_PART_BYTES: Final = 1 << 29


class ReplicaItem(LogsItem, frozen=True, kw_only=True):
    """Read one replica of one partition.

    Attributes:
        secret: 16 bytes, the key of the hashes; of a reading of headers empty.
        transactions: bytes of int64[N, TRANSACTION_COLUMNS], for a reading of records.
        scratch: folder for rows that do not fit into a result, or empty.
        rows_inline: at most so many rows travel in a result.
        following: base offset of the segment behind these, -1 none.
        keys: of a reading of records: whether keys are wanted.
        swaps: base offsets of segments whose files still have the suffix ``.swap``: a start would finish them.
        differing: numbers of ranges of offsets, ascending, int64: only of batches that begin in these the digests of
            records are wanted, and without keys no others are read; None: all are.
    """

    secret: bytes = b""
    transactions: bytes = b""
    scratch: str = ""
    rows_inline: int = 1 << 16
    following: int = -1
    keys: bool = False
    differing: bytes | None = None
    swaps: tuple[int, ...] = ()

    def file(self, base_offset: int, suffix: str) -> str:
        """Path of a file of a segment.

        Args:
            base_offset: of the segment.
            suffix: of the file, as ``.log``.
        """
        pending = ".swap" if base_offset in self.swaps else ""
        return f"{self.place.stem(base_offset)}{suffix}{pending}"


def parts_of(item: ReplicaItem) -> Iterator[ReplicaItem]:
    """A large replica in several items, each with segments side by side, so that no task is much larger than others."""
    first = size = 0
    for number, (_, log_bytes) in enumerate(item.segments):
        size += log_bytes
        after = number + 1
        if size >= _PART_BYTES or after == len(item.segments):
            following = item.segments[after][0] if after < len(item.segments) else item.following
            yield replace(item, segments=item.segments[first:after], following=following)
            first, size = after, 0
    if not item.segments:
        yield item


class HeadersPart(Outcome, frozen=True, kw_only=True):
    """What the headers of some segments came to; ``HeadersResult`` says what its tables are.

    Attributes:
        log_end: offset after the last batch.
        first_offset: of the first batch, -1 none.
        last_offset: of the last batch, -1 none.
        ranges: as there.
        epochs: as there.
        epoch_file: as there.
        events: of transactions, see ``krepair.rules.replicas.transactions``.
        index_aborts: as there, of these segments.
        borders: as there.
        highest_hole: as there, within these segments.
        cleaned_to: as there.
        damages: as there.
        batches: as there.
        log_bytes: as there.
    """

    log_end: int = 0
    first_offset: int = -1
    last_offset: int = -1
    ranges: bytes = b""
    epochs: bytes = b""
    epoch_file: bytes = b""
    events: bytes = b""
    index_aborts: bytes = b""
    borders: bytes = b""
    highest_hole: int = -1
    cleaned_to: int = -1
    damages: tuple[DamagedOffsets, ...] = ()
    batches: int = 0
    log_bytes: int = 0


class HeadersResult(Outcome, frozen=True, kw_only=True):
    """What the headers of a replica came to. Tables are bytes of little-endian int64 rows.

    Attributes:
        log_end: offset after the last batch.
        ranges: (number of the range of offsets, batches, sum, other sum), ascending; see ``ranges``.
        epochs: (leader epoch, first base offset, last offset) of runs of batches of one epoch, in offset order.
        epoch_file: (epoch, start offset) of ``leader-epoch-checkpoint``.
        transactions: see ``krepair.rules.replicas.transactions``.
        index_aborts: (producer id, first offset, offset of the marker) of all ``.txnindex``.
        borders: (offset after the last batch, base offset of the next segment) of each segment but the last.
        highest_hole: highest offset that has no record although it lies in the log, -1 none.
        cleaned_to: offset after the last batch that holds fewer records than offsets, -1 none: so far a cleaner or
            krepair has been here, or in the log that this one was fetched from.
        damages: what is damaged.
        batches: how many were read.
        log_bytes: of ``.log`` that were read.
        limited: whether it is only the part of a running broker's log that cannot change any more.
        closed_to: of a limited one the base offset of its active segment, -1 none.
        read_to: of a limited one the offset to which it was read; what lies behind ``log_end`` only excuses.
    """

    log_end: int = 0
    ranges: bytes = b""
    epochs: bytes = b""
    epoch_file: bytes = b""
    transactions: bytes = b""
    index_aborts: bytes = b""
    borders: bytes = b""
    highest_hole: int = -1
    cleaned_to: int = -1
    damages: tuple[DamagedOffsets, ...] = ()
    batches: int = 0
    log_bytes: int = 0
    limited: bool = False
    closed_to: int = -1
    read_to: int = -1


class Run(Struct, frozen=True, kw_only=True):
    """Rows of hashes.

    Attributes:
        rows: how many.
        data: bytes of uint64 rows, or empty.
        path: absolute path of a scratch file that holds them, or empty.
    """

    rows: int
    data: bytes = b""
    path: str = ""


class RowsResult(Outcome, frozen=True, kw_only=True):
    """What the records of a replica came to.

    Attributes:
        keys: runs of uint64[N, KEY_WORDS], each ascending by the highest bits of its first column (``BUCKETS``).
        records: runs of uint64[N, 2] (offset, digest), in offset order.
        count: records read.
    """

    keys: tuple[Run, ...] = ()
    records: tuple[Run, ...] = ()
    count: int = 0


def table(data: bytes, columns: int) -> Int64s:
    """int64[N, columns] of a table of a result."""
    return np.frombuffer(data, np.int64).reshape(-1, columns)
