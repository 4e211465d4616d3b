"""Hashes of records that are read by themselves: they do not depend on how the bytes come."""

from __future__ import annotations

import random

import numpy as np
import pytest

from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.replicas.records import Hashed, RecordBytes

SECRET = np.array([7, 9], np.uint64)
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
