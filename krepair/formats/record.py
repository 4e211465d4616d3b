"""Records of message format v2, inside a batch.

Source: ``clients/.../common/record/DefaultRecord.java`` (2.2.1, 3.9.0), KIP-98, KIP-82 (headers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from krepair.formats.batch_v2 import (
    HEADER_SIZE,
    NO_SEQUENCE,
    BatchHeader,
    decode_header,
    header_damage,
    next_sequence,
)
from krepair.formats.codec import DEFAULT_MAX_BYTES, Codec
from krepair.formats.damage import Bytes, Damage
from krepair.formats.varint import Varint, read_varint, read_varlong
from krepair.formats.words import count_text


class RecordHeader(NamedTuple):
    """One record header; its key remains bytes, so that damaged UTF-8 is copied unchanged.

    Attributes:
        key: key bytes, never null.
        value: value bytes; None is null, which differs from empty.
    """

    key: bytes
    value: bytes | None


class Record(NamedTuple):
    """One record in its stored form.

    Attributes:
        attributes: attribute bits, which Kafka does not use so far.
        timestamp_delta: time in ms after the base timestamp of the batch.
        offset_delta: offset minus the base offset of the batch.
        key: key; None is null (no key), which differs from empty.
        value: value; None is null (a tombstone), which differs from empty.
        headers: headers in their order; keys may repeat.
    """

    attributes: int = 0
    timestamp_delta: int = 0
    offset_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[RecordHeader, ...] = ()

    def offset(self, batch: BatchHeader) -> int:
        """Return the offset of the record in the log."""
        return batch.base_offset + self.offset_delta

    def timestamp(self, batch: BatchHeader) -> int:
        """Return the record's timestamp in ms: the broker's with LogAppendTime, else the producer's."""
        if batch.is_log_append_time:
            return batch.max_timestamp
        return batch.base_timestamp + self.timestamp_delta

    def sequence(self, batch: BatchHeader) -> int:
        """Return the sequence number of the record, -1 without sequences."""
        if batch.base_sequence < 0:
            return NO_SEQUENCE
        return next_sequence(batch.base_sequence, self.offset_delta)


class _RecordReader:
    """Cursor over the body of one record. ``failed`` names the first error; reads after it are meaningless."""

    def __init__(self, buf: Bytes, position: int, end: int) -> None:
        self.buf = buf
        self.position = position
        self.end = end
        self.failed = ""

    def _take(self, read: Varint | None, field: str) -> int:
        if read is None:
            self.failed = self.failed or f"no {field} before the record's end"
            return 0
        self.position = read.end
        return read.value

    def varint(self, field: str) -> int:
        return self._take(read_varint(self.buf, self.position, self.end), field)

    def varlong(self, field: str) -> int:
        return self._take(read_varlong(self.buf, self.position, self.end), field)

    def byte(self, field: str) -> int:
        if self.position >= self.end:
            self.failed = self.failed or f"no {field} before the record's end"
            return 0
        value = self.buf[self.position]
        self.position += 1
        return value - 256 if value > 127 else value

    def nullable_bytes(self, field: str) -> bytes | None:
        size = self.varint(f"length of the {field}")
        if size < 0:
            return None
        if size > self.end - self.position:
            self.failed = self.failed or f"a {field} of {size} bytes in {self.end - self.position}"
            return None
        value = bytes(self.buf[self.position : self.position + size])
        self.position += size
        return value

    def headers(self) -> tuple[RecordHeader, ...]:
        count = self.varint("number of headers")
        if count < 0 or count > self.end - self.position:
            self.failed = self.failed or f"{count} headers in {self.end - self.position} bytes"
            return ()
        parsed: list[RecordHeader] = []
        for _ in range(count):
            key = self.nullable_bytes("header key")
            value = self.nullable_bytes("header value")
            if key is None:
                self.failed = self.failed or "a null header key"
            if self.failed:
                return ()
            parsed.append(RecordHeader(key or b"", value))
        return tuple(parsed)


def _read_record(buf: Bytes, position: int, end: int) -> tuple[Record, int] | Damage:
    size = read_varint(buf, position, end)
    if size is None:
        return Damage(position, end - position, "the length of a record", "no varint before the end")
    if not 0 <= size.value <= end - size.end:
        remaining = f"{end - size.end} bytes left"
        return Damage(position, end - position, f"a record of {size.value} bytes", remaining)
    reader = _RecordReader(buf, size.end, size.end + size.value)
    record = Record(
        reader.byte("attributes"),
        reader.varlong("timestamp delta"),
        reader.varint("offset delta"),
        reader.nullable_bytes("key"),
        reader.nullable_bytes("value"),
        reader.headers(),
    )
    if not reader.failed and reader.position != reader.end:
        reader.failed = f"{reader.end - reader.position} bytes more than the record's fields"
    if reader.failed:
        return Damage(position, end - position, "a record", reader.failed)
    return record, reader.end


def records(data: Bytes, count: int) -> Iterator[Record | Damage]:
    """Read uncompressed records one by one.

    Args:
        data: all record bytes of a batch.
        count: record count of the batch. ``data`` with fewer or more records is damaged, as for a broker.

    Yields:
        The records, then a ``Damage`` with positions in ``data`` if the records do not fill it exactly.
    """
    position = 0
    for number in range(count):
        if position >= len(data):
            yield Damage(len(data), 0, count_text(count, "record"), count_text(number, "record"))
            return
        read = _read_record(data, position, len(data))
        if isinstance(read, Damage):
            yield read
            return
        record, position = read
        yield record
    if position < len(data):
        yield Damage(
            position, len(data) - position, f"the end after {count_text(count, 'record')}", "more bytes"
        )


def batch_records(
    buf: Bytes, position: int = 0, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[Record | Damage]:
    """Read the records of the batch at ``position``, compressed or not, without checking the CRC.

    Args:
        buf: bytes that hold the batch.
        position: byte of the buffer at which the batch starts.
        max_bytes: limit in bytes of the decompressed records; more is damage.

    Yields:
        The records, then a ``Damage`` with positions in ``buf`` if something is wrong. The damage of compressed records
        covers all of them.
    """
    wrong = header_damage(buf, position)
    if wrong is not None:
        yield wrong
        return
    header = decode_header(buf, position)
    start, end = position + HEADER_SIZE, position + header.size_bytes
    stored = memoryview(buf)[start:end]
    if header.is_empty:
        # A broker does not read past the header of a batch without records.
        return
    if header.codec == Codec.NONE:
        for record in records(stored, header.record_count):
            yield record._replace(position=start + record.position) if isinstance(record, Damage) else record
        return
    from krepair.formats import compression

    data = compression.decompress(header.codec, stored, max_bytes=max_bytes)
    if isinstance(data, Damage):
        yield data._replace(position=start)
        return
    for record in records(data, header.record_count):
        if isinstance(record, Damage):
            place = f"{record.found} (at byte {record.position} when decompressed)"
            yield Damage(start, end - start, record.expected, place)
        else:
            yield record
