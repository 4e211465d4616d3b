"""Computes the result of a key compaction from the notes of ``compaction.headers``, without reading most batches.

If no record of a batch is kept, its new header follows from its old one. If the sizes of the records of an uncompressed
batch were noted, its new header follows too, except the CRC; in place of the records there are bytes without meaning.
All other batches must be read from the log, and ``compact_filter`` takes them.
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
    F_RUN_SIZED,
    F_SIZED,
    FIELDS,
    GOES_ABORTED,
    N_NOW_MS,
    STAYS_PARTLY,
    batch_goes,
    copied,
    count_gone,
    put_empty,
    put_left,
    record_stays,
    stamp_of,
)
from krepair.kernels.compact_keys import (
    BAD_RECORD,
    CODEC_MASK,
    CONTROL,
    NEED_BYTES,
    OTHER,
    OUTPUT_FULL,
    W_KEYLESS,
    W_SIZE,
    W_STEP,
    W_STEP_SHIFT,
    W_TIME_SHIFT,
    W_TOMBSTONE,
)
from krepair.kernels.compact_records import F_KEY_SIZE, F_VALUE_SIZE
from krepair.kernels.jit import inlined, kernel
from krepair.kernels.next_batch import next_batch
from krepair.kernels.scan_window import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    HEADER,
    LAST_DELTA,
    LENGTH,
    LENGTH_END,
    MAGIC,
    RECORD_COUNT,
)
from krepair.kernels.words import be16, be32, be64, byte_at


@kernel("bytes, long, bytes")
def note_headers(buf: Any, end: Any, out: Any) -> Any:
    """Copy the headers of the batches of a window.

    Args:
        buf: uint8[W] that begins with a batch; the caller has checked all batches.
        end: place after the last batch, which may exceed the window.
        out: noted headers, uint8[V], out.

    Returns:
        Number of headers; -1 if there is no room for all of them, or a batch is of v0 or v1.
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
def _of(heads: Any, at: Any, size: Any, most: Any, aborted: Any, stays: Any, inputs: Any, state: Any) -> Any:
    """Return (whether the batch must be read, its fate by its header, number of words of its records).

    ``most``: size in bytes of the largest batch whose words are used, 0 if there are no words.
    """
    attributes, count = be16(heads, at + ATTRIBUTES), be32(heads, at + RECORD_COUNT)
    goes, words = STAYS_PARTLY, np.int64(0)
    if attributes & CONTROL != 0 or count <= 0:
        reads = size != HEADER  # a header alone is copied as it is
    else:
        goes = batch_goes(heads, at, attributes, be32(heads, at + LAST_DELTA), aborted, stays, inputs, state)
        if most > 0 and attributes & CODEC_MASK == 0 and goes != GOES_ABORTED:
            words = np.int64(count)
        reads = goes == STAYS_PARTLY and (words == 0 or size > most)
    return reads, goes, words


@inlined
def _put_by_words(
    heads: Any, at: Any, size: Any, sizes: Any, first: Any, count: Any, stays: Any, held: Any, inputs: Any, state: Any,
    tallies: Any, out: Any, to: Any,
) -> Any:  # fmt: skip
    """Write the new header of a batch, and leave room for its records; return the place after them.

    The words of the batch's records begin at ``first``. The result is -1 if these words cannot be of this batch.
    """
    fields = state[FIELDS:]
    base_timestamp = be64(heads, at + BASE_TIMESTAMP)
    stamp = stamp_of(be16(heads, at + ATTRIBUTES), base_timestamp, inputs[N_NOW_MS])
    offset = be64(heads, at + BASE_OFFSET) - 1
    kept, end, every, latest = np.int64(0), np.int64(to + HEADER), np.int64(HEADER), np.int64(-1)
    for number in range(first, min(first + count, sizes.shape[0])):
        word = np.int64(sizes[np.uint64(number)])
        record = word & W_SIZE
        every += record
        offset += (word >> W_STEP_SHIFT) & W_STEP
        fields[F_KEY_SIZE] = -1 if word & W_KEYLESS != 0 else 0
        fields[F_VALUE_SIZE] = -1 if word & W_TOMBSTONE != 0 else 0
        if record_stays(offset, record, fields, stamp, stays, held, inputs, state, tallies):
            kept += 1
            end += record
            latest = max(latest, base_timestamp + (word >> W_TIME_SHIFT))
    if every != size:
        return np.int64(-1)
    return put_left(heads, at, count, kept, latest, np.int64(0), tallies, out, to, end)


