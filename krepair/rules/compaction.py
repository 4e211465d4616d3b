"""Decisions of key compaction that need no record: the compaction range, and the counts that a plan shows.

Which records are kept is decided while a segment is read (``krepair.kernels.compact_filter``). The remaining batches
are then scanned like a log, and ``rules.markers`` decides on their empty batches and transaction markers. So compacting
twice changes nothing more if ``markers`` finds nothing to change in the compacted segments.

Source: LogCleanerManager.cleanableOffsets, Cleaner.shouldRetainRecord (2.2.1, 2.8, 3.9, 4.3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import structs

from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.formats.java_numbers import LARGEST_FILE_BYTES
from krepair.kernels import classes as c
from krepair.kernels import compact_filter as f
from krepair.kernels.scan import SegmentSummary
from krepair.rules import cleanable_range as cleanable_ranges
from krepair.rules.model import CleanableRange, MarkerPolicy, PartitionDecision, SegmentFacts, Skipped
from krepair.rules.outcome import TombstoneHorizon
from krepair.rules.producers import needs_of, states_of, undecidable


def secret_of(fingerprints: Iterable[str]) -> bytes:
    """Derive the secret of the key hash, 16 bytes, from the planned files.

    A producer of records cannot predict the secret, so nobody can choose keys whose hashes collide.

    Args:
        fingerprints: fingerprints of the planned files, in order. They contain times.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"krepair compact")
    for fingerprint in fingerprints:
        digest.update(fingerprint.encode() + b"\0")
    return digest.digest()


@dataclass(frozen=True)
class CompactionRange:
    """Compaction range of a partition, determined before any key is read.

    Attributes:
        cleanable: cleanable range of offsets.
        protected: sorted pairs (producer id, epoch) whose transaction markers are kept.
        drop_unstamped: for each segment in range, True if tombstones and markers without a delete horizon may be
            removed.
        transactions: True if the log has any transaction markers; data may be aborted then.
    """

    cleanable: CleanableRange
    protected: tuple[tuple[int, int], ...]
    drop_unstamped: tuple[bool, ...]
    transactions: bool


