"""Goals of each part on one build before a release, and the progress towards them.

    python -m tools.torture --goals              run until each goal is reached; the same command goes on
    python -m tools.torture --goals --report     what is done, wanted, and wrong; nothing is run

Each part takes so few cases of each of its units that the goal is spread over all of them, and goes on with other
seeds until it is reached. All of it is of one source, see ``state``; a report of a changed commit ends with 1. Parts
for which the file system matters want a tenth of it on ext4 and on XFS, too: run the same command there with
``--on DIR``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from tools.torture.state import State


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


def wanted_of(state: State) -> int:
    """Return the goal of a part on a file system."""
    wanted = GOALS[state.part].wanted
    return wanted if state.file_system in {"", MEMORY} else wanted // SHARE_OF_DISKS


def done_of(state: State) -> int:
    """Return how much of a part's goal is done."""
    return sum(state.figures[name] for name in GOALS[state.part].figures)


def wrong_of(state: State) -> int:
    """Return the number of failures; one in ten mutants may live, but each of them is named."""
    figures = state.figures
    if state.part == "mutants":
        lived = figures["mutants"] - figures["killed"]
        return max(0, lived - figures["mutants"] // ONE_IN_SO_MANY_MUTANTS)
    return figures["wrong"]


def is_enough(state: State) -> bool:
    """Return whether as much of a part was done as is wanted."""
    return done_of(state) >= wanted_of(state)


def is_reached(state: State) -> bool:
    """Return whether enough of a part was done without a failure."""
    return is_enough(state) and not wrong_of(state)


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


def states_of(folder: Path, parts: Collection[str]) -> list[State]:
    """Return what is done of each goal on each file system that it wants."""
    return [
        State(folder, part, file_system)
        for part in GOALS
        if part in parts
        for file_system in ((MEMORY, *DISKS) if part in ON_DISKS else ("",))
    ]


def table(states: Iterable[State], commit: str) -> str:
    """Return done, wanted and wrong of each goal, in Markdown.

    Args:
        states: states of parts with a goal.
        commit: commit whose source all of it is of.
    """
    head = ["", "| What | On | Commit | Done | Wanted | Wrong | Reached |", "|---|---|---|--:|--:|--:|---|"]
    rows = [
        f"| {GOALS[state.part].what} | {state.file_system or 'any'} | {commit or '?'} | {done_of(state):,} "
        f"| {wanted_of(state):,} | {wrong_of(state):,} | {'yes' if is_reached(state) else 'no'} |"
        for state in states
    ]
    return "\n".join([*head, *rows])
