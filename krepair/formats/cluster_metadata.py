"""Records of ``__cluster_metadata-0``, the log in which KRaft controllers keep the state of the cluster.

A record has no key. Its value begins with three unsigned varints: the frame version, the number of the record type, and
the version of that type. krepair reads only the types that affect which brokers have which partition. It lists the
other types by name, so that a new, unknown type is noticed.

Source: ``metadata/src/main/resources/common/metadata/*.json`` (3.9.0) and the classes generated from them (4.3.1),
``AbstractApiMessageSerde.java``, ``SnapshotHeaderRecord.json``, ``VotersRecord.json`` (3.9.0); KIP-631, KIP-853,
KIP-858, KIP-866, KIP-966, KIP-1066.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from krepair.formats.damage import Bytes, Damage
from krepair.formats.field_lists import read_messages
from krepair.formats.message_schema import Schema, decode
from krepair.formats.varint import read_unsigned

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
NO_LEADER_CHANGE: Final = -2
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

MESSAGES: Final = """\
RegisterBrokerRecord 0-4 api_key=0 flexible=0+
  broker_id              int32                         | broker
  is_migrating_zk_broker int8     2+                   | 1 while it comes from ZooKeeper
  incarnation_id         uuid                          | of the process
  broker_epoch           int64                         | given by the controller when the broker registered
  end_points             []struct                      | where it listens
    name              string | listener
    host              string | host
    port              uint16 | port
    security_protocol int16  | protocol
  features               []struct                      | what it can
    name                  string | feature
    min_supported_version int16  | lowest level
    max_supported_version int16  | highest level
  rack                   string   nullable=0+          | rack
  fenced                 int8                          | 1 while it is fenced
  in_controlled_shutdown int8     1+                   | 1 while it shuts down
  log_dirs               []uuid   3+ tag=0 default=[]  | ids of its log directories
  cordoned_log_dirs      []uuid   4+ nullable=4+ tag=1 | those that get no new replica
UnregisterBrokerRecord 0 api_key=1 flexible=0+
  broker_id    int32 | broker
  broker_epoch int64 | given by the controller when the broker registered
TopicRecord 0 api_key=2 flexible=0+
  name     string | topic
  topic_id uuid   | topic
PartitionRecord 0-2 api_key=3 flexible=0+
  partition_id             int32                        | partition
  topic_id                 uuid                         | topic
  replicas                 []int32                      | brokers, the preferred leader first
  isr                      []int32                      | in-sync replicas
  removing_replicas        []int32                      | brokers that a reassignment takes away
  adding_replicas          []int32                      | brokers that a reassignment adds
  leader                   int32                        | leader, -1 without one
  leader_recovery_state    int8    tag=0 default=0      | 1 after an unclean election
  leader_epoch             int32                        | leader epoch
  partition_epoch          int32                        | counts every change
  directories              []uuid  1+                   | log directory of each replica
  eligible_leader_replicas []int32 2+ nullable=2+ tag=1 | ELR
  last_known_elr           []int32 2+ nullable=2+ tag=2 | last known ELR
ConfigRecord 0 api_key=4 flexible=0+
  resource_type int8               | 2 topic, 4 broker
  resource_name string             | topic or broker; empty: all brokers
  name          string             | setting
  value         string nullable=0+ | value; null: taken away
PartitionChangeRecord 0-2 api_key=5 flexible=0+
  partition_id             int32                        | partition
  topic_id                 uuid                         | topic
  isr                      []int32 nullable=0+ tag=0    | in-sync replicas; null: as before
  leader                   int32   tag=1 default=-2     | leader; -2: as before
  replicas                 []int32 nullable=0+ tag=2    | brokers; null: as before
  removing_replicas        []int32 nullable=0+ tag=3    | brokers that a reassignment takes away; null: as before
  adding_replicas          []int32 nullable=0+ tag=4    | brokers that a reassignment adds; null: as before
  leader_recovery_state    int8    tag=5 default=-1     | -1: as before
  eligible_leader_replicas []int32 2+ nullable=2+ tag=6 | ELR; null: as before
  last_known_elr           []int32 2+ nullable=2+ tag=7 | last known ELR; null: as before
  directories              []uuid  1+ nullable=1+ tag=8 | log directory of each replica; null: as before
FenceBrokerRecord 0 api_key=7 flexible=0+
  id    int32 | broker
  epoch int64 | given by the controller when the broker registered
UnfenceBrokerRecord 0 api_key=8 flexible=0+
  id    int32 | broker
  epoch int64 | given by the controller when the broker registered
RemoveTopicRecord 0 api_key=9 flexible=0+
  topic_id uuid | topic
FeatureLevelRecord 0 api_key=12 flexible=0+
  name          string | feature, such as metadata.version
  feature_level int16  | level; 0: not in use
BrokerRegistrationChangeRecord 0-3 api_key=17 flexible=0+
  broker_id              int32                       | broker
  broker_epoch           int64                       | given by the controller when the broker registered
  fenced                 int8   tag=0 default=0      | -1: no longer fenced, 0: as before, 1: fenced
  in_controlled_shutdown int8   1+ tag=1 default=0   | 0: as before, 1: shuts down
  log_dirs               []uuid 2+ nullable=2+ tag=2 | ids of its log directories; null: as before
  cordoned_log_dirs      []uuid 3+ nullable=3+ tag=3 | those that get no new replica; null: as before
