"""Tasks of ``--fix tail`` on damaged logs: map what is valid, write a log without its damage, and verify that log.

The map is built by the same scan that every other part of krepair uses: after a damaged range the scan begins again at
the next valid batch. Valid and damaged ranges together cover the file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from msgspec import Struct

from krepair.checks.index_judge import CompanionAudit
from krepair.checks.walk import walk
from krepair.derive.index_entries import IndexEntries
from krepair.derive.segment import RecoveredSegment, recover_segment
from krepair.durable.attributes import read_attributes
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.engine.items import Failed, FailureKind, LogItem, Place
from krepair.engine.place import failure_text, with_log_dir, with_log_dir_as
from krepair.engine.progress import shown_as
from krepair.formats import batch_v2, offset_index, txn_index
from krepair.formats.batch_front import FRONT_BYTES, batch_front
from krepair.formats.batch_v2 import HEADER, LOG_OVERHEAD
from krepair.formats.filenames import log_name, offset_name
from krepair.formats.java_numbers import INT32_MAX, LARGEST_FILE_BYTES
from krepair.kernels import classes as c
from krepair.kernels.columns import BatchWalk
from krepair.kernels.resync import checksummed_end, find_batch, search_budget
from krepair.kernels.scan import ReadInto, ScanInputs, scan_segment
from krepair.logdir.fingerprint import DIGEST_BYTES, digest_bytes, digest_file
from krepair.logdir.reading import opened_for_reading, opened_with_status, read_into_from, status_of
from krepair.plan.model import MendLog
from krepair.rewrite.indexes.transactions import judged, replayed
from krepair.rewrite.segments.verify import companion_audit
from krepair.rules.damage import DamagedRange, DamageMap, OffsetsRecovery, ValidRange, valid_range
from krepair.scan.segment_files import kept_ranges, read_entries, reader_without

MOST_RANGES = 4096
CUT = ".cut"
"""Suffix of the file that keeps the bytes cut from a log."""
_CHUNK_BYTES = 1 << 20
_UNKNOWN = -1


class MapItem(LogItem, frozen=True, kw_only=True):
    """Arguments of the task that maps one damaged log.

    Attributes:
        first: valid range at the start, from the scan (may be empty).
        damage: kind of the damage after that range.
        text: what was expected at the damage and what was found.
        highest: largest possible offset in the log, below the next segment's base offset.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        next_base: base offset of the next segment, -1 if it is the last.
    """

    first: ValidRange
    damage: int
    text: str
    highest: int
    interval_bytes: int
    next_base: int = -1


class MapResult(DamageMap, frozen=True, kw_only=True):
    """Valid and damaged ranges of a log, or the reason why it could not be read.

    Attributes:
        failure: kind of failure, empty if the log could be read.
    """

    failure: FailureKind = ""


@shown_as("damage")
@with_log_dir_as(MapResult)
def map_damage(item: MapItem, tree: Tree) -> MapResult:
    """Map one damaged log; an I/O error is a failure, never damage."""
    name = log_name(item.base_offset)
    with opened_with_status(f"{item.place.path}/{name}", tree) as (descriptor, status):
        if status.st_size != item.size:
            text = f"{item.place.folder}/{name}: has {status.st_size} bytes, not {item.size}"
            return MapResult(failure="changed", why=text)
        if item.size > LARGEST_FILE_BYTES:
            return MapResult(valid=(item.first,) if item.first.end else (), complete=False)
        return damage_map(item, read_into_from(descriptor))


def damage_map(item: MapItem, read_into: ReadInto) -> MapResult:
    """Build the map of a log that can be read at any position."""
    valid = [item.first] if item.first.end else []
    damaged: list[DamagedRange] = []
    start, kind, text, last = item.first.end, item.damage, item.text, item.first.last_offset
    complete = True
    budget = _Budget(search_budget(item.size))
    while start < item.size:
        if version := _unknown_version(item, read_into, start, last):
            text = f"{log_name(item.base_offset)}, position {start}: batch of unknown version {version}, not looked at"
            return MapResult(why=text, unknown=True)
        position, after, complete = _next_valid(item, read_into, start, last, budget)
        jump = _jump(item, read_into, valid, start) if kind == c.D_OFFSET_ORDER else None
        is_jump = (
            jump is not None
            and jump.start < start
            and _jump_is_damage(jump, item, read_into, start, position)
        )
        if jump is not None and is_jump:
            after = _leave_out_jump(item, read_into, valid, damaged, jump, start)
            if after is not None:
                ran, kind, text = after
                valid.append(ran)
                start, last = ran.end, ran.last_offset
                continue
            position, after, complete = _next_valid(item, read_into, start, last, budget)
        if jump is not None and is_jump is None:
            text += f"; the batch at position {jump.start} has the same offsets, and nothing shows which one is right"
            last = jump.before  # the loss then counts the offsets of both damaged ranges
        damaged.append(_damaged(read_into, start, position, item, kind, text, last, after))
        if after is None:
            break
        ran, kind, text = after
        valid.append(ran)
        start, last = ran.end, ran.last_offset
        if len(damaged) == MOST_RANGES:
            complete = False
            if start < item.size:
                damaged.append(_damaged(read_into, start, item.size, item, kind, text, last, None))
            break
    recovery: OffsetsRecovery = ""
    cut = _cut_by_checksums(read_into, damaged, item.size)
    if any(gap.checksummed for gap in damaged):
        recovery = recovery_of_offsets(
            read_into, item.size, cut, item.base_offset, item.interval_bytes, next_base=item.next_base
        )
    return MapResult(
        valid=tuple(valid), damaged=tuple(damaged), complete=complete, recovery=recovery, cut=cut
    )


def _unknown_version(item: MapItem, read_into: ReadInto, start: int, last: int) -> int:
    """Return the magic of a batch of a later version than 2 whose header fits its neighbours; else 0."""
    front = batch_front(_read_bytes(read_into, start, FRONT_BYTES))
    if front is None or not batch_v2.MAGIC < front.magic <= 0x7F or start + front.size > item.size:
        return 0
    after = batch_front(_read_bytes(read_into, start + front.size, FRONT_BYTES))
    behind = item.highest + 1 if after is None else after.offset
    fits = front.size > LOG_OVERHEAD and last < front.offset < behind <= item.highest + 1
    return front.magic if fits else 0


@dataclass
class _Budget:
    """Limit of the work on one log: the number of bytes that its searches may still checksum."""

    left: int


class _Jump(Struct, frozen=True):
    """Batches whose offsets are higher than those of a later batch.

    Attributes:
        start: position of the first of these batches.
        base_offset: base offset of that first batch.
        offset: last offset of that first batch.
        before: last offset of the batch before it.
    """

    start: int
    base_offset: int
    offset: int
    before: int


def _jump(item: MapItem, read_into: ReadInto, valid: list[ValidRange], start: int) -> _Jump | None:
    """Find the batch whose base offset is damaged if the offsets decrease after it; None if that cannot be decided.

    No checksum covers the base offset. If a flipped bit makes the base offset of one batch too high, all later batches
    seem wrong, although only that batch is damaged.
    """
    if not valid or valid[-1].end != start:
        return None
    here = _offset_at(read_into, start)
    before = item.base_offset - 1 if len(valid) == 1 else valid[-2].last_offset
    for rows in BatchWalk(read_into, start, valid[-1].start):
        for position, base, last_offset in rows[["position", "base_offset", "last_offset"]].tolist():
            if last_offset >= here:
                alone = position == valid[-1].start and len(valid) > 1
                return None if here <= before or alone else _Jump(position, base, last_offset, before)
            before = last_offset
    return None


def _jump_is_damage(
    jump: _Jump, item: MapItem, read_into: ReadInto, start: int, next_position: int
) -> bool | None:
    """Return whether the batches of a jump are damaged, and not the lower batch after them; None if it is unknown.

    Both candidates are compared with their other neighbour: a batch that begins where this neighbour ends is right. If
    that does not decide, the side with fewer batches is treated as damaged.

    Args:
        item: item of the damage map.
        read_into: function that reads the log.
        start: position of the batch after the jump.
        next_position: position of the next batch whose offset is above the jump.
    """
    if jump.offset > item.highest or _ends_by_its_records(read_into, jump, start):
        return True
    follows, is_followed = jump.base_offset == jump.before + 1, _next_continues(read_into, start)
    if follows != is_followed:
        return is_followed
    if follows and jump.base_offset < _offset_at(read_into, start):
        return True  # its last offset is wrong: both begin where the batch before them ends
    if not follows and 0 < _declared_end(read_into, jump.start, item.size) < start:
        return False  # several batches with ascending offsets, against one that nothing confirms
    sides = [_batches(read_into, *side) for side in ((jump.start, start), (start, next_position))]
    return None if sides[0] == sides[1] else sides[0] < sides[1]


def _batches(read_into: ReadInto, start: int, end: int) -> int:
    """Count the batches in a range of a log by following their sizes."""
    return sum(len(rows) for rows in BatchWalk(read_into, end, start))


def _ends_by_its_records(read_into: ReadInto, jump: _Jump, start: int) -> bool:
    """Return whether a v2 batch, by its number of records, ends at the offset where the next one begins."""
    head = _read_bytes(read_into, jump.start, HEADER.size)
    if len(head) < HEADER.size or head[HEADER.place("magic")] != batch_v2.MAGIC:
        return False
    header = batch_v2.decode_header(head, 0)
    here = _offset_at(read_into, start)
    return jump.start + header.size_bytes == start and header.base_offset + header.record_count == here


def _offset_at(read_into: ReadInto, position: int) -> int:
    return int.from_bytes(_read_bytes(read_into, position, 8), "big", signed=True)


def _next_continues(read_into: ReadInto, position: int) -> bool:
    """Return whether the batch after the v2 batch at a position begins at the next offset."""
    head = _read_bytes(read_into, position, HEADER.size)
    if len(head) < HEADER.size or head[HEADER.place("magic")] != batch_v2.MAGIC:
        return False
    header = batch_v2.decode_header(head, 0)
    behind = position + header.size_bytes
    last = header.base_offset + header.last_offset_delta
    return (
        len(_read_bytes(read_into, behind, LOG_OVERHEAD)) == LOG_OVERHEAD
        and _offset_at(read_into, behind) == last + 1
    )


def _leave_out_jump(
    item: MapItem,
    read_into: ReadInto,
    valid: list[ValidRange],
    damaged: list[DamagedRange],
    jump: _Jump,
    end: int,
) -> _Next | None:
    """Mark the batches of a jump as damaged; return the valid batches after them. None, and no change, without any."""
    after = _valid_from(item, read_into, end, jump.before)
    if after is None:
        return None
    ran = valid.pop()
    if jump.start > ran.start:
        front = _valid_from(item, read_into, ran.start, item.base_offset - 1, until=jump.start)
        assert front is not None
        valid.append(front[0])
    text = f"offset {jump.offset} lies above those of the batches behind it"
    damaged.append(_damaged(read_into, jump.start, end, item, c.D_OFFSET_ORDER, text, jump.before, after))
    return after


def _cut_by_checksums(read_into: ReadInto, damaged: Sequence[DamagedRange], size: int) -> int:
    """Return the position at which a broker's recovery truncates the log; the size of the log if it does not.

    If a damaged range has valid checksums, and only its offsets or records are wrong, recovery does not notice and
    reads on.
    """
    for gap in damaged:
        end = checksummed_end(read_into, gap.start, gap.end, size) if gap.checksummed else gap.start
        if end < gap.end:
            return end
    return size


def recovery_of_offsets(
    read_into: ReadInto, size: int, cut: int, base_offset: int, interval_bytes: int, *, next_base: int = -1
) -> OffsetsRecovery:
    """Predict how a broker's recovery treats wrong offsets under valid checksums, which do not cover them.

    Recovery does not compare the offsets of batches with each other. If an index entry would have a lower offset than
    the entry before, it empties the segment. If an offset is too far above the base offset for an index, it splits the
    segment (``splits``; ``strays`` if nothing shows that the log really reached that offset), provided that the last
    offset is also too far above; otherwise the start fails.

    Source: LogSegment.recover, OffsetIndex.append, TimeIndex.maybeAppend, Log.splitOverflowedSegment (2.2.1, 3.9); seen
    on 2.2.1, 3.9.2 and 4.3.1.

    Args:
        read_into: reader of the log.
        size: size of the log in bytes.
        cut: position of the first batch that recovery cannot pass, because its checksum is wrong.
        base_offset: base offset of the segment.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        next_base: base offset of the next segment, -1 if it is the last.
    """
    entries, fits = IndexEntries(interval_bytes), True
    for rows in BatchWalk(read_into, cut):
        last = rows["last_offset"]
        wrong = np.flatnonzero((last < base_offset) | (last - base_offset > INT32_MAX))
        fits = not len(wrong)
        entries.take(rows if fits else rows[: wrong[0]])
        if not fits:
            break
    offsets, times = entries.entries() if fits else entries.so_far()
    if (np.diff(offsets[:, 0], prepend=base_offset) <= 0).any() or (np.diff(times[:, 1]) < 0).any():
        return "empties"
    if fits:
        return ""
    end = _last_offset(read_into, size, base_offset)
    if end + 1 - base_offset <= INT32_MAX:
        return "stops"
    return "splits" if end < next_base else "jumps"


def _last_offset(read_into: ReadInto, size: int, base_offset: int) -> int:
    """Return the last offset of the log as a broker determines it, by batch headers alone."""
    last = base_offset
    for rows in BatchWalk(read_into, size):
        last = int(rows["last_offset"][-1])
    return last


_Next = tuple[ValidRange, int, str]


def _next_valid(
    item: MapItem, read_into: ReadInto, start: int, last: int, budget: _Budget
) -> tuple[int, _Next | None, bool]:
    """Find the next valid batch: return its position, the valid batches there, and whether the search was completed."""
    position = _declared_end(read_into, start, item.size)
    if position:
        after = _valid_from(item, read_into, position, last)
        if after is not None:
            return position, after, True
    position = start + 1
    while True:
        search = find_batch(read_into, position, item.size, last + 1, item.highest, budget=budget.left)
        budget.left -= search.checksummed
        if search.position < 0:
            return item.size, None, search.complete
        after = _valid_from(item, read_into, search.position, last)
        if after is not None:
            return search.position, after, True
        position = search.position + 1


def _declared_end(read_into: ReadInto, start: int, size: int) -> int:
    """Return the end position of a damaged batch according to its own header; 0 if that is not within the log."""
    head = _read_bytes(read_into, start, HEADER.size)
    front = batch_front(head)
    if front is None or len(head) < HEADER.size or not front.is_known:
        return 0
    end = start + front.size
    return end if start + LOG_OVERHEAD < end < size else 0


def _valid_from(
    item: MapItem, read_into: ReadInto, position: int, last: int, *, until: int = -1
) -> _Next | None:
    """Return the valid batches from a position whose offsets continue after ``last``, None if there are none."""
    size = (item.size if until < 0 else until) - position
    inputs = ScanInputs(base_offset=item.base_offset, file_size=size, now_ms=0)
    summary = scan_segment(inputs, lambda buffer, at: read_into(buffer, at + position))
    if not summary.batches or summary.first_offset <= last or summary.first_offset > item.highest:
        return None
    return valid_range(summary, position), summary.damage, summary.damage_text


def _damaged(
    read_into: ReadInto,
    start: int,
    end: int,
    item: MapItem,
    kind: int,
    text: str,
    last: int,
    after: _Next | None,
) -> DamagedRange:
    next_offset = after[0].first_offset if after is not None else -1
    records, last_lost = _declared(read_into, start, end, last, next_offset if after else item.highest + 1)
    return DamagedRange(
        start=start,
        end=end,
        damage=kind,
        text=text,
        first_lost=last + 1,
        next_offset=next_offset,
        records=records,
        last_lost=last_lost,
        zeros=not any(piece.strip(b"\0") for piece in _pieces(read_into, start, end)),
    )


def _declared(read_into: ReadInto, start: int, end: int, last: int, before: int) -> tuple[int, int]:
    """Return record count and last offset by the header of a damaged range that looks like one v2 batch; else -1."""
    head = _read_bytes(read_into, start, HEADER.size)
    if len(head) < HEADER.size or head[HEADER.place("magic")] != batch_v2.MAGIC:
        return _UNKNOWN, _UNKNOWN
    header = batch_v2.decode_header(head, 0)
    last_offset = header.base_offset + header.last_offset_delta
    fits = header.size_bytes >= end - start and last < header.base_offset <= last_offset < before
    if not fits or not 0 <= header.record_count <= header.last_offset_delta + 1:
        return _UNKNOWN, _UNKNOWN
    return header.record_count, last_offset


def _pieces(read_into: ReadInto, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        piece = _read_bytes(read_into, start, min(_CHUNK_BYTES, end - start))
        if not piece:
            return
        yield piece
        start += len(piece)


def _read_bytes(read_into: ReadInto, position: int, count: int) -> bytes:
    buffer = bytearray(count)
    got = read_into(memoryview(buffer), position)
    return bytes(buffer[:got])


# -- writing a log without its damage


class RepairedLogItem(LogItem, frozen=True, kw_only=True):
    """Arguments of the task that computes or writes a log, and its indexes, without some ranges of bytes.

    Attributes:
        without: (start, end) position of the ranges that are removed, ascending.
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        target: path of the folder for new files; empty to write nothing and only compute sizes and digests.
        with_log: True to write the log itself too.
        torn: True if the last range is removed as a torn tail, without consent: then it must not hold a valid batch.
        lost: (first, last) offset that is lost with each range.
        replayed: (base offset, size in bytes) of the logs from which the ``.txnindex`` is rebuilt, up to this log with
            its future size. If empty, the ``.txnindex`` only loses the entries of transactions that are removed.
    """

    without: tuple[tuple[int, int], ...]
    lost: tuple[tuple[int, int], ...] = ()
    interval_bytes: int
    target: str = ""
    with_log: bool = False
    torn: bool = False
    replayed: tuple[tuple[int, int], ...] = ()


class RepairedCompanion(Struct, frozen=True, kw_only=True):
    """One index of the new log.

    Attributes:
        suffix: suffix of the file name.
        size_before: size of the old file in bytes, -1 if there is none.
        size_after: size of the new file in bytes.
        digest_after: 32 hex digits over the new bytes.
        same: True if the present file already has these bytes.
        front_bytes: for an ``.index``: number of bytes at its start that are also valid for the old log.
    """

    suffix: str
    size_before: int
    size_after: int
    digest_after: str
    same: bool
    front_bytes: int = 0


class RepairedLogResult(Struct, frozen=True, kw_only=True):
    """Result for one log.

    Attributes:
        size: size of the new log in bytes.
        digest: 32 hex digits over the new log.
        digest_gone: 32 hex digits over the removed bytes, in order.
        last_offset: last offset of the last kept batch, one less than the base offset if no batch is kept.
        batches: number of batches that are kept.
        companions: indexes of the new log.
    """

    size: int = 0
    digest: str = ""
    digest_gone: str = ""
    last_offset: int = -1
    batches: int = 0
    companions: tuple[RepairedCompanion, ...] = ()


class _LogReader:
    """Reader of a log that remembers whether reading failed."""

    def __init__(self, read_into: ReadInto) -> None:
        self.read_into = read_into
        self.failed = False

    def read(self, buffer: memoryview, position: int) -> int:
        try:
            return self.read_into(buffer, position)
        except OSError:
            self.failed = True
            raise


@shown_as("damage")
@with_log_dir
def write_repaired_log(item: RepairedLogItem, tree: Tree) -> RepairedLogResult | Failed:
    """Compute or write a log and its indexes without the ranges that are removed, and check that the rest is valid."""
    name = log_name(item.base_offset)
    reader: _LogReader | None = None
    try:
        with opened_with_status(f"{item.place.path}/{name}", tree) as (descriptor, status):
            if status.st_size != item.size:
                text = f"{item.place.folder}/{name}: has {status.st_size} bytes, not {item.size}"
                return Failed("changed", text)
            reader = _LogReader(read_into_from(descriptor))
            return _write_repaired(item, reader.read, RealDisk(tree))
    except OSError as error:
        # A failed write must not be reported as an unreadable log.
        kind: FailureKind = "disk" if reader is not None and not reader.failed else "unreadable"
        return Failed(kind, failure_text(item.place, error, name))


def _write_repaired(item: RepairedLogItem, read_into: ReadInto, disk: RealDisk) -> RepairedLogResult | Failed:
    kept = kept_ranges(item.size, item.without)
    reader = reader_without(read_into, kept)
    size = sum(end - start for start, end in kept)
    made = recover_segment(item.base_offset, size, item.interval_bytes, reader)
    if made.damage or made.valid_bytes != size:
        text = f"position {made.valid_bytes} of what would stay: {made.damage_text or 'not valid'}"
        return Failed("changed", f"{item.place.folder}/{log_name(item.base_offset)}: {text}")
    # A torn tail is removed without a consent, so it must hold no acknowledged batch: its bytes are searched once more.
    lost = _whole_batch_in(item, read_into, made.last_offset) if item.torn else -1
    if lost >= 0:
        text = f"offset {lost} is in a valid batch, and would go as a torn tail"
        return Failed("changed", f"{item.place.folder}/{log_name(item.base_offset)}: {text}")
    stem = f"{item.place.path}/{offset_name(item.base_offset)}"
    first = item.without[0][0] if item.without else size
    front = int((made.positions < first).sum()) * offset_index.ENTRY.size
    files = {".index": made.index, ".timeindex": made.time_index}
    on_disk = read_entries(stem, disk.tree)
    entries = _true_entries(item, on_disk, disk.tree)
    if entries is None:
        entries = _entries_up_to(on_disk, made, item.lost)
    if entries is not None and not txn_index.later_version(on_disk):
        files[".txnindex"] = entries
    companions = [_companion(stem, suffix, data, front, disk.tree) for suffix, data in files.items()]
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    write = _writer(item, size, digest.update, disk)
    position = 0
    for piece in _pieces(reader, 0, size):
        write(piece, position)
        position += len(piece)
    gone = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for start, end in item.without:
        for piece in _pieces(read_into, start, end):
            gone.update(piece)
    if item.target:
        changed = {
            companion.suffix: files[companion.suffix] for companion in companions if not companion.same
        }
        _finish(item, stem, changed, disk)
    return RepairedLogResult(
        size=size,
        digest=digest.hexdigest(),
        digest_gone=gone.hexdigest(),
        last_offset=made.last_offset,
        batches=made.batches,
        companions=tuple(companions),
    )


def _whole_batch_in(item: RepairedLogItem, read_into: ReadInto, last: int) -> int:
    """Search the last removed range for a valid batch; return the offset of that batch, -1 if there is none."""
    start = item.without[-1][0]
    none = ValidRange(
        start=start, end=start, first_offset=-1, first_is_old=False, last_offset=last, batches=0, records=0
    )
    whole = MapItem(
        place=item.place,
        base_offset=item.base_offset,
        size=item.size,
        first=none,
        damage=c.D_NONE,
        text="",
        highest=item.base_offset + INT32_MAX,
        interval_bytes=item.interval_bytes,
    )
    valid = _valid_from(whole, read_into, start, last)
    if valid is None:
        _, valid, _ = _next_valid(whole, read_into, start, last, _Budget(search_budget(item.size)))
    return -1 if valid is None else valid[0].first_offset


def _true_entries(item: RepairedLogItem, on_disk: bytes, tree: Tree) -> bytes | None:
    """Rebuild the ``.txnindex`` from the logs; None if it is not requested, not possible, or there is no such file."""
    for segment in replayed(item.place.path, item.replayed, tree):
        if segment.valid_bytes != segment.size:
            break
        if segment.base_offset == item.base_offset:
            true, _, _ = judged(on_disk, segment, log_start=item.replayed[0][0])
            return txn_index.encode(true) if true or on_disk else None
    return None


def _entries_up_to(entries: bytes, made: RecoveredSegment, lost: Sequence[tuple[int, int]]) -> bytes | None:
    """Return the entries whose ABORT markers are still in the log; None if there are none or they are unreadable."""
    if not entries or len(entries) % txn_index.ENTRY_SIZE:
        return None
    rows = txn_index.view(entries)
    # An entry whose marker is cut would hide committed records that the producer writes at these offsets later.
    markers = rows["last_offset"]
    stays = markers <= made.last_offset
    for first, last in lost:
        stays &= (markers < first) | (markers > last)
    return rows[stays].tobytes()


def _companion(stem: str, suffix: str, data: bytes, front: int, tree: Tree) -> RepairedCompanion:
    file_status = tree.status(stem + suffix)
    size = -1 if file_status is None else file_status.st_size
    same = size == len(data)
    if same and data:
        with opened_for_reading(stem + suffix, tree) as descriptor:
            same = os.pread(descriptor, len(data) + 1, 0) == data
    return RepairedCompanion(
        suffix=suffix,
        size_before=size,
        size_after=len(data),
        digest_after=digest_bytes(data),
        same=same,
        front_bytes=front if suffix == ".index" else 0,
    )


def _writer(
    item: RepairedLogItem, size: int, digest: Callable[[bytes], None], disk: RealDisk
) -> Callable[[bytes, int], None]:
    if not item.with_log:
        return lambda piece, position: digest(piece)
    target = f"{item.target}/{log_name(item.base_offset)}"
    # The file may exist already: a task that is repeated finds the file of its first attempt.
    if disk.tree.is_there(target):
        disk.unlink(target)
    disk.reserve(target, size)

    def write(piece: bytes, position: int) -> None:
        digest(piece)
        disk.write_at(target, position, [memoryview(piece)])

    return write


def _finish(item: RepairedLogItem, stem: str, companions: dict[str, bytes], disk: RealDisk) -> None:
    """Give the new files the attributes of the files that they replace, and make the new files durable."""
    tree = disk.tree
    if item.with_log:
        log = f"{item.target}/{log_name(item.base_offset)}"
        # Attributes first, so that one fsync makes content and attributes durable; the folder is synced last, so that
        # no name survives a crash without its bytes.
        disk.set_attributes(log, read_attributes(f"{stem}.log", tree))
        disk.sync_file(log)
    for suffix, data in companions.items():
        path = f"{item.target}/{offset_name(item.base_offset)}{suffix}"
        if tree.is_there(path):
            disk.unlink(path)
        like = stem + suffix if tree.is_there(stem + suffix) else f"{stem}.log"
        disk.create(path, data, like=read_attributes(like, tree))
    disk.sync_dir(item.target)


# -- verification of a repaired log by code that did not write it


class VerifyRepairedLogItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that verifies a log that was cut, or freed of damage in its middle, with its three indexes.

    Attributes:
        interval_bytes: bytes of log between two index entries (``index.interval.bytes``).
        keep: absolute path of the folder with the backup, empty if there is none.
        next_base: base offset of the next segment, -1 if it is the last.
    """

    place: Place
    change: MendLog
    interval_bytes: int
    keep: str = ""
    next_base: int = -1

    @property
    def bytes_to_read(self) -> int:
        """Size in bytes of the new log and of the kept part of the old log."""
        return self.change.size_before


