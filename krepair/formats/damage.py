"""The value ``Damage``, which decoders return for damaged bytes instead of raising: position, expected, found."""

from __future__ import annotations

from typing import NamedTuple

Bytes = bytes | bytearray | memoryview
"""Objects in memory whose bytes ``memoryview`` can show without a copy."""

MAX_SHOWN_CHARACTERS = 80


class Damage(NamedTuple):
    """One damaged range.

    Attributes:
        position: position in the buffer of the first damaged byte.
        length: length of the range in bytes; 0 if something is missing at ``position``.
        expected: what should be at ``position``.
        found: what is at ``position``, cut to a readable length.
    """

    position: int
    length: int
    expected: str
    found: str

    @property
    def text(self) -> str:
        """Expected and actual content in one phrase, for messages."""
        return f"expected {self.expected}, found {self.found}"


class UnknownVersion(Damage):
    """File of a later version than krepair knows: nothing in the file is damaged, and no fix touches it.

    ``found`` is the version.
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """Phrase for messages: which version the file has, and that its content was not examined."""
        return f"unknown version {self.found}, not looked at"


def shown(text: str) -> str:
    """Escape untrusted text to one short line that is safe to print."""
    cut = text[: MAX_SHOWN_CHARACTERS + 1]
    printable = cut.encode("unicode_escape", "surrogatepass").decode("ascii")
    if len(cut) > MAX_SHOWN_CHARACTERS or len(printable) > MAX_SHOWN_CHARACTERS:
        return printable[:MAX_SHOWN_CHARACTERS] + "..."
    return printable
