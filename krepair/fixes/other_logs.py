"""The logs of the other replicas of a partition: which they are, and what stays here for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from krepair.derive.transactions import aborted_of
from krepair.errors import StalePlanError
from krepair.fixes.context import Context, ListedLog, OtherReplicas, place_of
from krepair.formats.filenames import log_name
from krepair.logdir.cluster import Assignment, ClusterView
from krepair.logdir.replica import CURRENT, ReplicaState, futures_of, replica_state
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir, read_partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed, LogElsewhere
from krepair.rules.evidence import OtherLog, why_other_topic
from krepair.rules.replicas.epochs import History
from krepair.rules.replicas.replica import Replica, ReplicaHeaders, table

if TYPE_CHECKING:
    from krepair.pipeline.compaction.items import RowFile

DIGEST_BYTES: Final = 16
_AT_ONCE: Final = 256
"""Partitions whose other replicas are read in one job."""
Asked = tuple[LogElsewhere, tuple[ListedLog, ...]]
"""A log, its bytes those of valid batches, and those of the other replicas for which its markers may have to stay."""
Folders = Mapping[tuple[int, str, int], Sequence[tuple[LogDir, Partition]]]
"""(broker, topic, number) -> the folders of that partition, each with its log directory."""


class LockedDirs:
    """Log directories of other replicas, whose locks apply holds: no broker changes them meanwhile.

    Their partitions are many, and are not all listed again for each of ours.
    """

    def __init__(self) -> None:
        self._views: dict[str, LogDir] = {}

    def look(self, log_dir: str, folder: str) -> tuple[LogDir, Partition | None]:
        """A log directory, and one partition folder of it as it is now.

        Args:
            log_dir: absolute path of the log directory.
            folder: name of the folder.

        Returns:
            The directory as it was listed first; and the folder, None if it was not there, or is not any more.

        Raises:
            NotALogDirError: it is no log directory.
            UnreadableError: it cannot be read.
        """
        view = self._views.get(log_dir)
        if view is None:
            view = self._views[log_dir] = read_log_dir(log_dir)
        if all(one.folder != folder for one in (*view.partitions, *view.marked)):
            return view, None
        try:
            return view, read_partition(view, folder)
        except OSError:
            return view, None


class NotKnownError(Exception):
    """Why the other replicas of a partition are not known, so that everything has to stay."""


def digest_of_files(partition: Partition) -> str:
    """32 hex digits over name, size and time of all files of a partition folder."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in partition.files():
        digest.update(f"{file.name} {file.size} {file.mtime_ns}\n".encode())
    return digest.hexdigest()


# -- which they are


def other_replicas(
    context: Context, partition: Partition, line: Assignment | None, me: int, folders: Folders
) -> tuple[tuple[ListedLog, ...], tuple[int, ...]]:
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


def _current(broker: int, folders: Folders, partition: Partition) -> ListedLog:
    here = folders.get((broker, partition.topic, partition.number), ())
    same = [listed(broker, view, one) for view, one in here]
    if len(same) != 1:
        raise NotKnownError(f"replica {broker}: {len(same)} folders of it were found, one was expected")
    return same[0]


def _futures(broker: int, views: Iterable[LogDir], partition: Partition) -> Iterator[ListedLog]:
    for view in views:
        for one in futures_of(view, partition.topic, partition.number):
            yield listed(broker, view, one)


def listed(broker: int, view: LogDir, partition: Partition) -> ListedLog:
    """A log of another replica.

    Raises:
        NotKnownError: its folder does not tell what the replica will hold.
    """
    log = OtherLog(
        broker_id=broker,
        log_dir=view.path,
        folder=partition.folder,
        digest=digest_of_files(partition),
    )
    place = place_of(view, partition)
    state = replica_state(view, partition)
    wrong = why_no_evidence(partition, state)
    if wrong:
        raise NotKnownError(f"{view.path}/{partition.folder} of replica {broker}: {wrong}")
    return ListedLog(place, partition.log_sizes, log, state)


