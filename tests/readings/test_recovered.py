"""Segments that a start will no longer read: a whole log is right, damage and what cannot be written out is told."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from krepair.checks.walk import Walked
from krepair.pipeline.items import Place
from krepair.pipeline.readings.recovered import RecoveredItem, SegmentReading, read_recovered
from tests import builders
from tests.kernels.scanning import joined

BATCHES = [builders.data(base, 3) for base in (0, 3, 6)]
LOG = joined(BATCHES)
SIZE = len(LOG) // 3
NAME = f"{0:020d}.log"


def item(root: Path, log: bytes = LOG, **fields: Any) -> RecoveredItem:
    """One segment of nine offsets on the disk."""
    folder = root / "t-0"
    folder.mkdir()
    (folder / NAME).write_bytes(log)
    place = Place(
        host=socket.gethostname(), log_dir=str(root), log_dir_inode=os.stat(root).st_ino, folder="t-0"
    )
    values: dict[str, Any] = {
        "place": place,
        "base_offset": 0,
        "log_bytes": len(log),
        "log_end": 9,
        "exact": True,
        "interval_bytes": 4096,
        "audit": False,
    }
    return RecoveredItem(**(values | fields))


def problems(asked: RecoveredItem) -> tuple[str, ...]:
    return read_recovered(asked).problems


def test_whole_log_is_right_and_is_read_to_its_end(tmp_path: Path) -> None:
    found = read_recovered(item(tmp_path, settle=True))
    assert found.problems == ()
    assert found.bytes == len(LOG)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exact": False, "log_end": 12}, None),
        ({"log_end": 10}, "its last offset is 8, and what follows begins at 10"),
        ({"log_end": 8}, "its last offset is 8, and what follows begins at 8"),
        ({"log_end": 8, "exact": False}, "its last offset is 8, and what follows begins at 8"),
        ({"base_offset": 0, "files": ("x.index",)}, None),
        ({"settle": True, "files": ("x.index",)}, "No such file or directory"),
    ],
    ids=str,
)
def test_log_that_ends_elsewhere_or_is_not_all_on_the_disk_is_told(
    tmp_path: Path, fields: dict[str, Any], words: str | None
) -> None:
    found = problems(item(tmp_path, **fields))
    assert len(found) == (words is not None)
    assert words is None or found[0].endswith(words), found


def test_log_that_cannot_be_written_out_is_told_and_not_read(tmp_path: Path) -> None:
    asked = item(tmp_path, settle=True)
    (tmp_path / "t-0" / NAME).unlink()
    assert problems(asked) == (f"{NAME}: could not be written to the disk: No such file or directory",)


@pytest.mark.parametrize("audit", [False, True])
def test_damage_is_told_at_its_place_and_nothing_behind_it(tmp_path: Path, audit: bool) -> None:
    torn = bytearray(LOG)
    torn[SIZE + 70] ^= 1
    (found,) = problems(item(tmp_path, bytes(torn), audit=audit))
    assert found.startswith(f"{NAME}, position {SIZE}: ")
    assert "CRC" in found


def walked(log: bytes, until: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The window up to there, and where its batches begin."""
    return np.frombuffer(log, np.uint8)[:until].copy(), np.arange(0, until, SIZE, dtype=np.int32)


def test_windows_of_another_reader_and_the_rest_come_to_the_whole_log(tmp_path: Path) -> None:
    taken: list[Walked] = []
    reading = SegmentReading(item(tmp_path), taken.append)
    window, places = walked(LOG, 2 * SIZE)
    reading.take_window(window, places, 2 * SIZE, builders.reading(LOG))
    assert (reading.position, reading.last_offset) == (2 * SIZE, 5)
    assert reading.problems() != []
    reading.take_rest(builders.reading(LOG))
    assert (reading.position, reading.last_offset) == (3 * SIZE, 8)
    assert reading.problems() == []
    assert [int(first) for one in taken for first in one.firsts] == [0, 3, 6]


def test_nothing_is_taken_behind_damage(tmp_path: Path) -> None:
    torn = bytearray(LOG)
    torn[70] ^= 1
    reading = SegmentReading(item(tmp_path, bytes(torn)), None)
    window, places = walked(bytes(torn), SIZE)
    reading.take_window(window, places, SIZE, builders.reading(bytes(torn)))
    reading.take_rest(builders.reading(bytes(torn)))
    assert reading.is_damaged
    assert (reading.position, reading.last_offset) == (0, -1)
    (found,) = reading.problems()
    assert found.startswith(f"{NAME}, position 0: ")
