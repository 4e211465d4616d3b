"""Walks one ``.log`` batch by batch and record by record, all formats and codecs, in windows of constant memory.

Behind damage the walk goes on at the next valid batch. Batches with a wrong checksum are shown when the next header
stands where their length says; else they are part of the damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from krepair.formats import batch_v2, compression, message_set, record
from krepair.formats.batch_front import FRONT_BYTES, LEAST_BYTES, batch_front
from krepair.formats.codec import DEFAULT_MAX_BYTES, Codec
from krepair.formats.damage import Damage
from krepair.formats.filenames import MAX_OFFSET
from krepair.formats.words import count_text
from krepair.kernels import compact_keys as k
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import BAD_COUNTS, BAD_OFFSETS, MOST_ROWS, OK, BatchWalk, copy_of
from krepair.kernels.resync import find_batch, search_budget
from krepair.kernels.scan import ReadInto, fill
from krepair.look.dump.record import DEFAULT_CUT, MOST_HEADERS, Shown, Style, of_fields, wrapped
from krepair.rewrite.damage import LARGEST_LOG_BYTES
from krepair.scan.byte_stream import ByteStream, StoredBytes
from krepair.scan.unpacked_batches import UnpackedBatches

KR307: Final = "KR307"
WINDOW_BYTES: Final = 1 << 20
_RECORD_ROWS: Final = 1 << 14
_SLACK: Final = 64
LOWEST_OFFSET: Final = -(2**63)
"""A damaged base offset may be negative: a batch with one is shown like any other."""

# how the batches of a window are read
_ALONE, _PLAIN, _PACKED = range(3)

Walk = Generator[bytes | memoryview, None, int]


@dataclass
class Wanted:
    """What is read of logs; one for a whole run, since it counts.

    Attributes:
        style: how damage is written.
        batches: whether batches are taken.
        records: whether records are.
        lowest: offsets below are not.
        highest: offsets above are not.
        left: how many lines may still be written.
        cut: at most so many bytes of a key or a value of a record larger than the buffer.
        searched: whether batches are taken only with a record that is.
        damages: damaged ranges found so far.
        batches_read: batches read so far.
    """

    style: Style
    batches: bool = True
    records: bool = True
    lowest: int = LOWEST_OFFSET
    highest: int = MAX_OFFSET
    left: int = 2**62
    cut: int = DEFAULT_CUT
    searched: bool = False
    damages: int = 0
    batches_read: int = 0

    def key_begins(self, stream: ByteStream, size: int) -> None:
        """Called before the key of a record that is read by itself.

        Args:
            stream: stands before the key.
            size: bytes of the key; negative if it is null.
        """

    def damage(self, found: Damage, rule: str = "") -> bytes:
        """Count a damaged range and write its line; no limit holds it back."""
        self.damages += 1
        return self.style.damage(found, rule)


class LogWalk:
    """One log; what becomes of its batches and records is a subclass's to say.

    Args:
        read_into: fills a buffer from a file position; returns bytes read, 0 at the end. It may raise ``OSError``.
        file_size: bytes of the log.
        base_offset: of the segment.
        wanted: what is shown.
        window_bytes: size of the window.

    Attributes:
        most_content_bytes: a batch that unpacks to more is damaged.
    """

    most_content_bytes: int = DEFAULT_MAX_BYTES

    def __init__(
        self,
        read_into: ReadInto,
        file_size: int,
        base_offset: int,
        wanted: Wanted,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._read_into = read_into
        self._declared_size = file_size
        self._size = min(file_size, LARGEST_LOG_BYTES)
        self._wanted = wanted
        self._window_bytes = window_bytes
        self._window: Any = None
        self._last_offset = base_offset - 1
        self._records: Any = np.empty((_RECORD_ROWS, r.RECORD_COLUMNS), np.int64)
        self._counts: Any = np.zeros(MOST_ROWS, np.int64)
        self._say_batches = wanted.batches
        self._unsaid: Any = None
        self._buffer: Any = np.empty(WINDOW_BYTES + _SLACK, np.uint8)
        self._packed: Any = np.zeros((MOST_ROWS, k.PACKED_COLUMNS), np.int64)
        self._unpacked = UnpackedBatches(MOST_ROWS, MOST_ROWS)
        self._search_left = search_budget(self._size)
        self._past = False

    # -- the walk ---------------------------------------------------------------------------------
    def lines(self) -> Iterator[bytes | memoryview]:
        """Pieces of output, each whole lines; a piece is valid until the next one is asked for."""
        position = 0
        while position < self._size and not self._is_done():
            walk = BatchWalk(
                self._read_into, self._size, position, self._last_offset, whole=True, window_bytes=self._window_bytes
            )  # fmt: skip
            for rows in walk:
                self._window, self._last_offset = walk.window, walk.last_offset
                yield from self._batches(rows, walk.origin)
                if self._is_done():
                    return
            self._window, position = walk.window, walk.position
            if walk.suspect is not None:
                position = yield from self._suspect(walk.suspect, walk.origin)
            elif position < self._size and not len(walk.rest):
                gone = Damage(position, self._size - position, f"a file of {self._size} bytes", "its end")
                yield self._wanted.damage(gone)
                return
            elif position < self._size:
                position = yield from self._no_batch(position)
        if self._declared_size > self._size and not self._is_done():
            more = self._declared_size - self._size
            found = Damage(
                self._size, more, f"a log of at most {self._size} bytes", "more, which was not read"
            )
            yield self._wanted.damage(found)

    def _is_done(self) -> bool:
        return self._past or self._wanted.left <= 0

    def _suspect(self, row: Any, origin: int) -> Walk:
        """A batch with a wrong checksum; returns where to go on."""
        start = int(row["position"])
        end = start + int(row["size"])
        wrong = _wrong_crc(row)
        if not self._could_be(end, int(row["base_offset"])):
            return (yield from self._damaged(start, *wrong))
        yield from self._one_batch(row, origin)
        yield self._wanted.damage(Damage(start, end - start, *wrong))
        self._last_offset = max(self._last_offset, int(row["base_offset"]))
        return end

    def _could_be(self, position: int, offset_before: int) -> bool:
        """Whether the log ends at a position, or what begins there looks like a batch of later offsets."""
        if position == self._size:
            return True
        front = batch_front(self._read(position, FRONT_BYTES))
        return front is not None and front.fits(self._size - position) and front.offset > offset_before

    def _no_batch(self, position: int) -> Walk:
        """What stands where no batch can; returns where to go on."""
        head = self._read(position, batch_v2.HEADER_SIZE)
        left = self._size - position
        if not any(head):
            return (yield from self._damaged(position, "a batch", "zeros"))
        front = batch_front(head)
        if front is None:
            return (yield from self._damaged(position, "a batch header", f"{left} bytes to the end"))
        if not front.is_known:
            return (yield from self._damaged(position, "magic 0, 1 or 2", f"magic {front.magic}"))
        least = LEAST_BYTES[front.magic]
        if front.size < least:
            expected = f"a batch of at least {least} bytes"
            return (yield from self._damaged(position, expected, f"{front.size} bytes"))
        return (
            yield from self._damaged(position, f"a batch of {front.size} bytes", f"{left} bytes to the end")
        )

    def _damaged(self, position: int, expected: str, found: str) -> Walk:
        """Find the next valid batch and show what lies before it as damage; returns its position, or the end."""
        lowest = self._last_offset + 1
        search = find_batch(
            self._read_into, position + 1, self._size, lowest, MAX_OFFSET, budget=self._search_left
        )
        self._search_left -= search.checksummed
        end = search.position if search.position >= 0 else self._size
        if not search.complete:
            found += "; krepair stopped its search for the next batch"
        yield self._wanted.damage(Damage(position, end - position, expected, found))
        return end

    def _fill(self, view: memoryview, position: int) -> int:
        return fill(self._read_into, view, position, self._size)

    def _read(self, position: int, count: int) -> bytes:
        data = bytearray(min(count, self._size - position))
        return bytes(data[: self._fill(memoryview(data), position)])

    # -- batches ----------------------------------------------------------------------------------
    def _batches(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        """Lines of batches; those side by side that are read in the same way go together."""
        self._wanted.batches_read += len(rows)
        if len(rows) and rows["base_offset"][0] > self._wanted.highest:
            self._past = True
            return
        chosen = self._in_range(rows)
        if not chosen.all():
            rows = rows.take(np.flatnonzero(chosen))
        ways = self._ways(rows, origin)
        edges = [0, *(np.flatnonzero(ways[1:] != ways[:-1]) + 1).tolist(), len(rows)]
        for first, after in itertools.pairwise(edges):
            some = rows[first:after]
            if self._is_done() or not len(some):
                return
            if ways[first] == _PLAIN:
                yield from self._together(some, origin)
            elif ways[first] == _PACKED:
                yield from self._unpacked_together(some, origin)
            else:
                yield from self._alone(some, origin)

    def _ways(self, rows: Any, origin: int) -> Any:
        """How each batch is read."""
        ways = np.full(len(rows), _PLAIN)
        if self._wanted.records and origin < 0:
            ways[:] = _ALONE
        elif self._wanted.records:
            packed = rows["attributes"] & batch_v2.CODEC_MASK != Codec.NONE
            new = rows["magic"] == batch_v2.MAGIC
            ways[packed & ~new] = _ALONE
            if (
                packed & new
            ).any():  # beside compressed batches the others are copied too, to be read together
                ways[new] = _PACKED
        return np.where(rows["problem"] == OK, ways, _ALONE)

    def _alone(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        for row in rows:
            if self._is_done():
                return
            yield from self._one_batch(row, origin)
            yield from self._problem(row)

    def _in_range(self, rows: Any) -> Any:
        """Batches of which an offset may be wanted; of a wrapper of v0 or v1 only the last offset is known."""
        below = rows["base_offset"] <= self._wanted.highest
        return (below | (rows["magic"] < batch_v2.MAGIC)) & (
            np.maximum(rows["last_offset"], rows["base_offset"]) >= self._wanted.lowest
        )

    def _problem(self, row: Any) -> Iterator[bytes]:
        if row["problem"] == BAD_COUNTS:
            delta = int(row["last_offset"]) - int(row["base_offset"])
            expected, found = (
                "last offset delta and record count of 0 or more",
                f"{delta} and {int(row['record_count'])}",
            )
        elif row["problem"] == BAD_OFFSETS:
            expected, found = "an offset above those before", f"{int(row['base_offset'])}"
        else:
            return
        yield self._wanted.damage(Damage(int(row["position"]), int(row["size"]), expected, found))

    def _together(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        if not self._wanted.records:
            yield from self._batch_lines(rows)
            return
        yield from self._side_by_side(self._window, origin, rows, rows, origin)

    def _side_by_side(
        self, buf: Any, start: int, rows: Any, stored: Any, origin: int
    ) -> Iterator[bytes | memoryview]:
        """Batches whose records lie uncompressed in a buffer.

        Args:
            buf: uint8[W]; place 0 is position ``start`` of ``rows``.
            start: position of the front of the buffer.
            rows: ``columns.BATCH``[B], as the batches lie in the buffer.
            stored: the same, as they lie in the log.
            origin: file position of the window.
        """
        while len(rows) and not self._is_done():
            read = int(r.window_records(buf, start, rows, self._records, self._counts))
            if read:
                yield from self._record_lines(buf, stored[:read], self._counts, self._records)
            else:  # its records do not fill it, or are more than there are rows for
                yield from self._one_batch(stored[0], origin)
                read = 1
            rows, stored = rows[read:], stored[read:]

    def _unpacked_together(self, rows: Any, origin: int) -> Iterator[bytes | memoryview]:
        """Compressed v2 batches: unpacked one behind the other, many at once. Large ones are read in pieces."""
        count, packed, unpacked = len(rows), self._packed, self._unpacked
        packed[:count, k.P_PLACE] = rows["position"] - origin
        packed[:count, k.P_SIZE] = rows["size"]
        packed[:count, k.P_CODEC] = rows["attributes"] & batch_v2.CODEC_MASK
        first = 0
        while first < count and not self._is_done():
            after = unpacked.unpack(self._window, packed, first, count)
            starts, ends = packed[first:after, k.P_START], packed[first:after, k.P_END]
            large = np.flatnonzero(ends - starts > WINDOW_BYTES)
            if len(large):
                after = first + int(large[0])
            if after == first:
                yield from self._one_batch(rows[first], origin)
                first += 1
                continue
            some = copy_of(rows[first:after])
            some["position"] = starts[: len(some)] - batch_v2.HEADER_SIZE
            some["size"] = (ends - starts)[: len(some)] + batch_v2.HEADER_SIZE
            yield from self._side_by_side(unpacked.bytes, 0, some, rows[first:after], origin)
            first = after

    # -- what a batch and its records become -------------------------------------------------------
    def _batch_lines(self, rows: Any) -> Iterator[bytes]:
        """Take batches."""
        yield from ()

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Take records or messages, and their batches if ``_say_batches`` is set.

        Args:
            buf: uint8[W], where they lie.
            rows: ``columns.BATCH``[B].
            counts: int64[B], records of each.
            records: int64[N, RECORD_COLUMNS].
        """
        yield from ()

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        """Take one record or message that is too large for the buffer."""
        yield from ()

    # -- one batch at a time ----------------------------------------------------------------------
    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        """A batch that is a wrapper, damaged, or larger than the window, or whose content is large or broken."""
        wanted = self._wanted
        late = wanted.searched and wanted.records
        if wanted.batches and not late:
            yield from self._batch_lines(row.reshape(1))
        if not wanted.records or row["record_count"] == 0 or self._is_done():
            return
        keep, self._say_batches = self._say_batches, False
        self._unsaid = row if wanted.batches and late else None
        try:
            for piece in self._records_of(row):
                if piece:
                    yield from self._say()
                yield piece
        finally:
            self._say_batches, self._unsaid = keep, None

    def _say(self) -> Iterator[bytes]:
        """Take the batch that waited for a record that is taken, or for damage."""
        if self._unsaid is not None:
            row, self._unsaid = self._unsaid, None
            yield from self._batch_lines(row.reshape(1))

    def _records_of(self, row: Any) -> Iterator[bytes | memoryview]:
        """All records or messages of a batch, in pieces that fit into the buffer."""
        content = self._content_of(row)
        stream, left = content.stream, content.expected
        buf, end = self._buffer, 0
        while left > 0 and not self._is_done():
            end += _fill_from(stream, buf[end:WINDOW_BYTES])
            if content.wrapper is None:
                status, count, place = r.record_rows(buf, 0, end, left, self._records)
            elif end or left == 1:
                status, count, place = r.message_rows(buf, 0, end, content.wrapper, self._records)
            else:
                break
            if count:
                left -= count
                self._counts[0] = count
                yield from self._record_lines(buf, row.reshape(1), self._counts[:1], self._records[:count])
                buf[: end - place] = buf[place:end].copy()
                end -= place
                if status != r.BAD_RECORD:
                    continue
            # what stands there now is larger than the buffer, or broken
            one: Shown | Damage
            if content.wrapper is None and (status == r.BAD_RECORD or end < WINDOW_BYTES):
                one = _why_bad(buf[:end].tobytes(), left)
            else:
                stream.put_back(buf[:end].tobytes())
                end = 0
                one = _large_one(row, content, self._wanted)
            if isinstance(one, Damage):
                yield self._bad_records(row, content, one)
                return
            left -= 1
            yield from self._one_record(row, one)
        if self._is_done():
            return
        if end or stream.some(1):
            expected = f"the end after {count_text(int(row['record_count']), 'record')}"
            yield self._bad_records(row, content, Damage(0, 0, expected, "more bytes"))
        elif stream.damage is not None:
            yield self._bad_records(row, content, stream.damage)
        elif left == _ALL:
            none = Damage(0, 0, "a run of messages in the wrapper", "no message at all")
            yield self._bad_records(row, content, none)

    def _bad_records(self, row: Any, content: _Content, wrong: Damage) -> bytes:
        """Damage of a batch's content; its range is all of it."""
        if content.stream.damage is not None:
            wrong = content.stream.damage
        size = int(row["position"]) + int(row["size"]) - content.start
        rule = KR307 if row["attributes"] & batch_v2.CODEC_MASK else ""
        return self._damage_of(row, wrong._replace(position=content.start, length=size), rule)

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        """Note damage of a batch's content; gives its line."""
        del row  # of whom it is matters to ``ContentWalk``
        return self._wanted.damage(found, rule)

    # -- what a batch holds -----------------------------------------------------------------------
    def _stored(self, row: Any, start: int) -> StoredBytes:
        position = int(row["position"])
        return StoredBytes(self._read_into, position + start, position + int(row["size"]))

    def _unpack(self, row: Any, codec: int, stored: StoredBytes) -> ByteStream:
        return ByteStream(
            compression.chunks(codec, stored, magic=int(row["magic"]), max_bytes=self.most_content_bytes)
        )

    def _content_of(self, row: Any) -> _Content:
        """The records of a v2 batch, the messages in a wrapper, or a plain message."""
        magic, position = int(row["magic"]), int(row["position"])
        codec = int(row["attributes"]) & batch_v2.CODEC_MASK
        if magic == batch_v2.MAGIC:
            stream = self._unpack(row, codec, self._stored(row, batch_v2.HEADER_SIZE))
            return _Content(stream, int(row["record_count"]), None, position + batch_v2.HEADER_SIZE)
        header = message_set.HEADERS[magic].size
        offset, time = int(row["base_offset"]), int(row["max_timestamp"])
        if codec == Codec.NONE:
            stream = self._unpack(row, codec, self._stored(row, 0))
            return _Content(stream, 1, _words(-offset, time, 0), position + header)
        value = self._value_of(row, header)
        wrong: Damage | None = None
        base = 0
        if value is None:
            wrong = Damage(0, 0, "a run of messages in the wrapper", "null, or more than there is")
        elif magic and offset:  # some librdkafka wrote wrappers of offset 0; what is in them is absolute
            stream = self._unpack(row, codec, value)
            base = offset - _last_offset(stream)
            if base < 0 and stream.damage is None:
                wrong = Damage(0, 0, f"a wrapper of offset {offset - base} or more", f"offset {offset}")
        if value is None or wrong is not None:
            stream = ByteStream(iter([] if wrong is None else [wrong]))
        else:
            stream = self._unpack(row, codec, value)
        by_log = int(magic > 0 and bool(row["attributes"] & message_set.LOG_APPEND_TIME))
        return _Content(stream, _ALL, _words(base - offset, time, by_log), position + header)

    def _value_of(self, row: Any, header: int) -> StoredBytes | None:
        """The compressed messages of a wrapper; None if its lengths say that there are none."""
        content = self._stored(row, header)
        value_at = message_set.LENGTH.size + max(_int32(bytes(content[0:4])), 0)
        start = value_at + message_set.LENGTH.size
        size = _int32(bytes(content[value_at:start]))
        return None if size < 0 or start + size > len(content) else self._stored(row, header + start)


