"""Work items and results of key compaction: small values; records never travel, hashes only where they are few."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from krepair.engine.items import Failed, Outcome, Place, ScanItem, ScanResult
from krepair.formats.arrays import Int64s
from krepair.kernels.check_compacted import ROW_WORDS
from krepair.kernels.scan import SegmentSummary
from krepair.plan.model import SourceSegment
from krepair.rewrite.compaction.headers import NOTHING_NOTED, Noted
from krepair.rewrite.compaction.rows import ROW_BYTES, RowFile


class Result(Outcome, frozen=True, kw_only=True):
    """What every result can say.

    Attributes:
        position: of the batch whose records compaction cannot take, -1 if there is none.
        problem: what was expected there and found.
    """

    position: int = -1
    problem: str = ""


class KeysItem(Struct, frozen=True, kw_only=True):
    """Find the keys of one segment.

    Attributes:
        place: where.
        base_offset: of the segment.
        size: bytes of its ``.log``.
        aborted: int64[N, 3], see ``find_aborted``, of what may touch the segment.
        secret: 16 bytes, the key of the hash.
        rows_inline: the result holds at most so many rows; more go to the scratch folder.
        scratch: path of the scratch folder, empty if there is none.
        scan: a scan to be made in the same reading of the log, before any transaction is known. Of a segment with
            batches of transactions the keys are not found then.
        note_bytes: see ``compaction.headers``; 0: nothing is noted.
        lowest: whether rows hold the lowest offset of each key, see ``kernels.compact_keys.LARGEST``.
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
        """The log."""
        return self.size


class KeysResult(Result, frozen=True, kw_only=True):
    """The keys of one segment.

    Attributes:
        files: of rows, one for each table.
        buckets: int64[BUCKETS], rows of each bucket over all files.
        keyless: records of committed data without a key.
        scan: the result of the scan, if one was asked for.
        noted: of its batches.
    """

    files: tuple[RowFile, ...] = ()
    buckets: bytes = b""
    keyless: int = 0
    scan: ScanResult | Failed | None = None
    noted: Noted = NOTHING_NOTED

    @property
    def found(self) -> bool:
        """Whether the keys were looked for to the end, with this result or with a problem."""
        return bool(self.buckets or self.failure or self.problem)


class JoinItem(Struct, frozen=True, kw_only=True):
    """Join the rows of some buckets of one partition: of each key the last offset of all.

    Attributes:
        place: where, for the host.
        files: of all segments.
        first_bucket: of those joined.
        after_bucket: after the last of them.
        rows: how many there are in them.
        offsets_inline: the result holds at most so many offsets; more go to the scratch folder.
        scratch: path of the scratch folder, empty if there is none.
        elsewhere: rows of records that stay, here or in other replicas: of each key the lowest offset, see
            ``compact_keys.LARGEST``.
        elsewhere_rows: how many of them there are in these buckets.
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
        """The rows."""
        return self.rows * ROW_BYTES


class OffsetFile(Struct, frozen=True, kw_only=True):
    """Offsets, int64[N] ascending.

    Attributes:
        path: in the scratch folder; empty: ``data`` or ``packed`` holds them.
        data: their bytes.
        packed: those of one segment, see ``krepair.formats.offset_set``.
    """

    path: str = ""
    data: bytes = b""
    packed: bytes = b""


class JoinResult(Result, frozen=True, kw_only=True):
    """The last offset of each key of some buckets.

    Attributes:
        offsets: of them.
        keys: how many.
        held: of those keys of which an older record stays elsewhere.
    """

    offsets: OffsetFile = OffsetFile()
    keys: int = 0
    held: OffsetFile = OffsetFile()


class CompactItem(Struct, frozen=True, kw_only=True):
    """Read one segment as compaction leaves it, and scan that for the rules of markers.

    Attributes:
        place: where.
        base_offset: of the segment.
        next_base: of the following segment.
        size: bytes of its ``.log``.
        now_ms: the clock for stamps.
        high_watermark: see ``ScanInputs``.
        protected: sorted (producer id, epoch) whose markers stay.
        drop_unstamped: whether the horizon has passed for tombstones without a stamp.
        aborted: int64[N, 3], see ``find_aborted``, of what may touch the segment.
        stays: offsets of the last record of each key, of this segment or of more.
        keyless: whether there are records without a key.
        noted: see ``KeysResult``; batches of which that tells enough are not read.
        keeps_all: whether markers and tombstones stay whatever their time.
        held: offsets of tombstones that stay whatever their time, of this segment or of more.
        held_markers: int64[H], ascending offsets of markers that stay for other replicas.
        source_headers: digest of the log's headers, where it is to be written anew.
        most_packed: above 0, the result holds ``stays``, if that is at most so many bytes.
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
    stays: tuple[OffsetFile, ...]
    keyless: bool = True
    noted: Noted = NOTHING_NOTED
    keeps_all: bool = False
    held: tuple[OffsetFile, ...] = ()
    held_markers: bytes = b""
    source_headers: str = ""
    most_packed: int = 0

    @property
    def bytes_to_read(self) -> int:
        """The log."""
        return self.size


