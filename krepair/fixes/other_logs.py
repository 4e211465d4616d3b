"""The logs of the other replicas of a partition: which they are, and what stays here for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from krepair.derive.transactions import aborted_of
from krepair.errors import StalePlanError
from krepair.fixes.context import Context
from krepair.fixes.replicas import ReadReplica, ReplicaLog, digest_of_files, log_of, read_replicas
from krepair.fixes.survey import Sight
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.logdir.cluster import ClusterView
from krepair.logdir.metadata_log import Assignment
from krepair.logdir.replica import CURRENT, ReplicaState, futures_of, replica_state
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import LockedDirs
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed, LogsItem
from krepair.rules.evidence import OtherLog, why_other_topic
from krepair.rules.replicas.replica import table

if TYPE_CHECKING:
    from krepair.pipeline.compaction.items import RowFile

_AT_ONCE: Final = 256
"""Partitions whose other replicas are read in one job."""
Asked = tuple[LogsItem, tuple[ReplicaLog, ...]]
"""A log, its bytes those of valid batches, and those of the other replicas for which its markers may have to stay."""
Folders = Mapping[tuple[int, str, int], Sequence[tuple[LogDir, Partition]]]
"""(broker, topic, number) -> the folders of that partition, each with its log directory."""


class NotKnownError(Exception):
    """Why the other replicas of a partition are not known, so that everything has to stay."""


@dataclass(frozen=True)
class OtherReplicas:
    """What is known of the other replicas of a partition, whose logs were read.

    Attributes:
        replicas: theirs.
        markers: int64[H], ascending offsets of markers that stay, since one of them has a batch of their transaction.
    """

    replicas: tuple[ReadReplica, ...] = ()
    markers: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


OTHERS: Final[Sight[OtherReplicas | None]] = Sight("other replicas")
"""Where their logs were read."""


# -- which they are


def other_replicas(
    context: Context, partition: Partition, line: Assignment | None, me: int, folders: Folders
) -> tuple[tuple[ReplicaLog, ...], tuple[int, ...]]:
    """All assigned replicas but this one, and folders that a broker is about to make replicas.

    Args:
        context: with the log directories of the other brokers.
        partition: of this broker.
        line: what the cluster says of it.
        me: id of this broker.
        folders: see ``folders_of_others``.

    Returns:
        (their logs; brokers of which nothing but a person says that all their log directories were read).

    Raises:
        NotKnownError: one is missing, cannot be read, or is of another topic of the same name.
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
    logs = list(_futures(me, (context.view, *context.own_dirs.views), partition))
    others = [broker for broker in line.replicas if broker != me]
    your_word = tuple(broker for broker in others if not _is_whole(context, broker))
    if context.own_dirs.unsaid:
        your_word = tuple(sorted((me, *your_word)))
    for broker in others:
        logs.append(_current(broker, folders, partition))
        logs += _futures(broker, context.sides[broker], partition)
    for one in logs:
        _check(one, mine, line)
    _check_one_topic(one.state for one in logs)
    return tuple(logs), your_word


def _check_own(context: Context, mine: ReplicaState, line: Assignment, me: int) -> None:
    """Check that this broker is assigned, and that all its log directories are known.

    Raises:
        NotKnownError: not so, or the state of the cluster is of another topic of the same name.
    """
    assert context.cluster is not None
    if me not in line.replicas:
        raise NotKnownError(f"broker {me} is not among its replicas")
    other_topic = why_other_topic(mine.topic_id, line)
    unknown = "" if context.own_dirs.unsaid else context.own_dirs.unknown
    if other_topic or unknown:
        raise NotKnownError(other_topic or unknown)
    views = (context.view, *context.own_dirs.views)
    _check_all_read(context.cluster, me, [view.directory_id for view in views])


def _is_whole(context: Context, broker: int) -> bool:
    """Whether it is known that all log directories of a broker were read: else that is the word of a person.

    Raises:
        NotKnownError: it is not given, does not say whose it is, or has more log directories.
    """
    assert context.cluster is not None
    if broker not in context.sides:
        raise NotKnownError(f"replica {broker} is not given with --replicas")
    views = context.sides[broker]
    nobodys = [view.path for view in views if not view.broker_id]
    if nobodys:
        raise NotKnownError(f"replica {broker}: {nobodys[0]} does not say whose it is (meta.properties)")
    return _check_all_read(context.cluster, broker, [view.directory_id for view in views])


