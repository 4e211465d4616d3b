"""Logs of ``__transaction_state`` that a transaction coordinator can never load to their end.

A coordinator loads a partition by reading it from the log start to the log end. Each read continues after the last
record of the read before. In two cases it repeats one read forever, uses a whole core, and answers clients with
COORDINATOR_LOAD_IN_PROGRESS:

* up to 3.9.1, if a read returns batches, but none of them has a record. A read ends with its segment, so a segment
  must not end with an empty batch (KAFKA-17941).
* up to 2.3, also if a read returns no batch before the log end is reached (KAFKA-9065).

So compaction may remove the last batch of an inactive segment only if a later segment has a batch, where the next read
begins. Cleaners of 3.9.2 and 4.x leave an empty batch at the end of the cleanable range (KAFKA-17076).
``check`` reports such logs, and ``compact`` never writes one.

Source: ``TransactionStateManager.loadTransactionMetadata`` (2.2.1, 3.7.2, 3.9.2), ``Log.read`` (2.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.formats.broker_version import Version
from krepair.formats.filenames import log_name
from krepair.kernels import classes as c
from krepair.rules.model import CleanableRange, GroupDecision, MarkerPolicy, SegmentFacts, Skipped
from krepair.rules.recovery import LOADS_PAST_CLEANED_TAIL

LOADS_PAST_EMPTIED: Final = (3, 9, 2)
_EMPTIED_CLASSES: Final = frozenset({c.EMPTIED, c.EMPTIED_PRODUCER, c.EMPTIED_MARKER, c.EMPTIED_LAST})
_CODE: Final = "coordinator-load"


class LoadStop(NamedTuple):
    """Offset at which the load of a partition of ``__transaction_state`` hangs.

    Attributes:
        base_offset: base offset of the segment at that offset.
        position: file position of the empty batch, -1 if no batch is read.
        offset: offset that is read forever.
        is_end: True if no later segment has a batch.
        fixed_in: first Kafka version whose load continues.
    """

    base_offset: int
    position: int
    offset: int
    is_end: bool
    fixed_in: str


def load_stops(segments: Sequence[SegmentFacts], log_start: int, version: Version) -> Iterator[LoadStop]:
    """Find all offsets at which the load would hang, ascending; each later one after the earlier ones are repaired.

    Args:
        segments: all segments of the partition, ascending; the last one is active.
        log_start: log start offset, 0 if there is none.
        version: version of the broker that will load it, None if unknown.
    """
    filled = [segment for segment in segments if segment.summary.batches]
    if version is None or version < LOADS_PAST_EMPTIED:
        for segment in filled:
            summary = segment.summary
            emptied = summary.last_class in _EMPTIED_CLASSES and summary.is_whole
            if emptied and summary.last_offset >= log_start:
                is_end = segment is filled[-1]
                position, offset = summary.last_position, summary.last_offset
                yield LoadStop(segment.base_offset, position, offset, is_end, "3.9.2")
    if version is not None and version >= LOADS_PAST_CLEANED_TAIL:
        return
    read_to = max([log_start, *(segment.end_offset for segment in filled)])
    active = segments[-1] if segments else None
    if active is not None and active.summary.is_whole and read_to < active.base_offset:
        yield LoadStop(active.base_offset, -1, read_to, is_end=True, fixed_in="2.4")


def keeps_end_of(segments: Sequence[SegmentFacts], cleanable: CleanableRange, policy: MarkerPolicy) -> bool:
    """Return whether the last batch of the cleanable range is kept: always, except in a log that must be loadable.

    Args:
        segments: all segments of the partition, ascending.
        cleanable: cleanable range of offsets.
        policy: inputs that do not come from the log.
    """
    return not policy.ends_in_records or not any(
        segment.summary.batches for segment in segments[cleanable.segments :]
    )


def why_not_loaded(segments: Sequence[SegmentFacts], groups: Sequence[GroupDecision]) -> Skipped | None:
    """Return the reason for skipping a partition whose new segments a coordinator could not load; else None.

    Only a batch with a producer id may be kept without records: for its last sequence number, or as a marker.
    Coordinators write without producer ids, so such a batch is not expected here.

    Args:
        segments: all segments of the partition, ascending.
        groups: new segments, ascending by offset.
    """
    with_producer = next((segment for segment in segments if len(segment.summary.rows)), None)
    if with_producer is not None:
        return _skipped(
            with_producer.base_offset, "a batch of a producer, and coordinators write without a producer id"
        )
    for group in groups:
        if group.last_offset >= 0 and not group.kept_bytes:
            text = "no record of it would stay, and it can be joined with no neighbour, so its sources stay"
            return _skipped(group.sources[0].base_offset, text)
    return None


def _skipped(base_offset: int, text: str) -> Skipped:
    return Skipped(
        _CODE,
        f"{log_name(base_offset)}: {text}; a transaction coordinator before 3.9.2 does not get past a segment that "
        "ends without records",
    )
