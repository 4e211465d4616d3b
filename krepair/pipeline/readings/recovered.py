"""Second reading of the segments that a start will no longer read: every batch, from the disk, and its indexes.

It is made right before a recovery point is raised, after everything was written out; and once more by ``verify``. It
shares no code with what read the logs for the plan.

Source: ``Log.recoverLog`` (2.2.1), ``LogLoader.recoverLog`` (3.9.2, 4.3.1): what a start would have held against what.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from krepair.durable.medium import forget_pages, make_sure_it_is_written
from krepair.durable.tree import Tree
from krepair.logdir.reading import opened_for_reading, status_of
from krepair.pipeline.items import Place
from krepair.pipeline.readings.partition import LogFile, Reading, parts_of, reading_at
from krepair.pipeline.rewrite.verify import companion_audit


class RecoveredItem(Struct, frozen=True, kw_only=True):
    """Read one segment that a start will no longer read.

    Attributes:
        place: of the partition.
        base_offset: of the segment.
        log_bytes: size that its ``.log`` has, or will have once its torn tail is cut.
        log_end: offset at which the next segment begins, or the log ends.
        exact: whether the last offset must be right before it: of the last segment with batches.
        interval_bytes: ``index.interval.bytes``.
        files: names of the small files of the partition that have to be on the disk too.
        settle: whether all is written out, and dropped from the page cache, before it is read.
        barrier: whether each file needs a barrier of its own.
        audit: whether its indexes are held against it: not before they are in their places.
    """

    place: Place
    base_offset: int
    log_bytes: int
    log_end: int
    exact: bool
    interval_bytes: int
    files: tuple[str, ...] = ()
    settle: bool = False
    barrier: bool = False
    audit: bool = True


def read_recovered(item: RecoveredItem) -> Reading:
    """Read the segment; what cannot be written out or read is a problem."""
    return reading_at(item.place, lambda tree: _read(item, tree))


def _read(item: RecoveredItem, tree: Tree) -> Reading:
    stem = f"{item.base_offset:020d}"
    path = f"{item.place.path}/{stem}"
    if item.settle:
        problem = _settle(item, f"{stem}.log", tree)
        for name in item.files:
            problem = problem or _settle(item, name, tree)
        if problem:
            return Reading(problems=(problem,))
    size = status_of(f"{path}.log", tree).st_size
    if item.audit and size != item.log_bytes:
        return Reading(problems=(f"{stem}.log: {item.log_bytes} bytes were expected, found {size}",))
    return Reading(problems=tuple(_problems(item, path, tree)), bytes=item.log_bytes)


def _settle(item: RecoveredItem, name: str, tree: Tree) -> str:
    try:
        with opened_for_reading(f"{item.place.path}/{name}", tree) as descriptor:
            make_sure_it_is_written(descriptor, barrier=item.barrier)
            forget_pages(descriptor)
    except OSError as error:
        return f"{name}: could not be written to the disk: {error.strerror}"
    return ""


def _problems(item: RecoveredItem, path: str, tree: Tree) -> Iterator[str]:
    stem = f"{item.base_offset:020d}"
    audit = companion_audit(path, item.base_offset, item.log_bytes, tree) if item.audit else None
    first, last, end = -1, item.base_offset - 1, 0
    for part in parts_of([LogFile(base_offset=item.base_offset, path=f"{path}.log")], tree, check_crc=True):
        walked = part.walked
        if len(part.firsts):
            first = int(part.firsts[0]) if first < 0 else first
            last = int(part.lasts[-1])
            end = int(walked.positions[-1] + walked.sizes[-1])
        if audit is not None:
            audit.feed(walked)
        if walked.problem and (item.audit or walked.position < item.log_bytes):
            yield f"{stem}.log, position {walked.position}: {walked.problem}"
            return
    if end != item.log_bytes:
        yield f"{stem}.log: its batches end at position {end}, {item.log_bytes} was expected"
    if 0 <= first < item.base_offset:
        yield f"{stem}.log: its first batch has offset {first}"
    if last >= item.log_end or (item.exact and last + 1 != item.log_end):
        yield f"{stem}.log: its last offset is {last}, and what follows begins at {item.log_end}"
    if audit is not None:
        for suffix, position, text in audit.finish(item.log_bytes, item.interval_bytes):
            yield f"{stem}{suffix}, position {position}: {text}"
