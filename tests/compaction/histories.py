"""Random histories for key compaction: few keys, tombstones, transactions, and one codec or another for each batch."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

from tests.builders import Batch
from tests.codecs import packed
from tests.strategies import History, Shape, history

DAY_MS = 86_400_000


def shape_of(seed: int) -> Shape:
    """A shape by seed, all kinds of it in any few dozen seeds."""
    return Shape(
        segments=2 + seed % 6,
        producers=1 + seed % 4,
        within_segments=seed % 5 == 0,
        tombstones=seed % 7 != 0,
        emptied=seed % 3 == 0,
        stamps=seed % 4 == 1,
        epoch_per_marker=seed % 4 == 0,
        open_at_end=seed % 2 == 0,
        spread_ms=3_600_000 if seed % 4 else 9 * DAY_MS,
    )


def compressed(made: History, seed: int) -> History:
    """The same history with some batches compressed, each with a codec of its own."""
    chance = random.Random(seed)

    def with_codec(batch: Batch) -> Batch:
        raw = packed(batch.raw, chance.choice([0, 1, 2, 3, 4]))
        return replace(batch, raw=raw, attributes=struct.unpack_from(">h", raw, 21)[0])

    return History(
        made.shape,
        [(base, [with_codec(batch) for batch in batches], mtime) for base, batches, mtime in made.segments],
    )


def of_seed(seed: int, *, codecs: bool, shape: Shape | None = None) -> History:
    """The history of a seed."""
    made = history(seed, shape or shape_of(seed))
    return compressed(made, seed) if codecs else made
