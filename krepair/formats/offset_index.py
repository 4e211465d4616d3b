"""Offset index files (``.index``): they lead from an offset to a position in the log.

Source: ``OffsetIndex.scala`` (2.2.1), ``OffsetIndex.java`` (3.9.0), ``LogSegment.append`` and ``recover``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage
from krepair.formats.fixed_entries import entries_damage, padding_start
from krepair.formats.layout import Layout, LayoutField

ENTRY = Layout(
    LayoutField("relative_offset", "i4", "last offset of the batch less the segment's base offset"),
    LayoutField("position", "i4", "byte in the log at which that batch starts"),
)
ENTRY_SIZE = ENTRY.size
assert ENTRY_SIZE == 8


class OffsetEntry(NamedTuple):
    """One entry, with the fields of ``ENTRY``."""

    relative_offset: int
    position: int


def view(buf: Bytes) -> npt.NDArray[Any]:
    """The whole entries as an array [N], with the zero padding."""
    return ENTRY.view(buf)


def damage(buf: Bytes) -> list[Damage]:
    """The damage that the file's own bytes show: torn end, zero padding, negative or not ascending entries.

    A broker writes no entry for the batch at position 0. So an entry of zeros is always padding of an untrimmed file.
    """
    strict = {"relative_offset": True, "position": True}
    return entries_damage(buf, ENTRY, padding_start(buf, ENTRY_SIZE), strict)


def decode(buf: Bytes) -> tuple[OffsetEntry, ...]:
    """The entries before the zero padding. They can be trusted only if ``damage`` is empty."""
    entries = view(buf)
    return tuple(OffsetEntry(*entry) for entry in entries[: padding_start(buf, ENTRY_SIZE)].tolist())


def encode(entries: Iterable[OffsetEntry]) -> bytes:
    """The bytes of a trimmed file.

    Raises:
        UsageError: a value does not fit in four bytes.
    """
    return b"".join(map(ENTRY.pack, entries))
