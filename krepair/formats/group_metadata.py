"""Records of ``__consumer_offsets``: committed offsets, classic groups, and consumer, share and streams groups.

Source: ``GroupMetadataManager.scala`` (2.2.1), ``group-coordinator/src/main/resources/common/message`` (3.9, 4.4),
``ConsumerProtocol`` schemas of the clients; KIP-211, KIP-320, KIP-345, KIP-848, KIP-932, KIP-1071.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from krepair.formats.coordinator_record import RecordTable, problem_text
from krepair.formats.damage import Bytes, Damage
from krepair.formats.field_lists import read_messages
from krepair.formats.filenames import OFFSETS_TOPIC
from krepair.formats.message_schema import VersionedMessage, decode, decode_versioned, front, read_message

CONSUMER_PROTOCOL: Final = "consumer"

OFFSET_COMMIT_OLD, OFFSET_COMMIT, GROUP_METADATA = 0, 1, 2
"""Versions of keys. Both versions of a commit key have the same fields, and brokers treat them as the same key."""

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")

MESSAGES: Final = """\
struct TopicPartitions
  topic_id   uuid    | topic id
  partitions []int32 | partitions
struct AssignedPartitions
  topic_id          uuid                      | topic id
  partitions        []int32                   | partitions
  assignment_epochs []int32 nullable=0+ tag=0 | epoch of each of them
struct NamedPartitions
  topic_id   uuid    | topic id
  topic_name string  | topic
  partitions []int32 | partitions
struct TaskIds
  subtopology_id string  | subtopology
  partitions     []int32 | partitions
struct AssignedTaskIds
  subtopology_id    string                    | subtopology
  partitions        []int32                   | partitions
  assignment_epochs []int32 nullable=0+ tag=0 | epoch of each of them
struct TopicInfo
  name               string   | topic
  partitions         int32    | how many; 0 for any number
  replication_factor int16    | 0 for the default
  topic_configs      []struct | settings of the topic
    key   string | setting
    value string | value
offset_commit key 0 api_key=0,1
  group     string | group id
  topic     string | topic
  partition int32  | partition
offset_commit value 0-4 flexible=4+
  offset           int64                 | the next offset that the group reads
  leader_epoch     int32  3+ default=-1  | of the last record read, -1 if not known
  metadata         string                | what the client added
  commit_timestamp int64                 | ms; when it was committed
  expire_timestamp int64  1-1 default=-1 | ms; when it ends, -1 by the broker's retention
  topic_id         uuid   4+ tag=0       | id of the topic
group_metadata key 0 api_key=2
  group string | group id
group_metadata value 0-4 flexible=4+
  protocol_type           string                 | consumer, connect, or what the clients chose
  generation              int32                  | grows with each rebalance
  protocol                string   nullable=0+   | the assignor that was agreed on
  leader                  string   nullable=0+   | member id of the leader
  current_state_timestamp int64    2+ default=-1 | ms; of the last change of state, -1 if not known
  members                 []struct               | the members of this generation
    member_id         string                | member id
    group_instance_id string 3+ nullable=3+ | of a static member
    client_id         string                | client id
    client_host       string                | host
    rebalance_timeout int32  1+ default=-1  | ms
    session_timeout   int32                 | ms
    subscription      bytes                 | see ConsumerProtocolSubscription
    assignment        bytes                 | see ConsumerProtocolAssignment
consumer_group_metadata key 0 api_key=3
  group_id string | group id
consumer_group_metadata value 0 flexible=0+
  epoch         int32                 | group epoch
  metadata_hash int64 tag=0 default=0 | of the subscribed topics
consumer_group_partition_metadata key 0 api_key=4
  group_id string | group id
consumer_group_partition_metadata value 0 flexible=0+
  topics []struct | topics and their partitions
    topic_id           uuid     | topic id
    topic_name         string   | topic
    num_partitions     int32    | how many
    partition_metadata []struct | racks
      partition int32    | partition
      racks     []string | racks
consumer_group_member_metadata key 0 api_key=5
  group_id  string | group id
  member_id string | member id
consumer_group_member_metadata value 0 flexible=0+
  instance_id             string   nullable=0+       | of a static member
  rack_id                 string   nullable=0+       | where it runs
  client_id               string                     | client id
  client_host             string                     | host
  subscribed_topic_names  []string                   | topics that it wants
  subscribed_topic_regex  string   nullable=0+       | or a pattern of them
  rebalance_timeout_ms    int32    default=-1        | ms
  server_assignor         string   nullable=0+       | assignor that it wants
  classic_member_metadata struct   nullable=0+ tag=0 | of a member that speaks the classic protocol
    session_timeout_ms  int32    | ms
    supported_protocols []struct | assignors that it knows
      name     string | assignor
      metadata bytes  | its subscription
consumer_group_target_assignment_metadata key 0 api_key=6
  group_id string | group id
consumer_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | ms; when it was computed
consumer_group_target_assignment_member key 0 api_key=7
  group_id  string | group id
  member_id string | member id
consumer_group_target_assignment_member value 0 flexible=0+
  topic_partitions []TopicPartitions | what it shall get
