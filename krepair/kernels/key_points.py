"""Hashes of keys for the verification of key compaction: values of a polynomial at two random points.

Source: Carter and Wegman, Universal classes of hash functions, 1979.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels.jit import inlined
from krepair.kernels.words import le64, product_high, product_low

_P = np.uint64((1 << 61) - 1)
_61, _3 = np.uint64(61), np.uint64(3)
_7_BYTES = np.uint64((1 << 56) - 1)


def points_and_squares(raw: bytes) -> Any:
    """Convert 16 random bytes to two points and their squares, uint64[4], for ``two_hashes``."""
    points = [number >> 3 for number in np.frombuffer(raw, np.uint64).tolist()]
    return np.array([*points, *(point * point % int(_P) for point in points)], np.uint64)


@inlined
def _reduced(low: Any, high: Any, chunk: Any) -> Any:
    """Reduce a number below 2^123 plus a chunk modulo 2^61 - 1, but only to a sum below 2^61 + 4."""
    total = (low & _P) + ((low >> _61) | (high << _3)) + chunk
    return (total & _P) + (total >> _61)


@inlined
def _step(sum_so_far: Any, point: Any, chunk: Any) -> Any:
    """Return the sum after one more chunk."""
    return _reduced(product_low(sum_so_far, point), product_high(sum_so_far, point), chunk)


@inlined
def _two_steps(sum_so_far: Any, point: Any, square: Any, one: Any, other: Any) -> Any:
    """Return the sum after two chunks: one reduction for both, and neither product waits for the other."""
    low = product_low(sum_so_far, square)
    added = low + product_low(one, point)
    high = product_high(sum_so_far, square) + product_high(one, point)
    return _reduced(added, high + np.uint64(1 if added < low else 0), other)


@inlined
def _chunk(buf: Any, place: Any, left: Any) -> Any:
    """Return the next seven bytes, or the remaining ones."""
    chunk = le64(buf, place) & _7_BYTES
    if left < 7:
        chunk &= (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
    return chunk


@inlined
def two_hashes(buf: Any, start: Any, size: Any, points: Any) -> Any:
    """Return two hashes (uint64) of a key: a polynomial whose coefficients are groups of seven bytes, at two points.

    The size of the key is the last coefficient, so that the last bytes of the key are multiplied too. Otherwise keys
    that count upwards would take slots side by side in a table. 8 bytes after the key are read; their values do not
    matter.
    """
    place = np.int64(start)
    left = np.int64(size)
    first = _chunk(buf, place, left)
    second = first
    while left > 14:
        one, other = le64(buf, place + 7) & _7_BYTES, _chunk(buf, place + 14, left - 14)
        first = _two_steps(first, points[0], points[2], one, other)
        second = _two_steps(second, points[1], points[3], one, other)
        place += 14
        left -= 14
    last = np.uint64(size) + np.uint64(1)
    if left > 7:
        one = _chunk(buf, place + 7, left - 7)
        first = _two_steps(first, points[0], points[2], one, last)
        second = _two_steps(second, points[1], points[3], one, last)
    else:
        first, second = _step(first, points[0], last), _step(second, points[1], last)
    return first - _P if first >= _P else first, second - _P if second >= _P else second