class VerifyRepairedLogResult(Struct, frozen=True, kw_only=True):
    """Result of verifying one log.

    Attributes:
        problems: problems in one line each; empty if there are none.
        bytes: bytes of the log that were read.
    """

    problems: tuple[str, ...] = ()
    bytes: int = 0


@shown_as("verify")
@with_log_dir
def verify_repaired_log(item: VerifyRepairedLogItem, tree: Tree) -> VerifyRepairedLogResult:
    """Read every batch of the log, and compare it with its indexes, the plan and the backup."""
    with tree.keeping_folders():
        return VerifyRepairedLogResult(
            problems=tuple(_repaired_problems(item, tree)), bytes=item.change.size_after
        )


def _repaired_problems(item: VerifyRepairedLogItem, tree: Tree) -> Iterator[str]:
    change, path = item.change, f"{item.place.path}/{item.change.name}"
    status = status_of(path, tree)
    if status.st_size != change.size_after:
        yield f"{change.name}: {change.size_after} bytes were expected, found {status.st_size}"
        return
    audit = companion_audit(path.removesuffix(".log"), change.base_offset, status.st_size, tree)
    problems = [*_log_problems(item, audit, tree)]
    if status.st_mtime_ns != change.mtime_ns:
        problems.append(f"{change.name}: does not have the modification time that the plan says")
    yield from problems
    if not problems:
        stem = offset_name(change.base_offset)
        for suffix, position, text in audit.finish(change.size_after, item.interval_bytes):
            yield f"{stem}{suffix}, position {position}: {text}"
        yield from _files_against_plan(item, tree)
        yield from _against_originals(item, tree)


