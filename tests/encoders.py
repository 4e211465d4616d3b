"""Writes what krepair only reads, and reads whole files in one call: for tests.

Records, messages, batches, index files, snapshots, Kafka's messages: as a broker or a client writes them.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

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
from krepair.formats import record as records_of
from krepair.formats.castagnoli import crc32c
from krepair.formats.codec import Codec
from krepair.formats.damage import Bytes, Damage
from krepair.formats.fixed_entries import padding_start
from tests.builders import blob, varint
from tests.codecs import PACK
from tests.old_messages import raw_message


def decode_batches(buf: Bytes) -> tuple[batch_v2.PlacedBatch, ...]:
    """The valid batches before the first damage."""
    return tuple(batch for batch in batch_v2.batches(buf) if isinstance(batch, batch_v2.PlacedBatch))


def record_damage(data: Bytes, count: int) -> list[Damage]:
    """The damage in uncompressed record bytes: none, or one range."""
    return [record for record in records_of.records(data, count) if isinstance(record, Damage)]


def decode_records(data: Bytes, count: int) -> tuple[records_of.Record, ...]:
    """The records before the first damage."""
    return tuple(
        record for record in records_of.records(data, count) if isinstance(record, records_of.Record)
    )


def encode_record(record: records_of.Record) -> bytes:
    """The bytes of one record, with its length in front."""
    body = b"".join(
        (
            (record.attributes & 0xFF).to_bytes(1, "big"),
            varint(record.timestamp_delta),
            varint(record.offset_delta),
            blob(record.key),
            blob(record.value),
            varint(len(record.headers)),
            *(varint(len(header.key)) + header.key + blob(header.value) for header in record.headers),
        )
    )
    return varint(len(body)) + body


def encode_records(items: Iterable[records_of.Record]) -> bytes:
    """The uncompressed record bytes of a batch."""
    return b"".join(map(encode_record, items))


def decode_messages(buf: Bytes) -> tuple[message_set.PlacedMessage, ...]:
    """The valid outer messages before the first damage; wrappers are not opened."""
    return tuple(
        placed for placed in message_set.messages(buf) if isinstance(placed, message_set.PlacedMessage)
    )


def encode_message(message: message_set.Message) -> bytes:
    """The bytes of one message; size and CRC are computed."""
    return raw_message(
        message.offset,
        message.value,
        magic=message.magic,
        timestamp=message.timestamp,
        attributes=message.attributes,
        key=message.key,
    )


def encode_messages(items: Iterable[message_set.Message]) -> bytes:
    """The bytes of outer messages one after the other."""
    return b"".join(map(encode_message, items))


def wrapped(
    inner: Sequence[message_set.Message],
    codec: int,
    *,
    magic: int | None = None,
    log_append_time: int | None = None,
) -> message_set.Message:
    """A wrapper of plain messages with ascending, absolute offsets; in v1 they become relative to the first one.

    ``magic``: of the wrapper where it is not that of its messages (KAFKA-4298).
    """
    magic = inner[0].magic if magic is None else magic
    base = inner[0].offset if magic else 0
    stored = encode_messages(message._replace(offset=message.offset - base) for message in inner)
    timestamp = max(message.timestamp for message in inner) if magic else message_set.NO_TIMESTAMP
    attributes = int(codec)
    if log_append_time is not None:
        timestamp, attributes = log_append_time, attributes | message_set.LOG_APPEND_TIME
    value = compress(codec, stored, magic=magic)
    return message_set.Message(inner[-1].offset, magic, attributes, timestamp, None, value)


def compress(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """Compress in the frames of a Kafka client; those of its lz4 in v0 have a wrong checksum in their header."""
    assert codec != Codec.ZSTD or magic == 2, "no client writes such a message"
    packed = PACK[codec](data)
    if (codec, magic) != (Codec.LZ4, 0):
        return packed
    end = compression._lz4_descriptor_end(packed)
    return packed[:end] + bytes((compression.lz4_header_checksum(packed, broken=True),)) + packed[end + 1 :]


def encode_fields(schema: message_schema.Schema, version: int, values: dict[str, Any]) -> bytes:
    """The bytes of a message without its version. An absent field gets its default, or else zero or an empty value."""
    return _FieldWriter(version, flexible=version >= schema.flexible).struct(schema.fields, values)


def encode_versioned(schema: message_schema.Schema, version: int, values: dict[str, Any]) -> bytes:
    """The same with the version in front, as the coordinators' topics store it."""
    return struct.pack(">h", version) + encode_fields(schema, version, values)


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
            return base64.urlsafe_b64decode(value + "==") if value else bytes(16)
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
    """The bytes of a snapshot, with the entries in the given order."""
    packed = [producer_snapshot.ENTRY.pack(entry) for entry in entries]
    body = b"".join(packed)
    counted = producer_snapshot.HEADER.pack((producer_snapshot.VERSION, 0, len(packed)))[
        producer_snapshot.CRC_START :
    ]
    crc = crc32c(body, crc32c(counted))
    return producer_snapshot.HEADER.pack((producer_snapshot.VERSION, crc, len(packed))) + body


def encode_partition_metadata(metadata: partition_metadata.PartitionMetadata) -> bytes:
    """The file as a broker writes it, without a line end at the end."""
    return f"version: {metadata.version}\ntopic_id: {partition_metadata.topic_id_text(metadata.topic_id)}".encode(
        "ascii"
    )


def encode_control_key(key: control.ControlKey) -> bytes:
    """The bytes of a control record's key."""
    return control.KEY.pack(key)


def encode_end_txn(marker: control.EndTxnMarker) -> bytes:
    """The bytes of the value of an ABORT or COMMIT record."""
    return control.END_TXN_VALUE.pack(marker)


def write_unsigned(value: int) -> bytes:
    """The shortest bytes of a value that is not negative."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


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
    """The bytes of a trimmed file."""
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
    """The bytes of a trimmed file."""
    return b"".join(map(time_index.ENTRY.pack, entries))


def encode_index(module: ModuleType, entries: Iterable[Any]) -> bytes:
    """The bytes of a trimmed index; ``module`` is that of its format."""
    return b"".join(map(module.ENTRY.pack, entries))


def decode_index(module: ModuleType, buf: Bytes) -> tuple[Any, ...]:
    """Its entries; ``module`` is that of its format."""
    if module is offset_index:
        return decode_offset_index(buf)
    return decode_time_index(buf) if module is time_index else txn_index.decode(buf)
