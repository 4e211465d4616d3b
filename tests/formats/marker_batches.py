"""Whole batches with one marker, put together from what ``krepair.formats`` writes of each part."""

from __future__ import annotations

from krepair.formats.batch_v2 import (
    CONTROL,
    LOG_APPEND_TIME,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    encode_batch,
)
from krepair.formats.control import ControlKey, ControlType, EndTxnMarker
from krepair.formats.record import Record
from tests.encoders import encode_control_key as encode_key
from tests.encoders import encode_end_txn, encode_record


def encode_marker_batch(
    control_type: ControlType,
    *,
    base_offset: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    partition_leader_epoch: int = 0,
    log_append_time: bool = False,
) -> bytes:
    """The 78-byte batch with which a broker ends a transaction."""
    record = Record(
        key=encode_key(ControlKey(0, control_type)),
        value=encode_end_txn(EndTxnMarker(0, coordinator_epoch)),
    )
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL | (LOG_APPEND_TIME if log_append_time else 0),
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return encode_batch(header, encode_record(record))
