"""Columns of text, by numpy and pyarrow: numbers, times, and bytes as text, hex or base64.

Nothing is done in Python for a single row. A column whose rows are all the same is one ``str``, so that the parts of a
line that do not change cost nothing. Text is escaped as in JSON; so are characters that steer a terminal: C1 controls,
and marks that change the direction of text.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from krepair.formats.arrays import Int64s, Uint8s

Column = Any
"""A pyarrow string array with a text for each row, or a ``str`` that all rows have."""

AUTO, HEX, BASE64 = range(3)
"""How bytes are shown; ``AUTO`` is text, or base64 where they are no UTF-8."""
LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999; later times are written as numbers."""

_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
_TIME_BYTES: Final = len("2020-01-01 00:00:00.000")
_SHORT: Final = {34: r"\"", 92: r"\\", 8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"}


_MOST_REPLACED: Final = 3
"""Characters that are escaped one after the other; more are escaped together."""


def _escape(code: int) -> str:
    return _SHORT.get(code, f"\\u{code:04x}")


_ESCAPES: Final = pa.array(
    [_escape(code).encode() if code < 32 or code in {34, 92, 127} else bytes([code]) for code in range(256)],
    pa.binary(),
)
_STEERING: Final = np.array(
    [*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
)


def joined(*parts: Column) -> Column:
    """Parts of a line, one behind the other."""
    merged: list[Column] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged[0] if len(merged) == 1 else pc.binary_join_element_wise(*merged, "")


def numbers(values: Int64s) -> Column:
    """In decimal."""
    first = values[0] if len(values) else 0
    return str(int(first)) if (values == first).all() else pa.array(values).cast(pa.string())


def times(values: Int64s) -> Column:
    """As ISO 8601 in UTC; a time before 1970 or after ``LAST_MS`` as a number."""
    if len(values) == 0:
        return ""
    good = (values >= 0) & (values <= LAST_MS)
    if not good.all():
        return one_or_other(good, lambda rows: times(values[rows]), lambda rows: numbers(values[rows]))
    if (values == values[0]).all():
        values = values[:1]
    text = pa.array(values, pa.timestamp("ms")).cast(pa.string())
    rows = np.frombuffer(text.buffers()[2], np.uint8)[: len(values) * _TIME_BYTES].reshape(-1, _TIME_BYTES)
    iso = np.empty((len(values), _TIME_BYTES + 1), np.uint8)
    iso[:, :-1] = rows
    iso[:, 10], iso[:, -1] = ord("T"), ord("Z")
    if len(values) == 1:
        return iso.tobytes().decode()
    return _strings(np.arange(len(values) + 1, dtype=np.int64) * iso.shape[1], iso)


def words(names: Sequence[str], numbers: Any) -> Column:
    """Of each row the name with a number."""
    first = int(numbers[0]) if len(numbers) else 0
    if (numbers == first).all():
        return names[first]
    return pa.array(names).take(pa.array(numbers))


def of_rows(column: Column, count: int) -> Any:
    """A column as an array of so many rows."""
    return pa.repeat(pa.scalar(column), count) if isinstance(column, str) else column


def one_or_other(first: Any, of_first: Any, of_others: Any) -> Column:
    """A column made in two ways.

    Args:
        first: bool[N], which rows are made in the first way.
        of_first: gets the numbers of the rows, int64[M], and makes their column.
        of_others: likewise of the others.
    """
    ones, others = np.flatnonzero(first), np.flatnonzero(~first)
    if not len(others):
        return of_first(ones)
    if not len(ones):
        return of_others(others)
    parts = [of_rows(of_first(ones), len(ones)), of_rows(of_others(others), len(others))]
    places = np.empty(len(first), np.int64)
    places[ones], places[others] = np.arange(len(ones)), len(ones) + np.arange(len(others))
    return pa.concat_arrays(parts).take(pa.array(places))


def gathered(buf: Uint8s, places: Int64s, sizes: Int64s) -> Any:
    """Pieces of a buffer as a pyarrow array of bytes.

    Args:
        buf: uint8[W].
        places: int64[N], ascending.
        sizes: int64[N]; the pieces do not overlap. A negative one gives no bytes.
    """
    if not len(places):
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(places), np.int32)
    edges[0::2] = places
    edges[1::2] = places + np.maximum(sizes, 0)
    # every second element is a piece, the others are what lies between two of them
    whole = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(buf)])
    return whole.take(pa.array(np.arange(0, len(edges) - 1, 2)))


