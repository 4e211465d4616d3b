"""``krepair compare``: holds the replicas of partitions against each other, and says who is right. Writes nothing."""

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
from krepair.fixes.replicas import (
    TRIES,
    OpenSide,
    ReadReplica,
    Side,
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
from krepair.ops.compacted import Policies
from krepair.ops.dump import DECODER_OF
from krepair.ops.log_dirs_given import check_named
from krepair.ops.reports import Report
from krepair.options import Options
from krepair.replicas.contents import GroupWork, Unread, contents_of
from krepair.replicas.facts import FactsLog
from krepair.replicas.items import ReplicaItem
from krepair.replicas.records import FindItem, FoundKey
from krepair.rules.replicas import model as m
from krepair.rules.replicas.judge import ReplicaGroup, groups_of, verdict_of

_AT_ONCE: Final = 64
"""Partitions whose records are read in one job."""
_HEADERS_AT_ONCE: Final = 1024
_HEADERS_BYTES: Final = 64 << 30
"""Partitions, and bytes of their logs, whose headers are read in one job, and held until they are judged."""
_KEYS_SHOWN: Final = 20
_Replicas = tuple[tuple[str, int], list[ReadReplica]]
"""((topic, number), its replicas by broker)."""


class SideSummary(Struct, frozen=True, kw_only=True):
    """One side of a comparison.

    Attributes:
        broker: as typed.
        broker_id: as its directories say, may be empty.
        cluster_id: may be empty.
        host: on which it was read.
        taken_ms: when its reading began.
        log_dirs: paths of its log directories that were read.
        not_read: paths of those that were not.
        facts: path of the facts file, or empty.
        digest: of the facts file, or empty.
        partitions: current partition folders.
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
    """A folder that a broker has marked, which is listed and not compared.

    Attributes:
        broker: whose.
        folder: its name.
        kind: ``future``, ``stray`` or ``delete``.
        log_dir: where it is.
    """

    broker: int
    folder: str
    kind: str
    log_dir: str


class CompareReport(Report, frozen=True, kw_only=True):
    """What ``compare`` found.

    Attributes:
        sides: by broker.
        counts: verdict -> how many partitions.
        partitions: the verdict on each, by topic and number.
        marked: folders that a broker has marked.
        bytes_read: of ``.log`` in directories.
        keys_compared: whether records of any partition were read.
        way_back: how wrong replicas are made right, None if none is wrong while another one is right.
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
        if any(self.counts.get(one) for one in (m.DIVERGED, m.DAMAGED, m.DECIDED_BY_LEADER)):
            return ExitCode.FOUND
        if self.counts.get(m.MISSING):
            return ExitCode.UNREADABLE
        return ExitCode.PERSON_DECIDES if self.counts.get(m.CANNOT_TELL) else ExitCode.DONE


def compare(sides: Sequence[Side], options: Options, progress: Progress | None = None) -> CompareReport:
    """Compare the replicas of all partitions that two sides have.

    Args:
        sides: at least two, see ``krepair.fixes.replicas.parse_sides``.
        options: partitions, engine, settings, scratch.
        progress: told how far it is.

    Raises:
        NotALogDirError: a path is none, or a partition that was named is in none of them.
        RefusedError: a side is of another cluster or broker, or a facts file of an unknown version.
        UnreadableError: a facts file or a log directory cannot be read.
    """
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    progress = progress or SilentProgress()
    opened = open_sides(sides, options)
    total = sum(one.state.log_bytes for side in opened for one in side.logs if side.facts is None)
    engine = choose_engine(options.engine, options.master, {WorkKind.RECORDS: total}, progress)
    scratch = Scratch(options.scratch, [path for side in sides for path in side.log_dirs])
    try:
        comparison = Comparison(opened, settings, options, engine, scratch)
        verdicts = tuple(comparison.verdicts())
    finally:
        scratch.close()
        engine.close()
        for side in opened:
            side.close()
    counts = Counter(one.verdict for one in verdicts)
    return CompareReport(
        sides=tuple(_summary(side) for side in opened),
        counts={name: counts[name] for name in m.VERDICTS if counts[name]},
        partitions=verdicts,
        marked=tuple(_marked(opened)),
        bytes_read=total,
        keys_compared=any(one.records_read for one in verdicts),
        engine=engine.why,
        next_command=next((one.next_command for one in verdicts if one.next_command), NOTHING),
        way_back=way_back(verdicts),
    )


def open_sides(sides: Sequence[Side], options: Options) -> list[OpenSide]:
    """List the directories and open the facts files of all sides; they are of one cluster, each of its broker.

    Raises:
        NotALogDirError: a path is none; or a partition that was named is on no side.
        RefusedError: see ``compare``.
        UnreadableError: see ``compare``.
    """
    opened: list[OpenSide] = []
    try:
        for side in sides:
            found = open_facts(side) if side.facts else open_directories(side, options.now_ms, options.config)
            opened.append(found)
        check_ids((side.typed, side.ids) for side in opened)
        _share_secret(opened)
        if all(side.views for side in opened):
            check_named([view for side in opened for view in side.views], options)
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened


def _share_secret(opened: Sequence[OpenSide]) -> None:
    """Give all directories one key of the hashes: that of the facts files, which have theirs already.

    Raises:
        RefusedError: two facts files have other ones.
    """
    of_facts = {side.secret for side in opened if side.facts is not None}
    if len(of_facts) > 1:
        raise RefusedError(
            "the facts were taken under other keys of hashes: the cluster id was known on one side only",
            next_command=Next.by_hand(
                "krepair facts LOGDIR... --out FILE with all log directories of the broker"
            ),
        )
    known = next((side.secret for side in opened if side.broker.cluster_id), opened[0].secret)
    for side in opened:
        if side.facts is None:
            side.secret = next(iter(of_facts), known)


def _summary(side: OpenSide) -> SideSummary:
    state = side.broker
    return SideSummary(
        broker=side.typed.broker_id,
        broker_id=state.broker_id,
        cluster_id=state.cluster_id,
        host=state.host,
        taken_ms=state.taken_ms,
        log_dirs=tuple(one.path for one in state.directories if one.was_read),
        not_read=tuple(one.path for one in state.directories if not one.was_read),
        facts=side.typed.facts,
        digest="" if side.facts is None else side.facts.digest,
        partitions=sum(1 for one in side.logs if one.state.kind == CURRENT),
    )


def _marked(opened: Iterable[OpenSide]) -> Iterator[MarkedFolder]:
    for side in opened:
        for one in (log.state for log in side.logs):
            if one.kind != CURRENT:
                broker = side.typed.broker_id
                yield MarkedFolder(broker=broker, folder=one.folder, kind=one.kind, log_dir=one.log_dir)


class Comparison:
    """Compares open sides, partition by partition. Other verbs may ask for single ones.

    Args:
        opened: the sides.
        settings: of brokers and topics; which topics are compacted is taken from it where it says.
        options: which partitions are wanted.
        engine: runs the tasks.
        scratch: for rows that do not fit into memory.
    """

    def __init__(
        self,
        opened: Sequence[OpenSide],
        settings: Settings,
        options: Options,
        engine: Engine,
        scratch: Scratch,
    ) -> None:
        self._sides, self._policies, self._options = opened, Policies(settings), options
        self._engine, self._scratch = engine, scratch

    def verdicts(self) -> Iterator[m.PartitionVerdict]:
        """The verdict on every wanted partition, by topic and number."""
        for names in self._parts():
            found: dict[tuple[str, int], list[ReadReplica]] = {name: [] for name in names}
            for read in read_current(self._engine, self._sides, lambda *name: name in found):  # noqa: B023
                found[read.log.state.topic, read.log.state.partition].append(read)
            for replicas in found.values():
                replicas.sort(key=lambda one: one.replica.broker)
            for first in range(0, len(names), _AT_ONCE):
                yield from self._some([(name, found[name]) for name in names[first : first + _AT_ONCE]])

    def _parts(self) -> Iterator[list[tuple[str, int]]]:
        """The wanted partitions in order, some at a time: the result of their headers is held together."""
        sizes: Counter[tuple[str, int]] = Counter()
        for side in self._sides:
            for one in (log.state for log in side.logs):
                if one.kind == CURRENT and self._options.wants(one.topic, one.partition):
                    sizes[one.topic, one.partition] += one.log_bytes
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

    def _some(self, partitions: Sequence[_Replicas]) -> Iterator[m.PartitionVerdict]:
        """The verdicts on a few partitions, whose records are read in one job."""
        for tries in itertools.count(1):
            groups = [groups_of([one.replica for one in replicas]) for _, replicas in partitions]
            work = list(self._work(partitions, groups))
            contents, unread = contents_of(self._engine, work, self._scratch)
            if not self._changed(partitions, groups, last=tries >= TRIES):
                if not unread:
                    break
                _leave_out(partitions, unread)
        by_group = {id(one.group): content for one, content in zip(work, contents, strict=True)}
        for ((topic, number), replicas), of_partition in zip(partitions, groups, strict=True):
            content = [by_group.get(id(group)) for group in of_partition]
            verdict = verdict_of(topic, number, [one.replica for one in replicas], of_partition, content)
            verdict = self._with_keys(verdict, replicas)
            yield replace(verdict, next_command=self._next_command(verdict))

    def _work(
        self, partitions: Sequence[_Replicas], groups: Sequence[Sequence[ReplicaGroup]]
    ) -> Iterator[GroupWork]:
        """The groups whose records are to be compared."""
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
        """Whether a replica changed between its headers and its records; it was read again then."""
        found = False
        for (_, replicas), of_partition in zip(partitions, groups, strict=True):
            if any(group.differing for group in of_partition):
                found |= read_changed_again(self._engine, replicas, last=last)
        return found

    # -- keys as a person knows them ---------------------------------------------------------------
    def _with_keys(self, verdict: m.PartitionVerdict, replicas: Sequence[ReadReplica]) -> m.PartitionVerdict:
        """The verdict with the keys themselves in the place of their hashes, and what each replica would serve."""
        from krepair.replicas.records import find_keys

        wanted = {line.key for one in verdict.disagreements for line in one.keys[:_KEYS_SHOWN]}
        if not wanted:
            return verdict
        hashes = tuple(sorted((int(key[:16], 16), int(key[16:], 16)) for key in wanted))
        sources = [one for one in replicas if isinstance(one.source, ReplicaItem) and not one.replica.failure]
        items = [find_item(one, hashes) for one in sources]
        served: dict[str, dict[int, FoundKey]] = {key: {} for key in wanted}
        read = set()
        for index, result in self._engine.map(find_keys, items):
            if isinstance(result, Failed):
                continue  # of this broker is known what its hashes said, as of a facts file
            read.add(index)
            for found in result:
                key = f"{found.first:016x}{found.second:016x}"
                served[key][sources[index].replica.broker] = found
        table = DECODER_OF.get(verdict.topic)
        brokers = [one.replica.broker for index, one in enumerate(sources) if index in read]
        return replace(
            verdict,
            disagreements=tuple(
                replace(
                    one,
                    keys=tuple(_named(line, served.get(line.key, {}), brokers, table) for line in one.keys),
                )
                for one in verdict.disagreements
            ),
        )

    def _next_command(self, verdict: m.PartitionVerdict) -> Next:
        """What to type next about one partition."""
        bad = [one for one in verdict.disagreements if m.VERDICT_OF[one.kind] != m.IS_BEHIND]
        if not bad:
            return NOTHING
        damaged = next((one for one in bad if one.kind in {m.CORRUPT, m.TORN, m.UNREADABLE}), None)
        side = next(
            (one for one in self._sides if damaged is not None and one.typed.broker_id in damaged.brokers),
            None,
        )
        if side is not None and side.typed.log_dirs:
            return Next.of("check", *side.typed.log_dirs, "--partition", verdict.name)
        return Next.of("explain", bad[0].rule)


def _leave_out(partitions: Sequence[_Replicas], unread: Sequence[Unread]) -> None:
    """Replicas whose records cannot be read count as such, so that the others are judged without them."""
    why = {id(replica): text for replica, text in unread}
    for _, replicas in partitions:
        for place, side in enumerate(replicas):
            if id(side.replica) in why:
                unread_now = replace(side.replica.headers, failure="unreadable", why=why[id(side.replica)])
                failed = dataclasses.replace(side.replica, headers=unread_now)
                replicas[place] = side._replace(replica=failed)


def find_item(one: ReadReplica, hashes: tuple[tuple[int, int], ...]) -> FindItem:
    """The item that finds keys in a replica of a directory."""
    assert isinstance(one.source, ReplicaItem)
    replica = one.replica
    return FindItem(
        replica=one.source,
        hashes=hashes,
        log_start=replica.state.log_start,
        last_stable_offset=last_stable_offset(replica.transactions, replica.end),
    )


def _source(replicas: Sequence[ReadReplica], group: ReplicaGroup) -> Iterator[ReplicaItem | FactsLog | None]:
    """Where the rows of each replica of a group come from, in the order of the group."""
    by_replica = {id(one.replica): one.source for one in replicas}
    return (by_replica[id(one)] for one in group.replicas)


def key_text(data: bytes | None, table: RecordTable | None) -> str:
    """A key as ``krepair dump`` shows it, one line."""
    if table is not None and data is not None:
        decoded = table.decode(data, None)
        if decoded.key:
            return json_of(decoded.key).decode()
    return " ".join(
        str(shown) if name == "key" else f"{name.removeprefix('key_')} {shown}"
        for name, shown in named_bytes("key", data, AUTO).items()
    )


def _named(
    line: m.KeyLine, found: dict[int, FoundKey], brokers: Sequence[int], table: RecordTable | None
) -> m.KeyLine:
    known = next(iter(found.values()), None)
    # keys and values are not known there
    served = [m.ServedKey(broker=broker, offset=line.offset) for broker in line.have if broker not in brokers]
    if known is None:
        return replace(line, key=f"hash {line.key}", served=tuple(served))
    for broker in brokers:
        one = found.get(broker)
        if one is None or one.offset < 0:
            served.append(m.ServedKey(broker=broker))
            continue
        value = "" if one.value is None else key_text(one.value, None)
        if one.value is not None and one.value_size > len(one.value):
            value += f"... ({one.value_size:,} bytes)"
        served.append(m.ServedKey(broker=broker, offset=one.offset, tombstone=one.value is None, value=value))
    return replace(line, key=key_text(known.key, table), served=tuple(served))


_IN_ONE_FILE: Final = 40
"""Partitions in one pair of files; those that are left get theirs when the replicas are compared again."""


# -- the way back for wrong replicas, in Kafka's own words: a replica is moved away from its broker, and comes back


class WayBack(Struct, frozen=True, kw_only=True):
    """Two files for ``kafka-reassign-partitions.sh``.

    Attributes:
        away: content of the first: the wrong replicas go.
        back: content of the second: their brokers get the partitions again.
        wrong: ``topic-partition`` -> brokers whose replica is wrong.
        right: ``topic-partition`` -> brokers of which one has to lead.
        left: partitions with a wrong replica that are not in the files.
    """

    away: str
    back: str
    wrong: dict[str, tuple[int, ...]]
    right: dict[str, tuple[int, ...]]
    left: int = 0


def way_back(verdicts: Iterable[m.PartitionVerdict]) -> WayBack | None:
    """The way back for all replicas that are wrong while another one is right; None if there are none."""
    found = [(one, wrong) for one in verdicts if (wrong := _wrong(one))]
    if not found:
        return None
    away, back = [], []
    for one, wrong in found[:_IN_ONE_FILE]:
        others = [column.broker for column in one.replicas if column.broker not in {*one.right, *wrong}]
        away.append(_row(one, (*one.right, *others)))
        back.append(_row(one, (*one.right, *others, *wrong)))
    return WayBack(
        away=_file(away),
        back=_file(back),
        wrong={one.name: wrong for one, wrong in found[:_IN_ONE_FILE]},
        right={one.name: one.right for one, _ in found[:_IN_ONE_FILE]},
        left=len(found[_IN_ONE_FILE:]),
    )


def _wrong(verdict: m.PartitionVerdict) -> tuple[int, ...]:
    """Brokers whose replica is wrong by what others are right about, or that no other one can lead without harm."""
    brokers = {
        broker
        for one in verdict.disagreements
        if one.right or (one.kind == m.LEADER_DECIDES and not one.may_lead)
        for broker in one.brokers
    }
    return tuple(sorted(brokers)) if verdict.right else ()


def _row(one: m.PartitionVerdict, brokers: Sequence[int]) -> dict[str, object]:
    return {"topic": one.topic, "partition": one.partition, "replicas": list(brokers)}


def _file(rows: Sequence[dict[str, object]]) -> str:
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
