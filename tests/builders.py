"""Valid log directories from a few words: an encoding of Kafka's v2 files of its own, to judge krepair's by.

    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(0, 3, pid=7, txn=True), commit(3, pid=7)).segment(data(4, 2))
    directory.write()

Batches are ``Batch`` values (their bytes and what the other files need to know of them). Companions are what
a broker would have: indexes by the recovery rule of ``LogSegment.recover`` (2.2.1), ``.txnindex`` and
``.snapshot`` by a replay of the batches. The last segment is the active one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import crc32c

NOW_MS = 1_750_000_000_000
COMMIT, ABORT = 1, 0
TRANSACTIONAL, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME = 0x10, 0x20, 0x40, 0x08
HEADER_BYTES = 61
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Record:
    """A record to write; its offset is given by its place in the batch unless ``delta`` says otherwise."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    delta: int | None = None


@dataclass(frozen=True)
class Batch:
    """The bytes of one batch and what indexes, snapshots and oracles need to know of it."""

    raw: bytes
    base_offset: int
    last_offset: int
    attributes: int
    producer_id: int
    epoch: int
    base_sequence: int
    max_timestamp: int
    records: int
    marker: int | None = None
    coordinator_epoch: int = 0

    @property
    def transactional(self) -> bool:
        """Whether the transactional bit is set."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """Whether the control bit is set."""
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last offset, -1 without sequences."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) % 2**31


def varint(number: int) -> bytes:
    """A zig-zag varint."""
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def blob(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def _record(record: Record, delta: int, timestamp_delta: int) -> bytes:
    headers = b"".join(blob(name.encode()) + blob(value) for name, value in record.headers)
    body = b"\0" + varint(timestamp_delta) + varint(delta) + blob(record.key) + blob(record.value)
    body += varint(len(record.headers)) + headers
    return varint(len(body)) + body


def encode(
    base_offset: int,
    records: Sequence[Record],
    *,
    last_offset: int | None = None,
    attributes: int = 0,
    base_timestamp: int = NOW_MS,
    max_timestamp: int | None = None,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = 0,
) -> bytes:
    """One uncompressed v2 batch."""
    deltas = [record.delta if record.delta is not None else place for place, record in enumerate(records)]
    times = [record.timestamp if record.timestamp is not None else base_timestamp for record in records]
    body = b"".join(
        _record(record, delta, time - base_timestamp)
        for record, delta, time in zip(records, deltas, times, strict=True)
    )
    last_delta = (deltas[-1] if deltas else 0) if last_offset is None else last_offset - base_offset
    greatest = max_timestamp if max_timestamp is not None else max(times, default=base_timestamp)
    rest = struct.pack(
        ">hiqqqhii",
        attributes,
        last_delta,
        base_timestamp,
        greatest,
        producer_id,
        epoch,
        base_sequence,
        len(records),
    )
    rest += body
    return struct.pack(">qiibI", base_offset, 9 + len(rest), leader_epoch, 2, crc32c.crc32c(rest)) + rest


def data(
    base_offset: int,
    records: int | Sequence[Record] = 1,
    *,
    pid: int = -1,
    epoch: int | None = None,
    sequence: int | None = None,
    txn: bool = False,
    timestamp: int = NOW_MS,
    leader_epoch: int = 0,
    last_offset: int | None = None,
) -> Batch:
    """A data batch; a number of records makes as many with keys of their own."""
    if isinstance(records, int):
        records = [
            Record(b"key-%d" % (base_offset + n), b"value-%d" % (base_offset + n)) for n in range(records)
        ]
    epoch = (0 if pid >= 0 else -1) if epoch is None else epoch
    sequence = (0 if pid >= 0 else -1) if sequence is None else sequence
    attributes = TRANSACTIONAL if txn else 0
    raw = encode(
        base_offset,
        records,
        last_offset=last_offset,
        attributes=attributes,
        base_timestamp=timestamp,
        producer_id=pid,
        epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
    )
    last = base_offset + struct.unpack_from(">i", raw, 23)[0]
    greatest = struct.unpack_from(">q", raw, 35)[0]
    return Batch(raw, base_offset, last, attributes, pid, epoch, sequence, greatest, len(records))


def emptied(
    base_offset: int,
    last_offset: int | None = None,
    *,
    pid: int,
    epoch: int = 0,
    sequence: int = 0,
    txn: bool = True,
    control: bool = False,
    timestamp: int = NOW_MS,
    leader_epoch: int = 0,
) -> Batch:
    """A batch of which the cleaner left only the header (``DefaultRecordBatch.writeEmptyHeader``, 2.2.1)."""
    last = base_offset if last_offset is None else last_offset
    attributes = (TRANSACTIONAL if txn else 0) | (CONTROL if control else 0)
    sequence = -1 if control else sequence
    raw = encode(
        base_offset,
        [],
        last_offset=last,
        attributes=attributes,
        base_timestamp=-1,
        max_timestamp=timestamp,
        producer_id=pid,
        epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
    )
    return Batch(raw, base_offset, last, attributes, pid, epoch, sequence, timestamp, 0)


def marker(
    offset: int,
    kind: int,
    *,
    pid: int,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
    delete_horizon: int | None = None,
    leader_epoch: int = 0,
) -> Batch:
    """A control batch of one record: 0 abort, 1 commit. ``delete_horizon``: the stamp of KIP-534."""
    attributes = TRANSACTIONAL | CONTROL | (0 if delete_horizon is None else DELETE_HORIZON)
    control = Record(
        struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch), timestamp=timestamp
    )
    raw = encode(
        offset,
        [control],
        attributes=attributes,
        base_timestamp=timestamp if delete_horizon is None else delete_horizon,
        max_timestamp=timestamp,
        producer_id=pid,
        epoch=epoch,
        leader_epoch=leader_epoch,
    )
    return Batch(raw, offset, offset, attributes, pid, epoch, -1, timestamp, 1, kind, coordinator_epoch)


def commit(offset: int, *, pid: int, epoch: int = 0, **more: int) -> Batch:
    """A commit marker."""
    return marker(offset, COMMIT, pid=pid, epoch=epoch, **more)


def abort(offset: int, *, pid: int, epoch: int = 0, **more: int) -> Batch:
    """An abort marker."""
    return marker(offset, ABORT, pid=pid, epoch=epoch, **more)


@dataclass
class Producer:
    """What a broker holds of a producer while it replays a log."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    open_from: int = -1


