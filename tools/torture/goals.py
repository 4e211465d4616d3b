"""How much of each part is wanted on one build before a release, and how far that is.

    python -m tools.torture --goals              run until each goal is reached; the same command goes on
    python -m tools.torture --goals --report     what is done, wanted, and wrong; nothing is run

Each part takes so few cases of each of its units that the goal is spread over all of them, and goes on with other
seeds until it is reached. What was done on another build does not count: see ``tools.torture.state``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple

from tools.torture.state import State


class Goal(NamedTuple):
    """What is wanted of a part.

    Attributes:
        what: one line for the table.
        figures: names of its figures that are added up.
        wanted: how much.
        samples: cases of each unit, so that one or two seeds make it.
    """

    what: str
    figures: tuple[str, ...]
    wanted: int
    samples: float


GOALS: Final[Mapping[str, Goal]] = {
    "kills": Goal("processes killed", ("kills", "installed kills"), 10_000, 8),
    "failing_calls": Goal("calls that failed", ("failing calls",), 50_000, 14),
    "power_loss": Goal("states after a power cut", ("states",), 100_000, 80),
    "between": Goal("steps with a real broker in between", ("steps",), 5_000, 24),
    "replicas": Goal("histories of replicas", ("histories",), 500, 170),
    "forecasts": Goal("damages of which a start is forecast", ("cases",), 3_000, 3_000),
    "mutants": Goal("mutants", ("mutants",), 300, 60),
    "fuzz": Goal("seconds of guided fuzzing", ("seconds",), 3_600, 200),
}
"""Name of a part -> its goal."""

SHARE_OF_DISKS: Final = 10
"""On a file system that is not in memory: so much less."""

_SEEDS_WITHOUT_PROGRESS: Final = 50
"""So many seeds may be done already, in an earlier run."""

ONE_IN_SO_MANY_MUTANTS: Final = 10
"""May live: 90 % are to be killed."""


class Line(NamedTuple):
    """How far a part is.

    Attributes:
        part: its name.
        what: what is counted.
        file_system: on which; empty where it does not matter.
        done: so much.
        wanted: of so much.
        wrong: cases in which something was wrong.
    """

    part: str
    what: str
    file_system: str
    done: int
    wanted: int
    wrong: int

    @property
    def is_reached(self) -> bool:
        """Whether enough was done, and nothing was wrong."""
        return self.done >= self.wanted and not self.wrong


def wanted_of(part: str, file_system: str) -> int:
    """How much of a part is wanted on a file system; 0 where there is no goal."""
    goal = GOALS.get(part)
    if goal is None:
        return 0
    return goal.wanted if file_system in {"", "tmpfs"} else goal.wanted // SHARE_OF_DISKS


def done_of(state: State) -> int:
    """How much of the goal of a part is done."""
    goal, figures = GOALS.get(state.part), state.figures
    return sum(figures[name] for name in goal.figures) if goal is not None else 0


def is_reached(state: State) -> bool:
    """Whether enough was done of a part; always where there is no goal."""
    return done_of(state) >= wanted_of(state.part, state.file_system)


def seeds_until_reached(state: State, first: int = 0) -> Iterator[range]:
    """One seed after the other until the goal is reached, nothing more is done, or the time is up.

    Args:
        state: of the part.
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
    """A line for each part that has a goal."""
    return [
        Line(
            state.part,
            GOALS[state.part].what,
            state.file_system,
            done_of(state),
            wanted_of(state.part, state.file_system),
            _wrong(state),
        )
        for state in states
        if state.part in GOALS
    ]


def _wrong(state: State) -> int:
    """Of mutants one in ten may live; each of them is named all the same."""
    figures = state.figures
    if state.part == "mutants":
        lived = figures["mutants"] - figures["killed"]
        return max(0, lived - figures["mutants"] // ONE_IN_SO_MANY_MUTANTS)
    return figures["wrong"]


def table(states: Sequence[State]) -> str:
    """Done, wanted and wrong of each goal, in Markdown."""
    rows = [
        f"| {line.what} | {line.file_system or 'any'} | {line.done:,} | {line.wanted:,} | {line.wrong:,} "
        f"| {'yes' if line.is_reached else 'no'} |"
        for line in lines(states)
    ]
    return "\n".join(
        ["", "| What | On | Done | Wanted | Wrong | Reached |", "|---|---|--:|--:|--:|---|", *rows]
    )
