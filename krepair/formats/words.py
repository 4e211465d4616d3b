"""Numbers of things in words, so that no message says ``1 partitions``; and JSON that steers no terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

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


def printable(name: str) -> str:
    r"""A file name as JSON can hold it: bytes that are not UTF-8 as ``\\udcNN`` in plain letters.

    Plans hold names so. Call this before you look up the name of a folder in a plan.
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def all_printable(value: Any) -> Any:
    """A value of JSON's types, as ``msgspec.to_builtins`` gives it, with every text of it printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {all_printable(key): all_printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_printable(item) for item in value]
    return value
