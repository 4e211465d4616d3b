"""What the index files have in common: entries of one size, ascending, perhaps zeros at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from krepair.formats.damage import Bytes, Damage


def first_true(mask: npt.NDArray[np.bool_]) -> int:
    """Index of the first true value, -1 if there is none."""
    return int(mask.argmax()) if mask.any() else -1


def torn_damage(buf: Bytes, entry_size: int) -> list[Damage]:
    """A file that does not end with a whole entry (``AbstractIndex.sanityCheck`` refuses it)."""
    torn = len(buf) % entry_size
    if torn == 0:
        return []
    return [Damage(len(buf) - torn, torn, f"a multiple of {entry_size} bytes", f"{len(buf)} bytes")]


def padding_start(entries: npt.NDArray[Any]) -> int:
    """Index of the first of the all-zero entries that end the file; the entry count if there are none."""
    raw = np.frombuffer(entries.tobytes() if not entries.flags.c_contiguous else entries, np.uint8)
    size = entries.dtype.itemsize
    end = raw.size
    window = size << 12
    while end > 0:
        start = max(0, end - window)
        used = np.flatnonzero(raw[start:end])
        if used.size:
            return (start + int(used[-1])) // size + 1
        end = start
    return 0


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
