"""Finds where two replicas have two histories: the leader epochs of their batches contradict each other. Pure.

Leader epochs grow with offsets on every replica, and a follower takes over its leader's batches with their epochs. The
two ``leader-epoch-checkpoint`` files are not held against each other: a leader writes an entry when it takes over, a
follower only when a batch comes, so they differ between healthy replicas.

Source: LeaderEpochFileCache.assign (4.3.1), AbstractFetcherThread.truncateOnFetchResponse (3.9.2).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from krepair.formats.arrays import Int64s

START_COLUMNS: Final = 2


class History(NamedTuple):
    """The leader epochs of a replica.

    Attributes:
        runs: int64[N, 3] (epoch, first base offset, last offset) of its batches.
        starts: int64[M, 2] (epoch, start offset) of its ``leader-epoch-checkpoint``.
    """

    runs: Int64s
    starts: Int64s


class Fork(NamedTuple):
    """Where two histories part.

    Attributes:
        offset: the first offset on which they contradict each other.
        epoch: leader epoch of the replica that stayed behind.
        later: epoch of the other one.
        first_is_behind: whether the first replica has the earlier epoch.
    """

    offset: int
    epoch: int
    later: int
    first_is_behind: bool


def find_fork(one: History, other: History) -> Fork | None:
    """Find the first contradiction between two replicas."""
    found = [
        Fork(*contradiction, first_is_behind=first)
        for first, contradiction in (
            (True, _contradiction(one.runs, other.runs, other.starts)),
            (False, _contradiction(other.runs, one.runs, one.starts)),
        )
        if contradiction is not None
    ]
    return min(found, default=None)


def _contradiction(runs: Int64s, other_runs: Int64s, other_file: Int64s) -> tuple[int, int, int] | None:
    """(offset, epoch, later epoch): batches of an epoch at or above the start of a later epoch elsewhere."""
    runs = runs[runs[:, 0] >= 0]
    starts = np.concatenate([other_file, other_runs[other_runs[:, 0] >= 0][:, :2]])
    if not len(runs) or not len(starts):
        return None
    starts = starts[np.argsort(starts[:, 0], kind="stable")]
    # where any epoch from this one on begins at the earliest
    earliest = np.minimum.accumulate(starts[::-1, 1])[::-1]
    later = np.searchsorted(starts[:, 0], runs[:, 0], "right")
    known = later < len(starts)
    begin = earliest[np.minimum(later, len(starts) - 1)]
    wrong = np.flatnonzero(known & (begin <= runs[:, 2]))
    if not len(wrong):
        return None
    offsets = np.maximum(runs[wrong, 1], begin[wrong])
    place = int(np.argmin(offsets))
    run = int(wrong[place])
    return int(offsets[place]), int(runs[run, 0]), int(starts[later[run], 0])