def _check_all_read(cluster: ClusterView, broker: int, ids: Sequence[str]) -> bool:
    """Whether the metadata log shows that all log directories of a broker were read (3.7 and later).

    Args:
        cluster: what the cluster says.
        broker: whose they are.
        ids: of those that were read, empty where one has none.

    Raises:
        NotKnownError: it has registered others.
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
    """All partition folders of other brokers' log directories."""
    found: dict[tuple[int, str, int], list[tuple[LogDir, Partition]]] = {}
    for broker, views in context.sides.items():
        for view in views:
            for one in view.partitions:
                found.setdefault((broker, one.topic, one.number), []).append((view, one))
    return found


def _current(broker: int, folders: Folders, partition: Partition) -> ReplicaLog:
    here = folders.get((broker, partition.topic, partition.number), ())
    same = [listed(broker, view, one) for view, one in here]
    if len(same) != 1:
        raise NotKnownError(f"replica {broker}: {len(same)} folders of it were found, one was expected")
    return same[0]


def _futures(broker: int, views: Iterable[LogDir], partition: Partition) -> Iterator[ReplicaLog]:
    for view in views:
        for one in futures_of(view, partition.topic, partition.number):
            yield listed(broker, view, one)


def listed(broker: int, view: LogDir, partition: Partition) -> ReplicaLog:
    """A log of another replica.

    Raises:
        NotKnownError: its folder does not tell what the replica will hold.
    """
    state = replica_state(view, partition)
    wrong = why_no_evidence(partition, state)
    if wrong:
        raise NotKnownError(f"{view.path}/{partition.folder} of replica {broker}: {wrong}")
    return log_of(broker, view, partition, state)


def why_no_evidence(partition: Partition, state: ReplicaState) -> str:
    """Why a folder does not tell what its replica will hold, before its log is read; or empty."""
    if state.damage:
        return state.damage
    if partition.leftovers or partition.special_logs:
        return "there are leftovers in it"
    if partition.private:
        return "krepair still keeps originals in it, and they may come back; purge them first"
    return "it has no log" if not partition.segments and state.kind == CURRENT else ""


def _check(one: ReplicaLog, mine: ReplicaState, line: Assignment) -> None:
    for other in (mine.topic_id, line.topic_id):
        if one.state.topic_id and other and one.state.topic_id != other:
            raise NotKnownError(f"{one.place.path} has topic id {one.state.topic_id}, expected {other}")


def _check_one_topic(states: Iterable[ReplicaState]) -> None:
    """Check that the others are of one topic, where neither this replica nor the cluster tells its id.

    Raises:
        NotKnownError: they are of several topics of one name.
    """
    found = sorted({state.topic_id for state in states if state.topic_id})
    if len(found) > 1:
        raise NotKnownError(
            f"the other replicas are of several topics of this name: their ids are {', '.join(found)}"
        )


def logs_again(
    logs: Sequence[OtherLog], own: LogDir, mine: ReplicaState, dirs: LockedDirs
) -> list[ReplicaLog]:
    """The logs that a plan names, as they are now.

    Args:
        logs: of the plan.
        own: the log directory of the plan.
        mine: this broker's replica.
        dirs: the log directories that hold them.

    Raises:
        StalePlanError: one is not there any more, or is not as it was; or there is one more.
    """
    views: dict[str, LogDir] = {}
    host = own.host
    found = []
    for log in logs:
        view, here = dirs.look(log.log_dir, log.folder)
        views[log.log_dir] = view
        where = f"{log.log_dir}/{log.folder}, the log of broker {log.broker_id}"
        if here is None or view.host != host or view.broker_id not in ("", str(log.broker_id)):
            raise StalePlanError(f"{where}: is not there any more, or is another one")
        try:
            one = listed(log.broker_id, view, here)
        except NotKnownError as error:
            raise StalePlanError(str(error)) from error
        if digest_of_files(here) != log.digest:
            raise StalePlanError(f"{where}: has changed since the plan was made")
        found.append(one)
    known = {(log.log_dir, log.folder) for log in logs}
    for view in (own, *views.values()):
        for marked in futures_of(view, mine.topic, mine.partition):
            if (view.path, marked.folder) not in known:
                raise StalePlanError(f"{view.path}/{marked.folder}: has come since the plan was made")
    return found


