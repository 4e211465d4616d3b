"""The logs of the other replicas of a partition: which they are, and what they hold back here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from krepair.errors import StalePlanError
from krepair.fixes.context import Context, place_of
from krepair.fixes.other_dirs import LockedDirs
from krepair.fixes.other_facts import FactsLog, NotKnownError, facts_log
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.cluster import Assignment, ClusterView
from krepair.logdir.replica import CURRENT, ReplicaState, futures_of, replica_state
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import LogElsewhere, LogsItem, Place
from krepair.rules.evidence import OtherLog, why_other_topic
from krepair.rules.replicas.epochs import History

if TYPE_CHECKING:
    from krepair.pipeline.compaction.items import RowFile
    from krepair.pipeline.replicas.holdings import HeldResult

DIGEST_BYTES: Final = 16
_AT_ONCE: Final = 256
_NO_OFFSETS: Final = np.empty(0, np.int64)
Folders = Mapping[tuple[int, str, int], Sequence[tuple[LogDir, Partition]]]
"""(broker, topic, number) -> the folders of that partition, each with its log directory."""


@dataclass(frozen=True)
class ListedLog(LogElsewhere):
    """The log of another replica as listed.

    Attributes:
        log: as a plan names it.
        state: what its directory says of it.
    """

    log: OtherLog
    state: ReplicaState


def digest_of_files(partition: Partition) -> str:
    """32 hex digits over name, size and time of all files of a partition folder."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in partition.files():
        digest.update(f"{file.name} {file.size} {file.mtime_ns}\n".encode())
    return digest.hexdigest()


# -- which they are


@dataclass(frozen=True)
class OtherReplicas:
    """All other replicas of a partition.

    Attributes:
        logs: those whose directories are at hand, with the folders that a broker is about to make replicas.
        facts: those of which there are facts.
        your_word: brokers of which nothing but a person says that all their log directories were read.
    """

    logs: tuple[ListedLog, ...] = ()
    facts: tuple[FactsLog, ...] = ()
    your_word: tuple[int, ...] = ()

    @property
    def reach(self) -> int:
        """Below this offset it is known what every other replica holds."""
        return min((one.reach for one in self.facts), default=INT64_MAX)


def other_replicas(
    context: Context, partition: Partition, line: Assignment | None, me: int, folders: Folders
) -> OtherReplicas:
    """All assigned replicas but this one, and folders that a broker is about to make replicas.

    Args:
        context: with the log directories and facts of the other brokers.
        partition: of this broker.
        line: what the cluster says of it.
        me: id of this broker.
        folders: see ``folders_of_others``.

    Raises:
        NotKnownError: one is missing, cannot be read, or is of another topic of the same name.
    """
    if context.cluster is None:
        raise NotKnownError("--replicas without --cluster does not tell which replicas there are")
    if line is None:
        raise NotKnownError(f"{context.options.cluster} does not list it")
    mine = replica_state(context.view, partition)
    _check_own(context, mine, line, me)
    logs = list(_futures(me, (context.view, *context.sides.get(me, ())), partition))
    facts: list[FactsLog] = []
    others = [broker for broker in line.replicas if broker != me]
    your_word = tuple(broker for broker in others if not _is_whole(context, broker))
    if context.own_unsaid:
        your_word = tuple(sorted((me, *your_word)))
    for broker in others:
        if broker in context.facts:
            facts.append(facts_log(context.facts[broker], mine, line))
        else:
            logs.append(_current(broker, folders, partition))
            logs += _futures(broker, context.sides[broker], partition)
    for one in logs:
        _check(one, mine, line)
    of_facts = (one.side.state.partitions[index] for one in facts for index in one.indexes)
    _check_one_topic([*(one.state for one in logs), *of_facts])
    return OtherReplicas(tuple(logs), tuple(facts), your_word)


