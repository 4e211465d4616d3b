"""Verification of new segments by code that shares nothing with the kernels that wrote them.

Right after writing, two kinds of checksums show that the file holds what was written: the CRCs of the batches, and the
sums of the bytes that no CRC covers (``krepair.checks.parts``). As long as the backups exist, ``verify PLAN`` also
compares the new log with them batch by batch (``compare_with_sources``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import numpy as np

from krepair.checks.index_judge import CompanionAudit
from krepair.checks.parts import PartsCheck
from krepair.checks.walk import OnPlaces, Walked, walk
from krepair.durable.attributes import read_attributes
from krepair.durable.tree import Tree
from krepair.engine.items import (
    Failed,
    FinishItem,
    FinishResult,
    PartitionItem,
    VerifyItem,
    VerifyResult,
)
from krepair.engine.place import open_log_dir, with_log_dir
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2
from krepair.formats.arrays import Int64s, Uint8s
from krepair.formats.batch_v2 import HEADER_SIZE
from krepair.formats.filenames import INDEX, TIME_INDEX, log_name, offset_name
from krepair.formats.words import count_text
from krepair.logdir.fingerprint import digest_file
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.plan.model import RewriteSegments, SourceSegment
from krepair.rules.reasons import Reason
from krepair.scan.segment_files import entry_pairs, read_entries, read_index


def companion_audit(
    stem: str, base_offset: int, log_bytes: int, tree: Tree | None = None, *, active: bool = False
) -> CompanionAudit:
    """Read the entries of a segment's indexes, for a comparison with its log.

    Args:
        stem: path of the indexes without their suffixes; the log may lie elsewhere.
        base_offset: base offset of the segment.
        log_bytes: size of the ``.log`` in bytes.
        tree: tree that holds the files; None to open the paths directly.
        active: True if the segment is the last of its partition.

    Raises:
        OSError: a file cannot be read.
    """
    files = {suffix: read_index(stem + suffix, suffix, log_bytes, tree) for suffix in (INDEX, TIME_INDEX)}
    aborted = b"" if active else read_entries(stem, tree, log_bytes)
    return CompanionAudit(base_offset, files, entry_pairs(aborted), active=active)


class _SourceCounts:
    """Counts of the new log's content, by source segment."""

    def __init__(self, change: RewriteSegments) -> None:
        self.change = change
        self.bases = np.array([source.base_offset for source in change.sources], np.int64)
        # Columns: batches, records, markers, empty control batches.
        self.counts = np.zeros((len(self.bases), 4), np.int64)
        self.last_offset = self.last_records = -1

    def add(self, walked: Walked) -> None:
        headers, base = walked.headers, walked.firsts
        if len(headers) == 0:
            return
        control = (headers["attributes"] & batch_v2.CONTROL) != 0
        count = headers["record_count"].astype(np.int64)
        # A window rarely spans more than two sources, so each source is one slice of it.
        cuts = [0, *np.searchsorted(base, self.bases[1:]).tolist(), len(base)]
        for source, (first, after) in enumerate(itertools.pairwise(cuts)):
            if first < after:
                of_markers = control[first:after]
                counts = count[first:after]
                self.counts[source] += (
                    after - first,
                    int(counts[~of_markers].sum()),
                    np.count_nonzero(of_markers & (counts > 0)),
                    np.count_nonzero(of_markers & (counts == 0)),
                )
        self.last_offset, self.last_records = int(walked.lasts[-1]), int(count[-1])

    def problem(self) -> str:
        for source, counts in zip(self.change.sources, self.counts.tolist(), strict=True):
            planned = [source.kept_batches, source.kept_records, source.kept_markers]
            if counts[:2] != planned[:2] or not _markers_fit(source, *counts[2:]):
                return (
                    f"of segment {source.base_offset} {planned} (batches, records, markers) were to stay, "
                    f"the new log has {counts[:3]}"
                )
        if not self.change.base_offset <= self.last_offset <= self.change.last_offset:
            return (
                f"a last offset of at most {self.change.last_offset} was expected, found {self.last_offset}"
            )
        return ""


def _markers_fit(source: SourceSegment, markers: int, emptied: int) -> bool:
    """Return whether the new log has the number of markers that the plan keeps of a source.

    The plan also counts a marker whose record a broker has removed, if the marker has the current epoch of an active
    producer.
    """
    of_an_epoch = sum(tally.batches for tally in source.reasons if tally.reason == Reason.MARKER_EPOCH.value)
    missing = source.kept_markers - markers
    return 0 <= missing <= min(of_an_epoch, emptied)


