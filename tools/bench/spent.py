"""What something costs: wall time, CPU time, and bytes read; of this process, of its children, or of a peer's JVM."""

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
    """What one run cost.

    Attributes:
        wall: seconds.
        cpu: seconds of all its threads and ended children; None: not measured.
        read: bytes that it has read, from the page cache or the disk; None: not measured.
    """

    wall: float
    cpu: float | None = None
    read: float | None = None

    def less(self, other: Spent) -> Spent:
        """This run without what another one cost."""
        cpu = None if self.cpu is None or other.cpu is None else self.cpu - other.cpu
        read = None if self.read is None or other.read is None else max(self.read - other.read, 0)
        return Spent(self.wall - other.wall, cpu, read)

    def more(self, other: Spent) -> Spent:
        """This run and another one after it."""
        cpu = None if self.cpu is None or other.cpu is None else self.cpu + other.cpu
        read = None if self.read is None or other.read is None else self.read + other.read
        return Spent(self.wall + other.wall, cpu, read)

    def one_of(self, times: int) -> Spent:
        """One of so many equal pieces of work that were done in this run."""
        cpu, read = (None if value is None else value / times for value in (self.cpu, self.read))
        return Spent(self.wall / times, cpu, read)


def spent_by(work: Callable[[], object], judge: Judge | None = None) -> Spent:
    """Do something, in this process and its children; or in the JVM of a judge."""
    process = judge.process_id if judge else None
    cpu_seconds = judge.cpu_seconds if judge else _own_cpu
    read, cpu, begun = bytes_read(process), cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - begun
    return Spent(wall, cpu_seconds() - cpu, bytes_read(process) - read)


def spent_by_cleaner(judge: Judge, clean: Callable[[], Cleaned]) -> Spent:
    """One pass of a cleaner: seconds by its own clock, CPU time of its thread, which leaves out the JVM's collector."""
    before = bytes_read(judge.process_id)
    found = clean()
    return Spent(found.seconds, found.cpu_seconds, bytes_read(judge.process_id) - before)


@contextmanager
def timed_tasks(clock: Callable[[], float]) -> Iterator[dict[str, float]]:
    """Name of each task that is mapped inline while this lasts -> seconds in it, by a clock."""
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
    return sum(one.ru_utime + one.ru_stime for one in used)


def bytes_read(process: int | None = None) -> int:
    """Bytes that a process has read so far, from the page cache or the disk; children that have ended are counted too.

    Args:
        process: its id; None: this one.
    """
    return int(Path(f"/proc/{process or 'self'}/io").read_text().split()[1])


def make_cold(root: Path) -> None:
    """Write all to the disk, and have the kernel forget the pages of a directory's files, but not the names in it."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
