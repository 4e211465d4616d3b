"""Content of a model's replica: v2 batches and messages of v0 and v1 as values, and what a leader serves of them.

Encoding and reading are those of the tests' builders and of the slow twin, so that krepair is judged by other code.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tests import builders, codecs, naive
from tests.builders import ABORT, COMMIT
from tests.compaction import twin
from tests.old_messages import GZIP, raw_message

NO_EPOCH = -1


@dataclass(frozen=True)
class Value:
    """A record; ``timestamp`` in milliseconds."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Entry:
    """A batch, or a message of v0 or v1 with its wrapper.

    Attributes:
        base, last: first and last offset, of records that were removed, too.
        leader_epoch: ``NO_EPOCH`` in old formats.
        pid, epoch, sequence: of the producer; -1 without.
        txn: whether it belongs to a transaction.
        control: whether it is a marker; an emptied one has no ``marker``.
        marker: ``ABORT`` or ``COMMIT``.
        coordinator_epoch: of a marker.
        records: what is left of it. A marker has none here.
        codec: 0 to 4.
        base_time, max_time: as in the header.
        stamp: KIP-534's delete horizon, which takes the place of the base time.
        magic: 0, 1 or 2.
    """

    base: int
    last: int
    leader_epoch: int
    records: tuple[Value, ...]
    base_time: int
    max_time: int
    pid: int = -1
    epoch: int = -1
    sequence: int = -1
    txn: bool = False
    control: bool = False
    marker: int | None = None
    coordinator_epoch: int = 0
    codec: int = 0
    stamp: int | None = None
    magic: int = 2

    @property
    def data(self) -> bool:
        """Whether it is no control batch; an emptied one is data, too."""
        return not self.control

    @cached_property
    def raw(self) -> bytes:
        """Its bytes."""
        if self.magic < 2:
            return self._old()
        attributes = (
            (builders.TRANSACTIONAL if self.txn else 0)
            | (builders.CONTROL if self.control else 0)
            | (builders.DELETE_HORIZON if self.stamp is not None else 0)
        )
        raw = builders.encode(
            self.base,
            self._records(),
            last_offset=self.last,
            attributes=attributes,
            base_timestamp=self.base_time if self.stamp is None else self.stamp,
            max_timestamp=self.max_time,
            producer_id=self.pid,
            epoch=self.epoch,
            base_sequence=self.sequence,
            leader_epoch=self.leader_epoch,
        )
        return codecs.packed(raw, self.codec)

    def _records(self) -> list[builders.Record]:
        if self.marker is not None:
            key = struct.pack(">hh", 0, self.marker)
            value = struct.pack(">hi", 0, self.coordinator_epoch)
            return [builders.Record(key, value, timestamp=self.max_time)]
        return [
            builders.Record(one.key, one.value, one.headers, one.timestamp, one.offset - self.base)
            for one in self.records
        ]

    def _old(self) -> bytes:
        if not self.codec:
            [one] = self.records
            return raw_message(one.offset, one.value, magic=self.magic, timestamp=one.timestamp, key=one.key)
        inner = b"".join(
            raw_message(
                one.offset - self.base if self.magic else one.offset,
                one.value,
                magic=self.magic,
                timestamp=one.timestamp,
                key=one.key,
            )
            for one in self.records
        )
        packed = gzip.compress(inner, mtime=0)
        return raw_message(
            self.records[-1].offset, packed, magic=self.magic, timestamp=self.max_time, attributes=GZIP
        )

    @cached_property
    def batch(self) -> builders.Batch:
        """The same for the builders of indexes and snapshots."""
        attributes = struct.unpack_from(">h", self.raw, 21)[0] if self.magic == 2 else 0
        count = 1 if self.marker is not None else len(self.records)
        greatest = -1 if self.magic == 0 else self.max_time
        return builders.Batch(
            self.raw,
            self.base,
            self.last,
            attributes,
            self.pid,
            self.epoch,
            self.sequence,
            greatest,
            count,
            self.marker,
            self.coordinator_epoch,
        )

    def left(self, records: Sequence[Value]) -> Entry:
        """The same with fewer records, as the cleaner writes it anew."""
        if self.magic < 2:
            return replace(self, base=records[0].offset, last=records[-1].offset, records=tuple(records))
        newest = max((one.timestamp for one in records), default=self.max_time)
        return replace(
            self,
            records=tuple(records),
            max_time=newest,
            base_time=self.base_time if records else -1,
            codec=self.codec if records else 0,
        )

    def emptied(self) -> Entry:
        """The same without its record or records: the header alone."""
        return replace(self.left(()), marker=None, stamp=None)