@dataclass
class Replay:
    """Producer state and aborted transactions, batch by batch (``ProducerStateManager``, 2.4 and later)."""

    producers: dict[int, Producer] = field(default_factory=dict)

    def take(self, batch: Batch) -> tuple[int, int, int, int] | None:
        """Take one batch; gives the ``.txnindex`` entry of an abort marker with data before it."""
        if batch.producer_id < 0 or (batch.control and batch.marker is None):
            return None
        known = self.producers.get(batch.producer_id)
        if known is None or known.epoch != batch.epoch:
            open_from = known.open_from if known else -1
            coordinator = known.coordinator_epoch if known else -1
            known = Producer(batch.epoch, coordinator_epoch=coordinator, open_from=open_from)
            self.producers[batch.producer_id] = known
        known.timestamp = batch.max_timestamp
        if batch.marker is not None:
            first, known.open_from = known.open_from, -1
            known.coordinator_epoch = batch.coordinator_epoch
            if batch.marker != ABORT or first < 0:
                return None
            stable = min(
                [p.open_from for p in self.producers.values() if p.open_from >= 0] + [batch.last_offset + 1]
            )
            return batch.producer_id, first, batch.last_offset, stable
        known.last_sequence, known.last_offset = batch.last_sequence, batch.last_offset
        known.offset_delta = batch.last_offset - batch.base_offset
        if batch.transactional and known.open_from < 0:
            known.open_from = batch.base_offset
        return None

    def snapshot(self) -> bytes:
        """The bytes of a ``.snapshot`` file, version 1."""
        body = struct.pack(">i", len(self.producers))
        for pid, p in sorted(self.producers.items()):
            body += struct.pack(
                ">qhiqiq", pid, p.epoch, p.last_sequence, p.last_offset, p.offset_delta, p.timestamp
            )
            body += struct.pack(">iq", p.coordinator_epoch, p.open_from)
        return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


def indexes(base_offset: int, batches: Iterable[Batch], interval_bytes: int = 4096) -> tuple[bytes, bytes]:
    """(``.index``, ``.timeindex``) as recovery writes them."""
    offset_index, time_index = b"", b""
    position = last_entry = 0
    best, best_offset, written = -1, base_offset, -1
    for batch in batches:
        if batch.max_timestamp > best:
            best, best_offset = batch.max_timestamp, batch.last_offset
        if position - last_entry > interval_bytes:
            offset_index += struct.pack(">ii", batch.last_offset - base_offset, position)
            if best > written:
                time_index += struct.pack(">qi", best, best_offset - base_offset)
                written = best
            last_entry = position
        position += len(batch.raw)
    if best > written:
        time_index += struct.pack(">qi", best, best_offset - base_offset)
    return offset_index, time_index


@dataclass
class Segment:
    """Batches of one segment."""

    base_offset: int
    batches: tuple[Batch, ...]
    mtime_ms: int


