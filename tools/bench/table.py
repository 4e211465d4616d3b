"""The one shape of what is measured: what a run cost, a line of several runs, and the table of all lines of a part.

A line says how much is done in a second: of CPU time; of wall time, with everything in the page cache; of wall time
with no byte of the logs in it. And how often the logs were read, which no other work on the machine can change.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from tests.lab.judge import Judge
from tools.bench.cost import bytes_read

MEASURES: Final = ("CPU time", "wall time", "wall time, cold cache")
_LEAST_S: Final = 1e-6


class Spent(NamedTuple):
    """What one run cost.

    Attributes:
        wall: seconds.
        cpu: seconds of all its threads and ended children; None: not measured.
        read: bytes that it has read, from the page cache or the disk; None: not measured.
    """

    wall: float
    cpu: float | None = None
    read: int | None = None

    def less(self, other: Spent) -> Spent:
        """This run without what another one cost."""
        cpu = None if self.cpu is None or other.cpu is None else max(self.cpu - other.cpu, _LEAST_S)
        read = None if self.read is None or other.read is None else max(self.read - other.read, 0)
        return Spent(max(self.wall - other.wall, _LEAST_S), cpu, read)

    def more(self, other: Spent) -> Spent:
        """This run and another one after it."""
        cpu = None if self.cpu is None or other.cpu is None else self.cpu + other.cpu
        read = None if self.read is None or other.read is None else self.read + other.read
        return Spent(self.wall + other.wall, cpu, read)


def _own_cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def spent_by(work: Callable[[], object], judge: Judge | None = None) -> Spent:
    """Do something, in this process and its children; or in the JVM of a judge."""
    process = judge.process_id if judge else None
    cpu_seconds = judge.cpu_seconds if judge else _own_cpu
    read, cpu, begun = bytes_read(process), cpu_seconds(), time.perf_counter()
    work()
    wall = time.perf_counter() - begun
    return Spent(wall, cpu_seconds() - cpu, bytes_read(process) - read)


@dataclass
class Line:
    """One thing, measured several times.

    Attributes:
        name: what it is.
        log_bytes: of the source logs of one run.
        partitions: of one run, if these are what is counted; 0: MB are.
        warm: runs with everything in the page cache.
        cold: runs with no byte of the logs in it.
    """

    name: str
    log_bytes: int
    partitions: int = 0
    warm: list[Spent] = field(default_factory=list)
    cold: list[Spent] = field(default_factory=list)

    @property
    def amount(self) -> float:
        """Of one run: MB of source logs, or partitions."""
        return self.partitions or self.log_bytes / 1e6

    @property
    def cpu(self) -> float | None:
        """The least CPU time of one run in seconds: other work on the machine can only add to it."""
        return min((one.cpu for one in self.warm or self.cold if one.cpu is not None), default=None)

    @property
    def readings(self) -> float | None:
        """How often the logs were read."""
        read = [one.read for one in self.warm or self.cold if one.read is not None]
        return median(read) / self.log_bytes if read else None

    def seconds(self, measure: str) -> float | None:
        """Of one run, by one of ``MEASURES``: the least CPU time, or the median of wall times."""
        if measure == MEASURES[0]:
            return self.cpu
        runs = self.warm if measure == MEASURES[1] else self.cold
        return median(one.wall for one in runs) if runs else None

    def row(self) -> str:
        """In Markdown, below ``HEAD``."""
        rates = (self.seconds(measure) for measure in MEASURES)
        cells = [
            _shown(self.cpu, "{:.3f}"),
            *(_shown(self.amount / rate if rate else None, "{:,.0f}") for rate in rates),
            _shown(None if self.partitions else self.readings, "{:.1f}"),
        ]
        unit = "partitions" if self.partitions else "MB"
        return f"| {self.name} | {unit} | {' | '.join(cells)} |"


HEAD: Final = (
    "| | | CPU seconds | a CPU second | a second | a second, cold cache | readings of the logs |\n"
    "|---|---|---:|---:|---:|---:|---:|"
)
RATIO_HEAD: Final = "| faster than the peer, times | " + " | ".join(MEASURES) + " |\n|---|---:|---:|---:|"


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


class Table:
    """What one part of the benchmark has found.

    Attributes:
        lines: name -> what was measured.
        pairs: names of a line of krepair and of one of its peers, in order.
        facts: what is no line, as memory: name -> figure.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.pairs: list[tuple[str, str]] = []
        self.facts: dict[str, float] = {}

    def note(
        self, name: str, log_bytes: int, spent: Spent, *, cold: bool = False, partitions: int = 0
    ) -> None:
        """One more run of a line."""
        line = self.lines.setdefault(name, Line(name, log_bytes, partitions))
        (line.cold if cold else line.warm).append(spent)
        how = " (cold cache)" if cold else ""
        cpu = "" if spent.cpu is None else f", {spent.cpu:.3f} s of CPU time"
        print(f"  {name}{how}: {spent.wall:.3f} s{cpu}", file=sys.stderr, flush=True)

    def fact(self, name: str, value: float) -> None:
        """A figure that is no line."""
        self.facts[name] = value
        print(f"  {name}: {value:,.2f}", file=sys.stderr, flush=True)

    def against(self, ours: str, theirs: str) -> None:
        """These two do the same work."""
        self.pairs.append((ours, theirs))

    def ratio(self, ours: str, theirs: str, measure: str) -> float | None:
        """How many times as fast as its peer a line is; None where one of them was not measured so."""
        pair = [self.lines[name] for name in (ours, theirs) if name in self.lines]
        seconds = [line.seconds(measure) for line in pair]
        if len(pair) < len((ours, theirs)) or None in seconds:
            return None
        mine, peer = ((line.seconds(measure) or _LEAST_S) / line.amount for line in pair)
        return peer / mine

    def report(self) -> str:
        """All of it, in Markdown."""
        blocks = []
        if self.lines:
            blocks.append("\n".join([HEAD, *(line.row() for line in self.lines.values())]))
        if self.pairs:
            blocks.append("\n".join([RATIO_HEAD, *map(self._ratios, self.pairs)]))
        if self.facts:
            rows = [f"| {name} | {value:,.2f} |" for name, value in self.facts.items()]
            blocks.append("\n".join(["| | |", "|---|---:|", *rows]))
        return "\n\n".join(blocks)

    def _ratios(self, pair: tuple[str, str]) -> str:
        cells = (_shown(self.ratio(*pair, measure), "{:.2f}") for measure in MEASURES)
        return f"| {pair[0]} / {pair[1]} | {' | '.join(cells)} |"


def log_bytes_of(root: Path) -> int:
    """Bytes of all ``.log`` files in and below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*.log"))
