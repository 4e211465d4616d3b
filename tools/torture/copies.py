"""Copies the log directory after any step of apply or undo, as when a disk is replaced, and runs a verb on the copy.

A directory is copied at its path: with and without hard links (``cp -a``, ``cp -r``), without times, and with other
owners. What has to be true:

- ``verify`` changes nothing.
- ``apply`` ends with 0 on the applied tree, or refuses where an undo comes first.
- ``undo`` ends with 0 on the original tree. Where the copy has lost times it may refuse; where it ends with 0, all but
  times is as it was, and if it was copied under a fence, the clean-shutdown marker stays away and undo says so.
- ``purge`` refuses what is half done (13) and changes nothing; else each file is as before or as applied.
- After every verb but a purge that ended with 0, ``undo`` gives the original tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from krepair.commit.carried_out import NOT_PUT_BACK
from krepair.commit.reports import ApplyReport
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tools.torture.scenes import (
    CLEAN_MARKER,
    POINTS,
    SCENES,
    Placed,
    Scene,
    Tree,
    build,
    differences,
    look,
    private,
    visible,
)
from tools.torture.state import State

WAYS: Final = {
    "whole": ("-a",),
    "torn": ("-r", "--no-dereference", "--preserve=mode,ownership,timestamps,xattr"),
    "timeless": ("-r", "--no-dereference", "--preserve=mode,ownership,links,xattr"),
    "owners": ("-a",),
}
"""How a directory is copied -> options of ``cp``."""
FIRST: Final = ("apply", "undo")
VERBS: Final = ("apply", "undo", "purge", "verify")
OTHER_OWNER: Final = (4711, 4712)
_RUNS: Final[dict[str, Callable[..., ApplyReport]]] = {"apply": apply, "undo": undo, "purge": purge}
_REFUSED: Final = {
    ExitCode.PARTLY,
    ExitCode.PERSON_DECIDES,
    ExitCode.STALE_PLAN,
    ExitCode.REFUSED,
    ExitCode.VERIFY_FAILED,
}


class Case(NamedTuple):
    """One copy and one verb; its text joins them by colons."""

    scene: str
    seed: int
    first: str
    stop: int
    way: str
    verb: str

    def __str__(self) -> str:
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Case:
        """Parse a case from its text."""
        scene, seed, first, stop, way, verb = text.split(":")
        return cls(scene, int(seed), first, int(stop), way, verb)


class Ended(NamedTuple):
    """Result of a verb's run.

    Attributes:
        code: exit code of the verb.
        said: errors that it printed.
        notes: notes of its report.
    """

    code: ExitCode
    said: str
    notes: str = ""


class Copied:
    """A scene whose directory is copied after some call.

    Args:
        name: name of the scene.
        seed: seed of the scene.
        workdir: folder that it is placed in.
    """

    def __init__(self, name: str, seed: int, workdir: Path) -> None:
        self.scene: Scene = build(name, seed)
        self.folder = workdir / "copies"
        self.calls: dict[str, int] = {}
        placed = self._placed()
        self.before = visible(look(placed.path))
        for verb in FIRST:
            recording = RecordingDisk(RealDisk())
            _RUNS[verb](placed.plan, self.scene.options, disk=recording)
            self.calls[verb] = sum(call.kind in FILE_CHANGING for call in recording.calls)
            if verb == "apply":
                self.after = visible(look(placed.path))

    def close(self) -> None:
        """Remove what was placed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _placed(self) -> Placed:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.scene.place(self.folder)

    def _stopped(self, first: str, stop: int) -> Placed:
        placed = self._placed()
        if first == "undo":
            apply(placed.plan, self.scene.options)
        try:
            _RUNS[first](placed.plan, self.scene.options, disk=StoppingDisk(RealDisk(), stop))
        except SimulatedCrash:
            return placed
        raise AssertionError(f"{first} has no call {stop}")

    def wrong(self, case: Case) -> str | None:
        """Return the fault of a case, or an empty string; None if nothing of the plan exists, so nothing is tried."""
        placed = self._stopped(case.first, case.stop)
        if not private(look(placed.path)):
            return None
        aside = CLEAN_MARKER in self.before and not (placed.path / CLEAN_MARKER).exists()
        copy(placed.path, case.way)
        was = look(placed.path)
        ended = self._run(case.verb, placed)
        tree = look(placed.path)
        text = f"{case.verb} ends with {int(ended.code)}: {ended.said}"
        if ended.code is not ExitCode.DONE and ended.code not in {*_REFUSED, ExitCode.FOUND}:
            return text
        if case.verb == "verify" and tree != was:
            return f"{text}; it changed something"
        if case.verb == "purge" and ended.code is not ExitCode.DONE and visible(tree) != visible(was):
            return f"{text}; it changed what a broker reads"
        if case.verb == "purge" and ended.code is ExitCode.DONE:
            return self._purged(visible(tree), case, text)
        if case.verb == "apply" and ended.code is ExitCode.DONE:
            wrong = differences(plain(visible(tree), case.way, aside), plain(self.after, case.way, aside))
            if wrong:
                return f"{text}; but:\n{wrong}"
        if case.verb != "undo" and private(tree):
            ended = self._run("undo", placed)
            text = f"{text}; then undo ends with {int(ended.code)}: {ended.said}"
        return self._back(case, placed, ended, aside=aside, text=text)

    def _back(self, case: Case, placed: Placed, ended: Ended, *, aside: bool, text: str) -> str:
        tree = look(placed.path)
        if case.way == "timeless" and ended.code in _REFUSED:
            return ""
        # Where all is back, apply and purge may refuse, and there is nothing for undo to do.
        if private(tree) or (ended.code is not ExitCode.DONE and case.verb == "undo"):
            return text
        away = aside and CLEAN_MARKER not in tree
        if case.way == "timeless" and away and case.verb == "undo" and NOT_PUT_BACK not in ended.notes:
            return f"{text}; the clean-shutdown marker stays away, and undo does not say so"
        if away and case.way != "timeless":
            return f"{text}; the clean-shutdown marker was not put back"
        wrong = differences(plain(visible(tree), case.way, away), plain(self.before, case.way, away))
        return f"{text}; but:\n{wrong}" if wrong else ""

    def _purged(self, now: Tree, case: Case, text: str) -> str:
        now, old, new = (plain(tree, case.way, True) for tree in (now, self.before, self.after))
        # A purge that ends a half done undo takes its fence away: the next start is as after an unclean stop.
        fence = {POINTS, CLEAN_MARKER} if case.first == "undo" else set()
        wrong = [
            name
            for name, entry in now.items()
            if name not in fence and entry not in (old.get(name), new.get(name))
        ]
        return f"{text}; {wrong[0]} is neither as before nor as applied" if wrong else ""

    def _run(self, verb: str, placed: Placed) -> Ended:
        try:
            if verb == "verify":
                verified = verify_plan(placed.plan, self.scene.options)
                return Ended(verified.exit_code, "; ".join(problem.text for problem in verified.problems))
            report = _RUNS[verb](placed.plan, self.scene.options)
        except KrepairError as error:
            return Ended(error.exit_code, error.message)
        except Exception as error:
            return Ended(ExitCode.BUG, f"{type(error).__name__}: {error}")
        why = "; ".join(result.why for result in report.results if result.why)
        return Ended(report.exit_code, why, " ".join(report.notes))


