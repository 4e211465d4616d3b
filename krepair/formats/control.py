"""Control records, such as the transaction markers COMMIT and ABORT.

Source: ``ControlRecordType.java``, ``EndTransactionMarker.java``, ``MemoryRecords.withEndTransactionMarker`` (2.2.1,
3.9.0), KIP-98.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from krepair.formats.damage import Bytes, Damage
from krepair.formats.layout import Layout, LayoutField

KEY = Layout(
    LayoutField("version", "i2", "0"),
    LayoutField("type_id", "i2", "0 ABORT, 1 COMMIT; others are not transaction markers"),
)
assert KEY.size == 4

END_TXN_VALUE = Layout(
    LayoutField("version", "i2", "0"),
    LayoutField("coordinator_epoch", "i4", "epoch of the transaction coordinator that wrote the marker"),
)
assert END_TXN_VALUE.size == 6


class ControlType(IntEnum):
    """Types of control records that brokers know; they ignore other types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class ControlKey(NamedTuple):
    """Key of a control record."""

    version: int
    type_id: int

    @property
    def is_end_txn(self) -> bool:
        """True if the record ends a transaction."""
        return self.type_id in {ControlType.ABORT, ControlType.COMMIT}


class EndTxnMarker(NamedTuple):
    """Value of a control record that ends a transaction."""

    version: int
    coordinator_epoch: int


def _decode(layout: Layout, buf: Bytes | None, part: str) -> tuple[int, ...] | Damage:
    if buf is None:
        return Damage(0, 0, part, "null")
    if len(buf) < layout.size:
        return Damage(0, len(buf), f"{part} of at least {layout.size} bytes", f"{len(buf)} bytes")
    values = layout.unpack(buf)
    if values[0] < 0:
        return Damage(0, len(buf), f"{part} with a version of 0 or more", f"version {values[0]}")
    return values


def decode_key(key: Bytes | None) -> ControlKey | Damage:
    """Read the key of a control record. A later version may be longer; like a broker, read the fields of version 0.

    Returns:
        The key; a ``Damage`` if the bytes are null, too short, or have a negative version.
    """
    values = _decode(KEY, key, "a control record key")
    return values if isinstance(values, Damage) else ControlKey(*values)


def decode_end_txn(value: Bytes | None) -> EndTxnMarker | Damage:
    """Read the value of an ABORT or COMMIT record. A later version may be longer; read the fields of version 0.

    Returns:
        The marker; a ``Damage`` if the value is null, too short, or has a negative version.
    """
    values = _decode(END_TXN_VALUE, value, "an end transaction marker")
    return values if isinstance(values, Damage) else EndTxnMarker(*values)