consumer_group_current_member_assignment key 0 api_key=8
  group_id  string | group id
  member_id string | member id
consumer_group_current_member_assignment value 0 flexible=0+
  member_epoch                  int32                | current epoch
  previous_member_epoch         int32                | the one before
  state                         int8                 | see MemberState
  assigned_partitions           []AssignedPartitions | what it has
  partitions_pending_revocation []AssignedPartitions | what it must give
consumer_group_regular_expression key 0 api_key=16
  group_id           string | group id
  regular_expression string | pattern of topics
consumer_group_regular_expression value 0 flexible=0+
  topics    []string | topics that fit it
  version   int64    | of the metadata it was resolved with
  timestamp int64    | ms; when it was resolved
share_group_member_metadata key 0 api_key=10
  group_id  string | group id
  member_id string | member id
share_group_member_metadata value 0 flexible=0+
  rack_id                string   nullable=0+ | where it runs
  client_id              string               | client id
  client_host            string               | host
  subscribed_topic_names []string             | topics that it wants
share_group_metadata key 0 api_key=11
  group_id string | group id
share_group_metadata value 0 flexible=0+
  epoch         int32 | group epoch
  metadata_hash int64 | of the subscribed topics
share_group_target_assignment_metadata key 0 api_key=12
  group_id string | group id
share_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | ms; when it was computed
share_group_target_assignment_member key 0 api_key=13
  group_id  string | group id
  member_id string | member id
share_group_target_assignment_member value 0 flexible=0+
  topic_partitions []TopicPartitions | what it shall get
share_group_current_member_assignment key 0 api_key=14
  group_id  string | group id
  member_id string | member id
share_group_current_member_assignment value 0 flexible=0+
  member_epoch          int32             | current epoch
  previous_member_epoch int32             | the one before
  state                 int8              | see MemberState
  assigned_partitions   []TopicPartitions | what it has
share_group_state_partition_metadata key 0 api_key=15
  group_id string | group id
share_group_state_partition_metadata value 0 flexible=0+
  initializing_topics []NamedPartitions | state is being made
  initialized_topics  []NamedPartitions | state is there
  deleting_topics     []struct          | state is going
    topic_id   uuid   | topic id
    topic_name string | topic
streams_group_metadata key 0 api_key=17
  group_id string | group id
streams_group_metadata value 0 flexible=0+
  epoch                             int32                      | group epoch
  metadata_hash                     int64                      | of the topics
  validated_topology_epoch          int32    tag=0 default=-1  | topology whose topics are there
  last_assignment_configs           []struct nullable=0+ tag=1 | settings of the last assignment
    key   string | setting
    value string | value
  stored_description_topology_epoch int32    tag=2 default=-1  | topology whose description is stored (4.4)
  failed_description_topology_epoch int32    tag=3 default=-1  | topology whose description was refused (4.4)
streams_group_member_metadata key 0 api_key=19
  group_id  string | group id
  member_id string | member id
streams_group_member_metadata value 0 flexible=0+
  instance_id          string   nullable=0+ | of a static member
  rack_id              string   nullable=0+ | where it runs
  client_id            string               | client id
  client_host          string               | host
  rebalance_timeout_ms int32    default=-1  | ms
  topology_epoch       int32                | topology that it runs
  process_id           string               | process
  user_endpoint        struct   nullable=0+ | for interactive queries
    host string | host
    port uint16 | port
  client_tags          []struct             | tags
    key   string | tag
    value string | value
streams_group_target_assignment_metadata key 0 api_key=20
  group_id string | group id
streams_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | ms; when it was computed
streams_group_target_assignment_member key 0 api_key=21
  group_id  string | group id
  member_id string | member id
streams_group_target_assignment_member value 0 flexible=0+
  active_tasks  []TaskIds | what it shall run
  standby_tasks []TaskIds | what it shall keep ready
  warmup_tasks  []TaskIds | what it shall warm up
streams_group_current_member_assignment key 0 api_key=22
  group_id  string | group id
  member_id string | member id
streams_group_current_member_assignment value 0 flexible=0+
  member_epoch                     int32             | current epoch
  previous_member_epoch            int32             | the one before
  state                            int8              | see MemberState
  active_tasks                     []AssignedTaskIds | what it runs
  standby_tasks                    []AssignedTaskIds | what it keeps ready
  warmup_tasks                     []AssignedTaskIds | what it warms up
  active_tasks_pending_revocation  []AssignedTaskIds | what it must give
  standby_tasks_pending_revocation []AssignedTaskIds | what it must give
  warmup_tasks_pending_revocation  []AssignedTaskIds | what it must give
streams_group_topology key 0 api_key=23
  group_id string | group id
streams_group_topology value 0 flexible=0+
  epoch         int32    | topology epoch
  subtopologies []struct | parts of the application
    subtopology_id            string      | subtopology
    source_topics             []string    | topics read
    source_topic_regex        []string    | patterns of topics read
    state_changelog_topics    []TopicInfo | changelogs
    repartition_sink_topics   []string    | repartition topics written
    repartition_source_topics []TopicInfo | repartition topics read
    copartition_groups        []struct    | topics that go together
      source_topics             []int16 | places in source_topics
      source_topic_regex        []int16 | places in source_topic_regex
      repartition_source_topics []int16 | places in repartition_source_topics
