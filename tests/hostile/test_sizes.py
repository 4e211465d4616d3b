"""Endless counts and lines, files of terabytes: every verb ends soon, in little memory, with a correct exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, EPOCHS
from tests.hostile.names import FILES, TEXTS, make_terabytes, path_of
from tests.hostile.verbs import ALL_FIXES, picture
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
pytestmark = pytest.mark.slow

LIMITED = """
import contextlib, io, json, resource, sys
from krepair.cli.main import app
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
ended = []
for verbs in json.loads(sys.argv[2]):
    codes, printed = [], io.StringIO()
    for words in verbs:
        try:
            with contextlib.redirect_stdout(printed):
                app(words)
        except SystemExit as end:
            codes.append(end.code)
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    ended.append([codes, printed.getvalue(), int(status["VmHWM"].split()[0]) * 1024])
json.dump(ended, sys.stdout)
"""
MOST_ADDRESSES = 6 << 30
MOST_BYTES = 700 << 20


class Ended(NamedTuple):
    """Exit codes of the verbs by name, and what they printed."""

    codes: dict[str, int]
    printed: str


def all_limited(log_dirs: Sequence[Path]) -> list[Ended]:
    """All verbs on one directory after the other, in a process that must stay small."""
    before = [picture(log_dir) for log_dir in log_dirs]
    inline = ("--engine", "inline")
    verbs = [
        [
            ("check", str(path), "--all", *inline),
            ("verify", str(path), *inline),
            ("plan", str(path), "--fix", ALL_FIXES, *inline, "--out", f"{path}.krplan"),
            ("show", f"{path}.krplan"),
            ("apply", f"{path}.krplan", *inline),
            ("undo", f"{path}.krplan"),
        ]
        for path in log_dirs
    ]
    argv = [sys.executable, "-c", LIMITED, str(MOST_ADDRESSES), json.dumps(verbs)]
    done = subprocess.run(argv, capture_output=True, timeout=600, check=False)
    assert b"Traceback" not in done.stderr, done.stderr[-2000:]
    ended = json.loads(done.stdout)
    assert [path.name for path, (*_, peak) in zip(log_dirs, ended, strict=True) if peak >= MOST_BYTES] == []
    assert [picture(log_dir) for log_dir in log_dirs] == before
    return [
        Ended(dict(zip([words[0] for words in each], codes, strict=True)), printed)
        for each, (codes, printed, _) in zip(verbs, ended, strict=True)
    ]


def _endless_line(path: Path) -> None:
    with path.open("wb") as out:
        out.write(b"0\n1\n")
        for _ in range(100):
            out.write(b"7" * (1 << 20))


def _lines(path: Path) -> None:
    path.write_bytes(TEXTS["200 000 lines"](b"t"))


SIZES = {
    "line of 100 MB": (_endless_line, FILES),
    "200 000 lines": (_lines, (EPOCHS, "recovery-point-offset-checkpoint")),
    "terabytes": (
        make_terabytes,
        (
            *(EPOCHS, "recovery-point-offset-checkpoint", "meta.properties"),
            *(f"{10:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
            f"{12:020d}.snapshot",
        ),
    ),
}


@pytest.mark.parametrize("what", SIZES)
def test_size_of_a_file_does_not_become_memory(memory_dir: Path, what: str) -> None:
    damage, names = SIZES[what]
    log_dirs = []
    for name in names:
        made = BASES["transactions"].write(memory_dir / name, "t")
        damage(made.folder / name if name[0] == "0" else path_of(made, name))
        log_dirs.append(made.log_dir)
    for name, ended in zip(names, all_limited(log_dirs), strict=True):
        codes = ended.codes
        assert codes.pop("check") == ExitCode.FOUND, name
        assert name in ended.printed.partition("krepair verify")[0]
        # Verify judges logs, their indexes and snapshots; and not all of it has a fix.
        assert {codes.pop("verify"), codes.pop("plan")} <= {ExitCode.DONE, ExitCode.FOUND}, name
        assert codes == {"show": ExitCode.DONE, "apply": ExitCode.DONE, "undo": ExitCode.DONE}, name
