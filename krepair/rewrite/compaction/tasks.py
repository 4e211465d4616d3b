"""The tasks of key compaction that an engine runs: find aborted transactions and keys, join keys, write a segment.

The same functions run in this process and on Spark. Each opens its files itself, and returns a failure as a value.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict, replace

from krepair.checks.walk import walk
from krepair.derive.transactions import A_FIRST, A_MARKER, A_PRODUCER, begins_as_indexed
from krepair.durable.real_disk import RealDisk
from krepair.durable.scratch import write_scratch
from krepair.durable.tree import Tree
from krepair.durable.writing_error import WritingError
from krepair.engine.items import Failed, FailureKind, LogsItem, ScanResult
from krepair.engine.place import open_log_dir, with_log_dir, with_log_dir_as
from krepair.engine.progress import shown_as
from krepair.formats.arrays import Int32s, Int64s, Uint8s
from krepair.formats.batch_v2 import CONTROL
from krepair.formats.filenames import TXN_INDEX, log_name, segment_name
from krepair.formats.offset_set import MOST_OFFSETS, OffsetSetError, packed, unpacked
from krepair.kernels import compact_keys as k
from krepair.kernels.scan import ReadInto, ScanInputs, SegmentSummary, WholeWindows, scan_segment
from krepair.kernels.transactions import E_FIRST, E_HAS_DATA, E_LAST, E_LATEST, E_PRODUCER, TransactionReplay
from krepair.logdir.reading import opened_for_reading, read_into_from, why
from krepair.rewrite.compaction.batch_records import ContentError
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.headers import NoteTaker
from krepair.rewrite.compaction.items import (
    CompactItem,
    CompactResult,
    CompactStageItem,
    CompactStageResult,
    JoinItem,
    JoinResult,
    KeysItem,
    KeysResult,
    OffsetFile,
    ranges_of,
)
from krepair.rewrite.compaction.keys import TABLE_ROWS, KeyWalk, TransactionError
from krepair.rewrite.compaction.log import CompactedLog, StayRules
from krepair.rewrite.compaction.rows import BUCKETS, SCRATCH_NEEDED, NoScratchError, RowFile, Rows, put_rows
from krepair.rewrite.compaction.written import ProvenBytes
from krepair.rewrite.segments.stage import not_as_decided, not_as_planned
from krepair.scan.scan import scan_beside
from krepair.scan.segment_files import aborts_in, entry_pairs, pairs, sound_entries

_ANY_SIZE: Final = 1 << 40
_CLOSE: Final = 4
"""Largest mean distance of offsets at which one mark per possible offset is used instead of a sort."""


@shown_as("transactions")
@with_log_dir
def find_aborted(item: LogsItem, tree: Tree) -> bytes:
    """Find the aborted transactions of a partition by replaying its segments in offset order.

    If the COMMIT marker of an earlier transaction of the same producer may be missing
    (``krepair.kernels.transactions``), the log does not show where an aborted transaction begins; then the
    ``.txnindex`` decides.

    Returns:
        int64[N, 3] (producer id, first offset, offset of the ABORT marker), ascending by the first two, as bytes.
    """
    return _find_aborted(item, tree)[0]


@shown_as("transactions")
@with_log_dir
def find_aborted_for_certain(item: LogsItem, tree: Tree) -> bytes | Failed:
    """Do the same as ``find_aborted``, but fail if neither log nor ``.txnindex`` shows where a transaction begins."""
    aborted, unclear = _find_aborted(item, tree)
    return Failed("txnindex-disagrees", unclear) if unclear else aborted


def _find_aborted(item: LogsItem, tree: Tree) -> tuple[bytes, str]:
    """Return the result of ``find_aborted``, and a description of the first transaction with an unknown start."""
    first, unclear = item.segments[0][0] if item.segments else 0, ""
    replay = TransactionReplay(first)
    parts: list[Int64s] = []
    for base_offset, size in item.segments:
        with opened_for_reading(f"{item.place.stem(base_offset)}.log", tree) as descriptor:
            entries = replay.segment(size, read_into_from(descriptor)).entries
        entries = entries[entries[:, E_HAS_DATA] == 1]
        ambiguous = entries[entries[:, E_FIRST] < entries[:, E_LATEST]]
        if len(ambiguous):
            indexed = aborts_in(sound_entries(item.place, base_offset, tree).data)
            aborted = entries[:, [E_PRODUCER, E_FIRST, E_LAST]]
            entries[:, E_FIRST] = begins_as_indexed(aborted, entries[:, E_LATEST], indexed)
            named = set(map(tuple, indexed[:, [A_PRODUCER, A_MARKER]].tolist()))
            missing = [row for row in ambiguous[:, [E_PRODUCER, E_LAST]].tolist() if tuple(row) not in named]
            if missing and not unclear:
                producer, marker = missing[0]
                unclear = (
                    f"{segment_name(base_offset, TXN_INDEX)}: it does not name the abort marker of producer {producer} "
                    f"at offset {marker}, and the log does not show where that transaction begins: a cleaner up to "
                    "2.2.1 may have removed a commit marker before it"
                )
        parts.append(entries[:, [E_PRODUCER, E_FIRST, E_LAST]])
    ranges = np.concatenate(parts) if parts else np.empty((0, 3), np.int64)
    ranges = ranges[np.lexsort((ranges[:, A_FIRST], ranges[:, A_PRODUCER]))]
    return np.ascontiguousarray(ranges).tobytes(), unclear


@shown_as("keys")
@with_log_dir
def find_last_data_batch(item: LogsItem, tree: Tree) -> tuple[int, int]:
    """Find the last batch with data records.

    Args:
        item: logs of one partition.
        tree: tree of the log directory.

    Returns:
        (base offset of that batch, offset after it); (0, 0) if there is none.

    Raises:
        OSError: a log cannot be read.
    """
    for base_offset, size in reversed(item.segments):
        bounds = (0, 0)
        with opened_for_reading(f"{item.place.stem(base_offset)}.log", tree) as descriptor:
            for walked in walk(read_into_from(descriptor), size, check_crc=False):
                headers = walked.headers
                with_data = (headers["record_count"] > 0) & (headers["attributes"] & CONTROL == 0)
                places = np.flatnonzero(with_data)
                if len(places):
                    bounds = int(walked.firsts[places[-1]]), int(walked.lasts[places[-1]]) + 1
        if bounds[1]:
            return bounds
    return 0, 0


@shown_as("keys")
@with_log_dir_as(KeysResult)
def find_keys(item: KeysItem, tree: Tree) -> KeysResult:
    """Find the keys of one segment."""
    name = log_name(item.base_offset)
    files: list[RowFile] = []
    buckets = np.zeros(BUCKETS, np.int64)

    def on_rows(rows: Rows, starts: Int64s) -> None:
        buckets.__iadd__(np.diff(starts))
        inline = not files and len(rows) <= item.rows_inline
        files.append(put_rows(rows, starts, f"keys-{item.base_offset}", item.scratch, inline=inline))

    secret = np.frombuffer(item.secret, np.uint64)
    scanned: ScanResult | Failed | None = None
    try:
        with opened_for_reading(f"{item.place.stem(item.base_offset)}.log", tree) as descriptor:
            walk = KeyWalk(
                read_into_from(descriptor), item.size, ranges_of(item.aborted), secret, on_rows, TABLE_ROWS,
                NoteTaker(item.note_bytes), aborted_known=item.scan is None, lowest=item.lowest,
            )  # fmt: skip
            if item.scan is None:
                keyless: int | None = walk.run()
            else:
                beside = _KeysBesideScan(walk)
                scanned = scan_beside(item.scan, beside.take)
                whole = isinstance(scanned, ScanResult) and scanned.summary.is_whole
                keyless = beside.end() if whole else None
    except NoScratchError:
        return KeysResult(failure="disk", why=f"{item.place.folder}/{name}: {SCRATCH_NEEDED}", scan=scanned)
    except ContentError as problem:
        return KeysResult(
            position=problem.position, problem=problem.text, beyond_limit=problem.beyond_limit, scan=scanned
        )
    except OSError as error:
        return KeysResult(
            failure="unreadable", why=_position_text(error, f"{item.place.folder}/{name}"), scan=scanned
        )
    if keyless is None:
        return KeysResult(scan=scanned)
    return KeysResult(
        scan=scanned,
        files=tuple(files),
        buckets=buckets.tobytes(),
        keyless=keyless,
        batch_notes=walk.noted,
    )


class _KeysBesideScan:
    """Collector of keys from the windows of a scan. It ends at the first transaction: aborts are not known yet."""

    def __init__(self, walk: KeyWalk) -> None:
        self._walk = walk
        self._ended = False
        self._problem: Exception | None = None
        walk.begin()

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Enter the keys of one window; see ``scan_segment`` for the arguments."""
        del starts, batch_classes
        if self._ended:
            return
        try:
            self._walk.take(window, end)
        except TransactionError:
            self._ended = True
        except (ContentError, OSError, NoScratchError) as problem:
            # Only the keys end here: the scan is not affected, and continues.
            self._problem, self._ended = problem, True

    def end(self) -> int | None:
        """Return the number of records without a key; None if there was a batch of a transaction.

        Raises:
            Exception: the error that occurred on the way.
        """
        if self._problem is not None:
            raise self._problem
        return None if self._ended else self._walk.end()


