"""What the rules decided, in the form in which a plan records it. Plain data, and cheap to import: no numpy."""

from __future__ import annotations

from msgspec import Struct


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


class SourceSegment(Struct, frozen=True, kw_only=True):
    """One segment that a change reads, and the decisions for it.

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

    @property
    def changes(self) -> bool:
        """Whether a batch is removed or emptied."""
        return self.kept_bytes != self.log_bytes


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
