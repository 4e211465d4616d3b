"""Stores the measured figures, one file per part, and builds the section of ``docs/benchmarks.md`` from them.

    python -m tools.bench --page        rebuild that section from the kept figures

Parts may be measured on different days: each states its commit, machine and load. The figures are compared with goals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tools.bench.table import MEASURES, Table

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
FIRST: Final = "<!-- python -m tools.bench --page writes from here -->"
LAST: Final = "<!-- to here -->"
LEFT_OUT: Final = re.compile(
    r": task |(?:records|stays|commits|lz4|zstd|data): krepair (?:plan|apply|verify) \|"
)
"""Steps of a line: they stay in the kept figures, and the page shows their sum."""


class Kept(NamedTuple):
    """Figures of one run of one part.

    Attributes:
        part: name of the part.
        commit: commit of krepair.
        machine: machine and versions, in one line.
        day: date of the run, such as 2026-11-23.
        load: load of the machine, before and after.
        minutes: duration of the run in minutes.
        words: words of its command, without its part.
        table: measured figures.
    """

    part: str
    commit: str
    machine: str
    day: str
    load: tuple[float, float]
    minutes: float
    words: str
    table: Table

    def keep(self, folder: Path) -> None:
        """Write the figures to a file of their own."""
        folder.mkdir(parents=True, exist_ok=True)
        document = self._asdict() | {"table": self.table.as_document()}
        (folder / f"{self.part}.json").write_text(json.dumps(document, indent=1))

    def report(self) -> str:
        """Format the figures in Markdown."""
        load = " and ".join(f"{each:.1f}" for each in self.load)
        command = f'`make bench ARGS="--only {self.part} {self.words}"`'
        front = f"{command}: {self.minutes:.0f} min, commit {self.commit}, {self.day}, load {load}; {self.machine}."
        rows = "\n".join(line for line in self.table.report().splitlines() if not LEFT_OUT.search(line))
        rows = rows.removesuffix("\n\n| other figures | |\n|---|---:|")
        return f"### Part {self.part}\n\n{front}\n\n{rows}"


def kept_in(folder: Path) -> Iterator[Kept]:
    """Read the kept figures, by name of the part."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text())
        document |= {"table": Table.of_document(document["table"]), "load": tuple(document["load"])}
        yield Kept(**document)


class Goal(NamedTuple):
    """Goal for one figure.

    Attributes:
        what: text for the table.
        part: part that measures the figure.
        wanted: least accepted value; greatest for seconds and memory.
        found: function that extracts the figure; it returns None if that was not measured.
        at_most: True if less is better.
    """

    what: str
    part: str
    wanted: float
    found: Callable[[Table], float | None]
    at_most: bool = False

    def row(self, tables: Mapping[str, Table]) -> str:
        """Format the goal as a row in Markdown."""
        value = self.found(tables[self.part]) if self.part in tables else None
        wanted = f"{'at most ' if self.at_most else ''}{self.wanted:g}"
        if value is None:
            return f"| {self.what} | {wanted} | not measured | |"
        reached = value <= self.wanted if self.at_most else value >= self.wanted
        return f"| {self.what} | {wanted} | {value:.2f} | {'yes' if reached else 'no'} |"


def _times(kind: str, version: str, wanted: float) -> Goal:
    ours, theirs = f"{kind}: krepair plan + apply + verify", f"{kind}: cleaner of {version}"
    return Goal(
        f"{kind}: plan + apply + verify, times as fast as the cleaner of {version}",
        "compact",
        wanted,
        lambda table: table.ratio(ours, theirs, MEASURES[0]),
    )


def _seconds(line: str, wanted: float) -> Goal:
    return Goal(f"{line}, seconds", "many", wanted, lambda table: table.seconds(line), at_most=True)


def _fact(name: str, part: str, wanted: float) -> Goal:
    return Goal(name, part, wanted, lambda table: table.facts.get(name), at_most=True)


GOALS: Final = (
    _times("1 kB records", "2.2.1", 1.5),
    _times("1 kB records", "3.9.2", 1.4),
    _times("1 kB records, half stays", "2.2.1", 1.2),
    _times("1 kB records, half stays", "3.9.2", 1.0),
    _times("150-byte commits", "2.2.1", 2.5),
    _times("150-byte commits", "3.9.2", 2.5),
    _times("1 kB records, lz4", "2.2.1", 2.0),
    _times("1 kB records, lz4", "3.9.2", 1.5),
    _times("1 kB records, zstd", "2.2.1", 3.0),
    _times("1 kB records, zstd", "3.9.2", 1.5),
    _times("half markers, half data", "2.2.1", 2.2),
    _times("half markers, half data", "3.9.2", 3.4),
    _seconds("2,000 partitions: check", 2.8),
    _seconds("2,000 partitions: apply", 7.0),
    Goal(
        "markers: plan, GB a second of wall time",
        "markers",
        4.0,
        lambda table: table.rate("markers: krepair plan", MEASURES[1], 1e3),
    ),
    _fact("plan of an empty directory: no kernel, least CPU time (s)", "start", 0.23),
    _fact("peak memory above the loaded worker, scan of a 1 GiB segment of markers (MiB)", "memory", 4),
    _fact("the same, plan and apply (MiB)", "memory", 4),
    *(
        _fact(f"calls a partition: {call}", "many", most)
        for call, most in (
            ("check: open", 15),
            ("check: stat", 18),
            ("apply: open", 90),
            ("apply: stat", 140),
            ("verify: open", 32),
            ("verify: stat", 51),
            ("undo: open", 70),
            ("undo: stat", 140),
        )
    ),
)
"""Goals by CPU time, unless they say otherwise."""


def section(kept: list[Kept]) -> str:
    """Build the section in Markdown: goals, then every part."""
    tables = {part.part: part.table for part in kept}
    goals = [
        "| goal, by CPU time | target | result | reached |",
        "|---|---:|---:|---|",
        *(goal.row(tables) for goal in GOALS),
    ]
    commits = sorted({part.commit for part in kept})
    blocks = [f"### Goals\n\nCommits: {', '.join(commits) or 'none'}.", "\n".join(goals)]
    return "\n\n".join([*blocks, *(part.report() for part in kept)])


def write(kept: list[Kept]) -> None:
    """Write the section into the page, between its two marks."""
    before, _, rest = PAGE.read_text().partition(FIRST)
    _, _, after = rest.partition(LAST)
    PAGE.write_text(f"{before}{FIRST}\n\n{section(kept)}\n\n{LAST}{after}")
