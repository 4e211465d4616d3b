"""Digests of a log that is scanned: of its headers, in their order, and of the classes of its batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from krepair.kernels import classes as c
from krepair.kernels.jit import inlined_by_numba
from krepair.kernels.words import le64, product_high, product_low

# Odd 64-bit multipliers (digits of the fractional parts of square roots of primes), one per header word and lane.
# They are scalars, not an array, so that the compiler can put them into the instructions.
_K0 = np.uint64(0x6A09E667F3BCC909)
_K1 = np.uint64(0xBB67AE8584CAA73B)
_K2 = np.uint64(0x3C6EF372FE94F82B)
_K3 = np.uint64(0xA54FF53A5F1D36F1)
_K4 = np.uint64(0x510E527FADE682D1)
_K5 = np.uint64(0x9B05688C2B3E6C1F)
_K6 = np.uint64(0x1F83D9ABFB41BD6B)
_K7 = np.uint64(0x5BE0CD19137E2179)
MULTIPLIER = np.uint64(0xD1310BA698DFB5AD)
_KP = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@inlined_by_numba
def mix(value: Any) -> Any:
    """Spread every bit of a 64-bit word over all others (splitmix finaliser)."""
    value = np.uint64(value)
    value = (value ^ (value >> np.uint64(31))) * _MIX
    return value ^ (value >> np.uint64(29))


@inlined_by_numba
def decision_word(position: int, batch_class: int) -> Any:
    """Return the number that one batch adds to the digest of decisions.

    The digest is a sum, so that the class of a batch can be changed later. The most frequent class adds 0. It needs no
    word: the digest of headers covers all batches, and the other classes add a word for each batch.
    """
    if batch_class == c.MARKER_UNSTAMPED:
        return np.uint64(0)
    return mix(np.uint64(position * 16 + batch_class) * _KP)


@inlined_by_numba
def _chained(digest: Any, value: Any, multiplier: Any) -> Any:
    """Return the next value of a lane of the digest of headers. It depends on their order, so on positions."""
    digest = digest ^ value
    return ((digest << np.uint64(29)) | (digest >> np.uint64(35))) * multiplier


@inlined_by_numba
def digested(headers_1: Any, headers_2: Any, buf: Any, place: int, crc_mask: Any) -> Any:
    """Return the next values of both lanes of the digest of headers, with the header at a place.

    ``crc_mask`` is all ones, or has zeros where the word from byte 13 on has the CRC: then it counts as 0.
    """
    pair_1a, pair_1b = le64(buf, place) ^ _K0, le64(buf, place + 8) ^ _K1
    pair_2a, pair_2b = (le64(buf, place + 13) & crc_mask) ^ _K2, le64(buf, place + 21) ^ _K3
    pair_3a, pair_3b = le64(buf, place + 29) ^ _K4, le64(buf, place + 37) ^ _K5
    pair_4a, pair_4b = le64(buf, place + 45) ^ _K6, le64(buf, place + 53) ^ _K7
    low = product_low(pair_1a, pair_1b) + product_low(pair_2a, pair_2b)
    low += product_low(pair_3a, pair_3b) + product_low(pair_4a, pair_4b)
    high = product_high(pair_1a, pair_1b) + product_high(pair_2a, pair_2b)
    high += product_high(pair_3a, pair_3b) + product_high(pair_4a, pair_4b)
    return _chained(headers_1, low, MULTIPLIER), _chained(headers_2, high, _KP)
