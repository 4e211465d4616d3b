"""Second reading of a producer snapshot that was made anew: its producers by a plain replay, batch by batch.

The first reading folds the scan's summaries of whole segments (``krepair.rules.snapshots``). This one keeps a small
object per producer and takes one batch after the other, as a broker does. Batches that the next one of their producer
makes forgotten are left out.

Source: ``ProducerStateManager``, ``ProducerStateEntry`` and ``ProducerAppendInfo`` (2.2.1, 2.8.2, 3.9.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, producer_snapshot
from krepair.formats.arrays import Int64s
from krepair.formats.control import ControlType
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.producer_snapshot import ProducerEntry, ProducerSnapshot
from krepair.logdir.reading import read_whole
from krepair.pipeline.progress import shown
from krepair.pipeline.readings.partition import (
    LogFile,
    LogFilesItem,
    Part,
    Reading,
    not_the_planned_file,
    parts_of,
    second_reading,
)
from krepair.plan.model import ReplaceFile

SNAPSHOT_AT_MOST_BYTES = 1 << 30
_MARKERS_TELL_THE_TIME = (2, 4, 1)
_LOADS_BELOW_LOG_START = (2, 4, 0)
_SHOWN_AT_MOST = 3
_NO_MARKER = -2
_DATA, _DATA_OF_TRANSACTION, _MARKER, _NOTHING = range(4)
_COLUMNS = (
    "producer_id",
    "producer_epoch",
    "attributes",
    "base_offset",
    "last_offset_delta",
    "base_sequence",
    "max_timestamp",
)


class SnapshotItem(LogFilesItem, frozen=True, kw_only=True):
    """Read a producer snapshot that was made at the log end.

    Attributes:
        change: of the plan.
        path: absolute path of the new file.
        earlier: (offset, absolute path) of every snapshot that was there when the plan was made, where it is now: in
            the folder or kept. The one that the new file replaces is its kept original.
        logs: of the segments that the file was made of, ascending, at least one.
        logs_are_whole: whether these logs are as they were then. If not, only the file's own bytes are read.
        log_start: what ``log-start-offset-checkpoint`` says of the partition, -1 if nothing.
        recovered_from: base offset of the first segment that a start would have recovered. It would have read that and
            all later ones whole, whatever the log start.
        version: of the broker that will start, empty if not known.
        now_ms: the plan's clock.
        expiry_ms: after how long without a batch that broker forgets a producer.
    """

    change: ReplaceFile
    path: str
    earlier: tuple[tuple[int, str], ...]
    log_start: int
    version: tuple[int, ...]
    now_ms: int
    expiry_ms: int
    recovered_from: int = 2**63 - 1
    logs_are_whole: bool = True


@shown("verify")
@second_reading
def verify_snapshot(item: SnapshotItem, tree: Tree) -> Reading:
    """Read the new file, the snapshot that was the newest, and the log from there on."""
    data, wrong = not_the_planned_file(item.path, item.change, tree)
    if wrong:
        return Reading(problems=(wrong,))
    found = producer_snapshot.decode(data)
    if isinstance(found, Damage):
        return Reading(problems=(f"{found.expected} was expected, found {found.found}",))
    log_end = int(item.change.name.partition(".")[0])
    first = item.logs[0].base_offset
    start = item.log_start if first < item.log_start <= log_end else first
    base, missing = _newest(item, start, log_end, tree)
    if missing or not item.logs_are_whole:
        return Reading()  # what the file was made of is not there any more
    replay = _Replay(item, _begin(item, start, base))
    replay.load(ProducerSnapshot(()) if base is None else base[1], start)
    read, end = 0, first
    for part in parts_of(_needed(item.logs, replay.start), tree, check_crc=True):
        replay.take(part)
        read += int(part.walked.sizes.sum())
        end = max([end, part.base_offset, *(part.lasts[-1:] + 1).tolist()])
        if part.walked.problem and part.base_offset != item.logs[-1].base_offset:
            text = f"{log_name(part.base_offset)}, position {part.walked.position}: {part.walked.problem}"
            return Reading(problems=(text,), bytes=read)
    end = max(end, item.logs[-1].base_offset)
    problems = [] if end == log_end else [f"the log ends at offset {end}"]
    problems += _differences(found, replay.entries())
    return Reading(problems=tuple(problems), bytes=read)


def _begin(item: SnapshotItem, start: int, base: tuple[int, ProducerSnapshot] | None) -> int:
    """The offset from which batches tell of producers."""
    begun = [log.base_offset for log in item.logs if log.base_offset <= start]
    if begun and item.recovered_from <= begun[-1]:
        return begun[-1]
    return start if base is None else max(base[0], start)


def _needed(logs: tuple[LogFile, ...], start: int) -> list[LogFile]:
    """The logs that may have batches from an offset on."""
    ends = [*(log.base_offset for log in logs[1:]), 2**63 - 1]
    return [log for log, end in zip(logs, ends, strict=True) if end > start]


def _newest(
    item: SnapshotItem, start: int, log_end: int, tree: Tree
) -> tuple[tuple[int, ProducerSnapshot] | None, bool]:
    """The newest snapshot that a broker would load, and whether a newer one is gone that may have been it."""
    for offset, path in sorted(item.earlier, reverse=True):
        if not start < offset <= log_end:
            continue
        try:
            found = producer_snapshot.decode(read_whole(path, SNAPSHOT_AT_MOST_BYTES, tree))
        except FileNotFoundError:
            return None, True
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
    def __init__(self, item: SnapshotItem, start: int) -> None:
        self.start = start
        self.item = item
        self.producers: dict[int, _Producer] = {}

    def _older_than(self, since: tuple[int, int, int]) -> bool:
        return bool(self.item.version) and self.item.version < since

    def _is_forgotten(self, opened: int, time: int) -> bool:
        return opened < 0 and self.item.now_ms - time >= self.item.expiry_ms

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

    def take(self, part: Part) -> None:
        """The next batches; those that end before the start were in the snapshot already."""
        headers = part.walked.headers
        mine = np.flatnonzero(part.is_v2 & (headers["producer_id"] >= 0) & (part.lasts >= self.start))
        control = (headers["attributes"][mine] & batch_v2.CONTROL) != 0
        types, epochs = np.full((2, len(mine)), _NO_MARKER, np.int64)
        with_record = control & (headers["record_count"][mine] > 0)
        types[control] = -1
        types[with_record], epochs[with_record] = part.markers(mine[with_record])
        told = telling(
            headers["producer_id"][mine],
            headers["producer_epoch"][mine],
            _kinds(headers["attributes"][mine], types),
        )
        rows = (headers[name][mine[told]].tolist() for name in _COLUMNS)
        for kind, coordinator, *row in zip(types[told].tolist(), epochs[told].tolist(), *rows, strict=True):
            if kind == _NO_MARKER:
                self._data(*row)
            else:
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


def _kinds(attributes: Any, types: Int64s) -> Int64s:
    """int64[N]: what each batch is for its producer. A control batch without a commit or an abort changes nothing."""
    data = np.where((attributes & batch_v2.TRANSACTIONAL) != 0, _DATA_OF_TRANSACTION, _DATA)
    ends = (types == ControlType.ABORT) | (types == ControlType.COMMIT)
    found: Int64s = np.where(types == _NO_MARKER, data, np.where(ends, _MARKER, _NOTHING))
    return found


def telling(producers: Any, epochs: Any, kinds: Int64s) -> Int64s:
    """The batches after which a producer may be another than without them, ascending.

    A batch says nothing if the next one of its producer has the same epoch and kind: that one sets the same fields.
    Data of a transaction may begin it, so there the one before has to be alike, too.

    Args:
        producers: int64[N] producer ids.
        epochs: int16[N] producer epochs.
        kinds: int64[N], see ``_kinds``.
    """
    order: Int64s = np.argsort(producers, kind="stable")
    order = order[kinds[order] != _NOTHING]
    if len(order) == 0:
        return order
    columns = (producers[order], epochs[order], kinds[order])
    alike = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    as_next, as_before = np.append(alike, False), np.append(False, alike)
    covered = as_next & ((kinds[order] != _DATA_OF_TRANSACTION) | as_before)
    found: Int64s = np.sort(order[~covered])
    return found


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
        if len(texts) > _SHOWN_AT_MOST:
            return [*texts[:_SHOWN_AT_MOST], "more producers like these"]
    return texts
