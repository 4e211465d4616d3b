"""Model of a cluster: one partition, its replicas, and all that brokers do to them, scripted or at random.

Each replica has three logs: what it holds now, what it once received (its producer state comes from there), and a
shadow: what its offsets held before anybody cleaned. What the shadow would serve is right; a replica that would serve
anything else as leader has diverged. So the model needs no rule of comparison to know which clusters are healthy.

Elections, truncation by epoch, fetching of cleaned logs, cleaning by time, rolling, flushing, retention and checkpoints
are as in 2.2.1 to 4.3.1; what the model leaves out is said where it is left out. One seed gives one cluster.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from tests.builders import NOW_MS, Replay
from tests.lab.jars import LATEST
from tests.replicas.entries import ABORT, COMMIT, NO_EPOCH, Answer, Entry, Value, fates, served

HOUR_MS = 3_600_000
NOBODY = -1


@dataclass(frozen=True)
class Kind:
    """What kind of cluster.

    Attributes:
        steps: how many things happen.
        version: of Kafka: ``2.2.1`` and ``2.8.2`` compare modification times, later ones stamp batches.
        magic: format of what is written: 0, 1 or 2; 1.5: v1 at first, then v2.
        compacted: ``cleanup.policy`` has ``compact``.
        by_time: it has ``delete``.
        retention_ms: ``delete.retention.ms``.
        expiration_ms: of producers.
        calm: the clock leaps only while all replicas are there and caught up; so nobody misses a tombstone.
        losses: a broker that is killed may lose what was not flushed.
        unclean: a broker outside the ISR may be elected when nobody of it is there.
        replaced: a broker may be replaced by a new one, or lose its folder.
        codecs: batches are compressed.
    """

    steps: int = 90
    version: str = "3.9.2"
    magic: float = 2
    compacted: bool = True
    by_time: bool = False
    retention_ms: int = 10 * HOUR_MS
    expiration_ms: int = 24 * HOUR_MS
    calm: bool = True
    losses: bool = True
    unclean: bool = False
    replaced: bool = True
    codecs: bool = True

    @property
    def stamps(self) -> bool:
        """Whether its cleaner stamps batches (KIP-534)."""
        return self.version not in {"2.2.1", "2.8.2"}


def kind_of(seed: int, **fixed: object) -> Kind:
    """A kind by seed; all kinds in any few dozen seeds."""
    kind = Kind(
        steps=50 + seed % 9 * 12,
        version=("2.2.1", "3.9.2", LATEST, "2.8.2")[seed % 4],
        magic=(2, 2, 2, 2, 1.5, 2, 1, 2, 2, 0)[seed % 10] if seed % 4 in {0, 3} else 2,
        compacted=seed % 7 != 3,
        by_time=seed % 7 in {3, 4},
    )
    return replace(kind, **fixed)  # type: ignore[arg-type]


@dataclass
class Replica:
    """A broker's replica.

    Attributes:
        broker: its id.
        entries, received, shadow: the three logs.
        rolls: base offset and modification time of each segment.
        start, end: of the log.
        high_watermark, recorded: in memory, and in the checkpoint.
        flushed: recovery point.
        cleaned: cleaner position.
        epochs: leader epochs and their first offsets.
        aborted: (producer, first, last, last stable offset) of each abort marker, as in ``.txnindex``.
        running, clean: whether the broker runs; else whether it stopped cleanly.
        segment_bytes: at which it rolls.
        cleans: whether its cleaner is alive.
        torn: bytes of a batch behind the last whole one.
        checked: leader epoch in which it was truncated last.
        topic_id: of its folder; 22 characters.
    """

    broker: int
    segment_bytes: int = 3000
    cleans: bool = True
    entries: list[Entry] = field(default_factory=list)
    received: list[Entry] = field(default_factory=list)
    shadow: list[Entry] = field(default_factory=list)
    rolls: list[tuple[int, int]] = field(default_factory=lambda: [(0, NOW_MS)])
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    recorded: int = 0
    flushed: int = 0
    cleaned: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    running: bool = True
    clean: bool = True
    torn: bytes = b""
    checked: int = -1
    topic_id: str = "kRepairModelTopic0000w"

    # -- what it says -----------------------------------------------------------------------------
    def state(self) -> Replay:
        """Its producers."""
        replay = Replay()
        for entry in self.received:
            replay.take(entry.batch)
        return replay

    def open_from(self) -> list[int]:
        """First offsets of the transactions that its producer state has open."""
        return [one.open_from for one in self.state().producers.values() if one.open_from >= 0]

    def answer(self) -> Answer:
        """What it would serve as leader."""
        return served(self.entries, self.start, self.end, self.open_from())

    def right(self) -> Answer:
        """What it would have to serve."""
        return served(self.shadow, self.start, self.end)

    @property
    def diverged(self) -> bool:
        """Whether it would serve anything but what was written up to its end."""
        mine, right = self.answer(), self.right()
        return (mine.stable, mine.table) != (right.stable, right.table)

    def segments(self) -> Iterator[tuple[int, int, list[Entry]]]:
        """Base offset, modification time and batches of each segment."""
        ends = [base for base, _ in self.rolls[1:]] + [max(self.end, self.rolls[-1][0]) + 1]
        for (base, time), after in zip(self.rolls, ends, strict=True):
            yield base, time, [entry for entry in self.entries if base <= entry.base < after]

    def first_fetched(self, offset: int) -> int:
        """Base offset of what a follower gets that fetches from an offset: a batch comes whole."""
        return next((one.base for one in self.entries if one.base <= offset <= one.last), offset)

    # -- what happens to it -----------------------------------------------------------------------
    def append(self, entry: Entry, now_ms: int) -> None:
        """Take a batch at its end."""
        base = self.rolls[-1][0]
        size = sum(len(one.raw) for one in self.entries if one.base >= base)
        if size and size + len(entry.raw) > self.segment_bytes:
            self.roll(now_ms)
        if entry.leader_epoch > (self.epochs[-1][0] if self.epochs else NO_EPOCH):
            self.lead_from(entry.leader_epoch, entry.base)
        if entry.marker == ABORT:
            waiting = fates(self.received)[1]
            if (first := waiting.pop(entry.pid, None)) is not None:
                stable = min([*waiting.values(), entry.last + 1])
                self.aborted.append((entry.pid, first, entry.last, stable))
        self.entries.append(entry)
        self.received.append(entry)
        self.end = entry.last + 1
        self.rolls[-1] = (self.rolls[-1][0], now_ms)

    def lead_from(self, epoch: int, offset: int) -> None:
        """Note a leader epoch; one without records goes."""
        self.epochs = [one for one in self.epochs if one[1] < offset] + [(epoch, offset)]

    def roll(self, now_ms: int) -> None:
        """Begin a new segment; what is behind it is flushed."""
        if self.end > self.rolls[-1][0]:
            self.rolls.append((self.end, now_ms))
            self.flushed = self.end

    def truncate(self, offset: int) -> None:
        """Drop all from an offset on."""
        if offset >= self.end:
            return
        for name in ("entries", "received", "shadow"):
            setattr(self, name, [one for one in getattr(self, name) if one.last < offset])
        self.rolls = [one for one in self.rolls if one[0] <= offset] or [(offset, self.rolls[0][1])]
        self.epochs = [one for one in self.epochs if one[1] < offset]
        self.aborted = [one for one in self.aborted if one[2] < offset]
        self.end = offset
        self.start = min(self.start, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.recorded = min(self.recorded, offset)
        self.flushed = min(self.flushed, offset)
        self.cleaned = min(self.cleaned, offset)

    def begin_at(self, offset: int, now_ms: int) -> None:
        """Drop all and go on from an offset, as a folder that is new or too far behind does."""
        fresh = Replica(self.broker, self.segment_bytes, self.cleans, topic_id=self.topic_id)
        self.__dict__.update(copy.deepcopy(fresh.__dict__))
        self.rolls = [(offset, now_ms)]
        self.start = self.end = self.high_watermark = self.recorded = self.flushed = self.cleaned = offset

    def raise_start(self, offset: int) -> None:
        """Delete what is below an offset: whole segments, the rest by the log start alone."""
        if offset <= self.start:
            return
        self.start = offset
        keep = max(place for place, (base, _) in enumerate(self.rolls) if base <= offset)
        self.rolls = self.rolls[keep:]
        first = self.rolls[0][0]
        self.entries = [one for one in self.entries if one.last >= first]
        self.aborted = [one for one in self.aborted if one[2] >= first]
        before = [one for one in self.epochs if one[1] <= offset]
        self.epochs = ([(before[-1][0], offset)] if before else []) + [
            one for one in self.epochs if one[1] > offset
        ]
        self.cleaned = max(self.cleaned, first)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The greatest known epoch at or below one, and where it ends; (-1, -1) without."""
        known = [number for number, _ in self.epochs if number <= epoch]
        if not known:
            return NO_EPOCH, -1
        later = [start for number, start in self.epochs if number > known[-1]]
        return known[-1], later[0] if later else self.end