def _position_text(error: OSError, name: str) -> str:
    return f"{error.filename or name}: {why(error)}"


@shown_as("join")
def join_keys(item: JoinItem) -> JoinResult:
    """Find the last offset of each key in some buckets, over all segments."""
    try:
        table = _join(item, item.files, item.rows)
        offsets = _offsets_in(table)
        held: Int64s = np.empty(len(offsets) if item.elsewhere else 0, np.int64)
        if item.elsewhere:
            others = _join(item, item.elsewhere, item.elsewhere_rows)
            held = np.sort(held[: k.held_offsets(table, others, held)])
        kept = _offset_file(item, "stays", offsets)
        return JoinResult(
            offsets=kept, keys=len(offsets), protected_tombstones=_offset_file(item, "held", held)
        )
    except NoScratchError:
        return JoinResult(failure="disk", why=f"{item.place.folder}: {SCRATCH_NEEDED}")
    except OSError as error:
        return JoinResult(failure="disk", why=_position_text(error, item.scratch))


def _join(item: JoinItem, files: Sequence[RowFile], rows: int) -> Rows:
    """Join the rows of some buckets in one table, with the greatest offset of each hash."""
    size = 1 << 10
    while size < 2 * rows:
        size *= 2
    table: Rows = np.zeros((size, k.ROW_WORDS), np.uint64)
    state = np.zeros(k.STATE_SIZE, np.int64)
    for file in files:
        k.merge_rows(file.rows(item.first_bucket, item.after_bucket), table, state)
    return table


