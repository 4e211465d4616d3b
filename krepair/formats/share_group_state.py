"""Records of ``__share_group_state``: the progress of share groups in their partitions (KIP-932).

Source: ``share-coordinator/src/main/resources/common/message`` (4.3).
"""

from __future__ import annotations

from typing import Final

from krepair.formats.coordinator_record import RecordTable, RecordType
from krepair.formats.message_schema import Field, Schema

TOPIC: Final = "__share_group_state"

_KEY = (
    Field("group_id", "string", "share group"),
    Field("topic_id", "uuid", "topic id"),
    Field("partition", "int32", "partition"),
)
_COUNT = Field("delivery_complete_count", "int32", "records done above the start offset", tag=0, default=-1)
_BATCHES = Field(
    "state_batches",
    "[]struct",
    "runs of records in flight",
    fields=(
        Field("first_offset", "int64", "first record"),
        Field("last_offset", "int64", "last record"),
        Field("delivery_state", "int8", "0 available, 2 acknowledged, 4 archived"),
        Field("delivery_count", "int16", "how often it was delivered"),
    ),
)
SNAPSHOT_KEY = Schema("share_snapshot key", 0, _KEY)
SNAPSHOT_VALUE = Schema(
    "share_snapshot value",
    0,
    (
        Field("snapshot_epoch", "int32", "grows with each snapshot"),
        Field("state_epoch", "int32", "state epoch"),
        Field("leader_epoch", "int32", "of the partition"),
        Field("start_offset", "int64", "all before it are done"),
        _COUNT,
        Field("create_timestamp", "int64", "ms"),
        Field("write_timestamp", "int64", "ms"),
        _BATCHES,
    ),
    flexible=0,
)
UPDATE_KEY = Schema("share_update key", 0, _KEY)
UPDATE_VALUE = Schema(
    "share_update value",
    0,
    (
        Field("snapshot_epoch", "int32", "of the snapshot that it continues"),
        Field("leader_epoch", "int32", "of the partition"),
        Field("start_offset", "int64", "all before it are done"),
        _COUNT,
        _BATCHES,
    ),
    flexible=0,
)

RECORDS: Final = RecordTable(
    TOPIC,
    (
        RecordType(0, "share_snapshot", SNAPSHOT_KEY, SNAPSHOT_VALUE),
        RecordType(1, "share_update", UPDATE_KEY, UPDATE_VALUE),
    ),
)
