"""Parts ``markers`` and ``half``: reclaiming, against Kafka's own cleaner; ``two`` and ``memory``: its scan."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from tests.lab import jars, jvm
from tests.lab.judge import Judge
from tools.bench import loaded
from tools.bench.data import Made, close
from tools.bench.processes import plan_markers
from tools.bench.setting import BROKER_JVM, FAR_MS, Setting
from tools.bench.spent import Spent, make_cold, spent_by, spent_by_cleaner
from tools.bench.table import Table

VERSIONS: Final = ("2.2.1", "3.9.2")
SETTINGS: Final[Mapping[str, object]] = {
    "cleanup.policy": "compact",
    "segment.bytes": 100_000_000,
    "delete.retention.ms": 86_400_000,
}
TIMES: Final = 15
"""Number of times that one partition is planned in one process, so that the work is many times the start."""

_MOST_PASSES: Final = 6
_WARMING_BYTES: Final = 60_000_000
_LARGE: Final = 1 << 30


def markers(table: Table, setting: Setting) -> None:
    """Measure a log of markers without data."""
    _reclaiming(table, setting, "markers", setting.log("markers", setting.markers))


def half(table: Table, setting: Setting) -> None:
    """Measure a log of half markers and half data, and the copying part alone."""
    made = setting.log("half", setting.half)
    _reclaiming(table, setting, "half", made)
    _copying(table, setting, made)


def _reclaiming(table: Table, setting: Setting, kind: str, made: Made) -> None:
    _planning(table, setting, kind, made)
    ours = f"{kind}: krepair plan + apply + verify"
    for cold in (False, True):
        for _ in range(setting.runs if cold else setting.often):
            copy = setting.copy_of(made)
            answer = loaded.work(setting, "verbs", copy, cold=copy if cold else None)
            table.note(ours, made.log_bytes, answer.spent, cold=cold)
    for version in VERSIONS:
        _cleaner(table, setting, version, kind, made)
        table.against(ours, f"{kind}: cleaner of {version}, first pass")
        table.against(ours, f"{kind}: cleaner of {version}, until nothing changes")


def _planning(table: Table, setting: Setting, kind: str, made: Made) -> None:
    """Measure whole processes of ``plan`` less the same on ten batches; with a cold cache a loaded worker instead."""
    name, tiny = f"{kind}: krepair plan", setting.tiny(kind).root
    with setting.room() as room:
        several = linked(made, room / "linked", TIMES)
        plan_markers(tiny)
        for _ in range(setting.runs):
            # in turns, so that whatever slows the machine for a while slows both
            start, whole = plan_markers(tiny), plan_markers(several)
            table.note(name, made.log_bytes, whole.less(start).one_of(TIMES))
    for _ in range(setting.runs):
        answer = loaded.work(setting, "plan", made.root, cold=made.root)
        table.note(name, made.log_bytes, answer.spent, cold=True)


def linked(made: Made, root: Path, times: int) -> Path:
    """Create a read-only log directory that holds the same partition several times, by hard links."""
    for number in range(times):
        folder = root / f"__consumer_offsets-{number}"
        folder.mkdir(parents=True)
        for path in made.folder.iterdir():
            os.link(path, folder / path.name)
    close(root, "__consumer_offsets", [made.batches] * times)
    return root


def _cleaner(table: Table, setting: Setting, version: str, kind: str, made: Made) -> None:
    """Measure Kafka's own cleaner: a warmed first pass, and all passes until nothing changes."""
    jars.fetch(version)
    warming = setting.log("half", _WARMING_BYTES, segment_bytes=20_000_000)
    with mock.patch.object(jvm, "QUICK", BROKER_JVM), Judge(version, heap="1g", timeout_s=900) as judge:
        for _ in range(2):
            _passes(setting, judge, warming, most=2)
        for _ in range(setting.runs):
            passes = _passes(setting, judge, made, most=_MOST_PASSES)
            table.note(f"{kind}: cleaner of {version}, first pass", made.log_bytes, passes[0])
            together = passes[0]
            for next_pass in passes[1:]:
                together = together.more(next_pass)
            table.note(f"{kind}: cleaner of {version}, until nothing changes", made.log_bytes, together)
        for _ in range(setting.runs):
            [first] = _passes(setting, judge, made, most=1, cold=True)
            table.note(f"{kind}: cleaner of {version}, first pass", made.log_bytes, first, cold=True)