def _offsets_in(table: Rows) -> Int64s:
    """Return the offsets in a table, ascending. If they are dense, marking takes a quarter of the time of a sort."""
    numbers = table[:, 2]
    offsets: Int64s = numbers[numbers != 0].view(np.int64)
    offsets -= 1
    first, last = (int(offsets.min()), int(offsets.max())) if len(offsets) else (0, 0)
    if last - first >= _CLOSE * len(offsets):
        offsets.sort()
        return offsets
    offsets -= first
    marks = np.zeros(last - first + 1, np.bool_)
    marks[offsets] = True
    ascending: Int64s = np.flatnonzero(marks)
    ascending += first
    return ascending


def _offset_file(item: JoinItem, name: str, offsets: Int64s) -> OffsetFile:
    """Store offsets in memory, or in the scratch folder."""
    if len(offsets) <= item.offsets_inline:
        return OffsetFile(data=offsets.tobytes())
    if not item.scratch:
        raise NoScratchError
    return OffsetFile(path=write_scratch(item.scratch, f"{name}-{item.first_bucket}", (offsets,)))


@shown_as("records")
@with_log_dir_as(CompactResult)
def compact(item: CompactItem, tree: Tree) -> CompactResult:
    """Compute one segment as compaction leaves it: exact sizes, digests, and the input of the rules of markers."""
    try:
        with _open_log(item, tree) as read_into:
            stay = stay_rules_of(item)
            log = CompactedLog(read_into, item.size, stay, item.batch_notes, sums=False)
            entries = sound_entries(item.place, item.base_offset, tree).data
            inputs = _inputs(item, entries)
            summary = scan_segment(inputs, log.read_into)
    except (ContentError, OffsetSetError, OSError) as problem:
        return CompactResult(**_failure(item, problem))
    encoded = packed(stay.offsets, item.base_offset) if _has_room(item, stay) else None
    if encoded is not None and len(encoded) > item.max_encoded_bytes:
        encoded = None
    return replace(_scan_as_compacted(item, entries, log, summary)[0], encoded_offsets=encoded)


