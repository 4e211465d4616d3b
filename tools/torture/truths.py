"""Damages partitions with known content, repairs them, and loads them with Kafka's classes before and after.

Every case comes from a seed. A random history is written, so what each offset holds, and whether it is committed, is
known. It is damaged. The log classes of three versions start three directories, each on a copy: the sound one, the
damaged one, and the damaged one after krepair. Where Kafka alone serves what is true, it has to serve it after
krepair: records in both isolation levels, the log end, the last stable offset, producers (by what they are answered
when they go on, or send a batch again), leader epochs, times. The same holds after a later crash. Besides: ``krepair
check`` foretells the start of the damaged one; a plan that is made is carried out; at last there is nothing to be done;
undo gives back every byte. A consent loses what it names and nothing else. A tenth of the mended ones is served by a
whole broker.

A wrong case is made smaller by itself: damages, fixes, options and versions are left out as long as it stays wrong.
Needs a JDK and Maven.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import shutil
import struct
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from krepair.errors import ExitCode, KrepairError
from krepair.findings.reports import LogDirReport
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Change, MendLog, Plan, RewriteSegments
from krepair.start.line import ForecastLine
from tests import naive, old_messages
from tests.brokers.serving import PASSIVE
from tests.builders import NOW_MS, Batch, LogDir, Partition, data, indexes
from tests.compaction import twin
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.lab.damaging import ENTRY_BYTES, KINDS, SWAP, files
from tests.lab.jars import LATEST
from tests.lab.judge import Judge, JudgeError, Told
from tests.strategies import Shape, history
from tools.torture.state import State

VERSIONS: Final = ("2.2.1", "2.8.2", "3.9.2", "4.3.1", LATEST)
"""Three of these judge a case."""
PART: Final = "truths"
CASES: Final = 10_000
CHUNK: Final = 20
FOLDER: Final = "t-0"
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "index.interval.bytes": "200",
    "segment.bytes": "1048576",
    "segment.index.bytes": "4096",
    "delete.retention.ms": "1000",
}
CLOCK_MS: Final = NOW_MS + 60_000
FIXES: Final = (
    "markers", "compact", "tail", "index", "epochs", "snapshots", "leftovers", "checkpoints", "recovery",
)  # fmt: skip
BREAKS: Final = {kind: breaks for kind, _, breaks in KINDS}
DAMAGES: Final[Mapping[str, float]] = {
    "log: one bit": 3, "log: one bit of a header": 5, "log: another offset": 1.5, "log: overwritten": 1, "log: cut": 2,
    "log: bytes behind it": 2, "log: a size that is none behind it": 1, "log: bytes taken out": 0.5,
    "log: a batch twice": 0.5, SWAP: 1, "segment removed": 0.3, "snapshot": 2, "snapshots removed": 0.5,
    "snapshot elsewhere": 1, "leader epochs": 1.5, ".txnindex: made up": 0.5, ".index: preallocated": 0.5,
    **{
        f"{suffix}: {name}": weight
        for suffix in ENTRY_BYTES
        for name, weight in (
            ("one bit", 1), ("cut", 0.6), ("overwritten", 0.5), ("padded", 0.6), ("an entry made up", 0.8),
            ("removed", 0.7),
        )
    },
}  # fmt: skip
"""Kind of damage -> how often: such as happen more often than such as a program makes."""
LINES: Final = {
    "recovery_point": "recovery-point-offset-checkpoint",
    "log_start": "log-start-offset-checkpoint",
}
_MOST_ROUNDS: Final = 4
_ORIGINALS: Final = Options(engine=EngineName.INLINE, originals=True)
_DAY_MS: Final = 86_400_000


# -- what is true


class Fact(NamedTuple):
    """Content of one offset.

    Attributes:
        key: key of the record.
        tombstone: true if it has no value.
        status: plain, committed, aborted or open.
        timestamp: time in milliseconds, -1 for none.
    """

    key: bytes | None
    tombstone: bool
    status: str
    timestamp: int


def truth_of(batches: Sequence[Batch]) -> dict[int, Fact]:
    """Return offset -> content, for every record, from what was written."""
    status: dict[int, str] = {}
    waiting: dict[int, list[int]] = {}
    for number, batch in enumerate(batches):
        if batch.control:
            for earlier in waiting.pop(batch.producer_id, []) if batch.marker is not None else []:
                status[earlier] = "committed" if batch.marker else "aborted"
        else:
            status[number] = "open" if batch.transactional else "plain"
            if batch.transactional:
                waiting.setdefault(batch.producer_id, []).append(number)
    truth = {}
    for number, batch in enumerate(batches):
        if batch.control:
            continue
        if batch.raw[16] < 2:
            for offset in range(batch.base_offset, batch.last_offset + 1):
                truth[offset] = Fact(b"key" if batch.records == 1 else None, False, "plain", -1)
            continue
        for record in twin.records(batch.raw):
            fact = Fact(record.key, record.value is None, status[number], record.timestamp)
            truth[record.offset] = fact
    return truth


@dataclass
class World:
    """A case on disk.

    Attributes:
        root: the damaged log directory.
        sound: the same before the damage.
        truth: offset -> what is there.
        batches: batches of the history.
        said: damage that was done to it.
    """

    root: Path
    sound: Path
    truth: dict[int, Fact]
    batches: list[Batch]
    said: dict[str, str] = field(default_factory=dict)


# -- a case


@dataclass(frozen=True)
class Case:
    """One case: all of it follows from the seed, but for what was left out or chosen anew to make it smaller.

    Attributes:
        seed: seed of the case.
        pool: versions of which three judge.
        without: names of damages, lines and trials that are left out.
        fixes: values of ``--fix`` for each of the successive plans; None: by the seed.
        versions: versions that judge; None: by the seed.
        broker: true if a whole broker may serve it.
    """

    seed: int
    pool: tuple[str, ...] = VERSIONS
    without: frozenset[str] = frozenset()
    fixes: tuple[tuple[str, ...], ...] | None = None
    versions: tuple[str, ...] | None = None
    broker: bool = False

    def chance(self, stream: str) -> random.Random:
        """Return a separate source of random numbers, so that leaving one thing out changes nothing else."""
        return random.Random(f"{self.seed} {stream}")

    @property
    def judges(self) -> tuple[str, ...]:
        """The versions that judge."""
        if self.versions is not None:
            return self.versions
        return tuple(sorted(self.chance("versions").sample(self.pool, 3)))

    @property
    def target(self) -> str:
        """The version that is told to krepair where one is told."""
        return self.judges[self.chance("target").randrange(3) % len(self.judges)]

    @property
    def told(self) -> bool:
        """Return whether krepair is given a version."""
        return "told" not in self.without and self.chance("told").random() < 0.6

    @property
    def plans(self) -> tuple[tuple[str, ...], ...]:
        """The fixes of the plans that follow each other."""
        if self.fixes is not None:
            return self.fixes
        chance = self.chance("fixes")
        return tuple(_some_fixes(chance) for _ in range(2 if chance.random() < 0.15 else 1))

    def tries(self, name: str, share: float) -> bool:
        """Return whether this case tries something that only a share of all cases does."""
        return name not in self.without and self.chance(name).random() < share

    def __str__(self) -> str:
        words = [str(self.seed)]
        words += [f"versions={'+'.join(self.versions)}"] if self.versions is not None else []
        words += ["fixes=" + "/".join("+".join(fix) for fix in self.fixes)] if self.fixes is not None else []
        words += [f"without={'+'.join(sorted(self.without))}"] if self.without else []
        words += [f"pool={'+'.join(self.pool)}"] if self.pool != VERSIONS else []
        return ":".join(words + (["broker"] if self.broker else []))

    @classmethod
    def of(cls, text: str) -> Case:
        """Return the case that ``str`` describes."""
        seed, *words = text.split(":")
        case = cls(int(seed), broker="broker" in words)
        for word in words:
            name, _, value = word.partition("=")
            parts = tuple(value.split("+"))
            if name == "without":
                case = replace(case, without=frozenset(parts))
            elif name == "fixes":
                case = replace(case, fixes=tuple(tuple(names.split("+")) for names in value.split("/")))
            elif name == "versions":
                case = replace(case, versions=parts)
            elif name == "pool":
                case = replace(case, pool=parts)
        return case


def _some_fixes(chance: random.Random) -> tuple[str, ...]:
    kind = chance.random()
    if kind < 0.2:
        chosen = [fix for fix in FIXES if fix != "compact" or kind < 0.1]
    elif kind < 0.55:
        chosen = [chance.choice(FIXES)]
    else:
        chosen = chance.sample(FIXES, chance.randint(2, 5))
    if "index" in chosen and chance.random() < 0.3:
        chosen[chosen.index("index")] = "index=regenerate"
    return tuple(chosen)


def _options(case: Case, root: Path) -> Options:
    """Return the options that are typed besides the fixes."""
    chance = case.chance("options")
    evidence = chance.random()
    config = root.parent / "topics.json"
    pairs = ",".join(f'"{key}": "{value}"' for key, value in SETTINGS.items())
    config.write_text(f'{{"t": {{{pairs}}}}}')
    replicas: tuple[str, ...] = ()
    if case.tries("replicas", 0.1):
        other = root.parent / "other"
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(root.parent / "sound", other)
        (other / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=krepair-test-cluster00\n")
        replicas = (f"2={other}",)
    return Options(
        engine=EngineName.INLINE,
        now_ms=CLOCK_MS,
        topic_config=str(config),
        only_replica=("*",) if evidence < 0.6 and not replicas else (),
        as_broker=0.6 <= evidence < 0.8 and not replicas,
        replicas=replicas,
        delete_horizon=chance.choice(["newest", "newest", "next-pass", str(CLOCK_MS)]),
        merge=chance.random() < 0.6,
        assume_high_watermark="log-end" if chance.random() < 0.2 else "",
        broker_version=case.target if case.told else "",
    )


# -- the partition, and what is done to it


def _raised(chance: random.Random, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Return the same batches with leader epochs that rise now and then; no checksum covers them."""
    epoch = 0
    for batch in batches:
        epoch += chance.random() < 0.08
        old = batch.raw[16] < 2
        raw = batch.raw if old else batch.raw[:12] + struct.pack(">i", epoch) + batch.raw[16:]
        yield replace(batch, raw=raw)


