"""Walks one ``.log`` batch by batch and record by record, all formats and codecs, in windows of constant memory.

Behind damage the walk goes on at the next valid batch. Batches with a wrong checksum are shown when the next header
stands where their length says; else they are part of the damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final

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
from krepair.look.dump.record import DEFAULT_CUT, MOST_HEADERS, Shown, Style, of_fields
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
        if self._wanted.records:
            packed = rows["attributes"] & batch_v2.CODEC_MASK != Codec.NONE
            in_window = (rows["magic"] == batch_v2.MAGIC) & (origin >= 0)
            # beside compressed batches the others are copied too, so that all are read together
            ways = np.where(in_window, _PACKED if (packed & in_window).any() else _PLAIN, _ALONE)
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
        """Take records of v2 batches, and the batches if ``_say_batches`` is set.

        Args:
            buf: uint8[W], where they lie.
            rows: ``columns.BATCH``[B].
            counts: int64[B], records of each.
            records: int64[N, RECORD_COLUMNS].
        """
        yield from ()

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        """Take one record: a message of v0 or v1, or one too large for the buffer."""
        yield from ()

    # -- one batch at a time ----------------------------------------------------------------------
    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        """A batch that is of an old format, damaged, or larger than the window, or whose content is large or broken."""
        wanted = self._wanted
        late = wanted.searched and wanted.records
        if wanted.batches and not late:
            yield from self._batch_lines(row.reshape(1))
        if not wanted.records or row["record_count"] == 0 or self._is_done():
            return
        lines = self._records_of_v2(row) if row["magic"] == batch_v2.MAGIC else self._messages(row)
        keep, self._say_batches = self._say_batches, False
        self._unsaid = row if wanted.batches and late else None
        try:
            for piece in lines:
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

    def _content(self, row: Any, start: int) -> StoredBytes:
        position = int(row["position"])
        return StoredBytes(self._read_into, position + start, position + int(row["size"]))

    def _records_of_v2(self, row: Any) -> Iterator[bytes | memoryview]:
        codec = int(row["attributes"]) & batch_v2.CODEC_MASK
        content = self._content(row, batch_v2.HEADER_SIZE)
        stream = ByteStream(compression.chunks(codec, content, max_bytes=self.most_content_bytes))
        left = int(row["record_count"])
        start = int(row["position"]) + batch_v2.HEADER_SIZE
        buf, end = self._buffer, 0
        while left > 0 and not self._is_done():
            end += _fill_from(stream, buf[end:WINDOW_BYTES])
            status, count, place = r.record_rows(buf, 0, end, left, self._records)
            left -= count
            if count:
                self._counts[0] = count
                yield from self._record_lines(buf, row.reshape(1), self._counts[:1], self._records[:count])
            full = end == WINDOW_BYTES and count == 0
            if status == r.NEED_BYTES and left and full:
                shown = _giant(
                    row, ByteStream(itertools.chain([buf[:end].tobytes()], _rest(stream))), self._wanted
                )
                stream, end = shown.stream, 0
                if shown.problem:
                    yield self._bad_records(
                        row, codec, start, Damage(0, 0, "a record", shown.problem), stream
                    )
                    return
                left -= 1
                if shown.record is not None:
                    yield from self._one_record(row, shown.record)
                continue
            if status == r.BAD_RECORD or (
                status == r.NEED_BYTES and left and not count and end < WINDOW_BYTES
            ):
                wrong = _why_bad(buf[place:end].tobytes(), left)
                yield self._bad_records(row, codec, start, wrong, stream)
                return
            buf[: end - place] = buf[place:end].copy()
            end -= place
        if self._is_done():
            return
        if end or stream.some(1):
            more = Damage(
                0, 0, f"the end after {count_text(int(row['record_count']), 'record')}", "more bytes"
            )
            yield self._bad_records(row, codec, start, more, stream)
        elif stream.damage is not None:
            yield self._bad_records(row, codec, start, stream.damage, stream)

    def _bad_records(self, row: Any, codec: int, start: int, wrong: Damage, stream: ByteStream) -> bytes:
        """Damage of a batch's content; its range is all of it."""
        if stream.damage is not None:
            wrong = stream.damage
        size = int(row["position"]) + int(row["size"]) - start
        return self._damage_of(row, wrong._replace(position=start, length=size), KR307 if codec else "")

    def _damage_of(self, row: Any, found: Damage, rule: str) -> bytes:
        """Note damage of a batch's content; gives its line."""
        del row  # of whom it is matters to ``ContentWalk``
        return self._wanted.damage(found, rule)

    # -- messages of v0 and v1 --------------------------------------------------------------------
    def _messages(self, row: Any) -> Iterator[bytes]:
        magic = int(row["magic"])
        codec = int(row["attributes"]) & message_set.CODEC_MASK
        header = message_set.HEADERS[magic].size
        content = self._content(row, header)
        if codec == Codec.NONE:
            body = ByteStream(compression.chunks(Codec.NONE, content, max_bytes=self.most_content_bytes))
            shown, wrong = self._message_body(body, int(row["base_offset"]), int(row["max_timestamp"]))
            yield from self._message_lines(row, header, shown, wrong, "")
            return
        key_size = _int32(bytes(content[0:4]))
        value_at = 4 + max(key_size, 0)
        value_size = _int32(bytes(content[value_at : value_at + 4]))
        if value_size < 0 or value_at + 4 + value_size > len(content):
            wrong = Damage(
                header, len(content), "a run of messages in the wrapper", "null, or more than there is"
            )
            yield from self._message_lines(row, header, None, wrong, KR307)
            return
        value = self._content(row, header + value_at + 4)
        yield from self._inner(row, magic, codec, value, header)

    def _inner(self, row: Any, magic: int, codec: int, value: StoredBytes, header: int) -> Iterator[bytes]:
        """The messages of a wrapper; of v1 their offsets count from the end, so it is read twice."""
        last, wrong = -1, None
        stream = ByteStream(compression.chunks(codec, value, magic=magic, max_bytes=self.most_content_bytes))
        while (head := stream.take(message_set.LOG_OVERHEAD)) and len(head) == message_set.LOG_OVERHEAD:
            last, size = int.from_bytes(head[:8], "big", signed=True), _int32(head[8:12])
            if size < 0 or stream.skip(size) < size:
                break
        wrapper_offset = int(row["base_offset"])
        # some versions of librdkafka produced wrappers with offset 0, whose inner offsets then are absolute
        base = 0 if magic == 0 or wrapper_offset == 0 else wrapper_offset - last
        append_time = bool(row["attributes"] & message_set.LOG_APPEND_TIME) and magic > 0
        if base < 0 and stream.damage is None:
            wrong = Damage(0, 0, f"a wrapper of offset {last} or more", f"offset {wrapper_offset}")
            yield from self._message_lines(row, header, None, wrong, KR307)
            return
        stream = ByteStream(compression.chunks(codec, value, magic=magic, max_bytes=self.most_content_bytes))
        messages = 0
        while not self._is_done() and (head := stream.take(message_set.HEADER_V0.size)):
            size = _int32(head[8:12]) if len(head) == message_set.HEADER_V0.size else -1
            # each by its own format (KAFKA-4298)
            inner = message_set.HEADERS.get(head[16]) if size >= 0 else None
            if inner is None or size < inner.size + 2 * message_set.LENGTH.size - message_set.LOG_OVERHEAD:
                wrong = Damage(0, 0, "a message of format v0 or v1", "something else")
                break
            has_time = inner is message_set.HEADER_V1
            timestamp = (
                int.from_bytes(stream.take(8), "big", signed=True) if has_time else message_set.NO_TIMESTAMP
            )
            offset = base + int.from_bytes(head[:8], "big", signed=True)
            timestamp = int(row["max_timestamp"]) if append_time and has_time else timestamp
            shown, wrong = self._message_body(stream, offset, timestamp)
            if wrong is not None:
                break
            messages += 1
            yield from self._message_lines(row, header, shown, None, "")
        if wrong is None and not messages and not self._is_done():
            wrong = Damage(0, 0, "a run of messages in the wrapper", "no message at all")
        if wrong is not None or stream.damage is not None:
            yield from self._message_lines(row, header, None, stream.damage or wrong, KR307)

    def _message_body(
        self, stream: ByteStream, offset: int, timestamp: int
    ) -> tuple[Shown | None, Damage | None]:
        """Key and value of one message."""
        parts: list[tuple[bytes | None, int]] = []
        for name in ("key", "value"):
            length = stream.take(message_set.LENGTH.size)
            size = _int32(length) if len(length) == message_set.LENGTH.size else -2
            if name == "key":
                self._wanted.key_begins(stream, size)
            data = stream.take(min(size, self._wanted.cut)) if size >= 0 else None
            there = 0 if data is None else len(data) + stream.skip(size - len(data))
            if size < -1 or there < max(size, 0):
                return None, Damage(0, 0, f"a {name} of {size} bytes", f"{there} bytes")
            parts.append((data, size))
        stream.on_bytes = None
        (key, key_size), (value, value_size) = parts
        return Shown(offset, timestamp, -1, key, value, (), key_size, value_size), None

    def _message_lines(
        self, row: Any, header: int, shown: Shown | None, wrong: Damage | None, rule: str
    ) -> Iterator[bytes]:
        if shown is not None:
            yield from self._one_record(row, shown)
        if wrong is not None:
            start = int(row["position"]) + header
            size = int(row["size"]) - header
            yield self._damage_of(row, wrong._replace(position=start, length=size), rule)


