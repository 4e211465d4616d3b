"""Part ``cluster``: one reading on one, two and three Spark workers with one core, each on its own host."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from krepair.engine.engine import InlineEngine
from krepair.engine.items import ScanItem
from krepair.engine.spark import SparkEngine
from krepair.scan.scan import scan
from tests.engine.cluster import Cluster, why_no_hosts
from tools.bench.data import make
from tools.bench.setting import Setting
from tools.bench.spent import Spent
from tools.bench.table import Table
from tools.bench.worker import scan_items

WORKERS: Final = (1, 2, 3)
KINDS: Final = ("markers", "records")
_SEGMENT_BYTES: Final = 50_000_000


class Measured(NamedTuple):
    """One reading of the logs.

    Attributes:
        kind: kind of the logs, see ``tools.bench.data.make``.
        workers: number of workers; 0: inline.
        bytes: size of the logs.
        seconds: duration of the reading, with everything loaded.
        start_s: seconds until the session and its workers had finished their first items.
        most: bytes read by the busiest worker, divided by the mean of all workers.
    """

    kind: str
    workers: int
    bytes: int
    seconds: float
    start_s: float = 0.0
    most: float = 1.0


class _Counting(SparkEngine):
    """Spark engine that notes which worker did which items."""

    def __init__(self, master: str) -> None:
        super().__init__(master, "bench")
        self.done: dict[int, str] = {}

    def _wave(self, table: Any) -> Any:
        rows = super()._wave(table)
        self.done.update({row.place: row.worker for row in rows if row.result is not None})
        return rows


def cluster(table: Table, setting: Setting) -> None:
    """Measure reading on one, two and three Spark workers of one core by wall time, all that a host sees."""
    with setting.room() as room:
        for row in measured(room, setting.scaled(setting.cluster)):
            where = f"{row.workers} workers" if row.workers else "inline"
            name = f"cluster, {row.kind}: {where}"
            table.note(name, row.bytes, Spent(row.seconds))
            if row.workers:
                table.fact(f"{name}, most read / mean", row.most)
                table.fact(f"{name}, until its first items are done (s)", row.start_s)


def measured(folder: Path, total_bytes: int) -> Iterator[Measured]:
    """Read logs of ``total_bytes`` in all, half of each kind, on each number of workers."""
    items = {}
    for kind in KINDS:
        made = make(folder / f"cluster-{kind}", kind, total_bytes // len(KINDS), segment_bytes=_SEGMENT_BYTES)
        items[kind] = scan_items(made.folder)
    for kind in KINDS:
        list(InlineEngine("bench").map(scan, items[kind]))  # compiles the kernels, and fills the page cache
        began = time.perf_counter()
        list(InlineEngine("bench").map(scan, items[kind]))
        yield Measured(kind, 0, _bytes(items[kind]), time.perf_counter() - began)
    for workers in WORKERS:
        work_dir = folder / f"cluster-of-{workers}"
        work_dir.mkdir()
        hosts = None if why_no_hosts() else {f"host-{number}": "" for number in range(workers)}
        with Cluster(work_dir, workers=workers, hosts=hosts) as cluster:
            yield from _on(cluster, workers, items)


def _on(cluster: Cluster, workers: int, items: dict[str, list[ScanItem]]) -> Iterator[Measured]:
    began = time.perf_counter()
    engine = _Counting(cluster.url)
    try:
        while (
            len(set(engine.done.values())) < workers
        ):  # until every worker has loaded its modules and kernels
            for kind in KINDS:
                list(engine.map(scan, items[kind][: 2 * workers]))
        start = time.perf_counter() - began
        for kind in KINDS:
            engine.done.clear()
            began = time.perf_counter()
            list(engine.map(scan, items[kind]))
            seconds = time.perf_counter() - began
            by_worker: Counter[str] = Counter()
            for place, worker in engine.done.items():
                by_worker[worker] += items[kind][place].size
            size = _bytes(items[kind])
            most = max(by_worker.values()) * workers / size
            yield Measured(kind, workers, size, seconds, start, most)
    finally:
        engine.close()


def _bytes(items: list[ScanItem]) -> int:
    return sum(item.size for item in items)
