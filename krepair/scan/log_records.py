"""Reader of the batches and records of one ``.log``, in all formats and codecs and with constant memory.

``dump``, ``groups``, ``transactions``, ``compare`` and ``check --deep`` read records with it, part by part. After
damage, reading resumes at the next valid batch. A batch with an invalid checksum is returned if another header begins
at the end that its length gives; otherwise the batch is part of the damage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from krepair.formats import batch_v2, compression, message_set, record
from krepair.formats.batch_front import FRONT_BYTES, LEAST_BYTES, batch_front
from krepair.formats.codec import DEFAULT_MAX_BYTES, Codec
from krepair.formats.damage import Damage
from krepair.formats.filenames import MAX_OFFSET
from krepair.formats.java_numbers import LARGEST_FILE_BYTES, wrapped_int64
from krepair.formats.words import count_text
from krepair.kernels import compact_keys as k
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import (
    BAD_COUNTS,
    BAD_CRC,
    BAD_OFFSETS,
    MOST_ROWS,
    OK,
    Batches,
    BatchWalk,
    copy_of,
)
from krepair.kernels.resync import find_batch, search_budget
from krepair.kernels.scan import ReadInto, fill
from krepair.scan.byte_stream import ByteStream, StoredBytes
from krepair.scan.unpacked_batches import UnpackedBatches

WINDOW_BYTES: Final = 1 << 20
LOWEST_OFFSET: Final = -(2**63)
"""Lowest offset of a batch: a damaged base offset may be negative, and such a batch is returned like any other."""
MOST_HEADERS: Final = 1000
"""Largest number of headers that are shown of a record."""
DEFAULT_CUT: Final = 1 << 20
"""Number of bytes kept of a key or value, more than ``max.message.bytes`` allows by default."""

_RECORD_ROWS: Final = 1 << 14
"""Largest number of records that are read in one call of the kernel."""
_SLACK: Final = 64

# ways in which the batches of a window are read
_ALONE, _PLAIN, _PACKED = range(3)


class LogRecord(NamedTuple):
    """One record or message.

    Attributes:
        offset: absolute offset.
        timestamp: milliseconds since the epoch.
        sequence: sequence number of its producer; -1 for none.
        key: first bytes of the key, see ``RecordOptions.cut``; None for null.
        value: first bytes of the value; None for null.
        headers: (key, value) of each header, in order.
        key_size: size of the whole key in bytes, -1 for null.
        value_size: size of the whole value in bytes, -1 for null.
        cut_headers: number of headers left out.
    """

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]
    key_size: int
    value_size: int
    cut_headers: int = 0


class BatchesRead(NamedTuple):
    """Batches whose records are not read, or follow in further parts.

    Attributes:
        batches: ``columns.BATCH``[B]; valid until the next part is requested.
    """

    batches: Batches


class RecordsRead(NamedTuple):
    """Uncompressed records in a buffer; all of it is valid until the next part is requested.

    Attributes:
        buffer: uint8[W + SLACK].
        batches: ``columns.BATCH``[B], with their positions in the log.
        counts: int64[B], number of records of each batch in this part.
        records: int64[N, ``dump_rows.RECORD_COLUMNS``].
        are_whole: True if this part is the first to return these batches, each with all its records. If False, a
            ``BatchesRead`` returned the one batch before.
    """

    buffer: Any
    batches: Batches
    counts: Any
    records: Any
    are_whole: bool


class LargeRecordRead(NamedTuple):
    """Record or message that is larger than the buffer.

    Attributes:
        batch: row of its batch, which a ``BatchesRead`` returned before.
        record: the record, its key and value truncated.
    """

    batch: Any
    record: LogRecord


class DamageRead(NamedTuple):
    """Unreadable bytes.

    Attributes:
        damage: position, length, and what was expected and found there.
        batch: row of the batch whose content is damaged; None if no batch could be read.
        is_compressed: True if the content is compressed.
    """

    damage: Damage
    batch: Any = None
    is_compressed: bool = False


LogPart = BatchesRead | RecordsRead | LargeRecordRead | DamageRead

_Parts = Generator[LogPart, None, int]


class RecordOptions(NamedTuple):
    """Selection of the batches and records that are read from a log.

    Attributes:
        records: False to read only batches.
        compressed_only: True to read only compressed content.
        wrong_crc: True to return batches with an invalid checksum too; their damage is always returned.
        lowest: lowest offset that is read.
        highest: highest offset that is read.
        cut: number of bytes kept of the key and the value of a record larger than the buffer.
        most_content_bytes: size limit of a batch's decompressed content; a batch above it counts as damaged.
        select: function of ``columns.BATCH``[B] that returns uint8[B], 1 for each batch to read; None for all.
        before_key: function called when the stream of a large record has reached the key, with the stream and the size
            of the key in bytes, negative for null.
    """

    records: bool = True
    compressed_only: bool = False
    wrong_crc: bool = False
    lowest: int = LOWEST_OFFSET
    highest: int = MAX_OFFSET
    cut: int = DEFAULT_CUT
    most_content_bytes: int = DEFAULT_MAX_BYTES
    select: Callable[[Batches], Any] | None = None
    before_key: Callable[[ByteStream, int], None] | None = None


class LogRecords:
    """Reader of the batches and records of one log.

    Args:
        read_into: function that fills a buffer from a file position and returns the number of bytes read, 0 at the end;
            it may raise ``OSError``.
        file_size: size of the log in bytes.
        window_bytes: size of the window in bytes.

    Attributes:
        batches_read: number of batches read so far, including those outside the requested offsets.
        window_rows: largest number of records in one ``RecordsRead``.
    """

    window_rows: Final = _RECORD_ROWS

    def __init__(
        self,
        read_into: ReadInto,
        file_size: int,
        base_offset: int,
        options: RecordOptions,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._read_into = read_into
        self._declared_size = file_size
        self._size = min(file_size, LARGEST_FILE_BYTES)
        self._options = options
        self._window_bytes = window_bytes
        self._window: Any = None
        self._last_offset = base_offset - 1
        self._records: Any = np.empty((_RECORD_ROWS, r.RECORD_COLUMNS), np.int64)
        self._counts: Any = np.zeros(MOST_ROWS, np.int64)
        self._buffer: Any = np.empty(WINDOW_BYTES + _SLACK, np.uint8)
        self._packed: Any = np.zeros((MOST_ROWS, k.PACKED_COLUMNS), np.int64)
        self._unpacked = UnpackedBatches(MOST_ROWS, MOST_ROWS)
        self._search_left = search_budget(self._size)
        self._stopped = False
        self.batches_read = 0

    def stop(self) -> None:
        """Stop after the current part; damage that belongs to it is still returned."""
        self._stopped = True

    def _is_done(self) -> bool:
        return self._stopped

    def parts(self) -> Iterator[LogPart]:
        """Yield the parts of the log in order, damaged ranges among them.

        Raises:
            OSError: the log cannot be read.
        """
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
                position = yield from self._batch_with_wrong_crc(walk.suspect, walk.origin)
            elif position < self._size and not len(walk.rest):
                gone = Damage(position, self._size - position, f"a file of {self._size} bytes", "its end")
                yield DamageRead(gone)
                return
            elif position < self._size:
                position = yield from self._no_batch(position)
        if self._declared_size > self._size and not self._is_done():
            more = self._declared_size - self._size
            expected = f"a log of at most {self._size} bytes"
            yield DamageRead(Damage(self._size, more, expected, "more, which was not read"))

    def _batch_with_wrong_crc(self, row: Any, origin: int) -> _Parts:
        """Yield a batch with an invalid checksum; return the position where reading resumes."""
        start = int(row["position"])
        end = start + int(row["size"])
        wrong = _wrong_crc(row)
        if not self._may_be_batch(end, int(row["base_offset"])):
            return (yield from self._damaged(start, *wrong))
        yield from self._one_batch(row, origin)
        yield DamageRead(Damage(start, end - start, *wrong))
        self._last_offset = max(self._last_offset, int(row["base_offset"]))
        return end

    def _may_be_batch(self, position: int, offset_before: int) -> bool:
        """Return whether the log ends at a position, or a batch of later offsets may begin there."""
        if position == self._size:
            return True
        front = batch_front(self._read(position, FRONT_BYTES))
        return front is not None and front.fits(self._size - position) and front.offset > offset_before

    def _no_batch(self, position: int) -> _Parts:
        """Yield bytes that cannot be a batch as damage; return the position where reading resumes."""
        head = self._read(position, batch_v2.HEADER_SIZE)
        remaining = self._size - position
        if not any(head):
            return (yield from self._damaged(position, "a batch", "zeros"))
        front = batch_front(head)
        if front is None:
            return (yield from self._damaged(position, "a batch header", f"{remaining} bytes to the end"))
        if not front.is_known:
            return (yield from self._damaged(position, "magic 0, 1 or 2", f"magic {front.magic}"))
        least = LEAST_BYTES[front.magic]
        if front.size < least:
            expected = f"a batch of at least {least} bytes"
            return (yield from self._damaged(position, expected, f"{front.size} bytes"))
        expected = f"a batch of {front.size} bytes"
        return (yield from self._damaged(position, expected, f"{remaining} bytes to the end"))

    def _damaged(self, position: int, expected: str, actual: str) -> _Parts:
        """Yield the range up to the next valid batch as damage; return that batch's position, or the log's end."""
        lowest = self._last_offset + 1
        search = find_batch(
            self._read_into, position + 1, self._size, lowest, MAX_OFFSET, budget=self._search_left
        )
        self._search_left -= search.checksummed
        end = search.position if search.position >= 0 else self._size
        if not search.complete:
            actual += "; krepair stopped its search for the next batch"
        yield DamageRead(Damage(position, end - position, expected, actual))
        return end

    def _read(self, position: int, count: int) -> bytes:
        data = bytearray(min(count, self._size - position))
        return bytes(data[: fill(self._read_into, memoryview(data), position, self._size)])

    # -- the batches of a window -------------------------------------------------------------------
    def _batches(self, rows: Any, origin: int) -> Iterator[LogPart]:
        """Read the batches of a window; neighbours that are read in the same way are read together."""
        self.batches_read += len(rows)
        if len(rows) and rows["base_offset"][0] > self._options.highest:
            self._stopped = True
            return
        chosen = self._in_range(rows)
        if self._options.select is not None:
            chosen &= self._options.select(rows).astype(bool)
        if not chosen.all():
            rows = rows.take(np.flatnonzero(chosen))
        ways = self._ways_of_reading(rows, origin)
        edges = [0, *(np.flatnonzero(ways[1:] != ways[:-1]) + 1).tolist(), len(rows)]
        for first, after in itertools.pairwise(edges):
            some = rows[first:after]
            if self._is_done() or not len(some):
                return
            if ways[first] == _PLAIN:
                yield from self._plain_batches(some, origin)
            elif ways[first] == _PACKED:
                yield from self._unpacked_together(some, origin)
            else:
                yield from self._each_alone(some, origin)

    def _ways_of_reading(self, rows: Any, origin: int) -> Any:
        """Return how each batch is read, int64[B]."""
        ways = np.full(len(rows), _PLAIN)
        if self._options.records and origin < 0:
            ways[:] = _ALONE
        elif self._options.records:
            packed = rows["attributes"] & batch_v2.CODEC_MASK != Codec.NONE
            new = rows["magic"] == batch_v2.MAGIC
            ways[packed & ~new] = _ALONE
            if (packed & new).any():
                # The uncompressed neighbours are copied too, so that all of them are read in one call.
                ways[new] = _PACKED
        return np.where(rows["problem"] == OK, ways, _ALONE)

    def _each_alone(self, rows: Any, origin: int) -> Iterator[LogPart]:
        for row in rows:
            if self._is_done():
                return
            yield from self._one_batch(row, origin)
            yield from _problem(row)

    def _in_range(self, rows: Any) -> Any:
        """Return which batches may hold requested offsets; of a wrapper of v0 or v1 only the last offset is known."""
        below = rows["base_offset"] <= self._options.highest
        return (below | (rows["magic"] < batch_v2.MAGIC)) & (
            np.maximum(rows["last_offset"], rows["base_offset"]) >= self._options.lowest
        )

    def _plain_batches(self, rows: Any, origin: int) -> Iterator[LogPart]:
        if not self._options.records:
            yield BatchesRead(rows)
        elif not self._options.compressed_only:
            yield from self._side_by_side(self._window, origin, rows, rows, origin)

    def _side_by_side(self, buf: Any, start: int, rows: Any, stored: Any, origin: int) -> Iterator[LogPart]:
        """Read batches whose uncompressed records lie in a buffer.

        Args:
            buf: uint8[W]; index 0 is position ``start`` of ``rows``.
            start: position of the first byte of the buffer.
            rows: ``columns.BATCH``[B], with their positions in the buffer.
            stored: the same batches, with their positions in the log.
            origin: file position of the window.
        """
        while len(rows) and not self._is_done():
            read = int(r.window_records(buf, start, rows, self._records, self._counts))
            if read:
                count = int(self._counts[:read].sum())
                yield RecordsRead(
                    buf, stored[:read], self._counts[:read], self._records[:count], are_whole=True
                )
            else:  # its records do not fill it, or are more than there are rows for
                yield from self._one_batch(stored[0], origin)
                read = 1
            rows, stored = rows[read:], stored[read:]

    def _unpacked_together(self, rows: Any, origin: int) -> Iterator[LogPart]:
        """Decompress many v2 batches into one buffer and read them. Large ones are read in pieces."""
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

    # -- one batch at a time ----------------------------------------------------------------------
    def _one_batch(self, row: Any, origin: int) -> Iterator[LogPart]:
        """Read a batch that is a wrapper, damaged, larger than the window, or has large or broken content."""
        del origin
        options = self._options
        if row["problem"] == BAD_CRC and not options.wrong_crc:
            return
        if options.compressed_only and not row["attributes"] & batch_v2.CODEC_MASK:
            return
        yield BatchesRead(row.reshape(1))
        if options.records and row["record_count"] and not self._is_done():
            yield from self._records_of(row)

    def _records_of(self, row: Any) -> Iterator[LogPart]:
        """Read all records or messages of a batch, in pieces that fit into the buffer."""
        content = self._content_of(row)
        stream, remaining = content.stream, content.expected
        buf, end = self._buffer, 0
        while remaining > 0 and not self._is_done():
            end += _fill_from(stream, buf[end:WINDOW_BYTES])
            if content.wrapper is None:
                status, count, place = r.record_rows(buf, 0, end, remaining, self._records)
            elif end or remaining == 1:
                status, count, place = r.message_rows(buf, 0, end, content.wrapper, self._records)
            else:
                break
            if count:
                remaining -= count
                self._counts[0] = count
                yield RecordsRead(
                    buf, row.reshape(1), self._counts[:1], self._records[:count], are_whole=False
                )
                buf[: end - place] = buf[place:end].copy()
                end -= place
                if status != r.BAD_RECORD:
                    continue
            # The record at this place is larger than the buffer, or broken.
            record_or_damage: LogRecord | Damage
            if content.wrapper is None and (status == r.BAD_RECORD or end < WINDOW_BYTES):
                record_or_damage = _why_bad(buf[:end].tobytes(), remaining)
            else:
                stream.put_back(buf[:end].tobytes())
                end = 0
                record_or_damage = _large_record_or_message(row, content, self._options)
            if isinstance(record_or_damage, Damage):
                yield _bad_records(row, content, record_or_damage)
                return
            remaining -= 1
            yield LargeRecordRead(row, record_or_damage)
        if self._is_done():
            return
        if end or stream.some(1):
            expected = f"the end after {count_text(int(row['record_count']), 'record')}"
            yield _bad_records(row, content, Damage(0, 0, expected, "more bytes"))
        elif stream.damage is not None:
            yield _bad_records(row, content, stream.damage)
        elif remaining == _ALL:
            none = Damage(0, 0, "a run of messages in the wrapper", "no message at all")
            yield _bad_records(row, content, none)

    # -- the content of a batch ---------------------------------------------------------------------
    def _stored(self, row: Any, start: int) -> StoredBytes:
        position = int(row["position"])
        return StoredBytes(self._read_into, position + start, position + int(row["size"]))

    def _unpack(self, row: Any, codec: int, stored: StoredBytes) -> ByteStream:
        return ByteStream(
            compression.chunks(
                codec, stored, magic=int(row["magic"]), max_bytes=self._options.most_content_bytes
            )
        )

    def _content_of(self, row: Any) -> _Content:
        """Return the records of a v2 batch, the messages in a wrapper, or an uncompressed message."""
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
        elif magic and offset:  # wrappers of offset 0, by some versions of librdkafka, hold absolute offsets
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
        """Return the compressed messages of a wrapper; None if its lengths say that there are none."""
        content = self._stored(row, header)
        value_at = message_set.LENGTH.size + max(_int32(bytes(content[0:4])), 0)
        start = value_at + message_set.LENGTH.size
        size = _int32(bytes(content[value_at:start]))
        return None if size < 0 or start + size > len(content) else self._stored(row, header + start)


_ALL: Final = 2**62
"""Number of messages in a wrapper, which is not recorded."""


class _Content(NamedTuple):
    """Content of one batch.

    Attributes:
        stream: decompressed records or messages.
        expected: number of records or messages, or ``_ALL``.
        wrapper: for messages, the argument of ``message_rows``; None for records.
        start: position of the content, and of the damage if it cannot be read.
    """

    stream: ByteStream
    expected: int
    wrapper: Any
    start: int


def _problem(row: Any) -> Iterator[DamageRead]:
    """Yield the damage of a header with impossible counts or offsets."""
    if row["problem"] == BAD_COUNTS:
        delta = int(row["last_offset"]) - int(row["base_offset"])
        expected = "last offset delta and record count of 0 or more"
        actual = f"{delta} and {int(row['record_count'])}"
    elif row["problem"] == BAD_OFFSETS:
        expected, actual = "an offset above those before", f"{int(row['base_offset'])}"
    else:
        return
    yield DamageRead(Damage(int(row["position"]), int(row["size"]), expected, actual))


def _bad_records(row: Any, content: _Content, wrong: Damage) -> DamageRead:
    """Return the damage of a batch's content; its range is the whole content."""
    if content.stream.damage is not None:
        wrong = content.stream.damage
    size = int(row["position"]) + int(row["size"]) - content.start
    is_compressed = bool(row["attributes"] & batch_v2.CODEC_MASK)
    return DamageRead(wrong._replace(position=content.start, length=size), row, is_compressed)