def _log_problems(item: VerifyRepairedLogItem, audit: CompanionAudit, tree: Tree) -> Iterator[str]:
    change = item.change
    first, last = -1, change.base_offset - 1
    with opened_for_reading(f"{item.place.path}/{change.name}", tree) as descriptor:
        for walked in walk(read_into_from(descriptor), change.size_after):
            if len(walked.positions):
                first = int(walked.firsts[0]) if first < 0 else first
                last = int(walked.lasts[-1])
            if walked.problem:
                yield f"{change.name}, position {walked.position}: {walked.problem}"
                return
            audit.feed(walked)
    if 0 <= first < change.base_offset:
        yield f"{change.name}: its first batch has offset {first}"
    if last != change.last_offset:
        yield f"{change.name}: a last offset of {change.last_offset} was expected, found {last}"
    if 0 <= item.next_base <= last:
        yield f"{change.name}: its last offset {last} is not below the next segment's {item.next_base}"


def _files_against_plan(item: VerifyRepairedLogItem, tree: Tree) -> Iterator[str]:
    change = item.change
    planned = [(change.name, change.size_after, change.digest_after)]
    planned += [(new.name, new.size_after, new.digest_after) for new in change.companions]
    for name, size, digest in planned:
        path = f"{item.place.path}/{name}"
        if status_of(path, tree).st_size != size or digest_file(path, tree) != digest:
            yield f"{name}: is not the file of {size} bytes that the plan makes"