def _write(case: Case, made: LogDir) -> tuple[Partition, list[Batch]]:
    chance = case.chance("history")
    shape = Shape(
        segments=chance.randint(2, 5),
        steps=chance.choice([3, 6, 10]),
        producers=chance.randint(1, 4),
        tombstones=chance.random() < 0.6,
        emptied=chance.random() < 0.3,
        stamps=chance.random() < 0.2,
        epoch_per_marker=chance.random() < 0.2,
        open_at_end=chance.random() < 0.6,
    )
    played = history(case.seed, shape)
    partition = made.partition("t", index_interval_bytes=200)
    every: list[Batch] = []
    if played.segments[0][0] >= 3 and case.tries("old", 0.3):
        magic = chance.choice([0, 1])
        old = [
            old_messages.plain(0, magic=magic),
            old_messages.wrapper(1, [NOW_MS - _DAY_MS] * 2, magic=magic),
        ]
        partition.segment(*old, mtime_ms=NOW_MS - _DAY_MS)
        every += old
    raised = _raised(case.chance("epochs"), played.batches)
    for base, batches, mtime_ms in played.segments:
        some = list(itertools.islice(raised, len(batches)))
        partition.segment(*some, base_offset=base, mtime_ms=mtime_ms)
        every += some
    return partition, every


