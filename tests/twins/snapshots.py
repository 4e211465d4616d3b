"""The twin of a rebuilt producer snapshot: its producers by a plain replay, batch by batch.

krepair folds the scan's summaries of whole segments (``krepair.rules.snapshots``). This keeps a small object per
producer and takes one batch after the other, as a broker does.

Source: ``ProducerStateManager``, ``ProducerStateEntry`` and ``ProducerAppendInfo`` (2.2.1, 2.8.2, 3.9.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, producer_snapshot
from krepair.formats.control import ControlType, decode_end_txn, decode_key
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from krepair.formats.record import batch_records
from tests.twins.logs import LogBatches, LogPath, parts_of

_MARKERS_TELL_THE_TIME = (2, 4, 1)
_LOADS_BELOW_LOG_START = (2, 4, 0)
_COLUMNS = (
    "producer_id",
    "producer_epoch",
    "attributes",
    "base_offset",
    "last_offset_delta",
    "base_sequence",
    "max_timestamp",
)


class MadeOf(NamedTuple):
    """What a new producer snapshot at the log end was made of.

    Attributes:
        log_end: its offset.
        earlier: (offset, path) of every snapshot that was there when the plan was made, where it is now: in the folder
            or kept. The one that the new file replaces is its kept original.
        logs: of its segments, ascending, at least one.
        log_start: what ``log-start-offset-checkpoint`` says of the partition, -1 if nothing.
        recovered_from: base offset of the first segment that a start would have recovered. It would have read that and
            all later ones whole, whatever the log start.
        version: of the broker that will start, empty if not known.
        now_ms: the plan's clock.
        expiry_ms: after how long without a batch that broker forgets a producer.
    """

    log_end: int
    earlier: tuple[tuple[int, Path], ...]
    logs: tuple[LogPath, ...]
    tree: Tree
    log_start: int
    version: tuple[int, ...]
    now_ms: int
    expiry_ms: int
    recovered_from: int = 2**63 - 1


def snapshot_problems(data: bytes, made_of: MadeOf) -> list[str]:
    """What the snapshot that was the newest, and the log from there on, have against the bytes of a new file."""
    found = producer_snapshot.decode(data)
    if isinstance(found, Damage):
        return [f"{found.expected} was expected, found {found.found}"]
    first = made_of.logs[0].base_offset
    start = made_of.log_start if first < made_of.log_start <= made_of.log_end else first
    recovers = made_of.recovered_from <= made_of.logs[-1].base_offset
    above = max(made_of.log_start, 0) if recovers and made_of.log_start < first else start
    base, missing = _newest(made_of, above)
    if missing:
        return []  # what the file was made of is not there any more
    replay = _Replay(made_of, _begin(made_of, start, base))
    replay.load(ProducerSnapshot(()) if base is None else base[1], above)
    end = made_of.logs[-1].base_offset
    for part in parts_of(_needed(made_of.logs, replay.start), made_of.tree, check_crc=True):
        replay.take(part)
        end = max([end, *(part.lasts[-1:] + 1).tolist()])
        if part.walked.problem and part.base_offset != made_of.logs[-1].base_offset:
            return [f"{log_name(part.base_offset)}, position {part.walked.position}: {part.walked.problem}"]
    ended = [] if end == made_of.log_end else [f"the log ends at offset {end}"]
    return ended + _differences(found, replay.entries())


def _begin(made_of: MadeOf, start: int, base: tuple[int, ProducerSnapshot] | None) -> int:
    """The offset from which batches tell of producers."""
    begun = [log.base_offset for log in made_of.logs if log.base_offset <= start]
    if begun and made_of.recovered_from <= begun[-1]:
        return begun[-1]
    return start if base is None else max(base[0], start)


def _needed(logs: tuple[LogPath, ...], start: int) -> list[LogPath]:
    """The logs that may have batches from an offset on."""
    ends = [*(log.base_offset for log in logs[1:]), 2**63 - 1]
    return [log for log, end in zip(logs, ends, strict=True) if end > start]


def _newest(made_of: MadeOf, start: int) -> tuple[tuple[int, ProducerSnapshot] | None, bool]:
    """The newest snapshot that a broker would load, and whether a newer one is gone that may have been it."""
    for offset, path in sorted(made_of.earlier, reverse=True):
        if not start < offset <= made_of.log_end:
            continue
        if not path.exists():
            return None, True
        found = producer_snapshot.decode(path.read_bytes())
        if not isinstance(found, Damage):
            return (offset, found), False
    return None, False


@dataclass(slots=True)
class _Producer:
    """One producer, as a broker knows it."""

    epoch: int
    sequence: int = -1
    offset: int = -1
    delta: int = 0
    data_time: int = -1
    time: int = -1
    coordinator: int = -1
    opened: int = -1


class _Replay:
    def __init__(self, made_of: MadeOf, start: int) -> None:
        self.start = start
        self.made_of = made_of
        self.producers: dict[int, _Producer] = {}

    def _older_than(self, since: tuple[int, int, int]) -> bool:
        return bool(self.made_of.version) and self.made_of.version < since

    def _is_forgotten(self, opened: int, time: int) -> bool:
        return opened < 0 and self.made_of.now_ms - time >= self.made_of.expiry_ms

    def load(self, snapshot: ProducerSnapshot, log_start: int) -> None:
        """Begin with what a snapshot says."""
        for entry in snapshot.entries:
            if self._is_forgotten(entry.current_txn_first_offset, entry.timestamp):
                continue
            if self._older_than(_LOADS_BELOW_LOG_START) and entry.last_offset < log_start:
                continue
            self.producers[entry.producer_id] = _Producer(
                epoch=entry.producer_epoch,
                sequence=entry.last_sequence,
                offset=entry.last_offset,
                delta=entry.offset_delta,
                data_time=entry.timestamp,
                time=entry.timestamp,
                coordinator=entry.coordinator_epoch,
                opened=max(entry.current_txn_first_offset, -1),
            )

    def take(self, part: LogBatches) -> None:
        """The next batches; those that end before the start were in the snapshot already."""
        headers = part.walked.headers
        for at in np.flatnonzero(part.is_v2 & (headers["producer_id"] >= 0) & (part.lasts >= self.start)):
            row = [int(headers[name][at]) for name in _COLUMNS]
            if not row[2] & batch_v2.CONTROL:
                self._data(*row)
                continue
            raw = bytearray(int(part.walked.sizes[at]))
            part.read_into(memoryview(raw), int(part.walked.positions[at]))
            kind, coordinator = marker_in(bytes(raw))
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                self._marker(row[0], row[1], row[-1], coordinator)

    def _data(
        self, producer_id: int, epoch: int, attributes: int, first: int, delta: int, sequence: int, time: int
    ) -> None:
        producer = self._entered(producer_id, epoch)
        producer.sequence = batch_v2.next_sequence(sequence, delta) if sequence >= 0 else -1
        producer.offset, producer.delta = first + delta, delta
        producer.data_time = producer.time = time
        if attributes & batch_v2.TRANSACTIONAL and producer.opened < 0:
            producer.opened = first

    def _marker(self, producer_id: int, epoch: int, time: int, coordinator: int) -> None:
        producer = self._entered(producer_id, epoch)
        producer.time, producer.coordinator, producer.opened = time, coordinator, -1

    def _entered(self, producer_id: int, epoch: int) -> _Producer:
        """A producer as it is when a batch of an epoch comes: another one than before forgets the data of that."""
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self.producers[producer_id] = _Producer(epoch)
        elif epoch != producer.epoch:
            producer.epoch, producer.sequence, producer.offset, producer.delta = epoch, -1, -1, 0
            producer.data_time = -1
        return producer

    def entries(self) -> Iterator[ProducerEntry]:
        """What the snapshot should hold."""
        for producer_id, one in self.producers.items():
            time = one.data_time if self._older_than(_MARKERS_TELL_THE_TIME) else one.time
            if not self._is_forgotten(one.opened, time):
                yield ProducerEntry(
                    producer_id,
                    one.epoch,
                    one.sequence,
                    one.offset,
                    one.delta,
                    time,
                    one.coordinator,
                    one.opened,
                )


def marker_in(raw: bytes) -> tuple[int, int]:
    """Type and coordinator epoch of the marker in a control batch, (-1, -1) if there is none."""
    record = next(iter(batch_records(raw, 0)), None)
    if record is None or isinstance(record, Damage):
        return -1, -1
    key, value = decode_key(record.key), decode_end_txn(record.value)
    if isinstance(key, Damage) or not key.is_end_txn:
        return -1, -1
    return key.type_id, -1 if isinstance(value, Damage) else value.coordinator_epoch


def _differences(found: ProducerSnapshot, expected: Iterator[ProducerEntry]) -> list[str]:
    there = {entry.producer_id: entry for entry in found.entries}
    wanted = {entry.producer_id: entry for entry in expected}
    texts = [] if len(there) == len(found.entries) else ["a producer stands in it twice"]
    for producer_id in sorted(there.keys() | wanted.keys()):
        one, other = there.get(producer_id), wanted.get(producer_id)
        if one == other:
            continue
        if one is None:
            texts.append(f"producer {producer_id} is missing")
        elif other is None:
            texts.append(f"producer {producer_id} is not in the log")
        else:
            field = next(name for name in one._fields if getattr(one, name) != getattr(other, name))
            wants = f"{field} {getattr(other, field)}"
            texts.append(f"producer {producer_id}: {wants} was expected, found {getattr(one, field)}")
    return texts