def record_at(batch: Any, row: Any, buf: Any) -> LogRecord:
    """Build a record from its fields in a buffer, which holds it completely.

    Args:
        batch: row of its batch.
        row: int64[RECORD_COLUMNS], the record's places in the buffer.
        buf: uint8[W].
    """
    values = row.tolist()
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    if values[r.R_HEADER_COUNT]:
        data = buf[values[r.R_START] : values[r.R_START] + values[r.R_SIZE]].tobytes()
        read = next(record.records(data, 1))
        assert isinstance(read, record.Record), read
        headers = tuple((header.key, header.value) for header in read.headers[:MOST_HEADERS])
    key, value = (
        (None if size < 0 else buf[place : place + size].tobytes(), size)
        for place, size in (
            (values[r.R_KEY], values[r.R_KEY_SIZE]),
            (values[r.R_VALUE], values[r.R_VALUE_SIZE]),
        )
    )
    return _of_fields(
        batch,
        values[r.R_OFFSET_DELTA],
        values[r.R_TIMESTAMP_DELTA],
        key,
        value,
        headers,
        values[r.R_HEADER_COUNT] - len(headers),
    )


def _of_fields(
    batch: Any,
    offset_delta: int,
    timestamp_delta: int,
    key: tuple[bytes | None, int],
    value: tuple[bytes | None, int],
    headers: tuple[tuple[bytes, bytes | None], ...],
    cut_headers: int,
) -> LogRecord:
    """Build a record or message from its fields.

    A v2 record under LogAppendTime has the largest timestamp of its batch; a message always has its own timestamp.
    """
    base_sequence = int(batch["base_sequence"])
    append_time = batch["magic"] == batch_v2.MAGIC and batch["attributes"] & batch_v2.LOG_APPEND_TIME
    timestamp = int(batch["max_timestamp"]) if append_time else int(batch["base_timestamp"]) + timestamp_delta
    return LogRecord(
        wrapped_int64(int(batch["base_offset"]) + offset_delta),
        wrapped_int64(timestamp),
        -1 if base_sequence < 0 else (base_sequence + offset_delta) & 0x7FFFFFFF,
        key[0],
        value[0],
        headers,
        key[1],
        value[1],
        cut_headers,
    )