@dataclass
class Partition:
    """A partition folder in the making."""

    folder: Path
    topic: str
    number: int
    index_interval_bytes: int = 4096
    segments: list[Segment] = field(default_factory=list)

    def segment(self, *batches: Batch, base_offset: int | None = None, mtime_ms: int = NOW_MS) -> Partition:
        """Add a segment; without batches it needs its base offset."""
        if base_offset is None:
            base_offset = batches[0].base_offset
        self.segments.append(Segment(base_offset, batches, mtime_ms))
        return self

    @property
    def log_end(self) -> int:
        """The offset after the last batch."""
        last = self.segments[-1]
        return last.batches[-1].last_offset + 1 if last.batches else last.base_offset

    def files(self, *, snapshots: bool = True, clean_stop: bool = True) -> dict[str, bytes]:
        """File name -> bytes of everything in the folder."""
        out: dict[str, bytes] = {}
        replay = Replay()
        for place, segment in enumerate(self.segments):
            name = f"{segment.base_offset:020d}"
            if snapshots and place:
                out[f"{name}.snapshot"] = replay.snapshot()
            entries = [entry for batch in segment.batches if (entry := replay.take(batch)) is not None]
            out[f"{name}.log"] = joined(segment.batches)
            out[f"{name}.index"], out[f"{name}.timeindex"] = indexes(
                segment.base_offset, segment.batches, self.index_interval_bytes
            )
            if entries:
                out[f"{name}.txnindex"] = b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)
        if snapshots and clean_stop:
            out[f"{self.log_end:020d}.snapshot"] = replay.snapshot()
        epochs: list[tuple[int, int]] = []
        for segment in self.segments:
            for batch in segment.batches:
                epoch = struct.unpack_from(">i", batch.raw, 12)[0]
                if not epochs or epoch > epochs[-1][0]:
                    epochs.append((epoch, batch.base_offset))
        lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
        out["leader-epoch-checkpoint"] = f"0\n{len(epochs)}\n{lines}".encode()
        return out

    def write(self, *, snapshots: bool = True, clean_stop: bool = True) -> Path:
        """Write the folder, with the segments' modification times; returns it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in self.files(snapshots=snapshots, clean_stop=clean_stop).items():
            (self.folder / name).write_bytes(content)
        for segment in self.segments:
            path = self.folder / f"{segment.base_offset:020d}.log"
            os.utime(path, ns=(segment.mtime_ms * 1_000_000, segment.mtime_ms * 1_000_000))
        return self.folder


@dataclass
class LogDir:
    """A log directory in the making."""

    root: Path
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, topic: str, number: int = 0, *, index_interval_bytes: int = 4096) -> Partition:
        """A new partition of it."""
        new = Partition(self.root / f"{topic}-{number}", topic, number, index_interval_bytes)
        self.partitions.append(new)
        return new

    def write(
        self,
        *,
        clean_stop: bool = True,
        high_watermarks: Mapping[str, int] | None = None,
        cleaner_points: Mapping[str, int] | None = None,
        log_starts: Mapping[str, int] | None = None,
        cluster_id: str = "krepair-test-cluster00",
        broker: int = 0,
    ) -> Path:
        """Write the partitions and the files of the root; returns the root.

        ``high_watermarks`` and the others are by folder name. The high watermark is the log end unless given.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        for partition in self.partitions:
            partition.write(clean_stop=clean_stop)
        ends = {p.folder.name: p.log_end for p in self.partitions}
        (self.root / "meta.properties").write_text(
            f"version=0\nbroker.id={broker}\ncluster.id={cluster_id}\n"
        )
        self._checkpoint("recovery-point-offset-checkpoint", ends)
        self._checkpoint("replication-offset-checkpoint", ends | dict(high_watermarks or {}))
        self._checkpoint("log-start-offset-checkpoint", log_starts or {})
        self._checkpoint("cleaner-offset-checkpoint", cleaner_points or {})
        if clean_stop:
            (self.root / ".kafka_cleanshutdown").touch()
        return self.root

    def _checkpoint(self, name: str, offsets: Mapping[str, int]) -> None:
        rows = [
            f"{p.topic} {p.number} {offsets[p.folder.name]}"
            for p in self.partitions
            if p.folder.name in offsets
        ]
        (self.root / name).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")


def joined(batches: Iterable[Batch]) -> bytes:
    """A ``.log`` of these batches."""
    return b"".join(batch.raw for batch in batches)


def reading(log: bytes, at_most: int = 1 << 30) -> Callable[[memoryview, int], int]:
    """What krepair's readers take: fills a buffer from a position of ``log`` and gives the bytes read.

    Args:
        log: bytes of the file.
        at_most: bytes that one read gives, as a file system may.
    """

    def read_into(buffer: memoryview, position: int) -> int:
        piece = log[position : position + min(len(buffer), at_most)]
        buffer[: len(piece)] = piece
        return len(piece)

    return read_into