def make(case: Case, folder: Path) -> World:
    """Write a case into an empty folder."""
    made, root, sound = LogDir(folder / "root"), folder / "root", folder / "sound"
    partition, batches = _write(case, made)
    clean = case.chance("stop").random() < 0.55
    made.write(clean_stop=clean)
    _write_epochs(root / FOLDER, batches)
    chance = case.chance("lines")
    bases = [segment.base_offset for segment in partition.segments]
    points = (
        [partition.log_end] if clean else [0, bases[0], bases[-1], chance.choice(bases), partition.log_end]
    )
    put_lines(root, {"recovery_point": chance.choice(points)})
    shutil.copytree(root, sound)
    world = World(root, sound, truth_of(batches), batches)
    for number in range(case.chance("damages").choice([0, 1, 1, 1, 1, 1, 2, 2])):
        name = f"damage{number}"
        if name in case.without:
            continue
        chance = case.chance(name)
        damage = _leave(chance, root / FOLDER, case) if chance.random() < 0.15 else ""
        world.said[name] = damage or _break(chance, root / FOLDER)
    if case.tries("point", 0.08):
        lines = read_lines(root) | {"recovery_point": chance.choice([*bases, partition.log_end + 7])}
        put_lines(root, lines)
        world.said["point"] = f"recovery point {lines['recovery_point']}"
    if case.tries("start", 0.06):
        start = chance.choice([*bases, bases[-1] + 1, partition.log_end, partition.log_end + 5])
        put_lines(root, read_lines(root) | {"log_start": start})
        world.said["start"] = f"log start {start}"
    return world


def _break(chance: random.Random, folder: Path) -> str:
    """Break one thing; gives the kind of damage and what was done."""
    while True:
        (kind,) = chance.choices(list(DAMAGES), list(DAMAGES.values()))
        damage = BREAKS[kind](chance, folder)
        if damage and files(folder, ".log"):
            return f"{kind}: {damage}"


def _write_epochs(folder: Path, batches: Sequence[Batch]) -> None:
    """Write the epochs of the batches that have one; a message of v0 or v1 has none."""
    starts: dict[int, int] = {}
    for batch in batches:
        if batch.raw[16] == 2:
            starts.setdefault(struct.unpack_from(">i", batch.raw, 12)[0], batch.base_offset)
    lines = "".join(f"{epoch} {start}\n" for epoch, start in starts.items())
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(starts)}\n{lines}")


def _leave(chance: random.Random, folder: Path, case: Case) -> str:
    """Leave the files of a broker that is killed while it cleans; return nothing if there was nothing to clean."""
    segments, snapshots = naive.read_partition(folder)
    try:
        rules = naive.Rules(now_ms=NOW_MS, horizon_ms=0, index_interval_bytes=200, segment_bytes=3_000)
        groups = twin.compact(segments, rules, snapshots).markers.groups
    except (ValueError, struct.error, KeyError, AssertionError, IndexError):
        return ""
    logs = {segment.base_offset: segment.log for segment in segments}
    changed = [
        group
        for group in groups
        if group.log and (len(group.sources) > 1 or group.log != logs[group.base_offset])
    ]
    if not changed:
        return ""
    group = chance.choice(changed)
    stem = f"{group.base_offset:020d}"
    batches = [
        Batch(group.log[b.position : b.position + b.size], b.base_offset, b.last_offset, b.attributes, b.producer_id,
              b.epoch, -1, b.max_timestamp, b.records)
        for b in naive.parse(group.log)
    ]  # fmt: skip
    index, time_index = indexes(group.base_offset, batches, 200)
    new = {".log": group.log, ".index": index, ".timeindex": time_index}
    new |= {".txnindex": group.txnindex} if group.txnindex else {}
    how = chance.choice(["cleaned", "swap", "swap, sources going", "renamed, sources going", "index swap"])
    for suffix, content in new.items():
        waits = {
            "cleaned": ".cleaned",
            "index swap": ".swap" if suffix == ".index" else "",
            "renamed, sources going": "",
        }
        name = f"{stem}{suffix}{waits.get(how, '.swap')}"
        if not name.endswith((".swap", ".cleaned")):
            for source in group.sources:
                path = folder / f"{source:020d}{suffix}"
                if path.exists():
                    path.rename(path.with_name(path.name + ".deleted"))
        (folder / name).write_bytes(content)
        os.utime(folder / name, ns=(group.mtime_ms * 1_000_000,) * 2)
    if how == "swap, sources going":
        for source in group.sources[: chance.randint(1, len(group.sources))]:
            for suffix in new:
                path = folder / f"{source:020d}{suffix}"
                if path.exists():
                    path.rename(path.with_name(path.name + ".deleted"))
    if how == "index swap":
        (folder / f"{stem}.index").unlink(missing_ok=True)
    del case
    return f"left by a cleaning of {group.sources}: {how}"