_ALL: Final = 2**62
"""As many messages as there are."""


class _Content(NamedTuple):
    """What a batch holds.

    Attributes:
        stream: its records or messages, not compressed.
        expected: how many, or ``_ALL``.
        wrapper: of messages, as for ``message_rows``; None of records.
        start: position of the content, from which on it is damaged if it cannot be read.
    """

    stream: ByteStream
    expected: int
    wrapper: Any
    start: int


def _words(offset: int, time: int, by_log: int) -> Any:
    return np.array([wrapped(offset), time, by_log], np.int64)


def _last_offset(stream: ByteStream) -> int:
    """The offset of the last message in a wrapper, as it stands there; -1 if there is none."""
    last = -1
    while len(head := stream.take(message_set.LOG_OVERHEAD)) == message_set.LOG_OVERHEAD:
        last, size = int.from_bytes(head[:8], "big", signed=True), _int32(head[8:12])
        if size < 0 or stream.skip(size) < size:
            break
    return last


def _large_one(row: Any, content: _Content, wanted: Wanted) -> Shown | Damage:
    """Read a record or message of any size, keeping only as much of it as is shown."""
    if content.wrapper is None:
        return _large_record(row, content.stream, wanted)
    return _large_message(row, content.stream, content.wrapper.tolist(), wanted)


