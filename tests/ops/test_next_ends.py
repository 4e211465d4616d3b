"""Whoever types each Next command after the other comes to an end: no circle, and no command that cannot be typed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from krepair.errors import ExitCode
from tests.builders import NOW_MS, LogDir, abort, commit, data
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.scene import tree
from tools.torture.scenes import SCENES, build

MOST: Final = 24
LEFT_TO_A_PERSON: Final = ("krepair explain ", "krepair compare ID=")
NEXT: Final = re.compile(r"^Next(?:,.*)?:?\n  (.+)", re.MULTILINE)
NEXT_OF_AN_ERROR: Final = re.compile(r"^next: (.+)", re.MULTILINE)
MISTYPED: Final = {ExitCode.BUG, ExitCode.USAGE}
EVERY: Final = os.environ.get("KREPAIR_EVERY_STATE") == "1"
QUICK: Final = frozenset({"indexes", "excise"})


def walked(log_dir: Path, plans: Path, first: str = "") -> Iterator[str]:
    """Type a first command, and what each run says, until one says nothing more or leaves it to a person.

    A person is asked by ``explain``, ``compare`` and other programs.

    A version that is asked for is one that starts on the directory.
    """
    command, plan = first or f"krepair check {log_dir}", ""
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


def ends(log_dir: Path, plans: Path, first: str = "") -> list[str]:
    """The commands with their exit codes."""
    found: list[str] = []
    for one in walked(log_dir, plans, first):
        found.append(one)
        assert len(found) <= MOST, found
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SCENES],
)
def test_every_scene_ends(name: str, memory_dir: Path, tmp_path: Path) -> None:
    assert ends(build(name).place(memory_dir).path, tmp_path)


def garbage(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(b"0\n17\nt 0 5\n")


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*-0/*.log"))


def half_written_swap(path: Path) -> None:
    log = logs(path)[0]
    log.with_name(f"{log.name}.swap").write_bytes(log.read_bytes()[: log.stat().st_size // 2])


def emptied(path: Path) -> None:
    logs(path)[-1].write_bytes(b"")


def no_aborts(path: Path) -> None:
    for file in path.glob("*-*/*.txnindex"):
        file.write_bytes(b"")


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
    "emptied transaction indexes": no_aborts,
    "a foreign folder": lambda path: (path / "lost+found").mkdir(),
}


def in_turns(rows: Sequence[str], damages: Sequence[str | None], quick: str = "") -> list[object]:
    """Each damage with one row in three; ``KREPAIR_EVERY_STATE=1``: with all of them."""
    return [
        pytest.param(row, damage, marks=[] if row == quick else pytest.mark.slow)
        for number, row in enumerate(rows)
        for turn, damage in enumerate(damages)
        if EVERY or (number + turn) % 3 == 0
    ]


@pytest.mark.parametrize(("name", "damage"), in_turns(["partitions", "recovery", "keys"], [*DAMAGES]))
def test_every_damage_ends(name: str, damage: str, memory_dir: Path, tmp_path: Path) -> None:
    path = build(name).place(memory_dir).path
    DAMAGES[damage](path)
    assert ends(path, tmp_path)


FIRST: Final = (
    "checkpoints", "leftovers", "tail", "index", "epochs", "snapshots", "recovery", "markers", "compact",
)  # fmt: skip
"""Fixes with which a person may begin: what a plan skips names the fix that comes first, not the same one."""


@pytest.mark.parametrize(("fix", "damage"), in_turns(FIRST, [None, *DAMAGES], "markers"))
def test_every_plan_ends_whatever_fix_a_person_begins_with(
    fix: str, damage: str | None, memory_dir: Path, tmp_path: Path
) -> None:
    path = build("keys").place(memory_dir).path
    if damage:
        DAMAGES[damage](path)
    more = " --set cleanup.policy=compact" if fix == "compact" else ""
    assert ends(path, tmp_path, f"krepair plan {path} --fix {fix} --only-replica '*'{more} --out PLAN")


def test_a_skipped_partition_names_the_fix_that_comes_first(tmp_path: Path) -> None:
    old = NOW_MS - 10 * 86_400_000
    directory = LogDir(tmp_path / "logs")
    directory.partition("__consumer_offsets").segment(
        data(0, pid=7, txn=True, timestamp=old),
        commit(1, pid=9, timestamp=old),
        data(2, pid=7, sequence=1, txn=True, timestamp=old),
        abort(3, pid=7, timestamp=old),
        data(4),
        mtime_ms=old,
    ).segment(data(5))
    path = directory.write()
    (path / "__consumer_offsets-0" / f"{0:020d}.txnindex").unlink()
    first = f"krepair plan {path} --fix markers --only-replica '*' --now {NOW_MS} --out PLAN"
    told = ends(path, tmp_path, first)
    assert told[0] == f"0 {first}"
    assert "--fix index=regenerate" in told[1], told
    assert told[1].startswith("2 krepair plan "), told
    assert told[2].startswith("0 krepair apply "), told


@pytest.mark.parametrize("fault", ["torn tail", "no index", "swap"])
def test_no_plan_is_advised_for_a_topic_that_no_fix_changes(tmp_path: Path, fault: str) -> None:
    """The plan would be empty. A log start before the first segment is that of a tiered topic."""
    directory = LogDir(tmp_path / "logs")
    directory.partition("t").segment(data(100, 2)).segment(data(102)).segment(data(103))
    folder = directory.write(log_starts={"t-0": 0}) / "t-0"
    log = folder / f"{103:020d}.log"
    if fault == "torn tail":
        log.write_bytes(log.read_bytes()[:-5])
    elif fault == "no index":
        (folder / f"{102:020d}.index").unlink()
    else:
        (folder / f"{100:020d}.log").rename(folder / f"{100:020d}.log.swap")
    ran = run("check", str(folder.parent), "--all", "--now", str(NOW_MS))
    assert "KR607" in ran.out
    assert "krepair plan" not in ran.out
