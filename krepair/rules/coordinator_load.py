"""Where a transaction coordinator never gets to the end of ``__transaction_state``. Pure.

A coordinator that loads a partition reads it from the log start to the log end, and goes on behind the last record that
it was given. It reads the same place for ever, with one core, and answers COORDINATOR_LOAD_IN_PROGRESS:

* up to 3.9.1, where a read gives batches and none of them has a record. A read ends with its segment, so a segment must
  not end with an emptied batch (KAFKA-17941).
* up to 2.3, also where a read gives no batch, and the log end is not reached (KAFKA-9065).

So the last batch of a closed segment may go if a later segment has a batch, which the next read begins with. Cleaners
keep an emptied batch at the end of the cleanable range since 3.9.2 and 4.0.2 (KAFKA-17076).

Source: ``TransactionStateManager.loadTransactionMetadata`` (2.2.1, 3.7.2, 3.9.2), ``Log.read`` (2.2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.formats.broker_version import Version
from krepair.formats.filenames import log_name
from krepair.kernels import classes as c
from krepair.rules.model import GroupDecision, LeftAlone, MarkerPolicy, SegmentFacts, SpanDecision
from krepair.rules.recovery import LOADS_PAST_CLEANED_TAIL

LOADS_PAST_EMPTIED: Final = (3, 9, 2)
_EMPTIED_CLASSES: Final = frozenset({c.EMPTIED, c.EMPTIED_PRODUCER, c.EMPTIED_MARKER, c.EMPTIED_LAST})
_CODE: Final = "coordinator-load"


class LoadStop(NamedTuple):
    """An offset at which the load of a partition of ``__transaction_state`` stops.

    Attributes:
        base_offset: base offset of the segment that is read there.
        position: file position of the emptied batch, -1 where no batch is read.
        offset: the offset that is read for ever.
        is_end: whether no later segment has a batch.
        fixed_in: the first Kafka version whose load goes on.
    """

    base_offset: int
    position: int
    offset: int
    is_end: bool
    fixed_in: str


def load_stops(segments: Sequence[SegmentFacts], log_start: int, version: Version) -> Iterator[LoadStop]:
    """Find where the load stops, ascending: the first one stops it, the others stop it once that is gone.

    Args:
        segments: all segments of the partition, ascending; the last one is active.
        log_start: log start offset, 0 if there is none.
        version: of the broker that is to load it, None if it is not known.
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


def keeps_end_of(segments: Sequence[SegmentFacts], span: SpanDecision, policy: MarkerPolicy) -> bool:
    """Return whether the last batch of the span stays, whatever it holds: the rule, but for a log that is loaded.

    Args:
        segments: all segments of the partition, ascending.
        span: the offsets that may be compacted.
        policy: inputs that do not come from the log.
    """
    return not policy.ends_in_records or not any(
        segment.summary.batches for segment in segments[span.segments :]
    )


def why_not_loaded(segments: Sequence[SegmentFacts], groups: Sequence[GroupDecision]) -> LeftAlone | None:
    """Return why it cannot be told that new segments are loaded to their ends, None if they are.

    A batch of a producer may stay without records, as its last sequence or as its marker. Coordinators write without a
    producer id.

    Args:
        segments: all segments of the partition, ascending.
        groups: the new segments, ascending.
    """
    with_producer = next((one for one in segments if len(one.summary.rows)), None)
    if with_producer is not None:
        return _left(
            with_producer.base_offset, "a batch of a producer, and coordinators write without a producer id"
        )
    for group in groups:
        if group.last_offset >= 0 and not group.kept_bytes:
            text = "no record of it would stay, and it can be joined with no neighbour, so its sources stay"
            return _left(group.sources[0].base_offset, text)
    return None


def _left(base_offset: int, text: str) -> LeftAlone:
    return LeftAlone(
        _CODE,
        f"{log_name(base_offset)}: {text}; a transaction coordinator before 3.9.2 does not get past a segment that "
        "ends without records",
    )
