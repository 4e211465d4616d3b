"""Grouping of neighbouring segments that become one segment, in one pass from the lowest offset up.

A group grows as long as the new segment fits the limits of the topic.
Kafka groups by source sizes (Cleaner.groupSegmentsBySize, 2.2.1), so it merges again on every pass. Grouping by output
sizes is idempotent, because the largest size of an index is computed only from the bytes of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from krepair.formats.java_numbers import INT32_MAX
from krepair.rules.model import GroupDecision, MarkerPolicy
from krepair.rules.outcome import SourceSegment

TIME_INDEX_ENTRY_BYTES = 12
OFFSET_INDEX_ENTRY_BYTES = 8
_CLOSING_ENTRY = 1


def index_entries_at_most(log_bytes: int, interval_bytes: int) -> int:
    """Return an upper bound of the number of entries in an index of a log of ``log_bytes`` bytes.

    A broker writes an entry after more than ``interval_bytes`` bytes of log, and one more closes the time index.
    """
    return log_bytes // (interval_bytes + 1) + _CLOSING_ENTRY


def index_bytes_at_most(log_bytes: int, interval_bytes: int, aborted: int = 0) -> int:
    """Return an upper bound of the bytes of ``.index``, ``.timeindex`` and ``.txnindex`` together.

    Args:
        log_bytes: size of the log in bytes.
        interval_bytes: value of the setting ``index.interval.bytes``.
        aborted: number of entries of the ``.txnindex``.
    """
    entry_bytes = TIME_INDEX_ENTRY_BYTES + OFFSET_INDEX_ENTRY_BYTES
    return index_entries_at_most(log_bytes, interval_bytes) * entry_bytes + aborted * 34


def group(
    outcomes: Sequence[SourceSegment], last_offsets: Mapping[int, int], policy: MarkerPolicy
) -> list[GroupDecision]:
    """Group neighbouring segments. Without ``policy.merge`` each segment that keeps a batch is a group of its own.

    A group grows as long as the new ``.log`` has at most ``segment.bytes``, its indexes at most
    ``segment.index.bytes``, and its offsets are at most 2^31-1 above its base offset.

    Args:
        outcomes: outcomes of the segments in the cleanable range, ascending.
        last_offsets: last offset of each segment's last batch, by base offset.
        policy: limits of the new segments.
    """
    groups: list[list[SourceSegment]] = []
    for outcome in outcomes:
        last_offset = last_offsets[outcome.base_offset]
        if groups and _joins(groups[-1], outcome, last_offset, policy):
            groups[-1].append(outcome)
        else:
            groups.append([outcome])
    return [GroupDecision(tuple(sources), _last_offset(sources, last_offsets)) for sources in groups]


def _last_offset(sources: Sequence[SourceSegment], last_offsets: Mapping[int, int]) -> int:
    filled = [source for source in sources if source.batches]
    return last_offsets[filled[-1].base_offset] if filled else -1


def _joins(
    sources: Sequence[SourceSegment], outcome: SourceSegment, last_offset: int, policy: MarkerPolicy
) -> bool:
    """Return whether a segment joins the group before it.

    Two rules take precedence over the limits. If each new segment must end with records (``policy.ends_in_records``), a
    segment that keeps nothing always joins its neighbour, because the new log then holds only the neighbour's batches.
    And the segment whose producer snapshot the next start loads begins a group: a broker since 2.8 deletes a snapshot
    whose offset is no segment's base offset, and forgets its producers (KAFKA-9393).
    """
    if policy.ends_in_records:
        if outcome.log_bytes and not outcome.kept_bytes:
            return True
        if not any(source.kept_bytes for source in sources) and any(source.log_bytes for source in sources):
            return last_offset - sources[0].base_offset <= INT32_MAX
    is_loaded = outcome.base_offset == policy.loaded_base
    return policy.merge and not is_loaded and _fits([*sources, outcome], last_offset, policy)


def _fits(sources: Sequence[SourceSegment], last_offset: int, policy: MarkerPolicy) -> bool:
    log_bytes = sum(source.kept_bytes for source in sources)
    # Indexes store offsets in 32 bits, relative to the base offset. A broker fails to start on a segment that exceeds
    # them (KAFKA-6264).
    entries = index_entries_at_most(log_bytes, policy.index_interval_bytes)
    return (
        log_bytes <= policy.segment_bytes
        and entries * TIME_INDEX_ENTRY_BYTES <= policy.segment_index_bytes
        and last_offset - sources[0].base_offset <= INT32_MAX
    )