def put_lines(root: Path, lines: Mapping[str, int]) -> None:
    """Write the lines of the partition into the checkpoints of the root."""
    for name, file in LINES.items():
        rows = [f"t 0 {lines[name]}"] if name in lines else []
        (root / file).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")


def read_lines(root: Path) -> dict[str, int]:
    """Read those lines."""
    entries = {}
    for name, file in LINES.items():
        for line in (root / file).read_text().splitlines()[2:]:
            topic, number, offset = line.split()
            if (topic, number) == ("t", "0"):
                entries[name] = int(offset)
    return entries


# -- Kafka


@dataclass
class Court:
    """Kafka's classes of each version, one JVM each, and a folder for copies."""

    folder: Path
    judges: dict[str, Judge] = field(default_factory=dict)
    starts: int = 0

    def __enter__(self) -> Court:
        return self

    def __exit__(self, *error: object) -> None:
        for judge in self.judges.values():
            judge.close(kill=True)

    def start(
        self, version: str, root: Path, world: World, batches: Sequence[bytes] = (), *, crashed: bool = False
    ) -> Told | str:
        """Start a copy of a log directory; gives why where it does not start.

        Args:
            version: version of Kafka.
            root: path of the log directory.
            world: history whose times are searched.
            batches: batches that producers send then.
            crashed: true if it is started as after a crash, and recovered from its start.
        """
        self.starts += 1
        copy = self.folder / "starts" / f"{version}-{self.starts}" / FOLDER
        shutil.copytree(root / FOLDER, copy, symlinks=True)
        lines = read_lines(root)
        try:
            judge = self.judges.setdefault(version, Judge(version, heap="400m", timeout_s=60))
            return judge.tell(
                copy,
                clean=not crashed and (root / ".kafka_cleanshutdown").exists(),
                recovery_point=0 if crashed else lines.get("recovery_point", 0),
                log_start=lines.get("log_start", 0),
                timestamps=times_of(world),
                batches=batches,
                settings={key: value for key, value in SETTINGS.items() if key != "cleanup.policy"},
                now_ms=CLOCK_MS,
            )
        except JudgeError as error:
            return str(error).partition("\n")[0].partition(str(copy))[2][:300] or str(error)[:300]
        finally:
            shutil.rmtree(copy.parent, ignore_errors=True)