def quoted(pieces: Any, form: int) -> tuple[Any, Column]:
    """Bytes in a form, without the quotes.

    Args:
        pieces: pyarrow array of bytes.
        form: ``AUTO``, ``HEX`` or ``BASE64``.

    Returns:
        (the form of each row, the column).
    """
    forms = np.full(len(pieces), form)
    if form == HEX:
        return forms, _coded(pieces, binascii.hexlify, 1, 2)
    if form == BASE64:
        return forms, _base64(pieces)
    try:
        return forms, _escaped(pieces.cast(pa.string()))
    except pa.ArrowInvalid:
        is_text = pc.match_substring_regex(pieces, _UTF8).to_numpy(zero_copy_only=False)
    forms[~is_text] = BASE64
    return forms, one_or_other(
        is_text,
        lambda rows: _escaped(pieces.take(pa.array(rows)).cast(pa.string())),
        lambda rows: _base64(pieces.take(pa.array(rows))),
    )


def strings(texts: Sequence[bytes]) -> Any:
    """An array of texts in UTF-8."""
    return pa.array(texts, pa.binary()).cast(pa.string())


def text_of(lines: Any) -> memoryview:
    """All bytes of the strings of an array."""
    edges, data = _parts(lines)
    return data[edges[0] : edges[-1]]


def big_endian(buf: Uint8s, places: Int64s, size: int) -> Int64s:
    """Signed numbers of two or four bytes."""
    found = np.zeros(len(places), np.int64)
    for step in range(size):
        found = found << 8 | buf[places + step]
    return found - ((found >> (8 * size - 1)) << (8 * size))


def _strings(edges: Any, data: Any) -> Any:
    edges = pa.py_buffer(np.ascontiguousarray(edges, np.int32))
    return pa.Array.from_buffers(pa.string(), edges.size // 4 - 1, [None, edges, pa.py_buffer(data)])


def _parts(array: Any) -> tuple[Any, memoryview]:
    """(places of the first byte of each row and after the last, the bytes) of an array of bytes or strings."""
    edges = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    return edges, memoryview(data or b"").cast("B")


def _coded(pieces: Any, code: Any, of: int, gives: int) -> Any:
    """All bytes coded in one call: ``of`` bytes give ``gives`` characters."""
    edges, data = _parts(pieces)
    first, last = int(edges[0]), int(edges[-1])
    return _strings((edges - first).astype(np.int64) // of * gives, code(data[first:last]))


def _base64(pieces: Any) -> Any:
    edges, _ = _parts(pieces)
    missing = -np.diff(edges) % 3
    padding = pa.array([b"", b"\0", b"\0\0"], pa.binary()).take(pa.array(missing))
    whole = pc.binary_join_element_wise(pieces, padding, pa.scalar(b""))
    edges, data = _parts(whole)
    text = np.frombuffer(binascii.b2a_base64(data[edges[0] : edges[-1]], newline=False), np.uint8).copy()
    ends = (edges - edges[0]).astype(np.int64)[1:] // 3 * 4
    for count in (1, 2):
        text[ends[missing >= count] - count] = ord("=")
    return _strings(np.concatenate([[0], ends]), text)


def _escaped(texts: Any) -> Any:
    """Text as between the quotes of JSON."""
    edges, data = _parts(texts)
    text = np.frombuffer(data[edges[0] : edges[-1]], np.uint8)
    codes = list(_odd_characters(text))
    if sum(code < 128 for code in codes) > _MOST_REPLACED:
        texts = _escaped_together(edges - edges[0], text)
        codes = [code for code in codes if code >= 128]
    for code in codes:
        texts = pc.replace_substring(texts, chr(code), _escape(code))
    return texts


def _escaped_together(edges: Any, text: Uint8s) -> Any:
    """The same with all characters of one byte, in one go."""
    ends, data = _parts(_ESCAPES.take(pa.array(text)))
    return _strings(ends[edges], data)


def _odd_characters(text: Uint8s) -> Iterator[int]:
    """Code points in UTF-8 that are escaped; a backslash comes first, since escapes begin with it."""
    if not len(text):
        return
    for code in (92, 34):
        if (text == code).any():
            yield code
    if text.min() < 32:
        yield from np.unique(text[text < 32]).tolist()
    if text.max() > 126:
        if (text == 127).any():
            yield 127
        # characters of two bytes that begin like 80 to BF and 600 to 63F, and of three that begin like 2000 to 2FFF
        front = np.flatnonzero((text == 0xC2) | (text == 0xD8) | (text == 0xE2))
        first, second, third = (
            text[np.minimum(front + step, len(text) - 1)].astype(np.int64) for step in range(3)
        )
        codes = np.where(
            first < 0xE0, (first & 31) << 6 | second & 63, 0x2000 | (second & 63) << 6 | third & 63
        )
        yield from np.intersect1d(codes, _STEERING).tolist()
