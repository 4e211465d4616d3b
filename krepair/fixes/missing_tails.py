"""Missing log tails: logs that end below an offset that the log directory has recorded (KR312)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from krepair.commit.mend import CUT
from krepair.commit.steps import Names
from krepair.formats.batch_front import FRONT_BYTES, batch_front
from krepair.formats.filenames import METADATA_TOPIC, base_offset_of, log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.offset_index import ENTRY_SIZE
from krepair.formats.offset_index import view as view_of_index
from krepair.kernels.columns import BatchWalk
from krepair.kernels.resync import find_batch
from krepair.logdir.reading import opened_folder, opened_for_reading, read_into_from
from krepair.logdir.values import LogDir, Partition, Segment
from krepair.rules.checkpoints import Key
from krepair.rules.damage import valid_ranges
from krepair.rules.missing_tails import MissingTail

if TYPE_CHECKING:
    from krepair.fixes.analysis import PartitionAnalysis

_FEW: Final = 3
_SEARCHED_BYTES: Final = 64 << 20
"""Most bytes that are searched for a batch: a torn write is smaller, and a crafted log may have terabytes."""


def missing_tails(
    view: LogDir,
    ends: Mapping[Key, int | None],
    is_only_replica: Callable[[Partition], bool] = lambda _partition: False,
) -> tuple[MissingTail, ...]:
    """Return the partitions whose logs end below what the last clean stop recorded, or any stop of an only replica.

    After an unclean stop a broker fetches the missing tail from the leader, so only a partition without other replicas
    has lost it.

    Args:
        ends: log end offset of the partitions to check, None if it is unknown.
        is_only_replica: returns whether a partition is known to have no other replica; called after an unclean stop
            for logs that end too early.
    """
    candidates = (
        _missing_tail_of(view, partition, ends) for partition in view.partitions if partition.key in ends
    )
    gone = [missing_tail for missing_tail in candidates if missing_tail is not None]
    if view.clean_shutdown:
        return tuple(gone)
    alone = {missing_tail.folder for missing_tail in gone if missing_tail.recorded >= 0}
    alone = {
        partition.folder
        for partition in view.partitions
        if partition.folder in alone and is_only_replica(partition)
    }
    return tuple(
        missing_tail._replace(is_alone=True) for missing_tail in gone if missing_tail.folder in alone
    )


def _missing_tail_of(
    view: LogDir, partition: Partition, ends: Mapping[Key, int | None]
) -> MissingTail | None:
    key = partition.key
    end = ends[key]
    if _has_no_log(partition):
        end = max(view.log_start.offsets.get(key, 0), 0)
    if end is None or partition.topic == METADATA_TOPIC:
        return None
    lines = {
        "recovery point": view.recovery_point.offsets.get(key, -1),
        "high watermark": view.high_watermark.offsets.get(key, -1),
    }
    above = {name: offset for name, offset in lines.items() if offset > end}
    orphans = [
        (base, file)
        for file in partition.orphan_indexes
        for base in (base_offset_of(file.name),)
        if base is not None and base >= end
    ]
    # An index beside a segment without records is empty after a clean stop, so an empty one proves no lost segment.
    without = sorted({base for base, file in orphans if base > end or file.size})
    if not (above or without) or _has_backup(partition, end, max(above.values(), default=INT64_MAX)):
        return None
    signs = [f"{name} {offset}" for name, offset in above.items()]
    signs += [f"indexes of {log_name(base)} without it" for base in without[:_FEW]]
    signs += [
        f"producer snapshot {snapshot.offset}"
        for snapshot in partition.snapshots[-1:]
        if snapshot.offset > end
    ]
    return MissingTail(
        partition.folder,
        end,
        max(above.values(), default=-1),
        tuple(signs),
        tuple(file.name for _, file in orphans),
    )


def _has_no_log(partition: Partition) -> bool:
    """Return whether every ``.log`` is missing, and no other file may become one."""
    files = (partition.segments, partition.special_logs, partition.unreadable, partition.waiting_swap)
    return not any(files)


def end_now(view: LogDir, analysis: PartitionAnalysis) -> int | None:
    """Return the log end offset of a log that was read, or None if it is not known.

    Bytes that only a torn write can have left behind do not count.
    """
    from krepair.fixes.damage import damaged_logs, damages_in, maps_of

    if not analysis.segments or len(analysis.segments) != len(analysis.partition.segments):
        return None
    last = analysis.segments[-1]
    if not last.summary.damage:
        return last.end_offset
    if last.base_offset not in maps_of(analysis):
        return None
    here = [damage for damage in damages_in(view, analysis) if damage.base_offset == last.base_offset]
    if not here or not all(damage.torn for damage in here):
        return None
    valid = valid_ranges(damaged_logs(analysis), last)
    return valid[-1].last_offset + 1 if valid else last.base_offset


def _has_backup(partition: Partition, end: int, recorded: int) -> bool:
    """Return whether krepair cut the log there and still keeps the backup, so that undo restores the tail."""
    behind = (base_offset_of(name) for name in kept_names(partition) if name.endswith(".log"))
    if any(base is not None and base >= end for base in behind):
        return True
    if not partition.segments:
        return False
    cut = f"{partition.segments[-1].log.name}{CUT}"
    kept = (f"{partition.path}/{Names(private.name).keep()}/{cut}" for private in partition.private)
    return any(_has_lost_batches(path, end, recorded) for path in kept)


def _has_lost_batches(path: str, end: int, recorded: int) -> bool:
    """Return whether the bytes that were cut off have a whole batch with offsets from ``end`` to below ``recorded``.

    A torn tail has none: the rest of its batch, and all later ones, were lost before krepair cut it. Undo does not
    restore them, so without this question nobody would hear of the loss, and ``checkpoints`` would erase its proof.
    """
    try:
        with opened_for_reading(path) as descriptor:
            size = os.fstat(descriptor).st_size
            return _has_batch(descriptor, 0, size, end, recorded - 1)
    except OSError:
        return False  # the missing tail stays unexplained and is reported


def _has_batch(descriptor: int, position: int, size: int, lowest: int, highest: int) -> bool:
    """Return whether a batch begins there that is whole by its size, or a valid one lies behind."""
    front = batch_front(os.pread(descriptor, FRONT_BYTES, position))
    if front is not None and front.fits(size - position):  # also one whose offset or checksum was damaged
        return True
    if size - position > _SEARCHED_BYTES:
        return True
    found = find_batch(read_into_from(descriptor), position, size, lowest, highest)
    return found.position >= 0 or not found.complete


def kept_names(partition: Partition) -> set[str]:
    """Return the names of the files that the work folders of a partition keep as backups."""
    names: set[str] = set()
    for private in partition.private:
        path = f"{partition.path}/{Names(private.name).keep()}"
        try:
            with opened_folder(path) as descriptor, os.scandir(descriptor) as entries:
                names.update(entry.name for entry in entries)
        except OSError:
            continue  # without these names the missing tail stays unexplained and is reported
    return names


def missing_tails_in(
    view: LogDir, folders: Collection[str], *, torn: bool = False
) -> tuple[MissingTail, ...]:
    """Return missing log tails of some partitions, found by the headers at the ends of their logs alone.

    A log that cannot be read yields nothing.

    Args:
        torn: True to examine logs with a torn tail too; that tail does not count.
    """
    if not view.clean_shutdown:
        return ()
    ends: dict[Key, int | None] = {}
    for partition in view.partitions:
        if partition.folder in folders:
            try:
                end = _end_by_headers(partition, torn=torn) if partition.has_an_end else None
            except OSError:
                end = None  # the scan of the whole log reports the error
            ends[partition.key] = end
    return missing_tails(view, ends)


def _end_by_headers(partition: Partition, *, torn: bool) -> int | None:
    """Return the log end offset, read from the last index entry on; None if it is not known."""
    segment = partition.segments[-1]
    with opened_for_reading(segment.log.path) as descriptor:
        for start in (_last_position(segment), 0):
            walk = BatchWalk(read_into_from(descriptor), segment.log.size, start)
            last = -1
            for rows in walk:
                last = int(rows["last_offset"][-1])
            if walk.is_at_end or (
                torn
                and last >= 0
                and not _has_batch(descriptor, walk.position, walk.file_size, last + 1, INT64_MAX)
            ):
                return max(last + 1, segment.base_offset)
    return None


def _last_position(segment: Segment) -> int:
    """Return the position in the last entry of an offset index, 0 if it has none."""
    file = segment.index
    if file is None or file.size < ENTRY_SIZE:
        return 0
    with opened_for_reading(file.path) as descriptor:
        data = os.pread(descriptor, ENTRY_SIZE, (file.size // ENTRY_SIZE - 1) * ENTRY_SIZE)
    return int(view_of_index(data)["position"][0]) if len(data) == ENTRY_SIZE else 0