def _check_own(context: Context, mine: ReplicaState, line: Assignment, me: int) -> None:
    """Check that this broker is assigned, and that all its log directories are known.

    Raises:
        NotKnownError: not so, or the state of the cluster is of another topic of the same name.
    """
    assert context.cluster is not None
    if me not in line.replicas:
        raise NotKnownError(f"broker {me} is not among its replicas")
    other_topic = why_other_topic(mine.topic_id, line)
    if other_topic or context.not_read:
        raise NotKnownError(other_topic or context.not_read)
    views = (context.view, *context.sides.get(me, ()))
    _check_all_read(context.cluster, me, [view.directory_id for view in views])


def _is_whole(context: Context, broker: int) -> bool:
    """Whether it is known that all log directories of a broker were read: else that is the word of a person.

    Raises:
        NotKnownError: it is not given, does not say whose it is, or has more log directories.
    """
    assert context.cluster is not None
    if broker not in context.facts and broker not in context.sides:
        raise NotKnownError(f"replica {broker} is not given with --replicas")
    if broker in context.facts:
        side = context.facts[broker]
        nobodys = [] if side.state.broker_id else [side.path]
        ids, configured = [one.directory_id for one in side.state.directories], side.state.configured
    else:
        views = context.sides[broker]
        nobodys = [view.path for view in views if not view.broker_id]
        ids, configured = [view.directory_id for view in views], False
    if nobodys:
        raise NotKnownError(f"replica {broker}: {nobodys[0]} does not say whose it is (meta.properties)")
    return _check_all_read(context.cluster, broker, ids) or configured


def _check_all_read(cluster: ClusterView, broker: int, ids: Sequence[str]) -> bool:
    """Whether the metadata log shows that all log directories of a broker were read (3.7 and later).

    Args:
        cluster: what the cluster says.
        broker: whose they are.
        ids: of those that were read, empty where one has none.

    Raises:
        NotKnownError: it has registered others.
    """
    registered = cluster.brokers[broker].log_dirs if broker in cluster.brokers else ()
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


# -- what they hold back


@dataclass(frozen=True)
class Holders:
    """A partition, and who may hold back its markers.

    Attributes:
        mine: this replica.
        segments: (base offset, bytes of valid batches) of it, ascending.
        others: the other replicas.
    """

    mine: Place
    segments: tuple[tuple[int, int], ...]
    others: OtherReplicas


class Held(NamedTuple):
    """What the other replicas of a partition hold back.

    Attributes:
        markers: int64[H], ascending offsets of markers that stay, since one of them has a batch of their transaction.
        histories: their leader epochs.
    """

    markers: Int64s = _NO_OFFSETS
    histories: tuple[History, ...] = ()


def held_markers(engine: Engine, scratch: str, one: Holders) -> Int64s:
    """As ``markers_held``, of one partition: the markers alone.

    Raises:
        NotKnownError: a log of the others is damaged, cut, or cannot be read.
    """
    [found] = markers_held(engine, scratch, [one])
    if isinstance(found, NotKnownError):
        raise found
    return found.markers


def markers_held(engine: Engine, scratch: str, asked: Sequence[Holders]) -> list[Held | NotKnownError]:
    """What the other replicas hold back.

    Args:
        engine: where tasks run.
        scratch: path of a scratch folder, empty if there is none.
        asked: the partitions. The logs of many are read in one job.

    Returns:
        For each partition what they hold back, or why they are not known.
    """
    found: list[Held | NotKnownError] = []
    for first in range(0, len(asked), _AT_ONCE):
        found += _some_held(engine, scratch, asked[first : first + _AT_ONCE])
    return found


