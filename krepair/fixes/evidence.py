"""Evidence about the other replicas of a partition, for ``markers`` and ``compact``.

The evidence shows which other replicas exist, and which markers and tombstones must be kept for these replicas. The
plan decides, and ``apply`` repeats the decision by the same rules. Before any segment is swapped in,
``krepair.replicas.evidence_check`` searches the other replicas for data that needs a removed marker.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from krepair.derive.epochs import runs_of_segments
from krepair.derive.transactions import aborted_of
from krepair.durable.scratch import SpilledRows
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, LogsItem, Place
from krepair.errors import KrepairError, RefusedError, StalePlanError
from krepair.fixes.analysis import PartitionAnalysis, ResultKey
from krepair.fixes.context import Context, id_of, place_of
from krepair.fixes.epochs import read_epochs_file
from krepair.fixes.replicas import ReadReplica, ReplicaLog, digest_of_files, log_of, read_replicas
from krepair.fixes.staging import Staging, Work
from krepair.formats.arrays import Int64s
from krepair.formats.checkpoint import EpochEntry
from krepair.formats.filenames import log_name
from krepair.formats.words import time_text
from krepair.logdir.cluster import (
    METADATA_FOLDER,
    RESERVED_DIRECTORY_IDS,
    Assignment,
    ClusterView,
    read_cluster_file,
)
from krepair.logdir.config import configured_metadata_dirs, why_of_another_broker
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import CURRENT, LockedDirs, ReplicaState, futures_of, replica_state
from krepair.next_command import Next
from krepair.options import EVERY_TOPIC, Options
from krepair.plan.model import Others, SearchedDir
from krepair.rules import cleanable_range as cleanable_ranges
from krepair.rules.evidence import (
    CLOCKS_APART_MS,
    Evidence,
    OtherLog,
    why_not_in_sync,
    why_other_topic,
    why_outdated,
)
from krepair.rules.model import PartitionDecision, Skipped
from krepair.rules.outcome import TombstoneHorizon
from krepair.rules.replicas.replica import History, find_fork, table

if TYPE_CHECKING:
    from krepair.rewrite.compaction.rows import RowFile

_Logs = tuple[tuple[ReplicaLog, ...], tuple[int, ...]]
"""Logs of the other replicas, and the brokers for which only the operator states that all log directories were read."""
Clusters = tuple[ClusterView | None, tuple[ClusterView, ...]]
"""State of the cluster that ``--cluster`` names, and the metadata logs of this broker."""


def read_clusters(options: Options, view: LogDir) -> Clusters:
    """Read the ``--cluster`` file and the metadata logs of this broker.

    Args:
        options: options as they were typed.

    Raises:
        UsageError: ``--cluster`` names no file, or ``--config`` cannot be read.
        RefusedError: the file that ``--cluster`` names is damaged, or belongs to another cluster.
        UnreadableError: the file could not be read.
    """
    cluster = read_cluster_file(options.cluster) if options.cluster else None
    if (
        cluster is not None
        and cluster.cluster_id
        and view.cluster_id
        and cluster.cluster_id != view.cluster_id
    ):
        raise RefusedError(
            f"--cluster {options.cluster} is of cluster {cluster.cluster_id}, {view.path} is of cluster "
            f"{view.cluster_id}"
        )
    is_of_broker = not why_of_another_broker(options.config, view.path, view.broker_id)
    dirs = configured_metadata_dirs(options.config) if is_of_broker else ()
    return cluster, read_metadata(view, [f"{path}/{METADATA_FOLDER}" for path in dirs])


def read_metadata(view: LogDir, folders: Iterable[str]) -> tuple[ClusterView, ...]:
    """Read the metadata logs of a broker; skip unreadable logs, because no option names these.

    Args:
        view: the log directory, which may have a metadata log beside its partitions.
        folders: other folders that may have a metadata log.
    """
    views: dict[str, ClusterView] = {}
    for folder in (f"{view.path}/{METADATA_FOLDER}", *folders):
        real = os.path.realpath(folder)
        if real not in views and os.path.isdir(real):
            with suppress(KrepairError):
                views[real] = read_cluster_file(real)
    ours = {"", view.cluster_id} if view.cluster_id else None
    return tuple(view for view in views.values() if ours is None or view.cluster_id in ours)


def others_of(context: Context) -> Others:
    """Return the statements about other replicas in the form that a plan records."""
    options, cluster = context.options, context.cluster
    return Others(
        cluster="" if cluster is None else os.path.abspath(options.cluster),
        cluster_digest="" if cluster is None else cluster.digest,
        cluster_source="" if cluster is None else cluster.source,
        own_metadata=tuple(view.path for view in context.own_metadata),
        replicas=options.replicas,
        only_replica=options.only_replica,
        as_broker=options.as_broker,
        searched=_searched_dirs(context),
    )


def _searched_dirs(context: Context) -> tuple[SearchedDir, ...]:
    """Return the log directories beside this one in which a broker may be making a replica."""
    searched = {
        view.path: SearchedDir(broker_id=broker, path=view.path)
        for broker, views in context.brokers.items()
        for view in views
        if view is not context.view
    }
    return tuple(searched[path] for path in sorted(searched))


def evidence_of(context: Context, partition: Partition) -> Evidence:
    """Return the strongest evidence about the other replicas of one partition; determine it only once."""
    find_evidence(context, [partition])
    return context.evidence[partition.folder]


def find_evidence(context: Context, partitions: Iterable[Partition]) -> None:
    """Find the evidence for many partitions; read the logs of all their other replicas in one job."""
    unknown = [partition for partition in partitions if partition.folder not in context.evidence]
    if not unknown:
        return
    folders = folders_of_others(context)
    known: list[tuple[Partition, Evidence]] = []
    to_read: list[ReplicasToRead] = []
    for partition in unknown:
        evidence_or_logs = _evidence_or_logs(context, partition, folders)
        if isinstance(evidence_or_logs, Evidence):
            context.evidence[partition.folder] = _unless_moving(context, partition, evidence_or_logs)
        else:
            logs, vouched_for = evidence_or_logs
            known.append((partition, _replica_evidence(context, logs, vouched_for)))
            to_read.append(
                (LogsItem(place=place_of(context.view, partition), segments=partition.log_sizes[:-1]), logs)
            )
    scratch = context.scratch.path if to_read else ""
    for (partition, evidence), others in zip(
        known, read_others(context.engine, scratch, to_read), strict=True
    ):
        if isinstance(others, NotKnownError):
            evidence = _unless_moving(context, partition, _evidence_without_logs(context, str(others)))
        else:
            context.analysis(partition).put(OTHERS, others)
        context.evidence[partition.folder] = evidence


def forget_logs(context: Context, partition: Partition, why: str) -> None:
    """Replace the evidence of a partition whose other logs prove nothing: all markers and tombstones are kept."""
    context.analysis(partition).put(OTHERS, None)
    context.evidence[partition.folder] = Evidence(kind="none", why=why)


def _evidence_or_logs(context: Context, partition: Partition, folders: Folders) -> Evidence | _Logs:
    """Return the evidence, or the logs that must be read to find it.

    A broker that has a partition twice does not start, and a person decides which of the two copies to keep.
    """
    for view in context.own_dirs.views:
        if any(other.key == partition.key for other in view.partitions):
            text = f"this broker has it in {view.path}, too: move one of the two folders out"
            return Evidence(kind="none", why=text)
    return _sole_replica_evidence(context, partition) or _cluster_evidence(context, partition, folders)


def _unless_moving(context: Context, partition: Partition, evidence: Evidence) -> Evidence:
    """Accept evidence without other logs only if the broker does not move the partition between its disks.

    The broker would resume copying from this log to the new log. The copy may already hold a value whose tombstone
    would be removed here, or records of a transaction whose marker would be removed here. Kafka pauses the cleaner for
    such a partition.
    """
    if evidence.kind == "none":
        return evidence
    if context.own_dirs.unread:
        return Evidence(kind="none", why=context.own_dirs.unread)
    for view in context.brokers[context.broker_id]:
        for future in futures_of(view, partition.topic, partition.number):
            return Evidence(
                kind="none",
                why=f"the broker moves it to another log directory ({view.path}/{future.folder}), and does not clean "
                "it until then",
            )
    return evidence


def _assignment_of(context: Context, partition: Partition) -> Assignment | None:
    """Return the assignment that ``--cluster`` gives the partition."""
    cluster = context.cluster
    return None if cluster is None else cluster.partitions.get(partition.key)


def _sole_replica_evidence(context: Context, partition: Partition) -> Evidence | None:
    """Return evidence that no other replica exists, or that this claim is contradicted; else None."""
    options, line = context.options, _assignment_of(context, partition)
    word = next((word for word in (partition.topic, EVERY_TOPIC) if word in options.only_replica), "")
    own = _assignments_in(context.own_metadata, context.view, partition)
    for where, known in ((options.cluster, line), *own):
        if word and known is not None and len(known.replicas) > 1:
            brokers = ", ".join(map(str, known.replicas))
            return Evidence(kind="none", why=f"--only-replica {word}, but {where} has replicas {brokers}")
    if word:
        return Evidence(
            kind="only-replica", why=f"--only-replica {word}: you state that there is no other replica"
        )
    if own and all(_is_sole_replica(context.view, line) for _, line in own):
        return Evidence(kind="only-replica", why=f"{own[0][0]} has this broker as its only replica")
    return None


def is_only_replica(context: Context, partition: Partition) -> bool:
    """Return whether a metadata log of this broker, or a person, states that no other replica exists."""
    evidence = _sole_replica_evidence(context, partition)
    return evidence is not None and evidence.kind == "only-replica"


def recorded_as_only_replica(
    view: LogDir, metadata: Sequence[ClusterView], only_replica: Sequence[str], folder: str
) -> bool:
    """Return ``is_only_replica`` of a partition folder, by the values in a plan instead of the options."""
    partition = next(listed for listed in view.partitions if listed.folder == folder)
    own = _assignments_in(metadata, view, partition)
    vouched_for = partition.topic in only_replica or EVERY_TOPIC in only_replica
    return all(_is_sole_replica(view, line) for _, line in own) if own else vouched_for


def why_no_longer_only_replica(
    view: LogDir, metadata: Sequence[ClusterView], partition: Partition, *, vouched_for: bool
) -> str:
    """Return why a partition may have more replicas by now, by its broker's metadata logs; else empty.

    Args:
        view: the log directory as it is now.
        metadata: the metadata logs as they are now.
        vouched_for: True if a person vouches that no other replica exists: then only a contradiction gives a reason.
    """
    lines = _assignments_in(metadata, view, partition)
    was = f"{partition.folder} was the only replica when the plan was made, but"
    for where, line in lines:
        if not _is_sole_replica(view, line) and not (vouched_for and len(line.replicas) < 2):
            here = list(line.replicas) == [id_of(view)]
            change = "moves it" if here else f"has replicas {', '.join(map(str, line.replicas))}"
            return f"{was} {where} {change} now"
    return (
        ""
        if lines or vouched_for
        else f"{was} no metadata log of this broker ({METADATA_FOLDER}) tells it now"
    )


def _assignments_in(
    metadata: Sequence[ClusterView], view: LogDir, partition: Partition
) -> list[tuple[str, Assignment]]:
    """Return (path, assignment of the partition) for each metadata log that assigns the same topic."""
    topic_id = replica_state(view, partition).topic_id
    key = partition.key
    lines = ((log.path, log.partitions.get(key)) for log in metadata if not log.no_proof)
    return [(path, line) for path, line in lines if line is not None and not why_other_topic(topic_id, line)]


def _cluster_evidence(context: Context, partition: Partition, folders: Folders) -> Evidence | _Logs:
    """Return evidence from the state of the running brokers, or by consent."""
    line, why = _assignment_of(context, partition), "nothing is said of other replicas"
    if context.options.replicas:
        try:
            return other_replicas(context, partition, line, context.broker_id, folders)
        except NotKnownError as error:
            why = str(error)
    elif context.cluster is not None:
        why = _why_not_in_sync(context, partition, line)
        if not why and line is not None:
            return Evidence(kind="in-sync", why=_in_sync_text(context, partition, line))
    return _evidence_without_logs(context, why)


def _evidence_without_logs(context: Context, why: str) -> Evidence:
    """Return the evidence for a partition whose other replicas are unknown."""
    if context.options.as_broker:
        return Evidence(kind="as-broker", why="--as-broker: by time alone, as a broker's cleaner would")
    return Evidence(kind="none", why=why)


def _assigned_since(context: Context) -> str:
    """Return a warning if the assignment is older than the logs; else empty.

    Such an assignment cannot show a replica that was assigned later; that replica may hold an older record and was not
    read.
    """
    cluster = context.cluster
    if cluster is None:
        return ""
    views = itertools.chain(*context.brokers.values())
    late_ms = max(map(_last_write_ms, views)) - cluster.as_of_ms
    if late_ms <= CLOCKS_APART_MS:
        return ""
    return (
        f"; {context.options.cluster} is from {late_ms // 1000} s before the last write in the given log directories: "
        "that no replica was assigned in between is your word"
    )


def _replica_evidence(context: Context, logs: Sequence[ReplicaLog], vouched_for: Sequence[int]) -> Evidence:
    """Return the evidence for a partition whose other replicas were read."""
    brokers = ", ".join(str(log.broker) for log in logs) or "none"
    words = [
        f"; that these are all log directories of broker {broker} is your word" for broker in vouched_for
    ]
    why = f"the logs of the other replicas were read: {brokers}{''.join(words)}{_assigned_since(context)}"
    return Evidence(kind="replicas", why=why, logs=tuple(log.planned for log in logs))


def _is_sole_replica(view: LogDir, line: Assignment) -> bool:
    """Return whether a metadata log assigns only this replica, and in this directory."""
    me = id_of(view)
    if list(line.replicas) != [me] or line.moving:
        return False
    here, assigned = view.directory_id, _directory_of(line, me)
    return not (here and assigned) or here == assigned


def _directory_of(line: Assignment, broker_id: int) -> str:
    """Return the id of the log directory to which a broker's replica is assigned; empty if unknown (KIP-858)."""
    if len(line.directories) != len(line.replicas):
        return ""
    directory = line.directories[line.replicas.index(broker_id)]
    return "" if directory in RESERVED_DIRECTORY_IDS else directory


