"""Random transactional histories that Kafka's loader accepts: by seed, or drawn and shrunk by hypothesis.

A history is played by producers as brokers and clients would: idempotent and transactional, fenced and
started again under a higher epoch (the coordinator then writes the abort marker with the bumped epoch), with
transactions that stay within a segment or run over many, some left open at the end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests import builders
from tests.builders import ABORT, COMMIT, NOW_MS, Batch, Partition, Record


@dataclass(frozen=True)
class Shape:
    """What kind of history.

    Attributes:
        segments: how many, the active one included.
        steps: producer actions per segment, at most.
        producers: transactional producers; ids from 1000 on.
        within_segments: every transaction ends in the segment it began in, but for those left open.
        unique_keys: no key twice, so that key compaction takes nothing but aborted data.
        tombstones: some values are null.
        emptied: some data batches were emptied by an earlier cleaning, among them whole transactions.
        stamps: some markers carry KIP-534's stamp, some past, some to come.
        epoch_per_marker: each marker raises its producer's epoch (KIP-890).
        aborted_data: aborted transactions may have records left; without, only emptied ones are aborted.
        open_at_end: some transactions have no marker.
        now_ms: the clock of the history; batches lie in the hours before.
        spread_ms: how far mtimes and batch timestamps reach back from the clock.
    """

    segments: int = 5
    steps: int = 14
    producers: int = 4
    within_segments: bool = False
    unique_keys: bool = False
    tombstones: bool = False
    emptied: bool = False
    stamps: bool = False
    epoch_per_marker: bool = False
    aborted_data: bool = True
    open_at_end: bool = True
    now_ms: int = NOW_MS
    spread_ms: int = 3_600_000


@dataclass
class _Producer:
    pid: int
    epoch: int = 0
    sequence: int = 0
    open: bool = False
    emptied: bool = False
    coordinator_epoch: int = 0


@dataclass
class History:
    """Base offset, batches and modification time of each segment; ``fill`` makes a partition of them."""

    shape: Shape
    segments: list[tuple[int, list[Batch], int]] = field(default_factory=list)

    def fill(self, partition: Partition) -> Partition:
        """Add all segments to a partition in the making."""
        for base_offset, batches, mtime_ms in self.segments:
            partition.segment(*batches, base_offset=base_offset, mtime_ms=mtime_ms)
        return partition

    @property
    def batches(self) -> list[Batch]:
        """All batches, ascending."""
        return [batch for _, batches, _ in self.segments for batch in batches]


class _Player:
    """Plays one history with one source of chance."""

    def __init__(self, shape: Shape, chance: random.Random) -> None:
        self.shape = shape
        self.chance = chance
        self.offset = chance.choice([0, 0, 3, 1_000_000])
        self.serial = 0
        self.time = shape.now_ms - shape.spread_ms
        self.step_ms = max(1, shape.spread_ms // (2 * shape.segments * shape.steps))
        self.producers = [_Producer(1000 + n) for n in range(shape.producers)]
        self.idempotent = _Producer(900)
        self.batches: list[Batch] = []

    def play(self) -> History:
        """The whole history."""
        history = History(self.shape)
        for number in range(self.shape.segments):
            self.batches = []
            base_offset = self.offset
            active = number == self.shape.segments - 1
            while not self.batches or self.chance.random() * self.shape.steps > 1:
                self.step()
            if self.shape.within_segments and not active:
                self.end_all()
            if active and not self.shape.open_at_end:
                self.end_all()
            mtime_ms = min(self.shape.now_ms, self.time + self.chance.randint(0, self.step_ms))
            history.segments.append((base_offset, self.batches, mtime_ms))
        return history

    def step(self) -> None:
        """One action of one producer."""
        self.time += self.chance.randint(0, self.step_ms)
        what = self.chance.random()
        if what < 0.12:
            self.add_data(None)
        elif what < 0.24:
            self.add_data(self.idempotent)
        else:
            self.step_of(self.chance.choice(self.producers))

    def step_of(self, producer: _Producer) -> None:
        """Begin, go on with, end or fence a transaction."""
        what = self.chance.random()
        if not producer.open:
            # init-transactions with no open transaction leaves no trace in the log; a marker alone is one
            # whose data went to other partitions, or was compacted away
            if what < 0.12:
                self.bump(producer)
            elif what < 0.18 and self.shape.emptied:
                self.add_emptied_marker(producer)
            elif what < 0.3:
                self.add_marker(producer, self.chance.choice([COMMIT, ABORT]))
            else:
                producer.emptied = self.shape.emptied and self.chance.random() < 0.6
                self.add_data(producer)
        elif what < 0.45:
            self.add_data(producer)
        elif what < 0.58 and self.may_abort(producer):
            self.bump(producer)
            self.add_marker(producer, ABORT, fenced=True)
        else:
            self.add_end(producer)

    def may_abort(self, producer: _Producer) -> bool:
        """Whether the history's shape lets the open transaction be aborted."""
        return self.shape.aborted_data or producer.emptied

    def add_end(self, producer: _Producer) -> None:
        """The marker that a client asks for."""
        abort = self.may_abort(producer) and self.chance.random() < 0.35
        self.add_marker(producer, ABORT if abort else COMMIT)

    def end_all(self) -> None:
        """End every open transaction."""
        for producer in self.producers:
            if producer.open:
                self.add_end(producer)

    def bump(self, producer: _Producer) -> None:
        """The next life of a transactional id."""
        producer.epoch += 1
        producer.sequence = 0

    def records(self) -> list[Record]:
        """Some records, with headers now and then."""
        out = []
        for _ in range(self.chance.randint(1, 4)):
            self.serial += 1
            key = b"k%d" % (self.serial if self.shape.unique_keys else self.chance.randint(0, 12))
            null = self.shape.tombstones and self.chance.random() < 0.2
            value = None if null else b"value %d " % self.serial + b"." * self.chance.randint(0, 30)
            headers = [
                (f"h{n}", self.chance.choice([None, b"", b"x" * n]))
                for n in range(self.chance.choice([0, 0, 2]))
            ]
            time = self.time - self.chance.choice([0, 0, 7])
            out.append(Record(key, value, tuple(headers), time))
        return out

    def add_data(self, producer: _Producer | None) -> None:
        """A batch of a producer, or of none."""
        records = self.records()
        if producer is None:
            self.append(builders.data(self.offset, records, timestamp=self.time))
            return
        txn = producer is not self.idempotent
        common = {"pid": producer.pid, "epoch": producer.epoch, "sequence": producer.sequence, "txn": txn}
        if txn and producer.emptied:
            last = self.offset + len(records) - 1
            self.append(builders.emptied(self.offset, last, timestamp=self.time, **common))
        else:
            self.append(builders.data(self.offset, records, timestamp=self.time, **common))
        producer.sequence += len(records)
        producer.open = txn

    def add_marker(self, producer: _Producer, kind: int, *, fenced: bool = False) -> None:
        """The end of a transaction."""
        if self.shape.epoch_per_marker and not fenced:
            self.bump(producer)
        if self.chance.random() < 0.05:
            producer.coordinator_epoch += 1
        horizon = None
        if self.shape.stamps and self.chance.random() < 0.4:
            horizon = self.shape.now_ms + self.chance.choice([-1000, 0, 1, 5_000_000])
        self.append(
            builders.marker(
                self.offset,
                kind,
                pid=producer.pid,
                epoch=producer.epoch,
                coordinator_epoch=producer.coordinator_epoch,
                timestamp=self.time,
                delete_horizon=horizon,
            )
        )
        producer.open = producer.emptied = False

    def add_emptied_marker(self, producer: _Producer) -> None:
        """A marker that a cleaner emptied to keep a producer's place; it restores nothing."""
        self.append(
            builders.emptied(
                self.offset, pid=producer.pid, epoch=producer.epoch, control=True, timestamp=self.time
            )
        )

    def append(self, batch: Batch) -> None:
        """Take a batch; now and then offsets are left out behind it, as compaction leaves them."""
        self.batches.append(batch)
        self.offset = batch.last_offset + 1
        if self.chance.random() < 0.1:
            self.offset += self.chance.randint(1, 5)


def history(seed: int, shape: Shape | None = None) -> History:
    """The history of a seed; the same seed and shape give the same bytes."""
    return _Player(shape or Shape(), random.Random(seed)).play()


def shapes(**fixed: object) -> st.SearchStrategy[Shape]:
    """Shapes; fields given are held."""
    drawn: dict[str, st.SearchStrategy[object]] = {
        "segments": st.integers(1, 8),
        "steps": st.integers(1, 20),
        "producers": st.integers(1, 6),
        **{
            name: st.booleans()
            for name in (
                "within_segments",
                "unique_keys",
                "tombstones",
                "emptied",
                "stamps",
                "epoch_per_marker",
                "aborted_data",
                "open_at_end",
            )
        },
    }
    return st.builds(
        Shape,
        **{k: v for k, v in drawn.items() if k not in fixed},
        **{k: st.just(v) for k, v in fixed.items()},
    )


def histories(**fixed: object) -> st.SearchStrategy[History]:
    """Histories that hypothesis can shrink; fields of ``Shape`` given are held."""
    return st.builds(
        lambda shape, chance: _Player(shape, chance).play(),
        shapes(**fixed),
        st.randoms(note_method_calls=False, use_true_random=False),
    )
