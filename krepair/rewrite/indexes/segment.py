"""Tasks on the ``.index`` and ``.timeindex`` of one segment: compare them with the log, find a repair, and make it.

``check`` and ``--fix index`` use ``inspect``; ``apply`` uses ``repair_indexes``, and ``verify`` ``verify_repaired``.
If a scan reads the log anyway, ``InspectionBesideScan`` compares the indexes at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from krepair.checks.index_judge import (
    CompanionAudit,
    IndexFile,
    IndexProblem,
    SegmentIndexes,
    byte_problems,
    entries_of,
    last_timestamp_read,
    offset_entries,
    time_entries,
)
from krepair.checks.walk import walk
from krepair.derive.index_entries import IndexEntries, index_bytes
from krepair.durable.attributes import read_attributes
from krepair.durable.disk import Attributes
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, FailureKind, LogsItem, Place, ScanItem, ScanResult
from krepair.engine.place import open_log_dir, with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import time_index, txn_index
from krepair.formats.arrays import Int32s, Uint8s
from krepair.formats.filenames import INDEX, SWAP, TIME_INDEX, TXN_INDEX, log_name, offset_name
from krepair.kernels.columns import BatchWalk
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import opened_for_reading, read_into_from, status_of, why
from krepair.plan.model import ReplaceFile
from krepair.rewrite.indexes.transactions import inspect_txn
from krepair.scan.scan import scan, scan_below
from krepair.scan.segment_files import SpotCheck, read_front, read_index, rebuild_offset_and_time

Depth = Literal["check", "truncate", "auto", "regenerate"]
SUFFIXES = (INDEX, TIME_INDEX)


class InspectItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that examines the offset and the time index of one segment.

    Attributes:
        log_bytes: size in bytes of the ``.log`` as listed.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        active: True if the segment is the last of its partition.
        clean: True after a clean stop of the broker.
        swapped: suffixes of the indexes with a pending ``.swap``, which is read in place of the index.
        depth: ``check``: compare every entry with the whole log. ``truncate``: compare the entries with the log at the
            positions that they point to. ``auto``: like ``truncate``, and the whole log where that is not enough.
            ``regenerate``: the whole log, and new bytes for every wrong file.
    """

    place: Place
    base_offset: int
    log_bytes: int
    interval_bytes: int
    active: bool
    depth: Depth
    clean: bool = False
    swapped: tuple[str, ...] = ()

    @property
    def bytes_to_read(self) -> int:
        """Size of the log in bytes, though ``truncate`` and ``auto`` may need less of it."""
        return self.log_bytes


class IndexRepair(Struct, frozen=True, kw_only=True):
    """Possible repair of one file.

    Attributes:
        suffix: suffix of the file name.
        method: ``truncate`` or ``regenerate``.
        size_before: size of the file in bytes, -1 if there is none.
        size_after: size of the repaired file in bytes.
        digest_after: 32 hex digits over the new bytes.
        rule: code of the finding that the repair ends.
        reason: evidence of that finding.
    """

    suffix: str
    method: Literal["truncate", "regenerate"]
    size_before: int
    size_after: int
    digest_after: str
    rule: str
    reason: str


class InspectResult(Struct, frozen=True, kw_only=True):
    """Result of examining a segment's indexes.

    Attributes:
        problems: (suffix, rule, position, evidence) of each finding.
        repairs: possible repairs; empty for ``check``.
        not_repaired: reason why a finding is not repaired; empty if all are repaired.
        has_index: True if there is an ``.index``.
        padded: True if one of the files has zeros after its entries.
        first_timestamp: timestamp of the time index's first entry as a broker reads it, -1 if it has none.
        last_timestamp: timestamp of its last entry, even if that is all zeros; -1 if it has none. A broker takes this
            timestamp for the segment's largest.
        torn: True if a file's size is no multiple of its entry size.
        largest: largest timestamp of the log, -1 if none; only known if ``whole``.
        whole: True if the whole log was read, and ends with a complete batch.
        needs_reading: True if a repair has to read the log, because cutting a file is not enough.
    """

    problems: tuple[tuple[str, str, int, str], ...] = ()
    repairs: tuple[IndexRepair, ...] = ()
    not_repaired: str = ""
    has_index: bool = True
    padded: bool = False
    first_timestamp: int = -1
    last_timestamp: int = -1
    torn: bool = False
    largest: int = -1
    whole: bool = False
    needs_reading: bool = False


