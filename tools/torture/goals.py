"""Goals of each part on one build before a release, and the progress towards them.

    python -m tools.torture --goals              run until each goal is reached; the same command goes on
    python -m tools.torture --goals --report     what is done, wanted, and wrong; nothing is run

Each part takes so few cases of each of its units that the goal is spread over all of them, and goes on with other
seeds until it is reached. All of it is of one commit: what was begun on another one is not gone on with, and a report
of several commits says so and ends with 1. Parts for which the file system matters want a tenth of it on ext4
and on XFS, too: run the same command there with ``--on DIR``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from tools.torture.state import CHANGED, State, kept_in


class Goal(NamedTuple):
    """Goal of one part.

    Attributes:
        what: one line for the table.
        figures: names of its figures that are added up.
        wanted: amount that is wanted.
        samples: cases of each unit, so that one or two seeds make it.
    """

    what: str
    figures: tuple[str, ...]
    wanted: int
    samples: float


GOALS: Final[Mapping[str, Goal]] = {
    "kills": Goal("processes killed", ("kills", "installed kills"), 10_000, 8),
    "failing_calls": Goal("calls that failed", ("failing calls",), 50_000, 14),
    "two_plans": Goal("sequences of two plans at once", ("sequences",), 2_000, 40),
    "power_loss": Goal("states after a power cut", ("states",), 100_000, 80),
    "between": Goal("steps with a real broker in between", ("steps",), 5_000, 24),
    "visits": Goal("killed trees to which somebody came", ("cases",), 3_000, 280),
    "replicas": Goal("histories of replicas", ("histories",), 500, 170),
    "truths": Goal("damaged partitions with a known truth, mended and judged", ("cases",), 3_000, 3_000),
    "kafka_tests": Goal(
        "comparisons with what Kafka does with folders of its own tests",
        ("forecasts", "recoveries", "leftovers", "cleanings", "healthy folders"),
        2_400,
        1,
    ),
    "mutants": Goal("mutants", ("mutants",), 300, 60),
    "fuzz": Goal("seconds of guided fuzzing", ("seconds",), 3_600, 200),
}
"""Name of a part -> its goal."""

MEMORY: Final = "tmpfs"
DISKS: Final = ("ext4", "xfs")
"""File systems on which a part is wanted, too, if it is one of ``ON_DISKS``."""

ON_DISKS: Final = frozenset({"kills", "failing_calls", "two_plans", "visits"})
SHARE_OF_DISKS: Final = 10
"""On a file system that is not in memory: so much less."""

_SEEDS_WITHOUT_PROGRESS: Final = 50
"""So many seeds may be done already, in an earlier run."""

ONE_IN_SO_MANY_MUTANTS: Final = 10
"""May live: 90 % are to be killed."""


class Line(NamedTuple):
    """Progress of one part.

    Attributes:
        part: name of the part.
        what: unit that is counted.
        file_system: type of the file system; empty if it does not matter.
        done: amount that is done.
        wanted: amount that is wanted.
        wrong: cases in which something was wrong.
        commits: commits that it was done on.
    """

    part: str
    what: str
    file_system: str
    done: int
    wanted: int
    wrong: int
    commits: tuple[str, ...] = ()

    @property
    def is_reached(self) -> bool:
        """True if enough was done without a failure."""
        return self.done >= self.wanted and not self.wrong


def wanted_of(part: str, file_system: str) -> int:
    """Return the goal of a part on a file system; 0 without a goal."""
    goal = GOALS.get(part)
    if goal is None:
        return 0
    return goal.wanted if file_system in {"", MEMORY} else goal.wanted // SHARE_OF_DISKS


def done_of(state: State) -> int:
    """Return how much of a part's goal is done."""
    goal, figures = GOALS.get(state.part), state.figures
    return sum(figures[name] for name in goal.figures) if goal is not None else 0


def is_reached(state: State) -> bool:
    """Return whether enough of a part was done; always true without a goal."""
    return done_of(state) >= wanted_of(state.part, state.file_system)


def seeds_until_reached(state: State, first: int = 0) -> Iterator[range]:
    """Yield seeds until the goal is reached, no more progress is made, or the time is up.

    Args:
        state: state of the part.
        first: the first seed.
    """
    idle = 0
    for seed in count(first):
        if state.time_is_up() or idle > _SEEDS_WITHOUT_PROGRESS:
            return
        before = done_of(state)
        yield range(seed, seed + 1)
        idle = 0 if done_of(state) > before else idle + 1


def lines(states: Sequence[State]) -> list[Line]:
    """Return a line for each part that has a goal."""
    return [
        Line(
            state.part,
            GOALS[state.part].what,
            state.file_system,
            done_of(state),
            wanted_of(state.part, state.file_system),
            _wrong(state),
            state.commits,
        )
        for state in states
        if state.part in GOALS
    ]


def all_lines(folder: Path, parts: Collection[str]) -> list[Line]:
    """Return a line for each part and file system: results in the folder, and goals that were not begun."""
    goal_lines = lines(list(kept_in(folder, [name for name in GOALS if name in parts])))
    begun = {(line.part, line.file_system) for line in goal_lines}
    for part in parts:
        for file_system in (MEMORY, *DISKS) if part in ON_DISKS else ("",):
            if (part, file_system) not in begun:
                wanted = wanted_of(part, file_system)
                goal_lines.append(Line(part, GOALS[part].what, file_system, 0, wanted, 0))
    order = list(GOALS)
    return sorted(goal_lines, key=lambda line: order.index(line.part))


def why_not_here(folder: Path, here: str) -> str:
    """Return why this commit may add nothing to a folder's results; an empty string if it may.

    Args:
        folder: folder of the goals' results.
        here: the commit of this tree, see ``commit_here``.
    """
    if here.endswith(CHANGED):
        return "a file of this commit was changed: what is done now is of no commit. Commit it first"
    for state in kept_in(folder, GOALS):
        others = [commit or "an unknown one" for commit in state.commits if commit != here]
        if others or (
            state.commits and State(folder, state.part, state.file_system).commits != state.commits
        ):
            return (
                f"{state.path} is of commit {', '.join(others) or here + ' with changes'}, and this is {here}. "
                f"Go on there, or begin anew with another --state"
            )
    return ""


def is_one_programme(lines: Sequence[Line]) -> bool:
    """Return whether all goals are reached, on one known commit."""
    commits = {commit for line in lines for commit in line.commits}
    return all(line.is_reached for line in lines) and len(commits) == 1 and "" not in commits


def _wrong(state: State) -> int:
    """Return the number of failures; one in ten mutants may live, but each of them is named."""
    figures = state.figures
    if state.part == "mutants":
        lived = figures["mutants"] - figures["killed"]
        return max(0, lived - figures["mutants"] // ONE_IN_SO_MANY_MUTANTS)
    return figures["wrong"]


def table(lines: Sequence[Line]) -> str:
    """Return done, wanted and wrong of each goal with the commit, in Markdown."""
    rows = [
        f"| {line.what} | {line.file_system or 'any'} | {', '.join(commit or '?' for commit in line.commits)} "
        f"| {line.done:,} | {line.wanted:,} | {line.wrong:,} | {'yes' if line.is_reached else 'no'} |"
        for line in lines
    ]
    head = ["", "| What | On | Commit | Done | Wanted | Wrong | Reached |", "|---|---|---|--:|--:|--:|---|"]
    commits = sorted({commit or "?" for line in lines for commit in line.commits})
    several = ["", f"Not one programme: the rows are of {len(commits)} commits."] if len(commits) > 1 else []
    return "\n".join([*head, *rows, *several])