def parsed(log: bytes) -> list[Entry]:
    """The batches of a v2 log.

    Raises:
        ValueError: a batch that is not v2 or whose CRC is wrong.
    """
    out = []
    for batch in naive.parse(log):
        raw = log[batch.position : batch.position + batch.size]
        sequence = struct.unpack_from(">i", raw, 53)[0]
        found = [] if batch.control else twin.records(raw)
        coordinator_epoch = struct.unpack(">i", raw[-5:-1])[0] if batch.control_type in {0, 1} else 0
        entry = Entry(
            base=batch.base_offset,
            last=batch.last_offset,
            leader_epoch=struct.unpack_from(">i", raw, 12)[0],
            records=tuple(
                Value(
                    one.offset,
                    one.timestamp,
                    one.key,
                    one.value,
                    tuple((name.decode(), value) for name, value in one.headers),
                )
                for one in found
            ),
            base_time=batch.base_timestamp,
            max_time=batch.max_timestamp,
            pid=batch.producer_id,
            epoch=batch.epoch,
            sequence=sequence,
            txn=batch.transactional,
            control=batch.control,
            marker=batch.control_type,
            coordinator_epoch=coordinator_epoch,
            codec=batch.attributes & 7,
            stamp=batch.base_timestamp if batch.stamped else None,
        )
        entry.__dict__["raw"] = raw
        out.append(entry)
    return out


def fates(entries: Iterable[Entry]) -> tuple[dict[int, int | None], dict[int, int]]:
    """What became of transactional data, and what is still open.

    Returns:
        (base offset of each transactional data batch -> ``ABORT``, ``COMMIT`` or None; producer -> first offset of its
        open transaction). An emptied marker counts for nothing, an emptied data batch opens a transaction.
    """
    fate: dict[int, int | None] = {}
    waiting: dict[int, list[int]] = {}
    for entry in entries:
        if not entry.txn:
            continue
        if entry.data:
            waiting.setdefault(entry.pid, []).append(entry.base)
            fate[entry.base] = None
        elif entry.marker is not None:
            for base in waiting.pop(entry.pid, ()):
                fate[base] = entry.marker
    return fate, {pid: bases[0] for pid, bases in waiting.items()}


@dataclass(frozen=True)
class Answer:
    """What a replica would serve as leader.

    Attributes:
        start, end: of its log.
        stable: last stable offset.
        table: the last committed value of each key below it; a key whose last one is a tombstone is not there.
    """

    start: int
    stable: int
    end: int
    table: dict[bytes | None, tuple[int, bytes]]


def served(entries: Sequence[Entry], start: int, end: int, also_open: Iterable[int] = ()) -> Answer:
    """What a leader with these batches serves; ``also_open``: first offsets that its producers have open besides."""
    fate, waiting = fates(entries)
    stable = min([end, *waiting.values(), *also_open])
    last: dict[bytes | None, tuple[int, bytes | None]] = {}
    for entry in entries:
        if entry.control or (entry.txn and fate[entry.base] != COMMIT):
            continue
        for one in entry.records:
            if start <= one.offset < stable:
                last[one.key] = (one.offset, one.value)
    table = {key: (offset, value) for key, (offset, value) in last.items() if value is not None}
    return Answer(start, stable, end, table)


__all__ = ["ABORT", "COMMIT", "NO_EPOCH", "Answer", "Entry", "Value", "fates", "parsed", "served"]
