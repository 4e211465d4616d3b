"""Finds the syncs that are needed: it leaves out one at a time, and searches for a power loss that then does harm.

``python -m tools.torture.syncs [SCENE...]`` prints every sync of krepair, and the first failure without it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from tools.torture.power_loss import HISTORIES, Case, Failure, Site, explore, placed
from tools.torture.recording import Synced
from tools.torture.scenes import SCENES, build

PER_POINT = 4
KILLS = (0.5, 0.45, 0.4, 0.55)
MOST = 200
"""States of each history without a sync; what is missed is missed at once."""


class Missed(NamedTuple):
    """The first thing that goes wrong without a sync."""

    case: Case
    failure: Failure


def syncs_of(site: Site, history: str, kill: float) -> set[str]:
    """Return the syncs in the last verb of a history."""
    recording = site.record(HISTORIES[history], kill)
    return {event.site for event in recording.events[recording.first :] if isinstance(event, Synced)}


def find_missed(
    scenes: Sequence[str], *, histories: Sequence[str] = tuple(HISTORIES), known: Collection[str] = ()
) -> dict[str, Missed | None]:
    """Leave out each sync of some scenes in turn.

    Args:
        scenes: names of the scenes.
        histories: names of the histories.
        known: syncs that are not tried.

    Returns:
        Sync -> what goes wrong without it, None if nothing does.
    """
    missed: dict[str, Missed | None] = {}
    for name in scenes:
        with placed(build(name)) as site:
            for history, kill in ((past, kill) for past in histories for kill in _kills(past)):
                for sync in sorted(syncs_of(site, history, kill) - set(known)):
                    if missed.setdefault(sync, None) is None:
                        case = Case(name, 0, history, kill, PER_POINT)
                        missed[sync] = _first(explore(site, case, Counter(), most=MOST, without=(sync,)))
    return missed


def _kills(history: str) -> tuple[float, ...]:
    """Return where a run is killed, as a share of its calls: the next run may need a sync after one of them only."""
    return KILLS if "kill" in history else (0.0,)


def _first(failures: Iterator[tuple[Case, Failure]]) -> Missed | None:
    return next((Missed(*failure) for failure in failures), None)


def main() -> None:
    """Print the table."""
    scenes = sys.argv[1:] or list(SCENES)
    for sync, missed in sorted(find_missed(scenes).items()):
        print(f"{'missed    ' if missed else 'NOT MISSED'}  {sync}")
        if missed:
            print(f"            {str(missed.failure)[:200]}")
            print(f"            python -m tools.torture --replay power_loss:{missed.case}")


if __name__ == "__main__":
    main()
