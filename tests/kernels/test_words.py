"""CRC-32C by instruction, by table and by the crc32c package; loads at any position."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import crc32c
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels.instructions import HARDWARE_CRC, be16, be32, be64, crc32c_table, crc32c_update, le64
from krepair.kernels.jit import kernel
from krepair.kernels.scan_window import crc_piece


@kernel("long, bytes, long, long")
def by_instruction(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32c_update(crc, buf, start, end)


@kernel("long, bytes, long, long")
def by_table(crc: int, buf: Any, start: int, end: int) -> int:
    return crc32c_table(crc, buf, start, end)


@kernel("bytes, long, longs")
def loads(buf: Any, place: int, out: Any) -> None:
    out[0], out[1], out[2], out[3] = (
        be16(buf, place),
        be32(buf, place),
        be64(buf, place),
        np.int64(le64(buf, place)),
    )


def test_the_standard_check_value_is_met() -> None:
    buf = np.frombuffer(b"123456789", np.uint8)
    assert [by_instruction(0, buf, 0, 9), by_table(0, buf, 0, 9)] == [0xE3069283] * 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=5000), st.integers(0, 5000), st.integers(0, 2**32 - 1))
def test_instruction_table_and_package_agree_in_pieces(data: bytes, cut: int, crc: int) -> None:
    buf = np.frombuffer(data, np.uint8)
    cut = min(cut, len(data))
    expected = crc32c.crc32c(data, crc)
    first = by_instruction(crc, buf, 0, cut)
    assert by_instruction(first, buf, cut, len(data)) == expected
    assert by_table(by_table(crc, buf, 0, cut), buf, cut, len(data)) == expected
    assert crc_piece(crc_piece(crc, buf, 0, cut), buf, cut, len(data)) == expected


def test_every_small_size_at_any_place_goes_on_from_any_state() -> None:
    """The bytes that fill no word are taken first: every number of them, with the state in one word or in two."""
    chance = random.Random(6)
    buf = np.frombuffer(chance.randbytes(400), np.uint8)
    for size in range(300):
        for start in (0, 1, 7):
            crc = chance.choice([0, 0xFFFFFFFF, chance.randrange(2**32)])
            expected = crc32c.crc32c(buf[start : start + size].tobytes(), crc)
            assert by_instruction(crc, buf, start, start + size) == expected, (start, size, crc)


SIZES = sorted(
    {0, 1, 3455, 3456, 12_287, 12_288, 12_289, 24_576, 65_000}
    | {384 * 2**doubled + near for doubled in range(4) for near in (-1, 0, 1)}
)


def test_large_buffers_of_any_alignment_have_the_packages_crc() -> None:
    """Where several streams are computed at once, every split of them must come out right."""
    buf = np.random.default_rng(5).integers(0, 256, 70_000, np.uint8)
    for start in range(9):
        for size in SIZES:
            expected = crc32c.crc32c(buf[start : start + size].tobytes())
            assert by_instruction(0, buf, start, start + size) == expected, (start, size)


@given(st.binary(min_size=8, max_size=40), st.data())
def test_words_are_read_at_any_place(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, len(data) - 8))
    out = np.empty(4, np.int64)
    loads(np.frombuffer(data, np.uint8), place, out)
    big = [int.from_bytes(data[place : place + size], "big", signed=True) for size in (2, 4, 8)]
    assert out.tolist() == [*big, int.from_bytes(data[place : place + 8], "little", signed=True)]


WITHOUT_JIT = """
import crc32c
import numpy as np
from krepair.kernels.instructions import crc32c_table
data = np.arange(100, dtype=np.uint8)
assert int(crc32c_table(0, data, 3, 97)) == crc32c.crc32c(data[3:97].tobytes())
from krepair.kernels.digests import mix
assert int(mix(np.uint64(1))) != 1
"""


def test_what_needs_no_instruction_runs_without_the_compiler() -> None:
    """Loads and the CRC instruction exist only as machine code; the table and the mixing are plain Python too."""
    env = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JIT], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_cpu_of_the_tests_is_named() -> None:
    assert HARDWARE_CRC in {"sse4.2", "arm-crc", ""}
