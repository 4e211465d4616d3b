"""Runs krepair as whole processes, as a person starts it, and measures them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from unittest import mock

from krepair.errors import ExitCode
from tests.lab import jars, jvm
from tools.bench.data import NOW_MS, Made
from tools.bench.setting import BROKER_JVM, FAR_MS, Setting
from tools.bench.spent import Spent, make_cold, spent_by
from tools.bench.table import Table

DUMP_TOOLS: Final = {
    "2.2.1": "kafka.tools.DumpLogSegments",
    "4.3.1": "org.apache.kafka.tools.DumpLogSegments",
}
DUMP_BYTES: Final = 100_000_000
GROUPS_BYTES: Final = 1 << 30
STATES_BYTES: Final = 100_000_000
IDS: Final = 2000
AGAIN: Final = 30
"""Number of times that one log is read in one process, so that the work is many times the start."""

WORTH: Final = 6
"""Least ratio of a whole process to its start."""

KREPAIR: Final = Path(sys.executable).parent / "krepair"
GOOD: Final = frozenset({ExitCode.DONE, ExitCode.FOUND})
# A user's Python keeps its bytecode, which some build machines forbid.
ENVIRONMENT: Final = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def run(*words: str | Path) -> Spent:
    """Run one command, and discard its output.

    Raises:
        RuntimeError: the command ended with another code than 0 or 2; the message has its last output.
    """

    def work() -> None:
        ended = subprocess.run(
            list(map(str, words)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
            env=ENVIRONMENT,
        )
        if ended.returncode not in GOOD:
            raise RuntimeError(f"{words} ended with {ended.returncode}: {ended.stderr.decode()[-2000:]}")

    return spent_by(work)


def done(verb: str, *words: str | Path) -> Spent:
    """Run a verb of krepair in one process and without progress."""
    return run(KREPAIR, verb, *words, "--engine", "inline", "--quiet")


def plan_markers(root: Path) -> Spent:
    """Run ``krepair plan`` of markers, which checks every CRC."""
    plan = root.with_name("markers.krplan")
    plan.unlink(missing_ok=True)
    times = ("--now", str(NOW_MS), "--delete-horizon", str(FAR_MS))
    return done("plan", root, *times, "--only-replica", "*", "--out", plan)


def start(table: Table, setting: Setting) -> None:
    """Measure a process that has next to nothing to do."""
    with setting.room() as room:
        (room / "empty").mkdir()
        (room / "empty/recovery-point-offset-checkpoint").write_text("0\n0\n")
        works = {
            "--version": lambda: run(KREPAIR, "--version"),
            "plan of an empty directory: no kernel": lambda: done("plan", room / "empty"),
            "plan of ten batches: kernels from the cache": lambda: plan_markers(setting.tiny("markers").root),
            "check of ten batches": lambda: done("check", setting.tiny("markers").root),
        }
        for name, work in works.items():
            work()
            took = [work() for _ in range(2 * setting.often)]
            table.fact(f"{name}, least CPU time (s)", min(run.cpu or 0.0 for run in took))
            table.fact(f"{name}, median wall time (s)", statistics.median(run.wall for run in took))


class Command(NamedTuple):
    """Command over a log.

    Attributes:
        name: name of its line.
        starting: the same command with next to nothing to do; its cost is subtracted.
        once: the command over the log.
        often: the command over ``times`` copies of the log.
        times: number of copies.
    """

    name: str
    starting: Sequence[str | Path]
    once: Sequence[str | Path]
    often: Sequence[str | Path]
    times: int = 1


def less_its_start(table: Table, command: Command, log: Path, size: int, runs: int) -> None:
    """Measure a process less one with next to nothing to do, in turns, so that noise slows both."""
    run(*command.starting)  # compiles what the cache does not hold yet
    for _ in range(runs):
        less, took = run(*command.starting), run(*command.often)
        if took.wall < WORTH * less.wall:
            table.fact(
                f"imprecise, work is less than {WORTH} times the start: {command.name}", took.wall / less.wall
            )
        table.note(command.name, size, took.less(less).one_of(command.times))
    for _ in range(runs):
        less = run(*command.starting)
        make_cold(log)
        table.note(command.name, size, run(*command.once).less(less), cold=True)


def dump(table: Table, setting: Setting) -> None:
    """Measure ``krepair dump --json`` and the dump tools of two brokers on the same log."""
    contents = ("--deep-iteration", "--print-data-log")
    for kind, ours, theirs in (("markers", "--batches", ()), ("texts", "--records", contents)):
        made = setting.log(kind, DUMP_BYTES, segment_bytes=2 * DUMP_BYTES)
        log, tiny = min(made.folder.glob("*.log")), max(made.folder.glob("*.log"))
        size = log.stat().st_size
        words = (KREPAIR, "dump", "--json", "--decode", "none", ours)
        mine = Command(
            f"{kind}: krepair dump {ours} --json",
            (*words, tiny),
            (*words, log),
            (*words, *[log] * AGAIN),
            AGAIN,
        )
        less_its_start(table, mine, made.folder, size, setting.runs)
        for version, main in DUMP_TOOLS.items():
            jars.fetch(version)
            with mock.patch.object(jvm, "QUICK", BROKER_JVM):
                starting, whole = (
                    jvm.java(version, main, "--files", str(path), *theirs, heap="1g") for path in (tiny, log)
                )
            peer = Command(f"{kind}: dump tool of {version}", starting, whole, whole)
            less_its_start(table, peer, made.folder, size, setting.runs)
            table.against(mine.name, peer.name)


def groups(table: Table, setting: Setting) -> None:
    """Measure ``krepair groups`` over a GiB of offset commits."""
    _whole_log(table, setting, "groups", setting.log("commits", GROUPS_BYTES, producers=IDS))


def transactions(table: Table, setting: Setting) -> None:
    """Measure ``krepair transactions`` over the records of a coordinator."""
    _whole_log(table, setting, "transactions", setting.log("states", STATES_BYTES, producers=IDS))


def _whole_log(table: Table, setting: Setting, verb: str, made: Made) -> None:
    words = (KREPAIR, verb, "--engine", "inline", "--quiet")
    whole = (*words, made.root)
    command = Command(f"krepair {verb}", (*words, setting.tiny("markers").root), whole, whole)
    less_its_start(table, command, made.folder, made.log_bytes, setting.runs)
