"""What of a partition stays as it is while a broker is running, and whether it did while it was read. Pure.

A broker appends to the active segment, and may at any moment begin a new one, delete segments, put compacted ones in
their place, cut the end off (as a follower) or delete the folder. Files of closed segments it never writes in place:
so the same size and inode (of a ``.log`` the same time, too) before and after a reading say that it read one thing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from krepair.logdir.values import FileRef, Leftover, Partition

CLEANING: Final = frozenset({"cleaned", "swap"})
"""Kinds of files that are there while a cleaner, or a split, is at work."""
TO_DELETE: Final = "deleted"


def without_deleted(partition: Partition) -> Partition:
    """The partition without the files that a running broker has renamed and will delete."""
    return partition._replace(
        leftovers=tuple(one for one in partition.leftovers if one.kind != TO_DELETE),
        # their log has been renamed first
        orphan_indexes=(),
    )


def deleted_files(partition: Partition) -> tuple[Leftover, ...]:
    """The files that a running broker has renamed and will delete; one that is stopped leaves them."""
    return tuple(one for one in partition.leftovers if one.kind == TO_DELETE)


def why_changed(before: Partition, after: Partition | None, read: Collection[str] = ()) -> str:
    """Why what was read of a partition may not belong together; empty if it does.

    Args:
        before: as listed before it was read.
        after: as listed afterwards, None if its folder is gone.
        read: names of producer snapshots that were read, or that a change would remove.
    """
    if after is None or (before.inode and after.inode and before.inode != after.inode):
        return "its folder is gone: deleted, or moved to another log directory"
    if before.unreadable or after.unreadable:
        return "" if before.unreadable == after.unreadable else "its folder could not be read both times"
    busy = next((one for one in (*before.leftovers, *after.leftovers) if one.kind in CLEANING), None)
    if busy is not None:
        return f"{busy.file.name} is there: the broker's cleaner is at work in it, or has left it"
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
            yield f"{segment.log.name} came"


def _settled_files(partition: Partition, read: Collection[str]) -> Iterator[FileRef]:
    for segment in partition.segments[:-1]:
        yield from segment.files()
    yield from (snapshot.file for snapshot in partition.snapshots if snapshot.file.name in read)
    # A follower that cuts its end, and grows again, looks like one that has only grown.
    if partition.leader_epoch_checkpoint is not None:
        yield partition.leader_epoch_checkpoint


def _same(before: FileRef, after: FileRef | None) -> bool:
    if after is None or (before.size, before.inode) != (after.size, after.inode):
        return False
    # A mapped index gets a new time when it is flushed; its bytes are the same.
    return not before.name.endswith(".log") or before.mtime_ns == after.mtime_ns


def _text(before: FileRef, after: FileRef | None) -> str:
    if after is None:
        return f"{before.name} went"
    return f"{before.name} had {before.size} bytes (inode {before.inode}), then {after.size} (inode {after.inode})"
