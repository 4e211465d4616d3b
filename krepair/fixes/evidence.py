"""Finds what is known of the other replicas of a partition, from the options and what they name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from krepair.errors import KrepairError, RefusedError
from krepair.fixes.context import Context, place_of
from krepair.fixes.other_logs import (
    OTHERS,
    Asked,
    Folders,
    NotKnownError,
    folders_of_others,
    other_replicas,
    read_others,
)
from krepair.fixes.replicas import ReplicaLog
from krepair.logdir.cluster import METADATA_FOLDER, ClusterView, read_cluster_file
from krepair.logdir.log_dirs import configured_metadata_dirs, why_of_another_broker
from krepair.logdir.metadata_log import Assignment
from krepair.logdir.replica import futures_of, replica_state
from krepair.logdir.values import LogDir, Partition
from krepair.options import EVERY_TOPIC, Options
from krepair.pipeline.items import LogsItem
from krepair.plan.model import Others, SearchedDir
from krepair.plan.view import time_text
from krepair.rules import span as spans
from krepair.rules.evidence import CLOCKS_APART_MS, Evidence, why_not_in_sync, why_not_of_now, why_other_topic
from krepair.rules.model import PartitionDecision
from krepair.rules.outcome import TombstoneHorizon

_Logs = tuple[tuple[ReplicaLog, ...], tuple[int, ...]]
"""Logs of the other replicas, and brokers of which it is a person's word that these are all."""
Clusters = tuple[ClusterView | None, tuple[ClusterView, ...]]
"""What ``--cluster`` names, and the metadata logs of this broker."""


def read_clusters(options: Options, view: LogDir) -> Clusters:
    """Read what is known of the cluster.

    Args:
        options: as typed.
        view: the log directory.

    Raises:
        UsageError: ``--cluster`` names no file, or ``--config`` cannot be read.
        RefusedError: what ``--cluster`` names is damaged, or of another cluster.
        UnreadableError: it could not be read.
    """
    given = read_cluster_file(options.cluster) if options.cluster else None
    if given is not None and given.cluster_id and view.cluster_id and given.cluster_id != view.cluster_id:
        raise RefusedError(
            f"--cluster {options.cluster} is of cluster {given.cluster_id}, {view.path} is of cluster {view.cluster_id}"
        )
    his = not why_of_another_broker(options.config, view.path, view.broker_id)
    dirs = configured_metadata_dirs(options.config) if his else ()
    return given, read_metadata(view, [f"{path}/{METADATA_FOLDER}" for path in dirs])


def read_metadata(view: LogDir, folders: Iterable[str]) -> tuple[ClusterView, ...]:
    """The metadata logs of a broker, as far as they can be read: nobody has asked for them.

    Args:
        view: the log directory; the log beside its partitions is one of them.
        folders: where they may be, too.
    """
    found: dict[str, ClusterView] = {}
    for folder in (f"{view.path}/{METADATA_FOLDER}", *folders):
        real = os.path.realpath(folder)
        if real not in found and os.path.isdir(real):
            with suppress(KrepairError):
                found[real] = read_cluster_file(real)
    ours = {"", view.cluster_id} if view.cluster_id else None
    return tuple(one for one in found.values() if ours is None or one.cluster_id in ours)


def others_of(context: Context) -> Others:
    """What was said of other replicas, as a plan records it."""
    options, cluster = context.options, context.cluster
    return Others(
        cluster="" if cluster is None else os.path.abspath(options.cluster),
        cluster_digest="" if cluster is None else cluster.digest,
        cluster_source="" if cluster is None else cluster.source,
        own_metadata=tuple(one.path for one in context.own_metadata),
        replicas=options.replicas,
        only_replica=options.only_replica,
        as_broker=options.as_broker,
        searched=_searched(context),
    )


def _searched(context: Context) -> tuple[SearchedDir, ...]:
    """The log directories beside this one in which a replica may be in the making."""
    views = [(broker, view) for broker, found in context.sides.items() for view in found]
    views += [(_broker_id(context), view) for view in context.own_dirs.views]
    found = {view.path: SearchedDir(broker_id=broker, path=view.path) for broker, view in views}
    return tuple(found[path] for path in sorted(found))


def evidence_of(context: Context, partition: Partition) -> Evidence:
    """What is known of the other replicas of one partition. The strongest kind counts. It is found once."""
    find_evidence(context, [partition])
    return context.evidence[partition.folder]


def find_evidence(context: Context, partitions: Iterable[Partition]) -> None:
    """Find what is known of the other replicas of many partitions, and read the logs of all of them in one job."""
    unknown = [partition for partition in partitions if partition.folder not in context.evidence]
    if not unknown:
        return
    folders = folders_of_others(context)
    known: list[tuple[Partition, Evidence]] = []
    asked: list[Asked] = []
    for partition in unknown:
        found = _found(context, partition, folders)
        if isinstance(found, Evidence):
            context.evidence[partition.folder] = _unless_moving(context, partition, found)
        else:
            logs, your_word = found
            known.append((partition, _of_replicas(context, logs, your_word)))
            asked.append(
                (LogsItem(place=place_of(context.view, partition), segments=partition.log_sizes[:-1]), logs)
            )
    scratch = context.scratch.path if asked else ""
    for (partition, evidence), others in zip(known, read_others(context.engine, scratch, asked), strict=True):
        if isinstance(others, NotKnownError):
            evidence = _unless_moving(context, partition, _without_logs(context, str(others)))
        else:
            context.survey(partition).put(OTHERS, others)
        context.evidence[partition.folder] = evidence


