"""The scan of logs with messages of v0 and v1, against the slow twin."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.kernels import classes as c
from krepair.kernels.crc32 import crc32_piece
from tests import builders, old_messages
from tests.builders import Batch, joined
from tests.fixture_dirs import unpack
from tests.kernels.scanning import scan_bytes, staged, summary_in_words, twin_in_words, twin_of
from tests.old_messages import mixed_logs, plain, wrapper

BASE = 5
SAMPLE = joined(
    [
        plain(5, magic=0),
        plain(6),
        wrapper(7, [1, 2, 3]),
        builders.data(10, 2, pid=1, txn=True),
        builders.commit(12, pid=1),
        wrapper(13, [4], log_append_time=9),
        builders.data(14, 1),
        plain(15, None, magic=0),
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    mixed_logs(BASE), st.sampled_from([100, 150, 500, 1 << 16]), st.sampled_from([19, 1 << 20]), st.booleans()
)
def test_any_mix_of_formats_is_summed_up_as_by_the_twin_and_staging_sees_each_once(
    batches: list[Batch], window_bytes: int, at_most: int, check_crc: bool
) -> None:
    log = joined(batches)
    found, seen = staged(log, BASE, window_bytes=window_bytes, at_most=at_most, check_crc=check_crc)
    expected = twin_of(log, BASE)
    assert summary_in_words(found) == twin_in_words(expected)
    assert seen == [(position, name) for position, _, name in expected.batches]
    assert (found.is_whole, found.batches) == (True, len(batches))


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_every_flipped_bit_is_named_as_by_the_twin(bit: int) -> None:
    whole = scan_bytes(SAMPLE, BASE)
    for place in range(len(SAMPLE)):
        bad = bytearray(SAMPLE)
        bad[place] ^= 1 << bit
        found = scan_bytes(bytes(bad), BASE)
        assert summary_in_words(found) == twin_in_words(twin_of(bytes(bad), BASE)), place
        assert found.damage != c.D_NONE or found.headers != whole.headers, place


def test_log_cut_anywhere_is_valid_up_to_its_last_whole_message() -> None:
    for size in range(len(SAMPLE)):
        found = scan_bytes(SAMPLE[:size], BASE)
        twin = twin_of(SAMPLE[:size], BASE)
        assert (found.valid_bytes, found.batches) == (twin.valid_bytes, len(twin.batches))
        assert found.is_whole == (found.valid_bytes == size)


@pytest.mark.parametrize("window_bytes", [200, 1 << 16])
def test_messages_larger_than_the_window_are_checked_piece_by_piece(window_bytes: int) -> None:
    log = joined(
        [plain(0, random.Random(1).randbytes(5000)), plain(1, bytes(3000), magic=0), builders.data(2, 1)]
    )
    assert summary_in_words(scan_bytes(log, window_bytes=window_bytes)) == twin_in_words(twin_of(log))
    bad = bytearray(log)
    bad[4000] ^= 1
    found = scan_bytes(bytes(bad), window_bytes=window_bytes)
    assert (found.damage, found.valid_bytes) == (c.D_OLD_CRC, 0)
    assert "CRC-32 is not that of its bytes" in found.damage_text


def test_zeros_behind_old_messages_are_named_as_such() -> None:
    found = scan_bytes(SAMPLE + bytes(500), BASE)
    assert (found.damage, found.valid_bytes) == (c.D_ZEROS, len(SAMPLE))


def test_v1_message_too_short_for_its_fields_is_damage() -> None:
    short = bytearray(old_messages.raw_message(0, b"", magic=0))
    short[16] = 1
    short[12:16] = zlib.crc32(short[16:]).to_bytes(4, "big")
    found = scan_bytes(bytes(short))
    assert (found.damage, found.damage_text) == (
        c.D_OLD_LENGTH,
        "a message_size of at least 14 (v0) or 22 (v1) was expected, found 14",
    )


def test_two_messages_that_change_places_change_the_digest() -> None:
    """Both have offsets that fit either place, as in a log whose messages were swapped and offsets rewritten."""
    first, second = plain(0, b"a" * 9), plain(0, b"b" * 9)
    third, fourth = plain(1, b"a" * 9), plain(1, b"b" * 9)
    one, other = scan_bytes(first.raw + fourth.raw), scan_bytes(second.raw + third.raw)
    assert one.headers != other.headers


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_crc_is_zlibs_in_pieces_of_any_size(data: bytes, crc: int, cut: int) -> None:
    buf = np.frombuffer(data + b"\0", np.uint8)
    cut = min(cut, len(data))
    assert crc32_piece(crc32_piece(crc, buf, 0, cut), buf, cut, len(data)) == zlib.crc32(data, crc)


def test_every_log_of_the_old_format_fixture_is_whole(tmp_path: Path) -> None:
    logs = sorted(unpack("oldformat-2.2.1-before", tmp_path).glob("*/*.log"))
    for path in logs:
        content = path.read_bytes()
        found = scan_bytes(content, int(path.stem))
        assert found.is_whole, path
        assert summary_in_words(found) == twin_in_words(twin_of(content, int(path.stem))), path
    assert len(logs) > 50
