"""The value that every format gives back for damaged bytes, instead of an exception: what is wrong, and where."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | bytearray | memoryview
"""Objects that hold bytes in memory and that ``memoryview`` can show without a copy."""

MAX_SHOWN_CHARACTERS = 80


class Damage(NamedTuple):
    """One damaged range.

    Attributes:
        position: byte in the buffer at which the range starts.
        length: bytes of the range; 0 if something is missing at ``position``.
        expected: what should be there.
        found: what is there, cut to a readable length.
    """

    position: int
    length: int
    expected: str
    found: str


def shown(text: str) -> str:
    """Untrusted text as one short line that is safe to print."""
    cut = text[: MAX_SHOWN_CHARACTERS + 1]
    printable = cut.encode("unicode_escape", "surrogatepass").decode("ascii")
    if len(cut) > MAX_SHOWN_CHARACTERS or len(printable) > MAX_SHOWN_CHARACTERS:
        return printable[:MAX_SHOWN_CHARACTERS] + "..."
    return printable
