"""The second wave of key compaction where the headers of all batches are known: what is left of batches nobody reads.

A batch of which nothing stays becomes an empty header, which follows from its own header. Others are asked for in runs
that are read from the log, and go the way of ``compact_filter``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.compact_filter import (
    F_OUT,
    F_POSITION,
    F_ROW,
    F_RUN_END,
    F_RUN_ROW,
    STAYS_PARTLY,
    batch_goes,
    copied,
    count_gone,
    put_empty,
)
from krepair.kernels.compact_keys import CONTROL, NEED_BYTES, OTHER, OUTPUT_FULL
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, byte_at


@kernel("bytes, long, bytes")
def note_headers(buf: Any, end: Any, out: Any) -> Any:
    """Copy the headers of the batches of a window.

    Args:
        buf: uint8[W] that begins with a batch; all of them were looked at by somebody else.
        end: place after the last one, which may pass the window.
        out: uint8[V], out.

    Returns:
        How many; -1 if there is no room for all of them, or one is of v0 or v1.
    """
    count = np.int64(0)
    place = np.int64(0)
    to = np.int64(0)
    while place < end:
        if (
            place + HEADER > buf.shape[0]
            or to + HEADER > out.shape[0]
            or byte_at(buf, place + MAGIC) != 2
            or next_batch(buf, place, end - place) == 0
        ):
            return np.int64(-1)
        to = copied(buf, place, place + HEADER, out, to)
        place += next_batch(buf, place, end - place)
        count += 1
    return count


@inlined
def _of(heads: Any, at: Any, size: Any, aborted: Any, stays: Any, inputs: Any, state: Any) -> Any:
    """(whether the batch has to be read, else what its header tells of it)."""
    attributes = be16(heads, at + ATTRIBUTES)
    reads = attributes & CONTROL != 0 or be32(heads, at + RECORD_COUNT) <= 0
    goes = STAYS_PARTLY
    if reads:
        reads = size != HEADER  # a header alone is copied as it is
    else:
        goes = batch_goes(heads, at, attributes, be32(heads, at + LAST_DELTA), aborted, stays, inputs, state)
        reads = goes == STAYS_PARTLY
    return reads, goes


@kernel("fixed bytes, long, long, fixed rows, longs, longs, longs, longs, bytes")
def filter_headers(
    heads: Any,
    window_bytes: Any,
    gap_bytes: Any,
    aborted: Any,
    stays: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    out: Any,
) -> Any:
    """Write what is left of batches of which nothing stays, up to one that has to be read.

    Args:
        heads: uint8[N * 61], the headers of all batches of a log, in order.
        window_bytes: a run of batches that are to be read together has at most so many bytes, or is one batch.
        gap_bytes: batches that need not be read are, where those between two that must have no more bytes.
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        stays: int64[N] offsets of the last record of each key, ascending.
        inputs: int64[INPUT_SIZE].
        state: int64[FILTER_STATE]; ``F_ROW`` and ``F_POSITION`` are of the next batch.
        tallies: int64[TALLY_COUNT].
        out: uint8[V], out, from ``F_OUT`` on.

    Returns:
        ``NEED_BYTES`` at the end; ``OUTPUT_FULL``; ``OTHER`` if a run begins at the batch at hand, up to
        ``F_RUN_ROW`` and ``F_RUN_END``.
    """
    rows = heads.shape[0] // HEADER
    row = np.int64(state[F_ROW])
    position = np.int64(state[F_POSITION])
    status = NEED_BYTES
    while row < rows:
        at = row * HEADER
        size = be32(heads, at + LENGTH) + LENGTH_END
        reads, goes = _of(heads, at, size, aborted, stays, inputs, state)
        if reads:
            status = OTHER
            break
        to = np.int64(state[F_OUT])
        if to + HEADER > out.shape[0]:
            status = OUTPUT_FULL
            break
        if goes != STAYS_PARTLY:
            count_gone(goes, be32(heads, at + RECORD_COUNT), tallies)
            put_empty(heads, at, out, to)
        else:
            copied(heads, at, at + HEADER, out, to)
        state[F_OUT] = to + HEADER
        position += size
        row += 1
    state[F_ROW] = row
    state[F_POSITION] = position
    if status == OTHER:
        begun = position
        run_row, run_end = row, begun
        while row < rows:
            at = row * HEADER
            size = be32(heads, at + LENGTH) + LENGTH_END
            if run_end > begun and position + size - begun > window_bytes:
                break
            reads, goes = _of(heads, at, size, aborted, stays, inputs, state)
            position += size
            row += 1
            if reads:
                run_row, run_end = row, position
            elif position - run_end > gap_bytes:
                break
        state[F_RUN_ROW] = run_row
        state[F_RUN_END] = run_end
    return status
