"""Java's integers: their limits, and how a broker parses them from text.

Python's ``int`` also accepts spaces and underscores, which a broker refuses.

Source: ``Integer.parseInt``, ``Long.parseLong`` and ``Character.digit`` of Java.
"""

from __future__ import annotations

import re
from typing import Final

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1
LARGEST_FILE_BYTES: Final = INT32_MAX
"""Most bytes of a log or an index: a broker counts positions in them with ``int`` (``FileRecords``, 2.2 to 4.4)."""
SIGNED_DIGITS = re.compile(r"[+-]?\d+", re.UNICODE)
LARGEST_BMP_CODE = 0xFFFF
MAX_LITERAL_CHARACTERS = 1024
"""Longest text that is parsed, to bound the work. A longer valid number only has more leading zeros."""


def wrapped_int64(value: int) -> int:
    """Return a sum as Java's ``long`` holds it: a sum that does not fit wraps around."""
    return (value + 2**63) % 2**64 - 2**63


def parse_java_integer(text: str, bits: int) -> int | None:
    """Parse a number as ``Integer.parseInt`` (32 bits) or ``Long.parseLong`` (64 bits); None if Java throws.

    Java accepts a sign and every Unicode decimal digit of one UTF-16 unit.
    """
    if len(text) > MAX_LITERAL_CHARACTERS or SIGNED_DIGITS.fullmatch(text) is None:
        return None
    if not text.isascii() and any(ord(character) > LARGEST_BMP_CODE for character in text):
        return None
    value = int(text)
    limit = 1 << (bits - 1)
    return value if -limit <= value < limit else None
