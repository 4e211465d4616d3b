"""Part ``recovery``: krepair's recovery against the broker's own, both with a cold cache."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from krepair.commit.reports import ApplyReport
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.data import NOW_MS, Made, close
from tools.bench.markers import SETTINGS
from tools.bench.setting import Setting
from tools.bench.spent import Spent, make_cold, spent_by
from tools.bench.table import Table

VERSIONS: Final = ("2.2.1", "4.3.1")
KINDS: Final = ("markers", "records")
SIZE: Final = 300_000_000
SEVERAL: Final = 10
ENGINES: Final = (
    ("without Spark", EngineName.INLINE, ""),
    ("Spark, 1 core", EngineName.SPARK, "local[1]"),
    ("Spark, 2 cores", EngineName.SPARK, "local[2]"),
)


def make_unclean(root: Path) -> None:
    """Imitate a kill before anything was flushed, without the snapshot that only a clean stop writes."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for path in root.glob("*/*.snapshot"):
        path.unlink()


def options_of(engine: EngineName, master: str) -> Options:
    """Build the options of the recovery."""
    return Options(
        engine=engine,
        master=master,
        now_ms=NOW_MS,
        fixes=("recovery",),
        broker_version="3.9.2",
        settings=tuple((key, str(value)) for key, value in SETTINGS.items()),
    )


def plan_and_apply(root: Path, options: Options) -> tuple[Spent, Spent]:
    """Plan and apply; return the cost of each."""
    plans: list[Plan] = []
    reports: list[ApplyReport] = []
    planned = spent_by(lambda: plans.append(make_plan(str(root), options)))
    applied = spent_by(lambda: reports.append(apply(plans[0], options)))
    assert not [result for result in reports[0].results if result.outcome == "failed"], reports[0].results
    return planned, applied


def recovery(table: Table, setting: Setting) -> None:
    """Measure krepair with one core and the brokers' loaders with their one thread, in turns."""
    for kind in KINDS:
        made = setting.log(kind, SIZE)
        with ExitStack() as judges:
            judges.enter_context(mock.patch.object(jvm, "QUICK", ("-XX:+UseG1GC", "-Xshare:auto")))
            loaders = [judges.enter_context(Judge(version, heap="1g", timeout_s=900)) for version in VERSIONS]
            _in_turns(Table(), setting, kind, made, loaders)  # compiles, and warms the JVM
            for _ in range(setting.runs):
                _in_turns(table, setting, kind, made, loaders)
        for version in VERSIONS:
            table.against(_ours(kind), f"{kind}: start of {version} after a kill")


def _ours(kind: str) -> str:
    return f"{kind}: krepair plan + apply --fix recovery"


def _in_turns(table: Table, setting: Setting, kind: str, made: Made, loaders: Sequence[Judge]) -> None:
    def noted(name: str, spent: Spent) -> None:
        table.note(name, made.log_bytes, spent, cold=True)

    root = _unclean_copy(setting, made)
    planned, applied = plan_and_apply(root, options_of(EngineName.INLINE, ""))
    noted(_ours(kind), planned.more(applied))
    for judge in loaders:
        folder = _unclean_copy(setting, made) / made.folder.name
        start = partial(judge.start, folder, clean=False, recovery_point=0, log_start=0, settings=SETTINGS)
        spent = spent_by(start, judge)
        noted(f"{kind}: start of {judge.version} after a kill", spent)


def _unclean_copy(setting: Setting, made: Made) -> Path:
    root = setting.copy_of(made)
    make_unclean(root)
    make_cold(root)
    return root


def several(made: Made, root: Path, partitions: int) -> Made:
    """Create a log directory that holds the same partition several times, each with files of its own."""
    for number in range(partitions):
        shutil.copytree(made.folder, root / f"__consumer_offsets-{number}")
    close(root, "__consumer_offsets", [made.batches] * partitions)
    make_unclean(root)
    return Made(root, root / "__consumer_offsets-0", made.log_bytes * partitions, made.batches * partitions)


def cores(table: Table, setting: Setting) -> None:
    """Measure several partitions without and with Spark by wall time, starts of Spark included."""
    for kind in KINDS:
        with setting.room() as room:
            made = several(setting.log(kind, SIZE), room / "logs", SEVERAL)
            for run in range(setting.runs + 1):
                for text, engine, master in ENGINES:
                    root = setting.copy_of(made)
                    make_cold(root)
                    both = plan_and_apply(root, options_of(engine, master))
                    for verb, spent in zip(("plan", "apply"), both, strict=True):
                        if run:  # the first one compiles
                            name = f"{kind}, several partitions: {verb}, {text}"
                            table.note(name, made.log_bytes, Spent(spent.wall), cold=True)
