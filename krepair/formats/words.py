"""Numbers of things and times in words, so that no message says ``1 partitions``; and JSON that steers no terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_MOST_NAMES: Final = 3
_LONG_NAME: Final = 40
_STEERS: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LAST_SECOND_MS: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(milliseconds: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC.

    -1 is no timestamp. Another negative number stays a number; one after the year 9999 is also told in microseconds.
    """
    if milliseconds == -1:
        return "no timestamp"
    if milliseconds > _LAST_SECOND_MS and milliseconds // 1000 <= _LAST_SECOND_MS:
        return f"{milliseconds} (in microseconds {time_text(milliseconds // 1000)})"
    if not 0 <= milliseconds <= _LAST_SECOND_MS:
        return str(milliseconds)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def names_text(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more:,} more" if more > 0 else shown


def few(folders: Sequence[str]) -> str:
    """The first three folders of partitions, and how many more there are: ``a-0, a-1, b-7 and 9 more``."""
    told = [_elided(folder) for folder in folders[:_MOST_NAMES]]
    more = len(folders) - len(told)
    return ", ".join(told) + (f" and {more:,} more" if more > 0 else "")


def _elided(name: str) -> str:
    return name if len(name) <= _LONG_NAME else f"{name[:20]}...{name[-17:]}"


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
