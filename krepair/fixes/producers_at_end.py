"""Producer snapshot that a broker would load for a log with a given end, and the start of the replay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from krepair.formats import producer_snapshot
from krepair.formats.damage import Damage
from krepair.logdir.reading import opened_with_status, read_whole
from krepair.logdir.values import Partition, Snapshot
from krepair.rules.model import ProducerSnapshotState
from krepair.rules.recovery import floor_of
from krepair.rules.snapshots import SnapshotFile

SNAPSHOT_AT_MOST_BYTES: Final = 1 << 30


def newest_snapshot(
    snapshots: Sequence[Snapshot], log_end: int
) -> tuple[int, tuple[ProducerSnapshotState, ...]]:
    """Return the newest valid snapshot up to the log end, which a broker would load; (-1, ()) if there is none.

    Raises:
        OSError: a snapshot cannot be read.
    """
    for snapshot in reversed(snapshots):
        if snapshot.offset > log_end:
            continue
        decoded = producer_snapshot.decode(read_whole(snapshot.file.path, SNAPSHOT_AT_MOST_BYTES))
        if isinstance(decoded, Damage):
            continue
        states = (
            ProducerSnapshotState(
                producer_id=entry.producer_id,
                epoch=entry.producer_epoch,
                last_data_offset=entry.last_offset,
                timestamp=entry.timestamp,
                open_first_offset=entry.current_txn_first_offset,
            )
            for entry in decoded.entries
        )
        return snapshot.offset, tuple(states)
    return -1, ()


def replayed_from(partition: Partition, floor: int) -> int:
    """Return the base offset from which to replay, so that transactions open at ``floor`` are read completely.

    Raises:
        OSError: a producer snapshot cannot be read.
    """
    offset, producers = newest_snapshot(partition.snapshots, floor)
    firsts = [producer.open_first_offset for producer in producers if producer.open_first_offset >= 0]
    start = floor_of([segment.base_offset for segment in partition.segments], min([max(offset, 0), *firsts]))
    return floor if start is None else min(start, floor)


def read_snapshot_file(snapshot: Snapshot) -> SnapshotFile:
    """Read and check one snapshot, piece by piece.

    Raises:
        OSError: the snapshot cannot be read.
    """
    with opened_with_status(snapshot.file.path) as (descriptor, status):
        size = status.st_size
        damage = producer_snapshot.damage_in(
            size, lambda start, end: os.pread(descriptor, end - start, start)
        )
    entries = (size - producer_snapshot.HEADER_SIZE) // producer_snapshot.ENTRY_SIZE
    return SnapshotFile(snapshot.file.name, snapshot.offset, size, damage, 0 if damage else entries)
