"""What travels to and from the tasks that read replicas."""

from __future__ import annotations

from msgspec import Struct

from krepair.pipeline.items import FailureKind, Place


class ReplicaItem(Struct, frozen=True, kw_only=True):
    """Read one replica of one partition.

    Attributes:
        place: its folder.
        segments: (base offset, bytes of the ``.log`` as listed), ascending.
        secret: 16 bytes, the key of the hashes; of a reading of headers empty.
        transactions: bytes of int64[N, TRANSACTION_COLUMNS], for a reading of records.
        scratch: folder for rows that do not fit into a result, or empty.
        rows_inline: at most so many rows travel in a result.
        lowest: of a reading of records: lowest offset that is wanted.
        highest: highest offset that is.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]
    secret: bytes = b""
    transactions: bytes = b""
    scratch: str = ""
    rows_inline: int = 1 << 16
    lowest: int = -(2**63)
    highest: int = 2**63 - 1

    @property
    def bytes_to_read(self) -> int:
        """All its logs."""
        return sum(size for _, size in self.segments)


class Damaged(Struct, frozen=True, kw_only=True):
    """One part of a log that is no valid batch.

    Attributes:
        first: first offset that it may hold.
        last: last offset; -1 if it reaches to the end of the log.
        tail: whether no valid batch follows in the last segment: what a broker's recovery cuts.
        text: file, position, what was expected and found.
    """

    first: int
    last: int
    tail: bool
    text: str


class HeadersResult(Struct, frozen=True, kw_only=True):
    """What the headers of a replica came to. Tables are bytes of little-endian int64 rows.

    Attributes:
        failure: kind of failure, empty if it was read.
        why: of a failure.
        log_end: offset after the last batch.
        ranges: (number of the range of offsets, batches, sum, other sum), ascending; see ``ranges``.
        epochs: (leader epoch, first base offset, last offset) of runs of batches of one epoch, in offset order.
        epoch_file: (epoch, start offset) of ``leader-epoch-checkpoint``.
        transactions: see ``krepair.rules.replicas.transactions``.
        index_aborts: (producer id, first offset, offset of the marker) of all ``.txnindex``.
        borders: (offset after the last batch, base offset of the next segment) of each segment but the last.
        highest_hole: highest offset that has no record although it lies in the log, -1 none.
        damages: what is damaged.
        batches: how many were read.
        log_bytes: of ``.log`` that were read.
    """

    failure: FailureKind = ""
    why: str = ""
    log_end: int = 0
    ranges: bytes = b""
    epochs: bytes = b""
    epoch_file: bytes = b""
    transactions: bytes = b""
    index_aborts: bytes = b""
    borders: bytes = b""
    highest_hole: int = -1
    damages: tuple[Damaged, ...] = ()
    batches: int = 0
    log_bytes: int = 0


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


class RowsResult(Struct, frozen=True, kw_only=True):
    """What the records of a replica came to.

    Attributes:
        failure: kind of failure, empty if it was read.
        why: of a failure.
        keys: runs of uint64[N, KEY_COLUMNS], each ascending by its first column.
        records: runs of uint64[N, 2] (offset, digest), in offset order.
        count: records read.
    """

    failure: FailureKind = ""
    why: str = ""
    keys: tuple[Run, ...] = ()
    records: tuple[Run, ...] = ()
    count: int = 0
