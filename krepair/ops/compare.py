"""``krepair compare``: compare the replicas of partitions and say which are right. Writes nothing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from krepair.derive.transactions import last_stable_offset
from krepair.durable.scratch import Scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.engine import Engine
from krepair.engine.items import Failed
from krepair.engine.progress import Progress, SilentProgress
from krepair.errors import ExitCode, RefusedError
from krepair.fixes.cleanup_policies import Policies
from krepair.fixes.replicas import (
    TRIES,
    GivenBroker,
    OpenBroker,
    ReadReplica,
    check_ids,
    open_directories,
    open_facts,
    read_changed_again,
    read_current,
)
from krepair.formats.coordinator_record import RecordTable
from krepair.logdir.config import Settings, load_settings
from krepair.logdir.view import CURRENT
from krepair.look.dump.record import AUTO, json_of, named_bytes
from krepair.next_command import NOTHING, Next
from krepair.ops.dump import DECODER_OF
from krepair.options import Options
from krepair.replicas.contents import GroupWork, Unread, contents_of
from krepair.replicas.facts import FactsLog
from krepair.replicas.items import ReplicaItem
from krepair.replicas.records import FoundKey
from krepair.report import Report
from krepair.rules.replicas import model as m
from krepair.rules.replicas.judge import ReplicaGroup, groups_of, verdict_of
from krepair.rules.replicas.replica import Replica
from krepair.start.log_dirs_given import check_named

_AT_ONCE: Final = 64
"""Partitions whose records are read in one job."""
_HEADERS_AT_ONCE: Final = 1024
_HEADERS_BYTES: Final = 64 << 30
"""Limits, in partitions and bytes of logs, of a job that reads headers: they stay in memory until compared."""
_KEYS_SHOWN: Final = 20
_Replicas = tuple[tuple[str, int], list[ReadReplica]]
"""((topic, number), its replicas by broker)."""


class SideSummary(Struct, frozen=True, kw_only=True):
    """One broker in a comparison.

    Attributes:
        broker: broker id as typed.
        broker_id: broker id in the log directories' meta.properties, may be empty.
        cluster_id: cluster id in the log directories' meta.properties, may be empty.
        host: host on which the replicas were read.
        taken_ms: time when reading began, epoch milliseconds.
        log_dirs: paths of the broker's log directories that were read.
        not_read: paths of the broker's log directories that were not read.
        facts: path of the facts file, or empty.
        digest: digest of the facts file, or empty.
        partitions: number of current partition folders.
    """

    broker: int
    broker_id: str
    cluster_id: str
    host: str
    taken_ms: int
    log_dirs: tuple[str, ...]
    not_read: tuple[str, ...] = ()
    facts: str = ""
    digest: str = ""
    partitions: int = 0


class MarkedFolder(Struct, frozen=True, kw_only=True):
    """Folder that a broker has marked as future, stray or deleted, listed but not compared.

    Attributes:
        broker: id of the broker that has the folder.
        folder: name of the folder in its log directory.
        kind: ``future``, ``stray`` or ``delete``.
        log_dir: path of its log directory.
    """

    broker: int
    folder: str
    kind: str
    log_dir: str


class CompareReport(Report, frozen=True, kw_only=True):
    """Result of ``compare``.

    Attributes:
        sides: one summary for each broker.
        counts: verdict -> number of partitions.
        partitions: verdict on each partition, by topic and number.
        marked: folders that a broker has marked.
        bytes_read: bytes of ``.log`` files read from directories.
        keys_compared: True if records of any partition were read.
        way_back: reassignments that replace wrong replicas, None if no replica is known to be wrong.
    """

    sides: tuple[SideSummary, ...]
    counts: dict[str, int]
    partitions: tuple[m.PartitionVerdict, ...]
    marked: tuple[MarkedFolder, ...] = ()
    bytes_read: int = 0
    keys_compared: bool = False
    way_back: WayBack | None = None

    @property
    def exit_code(self) -> ExitCode:
        """FOUND before UNREADABLE before PERSON_DECIDES."""
        if any(self.counts.get(verdict) for verdict in (m.DIVERGED, m.DAMAGED, m.DECIDED_BY_LEADER)):
            return ExitCode.FOUND
        if self.counts.get(m.MISSING):
            return ExitCode.UNREADABLE
        return ExitCode.PERSON_DECIDES if self.counts.get(m.CANNOT_TELL) else ExitCode.DONE


def compare(
    brokers: Sequence[GivenBroker], options: Options, progress: Progress | None = None
) -> CompareReport:
    """Compare the replicas of all partitions that two brokers have.

    Args:
        brokers: at least two brokers, see ``krepair.fixes.replicas.parse_brokers``.
        options: partitions, engine, settings and scratch.
        progress: receiver of the bytes done so far.

    Raises:
        NotALogDirError: a path is no log directory, or a named partition is in none of them.
        RefusedError: a directory belongs to another cluster or broker, or a facts file has an unknown version.
        UnreadableError: a facts file or a log directory cannot be read.
    """
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    progress = progress or SilentProgress()
    opened = open_brokers(brokers, options)
    total = sum(log.state.log_bytes for broker in opened for log in broker.logs if broker.facts is None)
    engine = choose_engine(options.engine, options.master, {WorkKind.RECORDS: total}, progress)
    scratch = Scratch(options.scratch, [path for broker in brokers for path in broker.log_dirs])
    try:
        comparison = Comparison(opened, settings, options, engine, scratch)
        verdicts = tuple(comparison.verdicts())
    finally:
        scratch.close()
        engine.close()
        for broker in opened:
            broker.close()
    counts = Counter(verdict.verdict for verdict in verdicts)
    return CompareReport(
        sides=tuple(_summary(broker) for broker in opened),
        counts={name: counts[name] for name in m.VERDICTS if counts[name]},
        partitions=verdicts,
        marked=tuple(_marked(opened)),
        bytes_read=total,
        keys_compared=any(verdict.records_read for verdict in verdicts),
        engine=engine.why,
        next_command=next((verdict.next_command for verdict in verdicts if verdict.next_command), NOTHING),
        way_back=way_back(verdicts),
    )


def open_brokers(brokers: Sequence[GivenBroker], options: Options) -> list[OpenBroker]:
    """Open the directories and facts files of all brokers, which must be of one cluster.

    Raises:
        NotALogDirError: a path is no log directory, or a named partition is on no broker.
        RefusedError: the reasons of ``compare``.
        UnreadableError: the reasons of ``compare``.
    """
    opened: list[OpenBroker] = []
    try:
        for broker in brokers:
            opened_side = (
                open_facts(broker)
                if broker.facts
                else open_directories(broker, options.now_ms, options.config)
            )
            opened.append(opened_side)
        check_ids((broker.typed, broker.ids) for broker in opened)
        _share_secret(opened)
        if all(broker.views for broker in opened):
            check_named([view for broker in opened for view in broker.views], options)
    except BaseException:
        for opened_side in opened:
            opened_side.close()
        raise
    return opened


def _share_secret(opened: Sequence[OpenBroker]) -> None:
    """Give all directories one hash key: that of the facts files, which cannot be changed any more.

    Raises:
        RefusedError: two facts files were hashed with different keys.
    """
    of_facts = {broker.secret for broker in opened if broker.facts is not None}
    if len(of_facts) > 1:
        raise RefusedError(
            "the facts files have hashes of different keys, because the cluster id was known to only one of them",
            next_command=Next.by_hand(
                "krepair facts LOGDIR... --out FILE with all log directories of the broker"
            ),
        )
    known = next((broker.secret for broker in opened if broker.figures.cluster_id), opened[0].secret)
    for broker in opened:
        if broker.facts is None:
            broker.secret = next(iter(of_facts), known)


def _summary(broker: OpenBroker) -> SideSummary:
    state = broker.figures
    return SideSummary(
        broker=broker.typed.broker_id,
        broker_id=state.broker_id,
        cluster_id=state.cluster_id,
        host=state.host,
        taken_ms=state.taken_ms,
        log_dirs=tuple(directory.path for directory in state.directories if directory.was_read),
        not_read=tuple(directory.path for directory in state.directories if not directory.was_read),
        facts=broker.typed.facts,
        digest="" if broker.facts is None else broker.facts.digest,
        partitions=sum(1 for log in broker.logs if log.state.kind == CURRENT),
    )


def _marked(opened: Iterable[OpenBroker]) -> Iterator[MarkedFolder]:
    for broker in opened:
        for state in (log.state for log in broker.logs):
            if state.kind != CURRENT:
                broker_id = broker.typed.broker_id
                yield MarkedFolder(
                    broker=broker_id, folder=state.folder, kind=state.kind, log_dir=state.log_dir
                )


class Comparison:
    """Comparison of open brokers, partition by partition. Other verbs may ask for single partitions.

    Args:
        opened: open brokers of the comparison.
        settings: settings of brokers and topics; they say which topics are compacted.
        options: options that select partitions.
        engine: engine that runs the tasks.
        scratch: folder for rows that do not fit into memory.
    """

    def __init__(
        self,
        opened: Sequence[OpenBroker],
        settings: Settings,
        options: Options,
        engine: Engine,
        scratch: Scratch,
    ) -> None:
        self._opened, self._policies, self._options = opened, Policies(settings), options
        self._engine, self._scratch = engine, scratch

    def verdicts(self) -> Iterator[m.PartitionVerdict]:
        """Yield the verdict on every wanted partition, by topic and number."""
        for names in self._parts():
            by_name: dict[tuple[str, int], list[ReadReplica]] = {name: [] for name in names}
            for read in read_current(self._engine, self._opened, lambda *name: name in by_name):  # noqa: B023
                by_name[read.log.state.topic, read.log.state.partition].append(read)
            for replicas in by_name.values():
                replicas.sort(key=lambda replica: replica.replica.broker)
            for first in range(0, len(names), _AT_ONCE):
                yield from self._verdicts_together(
                    [(name, by_name[name]) for name in names[first : first + _AT_ONCE]]
                )

    def _parts(self) -> Iterator[list[tuple[str, int]]]:
        """Yield the wanted partitions in order, in portions whose headers fit into memory together."""
        sizes: Counter[tuple[str, int]] = Counter()
        for broker in self._opened:
            for state in (log.state for log in broker.logs):
                if state.kind == CURRENT and self._options.wants(state.topic, state.partition):
                    sizes[state.topic, state.partition] += state.log_bytes
        names: list[tuple[str, int]] = []
        total = 0
        for name, size in sorted(sizes.items()):
            if names and (len(names) >= _HEADERS_AT_ONCE or total + size > _HEADERS_BYTES):
                yield names
                names, total = [], 0
            names.append(name)
            total += size
        if names:
            yield names

    def _verdicts_together(self, partitions: Sequence[_Replicas]) -> Iterator[m.PartitionVerdict]:
        """Yield the verdicts on a few partitions whose records are read in one job."""
        for tries in itertools.count(1):
            groups = [groups_of([replica.replica for replica in replicas]) for _, replicas in partitions]
            work = list(self._work(partitions, groups))
            contents, unread = contents_of(self._engine, work, self._scratch)
            if not self._changed(partitions, groups, last=tries >= TRIES):
                if not unread:
                    break
                _mark_unreadable(partitions, unread)
        by_group = {id(item.group): content for item, content in zip(work, contents, strict=True)}
        for ((topic, number), replicas), of_partition in zip(partitions, groups, strict=True):
            content = [by_group.get(id(group)) for group in of_partition]
            verdict = verdict_of(
                topic, number, [replica.replica for replica in replicas], of_partition, content
            )
            verdict = self._with_keys(verdict, replicas)
            yield replace(verdict, next_command=self._next_command(verdict))

    def _work(
        self, partitions: Sequence[_Replicas], groups: Sequence[Sequence[ReplicaGroup]]
    ) -> Iterator[GroupWork]:
        """Yield the groups whose records have to be compared."""
        for ((topic, _), replicas), of_partition in zip(partitions, groups, strict=True):
            for group in of_partition:
                if group.differing:
                    sources = tuple(_source(replicas, group))
                    compacted = self._policies.compacts(topic, group, replicas)
                    assumed = compacted and not self._policies.is_said(topic, replicas)
                    yield GroupWork(group, sources, compacted=compacted, assumed=assumed)

    def _changed(
        self, partitions: Sequence[_Replicas], groups: Sequence[Sequence[ReplicaGroup]], *, last: bool
    ) -> bool:
        """Read replicas again whose files changed after their headers were read; return whether there were any."""
        changed = False
        for (_, replicas), of_partition in zip(partitions, groups, strict=True):
            if any(group.differing for group in of_partition):
                changed |= read_changed_again(self._engine, replicas, last=last)
        return changed

    # -- keys as a person knows them ---------------------------------------------------------------
    def _with_keys(self, verdict: m.PartitionVerdict, replicas: Sequence[ReadReplica]) -> m.PartitionVerdict:
        """Replace the hashes in a verdict by the keys, and add what each replica would serve for them."""
        from krepair.replicas.records import find_keys

        wanted = {
            line.key for disagreement in verdict.disagreements for line in disagreement.keys[:_KEYS_SHOWN]
        }
        if not wanted:
            return verdict
        hashes = tuple(sorted((int(key[:16], 16), int(key[16:], 16)) for key in wanted))
        sources = [
            (read.source, read.replica)
            for read in replicas
            if isinstance(read.source, ReplicaItem) and not read.replica.failure
        ]
        items = [(source, hashes, served_offsets(replica)) for source, replica in sources]
        served: dict[str, dict[int, FoundKey]] = {key: {} for key in wanted}
        done = set()
        for index, result in self._engine.map(find_keys, items):
            if isinstance(result, Failed):
                continue  # only the hashes of this broker are known then, as with a facts file
            done.add(index)
            for found_key in result:
                key = f"{found_key.first:016x}{found_key.second:016x}"
                served[key][sources[index][1].broker] = found_key
        table = DECODER_OF.get(verdict.topic)
        brokers = [replica.broker for index, (_, replica) in enumerate(sources) if index in done]
        return replace(
            verdict,
            disagreements=tuple(
                replace(
                    disagreement,
                    keys=tuple(
                        _named(line, served.get(line.key, {}), brokers, table) for line in disagreement.keys
                    ),
                )
                for disagreement in verdict.disagreements
            ),
        )

    def _next_command(self, verdict: m.PartitionVerdict) -> Next:
        """Return the next command for one partition."""
        bad = [
            disagreement
            for disagreement in verdict.disagreements
            if m.VERDICT_OF[disagreement.kind] != m.IS_BEHIND
        ]
        if not bad:
            return NOTHING
        damaged = next(
            (disagreement for disagreement in bad if disagreement.kind in {m.CORRUPT, m.TORN, m.UNREADABLE}),
            None,
        )
        broker = next(
            (
                broker
                for broker in self._opened
                if damaged is not None and broker.typed.broker_id in damaged.brokers
            ),
            None,
        )
        if broker is not None and broker.typed.log_dirs:
            return Next.of("check", *broker.typed.log_dirs, "--partition", verdict.name)
        return Next.of("explain", bad[0].rule)


def _mark_unreadable(partitions: Sequence[_Replicas], unread: Sequence[Unread]) -> None:
    """Mark replicas as unreadable if their records could not be read; the verdict then rests on the others."""
    why = {id(replica): text for replica, text in unread}
    for _, replicas in partitions:
        for place, read in enumerate(replicas):
            if id(read.replica) in why:
                unread_now = replace(read.replica.headers, failure="unreadable", why=why[id(read.replica)])
                failed = dataclasses.replace(read.replica, headers=unread_now)
                replicas[place] = read._replace(replica=failed)


def served_offsets(replica: Replica) -> range:
    """Return the offsets that a replica serves to ``read_committed`` readers."""
    return range(replica.state.log_start, last_stable_offset(replica.transactions, replica.end))


def _source(replicas: Sequence[ReadReplica], group: ReplicaGroup) -> Iterator[ReplicaItem | FactsLog | None]:
    """Return the row source of each replica of a group, in the order of the group."""
    by_replica = {id(read.replica): read.source for read in replicas}
    return (by_replica[id(replica)] for replica in group.replicas)


def key_text(data: bytes | None, table: RecordTable | None) -> str:
    """Return a key as ``krepair dump`` shows it, on one line."""
    if table is not None and data is not None:
        decoded = table.decode(data, None)
        if decoded.key:
            return json_of(decoded.key).decode()
    return " ".join(
        str(shown) if name == "key" else f"{name.removeprefix('key_')} {shown}"
        for name, shown in named_bytes("key", data, AUTO).items()
    )


def _named(
    line: m.KeyLine, found_keys: dict[int, FoundKey], brokers: Sequence[int], table: RecordTable | None
) -> m.KeyLine:
    """Replace the hash in a line by the key itself, with what each broker would serve for it."""
    known = next(iter(found_keys.values()), None)
    # keys and values of these brokers are not known
    served = [m.ServedKey(broker=broker, offset=line.offset) for broker in line.have if broker not in brokers]
    if known is None:
        return replace(line, key=f"hash {line.key}", served=tuple(served))
    for broker in brokers:
        found_key = found_keys.get(broker)
        if found_key is None or found_key.offset < 0:
            served.append(m.ServedKey(broker=broker))
            continue
        value = "" if found_key.value is None else key_text(found_key.value, None)
        if found_key.value is not None and found_key.value_size > len(found_key.value):
            value += f"... ({found_key.value_size:,} bytes)"
        served.append(
            m.ServedKey(
                broker=broker, offset=found_key.offset, tombstone=found_key.value is None, value=value
            )
        )
    return replace(line, key=key_text(known.key, table), served=tuple(served))


_IN_ONE_FILE: Final = 40
"""Partitions in one pair of files; the others follow when the replicas are compared again."""


# -- replacing wrong replicas by reassignment: a replica is moved away from its broker, and then back


class WayBack(Struct, frozen=True, kw_only=True):
    """Two reassignment files for ``kafka-reassign-partitions.sh`` that replace wrong replicas.

    Attributes:
        away: content of the first file, which removes the wrong replicas.
        back: content of the second file, which gives their brokers the partitions again.
        wrong: ``topic-partition`` -> brokers whose replica is wrong.
        right: ``topic-partition`` -> brokers, one of which has to lead.
        left: number of partitions with a wrong replica that did not fit into the files.
    """

    away: str
    back: str
    wrong: dict[str, tuple[int, ...]]
    right: dict[str, tuple[int, ...]]
    left: int = 0


def way_back(verdicts: Iterable[m.PartitionVerdict]) -> WayBack | None:
    """Return reassignments for all replicas known to be wrong, None if there are none."""
    wrong_verdicts = [(verdict, wrong) for verdict in verdicts if (wrong := _wrong(verdict))]
    if not wrong_verdicts:
        return None
    away, back = [], []
    for verdict, wrong in wrong_verdicts[:_IN_ONE_FILE]:
        others = [
            column.broker for column in verdict.replicas if column.broker not in {*verdict.right, *wrong}
        ]
        away.append(_row(verdict, (*verdict.right, *others)))
        back.append(_row(verdict, (*verdict.right, *others, *wrong)))
    return WayBack(
        away=_file(away),
        back=_file(back),
        wrong={verdict.name: wrong for verdict, wrong in wrong_verdicts[:_IN_ONE_FILE]},
        right={verdict.name: verdict.right for verdict, _ in wrong_verdicts[:_IN_ONE_FILE]},
        left=len(wrong_verdicts[_IN_ONE_FILE:]),
    )


def _wrong(verdict: m.PartitionVerdict) -> tuple[int, ...]:
    """Return brokers whose replica others prove wrong, or only a leader that does harm could confirm."""
    brokers = {
        broker
        for disagreement in verdict.disagreements
        if disagreement.right or (disagreement.kind == m.LEADER_DECIDES and not disagreement.may_lead)
        for broker in disagreement.brokers
    }
    return tuple(sorted(brokers)) if verdict.right else ()


def _row(verdict: m.PartitionVerdict, brokers: Sequence[int]) -> dict[str, object]:
    return {"topic": verdict.topic, "partition": verdict.partition, "replicas": list(brokers)}


def _file(rows: Sequence[dict[str, object]]) -> str:
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