def _some_held(engine: Engine, scratch: str, asked: Sequence[Holders]) -> list[Held | NotKnownError]:
    from krepair.pipeline.jobs import FIND_HELD, FIND_MARKERS_TO_KEEP
    from krepair.pipeline.replicas.holdings import HeldItem, MarkersItem, Pairs

    found: list[Held | NotKnownError] = [Held()] * len(asked)
    histories: list[list[History]] = [[] for _ in asked]
    held: list[list[Pairs]] = [[] for _ in asked]
    logs = [(number, log) for number, one in enumerate(asked) for log in one.others.logs]
    items = [HeldItem(place=log.place, segments=log.segments, scratch=scratch) for _, log in logs]
    for index, result in engine.run(FIND_HELD, items):
        number, log = logs[index]
        problem = _why_not_held(log, result)
        if problem:
            found[number] = NotKnownError(problem)
        held[number].append(result.transactions)
        histories[number].append(_history(log, result))
    ready = []
    for number, one in enumerate(asked):
        if not isinstance(found[number], NotKnownError):
            held[number] += [pairs for log in one.others.facts for pairs in log.pairs(scratch)]
            histories[number] += [history for log in one.others.facts for history in log.histories()]
            found[number] = Held(histories=tuple(histories[number]))
            if one.others.reach < INT64_MAX or any(pairs.path or pairs.data for pairs in held[number]):
                ready.append(number)
    keeping = [
        MarkersItem(
            place=asked[number].mine,
            segments=asked[number].segments,
            transactions=tuple(held[number]),
            reach=asked[number].others.reach,
        )
        for number in ready
    ]
    for index, kept in engine.run(FIND_MARKERS_TO_KEEP, keeping):
        offsets: Int64s = np.frombuffer(kept.offsets, np.int64)
        number = ready[index]
        found[number] = NotKnownError(kept.why) if kept.failure else Held(offsets, tuple(histories[number]))
    return found


def _history(one: ListedLog, result: HeldResult) -> History:
    from krepair.pipeline.replicas.histories import EPOCH_COLUMNS, START_COLUMNS

    runs = np.frombuffer(result.epochs, np.int64).reshape(-1, EPOCH_COLUMNS)
    starts = np.frombuffer(result.epoch_starts, np.int64).reshape(-1, START_COLUMNS)
    return History(f"{one.place.path} of replica {one.log.broker_id}", runs, starts)


def _why_not_held(one: ListedLog, result: HeldResult) -> str:
    if result.failure or result.damaged:
        return f"replica {one.log.broker_id}: {result.why}"
    recorded = max(one.state.high_watermark, one.state.recovery_point)
    if one.state.kind == CURRENT and recorded > result.log_end:
        return f"{one.place.path} of replica {one.log.broker_id} is cut: it ends at {result.log_end}"
    return ""


def rows_elsewhere(
    engine: Engine, logs: Sequence[ListedLog], secret: bytes, scratch: str
) -> tuple[RowFile, ...]:
    """The keys of the other replicas: of each the lowest offset of a record that is not known as aborted there.

    Raises:
        NotKnownError: a log cannot be read.
    """
    from krepair.pipeline.compaction.items import KeysItem, ranges_of, touching
    from krepair.pipeline.compaction.partitions import rows_inline_of
    from krepair.pipeline.jobs import FIND_ABORTED, FIND_KEYS

    aborted: dict[int, Int64s] = {}
    finding = [LogsItem(place=one.place, segments=one.segments) for one in logs]
    for index, ranges in engine.run(FIND_ABORTED, finding):
        if ranges.failure or ranges.problem:
            raise NotKnownError(f"replica {logs[index].log.broker_id}: {ranges.why or ranges.problem}")
        aborted[index] = ranges_of(ranges.ranges)
    count = sum(len(one.segments) for one in logs)
    items = [
        KeysItem(
            place=one.place,
            base_offset=base,
            size=size,
            aborted=touching(aborted[index], base, 2**63 - 1),
            secret=secret,
            rows_inline=rows_inline_of(count),
            scratch=scratch,
            lowest=True,
        )
        for index, one in enumerate(logs)
        for base, size in one.segments
        if size
    ]
    files: list[RowFile] = []
    for index, keys in engine.run(FIND_KEYS, items):
        if keys.failure or keys.problem:
            where = f"{items[index].place.path}/{log_name(items[index].base_offset)}"
            raise NotKnownError(f"{where}: {keys.why or keys.problem}")
        files += keys.files
    return tuple(files)


def places_of(logs: Iterable[OtherLog]) -> list[str]:
    """The log directories of all logs that are not in the plan's own."""
    return sorted({log.log_dir for log in logs})
