"""The logs of the other replicas of a partition: which they are, and what they hold back here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from krepair.errors import StalePlanError
from krepair.fixes.ground import Ground
from krepair.logdir.cluster import Assignment
from krepair.logdir.replica import CURRENT, ReplicaState, replica_state
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Place
from krepair.rules.evidence import OtherLog
from krepair.rules.model import Int64s

if TYPE_CHECKING:
    from krepair.pipeline.compaction.items import RowFile

DIGEST_BYTES: Final = 16
_NO_OFFSETS: Final = np.empty(0, np.int64)


class NotKnownError(Exception):
    """Why the other replicas of a partition are not known, so that everything has to stay."""


@dataclass(frozen=True)
class ListedLog:
    """The log of another replica as listed.

    Attributes:
        log: as a plan names it.
        place: where its files are.
        state: what its directory says of it.
        segments: (base offset, bytes) of all segments, ascending.
    """

    log: OtherLog
    place: Place
    state: ReplicaState
    segments: tuple[tuple[int, int], ...]


def digest_of_files(partition: Partition) -> str:
    """32 hex digits over name, size, time and inode of all files of a partition folder."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for file in partition.files():
        digest.update(f"{file.name} {file.size} {file.mtime_ns} {file.inode}\n".encode())
    return digest.hexdigest()


# -- which they are


def listed_logs(ground: Ground, partition: Partition, line: Assignment | None, me: int) -> list[ListedLog]:
    """The logs of all assigned replicas but this one, and of folders that a broker is about to make replicas.

    Raises:
        NotKnownError: one is missing, cannot be read, or is of another topic of the same name.
    """
    if ground.cluster is None:
        raise NotKnownError("--replicas without --cluster does not tell which replicas there are")
    if line is None:
        raise NotKnownError(f"{ground.options.cluster} does not list it")
    if me not in line.replicas:
        raise NotKnownError(f"broker {me} is not among its replicas")
    mine = replica_state(ground.view, partition)
    found = list(_futures(me, [ground.view], partition))
    for broker in line.replicas:
        if broker != me:
            views = ground.sides.get(broker)
            if views is None:
                raise NotKnownError(f"replica {broker} is not given with --replicas, or only as facts")
            found.append(_current(broker, views, partition))
            found += _futures(broker, views, partition)
    for one in found:
        _check(one, mine, line)
    return found


def _current(broker: int, views: Sequence[LogDir], partition: Partition) -> ListedLog:
    same = [
        _listed(broker, view, one)
        for view in views
        for one in view.partitions
        if (one.topic, one.number) == (partition.topic, partition.number)
    ]
    if len(same) != 1:
        raise NotKnownError(f"replica {broker}: {len(same)} folders of it were found, one was expected")
    return same[0]


def _futures(broker: int, views: Iterable[LogDir], partition: Partition) -> Iterator[ListedLog]:
    for view in views:
        for one in view.marked:
            if (one.topic, one.number, one.role) == (partition.topic, partition.number, "future"):
                yield _listed(broker, view, one)


def _listed(broker: int, view: LogDir, partition: Partition) -> ListedLog:
    log = OtherLog(
        broker_id=broker,
        log_dir=view.path,
        log_dir_inode=view.inode,
        folder=partition.folder,
        digest=digest_of_files(partition),
    )
    place = Place(host=view.host, log_dir=view.path, log_dir_inode=view.inode, folder=partition.folder)
    segments = tuple((segment.base_offset, segment.log.size) for segment in partition.segments)
    state = replica_state(view, partition)
    wrong = state.damage
    if partition.leftovers or partition.special_logs:
        wrong = wrong or "there are leftovers in it"
    if partition.private:
        wrong = wrong or "krepair still keeps originals in it, and they may come back; purge them first"
    if not segments and state.kind == CURRENT:
        wrong = wrong or "it has no log"
    if wrong:
        raise NotKnownError(f"{view.path}/{partition.folder} of replica {broker}: {wrong}")
    return ListedLog(log, place, state, segments)


