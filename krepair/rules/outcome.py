"""The decisions of the rules, in the form in which a plan records them. Plain data without numpy, so it loads fast."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class ReasonTally(Struct, frozen=True, kw_only=True):
    """Number of batches with one reason.

    Attributes:
        reason: code of the reason, see ``krepair.rules.reasons``.
        batches: number of batches.
        bytes: their bytes before the change.
    """

    reason: str
    batches: int
    bytes: int


class CompactedSource(Struct, frozen=True, kw_only=True):
    """What key compaction removes from a source before the rules of markers are used.

    Attributes:
        file_bytes: size of the ``.log``.
        records: number of data records in it.
        kept: number of records that stay.
        headers: digest of the compacted stream: position and header of each batch, without the CRCs. The bytes of its
            records are held against the source by the proof.
        superseded: number of records that go, because a later record of their key is there.
        tombstones: number of tombstones that go.
        aborted: number of records that go, because their transaction was aborted.
        keyless: number of records without a key, which stay.
        emptied: number of batches that lose all of their records. In the stream only their headers are left.
        stays: offsets of the last record of each key in it, in base64, see ``krepair.formats.offset_set``; by them
            ``apply`` writes the segment anew, and the proof holds that against the source. Absent where ``apply`` finds
            the keys itself: where there are transactions, other replicas, or more offsets than have room in a plan.
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
        """Records that go."""
        return self.superseded + self.tombstones + self.aborted


class SourceSegment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One segment that a change reads, and the decisions for it.

    With key compaction, the records that go are first taken out of the segment, which gives a stream. Sizes, counts and
    positions are then those of the stream. The size of the file is in ``compacted``.

    Attributes:
        base_offset: its base offset.
        log_bytes: size of its ``.log``.
        batches: number of batches in it.
        kept_bytes: bytes of its kept batches in the new ``.log``.
        kept_batches: number of its batches in the new ``.log``, with emptied ones.
        kept_records: number of records in them, without markers.
        kept_markers: number of commit and abort markers in them.
        reasons: tallies by reason, in the order of ``Reason``.
        drop_unstamped: whether the delete horizon is past for markers without a stamp.
        carried_open: ascending ids of producers that have a kept batch of their open transaction in an earlier segment.
        keep_positions: ascending positions of emptied batches that stay for an active producer.
        protected: ascending pairs (producer id, epoch) whose markers stay.
        last_position: position of the batch that is kept only because it is the last one, -1 none.
        decisions: digest of the class of every batch, 16 hex digits.
        aborted_kept: ascending indexes of the entries of its ``.txnindex`` that stay.
        compacted: what key compaction removes; absent if only markers and emptied batches go.
        keeps_all: whether markers and tombstones stay whatever their time, for other replicas; absent in plans of
            versions that did not ask for other replicas.
        held_markers: ascending offsets of the markers that stay because another replica has a batch of their
            transaction; absent if there are none.
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
        """Whether markers and tombstones stay whatever their time."""
        return self.keeps_all is True

    @property
    def held(self) -> tuple[int, ...]:
        """Offsets of markers that stay because another replica has a batch of their transaction."""
        return () if isinstance(self.held_markers, UnsetType) else self.held_markers

    @property
    def by_key(self) -> CompactedSource | None:
        """What key compaction removes, None if only markers and emptied batches go."""
        return None if isinstance(self.compacted, UnsetType) else self.compacted

    @property
    def file_bytes(self) -> int:
        """Size of its ``.log``."""
        return self.log_bytes if self.by_key is None else self.by_key.file_bytes

    @property
    def changes(self) -> bool:
        """Whether a record goes, or a batch is removed or emptied."""
        gone = 0 if self.by_key is None else self.by_key.gone
        return gone > 0 or self.kept_bytes != self.log_bytes


class HorizonChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one choice of the delete horizon. It is only for the reader; apply does not use it.

    Attributes:
        name: ``none`` (markers and tombstones stay), ``next-pass``, ``newest``, ``TIME`` or ``unlimited``.
        horizon_ms: epoch milliseconds. In segments with this or an earlier mtime, markers may be removed.
        log_bytes_after: bytes of ``.log`` that would be left in the span.
        markers_dropped: number of markers that would be removed.
        chosen: whether the plan uses it.
    """

    name: str
    horizon_ms: int
    log_bytes_after: int
    markers_dropped: int = 0
    chosen: bool = False


class TombstoneHorizon(Struct, frozen=True):
    """The result of one choice of the delete horizon for tombstones. It is only for the reader; apply does not use it.

    Attributes:
        name: see ``HorizonChoice``.
        horizon_ms: epoch milliseconds.
        dropped: number of tombstones that would be removed.
        dropped_bytes: uncompressed bytes of these.
        kept: number of tombstones that would stay.
        chosen: whether the plan uses it.
    """

    name: str
    horizon_ms: int
    dropped: int
    dropped_bytes: int
    kept: int
    chosen: bool


class KeyCompaction(Struct, frozen=True, kw_only=True):
    """The result of key compaction for one partition below the bound, over all segments, changed or not.

    Attributes:
        records: number of data records below the bound.
        kept: number of records that stay.
        superseded: number of records that go, because a later record of their key is there.
        tombstones_dropped: number of tombstones that are the last of their key and go, because their horizon is past.
        tombstones_kept: number of tombstones that are the last of their key and stay.
        aborted: number of records that go, because their transaction was aborted.
        keyless: number of records without a key. They stay, although a broker's cleaner would remove them.
        keys: number of different keys.
        rewritten: number of batches that lose some of their records.
        emptied: number of batches that lose all of their records.
        bytes_before: bytes of the ``.log`` files below the bound.
        bytes_after: bytes of these files after the change.
        scratch_bytes: largest number of bytes that a scratch folder may have to hold during plan, apply or verify.
        horizons: the result of each choice of the horizon for tombstones (only for the reader).
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
        """Records that go."""
        return self.superseded + self.tombstones_dropped + self.aborted