def _large_message(row: Any, stream: ByteStream, wrapper: list[int], wanted: Wanted) -> Shown | Damage:
    """Its key and value say where it ends; a size that is wrong does not hide the next one."""
    head = stream.take(message_set.HEADER_V0.size)
    size = _int32(head[8:12]) if len(head) == message_set.HEADER_V0.size else -1
    # each by its own format (KAFKA-4298)
    header = message_set.HEADERS.get(head[16]) if size >= 0 else None
    if header is None or size < header.size + 2 * message_set.LENGTH.size - message_set.LOG_OVERHEAD:
        return Damage(0, 0, "a message of format v0 or v1", "something else")
    offset = wrapped(int.from_bytes(head[:8], "big", signed=True) + wrapper[0] + int(row["base_offset"]))
    time = message_set.NO_TIMESTAMP
    if header is message_set.HEADER_V1:
        stored = int.from_bytes(stream.take(8), "big", signed=True)
        time = wrapper[1] if wrapper[2] else stored
    parts: list[tuple[bytes | None, int]] = []
    for name in ("key", "value"):
        length = stream.take(message_set.LENGTH.size)
        size = _int32(length) if len(length) == message_set.LENGTH.size else -2
        if name == "key":
            wanted.key_begins(stream, size)
        data = stream.take(min(size, wanted.cut)) if size >= 0 else None
        there = 0 if data is None else len(data) + stream.skip(size - len(data))
        if size < -1 or there < max(size, 0):
            return Damage(0, 0, f"a {name} of {size} bytes", f"{there} bytes")
        parts.append((data, size))
    stream.on_bytes = None
    (key, key_size), (value, value_size) = parts
    return Shown(offset, time, -1, key, value, (), key_size, value_size)