def times_of(world: World) -> list[int]:
    """Return some times to search for."""
    times = sorted({fact.timestamp for fact in world.truth.values() if fact.timestamp > 0})
    return times[:: max(1, len(times) // 5)]


def sent_by_producers(world: World) -> list[bytes]:
    """Return for each producer without transactions, or with an open one: its last batch again, then its next."""
    last = {
        batch.producer_id: batch for batch in world.batches if batch.producer_id >= 0 and not batch.control
    }
    newest = {batch.producer_id: batch for batch in world.batches if batch.producer_id >= 0}
    sent = []
    for pid, batch in sorted(last.items()):
        if newest[pid].epoch != batch.epoch or not batch.records:
            continue
        fields = {"pid": pid, "epoch": batch.epoch, "txn": batch.transactional, "timestamp": NOW_MS}
        after = batch.base_sequence + batch.records
        sent.append(data(0, batch.records, sequence=batch.base_sequence, **fields).raw)  # type: ignore[arg-type]
        sent.append(data(0, 2, sequence=after + 7, **fields).raw)  # type: ignore[arg-type]
        sent.append(data(0, 2, sequence=after, **fields).raw)  # type: ignore[arg-type]
    return sent


# -- verdicts


class Verdict(NamedTuple):
    """One fault in the result.

    Attributes:
        kind: kind in capital letters.
        version: version of Kafka, empty if none matters.
        text: description of the fault.
    """

    kind: str
    version: str
    text: str


class Starts(NamedTuple):
    """Starts by one version of the sound directory, of the damaged one, and of the one after krepair."""

    sound: Told | str
    before: Told | str
    after: Told | str


@dataclass(frozen=True)
class Loss:
    """Offsets that a consent named, so that they may go."""

    ranges: tuple[tuple[int, int], ...] = ()

    def names(self, offset: int) -> bool:
        """Return whether it names an offset."""
        return any(first <= offset <= last for first, last in self.ranges)


def compare(world: World, starts: Starts, fixes: Sequence[str], loss: Loss) -> Iterator[tuple[str, str]]:
    """Hold a start after krepair against one of Kafka alone: what was right there has to be right here."""
    sound, before, after = starts
    if isinstance(after, str):
        if not isinstance(before, str):
            yield "WORSE", f"it starts without krepair, and after it not: {after}"
        return
    if isinstance(before, str):
        shown = [o for o, _ in after.committed.got if _status(world, o) == "aborted"]
        if shown and not isinstance(sound, str):
            yield "SHOWN", f"aborted records {shown[:8]}, where Kafka alone does not start"
        return
    if isinstance(sound, str):
        return
    if any(batch.control and loss.names(batch.base_offset) for batch in world.batches):
        return  # who lets a marker go lets a transaction stay open, with all that waits behind it
    yield from _records(world, sound, before, after, fixes, loss)
    yield from _state(world, sound, before, after, fixes, loss)


def _status(world: World, offset: int) -> str:
    return world.truth[offset].status if offset in world.truth else ""


def _records(
    world: World, sound: Told, before: Told, after: Told, fixes: Sequence[str], loss: Loss
) -> Iterator[tuple[str, str]]:
    true = dict(sound.uncommitted.got)
    served, now = dict(before.uncommitted.got), dict(after.uncommitted.got)
    right = {o for o, crc in served.items() if true.get(o) == crc}
    lost = [o for o in right if now.get(o) != served[o] and not loss.names(o)]
    if "compact" in fixes:
        yield from _keys(world, sound, before, after, loss)
        lost = [o for o in lost if world.truth[o].status == "open" or world.truth[o].key is None]
    if lost:
        yield (
            "LOST",
            f"{len(lost)} records: {sorted(lost)[:8]}, {[_status(world, o) for o in sorted(lost)[:4]]}",
        )
    for name in ("committed", "committed_in_small_fetches"):
        shown_before, shown_now = (dict(getattr(start, name).got) for start in (before, after))
        shown = [o for o in shown_now if o not in shown_before and _status(world, o) in {"aborted", "open"}]
        shown = [o for o in shown if o not in dict(sound.committed.got)]
        if shown:
            yield "SHOWN", f"{name}: {shown[:8]}, {[_status(world, o) for o in shown[:4]]}"
        hidden = [
            o
            for o in shown_before
            if o in right
            and o in dict(sound.committed.got)
            and o in now
            and o not in shown_now
            and not loss.names(o)
        ]
        if hidden:
            yield (
                "HIDDEN",
                f"{name}: {hidden[:8]}, stable offset {before.stable_offset} -> {after.stable_offset}",
            )


def _keys(world: World, sound: Told, before: Told, after: Told, loss: Loss) -> Iterator[tuple[str, str]]:
    """Check that the last committed value of each key stays."""

    def last_of(client: Told, among: Mapping[int, int] | None = None) -> dict[bytes, int]:
        newest: dict[bytes, int] = {}
        for offset, crc in sorted(client.committed.got):
            fact = world.truth.get(offset)
            if fact is None or fact.key is None or fact.status not in {"plain", "committed"}:
                continue
            if among is None or among.get(offset) == crc:
                newest[fact.key] = offset
        return newest

    latest, now = last_of(before, dict(sound.committed.got)), last_of(after)
    newest = last_of(sound)  # a recovery by Kafka alone may have cut the tombstone that a consent keeps
    for key, offset in latest.items():
        gone = key not in now
        if gone and world.truth[newest.get(key, offset)].tombstone:
            continue
        if (
            now.get(key, -1) < offset
            and not (gone and world.truth[offset].tombstone)
            and not loss.names(offset)
        ):
            yield "LOST", f"key {key!r}: its last value was at {offset}, now at {now.get(key)}"


def _state(
    world: World, sound: Told, before: Told, after: Told, fixes: Sequence[str], loss: Loss
) -> Iterator[tuple[str, str]]:
    same_log = (before.log_start, before.log_end) == (sound.log_start, sound.log_end)
    named = loss.names(before.log_end - 1)
    shorter = after.log_end < min(before.log_end, sound.log_end)
    if shorter and before.log_start == sound.log_start and not named:
        yield "LOG END", f"{before.log_end} -> {after.log_end}, sound {sound.log_end}"
    if after.log_start != before.log_start == sound.log_start:
        yield "LOG START", f"{before.log_start} -> {after.log_start}"
    if same_log and not named and after.stable_offset < min(before.stable_offset, sound.stable_offset):
        yield "STABLE OFFSET", f"{before.stable_offset} -> {after.stable_offset}, sound {sound.stable_offset}"
    same_bounds = (after.log_start, after.log_end) == (before.log_start, before.log_end)
    if same_bounds and len(after.uncommitted.failed) > len(before.uncommitted.failed):
        yield "READ ERRORS", f"{before.uncommitted.failed[:2]} -> {after.uncommitted.failed[:3]}"
    states = [{pid: rest for pid, *rest in start.producers} for start in (sound, before, after)]
    wrong = {
        pid: [state.get(pid) for state in states]
        for pid in states[0]
        if states[1].get(pid) == states[0][pid] != states[2].get(pid)
    }
    if wrong and not loss.ranges:
        yield (
            "PRODUCER",
            f"epoch, sequence, open from (sound, Kafka alone, after): {dict(list(wrong.items())[:3])}",
        )
    if before.answers == sound.answers != after.answers and not loss.ranges and not wrong:
        yield "ANSWERS", f"a batch again, one too far, the next: {before.answers} -> {after.answers}"
    rewritten = {"compact", "markers"} & set(fixes)
    if before.epochs == sound.epochs != after.epochs and same_log and not rewritten and not loss.ranges:
        yield "EPOCHS", f"{before.epochs} -> {after.epochs}"
    if not rewritten and not loss.ranges:
        yield from _times(world, before, after)


def _times(world: World, before: Told, after: Told) -> Iterator[tuple[str, str]]:
    def is_good(client: Told, time: int, answer: int | str) -> bool:
        """Return whether no record is skipped; a marker may be the answer."""
        served = [o for o, _ in client.uncommitted.got if o in world.truth]
        first = min((o for o in served if world.truth[o].timestamp >= time), default=-1)
        if isinstance(answer, str) or first < 0:
            return answer == first
        return 0 <= answer <= first and not any(answer <= o < first for o in served)

    rows = zip(times_of(world), before.found, after.found, strict=True)
    wrong = [
        (time, old, new)
        for time, old, new in rows
        if is_good(before, time, old) and not is_good(after, time, new)
    ]
    if wrong:
        yield "TIMES", f"(time, before, after): {wrong[:4]}"


def forecast_wrong(line: ForecastLine, done: Told | str, logs: Mapping[int, int]) -> str:
    """Return the difference between a forecast and Kafka's start, or an empty string."""
    if line.expected in {"unknown", "stray"}:
        return ""
    if isinstance(done, str):
        return "" if line.expected == "refuse" else f"{line.expected} ({line.text}), Kafka fails: {done}"
    if line.expected == "refuse":
        return f"refuse ({line.text}), Kafka starts"
    after = {segment.base_offset: segment.bytes for segment in done.segments}
    wanted = dict(line.log_bytes) or dict(logs)
    if wanted != after:
        return f"{line.expected} ({line.text}), logs {wanted}, Kafka has {after}"
    if line.log_end not in {-1, done.log_end}:
        return f"log end {line.log_end}, Kafka {done.log_end}"
    extra = set(done.recovered) - set(line.segments)
    return f"reads {line.segments}, Kafka {done.recovered}" if extra else ""


# -- krepair


@dataclass
class Mending:
    """Changes that krepair made to a directory.

    Attributes:
        plans: plans that were applied, with the tree before each.
        wrong: runs that did not end as they must.
        changes: changes of all plans.
        loss: losses that consents named.
    """

    plans: list[tuple[Plan, dict[str, tuple[object, ...]]]] = field(default_factory=list)
    wrong: list[Verdict] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    loss: Loss = Loss()


def tree_of(root: Path) -> dict[str, tuple[object, ...]]:
    """Return bytes, times and modes of all files."""
    entries: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            status = path.stat()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            entries[str(path.relative_to(root))] = (
                status.st_size,
                digest,
                status.st_mtime_ns,
                status.st_mode,
            )
        else:
            entries[f"{path.relative_to(root)}/"] = ()
    return entries


def _refused(verb: str, call: Callable[[], object], into: list[Verdict]) -> object | None:
    """Run a verb; return its result, or None if it failed: ``plan`` may refuse, and no verb may raise a traceback."""
    try:
        return call()
    except KrepairError as error:
        if verb != "PLAN" or error.exit_code in {ExitCode.BUG, ExitCode.VERIFY_FAILED, ExitCode.UNREADABLE}:
            into.append(Verdict(verb, "", f"{error.exit_code.name}: {error}"[:400]))
    except Exception:
        into.append(Verdict("TRACEBACK", "", f"{verb}: {traceback.format_exc()[-700:]}"))
    return None


def mend(case: Case, world: World) -> Mending:
    """Plan, apply and verify, until a plan has nothing to change."""
    done, options = Mending(), _options(case, world.root)
    for number, fixes in enumerate(case.plans):
        chosen = replace(options, fixes=fixes)
        if any(fix.startswith("tail") for fix in fixes) and case.tries(f"consent{number}", 0.5):
            consents = _consents(chosen, world.root)
            chosen = replace(chosen, accepted_losses=consents[:1])
        if not _rounds(chosen, world.root, done):
            break
    return done


def _consents(options: Options, root: Path) -> tuple[str, ...]:
    report = check([str(root)], replace(options, fixes=())).log_dirs[0]
    words = [finding.command.words for finding in report.findings]
    return tuple(
        after for some in words for word, after in itertools.pairwise(some) if word == "--accept-data-loss"
    )


def _rounds(options: Options, root: Path, done: Mending) -> bool:
    for number in range(_MOST_ROUNDS + 1):
        chosen = options if number == 0 else replace(options, accepted_losses=())
        plan = _refused("PLAN", lambda chosen=chosen: make_plan(str(root), chosen), done.wrong)
        if not isinstance(plan, Plan):
            return False
        changes = [change for part in plan.partitions for change in part.changes]
        changes += plan.root.changes if plan.root is not None else ()
        if not changes:
            return True
        if number == _MOST_ROUNDS:
            done.wrong.append(
                Verdict("STUCK", "", f"still to do: {[change.change_id for change in changes][:4]}")
            )
            return False
        done.changes += changes
        done.loss = Loss(done.loss.ranges + tuple(_named(changes)))
        before = tree_of(root)
        report = _refused("APPLY", lambda plan=plan, chosen=chosen: apply(plan, chosen), done.wrong)
        done.plans.append((plan, before))
        if report is None:
            return False
        if report.exit_code is not ExitCode.DONE:  # type: ignore[attr-defined]
            why = [(result.partition, result.why) for result in report.results if result.exit_code]  # type: ignore[attr-defined]
            done.wrong.append(Verdict("APPLY", "", f"{report.exit_code.name}: {why}"[:500]))  # type: ignore[attr-defined]
            return False
        verified = _refused("VERIFY", lambda plan=plan: verify_plan(plan, _ORIGINALS), done.wrong)
        problems = [problem for problem in getattr(verified, "problems", ()) if "KR312" not in str(problem)]
        if problems:
            done.wrong.append(Verdict("VERIFY", "", str(problems[:2])[:400]))
    return True


def _named(changes: Iterable[Change]) -> Iterator[tuple[int, int]]:
    for change in changes:
        for removed in change.removed if isinstance(change, MendLog) else ():
            if removed.consent:
                yield removed.first_lost, removed.last_lost if removed.last_lost >= 0 else 2**62


def take_back(world: World, done: Mending) -> None:
    """Undo all plans, the last one first; every byte is back after each."""
    for plan, before in reversed(done.plans):
        report = _refused("UNDO", lambda plan=plan: undo(plan, Options(engine=EngineName.INLINE)), done.wrong)
        if report is None:
            return
        if report.exit_code is not ExitCode.DONE:  # type: ignore[attr-defined]
            done.wrong.append(Verdict("UNDO", "", f"{report.exit_code.name}: {report.results}"[:400]))  # type: ignore[attr-defined]
            return
        now = tree_of(world.root)
        if now != before:
            names = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
            done.wrong.append(Verdict("UNDO", "", f"other bytes, times or names: {sorted(names)[:5]}"))
            return


# -- one case


@dataclass
class Tried:
    """Result of a case.

    Attributes:
        case: case that was tried.
        wrong: faults that were found.
        told: damage and fixes in words.
        figures: counters of what was compared.
    """

    case: Case
    wrong: list[Verdict] = field(default_factory=list)
    told: str = ""
    figures: Counter[str] = field(default_factory=Counter)


def try_case(case: Case, court: Court) -> Tried:
    """Make a case and judge it."""
    tried = Tried(case)
    with tempfile.TemporaryDirectory(dir=court.folder) as folder:
        world = make(case, Path(folder))
        _judge(case, world, court, tried)
        root = case.chance("stop").random() < 0.55
        tried.told = (
            f"{'clean' if root else 'killed'}, {world.said}, fixes {case.plans}, "
            f"{f'told {case.target}' if case.told else 'told no version'}"
        )
    return tried


def _judge(case: Case, world: World, court: Court, tried: Tried) -> None:
    sent = sent_by_producers(world)

    def starts(root: Path, *, crashed: bool = False) -> dict[str, Told | str]:
        return {version: court.start(version, root, world, sent, crashed=crashed) for version in case.judges}

    sound, before = starts(world.sound), starts(world.root)
    for version, start in sound.items():
        if isinstance(start, str) or {o for o, _ in start.uncommitted.got} != set(world.truth):
            tried.wrong.append(
                Verdict("HARNESS", version, f"the sound one is not as written: {str(start)[:200]}")
            )
            return
    untouched = tree_of(world.root)
    _hold_forecasts(case, world, before, tried)
    if tree_of(world.root) != untouched:
        tried.wrong.append(Verdict("CHECK WRITES", "", ""))
    crashes = _crashed(case, world, starts)
    done = mend(case, world)
    tried.wrong += done.wrong
    tried.figures["cases"] += 1
    tried.figures["plans applied"] += len(done.plans)
    tried.figures["consents"] += bool(done.loss.ranges)
    if done.plans:
        fixes = [fix.partition("=")[0] for some in case.plans for fix in some]
        after = starts(world.root)
        for version in (case.target,) if case.told else case.judges:
            tried.figures["starts compared"] += 1
            verdicts = compare(
                world, Starts(sound[version], before[version], after[version]), fixes, done.loss
            )
            tried.wrong += [Verdict(kind, version, text) for kind, text in verdicts]
        if crashes and not tried.wrong:
            later, version = starts(world.root, crashed=True), case.target
            verdicts = compare(
                world, Starts(crashes[0][version], crashes[1][version], later[version]), fixes, done.loss
            )
            tried.wrong += [Verdict(f"LATER {kind}", version, text) for kind, text in verdicts]
        if case.broker and not tried.wrong and case.tries("broker", 0.1):
            tried.figures["whole brokers"] += 1
            tried.wrong += _whole_broker(world, case.target, after[case.target])
        take_back(world, done)
        tried.wrong += [verdict for verdict in done.wrong if verdict not in tried.wrong]
    tried.wrong = [verdict for verdict in tried.wrong if not is_kafkas(world, verdict, done)]


def _crashed(
    case: Case, world: World, starts: Callable[..., dict[str, Told | str]]
) -> tuple[dict[str, Told | str], ...]:
    """Start the sound and the damaged directory as after a crash, before krepair touches them."""
    if not case.tries("crash", 0.35):
        return ()
    return starts(world.sound, crashed=True), starts(world.root, crashed=True)


def _hold_forecasts(case: Case, world: World, before: Mapping[str, Told | str], tried: Tried) -> None:
    logs = {int(path.stem): path.stat().st_size for path in files(world.root / FOLDER, ".log")}
    config = world.root.parent / "topics.json"
    _options(case, world.root)
    for version, done in before.items():
        options = Options(
            engine=EngineName.INLINE, now_ms=CLOCK_MS, topic_config=str(config), broker_version=version
        )
        report = _refused("CHECK", lambda options=options: check([str(world.root)], options), tried.wrong)
        if report is None:
            return
        report_of_dir: LogDirReport = report.log_dirs[0]  # type: ignore[attr-defined]
        for line in (line_here for line_here in report_of_dir.forecast if line_here.partition == FOLDER):
            tried.figures["forecasts compared"] += 1
            if wrong := forecast_wrong(line, done, logs):
                tried.wrong.append(Verdict("FORECAST", version, wrong))


def _whole_broker(world: World, version: str, judged: Told | str) -> list[Verdict]:
    """Check that a broker serves from a copy what the classes serve."""
    if isinstance(judged, str):
        return []
    copy = world.root.parent / "broker" / "logs"
    shutil.copytree(world.root, copy)
    (copy / "meta.properties").unlink()  # of another cluster than the lab's
    for path in copy.glob("krepair~*"):
        shutil.rmtree(path)
    topics = {"t": Topic(1, {key: value for key, value in SETTINGS.items() if key != "cleanup.policy"})}
    with Broker(version, copy, PASSIVE, topics, work_dir=copy.parent / "work") as broker:
        wrong = []
        for isolation, wanted in (
            ("read_uncommitted", judged.uncommitted),
            ("read_committed", judged.committed),
        ):
            if wanted.failed:
                continue
            try:
                records = client.read_all(broker.bootstrap, "t", isolation=isolation)  # type: ignore[arg-type]
            except (RuntimeError, TimeoutError) as error:
                # A client looks at more of a batch than the classes. Damage that krepair names and leaves is no fault.
                if not _names_damage(world):
                    wrong.append(Verdict("BROKER", version, f"{isolation}: the client met {error}"))
                break
            got = [record.offset for record in records]
            if got != [offset for offset, _ in wanted.got]:
                wrong.append(
                    Verdict("BROKER", version, f"{isolation}: {got[:20]}, the classes {wanted.got[:20]}")
                )
    return wrong


def _names_damage(world: World) -> bool:
    """Return whether ``check`` finds damage in the log of the partition."""
    report = check([str(world.root)], Options(engine=EngineName.INLINE, now_ms=CLOCK_MS))
    return any(
        finding.partition == FOLDER and finding.rule in {"KR301", "KR302", "KR303", "KR304", "KR305", "KR307"}
        for finding in report.log_dirs[0].findings
    )


def is_kafkas(world: World, verdict: Verdict, done: Mending) -> bool:
    """Return whether Kafka causes the difference, or a documented decision (``docs/safety.md``)."""
    kind = verdict.kind.removeprefix("LATER ")
    start_is_wrong = "start" in world.said
    if kind in {"LOG END", "LOG START", "TIMES", "PRODUCER", "ANSWERS", "EPOCHS", "LOST"} and start_is_wrong:
        return (
            True  # a log start past the end: the start deletes the whole log; checkpoints removes such a line
        )
    if kind == "TIMES":
        # an emptied batch, or messages without a time, hide a time: Kafka searches one segment only
        return any(isinstance(change, RewriteSegments) for change in done.changes) or any(
            b.raw[16] < 2 for b in world.batches
        )
    swaps = sum(name.endswith(".log.swap") for name in os.listdir(world.root / FOLDER))
    return verdict.version == "2.2.1" and swaps > 1  # finished in the order of a hash of their paths


# -- smaller


def smaller(tried: Tried, court: Court) -> Tried:
    """Return the smallest case with the same fault: damages, fixes, trials and versions are left out."""
    kind = tried.wrong[0].kind
    for narrower in _narrower(tried):
        again = _try(narrower, court)
        if any(verdict.kind == kind for verdict in again.wrong):
            again.wrong.sort(key=lambda verdict: verdict.kind != kind)
            return smaller(again, court)
    return tried


def _narrower(tried: Tried) -> Iterator[Case]:
    case = tried.case
    version = tried.wrong[0].version
    if version and case.judges != (version,):
        yield replace(case, versions=(version,))
    for name in (
        "damage0",
        "damage1",
        "point",
        "start",
        "crash",
        "replicas",
        "old",
        "told",
        "consent0",
        "consent1",
    ):
        if name not in case.without and (not name.startswith("damage") or name in tried.told):
            yield replace(case, without=case.without | {name})
    for number, some in enumerate(case.plans):
        others = (*case.plans[:number], *case.plans[number + 1 :])
        if others:
            yield replace(case, fixes=others)
        for fix in some if len(some) > 1 else ():
            less = tuple(name for name in some if name != fix)
            yield replace(case, fixes=(*case.plans[:number], less, *case.plans[number + 1 :]))


def _try(case: Case, court: Court) -> Tried:
    try:
        return try_case(case, court)
    except Exception:
        return Tried(case, [Verdict("HARNESS", "", traceback.format_exc()[-900:])])


def text_of(tried: Tried) -> str:
    """Describe the fault in a few words."""
    lines = [f"{verdict.kind} {verdict.version}: {verdict.text}" for verdict in tried.wrong[:4]]
    return "\n    ".join([*lines, tried.told])


# -- the part


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run as a part of the programme: ``CASES`` seeds for each of its seeds, or ``state.samples``."""
    with Court(workdir) as court:
        for seed in seeds:
            cases = [seed * CASES + number for number in range(1, state.most(CASES) + 1)]
            for place in range(0, len(cases), CHUNK):
                some = cases[place : place + CHUNK]
                unit = f"{some[0]}..{some[-1]}"
                if state.is_done(unit) or state.time_is_up():
                    continue
                figures: Counter[str] = Counter()
                for case in some:
                    tried = _try(Case(case, broker=True), court)
                    figures += tried.figures
                    if tried.wrong:
                        least = smaller(tried, court)
                        state.wrong(str(least.case), text_of(least))
                state.keep(unit, figures)


def replay(case: str, workdir: Path) -> list[str]:
    """Try one case again, as it is."""
    with Court(workdir) as court:
        tried = _try(Case.of(case), court)
    return [text_of(tried)] if tried.wrong else []
