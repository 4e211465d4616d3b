"""Segments that a start will no longer read: an intact log passes, damage and unflushed bytes are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from krepair.rewrite.recovered import RecoveredItem, RecoveredResult, verify_recovered
from tests import builders
from tests.builders import joined
from tests.places import place_of

BATCHES = [builders.data(base, 3) for base in (0, 3, 6)]
LOG = joined(BATCHES)
SIZE = len(LOG) // 3
NAME = f"{0:020d}.log"


def item(root: Path, log: bytes = LOG, **fields: Any) -> RecoveredItem:
    """One segment of nine offsets on the disk."""
    folder = root / "t-0"
    folder.mkdir()
    (folder / NAME).write_bytes(log)
    place = place_of(root / "t-0")
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
    found = verify_recovered(asked)
    assert isinstance(found, RecoveredResult), found
    return found.problems


def test_whole_log_is_right_and_is_read_to_its_end(tmp_path: Path) -> None:
    found = verify_recovered(item(tmp_path, flush=True))
    assert isinstance(found, RecoveredResult)
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
        ({"flush": True, "files": ("x.index",)}, "No such file or directory"),
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
    asked = item(tmp_path, flush=True)
    (tmp_path / "t-0" / NAME).unlink()
    assert problems(asked) == (f"{NAME}: could not be written to the disk: No such file or directory",)


@pytest.mark.parametrize("audit", [False, True])
def test_damage_is_told_at_its_place_and_nothing_behind_it(tmp_path: Path, audit: bool) -> None:
    torn = bytearray(LOG)
    torn[SIZE + 70] ^= 1
    (found,) = problems(item(tmp_path, bytes(torn), audit=audit))
    assert found.startswith(f"{NAME}, position {SIZE}: ")
    assert "CRC" in found
