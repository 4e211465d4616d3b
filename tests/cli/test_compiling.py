"""While the user waits for the compiler, one line says so, at once, except where silence was requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.cli.outcome import say_of_a_run
from tests.fixture_dirs import unpack

ROOT = Path(__file__).resolve().parents[2]
BEGINS = "compiling what this run needs to machine code, once; `krepair warm` does it in advance\n"


def test_an_output_that_is_gone_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, _text: str) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(sys, "stderr", Gone())
    say_of_a_run()


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
    assert ended.stderr == said
    if silent:
        assert [json.loads(line)["type"] for line in ended.stdout.splitlines()]
