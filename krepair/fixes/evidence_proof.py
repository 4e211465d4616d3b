"""The third reading: what is gone from the staged logs is held against what the other replicas have, before any swap.

The plan decides, ``apply`` decides again by the same rules; this asks the other way round, see
``krepair.pipeline.replicas.evidence_check``. Where nothing rests on other replicas there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from krepair.fixes.replicas import ReplicaLog
from krepair.fixes.staging import Staging, Work
from krepair.pipeline.items import Failed, Place


class Staged(NamedTuple):
    """The logs of one partition before and after.

    Attributes:
        staging: the partition.
        place: where it is.
        others: the other replicas on which its part of the plan rests.
        logs: (base offset, absolute path, bytes of valid batches) of all logs as they were, ascending.
        results: base offset of a log that is written anew -> absolute path of its new log.
    """

    staging: Staging
    place: Place
    others: tuple[ReplicaLog, ...]
    logs: tuple[tuple[int, str, int], ...]
    results: dict[int, str]


def prove_markers(work: Work, partitions: Sequence[Staged]) -> None:
    """No marker is gone whose transaction another replica holds; each partition's problem is put into its staging."""
    from krepair.pipeline.replicas.evidence_check import (
        MarkersGoneItem,
        NeededItem,
        find_markers_gone,
        find_needed,
    )

    asked = [one for one in partitions if one.others]
    items = [
        MarkersGoneItem(place=one.place, logs=one.logs, results=one.results, scratch=work.scratch.path)
        for one in asked
    ]
    waiting: list[tuple[Staged, NeededItem]] = []
    for index, found in work.engine.map(find_markers_gone, items):
        one = asked[index]
        if isinstance(found, Failed):
            one.staging.fails(found)
        elif found.path or found.data:
            waiting += [
                (one, NeededItem(place=log.place, segments=log.log.segments, gone=found))
                for log in one.others
            ]
    for one, needed in work.engine.each(find_needed, waiting):
        one.staging.fails(needed)
