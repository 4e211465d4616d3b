"""Names and texts that control a terminal or are not text: escaped or refused by every verb."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from tests.corpus.bases import BASES, EPOCHS
from tests.hostile.names import FILES, TEXTS, path_of
from tests.hostile.verbs import ALL_WELL, carried_out, codes, every_verb, findings, found_at
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


RULES = {
    "folder in the root": "KR602",
    "partition in the root": "KR602",
    "folder in a partition": "KR606",
    "swap": "KR601",
    "log": "KR803",
}
"""The rule under which check names the thing; a file that no broker looks at is not told."""


def everywhere() -> list[object]:
    """Each name in each third place; the quick tests take it once, in one place after the other."""
    out = []
    for number, name in enumerate(NAMES):
        for turn, place in enumerate(IN_NAME):
            quick = turn == number % len(IN_NAME)
            if not quick and (turn + number) % 3:
                continue
            marks = () if quick else (pytest.mark.slow,)
            out.append(pytest.param(name, place, marks=marks, id=f"{name}-{place}"))
    return out


@pytest.mark.parametrize(("name", "place"), everywhere())
def test_hostile_name_anywhere_is_found_and_shown_escaped(memory_dir: Path, name: str, place: str) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t")
    folder, file = IN_NAME[place](made, NAMES[name])
    path = os.path.join(folder, file.rstrip(b"/"))
    if file.endswith(b"/"):
        os.mkdir(path)
    else:
        with open(path, "wb") as out:
            out.write(b"x")
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan", dumped=[os.fsdecode(path)])
    rule = "" if (name, place) == ("249", "partition in the root") else RULES.get(place, "")
    found = codes(runs)
    assert found["check"] == [ExitCode.FOUND if rule else ExitCode.DONE] * 2
    assert (found["verify"][0], found["transactions"], found["groups"]) == (0, [0], [0])
    # No broker names a swap so: its partition is left alone.
    assert found["plan"] == [ExitCode.FOUND if place == "swap" else ExitCode.DONE]
    assert carried_out(runs) == ALL_WELL
    shown = (
        os.path.basename(path).decode("utf-8", "surrogateescape").encode("utf-8", "backslashreplace").decode()
    )
    assert found_at(runs, shown) >= ({rule} if rule else set())
    assert rule or not findings(runs)
    assert found["dump"] == [ExitCode.FOUND if place in {"swap", "log"} else ExitCode.USAGE]


def test_topic_of_249_characters_is_mended_like_any_other(memory_dir: Path) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t" * 249)
    (made.folder / EPOCHS).write_bytes(b"0\n9\n")
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan")
    assert [ran.code for ran in runs if ran.words[0] in {"plan", "apply", "undo"}] == [2, 0, 0, 0, 0]


RULE_OF_FILE = {
    EPOCHS: "KR401",
    "partition.metadata": "KR408",
    "meta.properties": "KR407",
    "recovery-point-offset-checkpoint": "KR403",
    "replication-offset-checkpoint": "KR404",
    "log-start-offset-checkpoint": "KR405",
    "cleaner-offset-checkpoint": "KR410",
}
NO_FIX = {"partition.metadata", "meta.properties"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("text", [name for name in TEXTS if name != "200 000 lines"])
def test_hostile_text_in_a_small_file_is_found_and_shown_escaped(
    memory_dir: Path, name: str, text: str
) -> None:
    made = BASES["plain"].write(memory_dir / "logs", "t")
    path_of(made, name).write_bytes(TEXTS[text](b"t"))
    runs = every_verb(made.log_dir, memory_dir / "plan.krplan", dumped=[str(path_of(made, name))])
    found = codes(runs)
    assert found["check"] == [ExitCode.FOUND] * 2
    assert RULE_OF_FILE[name] in found_at(runs, name)
    assert (found["transactions"], found["groups"]) == ([0], [0])
    assert found["plan"] == [ExitCode.DONE if name in NO_FIX else ExitCode.FOUND]
    assert carried_out(runs) == ALL_WELL
    # An offset checkpoint may name a topic as it likes; what is wrong with such a line only its log directory tells.
    well_formed = name.endswith("-offset-checkpoint") and text in {"escape", "newline in a name"}
    assert found["dump"] == [ExitCode.DONE if well_formed else ExitCode.FOUND]
