"""In what the loaders of the versions differ, as far as it decides what a start does to a log."""

from __future__ import annotations

from typing import NamedTuple

VersionNumber = tuple[int, int, int]

JUDGED_VERSIONS: tuple[VersionNumber, ...] = ((2, 2, 1), (2, 8, 2), (3, 9, 2), (4, 3, 1))
"""Their loader classes were held against the forecast, damage by damage."""


class Behaviour(NamedTuple):
    """What one version does.

    Attributes:
        checks_indexes: opens every offset and time index, makes one that is missing, and recovers a segment whose
            index contradicts itself. Later versions (KAFKA-7283) only recover a segment without an offset index.
        fences_producers: throws where a marker has an older producer or coordinator epoch (until KAFKA-7502).
        drops_producers_below_start: a producer whose last batch is below the log start is left out of a snapshot that
            is loaded (until KAFKA-8483, KIP-360).
        completes_empty_transactions: a marker without data before it ends a transaction of its own, and an abort
            marker gets an entry in the transaction index (until KAFKA-10702).
        lists_snapshots_each_time: looks for snapshots on the disk each time; later (KAFKA-9393) it remembers them,
            removes those of no segment, and the snapshot of a segment that goes.
        looks_in_one_segment: looks the first offset of a transaction up in the segment that it belongs to alone, and
            throws where nothing is left there; and looks for an end only behind the beginning. Later versions go on
            to the next segment (2.4).
        needs_first_unstable_offset: throws where the first offset of an open transaction is past the log end.
        searches_by_first_offset: looks a batch up by first offsets, and opens each wrapper of v0 and v1 on the way
            (since KAFKA-18989); earlier versions take the first batch whose last offset reaches it.
    """

    checks_indexes: bool
    fences_producers: bool
    drops_producers_below_start: bool
    completes_empty_transactions: bool
    lists_snapshots_each_time: bool
    looks_in_one_segment: bool
    needs_first_unstable_offset: bool
    searches_by_first_offset: bool


def behaviour_of(version: VersionNumber) -> Behaviour:
    """What a version does.

    Source: Log, LogSegment, ProducerStateManager in the branches 2.2 to 2.8; LogLoader, UnifiedLog (3.9, 4.3);
    FileRecords (4.3).
    """
    return Behaviour(
        checks_indexes=version < (2, 3, 0),
        fences_producers=version < (2, 3, 0),
        drops_producers_below_start=version < (2, 4, 0),
        completes_empty_transactions=version < (2, 8, 0),
        lists_snapshots_each_time=version < (2, 8, 0),
        looks_in_one_segment=version < (2, 4, 0),
        needs_first_unstable_offset=version < (3, 8, 0),
        searches_by_first_offset=version >= (4, 1, 0),
    )
