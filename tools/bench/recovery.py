"""Pre-recovery against the recovery of the broker itself, both with a cold cache; the second reading reported apart."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.reports import ApplyReport
from krepair.options import Engine, Options
from krepair.pipeline.items import Place
from krepair.pipeline.place import kept_open
from krepair.pipeline.readings.recovered import RecoveredItem, read_recovered
from krepair.plan.model import Plan
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.cost import make_cold
from tools.bench.data import NOW_MS, Made

VERSIONS = ("2.2.1", "4.3.1")
ENGINES = (
    ("without Spark", Engine.INLINE, ""),
    ("Spark, 1 core", Engine.SPARK, "local[1]"),
    ("Spark, 2 cores", Engine.SPARK, "local[2]"),
)


def make_unclean(root: Path) -> None:
    """As after a kill before anything was flushed, and without the snapshot that only a clean stop writes."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    for path in root.glob("*/*.snapshot"):
        path.unlink()


class Cost(NamedTuple):
    """Seconds of one piece of work."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Cost:
        """Do it; CPU time is that of this process."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu)


def options_of(engine: Engine, master: str, settings: Mapping[str, object]) -> Options:
    """What is asked for."""
    return Options(
        engine=engine,
        master=master,
        now_ms=NOW_MS,
        fixes=("recovery",),
        broker_version="3.9.2",
        settings=tuple((key, str(value)) for key, value in settings.items()),
    )


def plan_and_apply(root: Path, options: Options) -> tuple[Cost, Cost]:
    """What both cost."""
    plans: list[Plan] = []
    reports: list[ApplyReport] = []
    planned = Cost.of(lambda: plans.append(make_plan(str(root), options)))
    applied = Cost.of(lambda: reports.append(apply(plans[0], options)))
    assert not [one for one in reports[0].results if one.outcome == "failed"], reports[0].results
    return planned, applied


def second_reading(root: Path) -> Cost:
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
        assert not [one for one in found if one.problems], found

    return Cost.of(read)


def measure(
    note: Callable[[str, int, float], None],
    copy_of: Callable[[Made], Path],
    kind: str,
    made: Made,
    runs: int,
    settings: dict[str, object],
) -> None:
    """One kind of log: krepair with one core and the brokers' loaders with their one thread, in turns."""
    name = f"{kind}: krepair plan + apply --fix recovery"
    with ExitStack() as judges:
        judges.enter_context(mock.patch.object(jvm, "QUICK", ("-XX:+UseG1GC", "-Xshare:auto")))
        loaders = [judges.enter_context(Judge(version, heap="1g", timeout_s=900)) for version in VERSIONS]
        for run in range(runs + 1):  # the first one compiles, and warms the JVM
            told = note if run else lambda name, size, seconds: None
            root = copy_of(made)
            make_unclean(root)
            make_cold(root)
            planned, applied = plan_and_apply(root, options_of(Engine.INLINE, "", settings))
            alone = second_reading(root)
            for text, wall, cpu in (
                ("", planned.wall + applied.wall, planned.cpu + applied.cpu),
                (", plan alone", *planned),
                (", the second reading by itself", *alone),
                (
                    ", without the second reading",
                    planned.wall + applied.wall - alone.wall,
                    planned.cpu + applied.cpu - alone.cpu,
                ),
            ):
                told(f"{name}{text}", made.log_bytes, wall)
                told(f"{name}{text} (CPU time)", made.log_bytes, cpu)
            for judge in loaders:
                root = copy_of(made)
                make_unclean(root)
                make_cold(root)
                begun, cpu_begun = time.perf_counter(), judge.cpu_seconds()
                judge.start(
                    root / made.folder.name, clean=False, recovery_point=0, log_start=0, settings=settings
                )
                spent, cpu = time.perf_counter() - begun, judge.cpu_seconds() - cpu_begun
                told(f"{kind}: start of {judge.version} after a kill", made.log_bytes, spent)
                told(f"{kind}: start of {judge.version} after a kill (CPU time)", made.log_bytes, cpu)


def several(made: Made, root: Path, partitions: int) -> Made:
    """A log directory with the same partition several times, each with files of its own."""
    for number in range(partitions):
        shutil.copytree(made.folder, root / f"__consumer_offsets-{number}")
    (root / "meta.properties").write_bytes((made.root / "meta.properties").read_bytes())
    lines = "".join(f"__consumer_offsets {number} {made.batches}\n" for number in range(partitions))
    (root / "replication-offset-checkpoint").write_text(f"0\n{partitions}\n{lines}")
    make_unclean(root)
    return Made(root, root / "__consumer_offsets-0", made.log_bytes * partitions, made.batches * partitions)


def measure_cores(
    note: Callable[[str, int, float], None],
    copy_of: Callable[[Made], Path],
    kind: str,
    made: Made,
    runs: int,
    settings: dict[str, object],
) -> None:
    """Several partitions without and with Spark, by wall time: how it grows with the cores, starts of Spark counted."""
    for run in range(runs + 1):
        for text, engine, master in ENGINES:
            root = copy_of(made)
            make_cold(root)
            planned, applied = plan_and_apply(root, options_of(engine, master, settings))
            if run:  # the first one compiles
                note(f"{kind}, several partitions: plan, {text}", made.log_bytes, planned.wall)
                note(f"{kind}, several partitions: apply, {text}", made.log_bytes, applied.wall)
