"""One process of the benchmark: does one part of krepair's work, and reports its duration and memory.

``tools.bench`` starts it. It prints ``ready`` once everything is loaded and compiled, and begins when it reads a line.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c

from krepair.engine.items import Failed, ScanItem
from krepair.formats import txn_index
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from krepair.rewrite.indexes.transactions import replayed
from krepair.scan.scan import scan
from krepair.scan.segment_files import rebuild_offset_and_time
from tests.places import place_of
from tools.bench.data import NOW_MS
from tools.bench.setting import FAR_MS
from tools.bench.spent import spent_by, timed_tasks

WINDOW_BYTES = 1 << 20
INTERVAL_BYTES = 4096
OPTIONS = Options(now_ms=NOW_MS, delete_horizon=str(FAR_MS), engine=EngineName.INLINE, only_replica=("*",))


def scan_items(folder: Path) -> list[ScanItem]:
    """Build one item for each segment of a partition folder except the active one."""
    place = place_of(folder)
    return [
        ScanItem(
            place=place,
            base_offset=int(path.stem),
            size=path.stat().st_size,
            now_ms=NOW_MS,
            high_watermark=2**63 - 1,
        )
        for path in sorted(folder.glob("*.log"))[:-1]
    ]


def checksum(path: Path) -> int:
    """Compute the CRC-32C of a file, the plainest reading there is."""
    crc = 0
    with path.open("rb", buffering=0) as file:
        while data := file.read(WINDOW_BYTES):
            crc = crc32c.crc32c(data, crc)
    return crc


def times_by_task(log_dir: str) -> dict[str, float]:
    """Plan and apply in this process; return the seconds per kind of task."""
    with timed_tasks(time.perf_counter) as seconds:
        apply(planned(log_dir), OPTIONS)
    return seconds


def planned(log_dir: str) -> Plan:
    """Plan in this process."""
    return make_plan(log_dir, OPTIONS)


def verbs(log_dir: str) -> None:
    """Plan, apply and verify in this process, as the three commands do one after another."""
    plan = planned(log_dir)
    apply(plan, OPTIONS)
    verify_plan(plan, OPTIONS)


def checked(log_dir: str, *, deep: bool) -> None:
    """Check in this process."""
    check([log_dir], Options(now_ms=NOW_MS, engine=EngineName.INLINE, deep=deep))


def regenerate(folder: Path) -> int:
    """Rebuild every index of a partition, as ``--fix index=regenerate`` does; return their bytes."""
    made = 0
    segments = []
    for path in sorted(folder.glob("*.log")):
        indexes = rebuild_offset_and_time(str(path), path.stat().st_size, int(path.stem), INTERVAL_BYTES)
        made += len(indexes.index) + len(indexes.time_index)
        segments.append((int(path.stem), indexes.valid_bytes))
    return made + sum(len(txn_index.encode(each.entries)) for each in replayed(str(folder), segments))


def peak_kb() -> int:
    """Return the highest resident memory of this process so far in kB, including mapped files."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def warm_up(folder: Path) -> None:
    """Plan and apply on a copy of a small log directory, so that every kernel is loaded."""
    with tempfile.TemporaryDirectory(dir=folder.parent.parent) as room:
        copy = shutil.copytree(folder.parent, Path(room) / "warm")
        times_by_task(str(copy))
        again = shutil.copytree(folder.parent, Path(room) / "again")
        verbs(str(again))


def part_of(words: list[str]) -> Callable[[], Any]:
    """Return the work that the command line names."""
    verb, folder = words[0], Path(words[1])
    if verb == "tasks":
        return lambda: times_by_task(str(folder))
    if verb == "plan":
        return lambda: planned(str(folder)).partitions[0].why
    if verb == "verbs":
        return lambda: verbs(str(folder))
    if verb in {"check", "check-deep"}:
        return lambda: checked(str(folder), deep=verb == "check-deep")
    if verb == "regenerate":
        return lambda: regenerate(folder)
    numbers = [int(word) for word in words[2:]]
    if verb == "scan":
        items = [item for place, item in enumerate(scan_items(folder)) if place in numbers]
        return lambda: [isinstance(scan(item), Failed) for item in items]
    paths = [path for place, path in enumerate(sorted(folder.glob("*.log"))[:-1]) if place in numbers]
    return lambda: [checksum(path) for path in paths]


def main() -> None:
    """Load, report that, wait, work, and report the result."""
    warm, words = Path(sys.argv[1]), sys.argv[2:]
    for item in scan_items(warm):
        scan(item)
    regenerate(warm)
    warm_up(warm)
    work = part_of(words)
    before_kb = peak_kb()
    print("ready", flush=True)
    sys.stdin.readline()
    results: list[Any] = []
    spent = spent_by(lambda: results.append(work()))
    answer = {"spent": spent, "result": results[0], "more_kb": peak_kb() - before_kb}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
