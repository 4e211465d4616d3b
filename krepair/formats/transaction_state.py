"""Values of ``__transaction_state``: what the transaction coordinator writes of each transactional id.

Source: ``TransactionLogValue.json`` (version 0 up to 3.7; version 1, flexible, since 3.8: KIP-915, KIP-890),
``TransactionLog`` and ``TransactionState`` (2.2.1, 3.9.2, 4.3.1). The tagged fields at the end of version 1 are passed
over.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from krepair.formats.damage import Bytes, Damage

_VERSIONS: Final = frozenset({0, 1})
_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_MOST_VARINT_BYTES: Final = 5


class TransactionStatus(IntEnum):
    """Kafka's ids of the states of a transaction."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


IN_PROGRESS: Final = frozenset(
    {
        TransactionStatus.ONGOING,
        TransactionStatus.PREPARE_COMMIT,
        TransactionStatus.PREPARE_ABORT,
        TransactionStatus.PREPARE_EPOCH_FENCE,
    }
)
"""Begun, and not every partition has its marker yet."""


class TransactionValue(NamedTuple):
    """One value.

    Attributes:
        producer_id: producer id of the transactional id.
        producer_epoch: its epoch.
        timeout_ms: after so long the coordinator aborts a transaction that goes on.
        status: where the transaction is.
        partitions: (topic, partition) that are part of it.
        last_update_ms: when the coordinator wrote this, by its own clock.
        start_ms: when the transaction began, by the coordinator's clock; -1 for none.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: frozenset[tuple[str, int]]
    last_update_ms: int
    start_ms: int


class _EndError(Exception):
    """The value ends, or says a length, that cannot be."""


class _Reader:
    """Reads a value from its front; every length is held against what is left."""

    def __init__(self, data: Bytes, *, flexible: bool) -> None:
        self.data = bytes(data)
        self.place = 0
        self.flexible = flexible

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.place:
            raise _EndError(f"{size} bytes, {len(self.data) - self.place} are left")
        piece = self.data[self.place : self.place + size]
        self.place += size
        return piece

    def unsigned_varint(self) -> int:
        value = 0
        for count in range(_MOST_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * count)
            if byte < 0x80:
                return value
        raise _EndError("a varint of more than 5 bytes")

    def count(self) -> int:
        """Number of items of an array, 0 for null."""
        if self.flexible:
            return max(self.unsigned_varint() - 1, 0)
        return max(int.from_bytes(self.take(4), "big", signed=True), 0)

    def text(self) -> str:
        size = (
            self.unsigned_varint() - 1 if self.flexible else int.from_bytes(self.take(2), "big", signed=True)
        )
        return self.take(size).decode("utf-8", "replace")

    def pass_tags(self) -> None:
        if self.flexible:
            for _ in range(self.unsigned_varint()):
                self.unsigned_varint()
                self.take(self.unsigned_varint())

    def partitions(self) -> frozenset[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for _ in range(self.count()):
            topic = self.text()
            numbers = struct.iter_unpack(">i", self.take(4 * self.count()))
            found.update((topic, number) for (number,) in numbers)
            self.pass_tags()
        return frozenset(found)


def decode_value(data: Bytes) -> TransactionValue | Damage:
    """Read a value, or tell why it is none."""
    size = len(data)
    if size < _HEAD.size:
        return Damage(0, size, f"at least {_HEAD.size} bytes", f"{size}")
    version, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(data)
    if version not in _VERSIONS:
        return Damage(0, 2, "version 0 or 1", str(version))
    if status not in TransactionStatus.__members__.values():
        return Damage(_HEAD.size - 1, 1, "a status from 0 to 7", str(status))
    reader = _Reader(data, flexible=version > 0)
    reader.place = _HEAD.size
    try:
        partitions = reader.partitions()
        last_update_ms, start_ms = _TIMES.unpack(reader.take(_TIMES.size))
    except _EndError as error:
        return Damage(reader.place, size - reader.place, "the rest of a transaction's state", str(error))
    return TransactionValue(
        producer_id, epoch, timeout_ms, TransactionStatus(status), partitions, last_update_ms, start_ms
    )
