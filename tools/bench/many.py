"""Part ``many``: whole processes over many small partitions, where the bytes cost little and the calls are counted.

    python -m tools.bench --only many                        2,000 partitions of three segments
    python -m tools.bench --only many --partitions 400       fewer

Each partition has three segments of four small batches, eleven files with its snapshots and epochs. ``check`` reads a
directory that was stopped cleanly. Recovery gets one that was killed with all its recovery points at 0. The peer of
``plan`` and ``apply`` is what they take the place of: the broker's own loader opens each partition, in one warm JVM.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests import calls
from tests.builders import NOW_MS
from tests.lab.judge import Judge
from tests.ops.written import write
from tools.bench.processes import done
from tools.bench.setting import Setting
from tools.bench.spent import Spent, make_cold, spent_by
from tools.bench.table import Table, log_bytes_of

VERSIONS: Final = ("2.2.1", "4.3.1")
SETTINGS: Final = {"segment.bytes": 1 << 30}
RECOVERY: Final = ("--fix", "recovery", "--broker-version", "3.9.2")
FEW, MORE = 20, 60
"""Partitions of the two runs whose calls are counted: their difference excludes what is done once."""
_WARMING: Final = 200


def many(table: Table, setting: Setting) -> None:
    """Measure every verb over all partitions."""
    with setting.room() as room:
        _measure(table, room, setting.partitions, setting.runs)


def _measure(table: Table, room: Path, partitions: int, runs: int) -> None:
    clean, killed = room / "clean", room / "killed"
    write(clean, partitions, clean=True)
    write(killed, partitions, clean=False)
    size = log_bytes_of(clean)
    name = f"{partitions:,} partitions"

    def noted(label: str, spent: Spent, *, cold: bool) -> None:
        table.note(f"{name}: {label}", size, spent, cold=cold, partitions=partitions)

    for cold in (False, True):
        for _ in range(runs):
            for verb in ("check", "verify"):
                if cold:
                    make_cold(clean)
                noted(verb, done(verb, clean), cold=cold)
            _recovery(room, killed, lambda label, spent, cold=cold: noted(label, spent, cold=cold), cold=cold)
    _loaders(killed, partitions, runs, noted)
    for version in VERSIONS:
        table.against(f"{name}: plan + apply --fix recovery", f"{name}: start of {version} after a kill")
    for label, count in _calls(room).items():
        table.fact(f"calls a partition: {label}", count)


def _recovery(room: Path, killed: Path, noted: Callable[[str, Spent], None], *, cold: bool) -> None:
    """Measure plan, apply, verify and undo of one copy.

    No copy is removed before the end. If files were deleted within the last seconds, ext4 searches for a free inode
    past all of them (``recently_deleted``, fs/ext4/ialloc.c of Linux), which takes up to three times as long as
    everything else.
    """
    work = Path(tempfile.mkdtemp(dir=room))
    root, plan = work / "logs", work / "recovery.krplan"
    shutil.copytree(killed, root)
    if cold:
        make_cold(root)
    planned = done("plan", root, *RECOVERY, "--out", str(plan))
    applied = done("apply", plan)
    noted("plan --fix recovery", planned)
    noted("apply", applied)
    noted("plan + apply --fix recovery", planned.more(applied))
    noted("verify of its plan", done("verify", plan))
    noted("undo", done("undo", plan))


def _loaders(killed: Path, partitions: int, runs: int, noted: Callable[..., None]) -> None:
    """Measure the broker's own loader, which opens all partitions one after another, in place and so on copies."""
    with ExitStack() as stack:
        judges = [stack.enter_context(Judge(version, heap="1g", timeout_s=900)) for version in VERSIONS]
        for judge in judges:
            for run in range(-1, 2 * runs):
                root = Path(tempfile.mkdtemp(dir=killed.parent)) / "started"  # see ``_recovery``
                shutil.copytree(killed, root)
                cold = run >= runs
                if cold:
                    make_cold(root)
                folders = sorted(path for path in root.iterdir() if path.is_dir())
                # the first run warms the JVM
                some = folders[: _WARMING if run < 0 else partitions]
                spent = spent_by(partial(_start, judge, some), judge)
                if run >= 0:
                    noted(f"start of {judge.version} after a kill", spent, cold=cold)


def _start(judge: Judge, folders: list[Path]) -> None:
    for folder in folders:
        judge.start(folder, clean=False, recovery_point=0, log_start=0, settings=SETTINGS)


def _calls(room: Path) -> dict[str, float]:
    """Count the calls of all verbs for each partition in this process, by ``check: open`` and so on."""
    options = Options(engine=EngineName.INLINE, now_ms=NOW_MS)
    recovery = Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=("recovery",), broker_version="3.9.2")
    clean = {number: write(room / f"calls-{number}", number, clean=True) for number in (FEW, MORE)}
    plans: dict[int, list[Plan]] = {FEW: [], MORE: []}
    for number, some in plans.items():
        for turn in range(2):
            root = write(room / f"calls-{number}-{turn}", number, clean=False)
            some.append(make_plan(str(root), recovery))

    def next_of(work: Callable[[Plan], object]) -> Callable[[int], object]:
        waiting = {number: iter(some) for number, some in plans.items()}
        return lambda number: work(next(waiting[number]))

    # each verb meets a plan in the state that the verb before left
    verbs: dict[str, Callable[[int], object]] = {
        "check": lambda number: check([str(clean[number])], options),
        "plan": next_of(lambda plan: make_plan(plan.log_dir, recovery)),
        "apply": next_of(lambda plan: apply(plan, recovery)),
        "verify": next_of(lambda plan: verify_plan(plan, recovery)),
        "undo": next_of(lambda plan: undo(plan, recovery)),
    }
    return {
        f"{verb}: {call}": count
        for verb, work in verbs.items()
        for call, count in calls.for_each(work, FEW, MORE).items()
    }
