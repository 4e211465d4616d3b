"""Common parts of the index files: ascending entries of one size, perhaps with zero padding at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage
from krepair.formats.layout import Layout


def first_true(mask: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first true value, -1 if there is none."""
    return int(mask.argmax()) if mask.any() else -1


def torn_damage(buf: Bytes, entry_size: int) -> list[Damage]:
    """Return the damage of a file with a partial last entry, which ``AbstractIndex.sanityCheck`` refuses."""
    torn = len(buf) % entry_size
    if torn == 0:
        return []
    return [Damage(len(buf) - torn, torn, f"a multiple of {entry_size} bytes", f"{len(buf)} bytes")]


def padding_start(buf: Bytes, entry_size: int) -> int:
    """Count the whole entries before the zero padding at the end of a file."""
    end = len(buf) // entry_size * entry_size
    # Piece by piece: a file of zeros may be long, but most files end with an entry and need only one piece.
    window = entry_size
    while end > 0:
        start = max(0, end - window)
        used = len(bytes(buf[start:end]).rstrip(b"\0"))
        if used:
            return (start + used - 1) // entry_size + 1
        end, window = start, entry_size << 12
    return 0


def are_ascending(*columns: npt.NDArray[np.int64]) -> bool:
    """Return whether the values of each column, int64[N], start at 0 or more and rise from entry to entry."""
    return all(
        len(values) == 0 or (values[0] >= 0 and (len(values) == 1 or bool((values[1:] > values[:-1]).all())))
        for values in columns
    )


def descent_damage(entries: npt.NDArray[Any], name: str, entry_size: int, *, strict: bool) -> list[Damage]:
    """Return the damage at the first entry whose field falls or, with ``strict``, does not rise."""
    values = entries[name].astype(np.int64)
    wrong = first_true(values[1:] <= values[:-1] if strict else values[1:] < values[:-1])
    if wrong < 0:
        return []
    relation = "above" if strict else "at least"
    return [
        Damage(
            (wrong + 1) * entry_size,
            entry_size,
            f"{name} {relation} {int(values[wrong])} of the entry before",
            str(int(values[wrong + 1])),
        )
    ]


def entries_damage(buf: Bytes, layout: Layout, used: int, strict: Mapping[str, bool]) -> list[Damage]:
    """Return the damage that an index itself shows: torn end, zero padding, negative or descending entries.

    Args:
        buf: whole content of the index file.
        used: number of entries before the zero padding.
        strict: fields in the order of the checks; True if the field must rise from entry to entry, False if equal
            values are allowed too.
    """
    if not buf:
        return []
    size = layout.size
    damage = torn_damage(buf, size)
    entries = layout.view(buf)
    if used < len(entries):
        damage.append(
            Damage(used * size, (len(entries) - used) * size, "a file cut to its entries", "zero padding")
        )
    entries = entries[:used]
    # The fast check comes first: it runs for every file of a directory, and most files are valid.
    if are_ascending(*(entries[name].astype(np.int64) for name in strict)):
        return damage
    for name, rises in strict.items():
        negative = first_true(entries[name].astype(np.int64) < 0)
        if negative >= 0:
            damage.append(
                Damage(negative * size, size, f"{name} of 0 or more", str(int(entries[name][negative])))
            )
        damage += descent_damage(entries, name, size, strict=rises)
    return sorted(damage)
