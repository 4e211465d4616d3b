"""The independent reader on logs with messages of v0 and v1."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krepair.checks.walk import walk
from krepair.ops.verify import verify_log_dir
from tests import builders
from tests.builders import Batch, reading
from tests.old_messages import mixed_log, mixed_logs, plain, wrapper
from tests.ops.scene import OLD_FORMAT, scene


def walked(log: bytes, window_bytes: int = 1 << 20) -> tuple[list[tuple[int, int]], str, int]:
    """(position, size) of what was found valid; what is wrong and where."""
    found: list[tuple[int, int]] = []
    problem, position = "", 0
    for each in walk(reading(log), len(log), window_bytes=window_bytes):
        found += zip(each.positions.tolist(), each.sizes.tolist(), strict=True)
        problem, position = each.problem, each.position
    return found, problem, position


def placed(batches: list[Batch]) -> list[tuple[int, int]]:
    sizes = [len(batch.raw) for batch in batches]
    return list(zip([0, *np.cumsum(sizes)[:-1].tolist()], sizes, strict=True))


@settings(max_examples=60, deadline=None)
@given(mixed_logs(), st.sampled_from([100, 300, 1 << 20]))
def test_all_of_a_mixed_log_is_found(batches: list[Batch], window_bytes: int) -> None:
    log = b"".join(batch.raw for batch in batches)
    assert walked(log, window_bytes) == (placed(batches), "", len(log))


@pytest.mark.parametrize("seed", range(4))
def test_any_flipped_bit_is_found_where_it_is(seed: int) -> None:
    """But for the offset, which no checksum covers, and the leader epoch of v2."""
    batches = mixed_log(seed, 8)
    log = b"".join(batch.raw for batch in batches)
    for number, (start, size) in enumerate(placed(batches)):
        for place in range(start + 8, start + size):
            if batches[number].raw[16] == 2 and 12 <= place - start < 16:
                continue
            bad = bytearray(log)
            bad[place] ^= 1 << random.Random(place).randrange(8)
            found, problem, position = walked(bytes(bad))
            assert (len(found), problem != "", position) == (number, True, start), (place, problem)


@pytest.mark.parametrize("window_bytes", [128, 1 << 20])
def test_message_larger_than_the_window_is_checked(window_bytes: int) -> None:
    batches = [plain(0), plain(1, random.Random(1).randbytes(7000)), builders.data(2)]
    log = bytearray(b"".join(batch.raw for batch in batches))
    assert walked(bytes(log), window_bytes)[0] == placed(batches)
    log[6000] ^= 1
    found, problem, position = walked(bytes(log), window_bytes)
    assert (len(found), problem) == (1, "the message's CRC-32 is not that of its bytes")
    assert position == len(batches[0].raw)


def test_offsets_must_ascend_over_the_borders_of_formats() -> None:
    for first, second in (
        (plain(5), builders.data(5)),
        (builders.data(5), plain(5)),
        (plain(5), wrapper(4, [1, 2])),
    ):
        found, problem, _ = walked(first.raw + second.raw)
        assert (len(found), "does not ascend" in problem) == (1, True)


def test_indexes_that_a_live_broker_wrote_for_old_formats_are_true(tmp_path: Path) -> None:
    old = scene(tmp_path, OLD_FORMAT)
    report = verify_log_dir(str(old.path), old.options())
    assert report.problems == ()