class _Segment:
    """Files of one segment under examination."""

    def __init__(self, item: InspectItem, tree: Tree) -> None:
        self.item = item
        self.tree = tree
        self.stem = f"{item.place.path}/{offset_name(item.base_offset)}"
        self.files = {
            suffix: read_index(
                self.stem + suffix + SWAP * (suffix in item.swapped), suffix, item.log_bytes, tree
            )
            for suffix in SUFFIXES
        }
        self.judged = SegmentIndexes(item.base_offset, self.files, active=item.active)
        self.largest = -1
        self.whole = False
        self.made: tuple[dict[str, bytes], str] | None = None
        """Both files as recovery would write them, and a problem or empty; None until they are computed."""

    @property
    def problems(self) -> list[IndexProblem]:
        """Problems found so far."""
        return self.judged.problems

    def check_where_entries_point(self) -> bool:
        """Compare each entry with the batch that it points to; return False if only the whole log can decide."""
        if self.item.active or self.judged.broken:
            return not self.judged.broken
        offsets, times = self.judged.audit.offsets, self.judged.audit.times
        with opened_for_reading(f"{self.stem}.log", self.tree) as descriptor:
            spots = SpotCheck(descriptor, self.item.log_bytes, offsets, times)
        last = int(times[-1, 0]) if len(times) else -1
        return spots.certain and spots.largest <= last and self.files[INDEX].size >= 0

    def check_whole_log(self) -> None:
        """Compare every entry with every batch."""
        item = self.item
        with opened_for_reading(f"{self.stem}.log", self.tree) as descriptor:
            walk = BatchWalk(read_into_from(descriptor), item.log_bytes)
            for rows in walk:
                self.judged.audit.feed(rows["position"], rows["last_offset"], rows["max_timestamp"])
        self.ends(walk.position, whole=walk.is_at_end)

    def ends(self, position: int, *, whole: bool) -> None:
        """Finish the comparison, once all batches up to ``position`` were compared."""
        self.whole = whole
        self.largest = self.judged.audit.largest
        self.judged.finish(position, self.item.interval_bytes, whole=whole, clean=self.item.clean)

    def result(self, repairs: tuple[IndexRepair, ...] = (), not_repaired: str = "") -> InspectResult:
        """Build the result of the examination."""
        times = self.files[TIME_INDEX]
        first = -1
        if times.padded or entries_of(times, TIME_INDEX):
            first = int(time_index.view(times.data)["timestamp"][0]) if times.data else 0
        return InspectResult(
            problems=tuple(
                (problem.suffix, problem.rule, problem.position, problem.text) for problem in self.problems
            ),
            repairs=repairs,
            not_repaired=not_repaired,
            has_index=self.files[INDEX].size >= 0,
            padded=any(file.padded for file in self.files.values()),
            first_timestamp=first,
            last_timestamp=last_timestamp_read(times),
            torn=any(file.torn for file in self.files.values()),
            largest=self.largest,
            whole=self.whole,
            needs_reading=not all(problem.tail for problem in self.problems),
        )

    def repairs(self) -> tuple[tuple[IndexRepair, ...], str]:
        """Find the repair of each file with a problem, or the reason why there is none.

        A file of the active segment is never cut, but rebuilt: its last entries are not written yet, so a cut file
        would seem to lack them.
        """
        wrong = {
            suffix: problems
            for suffix in SUFFIXES
            if (problems := [problem for problem in self.problems if problem.suffix == suffix])
        }
        remake = {
            suffix
            for suffix, problems in wrong.items()
            if self.item.depth == "regenerate"
            or self.item.active
            or not all(problem.tail for problem in problems)
        }
        if remake and self.item.depth == "truncate":
            return (), f"{log_name(self.item.base_offset)}: cutting is not enough"
        made: dict[str, bytes] = {}
        if remake:
            made, problem = self.made or regenerated(self.stem, self.item, self.tree)
            if problem:
                return (), problem
        repairs = []
        for suffix, problems in wrong.items():
            data = made[suffix] if suffix in remake else self.files[suffix].data
            repairs.append(
                _repair_of(suffix, problems, data, self.files[suffix].size, remade=suffix in remake)
            )
        return tuple(repairs), ""


