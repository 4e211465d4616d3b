"""Numbers of things in words, so that no message says ``1 partitions``; and JSON that steers no terminal."""

from __future__ import annotations

import re
from typing import Final

_STEERS: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def count_text(count: int, one: str, many: str = "") -> str:
    """A number of things: ``1 partition``, ``2 partitions``, ``no partition``.

    Args:
        count: how many.
        one: the word for one of them.
        many: the word for several; by default with an s.
    """
    if count == 0:
        return f"no {one}"
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def json_for_terminals(text: str) -> str:
    """JSON in which every letter that a terminal would obey has the other spelling that JSON has for it."""
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
