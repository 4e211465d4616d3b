"""On a terminal, pages have colour and jobs have bars; elsewhere, and with NO_COLOR, they have none."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.plan.planfile import dumps
from tests.plan.plans import good_plan, left_alone, partition

BARS = """
from krepair.cli.one_run import _progress
from krepair.options import Options
with _progress(Options(quiet=QUIET)) as progress:
    progress.start("scan", 1000)
    progress.advance(500)
    progress.finish()
    progress.start("stage", 0)
    progress.advance(1)
"""


def on_terminal(arguments: list[str], **environment: str) -> str:
    """What a program writes to a terminal, standard output and standard error together."""
    master, slave = pty.openpty()
    clean = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    process = subprocess.Popen(
        arguments,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**clean, "TERM": "xterm-256color", "COLUMNS": "160", **environment},
    )
    os.close(slave)
    seen = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(master)
    assert process.wait() == 0, seen
    return seen.decode()


@pytest.fixture
def show(tmp_path: Path) -> list[str]:
    path = tmp_path / "p.krplan"
    path.write_bytes(dumps(good_plan()))
    return [sys.executable, "-m", "krepair", "show", str(path)]


def test_a_terminal_gets_colour(show: list[str]):
    seen = on_terminal(show)
    assert "\x1b[1m" in seen
    assert "__consumer_offsets-3" in seen


def test_no_color_is_obeyed(show: list[str]):
    seen = on_terminal(show, NO_COLOR="1")
    assert "\x1b[1;36m" not in seen
    assert "__consumer_offsets-3" in seen


def test_a_pipe_gets_plain_text(show: list[str]):
    ended = subprocess.run(show, capture_output=True, text=True, check=True)
    assert "\x1b" not in ended.stdout


def test_bars_are_drawn_on_a_terminal_and_not_when_quiet_or_piped():
    loud = [sys.executable, "-c", BARS.replace("QUIET", "False")]
    assert "scan" in on_terminal(loud)
    assert on_terminal([sys.executable, "-c", BARS.replace("QUIET", "True")]) == ""
    ended = subprocess.run(loud, capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")


@pytest.mark.parametrize(("locale", "is_utf8"), [("C", False), ("C.UTF-8", True)])
def test_bars_have_the_letters_of_the_locale(locale: str, *, is_utf8: bool) -> None:
    seen = on_terminal([sys.executable, "-c", BARS.replace("QUIET", "False")], LANG=locale, LC_ALL="")
    assert seen.isascii() is not is_utf8


@pytest.mark.parametrize("columns", ["80", "60", "200"])
def test_names_and_numbers_never_break_however_narrow_the_terminal(tmp_path: Path, columns: str):
    folder = "orders.with-a-rather-long-name.of-a-topic-3"
    path = tmp_path / "p.krplan"
    path.write_bytes(dumps(good_plan(partition(folder=folder), left_alone(folder="x" * 200 + "-7"))))
    show = [sys.executable, "-m", "krepair", "show", str(path)]
    seen = on_terminal(show, COLUMNS=columns, NO_COLOR="1").replace("\r\n", "\n")
    # the review objects to the name, too: look where the partition is shown
    table = seen.partition("Partitions that change")[2].partition("Reasons")[0]
    for whole in (folder, "2.4 KiB", "1.1 KiB", "24.0 KiB", "88.0 KiB", "x" * 200 + "-7"):
        assert whole in (seen if whole.startswith("x") else table), whole