def verify_group(item: FinishItem, tree: Tree) -> FinishResult | Failed:
    """Verify the files of a new segment: CRCs, ascending offsets, the plan's counts, indexes that point at batches.

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
        txn_index_problem(item, len(audit.aborted))
        or changed_index(item, tree)
        or attribute_problem(item, tree)
    )
    return wrong(problem) if problem else FinishResult(batches=change.batches, bytes=change.log_bytes)


def _stem(item: FinishItem) -> str:
    return f"{item.stage}/{offset_name(item.change.base_offset)}"


def new_name(item: FinishItem) -> str:
    """Return the name of a new segment in messages."""
    return f"{item.place.folder}: new {offset_name(item.change.base_offset)}"


def read_new_log(
    item: FinishItem, tree: Tree, feed: Callable[[Walked], None], on_places: OnPlaces | None = None
) -> str:
    """Read a new ``.log``: every CRC, the sums of its parts, ascending offsets, the plan's counts.

    Args:
        tree: tree that holds the log.
        feed: function that receives all batches in order, with checked CRCs.
        on_places: function that receives each window, see ``walk``.

    Returns:
        A problem with file and position, or empty.

    Raises:
        OSError: the log cannot be read.
    """
    change, log = item.change, f"{new_name(item)}.log"
    counts, parts = _SourceCounts(change), PartsCheck(item.parts)

    def take(window: Uint8s, places: Int64s, end: int) -> None:
        parts.take(window, places, end)
        if on_places is not None:
            on_places(window, places, end)

    with opened_for_reading(f"{_stem(item)}.log", tree) as descriptor:
        size = os.fstat(descriptor).st_size
        if size != change.log_bytes:
            return f"{log}: {change.log_bytes} bytes were expected, found {size}"
        for walked in walk(read_into_from(descriptor), size, on_places=take):
            if walked.problem:
                return f"{log}, position {walked.position}: {walked.problem}"
            below = below_base(walked, change.base_offset)
            if below:
                return f"{log}, {below}"
            counts.add(walked)
            feed(walked)
    problem = counts.problem() or parts.problem()
    if item.ends_in_records and not counts.last_records:
        problem = (
            problem
            or "its last batch has no records; a transaction coordinator before 3.9.2 never gets past it"
        )
    return f"{log}: {problem}" if problem else ""


def txn_index_problem(item: FinishItem, actual: int) -> str:
    """Describe a wrong number of entries in the new ``.txnindex``; empty if it is right."""
    kept = sum(len(source.aborted_kept) for source in item.change.sources)
    if actual == kept:
        return ""
    return f"{new_name(item)}.txnindex: expected {count_text(kept, 'entry', 'entries')}, found {actual}"


def changed_index(item: FinishItem, tree: Tree) -> str:
    """Return the name of an index whose bytes differ from those that were built; empty if none differs.

    Raises:
        OSError: an index cannot be read.
    """
    for index, digest in item.made.items():
        if digest_file(f"{item.stage}/{index}", tree) != digest:
            return f"{item.place.folder}: new {index}: its bytes are not those that were made"
    return ""


def attribute_problem(item: FinishItem, tree: Tree) -> str:
    """Describe wrong owner, mode, time or attributes of the new files; empty if all are right.

    Raises:
        OSError: a file cannot be examined.
    """
    stem, name = _stem(item), new_name(item)
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        if not tree.is_there(stem + suffix):
            continue
        actual = read_attributes(stem + suffix, tree)
        if actual != item.attributes:
            wanted = f"owner, group, mode, mtime and xattrs {item.attributes} were expected"
            return f"{name}{suffix}: {wanted}, found {actual}"
    return ""


def wrong(text: str) -> Failed:
    """Build the failure of new files that are not valid."""
    return Failed("verify", text)


@shown_as("verify")
@with_log_dir
def verify_segment(item: VerifyItem, tree: Tree) -> VerifyResult:
    """Verify one segment in place: every CRC, ascending offsets, indexes against the log.

    If the log is damaged, the indexes are not judged. Offsets without a record are no problem here, because compaction
    leaves such gaps. ``check`` reports these gaps by the topic's policy (KR310, KR311).
    """
    stem = f"{item.place.path}/{offset_name(item.base_offset)}"
    batches = end = 0
    before = end_offset = item.base_offset
    markers = False
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
                before = int(walked.lasts[-2]) + 1 if len(walked.lasts) > 1 else end_offset
                end_offset = int(walked.lasts[-1]) + 1
                control = walked.headers["attributes"] & batch_v2.CONTROL != 0
                markers = markers or bool((control & (walked.headers["producer_id"] >= 0)).any())
            if walked.problem:
                end_offset = -1
                problems.append((f"{name}.log", walked.position, walked.problem))
            elif not problems and (text := below_base(walked, item.base_offset)):
                problems.append((f"{name}.log", int(walked.positions[0]), text))
    index_problems = audit.finish(end, item.interval_bytes, whole=not problems, clean=item.clean)
    problems += [(name + suffix, position, text) for suffix, position, text in index_problems]
    # A clean stop may have recorded the end of an earlier batch, which proves nothing.
    if end_offset > item.next_base and (before < item.next_base or not item.active):
        expected = f"a last offset below {item.next_base}, where the log continues, was expected"
        problems.append((f"{name}.log", -1, f"{expected}, found {end_offset - 1}"))
    return VerifyResult(
        problems=tuple(problems), batches=batches, bytes=size, end_offset=end_offset, markers=markers
    )


def below_base(walked: Walked, base_offset: int) -> str:
    """Describe ascending batches that begin below the base offset of their segment; empty if there are none."""
    first = int(walked.firsts[0]) if len(walked.positions) else base_offset
    return f"offset {first} is below the segment's base offset {base_offset}" if first < base_offset else ""


def batches_to_compare(path: str, tree: Tree | None = None) -> Iterator[Walked]:
    """Read the batches of a file for a comparison of bytes; CRCs were checked when the new log was read."""
    with opened_for_reading(path, tree) as descriptor:
        size = os.fstat(descriptor).st_size
        yield from walk(read_into_from(descriptor), size, check_crc=False)


_PIECE_BYTES = 1 << 20


@shown_as("verify")
def compare_originals(item: PartitionItem, change: RewriteSegments, keep: str) -> Failed | None:
    """Compare a new segment with its backups, see ``compare_with_sources``."""
    tree, wrong = open_log_dir(item.place)
    wrong = wrong or compare_with_sources(change, item.place.path, keep, tree)
    return Failed("verify", wrong) if wrong else None


def compare_with_sources(change: RewriteSegments, folder: str, keep: str, tree: Tree | None = None) -> str:
    """Check that the new log has every source batch with records, byte for byte, and no batch of another origin.

    Args:
        folder: path of the folder with the new segment.
        keep: path of the folder with the backups.
        tree: tree that holds both folders; None to open the paths directly.

    Returns:
        The difference, or empty.
    """
    new_path = f"{folder}/{log_name(change.base_offset)}"
    try:
        with opened_for_reading(new_path, tree) as new:
            cursor = _NewLogCursor(new, batches_to_compare(new_path, tree))
            for source in change.sources:
                path = f"{keep}/{log_name(source.base_offset)}"
                with opened_for_reading(path, tree) as old:
                    for walked in batches_to_compare(path, tree):
                        problem = walked.problem or cursor.take(old, walked)
                        if problem:
                            return f"{log_name(source.base_offset)}: {problem}"
    except OSError as error:
        return f"{error.filename}: {why(error)}"
    return cursor.rest()


class _NewLogCursor:
    """Position in the new log while its sources are read."""

    def __init__(self, descriptor: int, windows: Iterator[Walked]) -> None:
        self.descriptor = descriptor
        self.windows = windows
        self.bases = np.empty(0, np.int64)
        self.positions = np.empty(0, np.int64)
        self.sizes = np.empty(0, np.int64)

    def _fill(self, last_base: int) -> None:
        while len(self.bases) == 0 or self.bases[-1] <= last_base:
            walked = next(self.windows, None)
            if walked is None:
                return
            self.bases = np.append(self.bases, walked.firsts)
            self.positions = np.append(self.positions, walked.positions)
            self.sizes = np.append(self.sizes, walked.sizes)

    def take(self, old: int, walked: Walked) -> str:
        """Compare one window of a source with the new log, and move past the batches of that window."""
        if len(walked.positions) == 0:
            return ""
        bases = walked.firsts
        self._fill(int(bases[-1]))
        count = int(np.searchsorted(self.bases, bases[-1], side="right"))
        at = np.searchsorted(bases, self.bases[:count])
        if (bases[np.minimum(at, len(bases) - 1)] != self.bases[:count]).any():
            return "the new log has a batch that the original has not"
        stays = np.zeros(len(bases), bool)
        stays[at] = True
        with_records = ((walked.headers["attributes"] & batch_v2.CONTROL) == 0) & (
            walked.headers["record_count"] > 0
        )
        if (with_records & ~stays).any():
            return "a batch with records is not in the new log"
        problem = self._same_bytes(old, walked, at)
        self.bases, self.positions, self.sizes = (
            self.bases[count:],
            self.positions[count:],
            self.sizes[count:],
        )
        return problem

    def _same_bytes(self, old: int, walked: Walked, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> str:
        count = len(at)
        if count == 0:
            return ""
        positions, sizes = self.positions[:count], self.sizes[:count]
        sources, source_sizes = walked.positions[at], walked.sizes[at]
        follows = (
            (sources[1:] == sources[:-1] + source_sizes[:-1])
            & (source_sizes == sizes)[1:]
            & (source_sizes == sizes)[:-1]
        )
        firsts = np.flatnonzero(np.append(True, ~follows))
        lasts = np.append(firsts[1:], count) - 1
        spans = sources[lasts] + source_sizes[lasts] - sources[firsts]
        like = source_sizes[firsts] == sizes[firsts]
        read_old = _ForwardReader(old, int(sources[0]), int(sources[-1] + source_sizes[-1]))
        read_new = _ForwardReader(self.descriptor, int(positions[0]), int(positions[-1] + sizes[-1]))
        stretches = zip(
            sources[firsts].tolist(), positions[firsts].tolist(), spans.tolist(), like.tolist(), strict=True
        )
        for number, (position, new_position, size, same_size) in enumerate(stretches):
            if same_size and _same_piecewise(read_old, position, read_new, new_position, size):
                continue
            first, after = int(firsts[number]), int(lasts[number]) + 1
            problem = self._differs(old, walked, at[first:after], first)
            if problem:
                return problem
        return ""

    def _differs(
        self, old: int, walked: Walked, at: np.ndarray[tuple[int], np.dtype[np.int64]], first: int
    ) -> str:
        """Describe the first batch that is neither unchanged nor emptied of its records; empty if there is none."""
        for number, source in enumerate(at.tolist(), first):
            size, position = int(walked.sizes[source]), int(walked.positions[source])
            new_size, new_position = int(self.sizes[number]), int(self.positions[number])
            if size == new_size and _same_piecewise(
                _ForwardReader(old, position, position),
                position,
                _ForwardReader(self.descriptor, 0, 0),
                new_position,
                size,
            ):
                continue
            header = os.pread(old, HEADER_SIZE, position)
            if (
                walked.headers["magic"][source] != batch_v2.MAGIC
                or new_size != HEADER_SIZE
                or os.pread(self.descriptor, new_size, new_position)
                != batch_v2.empty_batch(batch_v2.decode_header(header))
            ):
                return f"the batch at position {position} is not byte for byte in the new log (position {new_position})"
        return ""

    def rest(self) -> str:
        """Check that the new log has no batches that no original has."""
        self._fill(2**63 - 1)
        return "the new log has batches after its sources' last one" if len(self.bases) else ""


class _ForwardReader:
    """Bytes of a file, read one window at a time."""

    def __init__(self, descriptor: int, start: int, end: int) -> None:
        self.descriptor = descriptor
        self.start = start
        self.data = os.pread(descriptor, end - start, start) if 0 < end - start <= 2 * _PIECE_BYTES else b""

    def at(self, position: int, count: int) -> bytes:
        """Return ``count`` bytes from ``position`` of the file."""
        place = position - self.start
        if place >= 0 and place + count <= len(self.data):
            return self.data[place : place + count]
        return os.pread(self.descriptor, count, position)


def _same_piecewise(
    old: _ForwardReader, position: int, new: _ForwardReader, new_position: int, size: int
) -> bool:
    """Compare piece by piece, because a batch may be larger than the memory that krepair uses."""
    if size <= _PIECE_BYTES:
        return old.at(position, size) == new.at(new_position, size)
    for done in range(0, size, _PIECE_BYTES):
        count = min(_PIECE_BYTES, size - done)
        if old.at(position + done, count) != new.at(new_position + done, count):
            return False
    return True