def _has_room(item: CompactItem, stay: StayRules) -> bool:
    return item.max_encoded_bytes > 0 and len(stay.offsets) <= MOST_OFFSETS


@shown_as("stage")
def stage_compacted(item: CompactStageItem) -> CompactStageResult:
    """Write the kept part of one segment into the new log, and verify it; all decisions must equal the plan's.

    The CRC of every batch and the digest of the headers are checked on the same bytes that are written and proven.
    """
    tree, wrong = open_log_dir(item.compact.place)
    if wrong:
        return CompactStageResult(failure="elsewhere", why=wrong)
    proof = SourceProof(item.check, tree) if item.check else None
    try:
        result, source, copy = _stage(item, tree, proof)
    except (ContentError, OffsetSetError, OSError) as problem:
        return CompactStageResult(**_failure(item.compact, problem))
    if source.summary.headers != item.compact.source_headers or not source.summary.is_whole:
        why = f"{_name(item.compact)}{not_as_planned(source.summary)}"
        return CompactStageResult(failure="changed", why=why)
    return CompactStageResult(
        **asdict(result),
        written_crc=copy.crc,
        checked=proof.end() if proof else None,
        source=source,
    )


def _stage(
    item: CompactStageItem, tree: Tree, proof: SourceProof | None
) -> tuple[CompactResult, ScanResult, ProvenBytes]:
    """Write the kept part of a source; return its result, the scan of the source, and the writer.

    Raises:
        ContentError: a batch cannot be read.
        OffsetSetError: the offsets in the plan are not a valid set.
        OSError: a file cannot be read or written.
    """
    compact = item.compact
    entries, damage, unknown = sound_entries(compact.place, compact.base_offset, tree)
    inputs = _inputs(compact, entries)
    with _open_log(compact, tree) as read_into:
        source = WholeWindows(
            ScanInputs(
                compact.base_offset,
                compact.size,
                compact.now_ms,
                compact.high_watermark,
                entries=inputs.entries,
            ),
            read_into,
        )
        log = CompactedLog(read_into, compact.size, stay_rules_of(compact))
        copy = ProvenBytes(item, log.read_into, RealDisk(tree), proof, source)
        log.on_source = copy.take_source
        inputs = replace(
            inputs,
            carried=np.array(item.source.carried_open, np.int64),
            keep_positions=np.array(item.source.keep_positions, np.int64),
            last_position=item.source.last_position,
        )
        try:
            summary = scan_segment(inputs, log.read_into, on_window=copy.hold_kept)
        finally:
            log.on_source = None  # breaks a reference cycle, which would keep large buffers alive
        copy.finish()
    result, summary = _scan_as_compacted(compact, entries, log, summary)
    if not result.failure:
        kind, text = _stage_problem(item, summary)
        result = replace(result, failure=kind, why=f"{_name(compact)}: {text}" if kind else "")
    scan = ScanResult(summary=source.summary(), entries=entries, txn_damage=damage, txn_unknown=unknown)
    return result, scan, copy


