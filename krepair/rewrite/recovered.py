"""The last check of a segment before ``--fix recovery`` advances the recovery point past it.

After that the next start does not read the segment, so nobody else would notice damage. The task flushes the files,
drops them from the page cache, and reads every batch back from the disk with code that the plan did not use. While it
reads, it builds the segment's indexes. Nothing is staged for a log that is not valid to its end. ``verify`` runs this
check too.

Source: ``Log.recoverLog`` (2.2.1), ``LogLoader.recoverLog`` (3.9.2, 4.3.1): the comparisons that a start would make.
"""

from __future__ import annotations

from msgspec import Struct

from krepair.checks.index_judge import RebuiltIndexes
from krepair.checks.walk import walk
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.medium import forget_pages, make_sure_it_is_written
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, Place, ScanItem, ScanResult
from krepair.engine.place import with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.filenames import INDEX, TIME_INDEX, log_name, offset_name
from krepair.kernels.scan import ReadInto, WholeWindows
from krepair.logdir.reading import opened_for_reading, read_into_from, status_of
from krepair.rewrite.indexes.segment import RepairItem, damaged_log, stage_if_as_planned
from krepair.rewrite.segments.verify import companion_audit
from krepair.scan.scan import scan_inputs
from krepair.scan.segment_files import TxnEntries, sound_entries


class RecoveredItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that reads one segment that the next start will not read any more.

    Attributes:
        log_bytes: size of the ``.log`` in bytes, now or after its torn tail is cut.
        log_end: offset at which the next segment begins, or the log end offset.
        exact: True if the log must end exactly at ``log_end``, as the last segment below the new recovery point must.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        files: names of the partition's small files that have to be on the disk too.
        flush: True to flush all files, and to drop them from the page cache, before reading.
        barrier: True if each file needs a sync of its own.
        audit: True to compare the log with its indexes, which is possible only once they are in place.
        scan: scan of the same bytes for their facts; None if no facts are wanted.
        makes: items of the ``.index`` and ``.timeindex`` to rebuild; only with ``scan``.
    """

    place: Place
    base_offset: int
    log_bytes: int
    log_end: int
    exact: bool
    interval_bytes: int
    files: tuple[str, ...] = ()
    flush: bool = False
    barrier: bool = False
    audit: bool = True
    scan: ScanItem | None = None
    makes: tuple[RepairItem, ...] = ()

    @property
    def bytes_to_read(self) -> int:
        """Size of the log in bytes; it is read once."""
        return self.log_bytes

    @property
    def stem(self) -> str:
        """Path of the segment's files without their suffixes."""
        return f"{self.place.path}/{offset_name(self.base_offset)}"


class RecoveredResult(Struct, frozen=True, kw_only=True):
    """Result for one segment.

    Attributes:
        problems: problems in one line each; if there are any, the result holds nothing else.
        bytes: bytes of ``.log`` that were read.
        scan: facts of the log, if they were requested.
        files: for each of ``RecoveredItem.makes`` in order, the reason why it was not staged, or None.
    """

    problems: tuple[str, ...] = ()
    bytes: int = 0
    scan: ScanResult | None = None
    files: tuple[Failed | None, ...] = ()


@shown_as("read again")
@with_log_dir
def verify_recovered(item: RecoveredItem, tree: Tree) -> RecoveredResult | Failed:
    """Flush and read the segment; stage its indexes if their bytes are as planned and match the log."""
    with tree.keeping_folders():
        problem = _why_not_flushed(item, tree)
        if not problem and item.audit:
            size = status_of(f"{item.stem}.log", tree).st_size
            if size != item.log_bytes:
                name = log_name(item.base_offset)
                problem = f"{name}: {item.log_bytes} bytes were expected, found {size}"
        return RecoveredResult(problems=(problem,)) if problem else _read(item, tree)


def _why_not_flushed(item: RecoveredItem, tree: Tree) -> str:
    """Flush the item's files and drop them from the page cache; return why that failed, or empty."""
    for name in (log_name(item.base_offset), *item.files) if item.flush else ():
        try:
            with opened_for_reading(f"{item.place.path}/{name}", tree) as descriptor:
                # Sync first: only clean pages can be dropped. The reading has to see what the disk holds, not what
                # the page cache holds, because no start will read this log again.
                make_sure_it_is_written(descriptor, barrier=item.barrier)
                forget_pages(descriptor)
        except OSError as error:
            return f"{name}: could not be written to the disk: {error.strerror}"
    return ""


