"""Lines of a checkpoint: which differ, which have been changed, and which are still to be changed."""

from __future__ import annotations

import pytest

from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets
from krepair.rules.changed_entries import (
    ChangedLine,
    changed_entries,
    entries_in,
    entries_left,
    has_new_entries,
    raised,
    with_entries,
)

LOWER = ChangedLine("t", 0, 9, 5)
GONE = ChangedLine("t", 1, 7, None)
ADDED = ChangedLine("u", 0, None, 3)
DAMAGED = b"0\nx\n"


def file(**offsets: int | tuple[int, ...]) -> bytes:
    """A checkpoint of ``topic_partition=offset``; several offsets are several lines."""
    entries = []
    for name, given in offsets.items():
        topic, _, number = name.partition("_")
        for offset in (given,) if isinstance(given, int) else given:
            entries.append(CheckpointEntry(topic, int(number), offset))
    return encode_offsets(tuple(entries))


BEFORE = file(t_0=9, t_1=7, z_0=1)
AFTER = file(t_0=5, z_0=1, u_0=3)


def test_single_lines_change_and_all_others_stay_where_they_are() -> None:
    assert with_entries(BEFORE, (LOWER, GONE, ADDED)) == AFTER
    before, after = decode_offsets(BEFORE).entries, decode_offsets(AFTER).entries
    assert changed_entries(before, after) == (LOWER, GONE, ADDED)
    assert changed_entries(before, before) == ()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (DAMAGED, LOWER),
        (file(t_0=8), LOWER),
        (file(t_1=9), LOWER),
        (file(u_0=9), LOWER),
        (file(u_0=3), ADDED),
        (file(u_0=4), ADDED),
        (file(t_0=(9, 9)), LOWER),
    ],
)
def test_a_line_that_is_not_as_it_was_planned_changes_nothing(data: bytes, line: ChangedLine) -> None:
    assert with_entries(data, (line,)) is None


@pytest.mark.parametrize(
    ("data", "lines", "made"),
    [
        (AFTER, (LOWER, GONE, ADDED), True),
        (BEFORE, (LOWER,), False),
        (file(t_0=(5, 9)), (LOWER,), False),
        (file(t_0=(9, 5)), (LOWER,), False),
        (file(), (LOWER,), False),
        (BEFORE, (GONE,), False),
        (file(t_1=8), (GONE,), True),
        (file(t_1=(7, 8)), (GONE,), False),
        (BEFORE, (ADDED,), False),
        (file(t_0=5), (LOWER, GONE), True),
        (DAMAGED, (GONE,), False),
        (DAMAGED, (), False),
    ],
)
def test_a_file_has_the_new_lines_only_if_each_partition_has_them_alone(
    data: bytes, lines: tuple[ChangedLine, ...], made: bool
) -> None:
    assert has_new_entries(data, lines) == made


def test_between_two_runs_it_is_known_which_lines_are_changed_and_which_are_left() -> None:
    half = file(t_0=5, t_1=7)
    lines = (LOWER, GONE, ADDED)
    assert entries_in(half, lines) == (LOWER,)
    assert entries_left(half, lines) == (GONE, ADDED)
    assert (entries_in(AFTER, lines), entries_left(AFTER, lines)) == (lines, ())
    assert (entries_in(BEFORE, lines), entries_left(BEFORE, lines)) == ((), lines)
    assert (entries_in(DAMAGED, lines), entries_left(DAMAGED, lines)) == ((), ())


def test_a_line_is_raised_if_its_offset_grows_or_it_is_new() -> None:
    same, higher = ChangedLine("t", 2, 4, 4), ChangedLine("t", 3, 4, 5)
    assert raised((LOWER, GONE, ADDED, same, higher)) == (ADDED, higher)
