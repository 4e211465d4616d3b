"""Hashes of keys against reference vectors, and against plain Python over integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from krepair.kernels.compact_records import SLACK, key_hash
from krepair.kernels.key_points import points_and_squares, two_hashes

MASK = 2**64 - 1
KEY = bytes(range(16))
# of the reference implementation of SipHash: SipHash-2-4 with 128 bits, key 00 01 .. 0f, input 00 01 .. of that length
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
}


def rotated(word: int, turn: int) -> int:
    return (word << turn | word >> (64 - turn)) & MASK


def siphash(data: bytes, key: bytes, *, of_word: int = 1, at_end: int = 3) -> bytes:
    """SipHash with 128 bits, word by word, with so many rounds."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D ^ 0xEE,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 255])
    for place in range(0, len(padded), 8):
        word = int.from_bytes(padded[place : place + 8], "little")
        v[3] ^= word
        rounds(of_word)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(at_end)
    out = (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    v[1] ^= 0xDD
    rounds(at_end)
    return out + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def hashed(data: bytes, key: bytes, front: int = 0, behind: int = 0) -> bytes:
    """The kernel's, with other bytes around the key."""
    buf = np.frombuffer(bytes([7]) * front + data + bytes([behind]) * SLACK, np.uint8)
    secret = np.frombuffer(key, np.uint64)
    first, second = key_hash(buf, front, len(data), secret[0], secret[1])
    return int(first).to_bytes(8, "little") + int(second).to_bytes(8, "little")


@pytest.mark.parametrize("size", VECTORS)
def test_the_plain_hash_is_that_of_the_reference_implementation(size: int) -> None:
    assert siphash(bytes(range(size)), KEY, of_word=2, at_end=4).hex() == VECTORS[size]


def test_the_hash_of_a_key_of_any_size_is_that_of_plain_python_whatever_lies_around_it() -> None:
    chance = random.Random(1)
    for size in (*range(40), 255, 256, 257, 1000):
        data, key = chance.randbytes(size), chance.randbytes(16)
        expected = siphash(data, key)
        assert hashed(data, key) == expected
        assert hashed(data, key, front=3, behind=255) == expected


def test_the_polynomial_of_the_verification_is_that_of_plain_integers() -> None:
    prime, chance = 2**61 - 1, random.Random(2)
    for size in (*range(30), 500):
        data = chance.randbytes(size)
        drawn = chance.randbytes(16)
        points = [int.from_bytes(drawn[place : place + 8], "little") >> 3 for place in (0, 8)]
        buf = np.frombuffer(data + b"\xff" * 8, np.uint8)
        expected = []
        for point in points:
            value = 0
            for place in range(0, size, 7):
                value = (value * point + int.from_bytes(data[place : place + 7], "little")) % prime
            expected.append((value * point + size + 1) % prime)
        assert [int(word) for word in two_hashes(buf, 0, size, points_and_squares(drawn))] == expected


def test_keys_that_count_upwards_are_spread_over_the_whole_table_of_the_verification() -> None:
    points = points_and_squares(random.Random(1).randbytes(16))
    slots, parts = set(), set()
    for number in range(1000):
        buf = np.frombuffer(b"key-%08d" % number + bytes(8), np.uint8)
        first = int(two_hashes(buf, 0, 12, points)[0])
        slots.add((first ^ (first >> 29)) % 4096)
        parts.add(first >> 53)
    assert len(slots) > 800
    assert len(parts) > 200