def _name(item: CompactItem) -> str:
    return f"{item.place.folder}/{log_name(item.base_offset)}"


def _failure(item: CompactItem, problem: ContentError | OffsetSetError | OSError) -> dict[str, Any]:
    if isinstance(problem, OffsetSetError):
        return {"failure": "changed", "why": f"{_name(item)}: which of its records stay: {problem}"}
    if isinstance(problem, ContentError):
        return {
            "position": problem.position,
            "problem": problem.text,
            "beyond_limit": problem.beyond_limit,
        }
    if isinstance(problem, WritingError):
        return {"failure": "disk", "why": f"{problem.filename}: {why(problem)}"}
    return {"failure": "unreadable", "why": _position_text(problem, _name(item))}


@contextlib.contextmanager
def _open_log(item: CompactItem, tree: Tree) -> Iterator[ReadInto]:
    with opened_for_reading(f"{item.place.stem(item.base_offset)}.log", tree) as descriptor:
        yield read_into_from(descriptor)


def _inputs(item: CompactItem, entries: bytes) -> ScanInputs:
    """Build the inputs for the scan of a compacted log, with the entries of its transaction index."""
    return ScanInputs(
        base_offset=item.base_offset,
        file_size=_ANY_SIZE,
        now_ms=item.now_ms,
        high_watermark=item.high_watermark,
        check_crc=False,
        digests_crc=False,
        entries=entry_pairs(entries),
        protected=pairs(item.protected),
        held=np.frombuffer(item.held_markers, np.int64).copy(),
    )


def _scan_as_compacted(
    item: CompactItem, entries: bytes, log: CompactedLog, summary: SegmentSummary
) -> tuple[CompactResult, SegmentSummary]:
    """Return the facts of a segment as compaction leaves it, and the scan of the compacted stream."""
    if summary.valid_bytes != log.size:
        text = f"the compacted log is not valid at position {summary.valid_bytes}: {summary.damage_text}"
        return CompactResult(failure="verify", why=f"{_name(item)}: {text}"), summary
    # The scan does not know where the stream ends, so it reports the end as a torn batch.
    summary = replace(summary, file_size=log.size, damage=0, damage_text="")
    return CompactResult(summary=summary, entries=entries, tallies=log.tallies.tobytes()), summary


def _stage_problem(item: CompactStageItem, summary: SegmentSummary) -> tuple[FailureKind, str]:
    if summary.headers != item.headers:
        return "changed", "its records differ from those that the plan was made from"
    return not_as_decided(summary, item.source)


def stay_rules_of(item: CompactItem) -> StayRules:
    """Build the rules that decide which records of a segment are kept.

    Raises:
        OSError: a file of the scratch folder cannot be read.
        OffsetSetError: the offsets in a plan are not a valid set.
    """
    return StayRules(
        offsets=offsets_between(item.latest_offsets, item.base_offset, item.next_base),
        aborted=ranges_of(item.aborted),
        now_ms=item.now_ms,
        drop_unstamped=item.drop_unstamped,
        keyless=item.keyless,
        drop_stamped=not item.keeps_all,
        held=offsets_between(item.protected_tombstones, item.base_offset, item.next_base),
    )


def offsets_between(files: Sequence[OffsetFile], first: int, after: int) -> Int64s:
    """Collect from files of offsets the offsets that lie in a segment, ascending.

    Raises:
        OSError: a file cannot be read.
        OffsetSetError: encoded offsets are not a valid set.
    """
    parts: list[Int64s] = []
    for file in files:
        if file.path and os.path.getsize(file.path) == 0:
            continue
        if file.encoded:
            every: Any = unpacked(file.encoded, first)
        else:
            every = np.memmap(file.path, np.int64, "r") if file.path else np.frombuffer(file.data, np.int64)
        start, end = np.searchsorted(every, [first, after])
        parts.append(np.array(every[start:end]))
    offsets: Int64s = np.concatenate(parts) if parts else np.empty(0, np.int64)
    if len(parts) > 1:
        offsets.sort()
    return offsets
