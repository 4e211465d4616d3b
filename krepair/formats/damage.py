"""What is wrong with some bytes, and where: the value that every format hands back instead of raising."""

from __future__ import annotations

from mmap import mmap
from typing import NamedTuple

Bytes = bytes | bytearray | memoryview | mmap
"""Anything that holds bytes in memory and can be viewed without a copy."""

MAX_SHOWN_CHARACTERS = 80


class Damage(NamedTuple):
    """One damaged range.

    Attributes:
        position: byte in the buffer where the range starts.
        length: bytes of the range; 0 when something is missing at ``position``.
        expected: what should be there.
        found: what is there, cut to a readable length.
    """

    position: int
    length: int
    expected: str
    found: str


def shown(text: str) -> str:
    """Make untrusted text printable on one line and short enough for a report."""
    cut = text[: MAX_SHOWN_CHARACTERS + 1]
    printable = cut.encode("unicode_escape", "surrogatepass").decode("ascii")
    if len(cut) > MAX_SHOWN_CHARACTERS or len(printable) > MAX_SHOWN_CHARACTERS:
        return printable[:MAX_SHOWN_CHARACTERS] + "..."
    return printable
