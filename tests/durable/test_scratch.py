"""The scratch folder: removed at the end, by a signal that ends krepair, or by the next run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.durable.scratch import Scratch

SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests run under nohup it is ignored
from krepair.durable.scratch import Scratch, write_scratch
scratch = Scratch(sys.argv[1], ())
with open(scratch.path + "/rows", "wb") as file:
    file.write(bytes(1000))
print(scratch.path, flush=True)
time.sleep(60)
"""


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def ended_by(parent: Path, number: signal.Signals) -> tuple[Path, int]:
    """A process that has made its folder and is ended by a signal: the folder, and how the process ended."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(parent)], stdout=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout is not None
        path = Path(one.stdout.readline().strip())
        assert (path / "rows").stat().st_size == 1000
        one.send_signal(number)
        return path, one.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_process_removes_it_and_is_how_the_process_ends(
    tmp_path: Path, number: signal.Signals
) -> None:
    path, code = ended_by(tmp_path, number)
    assert code == -number
    assert not path.exists()
    assert left(tmp_path) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_what_has_an_owner_stays(
    tmp_path: Path,
) -> None:
    dead, _ = ended_by(tmp_path, signal.SIGKILL)
    assert (dead / "rows").exists()
    alive = Scratch(str(tmp_path), ())
    there = Path(alive.path)
    assert left(tmp_path) == [there.name]
    (there / "rows").write_bytes(b"1")
    other = Scratch(str(tmp_path), ())
    beside = Path(other.path)
    assert left(tmp_path) == sorted([there.name, beside.name])
    assert (there / "rows").exists()
    other.close()
    alive.close()
    assert left(tmp_path) == []


def test_a_link_a_file_and_a_folder_without_a_lock_stay(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner.lock").touch()
    parent = tmp_path / "scratch"
    parent.mkdir()
    (parent / "krepair-scratch-link").symlink_to(elsewhere)
    (parent / "krepair-scratch-file").touch()
    (parent / "krepair-scratch-older").mkdir()
    (parent / "krepair-scratch-linked").mkdir()
    (parent / "krepair-scratch-linked" / "owner.lock").symlink_to(elsewhere / "owner.lock")
    before = left(parent)
    one = Scratch(str(parent), ())
    assert one.path
    one.close()
    assert left(parent) == before
    assert left(elsewhere) == ["owner.lock"]


def test_the_handlers_of_signals_are_as_before_afterwards(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    one = Scratch(str(tmp_path), ())
    assert os.path.isdir(one.path)
    one.close()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == before
