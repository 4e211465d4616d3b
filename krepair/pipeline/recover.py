"""Pre-recovery: reads a segment from the disk once, for the second reading and for what is made of its log.

Two codes look at each window that was read. The scan makes the facts and the index entries, and checks no CRC. The
second reading, which shares nothing with it, finds the batches, checks every CRC and holds the entries against them. So
what is made is made of the very bytes whose CRCs are right, and nothing is staged of a log that the second reading does
not find whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from krepair.checks.made_indexes import MadeIndexes
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.tree import Tree
from krepair.formats.arrays import Int32s, Uint8s
from krepair.formats.filenames import INDEX, TIME_INDEX
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.pipeline.indexes.segment import MendItem, damaged_log, staged_as_planned
from krepair.pipeline.items import Failed, ScanItem, ScanResult
from krepair.pipeline.place import reached
from krepair.pipeline.progress import shown
from krepair.pipeline.readings.partition import ReadingResult, unreadable
from krepair.pipeline.readings.recovered import RecoveredItem, SegmentReading, why_not_settled
from krepair.pipeline.scan import scan_below

WINDOW_BYTES = 1 << 22
"""What numpy does once for each window is then little beside what is done for each byte."""


class MakeItem(Struct, frozen=True, kw_only=True):
    """Read one segment that a start will no longer read, and make what depends on its log.

    Attributes:
        reading: the second reading; its indexes are not in their places yet.
        scan: of the same bytes. No CRC is checked in it.
        files: those of its ``.index`` and ``.timeindex`` that are made anew.
    """

    reading: RecoveredItem
    scan: ScanItem
    files: tuple[MendItem, ...] = ()

    @property
    def bytes_to_read(self) -> int:
        """The log, once."""
        return self.reading.bytes_to_read


class MadeResult(Struct, frozen=True, kw_only=True):
    """The result.

    Attributes:
        reading: what the second reading has against the log; then there is nothing else.
        scan: facts of the log, None if there is something.
        files: why each file was not staged, or None, in the order of the item.
    """

    reading: ReadingResult
    scan: ScanResult | None = None
    files: tuple[Failed | None, ...] = ()


@shown("read again")
def make_recovered(item: MakeItem) -> MadeResult:
    """Read the segment; stage its indexes if they are the plan's and true to the log."""
    tree, wrong = reached(item.reading.place)
    if wrong:
        return MadeResult(reading=ReadingResult(problems=(wrong,)))
    try:
        with tree.keeping_folders():
            return _made(item, tree)
    except OSError as error:
        return MadeResult(reading=unreadable(item.reading.place, error))


def _made(item: MakeItem, tree: Tree) -> MadeResult:
    base_offset, interval_bytes = item.reading.base_offset, item.reading.interval_bytes
    judge = MadeIndexes(base_offset)
    reading = SegmentReading(item.reading, judge.feed)
    entries = IndexEntries(interval_bytes)
    with opened_for_reading(f"{item.reading.place.stem(base_offset)}.log", tree) as descriptor:
        problem = why_not_settled(item.reading, tree, descriptor)
        if problem:
            return MadeResult(reading=ReadingResult(problems=(problem,)))
        read_into = read_into_from(descriptor)

        def take(window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
            del batch_classes
            entries.take_window(window, end, starts)
            judge.tell(*entries.so_far())
            reading.take_window(window, starts, end, read_into)

        scanned = scan_below(tree, item.scan, take, window_bytes=WINDOW_BYTES, log=descriptor)
        reading.take_rest(read_into)
    problems = reading.problems()
    if problems or isinstance(scanned, Failed):
        why = tuple(problems) or ((scanned.why,) if isinstance(scanned, Failed) else ())
        return MadeResult(reading=ReadingResult(problems=why, bytes=item.reading.log_bytes))
    summary = scanned.summary
    contents: Mapping[str, bytes] = dict(
        zip((INDEX, TIME_INDEX), index_bytes(base_offset, *entries.entries()), strict=True)
    )
    problem = "" if summary.is_whole else damaged_log(base_offset, summary.valid_bytes, summary.damage_text)
    untrue = judge.problems(contents, entries.position, interval_bytes)

    def staged(one: MendItem) -> Failed | None:
        suffix = one.change.name[one.change.name.rindex(".") :]
        return staged_as_planned(one, contents[suffix], problem, untrue.get(suffix, ""), tree)

    return MadeResult(
        reading=ReadingResult(bytes=item.reading.log_bytes),
        scan=scanned,
        files=tuple(map(staged, item.files)),
    )
