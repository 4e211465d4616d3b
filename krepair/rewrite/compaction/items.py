"""Work items and results of the tasks of key compaction (``compaction.tasks`` and ``compaction.check``).

Items and results travel between driver and workers, so they are small: hashes of keys travel only if they are few,
records never.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from krepair.derive.transactions import A_FIRST, A_MARKER
from krepair.engine.items import Failed, Outcome, Place, ScanItem, ScanResult
from krepair.formats.arrays import Int64s
from krepair.kernels.scan import SegmentSummary
from krepair.plan.model import SourceSegment
from krepair.rewrite.compaction.headers import NO_NOTES, BatchNotes
from krepair.rewrite.compaction.rows import ROW_BYTES, RowFile


class Result(Outcome, frozen=True, kw_only=True):
    """Common part of the results.

    Attributes:
        position: position of a batch that compaction cannot read, -1 if there is none.
        problem: what is wrong at that position.
        beyond_limit: True if the batch has a record that is too large for krepair, though not for Kafka's cleaner.
    """

    position: int = -1
    problem: str = ""
    beyond_limit: bool = False


class KeysItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that finds the keys of one segment.

    Attributes:
        size: size of the ``.log`` in bytes.
        aborted: int64[N, 3], aborted transactions that may touch the segment, see ``find_aborted``.
        secret: 16 bytes, key of the hash.
        rows_inline: largest number of rows in the result; if there are more, they are written to the scratch folder.
        scratch: path of the scratch folder, empty if there is none.
        scan: scan to make in the same reading of the log, when aborted transactions are not known yet. If the segment
            then has batches of transactions, the task finds no keys; None for no scan.
        note_bytes: limit of the notes in bytes, see ``compaction.headers``; 0 for no notes.
        lowest: True if rows hold the lowest offset of each key, see ``kernels.compact_keys.LARGEST``.
    """

    place: Place
    base_offset: int
    size: int
    aborted: bytes
    secret: bytes
    rows_inline: int
    scratch: str
    scan: ScanItem | None = None
    note_bytes: int = 0
    lowest: bool = False

    @property
    def bytes_to_read(self) -> int:
        """Size of the log in bytes."""
        return self.size


class KeysResult(Result, frozen=True, kw_only=True):
    """Keys of one segment.

    Attributes:
        files: rows of keys, one file for each table.
        buckets: int64[BUCKETS], number of rows in each bucket over all files.
        keyless: number of committed data records without a key.
        scan: result of the scan, if one was requested.
        batch_notes: notes on the batches.
    """

    files: tuple[RowFile, ...] = ()
    buckets: bytes = b""
    keyless: int = 0
    scan: ScanResult | Failed | None = None
    batch_notes: BatchNotes = NO_NOTES

    @property
    def searched(self) -> bool:
        """True if the task has searched for keys; it may have met a problem."""
        return bool(self.buckets or self.failure or self.problem)


class JoinItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that joins the rows of some buckets of one partition: the last offset of each key.

    Attributes:
        files: rows of all segments.
        first_bucket: first of the joined buckets.
        after_bucket: bucket after the last joined one.
        rows: number of rows in these buckets.
        offsets_inline: largest number of offsets in the result; if there are more, they are written to the scratch
            folder.
        scratch: path of the scratch folder, empty if there is none.
        elsewhere: rows of records that are kept although they are not the last of their key, here or in other replicas,
            with the lowest offset of each key, see ``compact_keys.LARGEST``.
        elsewhere_rows: number of those rows in these buckets.
    """

    place: Place
    files: tuple[RowFile, ...]
    first_bucket: int
    after_bucket: int
    rows: int
    offsets_inline: int
    scratch: str
    elsewhere: tuple[RowFile, ...] = ()
    elsewhere_rows: int = 0

    @property
    def bytes_to_read(self) -> int:
        """Size of the rows in bytes."""
        return self.rows * ROW_BYTES


class OffsetFile(Struct, frozen=True, kw_only=True):
    """Offsets, int64[N] ascending, in memory or in a file.

    Attributes:
        path: path of the file in the scratch folder; empty if ``data`` or ``encoded`` holds them.
        data: bytes of the offsets.
        encoded: encoded offsets of one segment, see ``krepair.formats.offset_set``.
    """

    path: str = ""
    data: bytes = b""
    encoded: bytes = b""


class JoinResult(Result, frozen=True, kw_only=True):
    """Last offset of each key in some buckets.

    Attributes:
        offsets: last offsets of the keys.
        keys: number of keys.
        protected_tombstones: last offset of each key of which an older record is kept elsewhere; a tombstone at that
            offset must be kept too.
    """

    offsets: OffsetFile = OffsetFile()
    keys: int = 0
    protected_tombstones: OffsetFile = OffsetFile()


class CompactItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that computes one compacted segment, and scans the result for the rules of markers.

    Attributes:
        next_base: base offset of the following segment.
        size: size of the ``.log`` in bytes.
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        high_watermark: first offset that is not replicated yet, see ``ScanInputs``.
        protected: sorted (producer id, epoch) whose markers are kept.
        drop_unstamped: True if tombstones without a delete horizon in their batch are old enough to be removed.
        aborted: int64[N, 3], aborted transactions that may touch the segment, see ``find_aborted``.
        latest_offsets: offsets of the last record of each key; they may include those of other segments.
        keyless: True if there are records without a key.
        batch_notes: notes from ``KeysResult``; batches for which they suffice are not read.
        keeps_all: True if transaction markers and tombstones are kept whatever their age.
        protected_tombstones: offsets of tombstones that are kept whatever their age; they may include those of other
            segments.
        held_markers: int64[H], ascending offsets of transaction markers that are kept for other replicas.
        source_headers: digest of the log's headers in the plan, if the segment is to be rewritten; else empty.
        max_encoded_bytes: largest size in bytes of the encoded ``latest_offsets`` in the result; 0 if they are not
            wanted.
    """

    place: Place
    base_offset: int
    next_base: int
    size: int
    now_ms: int
    high_watermark: int
    protected: tuple[tuple[int, int], ...]
    drop_unstamped: bool
    aborted: bytes
    latest_offsets: tuple[OffsetFile, ...]
    keyless: bool = True
    batch_notes: BatchNotes = NO_NOTES
    keeps_all: bool = False
    protected_tombstones: tuple[OffsetFile, ...] = ()
    held_markers: bytes = b""
    source_headers: str = ""
    max_encoded_bytes: int = 0

    @property
    def bytes_to_read(self) -> int:
        """Size of the log in bytes."""
        return self.size


