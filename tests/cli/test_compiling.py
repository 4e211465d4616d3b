"""A person who waits for the compiler is told so: at once, how far it is, and not where silence was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.cli.compiling import CompilingLines
from tests.fixture_dirs import unpack

ROOT = Path(__file__).resolve().parents[2]
BEGINS = "compiling what this run needs to machine code, once; `krepair warm` does it in advance\n"


def test_the_first_line_comes_at_once_and_the_next_ones_with_progress(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    told = CompilingLines(lambda: now)
    told(1, 0)
    assert capsys.readouterr().err == BEGINS
    for count in range(2, 30):
        now += 0.5
        told(count, 0)
    assert capsys.readouterr().err == "compiling: 11 kernels, 5 s\ncompiling: 21 kernels, 10 s\n"


def test_where_the_number_is_known_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    told = CompilingLines(lambda: now)
    told(0, 77)
    now = 6.0
    told(30, 77)
    assert (
        capsys.readouterr().err == "compiling 77 kernels to machine code\ncompiling: 30 of 77 kernels, 6 s\n"
    )


def test_an_output_that_is_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, _text: str) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    CompilingLines()(1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("silent", "said"),
    [
        pytest.param((), BEGINS, id="a page for a person"),
        pytest.param(("--json",), "", id="a document"),
    ],
)
def test_a_run_that_finds_nothing_compiled_says_so_once(
    tmp_path: Path, silent: tuple[str, ...], said: str
) -> None:
    segment = min(unpack("timeindex-ok-2.2.1", tmp_path).glob("*/*.log"))
    script = (
        "import sys\n"
        "from krepair.kernels import cache\n"
        "cache.INSTALLED_FOLDER = sys.argv.pop(1)\n"
        "from krepair.cli.main import app\n"
        "app(sys.argv[1:])\n"
    )
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            script,
            str(tmp_path / "none"),
            "dump",
            str(segment),
            "--batches",
            "--limit",
            "1",
            *silent,
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ
        | dict.fromkeys(("KREPAIR_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(tmp_path / "cache")),
    )
    # On a slow machine it takes so long that there is a line of progress.
    assert [
        line for line in ended.stderr.splitlines(keepends=True) if not line.startswith("compiling: ")
    ] == ([said] if said else [])
    if silent:
        assert [json.loads(line)["type"] for line in ended.stdout.splitlines()]
