"""Progress of a torture run, in files that are always complete, so that the run can be stopped and resumed.

A part works through cases and asks ``State`` before each unit of them:

    def run(seeds: range, workdir: Path, state: State) -> None:
        for unit in ...:                          # a unit takes seconds, not minutes
            if state.is_done(unit) or state.time_is_up():
                continue
            figures = Counter()
            ...
            state.wrong(case, text)               # case: all that ``replay`` needs, without blanks
            state.keep(unit, figures)

    def replay(case: str, workdir: Path) -> list[str]:
        ...                                       # what is wrong in this one case, one line or more each

Figures are numbers that are added up over all units. Each version of the source has a folder of its own, so all results
in it are of one programme, and a change of the code starts all units anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent.parent
_SHOWN_OF_A_KIND: Final = 3
CHANGED: Final = " and changes"
"""Behind a commit, where a file that it knows was changed since."""


def source_digest() -> str:
    """Return a digest of the product and of this programme, the name of the folder for their results."""
    digest = hashlib.sha256()
    for file in sorted([*_ROOT.glob("krepair/**/*.py"), *_ROOT.glob("tools/torture/*.[pc]*")]):
        if file.is_file():
            digest.update(os.fsencode(file.relative_to(_ROOT)) + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def commit_here() -> str:
    """Return the commit of this tree, with ``CHANGED`` if it has changes; empty if git knows no commit."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short=10", "HEAD")
    return commit + CHANGED if commit and git("status", "--porcelain", "--untracked-files=no") else commit


def kind_of(text: str) -> str:
    """Return a fault without names and numbers, so that one defect in many cases is counted once."""
    first, _, rest = text.partition("\n")
    if first.endswith("but:"):
        first += " " + rest.partition("\n")[0]
    first = re.sub(r"(content|owner|mode|mtime_ns|links) [^;]*", r"\1", first)
    return re.sub(r"[a-z_]+(-[a-z]+)*-\d+/|\d+(?!\d*(\)| <))", "#", first)


def how_many(samples: float, rng: random.Random) -> int:
    """Return how many cases of a unit to take; less than one: one or none, by chance."""
    return int(samples) if samples >= 1 else int(rng.random() < samples)


class State:
    """State of one part on one file system.

    Args:
        folder: folder that keeps it, see ``source_digest``; None keeps nothing.
        part: name of the part.
        file_system: its type, as ``ext4``; empty if it does not matter.
        seconds: time limit of the part, None for no limit.
        samples: number of cases of each unit that suffice, None for all; see ``how_many``.
        scenes: only units of these; empty: of all.
        enough: asked before each unit: whether the part may stop because it has done all that is wanted.

    Attributes:
        all_wrong: text of everything that was wrong, by case.
        date: day of the last unit, as 2026-11-21; empty if there is none.
    """

    def __init__(
        self,
        folder: Path | None,
        part: str,
        file_system: str,
        *,
        seconds: float | None = None,
        samples: float | None = None,
        scenes: Collection[str] = (),
        enough: Callable[[State], bool] = lambda state: False,
    ) -> None:
        self.part, self.file_system, self.samples = part, file_system, samples
        self._scenes, self._enough = frozenset(scenes), enough
        self._path = None if folder is None else folder / f"{part}-{file_system}.json"
        self._end = None if seconds is None else time.monotonic() + seconds
        self._units: dict[str, dict[str, int]] = {}
        self.all_wrong: dict[str, str] = {}
        self.date = ""
        self._kinds: Counter[str] = Counter()
        if self._path is not None and self._path.exists():
            self._units, self.all_wrong, self.date = json.loads(self._path.read_text())

    def most(self, otherwise: int) -> int:
        """Return an upper bound of a unit's cases, as a whole number; ``otherwise`` if none was given."""
        return max(1, int(self.samples)) if self.samples else otherwise

    def is_done(self, unit: str) -> bool:
        """Return whether a unit was done, now or earlier, or is not of a wanted scene."""
        return unit in self._units or bool(self._scenes and unit.partition(":")[0] not in self._scenes)

    def time_is_up(self) -> bool:
        """Return whether the part must stop before its next unit."""
        return (self._end is not None and time.monotonic() > self._end) or self._enough(self)

    def keep(self, unit: str, figures: Mapping[str, int]) -> None:
        """Record that a unit is done."""
        self._units[unit] = dict(figures)
        self.date = time.strftime("%Y-%m-%d", time.gmtime())
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            new = self._path.with_suffix(f".{os.getpid()}.tmp")
            with open(new, "w", encoding="utf-8") as file:
                json.dump([self._units, self.all_wrong, self.date], file, indent=1, sort_keys=True)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)

    def wrong(self, case: str, text: str) -> None:
        """Record a fault; the first few of a kind are printed at once, with the command to replay them."""
        self._kinds[kind_of(text)] += 1
        if self._kinds[kind_of(text)] <= _SHOWN_OF_A_KIND:
            print(f"\nWRONG: {self.command(case)}\n{text}", flush=True)
        self.all_wrong[case] = text

    def command(self, case: str) -> str:
        """Return the command that replays a case."""
        where = "" if self.file_system in {"", "tmpfs"} else f" --on DIR   (on {self.file_system})"
        return f"python -m tools.torture --replay {self.part}:{case}{where}"

    @property
    def units(self) -> Collection[str]:
        """The units that are done."""
        return self._units.keys()

    @property
    def figures(self) -> Counter[str]:
        """Sums over all units; ``wrong`` counts the cases in which something is."""
        out: Counter[str] = Counter()
        for figures in self._units.values():
            out.update(figures)
        out["wrong"] = len(self.all_wrong)
        return out
