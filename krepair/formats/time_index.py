"""Time index files (``.timeindex``), which map timestamps to offsets.

Source: ``TimeIndex.scala`` (2.2.1), ``TimeIndex.java`` (3.9.0); KIP-33.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage
from krepair.formats.fixed_entries import entries_damage, padding_start
from krepair.formats.layout import Layout, LayoutField

ENTRY = Layout(
    LayoutField("timestamp", "i8", "largest time so far in ms"),
    LayoutField("relative_offset", "i4", "offset of that record minus the segment's base offset"),
)
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 12


def view(buf: Bytes) -> npt.NDArray[Any]:
    """View the whole entries as an array [N], including the zero padding."""
    return ENTRY.view(buf)


def used_entries(buf: Bytes) -> int:
    """Count the entries before the zero padding.

    If the file has only one entry, and it is all zeros, it is a real entry: timestamp 0 at the base offset.
    """
    used = padding_start(buf, ENTRY_SIZE)
    return 1 if used == 0 and len(buf) // ENTRY_SIZE == 1 else used


def damage(buf: Bytes) -> list[Damage]:
    """Return the damage that the file itself shows: torn end, zero padding, negative or descending entries."""
    return entries_damage(buf, ENTRY, used_entries(buf), {"timestamp": True, "relative_offset": False})
