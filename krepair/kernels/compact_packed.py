"""Kernels for compressed batches in the second pass of key compaction, many batches in one call.

``note_packed`` finds the batches; the caller unpacks them; ``filter_packed`` copies the records that are kept; the
caller compresses these. Then ``compact_filter.filter_window`` writes the batches in their order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.compact_filter import (
    F_KEPT,
    F_LAST_OFFSET,
    F_MAX_TIMESTAMP,
    F_OUT,
    P_KEPT,
    P_MAX_TIMESTAMP,
    STAYS_PARTLY,
    batch_goes,
    filter_records,
)
from krepair.kernels.compact_keys import (
    CODEC_MASK,
    CONTROL,
    NEED_BYTES,
    P_CODEC,
    P_END,
    P_PLACE,
    P_SIZE,
    P_START,
)
from krepair.kernels.jit import kernel
from krepair.kernels.legacy import SMALLEST_BYTES
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import ATTRIBUTES, BASE_OFFSET, HEADER, LAST_DELTA, MAGIC, RECORD_COUNT
from krepair.kernels.words import be16, be32, be64, byte_at


@kernel("bytes, long, long, fixed rows, longs, longs, longs, rows")
def note_packed(
    buf: Any, filled: Any, place: Any, aborted: Any, stays: Any, inputs: Any, state: Any, packed: Any
) -> Any:
    """Find the compressed v2 batches of which some records may be kept, if the window holds them completely.

    Args:
        buf: window of the log, uint8[W].
        filled: number of valid bytes in the buffer.
        place: place of the batch to begin with.
        aborted: int64[N, 3], see ``filter_window``.
        stays: offsets that are kept, int64[N], see ``filter_window``.
        inputs: inputs of the compaction, int64[INPUT_SIZE].
        state: int64[FILTER_STATE]; only ``F_CURSOR`` moves.
        packed: int64[P, FILTERED_COLUMNS], out: place, size and codec of each batch.

    Returns:
        Number of batches found, at most P.
    """
    noted = np.int64(0)
    at = np.int64(place)
    while at + SMALLEST_BYTES <= filled and noted < packed.shape[0]:
        size = next_batch(buf, at, filled - at)
        if size == 0:
            break
        if byte_at(buf, at + MAGIC) == 2:
            attributes = be16(buf, at + ATTRIBUTES)
            if (
                attributes & CODEC_MASK != 0
                and attributes & CONTROL == 0
                and be32(buf, at + RECORD_COUNT) > 0
                and batch_goes(buf, at, attributes, be32(buf, at + LAST_DELTA), aborted, stays, inputs, state)
                == STAYS_PARTLY
            ):
                packed[noted, P_PLACE] = at
                packed[noted, P_SIZE] = size
                packed[noted, P_CODEC] = attributes & CODEC_MASK
                noted += 1
        at += size
    return noted


@kernel("bytes, rows, long, long, bytes, long, longs, longs, longs, longs, longs, bytes")
def filter_packed(
    heads: Any,
    packed: Any,
    first: Any,
    after: Any,
    unpacked: Any,
    most: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    out: Any,
) -> Any:
    """Copy the kept records of compressed batches, whose records were unpacked into a buffer.

    Args:
        heads: uint8[W], the window that holds their headers.
        packed: int64[P, FILTERED_COLUMNS], in and out. ``P_START`` and ``P_END`` give the place of the unpacked
            records, and afterwards the place of the kept records in ``out``; both are equal if all records are kept.
            ``P_KEPT`` and ``P_MAX_TIMESTAMP`` are set; ``P_KEPT`` is -1 if the batch must be read alone.
        first: row to begin with.
        after: row after the last.
        unpacked: uncompressed records of the batches, uint8[V].
        most: largest size of a batch's records in bytes; a batch with more is read separately.
        stays: offsets that are kept, int64[N], see ``filter_window``.
        held: offsets that other replicas hold, int64[H], see ``filter_window``.
        inputs: inputs of the compaction, int64[INPUT_SIZE].
        state: state of the pass, int64[FILTER_STATE], in and out.
        tallies: counters, int64[TALLY_COUNT], in and out.
        out: uint8[V], out: the kept records, back to back.

    Returns:
        The row after the last filtered batch. The kernel stops after a batch whose records cannot be read; the caller
        reads that batch alone, and reports the error.
    """
    state[F_OUT] = 0
    row = np.int64(first)
    while row < after:
        place, start, end = packed[row, P_PLACE], packed[row, P_START], packed[row, P_END]
        to = state[F_OUT]
        packed[row, P_START] = packed[row, P_END] = to
        packed[row, P_KEPT] = -1
        row += 1
        if end - start > most:
            continue
        count = be32(heads, place + RECORD_COUNT)
        state[F_LAST_OFFSET] = be64(heads, place + BASE_OFFSET) - 1
        state[F_KEPT] = 0
        state[F_MAX_TIMESTAMP] = -1
        status, read, at = filter_records(
            unpacked,
            start,
            end,
            count,
            heads[place : place + HEADER],
            stays,
            held,
            inputs,
            state,
            tallies,
            out,
        )
        if status != NEED_BYTES or read != count or at != end:
            break
        packed[row - 1, P_KEPT] = state[F_KEPT]
        packed[row - 1, P_MAX_TIMESTAMP] = state[F_MAX_TIMESTAMP]
        if state[F_KEPT] == count:
            state[F_OUT] = to
        packed[row - 1, P_END] = state[F_OUT]
    return row
