"""Transaction index files (``.txnindex``): the aborted transactions whose ABORT marker is in the segment.

Source: ``TransactionIndex.scala`` (2.2.1), ``AbortedTxn.java`` and ``TransactionIndex.java`` (3.9.0); KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage, UnknownVersion
from krepair.formats.fixed_entries import descent_damage, first_true, torn_damage
from krepair.formats.layout import Layout, LayoutField

VERSION = 0
_MOST_VERSIONS: Final = 127
"""Highest version that is not damage. An unknown version among entries of the known version is damage too."""
AT_MOST_BYTES = 1 << 30
"""Largest file in bytes that is read."""

ENTRY = Layout(
    LayoutField("version", "i2", "0"),
    LayoutField("producer_id", "i8", "producer id of the transaction"),
    LayoutField(
        "first_offset", "i8", "offset of the transaction's first batch, which may be in an earlier segment"
    ),
    LayoutField("last_offset", "i8", "offset of the abort marker"),
    LayoutField("last_stable_offset", "i8", "last stable offset of the log at the marker"),
)
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 34


class AbortedTxn(NamedTuple):
    """One aborted transaction, with the fields of ``ENTRY``."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def view(buf: Bytes) -> npt.NDArray[Any]:
    """View the whole entries as an array [N]."""
    return ENTRY.view(buf)


def later_version(buf: Bytes) -> int:
    """Return the version of a file of a later version than krepair knows, else 0."""
    version = int.from_bytes(buf[:2], "big")
    known = (view(buf)["version"] == VERSION).any()
    return version if VERSION < version <= _MOST_VERSIONS and not known else 0


def damage(buf: Bytes, base_offset: int = 0) -> list[Damage]:
    """Return the damage that the file itself shows: torn end, unknown version, impossible offsets.

    Args:
        buf: whole content of the file.
        base_offset: base offset of the segment; ``TransactionIndex.sanityCheck`` refuses a last offset below it.
    """
    if not buf:
        return []  # nearly every segment has an empty transaction index
    if later := later_version(buf):
        return [UnknownVersion(0, len(buf), f"version {VERSION}", str(later))]
    damages = torn_damage(buf, ENTRY_SIZE)
    entries = view(buf)
    columns = {name: entries[name].astype(np.int64) for name in ENTRY.names}
    checks = (
        (columns["version"] != VERSION, "version", f"version {VERSION}"),
        (columns["producer_id"] < 0, "producer_id", "producer_id of 0 or more"),
        (columns["first_offset"] < 0, "first_offset", "first_offset of 0 or more"),
        (
            columns["first_offset"] > columns["last_offset"],
            "first_offset",
            "first_offset not above last_offset",
        ),
        (columns["last_offset"] < base_offset, "last_offset", f"last_offset of {base_offset} or more"),
        (columns["last_stable_offset"] < 0, "last_stable_offset", "last_stable_offset of 0 or more"),
    )
    for mask, name, expected in checks:
        wrong = first_true(mask)
        if wrong >= 0:
            damages.append(Damage(wrong * ENTRY_SIZE, ENTRY_SIZE, expected, str(int(columns[name][wrong]))))
    damages += descent_damage(entries, "last_offset", ENTRY_SIZE, strict=True)
    return sorted(damages)


def decode(buf: Bytes) -> tuple[AbortedTxn, ...]:
    """Read the whole entries, which can be trusted only if ``damage`` is empty."""
    return tuple(AbortedTxn(*entry) for entry in view(buf).tolist())


def encode(entries: Iterable[AbortedTxn]) -> bytes:
    """Encode a transaction index.

    Raises:
        UsageError: a value does not fit its field.
    """
    return b"".join(map(ENTRY.pack, entries))