def _read(item: RecoveredItem, tree: Tree) -> RecoveredResult:
    name = log_name(item.base_offset)
    audit = companion_audit(item.stem, item.base_offset, item.log_bytes, tree) if item.audit else None
    first, last, end, problem = -1, item.base_offset - 1, 0, ""
    with opened_for_reading(f"{item.stem}.log", tree) as descriptor:
        read_into = read_into_from(descriptor)
        making = None if item.scan is None else _FactsAndIndexes(item, item.scan, read_into, tree)
        on_places = None if making is None else making.take
        for walked in walk(read_into, item.log_bytes, on_places=on_places):
            if len(walked.positions):
                first = int(walked.firsts[0]) if first < 0 else first
                last = int(walked.lasts[-1])
            end, problem = walked.position, walked.problem
            if audit is not None:
                audit.feed(walked)
            if making is not None:
                making.judge.feed(walked)
    if problem:
        problems = [f"{name}, position {end}: {problem}"]
    else:
        problems = [f"{name}: {text}" for text in _misplaced(item, first, last)]
    if audit is not None and not problem:
        problems += [
            f"{offset_name(item.base_offset)}{suffix}, position {position}: {text}"
            for suffix, position, text in audit.finish(item.log_bytes, item.interval_bytes)
        ]
    reading = RecoveredResult(problems=tuple(problems), bytes=item.log_bytes)
    return reading if making is None or problems else making.result(reading)


def _misplaced(item: RecoveredItem, first: int, last: int) -> list[str]:
    """List the faults in the offsets of a log whose batches are all valid."""
    problems = []
    if 0 <= first < item.base_offset:
        problems.append(f"its first batch has offset {first}")
    if last >= item.log_end or (item.exact and last + 1 != item.log_end):
        problems.append(f"its last offset is {last}, and what follows begins at {item.log_end}")
    return problems


class _FactsAndIndexes:
    """Builder of facts and index entries from the windows of a log that is being read.

    Attributes:
        judge: judge of the index entries; the reader of the log passes it the batches.
    """

    def __init__(self, item: RecoveredItem, scan: ScanItem, read_into: ReadInto, tree: Tree) -> None:
        self._item = item
        self._tree = tree
        self._aborted, self._damage, self._unknown = (
            sound_entries(item.place, item.base_offset, tree) if scan.has_txn_index else TxnEntries()
        )
        self._scan = WholeWindows(scan_inputs(scan, self._aborted, item.log_bytes), read_into)
        self._entries = IndexEntries(item.interval_bytes)
        self.judge = RebuiltIndexes(item.base_offset)

    def take(self, window: Uint8s, places: Int64s, end: int) -> None:
        """Add one window before its CRCs are checked; see ``walk``."""
        self._scan.take(window, end)
        self._entries.take_window(window, end, places.astype("int32"))
        self.judge.take_entries(*self._entries.so_far())

    def result(self, result_so_far: RecoveredResult) -> RecoveredResult:
        """Add the facts to a result, and stage the files whose bytes are as planned and match the log."""
        item, entries, summary = self._item, self._entries, self._scan.summary()
        contents = dict(
            zip((INDEX, TIME_INDEX), index_bytes(item.base_offset, *entries.entries()), strict=True)
        )
        problem = (
            ""
            if summary.is_whole
            else damaged_log(item.base_offset, summary.valid_bytes, summary.damage_text)
        )
        untrue = self.judge.problems(contents, entries.position, item.interval_bytes)
        files = []
        for make in item.makes:
            suffix = make.change.name[make.change.name.rindex(".") :]
            files.append(
                stage_if_as_planned(make, contents[suffix], problem, untrue.get(suffix, ""), self._tree)
            )
        return RecoveredResult(
            bytes=result_so_far.bytes,
            scan=ScanResult(
                summary=summary, entries=self._aborted, txn_damage=self._damage, txn_unknown=self._unknown
            ),
            files=tuple(files),
        )
