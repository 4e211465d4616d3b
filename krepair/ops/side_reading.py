"""Reads the sides of a comparison: log directories, at rest or of a running broker, and facts files."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from msgspec.structs import replace

from krepair.derive.epochs import EPOCH_COLUMNS
from krepair.derive.transactions import without_end
from krepair.errors import RefusedError, UnreadableError
from krepair.fixes.context import place_of
from krepair.fixes.leftovers import log_swaps
from krepair.formats.arrays import Int64s
from krepair.journal.beside import half_done
from krepair.logdir.lock import is_locked
from krepair.logdir.log_dirs import configured_log_dirs, why_of_another_broker
from krepair.logdir.reading import why
from krepair.logdir.replica import CURRENT, BrokerState, ReplicaState, read_broker
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir, read_partition
from krepair.ops.log_dirs_given import check_named
from krepair.ops.pending_swaps import FinishedLog, finished_logs
from krepair.ops.sides import Side
from krepair.options import Options
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.replicas.contents import RowSource
from krepair.pipeline.replicas.facts import FactsFile
from krepair.pipeline.replicas.headers import read_headers_of_all
from krepair.pipeline.replicas.items import ReplicaItem
from krepair.rules.replicas.replica import Replica, ReplicaHeaders, table

_SECRET_BYTES: Final = 16
TRIES: Final = 3
"""So often a replica is read whose files change."""

_SWAP_S: Final = 0.3
"""A running broker has mostly put its new segments in their places by then."""
_AS_LISTED: Final = FinishedLog()

Wants = Callable[[str, int], bool]


@dataclass
class OpenSide:
    """One side, ready to be read.

    Attributes:
        typed: as it was typed.
        state: of its broker.
        secret: 16 bytes, the key of the hashes.
        views: its log directories by path; empty of a facts file.
        facts: its facts file, or None.
        running: log directories of which a broker held the lock at some time.
        finished: (log directory, folder) -> its log as the next start leaves it, of those with a pending swap.
    """

    typed: Side
    state: BrokerState
    secret: bytes
    views: dict[str, LogDir] = field(default_factory=dict)
    facts: FactsFile | None = None
    running: set[str] = field(default_factory=set)
    finished: dict[tuple[str, str], FinishedLog] = field(default_factory=dict)

    @cached_property
    def folders(self) -> dict[tuple[str, str], Partition]:
        """(log directory, folder) -> the partition as listed."""
        return {(view.path, one.folder): one for view in self.views.values() for one in view.partitions}

    def runs(self, log_dir: str) -> bool:
        """Whether a broker uses a log directory, now or earlier in this run. Of a copy or a snapshot none does."""
        if log_dir not in self.running:
            try:
                holder = is_locked(log_dir)
            except (RefusedError, UnreadableError):
                return False  # the listings still tell
            if holder is None or holder.pid == os.getpid():
                return False
            self.running.add(log_dir)
        return True

    def log_of(self, state: ReplicaState) -> FinishedLog:
        """What the next start makes of the pending swaps of a folder."""
        return self.finished.get((state.log_dir, state.folder), _AS_LISTED)

    @property
    def broker(self) -> int:
        """As typed."""
        return self.typed.broker_id

    def close(self) -> None:
        """Close the facts file."""
        if self.facts is not None:
            self.facts.close()


@dataclass(frozen=True)
class SideReplica:
    """One replica that was read.

    Attributes:
        replica: the result of its headers.
        source: where its rows come from.
        reading: of a directory, what was read.
    """

    replica: Replica
    source: RowSource
    reading: SideReading | None = None

    @property
    def state(self) -> ReplicaState:
        """Of its folder."""
        return self.replica.state

    @property
    def item(self) -> ReplicaItem | None:
        """Reads its records, None if it is in a facts file."""
        return self.source.item

    @property
    def is_as_it_was(self) -> bool:
        """Whether what was read is still there; a facts file is."""
        if self.reading is None:
            return True
        try:
            return self.reading.still(self.reading.listed_again())
        except OSError:
            return False


def secret_of(cluster_id: str) -> bytes:
    """The key of the hashes of a cluster: the same everywhere, so that facts that were taken apart can be joined."""
    return hashlib.blake2b(b"krepair compare\0" + cluster_id.encode(), digest_size=_SECRET_BYTES).digest()


def open_sides(sides: Sequence[Side], options: Options) -> list[OpenSide]:
    """List the directories and open the facts files of all sides.

    Raises:
        NotALogDirError: a path is none; or a partition that was named is on no side.
        RefusedError: a facts file has an unknown version.
        UnreadableError: a facts file cannot be read or is damaged.
    """
    opened: list[OpenSide] = []
    try:
        for side in sides:
            opened.append(_open_facts(side) if side.facts else open_directories(side, options))
        if all(side.views for side in opened):
            check_named([view for side in opened for view in side.views.values()], options)
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened


def open_directories(side: Side, options: Options) -> OpenSide:
    """List the log directories of one broker.

    Raises:
        NotALogDirError: a path is none.
        RefusedError: they are of several clusters.
        UnreadableError: a directory, or a small file in its root, could not be read.
    """
    views = [read_log_dir(path) for path in side.log_dirs]
    state = read_broker(views, options.now_ms, _known_dirs(views, options.config))
    clusters = {view.cluster_id for view in views if view.cluster_id}
    if len(clusters) > 1:
        raise RefusedError(f"{side.text}: log directories of several clusters: {', '.join(sorted(clusters))}")
    return OpenSide(side, state, secret_of(state.cluster_id), {view.path: view for view in views})


def _known_dirs(views: Sequence[LogDir], config: str | None) -> tuple[str, ...]:
    """All log directories of a broker by its configuration; empty if that is of another one.

    It is of this one if it names one of the directories, by whatever path, and no other id.
    """
    here = {os.path.realpath(view.path): view.path for view in views}
    found = tuple(here.get(os.path.realpath(path), path) for path in configured_log_dirs(config))
    is_named = not set(found).isdisjoint(here.values())
    is_his = is_named and not any(why_of_another_broker(config, view.path, view.broker_id) for view in views)
    return found if is_his else ()


def finish_swaps(engine: Engine, side: OpenSide, wants: Wants) -> None:
    """Read the swaps that were left in directories at rest. From then on the side is as the next start leaves it."""
    for view in side.views.values():
        if any(log_swaps(one) for one in view.partitions) and not side.runs(view.path):
            for folder, log in finished_logs(engine, view, wants):
                side.finished[view.path, folder] = log
    if side.finished:
        side.state = replace(
            side.state, partitions=tuple(_state_after(side, one) for one in side.state.partitions)
        )


def _state_after(side: OpenSide, state: ReplicaState) -> ReplicaState:
    """The state of a folder once its swaps are finished."""
    log = side.finished.get((state.log_dir, state.folder))
    if log is None or log.why:
        return state
    recorded = side.views[state.log_dir].log_start.offsets.get((state.topic, state.partition), -1)
    return replace(
        state,
        segments=tuple(base for base, _ in log.segments),
        log_bytes=sum(size for _, size in log.segments),
        log_start=max(recorded, log.segments[0][0] if log.segments else 0),
    )


def _open_facts(side: Side) -> OpenSide:
    file = FactsFile(side.facts)
    try:
        return OpenSide(side, *file.broker(), facts=file)
    except UnreadableError:
        file.close()
        raise


def check_one_cluster(opened: Sequence[OpenSide]) -> None:
    """Check that all sides are of one cluster, and each of the broker that was typed.

    Raises:
        RefusedError: one is not.
    """
    clusters = {side.state.cluster_id: side for side in opened if side.state.cluster_id}
    if len(clusters) > 1:
        each = ", ".join(f"{side.typed.text} of cluster {name}" for name, side in sorted(clusters.items()))
        raise RefusedError(f"the sides are of several clusters: {each}")
    for side in opened:
        if side.state.broker_id not in {"", str(side.broker)}:
            raise RefusedError(
                f"{side.typed.text}: meta.properties says that this is broker {side.state.broker_id}"
            )
    if len({side.secret for side in opened}) > 1:
        raise RefusedError(
            "the facts were taken under other keys of hashes: the cluster id was known on one side only",
            next_command="krepair facts LOGDIR... --out FILE with all log directories of the broker",
        )


def read_all_headers(engine: Engine, opened: Sequence[OpenSide], wants: Wants) -> Iterator[SideReplica]:
    """Read the headers of every current replica of all sides; of facts files they are read already."""
    pending: list[SideReading] = []
    for side in opened:
        doubled = _doubled(side)
        for index, state in enumerate(side.state.partitions):
            if state.kind != CURRENT or not wants(state.topic, state.partition):
                continue
            if side.facts is not None:
                yield _of_facts(side.broker, side.facts, state, index)
            elif state.name in doubled:
                yield _unread(side.broker, state, "it is in two log directories of this broker")
            elif why_not := _why_not_read(side, state):
                yield _unread(side.broker, state, why_not)
            else:
                pending.append(_reading(side, state, _folder(side, state), limited=side.runs(state.log_dir)))
    results = dict(read_headers_of_all(engine, [one.item for one in pending]))
    for number, reading in enumerate(pending):
        yield _settled(engine, reading, results[number])


def _why_not_read(side: OpenSide, state: ReplicaState) -> str:
    """Why it is not known what a folder will hold, or empty."""
    folder = _folder(side, state)
    return folder.unreadable or side.log_of(state).why or half_done(folder)


def _doubled(side: OpenSide) -> set[str]:
    counts = Counter(one.name for one in side.state.partitions if one.kind == CURRENT)
    return {name for name, count in counts.items() if count > 1}


def _folder(side: OpenSide, state: ReplicaState) -> Partition:
    return side.folders[state.log_dir, state.folder]


def _item_of(side: OpenSide, state: ReplicaState, partition: Partition, log: FinishedLog) -> ReplicaItem:
    """The item that reads one replica in its directory."""
    view = side.views[state.log_dir]
    place = place_of(view, partition)
    return ReplicaItem(
        place=place,
        segments=log.segments or partition.log_sizes,
        swaps=log.swaps,
        secret=side.secret,
    )


@dataclass(frozen=True)
class SideReading:
    """One reading of a replica in its directory.

    Attributes:
        side: whose.
        state: of its folder.
        listing: of the folder before the reading.
        item: reads it.
        bound: of a running broker the offset where its segments at rest end; -1: all is read.
    """

    side: OpenSide
    state: ReplicaState
    listing: Partition
    item: ReplicaItem
    bound: int

    @property
    def limited(self) -> bool:
        """Whether a broker runs there."""
        return self.bound >= 0

    def listed_again(self) -> Partition:
        """The folder as it is now.

        Raises:
            OSError: it cannot be listed.
        """
        return read_partition(self.side.views[self.state.log_dir], self.state.folder)

    def still(self, listing: Partition) -> bool:
        """Whether what was read is still there: of a running broker the last segment that was read may have grown."""
        if self.limited:
            cleaning = log_swaps(self.listing) or log_swaps(listing)
            before, now = _files(self.listing, self.item), _files(listing, self.item)
            grown = before[-1][:2] == now[-1][:2] and before[-1][2] <= now[-1][2] if now else False
            return not cleaning and before[:-1] == now[:-1] and grown
        return _files(self.listing) == _files(listing) and not self.side.runs(self.state.log_dir)


def _reading(side: OpenSide, state: ReplicaState, listing: Partition, *, limited: bool) -> SideReading:
    """What is to be read: all segments, or of a running broker the closed ones that are committed and flushed."""
    if not limited:
        return SideReading(side, state, listing, _item_of(side, state, listing, side.log_of(state)), -1)
    return SideReading(side, state, listing, *_at_rest(_item_of(side, state, listing, _AS_LISTED), state))


def _settled(engine: Engine, reading: SideReading, result: ReplicaHeaders) -> SideReplica:
    """A replica that did not change while it was read; of a running broker only what cannot change any more."""
    side, state = reading.side, reading.state
    for _ in range(TRIES):
        if reading.limited and not reading.item.segments:
            text = "its broker is running, and no closed segment lies below its high watermark and recovery point"
            return _unread(side.broker, state, text, at_rest=False)
        try:
            after = reading.listed_again()
            if reading.still(after):
                return _replica(reading, result)
            if log_swaps(after):
                time.sleep(_SWAP_S)
                after = reading.listed_again()
        except OSError as error:
            return _unread(side.broker, state, why(error))
        reading = _reading(side, state, after, limited=True)
        [(_, result)] = read_headers_of_all(engine, [reading.item])
    return _never_at_rest(reading)


def _never_at_rest(reading: SideReading) -> SideReplica:
    text = "its broker is running, and its segments changed each time they were read"
    return _unread(reading.side.broker, reading.state, text, at_rest=False)


def read_again(engine: Engine, one: SideReplica, *, last: bool) -> SideReplica:
    """A replica that changed after its headers were read.

    Args:
        engine: runs the tasks.
        one: the replica.
        last: whether it was read often enough, and counts as not at rest.
    """
    assert one.reading is not None
    if last:
        return _never_at_rest(one.reading)
    try:
        listing = one.reading.listed_again()
    except OSError as error:
        return _unread(one.replica.broker, one.state, why(error))
    reading = _reading(one.reading.side, one.state, listing, limited=True)
    [(_, result)] = read_headers_of_all(engine, [reading.item])
    return _settled(engine, reading, result)


def _replica(reading: SideReading, result: ReplicaHeaders) -> SideReplica:
    """The result of a reading."""
    if reading.limited and not result.failure:
        result = replace(
            result,
            log_end=reading.bound,
            closed_to=reading.item.segments[-1][0],
            read_to=result.log_end,
            damages=tuple(one for one in result.damages if one.first < reading.bound),
            epochs=_below(table(result.epochs, EPOCH_COLUMNS), reading.bound).tobytes(),
            limited=True,
        )
    replica = Replica.of(reading.side.broker, reading.state, result)
    transactions = result.transactions
    if replica.hidden:
        transactions = without_end(replica.transactions, replica.hidden).tobytes()
    source = RowSource(replace(reading.item, transactions=transactions))
    return SideReplica(replica, source, reading)


def _below(epochs: Int64s, bound: int) -> Int64s:
    """Runs of batches of one epoch, up to an offset; what lies behind it may still be truncated."""
    below = epochs[epochs[:, 1] < bound].copy()
    below[:, 2] = np.minimum(below[:, 2], bound - 1)
    return below


def _files(partition: Partition, item: ReplicaItem | None = None) -> list[tuple[str, int, int]]:
    """Name, inode and size of the logs, with those of pending swaps; of an item only of its segments."""
    wanted = None if item is None else {base for base, _ in item.segments}
    logs = [one.log for one in partition.segments if wanted is None or one.base_offset in wanted]
    if wanted is None:
        logs += [one.file for one in log_swaps(partition)]
    return [(log.name, log.inode, log.size) for log in logs]


def _at_rest(item: ReplicaItem, state: ReplicaState) -> tuple[ReplicaItem, int]:
    """(the item, the offset where the closed segments end that lie whole below what cannot change any more).

    High watermark and recovery point bound what is compared. What lies behind is read, too, the active segment as far
    as it is written: a cleaner may have removed a record for a later one that lies there.
    """
    bound = min(state.high_watermark, state.recovery_point)
    ends = [base for base, _ in item.segments[1:] if base <= bound]
    return (item, ends[-1]) if ends else (replace(item, segments=()), 0)


def _unread(broker: int, state: ReplicaState, text: str, *, at_rest: bool = True) -> SideReplica:
    """A replica of which nothing is known but why."""
    headers = ReplicaHeaders(failure="unreadable", why=text)
    return SideReplica(Replica.of(broker, state, headers, at_rest=at_rest), RowSource())


def _of_facts(broker: int, file: FactsFile, state: ReplicaState, index: int) -> SideReplica:
    headers = file.headers(index)
    if headers is None:
        return _unread(broker, state, "the facts file has nothing of its log")
    replica = Replica.of(broker, state, headers, from_facts=True)
    return SideReplica(replica, RowSource(facts=file, index=index))
