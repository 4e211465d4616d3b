"""Producer snapshots (``.snapshot``): the state of all unexpired producers at an offset.

All brokers from 0.11 on write version 1.

Source: ``ProducerStateManager.scala`` (2.2.1), ``ProducerStateManager.java`` (3.9.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from krepair.formats.castagnoli import crc32c
from krepair.formats.damage import Bytes, Damage, UnknownVersion
from krepair.formats.layout import Layout, LayoutField
from krepair.formats.words import count_text

VERSION = 1
_PIECE_BYTES = 1 << 20

HEADER = Layout(
    LayoutField("version", "i2", "1"),
    LayoutField("crc", "u4", "CRC-32C of everything after this field"),
    LayoutField("entry_count", "i4", "number of entries that follow"),
)
HEADER_SIZE = HEADER.size
assert HEADER_SIZE == 10
CRC_START = HEADER.place("entry_count")

ENTRY = Layout(
    LayoutField("producer_id", "i8", "producer id"),
    LayoutField("producer_epoch", "i2", "current epoch of the producer"),
    LayoutField("last_sequence", "i4", "last sequence of the last data batch, -1 if unknown"),
    LayoutField("last_offset", "i8", "last offset of the last data batch, -1 if unknown"),
    LayoutField("offset_delta", "i4", "last offset minus base offset of the last data batch"),
    LayoutField(
        "timestamp", "i8", "largest time of that batch in ms; from 2.4 on also of the last marker; or -1"
    ),
    LayoutField("coordinator_epoch", "i4", "epoch of the coordinator that wrote the last marker, -1 if none"),
    LayoutField("current_txn_first_offset", "i8", "first offset of the open transaction, -1 if none is open"),
)
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 46
COLUMN_COUNT = len(ENTRY.names)
PRODUCER_ID, PRODUCER_EPOCH, LAST_SEQUENCE, LAST_OFFSET = range(4)
OFFSET_DELTA, TIMESTAMP, COORDINATOR_EPOCH, OPEN_FIRST = range(4, COLUMN_COUNT)
"""Columns of ``table``, in the order of ``ENTRY``."""


class ProducerEntry(NamedTuple):
    """One producer, with the fields of ``ENTRY``."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @property
    def has_open_txn(self) -> bool:
        """True if the producer has an open transaction. A broker treats any negative first offset as none."""
        return self.current_txn_first_offset >= 0


assert ProducerEntry._fields == ENTRY.names


class ProducerSnapshot(NamedTuple):
    """Content of a whole snapshot.

    Attributes:
        entries: producers in the order of the file, which is the broker's hash order.
    """

    entries: tuple[ProducerEntry, ...]


def view(buf: Bytes) -> npt.NDArray[Any]:
    """View the whole entries as an array [N]; N is the stored count, or less if the file holds fewer entries."""
    if len(buf) < HEADER_SIZE:
        return np.empty(0, ENTRY.dtype)
    count = HEADER.unpack(buf)[2]
    entries = ENTRY.view(memoryview(buf)[HEADER_SIZE:])
    return entries[: max(count, 0)]


def damage_in(size: int, read: Callable[[int, int], Bytes]) -> Damage | None:
    """Return the reason why a broker would refuse and delete the snapshot; None if it is valid.

    Size, version and count are checked first, so that little is read of a file that is not a snapshot.

    Args:
        size: size of the file in bytes.
        read: function that returns the bytes from one position up to another, fewer at the end of the file.
    """
    if size < HEADER_SIZE:
        return Damage(0, size, f"at least {HEADER_SIZE} bytes", f"{size} bytes")
    head = read(0, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return Damage(0, len(head), f"a file of {size} bytes", f"{len(head)} bytes")
    version, crc, count = HEADER.unpack(head)
    if version > VERSION:
        return UnknownVersion(0, size, f"version {VERSION}", f"{version}")
    if version != VERSION:
        return Damage(0, size, f"version {VERSION}", f"version {version}")
    if count < 0 or HEADER_SIZE + count * ENTRY_SIZE != size:
        whole = (size - HEADER_SIZE) / ENTRY_SIZE
        return Damage(
            CRC_START, size - CRC_START, count_text(count, "entry", "entries"), f"room for {whole:g}"
        )
    computed = 0
    for start in range(CRC_START, size, _PIECE_BYTES):
        computed = int(crc32c(read(start, min(start + _PIECE_BYTES, size)), computed))
    if computed != crc:
        return Damage(CRC_START, size - CRC_START, f"CRC {crc:#010x} as stored", f"{computed:#010x} computed")
    return None


def damage(buf: Bytes) -> list[Damage]:
    """Return the reason why a broker would refuse and delete the snapshot; empty if it is valid."""
    bytes_of = memoryview(buf)
    wrong = damage_in(len(buf), lambda start, end: bytes_of[start:end])
    return [] if wrong is None else [wrong]


def decode(buf: Bytes) -> ProducerSnapshot | Damage:
    """Read a snapshot; a ``Damage`` if a broker would refuse it."""
    wrong = damage(buf)
    if wrong:
        return wrong[0]
    return ProducerSnapshot(tuple(ProducerEntry(*entry) for entry in view(buf).tolist()))


def table(buf: Bytes) -> npt.NDArray[np.int64]:
    """Return the entries of a valid snapshot as int64[N, 8], one column per field of ``ENTRY``."""
    entries = view(buf)
    return np.column_stack([entries[name].astype(np.int64) for name in ENTRY.names])


def encode_table(rows: npt.NDArray[np.int64]) -> bytes:
    """Encode a snapshot from rows, int64[N, 8], in their order; the inverse of ``table``."""
    packed = np.empty(len(rows), ENTRY.dtype)
    for column, name in enumerate(ENTRY.names):
        packed[name] = rows[:, column]
    body = packed.tobytes()
    counted = HEADER.pack((VERSION, 0, len(rows)))[CRC_START:]
    return HEADER.pack((VERSION, crc32c(body, crc32c(counted)), len(rows))) + body