def _against_originals(item: VerifyRepairedLogItem, tree: Tree) -> Iterator[str]:
    """Check that the log is its original without the removed ranges."""
    if not item.keep:
        return
    change = item.change
    kept = f"{item.keep}/{change.name}"
    if change.method == "excise" and tree.is_there(kept):
        yield from _same_ranges(item, kept, tree)
    elif change.method == "cut" and tree.is_there(kept + CUT):
        gone = change.size_before - change.size_after
        if (
            status_of(kept + CUT, tree).st_size != gone
            or digest_file(kept + CUT, tree) != change.digest_removed
        ):
            yield f"{change.name}: the kept bytes are not the {gone} that were cut"


def _same_ranges(item: VerifyRepairedLogItem, kept: str, tree: Tree) -> Iterator[str]:
    """Check byte for byte that the new log is the original without the removed ranges."""
    change, position = item.change, 0
    edges = [0, *(edge for gap in change.removed for edge in (gap.start, gap.end)), change.size_before]
    with (
        opened_for_reading(kept, tree) as old,
        opened_for_reading(f"{item.place.path}/{change.name}", tree) as new,
    ):
        if os.fstat(old).st_size != change.size_before:
            yield f"{change.name}: the kept original does not have {change.size_before} bytes"
            return
        for start, end in [*pairwise(edges)][::2]:
            while start < end:
                count = min(_CHUNK_BYTES, end - start)
                if os.pread(old, count, start) != os.pread(new, count, position):
                    yield f"{change.name}, position {position}: is not the original's bytes at position {start}"
                    return
                start, position = start + count, position + count