class CompactResult(Result, frozen=True, kw_only=True):
    """One segment as compaction leaves it.

    Attributes:
        summary: of the scan; None on failure.
        entries: bytes of the ``.txnindex`` as they were read.
        tallies: int64[TALLY_COUNT], see ``compact_filter``.
        stays: offsets of the last record of each key, packed; None if that was not asked for, or has no room.
    """

    summary: SegmentSummary | None = None
    entries: bytes = b""
    tallies: bytes = b""
    stays: bytes | None = None


def ranges_of(data: bytes) -> Int64s:
    """int64[N, 3] of what ``find_aborted`` gives."""
    return np.frombuffer(data, np.int64).reshape(-1, 3)


def touching(ranges: Int64s, first: int, after: int) -> bytes:
    """The aborted ranges that touch offsets from ``first`` up to before ``after``, as bytes."""
    touches: Any = (ranges[:, 1] < after) & (ranges[:, 2] >= first)
    return np.ascontiguousarray(ranges[touches]).tobytes()


class CheckedSource(Struct, frozen=True, kw_only=True):
    """One source of a group.

    Attributes:
        base_offset: of the segment.
        path: absolute path of its ``.log``, where it is now.
        size: bytes of it.
        horizon_passed: whether tombstones without a stamp may go.
    """

    base_offset: int
    path: str
    size: int
    horizon_passed: bool


class CheckItem(Struct, frozen=True, kw_only=True):
    """Hold one new segment against its sources.

    Attributes:
        place: where.
        sources: of the group, ascending.
        result: absolute path of the new ``.log``; of a segment that does not change its own.
        now_ms: the clock for stamps.
        aborted: see ``compaction.tasks.find_aborted``.
        transactions: whether there may be any; if not, a batch of one is wrong.
        elsewhere: the sources are logs of another replica: their records only hold tombstones back.
        points: 16 bytes, drawn for this verification.
        rows_inline: the result holds at most so many rows.
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
        """The sources; the new log is at most as large, and is not counted."""
        return sum(source.size for source in self.sources)


class CheckResult(Struct, frozen=True, kw_only=True):
    """A group in which nothing is wrong by itself.

    Attributes:
        rows: for the join.
        records: of the sources.
        kept: of the result.
    """

    rows: tuple[RowFile, ...] = ()
    records: int = 0
    kept: int = 0


class CheckJoinItem(Struct, frozen=True, kw_only=True):
    """Judge the keys of some parts of a partition.

    Attributes:
        place: where, for the host.
        rows: of all its groups.
        first: part.
        after: the last of them.
        count: rows in them.
    """

    place: Place
    rows: tuple[RowFile, ...]
    first: int
    after: int
    count: int

    @property
    def bytes_to_read(self) -> int:
        """The rows."""
        return self.count * 8 * ROW_WORDS


class CompactStageItem(Struct, frozen=True, kw_only=True):
    """Write what stays of one segment to its place in the new ``.log``.

    Attributes:
        compact: how the segment is read.
        target: absolute path of the new ``.log``; several tasks write into it, each its own bytes.
        out_position: first byte of this segment's part.
        source: its part of the plan; positions are in the compacted stream.
        headers: digest of the compacted stream that the plan has.
        check: what proves the source beside it; its ``result`` is not read. None: it is proven later.
    """

    compact: CompactItem
    target: str
    out_position: int
    source: SourceSegment
    headers: str
    check: CheckItem | None = None

    @property
    def bytes_to_read(self) -> int:
        """The source."""
        return self.compact.bytes_to_read


class CompactStageResult(CompactResult, frozen=True, kw_only=True):
    """One source of a new log.

    Attributes:
        written_crc: CRC-32C of the fronts of what it gave to the new log, see ``krepair.checks.parts``.
        checked: the result of the proof; None if it was not made, so that the files have to be read for it.
        source: the scan of the source, with all its CRCs.
    """

    written_crc: int = 0
    checked: CheckResult | Failed | None = None
    source: ScanResult | None = None
