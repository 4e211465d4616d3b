"""Hashes of keys for the proof of key compaction: values of a polynomial at points that are drawn each time.

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


@inlined
def _step(sum_so_far: Any, point: Any, chunk: Any) -> Any:
    """The next sum, which is below 2^61 + 2 and not yet below 2^61 - 1: so may be the one before."""
    low = product_low(sum_so_far, point)
    high = product_high(sum_so_far, point)
    total = (low & _P) + ((low >> _61) | (high << _3)) + chunk
    return (total & _P) + (total >> _61)


@inlined
def two_hashes(buf: Any, start: Any, size: Any, point_1: Any, point_2: Any) -> Any:
    """Two hashes (uint64) of a key: a polynomial with the key's bytes as coefficients, seven by seven, at two points.

    The size of the key is the last coefficient, so that the last bytes of the key are multiplied too. Otherwise keys
    that count upwards would take slots side by side in a table. 8 bytes behind the key are read; their values do not
    matter.
    """
    place = np.int64(start)
    left = np.int64(size)
    first = le64(buf, place) & _7_BYTES
    if left < 7:
        first &= (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
    second = first
    while left > 7:
        place += 7
        left -= 7
        chunk = le64(buf, place) & _7_BYTES
        if left < 7:
            chunk &= (np.uint64(1) << np.uint64(8 * left)) - np.uint64(1)
        first = _step(first, point_1, chunk)
        second = _step(second, point_2, chunk)
    last = np.uint64(size) + np.uint64(1)
    first, second = _step(first, point_1, last), _step(second, point_2, last)
    return first - _P if first >= _P else first, second - _P if second >= _P else second
