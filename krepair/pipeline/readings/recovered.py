"""Second reading of the segments that a start will no longer read: every batch, from the disk, and its indexes.

It is made right before a recovery point is raised, after everything was written out; and once more by ``verify``. It
shares no code with what read the logs for the plan.

Source: ``Log.recoverLog`` (2.2.1), ``LogLoader.recoverLog`` (3.9.2, 4.3.1): what a start would have held against what.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from msgspec import Struct

from krepair.checks.walk import Walked, walk, walk_in_memory
from krepair.durable.medium import forget_pages, make_sure_it_is_written
from krepair.durable.tree import Tree
from krepair.formats.arrays import Int32s, Uint8s
from krepair.formats.filenames import offset_name
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, status_of
from krepair.pipeline.items import Place
from krepair.pipeline.progress import shown
from krepair.pipeline.readings.partition import LogPath, ReadingResult, parts_of, second_reading
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

    @property
    def bytes_to_read(self) -> int:
        """The log."""
        return self.log_bytes


@shown("read again")
@second_reading
def read_recovered(item: RecoveredItem, tree: Tree) -> ReadingResult:
    """Read the segment; what cannot be written out or read is a problem."""
    problem = why_not_settled(item, tree)
    if problem:
        return ReadingResult(problems=(problem,))
    path = _stem(item)
    audit = None
    if item.audit:
        size = status_of(f"{path}.log", tree).st_size
        if size != item.log_bytes:
            return ReadingResult(
                problems=(f"{_name(item)}.log: {item.log_bytes} bytes were expected, found {size}",)
            )
        audit = companion_audit(path, item.base_offset, item.log_bytes, tree)
    reading = SegmentReading(item, None if audit is None else audit.feed)
    for part in parts_of(
        [LogPath(base_offset=item.base_offset, path=f"{path}.log", bytes=item.log_bytes)],
        tree,
        check_crc=True,
    ):
        reading.take(part.walked)
    problems = reading.problems()
    if audit is not None and not reading.is_damaged:
        problems += [
            f"{_name(item)}{suffix}, position {position}: {text}"
            for suffix, position, text in audit.finish(item.log_bytes, item.interval_bytes)
        ]
    return ReadingResult(problems=tuple(problems), bytes=item.log_bytes)


def why_not_settled(item: RecoveredItem, tree: Tree, log: int | None = None) -> str:
    """Write out what the item wants to be on the disk, and drop it from the page cache.

    Args:
        item: of a segment.
        tree: the log directory.
        log: descriptor of the log, if it is open.

    Returns:
        Why that failed, or empty.
    """
    if not item.settle:
        return ""
    problem = _why_not_settled(item, f"{_name(item)}.log", tree, log)
    for name in item.files:
        problem = problem or _why_not_settled(item, name, tree)
    return problem


def _name(item: RecoveredItem) -> str:
    return offset_name(item.base_offset)


def _stem(item: RecoveredItem) -> str:
    return f"{item.place.path}/{_name(item)}"


def _why_not_settled(item: RecoveredItem, name: str, tree: Tree, log: int | None = None) -> str:
    try:
        path = f"{item.place.path}/{name}"
        with nullcontext(log) if log is not None else opened_for_reading(path, tree) as descriptor:
            make_sure_it_is_written(descriptor, barrier=item.barrier)
            forget_pages(descriptor)
    except OSError as error:
        return f"{name}: could not be written to the disk: {error.strerror}"
    return ""


class SegmentReading:
    """What the second reading of a segment comes to; give it all batches in order.

    Args:
        item: which segment.
        then: is given what was taken.

    Attributes:
        is_damaged: whether there was a batch that is not as it should be; what is behind it is not looked at.
        position: behind the last batch.
        last_offset: of it, one less than the base offset if there is none.
    """

    def __init__(self, item: RecoveredItem, then: Callable[[Walked], None] | None) -> None:
        self.is_damaged = False
        self.position, self.last_offset = 0, item.base_offset - 1
        self._item = item
        self._then = then
        self._first = -1
        self._damage = ""

    def take(self, walked: Walked) -> None:
        """The next batches, of which every CRC was checked, and what is wrong behind them."""
        if self.is_damaged:
            return
        if len(walked.positions):
            self._first = int(walked.firsts[0]) if self._first < 0 else self._first
            self.last_offset = int(walked.lasts[-1])
            self.position = int(walked.positions[-1] + walked.sizes[-1])
        if self._then is not None:
            self._then(walked)
        if walked.problem and (self._item.audit or walked.position < self._item.log_bytes):
            self._damage = f"{_name(self._item)}.log, position {walked.position}: {walked.problem}"
            self.is_damaged = True

    def take_window(self, window: Uint8s, places: Int32s, end: int, read_into: ReadInto) -> None:
        """A window that another reader has in memory, which is spent by it.

        Args:
            window: uint8[W], its place 0 right behind what was taken.
            places: int32[N], where its batches begin, a claim.
            end: place after the last of them.
            read_into: reads the file.

        Raises:
            OSError: the log cannot be read.
        """
        if not self.is_damaged:
            before = self.last_offset if self.position else -1
            for walked in walk_in_memory(window, places, end, self.position, before, read_into):
                self.take(walked)

    def take_rest(self, read_into: ReadInto) -> None:
        """What is behind the last window, where the other reader has stopped.

        Raises:
            OSError: the log cannot be read.
        """
        if not self.is_damaged:
            before = self.last_offset if self.position else -1
            for walked in walk(read_into, self._item.log_bytes, position=self.position, last_offset=before):
                self.take(walked)

    def problems(self) -> list[str]:
        """What is wrong, once everything was taken."""
        if self.is_damaged:
            return [self._damage]
        item, name, found = self._item, f"{_name(self._item)}.log", []
        if self.position != item.log_bytes:
            found.append(f"its batches end at position {self.position}, {item.log_bytes} was expected")
        if 0 <= self._first < item.base_offset:
            found.append(f"its first batch has offset {self._first}")
        if self.last_offset >= item.log_end or (item.exact and self.last_offset + 1 != item.log_end):
            found.append(f"its last offset is {self.last_offset}, and what follows begins at {item.log_end}")
        return [f"{name}: {text}" for text in found]
