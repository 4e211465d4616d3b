"""Records of ``__consumer_offsets``: committed offsets, classic groups, and consumer, share and streams groups.

Source: ``GroupMetadataManager.scala`` (2.2.1), ``group-coordinator/src/main/resources/common/message`` (3.9, 4.3),
``ConsumerProtocol`` schemas of the clients; KIP-211, KIP-320, KIP-345, KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from krepair.formats.coordinator_record import RecordTable, RecordType, problem_text
from krepair.formats.damage import Bytes, Damage
from krepair.formats.message_schema import Field, Message, Schema, decode, decode_versioned, read_message

TOPIC: Final = "__consumer_offsets"
CONSUMER_PROTOCOL: Final = "consumer"

OFFSET_COMMIT_OLD, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
"""Versions of keys. Both versions of a commit key have the same fields, and brokers take them for the same key."""

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_COMMIT_V3 = struct.Struct(">2xqih")

_GROUP = Field("group", "string", "group id")
_GROUP_ID = Field("group_id", "string", "group id")
_MEMBER_ID = Field("member_id", "string", "member id")

OFFSET_COMMIT_KEY = Schema(
    "offset_commit key",
    0,
    (_GROUP, Field("topic", "string", "topic"), Field("partition", "int32", "partition")),
)
OFFSET_COMMIT_VALUE = Schema(
    "offset_commit value",
    4,
    (
        Field("offset", "int64", "the next offset that the group reads"),
        Field("leader_epoch", "int32", "of the last record read, -1 if not known", since=3, default=-1),
        Field("metadata", "string", "what the client added"),
        Field("commit_timestamp", "int64", "ms; when it was committed"),
        Field(
            "expire_timestamp",
            "int64",
            "ms; when it ends, -1 by the broker's retention",
            since=1,
            until=1,
            default=-1,
        ),
        Field("topic_id", "uuid", "id of the topic", since=4, tag=0),
    ),
    flexible=4,
)
GROUP_METADATA_KEY = Schema("group_metadata key", 0, (_GROUP,))
GROUP_METADATA_VALUE = Schema(
    "group_metadata value",
    4,
    (
        Field("protocol_type", "string", "consumer, connect, or what the clients chose"),
        Field("generation", "int32", "grows with each rebalance"),
        Field("protocol", "string", "the assignor that was agreed on", nullable=0),
        Field("leader", "string", "member id of the leader", nullable=0),
        Field(
            "current_state_timestamp",
            "int64",
            "ms; of the last change of state, -1 if not known",
            since=2,
            default=-1,
        ),
        Field(
            "members",
            "[]struct",
            "the members of this generation",
            fields=(
                Field("member_id", "string", "member id"),
                Field("group_instance_id", "string", "of a static member", since=3, nullable=3),
                Field("client_id", "string", "client id"),
                Field("client_host", "string", "host"),
                Field("rebalance_timeout", "int32", "ms", since=1, default=-1),
                Field("session_timeout", "int32", "ms"),
                Field("subscription", "bytes", "see ConsumerProtocolSubscription"),
                Field("assignment", "bytes", "see ConsumerProtocolAssignment"),
            ),
        ),
    ),
    flexible=4,
)

_PROTOCOL_PARTITIONS = (Field("topic", "string", "topic"), Field("partitions", "[]int32", "partitions"))
SUBSCRIPTION = Schema(
    "consumer protocol subscription",
    3,
    (
        Field("topics", "[]string", "topics that the member wants"),
        Field("user_data", "bytes", "of the assignor", nullable=0),
        Field("owned_partitions", "[]struct", "what it still holds", since=1, fields=_PROTOCOL_PARTITIONS),
        Field("generation_id", "int32", "in which it got them", since=2, default=-1),
        Field("rack_id", "string", "where it runs", since=3, nullable=3),
    ),
    newer_are_read=True,
)
ASSIGNMENT = Schema(
    "consumer protocol assignment",
    3,
    (
        Field("assigned_partitions", "[]struct", "what it may read", fields=_PROTOCOL_PARTITIONS),
        Field("user_data", "bytes", "of the assignor", nullable=0),
    ),
    newer_are_read=True,
)

_ID_PARTITIONS = (Field("topic_id", "uuid", "topic id"), Field("partitions", "[]int32", "partitions"))
_EPOCHS = Field("assignment_epochs", "[]int32", "epoch of each of them", nullable=0, tag=0)
_ASSIGNMENT_TIME = Field("assignment_timestamp", "int64", "ms; when it was computed", tag=0, default=0)


def _member(name: str, key_version: int, *fields: Field) -> RecordType:
    return _type(name, key_version, (_GROUP_ID, _MEMBER_ID), fields)


def _group(name: str, key_version: int, *fields: Field) -> RecordType:
    return _type(name, key_version, (_GROUP_ID,), fields)


def _type(name: str, key_version: int, key: tuple[Field, ...], value: tuple[Field, ...]) -> RecordType:
    return RecordType(
        key_version, name, Schema(f"{name} key", 0, key), Schema(f"{name} value", 0, value, flexible=0)
    )


def _tasks(name: str, note: str, *more: Field) -> Field:
    task = (Field("subtopology_id", "string", "subtopology"), Field("partitions", "[]int32", "partitions"))
    return Field(name, "[]struct", note, fields=(*task, *more))


_CLIENT = (
    Field("instance_id", "string", "of a static member", nullable=0),
    Field("rack_id", "string", "where it runs", nullable=0),
    Field("client_id", "string", "client id"),
    Field("client_host", "string", "host"),
)
_MEMBER_STATE = (
    Field("member_epoch", "int32", "current epoch"),
    Field("previous_member_epoch", "int32", "the one before"),
    Field("state", "int8", "see MemberState"),
)
_TOPIC_INFO = (
    Field("name", "string", "topic"),
    Field("partitions", "int32", "how many; 0 for any number"),
    Field("replication_factor", "int16", "0 for the default"),
    Field(
        "topic_configs",
        "[]struct",
        "settings of the topic",
        fields=(Field("key", "string", "setting"), Field("value", "string", "value")),
    ),
)
_NAMED_PARTITIONS = (
    Field("topic_id", "uuid", "topic id"),
    Field("topic_name", "string", "topic"),
    Field("partitions", "[]int32", "partitions"),
)

CONSUMER_GROUP_TYPES: Final = (
    _group(
        "consumer_group_metadata",
        3,
        Field("epoch", "int32", "group epoch"),
        Field("metadata_hash", "int64", "of the subscribed topics", tag=0, default=0),
    ),
    _group(
        "consumer_group_partition_metadata",
        4,
        Field(
            "topics",
            "[]struct",
            "topics and their partitions",
            fields=(
                Field("topic_id", "uuid", "topic id"),
                Field("topic_name", "string", "topic"),
                Field("num_partitions", "int32", "how many"),
                Field(
                    "partition_metadata",
                    "[]struct",
                    "racks",
                    fields=(Field("partition", "int32", "partition"), Field("racks", "[]string", "racks")),
                ),
            ),
        ),
    ),
    _member(
        "consumer_group_member_metadata",
        5,
        *_CLIENT,
        Field("subscribed_topic_names", "[]string", "topics that it wants"),
        Field("subscribed_topic_regex", "string", "or a pattern of them", nullable=0),
        Field("rebalance_timeout_ms", "int32", "ms", default=-1),
        Field("server_assignor", "string", "assignor that it wants", nullable=0),
        Field(
            "classic_member_metadata",
            "struct",
            "of a member that speaks the classic protocol",
            nullable=0,
            tag=0,
            fields=(
                Field("session_timeout_ms", "int32", "ms"),
                Field(
                    "supported_protocols",
                    "[]struct",
                    "assignors that it knows",
                    fields=(
                        Field("name", "string", "assignor"),
                        Field("metadata", "bytes", "its subscription"),
                    ),
                ),
            ),
        ),
    ),
    _group(
        "consumer_group_target_assignment_metadata",
        6,
        Field("assignment_epoch", "int32", "assignment epoch"),
        _ASSIGNMENT_TIME,
    ),
    _member(
        "consumer_group_target_assignment_member",
        7,
        Field("topic_partitions", "[]struct", "what it shall get", fields=_ID_PARTITIONS),
    ),
    _member(
        "consumer_group_current_member_assignment",
        8,
        *_MEMBER_STATE,
        Field("assigned_partitions", "[]struct", "what it has", fields=(*_ID_PARTITIONS, _EPOCHS)),
        Field(
            "partitions_pending_revocation",
            "[]struct",
            "what it must give",
            fields=(*_ID_PARTITIONS, _EPOCHS),
        ),
    ),
    _type(
        "consumer_group_regular_expression",
        16,
        (_GROUP_ID, Field("regular_expression", "string", "pattern of topics")),
        (
            Field("topics", "[]string", "topics that fit it"),
            Field("version", "int64", "of the metadata it was resolved with"),
            Field("timestamp", "int64", "ms; when it was resolved"),
        ),
    ),
)

SHARE_GROUP_TYPES: Final = (
    _member(
        "share_group_member_metadata",
        10,
        *_CLIENT[1:],
        Field("subscribed_topic_names", "[]string", "topics that it wants"),
    ),
    _group(
        "share_group_metadata",
        11,
        Field("epoch", "int32", "group epoch"),
        Field("metadata_hash", "int64", "of the subscribed topics"),
    ),
    _group(
        "share_group_target_assignment_metadata",
        12,
        Field("assignment_epoch", "int32", "assignment epoch"),
        _ASSIGNMENT_TIME,
    ),
    _member(
        "share_group_target_assignment_member",
        13,
        Field("topic_partitions", "[]struct", "what it shall get", fields=_ID_PARTITIONS),
    ),
    _member(
        "share_group_current_member_assignment",
        14,
        *_MEMBER_STATE,
        Field("assigned_partitions", "[]struct", "what it has", fields=_ID_PARTITIONS),
    ),
    _group(
        "share_group_state_partition_metadata",
        15,
        Field("initializing_topics", "[]struct", "state is being made", fields=_NAMED_PARTITIONS),
        Field("initialized_topics", "[]struct", "state is there", fields=_NAMED_PARTITIONS),
        Field("deleting_topics", "[]struct", "state is going", fields=_NAMED_PARTITIONS[:2]),
    ),
)

STREAMS_GROUP_TYPES: Final = (
    _group(
        "streams_group_metadata",
        17,
        Field("epoch", "int32", "group epoch"),
        Field("metadata_hash", "int64", "of the topics"),
        Field("validated_topology_epoch", "int32", "topology whose topics are there", tag=0, default=-1),
        Field(
            "last_assignment_configs",
            "[]struct",
            "settings of the last assignment",
            nullable=0,
            tag=1,
            fields=(Field("key", "string", "setting"), Field("value", "string", "value")),
        ),
    ),
    _member(
        "streams_group_member_metadata",
        19,
        *_CLIENT,
        Field("rebalance_timeout_ms", "int32", "ms", default=-1),
        Field("topology_epoch", "int32", "topology that it runs"),
        Field("process_id", "string", "process"),
        Field(
            "user_endpoint",
            "struct",
            "for interactive queries",
            nullable=0,
            fields=(Field("host", "string", "host"), Field("port", "uint16", "port")),
        ),
        Field(
            "client_tags",
            "[]struct",
            "tags",
            fields=(Field("key", "string", "tag"), Field("value", "string", "value")),
        ),
    ),
    _group(
        "streams_group_target_assignment_metadata",
        20,
        Field("assignment_epoch", "int32", "assignment epoch"),
        _ASSIGNMENT_TIME,
    ),
    _member(
        "streams_group_target_assignment_member",
        21,
        _tasks("active_tasks", "what it shall run"),
        _tasks("standby_tasks", "what it shall keep ready"),
        _tasks("warmup_tasks", "what it shall warm up"),
    ),
    _member(
        "streams_group_current_member_assignment",
        22,
        *_MEMBER_STATE,
        _tasks("active_tasks", "what it runs", _EPOCHS),
        _tasks("standby_tasks", "what it keeps ready", _EPOCHS),
        _tasks("warmup_tasks", "what it warms up", _EPOCHS),
        _tasks("active_tasks_pending_revocation", "what it must give", _EPOCHS),
        _tasks("standby_tasks_pending_revocation", "what it must give", _EPOCHS),
        _tasks("warmup_tasks_pending_revocation", "what it must give", _EPOCHS),
    ),
    _group(
        "streams_group_topology",
        23,
        Field("epoch", "int32", "topology epoch"),
        Field(
            "subtopologies",
            "[]struct",
            "parts of the application",
            fields=(
                Field("subtopology_id", "string", "subtopology"),
                Field("source_topics", "[]string", "topics read"),
                Field("source_topic_regex", "[]string", "patterns of topics read"),
                Field("state_changelog_topics", "[]struct", "changelogs", fields=_TOPIC_INFO),
                Field("repartition_sink_topics", "[]string", "repartition topics written"),
                Field("repartition_source_topics", "[]struct", "repartition topics read", fields=_TOPIC_INFO),
                Field(
                    "copartition_groups",
                    "[]struct",
                    "topics that go together",
                    fields=(
                        Field("source_topics", "[]int16", "places in source_topics"),
                        Field("source_topic_regex", "[]int16", "places in source_topic_regex"),
                        Field("repartition_source_topics", "[]int16", "places in repartition_source_topics"),
                    ),
                ),
            ),
        ),
    ),
)

RECORDS: Final = RecordTable(
    TOPIC,
    (
        # LegacyOffsetCommitValue of 4.3 has only version 0. Older brokers wrote any value version under both keys.
        RecordType(OFFSET_COMMIT_OLD, "offset_commit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE),
        RecordType(OFFSET_COMMIT, "offset_commit", OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE),
        RecordType(GROUP_METADATA, "group_metadata", GROUP_METADATA_KEY, GROUP_METADATA_VALUE),
        *CONSUMER_GROUP_TYPES,
        *SHARE_GROUP_TYPES,
        *STREAMS_GROUP_TYPES,
    ),
)


def read_commit_key(key: bytes) -> dict[str, Any] | Damage:
    """Read the key of an offset commit without its version; like ``decode``, but in a tenth of the time."""
    try:
        group_end = 2 + _INT16.unpack_from(key)[0]
        topic_end = group_end + 2 + _INT16.unpack_from(key, group_end)[0]
        (partition,) = _INT32.unpack_from(key, topic_end)
        if 2 <= group_end <= topic_end - 2:
            return {
                "group": key[2:group_end].decode(),
                "topic": key[group_end + 2 : topic_end].decode(),
                "partition": partition,
            }
    except (struct.error, UnicodeDecodeError):
        pass
    return decode(OFFSET_COMMIT_KEY, 0, key)


def read_commit_value(value: bytes) -> dict[str, Any] | Damage:
    """Read the value of an offset commit with its version; like ``decode_versioned``, but in a tenth of the time."""
    try:
        if value[:2] == b"\0\3":
            offset, leader_epoch, size = _COMMIT_V3.unpack_from(value)
            start = _COMMIT_V3.size
            (timestamp,) = _INT64.unpack_from(value, start + size)
            if size >= 0:
                return {
                    "offset": offset,
                    "leader_epoch": leader_epoch,
                    "metadata": value[start : start + size].decode(),
                    "commit_timestamp": timestamp,
                }
    except (struct.error, UnicodeDecodeError):
        pass
    found = decode_versioned(OFFSET_COMMIT_VALUE, value)
    return found if isinstance(found, Damage) else found[1]


def subscribed_topics(subscription: Bytes) -> tuple[str, ...] | None:
    """Sorted topics of a member of a consumer group; None if the bytes are not of the consumer protocol."""
    found = decode_versioned(SUBSCRIPTION, subscription)
    return None if isinstance(found, Damage) else _topics(found[1])


def assigned_partitions(assignment: Bytes) -> dict[str, list[int]] | None:
    """Partitions by topic of a member of a consumer group; None if the bytes are not of the consumer protocol.

    Empty bytes mean that the leader assigned nothing to the member.
    """
    if not len(assignment):
        return {}
    found = decode_versioned(ASSIGNMENT, assignment)
    return None if isinstance(found, Damage) else _partitions(found[1])


def unpacked_member(member: dict[str, Any]) -> dict[str, Any]:
    """A member of a classic consumer group with its subscription and its assignment read.

    Each of the two stays as bytes, and gets fields beside it: ``_version`` and ``_fields``, and ``_left_over`` where
    bytes follow that krepair does not know; or ``_problem`` and ``_hex`` where it cannot be read. The topics and the
    partitions are there once more in short, as ``subscribed_topics`` and ``assigned_partitions``.

    Args:
        member: an element of ``members`` of ``GROUP_METADATA_VALUE``.

    Source: ``DumpLogSegments.prepareGroupMetadataValue`` (4.3), which shows the fields in place of the bytes.
    """
    return member | _subscription(member["subscription"]) | _assignment(member["assignment"])


def _subscription(data: bytes) -> dict[str, Any]:
    found = read_message(SUBSCRIPTION, data)
    if isinstance(found, Damage):
        return _unread("subscription", data, found)
    return {"subscribed_topics": _topics(found.values)} | _read("subscription", found)


def _assignment(data: bytes) -> dict[str, Any]:
    if not data:
        return {"assigned_partitions": {}}
    found = read_message(ASSIGNMENT, data)
    if isinstance(found, Damage):
        return _unread("assignment", data, found)
    return {"assigned_partitions": _partitions(found.values)} | _read("assignment", found)


def _read(name: str, message: Message) -> dict[str, Any]:
    fields = {f"{name}_version": message.version, f"{name}_fields": message.values}
    return fields | ({f"{name}_left_over": message.left_over} if message.left_over else {})


def _unread(name: str, data: bytes, damage: Damage) -> dict[str, Any]:
    # The problem names a byte. It can be counted in hexadecimal digits, but not in base64.
    return {f"{name}_problem": problem_text(name, damage), f"{name}_hex": data.hex()}


def _topics(subscription: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(set(subscription["topics"])))


def _partitions(assignment: dict[str, Any]) -> dict[str, list[int]]:
    return {row["topic"]: row["partitions"] for row in assignment["assigned_partitions"]}
