"""Tables of measurements: the cost of one run, a line for several runs, and a table of all lines of a part.

A line says how much is done per second: of CPU time; of wall time with everything in the page cache; of wall time with
no byte of the logs in it. It also says how often the logs were read, which no other work on the machine can change.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.spent import Spent

MEASURES: Final = ("CPU time", "wall time", "wall time, cold cache")


@dataclass
class Line:
    """One thing, measured several times.

    Attributes:
        name: description of what is measured.
        log_bytes: size in bytes of one run's source logs.
        partitions: number of partitions in one run, if these are counted; 0 if MB are.
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
        """Amount of one run: MB of source logs, or partitions."""
        return self.partitions or self.log_bytes / 1e6

    @property
    def cpu(self) -> float | None:
        """Least CPU time of one run in seconds: other work on the machine can only add to it."""
        return min((run.cpu for run in self.warm or self.cold if run.cpu is not None), default=None)

    @property
    def readings(self) -> float | None:
        """Number of times that the logs were read."""
        read = [run.read for run in self.warm or self.cold if run.read is not None]
        return median(read) / self.log_bytes if read else None

    def seconds(self, measure: str) -> float | None:
        """Return the seconds of one run by one of ``MEASURES``: the least CPU time, or the median wall time."""
        if measure == MEASURES[0]:
            return self.cpu
        runs = self.warm if measure == MEASURES[1] else self.cold
        return median(run.wall for run in runs) if runs else None

    def row(self) -> str:
        """Format the line in Markdown, below ``HEAD``."""
        rates = (self.seconds(measure) for measure in MEASURES)
        cells = [
            _shown(self.cpu, "{:.3f}"),
            *(_shown(self.amount / rate if rate else None, "{:,.0f}") for rate in rates),
            _shown(None if self.partitions else self.readings, "{:.1f}"),
        ]
        unit = "partitions" if self.partitions else "MB"
        return f"| {self.name} | {unit} | {' | '.join(cells)} |"


HEAD: Final = (
    "| | unit | CPU seconds | per CPU second | per second | per second, cold cache | readings of the logs |\n"
    "|---|---|---:|---:|---:|---:|---:|"
)
RATIO_HEAD: Final = (
    "| times as fast as the other program | " + " | ".join(MEASURES) + " |\n|---|---:|---:|---:|"
)


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


class Table:
    """Measurements of one part of the benchmark.

    Attributes:
        lines: measurements by name.
        pairs: names of a line of krepair and of one of its peers, in order.
        facts: other figures by name, such as memory.
    """

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}
        self.pairs: list[tuple[str, str]] = []
        self.facts: dict[str, float] = {}

    def note(
        self, name: str, log_bytes: int, spent: Spent, *, cold: bool = False, partitions: int = 0
    ) -> None:
        """Add one run to a line; a difference that is lost in noise is only reported."""
        if min(spent.wall, 1.0 if spent.cpu is None else spent.cpu) <= 0:
            print(
                f"  {name}: took no longer than what is subtracted; not counted", file=sys.stderr, flush=True
            )
            return
        line = self.lines.setdefault(name, Line(name, log_bytes, partitions))
        (line.cold if cold else line.warm).append(spent)
        how = " (cold cache)" if cold else ""
        cpu = "" if spent.cpu is None else f", {spent.cpu:.3f} s of CPU time"
        print(f"  {name}{how}: {spent.wall:.3f} s{cpu}", file=sys.stderr, flush=True)

    def fact(self, name: str, value: float) -> None:
        """Add a figure that is not a line."""
        self.facts[name] = value
        print(f"  {name}: {value:,.2f}", file=sys.stderr, flush=True)

    def against(self, ours: str, theirs: str) -> None:
        """Declare that two lines do the same work."""
        self.pairs.append((ours, theirs))

    def ratio(self, ours: str, theirs: str, measure: str) -> float | None:
        """Return how many times as fast as its peer a line is; None if one of them was not measured so."""
        pair = [self.lines[name] for name in (ours, theirs) if name in self.lines]
        seconds = [line.seconds(measure) for line in pair]
        if len(pair) < len((ours, theirs)) or None in seconds:
            return None
        mine, peer = ((line.seconds(measure) or 0.0) / line.amount for line in pair)
        return peer / mine if mine else None

    def seconds(self, name: str, measure: str = MEASURES[0]) -> float | None:
        """Return the seconds of a line; None if it was not measured."""
        line = self.lines.get(name)
        return line.seconds(measure) if line else None

    def rate(self, name: str, measure: str, divisor: float = 1.0) -> float | None:
        """Return the amount per second of a line, over a divisor; None if it was not measured."""
        seconds = self.seconds(name, measure)
        return self.lines[name].amount / seconds / divisor if seconds else None

    def as_document(self) -> dict[str, Any]:
        """Convert to JSON's types."""
        lines = [asdict(line) for line in self.lines.values()]
        return {"lines": lines, "pairs": self.pairs, "facts": self.facts}

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> Table:
        """Convert from JSON's types."""
        table = cls()
        for each in document["lines"]:
            runs = {how: [Spent(*run) for run in each[how]] for how in ("warm", "cold")}
            table.lines[each["name"]] = Line(each["name"], each["log_bytes"], each["partitions"], **runs)
        table.pairs = [(ours, theirs) for ours, theirs in document["pairs"]]
        table.facts = document["facts"]
        return table

    def report(self) -> str:
        """Format everything in Markdown."""
        blocks = []
        if self.lines:
            blocks.append("\n".join([HEAD, *(line.row() for line in self.lines.values())]))
        if self.pairs:
            blocks.append("\n".join([RATIO_HEAD, *map(self._ratios, self.pairs)]))
        if self.facts:
            rows = [f"| {name} | {value:,.2f} |" for name, value in self.facts.items()]
            blocks.append("\n".join(["| other figures | |", "|---|---:|", *rows]))
        return "\n\n".join(blocks)

    def _ratios(self, pair: tuple[str, str]) -> str:
        cells = (_shown(self.ratio(*pair, measure), "{:.2f}") for measure in MEASURES)
        return f"| {pair[0]} / {pair[1]} | {' | '.join(cells)} |"


def log_bytes_of(root: Path) -> int:
    """Sum the sizes of all ``.log`` files in and below a folder."""
    return sum(path.stat().st_size for path in root.rglob("*.log"))