def clean(replica: Replica, kind: Kind, now_ms: int, merge: Callable[[], bool]) -> None:
    """One pass of the log cleaner.

    Left out: KAFKA-8351 (2.2.1 forgets transactions at the border of a group of segments).
    """
    state = replica.state()
    opened = [one.open_from for one in state.producers.values() if one.open_from >= 0]
    limit = min([replica.rolls[-1][0], replica.high_watermark, *opened])
    bound = max((base for base, _ in replica.rolls if base <= limit), default=replica.rolls[0][0])
    if bound <= replica.cleaned:
        return
    last_of: dict[int, set[int]] = {}
    for pid, one in state.producers.items():
        if one.open_from >= 0 or now_ms - one.timestamp <= kind.expiration_ms:
            last_of[pid] = {one.last_offset} if one.last_offset >= 0 else set()
    fate, _ = fates(replica.entries)
    newest: dict[bytes | None, int] = {}
    for entry in replica.entries:
        if replica.cleaned <= entry.base < bound and entry.data and fate.get(entry.base) != ABORT:
            newest.update({one.key: one.offset for one in entry.records})
    before = [time for base, time in replica.rolls if base < replica.cleaned]
    horizon = (before[-1] if before else -(2**60)) - kind.retention_ms
    kept: list[Entry] = []
    rolls: list[tuple[int, int]] = []
    met: set[int] = set()
    size = 0
    for base, time, entries in replica.segments():
        if base >= bound:
            rolls.append((base, time))
            kept += entries
            continue
        left: list[Entry] = []
        for entry in entries:
            cleaned = _cleaned(entry, kind, now_ms, fate, newest, met, last_of, by_time=time <= horizon)
            left += [] if cleaned is None else [cleaned]
        grown = size + sum(len(one.raw) for one in left)
        if rolls and (not left or (grown <= replica.segment_bytes and merge())):
            rolls[-1] = (rolls[-1][0], time)
            size = grown
        else:
            rolls.append((base, time))
            size = grown - size
        kept += left
    replica.aborted = [
        one for one in replica.aborted if one[2] >= bound or _has_data(replica.entries, *one[:3])
    ]
    replica.entries = kept
    replica.rolls = rolls
    replica.cleaned = bound


