"""What each source gave to a new log is summed while the log is read, whatever the windows are."""

from __future__ import annotations

import pytest

from krepair.formats.castagnoli import crc32c
from krepair.rewrite.segments.verify import PartsCheck

DATA = b"from the first|from the second"
FIRST = DATA.index(b"|") + 1
PARTS = ((0, 0), (FIRST, crc32c(DATA[:FIRST])), (0, 0), (len(DATA) - FIRST, crc32c(DATA[FIRST:])), (0, 0))


def read_through(data: bytes, parts: tuple[tuple[int, int], ...], window: int, step: int) -> str:
    """What is wrong after a reader went through in windows, of which each begins ``step`` bytes behind the last."""

    def read_into(buffer: memoryview, position: int) -> int:
        piece = data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    check = PartsCheck(parts)
    read = check.watching(read_into)
    for position in range(0, len(data), step):
        buffer = bytearray(window)
        assert read(memoryview(buffer), position) == min(window, len(data) - position)
    return check.problem()


@pytest.mark.parametrize(("window", "step"), [(1, 1), (5, 3), (FIRST, FIRST), (64, 64), (64, 7)])
def test_every_byte_is_summed_once_and_sources_that_gave_nothing_are_passed_over(
    window: int, step: int
) -> None:
    assert read_through(DATA, PARTS, window, step) == ""


@pytest.mark.parametrize(
    ("position", "told"),
    [(0, (0, FIRST)), (FIRST - 1, (0, FIRST)), (FIRST, (FIRST, len(DATA))), (-1, (FIRST, len(DATA)))],
)
def test_another_byte_is_told_by_the_part_that_it_is_in(position: int, told: tuple[int, int]) -> None:
    data = bytearray(DATA)
    data[position] ^= 1
    problem = read_through(bytes(data), PARTS, 5, 3)
    assert problem == f"the bytes from position {told[0]} to {told[1]} are not those that were written"


def test_log_that_ends_early_or_late_is_told_or_left_to_who_knows_its_size() -> None:
    assert "to 30 are not those" in read_through(DATA[:-1], PARTS, 5, 3)
    assert "from position 0 to 15" in read_through(b"", PARTS, 5, 3)
    assert read_through(DATA + b"more", PARTS, 5, 3) == ""


def test_where_nobody_knows_what_was_given_nothing_is_checked() -> None:
    assert read_through(DATA, (), 5, 3) == ""
