"""The third reading: what is gone from the staged logs is held against what the other replicas have, before any swap.

The plan decides, ``apply`` decides again by the same rules; this asks the other way round, see
``krepair.pipeline.replicas.evidence_check``. Where nothing rests on other replicas there is nothing to ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from krepair.fixes.replicas import ReplicaLog
from krepair.fixes.staging import Staging, Work
from krepair.pipeline.items import Failed, Place


@dataclass(frozen=True)
class Staged:
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
    logs: Sequence[tuple[int, str, int]]
    results: Mapping[int, str]


def prove_markers(work: Work, partitions: Sequence[Staged]) -> None:
    """No marker is gone whose transaction another replica holds; each partition's problem is put into its staging."""
    from krepair.pipeline.replicas.evidence_check import (
        MarkersGoneItem,
        NeededItem,
        find_markers_gone,
        find_needed,
    )

    asked = [one for one in partitions if one.others]
    items = []
    for one in asked:
        results = sorted(set(one.results.values()))
        items.append(
            MarkersGoneItem(
                place=one.place,
                logs=tuple((path, size) for _, path, size in one.logs),
                groups=tuple(
                    results.index(one.results[base]) if base in one.results else -1 for base, _, _ in one.logs
                ),
                results=tuple(results),
                scratch=work.scratch.path,
            )
        )
    waiting: list[tuple[Staged, NeededItem]] = []
    for index, found in work.engine.map(find_markers_gone, items):
        one = asked[index]
        if isinstance(found, Failed):
            one.staging.fails(found)
        elif found.path or found.data:
            waiting += [
                (one, NeededItem(place=log.place, logs=log.all_of_it.logs, gone=found)) for log in one.others
            ]
    for one, needed in work.engine.each(find_needed, waiting):
        one.staging.fails(needed)
