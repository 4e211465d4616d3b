"""Reading of the replicas of other brokers, for ``compare``, ``facts`` and the evidence of ``plan``.

This module parses the brokers on the command line, lists their log directories, and reads the logs in these
directories. A log that changes during the reading is read again; if the log's broker is running, only the part that can
no longer change is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.commit.status import half_done
from krepair.derive.epochs import EPOCH_COLUMNS, RUN_FIRST, RUN_LAST
from krepair.derive.transactions import without_end
from krepair.engine.engine import Engine
from krepair.engine.items import LogsItem, Place
from krepair.errors import LockedError, RefusedError, UnreadableError, UsageError
from krepair.fixes.context import place_of
from krepair.fixes.leftovers import log_swaps
from krepair.formats.arrays import Int64s
from krepair.formats.java_numbers import INT32_MAX
from krepair.formats.words import count_text
from krepair.logdir.config import configured_log_dirs, why_of_another_broker
from krepair.logdir.lock import is_locked
from krepair.logdir.reading import why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import CURRENT, BrokerState, ReplicaState, read_broker, read_log_dir, read_partition
from krepair.next_command import PLAN, Next
from krepair.options import Options
from krepair.replicas.items import ReplicaItem
from krepair.rules.evidence import OtherLog
from krepair.rules.replicas.replica import Replica, ReplicaHeaders, table

if TYPE_CHECKING:
    from krepair.replicas.facts import FactsFile, FactsLog

TRIES: Final = 3
"""Maximum number of readings of a replica whose files change during the reading."""
_SWAP_S: Final = 0.3
"""Pause in seconds after which a running broker has mostly put its new segments in place."""
_FORM: Final = "expected ID=LOGDIR, ID=LOGDIR,LOGDIR or ID=FACTS, as 1=/mnt/b1/kafka or 3=b3.facts"
_SECRET_BYTES: Final = 16
_DIGEST_BYTES: Final = 16


# -- brokers on the command line


class GivenBroker(Struct, frozen=True, kw_only=True):
    """One broker, as ``ID=DIR,DIR`` or ``ID=FACTS``.

    Attributes:
        broker_id: broker id as typed; -1 if none was given.
        log_dirs: absolute paths of its log directories; empty if there is a facts file.
        facts: absolute path of a facts file, or empty.
    """

    broker_id: int
    log_dirs: tuple[str, ...] = ()
    facts: str = ""

    @property
    def text(self) -> str:
        """Words that can be typed again as a value of ``--replicas``."""
        return f"{self.broker_id}={self.facts or ','.join(self.log_dirs)}"


def parse_broker(text: str) -> GivenBroker:
    """Read one broker as typed.

    Args:
        text: ``2=/mnt/b2/kafka,/mnt/b2/kafka2`` or ``3=b3.facts``. A single path that is a file is a facts file.

    Raises:
        UsageError: a value has another form, or a path is given twice.
    """
    number, equals, rest = text.partition("=")
    paths = [os.path.abspath(path) for path in rest.split(",") if path]
    if not equals or not number.isascii() or not number.isdigit() or int(number) > INT32_MAX or not paths:
        raise UsageError(f"{text!r}: {_FORM}")
    if len({os.path.realpath(path) for path in paths}) < len(paths):
        raise UsageError(f"{text!r}: a directory is given twice")
    if len(paths) == 1 and os.path.isfile(paths[0]):
        return GivenBroker(broker_id=int(number), facts=paths[0])
    return GivenBroker(broker_id=int(number), log_dirs=tuple(paths))


def parse_brokers(texts: Iterable[str], *, at_least: int = 1) -> tuple[GivenBroker, ...]:
    """Read all brokers of a command, in the order of their ids.

    Raises:
        UsageError: a value cannot be read, a broker or a path is given twice, or there are too few.
    """
    brokers = [parse_broker(text) for text in texts]
    _unique(
        [broker.broker_id for broker in brokers],
        "broker {} is given twice; name all its directories in one value",
    )
    paths = [
        os.path.realpath(path) for broker in brokers for path in (*broker.log_dirs, broker.facts) if path
    ]
    _unique(paths, "{} is given for two brokers")
    if len(brokers) < at_least:
        raise UsageError(
            f"expected at least {count_text(at_least, 'broker')}, {count_text(len(brokers), 'broker')} given: {_FORM}"
        )
    return tuple(sorted(brokers, key=lambda broker: broker.broker_id))


def brokers_of_plan(texts: Iterable[str]) -> tuple[GivenBroker, ...]:
    """Return the brokers named by ``plan --replicas``, which takes log directories alone.

    Raises:
        UsageError: a value names a facts file; or see ``parse_brokers``.
    """
    brokers = parse_brokers(texts, at_least=0)
    for broker in brokers:
        if broker.facts:
            raise UsageError(
                f"--replicas {broker.text}: a plan needs the log directories of the other broker; facts are for "
                "krepair compare"
            )
    return brokers


def with_whole_paths(options: Options) -> Options:
    """Return the options with absolute paths, as the plan's commands may be typed in another folder.

    Raises:
        UsageError: see ``brokers_of_plan``.
    """
    return dataclasses.replace(
        options,
        replicas=tuple(broker.text for broker in brokers_of_plan(options.replicas)),
        cluster=options.cluster and os.path.abspath(options.cluster),
        config=options.config and os.path.abspath(options.config),
        topic_config=options.topic_config and os.path.abspath(options.topic_config),
    )


def _unique(values: Sequence[object], text: str) -> None:
    known = set()
    for value in values:
        if value in known:
            raise UsageError(text.format(value))
        known.add(value)


# -- owners of the log directories, and whether a broker is running


class Ids(NamedTuple):
    """Identity of a log directory or a facts file by ``meta.properties``; ids may be empty.

    Attributes:
        path: absolute path of the log directory or file.
    """

    path: str
    broker_id: str
    cluster_id: str


def ids_of(view: LogDir) -> Ids:
    """Return the identity of a log directory."""
    return Ids(view.path, view.broker_id, view.cluster_id)


def check_ids(brokers: Iterable[tuple[GivenBroker, Iterable[Ids]]], mine: Ids | None = None) -> None:
    """Check that all directories and files are of one cluster, and each belongs to its broker.

    Args:
        brokers: each with the ids of its directories, or of its facts file.
        mine: identity of the log directory at hand, if there is one.

    Raises:
        RefusedError: a directory or facts file belongs to another cluster or broker.
    """
    first = mine
    for broker, identities in brokers:
        for identity in identities:
            if broker.broker_id >= 0 and identity.broker_id not in {"", str(broker.broker_id)}:
                raise RefusedError(
                    f"{broker.text}: {identity.path} is of broker {identity.broker_id}, not {broker.broker_id}: "
                    "correct the id before ="
                )
            if first is None or not first.cluster_id:
                first = identity
            elif identity.cluster_id not in {"", first.cluster_id}:
                raise RefusedError(
                    f"{identity.path} is of cluster {identity.cluster_id}, {first.path} is of cluster "
                    f"{first.cluster_id}: leave out the one that does not belong here"
                )


def refuse_if_in_use(path: str) -> None:
    """Check that nobody holds the lock of a log directory beside the one at hand.

    Raises:
        LockedError: a broker holds a lock.
    """
    holder = is_locked(path)
    if holder is not None:
        raise LockedError(
            f"{path}: is locked by {holder}: {holder.what_to_do()}, then type the same command again"
        )


@dataclass
class OpenBroker:
    """One broker, ready to be read.

    Attributes:
        typed: value of ``--replicas`` as typed.
        figures: figures of the broker, without its replicas, which are in ``logs``.
        secret: 16 bytes, the key of the hashes.
        logs: replicas of the broker, by topic, number and folder.
        views: log directories of the broker; empty for a facts file.
        facts: facts file of the broker, or None.
        running: log directories of which a broker held the lock at some time.
    """

    typed: GivenBroker
    figures: BrokerState
    secret: bytes
    logs: list[ReplicaLog] = field(default_factory=list)
    views: tuple[LogDir, ...] = ()
    facts: FactsFile | None = None
    running: set[str] = field(default_factory=set)

    @property
    def state(self) -> BrokerState:
        """State of the broker with its replicas."""
        return replace(self.figures, partitions=tuple(log.state for log in self.logs))

    @property
    def ids(self) -> Iterable[Ids]:
        """Identities of its directories, or of its facts file."""
        if self.facts is not None:
            return (Ids(self.facts.path, self.figures.broker_id, self.figures.cluster_id),)
        return map(ids_of, self.views)

    def runs(self, log_dir: str) -> bool:
        """Return whether a broker uses a log directory, now or earlier in this run; nobody uses a copy."""
        if log_dir not in self.running:
            try:
                holder = is_locked(log_dir)
            except (RefusedError, UnreadableError):
                return False  # the listings still tell
            if holder is None or holder.pid == os.getpid():
                return False
            self.running.add(log_dir)
        return True

    def close(self) -> None:
        """Close the facts file."""
        if self.facts is not None:
            self.facts.close()


def secret_of(cluster_id: str) -> bytes:
    """Return the hash key of a cluster: equal everywhere, so that facts taken on different hosts can be joined."""
    return hashlib.blake2b(b"krepair compare\0" + cluster_id.encode(), digest_size=_SECRET_BYTES).digest()


def open_directories(given: GivenBroker, now_ms: int, config: str | None) -> OpenBroker:
    """List the log directories of one broker.

    Args:
        given: broker and the log directories that were named.
        now_ms: time at which the reading begins, in epoch milliseconds.
        config: path of a ``server.properties``; log directories that it names for this broker and that are not listed
            count as not read.

    Raises:
        NotALogDirError: a path is no log directory.
        UnreadableError: a directory, or a small file in its root, could not be read.
    """
    views = tuple(read_log_dir(path) for path in given.log_dirs)
    state = read_broker(views, now_ms, _known_dirs(views, config))
    opened = OpenBroker(given, state, secret_of(state.cluster_id), views=views)
    folders = {
        (view.path, partition.folder): (view, partition)
        for view in views
        for partition in (*view.partitions, *view.marked)
    }
    for replica in state.partitions:
        view, listing = folders[replica.log_dir, replica.folder]
        opened.logs.append(log_of(given.broker_id, view, listing, replica)._replace(opened_broker=opened))
    return opened


def _known_dirs(views: Sequence[LogDir], config: str | None) -> tuple[str, ...]:
    """Return all log directories in a broker's configuration; empty if the file belongs to another broker.

    The file belongs to this broker if it names one of the directories, by whatever path, and no other id.
    """
    here = {os.path.realpath(view.path): view.path for view in views}
    configured = tuple(here.get(os.path.realpath(path), path) for path in configured_log_dirs(config))
    is_named = not set(configured).isdisjoint(here.values())
    is_of_broker = is_named and not any(
        why_of_another_broker(config, view.path, view.broker_id) for view in views
    )
    return configured if is_of_broker else ()


def open_facts(given: GivenBroker) -> OpenBroker:
    """Open the facts file of one broker.

    Raises:
        RefusedError: the file has an unknown version.
        UnreadableError: the file cannot be read or is damaged.
    """
    from krepair.replicas.facts import FactsFile, FactsLog

    file = FactsFile(given.facts)
    try:
        state, secret = file.broker()
    except UnreadableError:
        file.close()
        raise
    logs = [
        ReplicaLog(given.broker_id, replica, facts=FactsLog(file, number))
        for number, replica in enumerate(state.partitions)
    ]
    return OpenBroker(given, state, secret, logs, facts=file)


# -- the logs in them


class ReplicaLog(NamedTuple):
    """Log of one replica: in a partition folder, as it was listed, or in a facts file.

    Attributes:
        broker: id of the broker.
        state: figures that the log directory records for the replica.
        segments: (base offset, bytes of the log) of those that are read, ascending.
        view: log directory that holds the log; None in a facts file.
        listing: the folder as it was listed; None in a facts file.
        facts: place of the log in a facts file, or None.
        bound: offset where the unchanging segments of a running broker end; -1 if all is read.
        opened_broker: the broker on the command line that has the log; None for evidence, where brokers are stopped.
        twice: True if the broker has the replica in two log directories.
    """

    broker: int
    state: ReplicaState
    segments: tuple[tuple[int, int], ...] = ()
    view: LogDir | None = None
    listing: Partition | None = None
    facts: FactsLog | None = None
    bound: int = -1
    opened_broker: OpenBroker | None = None
    twice: bool = False

    @property
    def folder(self) -> Partition:
        """Listing of a replica that lies in a log directory."""
        assert self.listing is not None
        return self.listing

    @property
    def place(self) -> Place:
        """Location of a replica that lies in a log directory."""
        assert self.view is not None
        return place_of(self.view, self.folder)

    @property
    def all_of_it(self) -> LogsItem:
        """Segments of a replica that lies in a log directory."""
        return LogsItem(place=self.place, segments=self.segments)

    @property
    def planned(self) -> OtherLog:
        """Record of a replica in a log directory, in the form that a plan stores."""
        digest = digest_of_files(self.folder)
        return OtherLog(
            broker_id=self.broker, log_dir=self.state.log_dir, folder=self.state.folder, digest=digest
        )

    @property
    def runs(self) -> bool:
        """True if a broker uses the directory, now or earlier in this run."""
        return self.opened_broker is not None and self.opened_broker.runs(self.state.log_dir)

    @property
    def unknown(self) -> str:
        """Reason why the final contents of the folder are unknown, or empty.

        A broker that stops or dies while its cleaner swaps in a segment leaves a ``.swap``, and only some or none of
        the segments that the swap replaces. The records of an apparently lost segment then lie in the swap. Even a
        clean stop of 2.2.1 may leave this state, because its scheduler stops before its cleaner.

        Source: Log.replaceSegments and asyncDeleteSegment, KafkaServer.shutdown (2.2.1); UnifiedLog.replaceSegments
        (3.9.2).
        """
        if self.twice:
            return "it is in two log directories of this broker"
        reason = self.folder.unreadable or half_done(self.folder)
        swaps = log_swaps(self.folder)
        if reason or not swaps or self.runs:
            return reason
        command = Next.of(
            "plan", self.state.log_dir, "--fix", "leftovers", "--partition", self.state.name, out=PLAN
        )
        return (
            f"a cleaning was interrupted here, and {swaps[0].file.name} waits for the next start; apply the plan of "
            f"{command}, then compare again"
        )

    def item(self, *, evidence: bool = False, scratch: str = "") -> ReplicaItem:
        """Return the item that reads the replica's headers."""
        return ReplicaItem(
            place=self.place,
            segments=self.segments,
            secret=b"" if self.opened_broker is None else self.opened_broker.secret,
            evidence=evidence,
            scratch=scratch,
        )

    def listed_again(self) -> Partition:
        """List the folder as it is now.

        Raises:
            OSError: the folder cannot be listed.
        """
        assert self.view is not None
        listing = read_partition(self.view, self.state.folder)
        if listing.unreadable:
            raise OSError(listing.unreadable)
        return listing

    def at_rest(self, listing: Partition) -> ReplicaLog:
        """Return the part of a running broker's log that cannot change: closed, committed and flushed segments.

        High watermark and recovery point bound the part that is compared. The rest is read too, the active segment as
        far as it is written: a cleaner may have removed a record in favour of a later record in the rest.
        """
        bound = min(self.state.high_watermark, self.state.recovery_point)
        ends = [base for base, _ in listing.log_sizes[1:] if base <= bound]
        segments = listing.log_sizes if ends else ()
        return self._replace(listing=listing, segments=segments, bound=ends[-1] if ends else 0)

    def still(self, listing: Partition) -> bool:
        """Return whether the files are still those that were read; a running broker's last log may have grown."""
        if log_swaps(self.folder) or log_swaps(listing):
            return False
        if self.bound < 0:
            return _files(self.folder) == _files(listing) and not self.runs
        bases = {base for base, _ in self.segments}
        before, now = _files(self.folder, bases), _files(listing, bases)
        grown = bool(now) and before[-1][:2] == now[-1][:2] and before[-1][2] <= now[-1][2]
        return before[:-1] == now[:-1] and grown


