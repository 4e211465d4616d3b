"""Format counts, times and names, so that no message reads ``1 partitions``; make JSON safe for terminals."""

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
    """Format epoch milliseconds as ISO 8601 in UTC.

    -1 means no timestamp. Another negative number is shown as a number; a time after the year 9999 is also shown as if
    it were in microseconds.
    """
    if milliseconds == -1:
        return "no timestamp"
    if milliseconds > _LAST_SECOND_MS and milliseconds // 1000 <= _LAST_SECOND_MS:
        return f"{milliseconds} (in microseconds {time_text(milliseconds // 1000)})"
    if not 0 <= milliseconds <= _LAST_SECOND_MS:
        return str(milliseconds)
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def count_text(count: int, singular: str, many: str = "") -> str:
    """Format a count with its noun: ``1 partition``, ``2 partitions``, ``no partition``.

    Args:
        singular: singular of the noun.
        many: plural of the noun; by default the singular with an s.
    """
    if count == 0:
        return f"no {singular}"
    return f"{count:,} {singular if count == 1 else many or singular + 's'}"


def names_text(names: Sequence[str]) -> str:
    """List the first three names and the number of the others."""
    more = len(names) - _MOST_NAMES
    shown = ", ".join(names[:_MOST_NAMES])
    return f"{shown} and {more:,} more" if more > 0 else shown


def few(folders: Sequence[str]) -> str:
    """List the first three partition folders and the number of the others: ``a-0, a-1, b-7 and 9 more``."""
    names = [_elided(folder) for folder in folders[:_MOST_NAMES]]
    more = len(folders) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more > 0 else "")


def _elided(name: str) -> str:
    return name if len(name) <= _LONG_NAME else f"{name[:20]}...{name[-17:]}"


def json_for_terminals(text: str) -> str:
    """Escape every character of a JSON text that a terminal would obey."""
    return _STEERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable(name: str) -> str:
    r"""Return a file name in the form of JSON texts and plans: invalid UTF-8 bytes are spelled ``\\udcNN``.

    Plans hold folder names in this form, so call this before looking up a folder in a plan.
    """
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def all_printable(value: Any) -> Any:
    """Return a value of JSON's types, as ``msgspec.to_builtins`` gives it, with every text made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {all_printable(key): all_printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [all_printable(item) for item in value]
    return value
