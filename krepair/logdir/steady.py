"""Tells whether a partition changed while it was read and the broker was running. Pure.

A running broker appends to the active segment. At any moment it may also roll a new segment, delete segments, replace
them by compacted ones, truncate the end (as a follower) or delete the folder. It does not change the files of closed
segments in place. So if such a file has the same size and inode before and after the reading (a ``.log`` also the same
mtime), the reading saw one state of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from krepair.logdir.values import FileRef, Leftover, Partition

CLEANING: Final = frozenset({"cleaned", "swap"})
"""Kinds of files that are there while the cleaner, or a split of a segment, is at work."""
TO_DELETE: Final = "deleted"


def without_deleted(partition: Partition) -> Partition:
    """The partition without the files that a running broker has renamed and will delete."""
    return partition._replace(
        leftovers=tuple(one for one in partition.leftovers if one.kind != TO_DELETE),
        # The broker renames the log first, so the indexes look like orphans for a moment.
        orphan_indexes=(),
    )


def deleted_files(partition: Partition) -> tuple[Leftover, ...]:
    """The files that a running broker has renamed and will delete. If it stops before that, they stay."""
    return tuple(one for one in partition.leftovers if one.kind == TO_DELETE)


def why_changed(before: Partition, after: Partition | None, read: Collection[str] = ()) -> str:
    """Why the partition may have changed while it was read; empty if it did not.

    Args:
        before: the partition as listed before it was read.
        after: the partition as listed after it was read, None if its folder is gone.
        read: names of producer snapshots that were read, or that a change would remove.
    """
    if after is None or (before.inode and after.inode and before.inode != after.inode):
        return "its folder is gone: deleted, or moved to another log directory"
    if before.unreadable or after.unreadable:
        return (
            "" if before.unreadable == after.unreadable else "its folder was read twice, and once that failed"
        )
    busy = next((one for one in (*before.leftovers, *after.leftovers) if one.kind in CLEANING), None)
    if busy is not None:
        return f"{busy.file.name} is there: the broker's cleaner is at work, or has left this file behind"
    return next(_differences(before, after, read), "")


def _differences(before: Partition, after: Partition, read: Collection[str]) -> Iterator[str]:
    there = {file.name: file for file in after.files()}
    for file in _settled_files(before, read):
        if not _same(file, there.get(file.name)):
            yield _text(file, there.get(file.name))
    if not before.segments:
        return
    active = before.segments[-1]
    log = there.get(active.log.name)
    if log is None or log.inode != active.log.inode or log.size < active.log.size:
        yield _text(active.log, log)
    known = {segment.base_offset for segment in before.segments}
    for segment in after.segments:
        if segment.base_offset < active.base_offset and segment.base_offset not in known:
            yield f"{segment.log.name} is new"


def _settled_files(partition: Partition, read: Collection[str]) -> Iterator[FileRef]:
    for segment in partition.segments[:-1]:
        yield from segment.files()
    yield from (snapshot.file for snapshot in partition.snapshots if snapshot.file.name in read)
    # A follower that truncates its end and grows again looks as if it had only grown; but its epochs change.
    if partition.leader_epoch_checkpoint is not None:
        yield partition.leader_epoch_checkpoint


def _same(before: FileRef, after: FileRef | None) -> bool:
    if after is None or (before.size, before.inode) != (after.size, after.inode):
        return False
    # A flush gives a mapped index a new mtime, but its bytes stay the same.
    return not before.name.endswith(".log") or before.mtime_ns == after.mtime_ns


def _text(before: FileRef, after: FileRef | None) -> str:
    if after is None:
        return f"{before.name} is gone"
    return f"{before.name} had {before.size} bytes (inode {before.inode}), then {after.size} (inode {after.inode})"
