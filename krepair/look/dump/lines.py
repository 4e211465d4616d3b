"""Builds the lines of ``krepair dump`` for many batches or records at once, as JSON or as text for a person.

numpy and pyarrow build columns of text, and no Python code runs for a single row. A column whose rows are all equal is
one ``str``. Records that must be decoded, searched or cut are written one at a time by ``dump.record``, in the same
shape. Text is escaped as in JSON, including characters that control a terminal: C1 controls, and marks that change the
direction of text.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s, Uint8s
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import BAD_CRC, BATCH, Batches, copy_of, words_of
from krepair.look.dump.record import LAST_MS, MARKERS, TIMESTAMP_TYPES

Column = Any
"""Text for each row as a pyarrow string array, or one ``str`` that all rows share."""

AUTO, HEX, BASE64 = range(3)
"""Forms of bytes; ``AUTO`` is text, or base64 if the bytes are not UTF-8."""

_UTF8: Final = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    r"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)
_TIME_BYTES: Final = len("2020-01-01 00:00:00.000")
_SHORT: Final = {34: r"\"", 92: r"\\", 8: r"\b", 9: r"\t", 10: r"\n", 12: r"\f", 13: r"\r"}


_MOST_REPLACED: Final = 3
"""Number of characters that are escaped one after another; more are escaped together."""


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
    """Concatenate the parts of a line."""
    merged: list[Column] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged[0] if len(merged) == 1 else pc.binary_join_element_wise(*merged, "")


def numbers(values: Int64s) -> Column:
    """Format numbers in decimal."""
    first = values[0] if len(values) else 0
    return str(int(first)) if (values == first).all() else pa.array(values).cast(pa.string())


def times(values: Int64s) -> Column:
    """Format times as ISO 8601 in UTC; a time before 1970 or after ``LAST_MS`` is written as a number."""
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
    """Look up the name for each row's number."""
    first = int(numbers[0]) if len(numbers) else 0
    if (numbers == first).all():
        return names[first]
    return pa.array(names).take(pa.array(numbers))


def of_rows(column: Column, count: int) -> Any:
    """Expand a column to an array of ``count`` rows."""
    return pa.repeat(pa.scalar(column), count) if isinstance(column, str) else column