@kernel("fixed bytes, fixed words, long, long, fixed rows, longs, longs, longs, longs, longs, bytes")
def filter_headers(
    heads: Any,
    sizes: Any,
    window_bytes: Any,
    gap_bytes: Any,
    aborted: Any,
    stays: Any,
    held: Any,
    inputs: Any,
    state: Any,
    tallies: Any,
    out: Any,
) -> Any:
    """Write the kept part of batches that need not be read, up to a batch that must be read.

    Args:
        heads: uint8[N * 61], the headers of all batches of a log, in order.
        sizes: uint64[R], a word for each record of uncompressed batches that are not aborted, in order; or uint64[0].
        window_bytes: largest size in bytes of a run of batches that are read together, unless it is a single batch.
        gap_bytes: size in bytes of the largest gap between two batches that must be read, for which one reading takes
            both, with the batches between them.
        aborted: int64[N, 3] (producer id, first offset, offset of the marker), ascending by the first two.
        stays: int64[N] offsets of the last record of each key, ascending.
        held: offsets that other replicas hold, int64[H], see ``filter_window``.
        inputs: inputs of the compaction, int64[INPUT_SIZE].
        state: int64[FILTER_STATE]; ``F_ROW``, ``F_POSITION`` and ``F_SIZED`` are of the next batch.
        tallies: counters, int64[TALLY_COUNT], in and out.
        out: uint8[V], out, from ``F_OUT`` on. The bytes of records that are known only by ``sizes`` are not written.

    Returns:
        ``NEED_BYTES`` at the end; ``OUTPUT_FULL``; ``OTHER`` if the next batches must be read, up to ``F_RUN_ROW``,
        ``F_RUN_END`` and ``F_RUN_SIZED``; ``BAD_RECORD`` if the words cannot be of these batches.
    """
    rows = heads.shape[0] // HEADER
    row, position, sized = np.int64(state[F_ROW]), np.int64(state[F_POSITION]), np.int64(state[F_SIZED])
    most = out.shape[0] if sizes.shape[0] > 0 else 0
    status = NEED_BYTES
    while row < rows:
        at = row * HEADER
        size = be32(heads, at + LENGTH) + LENGTH_END
        reads, goes, words = _of(heads, at, size, most, aborted, stays, inputs, state)
        if reads:
            status = OTHER
            break
        to = np.int64(state[F_OUT])
        by_words = goes == STAYS_PARTLY and words > 0
        after = to + HEADER
        if to + (size if by_words else HEADER) > out.shape[0]:
            status = OUTPUT_FULL
            break
        if by_words:
            after = _put_by_words(
                heads, at, size, sizes, sized, words, stays, held, inputs, state, tallies, out, to
            )  # fmt: skip
            if after < 0:
                status = BAD_RECORD
                break
        elif goes != STAYS_PARTLY:
            count_gone(goes, be32(heads, at + RECORD_COUNT), tallies)
            put_empty(heads, at, out, to)
        else:
            copied(heads, at, at + HEADER, out, to)
        state[F_OUT] = after
        position += size
        sized += words
        row += 1
    state[F_ROW], state[F_POSITION], state[F_SIZED] = row, position, sized
    if status == OTHER:
        begun = position
        run_row, run_end, run_sized = row, begun, sized
        while row < rows:
            at = row * HEADER
            size = be32(heads, at + LENGTH) + LENGTH_END
            if run_end > begun and position + size - begun > window_bytes:
                break
            reads, goes, words = _of(heads, at, size, most, aborted, stays, inputs, state)
            position += size
            sized += words
            row += 1
            if reads:
                run_row, run_end, run_sized = row, position, sized
            elif position - run_end > gap_bytes:
                break
        state[F_RUN_ROW], state[F_RUN_END], state[F_RUN_SIZED] = run_row, run_end, run_sized
    return status
