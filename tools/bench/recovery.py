"""Pre-recovery against the recovery of the broker itself, both with a cold cache; the second reading reported apart."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import Engine, Options
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.data import NOW_MS, Made

VERSIONS = ("2.2.1", "4.3.1")
ENGINES = ((1, Engine.INLINE, ""), (2, Engine.SPARK, "local[2]"))


class Stopwatch:
    """Adds up how long each task takes, by its name: wall time, and CPU time of this process."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._task, self._begun, self._cpu_begun = "", 0.0, 0.0

    def start(self, task: str, total_bytes: int) -> None:
        """A task begins."""
        del total_bytes
        self._task, self._begun, self._cpu_begun = task, time.perf_counter(), time.process_time()

    def advance(self, done_bytes: int) -> None:
        """Nothing to do."""
        del done_bytes

    def finish(self) -> None:
        """The task is over."""
        spent, cpu = time.perf_counter() - self._begun, time.process_time() - self._cpu_begun
        self.seconds[self._task] = self.seconds.get(self._task, 0.0) + spent
        self.cpu[self._task] = self.cpu.get(self._task, 0.0) + cpu


def make_cold(root: Path) -> None:
    """Write a directory out, and have the kernel forget its pages."""
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def make_unclean(root: Path) -> None:
    """As after a kill before anything was flushed."""
    (root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (root / "recovery-point-offset-checkpoint").write_text("0\n0\n")


def measure(
    note: Callable[[str, int, float], None],
    copy_of: Callable[[Made], Path],
    kind: str,
    made: Made,
    runs: int,
    settings: dict[str, object],
) -> None:
    """One kind of log: krepair with one and with two cores, then the brokers' loaders with their one thread."""
    for cores, engine, master in ENGINES:
        name = f"{kind}: krepair plan + apply --fix recovery, {cores} cores"
        for run in range(runs + 1):
            root = copy_of(made)
            make_unclean(root)
            make_cold(root)
            watch = Stopwatch()
            options = Options(
                engine=engine,
                master=master,
                now_ms=NOW_MS,
                fixes=("recovery",),
                broker_version="3.9.2",
                settings=tuple((key, str(value)) for key, value in settings.items()),
            )
            begun, cpu_begun = time.perf_counter(), time.process_time()
            report = apply(make_plan(str(root), options, watch), options, watch)
            spent, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
            assert not [one for one in report.results if one.outcome == "failed"], report.results
            if run:  # the first one compiles
                again = watch.seconds.get("read again", 0.0)
                note(f"{name}, without the second reading", made.log_bytes, spent - again)
                note(f"{name}, the second reading", made.log_bytes, again)
                if engine is Engine.INLINE:  # Spark's workers are other processes
                    work = cpu - watch.cpu.get("read again", 0.0)
                    note(f"{name}, without the second reading (CPU time)", made.log_bytes, work)
    for version in VERSIONS:
        with (
            mock.patch.object(jvm, "QUICK", ("-XX:+UseG1GC", "-Xshare:auto")),
            Judge(version, heap="1g", timeout_s=900) as judge,
        ):
            for run in range(runs + 1):
                root = copy_of(made)
                make_unclean(root)
                make_cold(root)
                begun, cpu_begun = time.perf_counter(), judge.cpu_seconds()
                judge.start(
                    root / made.folder.name, clean=False, recovery_point=0, log_start=0, settings=settings
                )
                if run:  # the first one warms the JVM
                    spent, cpu = time.perf_counter() - begun, judge.cpu_seconds() - cpu_begun
                    note(f"{kind}: start of {version} after a kill", made.log_bytes, spent)
                    note(f"{kind}: start of {version} after a kill (CPU time)", made.log_bytes, cpu)