def _repair_of(
    suffix: str, problems: list[IndexProblem], data: bytes, size: int, *, remade: bool
) -> IndexRepair:
    return IndexRepair(
        suffix=suffix,
        method="regenerate" if remade else "truncate",
        size_before=size,
        size_after=len(data),
        digest_after=digest_bytes(data),
        rule=problems[0].rule,
        reason="; ".join(problem.text for problem in problems[:2]),
    )


def regenerated(stem: str, item: InspectItem, tree: Tree) -> tuple[dict[str, bytes], str]:
    """Build both files as a broker's recovery would, or return the reason why that is impossible.

    Raises:
        OSError: the log cannot be read.
    """
    made = rebuild_offset_and_time(
        f"{stem}.log", item.log_bytes, item.base_offset, item.interval_bytes, tree=tree
    )
    if made.damage_text:
        return {}, damaged_log(item.base_offset, made.valid_bytes, made.damage_text)
    return {INDEX: made.index, TIME_INDEX: made.time_index}, ""


def damaged_log(base_offset: int, position: int, text: str) -> str:
    """Describe why the indexes of a segment with a damaged log cannot be built."""
    log = log_name(base_offset)
    return (
        f"{log}: the log is damaged at position {position} ({text}): first --fix tail; its indexes are left"
    )


@shown_as("indexes")
@with_log_dir
def inspect(item: InspectItem, tree: Tree) -> InspectResult:
    """Examine the indexes of one segment."""
    segment = _Segment(item, tree)
    if item.depth in ("check", "regenerate"):
        segment.check_whole_log()
    elif not segment.check_where_entries_point():
        if item.depth == "truncate":
            text = f"{log_name(item.base_offset)}: its entries do not check out where they point to"
            return segment.result(not_repaired=text)
        segment.check_whole_log()
    if item.depth == "check" or (item.active and not segment.problems):
        return segment.result()
    return segment.result(*segment.repairs())


class InspectionBesideScan:
    """Examination of one segment's indexes beside a scan, which reads the whole log anyway and passes on each window.

    Args:
        item: item of depth ``check`` or ``regenerate``.
        segment: files of the segment, already read.
    """

    def __init__(self, item: InspectItem, segment: _Segment) -> None:
        self._item = item
        self._segment = segment
        self._entries = IndexEntries(item.interval_bytes)

    @classmethod
    def begin(cls, item: InspectItem, tree: Tree) -> InspectionBesideScan | None:
        """Read the index files; return None if that fails, because ``inspect`` then reports the reason."""
        try:
            return cls(item, _Segment(item, tree))
        except OSError:
            return None

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Compare the entries with the batches of one window; see ``scan_segment`` for the arguments."""
        del batch_classes
        self._segment.judged.audit.feed(*self._entries.take_window(window, end, starts))

    def result(self) -> InspectResult:
        """Return the result, which is valid only if the scan has found no damage."""
        segment, item = self._segment, self._item
        segment.ends(item.log_bytes, whole=True)
        if item.depth == "check" or (item.active and not segment.problems):
            return segment.result()
        index, times = index_bytes(item.base_offset, *self._entries.entries())
        segment.made = {INDEX: index, TIME_INDEX: times}, ""
        return segment.result(*segment.repairs())


class RepairItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that rebuilds one index file.

    Attributes:
        log_bytes: size of the ``.log`` in bytes.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        target: absolute path of the new file.
        attributes: attributes for the new file.
        segments: for a ``.txnindex``: (base offset, size of the ``.log``) of all segments of the partition.
        synced: True to sync the new file after writing it; False if the caller syncs it.
    """

    place: Place
    change: ReplaceFile
    base_offset: int
    log_bytes: int
    interval_bytes: int
    target: str
    attributes: Attributes
    segments: tuple[tuple[int, int], ...] = ()
    synced: bool = True

    @property
    def bytes_to_read(self) -> int:
        """Bytes of the logs from which the file is rebuilt."""
        return sum(size for _, size in self.segments) or self.log_bytes


