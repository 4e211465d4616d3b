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
  assignment_epochs []int32 nullable=0+ tag=0 | assignment epoch of each partition
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
  assignment_epochs []int32 nullable=0+ tag=0 | assignment epoch of each partition
struct TopicInfo
  name               string   | topic
  partitions         int32    | number of partitions; 0 for any number
  replication_factor int16    | replication factor; 0 for the default
  topic_configs      []struct | settings of the topic
    key   string | name of the setting
    value string | value
offset_commit key 0 api_key=0,1
  group     string | group id
  topic     string | topic
  partition int32  | partition
offset_commit value 0-4 flexible=4+
  offset           int64                 | next offset that the group reads
  leader_epoch     int32  3+ default=-1  | leader epoch of the last record read, -1 if unknown
  metadata         string                | text of the client
  commit_timestamp int64                 | time of the commit in ms
  expire_timestamp int64  1-1 default=-1 | time of expiry in ms, -1 for the broker's retention
  topic_id         uuid   4+ tag=0       | topic id
group_metadata key 0 api_key=2
  group string | group id
group_metadata value 0-4 flexible=4+
  protocol_type           string                 | consumer, connect, or the clients' own type
  generation              int32                  | generation; a rebalance increases it
  protocol                string   nullable=0+   | assignor that the members agreed on
  leader                  string   nullable=0+   | member id of the leader
  current_state_timestamp int64    2+ default=-1 | time of the last change of state in ms, -1 if unknown
  members                 []struct               | members of this generation
    member_id         string                | member id
    group_instance_id string 3+ nullable=3+ | instance id of a static member
    client_id         string                | client id
    client_host       string                | host
    rebalance_timeout int32  1+ default=-1  | rebalance timeout in ms
    session_timeout   int32                 | session timeout in ms
    subscription      bytes                 | bytes of the consumer protocol subscription
    assignment        bytes                 | bytes of the consumer protocol assignment
consumer_group_metadata key 0 api_key=3
  group_id string | group id
consumer_group_metadata value 0 flexible=0+
  epoch         int32                 | group epoch
  metadata_hash int64 tag=0 default=0 | hash of the subscribed topics' metadata
consumer_group_partition_metadata key 0 api_key=4
  group_id string | group id
consumer_group_partition_metadata value 0 flexible=0+
  topics []struct | topics and their partitions
    topic_id           uuid     | topic id
    topic_name         string   | topic
    num_partitions     int32    | number of partitions
    partition_metadata []struct | racks of each partition
      partition int32    | partition
      racks     []string | racks of the replicas
consumer_group_member_metadata key 0 api_key=5
  group_id  string | group id
  member_id string | member id
consumer_group_member_metadata value 0 flexible=0+
  instance_id             string   nullable=0+       | instance id of a static member
  rack_id                 string   nullable=0+       | rack in which the member runs
  client_id               string                     | client id
  client_host             string                     | host
  subscribed_topic_names  []string                   | topics that the member subscribes to
  subscribed_topic_regex  string   nullable=0+       | pattern of topics that the member subscribes to
  rebalance_timeout_ms    int32    default=-1        | rebalance timeout in ms
  server_assignor         string   nullable=0+       | assignor that the member requests
  classic_member_metadata struct   nullable=0+ tag=0 | data of a member with the classic protocol
    session_timeout_ms  int32    | session timeout in ms
    supported_protocols []struct | assignors that the member supports
      name     string | assignor
      metadata bytes  | subscription of the member
consumer_group_target_assignment_metadata key 0 api_key=6
  group_id string | group id
consumer_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | time of the computation in ms
consumer_group_target_assignment_member key 0 api_key=7
  group_id  string | group id
  member_id string | member id
consumer_group_target_assignment_member value 0 flexible=0+
  topic_partitions []TopicPartitions | partitions that the member will get
consumer_group_current_member_assignment key 0 api_key=8
  group_id  string | group id
  member_id string | member id
consumer_group_current_member_assignment value 0 flexible=0+
  member_epoch                  int32                | current epoch
  previous_member_epoch         int32                | previous epoch
  state                         int8                 | state of the member
  assigned_partitions           []AssignedPartitions | partitions that the member has
  partitions_pending_revocation []AssignedPartitions | partitions that the member must give up
consumer_group_regular_expression key 0 api_key=16
  group_id           string | group id
  regular_expression string | pattern of topics
consumer_group_regular_expression value 0 flexible=0+
  topics    []string | topics that match the pattern
  version   int64    | version of the metadata used
  timestamp int64    | time of the resolution in ms
share_group_member_metadata key 0 api_key=10
  group_id  string | group id
  member_id string | member id
share_group_member_metadata value 0 flexible=0+
  rack_id                string   nullable=0+ | rack in which the member runs
  client_id              string               | client id
  client_host            string               | host
  subscribed_topic_names []string             | topics that the member subscribes to
share_group_metadata key 0 api_key=11
  group_id string | group id
share_group_metadata value 0 flexible=0+
  epoch         int32 | group epoch
  metadata_hash int64 | hash of the subscribed topics' metadata
share_group_target_assignment_metadata key 0 api_key=12
  group_id string | group id
share_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | time of the computation in ms
share_group_target_assignment_member key 0 api_key=13
  group_id  string | group id
  member_id string | member id