def _passes(setting: Setting, judge: Judge, made: Made, *, most: int, cold: bool = False) -> list[Spent]:
    """Measure each pass until the size of the logs stays the same."""
    root = setting.copy_of(made)
    folder = root / made.folder.name
    if cold:
        make_cold(root)
    new = judge.version.startswith(("3.9", "4"))
    spent: list[Spent] = []
    before = -1
    while len(spent) < most:
        horizon = FAR_MS + len(spent) * 10**9 if new else FAR_MS
        spent.append(
            spent_by_cleaner(judge, partial(judge.clean, folder, horizon=horizon, settings=SETTINGS))
        )
        after = sum(path.stat().st_size for path in folder.glob("*.log"))
        if after == before:
            break
        before = after
    return spent


def _copying(table: Table, setting: Setting, made: Made) -> None:
    """Measure the copying part alone, against a plain copy with fsync of as many bytes."""
    ours, plain = "half: copying part of apply", "half: plain copy with fsync of the kept bytes"
    for _ in range(setting.runs):
        copy = setting.copy_of(made)
        stage = loaded.work(setting, "tasks", copy).result["stage"]
        table.note(ours, made.log_bytes, Spent(stage))
        kept = sum(path.stat().st_size for path in copy.glob("*/*.log"))
        data = min(made.folder.glob("*.log")).read_bytes()
        spent = spent_by(partial(_written, setting.folder / "plain", data, kept))
        table.note(plain, made.log_bytes, Spent(spent.wall))
    table.against(ours, plain)


def _written(target: Path, data: bytes, kept: int) -> None:
    with target.open("wb", buffering=0) as file:
        to_write = kept
        while to_write > 0:
            to_write -= file.write(data[: min(to_write, 1 << 20)])
        os.fsync(file.fileno())


def two(table: Table, setting: Setting) -> None:
    """Measure a scan of one partition's segments in one process and in two; likewise crc32c over the same files."""
    made = setting.log("markers", setting.markers)
    count = len(list(made.folder.glob("*.log"))) - 1
    count -= count % 2
    for _ in range(setting.often):
        for verb in ("crc32c", "scan"):
            [run] = loaded.go(loaded.started(setting, verb, made.folder, *range(count)))
            halves = [loaded.started(setting, verb, made.folder, *range(first, count, 2)) for first in (0, 1)]
            both = [answer.spent for answer in loaded.go(*halves)]
            table.note(f"one process: {verb}", made.log_bytes, run.spent)
            later = max(both, key=lambda spent: spent.wall)
            table.note(
                f"two processes: {verb}", made.log_bytes, both[0].more(both[1])._replace(wall=later.wall)
            )
    for verb in ("crc32c", "scan"):
        table.against(f"two processes: {verb}", f"one process: {verb}")


def memory(table: Table, setting: Setting) -> None:
    """Measure the peak memory of a worker over one large segment of markers: scanned, staged and verified."""
    made = setting.log("markers", _LARGE, segment_bytes=_LARGE)
    scan = loaded.work(setting, "scan", made.folder, 0)
    both = loaded.work(setting, "tasks", setting.copy_of(made))
    table.fact(
        "peak memory above the loaded worker, scan of a 1 GiB segment of markers (MiB)", scan.more_kb / 1024
    )
    table.fact("the same, plan and apply (MiB)", both.more_kb / 1024)
    shutil.rmtree(made.root)