class RepairResults(Struct, frozen=True, kw_only=True):
    """Problems of several files.

    Attributes:
        results: failure of each file, in the order of the items; None for a valid file.
        bytes: bytes of ``.log`` that a verification read; 0 if the batches that the entries point to were enough.
    """

    results: tuple[Failed | None, ...]
    bytes: int = 0


@shown_as("indexes")
def repair_indexes(*items: RepairItem) -> tuple[Failed | None, ...]:
    """Rebuild index files, compare them with the plan and the log, and stage them, synced.

    Args:
        items: files of one partition that one reading rebuilds: both indexes of a segment, or all transaction indexes.

    Returns:
        For each item in order, the reason why its file was not staged, or None.
    """
    tree, wrong = open_log_dir(items[0].place)
    if wrong:
        return (Failed("elsewhere", wrong),) * len(items)
    try:
        made = _rebuild(items, tree)
        good = [
            file_item for file_item in items if not _unlike_planned(file_item, *made[file_item.change.name])
        ]
        untrue, _ = _find_contradictions(
            [(file_item, made[file_item.change.name][0]) for file_item in good], tree
        )
    except OSError as error:
        text = why(error)
        return tuple(_failed(file_item, "disk", text) for file_item in items)
    return tuple(
        stage_if_as_planned(
            file_item, *made[file_item.change.name], untrue.get(file_item.change.name, ""), tree
        )
        for file_item in items
    )


def stage_if_as_planned(
    item: RepairItem, data: bytes, problem: str, untrue: str, tree: Tree
) -> Failed | None:
    """Stage one rebuilt file if its bytes are as planned and match the log; else return why not.

    Args:
        data: content of the file.
        problem: reason why the content could not be built, or empty.
        untrue: contradiction between the content and the log, or empty.
        tree: tree that holds log and work folder.
    """
    problem = _unlike_planned(item, data, problem)
    if problem:
        return _failed(item, "changed", problem)
    if untrue:
        return _failed(item, "verify", untrue)
    try:
        _stage(item, data, RealDisk(tree))
    except OSError as error:
        return _failed(item, "disk", why(error))
    return None


def _failed(item: RepairItem, kind: FailureKind, text: str) -> Failed:
    return Failed(kind, f"{item.change.change_id}: {text}")


def _unlike_planned(item: RepairItem, data: bytes, problem: str) -> str:
    if not problem and digest_bytes(data) != item.change.digest_after:
        return "the rebuilt bytes are not those of the plan"
    return problem


def _suffix(change: ReplaceFile) -> str:
    return change.name[change.name.rindex(".") :]


