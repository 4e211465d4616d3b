"""The kernels and the Python code agree on where a batch ends, for every format."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.formats.batch_front import FRONT_BYTES, LEAST_BYTES, BatchFront, batch_front
from krepair.kernels.next_batch import next_batch

LENGTHS = (
    st.sampled_from([least - 12 + near for least in LEAST_BYTES for near in (-1, 0, 1)])
    | st.sampled_from([-(2**31), -13, -12, -1, 0, 2**31 - 1])
    | st.integers(-(2**31), 2**31 - 1)
)


def front_of(offset: int, length: int, magic: int) -> bytes:
    return struct.pack(">qi4sB", offset, length, b"crc!", magic)


@settings(max_examples=300)
@given(st.integers(-(2**63), 2**63 - 1), LENGTHS, st.integers(0, 4) | st.just(255), st.integers(-2, 2))
def test_kernel_and_python_find_the_same_end(offset: int, length: int, magic: int, near: int) -> None:
    raw = front_of(offset, length, magic)
    said = batch_front(b"x" + raw, 1)
    assert said == BatchFront(offset, length + 12, magic)
    left = said.size + near
    found = int(next_batch(np.frombuffer(raw, np.uint8), 0, left))
    assert found == (said.size if said.fits(left) else 0)


@pytest.mark.parametrize(("magic", "least"), enumerate(LEAST_BYTES))
def test_the_smallest_of_each_format_fits_exactly(magic: int, least: int) -> None:
    said = batch_front(front_of(0, least - 12, magic))
    assert said is not None
    assert said.fits(least)
    assert not said.fits(least - 1)
    shorter = batch_front(front_of(0, least - 13, magic))
    assert shorter is not None
    assert not shorter.fits(1 << 40)


@pytest.mark.parametrize("size", range(FRONT_BYTES))
def test_fewer_bytes_have_no_front(size: int) -> None:
    assert batch_front(bytes(size)) is None
    assert batch_front(bytes(size + 5), 5) is None
