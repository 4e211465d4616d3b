"""A read beside a broker that swaps segments is always complete: the state before or after a swap."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import beside

SEGMENTS = ("00000000000000000000.log", "00000000000000000030.log")
CLEANER = """
import os, sys, time
folder, names = sys.argv[1], sys.argv[2:]
print("up", flush=True)
generation = 0
while os.path.exists(folder + "/goes-on"):
    generation += 1
    for name in names:
        with open(f"{folder}/{name}.cleaned", "w") as file:
            file.write(str(generation))
    for name in names:
        os.rename(f"{folder}/{name}.cleaned", f"{folder}/{name}.swap")
    for name in names:
        os.rename(f"{folder}/{name}", f"{folder}/{name}.deleted")
    for name in names:
        os.rename(f"{folder}/{name}.swap", f"{folder}/{name}")
    for name in names:
        os.remove(f"{folder}/{name}.deleted")
    time.sleep(0.02)
"""


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    """A log directory with a folder in which somebody swaps two segments again and again."""
    folder = tmp_path / "logs" / "t-0"
    folder.mkdir(parents=True)
    for name in SEGMENTS:
        (folder / name).write_text("0")
    (folder / "goes-on").touch()
    argv = [sys.executable, "-c", CLEANER, str(folder), *SEGMENTS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as cleaner:
        assert cleaner.stdout is not None
        assert cleaner.stdout.readline() == "up\n"
        yield folder.parent
        (folder / "goes-on").unlink()
    assert cleaner.returncode == 0


def test_segments_are_all_of_one_moment(log_dir: Path) -> None:
    for _ in range(10):
        found = beside.read(log_dir / "t-0")
        assert tuple(found) == SEGMENTS
        assert len(set(found.values())) == 1
        assert tuple(beside.listed(log_dir / "t-0")) == SEGMENTS


def test_a_copy_has_whole_folders(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for number in range(5):
        copy = beside.copied(log_dir, tmp_path / str(number))
        found = beside.read(copy / "t-0")
        assert tuple(found) == SEGMENTS
        assert len(set(found.values())) == 1
        assert (copy / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


def test_what_a_stop_left_half_swapped_is_read_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "_SWAPPED_IN_S", 0.1)
    (tmp_path / "00000000000000000000.log").write_bytes(b"0")
    (tmp_path / "00000000000000000030.log.swap").write_bytes(b"30")
    assert beside.read(tmp_path) == {"00000000000000000000.log": b"0"}
    assert beside.read(tmp_path / "none") == {}
