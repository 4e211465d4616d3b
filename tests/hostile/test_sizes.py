"""Counts and lines without end, files of terabytes: every verb ends soon, in little memory, with a right exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, EPOCHS
from tests.hostile.names import FILES, TEXTS, make_terabytes, path_of
from tests.hostile.verbs import ALL_FIXES, picture
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
pytestmark = pytest.mark.slow

LIMITED = """
import json, resource, sys
from krepair.cli.main import app
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
codes = []
for words in json.loads(sys.argv[2]):
    try:
        app(words)
    except SystemExit as end:
        codes.append(end.code)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
sys.stderr.write("\\n" + json.dumps([codes, int(status["VmHWM"].split()[0]) * 1024]))
"""
MOST_ADDRESSES = 6 << 30
MOST_BYTES = 700 << 20


def each_limited(log_dir: Path, plan: Path) -> tuple[dict[str, int], str]:
    """Exit codes of all verbs, one after the other in a process that must stay small, and what they printed."""
    before = picture(log_dir)
    where, inline = str(log_dir), ("--engine", "inline")
    verbs = [
        ("check", where, "--all", *inline),
        ("verify", where, *inline),
        ("plan", where, "--fix", ALL_FIXES, *inline, "--out", str(plan)),
        ("show", str(plan)),
        ("apply", str(plan), *inline),
        ("undo", str(plan)),
    ]
    argv = [sys.executable, "-c", LIMITED, str(MOST_ADDRESSES), json.dumps(verbs)]
    done = subprocess.run(argv, capture_output=True, timeout=600, check=False)
    assert b"Traceback" not in done.stderr, done.stderr[-2000:]
    codes, peak = json.loads(done.stderr.decode().splitlines()[-1])
    assert peak < MOST_BYTES, peak
    assert picture(log_dir) == before
    return {words[0]: int(code) for words, code in zip(verbs, codes, strict=True)}, done.stdout.decode()


def _endless_line(path: Path) -> None:
    with path.open("wb") as out:
        out.write(b"0\n1\n")
        for _ in range(100):
            out.write(b"7" * (1 << 20))


def _lines(path: Path) -> None:
    path.write_bytes(TEXTS["200 000 lines"](b"t"))


SIZES = {
    **{f"line of 100 MB, {name}": (name, _endless_line) for name in FILES},
    **{f"200 000 lines, {name}": (name, _lines) for name in (EPOCHS, "recovery-point-offset-checkpoint")},
    **{
        f"terabytes, {name}": (name, make_terabytes)
        for name in (EPOCHS, "recovery-point-offset-checkpoint", "meta.properties")
    },
    **{
        f"terabytes, {base:020d}{suffix}": (f"{base:020d}{suffix}", make_terabytes)
        for base in (10, 12)
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if base == 10 or suffix == ".snapshot"
    },
}


@pytest.mark.parametrize("what", SIZES)
def test_size_of_a_file_does_not_become_memory(memory_dir: Path, what: str) -> None:
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    name, damage = SIZES[what]
    path = made.folder / name if name[0] == "0" else path_of(made, name)
    damage(path)
    codes, printed = each_limited(made.log_dir, memory_dir / "plan.krplan")
    assert codes.pop("check") == ExitCode.FOUND
    assert name in printed.partition("krepair verify")[0]
    assert codes.pop("verify") in {
        ExitCode.DONE,
        ExitCode.FOUND,
    }  # it judges logs, their indexes and snapshots
    assert codes.pop("plan") in {ExitCode.DONE, ExitCode.FOUND}  # not all of it has a fix
    assert codes == {"show": ExitCode.DONE, "apply": ExitCode.DONE, "undo": ExitCode.DONE}