def _large_record(row: Any, stream: ByteStream, wanted: Wanted) -> Shown | Damage:
    size = stream.varint()
    if size is None or size < 1:
        return Damage(0, 0, "a record", "no length")
    left = size
    body = ByteStream(_limited(stream, left))
    attributes = body.take(1)
    timestamp_delta, offset_delta = body.varlong(), body.varint()
    parts: list[tuple[bytes | None, int]] = []
    for name in ("key", "value"):
        length = body.varint()
        if length is None:
            return Damage(0, 0, "a record", f"no length of the {name} before the record's end")
        if name == "key":
            wanted.key_begins(body, length)
        data = None if length < 0 else body.take(min(length, wanted.cut))
        if data is not None and len(data) + body.skip(length - len(data)) < length:
            return Damage(0, 0, "a record", f"a {name} of {length} bytes that is cut")
        parts.append((data, max(length, -1)))
    count = body.varint()
    if not attributes or timestamp_delta is None or offset_delta is None or count is None or count < 0:
        return Damage(0, 0, "a record", "fields that do not fit into it")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(min(count, MOST_HEADERS)):
        pair = _large_header(body, wanted.cut)
        if pair is None:
            return Damage(0, 0, "a record", "a header that does not fit into it")
        headers.append(pair)
    _pass_over(body)
    return of_fields(
        row, offset_delta, timestamp_delta, parts[0], parts[1], tuple(headers), count - len(headers)
    )


