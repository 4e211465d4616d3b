"""Whether another replica has a history of its own: then one of the two will cut its log where they part."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from krepair.fixes.context import Context
from krepair.fixes.epochs import read_epochs_file
from krepair.fixes.other_logs import OTHERS
from krepair.fixes.replicas import ReadReplica
from krepair.fixes.survey import Survey
from krepair.formats.arrays import Int64s
from krepair.rules.epochs import read_recorded
from krepair.rules.model import LeftAlone, SegmentFacts
from krepair.rules.replicas.epochs import Fork, History, find_fork


def why_forked(context: Context, survey: Survey, high_watermark: int) -> LeftAlone | None:
    """Why nothing is removed by what lies behind the place where two histories part, or None.

    A record there may supersede an older one here. If this log is cut there, the older one is missing here alone.

    Args:
        context: with what is known of the other replicas.
        survey: of a partition that was read.
        high_watermark: nothing at or above it is compacted.

    Source: ``ReplicaFetcherThread``, ``AbstractFetcherThread.truncateOnFetchResponse`` (3.9.2); KIP-101, KIP-279.
    """
    others = survey.seen(OTHERS)
    if others is None:
        return None
    mine = _own(survey)
    forks = _forks(mine, map(_of_other, others.replicas))
    fork, history = min(forks, default=(None, None), key=lambda found: found[0].offset)
    if fork is None or history is None or fork.offset >= high_watermark:
        return None
    here, there = (fork.epoch, fork.later) if fork.first_is_behind else (fork.later, fork.epoch)
    return LeftAlone(
        "forked",
        f"from offset {fork.offset} on it has another history than {history.who}: leader epoch {here} here, {there} "
        "there. One of the two will be cut there",
        _compare(context, survey),
    )


def _of_other(one: ReadReplica) -> History:
    return one.replica.history._replace(who=f"{one.log.place.path} of replica {one.log.broker}")


def _forks(mine: History, others: Iterable[History]) -> Iterator[tuple[Fork, History]]:
    for other in others:
        fork = find_fork(mine, other)
        if fork is not None:
            yield fork, other


def _own(survey: Survey) -> History:
    data, _ = read_epochs_file(survey.partition)
    starts = [tuple(entry) for entry in read_recorded(data).entries]
    return History("this one", runs_of_segments(survey.segments), np.array(starts, np.int64).reshape(-1, 2))


def runs_of_segments(segments: Sequence[SegmentFacts]) -> Int64s:
    """int64[N, 3] (leader epoch, first base offset, last offset) of the runs of a scanned log.

    Args:
        segments: facts of all segments, ascending.
    """
    rises = np.concatenate([np.empty((0, 3), np.int64), *(one.summary.epochs for one in segments)])
    log_end = max((one.end_offset for one in segments), default=0)
    runs = rises.copy()
    runs[:, 2] = np.append(rises[1:, 2], np.int64(log_end - 1))[: len(rises)]
    return runs


def _compare(context: Context, survey: Survey) -> str:
    own = int(context.view.broker_id) if context.view.broker_id.isdecimal() else -1
    paths = {broker: [view.path for view in views] for broker, views in context.sides.items()}
    paths[own] = [view.path for view in (context.view, *context.own_dirs.views)]
    sides = [
        f"{broker if broker >= 0 else 'ID'}={','.join(found)}" for broker, found in sorted(paths.items())
    ]
    return " ".join(["krepair compare", *map(shlex.quote, sides), "--partition", survey.partition.folder])
