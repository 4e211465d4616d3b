"""Applied plans, and the second readings of their results."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from krepair.commit.folder import PartitionFolder
from krepair.durable.real_disk import RealDisk
from krepair.durable.scratch import Scratch
from krepair.durable.tree import Tree
from krepair.engine.engine import InlineEngine
from krepair.errors import ExitCode
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Staging, Work, Wrong
from krepair.fixes.table import owner_of
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Change, PartitionPlan, Plan
from krepair.rewrite.damage import verify_repaired_log
from krepair.rewrite.indexes.transactions import inspect_txn
from tests import builders
from tests.engine.travelled import travelled

FOLDER = "t-0"


@dataclass
class Applied:
    """A log directory after an apply.

    Attributes:
        root: of it.
        plan: that was applied.
        options: it was planned under.
    """

    root: Path
    plan: Plan
    options: Options

    @property
    def folder(self) -> Path:
        """Of the partition."""
        return self.root / FOLDER

    @property
    def part(self) -> PartitionPlan:
        """What the plan says of the partition."""
        return next(one for one in self.plan.partitions if one.folder == FOLDER)

    def works(self, *, together: bool = False) -> Iterator[tuple[Change, SecondReading]]:
        """Every change of the partition with each reading of its small files; together: as ``verify`` asks for them."""
        view = read_log_dir(str(self.root))
        partition = next(one for one in view.partitions if one.folder == FOLDER)
        disk = RealDisk(Tree(view.path, view.inode))
        folder = PartitionFolder(disk, view.path, FOLDER, self.plan.plan_id)
        work = Work(self.plan, view, InlineEngine(""), disk, Scratch("", (view.path,)))
        changes = self.part.changes
        for asked_of in [changes] if together else [(change,) for change in changes]:
            staging = Staging(self.part, partition, folder, asked_of)
            for reading in owner_of(asked_of[0]).second_readings(work, staging):
                if _reads_logs(reading):
                    yield reading.change, reading

    def problems(self) -> list[str]:
        """What ``krepair verify`` has against it."""
        return [one.text for one in verify_plan(self.plan, self.options).problems]


def _reads_logs(reading: SecondReading) -> bool:
    return reading.reader in {verify_repaired_log, inspect_txn}


def read(work: SecondReading) -> tuple[str, ...]:
    """Run one reading as it travels; what it has against files, as text."""
    way = work.reader
    assert inspect.isfunction(way)
    found = work.says([travelled(way, item) for item in work.items])
    return tuple(one.text if isinstance(one, Wrong) else one for one in found)


def options(fix: str, **given: object) -> Options:
    """As an operator would give them."""
    values: dict[str, object] = {
        "engine": EngineName.INLINE,
        "now_ms": builders.NOW_MS + 60_000,
        "fixes": (fix,),
    }
    return Options(**(values | given))  # type: ignore[arg-type]


def applied(root: Path, chosen: Options) -> Applied:
    """Plan and apply."""
    plan = make_plan(str(root), chosen)
    report = apply(plan, chosen)
    assert report.exit_code == ExitCode.DONE, report.results
    return Applied(root, plan, chosen)
