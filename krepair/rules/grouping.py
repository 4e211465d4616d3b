"""Which neighbouring segments become one: one greedy pass by output sizes.

Kafka groups by source sizes (Cleaner.groupSegmentsBySize, 2.2.1) and so merges again on every pass. Grouping by output
sizes comes to rest: the result, grouped again, gives itself. For that the size of an index is bounded by a function of
the log bytes alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from krepair.rules.model import GroupDecision, MarkerPolicy
from krepair.rules.outcome import SourceSegment

INT32_MAX = 2**31 - 1
TIME_INDEX_ENTRY_BYTES = 12
OFFSET_INDEX_ENTRY_BYTES = 8
_CLOSING_ENTRY = 1


def index_entries_at_most(log_bytes: int, interval_bytes: int) -> int:
    """No index of a log of this size has more: each entry follows more than the interval, one closes the time index."""
    return log_bytes // (interval_bytes + 1) + _CLOSING_ENTRY


def index_bytes_at_most(log_bytes: int, interval_bytes: int, aborted: int = 0) -> int:
    """Upper bound of the bytes of ``.index``, ``.timeindex`` and ``.txnindex`` together."""
    entry_bytes = TIME_INDEX_ENTRY_BYTES + OFFSET_INDEX_ENTRY_BYTES
    return index_entries_at_most(log_bytes, interval_bytes) * entry_bytes + aborted * 34


def group(
    outcomes: Sequence[SourceSegment], last_offsets: Mapping[int, int], policy: MarkerPolicy
) -> list[GroupDecision]:
    """Greedy groups of neighbours, or each segment alone without merging.

    A group grows while the new ``.log`` stays within ``segment.bytes``, its indexes within ``segment.index.bytes`` and
    its offsets within 2^31-1 of its base.

    Args:
        outcomes: of the segments of the span, ascending.
        last_offsets: base offset -> last offset of the last batch of the segment.
        policy: for the limits.
    """
    groups: list[list[SourceSegment]] = []
    for outcome in outcomes:
        last_offset = last_offsets[outcome.base_offset]
        if policy.merge and groups and _fits([*groups[-1], outcome], last_offset, policy):
            groups[-1].append(outcome)
        else:
            groups.append([outcome])
    return [GroupDecision(tuple(sources), _last_offset(sources, last_offsets)) for sources in groups]


def _last_offset(sources: Sequence[SourceSegment], last_offsets: Mapping[int, int]) -> int:
    filled = [source for source in sources if source.batches]
    return last_offsets[filled[-1].base_offset] if filled else -1


def _fits(sources: Sequence[SourceSegment], last_offset: int, policy: MarkerPolicy) -> bool:
    log_bytes = sum(source.kept_bytes for source in sources)
    entries = index_entries_at_most(log_bytes, policy.index_interval_bytes)
    return (
        log_bytes <= policy.segment_bytes
        and entries * TIME_INDEX_ENTRY_BYTES <= policy.segment_index_bytes
        and last_offset - sources[0].base_offset <= INT32_MAX
    )
