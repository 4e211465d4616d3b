"""Writes what krepair only reads, and reads whole files in one call: for tests.

Records, messages, batches, index files, snapshots, Kafka's messages: as a broker or a client writes them.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

import lz4.frame
import numpy as np
import numpy.typing as npt
import snappy
import zstandard

from krepair.errors import UsageError
from krepair.formats import (
    batch_v2,
    compression,
    control,
    message_schema,
    message_set,
    offset_index,
    partition_metadata,
    producer_snapshot,
    time_index,
    txn_index,
)
from krepair.formats import (
    record as records_of,
)
from krepair.formats.castagnoli import crc32c
from krepair.formats.codec import Codec
from krepair.formats.damage import Bytes, Damage
from krepair.formats.fixed_entries import padding_start


def batch_headers(buf: Bytes) -> npt.NDArray[Any]:
    """Headers of the batch_v2.batches, as far as the walk goes, as a structured array [N]. The CRC is not checked."""
    raw = bytearray()
    memory = memoryview(buf)
    for batch in batch_v2.batches(buf, check_crc=False):
        if isinstance(batch, batch_v2.PlacedBatch):
            raw += memory[batch.position : batch.position + batch_v2.HEADER_SIZE]
    return np.frombuffer(bytes(raw), batch_v2.HEADER.dtype)


def decode_batches(buf: Bytes) -> tuple[batch_v2.PlacedBatch, ...]:
    """The valid batch_v2.batches before the first damage."""
    return tuple(batch for batch in batch_v2.batches(buf) if isinstance(batch, batch_v2.PlacedBatch))


def encode_batches(placed: tuple[tuple[batch_v2.BatchHeader, bytes], ...]) -> bytes:
    """The bytes of batch_v2.batches one after the other, see ``encode_batch``.

    Raises:
        UsageError: see ``encode_batch``.
    """
    return b"".join(batch_v2.encode_batch(header, records) for header, records in placed)


def record_damage(data: Bytes, count: int) -> list[Damage]:
    """The damage in uncompressed record bytes: none, or one range."""
    return [record for record in records_of.records(data, count) if isinstance(record, Damage)]


def decode_records(data: Bytes, count: int) -> tuple[records_of.Record, ...]:
    """The record.records before the first damage."""
    return tuple(
        record for record in records_of.records(data, count) if isinstance(record, records_of.Record)
    )


def _nullable_bytes(value: bytes | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value


def encode_record(record: records_of.Record) -> bytes:
    """The bytes of one record, with its length in front.

    Raises:
        UsageError: a number does not fit.
    """
    body = b"".join(
        (
            (record.attributes & 0xFF).to_bytes(1, "big"),
            write_varlong(record.timestamp_delta),
            write_varint(record.offset_delta),
            _nullable_bytes(record.key),
            _nullable_bytes(record.value),
            write_varint(len(record.headers)),
            *(
                write_varint(len(header.key)) + header.key + _nullable_bytes(header.value)
                for header in record.headers
            ),
        )
    )
    return write_varint(len(body)) + body


def encode_records(items: Iterable[records_of.Record]) -> bytes:
    """The uncompressed record bytes of a batch.

    Raises:
        UsageError: see ``encode_record``.
    """
    return b"".join(map(encode_record, items))


def message_headers(buf: Bytes) -> npt.NDArray[Any]:
    """Fields of the messages up to the attributes, as far as the walk goes: an array [N]. The CRC is not checked."""
    raw = bytearray()
    for placed in message_set.messages(buf, check_crc=False):
        if isinstance(placed, message_set.PlacedMessage):
            raw += memoryview(buf)[placed.position : placed.position + message_set.HEADER_V0.size]
    return np.frombuffer(bytes(raw), message_set.HEADER_V0.dtype)


def decode_messages(buf: Bytes) -> tuple[message_set.PlacedMessage, ...]:
    """The valid outer message_set.messages before the first damage; wrappers are not opened."""
    return tuple(
        placed for placed in message_set.messages(buf) if isinstance(placed, message_set.PlacedMessage)
    )


def _nullable_part(value: bytes | None) -> bytes:
    return message_set.LENGTH.pack((-1,)) if value is None else message_set.LENGTH.pack((len(value),)) + value


def encode_message(message: message_set.Message) -> bytes:
    """The bytes of one message; size and CRC are computed.

    Raises:
        UsageError: an unknown magic, a timestamp in v0, or a number that does not fit.
    """
    if message.magic not in message_set.HEADERS or (
        message.magic == 0 and message.timestamp != message_set.NO_TIMESTAMP
    ):
        raise UsageError(f"no message with magic {message.magic} and timestamp {message.timestamp}")
    header = message_set.HEADERS[message.magic]
    body = _nullable_part(message.key) + _nullable_part(message.value)
    size = header.size + len(body) - message_set.LOG_OVERHEAD
    time = (message.timestamp,) if message.magic else ()
    fixed = header.pack((message.offset, size, 0, message.magic, message.attributes, *time))
    crc = zlib.crc32(body, zlib.crc32(fixed[message_set.CRC_START :]))
    return header.pack((message.offset, size, crc, message.magic, message.attributes, *time)) + body


def encode_messages(items: Iterable[message_set.Message]) -> bytes:
    """The bytes of outer message_set.messages one after the other.

    Raises:
        UsageError: see ``encode_message``.
    """
    return b"".join(map(encode_message, items))


def compress(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """Compress in the frames of a Kafka client. The compressed bytes in the frames depend on the library.

    Raises:
        UsageError: an unknown codec, or zstd in a message before v2.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        packer = zlib.compressobj(wbits=compression.GZIP_WINDOW_BITS)
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _snappy_compress(data)
    if codec == Codec.LZ4:
        frame = lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
        return _with_header_checksum(frame, broken=magic == 0)
    if codec == Codec.ZSTD and magic == 2:
        return zstandard.ZstdCompressor(write_content_size=False).compress(data)
    raise UsageError(f"codec {codec} cannot be written in message format v{magic}")


