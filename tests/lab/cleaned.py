"""Results of cleaning random histories: shapes that each of Kafka's cleaners can judge, and allowed differences.

2.2.1 judges transactions within a segment; its transaction metadata forgets at segment borders (KAFKA-8351), so 3.9.2
judges longer ones.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests import naive
from tests.strategies import Shape

DAY_MS = 86_400_000
REASONS_WITHIN = ("K01", "K02", "K05", "K07", "D03")
"""What enough histories of these shapes meet."""

WHOLE = "marker kept whole for an epoch, Kafka empties it"
FORGOTTEN = "marker kept whole for an epoch, Kafka had forgotten its producer"
LAST = "last batch of the span"


def within_segments(seed: int) -> Shape:
    """Transactions that end in the segment where they began."""
    return Shape(
        segments=2 + seed % 5,
        producers=1 + seed % 4,
        within_segments=True,
        emptied=seed % 3 == 0,
        unique_keys=seed % 5 == 0,
        epoch_per_marker=seed % 4 == 0,
        open_at_end=seed % 2 == 0,
        spread_ms=3_600_000 if seed % 4 else 9 * DAY_MS,
    )


def across_segments(seed: int) -> Shape:
    """Transactions that run over segments."""
    return Shape(
        segments=3 + seed % 6,
        steps=6,
        producers=1 + seed % 5,
        emptied=seed % 3 == 0,
        stamps=seed % 4 == 1,
        epoch_per_marker=seed % 4 == 0,
        open_at_end=seed % 3 == 1,
        spread_ms=3_600_000 if seed % 5 else 2 * DAY_MS,
    )


def batches_below(folder: Path, end: int) -> dict[int, tuple[int, naive.Batch]]:
    """Base offset of the batch -> (base offset of its segment, batch)."""
    segments, _ = naive.read_partition(folder)
    found = [(s.base_offset, batch) for s in segments if s.base_offset < end for batch in naive.parse(s.log)]
    return {batch.base_offset: (segment, batch) for segment, batch in found}


def shown(batch: naive.Batch | None) -> tuple[object, ...] | None:
    """What two batches must have in common to be the same."""
    if batch is None:
        return None
    return batch.base_offset, batch.last_offset, batch.kind, batch.producer_id, batch.epoch


def difference(
    batch: naive.Batch, ours: naive.Batch | None, theirs: naive.Batch | None, *, of_epoch: bool, last: bool
) -> str:
    """Name of an allowed difference, or what is wrong.

    Args:
        batch: as it was before.
        ours: what is left of it here, None if nothing is.
        theirs: what Kafka's cleaner leaves of it.
        of_epoch: whether it is a marker that is kept for the epoch of its producer. 2.2.1 forgets such a producer when
            it loads a snapshot (``isProducerRetained``).
        last: whether it is the last batch of the span, or holds the place of its group.
    """
    if ours is not None and of_epoch and shown(ours) == shown(batch):
        if theirs is None:
            return FORGOTTEN
        if theirs.kind == "emptied control":
            return WHOLE
    if ours is not None and theirs is None and last:
        return LAST
    return f"WRONG: of {shown(batch)} we leave {shown(ours)}, Kafka {shown(theirs)}"


def aborted_transactions(txnindex: bytes) -> list[tuple[int, ...]]:
    """Producer id, first, last and last stable offset of the entries of ``.txnindex``."""
    return [struct.unpack_from(">hqqqq", txnindex, place)[1:] for place in range(0, len(txnindex), 34)]
