"""Names that steer a terminal or are no text, counts and lines without end, files of terabytes: all of it bounded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, EPOCHS, Made
from tests.hostile.verbs import ALL_FIXES, every_verb, picture
from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]

NAMES = {
    "newline": b"a\nKR999  all is well",
    "carriage return": b"a\rb",
    "colours": b"\x1b[31mred\x1b[0m",
    "title of the window": b"\x1b]0;owned\x07",
    "one-byte escape": b"\xc2\x9b31m",
    "backspaces": b"abc\b\b\b",
    "no UTF-8": b"\xff\xfe\x80",
    "half a surrogate": b"\xed\xa0\x80",
    "right to left": "a\u202eb".encode(),
    "markup": b"[bold red]x[red]",
    "HTML": b"<script>alert(1)<&gt;>",
    "percent": b"%s%n{}",
    "249": b"x" * 249,
    "dashes": b"-rf --json",
    "blank": b" ",
}
IN_NAME = {
    "root": lambda made, name: (os.fsencode(made.log_dir), name),
    "folder in the root": lambda made, name: (os.fsencode(made.log_dir), name + b"/"),
    "partition in the root": lambda made, name: (os.fsencode(made.log_dir), name[:249] + b"-0/"),
    "partition": lambda made, name: (os.fsencode(made.folder), name),
    "folder in a partition": lambda made, name: (os.fsencode(made.folder), name + b"/"),
    "swap": lambda made, name: (os.fsencode(made.folder), name[:200] + b".log.swap"),
    "log": lambda made, name: (os.fsencode(made.folder), b"00000000000000000003" + name[:200] + b".log"),
}


@pytest.mark.parametrize("place", IN_NAME)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_name_anywhere_is_shown_escaped_or_refused(memory_dir: Path, name: str, place: str) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t")
    folder, file = IN_NAME[place](made, NAMES[name])
    path = os.path.join(folder, file.rstrip(b"/"))
    if file.endswith(b"/"):
        os.mkdir(path)
    else:
        with open(path, "wb") as out:
            out.write(b"x")
    every_verb(made.log_dir, memory_dir / "plan.krplan")


def test_topic_of_249_characters_is_mended_like_any_other(memory_dir: Path) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t" * 249)
    (made.folder / EPOCHS).write_bytes(b"0\n9\n")
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan")
    assert [ran.code for ran in runs if ran.words[0] in {"plan", "apply", "undo"}] == [2, 0, 0, 0, 0]


TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "escape": lambda topic: b"0\n1\n\x1b[2J%s 0 5\n" % topic,
    "newline in a name": lambda topic: b"0\n1\n%s\\n 0 5\n" % topic,
    "no UTF-8": lambda topic: b"0\n1\n\xff\xfe 0 5\n",
    "controls": lambda topic: bytes(range(256)),
    "count -1": lambda topic: b"0\n-1\n",
    "count 2^31-1": lambda topic: b"0\n2147483647\n",
    "200 000 lines": lambda topic: (
        b"0\n200000\n" + b"".join(b"%s %d 5\n" % (topic, n) for n in range(200_000))
    ),
}
FILES = (
    EPOCHS,
    "partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def path_of(made: Made, name: str) -> Path:
    return (made.folder if name in {EPOCHS, "partition.metadata"} else made.log_dir) / name


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", [name for name in TEXTS if name != "200 000 lines"])
def test_hostile_text_in_a_small_file_is_found_and_shown_escaped(
    memory_dir: Path, name: str, text: str
) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t")
    path_of(made, name).write_bytes(TEXTS[text](b"t"))
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan")
    assert runs[0].code == ExitCode.FOUND


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


def each_limited(log_dir: Path, plan: Path) -> list[int]:
    """Exit codes of all verbs, one after the other in a process that must stay small."""
    before = picture(log_dir)
    where, inline = str(log_dir), ("--engine", "inline")
    verbs = [
        ("check", where, *inline),
        ("verify", where, *inline),
        ("plan", where, "--fix", ALL_FIXES, *inline, "--out", str(plan)),
        ("show", str(plan)),
        ("apply", str(plan), *inline),
        ("undo", str(plan)),
    ]
    argv = [sys.executable, "-c", LIMITED, str(MOST_ADDRESSES), json.dumps(verbs)]
    done = subprocess.run(argv, capture_output=True, timeout=120, check=False)
    assert b"Traceback" not in done.stderr, done.stderr[-2000:]
    codes, peak = json.loads(done.stderr.decode().splitlines()[-1])
    assert peak < MOST_BYTES, peak
    assert set(codes) <= set(ExitCode) - {ExitCode.BUG}, (codes, done.stderr[-800:])
    assert picture(log_dir) == before
    return [int(code) for code in codes]


def _endless_line(path: Path) -> None:
    with path.open("wb") as out:
        out.write(b"0\n1\n")
        for _ in range(100):
            out.write(b"7" * (1 << 20))


def _lines(path: Path) -> None:
    path.write_bytes(TEXTS["200 000 lines"](b"t"))


def _terabytes(path: Path) -> None:
    """As long as the file system lets a file be, without a block."""
    for size in (8 << 40, 1 << 40, 15 << 30):
        try:
            os.truncate(path, size)
        except OSError:
            continue
        return


def _sparse(path: Path) -> None:
    path.touch()
    _terabytes(path)


SIZES = {
    **{f"line of 100 MB, {name}": (name, _endless_line) for name in FILES},
    **{f"200 000 lines, {name}": (name, _lines) for name in (EPOCHS, "recovery-point-offset-checkpoint")},
    **{
        f"terabytes, {name}": (name, _sparse)
        for name in (EPOCHS, "recovery-point-offset-checkpoint", "meta.properties")
    },
    **{
        f"terabytes, {base:020d}{suffix}": (f"{base:020d}{suffix}", _sparse)
        for base in (0, 10, 12)
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
        if not (base == 12 and suffix != ".snapshot") and not (base == 0 and suffix == ".snapshot")
    },
}


@pytest.mark.parametrize("what", SIZES)
def test_size_of_a_file_does_not_become_memory(memory_dir: Path, what: str) -> None:
    made = BASES["transactions"].write(memory_dir / "logs", "t")
    name, damage = SIZES[what]
    path = made.folder / name if name[0] == "0" else path_of(made, name)
    damage(path)
    assert each_limited(made.log_dir, memory_dir / "plan.krplan")[0] == ExitCode.FOUND