share_group_target_assignment_member value 0 flexible=0+
  topic_partitions []TopicPartitions | partitions that the member will get
share_group_current_member_assignment key 0 api_key=14
  group_id  string | group id
  member_id string | member id
share_group_current_member_assignment value 0 flexible=0+
  member_epoch          int32             | current epoch
  previous_member_epoch int32             | previous epoch
  state                 int8              | state of the member
  assigned_partitions   []TopicPartitions | partitions that the member has
share_group_state_partition_metadata key 0 api_key=15
  group_id string | group id
share_group_state_partition_metadata value 0 flexible=0+
  initializing_topics []NamedPartitions | topics whose state is being created
  initialized_topics  []NamedPartitions | topics with state
  deleting_topics     []struct          | topics whose state is being deleted
    topic_id   uuid   | topic id
    topic_name string | topic
streams_group_metadata key 0 api_key=17
  group_id string | group id
streams_group_metadata value 0 flexible=0+
  epoch                             int32                      | group epoch
  metadata_hash                     int64                      | hash of the topics' metadata
  validated_topology_epoch          int32    tag=0 default=-1  | epoch of the topology whose topics exist
  last_assignment_configs           []struct nullable=0+ tag=1 | settings of the last assignment
    key   string | name of the setting
    value string | value
  stored_description_topology_epoch int32    tag=2 default=-1  | topology epoch whose description is stored (4.4)
  failed_description_topology_epoch int32    tag=3 default=-1  | topology epoch whose description was refused (4.4)
streams_group_member_metadata key 0 api_key=19
  group_id  string | group id
  member_id string | member id
streams_group_member_metadata value 0 flexible=0+
  instance_id          string   nullable=0+ | instance id of a static member
  rack_id              string   nullable=0+ | rack in which the member runs
  client_id            string               | client id
  client_host          string               | host
  rebalance_timeout_ms int32    default=-1  | rebalance timeout in ms
  topology_epoch       int32                | epoch of the topology that the member runs
  process_id           string               | id of the process
  user_endpoint        struct   nullable=0+ | address for interactive queries
    host string | host
    port uint16 | port
  client_tags          []struct             | tags of the client
    key   string | name of the tag
    value string | value
streams_group_target_assignment_metadata key 0 api_key=20
  group_id string | group id
streams_group_target_assignment_metadata value 0 flexible=0+
  assignment_epoch     int32                 | assignment epoch
  assignment_timestamp int64 tag=0 default=0 | time of the computation in ms
streams_group_target_assignment_member key 0 api_key=21
  group_id  string | group id
  member_id string | member id
streams_group_target_assignment_member value 0 flexible=0+
  active_tasks  []TaskIds | tasks that the member will run
  standby_tasks []TaskIds | standby tasks that the member will keep
  warmup_tasks  []TaskIds | tasks that the member will warm up
streams_group_current_member_assignment key 0 api_key=22
  group_id  string | group id
  member_id string | member id
streams_group_current_member_assignment value 0 flexible=0+
  member_epoch                     int32             | current epoch
  previous_member_epoch            int32             | previous epoch
  state                            int8              | state of the member
  active_tasks                     []AssignedTaskIds | tasks that the member runs
  standby_tasks                    []AssignedTaskIds | standby tasks of the member
  warmup_tasks                     []AssignedTaskIds | tasks that the member warms up
  active_tasks_pending_revocation  []AssignedTaskIds | tasks that the member must give up
  standby_tasks_pending_revocation []AssignedTaskIds | tasks that the member must give up
  warmup_tasks_pending_revocation  []AssignedTaskIds | tasks that the member must give up
streams_group_topology key 0 api_key=23
  group_id string | group id
streams_group_topology value 0 flexible=0+
  epoch         int32    | topology epoch
  subtopologies []struct | parts of the application
    subtopology_id            string      | subtopology
    source_topics             []string    | topics that are read
    source_topic_regex        []string    | patterns of topics that are read
    state_changelog_topics    []TopicInfo | changelog topics
    repartition_sink_topics   []string    | repartition topics that are written
    repartition_source_topics []TopicInfo | repartition topics that are read
    copartition_groups        []struct    | topics with the same partitioning
      source_topics             []int16 | indexes into source_topics
      source_topic_regex        []int16 | indexes into source_topic_regex
      repartition_source_topics []int16 | indexes into repartition_source_topics
struct ConsumerPartitions
  topic      string  | topic
  partitions []int32 | partitions
consumer protocol subscription 0-3 newer=as-latest
  topics           []string                            | topics that the member subscribes to
  user_data        bytes                nullable=0+    | data of the assignor
  owned_partitions []ConsumerPartitions 1+             | partitions that the member still owns
  generation_id    int32                2+ default=-1  | generation in which the member got them
  rack_id          string               3+ nullable=3+ | rack in which the member runs
consumer protocol assignment 0-3 newer=as-latest
  assigned_partitions []ConsumerPartitions             | partitions that the member may read
  user_data           bytes                nullable=0+ | data of the assignor
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

    Subscription and assignment remain as bytes, and each gets additional fields: ``_version`` and ``_fields``, and
    ``_left_over`` if bytes follow that krepair does not know; or ``_problem`` and ``_hex`` if it cannot be decoded.
    Topics and partitions are repeated in short form as ``subscribed_topics`` and ``assigned_partitions``.

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