def copy(path: Path, way: str) -> None:
    """Replace the directory by a copy of itself, under the same path."""
    old = path.with_name("old")
    path.rename(old)
    subprocess.run(["cp", *WAYS[way], str(old), str(path)], check=True)
    shutil.rmtree(old)
    if way == "owners":
        for each in (path, *path.rglob("*")):
            os.chown(each, *OTHER_OWNER, follow_symlinks=False)


def plain(tree: Tree, way: str, away: bool) -> Tree:
    """Return a tree without what a way of copying loses; ``away``: also without the fence's contents."""
    out = {name: entry._replace(mtime_ns=0) if way == "timeless" else entry for name, entry in tree.items()}
    if way == "owners":
        out = {name: entry._replace(owner=OTHER_OWNER) for name, entry in out.items()}
    if way == "timeless":
        # The fence goes down as after a broker's start: the recovery point stays as low as it was.
        for name in (POINTS, *([CLEAN_MARKER] if away else ())):
            out.pop(name, None)
    return out


def ways() -> tuple[str, ...]:
    """Return the ways that this user can try: only root can give files to others."""
    return tuple(way for way in WAYS if way != "owners" or os.geteuid() == 0)


def try_unit(copied: Copied, case: Case, most: int | None = None) -> tuple[int, list[tuple[Case, str]]]:
    """Try every call of a verb with one way of copying and a next verb; return the number of cases, and failures.

    Args:
        copied: scene that is copied.
        case: its ``stop`` does not count.
        most: number of calls, spread over all of them; None: each.
    """
    calls, tried, wrong = copied.calls[case.first], 0, []
    step = max(1, calls // most) if most else 1
    for stop in range(1, calls + 1, step):
        case_with_stop = case._replace(stop=stop)
        why = copied.wrong(case_with_stop)
        tried += why is not None
        if why:
            wrong.append((case_with_stop, why))
    return tried, wrong


def run(seeds: range, workdir: Path, state: State) -> None:
    """Try every scene, verb, way and next verb; with ``state.samples`` that many calls of each."""
    for seed in seeds:
        for name in SCENES:
            units = {
                f"{name}:{seed}:{first}:{way}:{verb}": Case(name, seed, first, 0, way, verb)
                for first in FIRST
                for way in ways()
                for verb in VERBS
            }
            remaining = {unit: case for unit, case in units.items() if not state.is_done(unit)}
            if not remaining or state.time_is_up():
                continue
            copied = Copied(name, seed, workdir)
            for unit, case in remaining.items():
                if state.time_is_up():
                    break
                tried, wrong = try_unit(copied, case, state.most(0) or None)
                for failed_case, why in wrong:
                    state.wrong(str(failed_case), why)
                state.keep(unit, Counter({"copies": tried}))
            copied.close()


def replay(text: str, workdir: Path) -> list[str]:
    """Make one case again; gives what is wrong."""
    case = Case.parse(text)
    copied = Copied(case.scene, case.seed, workdir)
    why = copied.wrong(case)
    copied.close()
    return [why] if why else []
