"""Whoever types each Next command after the other comes to an end: no circle, and no command that cannot be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from krepair.errors import ExitCode
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.journeys import OWN, SCENES, scene_of
from tests.ops.scene import tree

MOST: Final = 24
LEFT_TO_A_PERSON: Final = ("krepair explain ", "krepair compare ID=")
NEXT: Final = re.compile(r"^Next(?:,.*)?:?\n  (.+)", re.MULTILINE)
NEXT_OF_AN_ERROR: Final = re.compile(r"^next: (.+)", re.MULTILINE)
MISTYPED: Final = {ExitCode.BUG, ExitCode.USAGE}
QUICK: Final = frozenset({"indexes", "excise"})


def walked(log_dir: Path, plans: Path) -> Iterator[str]:
    """Type what each run says, until one says nothing more, or leaves it to a person: ``explain``, or other programs.

    A version that is asked for is one that starts on the directory.
    """
    command, plan = f"krepair check {log_dir}", ""
    seen: list[tuple[str, object]] = []
    while command.startswith("krepair ") and not command.startswith(LEFT_TO_A_PERSON):
        command = command.partition("   # ")[0].replace("VERSION", "3.9.2")
        state = (command, tree(log_dir))
        assert state not in seen, f"a circle: {[one for one, _ in seen]}"
        seen.append(state)
        typed = command
        if typed.endswith(" --out PLAN"):
            plan = str(plans / f"{len(seen)}.krplan")
            typed = typed.removesuffix("PLAN") + plan
        words = shlex.split(typed.replace(" PLAN", f" {plan}"))[1:]
        ran = run(*words)
        yield f"{ran.code} {command}"
        assert ran.code not in MISTYPED, ran
        said = NEXT.search(ran.out) or NEXT_OF_AN_ERROR.search(ran.err)
        command = "" if said is None else said[1]


def ends(log_dir: Path, plans: Path) -> list[str]:
    """The commands with their exit codes."""
    found: list[str] = []
    for one in walked(log_dir, plans):
        found.append(one)
        assert len(found) <= MOST, found
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in [*SCENES, *OWN]],
)
def test_every_scene_ends(name: str, memory_dir: Path, tmp_path: Path) -> None:
    assert ends(scene_of(name).place(memory_dir).path, tmp_path)


def garbage(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(b"0\n17\nt 0 5\n")


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*-0/*.log"))


def half_written_swap(path: Path) -> None:
    log = logs(path)[0]
    log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def emptied(path: Path) -> None:
    logs(path)[-1].write_bytes(b"")


DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "recovery points": garbage("recovery-point-offset-checkpoint"),
    "high watermarks": garbage("replication-offset-checkpoint"),
    "log starts": garbage("log-start-offset-checkpoint"),
    "cleaner": garbage("cleaner-offset-checkpoint"),
    "half-written swap": half_written_swap,
    "last segment emptied": emptied,
    "first segment removed": lambda path: logs(path)[0].unlink(),
    "every segment removed": lambda path: [log.unlink() for log in logs(path)],
    "a flipped bit": lambda path: flip(logs(path)[0], 70),
    "a foreign folder": lambda path: (path / "lost+found").mkdir(),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["partitions", "recovery", "keys"])
def test_every_damage_ends(name: str, damage: str, memory_dir: Path, tmp_path: Path) -> None:
    path = scene_of(name).place(memory_dir).path
    DAMAGES[damage](path)
    assert ends(path, tmp_path)
