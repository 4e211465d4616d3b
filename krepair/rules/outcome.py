"""What the rules decided, in the form in which a plan records it. Plain data, and cheap to import: no numpy."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType


class ReasonTally(Struct, frozen=True, kw_only=True):
    """How many batches one reason covers.

    Attributes:
        reason: code, see ``krepair.rules.reasons``.
        batches: how many.
        bytes: their size before the change.
    """

    reason: str
    batches: int
    bytes: int


class CompactedSource(Struct, frozen=True, kw_only=True):
    """What key compaction takes out of a source before the rules of markers see it.

    Attributes:
        file_bytes: size of the ``.log``.
        records: data records in it, those within a wrapper of v0 or v1 counted one by one.
        kept: of them, those that stay.
        headers: digest of the compacted stream, as of a ``.log``: over each batch's position and header, which holds
            its CRC.
        forced: offset of a record that stays only as the last of its group, -1 none.
        superseded: records that go since a later one of their key stays.
        tombstones: tombstones that go.
        aborted: records of aborted transactions, that go.
        keyless: records without a key; they stay.
        emptied: batches that lose all of their records; in the stream they are headers without records.
    """

    file_bytes: int
    records: int
    kept: int
    headers: str
    forced: int
    superseded: int
    tombstones: int
    aborted: int
    keyless: int
    emptied: int

    @property
    def gone(self) -> int:
        """Records that go."""
        return self.superseded + self.tombstones + self.aborted


class SourceSegment(Struct, frozen=True, kw_only=True):
    """One segment that a change reads, and the decisions for it.

    Where records go by key, a segment is first read without them, as a stream. Sizes, counts and positions are then
    those of the stream; the size of the file is in ``compacted``.

    Attributes:
        base_offset: its base offset.
        log_bytes: size of its ``.log``.
        batches: batches in it.
        kept_bytes: bytes that its kept batches take in the new ``.log``.
        kept_batches: batches of it in the new ``.log`` (an emptied one counts).
        kept_records: records in them, markers not counted.
        kept_markers: commit and abort markers in them.
        reasons: tallies by reason, in the order of ``Reason``.
        drop_unstamped: whether the delete horizon has passed for markers without a stamp.
        carried_open: producer ids that have a kept batch of their open transaction in an earlier segment, ascending.
        keep_positions: positions of emptied batches that stay for an active producer, ascending.
        protected: (producer id, epoch) whose markers stay, ascending.
        last_position: position of the batch that is kept, as the last one, although its reason removes it; else -1.
        decisions: digest of the class of every batch, 16 hex digits.
        aborted_kept: indexes of the entries of its ``.txnindex`` that are carried over, ascending.
        compacted: what goes by key; left out where only markers and emptied batches go.
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
    carried_open: tuple[int, ...]
    keep_positions: tuple[int, ...]
    protected: tuple[tuple[int, int], ...]
    last_position: int
    decisions: str
    aborted_kept: tuple[int, ...]
    compacted: CompactedSource | UnsetType = UNSET

    @property
    def by_key(self) -> CompactedSource | None:
        """What goes by key, None if only markers and emptied batches go."""
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


class HorizonChoice(Struct, frozen=True, kw_only=True):
    """What one choice of the delete horizon would give. For the reader only; it does not bind apply.

    Attributes:
        name: ``next-pass``, ``newest``, ``TIME`` or ``unlimited``.
        horizon_ms: epoch milliseconds; markers of segments last modified at or before it may be removed.
        log_bytes_after: bytes of ``.log`` left in the span.
        markers_dropped: how many markers would be removed.
        chosen: whether the plan uses it.
    """

    name: str
    horizon_ms: int
    log_bytes_after: int
    markers_dropped: int
    chosen: bool


class TombstoneHorizon(Struct, frozen=True):
    """What one choice of the delete horizon would do to tombstones. For the reader only; it does not bind apply.

    Attributes:
        name: as of ``HorizonChoice``.
        horizon_ms: epoch milliseconds.
        dropped: tombstones that would go.
        dropped_bytes: of those without a stamp, uncompressed.
        kept: tombstones that would stay.
        chosen: whether the plan takes it.
    """

    name: str
    horizon_ms: int
    dropped: int
    dropped_bytes: int
    kept: int
    chosen: bool


class KindOfRecord(Struct, frozen=True, kw_only=True):
    """What goes of one kind of record of ``__consumer_offsets``. For the reader only.

    Attributes:
        kind: name and version of its key, ``without key`` or ``unknown``.
        records: below the bound.
        kept: of them, those that stay.
        superseded: that go since a later one of their key stays.
        tombstones_dropped: last of their key, past their horizon: they go.
        tombstones_kept: last of their key; they stay.
        aborted: of aborted transactions; they go.
        bytes_before: of the records, uncompressed.
        bytes_after: of those that stay.
    """

    kind: str
    records: int
    kept: int
    superseded: int
    tombstones_dropped: int
    tombstones_kept: int
    aborted: int
    bytes_before: int
    bytes_after: int


class GroupBytes(Struct, frozen=True, kw_only=True):
    """What goes of one group in ``__consumer_offsets``. For the reader only.

    Attributes:
        group: its id.
        records: of all kinds below the bound.
        kept: of them, those that stay.
        bytes_before: of the records, uncompressed.
        bytes_after: of those that stay.
    """

    group: str
    records: int
    kept: int
    bytes_before: int
    bytes_after: int


class KeyCompaction(Struct, frozen=True, kw_only=True):
    """What key compaction makes of one partition below the bound, changed segments and others together.

    Attributes:
        records: data records below the bound.
        kept: of them, those that stay.
        superseded: that go since a later one of their key stays.
        tombstones_dropped: last of their key, past their horizon: they go.
        tombstones_kept: last of their key; they stay.
        aborted: of aborted transactions; they go.
        keyless: without a key; they stay, a broker's cleaner would drop them.
        keys: distinct ones.
        rewritten: batches that lose some of their records.
        emptied: batches that lose all of them.
        old_gone: messages of v0 and v1, plain or wrapping others, of which nothing stays.
        forced: (base offset, offset) of records that stay only so that their segment keeps a batch, ascending.
        bytes_before: of the ``.log`` files below the bound.
        bytes_after: of them afterwards.
        scratch_bytes: what a scratch folder may have to hold during plan, apply or verify, at most.
        horizons: what each choice would do to tombstones (reader only).
        kinds: of ``__consumer_offsets`` the same by kind of record (reader only).
        groups: of ``__consumer_offsets`` the groups with most bytes, the largest first (reader only).
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
    old_gone: int
    forced: tuple[tuple[int, int], ...]
    bytes_before: int
    bytes_after: int
    scratch_bytes: int
    horizons: tuple[TombstoneHorizon, ...]
    kinds: tuple[KindOfRecord, ...] = ()
    groups: tuple[GroupBytes, ...] = ()

    @property
    def gone(self) -> int:
        """Records that go."""
        return self.superseded + self.tombstones_dropped + self.aborted
