"""The part that each source gave to a new log is found again, whatever the windows and the batches' other content."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.checks.parts import PartsCheck, has_parts
from krepair.checks.walk import walk
from krepair.formats.batch_v2 import CRC_START
from krepair.formats.castagnoli import crc32c
from tests import builders
from tests.builders import Record
from tests.old_messages import plain

FIRST = [builders.data(0, 2).raw, plain(2).raw, builders.data(5, [Record(b"k", b"x" * 300)]).raw]
SECOND = [builders.commit(9, pid=1).raw, builders.data(10, 1).raw]
DATA = b"".join(FIRST + SECOND)
SIZE = sum(map(len, FIRST))


def summed(batches: list[bytes]) -> tuple[int, int]:
    return sum(map(len, batches)), crc32c(b"".join(raw[:CRC_START] for raw in batches))


PARTS = ((0, 0), summed(FIRST), (0, 0), summed(SECOND), (0, 0))


def read_through(data: bytes, parts: tuple[tuple[int, int], ...], window: int) -> str:
    """What is wrong after a walk in windows."""

    check = PartsCheck(parts)
    read_into = builders.reading(data)
    problems = [one.problem for one in walk(read_into, len(data), window_bytes=window, on_places=check.take)]
    return problems[-1] or check.problem()


@pytest.mark.parametrize("window", [100, 150, SIZE, 1 << 20])
def test_every_batch_is_summed_once_and_sources_that_gave_nothing_are_passed_over(window: int) -> None:
    assert read_through(DATA, PARTS, window) == ""


@pytest.mark.parametrize(
    ("position", "told"),
    [(12, (0, SIZE)), (15, (0, SIZE)), (SIZE + 7, (SIZE, len(DATA))), (SIZE + 15, (SIZE, len(DATA)))],
)
def test_another_offset_or_leader_epoch_is_told_by_the_part_that_it_is_in(
    position: int, told: tuple[int, int]
) -> None:
    data = bytearray(DATA)
    data[position] ^= 1
    problem = read_through(bytes(data), PARTS, 1 << 20)
    assert problem == f"the bytes from position {told[0]} to {told[1]} are not those that were written"


@pytest.mark.parametrize("window", [150, 1 << 20])
def test_every_flipped_bit_is_found(tmp_path: Path, window: int) -> None:
    path = tmp_path / "0.log"
    for position in range(len(DATA)):
        data = bytearray(DATA)
        data[position] ^= 1 << position % 8
        assert read_through(bytes(data), PARTS, window), position
        path.write_bytes(data)
        assert not has_parts(str(path), PARTS), position


def test_log_that_ends_early_is_told_and_a_longer_one_is_left_to_who_knows_its_size(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    assert "are not those" in read_through(DATA[: -len(SECOND[-1])], PARTS, 1 << 20)
    for data, there in ((DATA, True), (DATA + builders.data(11, 1).raw, True), (DATA[:-1], False)):
        path.write_bytes(data)
        assert has_parts(str(path), PARTS) == there


def test_where_nobody_knows_what_was_given_nothing_is_checked() -> None:
    assert read_through(DATA, (), 1 << 20) == ""
