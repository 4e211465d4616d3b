"""Names and texts that steer a terminal or are no text: shown escaped or refused, whatever the verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, EPOCHS, Made
from tests.hostile.verbs import every_verb
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
