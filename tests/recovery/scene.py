"""An unclean log directory with transactions over its segments, and what Kafka's own log classes make of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from krepair.commit.reports import ApplyReport
from krepair.formats.checkpoint import decode_offsets
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests.builders import LogDir, data
from tests.commit.txfixture import END, INTERVAL_BYTES, SEGMENTS, SETTINGS, TIME_MS, batches
from tests.lab import jars
from tests.lab.judge import Judge, Loaded, Started
from tests.twins.of_plan import twin_problems

NOW_MS = TIME_MS + 60_000
EVERY = os.environ.get("KREPAIR_EVERY_BROKER") == "1"
VERSIONS = jars.LOADER_VERSIONS if EVERY else ("2.2.1", jars.LATEST)
POINTS = "recovery-point-offset-checkpoint"
PADDED = 4096
"""``segment.index.bytes`` of the scene: what a running broker makes the indexes of an active segment."""


def write_unclean(root: Path, points: dict[str, int] | None = None, *, padded: bool = True) -> Path:
    """``t-0`` (segments at 0 to 400, log end 450, a transaction open) and ``o-0``, of a broker that was killed."""
    log_dir = LogDir(root)
    partition = log_dir.partition("t", index_interval_bytes=INTERVAL_BYTES)
    starts = [*SEGMENTS, END]
    for (start, source), end in zip(SEGMENTS.items(), starts[1:], strict=True):
        partition.segment(*batches(start, end, source), mtime_ms=TIME_MS + end)
    log_dir.partition("o").segment(data(0, 3, timestamp=TIME_MS))
    path = log_dir.write(clean_stop=False)
    set_points(path, {"t": 250, "o": 0} if points is None else points)
    (path / "cleaner-offset-checkpoint").write_text(
        "0\n1\nt 0 400\n"
    )  # it has taken batches between segments
    (path / ".lock").touch()  # a killed broker leaves it
    if padded:
        for name in (f"{400:020d}.index", f"{400:020d}.timeindex"):
            file = path / "t-0" / name
            file.write_bytes(file.read_bytes().ljust(PADDED - PADDED % 12, b"\0"))
    return path


def set_points(path: Path, points: dict[str, int]) -> None:
    """The recovery points of partitions 0, by topic."""
    rows = [f"{topic} 0 {point}" for topic, point in points.items()]
    (path / POINTS).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")


def points_of(path: Path) -> dict[str, int]:
    """The recovery points, by topic."""
    return {one.topic: one.offset for one in decode_offsets((path / POINTS).read_bytes()).entries}


class Verbs:
    """The verbs under the options that these tests have in common."""

    def __init__(self, path: Path, **common: object) -> None:
        self.path = path
        self.common = {
            "engine": EngineName.INLINE,
            "now_ms": NOW_MS,
            "fixes": ("recovery",),
            "settings": (("index.interval.bytes", str(INTERVAL_BYTES)),),
        } | common

    def options(self) -> Options:
        """What the command line would hand over."""
        return Options(**self.common)  # type: ignore[arg-type]

    def plan(self) -> Plan:
        """``krepair plan``."""
        return make_plan(str(self.path), self.options())

    def apply(self, plan: Plan) -> ApplyReport:
        """``krepair apply``; nothing may fail."""
        report = apply(plan, self.options())
        assert not [one for one in report.results if one.outcome == "failed"], report.results
        return report

    def wrong(self, plan: Plan) -> list[str]:
        """What ``krepair verify``, and the twins of what a recovery makes, have against it."""
        found = [f"{one.partition} {one.text}" for one in verify_plan(plan, self.options()).problems]
        return found or twin_problems(plan)

    def undo(self, plan: Plan) -> ApplyReport:
        """``krepair undo``; nothing may fail."""
        report = undo(plan, self.options())
        assert not [one for one in report.results if one.outcome == "failed"], report.results
        return report


def planned(root: Path, **common: object) -> tuple[Path, Verbs, Plan]:
    """An unclean directory, its verbs and its plan."""
    path = write_unclean(root)
    verbs = Verbs(path, **common)
    return path, verbs, verbs.plan()


def started(judge: Judge, path: Path, scratch: Path, folder: str = "t-0") -> Started:
    """What an unclean start does to a copy of a partition, with the recovery point that the root names."""
    copy = scratch / "start" / folder
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path / folder, copy, ignore=shutil.ignore_patterns("krepair~*"))
    point = points_of(path).get(folder.rpartition("-")[0], 0)
    return judge.start(copy, clean=False, recovery_point=point, log_start=0, settings=SETTINGS, now_ms=NOW_MS)


def loaded(judge: Judge, path: Path, scratch: Path, folder: str = "t-0", *, clean: bool = False) -> Loaded:
    """What a start knows and serves of a copy of a partition."""
    copy = scratch / "load" / folder
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path / folder, copy, ignore=shutil.ignore_patterns("krepair~*"))
    point = points_of(path).get(folder.rpartition("-")[0], 0)
    return judge.load(
        copy,
        clean=clean,
        recovery_point=point,
        settings=SETTINGS,
        now_ms=NOW_MS,
        list_records=True,
    )
