"""Lines of ``krepair dump`` in plain Python: for everything that does not come in millions.

A line is a kind and fields; as JSON one object, for a person words. Neither can steer a terminal. What
``lines`` writes in bulk has the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from krepair.formats.control import ControlType
from krepair.formats.damage import Damage
from krepair.formats.words import all_printable, json_for_terminals, time_text

FORMAT_VERSION: Final = "1.0"
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime", "NoTimestampType")
MARKERS: Final = tuple(ControlType(number).name for number in range(len(ControlType)))
TIMES: Final = frozenset({"timestamp", "base_timestamp", "max_timestamp", "delete_horizon_ms"})
# C1 controls and the marks that turn the direction of text; JSON itself escapes C0.


class DumpWord(str):
    """Text that a person sees without quotes: a name of ours or of Kafka's."""

    __slots__ = ()


class Raw(bytes):
    """JSON that is written already."""

    __slots__ = ()


def _plain(value: Any) -> str:
    if isinstance(value, DumpWord):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} in a line of output")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def json_of(value: Any) -> bytes:
    """JSON in one line in which nothing steers a terminal; bytes as base64, names that are no UTF-8 spelled out."""
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        data = _ENCODER.encode(all_printable(value))
    if data.isascii() and b"\x7f" not in data:
        return data
    return json_for_terminals(data.decode()).encode()


def _written(value: Any) -> bytes:
    if type(value) is int:  # most are, and it is three times as fast
        return b"%d" % value
    return value if isinstance(value, Raw) else json_of(value)


class Style:
    """Writes lines.

    Args:
        as_json: one object a line, else words for a person.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def line(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        """One line, with its newline."""
        if self.as_json:
            parts = [b'{"type":"', kind.encode(), b'"']
            for name, value in fields.items():
                parts += [b',"', name.encode(), b'":', _written(value)]
            return b"".join((*parts, b"}\n"))
        front = b"| record" if kind == "record" else kind.encode()
        words = [b" %b=%b" % (name.encode(), self._for_person(name, value)) for name, value in fields.items()]
        return b"".join((front, *words, b"\n"))

    def row_writer(self, kind: str, names: tuple[str, ...]) -> Callable[[Sequence[int]], bytes]:
        """Makes lines of numbers of one kind; for a person times are ISO 8601."""
        if self.as_json:
            template = b'{"type":"%b",%b}\n' % (
                kind.encode(),
                b",".join(b'"%b":%%d' % name.encode() for name in names),
            )
            return lambda row: template % tuple(row)
        words = b"%b %b\n" % (
            kind.encode(),
            b" ".join(b"%b=%b" % (name.encode(), b"%b" if name in TIMES else b"%d") for name in names),
        )
        times = [place for place, name in enumerate(names) if name in TIMES]

        def written(row: Sequence[int]) -> bytes:
            shown: list[int | bytes] = list(row)
            for place in times:
                shown[place] = time_text(row[place]).encode()
            return words % tuple(shown)

        return written

    def damage(self, found: Damage, rule: str = "") -> bytes:
        """The line of a damaged range."""
        fields = found._asdict()
        return self.line("damage", fields | {"rule": DumpWord(rule)} if rule else fields)

    def _for_person(self, name: str, value: Any) -> bytes:
        if isinstance(value, Raw):
            return value
        if (
            isinstance(value, DumpWord)
            and value
            and value.isascii()
            and value.isprintable()
            and " " not in value
        ):
            return value.encode()
        if name in TIMES and isinstance(value, int):
            return time_text(value).encode()
        return json_of(value)