struct ConsumerPartitions
  topic      string  | topic
  partitions []int32 | partitions
consumer protocol subscription 0-3 newer=as-latest
  topics           []string                            | topics that the member wants
  user_data        bytes                nullable=0+    | of the assignor
  owned_partitions []ConsumerPartitions 1+             | what it still holds
  generation_id    int32                2+ default=-1  | in which it got them
  rack_id          string               3+ nullable=3+ | where it runs
consumer protocol assignment 0-3 newer=as-latest
  assigned_partitions []ConsumerPartitions             | what it may read
  user_data           bytes                nullable=0+ | of the assignor
"""

_MESSAGES: Final = read_messages(MESSAGES)
OFFSET_COMMIT_KEY: Final = _MESSAGES["offset_commit key"]
OFFSET_COMMIT_VALUE: Final = _MESSAGES["offset_commit value"]
GROUP_METADATA_KEY: Final = _MESSAGES["group_metadata key"]
GROUP_METADATA_VALUE: Final = _MESSAGES["group_metadata value"]
SUBSCRIPTION: Final = _MESSAGES["consumer protocol subscription"]
ASSIGNMENT: Final = _MESSAGES["consumer protocol assignment"]

_COMMIT_V3: Final = front(OFFSET_COMMIT_VALUE, "leader_epoch", 3)

# LegacyOffsetCommitValue of 4.3 has only version 0. Older brokers wrote any value version under both keys.
RECORDS: Final = RecordTable(OFFSETS_TOPIC, _MESSAGES)


def read_commit_key(key: bytes) -> dict[str, Any] | Damage:
    """Read an offset commit's key without its version, in a tenth of the time of ``decode``."""
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
    """Read an offset commit's value with its version, in a tenth of the time of ``decode_versioned``."""
    try:
        if value[:2] == b"\0\3":
            _, offset, leader_epoch = _COMMIT_V3.unpack_from(value)
            (size,) = _INT16.unpack_from(value, _COMMIT_V3.size)
            start = _COMMIT_V3.size + _INT16.size
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
    decoded = decode_versioned(OFFSET_COMMIT_VALUE, value)
    return decoded if isinstance(decoded, Damage) else decoded[1]


def subscribed_topics(subscription: Bytes) -> tuple[str, ...] | None:
    """Return a consumer's sorted topics; None if the bytes are not of the consumer protocol."""
    decoded = decode_versioned(SUBSCRIPTION, subscription)
    return None if isinstance(decoded, Damage) else _topics(decoded[1])


def assigned_partitions(assignment: Bytes) -> dict[str, list[int]] | None:
    """Return a consumer's partitions by topic; None if the bytes are not of the consumer protocol.

    Empty bytes mean that the leader assigned nothing to the member.
    """
    if not len(assignment):
        return {}
    decoded = decode_versioned(ASSIGNMENT, assignment)
    return None if isinstance(decoded, Damage) else _partitions(decoded[1])


def unpacked_member(member: dict[str, Any]) -> dict[str, Any]:
    """Decode the subscription and the assignment of a member of a classic consumer group.

    Each of the two stays as bytes and gets additional fields: ``_version`` and ``_fields``, and ``_left_over`` if bytes
    follow that krepair does not know; or ``_problem`` and ``_hex`` if it cannot be decoded. Topics and partitions are
    repeated in short form as ``subscribed_topics`` and ``assigned_partitions``.

    Args:
        member: an element of ``members`` of ``GROUP_METADATA_VALUE``.

    Source: ``DumpLogSegments.prepareGroupMetadataValue`` (4.3), which shows the fields in place of the bytes.
    """
    return member | _subscription(member["subscription"]) | _assignment(member["assignment"])


def _subscription(data: bytes) -> dict[str, Any]:
    message = read_message(SUBSCRIPTION, data)
    if isinstance(message, Damage):
        return _unread("subscription", data, message)
    return {"subscribed_topics": _topics(message.values)} | _read("subscription", message)


def _assignment(data: bytes) -> dict[str, Any]:
    if not data:
        return {"assigned_partitions": {}}
    message = read_message(ASSIGNMENT, data)
    if isinstance(message, Damage):
        return _unread("assignment", data, message)
    return {"assigned_partitions": _partitions(message.values)} | _read("assignment", message)


def _read(name: str, message: VersionedMessage) -> dict[str, Any]:
    fields = {f"{name}_version": message.version, f"{name}_fields": message.values}
    return fields | ({f"{name}_left_over": message.left_over} if message.left_over else {})


def _unread(name: str, data: bytes, damage: Damage) -> dict[str, Any]:
    # The problem names a byte, which a reader can count in hexadecimal digits but not in base64.
    return {f"{name}_problem": problem_text(name, damage), f"{name}_hex": data.hex()}


def _topics(subscription: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(set(subscription["topics"])))


def _partitions(assignment: dict[str, Any]) -> dict[str, list[int]]:
    return {row["topic"]: row["partitions"] for row in assignment["assigned_partitions"]}
