"""Records and batches of the metadata log, as a controller writes them."""

from __future__ import annotations

from krepair.formats import cluster_metadata as metadata
from krepair.formats.batch_v2 import BatchHeader, encode_batch
from krepair.formats.message_schema import Schema
from krepair.formats.record import Record
from tests.encoders import encode_fields as encode
from tests.encoders import encode_record


def value(schema: Schema, values: dict[str, object], version: int | None = None) -> bytes:
    number = next(number for number, one in metadata.TYPES.items() if one is schema)
    level = schema.latest if version is None else version
    return bytes([metadata.FRAME_VERSION, number, level]) + encode(schema, level, values)


def batch(base_offset: int, values: list[bytes], time_ms: int = 1000) -> bytes:
    records = b"".join(encode_record(Record(offset_delta=n, value=one)) for n, one in enumerate(values))
    header = BatchHeader(
        base_offset, 0, 1, 2, 0, 0, len(values) - 1, time_ms, time_ms, -1, -1, -1, len(values)
    )
    return encode_batch(header, records)