# -- what stays for them


def read_others(engine: Engine, scratch: str, asked: Sequence[Asked]) -> list[OtherReplicas | NotKnownError]:
    """Read the headers of the other replicas of partitions, those of many in one job.

    Args:
        engine: where tasks run.
        scratch: path of a scratch folder, empty if there is none.
        asked: the partitions.

    Returns:
        For each partition what is known of them, or why they are not known.
    """
    found: list[OtherReplicas | NotKnownError] = []
    for first in range(0, len(asked), _AT_ONCE):
        found += _read_some(engine, scratch, asked[first : first + _AT_ONCE])
    return found


def _read_some(engine: Engine, scratch: str, asked: Sequence[Asked]) -> list[OtherReplicas | NotKnownError]:
    from krepair.pipeline.replicas.markers_to_keep import MarkersItem, find_markers_to_keep

    read = read_replicas(engine, [log for _, of_one in asked for log in of_one], scratch)
    found: list[OtherReplicas | NotKnownError] = []
    keeping: list[tuple[int, MarkersItem]] = []
    for number, (mine, of_one) in enumerate(asked):
        replicas = tuple(itertools.islice(read, len(of_one)))
        problem = next(filter(None, map(_why_not_known, replicas)), "")
        found.append(NotKnownError(problem) if problem else OtherReplicas(replicas))
        runs = tuple(one.replica.headers.runs for one in replicas if one.replica.headers.runs)
        if runs and not problem:
            keeping.append((number, MarkersItem(place=mine.place, segments=mine.segments, runs=runs)))
    for number, kept in engine.each(find_markers_to_keep, keeping):
        known = found[number]
        if isinstance(kept, Failed):
            found[number] = NotKnownError(kept.why)
        elif isinstance(known, OtherReplicas):
            found[number] = replace(known, markers=kept)
    return found


def _why_not_known(one: ReadReplica) -> str:
    """Why the log of a replica does not tell what it holds, or empty."""
    who, path, headers = f"replica {one.log.broker}", one.log.place.path, one.replica.headers
    if headers.failure:
        return f"{who}: {headers.why}"
    for damage in headers.damages:
        return f"{who}: {path}/{damage.text}"
    for end, following in table(headers.borders, 2).tolist():
        if following < end:
            return f"{who}: {path}: an offset of {end} or more was expected, found {following}"
    recorded = max(one.log.state.high_watermark, one.log.state.recovery_point)
    if one.log.state.kind == CURRENT and recorded > headers.log_end:
        return f"{path} of {who} is cut: it ends at {headers.log_end}"
    return ""


def rows_elsewhere(engine: Engine, others: OtherReplicas, secret: bytes, scratch: str) -> tuple[RowFile, ...]:
    """The keys of the other replicas: of each the lowest offset of a record that is not known as aborted there.

    Raises:
        NotKnownError: a log cannot be read.
    """
    from krepair.pipeline.compaction.items import KeysItem, touching
    from krepair.pipeline.compaction.partitions import rows_inline_of
    from krepair.pipeline.compaction.tasks import find_keys

    logs = [one.log for one in others.replicas]
    count = sum(len(one.log.segments) for one in logs)
    asked = [
        (
            f"{one.place.path}/{log_name(base)}",
            KeysItem(
                place=one.place,
                base_offset=base,
                size=size,
                aborted=touching(aborted, base, 2**63 - 1),
                secret=secret,
                rows_inline=rows_inline_of(count),
                scratch=scratch,
                lowest=True,
            ),
        )
        for one, aborted in zip(
            logs, (aborted_of(each.replica.transactions) for each in others.replicas), strict=True
        )
        for base, size in one.log.segments
        if size
    ]
    files: list[RowFile] = []
    for where, keys in engine.each(find_keys, asked):
        if keys.failure or keys.problem:
            raise NotKnownError(f"{where}: {keys.why or keys.problem}")
        files += keys.files
    return tuple(files)
