"""Offset index files (``.index``), which map offsets to positions in the log.

Source: ``OffsetIndex.scala`` (2.2.1), ``OffsetIndex.java`` (3.9.0), ``LogSegment.append`` and ``recover``.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage
from krepair.formats.fixed_entries import entries_damage, padding_start
from krepair.formats.layout import Layout, LayoutField

ENTRY = Layout(
    LayoutField("relative_offset", "i4", "last offset of the batch minus the segment's base offset"),
    LayoutField("position", "i4", "byte in the log at which that batch starts"),
)
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 8


def view(buf: Bytes) -> npt.NDArray[Any]:
    """View the whole entries as an array [N], including the zero padding."""
    return ENTRY.view(buf)


def damage(buf: Bytes) -> list[Damage]:
    """Return the damage that the file itself shows: torn end, zero padding, negative or descending entries.

    A broker writes no entry for the batch at position 0. So an entry of zeros is always padding of an untrimmed file.
    """
    strict = {"relative_offset": True, "position": True}
    return entries_damage(buf, ENTRY, padding_start(buf, ENTRY_SIZE), strict)
