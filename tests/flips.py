"""A flipped bit in a file, as a bad disk leaves it."""

from __future__ import annotations

import os
from pathlib import Path


def flip(path: Path, position: int | None = None, bits: int = 1) -> None:
    """Flips bits of one byte, in place; the file's times are what they were.

    Args:
        path: the file.
        position: of the byte, from the end if negative; without it the one in the middle.
        bits: to flip.
    """
    found, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= bits
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
