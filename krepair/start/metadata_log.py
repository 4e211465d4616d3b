"""KRaft metadata log of the node (KR610): faults that end its start, and partitions that the node puts aside.

A KRaft node recovers this log from its first segment at every start, even after a clean stop: recovery point 0 and
``lastShutdownClean`` false. Seen on 3.9.2, 4.3.1 and 4.4.0, with a single controller, one of three controllers, and a
broker; in the last two cases the other controllers had a leader.

Source: ``KafkaMetadataLog.apply`` and ``recoverSnapshots``, ``FileQuorumStateStore``,
``KafkaRaftServer.initializeLogDirs``, ``BootstrapDirectory``, ``SharedServer.metadataLoaderFaultHandler``,
``LogManager.isStrayKraftReplica`` (3.9.0).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity, StartEffect
from krepair.formats.batch_v2 import batches
from krepair.formats.cluster_metadata import decode_record
from krepair.formats.damage import Damage, shown
from krepair.formats.filenames import METADATA_TOPIC
from krepair.formats.kafka_versions import BOOTSTRAP_LEVEL, METADATA_VERSION, QUORUM_STATE, UsedFormat
from krepair.formats.partition_metadata import PartitionMetadata, topic_id_text
from krepair.formats.record import batch_records
from krepair.formats.words import count_text
from krepair.logdir.cluster import (
    Examined,
    Fault,
    MetadataImage,
    configs_of_image,
    examine_metadata_log,
    used_by,
)
from krepair.logdir.config import ClusterConfigs
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, Partition
from krepair.start.identity import (
    KEEPS_STRAYS_SINCE,
    KRAFT_ONLY_SINCE,
    Metadata,
    StartingNode,
    known_topic_id,
    metadata_log_of,
)

STRAY_SINCE: Final = (3, 3, 0)
ASKS_NOT_FOR_VOTERS_SINCE: Final = (3, 8, 0)
_QUORUM_STATE: Final = "quorum-state"
_BOOTSTRAP: Final = "bootstrap.checkpoint"
_MAX_BYTES: Final = 1 << 20
_NUMBERS: Final = ("leaderId", "leaderEpoch", "votedId")
_FIELDS: Final = {0: ("appliedOffset", "clusterId", "currentVoters"), 1: ("votedDirectoryId",)}
"""Fields by ``data_version``, besides the numbers that each version has (``QuorumStateData.json``)."""
RESTORE: Final = (
    "a broker that is no controller may set this folder aside; so may one of several controllers while the others have "
    "a leader, but never a second one before the first has caught up; a controller without others restores it from a "
    "backup"
)


class MetadataLog(NamedTuple):
    """Metadata log of the node with the files around it.

    Attributes:
        place: path of the log directory that holds the metadata log.
        log: partition folder of the metadata log.
        examined: contents of its snapshot and log; None if they could not be read.
        trouble: reason why the contents could not be read, or empty.
        quorum_state: fault of ``quorum-state``, or empty.
        bootstrap: fault of ``bootstrap.checkpoint`` in the root, or empty.
        used: formats of ``quorum-state`` and ``bootstrap.checkpoint`` that a version has to understand.
        quorum_voters: ids of the voters in ``quorum-state``, ascending; empty if it has none.
    """

    place: str
    log: Partition
    examined: Examined | None
    trouble: str
    quorum_state: str = ""
    bootstrap: str = ""
    used: tuple[UsedFormat, ...] = ()
    quorum_voters: tuple[int, ...] = ()

    @property
    def image(self) -> MetadataImage | None:
        """State of the cluster at the end of the log; None if the log is not whole."""
        return None if self.examined is None or self.examined.fault is not None else self.examined.image

    @property
    def voters(self) -> tuple[int, ...]:
        """Ids of the voting controllers, as far as the log can be read; empty if no record names them."""
        return () if self.examined is None else self.examined.image.voters

    def configs(self, node_id: str) -> ClusterConfigs | None:
        """Return the settings recorded in the log; None if the log is not whole."""
        return None if self.image is None else configs_of_image(self.image, node_id)


def see_metadata_log(views: Sequence[LogDir]) -> MetadataLog | None:
    """Read the metadata log of the first directory that has one."""
    for view in views:
        log = metadata_log_of(view)
        if log is None or log.unreadable:
            continue
        try:
            examined = examine_metadata_log(log.path)
            quorum = _quorum_state(log)
            bootstrap, wrong_bootstrap = _bootstrap(view)
            used = (*quorum.used, *bootstrap)
            return MetadataLog(
                view.path, log, examined, "", quorum.wrong, wrong_bootstrap, used, quorum.voters
            )
        except OSError as error:
            return MetadataLog(view.path, log, None, f"{error.filename or log.path}: {why(error)}")
    return None


class _QuorumState(NamedTuple):
    """Contents of ``quorum-state``: the format that a version has to know, the voters, and a fault if there is one."""

    used: tuple[UsedFormat, ...] = ()
    voters: tuple[int, ...] = ()
    wrong: str = ""


def _quorum_state(log: Partition) -> _QuorumState:
    file = next((leftover.file for leftover in log.leftovers if leftover.file.name == _QUORUM_STATE), None)
    if file is None:
        return _QuorumState()
    try:
        # a broker reads one line, and nothing after the object in it
        line, _, _ = read_whole(file.path, _MAX_BYTES).decode("utf-8").partition("\n")
        state, _ = json.JSONDecoder().raw_decode(line.strip())
    except ValueError:
        missing = "nothing" if not file.size else "none"
        return _QuorumState(wrong=f"expected JSON of a quorum state in the first line, found {missing}")
    if not isinstance(state, dict) or "data_version" not in state:
        return _QuorumState(wrong="expected an object with data_version, found none")
    data_version = state["data_version"]
    version = data_version if type(data_version) is int else 0  # a broker reads what is no number as 0
    used = (UsedFormat(QUORUM_STATE, version, f"{_QUORUM_STATE}: data_version"),)
    if version not in _FIELDS:
        return _QuorumState(used, wrong=f"expected data_version 0 or 1, found {shown(str(version))}")
    wrong = [key for key in _NUMBERS if type(state.get(key)) is not int]
    wrong += [key for key in _FIELDS[version] if state.get(key) is None]
    fields = ", ".join((*_NUMBERS, *_FIELDS[version]))
    text = f"expected the fields {fields}; wrong: {', '.join(wrong)}" if wrong else ""
    return _QuorumState(used, _voter_ids(state.get("currentVoters")), text)


def _voter_ids(rows: object) -> tuple[int, ...]:
    """Return the valid ids in ``currentVoters``, ascending."""
    ids = [row.get("voterId") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return tuple(sorted(voter_id for voter_id in ids if type(voter_id) is int))


def _bootstrap(view: LogDir) -> tuple[tuple[UsedFormat, ...], str]:
    """Return the formats that ``bootstrap.checkpoint`` uses, and its fault or an empty text.

    Every start reads the file if it is there (``BootstrapDirectory`` 3.3.2).
    """
    try:
        data = read_whole(f"{view.path}/{_BOOTSTRAP}", _MAX_BYTES)
    except OSError:
        return (), ""  # absent; or not a file, or unreadable, which other findings report
    readable = [batch for batch in batches(data, check_crc=False) if not isinstance(batch, Damage)]
    data_batches = [batch for batch in readable if not batch.header.is_control]
    if not data_batches:
        return (
            (),
            f"expected a batch with the level of metadata.version, found {'none' if data else 'nothing'}",
        )
    records = (
        decode_record(record.value)
        for batch in data_batches
        for record in batch_records(data[batch.position : batch.position + batch.header.size_bytes])
        if not isinstance(record, Damage)
    )
    uses = (
        used for record in records if not isinstance(record, Damage) for used in used_by(record, _BOOTSTRAP)
    )
    return tuple(
        feature._replace(what=BOOTSTRAP_LEVEL) for feature in uses if feature.what == METADATA_VERSION
    ), ""


def metadata_log_findings(
    view: LogDir, node: StartingNode, metadata_log: MetadataLog | None, partitions: int
) -> Iterator[Finding]:
    """Yield the faults of the metadata log that concern one log directory (KR610).

    Args:
        node: the node that starts.
        metadata_log: the node's metadata log, None if no given directory has one.
        partitions: number of partitions in all given directories.
    """
    log = metadata_log_of(view)
    if log is None:
        yield from _absent(view, node, metadata_log, partitions)
        return
    if node.metadata_dir and node.metadata_dir != view.path:
        text = f"it lies here, and belongs in {node.metadata_dir}: move it there, or correct metadata.log.dir"
        yield _finding(log, "", text, StartEffect.ENDS)
        return
    if metadata_log is None or metadata_log.place != view.path:
        return
    if metadata_log.trouble:
        yield _finding(log, "", metadata_log.trouble, StartEffect.UNKNOWN)
    if metadata_log.quorum_state:
        text = f"{metadata_log.quorum_state}; no node of KRaft starts on it. Without this file a node starts: {RESTORE}"
        yield _finding(log, _QUORUM_STATE, text, StartEffect.ENDS)
    yield from _quorum_findings(log, node, metadata_log)
    if metadata_log.bootstrap:
        text = (
            f"{metadata_log.bootstrap}; no node of KRaft starts on it. Move the file out of the log directory: a node "
            "with a metadata log starts without it"
        )
        yield _finding(log, _BOOTSTRAP, text, StartEffect.ENDS)
    if metadata_log.examined is not None and metadata_log.examined.fault is not None:
        text, effect = _FAULTS[metadata_log.examined.fault](node)
        yield _finding(log, "", f"{metadata_log.examined.why}; {text}", effect)
    elif metadata_log.examined is not None and metadata_log.examined.image.later:
        text = f"{metadata_log.examined.image.later}: {_NOT_WHICH}, nor whether it starts"
        yield _finding(log, "", text, StartEffect.UNKNOWN)


def _quorum_findings(log: Partition, node: StartingNode, metadata_log: MetadataLog) -> Iterator[Finding]:
    """Yield differences between the quorum of the directory and that of the configuration.

    Source: ``QuorumState.initialize`` (3.3.2 to 3.7.1; gone in 3.8.0), ``KafkaRaftClient`` (3.9.0).
    """
    here, configured = metadata_log.quorum_voters, node.static_voters
    if here and configured and here != configured:
        ends = any(version < ASKS_NOT_FOR_VOTERS_SINCE for version in node.versions)
        text = (
            f"its voters are {_ids(here)}, and controller.quorum.voters has {_ids(configured)}: a node before 3.8 does "
            "not start; a later one takes those of the configuration"
        )
        yield _finding(
            log, _QUORUM_STATE, text, StartEffect.ENDS if ends else StartEffect.NONE, Severity.INFORMATION
        )
    is_whole = metadata_log.examined is not None and metadata_log.examined.fault is None
    if node.bootstraps_only and is_whole and not metadata_log.voters:
        text = (
            "the configuration has controller.quorum.bootstrap.servers only, and this log is of a static quorum: no "
            "record says who votes. The node never gets ready, without an error: set controller.quorum.voters"
        )
        yield _finding(log, "", text, StartEffect.ENDS)


def _ids(voters: Sequence[int]) -> str:
    return ", ".join(map(str, voters))


_NOT_WHICH: Final = "krepair cannot say which partitions this node keeps"


def _finding(
    log: Partition, file: str, text: str, effect: StartEffect, harmless: Severity = Severity.CONFUSING
) -> Finding:
    severity = harmless if effect in {StartEffect.NONE, StartEffect.UNKNOWN} else None
    # A fault that puts folders aside concerns the whole directory, not this partition.
    partition = "" if effect is StartEffect.ASIDE else log.folder
    return Finding(
        rule="KR610", partition=partition, file=file, evidence=text, start=effect, severity=severity
    )


def _absent(
    view: LogDir, node: StartingNode, metadata_log: MetadataLog | None, partitions: int
) -> Iterator[Finding]:
    if metadata_log is not None or not partitions or node.kraft is False:
        return
    if (
        node.alone
        and node.metadata_dir == view.path
        and not (deletes_strays(node) and _lacks_a_topic_id(view))
    ):
        many = count_text(partitions, "partition")
        consequence = f"deletes {many}" if deletes_strays(node) else f"puts {many} aside (-stray)"
        yield Finding(
            rule="KR610",
            evidence=f"there is no {METADATA_TOPIC}-0 here, and this node is the only voter: it starts without any "
            f"topic and {consequence}. Restore the folder from a backup before the start",
            start=StartEffect.ASIDE,
        )
    elif view.meta_version == 0 and node.kraft is None:
        yield Finding(
            rule="KR610",
            evidence="meta.properties is of ZooKeeper (version 0), and no metadata log is here: a broker of a migrated "
            "cluster starts; a controller without others puts every partition aside. --config server.properties shows "
            "which one it is",
            severity=Severity.INFORMATION,
            start=StartEffect.NONE,
        )


def _magic(node: StartingNode) -> tuple[str, StartEffect]:
    return f"every node of KRaft reads this batch at its start, and ends there; {RESTORE}", StartEffect.ENDS


def _no_snapshot(node: StartingNode) -> tuple[str, StartEffect]:
    return f"no node of KRaft starts on it; {RESTORE}", StartEffect.ENDS


def _snapshot(node: StartingNode) -> tuple[str, StartEffect]:
    before_4 = "before 4.0 a broker that is no controller is not ready or puts every partition aside"
    if node.controller is False and all(version < KRAFT_ONLY_SINCE for version in node.versions):
        return f"{before_4}; {RESTORE}", StartEffect.ASIDE
    other = "" if node.controller else f"; a broker that is no controller is never ready, and {before_4}"
    return f"a controller ends when it loads the snapshot{other}; {RESTORE}", StartEffect.ENDS


def _cut(node: StartingNode) -> tuple[str, StartEffect]:
    if node.controller is False or (node.controller and not node.alone):
        return "the start cuts the log there and fetches the rest from the leader", StartEffect.NONE
    other = "" if node.controller else "; one of several fetches the rest from the leader"
    text = (
        "the start cuts the log there and asks nobody: a controller without others forgets every topic that was made "
        f"after it, and puts its partitions aside{other}; {RESTORE}"
    )
    return text, StartEffect.NONE


def _content(node: StartingNode) -> tuple[str, StartEffect]:
    return f"{_NOT_WHICH}, nor whether it starts", StartEffect.UNKNOWN


def _replay(node: StartingNode) -> tuple[str, StartEffect]:
    return (
        f"no node of KRaft that loads this record starts; whether a start loads it is not known; {RESTORE}",
        StartEffect.UNKNOWN,
    )


_FAULTS: Final = {
    Fault.MAGIC: _magic,
    Fault.NO_SNAPSHOT: _no_snapshot,
    Fault.SNAPSHOT: _snapshot,
    Fault.CUT: _cut,
    Fault.CONTENT: _content,
    Fault.REPLAY: _replay,
}


def known_image(node: StartingNode, metadata_log: MetadataLog | None) -> MetadataImage | None:
    """Return the cluster state that this node has before it hears from others; None if that state proves nothing.

    A log that the start truncates, and a node of unknown role, are treated like a single controller: nobody sends the
    missing records to such a node, so it acts on this state.
    """
    if (
        metadata_log is None
        or metadata_log.examined is None
        or metadata_log.examined.image.later
        or (node.metadata_dir and node.metadata_dir != metadata_log.place)
    ):
        return None
    cut = (
        metadata_log.examined.fault is Fault.CUT
        and node.controller is not False
        and (node.alone or node.controller is None)
    )
    is_whole = metadata_log.examined.fault is None and node.controller is not None
    return metadata_log.examined.image if cut or is_whole else None


def deletes_strays(node: StartingNode) -> bool:
    """Return True if the node deletes partitions that its metadata do not know (``findStrayPartitions`` 3.6.2)."""
    return bool(node.versions) and all(
        STRAY_SINCE <= version < KEEPS_STRAYS_SINCE for version in node.versions
    )


def _lacks_a_topic_id(view: LogDir) -> bool:
    """Return True if a log has no topic id: brokers of 3.3 to 3.6 then fail in their search for strays, and start."""
    return any(
        partition.partition_metadata is None and partition.topic != METADATA_TOPIC
        for partition in view.partitions
    )


def strays(view: LogDir, node: StartingNode, image: MetadataImage, metadata: Metadata) -> Mapping[str, str]:
    """Return the folders that the start puts aside because the metadata log does not know them, each with the reason.

    Other controllers may send the node new topics and replicas, so an unknown topic proves nothing unless this node is
    the single controller. Other controllers never change the id of a topic that the node knows.

    Args:
        node: the node that starts.
        image: cluster state that the node knows.
        metadata: contents of each ``partition.metadata`` of the directory.
    """
    versions = [version for version in node.versions if version >= STRAY_SINCE]
    if not versions or (deletes_strays(node) and _lacks_a_topic_id(view)):
        return {}
    reasons: dict[str, str] = {}
    hears_from_others = node.controller is not None and not node.alone
    for partition in view.partitions:
        content = metadata.get(partition.folder)
        if (
            partition.topic == METADATA_TOPIC
            or partition.unreadable
            or not isinstance(content, PartitionMetadata)
        ):
            continue
        topic_id = topic_id_text(content.topic_id)
        if hears_from_others and known_topic_id(image, partition.topic) in {"", topic_id}:
            continue
        state = image.partitions.get((topic_id, partition.number))
        if state is None:
            reasons[partition.folder] = f"the metadata log does not know topic id {topic_id}"
        elif node.node_id and int(node.node_id) not in state.replicas:
            reasons[partition.folder] = (
                f"its replicas are {', '.join(map(str, state.replicas))}, and not this node"
            )
    return reasons
