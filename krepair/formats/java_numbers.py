"""Numbers in text exactly as Java reads them: what the broker takes, and nothing else.

Python's ``int`` also takes spaces and underscores, which a broker refuses.
"""

from __future__ import annotations

import re

SIGNED_DIGITS = re.compile(r"[+-]?\d+", re.UNICODE)
LARGEST_BMP_CODE = 0xFFFF
MAX_LITERAL_CHARACTERS = 1024
"""Longer ones can only be leading zeros; they are refused to bound the work."""


def parse_java_integer(text: str, bits: int) -> int | None:
    """Read as ``Integer.parseInt`` (32 bits) or ``Long.parseLong`` (64 bits) does; None where Java throws.

    Java takes a sign and any Unicode decimal digit that fits one UTF-16 unit.
    """
    if len(text) > MAX_LITERAL_CHARACTERS or SIGNED_DIGITS.fullmatch(text) is None:
        return None
    if not text.isascii() and any(ord(character) > LARGEST_BMP_CODE for character in text):
        return None
    value = int(text)
    limit = 1 << (bits - 1)
    return value if -limit <= value < limit else None
