"""Verification: every new file read again, by code that shares nothing with the kernels that made it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import numpy as np

from krepair.checks.companions import CompanionAudit
from krepair.checks.walk import OnPlaces, Walked, walk
from krepair.durable.attributes import read_attributes
from krepair.durable.tree import Tree
from krepair.formats import batch_v2, txn_index
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import INDEX, TIME_INDEX, offset_name
from krepair.formats.words import count_text
from krepair.logdir.fingerprint import digest_file
from krepair.logdir.reading import opened_for_reading, read_into_from, read_whole
from krepair.pipeline.index_files import index_bytes_needed, read_index
from krepair.pipeline.items import Failed, FinishItem, FinishResult, VerifyItem, VerifyResult
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown
from krepair.pipeline.rewrite.parts import PartsCheck
from krepair.plan.model import RewriteSegments, SourceSegment
from krepair.rules.reasons import Reason


def companion_audit(
    stem: str, base_offset: int, log_bytes: int, tree: Tree | None = None, *, active: bool = False
) -> CompanionAudit:
    """The entries of a segment's indexes, ready to be held against its log.

    Args:
        stem: path of the segment without the suffix.
        base_offset: of the segment.
        log_bytes: size of its ``.log``.
        tree: below which the files are; None: anywhere.
        active: whether the segment is the last of its partition.

    Raises:
        OSError: a file cannot be read.
    """
    files = {suffix: read_index(stem + suffix, suffix, log_bytes, tree) for suffix in (INDEX, TIME_INDEX)}
    aborted = b"" if active else _entries_of_aborts(stem, tree)
    return CompanionAudit(base_offset, files, abort_pairs(aborted), active=active)


def abort_pairs(entries: bytes) -> Int64s:
    """int64[N, 2] (producer id, offset of the abort marker) of the entries of a ``.txnindex``."""
    aborted = txn_index.view(entries)
    return np.column_stack([aborted["producer_id"], aborted["last_offset"]]).astype(np.int64)


def _entries_of_aborts(stem: str, tree: Tree | None) -> bytes:
    """The bytes of a ``.txnindex``, and of one longer than its log could need only the first."""
    try:
        return read_whole(f"{stem}.txnindex", index_bytes_needed(stem, txn_index.ENTRY_SIZE, tree), tree)
    except FileNotFoundError:
        return b""


class _SourceCounts:
    """What the new log holds, by source segment."""

    def __init__(self, change: RewriteSegments) -> None:
        self.change = change
        self.bases = np.array([source.base_offset for source in change.sources], np.int64)
        # batches, records, markers, emptied control batches
        self.found = np.zeros((len(self.bases), 4), np.int64)
        self.last_offset = -1

    def add(self, walked: Walked) -> None:
        headers, base = walked.headers, walked.firsts
        if len(headers) == 0:
            return
        control = (headers["attributes"] & batch_v2.CONTROL) != 0
        count = headers["record_count"].astype(np.int64)
        # a window rarely meets more than two sources, so each is a slice of it
        cuts = [0, *np.searchsorted(base, self.bases[1:]).tolist(), len(base)]
        for source, (first, after) in enumerate(itertools.pairwise(cuts)):
            if first < after:
                of_markers = control[first:after]
                counts = count[first:after]
                self.found[source] += (
                    after - first,
                    int(counts[~of_markers].sum()),
                    np.count_nonzero(of_markers & (counts > 0)),
                    np.count_nonzero(of_markers & (counts == 0)),
                )
        self.last_offset = int(walked.lasts[-1])

    def problem(self) -> str:
        for source, found in zip(self.change.sources, self.found.tolist(), strict=True):
            planned = [source.kept_batches, source.kept_records, source.kept_markers]
            if found[:2] != planned[:2] or not _markers_fit(source, *found[2:]):
                return (
                    f"of segment {source.base_offset} {planned} (batches, records, markers) were to stay, "
                    f"the new log has {found[:3]}"
                )
        if not self.change.base_offset <= self.last_offset <= self.change.last_offset:
            return (
                f"a last offset of at most {self.change.last_offset} was expected, found {self.last_offset}"
            )
        return ""


def _markers_fit(source: SourceSegment, markers: int, emptied: int) -> bool:
    """Whether so many markers, and such as are emptied, are those that were to stay of a source.

    A marker that a broker emptied still counts as one where it is of the current epoch of a living producer.
    """
    of_an_epoch = sum(tally.batches for tally in source.reasons if tally.reason == Reason.MARKER_EPOCH.value)
    missing = source.kept_markers - markers
    return 0 <= missing <= min(of_an_epoch, emptied)


def verify_group(item: FinishItem, tree: Tree) -> FinishResult | Failed:
    """Read a new segment's files: CRCs, ascending offsets, the plan's counts, indexes that point at batches.

    Raises:
        OSError: a file cannot be read.
    """
    change, stem, name = item.change, _stem(item), new_name(item)
    audit = companion_audit(stem, change.base_offset, change.log_bytes, tree)
    problem = read_new_log(item, tree, audit.feed)
    if problem:
        return wrong(problem)
    for suffix, position, text in audit.finish(change.log_bytes, item.index_interval_bytes):
        return wrong(f"{name}{suffix}, position {position}: {text}")
    problem = (
        aborts_missing(item, len(audit.aborted))
        or not_those_made(item, tree)
        or attribute_problem(item, tree)
    )
    return wrong(problem) if problem else FinishResult(batches=change.batches, bytes=change.log_bytes)


def _stem(item: FinishItem) -> str:
    return f"{item.stage}/{offset_name(item.change.base_offset)}"


def new_name(item: FinishItem) -> str:
    """How a new segment is called in messages."""
    return f"{item.place.folder}: new {offset_name(item.change.base_offset)}"


def read_new_log(
    item: FinishItem, tree: Tree, feed: Callable[[Walked], None], on_places: OnPlaces | None = None
) -> str:
    """Read a new ``.log``: every CRC, the sums of its parts, ascending offsets, the plan's counts.

    Args:
        item: which one.
        tree: below which it is.
        feed: is given all batches in order, their CRCs checked.
        on_places: see ``walk``.

    Returns:
        What is wrong, with file and position, or empty.

    Raises:
        OSError: it cannot be read.
    """
    change, log = item.change, f"{new_name(item)}.log"
    counts, parts, batches = _SourceCounts(change), PartsCheck(item.parts), 0
    with opened_for_reading(f"{_stem(item)}.log", tree) as descriptor:
        size = os.fstat(descriptor).st_size
        if size != change.log_bytes:
            return f"{log}: {change.log_bytes} bytes were expected, found {size}"
        read_into = parts.watching(read_into_from(descriptor))
        for walked in walk(read_into, size, on_places=on_places):
            if walked.problem:
                return f"{log}, position {walked.position}: {walked.problem}"
            below = below_base(walked, change.base_offset)
            if below:
                return f"{log}, {below}"
            batches += len(walked.positions)
            counts.add(walked)
            feed(walked)
    problem = counts.problem() or parts.problem()
    if not problem and batches != change.batches:
        problem = f"expected {count_text(change.batches, 'batch', 'batches')}, found {batches}"
    return f"{log}: {problem}" if problem else ""


def aborts_missing(item: FinishItem, found: int) -> str:
    """What is wrong with the number of entries of the new ``.txnindex``, or empty."""
    kept = sum(len(source.aborted_kept) for source in item.change.sources)
    if found == kept:
        return ""
    return f"{new_name(item)}.txnindex: expected {count_text(kept, 'entry', 'entries')}, found {found}"


def not_those_made(item: FinishItem, tree: Tree) -> str:
    """Which index has other bytes than were made for it, or empty.

    Raises:
        OSError: one cannot be read.
    """
    for index, digest in item.made.items():
        if digest_file(f"{item.stage}/{index}", tree) != digest:
            return f"{item.place.folder}: new {index}: its bytes are not those that were made"
    return ""


def attribute_problem(item: FinishItem, tree: Tree) -> str:
    """What is wrong with owner, mode, time and attributes of the new files, or empty.

    Raises:
        OSError: one cannot be looked at.
    """
    stem, name = _stem(item), new_name(item)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if not tree.is_there(stem + suffix):
            continue
        found = read_attributes(stem + suffix, tree)
        if found != item.attributes:
            wanted = f"owner, group, mode, mtime and xattrs {item.attributes} were expected"
            return f"{name}{suffix}: {wanted}, found {found}"
    return ""


def wrong(text: str) -> Failed:
    """New files that are not as they must be."""
    return Failed("verify", text)


@shown("verify")
@in_its_place
def verify_segment(item: VerifyItem, tree: Tree) -> VerifyResult:
    """Read one segment of a log directory as it is: every CRC, ascending offsets, indexes against the log.

    Behind damage in the log nothing is said of the indexes. Offsets that no record has are no problem here: compaction
    makes such gaps, and no file contradicts another. ``check`` tells of them, by the topic's policy (KR310, KR311).
    """
    stem = f"{item.place.path}/{offset_name(item.base_offset)}"
    batches = end = 0
    end_offset = item.base_offset
    problems: list[tuple[str, int, str]] = []
    name = offset_name(item.base_offset)
    with opened_for_reading(f"{stem}.log", tree) as descriptor:
        size = os.fstat(descriptor).st_size
        audit = companion_audit(stem, item.base_offset, size, tree, active=item.active)
        for walked in walk(read_into_from(descriptor), size):
            batches += len(walked.positions)
            audit.feed(walked)
            end = walked.position
            if len(walked.lasts):
                end_offset = int(walked.lasts[-1]) + 1
            if walked.problem:
                end_offset = -1
                problems.append((f"{name}.log", walked.position, walked.problem))
            elif not problems and (text := below_base(walked, item.base_offset)):
                problems.append((f"{name}.log", int(walked.positions[0]), text))
    found = audit.finish(end, item.interval_bytes, whole=not problems, clean=item.clean)
    problems += [(name + suffix, position, text) for suffix, position, text in found]
    return VerifyResult(problems=tuple(problems), batches=batches, bytes=size, end_offset=end_offset)


def below_base(walked: Walked, base_offset: int) -> str:
    """What is wrong with batches in ascending order that begin below the base offset of their segment, or empty."""
    first = int(walked.firsts[0]) if len(walked.positions) else base_offset
    return f"offset {first} is below the segment's base offset {base_offset}" if first < base_offset else ""


def batches_to_compare(path: str, tree: Tree | None = None) -> Iterator[Walked]:
    """The batches of a file whose bytes are held against others; CRCs were checked when the new log was read."""
    with opened_for_reading(path, tree) as descriptor:
        size = os.fstat(descriptor).st_size
        yield from walk(read_into_from(descriptor), size, check_crc=False)