def _has_data(entries: list[Entry], pid: int, first: int, last: int) -> bool:
    return any(one.pid == pid and one.txn and one.data and first <= one.base <= last for one in entries)


def _cleaned(
    entry: Entry,
    kind: Kind,
    now_ms: int,
    fate: dict[int, int | None],
    newest: dict[bytes | None, int],
    met: set[int],
    last_of: dict[int, set[int]],
    *,
    by_time: bool,
) -> Entry | None:
    """What the cleaner leaves of a batch; None: nothing."""
    past = (
        entry.stamp <= now_ms
        if entry.stamp is not None
        else by_time and not (kind.stamps and entry.magic == 2)
    )
    needed = entry.last in last_of.get(entry.pid, ())
    if entry.control:
        if entry.marker is None:
            return None
        data = entry.pid in met
        met.discard(entry.pid)
        if data:
            return entry
        if past:
            return None
        return _stamped(entry, kind, now_ms)
    if entry.txn:
        met.add(entry.pid)
    gone = fate.get(entry.base) == ABORT
    kept = [
        one
        for one in entry.records
        if not gone and one.offset >= newest.get(one.key, -1) and not (one.value is None and past)
    ]
    if len(kept) == len(entry.records) and kept:
        tombstones = any(one.value is None for one in kept)
        return _stamped(entry, kind, now_ms) if tombstones else entry
    if not kept:
        return entry.left(()) if needed and entry.magic == 2 else None
    left = entry.left(kept)
    return _stamped(left, kind, now_ms) if any(one.value is None for one in kept) else left


