"""Summaries as bytes: what travels between a worker and the driver. Work items travel, batches never do."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec
import numpy as np

from krepair.kernels.scan import SegmentSummary


def encode_summary(summary: SegmentSummary) -> bytes:
    """A summary as MessagePack; arrays as shape and bytes."""
    return _ENCODER.encode(summary)


def decode_summary(data: bytes) -> SegmentSummary:
    """The inverse of ``encode_summary``."""
    return _DECODER.decode(data)


def _encoded(array: np.ndarray[Any, Any]) -> tuple[tuple[int, ...], bytes]:
    return array.shape, array.tobytes()


def _decoded(kind: type, pair: tuple[list[int], bytes]) -> np.ndarray[Any, Any]:
    """An array of the kind that the field is declared with, see ``krepair.formats.arrays``."""
    shape, raw = pair
    return np.ndarray(shape, _number_in(kind), bytearray(raw))  # bytes that may be changed


@cache
def _number_in(kind: type) -> Any:
    """The kind of number in a kind of array; there are only a few."""
    (number,) = get_args(get_args(kind)[1])
    return number


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encoded)
_DECODER = msgspec.msgpack.Decoder(SegmentSummary, dec_hook=_decoded)
