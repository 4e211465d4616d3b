"""Table of the formats that each version of Kafka can read in a log directory, with functions that query it.

A line applies from its version on, until a later line for the same format. Sources are files and tags of apache/kafka;
lines from 4.0 on were read from the classes of the released jars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from krepair.formats.broker_version import VersionNumber
from krepair.formats.java_numbers import INT32_MAX, INT64_MAX

METADATA_VERSION: Final = "metadata.version"
BOOTSTRAP_LEVEL: Final = "metadata.version of bootstrap.checkpoint"
META_PROPERTIES: Final = "meta.properties"
QUORUM_STATE: Final = "quorum-state"
KRAFT_SINCE: Final = (3, 3, 0)
"""First version with a forecast for KRaft: before it KRaft was a preview (KIP-833)."""
ZOOKEEPER_UNTIL: Final = (4, 0, 0)
IGNORES_UNKNOWN_KEYS_SINCE: Final = (3, 4, 1)
"""``UnknownKey`` of ``GroupMetadataManager.scala`` and ``TransactionLog.scala`` (3.4.1)."""
COMPARES_META_PROPERTIES: Final = ((2, 8, 0), (3, 4, 0), (3, 7, 0))
"""Versions between which all lines of two ``meta.properties`` must agree: from the first on; up to the second under
KRaft, up to the third under ZooKeeper. Source: ``BrokerMetadataCheckpoint.scala`` (2.8.2, 3.3.2, 3.4.0, 3.6.2)."""
ASKS_FOR_KRAFT_PROPERTIES: Final = ((3, 3, 0), (3, 4, 0))
"""A node of KRaft does not start on files of ZooKeeper: ``RawMetaProperties.requireVersion`` (3.3.2; seen there)."""


class VersionLine(NamedTuple):
    """Line of the table: levels or versions of one format that Kafka can read from ``since`` on.

    Attributes:
        since: first version to which the line applies.
        what: ``metadata.version`` or another feature; ``record N`` of the metadata log, N its type; a value in a
            coordinator's topic; a setting of a topic.
        least: lowest level or version that is read.
        most: highest level or version that is read; if it is below ``least``, nothing is read.
        source: file and tag of Kafka's source code.
    """

    since: VersionNumber
    what: str
    least: int
    most: int
    source: str


NOTHING_READ: Final = (0, -1)
_MV: Final = "MetadataVersion.java"
_METADATA: Final = "metadata/common/metadata"
_OFFSETS: Final = "GroupMetadataManager.scala"
_GROUPS: Final = "group-coordinator/common/message"
_CONFIG: Final = "LogConfig.java"

# fmt: off
_LINES: Final = (
    # features: levels that a controller applies (FeatureControlManager.replay 3.9.0), and bootstrap.checkpoint
    VersionLine((3, 3, 0), METADATA_VERSION, 1, 7, f"{_MV} 3.3.2"),
    VersionLine((3, 4, 0), METADATA_VERSION, 1, 8, f"{_MV} 3.4.0"),
    VersionLine((3, 5, 0), METADATA_VERSION, 1, 11, f"{_MV} 3.5.0"),
    VersionLine((3, 6, 0), METADATA_VERSION, 1, 14, f"{_MV} 3.6.2"),
    VersionLine((3, 7, 0), METADATA_VERSION, 1, 19, f"{_MV} 3.7.1"),
    VersionLine((3, 8, 0), METADATA_VERSION, 1, 20, f"{_MV} 3.8.0"),
    VersionLine((3, 9, 0), METADATA_VERSION, 1, 21, f"{_MV} 3.9.0"),
    VersionLine((4, 0, 0), METADATA_VERSION, 7, 25, f"{_MV} 4.0.0"),
    VersionLine((4, 1, 0), METADATA_VERSION, 7, 27, f"{_MV} 4.1.0"),
    VersionLine((4, 2, 0), METADATA_VERSION, 7, 29, f"{_MV} 4.2.0"),
    VersionLine((4, 3, 0), METADATA_VERSION, 7, 30, f"{_MV} 4.3.1"),
    VersionLine((4, 4, 0), METADATA_VERSION, 7, 33, f"{_MV} 4.4.0"),
    VersionLine((3, 9, 0), "kraft.version", 0, 1, "KRaftVersion.java 3.9.0"),
    VersionLine((3, 9, 0), "transaction.version", 0, 2, "TransactionVersion.java 3.9.0"),
    VersionLine((4, 0, 0), "group.version", 0, 1, "GroupVersion.java 4.0.0"),
    VersionLine((4, 0, 0), "eligible.leader.replicas.version", 0, 1, "EligibleLeaderReplicasVersion.java 4.0.0"),
    VersionLine((4, 1, 0), "share.version", 0, 1, "ShareVersion.java 4.1.0"),
    VersionLine((4, 2, 0), "streams.version", 0, 1, "StreamsVersion.java 4.2.0"),
    VersionLine((4, 4, 0), "share.version", 0, 2, "ShareVersion.java 4.4.0"),
    # types of records of the metadata log, and the versions of each
    *(VersionLine((3, 3, 0), f"record {kind}", 0, 0, f"{_METADATA} 3.3.2")
      for kind in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 18, 19, 20)),
    VersionLine((3, 3, 0), "record 0", 0, 1, f"{_METADATA}/RegisterBrokerRecord.json 3.3.2"),
    VersionLine((3, 3, 0), "record 17", 0, 1, f"{_METADATA}/BrokerRegistrationChangeRecord.json 3.3.2"),
    VersionLine((3, 4, 0), "record 0", 0, 2, f"{_METADATA}/RegisterBrokerRecord.json 3.4.0"),
    VersionLine((3, 4, 0), "record 21", 0, 0, f"{_METADATA}/ZkMigrationRecord.json 3.4.0"),
    VersionLine((3, 5, 0), "record 6", *NOTHING_READ, f"{_METADATA} 3.5.0 (AccessControlRecord.json is gone)"),
    VersionLine((3, 5, 0), "record 22", 0, 0, f"{_METADATA}/RemoveUserScramCredentialRecord.json 3.5.0"),
    *(VersionLine((3, 6, 0), f"record {kind}", 0, 0, f"{_METADATA} 3.6.2") for kind in (23, 24, 25, 26)),
    VersionLine((3, 7, 0), "record 0", 0, 3, f"{_METADATA}/RegisterBrokerRecord.json 3.7.1"),
    VersionLine((3, 7, 0), "record 3", 0, 2, f"{_METADATA}/PartitionRecord.json 3.7.1"),
    VersionLine((3, 7, 0), "record 5", 0, 2, f"{_METADATA}/PartitionChangeRecord.json 3.7.1"),
    VersionLine((3, 7, 0), "record 17", 0, 2, f"{_METADATA}/BrokerRegistrationChangeRecord.json 3.7.1"),
    VersionLine((3, 7, 0), "record 27", 0, 0, f"{_METADATA}/RegisterControllerRecord.json 3.7.1"),
    VersionLine((4, 0, 0), "record 28", 0, 0, f"{_METADATA}/ClearElrRecord.json 4.0.0"),
    VersionLine((4, 3, 0), "record 0", 0, 4, f"{_METADATA}/RegisterBrokerRecord.json 4.3.1"),
    VersionLine((4, 3, 0), "record 17", 0, 3, f"{_METADATA}/BrokerRegistrationChangeRecord.json 4.3.1"),
    VersionLine((4, 4, 0), "record 29", 0, 0, f"{_METADATA}/UnregisterControllerRecord.json 4.4.0"),
    # files of a node
    VersionLine((2, 2, 0), META_PROPERTIES, 0, 0, "BrokerMetadataCheckpoint.scala 2.2.1"),
    VersionLine((3, 0, 0), META_PROPERTIES, 0, 1, "BrokerMetadataCheckpoint.scala 3.3.2"),
    VersionLine((3, 3, 0), QUORUM_STATE, 0, 0, "FileBasedStateStore.java 3.3.2"),
    VersionLine((3, 9, 0), QUORUM_STATE, 0, 1, "FileQuorumStateStore.java 3.9.0"),
    # values of the coordinators' records; a later version ends the load of the whole partition
    VersionLine((2, 2, 0), "offset_commit", 0, 3, f"{_OFFSETS} 2.2.1"),
    VersionLine((3, 5, 0), "offset_commit", 0, 4, f"{_GROUPS}/OffsetCommitValue.json 3.5.0"),
    VersionLine((2, 2, 0), "group_metadata", 0, 2, f"{_OFFSETS} 2.2.1"),
    VersionLine((2, 3, 0), "group_metadata", 0, 3, f"{_OFFSETS} 2.3.0"),
    VersionLine((3, 5, 0), "group_metadata", 0, 4, f"{_GROUPS}/GroupMetadataValue.json 3.5.0"),
    VersionLine((2, 2, 0), "transaction_state", 0, 0, "TransactionLog.scala 2.2.1"),
    VersionLine((3, 5, 0), "transaction_state", 0, 1, "TransactionLogValue.json 3.5.0"),
    # settings of a topic: a start reads the settings of every topic that the cluster has
    VersionLine((2, 2, 0), "segment.bytes", 14, INT32_MAX, "LogConfig.scala 2.2.1"),
    VersionLine((4, 1, 0), "segment.bytes", 1 << 20, INT32_MAX, f"{_CONFIG} 4.1.0 (KAFKA-16368, KIP-1030)"),
    VersionLine((2, 2, 0), "segment.index.bytes", 0, INT32_MAX, "LogConfig.scala 2.2.1"),
    VersionLine((3, 3, 0), "segment.index.bytes", 4, INT32_MAX, "LogConfig.scala 3.3.0"),
    VersionLine((2, 2, 0), "flush.messages", 0, INT64_MAX, "LogConfig.scala 2.2.1"),
    VersionLine((3, 3, 0), "flush.messages", 1, INT64_MAX, "LogConfig.scala 3.3.0"),
)
# fmt: on
LINES: Final = (
    *_LINES,
    # BootstrapMetadata.fromRecords: 3.3-IV0 and later before 4.0; since 4.1 the level counts for an empty log only
    *(
        line._replace(
            what=BOOTSTRAP_LEVEL, least=max(line.least, 4), source=f"BootstrapMetadata.java, {line.source}"
        )
        for line in _LINES
        if line.what == METADATA_VERSION and line.since < (4, 1, 0)
    ),
    VersionLine((4, 1, 0), BOOTSTRAP_LEVEL, 0, INT32_MAX, "BootstrapMetadata.java 4.1.0"),
)
RELEASES: Final[tuple[VersionNumber, ...]] = (
    *((2, minor, 0) for minor in range(2, 9)),
    *((3, minor, 0) for minor in range(10)),
    *((4, minor, 0) for minor in range(5)),
)
"""The releases that the table knows, each by the first of its line."""
FORMAT_VERSION: Final = "message.format.version"


class UsedFormat(NamedTuple):
    """Format that a log directory uses, and that a version has to understand.

    Attributes:
        what: name of the format, as in ``VersionLine``.
        level: level, version or value of the format.
        where: file and position, for messages.
    """

    what: str
    level: int
    where: str


class UnreadFormat(NamedTuple):
    """Format that a version does not read, or refuses.

    Attributes:
        used: format that the version cannot read.
        line: what the version reads instead; None if the version does not know the format.
    """

    used: UsedFormat
    line: VersionLine | None

    @property
    def text(self) -> str:
        """Description of what the version reads instead."""
        if self.line is None or self.line.most < self.line.least:
            return "it does not know it"
        if self.line.most == self.line.least:
            return f"it reads only {self.line.least}"
        if self.used.level < self.line.least:
            return f"it reads {self.line.least} and higher"
        return f"it reads {self.line.least} to {self.line.most}"


@cache
def lines_of(version: VersionNumber) -> Mapping[str, VersionLine]:
    """Return the lines of the table that apply to a version, by format."""
    return {line.what: line for line in sorted(LINES, key=lambda line: line.since) if line.since <= version}


def not_read(version: VersionNumber, used: Iterable[UsedFormat]) -> Iterator[UnreadFormat]:
    """Yield the used formats that a version does not read; a feature at level 0 is not in use."""
    lines = lines_of(version)
    for feature in used:
        line = lines.get(feature.what)
        if line is None and feature.level == 0 and feature.what.endswith(".version"):
            continue
        if line is None or not line.least <= feature.level <= line.most:
            yield UnreadFormat(feature, line)


def release_of(version: VersionNumber) -> str:
    """Return the name of a release, as people say it: ``3.9``."""
    return f"{version[0]}.{version[1]}"


def range_text(releases: Sequence[VersionNumber]) -> str:
    """Return the oldest and the newest of some releases, in words; empty for none."""
    if not releases:
        return ""
    oldest, newest = release_of(min(releases)), release_of(max(releases))
    return oldest if oldest == newest else f"{oldest} to {newest}"


def knows_format(version: VersionNumber, value: str) -> bool:
    """Return whether a version knows a ``message.format.version``; 4.0 has none (``MetadataVersionValidator`` 3.9)."""
    major, _, minor = value.partition("-")[0].partition(".")
    if version >= ZOOKEEPER_UNTIL or not (major.isdecimal() and minor.partition(".")[0].isdecimal()):
        return True
    return (int(major), int(minor.partition(".")[0])) <= version[:2]
