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

Figures are numbers that are added up over all units. Units are kept per version of the source (of the product, of the
part's module and of what all parts share), so that a change of the code starts them anew.
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
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parent.parent.parent
_PRODUCT: Final = _ROOT / "krepair"
_HARNESS: Final = Path(__file__).parent
_COMMON: Final = ("faults.c", "faults.py", "runs.py", "scenes.py")
_MOST_WRONG_KEPT: Final = 5000
_SHOWN_OF_A_KIND: Final = 3


def source_digest(part: str) -> str:
    """Return a digest of the product and of a part's tools: results of another source do not count."""
    digest = hashlib.sha256()
    files = [file for file in _PRODUCT.rglob("*") if file.suffix == ".py"]
    files += [_HARNESS / name for name in (*_COMMON, f"{part}.py")]
    for file in sorted(files):
        if file.exists():
            digest.update(os.fsencode(file.relative_to(_PRODUCT.parent)) + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


CHANGED: Final = " and changes"
"""Behind a commit, where a file that it knows was changed since."""


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
        folder: folder that keeps it; None keeps nothing.
        part: name of the part.
        file_system: its type, as ``ext4``.
        seconds: time limit of the part, None for no limit.
        samples: number of cases of each unit that suffice, None for all; see ``how_many``.
        scenes: only units of these; empty: of all.
        enough: asked before each unit: whether the part may stop because it has done all that is wanted.
        commit: commit on which units are done now; empty: unknown.
        any_source: true to read results of other sources too, for display.
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
        commit: str = "",
        any_source: bool = False,
    ) -> None:
        self.part = part
        self._commit = commit
        self._any_source = any_source
        self._scenes = frozenset(scenes)
        self._enough = enough
        self.file_system = file_system
        self.samples = samples
        self.path = None if folder is None else folder / f"{part}-{file_system}.json"
        self.source = source_digest(part)
        self._end = None if seconds is None else time.monotonic() + seconds
        self._units: dict[str, dict[str, int]] = {}
        self._wrong: dict[str, str] = {}
        self._kinds: Counter[str] = Counter()
        self._commits: set[str] = set()
        self._seconds = 0.0
        self._began = time.monotonic()
        self._date = ""
        self._read()

    def _read(self) -> None:
        if self.path is None or not self.path.exists():
            return
        kept = json.loads(self.path.read_text())
        if kept["source"] != self.source and not self._any_source:
            return
        self._units, self._wrong, self._seconds = kept["units"], kept["wrong"], kept["seconds"]
        self._date, self._commits = kept["date"], set(kept.get("commits", ()))

    def most(self, otherwise: int) -> int:
        """Return an upper bound of a unit's cases, as a whole number; ``otherwise`` if none was given."""
        return max(1, int(self.samples)) if self.samples else otherwise

    def is_done(self, unit: str) -> bool:
        """Return whether a unit was done, now or earlier on the same source, or is not of a wanted scene."""
        return unit in self._units or bool(self._scenes and unit.partition(":")[0] not in self._scenes)

    def time_is_up(self) -> bool:
        """Return whether the part must stop before its next unit."""
        return (self._end is not None and time.monotonic() > self._end) or self._enough(self)

    def keep(self, unit: str, figures: Mapping[str, int]) -> None:
        """Record that a unit is done."""
        self._units[unit] = dict(figures)
        self._commits.add(self._commit)
        self._save()

    def wrong(self, case: str, text: str) -> None:
        """Record a fault; the first few of a kind are printed at once, with the command to replay them."""
        kind = kind_of(text)
        self._kinds[kind] += 1
        if self._kinds[kind] <= _SHOWN_OF_A_KIND:
            print(f"\nWRONG: {self.command(case)}\n{text}", flush=True)
        if len(self._wrong) < _MOST_WRONG_KEPT:
            self._wrong[case] = text

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
        out["wrong"] = len(self._wrong)
        return out

    @property
    def all_wrong(self) -> list[tuple[str, str]]:
        """(case, text) of everything that was wrong."""
        return list(self._wrong.items())

    @property
    def date(self) -> str:
        """Day of the last unit, as 2026-11-21; empty if there is none."""
        return self._date

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits on which its units were done; an empty text if nobody recorded them."""
        return tuple(sorted(self._commits or {""})) if self._units else ()

    def _save(self) -> None:
        now = time.monotonic()
        self._seconds, self._began = self._seconds + now - self._began, now
        self._date = time.strftime("%Y-%m-%d", time.gmtime())
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(f".{os.getpid()}.tmp")
        document = {
            "source": self.source,
            "date": self._date,
            "commits": sorted(self._commits),
            "seconds": round(self._seconds, 1),
            "units": self._units,
            "wrong": self._wrong,
        }
        with open(new, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)


def kept_in(folder: Path, parts: Collection[str]) -> Iterator[State]:
    """Return a folder's results of these parts, by file system, whatever source they were done on; for display."""
    for part in parts:
        for path in sorted(folder.glob(f"{part}-*.json")):
            yield State(folder, part, path.stem.removeprefix(f"{part}-"), any_source=True)
