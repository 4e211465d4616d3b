"""Sums over batch headers by ranges of offsets, with which ``compare`` finds the ranges where replicas differ.

A batch counts in the range of its base offset. Two replicas that were never cleaned have equal sums, because a follower
appends its leader's bytes; so only ranges with different sums must be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from krepair.formats.arrays import Uint64s
from krepair.kernels.columns import Batches

RANGE_BITS: Final = 12
"""Width of a range in bits: the batches of 4096 consecutive offsets are summed up together."""
RANGE_COLUMNS: Final = 4

_FACTORS: Final = (
    (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)),
    (np.uint64(0x165667B19E3779F9), np.uint64(0xD6E8FEB86659FD93)),
)
_31: Final = np.uint64(31)


def ranges_of(rows: Batches) -> Uint64s:
    """Sum up batches by range; return uint64[N, RANGE_COLUMNS] (range number, batches, sum, second sum)."""
    numbers = rows["base_offset"] >> RANGE_BITS
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    ranges = np.empty((len(starts), RANGE_COLUMNS), np.uint64)
    ranges[:, 0] = numbers[starts]
    ranges[:, 1] = np.diff(np.append(starts, len(rows)))
    for column, (factor, other) in enumerate(_FACTORS, 2):
        state = np.full(len(rows), other)
        for name in ("base_offset", "last_offset", "leader_epoch", "crc"):
            state = (state ^ rows[name].astype(np.uint64)) * factor
            state ^= state >> _31
        ranges[:, column] = np.add.reduceat(state * other, starts)
    return ranges


def joined_ranges(parts: Sequence[Uint64s]) -> Uint64s:
    """Merge the sums of several parts of a log into one row for each range, ascending."""
    if not parts:
        return np.empty((0, RANGE_COLUMNS), np.uint64)
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    starts = np.flatnonzero(np.append(True, rows[1:, 0] != rows[:-1, 0]))
    summed: Uint64s = np.add.reduceat(rows, starts, axis=0) if len(rows) else rows
    summed[:, 0] = rows[starts, 0] if len(rows) else summed[:, 0]
    return summed
