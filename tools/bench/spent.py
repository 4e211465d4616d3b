"""Measures the cost of work: wall time, CPU time and bytes read, of this process, its children, or a JVM."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from krepair.engine.engine import InlineEngine
from tests.lab.judge import Cleaned, Judge


class Spent(NamedTuple):
    """Cost of one run.

    Attributes:
        wall: wall time in seconds.
        cpu: CPU seconds of all its threads and ended children; None if not measured.
        read: bytes read from the page cache or the disk; None if not measured.
    """

    wall: float
    cpu: float | None = None
    read: float | None = None

    def less(self, other: Spent) -> Spent:
        """Subtract the cost of another run."""
        cpu = None if self.cpu is None or other.cpu is None else self.cpu - other.cpu
        read = None if self.read is None or other.read is None else max(self.read - other.read, 0)
        return Spent(self.wall - other.wall, cpu, read)

    def more(self, other: Spent) -> Spent:
        """Add the cost of another run after it."""
        cpu = None if self.cpu is None or other.cpu is None else self.cpu + other.cpu
        read = None if self.read is None or other.read is None else self.read + other.read
        return Spent(self.wall + other.wall, cpu, read)

    def one_of(self, times: int) -> Spent:
        """Divide the cost among ``times`` equal pieces of work that this run did."""
        cpu, read = (None if value is None else value / times for value in (self.cpu, self.read))
        return Spent(self.wall / times, cpu, read)


def spent_by(work: Callable[[], object], judge: Judge | None = None) -> Spent:
    """Measure work in this process and its children, or in the JVM of a judge."""
    process = judge.process_id if judge else None
    cpu_seconds = judge.cpu_seconds if judge else _own_cpu
    read, cpu, begun = bytes_read(process), cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - begun
    return Spent(wall, cpu_seconds() - cpu, bytes_read(process) - read)


def spent_by_cleaner(judge: Judge, clean: Callable[[], Cleaned]) -> Spent:
    """Measure one cleaner pass: seconds by its own clock, CPU time of its thread without the JVM's collector."""
    before = bytes_read(judge.process_id)
    cleaned = clean()
    return Spent(cleaned.seconds, cleaned.cpu_seconds, bytes_read(judge.process_id) - before)


@contextmanager
def timed_tasks(clock: Callable[[], float]) -> Iterator[dict[str, float]]:
    """Collect the seconds in each task that is mapped inline while the body runs, by its name."""
    seconds: dict[str, float] = {}
    map_inline = InlineEngine.map

    def mapped(self: InlineEngine, function: Any, items: Any) -> Any:
        results = map_inline(self, function, items)
        while True:
            begun = clock()
            result = next(results, None)
            seconds[function.__name__] = seconds.get(function.__name__, 0.0) + clock() - begun
            if result is None:
                return
            yield result

    with mock.patch.object(InlineEngine, "map", mapped):
        yield seconds


def _own_cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def bytes_read(process: int | None = None) -> int:
    """Count the bytes that a process and its ended children have read so far, from the page cache or the disk.

    Args:
        process: id of the process; None for this one.
    """
    return int(Path(f"/proc/{process or 'self'}/io").read_text().split()[1])


def make_cold(root: Path) -> None:
    """Flush everything, and drop the pages of a directory's files from the cache, but not their names."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