def _words(offset: int, time: int, by_log: int) -> Any:
    return np.array([wrapped_int64(offset), time, by_log], np.int64)


def _last_offset(stream: ByteStream) -> int:
    """Return the offset stored in the last message of a wrapper; -1 if there is none."""
    last = -1
    while len(head := stream.take(message_set.LOG_OVERHEAD)) == message_set.LOG_OVERHEAD:
        last, size = int.from_bytes(head[:8], "big", signed=True), _int32(head[8:12])
        if size < 0 or stream.skip(size) < size:
            break
    return last


def _large_record_or_message(row: Any, content: _Content, options: RecordOptions) -> LogRecord | Damage:
    """Read a record or message of any size; keep only the first bytes of its key and value."""
    if content.wrapper is None:
        return _large_record(row, content.stream, options)
    return _large_message(row, content.stream, content.wrapper.tolist(), options)


def _large_message(
    row: Any, stream: ByteStream, wrapper: list[int], options: RecordOptions
) -> LogRecord | Damage:
    """Read a message. Its key and value determine its end, so a wrong size does not hide the next message."""
    head = stream.take(message_set.HEADER_V0.size)
    size = _int32(head[8:12]) if len(head) == message_set.HEADER_V0.size else -1
    # Each message in a wrapper may have its own format (KAFKA-4298).
    header = message_set.HEADERS.get(head[16]) if size >= 0 else None
    if header is None or size < header.size + 2 * message_set.LENGTH.size - message_set.LOG_OVERHEAD:
        return Damage(0, 0, "a message of format v0 or v1", "something else")
    offset = wrapped_int64(
        int.from_bytes(head[:8], "big", signed=True) + wrapper[0] + int(row["base_offset"])
    )
    time = message_set.NO_TIMESTAMP
    if header is message_set.HEADER_V1:
        stored = int.from_bytes(stream.take(8), "big", signed=True)
        time = wrapper[1] if wrapper[2] else stored
    parts: list[tuple[bytes | None, int]] = []
    for name in ("key", "value"):
        length = stream.take(message_set.LENGTH.size)
        size = _int32(length) if len(length) == message_set.LENGTH.size else -2
        if name == "key" and options.before_key is not None:
            options.before_key(stream, size)
        data = stream.take(min(size, options.cut)) if size >= 0 else None
        there = 0 if data is None else len(data) + stream.skip(size - len(data))
        if size < -1 or there < max(size, 0):
            return Damage(0, 0, f"a {name} of {size} bytes", f"{there} bytes")
        parts.append((data, size))
    stream.on_bytes = None
    (key, key_size), (value, value_size) = parts
    return LogRecord(offset, time, -1, key, value, (), key_size, value_size)


