"""Pre-recovery against the recovery of the broker itself, both with a cold cache; the second reading reported apart."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from krepair.engine.items import Failed, Place
from krepair.engine.place import kept_open
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.reports import ApplyReport
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from krepair.rewrite.recovered import RecoveredItem, read_recovered
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.data import NOW_MS, Made
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
    """As after a kill before anything was flushed, and without the snapshot that only a clean stop writes."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for path in root.glob("*/*.snapshot"):
        path.unlink()


def options_of(engine: EngineName, master: str) -> Options:
    """What is asked for."""
    return Options(
        engine=engine,
        master=master,
        now_ms=NOW_MS,
        fixes=("recovery",),
        broker_version="3.9.2",
        settings=tuple((key, str(value)) for key, value in SETTINGS.items()),
    )


def plan_and_apply(root: Path, options: Options) -> tuple[Spent, Spent]:
    """What each costs."""
    plans: list[Plan] = []
    reports: list[ApplyReport] = []
    planned = spent_by(lambda: plans.append(make_plan(str(root), options)))
    applied = spent_by(lambda: reports.append(apply(plans[0], options)))
    assert not [one for one in reports[0].results if one.outcome == "failed"], reports[0].results
    return planned, applied


def second_reading(root: Path) -> Spent:
    """The second reading of all logs by itself, from the disk: what apply makes in it is not made."""
    items = []
    for folder in (path for path in root.iterdir() if path.is_dir()):
        logs = sorted(folder.glob("*.log"))
        bases = [int(path.stem) for path in logs]
        for path, end in zip(logs, [*bases[1:], 2**62], strict=True):
            if path.stat().st_size:
                items.append(
                    RecoveredItem(
                        place=Place(
                            host=socket.gethostname(),
                            log_dir=str(root),
                            log_dir_inode=root.stat().st_ino,
                            folder=folder.name,
                        ),
                        base_offset=int(path.stem),
                        log_bytes=path.stat().st_size,
                        log_end=end,
                        exact=False,
                        interval_bytes=4096,
                        settle=True,
                        audit=False,
                    )
                )

    def read() -> None:
        with kept_open():
            found = [read_recovered(item) for item in items]
        assert not [one for one in found if isinstance(one, Failed) or one.problems], found

    return spent_by(read)


def recovery(table: Table, setting: Setting) -> None:
    """Krepair with one core and the brokers' loaders with their one thread, in turns."""
    for kind in KINDS:
        made = setting.log(kind, SIZE)
        with ExitStack() as judges:
            judges.enter_context(mock.patch.object(jvm, "QUICK", ("-XX:+UseG1GC", "-Xshare:auto")))
            loaders = [judges.enter_context(Judge(version, heap="1g", timeout_s=900)) for version in VERSIONS]
            _in_turns(Table(), setting, kind, made, loaders)  # compiles, and warms the JVM
            for _ in range(setting.runs):
                _in_turns(table, setting, kind, made, loaders)
        for text in ("", ", without the second reading"):
            for version in VERSIONS:
                table.against(f"{_ours(kind)}{text}", f"{kind}: start of {version} after a kill")


def _ours(kind: str) -> str:
    return f"{kind}: krepair plan + apply --fix recovery"


def _in_turns(table: Table, setting: Setting, kind: str, made: Made, loaders: Sequence[Judge]) -> None:
    def noted(name: str, spent: Spent) -> None:
        table.note(name, made.log_bytes, spent, cold=True)

    root = _unclean_copy(setting, made)
    planned, applied = plan_and_apply(root, options_of(EngineName.INLINE, ""))
    alone = second_reading(root)
    noted(_ours(kind), planned.more(applied))
    noted(f"{_ours(kind)}, plan alone", planned)
    noted(f"{_ours(kind)}, the second reading by itself", alone)
    noted(f"{_ours(kind)}, without the second reading", planned.more(applied).less(alone))
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
    """A log directory with the same partition several times, each with files of its own."""
    for number in range(partitions):
        shutil.copytree(made.folder, root / f"__consumer_offsets-{number}")
    (root / "meta.properties").write_bytes((made.root / "meta.properties").read_bytes())
    lines = "".join(f"__consumer_offsets {number} {made.batches}\n" for number in range(partitions))
    (root / "replication-offset-checkpoint").write_text(f"0\n{partitions}\n{lines}")
    make_unclean(root)
    return Made(root, root / "__consumer_offsets-0", made.log_bytes * partitions, made.batches * partitions)


def cores(table: Table, setting: Setting) -> None:
    """Several partitions without and with Spark, by wall time: how it grows with the cores, starts of Spark counted."""
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
