"""The kernel's hashes equal those of plain steps, however a batch was compressed or cleaned."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from krepair.formats import batch_v2, message_set
from krepair.kernels import replica_rows as h
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.replicas import records
from krepair.replicas.records import Hashed, RecordBytes, RecordHashes, hashes_of
from krepair.scan.log_records import LargeRecordRead, LogRecords, RecordsRead, record_at
from tests import old_messages
from tests.builders import Record, data, reading, varint
from tests.fixture_dirs import unpack

SECRET = np.array([7, 9], np.uint64)
NO_FATES = np.empty((0, 3), np.int64)


def _slowly(part: RecordsRead) -> list[tuple[int, ...]]:
    """Hash each record in plain steps."""
    hashes, first = [], 0
    for batch, count in zip(part.batches, part.counts.tolist(), strict=True):
        for row in part.records[first : first + count]:
            record, taken = record_at(batch, row, part.buffer), RecordBytes(SECRET)
            taken.begin(record.key_size)
            taken.take(memoryview(_body(batch, record)))
            hashes.append(tuple(map(int, hashes_of(batch, record, taken.hashed()))))
        first += count
    return hashes


def _body(row, shown) -> bytes:
    if row["magic"] < batch_v2.MAGIC:
        return (shown.key or b"") + message_set.LENGTH.pack((shown.value_size,)) + (shown.value or b"")
    body = (shown.key or b"") + varint(shown.value_size) + (shown.value or b"")
    body += varint(len(shown.headers))
    for name, value in shown.headers:
        body += varint(len(name)) + name
        body += varint(-1 if value is None else len(value)) + (value or b"")
    return body


def _hashes_of_logs(folder: Path) -> Iterator[tuple[list[tuple[int, ...]], list[tuple[int, ...]], int]]:
    """(hashes of the kernel, hashes in plain steps, batches) of each part of the first logs."""
    for log in sorted(folder.glob("*.log"))[:3]:
        raw, hashes = log.read_bytes(), RecordHashes(SECRET)
        for part in LogRecords(reading(raw), len(raw), int(log.stem), hashes.options).parts():
            if isinstance(part, RecordsRead):
                fast = hashes.of(part)
                yield [tuple(row) for row in fast.tolist()], _slowly(part), len(part.batches)


@pytest.mark.parametrize("topic", ["c-none-0", "c-lz4-0", "c-gzip-0", "c-snappy-0", "c-lat-0", "c-nullkey-0"])
def test_the_kernels_and_plain_steps_agree_on_real_records(topic: str, tmp_path: Path) -> None:
    folder = unpack("compact-2.2.1-before", tmp_path) / topic
    parts = list(_hashes_of_logs(folder))
    assert all(fast == slow for fast, slow, _ in parts)
    assert sum(len(fast) for fast, _, _ in parts) > 50
    assert max(batches for _, _, batches in parts) > 1, "the kernel takes whole batches"


@pytest.mark.parametrize("seed", range(8))
def test_the_kernels_and_plain_steps_agree_on_messages_of_old_formats(seed: int, tmp_path: Path) -> None:
    """Plain ones, wrappers, with the log's time, and v2 batches between them."""
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(one.raw for one in old_messages.mixed_log(seed, 200)))
    parts = list(_hashes_of_logs(tmp_path))
    assert all(fast == slow for fast, slow, _ in parts)
    assert sum(len(fast) for fast, _, _ in parts) > 100


@pytest.mark.parametrize("most", [1 << 20, 1 << 23])
def test_a_record_that_is_too_large_has_no_hashes_any_other_has_those_of_plain_steps(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RecordBytes", partial(RecordBytes, most=most))
    log = data(0, [Record(key=b"key", value=random.Random(1).randbytes(3 << 20))]).raw
    hashes = RecordHashes(SECRET)
    [(hashed, record)] = [
        (hashes.of(part), part.record)
        for part in LogRecords(reading(log), len(log), 0, hashes.options).parts()
        if isinstance(part, LargeRecordRead)
    ]
    assert record.value_size == 3 << 20
    if most < record.value_size:
        assert hashed is None
        return
    body = b"key" + varint(record.value_size) + random.Random(1).randbytes(3 << 20) + varint(0)
    assert tuple(hashed[0].tolist()[:2]) == plain(body, 3).key


def test_any_field_changes_the_digest() -> None:
    numbers = (5, 2, 1001, 0, 7)
    first = h.digest_of(np.uint64(1), np.uint64(2), *map(np.int64, numbers))
    for place in range(len(numbers)):
        other = list(numbers)
        other[place] += 1
        assert h.digest_of(np.uint64(1), np.uint64(2), *map(np.int64, other)) != first
    assert h.digest_of(np.uint64(2), np.uint64(2), *map(np.int64, numbers)) != first
    assert h.digest_of(np.uint64(1), np.uint64(3), *map(np.int64, numbers)) != first


# -- hashes of records that are read by themselves do not depend on how the bytes come


MOST = 2 << 20


def taken(body: bytes, key_size: int, seed: int, into: RecordBytes) -> RecordBytes:
    """The body comes in pieces of sizes drawn by the seed."""
    chance = random.Random(seed)
    into.begin(key_size)
    place = 0
    while place < len(body):
        size = chance.choice([1, 100, 4096, 1 << 20, 3 << 20])
        into.take(memoryview(body)[place : place + size])
        place += size
    return into


def plain(body: bytes, key_size: int) -> Hashed:
    def of(hash_of, data: bytes) -> tuple[int, int]:
        first, second = hash_of(np.frombuffer(data + bytes(SLACK), np.uint8).copy(), 0, len(data), *SECRET)
        return int(first), int(second)

    return Hashed(of(key_hash, body[:key_size]) if key_size >= 0 else (0, 0), of(body_hash, body))


@pytest.mark.parametrize("share", [None, 0, 0.4, 1])
def test_pieces_of_any_size_give_the_hashes_of_the_whole(share: float | None) -> None:
    into = RecordBytes(SECRET, MOST)
    for size in (5, MOST + 9, 0, 31, MOST, MOST + 1, MOST - 1):
        body = random.Random(size).randbytes(size)
        key_size = -1 if share is None else int(share * size)
        for seed in range(3):
            found = taken(body, key_size, seed, into)
            assert found.too_large == (size > MOST)
            assert found.too_large or found.hashed() == plain(body, key_size)