def _why_not_in_sync(context: Context, partition: Partition, line: Assignment | None) -> str:
    """Return why ``--cluster`` does not show all other replicas in sync without this broker; else empty."""
    assert context.cluster is not None
    if context.cluster.source != "describe":
        return f"{context.options.cluster} was not written by a running broker"
    topic_id = replica_state(context.view, partition).topic_id
    reason = why_not_in_sync(context.broker_id, topic_id, line) or _why_outdated(context)
    return reason.replace("TOPIC", partition.topic)


def _why_outdated(context: Context) -> str:
    """Return why the ``--cluster`` file is older than this broker's stop, or empty."""
    assert context.cluster is not None
    last_write = _last_write_ms(context.view)
    if last_write < 0:
        return "no checkpoint is here that shows when this broker last wrote"
    return why_outdated(context.cluster.as_of_ms, last_write)


def _last_write_ms(view: LogDir) -> int:
    """Return when the broker last wrote its high watermarks, which it does every 5 s and at its stop.

    The times of logs are ignored, because they may lie in the future. Without a high-watermark file, the time of the
    latest other checkpoint is returned; -1 without any checkpoint.
    """
    marks = view.high_watermark.file
    others = (checkpoint.file for checkpoint in (view.recovery_point, view.log_start, view.cleaner))
    files = [marks] if marks is not None else [file for file in others if file is not None]
    return max((file.mtime_ns // 1_000_000 for file in files), default=-1)


def _in_sync_text(context: Context, partition: Partition, line: Assignment) -> str:
    checked = line.topic_id and replica_state(context.view, partition).topic_id
    text = f"replicas {', '.join(map(str, line.isr))} are in sync without this one"
    if not checked:
        text += "; no topic id shows that it is of this cluster: that is your word"
    assert context.cluster is not None
    if not context.cluster.source_is_certain:
        text += "; that a broker answered, and not ZooKeeper, is your word too"
    as_of = time_text(context.cluster.as_of_ms)
    return f"{text}; {context.options.cluster} is of {as_of}: if it was copied, this is the time of the copy"


def with_bytes(
    evidence: Evidence,
    decision: PartitionDecision,
    tombstones: Iterable[TombstoneHorizon] = (),
    file_bytes: int = -1,
) -> Evidence:
    """Return the evidence with the number of bytes of its three parts filled in.

    Args:
        evidence: evidence of the partition.
        decision: decision on the markers of the partition.
        tombstones: effect of each delete horizon on tombstones.
        file_bytes: bytes of the logs in the cleanable range if records are removed by key; else -1.
    """
    after = {choice.name: choice.log_bytes_after for choice in decision.horizons}
    chosen = next((choice.name for choice in decision.horizons if choice.chosen), cleanable_ranges.NONE)
    goes = {choice.name: choice.dropped_bytes for choice in tombstones}
    before = file_bytes if file_bytes >= 0 else sum(outcome.log_bytes for outcome in decision.outcomes)
    of_keys = goes.get(chosen, 0)
    return replace(
        evidence,
        always_bytes=max(before - after[cleanable_ranges.NONE] - of_keys, 0),
        by_time_bytes=_bytes_beyond(after, goes, cleanable_ranges.NONE, "newest"),
        later_bytes=_bytes_beyond(after, goes, "newest", "unlimited"),
    )


def _bytes_beyond(after: Mapping[str, int], goes: Mapping[str, int], less: str, more: str) -> int:
    """Return the bytes that one delete horizon removes beyond another."""
    return max(after[less] - after[more] + goes.get(more, 0) - goes.get(less, 0), 0)


# -- the logs of the other replicas

_AT_ONCE: Final = 256
"""Number of partitions whose other replicas are read in one job."""
ReplicasToRead = tuple[LogsItem, tuple[ReplicaLog, ...]]
"""Log up to its last valid batch, and the logs of other replicas that may still need its markers."""
Folders = Mapping[tuple[int, str, int], Sequence[tuple[LogDir, Partition]]]
"""Folders of each partition with their log directories, by (broker, topic, number)."""


class NotKnownError(Exception):
    """Error: the other replicas of a partition are unknown, so markers and tombstones must be kept."""


@dataclass(frozen=True)
class OtherReplicas:
    """Other replicas of a partition whose logs were read.

    Attributes:
        replicas: logs of the other replicas.
        markers: offsets of kept markers, int64[H], ascending; another replica has a batch of each marker's transaction.
    """

    replicas: tuple[ReadReplica, ...] = ()
    markers: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


OTHERS: Final[ResultKey[OtherReplicas | None]] = ResultKey("other replicas")
"""Key of the result of reading the logs of a partition's other replicas."""


# -- which replicas there are


def other_replicas(
    context: Context, partition: Partition, line: Assignment | None, me: int, folders: Folders
) -> tuple[tuple[ReplicaLog, ...], tuple[int, ...]]:
    """Return all other assigned replicas, and folders that a broker is about to make replicas.

    Args:
        line: assignment of the partition in the cluster state.
        me: id of this broker.
        folders: result of ``folders_of_others``.

    Returns:
        (logs of these replicas; brokers for which only a person vouches that all log directories were read).

    Raises:
        NotKnownError: a replica is missing, is unreadable, or belongs to another topic with the same name.
    """
    if context.cluster is None:
        raise NotKnownError("--replicas without --cluster does not tell which replicas there are")
    if context.cluster.no_proof:
        raise NotKnownError(
            f"{context.options.cluster}: {context.cluster.no_proof}: what it says of replicas proves nothing; "
            "the output of kafka-topics.sh --describe does"
        )
    if line is None:
        raise NotKnownError(f"{context.options.cluster} does not list it")
    mine = replica_state(context.view, partition)
    _check_own(context, mine, line, me)
    logs = list(_future_replicas(me, context.brokers[me], partition))
    others = [broker for broker in line.replicas if broker != me]
    vouched_for = tuple(broker for broker in others if not _all_dirs_were_read(context, broker))
    if context.own_dirs.unsaid:
        vouched_for = tuple(sorted((me, *vouched_for)))
    for broker in others:
        logs.append(_current_replica(broker, folders, partition))
        logs += _future_replicas(broker, context.other_brokers[broker], partition)
    for log in logs:
        _check_topic_id(log, mine, line)
    _check_one_topic(log.state for log in logs)
    return tuple(logs), vouched_for


def _check_own(context: Context, mine: ReplicaState, line: Assignment, me: int) -> None:
    """Check that this broker is assigned, and that all its log directories are known.

    Raises:
        NotKnownError: this broker is not assigned, a log directory is unknown, or the cluster state is of another topic
            with the same name.
    """
    assert context.cluster is not None
    if me not in line.replicas:
        raise NotKnownError(f"broker {me} is not among its replicas")
    other_topic = why_other_topic(mine.topic_id, line)
    unknown = "" if context.own_dirs.unsaid else context.own_dirs.unknown
    if other_topic or unknown:
        raise NotKnownError(other_topic or unknown)
    _is_proven_complete(context.cluster, me, [view.directory_id for view in context.brokers[me]])


def _all_dirs_were_read(context: Context, broker: int) -> bool:
    """Return whether all log directories of a broker are known to have been read; if not, a person vouches for that.

    Raises:
        NotKnownError: the broker is not given, a directory has no broker id, or the broker has more directories.
    """
    assert context.cluster is not None
    if broker not in context.other_brokers:
        raise NotKnownError(f"replica {broker} is not given with --replicas")
    views = context.other_brokers[broker]
    nobodys = [view.path for view in views if not view.broker_id]
    if nobodys:
        raise NotKnownError(f"replica {broker}: {nobodys[0]} does not say whose it is (meta.properties)")
    return _is_proven_complete(context.cluster, broker, [view.directory_id for view in views])


def _is_proven_complete(cluster: ClusterView, broker: int, ids: Sequence[str]) -> bool:
    """Return whether the metadata log shows that all log directories of a broker were read (3.7 and later).

    Args:
        broker: id of the broker.
        ids: ids of the directories that were read, empty if a directory has none.

    Raises:
        NotKnownError: the broker has registered other directories.
    """
    registered = cluster.brokers.get(broker, ())
    if not registered or not ids:
        return False
    if len(registered) > len(ids) or (all(ids) and not set(registered) <= set(ids)):
        raise NotKnownError(
            f"broker {broker} has registered {len(registered)} log directories ({', '.join(registered)}), and "
            f"{len(ids)} were read ({', '.join(filter(None, ids)) or 'without an id'}): name all of them"
        )
    return True


def folders_of_others(context: Context) -> Folders:
    """Return all partition folders of other brokers' log directories, by (broker, topic, number)."""
    by_replica: dict[tuple[int, str, int], list[tuple[LogDir, Partition]]] = {}
    for broker, views in context.other_brokers.items():
        for view in views:
            for partition in view.partitions:
                by_replica.setdefault((broker, partition.topic, partition.number), []).append(
                    (view, partition)
                )
    return by_replica


def _current_replica(broker: int, folders: Folders, partition: Partition) -> ReplicaLog:
    here = folders.get((broker, partition.topic, partition.number), ())
    same = [listed(broker, view, folder) for view, folder in here]
    if len(same) != 1:
        raise NotKnownError(f"replica {broker}: {len(same)} folders of it were found, one was expected")
    return same[0]


def _future_replicas(broker: int, views: Iterable[LogDir], partition: Partition) -> Iterator[ReplicaLog]:
    for view in views:
        for future in futures_of(view, partition.topic, partition.number):
            yield listed(broker, view, future)


def listed(broker: int, view: LogDir, partition: Partition) -> ReplicaLog:
    """Return the log of another replica.

    Raises:
        NotKnownError: the folder does not show the final contents of the replica.
    """
    state = replica_state(view, partition)
    wrong = why_no_evidence(partition, state)
    if wrong:
        raise NotKnownError(f"{view.path}/{partition.folder} of replica {broker}: {wrong}")
    return log_of(broker, view, partition, state)


def why_no_evidence(partition: Partition, state: ReplicaState) -> str:
    """Return why a folder does not show the final contents of its replica, before the log is read; else empty."""
    if state.damage:
        return state.damage
    if partition.leftovers or partition.special_logs:
        return "there are leftovers in it"
    if partition.private:
        return "krepair still keeps originals in it, and they may come back; purge them first"
    return "it has no log" if not partition.segments and state.kind == CURRENT else ""


def _check_topic_id(log: ReplicaLog, mine: ReplicaState, line: Assignment) -> None:
    for other in (mine.topic_id, line.topic_id):
        if log.state.topic_id and other and log.state.topic_id != other:
            raise NotKnownError(f"{log.place.path} has topic id {log.state.topic_id}, expected {other}")


def _check_one_topic(states: Iterable[ReplicaState]) -> None:
    """Check that all other replicas are of one topic, if neither this replica nor the cluster has the topic id.

    Raises:
        NotKnownError: the replicas belong to several topics with one name.
    """
    topic_ids = sorted({state.topic_id for state in states if state.topic_id})
    if len(topic_ids) > 1:
        raise NotKnownError(
            f"the other replicas are of several topics of this name: their ids are {', '.join(topic_ids)}"
        )


def planned_logs_now(
    logs: Sequence[OtherLog], own: LogDir, mine: ReplicaState, dirs: LockedDirs
) -> list[ReplicaLog]:
    """Return the present state of the logs that a plan names.

    Args:
        logs: logs that the plan names.
        own: the log directory of the plan.
        mine: replica of this broker.
        dirs: log directories that contain these logs.

    Raises:
        StalePlanError: a log is gone or has changed, or another log has appeared.
    """
    views: dict[str, LogDir] = {}
    host = own.host
    replica_logs = []
    for log in logs:
        view, here = dirs.look(log.log_dir, log.folder)
        views[log.log_dir] = view
        where = f"{log.log_dir}/{log.folder}, the log of broker {log.broker_id}"
        if here is None or view.host != host or view.broker_id not in ("", str(log.broker_id)):
            raise StalePlanError(f"{where}: is gone, or belongs to another host or broker")
        try:
            replica_log = listed(log.broker_id, view, here)
        except NotKnownError as error:
            raise StalePlanError(str(error)) from error
        if digest_of_files(here) != log.digest:
            raise StalePlanError(f"{where}: has changed since the plan was made")
        replica_logs.append(replica_log)
    known = {(log.log_dir, log.folder) for log in logs}
    for view in (own, *views.values()):
        for marked in futures_of(view, mine.topic, mine.partition):
            if (view.path, marked.folder) not in known:
                raise StalePlanError(f"{view.path}/{marked.folder}: appeared after the plan was made")
    return replica_logs


# -- what stays for the other replicas


def read_others(
    engine: Engine, scratch: str, to_read: Sequence[ReplicasToRead]
) -> list[OtherReplicas | NotKnownError]:
    """Read the headers of the other replicas of partitions, many partitions in one job.

    Args:
        scratch: path of a scratch folder, empty if there is none.
        to_read: partitions and the logs of their other replicas.

    Returns:
        The other replicas of each partition, or why these are unknown.
    """
    results: list[OtherReplicas | NotKnownError] = []
    for first in range(0, len(to_read), _AT_ONCE):
        results += _read_some(engine, scratch, to_read[first : first + _AT_ONCE])
    return results


def _read_some(
    engine: Engine, scratch: str, to_read: Sequence[ReplicasToRead]
) -> list[OtherReplicas | NotKnownError]:
    from krepair.replicas.headers import find_markers_to_keep

    read = read_replicas(engine, [log for _, other_logs in to_read for log in other_logs], scratch)
    results: list[OtherReplicas | NotKnownError] = []
    keeping: list[tuple[int, tuple[LogsItem, tuple[tuple[SpilledRows, ...], ...]]]] = []
    for number, (mine, other_logs) in enumerate(to_read):
        replicas = tuple(itertools.islice(read, len(other_logs)))
        problem = next(filter(None, map(_why_not_known, replicas)), "")
        results.append(NotKnownError(problem) if problem else OtherReplicas(replicas))
        runs = tuple(replica.replica.headers.runs for replica in replicas if replica.replica.headers.runs)
        if runs and not problem:
            keeping.append((number, (mine, runs)))
    for number, kept in engine.each(find_markers_to_keep, keeping):
        known = results[number]
        if isinstance(kept, Failed):
            results[number] = NotKnownError(kept.why)
        elif isinstance(known, OtherReplicas):
            results[number] = dataclasses.replace(known, markers=kept)
    return results


def _why_not_known(replica: ReadReplica) -> str:
    """Return why the log of a replica does not show the replica's contents; else empty."""
    who, path, headers = f"replica {replica.log.broker}", replica.log.place.path, replica.replica.headers
    if headers.failure:
        return f"{who}: {headers.why}"
    for damage in headers.damages:
        return f"{who}: {path}/{damage.text}"
    for end, following in table(headers.borders, 2).tolist():
        if following < end:
            return f"{who}: {path}: an offset of {end} or more was expected, found {following}"
    recorded = max(replica.log.state.high_watermark, replica.log.state.recovery_point)
    if replica.log.state.kind == CURRENT and recorded > headers.log_end:
        return f"{path} of {who} is cut: it ends at {headers.log_end}"
    return ""


def rows_elsewhere(engine: Engine, others: OtherReplicas, secret: bytes, scratch: str) -> tuple[RowFile, ...]:
    """Find the keys of the other replicas, each with the lowest offset of its records not known to be aborted there.

    Raises:
        NotKnownError: a log cannot be read.
    """
    from krepair.rewrite.compaction.items import KeysItem, touching
    from krepair.rewrite.compaction.partitions import rows_inline_of
    from krepair.rewrite.compaction.tasks import find_keys

    logs = [replica.log for replica in others.replicas]
    count = sum(len(log.segments) for log in logs)
    items = [
        (
            f"{log.place.path}/{log_name(base)}",
            KeysItem(
                place=log.place,
                base_offset=base,
                size=size,
                aborted=touching(aborted, base, 2**63 - 1),
                secret=secret,
                rows_inline=rows_inline_of(count),
                scratch=scratch,
                lowest=True,
            ),
        )
        for log, aborted in zip(
            logs, (aborted_of(each.replica.transactions) for each in others.replicas), strict=True
        )
        for base, size in log.segments
        if size
    ]
    files: list[RowFile] = []
    for where, keys in engine.each(find_keys, items):
        if keys.failure or keys.problem:
            raise NotKnownError(f"{where}: {keys.why or keys.problem}")
        files += keys.files
    return tuple(files)


# -- replicas with a history of their own: one of the two logs will be truncated where they diverge


def why_forked(context: Context, analysis: PartitionAnalysis, high_watermark: int) -> Skipped | None:
    """Return why records after the offset where two histories diverge supersede no older records, or None.

    A record past the divergence may supersede an older record in this log. If this log is later truncated at the
    divergence, the older record is missing only in this replica.

    Args:
        context: context with the logs of the other replicas.
        analysis: facts of a partition that was read.
        high_watermark: offset from which on nothing is compacted.

    Source: ``ReplicaFetcherThread``, ``AbstractFetcherThread.truncateOnFetchResponse`` (3.9.2); KIP-101, KIP-279.
    """
    others = analysis.result(OTHERS)
    if others is None:
        return None
    epochs = read_epochs_file(analysis.partition)
    if epochs.wrong:
        return Skipped("unreadable", f"{analysis.partition.folder}: {epochs.wrong}", damaged=True)
    mine = _own_history(analysis, epochs.recorded.entries)
    forks = [
        (fork, replica)
        for replica in others.replicas
        if (fork := find_fork(mine, replica.replica.history)) is not None
    ]
    fork, other = min(forks, default=(None, None), key=lambda fork_and_replica: fork_and_replica[0].offset)
    if fork is None or other is None or fork.offset >= high_watermark:
        return None
    here, there = (fork.epoch, fork.later) if fork.first_is_behind else (fork.later, fork.epoch)
    who = f"{other.log.place.path} of replica {other.log.broker}"
    return Skipped(
        "forked",
        f"from offset {fork.offset} on it has another history than {who}: leader epoch {here} here, {there} there. "
        "One of the two will be cut there",
        _compare_command(context, analysis),
    )


def _own_history(analysis: PartitionAnalysis, recorded: Sequence[EpochEntry]) -> History:
    starts = [tuple(entry) for entry in recorded]
    runs = runs_of_segments([facts.summary for facts in analysis.segments])
    return History(runs, np.array(starts, np.int64).reshape(-1, 2))


def _compare_command(context: Context, analysis: PartitionAnalysis) -> Next:
    sides = [
        f"{broker if broker >= 0 else 'ID'}={','.join(view.path for view in views)}"
        for broker, views in sorted(context.brokers.items())
    ]
    return Next.of("compare", *sides, "--partition", analysis.partition.folder)


# -- the third reading: markers that the staged logs lack are compared with the transactions of the other replicas


class Staged(NamedTuple):
    """Logs of one partition before and after a rewrite.

    Attributes:
        staging: staging of the partition.
        place: location of the partition.
        others: other replicas that the partition's part of the plan relies on.
        logs: (base offset, absolute path, bytes of valid batches) of all logs as they were, ascending.
        results: absolute path of each new log, by the base offset of the log that it replaces.
    """

    staging: Staging
    place: Place
    others: tuple[ReplicaLog, ...]
    logs: tuple[tuple[int, str, int], ...]
    results: dict[int, str]


def prove_markers(work: Work, partitions: Sequence[Staged]) -> None:
    """Prove that no removed marker ends a transaction that another replica holds; store problems in the stagings."""
    from krepair.replicas.evidence_check import (
        MissingMarkersItem,
        find_missing_markers,
        find_needed,
    )

    resting = [partition for partition in partitions if partition.others]
    items = [
        MissingMarkersItem(
            place=partition.place, logs=partition.logs, results=partition.results, scratch=work.scratch.path
        )
        for partition in resting
    ]
    waiting: list[tuple[Staged, tuple[LogsItem, SpilledRows]]] = []
    for index, gone in work.engine.map(find_missing_markers, items):
        partition = resting[index]
        if isinstance(gone, Failed):
            partition.staging.record_failure(gone)
        elif gone.path or gone.data:
            waiting += [(partition, (log.all_of_it, gone)) for log in partition.others]
    for partition, needed in work.engine.each(find_needed, waiting):
        partition.staging.record_failure(needed)