def _rebuild(items: Sequence[RepairItem], tree: Tree) -> dict[str, tuple[bytes, str]]:
    """Rebuild each file, or return the reason why that is impossible; the log is read once for all of them."""
    made: dict[str, tuple[bytes, str]] = {}
    from_log: list[RepairItem] = []
    aborts: list[RepairItem] = []
    for item in items:
        if _suffix(item.change) == TXN_INDEX:
            aborts.append(item)
        elif item.change.method == "truncate":
            path = f"{item.place.path}/{item.change.name}"
            made[item.change.name] = read_front(path, item.change.size_after, tree), ""
        else:
            from_log.append(item)
    if from_log:
        made |= _rebuild_indexes(from_log, tree)
    if aborts:
        made |= _rebuild_txn_indexes(aborts)
    return made


def _rebuild_indexes(items: Sequence[RepairItem], tree: Tree) -> dict[str, tuple[bytes, str]]:
    first = items[0]
    look = InspectItem(
        place=first.place,
        base_offset=first.base_offset,
        log_bytes=first.log_bytes,
        interval_bytes=first.interval_bytes,
        active=False,
        depth="regenerate",
    )
    made, problem = regenerated(f"{first.place.path}/{offset_name(first.base_offset)}", look, tree)
    return {item.change.name: (made.get(_suffix(item.change), b""), problem) for item in items}


def _rebuild_txn_indexes(items: Sequence[RepairItem]) -> dict[str, tuple[bytes, str]]:
    bases = tuple(item.base_offset for item in items)
    result = inspect_txn(LogsItem(place=items[0].place, segments=items[0].segments), bases)
    made, why_not = {}, "the log is damaged before its end"
    if isinstance(result, Failed):
        why_not = result.why
    else:
        made = result.made
    return {
        item.change.name: (made[item.base_offset], "") if item.base_offset in made else (b"", why_not)
        for item in items
    }


def _find_contradictions(made: Sequence[tuple[RepairItem, bytes]], tree: Tree) -> tuple[dict[str, str], int]:
    """Check the new files against the log: a cut file where its entries point to, a rebuilt file against all batches.

    Returns:
        Contradiction or empty, by file name; and the number of bytes of the log that were read, if all were.
    """
    problems_by_name: dict[str, str] = {}
    unchecked: dict[str, bytes] = {}
    for item, data in made:
        suffix = _suffix(item.change)
        if suffix == TXN_INDEX:
            damage = txn_index.damage(data, item.base_offset)
            problems_by_name[item.change.name] = damage[0].expected if damage else ""
        elif item.change.method == "truncate" and _matches_where_entries_point(item, data, tree):
            problems_by_name[item.change.name] = ""
        else:
            unchecked[suffix] = data
    if unchecked:
        problems = _contradictions_of_log(made[0][0], unchecked, tree)
        problems_by_name |= {
            item.change.name: problems.get(suffix, "")
            for item, _ in made
            if (suffix := _suffix(item.change)) in unchecked
        }
    return problems_by_name, made[0][0].log_bytes if unchecked else 0


def _matches_where_entries_point(item: RepairItem, data: bytes, tree: Tree) -> bool:
    """Return whether the batches that a cut file points to show that it is right; else the whole log must decide."""
    suffix = _suffix(item.change)
    stem, file = f"{item.place.path}/{offset_name(item.base_offset)}", IndexFile(len(data), data)
    index = read_index(stem + INDEX, INDEX, item.log_bytes, tree) if suffix == TIME_INDEX else file
    offsets = offset_entries(index, item.base_offset)
    times = time_entries(file if suffix == TIME_INDEX else IndexFile(0), item.base_offset)
    if byte_problems(suffix, file, active=False):
        return False
    with opened_for_reading(f"{stem}.log", tree) as descriptor:
        return SpotCheck(descriptor, item.log_bytes, offsets, times).certain