class CompactResult(Result, frozen=True, kw_only=True):
    """Facts about one segment after key compaction.

    Attributes:
        summary: summary of the scan of the compacted segment; None on failure.
        entries: content of the ``.txnindex``.
        tallies: int64[TALLY_COUNT], see ``compact_filter``.
        encoded_offsets: encoded offsets of the last record of each key; None if not requested, or too large.
    """

    summary: SegmentSummary | None = None
    entries: bytes = b""
    tallies: bytes = b""
    encoded_offsets: bytes | None = None


def ranges_of(data: bytes) -> Int64s:
    """View the result of ``find_aborted`` as int64[N, 3], columns ``A_PRODUCER``, ``A_FIRST``, ``A_MARKER``."""
    return np.frombuffer(data, np.int64).reshape(-1, 3)


def touching(ranges: Int64s, first: int, after: int) -> bytes:
    """Return the bytes of the aborted ranges that touch offsets from ``first`` to before ``after``."""
    touches: Any = (ranges[:, A_FIRST] < after) & (ranges[:, A_MARKER] >= first)
    return np.ascontiguousarray(ranges[touches]).tobytes()


class CheckedSource(Struct, frozen=True, kw_only=True):
    """One source of a group.

    Attributes:
        path: absolute path of the ``.log`` at present.
        size: size of the ``.log`` in bytes.
        horizon_passed: True if tombstones without a delete horizon in their batch may be removed.
    """

    base_offset: int
    path: str
    size: int
    horizon_passed: bool


class CheckItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that compares one new segment with its sources.

    Attributes:
        sources: sources of the group, ascending.
        result: absolute path of the new ``.log``; of the present one for a segment that does not change.
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        aborted: aborted transactions, see ``compaction.tasks.find_aborted``.
        transactions: True if there may be transactions; if False, a transactional batch is an error.
        elsewhere: True if the sources are logs of another replica, whose records only show which tombstones to keep.
        points: 16 random bytes of this verification, with which it hashes keys.
        rows_inline: largest number of rows in the result.
        scratch: path of the scratch folder, empty if there is none.
    """

    place: Place
    sources: tuple[CheckedSource, ...]
    result: str
    now_ms: int
    aborted: bytes
    points: bytes
    rows_inline: int
    scratch: str
    transactions: bool = True
    elsewhere: bool = False

    @property
    def bytes_to_read(self) -> int:
        """Size of the sources in bytes; the new log, which is at most as large, is not counted."""
        return sum(source.size for source in self.sources)


class CheckResult(Struct, frozen=True, kw_only=True):
    """Result of a group whose new log matches its sources; its keys are checked later.

    Attributes:
        rows: rows for the join.
        records: number of records in the sources.
        kept: number of records in the result.
    """

    rows: tuple[RowFile, ...] = ()
    records: int = 0
    kept: int = 0


class CompactStageItem(Struct, frozen=True, kw_only=True):
    """Arguments of the task that writes the kept part of one segment into the new ``.log``.

    Attributes:
        compact: item that reads the segment.
        target: absolute path of the new ``.log``; several tasks write into it, each its own bytes.
        out_position: byte of the new log at which this segment's part starts.
        source: decisions of the plan for the segment; positions are in the compacted stream.
        headers: digest of the compacted stream in the plan.
        check: item that verifies the source while it is written; None if it is verified later.
    """

    compact: CompactItem
    target: str
    out_position: int
    source: SourceSegment
    headers: str
    check: CheckItem | None = None

    @property
    def bytes_to_read(self) -> int:
        """Size of the source in bytes."""
        return self.compact.bytes_to_read


class CompactStageResult(CompactResult, frozen=True, kw_only=True):
    """Result of writing one source segment into a new log.

    Attributes:
        written_crc: CRC-32C over the headers of the written batches, see ``krepair.checks.parts``.
        checked: result of the verification; None if the files still have to be read for it.
        source: scan of the source, including all its CRCs.
    """

    written_crc: int = 0
    checked: CheckResult | Failed | None = None
    source: ScanResult | None = None
