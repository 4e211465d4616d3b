"""Log directories for the benchmarks, generated at numpy's speed from templates with offsets, times and CRCs filled in.

They hold what a broker would read without complaint: valid CRCs, ascending offsets, a high watermark, a clean stop.
Indexes are left empty: a broker, a cleaner and krepair all work without them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crc32c
import numpy as np

from krepair.formats import batch_v2, compression
from tests import builders, encoders

CHUNK_BATCHES = 1 << 16
RECORDS_EACH = 16
NOW_MS = builders.NOW_MS
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def _byte_table() -> np.ndarray[Any, np.dtype[np.uint32]]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(
            table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1)
        ).astype(np.uint32)
    return table


_TABLE = _byte_table()


def _put(rows: Bytes, place: int, values: Any, kind: str) -> None:
    width = np.dtype(kind).itemsize
    rows[:, place : place + width] = (
        np.ascontiguousarray(values).astype(kind).view(np.uint8).reshape(len(rows), width)
    )


def _seal(rows: Bytes) -> None:
    """Fill in the CRCs: large batches one by one, small ones all together, byte column by byte column."""
    if rows.shape[1] > 512:
        for row in rows:
            row[17:21] = np.frombuffer(crc32c.crc32c(row[21:].tobytes()).to_bytes(4, "big"), np.uint8)
        return
    crc = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(rows[:, 21:].T):
        crc = _TABLE[(crc ^ column) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    _put(rows, 17, crc ^ np.uint32(0xFFFFFFFF), ">u4")


def _rows(template: bytes, offsets: Any, producer_ids: Any, timestamps: Any) -> Bytes:
    rows = np.tile(np.frombuffer(template, np.uint8), (len(offsets), 1))
    _put(rows, 0, offsets, ">i8")
    _put(rows, 27, timestamps, ">i8")
    _put(rows, 35, timestamps, ">i8")
    _put(rows, 43, producer_ids, ">i8")
    return rows


def markers(first_offset: int, count: int, producers: int) -> bytes:
    """Generate COMMIT markers without data, of producers in random order."""
    chance = np.random.default_rng(first_offset)
    offsets = np.arange(first_offset, first_offset + count)
    ids = 1000 + chance.integers(0, producers, count)
    rows = _rows(builders.commit(0, pid=1).raw, offsets, ids, NOW_MS - 10**9 + offsets)
    _seal(rows)
    return rows.tobytes()


def blocks(
    first_offset: int, count: int, producers: int, *, record_bytes: int = 1024, markers_each: int = 13
) -> bytes:
    """Generate blocks of one transactional batch with one record, its COMMIT marker, and markers without data."""
    data = builders.data(0, [builders.Record(b"k" * 16, b"v" * (record_bytes - 16))], pid=1, txn=True).raw
    chance = np.random.default_rng(first_offset)
    per_block = markers_each + 2
    starts = first_offset + np.arange(count) * per_block
    ids = 1000 + chance.integers(0, producers, count)
    data_rows = _rows(data, starts, ids, NOW_MS - 10**9 + starts)
    key = data.index(b"k" * 16)
    _put(data_rows, key, starts, ">i8")
    _seal(data_rows)
    offsets = (starts[:, None] + np.arange(1, per_block)).reshape(-1)
    marker_ids = 1000 + chance.integers(0, producers, (count, markers_each + 1))
    marker_ids[:, 0] = ids
    marker_rows = _rows(
        builders.commit(0, pid=1).raw, offsets, marker_ids.reshape(-1), NOW_MS - 10**9 + offsets
    )
    _seal(marker_rows)
    together = [data_rows, marker_rows.reshape(count, -1)]
    return np.concatenate(together, axis=1).tobytes()


def records(first_offset: int, count: int, _producers: int) -> bytes:
    """Generate batches of 16 uncompressed records of 1 kB."""
    return _batches_like(_record_batch(), first_offset, count)


def texts(first_offset: int, count: int, _producers: int) -> bytes:
    """Generate batches of 16 uncompressed records of 1 kB of text."""
    value = (b'{"customer":"c-0123456789","note":"' + b"what a person wrote, " * 50)[:998] + b'"}'
    batch = builders.data(0, [builders.Record(b"k" * 16, value) for _ in range(RECORDS_EACH)]).raw
    return _batches_like(batch, first_offset, count)


def commits(first_offset: int, count: int, groups: int) -> bytes:
    """Generate offset commits, one per batch, of ``groups`` groups in random order, each of ten partitions."""
    key = struct.pack(">hh10sh6si", 1, 10, b"g000000000", 6, b"orders", 0)
    value = struct.pack(">hqihq", 3, 0, -1, 0, NOW_MS)
    template = builders.data(0, [builders.Record(key, value)]).raw
    chance = np.random.default_rng(first_offset)
    offsets = first_offset + np.arange(count)
    rows = _rows(template, offsets, np.full(count, -1), NOW_MS - 10**9 + offsets)
    at = template.index(b"g000000000") + 1
    names = np.char.zfill(chance.integers(0, groups, count).astype(str), 9).astype("S9")
    rows[:, at : at + 9] = names.view(np.uint8).reshape(count, 9)
    _put(rows, template.index(b"orders") + 6, chance.integers(0, 10, count), ">i4")
    _put(rows, template.index(value) + 2, offsets, ">i8")
    _seal(rows)
    return rows.tobytes()


def states(first_offset: int, count: int, ids: int) -> bytes:
    """Generate records of beginning transactions, one per batch, of ``ids`` transactional ids in random order."""
    key = struct.pack(">hh10s", 0, 10, b"t000000000")
    topic = struct.pack(">ih6sii", 1, 6, b"orders", 1, 0)
    value = struct.pack(">hqhib", 0, 7, 0, 60_000, 1) + topic + struct.pack(">qq", NOW_MS, NOW_MS)
    template = builders.data(0, [builders.Record(key, value)]).raw
    chance = np.random.default_rng(first_offset)
    offsets = first_offset + np.arange(count)
    rows = _rows(template, offsets, np.full(count, -1), NOW_MS - 10**9 + offsets)
    at = template.index(b"t000000000") + 1
    names = np.char.zfill(chance.integers(0, ids, count).astype(str), 9).astype("S9")
    rows[:, at : at + 9] = names.view(np.uint8).reshape(count, 9)
    _seal(rows)
    return rows.tobytes()


def lz4_records(first_offset: int, count: int, _producers: int) -> bytes:
    """Generate batches of 16 records of 1 kB, compressed with lz4 to about half."""
    plain = _record_batch()
    header = batch_v2.decode_header(plain)
    body = encoders.compress(compression.Codec.LZ4, plain[batch_v2.HEADER_SIZE :])
    packed = batch_v2.encode_batch(header._replace(attributes=compression.Codec.LZ4), body)
    return _batches_like(packed, first_offset, count)


def _record_batch() -> bytes:
    chance = np.random.default_rng(7)
    values = [chance.bytes(500) + b"v" * 500 for _ in range(RECORDS_EACH)]
    return builders.data(0, [builders.Record(b"k" * 16, value) for value in values]).raw


def _batches_like(template: bytes, first_offset: int, count: int) -> bytes:
    offsets = first_offset + np.arange(count) * RECORDS_EACH
    rows = _rows(template, offsets, np.full(count, -1), NOW_MS - 10**9 + offsets)
    _seal(rows)
    return rows.tobytes()


@dataclass(frozen=True)
class Made:
    """Log directory with one partition.

    Attributes:
        root: path of the log directory.
        folder: path of the partition folder.
        log_bytes: size of all segments in bytes.
        batches: number of batches in all segments.
    """

    root: Path
    folder: Path
    log_bytes: int
    batches: int


def close(root: Path, topic: str, ends: Sequence[int]) -> None:
    """Write the files of the root after a clean stop; ``ends`` is the log end offset of each partition of the topic."""
    lines = "".join(f"{topic} {number} {end}\n" for number, end in enumerate(ends))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n{len(ends)}\n{lines}")
    (root / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=krepair-bench-cluster\n")
    (root / ".kafka_cleanshutdown").touch()


def make(
    root: Path, kind: str, total_bytes: int, *, segment_bytes: int = 100_000_000, producers: int = 200
) -> Made:
    """Write a log directory with one partition of a coordinator's topic.

    Args:
        root: path of the log directory to create.
        kind: ``markers``, ``half`` (half markers, half batches of 1 kB records), ``records`` or ``lz4`` (batches of
            16 records of 1 kB, plain or compressed), ``texts`` (the same of text), ``commits`` (offset commits),
            ``states`` (of ``__transaction_state``).
        total_bytes: approximate size of the ``.log`` files; less than one batch means ten batches.
        segment_bytes: size of a segment in bytes.
        producers: number of producer ids.
    """
    topic = "__transaction_state" if kind == "states" else "__consumer_offsets"
    folder = root / f"{topic}-0"
    folder.mkdir(parents=True)
    make_chunk, unit_batches = {
        "markers": (markers, 1),
        "half": (blocks, 15),
        "records": (records, RECORDS_EACH),
        "lz4": (lz4_records, RECORDS_EACH),
        "texts": (texts, RECORDS_EACH),
        "commits": (commits, 1),
        "states": (states, 1),
    }[kind]
    unit = len(make_chunk(0, 1, 1))
    chunk = max(1, CHUNK_BATCHES // unit_batches)
    offset = 0
    to_write = max(10 if kind == "markers" else 1, total_bytes // unit)
    per_segment = max(1, segment_bytes // unit)
    written = 0
    while to_write:
        here = min(to_write, per_segment)
        to_write -= here
        path = folder / f"{offset:020d}.log"
        with path.open("wb") as file:
            while here:
                count = min(chunk, here)
                file.write(make_chunk(offset, count, producers))
                offset += count * unit_batches
                here -= count
            written += file.tell()
        os.utime(path, ns=(NOW_MS * 10**6 - 10**15, NOW_MS * 10**6 - 10**15))
    active = builders.data(offset, 1).raw
    (folder / f"{offset:020d}.log").write_bytes(active)
    for path in folder.glob("*.log"):
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).touch()
    end = offset + 1
    close(root, topic, [end])
    (folder / f"{end:020d}.snapshot").write_bytes(builders.Replay().snapshot())
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return Made(root, folder, written + len(active), offset + 1)