def _large_record(row: Any, stream: ByteStream, options: RecordOptions) -> LogRecord | Damage:
    size = stream.varint()
    if size is None or size < 1:
        return Damage(0, 0, "a record", "no length")
    remaining = size
    body = ByteStream(_limited(stream, remaining))
    attributes = body.take(1)
    timestamp_delta, offset_delta = body.varlong(), body.varint()
    parts: list[tuple[bytes | None, int]] = []
    for name in ("key", "value"):
        length = body.varint()
        if length is None:
            return Damage(0, 0, "a record", f"no length of the {name} before the record's end")
        if name == "key" and options.before_key is not None:
            options.before_key(body, length)
        data = None if length < 0 else body.take(min(length, options.cut))
        if data is not None and len(data) + body.skip(length - len(data)) < length:
            return Damage(0, 0, "a record", f"a {name} of {length} bytes that is cut")
        parts.append((data, max(length, -1)))
    count = body.varint()
    if not attributes or timestamp_delta is None or offset_delta is None or count is None or count < 0:
        return Damage(0, 0, "a record", "fields that do not fit into it")
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(min(count, MOST_HEADERS)):
        pair = _large_header(body, options.cut)
        if pair is None:
            return Damage(0, 0, "a record", "a header that does not fit into it")
        headers.append(pair)
    while body.some(WINDOW_BYTES):
        pass
    return _of_fields(
        row, offset_delta, timestamp_delta, parts[0], parts[1], tuple(headers), count - len(headers)
    )