def _snappy_compress(data: bytes) -> bytes:
    out = bytearray(compression.XERIAL_HEADER)
    for start in range(0, len(data), compression.XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress(data[start : start + compression.XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _with_header_checksum(frame: bytes, *, broken: bool) -> bytes:
    end = compression._lz4_descriptor_end(frame)
    return frame[:end] + bytes((compression.lz4_header_checksum(frame, broken=broken),)) + frame[end + 1 :]


def id_bytes(text: str) -> bytes:
    """The 16 bytes of an id; the inverse of ``id_text``."""
    return base64.urlsafe_b64decode(text + "==")


def encode_fields(schema: message_schema.Schema, version: int, values: dict[str, Any]) -> bytes:
    """The bytes of a message without its version. An absent field gets its default, or else zero or an empty value.

    Raises:
        UsageError: an unknown version, or a value that does not fit its field.
    """
    if not 0 <= version <= schema.latest:
        raise UsageError(f"{schema.name} has versions 0 to {schema.latest}, not {version}")
    try:
        return _FieldWriter(version, flexible=version >= schema.flexible).struct(schema.fields, values)
    except struct.error as error:
        raise UsageError(f"a value does not fit its field of {schema.name}: {error}") from error


class _FieldWriter:
    """Builds the bytes of one message."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible

    def struct(self, fields: tuple[message_schema.Field, ...], values: dict[str, Any]) -> bytes:
        out, tagged = [], []
        for field in fields:
            if not field.since <= self.version <= field.until:
                continue
            value = values.get(field.name, field.default)
            if field.tag < 0:
                out.append(self._value(field, value))
            elif value != field.default or field.type == "struct":
                data = self._value(field, value)
                tagged.append((field.tag, write_unsigned(field.tag) + write_unsigned(len(data)) + data))
        if self.flexible:
            out += [write_unsigned(len(tagged)), *(data for _, data in sorted(tagged))]
        return b"".join(out)

    def _value(self, field: message_schema.Field, value: Any) -> bytes:
        nullable = self.version >= field.nullable
        if not field.is_array:
            return self._one(field, value, nullable=nullable)
        if value is None and nullable:
            return self._length(None, ">i")
        items = value or []
        return self._length(len(items), ">i") + b"".join(
            self._one(field, item, nullable=False) for item in items
        )

    def _one(self, field: message_schema.Field, value: Any, *, nullable: bool) -> bytes:
        kind = field.kind
        if kind in message_schema._NUMBERS:
            return message_schema._NUMBERS[kind].pack(value or 0)
        if kind == "uuid":
            return id_bytes(value) if value else bytes(16)
        if kind == "struct":
            if not nullable:
                return self.struct(field.fields, value or {})
            null = b"\x00" if field.tag >= 0 else b"\xff"
            return null if value is None else b"\x01" + self.struct(field.fields, value)
        width = ">h" if kind == "string" else ">i"
        if value is None and nullable:
            return self._length(None, width)
        data = (value or "").encode() if kind == "string" else bytes(value or b"")
        return self._length(len(data), width) + data

    def _length(self, length: int | None, width: str) -> bytes:
        if self.flexible:
            return write_unsigned(0 if length is None else length + 1)
        return struct.pack(width, -1 if length is None else length)


def encode_snapshot(entries: Iterable[producer_snapshot.ProducerEntry]) -> bytes:
    """The bytes of a snapshot, with the entries in the given order.

    Raises:
        UsageError: a value does not fit its field.
    """
    packed = [producer_snapshot.ENTRY.pack(entry) for entry in entries]
    body = b"".join(packed)
    counted = producer_snapshot.HEADER.pack((producer_snapshot.VERSION, 0, len(packed)))[
        producer_snapshot.CRC_START :
    ]
    crc = crc32c(body, crc32c(counted))
    return producer_snapshot.HEADER.pack((producer_snapshot.VERSION, crc, len(packed))) + body


def encode_partition_metadata(metadata: partition_metadata.PartitionMetadata) -> bytes:
    """The file as a broker writes it, without a line end at the end.

    Raises:
        UsageError: the topic id is the zero id, which a broker refuses.
    """
    if metadata.topic_id == partition_metadata.ZERO_ID:
        raise UsageError("the zero topic id cannot be written")
    return f"version: {metadata.version}\ntopic_id: {partition_metadata.topic_id_text(metadata.topic_id)}".encode(
        "ascii"
    )


def encode_control_key(key: control.ControlKey) -> bytes:
    """The bytes of a control record's key.

    Raises:
        UsageError: a value does not fit its field.
    """
    return control.KEY.pack(key)


def encode_end_txn(marker: control.EndTxnMarker) -> bytes:
    """The bytes of the value of an ABORT or COMMIT record.

    Raises:
        UsageError: a value does not fit its field.
    """
    return control.END_TXN_VALUE.pack(marker)


def _write_zigzag(value: int, bits: int) -> bytes:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise UsageError(f"{value} does not fit in {bits} bits")
    raw = (value << 1) ^ (value >> (bits - 1))
    return write_unsigned(raw & (1 << bits) - 1)


def write_unsigned(value: int) -> bytes:
    """The shortest bytes of a value that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def write_varint(value: int) -> bytes:
    """The shortest bytes of a 32-bit value.

    Raises:
        UsageError: the value does not fit into 32 bits.
    """
    return _write_zigzag(value, 32)


def write_varlong(value: int) -> bytes:
    """The shortest bytes of a 64-bit value.

    Raises:
        UsageError: the value does not fit into 64 bits.
    """
    return _write_zigzag(value, 64)


class OffsetEntry(NamedTuple):
    """One entry, with the fields of ``ENTRY``."""

    relative_offset: int
    position: int


def decode_offset_index(buf: Bytes) -> tuple[OffsetEntry, ...]:
    """The entries before the zero padding. They can be trusted only if ``damage`` is empty."""
    entries = offset_index.view(buf)
    return tuple(
        OffsetEntry(*entry) for entry in entries[: padding_start(buf, offset_index.ENTRY_SIZE)].tolist()
    )


def encode_offset_index(entries: Iterable[OffsetEntry]) -> bytes:
    """The bytes of a trimmed file.

    Raises:
        UsageError: a value does not fit in four bytes.
    """
    return b"".join(map(offset_index.ENTRY.pack, entries))


class TimeEntry(NamedTuple):
    """One entry, with the fields of ``ENTRY``."""

    timestamp: int
    relative_offset: int


def decode_time_index(buf: Bytes) -> tuple[TimeEntry, ...]:
    """The entries before the zero padding. They can be trusted only if ``damage`` is empty."""
    entries = time_index.view(buf)
    return tuple(TimeEntry(*entry) for entry in entries[: time_index.used_entries(buf)].tolist())


def encode_time_index(entries: Iterable[TimeEntry]) -> bytes:
    """The bytes of a trimmed file.

    Raises:
        UsageError: a value does not fit its field.
    """
    return b"".join(map(time_index.ENTRY.pack, entries))


def encode_index(module: ModuleType, entries: Iterable[Any]) -> bytes:
    """The bytes of a trimmed index; ``module`` is that of its format."""
    return b"".join(map(module.ENTRY.pack, entries))


def decode_index(module: ModuleType, buf: Bytes) -> tuple[Any, ...]:
    """Its entries; ``module`` is that of its format."""
    if module is offset_index:
        return decode_offset_index(buf)
    return decode_time_index(buf) if module is time_index else txn_index.decode(buf)