def one_or_other(first: Any, of_first: Any, of_others: Any) -> Column:
    """Build a column whose rows are of two kinds.

    Args:
        first: bool[N], True for the rows of the first kind.
        of_first: function that builds the column of the first kind from the indexes of its rows, int64[M].
        of_others: function that builds the column of the other rows from their indexes.
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
    """Cut pieces out of a buffer, as a pyarrow array of bytes.

    Args:
        buf: uint8[W].
        places: int64[N], positions of the pieces, ascending.
        sizes: int64[N], sizes of the pieces, which do not overlap. A negative size gives no bytes.
    """
    if not len(places):
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(places), np.int32)
    edges[0::2] = places
    edges[1::2] = places + np.maximum(sizes, 0)
    # Every second element is a piece; the others are the bytes between two pieces.
    whole = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(buf)])
    return whole.take(pa.array(np.arange(0, len(edges) - 1, 2)))


def quoted(pieces: Any, form: int) -> tuple[Any, Column]:
    """Format bytes for a line, without the quotes.

    Args:
        pieces: pyarrow array of bytes.
        form: ``AUTO``, ``HEX`` or ``BASE64``.

    Returns:
        (form of each row, column).
    """
    forms = np.full(len(pieces), form)
    if form == HEX:
        return forms, _encode_together(pieces, binascii.hexlify, 1, 2)
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
    """Build an array of texts from UTF-8."""
    return pa.array(texts, pa.binary()).cast(pa.string())


def text_of(lines: Any) -> memoryview:
    """Return all bytes of the strings in an array."""
    edges, data = _parts(lines)
    return data[edges[0] : edges[-1]]


def big_endian(buf: Uint8s, places: Int64s, size: int) -> Int64s:
    """Decode signed numbers of two or four bytes."""
    values = np.zeros(len(places), np.int64)
    for step in range(size):
        values = values << 8 | buf[places + step]
    return values - ((values >> (8 * size - 1)) << (8 * size))


def _strings(edges: Any, data: Any) -> Any:
    edges = pa.py_buffer(np.ascontiguousarray(edges, np.int32))
    return pa.Array.from_buffers(pa.string(), edges.size // 4 - 1, [None, edges, pa.py_buffer(data)])


def _parts(array: Any) -> tuple[Any, memoryview]:
    """Return (edges of the rows, bytes) of an array of bytes or strings."""
    edges = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    return edges, memoryview(data or b"").cast("B")


def _encode_together(pieces: Any, code: Any, of: int, gives: int) -> Any:
    """Encode all bytes in one call: ``of`` bytes give ``gives`` characters."""
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
    """Escape text for the inside of JSON quotes."""
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
    """Escape all one-byte characters in one pass."""
    ends, data = _parts(_ESCAPES.take(pa.array(text)))
    return _strings(ends[edges], data)


def _odd_characters(text: Uint8s) -> Iterator[int]:
    """Yield the code points to escape; the backslash comes first, because escapes begin with a backslash."""
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


_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd", "unknown 5", "unknown 6", "unknown 7")
_BOOLEANS: Final = ("false", "true")
_FORMS: Final = ("", "_hex", "_base64")
_NULL: Final = len(_FORMS)
_BATCH, _RECORD, _READY, _KINDS = range(4)
_ONE_READY: Final = np.full(1, _READY)
_SHOWN: Final = [name for name in BATCH.names or () if name not in {"computed", "control_type"}]
_PLACES: Final = [r.R_KEY, r.R_VALUE, r.R_HEADERS, r.R_START]
_MANY_LINES: Final = 1 << 10
_MANY_BYTES: Final = 1 << 19
_MARKER_KEY_BYTES: Final = 4
_MARKER_VALUE_BYTES: Final = 6


class LineColumns:
    """Writer of lines.

    Args:
        as_json: True for one object per line, else words for a person.
        key_form: form of keys, see ``quoted``.
        value_form: form of values and header values.
    """

    def __init__(self, *, as_json: bool, key_form: int, value_form: int) -> None:
        self._as_json = as_json
        self._key_form, self._value_form = key_form, value_form
        self._end = "}\n" if as_json else "\n"
        self._known: list[tuple[Callable[[Int64s], Column], Int64s, Column]] = []

    def _name(self, name: str) -> str:
        return f',"{name}":' if self._as_json else f" {name}="

    def _front(self, kind: str, first: str) -> str:
        return f'{{"type":"{kind}"' if self._as_json else first

    def _words(self, names: tuple[str, ...], rows: Any) -> Column:
        shown = [f'"{name}"' if self._as_json else name.replace(" ", "_") for name in names]
        return words(shown, rows)

    def _number(self, values: Int64s) -> Column:
        return self._column_of(numbers, values)

    def _time(self, values: Int64s) -> Column:
        return self._column_of(numbers if self._as_json else times, values)

    def _column_of(self, make: Callable[[Int64s], Column], values: Int64s) -> Column:
        """Build a column of numbers, or return the previous column if the numbers are the same."""
        for made_by, known, column in self._known:
            if (
                made_by is make
                and len(known) == len(values)
                and known[0] == values[0]
                and (known == values).all()
            ):
                return column
        column = make(values)
        if not isinstance(column, str):
            self._known.append((make, values, column))
        return column

    # -- batches ----------------------------------------------------------------------------------
    def batches(self, rows: Batches) -> Any:
        """Build the lines of batches and messages, ``columns.BATCH``[B]."""
        self._known.clear()
        return one_or_other(
            rows["magic"] > 1,
            lambda some: self._batch_lines(np.take(rows, some), new=True),
            lambda some: self._batch_lines(np.take(rows, some), new=False),
        )

    def _batch_lines(self, rows: Batches, *, new: bool) -> Any:
        self._known.clear()
        return of_rows(joined(*self._batch(_columns_of(rows), new=new)), len(rows))

    def _batch(self, rows: dict[str, Int64s], *, new: bool) -> list[Column]:
        """Build the parts of the lines of batches, as columns."""
        name, number = self._name, self._number
        attributes = rows["attributes"]
        parts: list[Column] = [
            self._front("batch", "batch"),
            name("position"), number(rows["position"]),
            name("base_offset"), number(rows["base_offset"]),
            name("last_offset"), number(rows["last_offset"]),
            name("max_timestamp"), self._time(rows["max_timestamp"]),
        ]  # fmt: skip
        if new:
            parts += [
                name("base_timestamp"), self._time(rows["base_timestamp"]),
                name("producer_id"), number(rows["producer_id"]),
            ]  # fmt: skip
        parts += [
            name("crc"), number(rows["crc"]),
            name("valid"), words(_BOOLEANS, (rows["problem"] != BAD_CRC).astype(np.int64)),
            name("size"), number(rows["size"]),
            name("magic"), number(rows["magic"]),
            name("codec"), self._words(_CODECS, attributes & batch_v2.CODEC_MASK),
            name("timestamp_type"), self._timestamp_type(rows),
        ]  # fmt: skip
        if new:
            deltas = rows["last_offset"] - rows["base_offset"]
            horizon = attributes & batch_v2.DELETE_HORIZON != 0
            begun = rows["base_timestamp"]
            parts += [
                name("records"), number(rows["record_count"]),
                name("producer_epoch"), number(rows["producer_epoch"]),
                name("base_sequence"), number(rows["base_sequence"]),
                name("last_sequence"), number(_sequences(rows["base_sequence"], deltas)),
                name("leader_epoch"), number(rows["leader_epoch"]),
                *self._bits(attributes),
                name("delete_horizon_ms"),
                one_or_other(horizon, lambda some: self._time(begun[some]), lambda some: "null"),
            ]  # fmt: skip
        return [*parts, self._end]

    def _timestamp_type(self, rows: dict[str, Int64s]) -> Column:
        by_log = (rows["attributes"] & batch_v2.LOG_APPEND_TIME != 0).astype(np.int64)
        return self._words(TIMESTAMP_TYPES, np.where(rows["magic"] == 0, 2, by_log))

    def _bits(self, attributes: Int64s) -> list[Column]:
        parts: list[Column] = []
        for name, bit in (("transactional", batch_v2.TRANSACTIONAL), ("control", batch_v2.CONTROL)):
            parts += [self._name(name), words(_BOOLEANS, (attributes & bit != 0).astype(np.int64))]
        return parts

    # -- records ----------------------------------------------------------------------------------
    def records(
        self, buf: Uint8s, batches: Batches, of: Int64s, records: Int64s, *, with_batches: bool = False
    ) -> Any:
        """Build the lines of records and messages.

        Args:
            buf: uint8[W], buffer that holds the records.
            batches: ``columns.BATCH``[B].
            of: int64[N], row of each record's batch, ascending.
            records: int64[N, RECORD_COLUMNS].
            with_batches: True to put the batch's line before the line of its first record.
        """
        new = batches["magic"] > 1
        if new.all() or not new.any():
            return self._records(buf, batches, of, records, with_batches=with_batches, new=bool(new.all()))
        return one_or_other(
            new[of],
            lambda some: self._records(
                buf, batches, of[some], records[some], with_batches=with_batches, new=True
            ),
            lambda some: self._records(
                buf, batches, of[some], records[some], with_batches=with_batches, new=False
            ),
        )

    def _records(
        self, buf: Uint8s, batches: Batches, of: Int64s, records: Int64s, *, with_batches: bool, new: bool
    ) -> Any:
        self._known.clear()
        name, number = self._name, self._number
        one_each = len(of) == len(batches) and bool((of == np.arange(len(of))).all())
        before: list[Column] = []
        if with_batches and not one_each:
            lines = pa.concat_arrays([self.batches(batches), pa.array([""])])
            before = [lines.take(pa.array(np.where(np.diff(of, prepend=-1), of, len(batches))))]
        rows = _columns_of(batches)
        if with_batches and one_each:
            before = self._batch(rows, new=new)
        front = [
            self._front("record", "| record"),
            name("position"),
            number(rows["position"]),
            name("offset"),
        ]
        kind = [name("timestamp_type"), self._timestamp_type(rows), name("sequence") if new else ""]
        producer = [
            name("producer_id"), number(rows["producer_id"]),
            name("producer_epoch"), number(rows["producer_epoch"]),
            *self._bits(rows["attributes"]),
        ] if new else [""]  # fmt: skip
        if not one_each:
            front, kind, producer = (
                [joined(*parts) if isinstance(joined(*parts), str) else joined(*parts).take(pa.array(of))]
                for parts in (front, kind, producer)
            )
            rows = {name: column[of] for name, column in rows.items()}
        of_record: Int64s = records.T.copy()
        attributes, deltas = rows["attributes"], of_record[r.R_OFFSET_DELTA]
        created = rows["base_timestamp"] + of_record[r.R_TIMESTAMP_DELTA]
        by_log = (attributes & batch_v2.LOG_APPEND_TIME != 0) & new
        keys, values = of_record[r.R_KEY : r.R_KEY + 2], of_record[r.R_VALUE : r.R_VALUE + 2]
        parts = [
            *before,
            *front, number(rows["base_offset"] + deltas),
            name("timestamp"), self._time(np.where(by_log, rows["max_timestamp"], created)),
            *kind, number(_sequences(rows["base_sequence"], deltas)) if new else "",
            *producer,
            name("key_size"), number(keys[1]),
            name("value_size"), number(values[1]),
            self._markers(buf, attributes & batch_v2.CONTROL != 0, keys, values),
            self._headers(buf, records),
            *self._bytes("key", self._key_form, buf, *keys),
            *self._bytes("value", self._value_form, buf, *values),
            self._end,
        ]  # fmt: skip
        return of_rows(joined(*parts), len(records))

    def _bytes(
        self, name: str, form: int, buf: Uint8s, places: Int64s, sizes: Int64s, *, first: bool = False
    ) -> tuple[Column, Column, Column]:
        """Format bytes with a name that states their form (text, hex or base64).

        ``first`` is True if they are the first field of an object inside the line.
        """
        front = ("{" if first else "," if self._as_json else " ") + ('"' if self._as_json else "")
        back = '":' if self._as_json else "="
        names = [f'{front}{name}{of}{back}"' for of in _FORMS] + [f"{front}{name}{back}null"]
        forms, text = quoted(gathered(buf, places, sizes), form)
        forms[sizes < 0] = _NULL
        return words(names, forms), text, words(('"', '"', '"', ""), forms)

    def _headers(self, buf: Uint8s, records: Int64s) -> Column:
        counts = records[:, r.R_HEADER_COUNT]
        if not counts.any():
            return ""
        rows: Int64s = np.empty((int(counts.sum()), r.HEADER_COLUMNS), np.int64)
        r.header_rows(buf, records, rows)
        each = joined(
            *self._bytes("key", 0, buf, rows[:, r.H_KEY], rows[:, r.H_KEY_SIZE], first=True),
            *self._bytes("value", self._value_form, buf, rows[:, r.H_VALUE], rows[:, r.H_VALUE_SIZE]),
            "}",
        )

        def of_some(some: Int64s) -> Column:
            edges = np.concatenate([[0], np.cumsum(counts[some])]).astype(np.int32)
            lists = pa.ListArray.from_arrays(pa.array(edges), of_rows(each, len(rows)))
            between, front = (",", ',"headers":[') if self._as_json else (" ", " headers=[")
            return joined(front, pc.binary_join(lists, between), "]")

        return one_or_other(counts > 0, of_some, lambda some: "")

    def _markers(self, buf: Uint8s, control: Any, keys: Int64s, values: Int64s) -> Column:
        """Format the content of transaction markers and other control records with a readable key.

        Args:
            buf: uint8[W], buffer that holds the records.
            control: bool[N], True for control records.
            keys: int64[2, N], positions and sizes of the keys.
            values: int64[2, N], positions and sizes of the values.
        """
        if not control.any():
            return ""
        control = control & (keys[1] >= _MARKER_KEY_BYTES)
        control[control] = big_endian(buf, keys[0][control], 2) >= 0

        def of_some(some: Int64s) -> Column:
            kinds = big_endian(buf, keys[0][some] + 2, 2)
            names = one_or_other(
                (kinds >= 0) & (kinds < len(MARKERS)),
                lambda rows: self._words(MARKERS, kinds[rows]),
                lambda rows: numbers(kinds[rows]),
            )
            places = values[0][some]
            ends = (kinds >= 0) & (kinds <= 1) & (values[1][some] >= _MARKER_VALUE_BYTES)
            ends[ends] = big_endian(buf, places[ends], 2) >= 0
            epoch = one_or_other(
                ends,
                lambda rows: joined(
                    self._name("coordinator_epoch"), numbers(big_endian(buf, places[rows] + 2, 4))
                ),
                lambda rows: "",
            )
            return joined(self._name("marker"), names, epoch)

        return one_or_other(control, of_some, lambda some: "")


class HeldLines:
    """Buffer of rows that will become lines: building a few lines takes as long as building hundreds.

    Args:
        columns: builder of the lines.

    Attributes:
        added: number of lines that were added last.
    """

    def __init__(self, columns: LineColumns) -> None:
        self._columns = columns
        self._clear()

    def _clear(self) -> None:
        self.added = self._lines = self._bytes = self._ready_bytes = self._rows = 0
        self._line_batches: list[Batches] = []
        self._of: list[Int64s] = []
        self._batches: list[Batches] = []
        self._records: list[Int64s] = []
        self._buffers: list[Uint8s] = []
        self._ready: list[bytes] = []
        self._order: list[Int64s] = []

    @property
    def are_many(self) -> bool:
        """True if it is time to write the lines."""
        return self._lines > _MANY_LINES or self._bytes + self._ready_bytes > _MANY_BYTES

    def _add(self, kinds: Int64s) -> None:
        self._order.append(kinds)
        self.added = len(kinds)
        self._lines += len(kinds)

    def add_line(self, line: bytes) -> None:
        """Add a finished line."""
        self._ready.append(line)
        self._ready_bytes += len(line)
        self._add(_ONE_READY)

    def add_batches(self, rows: Batches) -> None:
        """Add the lines of batches; before the rows change, call ``keep``."""
        self._line_batches.append(rows)
        self._add(np.full(len(rows), _BATCH))

    def add_records(
        self, buf: Uint8s, rows: Batches, of: Int64s, records: Int64s, most: int, *, batches: bool
    ) -> None:
        """Add the lines of records.

        Args:
            buf: uint8[W], buffer that holds the records; before it changes, call ``keep``.
            rows: ``columns.BATCH``[B].
            of: int64[N], row of each record's batch, ascending.
            records: int64[N, RECORD_COLUMNS].
            most: largest number of lines to add.
            batches: True to put each batch's line before the lines of its records.
        """
        kinds = np.full(len(of), _RECORD)
        if batches:
            kinds = np.insert(kinds, np.searchsorted(of, np.arange(len(rows))), _BATCH)
        kinds = kinds[:most]
        count = int(np.count_nonzero(kinds == _RECORD))
        if batches:
            self._line_batches.append(rows[: len(kinds) - count])
        if count:
            start = records[0, r.R_START]
            end = records[count - 1, r.R_START] + records[count - 1, r.R_SIZE]
            moved = records[:count].copy()
            moved[:, _PLACES] += self._bytes - start
            self._records.append(moved)
            self._buffers.append(buf[start:end])
            self._bytes += int(end - start)
            self._of.append(of[:count] + self._rows)
            self._batches.append(rows)
            self._rows += len(rows)
        self._add(kinds)

    def keep(self) -> None:
        """Copy the rows that were added last, because their buffers are about to change."""
        for parts in (self._line_batches, self._batches):
            if parts:
                parts[-1] = copy_of(parts[-1])
        if self._buffers:
            self._buffers[-1] = self._buffers[-1].copy()

    def given(self) -> Iterator[memoryview]:
        """Yield the lines in the order in which they were added."""
        if not self._lines:
            return
        kinds = np.concatenate(self._order)
        parts = [strings([])] * _KINDS
        batch_rows = _whole_rows(self._line_batches)
        rows = _whole_rows(self._batches)
        if batch_rows is not None and rows is not None and not self._ready and len(batch_rows) == len(rows):
            # the usual case: each batch has a line, followed by its records
            batch = kinds == _BATCH
            first = (
                batch[0]
                and not batch[-1]
                and not (batch[1:] & batch[:-1]).any()
                and np.array_equal(words_of(batch_rows), words_of(rows))
            )
        else:
            first = False
        if batch_rows is not None and not first:
            parts[_BATCH] = self._columns.batches(batch_rows)
        if rows is not None:
            parts[_RECORD] = self._columns.records(
                _joined_parts(self._buffers),
                rows,
                _joined_parts(self._of),
                _joined_parts(self._records),
                with_batches=first,
            )
        if self._ready:
            parts[_READY] = strings(self._ready)
        self._clear()
        lines = max(parts, key=len)
        if len(lines) < len(kinds) and not first:
            places, before = np.empty(len(kinds), np.int64), 0
            for kind, part in enumerate(parts):
                places[kinds == kind] = before + np.arange(len(part))
                before += len(part)
            lines = pa.concat_arrays(parts).take(pa.array(places))
        yield text_of(lines)


def _columns_of(rows: Batches) -> dict[str, Int64s]:
    """Split batches into contiguous columns."""
    return {name: rows[name].astype(np.int64) for name in _SHOWN}


def _joined_parts(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _whole_rows(parts: list[Batches]) -> Batches | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else copy_of(*parts)


def _sequences(bases: Int64s, deltas: Int64s) -> Int64s:
    return np.where(bases < 0, -1, (bases + deltas) & 0x7FFFFFFF)