def _pass_over(body: ByteStream) -> None:
    while body.some(WINDOW_BYTES):
        pass


def _large_header(body: ByteStream, cut: int) -> tuple[bytes, bytes | None] | None:
    found: list[bytes | None] = []
    for _ in ("key", "value"):
        length = body.varint()
        if length is None or (length < 0 and not found):
            return None
        data = None if length < 0 else body.take(min(length, cut))
        if data is not None and len(data) + body.skip(length - len(data)) < length:
            return None
        found.append(data)
    return found[0] or b"", found[1]


def _limited(stream: ByteStream, left: int) -> Iterator[bytes | Damage]:
    while left > 0 and (piece := stream.some(min(left, WINDOW_BYTES))):
        left -= len(piece)
        yield bytes(piece)


def _fill_from(stream: ByteStream, room: Any) -> int:
    done = 0
    while done < len(room) and (piece := stream.some(len(room) - done)):
        room[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return done


def _why_bad(data: bytes, left: int) -> Damage:
    found = next(record.records(data, left), None)
    return (
        found
        if isinstance(found, Damage)
        else Damage(0, 0, f"{count_text(left, 'more record')}", f"{len(data)} bytes")
    )


def _int32(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _wrong_crc(row: Any) -> tuple[str, str]:
    return f"CRC {int(row['crc']):#010x} as stored", f"{int(row['computed']):#010x} computed"
