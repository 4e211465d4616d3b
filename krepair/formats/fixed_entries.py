"""What the index files have in common: entries of one size, ascending, perhaps zeros at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage
from krepair.formats.layout import Layout


def first_true(mask: npt.NDArray[np.bool_]) -> int:
    """Index of the first true value, -1 if there is none."""
    return int(mask.argmax()) if mask.any() else -1


def torn_damage(buf: Bytes, entry_size: int) -> list[Damage]:
    """A file that does not end with a whole entry (``AbstractIndex.sanityCheck`` refuses it)."""
    torn = len(buf) % entry_size
    if torn == 0:
        return []
    return [Damage(len(buf) - torn, torn, f"a multiple of {entry_size} bytes", f"{len(buf)} bytes")]


def padding_start(buf: Bytes, entry_size: int) -> int:
    """Index of the first of the all-zero entries that end a file; the count of its whole entries if there are none."""
    end = len(buf) // entry_size * entry_size
    # A piece at a time: a file of zeros may be long. Most files end with an entry, and then the first piece tells.
    window = entry_size
    while end > 0:
        start = max(0, end - window)
        used = len(bytes(buf[start:end]).rstrip(b"\0"))
        if used:
            return (start + used - 1) // entry_size + 1
        end, window = start, entry_size << 12
    return 0


def are_ascending(*columns: npt.NDArray[np.int64]) -> bool:
    """Whether each column begins with 0 or more, and each of its values is above the one before it."""
    return all(
        len(values) == 0 or (values[0] >= 0 and bool((values[1:] > values[:-1]).all())) for values in columns
    )


def descent_damage(entries: npt.NDArray[Any], name: str, entry_size: int, *, strict: bool) -> list[Damage]:
    """The first entry whose field is not above (``strict``) or is below that of the entry before it."""
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
    """What is wrong with an index by its own bytes: torn end, zero padding, negative or not ascending entries.

    Args:
        buf: the whole file.
        layout: of one entry.
        used: entries before the zero padding.
        strict: name of each field, in the order in which they are looked at -> whether it must rise from entry to
            entry; else it may stay the same.
    """
    size = layout.size
    found = torn_damage(buf, size)
    entries = layout.view(buf)
    if used < len(entries):
        found.append(
            Damage(used * size, (len(entries) - used) * size, "a file cut to its entries", "zero padding")
        )
    entries = entries[:used]
    # Most files are right, and this is asked of each file of a directory.
    if are_ascending(*(entries[name].astype(np.int64) for name in strict)):
        return found
    for name, rises in strict.items():
        negative = first_true(entries[name].astype(np.int64) < 0)
        if negative >= 0:
            found.append(
                Damage(negative * size, size, f"{name} of 0 or more", str(int(entries[name][negative])))
            )
        found += descent_damage(entries, name, size, strict=rises)
    return sorted(found)