def compaction_range_of(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> CompactionRange | Skipped:
    """Determine the compaction range of a partition.

    Args:
        segments: all segments of the partition, ascending; the last one is active.
        policy: inputs that do not come from the log.

    Returns:
        The compaction range; or the reason for skipping the partition.
    """
    problem = cleanable_ranges.first_problem(segments)
    if problem is not None:
        return problem
    _, scan, broker = states_of(segments, policy)
    problem = undecidable(scan, broker, policy)
    if problem is not None:
        return problem
    cleanable = cleanable_ranges.find_cleanable_range(segments, scan, broker, policy)
    old = next((segment for segment in segments[: cleanable.segments] if segment.summary.old_format), None)
    if old is not None:
        return Skipped(
            "compacted-old-format",
            f"{log_name(old.base_offset)}, position {old.summary.old_position}: a message of v0 or v1; only batches of "
            "v2 are compacted by key, the broker's cleaner compacts others",
        )
    needs = needs_of(scan, broker, policy.now_ms, policy.producer_expiry_ms)
    horizon_ms = cleanable_ranges.chosen_horizon(segments, cleanable, policy)
    return CompactionRange(
        cleanable=cleanable,
        protected=tuple((int(pid), int(epoch)) for pid, epoch in needs.markers),
        drop_unstamped=tuple(
            not policy.keeps_all and segment.mtime_ms <= horizon_ms
            for segment in segments[: cleanable.segments]
        ),
        transactions=any((segment.summary.rows[:, c.P_MARKERS] > 0).any() for segment in segments),
    )


def compacted_facts(original: SegmentFacts, compacted: SegmentSummary, entries: Int64s) -> SegmentFacts:
    """Combine the facts of a segment before and after key compaction, as input for ``rules.markers``.

    The times are those before compaction: a batch that loses its newest record must not make the segment look older
    for ``min.compaction.lag.ms``, or its producer look expired.

    Args:
        original: facts of the segment before compaction.
        compacted: scan of the segment after compaction.
        entries: int64[E, 4], entries of its ``.txnindex``.
    """
    rows = compacted.rows.copy()
    for column in (c.P_TIMESTAMP, c.P_LAST_DATA_TIMESTAMP):
        rows[:, column] = original.summary.rows[:, column]
    summary = structs.replace(compacted, rows=rows, max_timestamp=original.summary.max_timestamp)
    return SegmentFacts(original.base_offset, original.mtime_ms, summary, entries)


def too_large(decision: PartitionDecision) -> Skipped | None:
    """Return the reason for skipping the partition if recompression would make a log exceed 2 GiB; else None."""
    for group in decision.groups:
        if group.kept_bytes > LARGEST_FILE_BYTES:
            name = log_name(group.sources[0].base_offset)
            return Skipped(
                "compacted-too-large",
                f"{name}: compressed again at the default level it would have {group.kept_bytes} bytes, but a log can "
                f"have at most {LARGEST_FILE_BYTES}",
            )
    return None


@dataclass(frozen=True)
class RecordTally:
    """Record counts of one segment, or of a whole partition.

    Attributes:
        records: number of data records.
        kept: number of records that are kept.
        superseded: number of records that are removed because a later record of their key exists.
        aborted: number of records of aborted transactions, which are removed.
        keyless: number of records without a key, which are kept.
        tombstones_dropped: number of removed tombstones: the last of their key, and past their delete horizon.
        tombstones_kept: number of kept tombstones that are the last of their key.
        unstamped: number of tombstones that are the last of their key in batches without a delete horizon; the chosen
            horizon decides on them.
        unstamped_bytes: uncompressed bytes of the tombstones counted by ``unstamped``.
        stamp_past: number of tombstones that are the last of their key and past their batch's delete horizon.
        stamp_to_come: number of tombstones that are the last of their key and before their batch's delete horizon.
        stamp_past_bytes: uncompressed bytes of the tombstones counted by ``stamp_past``.
        held: number of tombstones that are old enough to be removed, but are kept because an older record of their key
            is kept somewhere, or because the log has to end with records.
        rewritten: number of batches that lose some of their records.
        emptied: number of batches that lose all of their records.
    """

    records: int = 0
    kept: int = 0
    superseded: int = 0
    aborted: int = 0
    keyless: int = 0
    tombstones_dropped: int = 0
    tombstones_kept: int = 0
    unstamped: int = 0
    unstamped_bytes: int = 0
    stamp_past: int = 0
    stamp_to_come: int = 0
    stamp_past_bytes: int = 0
    held: int = 0
    rewritten: int = 0
    emptied: int = 0

    @property
    def changes(self) -> bool:
        """True if compaction removes at least one record."""
        return self.kept != self.records

    def __add__(self, other: RecordTally) -> RecordTally:
        """Add two tallies."""
        names = RecordTally.__dataclass_fields__
        return RecordTally(**{name: getattr(self, name) + getattr(other, name) for name in names})


def tally_of(tallies: Int64s) -> RecordTally:
    """Convert the kernel's counts of one segment; the kernel's index ``T_NAME`` holds the field ``name``."""
    names = RecordTally.__dataclass_fields__
    return RecordTally(**{name: int(tallies[getattr(f, f"T_{name.upper()}")]) for name in names})


def tombstone_horizons(
    segments: Sequence[SegmentFacts],
    tallies: Sequence[RecordTally],
    cleanable: CleanableRange,
    policy: MarkerPolicy,
) -> tuple[TombstoneHorizon, ...]:
    """Count the tombstones that each choice of the delete horizon removes and keeps.

    Only tombstones that are the last record of their key are counted.

    Args:
        segments: facts of all segments of the partition, before compaction.
        tallies: tallies of the segments in the cleanable range.
        cleanable: cleanable range of offsets.
        policy: inputs that do not come from the log.
    """
    horizons = []
    for name, horizon_ms, chosen in cleanable_ranges.horizon_choices(segments, cleanable, policy):
        dropped = dropped_bytes = kept = 0
        for segment, tally in zip(segments, tallies, strict=False):
            passed, stamped = segment.mtime_ms <= horizon_ms, name != cleanable_ranges.NONE
            passed = passed and stamped
            dropped += (tally.stamp_past if stamped else 0) + (tally.unstamped if passed else 0)
            dropped_bytes += (tally.stamp_past_bytes if stamped else 0) + (
                tally.unstamped_bytes if passed else 0
            )
            kept += (
                tally.stamp_to_come
                + (0 if stamped else tally.stamp_past)
                + (0 if passed else tally.unstamped)
            )
        horizons.append(
            TombstoneHorizon(name, min(horizon_ms, 2**63 - 1), dropped, dropped_bytes, kept, chosen)
        )
    return tuple(horizons)
