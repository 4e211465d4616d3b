"""The hashes of the kernel are those of plain steps, and do not depend on how a batch was packed or cleaned."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from krepair.formats import batch_v2, message_set
from krepair.kernels import replica_rows as h
from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.look.dump.record import shown_of
from krepair.replicas import records
from krepair.replicas.records import Differing, Hashed, HashWalk, RecordBytes
from tests import old_messages
from tests.builders import reading, varint
from tests.fixture_dirs import unpack

SECRET = np.array([7, 9], np.uint64)
NO_FATES = np.empty((0, 3), np.int64)


class _Slow(HashWalk):
    """Hashes each record in plain steps, one batch at a time."""

    def _batches(self, rows, origin):
        for row in rows:
            yield from self._one_batch(row, origin)

    def _record_lines(self, buf, rows, counts, records):
        for place in range(int(counts[0])):
            shown = shown_of(rows[0], records[place], buf)
            self._taken.bytes.begin(shown.key_size)
            self._taken.bytes.take(memoryview(_body(rows[0], shown)))
            yield from self._one_record(rows[0], shown)


def _body(row, shown) -> bytes:
    if row["magic"] < batch_v2.MAGIC:
        return (shown.key or b"") + message_set.LENGTH.pack((shown.value_size,)) + (shown.value or b"")
    body = (shown.key or b"") + varint(shown.value_size) + (shown.value or b"")
    body += varint(len(shown.headers))
    for name, value in shown.headers:
        body += varint(len(name)) + name
        body += varint(-1 if value is None else len(value)) + (value or b"")
    return body


def _hashes_of_logs(walk_of, folder: Path) -> tuple[list[tuple[int, ...]], list[int]]:
    hashes, batches = [], []

    def take(hashed, counts, fates, differing):
        hashes.extend(map(tuple, hashed.tolist()))
        batches.extend(counts.tolist())
        assert len(counts) == len(fates) == len(differing)
        assert counts.sum() == len(hashed)

    for log in sorted(folder.glob("*.log"))[:3]:
        data = log.read_bytes()
        for _ in walk_of(
            reading(data), len(data), int(log.stem), NO_FATES, SECRET, take, Differing(None)
        ).lines():
            pass
    return hashes, batches


@pytest.mark.parametrize("topic", ["c-none-0", "c-lz4-0", "c-gzip-0", "c-snappy-0", "c-lat-0", "c-nullkey-0"])
def test_the_kernels_and_plain_steps_agree_on_real_records(topic: str, tmp_path: Path) -> None:
    folder = unpack("compact-2.2.1-before", tmp_path) / topic
    fast, batches = _hashes_of_logs(HashWalk, folder)
    slow, singly = _hashes_of_logs(_Slow, folder)
    assert fast == slow
    assert len(fast) > 50
    assert max(singly) == 1 < max(batches), "the fast walk takes whole batches"


@pytest.mark.parametrize("seed", range(8))
def test_the_kernels_and_plain_steps_agree_on_messages_of_old_formats(seed: int, tmp_path: Path) -> None:
    """Plain ones, wrappers, with the log's time, and v2 batches between them."""
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(one.raw for one in old_messages.mixed_log(seed, 200)))
    fast, _ = _hashes_of_logs(HashWalk, tmp_path)
    slow, _ = _hashes_of_logs(_Slow, tmp_path)
    assert fast == slow
    assert len(fast) > 100


def test_a_record_that_is_too_large_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "RecordBytes", partial(records.RecordBytes, most=3))
    folder = unpack("compact-2.2.1-before", tmp_path) / "c-none-0"
    with pytest.raises(
        records.ReplicaError, match=r"position 0: a record of at most 67,108,864 bytes was expected"
    ):
        _hashes_of_logs(_Slow, folder)


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