def log_of(broker: int, view: LogDir, listing: Partition, state: ReplicaState) -> ReplicaLog:
    """Return the log in a partition folder."""
    return ReplicaLog(broker, state, listing.log_sizes, view, listing)


def digest_of_files(partition: Partition) -> str:
    """Return 32 hex digits over name, size and time of all files of a partition folder."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for file in partition.files():
        digest.update(f"{file.name} {file.size} {file.mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(partition: Partition, bases: set[int] | None = None) -> list[tuple[str, int, int]]:
    """Return name, inode and size of the logs, of all segments or only some."""
    logs = [segment.log for segment in partition.segments if bases is None or segment.base_offset in bases]
    return [(log.name, log.inode, log.size) for log in logs]


# -- reading until nothing changes


class ReadReplica(NamedTuple):
    """One replica that was read, or the reason why it could not be.

    Attributes:
        log: log that was read.
        replica: state of the replica that its headers show.
        source: reader of the records, or their place in a facts file; None if the log could not be read.
    """

    log: ReplicaLog
    replica: Replica
    source: ReplicaItem | FactsLog | None = None

    @property
    def is_as_it_was(self) -> bool:
        """True if the files are still those that were read; a facts file always is."""
        if self.log.listing is None:
            return True
        try:
            return self.log.still(self.log.listed_again())
        except OSError:
            return False


def read_replicas(
    engine: Engine, logs: Sequence[ReplicaLog], scratch: str | None = None
) -> Iterator[ReadReplica]:
    """Read the headers of replicas, all in one job; facts files hold headers that were read before.

    Args:
        logs: logs of the replicas.
        scratch: scratch folder for evidence, or empty; with it, a log that changes is not read again.

    Returns:
        In the order of the logs.
    """
    from krepair.replicas.headers import read_headers_of_all

    known_or_waiting: list[ReadReplica | ReplicaLog] = []
    for log in logs:
        if log.facts is not None:
            known_or_waiting.append(_of_facts(log, log.facts))
        elif why_not := log.unknown:
            known_or_waiting.append(_unread(log, why_not))
        else:
            known_or_waiting.append(log.at_rest(log.folder) if log.runs else log)
    waiting = [log for log in known_or_waiting if isinstance(log, ReplicaLog)]
    items = [log.item(evidence=scratch is not None, scratch=scratch or "") for log in waiting]
    results = dict(read_headers_of_all(engine, items))
    read = (_unchanged(engine, log, results[number]) for number, log in enumerate(waiting))
    for known in known_or_waiting:
        yield next(read) if isinstance(known, ReplicaLog) else known


def _unchanged(engine: Engine, log: ReplicaLog, headers: ReplicaHeaders) -> ReadReplica:
    """Return a replica that did not change while it was read; for a running broker, the part that cannot change."""
    for _ in range(TRIES):
        if log.bound >= 0 and not log.segments:
            text = "its broker is running, and no closed segment lies below its high watermark and recovery point"
            return _unread(log, text, at_rest=False)
        try:
            after = log.listed_again()
            if log.still(after):
                return _read(log, headers)
            if log_swaps(after):
                time.sleep(_SWAP_S)
                after = log.listed_again()
        except OSError as error:
            return _unread(log, why(error))
        if log.opened_broker is None:
            return _unread(log, "its files changed while they were read", at_rest=False)
        log, headers = _read_anew(engine, log, after)
    return _changed_each_time(log)


def _read_anew(engine: Engine, log: ReplicaLog, listing: Partition) -> tuple[ReplicaLog, ReplicaHeaders]:
    from krepair.replicas.headers import read_headers_of_all

    log = log.at_rest(listing)
    [(_, headers)] = read_headers_of_all(engine, [log.item()])
    return log, headers


def read_changed_again(engine: Engine, replicas: list[ReadReplica], *, last: bool) -> bool:
    """Read again the headers of replicas that changed before their records were read; return False if none did.

    Args:
        replicas: replicas whose records were read; those that changed are replaced.
        last: True after the last attempt: then a changing replica counts as not at rest.
    """
    changed = [
        place for place, read in enumerate(replicas) if not (read.replica.failure or read.is_as_it_was)
    ]
    for place in changed:
        replicas[place] = _read_again(engine, replicas[place], last=last)
    return bool(changed)


def _read_again(engine: Engine, read: ReadReplica, *, last: bool) -> ReadReplica:
    if last:
        return _changed_each_time(read.log)
    try:
        listing = read.log.listed_again()
    except OSError as error:
        return _unread(read.log, why(error))
    return _unchanged(engine, *_read_anew(engine, read.log, listing))


def _changed_each_time(log: ReplicaLog) -> ReadReplica:
    text = "its broker is running, and its segments changed each time they were read"
    return _unread(log, text, at_rest=False)


def _read(log: ReplicaLog, headers: ReplicaHeaders) -> ReadReplica:
    """Return the replica of a finished reading, cut at the bound if its broker is running."""
    if log.bound >= 0 and not headers.failure:
        headers = replace(
            headers,
            log_end=log.bound,
            closed_to=log.segments[-1][0],
            read_to=headers.log_end,
            damages=tuple(damage for damage in headers.damages if damage.first < log.bound),
            epochs=_below(table(headers.epochs, EPOCH_COLUMNS), log.bound).tobytes(),
            limited=True,
        )
    replica = Replica.of(log.broker, log.state, headers)
    transactions = headers.transactions
    if replica.damaged_ranges:
        transactions = without_end(replica.transactions, replica.damaged_ranges).tobytes()
    return ReadReplica(log, replica, replace(log.item(), transactions=transactions))


def _below(epochs: Int64s, bound: int) -> Int64s:
    """Return the epochs' runs of batches up to an offset; those after it may still be truncated."""
    below = epochs[epochs[:, RUN_FIRST] < bound].copy()
    below[:, RUN_LAST] = np.minimum(below[:, RUN_LAST], bound - 1)
    return below


def _unread(log: ReplicaLog, text: str, *, at_rest: bool = True) -> ReadReplica:
    """Return a replica that could not be read, with the reason."""
    headers = ReplicaHeaders(failure="unreadable", why=text)
    return ReadReplica(log, Replica.of(log.broker, log.state, headers, at_rest=at_rest))


def _of_facts(log: ReplicaLog, place: FactsLog) -> ReadReplica:
    headers = place.file.headers(place.number)
    if headers is None:
        return _unread(log, "the facts file has nothing of its log")
    return ReadReplica(log, Replica.of(log.broker, log.state, headers, from_facts=True), place)


def read_current(
    engine: Engine, brokers: Iterable[OpenBroker], wants: Callable[[str, int], bool]
) -> Iterator[ReadReplica]:
    """Read the headers of every current replica of all brokers."""
    wanted: list[ReplicaLog] = []
    for broker in brokers:
        current = [log for log in broker.logs if log.state.kind == CURRENT]
        counts = Counter(log.state.name for log in current)
        for log in current:
            if wants(log.state.topic, log.state.partition):
                if log.facts is None and counts[log.state.name] > 1:
                    log = log._replace(twice=True)
                wanted.append(log)
    yield from read_replicas(engine, wanted)
