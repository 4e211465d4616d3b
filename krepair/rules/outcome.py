"""Decisions of compaction as a plan records them. Plain data without numpy, so that it loads fast."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class ReasonTally(Struct, frozen=True, kw_only=True):
    """Number of batches with one reason.

    Attributes:
        reason: code of the reason, see ``krepair.rules.reasons``.
        batches: number of batches.
        bytes: bytes of these batches before the change.
    """

    reason: str
    batches: int
    bytes: int


class CompactedSource(Struct, frozen=True, kw_only=True):
    """Records that key compaction removes from one source segment; then the rules of markers decide on its batches.

    Attributes:
        file_bytes: size of the ``.log``.
        records: number of data records in the ``.log``.
        kept: number of records that are kept.
        headers: digest over position and header, without the CRC, of each batch of the compacted stream. The bytes of
            the records are compared with the source instead.
        superseded: number of records that are removed because a later record of their key exists.
        tombstones: number of tombstones that are removed.
        aborted: number of records that are removed because their transaction was aborted.
        keyless: number of records without a key, which are kept.
        emptied: number of batches that lose all of their records. The stream keeps only their headers.
        stays: offsets of the last record of each key in the segment, in base64, see ``krepair.formats.offset_set``.
            ``apply`` writes the segment from these offsets, and the proof compares them with the source. Absent if
            ``apply`` has to find the keys itself: with transactions, with other replicas, or if there are more offsets
            than fit in a plan.
    """

    file_bytes: int
    records: int
    kept: int
    headers: str
    superseded: int
    tombstones: int
    aborted: int
    keyless: int
    emptied: int
    stays: str | UnsetType = UNSET

    @property
    def gone(self) -> int:
        """Number of removed records."""
        return self.superseded + self.tombstones + self.aborted


class SourceSegment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One segment that a change reads, and the decisions on its batches.

    If key compaction removes records first, sizes, counts and positions are those of the compacted stream, not of the
    file; ``compacted`` then has the size of the file.

    Attributes:
        base_offset: base offset of the segment.
        log_bytes: size of the ``.log`` in bytes.
        batches: number of batches in the segment.
        kept_bytes: bytes that the segment contributes to the new ``.log``.
        kept_batches: number of its batches in the new ``.log``, including retained empty ones.
        kept_records: number of records in these batches, without markers.
        kept_markers: number of COMMIT and ABORT markers in these batches.
        reasons: tallies by reason, in the order of ``Reason``.
        drop_unstamped: True if markers without a delete horizon in their batch are old enough to be removed.
        carried_open: ascending ids of producers that have a kept batch of their open transaction in an earlier segment.
        keep_positions: ascending positions of empty batches that are kept for an active producer.
        protected: ascending pairs (producer id, epoch) whose markers are kept.
        last_position: position of the batch that is kept only because it is the last one, -1 none.
        decisions: digest of the class of every batch, 16 hex digits.
        aborted_kept: ascending indexes of the entries of the ``.txnindex`` that are kept.
        compacted: what key compaction removes; absent if only markers and empty batches are removed.
        keeps_all: True if transaction markers and tombstones are kept whatever their age, for other replicas; absent in
            plans of versions that did not consider other replicas.
        held_markers: ascending offsets of transaction markers that are kept because another replica has a batch of
            their transaction; absent if there are none.
    """

    base_offset: int
    log_bytes: int
    batches: int
    kept_bytes: int
    kept_batches: int
    kept_records: int
    kept_markers: int
    reasons: tuple[ReasonTally, ...]
    drop_unstamped: bool
    carried_open: tuple[int, ...] = ()
    keep_positions: tuple[int, ...] = ()
    protected: tuple[tuple[int, int], ...] = ()
    last_position: int = -1
    decisions: str
    aborted_kept: tuple[int, ...] = ()
    compacted: CompactedSource | UnsetType = UNSET
    keeps_all: bool | UnsetType = UNSET
    held_markers: tuple[int, ...] | UnsetType = UNSET

    @property
    def keeps(self) -> bool:
        """True if transaction markers and tombstones are kept whatever their age."""
        return self.keeps_all is True

    @property
    def held(self) -> tuple[int, ...]:
        """Offsets of transaction markers that are kept because another replica has a batch of their transaction."""
        return () if isinstance(self.held_markers, UnsetType) else self.held_markers

    @property
    def by_key(self) -> CompactedSource | None:
        """Removals of key compaction, None if only markers and empty batches are removed."""
        return None if isinstance(self.compacted, UnsetType) else self.compacted

    @property
    def file_bytes(self) -> int:
        """Size of the ``.log`` in bytes."""
        return self.log_bytes if self.by_key is None else self.by_key.file_bytes

    @property
    def changes(self) -> bool:
        """True if a record is removed, or a batch is removed or emptied."""
        gone = 0 if self.by_key is None else self.by_key.gone
        return gone > 0 or self.kept_bytes != self.log_bytes


class HorizonChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one choice of the delete horizon, only for the reader; apply does not use it.

    Attributes:
        name: ``none`` (markers and tombstones are kept), ``next-pass``, ``newest``, ``TIME`` or ``unlimited``.
        horizon_ms: delete horizon in epoch milliseconds. Transaction markers in segments with this or an earlier mtime
            may be removed.
        log_bytes_after: bytes of ``.log`` that would remain in the cleanable range.
        markers_dropped: number of markers that would be removed.
        chosen: True if the plan uses this choice.
    """

    name: str
    horizon_ms: int
    log_bytes_after: int
    markers_dropped: int = 0
    chosen: bool = False


class TombstoneHorizon(Struct, frozen=True):
    """Result of one choice of the delete horizon for tombstones, only for the reader; apply does not use it.

    Attributes:
        name: name of the choice, see ``HorizonChoice``.
        horizon_ms: delete horizon in epoch milliseconds.
        dropped: number of tombstones that would be removed.
        dropped_bytes: uncompressed bytes of these tombstones.
        kept: number of tombstones that would be kept.
        chosen: True if the plan uses this choice.
    """

    name: str
    horizon_ms: int
    dropped: int
    dropped_bytes: int
    kept: int
    chosen: bool


class KeyCompaction(Struct, frozen=True, kw_only=True):
    """Result of key compaction for one partition in the compaction range, over all segments, changed or not.

    Attributes:
        records: number of data records in the range.
        kept: number of records that are kept.
        superseded: number of records that are removed because a later record of their key exists.
        tombstones_dropped: number of removed tombstones: the last of their key, and past their delete horizon.
        tombstones_kept: number of kept tombstones that are the last of their key.
        aborted: number of records that are removed because their transaction was aborted.
        keyless: number of records without a key, which are kept although a broker's cleaner would remove them.
        keys: number of different keys.
        rewritten: number of batches that lose some of their records.
        emptied: number of batches that lose all of their records.
        bytes_before: bytes of the ``.log`` files in the range.
        bytes_after: bytes of these files after the change.
        scratch_bytes: largest number of bytes that a scratch folder may have to hold during plan, apply or verify.
        horizons: result of each choice of the horizon for tombstones (only for the reader).
    """

    records: int
    kept: int
    superseded: int
    tombstones_dropped: int
    tombstones_kept: int
    aborted: int
    keyless: int
    keys: int
    rewritten: int
    emptied: int
    bytes_before: int
    bytes_after: int
    scratch_bytes: int
    horizons: tuple[TombstoneHorizon, ...]

    @property
    def gone(self) -> int:
        """Number of removed records."""
        return self.superseded + self.tombstones_dropped + self.aborted