def forget_logs(context: Context, partition: Partition, why: str) -> None:
    """The logs of the other replicas turned out to say nothing: everything stays."""
    context.survey(partition).put(OTHERS, None)
    context.evidence[partition.folder] = Evidence(kind="none", why=why)


def _found(context: Context, partition: Partition, folders: Folders) -> Evidence | _Logs:
    """What is known, or whose logs have to be read first."""
    return _of_an_only_one(context, partition) or _of_the_cluster(context, partition, folders)


def _unless_moving(context: Context, partition: Partition, found: Evidence) -> Evidence:
    """Evidence without the logs of others counts only where the broker does not move the partition between its disks.

    It goes on copying from this log to the new one, which may have a value already whose tombstone would go here, or
    records of a transaction whose marker would. Kafka pauses the cleaner of such a partition.

    Source: ``ReplicaManager``, ``LogManager.abortAndPauseCleaning`` (3.9.2); KIP-113.
    """
    if found.kind == "none":
        return found
    if context.own_dirs.unread:
        return Evidence(kind="none", why=context.own_dirs.unread)
    for view in (context.view, *context.own_dirs.views):
        for one in futures_of(view, partition.topic, partition.number):
            return Evidence(
                kind="none",
                why=f"the broker moves it to another log directory ({view.path}/{one.folder}), and does not clean it "
                "meanwhile",
            )
    return found


def _line(context: Context, partition: Partition) -> Assignment | None:
    """What ``--cluster`` says of the partition."""
    cluster = context.cluster
    return None if cluster is None else cluster.partitions.get(partition.key)


def _of_an_only_one(context: Context, partition: Partition) -> Evidence | None:
    """Evidence that there is no other replica, or that this was said although there is one; None if neither."""
    options, line = context.options, _line(context, partition)
    said = next((one for one in (partition.topic, EVERY_TOPIC) if one in options.only_replica), "")
    own = _lines_in(context.own_metadata, context.view, partition)
    for where, known in ((options.cluster, line), *own):
        if said and known is not None and len(known.replicas) > 1:
            brokers = ", ".join(map(str, known.replicas))
            return Evidence(kind="none", why=f"--only-replica {said}, but {where} has replicas {brokers}")
    if said:
        return Evidence(kind="only-replica", why=f"--only-replica {said}: there is said to be no other one")
    if own and all(_is_only_one(context.view, one) for _, one in own):
        return Evidence(kind="only-replica", why=f"{own[0][0]} has this broker as its only replica")
    return None


def why_not_only_now(
    view: LogDir, metadata: Sequence[ClusterView], partition: Partition, *, said: bool
) -> str:
    """Why a replica that was the only one may not be so any more, by the metadata logs of its broker; empty if it is.

    Args:
        view: the log directory as it is now.
        metadata: these logs as they are now.
        partition: of the replica.
        said: whether a person has said that there is no other one: then only what contradicts that counts.
    """
    lines = _lines_in(metadata, view, partition)
    was = f"{partition.folder} was the only replica when the plan was made, but"
    for where, line in lines:
        if not _is_only_one(view, line) and not (said and len(line.replicas) < 2):
            here = list(line.replicas) == [_id_of(view)]
            found = "moves it" if here else f"has replicas {', '.join(map(str, line.replicas))}"
            return f"{was} {where} {found} now"
    return "" if lines or said else f"{was} {view.path}/{METADATA_FOLDER} does not tell it now"


def _lines_in(
    metadata: Sequence[ClusterView], view: LogDir, partition: Partition
) -> list[tuple[str, Assignment]]:
    """(path of a metadata log, what it says of a partition), of those that have it, and of the same topic."""
    topic_id = replica_state(view, partition).topic_id
    key = partition.key
    lines = ((log.path, log.partitions.get(key)) for log in metadata if not log.no_proof)
    return [(path, line) for path, line in lines if line is not None and not why_other_topic(topic_id, line)]


def _of_the_cluster(context: Context, partition: Partition, folders: Folders) -> Evidence | _Logs:
    """Evidence from what the running brokers say, or by consent."""
    line, why = _line(context, partition), "nothing is said of other replicas"
    if context.options.replicas:
        try:
            return other_replicas(context, partition, line, _broker_id(context), folders)
        except NotKnownError as error:
            why = str(error)
    elif context.cluster is not None:
        why = _why_not_in_sync(context, partition, line)
        if not why and line is not None:
            return Evidence(kind="in-sync", why=_in_sync_text(context, partition, line))
    return _without_logs(context, why)


