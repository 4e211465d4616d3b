"""Records of ``__cluster_metadata-0``, the log in which KRaft controllers keep the state of the cluster.

A record has no key. Its value begins with the version of the frame, the number of the type and the version of the type,
as unsigned varints. Only the types that say who has which partition are read; the others are named, so that an unknown
one is noticed.

Source: ``metadata/src/main/resources/common/metadata/*.json`` (3.9.0) and the classes made of them (4.3.1),
``AbstractApiMessageSerde.java``, ``SnapshotHeaderRecord.json``, ``LeaderChangeMessage.json`` (3.9.0); KIP-631, KIP-858,
KIP-866, KIP-966, KIP-1066.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from krepair.formats.damage import Bytes, Damage
from krepair.formats.message_schema import Field, Schema, decode

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
_MAX_VARINT_BYTES: Final = 5

_BROKER_ID = Field("broker_id", "int32", "broker")
_BROKER_EPOCH = Field("broker_epoch", "int64", "given by the controller when the broker registered")
_PARTITION_ID = Field("partition_id", "int32", "partition")
_TOPIC_ID = Field("topic_id", "uuid", "topic")


def _changed(name: str, kind: str, tag: int, note: str, since: int = 0) -> Field:
    """A tagged field that is null where nothing changed."""
    return Field(name, kind, f"{note}; null: as before", since=since, nullable=since, tag=tag)


REGISTER_BROKER = Schema(
    "RegisterBrokerRecord",
    4,
    (
        _BROKER_ID,
        Field("is_migrating_zk_broker", "int8", "1 while it comes from ZooKeeper", since=2),
        Field("incarnation_id", "uuid", "of the process"),
        _BROKER_EPOCH,
        Field(
            "end_points",
            "[]struct",
            "where it listens",
            fields=(
                Field("name", "string", "listener"),
                Field("host", "string", "host"),
                Field("port", "uint16", "port"),
                Field("security_protocol", "int16", "protocol"),
            ),
        ),
        Field(
            "features",
            "[]struct",
            "what it can",
            fields=(
                Field("name", "string", "feature"),
                Field("min_supported_version", "int16", "lowest level"),
                Field("max_supported_version", "int16", "highest level"),
            ),
        ),
        Field("rack", "string", "rack", nullable=0),
        Field("fenced", "int8", "1 while it is fenced"),
        Field("in_controlled_shutdown", "int8", "1 while it shuts down", since=1),
        Field("log_dirs", "[]uuid", "ids of its log directories", since=3, tag=0, default=()),
        Field("cordoned_log_dirs", "[]uuid", "those that get no new replica", since=4, nullable=4, tag=1),
    ),
    flexible=0,
)
UNREGISTER_BROKER = Schema("UnregisterBrokerRecord", 0, (_BROKER_ID, _BROKER_EPOCH), flexible=0)
TOPIC = Schema("TopicRecord", 0, (Field("name", "string", "topic"), _TOPIC_ID), flexible=0)
PARTITION = Schema(
    "PartitionRecord",
    2,
    (
        _PARTITION_ID,
        _TOPIC_ID,
        Field("replicas", "[]int32", "brokers, the preferred leader first"),
        Field("isr", "[]int32", "in-sync replicas"),
        Field("removing_replicas", "[]int32", "brokers that a reassignment takes away"),
        Field("adding_replicas", "[]int32", "brokers that a reassignment adds"),
        Field("leader", "int32", "leader, -1 without one"),
        Field("leader_recovery_state", "int8", "1 after an unclean election", tag=0, default=0),
        Field("leader_epoch", "int32", "leader epoch"),
        Field("partition_epoch", "int32", "counts every change"),
        Field("directories", "[]uuid", "log directory of each replica", since=1),
        Field("eligible_leader_replicas", "[]int32", "ELR", since=2, nullable=2, tag=1),
        Field("last_known_elr", "[]int32", "last known ELR", since=2, nullable=2, tag=2),
    ),
    flexible=0,
)
CONFIG = Schema(
    "ConfigRecord",
    0,
    (
        Field("resource_type", "int8", "2 topic, 4 broker"),
        Field("resource_name", "string", "topic or broker; empty: all brokers"),
        Field("name", "string", "setting"),
        Field("value", "string", "value; null: taken away", nullable=0),
    ),
    flexible=0,
)
PARTITION_CHANGE = Schema(
    "PartitionChangeRecord",
    2,
    (
        _PARTITION_ID,
        _TOPIC_ID,
        _changed("isr", "[]int32", 0, "in-sync replicas"),
        Field("leader", "int32", "leader; -2: as before", tag=1, default=NO_LEADER_CHANGE),
        _changed("replicas", "[]int32", 2, "brokers"),
        _changed("removing_replicas", "[]int32", 3, "brokers that a reassignment takes away"),
        _changed("adding_replicas", "[]int32", 4, "brokers that a reassignment adds"),
        Field("leader_recovery_state", "int8", "-1: as before", tag=5, default=-1),
        _changed("eligible_leader_replicas", "[]int32", 6, "ELR", since=2),
        _changed("last_known_elr", "[]int32", 7, "last known ELR", since=2),
        _changed("directories", "[]uuid", 8, "log directory of each replica", since=1),
    ),
    flexible=0,
)
_ID_AND_EPOCH = (Field("id", "int32", "broker"), Field("epoch", "int64", "broker epoch"))
FENCE_BROKER = Schema("FenceBrokerRecord", 0, _ID_AND_EPOCH, flexible=0)
UNFENCE_BROKER = Schema("UnfenceBrokerRecord", 0, _ID_AND_EPOCH, flexible=0)
REMOVE_TOPIC = Schema("RemoveTopicRecord", 0, (_TOPIC_ID,), flexible=0)
FEATURE_LEVEL = Schema(
    "FeatureLevelRecord",
    0,
    (Field("name", "string", "feature"), Field("feature_level", "int16", "its level; 0: off")),
    flexible=0,
)
BROKER_CHANGE = Schema(
    "BrokerRegistrationChangeRecord",
    3,
    (
        _BROKER_ID,
        _BROKER_EPOCH,
        Field("fenced", "int8", "-1: no longer fenced, 0: as before, 1: fenced", tag=0, default=0),
        Field("in_controlled_shutdown", "int8", "0: as before, 1: shuts down", since=1, tag=1, default=0),
        _changed("log_dirs", "[]uuid", 2, "ids of its log directories", since=2),
        _changed("cordoned_log_dirs", "[]uuid", 3, "those that get no new replica", since=3),
    ),
    flexible=0,
)
BEGIN_TRANSACTION = Schema(
    "BeginTransactionRecord", 0, (Field("name", "string", "what for", nullable=0, tag=0),), flexible=0
)
END_TRANSACTION = Schema("EndTransactionRecord", 0, (), flexible=0)
ABORT_TRANSACTION = Schema(
    "AbortTransactionRecord", 0, (Field("reason", "string", "why", nullable=0, tag=0),), flexible=0
)
CLEAR_ELR = Schema(
    "ClearElrRecord", 0, (Field("topic_name", "string", "topic; empty: every topic"),), flexible=0
)

SNAPSHOT_HEADER = Schema(
    "SnapshotHeaderRecord",
    0,
    (
        Field("version", "int16", "0"),
        Field("last_contained_log_timestamp", "int64", "ms; of the last record that it covers"),
    ),
    flexible=0,
)
LEADER_CHANGE = Schema(
    "LeaderChangeMessage",
    1,
    # The voters behind these fields are not read, so neither are the tagged fields behind the voters.
    (Field("version", "int16", "version"), Field("leader_id", "int32", "the active controller")),
)

TYPES: Final = {
    0: REGISTER_BROKER,
    1: UNREGISTER_BROKER,
    2: TOPIC,
    3: PARTITION,
    4: CONFIG,
    5: PARTITION_CHANGE,
    7: FENCE_BROKER,
    8: UNFENCE_BROKER,
    9: REMOVE_TOPIC,
    12: FEATURE_LEVEL,
    17: BROKER_CHANGE,
    23: BEGIN_TRANSACTION,
    24: END_TRANSACTION,
    25: ABORT_TRANSACTION,
    28: CLEAR_ELR,
}
"""Types that are read, by their numbers."""

PASSED_OVER: Final = {
    6: "AccessControlRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    16: "RemoveFeatureLevelRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
}
"""Types that say nothing of a partition."""


class MetadataRecord(NamedTuple):
    """One record.

    Attributes:
        schema: its type; None for a type of ``PASSED_OVER``.
        values: its fields; empty for a type of ``PASSED_OVER``.
    """

    schema: Schema | None
    values: dict[str, Any]


def decode_record(value: Bytes | None) -> MetadataRecord | Damage:
    """Read the value of a record; a ``Damage`` for wrong bytes, an unknown type or an unknown version."""
    if value is None:
        return Damage(0, 0, "a record of the cluster's metadata", "null")
    position, numbers = 0, []
    for what in ("frame version", "type", "version"):
        number = _unsigned_varint(value, position)
        if number is None:
            return Damage(position, len(value) - position, f"the {what} of a record", "no varint")
        numbers.append(number[0])
        position = number[1]
    frame, kind, version = numbers
    if frame != FRAME_VERSION:
        return Damage(0, len(value), f"frame version {FRAME_VERSION}", f"{frame}")
    schema = TYPES.get(kind)
    if schema is not None:
        values = decode(schema, version, value, position)
        return values if isinstance(values, Damage) else MetadataRecord(schema, values)
    if kind in PASSED_OVER:
        return MetadataRecord(None, {})
    return Damage(0, len(value), "a type of record that krepair knows", f"type {kind}")


def _unsigned_varint(buf: Bytes, position: int) -> tuple[int, int] | None:
    """The value and the position behind it; None if there is none."""
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(buf):
            return None
        byte = buf[position]
        position += 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, position
    return None