def _large_header(body: ByteStream, cut: int) -> tuple[bytes, bytes | None] | None:
    fields: list[bytes | None] = []
    for _ in ("key", "value"):
        length = body.varint()
        if length is None or (length < 0 and not fields):
            return None
        data = None if length < 0 else body.take(min(length, cut))
        if data is not None and len(data) + body.skip(length - len(data)) < length:
            return None
        fields.append(data)
    return fields[0] or b"", fields[1]


def _limited(stream: ByteStream, remaining: int) -> Iterator[bytes | Damage]:
    while remaining > 0 and (piece := stream.some(min(remaining, WINDOW_BYTES))):
        remaining -= len(piece)
        yield bytes(piece)


def _fill_from(stream: ByteStream, room: Any) -> int:
    done = 0
    while done < len(room) and (piece := stream.some(len(room) - done)):
        room[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return done


def _why_bad(data: bytes, remaining: int) -> Damage:
    first = next(record.records(data, remaining), None)
    return (
        first
        if isinstance(first, Damage)
        else Damage(0, 0, f"{count_text(remaining, 'more record')}", f"{len(data)} bytes")
    )


def _int32(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def _wrong_crc(row: Any) -> tuple[str, str]:
    return f"CRC {int(row['crc']):#010x} as stored", f"{int(row['computed']):#010x} computed"