BeginTransactionRecord 0 api_key=23 flexible=0+
  name string nullable=0+ tag=0 | what for
EndTransactionRecord 0 api_key=24 flexible=0+
AbortTransactionRecord 0 api_key=25 flexible=0+
  reason string nullable=0+ tag=0 | why
RegisterControllerRecord 0 api_key=27 flexible=0+
  controller_id      int32    | controller
  incarnation_id     uuid     | of the process
  zk_migration_ready int8     | 1 if it can take over from ZooKeeper
  end_points         []struct | where it listens
    name              string | listener
    host              string | host
    port              uint16 | port
    security_protocol int16  | protocol
  features           []struct | what it can
    name                  string | feature
    min_supported_version int16  | lowest level
    max_supported_version int16  | highest level
UnregisterControllerRecord 0 api_key=29 flexible=0+
  controller_id int32 | controller
SnapshotHeaderRecord 0 flexible=0+
  version                      int16 | 0
  last_contained_log_timestamp int64 | ms; of the last record that it covers
VotersRecord 0 flexible=0+
  version  int16                   | 0
  voters   []struct                | controllers that vote
    voter_id              int32    | node
    voter_directory_id    uuid     | its log directory of metadata
    endpoints             []struct | where it listens
      name string | listener
      host string | host
      port uint16 | port
    kraft_version_feature struct   | levels of kraft.version that it can
      min_supported_version int16 | lowest level
      max_supported_version int16 | highest level
"""

_MESSAGES: Final = read_messages(MESSAGES)
REGISTER_BROKER: Final = _MESSAGES["RegisterBrokerRecord"]
UNREGISTER_BROKER: Final = _MESSAGES["UnregisterBrokerRecord"]
TOPIC: Final = _MESSAGES["TopicRecord"]
PARTITION: Final = _MESSAGES["PartitionRecord"]
CONFIG: Final = _MESSAGES["ConfigRecord"]
PARTITION_CHANGE: Final = _MESSAGES["PartitionChangeRecord"]
REMOVE_TOPIC: Final = _MESSAGES["RemoveTopicRecord"]
BROKER_CHANGE: Final = _MESSAGES["BrokerRegistrationChangeRecord"]
FENCE_BROKER: Final = _MESSAGES["FenceBrokerRecord"]
UNFENCE_BROKER: Final = _MESSAGES["UnfenceBrokerRecord"]
FEATURE_LEVEL: Final = _MESSAGES["FeatureLevelRecord"]
REGISTER_CONTROLLER: Final = _MESSAGES["RegisterControllerRecord"]
UNREGISTER_CONTROLLER: Final = _MESSAGES["UnregisterControllerRecord"]
BEGIN_TRANSACTION: Final = _MESSAGES["BeginTransactionRecord"]
END_TRANSACTION: Final = _MESSAGES["EndTransactionRecord"]
ABORT_TRANSACTION: Final = _MESSAGES["AbortTransactionRecord"]
SNAPSHOT_HEADER: Final = _MESSAGES["SnapshotHeaderRecord"]
VOTERS: Final = _MESSAGES["VotersRecord"]

TYPES: Final = {number: schema for schema in _MESSAGES.values() for number in schema.api_keys}
"""Schemas of the record types that krepair reads, by type number."""

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
    28: "ClearElrRecord",
}
"""Record types that do not affect which brokers have a partition."""


LATER_KAFKA: Final = "written by a later Kafka"


class MetadataRecord(NamedTuple):
    """One metadata record.

    Attributes:
        schema: schema of the record type; None for a type that krepair does not read.
        values: field values by name; empty for a type that krepair does not read.
        later: description of a record whose type krepair does not know; else empty.
        kind: number of the record type.
        version: version of the record type.
    """

    schema: Schema | None
    values: dict[str, Any]
    later: str = ""
    kind: int = -1
    version: int = -1


def decode_record(value: Bytes | None) -> MetadataRecord | Damage:
    """Read a record's value; return a ``Damage`` for invalid bytes or an unknown version of a known type."""
    if value is None:
        return Damage(0, 0, "a record of the cluster's metadata", "null")
    position, numbers = 0, []
    for field in ("frame version", "type", "version"):
        number = read_unsigned(value, position, len(value))
        if number is None:
            return Damage(position, len(value) - position, f"the {field} of a record", "no varint")
        numbers.append(number.value)
        position = number.end
    frame, kind, version = numbers
    if frame != FRAME_VERSION:
        return Damage(0, len(value), f"frame version {FRAME_VERSION}", f"{frame}")
    schema = TYPES.get(kind)
    if schema is not None:
        if version > schema.latest:
            actual = f"version {version}, {LATER_KAFKA}"
            return Damage(0, len(value), f"version 0 to {schema.latest} of {schema.name}", actual)
        values = decode(schema, version, value, position)
        return values if isinstance(values, Damage) else MetadataRecord(schema, values, "", kind, version)
    later = "" if kind in PASSED_OVER else f"a record of type {kind}, {LATER_KAFKA}"
    return MetadataRecord(None, {}, later, kind, version)