def _contradictions_of_log(item: RepairItem, contents: Mapping[str, bytes], tree: Tree) -> dict[str, str]:
    """Return the first contradiction between the log and each index of a segment, by suffix."""
    none = IndexFile(0)
    files = {
        name: IndexFile(len(contents[name]), contents[name]) if name in contents else none
        for name in SUFFIXES
    }
    audit = CompanionAudit(item.base_offset, files, np.empty((0, 2), np.int64))
    end, whole = 0, True
    with opened_for_reading(f"{item.place.path}/{log_name(item.base_offset)}", tree) as descriptor:
        # Not with the walk that built the entries: the check must be independent.
        for walked in walk(read_into_from(descriptor), item.log_bytes, check_crc=False):
            audit.feed(walked)
            end, whole = walked.position, not walked.problem
    # Nothing is known after a damaged batch; everything before it was compared with the log.
    problems: dict[str, str] = {}
    for suffix, _, text in audit.finish(end, item.interval_bytes, whole=whole):
        problems.setdefault(suffix, text)
    return problems


def _stage(item: RepairItem, data: bytes, disk: RealDisk) -> None:
    # The file may exist already: a task that is repeated finds the file of its first attempt.
    if disk.tree.is_there(item.target):
        disk.unlink(item.target)
    disk.create(item.target, data, like=item.attributes, synced=item.synced)


@shown_as("verify")
def verify_repaired(*items: RepairItem) -> RepairResults:
    """Verify replaced files in place: they must have the plan's bytes and attributes, and match the log."""
    tree, wrong = open_log_dir(items[0].place)
    if wrong:
        return RepairResults(results=(Failed("elsewhere", wrong),) * len(items))
    done: dict[str, Failed | None] = {}
    read = 0
    same: list[tuple[RepairItem, bytes]] = []
    for file_item in items:
        try:
            data, text = _read_replaced(file_item, tree)
        except OSError as error:
            done[file_item.change.name] = _failed(file_item, "unreadable", why(error))
            continue
        if text:
            done[file_item.change.name] = _failed(file_item, "verify", text)
        else:
            same.append((file_item, data))
    try:
        untrue, read = _find_contradictions(same, tree)
        for name, text in untrue.items():
            file_item = next(each for each, _ in same if each.change.name == name)
            done[name] = _failed(file_item, "verify", text) if text else None
    except OSError as error:
        done |= {file_item.change.name: _failed(file_item, "unreadable", why(error)) for file_item, _ in same}
    return RepairResults(results=tuple(done[file_item.change.name] for file_item in items), bytes=read)


def _read_replaced(item: RepairItem, tree: Tree) -> tuple[bytes, str]:
    """Read a replaced file; return its bytes, and how it differs from the plan, or empty.

    Raises:
        OSError: the file cannot be read.
    """
    size = status_of(item.target, tree).st_size
    data = read_front(item.target, item.change.size_after + 1, tree)
    if size != item.change.size_after or digest_bytes(data) != item.change.digest_after:
        return data, f"its {size} bytes are not the {item.change.size_after} of the plan"
    if read_attributes(item.target, tree) != item.attributes:
        return data, "owner, group, mode, mtime or xattrs are not those of the file it replaces"
    return data, ""


@shown_as("scan")
def inspect_with_swaps(
    scan_item: ScanItem, inspect_item: InspectItem
) -> tuple[ScanResult | Failed, InspectResult | Failed]:
    """Scan one segment, and compare its indexes with the batches that the scan finds.

    If the scan finds damage, the log is read once more for its indexes, up to the damage.
    """
    tree, wrong = open_log_dir(scan_item.place)
    same = scan_item.size == inspect_item.log_bytes and not scan_item.without and scan_item.from_offset <= 0
    fed = None
    if not wrong and same and scan_item.check_crc and inspect_item.depth in {"check", "regenerate"}:
        fed = InspectionBesideScan.begin(inspect_item, tree)
    if fed is None:
        return scan(scan_item), inspect(inspect_item)
    scanned = scan_below(tree, scan_item, fed.take)
    whole = isinstance(scanned, ScanResult) and scanned.summary.is_whole
    return scanned, fed.result() if whole else inspect(inspect_item)