def _check(one: ListedLog, mine: ReplicaState, line: Assignment) -> None:
    for other in (mine.topic_id, line.topic_id):
        if one.state.topic_id and other and one.state.topic_id != other:
            raise NotKnownError(f"{one.place.path} has topic id {one.state.topic_id}, expected {other}")


def logs_again(logs: Sequence[OtherLog], host: str) -> list[ListedLog]:
    """The logs that a plan names, as they are now.

    Args:
        logs: of the plan.
        host: name of this host.

    Raises:
        StalePlanError: one is not there any more, or is not as it was.
    """
    views: dict[str, LogDir] = {}
    found = []
    for log in logs:
        view = views.get(log.log_dir) or read_log_dir(log.log_dir)
        views[log.log_dir] = view
        every = (*view.partitions, *view.marked)
        here = next((one for one in every if one.folder == log.folder), None)
        where = f"{log.log_dir}/{log.folder}, the log of broker {log.broker_id}"
        if view.inode != log.log_dir_inode or here is None or view.host != host:
            raise StalePlanError(f"{where}: is not there any more, or is another one")
        try:
            one = _listed(log.broker_id, view, here)
        except NotKnownError as error:
            raise StalePlanError(str(error)) from error
        if one.log.digest != log.digest:
            raise StalePlanError(f"{where}: has changed since the plan was made")
        found.append(one)
    return found


# -- what they hold back


def held_markers(
    engine: Engine, mine: Place, segments: Sequence[tuple[int, int]], logs: Sequence[ListedLog]
) -> Int64s:
    """Offsets of the markers of this replica that stay, since another one holds a batch of their transaction.

    Args:
        engine: where tasks run.
        mine: this replica.
        segments: (base offset, bytes of valid batches) of it, ascending.
        logs: of the others.

    Raises:
        NotKnownError: a log of the others is damaged, cut, or cannot be read.
    """
    from krepair.pipeline.jobs import FIND_HELD, FIND_MARKERS_TO_KEEP
    from krepair.pipeline.replicas.holdings import HeldItem, MarkersItem

    transactions: list[bytes] = []
    items = [HeldItem(place=one.place, segments=one.segments) for one in logs]
    for index, result in engine.run(FIND_HELD, items):
        one = logs[index]
        if result.failure or result.damaged:
            raise NotKnownError(f"replica {one.log.broker_id}: {result.why}")
        if (
            one.state.kind == CURRENT
            and max(one.state.high_watermark, one.state.recovery_point) > result.log_end
        ):
            raise NotKnownError(
                f"{one.place.path} of replica {one.log.broker_id} is cut: it ends at {result.log_end}"
            )
        transactions.append(result.transactions)
    if not any(transactions):
        return _NO_OFFSETS
    item = MarkersItem(place=mine, segments=tuple(segments), transactions=b"".join(transactions))
    for _, found in engine.run(FIND_MARKERS_TO_KEEP, [item]):
        if found.failure:
            raise NotKnownError(found.why)
        return np.frombuffer(found.offsets, np.int64)
    return _NO_OFFSETS


def rows_elsewhere(
    engine: Engine, logs: Sequence[ListedLog], secret: bytes, scratch: str
) -> tuple[RowFile, ...]:
    """The keys of the other replicas: of each the lowest offset of a record that is not known as aborted there.

    Raises:
        NotKnownError: a log cannot be read.
    """
    from krepair.pipeline.compaction.items import FindAbortedItem, KeysItem, ranges_of, touching
    from krepair.pipeline.compaction.partitions import rows_inline_of
    from krepair.pipeline.jobs import FIND_ABORTED, FIND_KEYS

    aborted: dict[int, Int64s] = {}
    finding = [FindAbortedItem(place=one.place, segments=one.segments) for one in logs]
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
            where = f"{items[index].place.path}/{items[index].base_offset:020d}.log"
            raise NotKnownError(f"{where}: {keys.why or keys.problem}")
        files += keys.files
    return tuple(files)


def places_of(logs: Iterable[OtherLog]) -> Mapping[str, int]:
    """Log directory -> inode, of all logs that are not in the plan's own."""
    return {log.log_dir: log.log_dir_inode for log in logs}