def _stamped(entry: Entry, kind: Kind, now_ms: int) -> Entry:
    if not kind.stamps or entry.stamp is not None or entry.magic < 2:
        return entry
    return replace(entry, stamp=now_ms + kind.retention_ms)


@dataclass
class _Producer:
    pid: int
    epoch: int = 0
    sequence: int = 0
    open: bool = False


class Cluster:
    """One partition and its replicas.

    Args:
        seed: of all chance.
        kind: what may happen.

    Attributes:
        replicas: broker -> its replica, of the brokers that are assigned.
        leader: ``NOBODY`` while the partition is offline.
        isr: as the controller has it.
        epoch: leader epoch.
        now_ms: the clock.
        story: what happened, in words.
        resting: brokers that do not come back by chance.
    """

    def __init__(self, seed: int, kind: Kind | None = None) -> None:
        self.seed = seed
        self.kind = kind or kind_of(seed)
        self.chance = random.Random(seed)
        self.now_ms = NOW_MS
        sizes = (1200, 3000, 9000)
        self.replicas = {
            broker: Replica(broker, self.chance.choice(sizes), self.chance.random() < 0.8)
            for broker in (1, 2, 3)
        }
        self.leader = 1
        self.epoch = 0
        self.isr = {1, 2, 3}
        self.story: list[str] = []
        self.resting: set[int] = set()
        self.next_broker = 4
        self.written = 0
        self.producers = [_Producer(1000 + number) for number in range(3)]
        self.idempotent = _Producer(900)
        if self.kind.magic >= 2:
            self.replicas[1].epochs.append((0, 0))

    # -- who is there -----------------------------------------------------------------------------
    @property
    def alive(self) -> list[int]:
        """Brokers that run."""
        return [broker for broker, replica in self.replicas.items() if replica.running]

    @property
    def v2(self) -> bool:
        """Whether batches of v2 are written by now."""
        return self.kind.magic >= 2 or (self.kind.magic == 1.5 and self.written > 12)

    def say(self, what: str) -> None:
        """Note what happened."""
        self.story.append(what)

    # -- a whole history --------------------------------------------------------------------------
    def play(self) -> Cluster:
        """All of it; the brokers are left as they are, running or not."""
        for number in range(self.kind.steps):
            self.step()
            if not self.kind.calm and number == self.kind.steps * 2 // 3 and self.v2:
                self.too_long()
        return self

    def step(self) -> None:
        """One thing happens."""
        self.now_ms += self.chance.randint(1, 60_000)
        weights: list[tuple[float, Callable[[], None]]] = [
            (10, self.produce),
            (3, self.fetch_some),
            (2, self.clean_some),
            (1.2, self.stop_some),
            (1.6, self.start_some),
            (0.6, self.kill_some),
            (1, self.leap),
            (0.7, self.roll_some),
            (1, self.checkpoint_some),
            (0.3, self.delete_some),
            (0.3, self.replace_some),
            (0.2, self.end_all),
        ]
        total = sum(weight for weight, _ in weights)
        place = self.chance.random() * total
        for weight, what in weights:
            place -= weight
            if place < 0:
                what()
                return

    def absence(self, actions: int = 20) -> int:
        """A follower that has all is stopped while the others go on; gives its broker, ``NOBODY`` if there is none."""
        for broker in list(self.replicas):
            if not self.replicas[broker].running:
                self.start(broker)
        followers = sorted(self.isr - {self.leader})
        if self.leader == NOBODY or not followers:
            return NOBODY
        self.replicate()
        away = self.chance.choice(followers)
        self.stop(away)
        for _ in range(actions):
            self.now_ms += self.chance.randint(1, 60_000)
            self.produce()
        if self.chance.random() < 0.7:
            self.end_all()
        self.produce()
        self.replicate()
        for broker in self.alive:
            self.replicas[broker].roll(self.now_ms)
        return away

    def too_long(self) -> None:
        """A follower is away until the others have removed tombstones and markers, and comes back."""
        away = self.absence()
        if away == NOBODY:
            return
        for _ in range(3):
            self.now_ms += self.kind.retention_ms + self.kind.expiration_ms
            self.write(None)
            self.replicate()
            for broker in self.alive:
                self.replicas[broker].roll(self.now_ms)
                self.clean(broker)
        self.start(away)
        self.fetch(away)

    # -- writing ----------------------------------------------------------------------------------
    def produce(self) -> None:
        """A producer writes to the leader; mostly the ISR fetches at once."""
        if self.leader == NOBODY:
            return
        what = self.chance.random()
        if what < 0.25 or not self.v2:
            self.write(None)
        elif what < 0.35:
            self.write(self.idempotent)
        else:
            producer = self.chance.choice(self.producers)
            if producer.open and what > 0.7:
                self.end_transaction(producer)
            elif not producer.open and what > 0.93:
                producer.epoch += 1
                producer.sequence = 0
            else:
                self.write(producer)
        if self.chance.random() < 0.8:
            self.replicate()

    def values(self, offset: int) -> list[Value]:
        """Records of few keys, some of them tombstones."""
        out = []
        for place in range(self.chance.randint(1, 3)):
            self.written += 1
            gone = self.chance.random() < 0.25
            value = None if gone else b"value %d " % self.written + b"." * self.chance.randint(0, 120)
            key = b"k%d" % self.chance.randint(0, 9)
            headers = (("h", b"1"),) if self.v2 and self.chance.random() < 0.1 else ()
            out.append(
                Value(offset + place, self.now_ms - self.chance.choice([0, 0, 7]), key, value, headers)
            )
        return out

    def write(self, producer: _Producer | None) -> None:
        """A data batch at the leader's end."""
        leader = self.replicas[self.leader]
        values = self.values(leader.end)
        times = [one.timestamp for one in values]
        common = {"base": leader.end, "records": tuple(values), "base_time": times[0], "max_time": max(times)}
        if not self.v2:
            magic = min(int(self.kind.magic), 1)
            if len(values) == 1 and self.chance.random() < 0.7:
                entry = Entry(last=values[-1].offset, leader_epoch=NO_EPOCH, magic=magic, **common)
            else:
                entry = Entry(last=values[-1].offset, leader_epoch=NO_EPOCH, magic=magic, codec=1, **common)
        else:
            codec = self.chance.randint(0, 4) if self.kind.codecs else 0
            codec = 0 if codec == 4 and self.kind.version < "2.1" else codec
            entry = Entry(last=values[-1].offset, leader_epoch=self.epoch, codec=codec, **common)
            if producer is not None:
                txn = producer is not self.idempotent
                entry = replace(
                    entry, pid=producer.pid, epoch=producer.epoch, sequence=producer.sequence, txn=txn
                )
                producer.sequence += len(values)
                producer.open = txn
        self.take(entry)

    def take(self, entry: Entry) -> None:
        """The leader takes a batch, whole and never cleaned."""
        leader = self.replicas[self.leader]
        leader.append(entry, self.now_ms)
        leader.shadow.append(entry)
        self.advance()

    def end_transaction(self, producer: _Producer, kind: int | None = None) -> None:
        """Its marker."""
        if kind is None:
            kind = ABORT if self.chance.random() < 0.35 else COMMIT
        if self.kind.version == LATEST:  # KIP-890: each marker raises the epoch
            producer.epoch += 1
            producer.sequence = 0
        self.take(
            Entry(
                base=self.replicas[self.leader].end,
                last=self.replicas[self.leader].end,
                leader_epoch=self.epoch,
                records=(),
                base_time=self.now_ms,
                max_time=self.now_ms,
                pid=producer.pid,
                epoch=producer.epoch,
                txn=True,
                control=True,
                marker=kind,
            )
        )
        producer.open = False

    def end_all(self) -> None:
        """All open transactions end."""
        for producer in self.producers:
            if producer.open and self.leader != NOBODY:
                self.end_transaction(producer)

    # -- replication ------------------------------------------------------------------------------
    def advance(self) -> None:
        """The leader's high watermark follows the ISR."""
        leader = self.replicas[self.leader]
        ends = [self.replicas[broker].end for broker in self.isr if broker in self.replicas]
        leader.high_watermark = max(leader.high_watermark, min(ends))

    def replicate(self) -> None:
        """All running members of the ISR fetch all."""
        for broker in self.alive:
            if broker in self.isr:
                self.fetch(broker)

    def fetch_some(self) -> None:
        """One follower fetches, perhaps not all there is."""
        followers = [broker for broker in self.alive if broker != self.leader]
        if followers and self.leader != NOBODY:
            part = self.chance.randint(1, 4) if self.chance.random() < 0.3 else None
            self.fetch(self.chance.choice(followers), part)

    def fetch(self, broker: int, at_most: int | None = None) -> None:
        """A follower truncates if there is a new leader, fetches, and joins the ISR once it has caught up."""
        if self.leader in {NOBODY, broker}:
            return
        leader, follower = self.replicas[self.leader], self.replicas[broker]
        if follower.checked != self.epoch:
            self.truncate_by_epoch(follower, leader)
        if follower.end > leader.end:
            follower.truncate(leader.end)
        elif follower.end < leader.start:
            follower.begin_at(leader.start, self.now_ms)
        if follower.end == follower.start:
            # Partition.appendRecordsToFollowerOrFutureReplica (3.9.2). Of v0 and v1 a broker drops no older segments.
            first = leader.first_fetched(follower.end)
            if first < follower.end:
                follower.begin_at(first, self.now_ms)
        follower.checked = self.epoch
        missing = [one for one in leader.entries if one.base >= follower.end]
        for entry in missing[:at_most]:
            follower.append(entry, self.now_ms)
        if at_most is None or at_most >= len(missing):
            follower.end = leader.end  # its last offsets may be gone from its log
        had = follower.shadow[-1].last + 1 if follower.shadow else 0
        follower.shadow += [one for one in leader.shadow if one.base >= had and one.last < follower.end]
        follower.raise_start(min(leader.start, follower.end))
        if follower.end >= leader.end:
            self.isr.add(broker)
        self.advance()
        follower.high_watermark = min(leader.high_watermark, follower.end)

    def truncate_by_epoch(self, follower: Replica, leader: Replica) -> None:
        """KIP-101 and KIP-279; a log without epochs is cut to its high watermark."""
        if not follower.epochs:
            if follower.entries and follower.entries[-1].magic < 2:
                follower.truncate(follower.high_watermark)
            return
        asked = follower.epochs[-1][0]
        while True:
            epoch, end = leader.epoch_end(asked)
            if epoch == NO_EPOCH:
                follower.truncate(follower.high_watermark)
                return
            mine, my_end = follower.epoch_end(epoch)
            if mine == epoch:
                follower.truncate(min(end, my_end))
                return
            if mine == NO_EPOCH:
                follower.truncate(min(end, follower.epochs[0][1]) if follower.epochs else end)
                return
            follower.truncate(my_end)
            asked = mine

    def elect(self, broker: int) -> None:
        """A broker becomes the leader."""
        self.leader = broker
        self.epoch += 1
        self.isr = {one for one in self.isr if self.replicas[one].running} | {broker}
        leader = self.replicas[broker]
        leader.checked = self.epoch
        if self.v2 or leader.epochs:
            leader.lead_from(self.epoch, leader.end)
        self.advance()
        self.say(f"{broker} leads from {leader.end}")

    def leaves(self, broker: int) -> None:
        """What the controller does when a broker is gone."""
        others = [one for one in self.isr if one != broker and self.replicas[one].running]
        if others:
            self.isr.discard(broker)
        if self.leader == broker:
            if others:
                self.elect(self.chance.choice(others))
            else:
                self.leader = NOBODY
                self.isr = {broker}
        elif self.leader != NOBODY:
            self.advance()

    # -- brokers come and go ----------------------------------------------------------------------
    def stop_some(self) -> None:
        """A broker stops cleanly."""
        if self.alive:
            self.stop(self.chance.choice(self.alive))

    def stop(self, broker: int) -> None:
        """A broker stops cleanly."""
        replica = self.replicas[broker]
        if broker == self.leader and len(self.isr) > 1:
            self.replicate()
        self.leaves(broker)
        replica.running, replica.clean = False, True
        replica.recorded, replica.flushed = replica.high_watermark, replica.end
        self.say(f"{broker} stops at {replica.end}")

    def stop_all(self) -> None:
        """All stop cleanly, the leader last."""
        for broker in sorted(self.alive, key=lambda one: one == self.leader):
            self.stop(broker)

    def kill_some(self) -> None:
        """A broker dies; where others go on it may have lost what was not flushed."""
        if not self.alive:
            return
        broker = self.chance.choice(self.alive)
        replica = self.replicas[broker]
        others = [one for one in self.isr if one != broker and self.replicas[one].running]
        self.leaves(broker)
        replica.running, replica.clean = False, False
        self.say(f"{broker} dies at {replica.end}")
        if self.kind.losses and others and replica.end > replica.flushed and self.chance.random() < 0.7:
            tail = [one for one in replica.entries if one.base >= replica.flushed]
            if tail:
                lost = self.chance.choice(tail)
                recorded = replica.recorded
                replica.truncate(lost.base)
                replica.recorded = recorded  # a checkpoint file of its own
                if self.chance.random() < 0.4:
                    replica.torn = lost.raw[: self.chance.randint(1, len(lost.raw) - 1)]
                self.say(f"{broker} loses all from {lost.base}")

    def start_some(self) -> None:
        """A broker that is away comes back."""
        away = [
            broker
            for broker, replica in self.replicas.items()
            if not replica.running and broker not in self.resting
        ]
        if away:
            self.start(self.chance.choice(away))

    def start(self, broker: int) -> None:
        """A broker comes back; it leads, if nobody else may."""
        replica = self.replicas[broker]
        replica.running, replica.checked, replica.torn = True, -1, b""
        replica.recorded = min(replica.recorded, replica.end)
        replica.high_watermark = max(replica.recorded, replica.start)
        self.say(f"{broker} starts at {replica.end}")
        if self.leader == NOBODY and (
            broker in self.isr or (self.kind.unclean and self.chance.random() < 0.5)
        ):
            if broker not in self.isr:
                self.say(f"{broker} is elected uncleanly")
                self.isr = {broker}
            self.elect(broker)
        if self.chance.random() < 0.6:
            self.fetch(broker)

    def replace_some(self) -> None:
        """A follower's disk is new, or a new broker takes the place of one."""
        if not self.kind.replaced or self.leader == NOBODY:
            return
        followers = [one for one in self.replicas if one != self.leader and one not in self.isr]
        if not followers:
            return
        broker = self.chance.choice(followers)
        old = self.replicas[broker]
        if self.chance.random() < 0.5:
            self.empty(broker)
            old.running = True
            self.say(f"{broker} has lost its folder")
        else:
            del self.replicas[broker]
            new = self.next_broker
            self.next_broker += 1
            self.replicas[new] = Replica(new, old.segment_bytes, old.cleans, topic_id=old.topic_id)
            self.say(f"{new} takes the place of {broker}")

    def empty(self, broker: int) -> None:
        """A broker's folder is gone; it fetches all anew."""
        self.replicas[broker].begin_at(0, self.now_ms)

    # -- time, cleaning, retention ----------------------------------------------------------------
    def leap(self) -> None:
        """Hours go by. In a calm cluster only while nobody is behind, and nobody has unflushed data."""
        if self.kind.calm:
            if self.leader == NOBODY or len(self.alive) < len(self.replicas):
                return
            for broker in self.alive:
                self.fetch(broker)
            for replica in self.replicas.values():
                replica.flushed = replica.end
        self.now_ms += self.chance.choice([1, 5, 12, 30]) * HOUR_MS
        self.say("hours go by")

    def clean_some(self) -> None:
        """One broker's cleaner makes a pass."""
        able = [one for one in self.replicas.values() if one.running and one.cleans]
        if self.kind.compacted and able:
            self.clean(self.chance.choice(able).broker)

    def clean(self, broker: int) -> None:
        """A broker's cleaner makes a pass."""
        clean(self.replicas[broker], self.kind, self.now_ms, lambda: self.chance.random() < 0.8)

    def roll_some(self) -> None:
        """A broker rolls by time."""
        if self.alive:
            self.replicas[self.chance.choice(self.alive)].roll(self.now_ms)

    def checkpoint_some(self) -> None:
        """A broker writes its checkpoints, or flushes."""
        if self.alive:
            replica = self.replicas[self.chance.choice(self.alive)]
            replica.recorded = replica.high_watermark
            if self.chance.random() < 0.3:
                replica.flushed = replica.end

    def delete_some(self) -> None:
        """Records are deleted for all who are there, or by one broker's retention alone."""
        if self.leader == NOBODY:
            return
        leader = self.replicas[self.leader]
        if self.chance.random() < 0.3 and leader.high_watermark > leader.start:
            offset = self.chance.randint(
                leader.start, leader.start + (leader.high_watermark - leader.start) // 3
            )
            leader.raise_start(offset)
            self.say(f"records below {offset} are deleted")
        elif self.kind.by_time:
            replica = self.replicas[self.chance.choice(self.alive)]
            closed = [base for base, _ in replica.rolls[1:] if base <= replica.high_watermark]
            if closed:
                replica.raise_start(self.chance.choice(closed[: 1 + len(closed) // 2]))

    # -- what is true of it -----------------------------------------------------------------------
    def diverged(self) -> dict[int, str]:
        """Broker of the ISR -> why it would serve anything but what was written.

        A replica that is behind may have fetched part of a cleaned log: it lacks values that were replaced later, which
        is no fault. ``will_diverge`` judges it once it has caught up.
        """
        out = {}
        for broker in sorted(self.isr):
            replica = self.replicas[broker]
            mine, right = replica.answer(), replica.right()
            if mine.stable != right.stable:
                out[broker] = f"stable offset {mine.stable}, not {right.stable}"
            elif mine.table != right.table:
                keys = sorted(key or b"" for key in mine.table.keys() | right.table.keys())
                wrong = [key for key in keys if mine.table.get(key) != right.table.get(key)]
                out[broker] = f"keys {wrong}"
        return out

    def forks(self) -> list[int]:
        """Base offsets at which two replicas were written different batches."""
        seen: dict[int, Entry] = {}
        out = set()
        for replica in self.replicas.values():
            for entry in replica.shadow:
                if seen.setdefault(entry.base, entry) != entry:
                    out.add(entry.base)
        return sorted(out)

    def caught_up(self, leader: int, broker: int) -> Cluster:
        """A copy of the cluster in which one broker has followed another one, then leads itself."""
        after = copy.deepcopy(self)
        for one in list(after.alive):
            after.stop(one)
        after.isr = {leader}
        after.leader = NOBODY
        after.replicas[leader].running = True
        after.replicas[leader].high_watermark = after.replicas[leader].recorded
        after.elect(leader)
        after.replicas[broker].running = True
        after.replicas[broker].checked = -1
        after.fetch(broker)
        return after

    def will_diverge(self) -> dict[tuple[int, int], str]:
        """(leader, follower) -> why the follower is wrong once it has caught up; leaders are of the ISR."""
        out = {}
        for leader in sorted(self.isr):
            for broker in self.replicas:
                if broker != leader:
                    found = self.caught_up(leader, broker).diverged()
                    if broker in found:
                        out[leader, broker] = found[broker]
        return out

    @property
    def healthy(self) -> bool:
        """Nobody serves anything wrong, now or after it has caught up, and nobody has other records than another."""
        return not self.diverged() and not self.forks() and not self.will_diverge()


def healthy_clusters(count: int, first: int = 0, **fixed: object) -> Iterator[Cluster]:
    """That many healthy clusters, from a seed on."""
    seed = first
    while count:
        made = Cluster(seed, kind_of(seed, **fixed)).play()
        seed += 1
        if made.healthy:
            count -= 1
            yield made


def wild_clusters(count: int, first: int = 0, **fixed: object) -> Iterator[Cluster]:
    """That many clusters that Kafka itself lets diverge: brokers are away longer than tombstones stay."""
    seed = first
    while count:
        made = Cluster(seed, kind_of(seed, **({"calm": False} | fixed))).play()
        seed += 1
        if made.diverged() or made.will_diverge():
            count -= 1
            yield made