@dataclass(frozen=True)
class _Giant:
    """A record larger than the buffer: what is shown of it, the stream behind it, or what is wrong."""

    record: Shown | None
    stream: ByteStream
    problem: str


def _giant(row: Any, stream: ByteStream, wanted: Wanted) -> _Giant:
    """Read a record of any size, keeping only as much of it as is shown."""
    size = stream.varint()
    if size is None or size < 1:
        return _Giant(None, stream, "no length")
    left = size
    body = ByteStream(_limited(stream, left))
    attributes = body.take(1)
    timestamp_delta, offset_delta = body.varlong(), body.varint()
    parts: list[tuple[bytes | None, int]] = []
    for name in ("key", "value"):
        length = body.varint()
        if length is None:
            return _Giant(None, stream, f"no length of the {name} before the record's end")
        if name == "key":
            wanted.key_begins(body, length)
        data = None if length < 0 else body.take(min(length, wanted.cut))
        if data is not None and len(data) + body.skip(length - len(data)) < length:
            return _Giant(None, stream, f"a {name} of {length} bytes that is cut")
        parts.append((data, max(length, -1)))
    count = body.varint()
    if not attributes or timestamp_delta is None or offset_delta is None or count is None or count < 0:
        return _Giant(None, stream, "fields that do not fit into it")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(min(count, MOST_HEADERS)):
        pair = _giant_header(body, wanted.cut)
        if pair is None:
            return _Giant(None, stream, "a header that does not fit into it")
        headers.append(pair)
    while body.some(WINDOW_BYTES):
        pass
    shown = of_fields(
        row, offset_delta, timestamp_delta, parts[0], parts[1], tuple(headers), count - len(headers)
    )
    return _Giant(shown, stream, "")


def _giant_header(body: ByteStream, cut: int) -> tuple[bytes, bytes | None] | None:
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


def _rest(stream: ByteStream) -> Iterator[bytes | Damage]:
    while piece := stream.some(WINDOW_BYTES):
        yield bytes(piece)
    if stream.damage is not None:
        yield stream.damage


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