def _without_logs(context: Context, why: str) -> Evidence:
    """What counts where nothing is known of the other replicas."""
    if context.options.as_broker:
        return Evidence(kind="as-broker", why="--as-broker: by time alone, as a broker's cleaner would")
    return Evidence(kind="none", why=why)


def _assigned_since(context: Context) -> str:
    """What to say of an assignment that is older than the logs, or empty.

    It cannot show who was assigned since. That one may hold an older record, and was not read.
    """
    cluster = context.cluster
    if cluster is None:
        return ""
    others = (view for views in context.sides.values() for view in views)
    given = (context.view, *context.own_dirs.views, *others)
    late_ms = max(map(_last_write_ms, given)) - cluster.as_of_ms
    if late_ms <= CLOCKS_APART_MS:
        return ""
    return (
        f"; {context.options.cluster} is from {late_ms // 1000} s before the last write in the given log directories: "
        "that no replica was assigned in between is your word"
    )


def _of_replicas(context: Context, logs: Sequence[ReplicaLog], your_word: Sequence[int]) -> Evidence:
    """The logs of the other replicas were read."""
    brokers = ", ".join(str(one.broker) for one in logs) or "none"
    words = [f"; that these are all log directories of broker {broker} is your word" for broker in your_word]
    why = f"the logs of the other replicas were read: {brokers}{''.join(words)}{_assigned_since(context)}"
    return Evidence(kind="replicas", why=why, logs=tuple(one.planned for one in logs))


def _is_only_one(view: LogDir, line: Assignment) -> bool:
    """Whether a metadata log assigns this replica alone, and in this directory."""
    me = _id_of(view)
    if list(line.replicas) != [me] or line.moving:
        return False
    here, assigned = view.directory_id, _directory_of(line, me)
    return not (here and assigned) or here == assigned


def _directory_of(line: Assignment, broker_id: int) -> str:
    """Id of the log directory that a broker's replica is assigned to; empty where it is not known (KIP-858)."""
    if len(line.directories) != len(line.replicas):
        return ""
    found = line.directories[line.replicas.index(broker_id)]
    return "" if found in _RESERVED else found


_RESERVED: Final = frozenset({"AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"})
"""Ids 0, 1 and 2: migrating, unassigned, lost. Source: DirectoryId.java (3.9.2)."""


def _broker_id(context: Context) -> int:
    return _id_of(context.view)


def _id_of(view: LogDir) -> int:
    text = view.broker_id
    return int(text) if text.isascii() and text.isdigit() else -1


def _why_not_in_sync(context: Context, partition: Partition, line: Assignment | None) -> str:
    """Why what ``--cluster`` names does not show that all others are in sync without this broker; empty if it does."""
    assert context.cluster is not None
    if context.cluster.source != "describe":
        return f"{context.options.cluster} was not written by a running broker"
    topic_id = replica_state(context.view, partition).topic_id
    found = why_not_in_sync(_broker_id(context), topic_id, line) or _why_not_of_now(context)
    return found.replace("TOPIC", partition.topic)


def _why_not_of_now(context: Context) -> str:
    """Why what ``--cluster`` names is from before this broker's stop, or empty."""
    assert context.cluster is not None
    last_write = _last_write_ms(context.view)
    if last_write < 0:
        return "no checkpoint is here that shows when this broker last wrote"
    return why_not_of_now(context.cluster.as_of_ms, last_write)


def _last_write_ms(view: LogDir) -> int:
    """When the broker last wrote its high watermarks: every 5 s, and at its stop. A log may be dated in the future.

    Without them the latest of the other checkpoints counts; -1 without any.
    """
    marks = view.high_watermark.file
    others = (one.file for one in (view.recovery_point, view.log_start, view.cleaner))
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
    asked = time_text(context.cluster.as_of_ms)
    return f"{text}; {context.options.cluster} is of {asked}: if it was copied, this is the time of the copy"


def with_bytes(
    evidence: Evidence,
    decision: PartitionDecision,
    tombstones: Iterable[TombstoneHorizon] = (),
    file_bytes: int = -1,
) -> Evidence:
    """Evidence with the bytes of the three parts.

    Args:
        evidence: of the partition.
        decision: on its markers.
        tombstones: what each horizon would do to tombstones.
        file_bytes: bytes of the logs of the span, where records go by key; -1 where none do.
    """
    after = {choice.name: choice.log_bytes_after for choice in decision.horizons}
    chosen = next((choice.name for choice in decision.horizons if choice.chosen), spans.NONE)
    goes = {choice.name: choice.dropped_bytes for choice in tombstones}
    before = file_bytes if file_bytes >= 0 else sum(one.log_bytes for one in decision.outcomes)
    of_keys = goes.get(chosen, 0)
    return replace(
        evidence,
        always_bytes=max(before - after[spans.NONE] - of_keys, 0),
        by_time_bytes=_more(after, goes, spans.NONE, "newest"),
        later_bytes=_more(after, goes, "newest", "unlimited"),
    )


def _more(after: Mapping[str, int], goes: Mapping[str, int], less: str, more: str) -> int:
    """Bytes that one choice of the horizon removes more than another."""
    return max(after[less] - after[more] + goes.get(more, 0) - goes.get(less, 0), 0)