def why_no_evidence(partition: Partition, state: ReplicaState) -> str:
    """Why a folder does not tell what its replica will hold, before its log is read; or empty."""
    if state.damage:
        return state.damage
    if partition.leftovers or partition.special_logs:
        return "there are leftovers in it"
    if partition.private:
        return "krepair still keeps originals in it, and they may come back; purge them first"
    return "it has no log" if not partition.segments and state.kind == CURRENT else ""


def _check(one: ListedLog, mine: ReplicaState, line: Assignment) -> None:
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
) -> list[ListedLog]:
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
        if one.log.digest != log.digest:
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
    from krepair.pipeline.replicas.headers import read_headers_of_all
    from krepair.pipeline.replicas.items import ReplicaItem
    from krepair.pipeline.replicas.markers_to_keep import MarkersItem, find_markers_to_keep

    logs = [(number, log) for number, (_, of_one) in enumerate(asked) for log in of_one]
    items = [
        ReplicaItem(place=log.place, segments=log.segments, evidence=True, scratch=scratch) for _, log in logs
    ]
    problems: dict[int, str] = {}
    read: list[list[tuple[int, History, Replica]]] = [[] for _ in asked]
    for index, headers in read_headers_of_all(engine, items):
        number, log = logs[index]
        problem = _why_not_known(log, headers)
        if problem:
            problems[number] = problem
        else:
            replica = Replica.of(log.log.broker_id, log.state, headers)
            history = replica.history._replace(who=f"{log.place.path} of replica {replica.broker}")
            read[number].append((index, history, replica))
    found: list[OtherReplicas] = []
    keeping: list[tuple[int, MarkersItem]] = []
    for number, (mine, of_one) in enumerate(asked):
        in_order = sorted(read[number], key=itemgetter(0))
        histories = tuple(history for _, history, _ in in_order)
        replicas = [one for *_, one in in_order]
        aborted = tuple(aborted_of(one.transactions) for one in replicas)
        found.append(OtherReplicas(of_one, histories=histories, aborted=aborted))
        runs = tuple(one.headers.runs for one in replicas if one.headers.runs)
        if runs and number not in problems:
            keeping.append((number, MarkersItem(place=mine.place, segments=mine.segments, runs=runs)))
    for number, kept in engine.each(find_markers_to_keep, keeping):
        if isinstance(kept, Failed):
            problems[number] = kept.why
        else:
            found[number] = replace(found[number], markers=kept)
    return [
        NotKnownError(problems[number]) if number in problems else one for number, one in enumerate(found)
    ]


def _why_not_known(one: ListedLog, headers: ReplicaHeaders) -> str:
    """Why the log of a replica does not tell what it holds, or empty."""
    who = f"replica {one.log.broker_id}"
    if headers.failure:
        return f"{who}: {headers.why}"
    for damage in headers.damages:
        return f"{who}: {one.place.path}/{damage.text}"
    for end, following in table(headers.borders, 2).tolist():
        if following < end:
            return f"{who}: {one.place.path}: an offset of {end} or more was expected, found {following}"
    recorded = max(one.state.high_watermark, one.state.recovery_point)
    if one.state.kind == CURRENT and recorded > headers.log_end:
        return f"{one.place.path} of {who} is cut: it ends at {headers.log_end}"
    return ""


def rows_elsewhere(engine: Engine, others: OtherReplicas, secret: bytes, scratch: str) -> tuple[RowFile, ...]:
    """The keys of the other replicas: of each the lowest offset of a record that is not known as aborted there.

    Raises:
        NotKnownError: a log cannot be read.
    """
    from krepair.pipeline.compaction.items import KeysItem, touching
    from krepair.pipeline.compaction.partitions import rows_inline_of
    from krepair.pipeline.compaction.tasks import find_keys

    count = sum(len(one.segments) for one in others.logs)
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
        for one, aborted in zip(others.logs, others.aborted, strict=True)
        for base, size in one.segments
        if size
    ]
    files: list[RowFile] = []
    for where, keys in engine.each(find_keys, asked):
        if keys.failure or keys.problem:
            raise NotKnownError(f"{where}: {keys.why or keys.problem}")
        files += keys.files
    return tuple(files)
