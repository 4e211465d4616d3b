"""Hashes of records of any size: they do not depend on how the bytes come, and each byte counts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.replica_rows import body_hash
from krepair.replicas.records import Hashed, RecordBytes

SECRET = np.array([7, 9], np.uint64)
MIB = 1 << 20
MOST = 2 * MIB
SIZES = [0, 1, 31, MIB - 1, MIB, MIB + 1, MOST - 1, MOST, MOST + 1, MOST + MIB, MOST + MIB + 5]


def hashed(body: bytes, key_size: int, seed: int, *, taken: RecordBytes | None = None) -> Hashed:
    """The body comes in pieces of sizes drawn by the seed."""
    chance = random.Random(seed)
    taken = taken or RecordBytes(SECRET, MOST)
    taken.begin(key_size)
    place = 0
    while place < len(body):
        size = chance.choice([1, 100, 4096, MIB - 1, MIB, 3 * MIB])
        taken.take(memoryview(body)[place : place + size])
        place += size
    return taken.hashed()


def plain(body: bytes, key_size: int) -> Hashed:
    def of(hash_of, data: bytes, before: tuple[int, int]) -> tuple[int, int]:
        buffer = np.frombuffer(data + bytes(SLACK), np.uint8).copy()
        first, second = hash_of(buffer, 0, len(data), *(SECRET ^ np.array(before, np.uint64)))
        return int(first), int(second)

    if len(body) <= MOST:
        key = of(key_hash, body[:key_size], (0, 0)) if key_size >= 0 else (0, 0)
        return Hashed(key, of(body_hash, body, (0, 0)))
    key = whole = (0, 0)
    for start in range(0, len(body), MIB):
        piece = body[start : start + MIB]
        whole = of(body_hash, piece, whole)
        if start < key_size:
            key = of(key_hash, piece[: key_size - start], key)
    return Hashed(key, whole)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [None, 0, 0.4, 1])
def test_pieces_of_any_size_give_the_hashes_that_are_described(size: int, share: float | None) -> None:
    body = random.Random(size).randbytes(size)
    key_size = -1 if share is None else int(share * size)
    assert {hashed(body, key_size, seed) for seed in range(3)} == {plain(body, key_size)}


def test_one_object_takes_long_and_short_records_in_turns() -> None:
    taken = RecordBytes(SECRET, MOST)
    for size in (5, MOST + 9, 0, MOST, MOST + MIB + 1, 77):
        body = random.Random(size).randbytes(size)
        assert hashed(body, size // 3, 1, taken=taken) == plain(body, size // 3)


@pytest.mark.parametrize("place", [0, MIB - 1, MIB, MOST, MOST + 4])
def test_another_byte_anywhere_in_a_long_record_gives_other_hashes(place: int) -> None:
    body = bytearray(MOST + 5)
    before = hashed(bytes(body), MOST + 5, 1)
    body[place] ^= 1
    after = hashed(bytes(body), MOST + 5, 1)
    assert before.key != after.key
    assert before.body != after.body
