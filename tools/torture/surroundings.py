"""Disturbs krepair's surroundings: read-only disks, clocks that jump, deleted topics, limits, two log directories.

- ``readonly``: while a verb sleeps before one of its calls its ext4 becomes read-only, or is shut down as after an I/O
  error, which loses what was not synced. It is mounted again, and the same verb, or ``undo``, has to end right.
- ``clocks``: each verb sees another time of day, years before or after.
- ``topics``: between two verbs a partition folder is renamed as a broker does that deletes a topic (``-delete``),
  sets it aside (``-stray``) or moves it (``-future``), is removed, or is made anew by another topic of that name.
- ``limits``: 64 open files, little address space, files of at most so many bytes.
- ``together``: two log directories of one broker, each with a plan; their verbs are interleaved and killed, and
  originals go into one folder.

What must hold is what holds elsewhere: documented exit codes; 0 only on the tree that it promises; refused with nothing
changed; and in the end every original is back, or is where it was when somebody else took its folder away.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from krepair.plan.keep import INPLACE, UNTIL_VERIFIED
from tools.torture.runs import (
    DOCUMENTED,
    Ended,
    Runner,
    Wanted,
    case_folder,
    find_wanted,
    judge_end,
    judge_snapshots,
    parse_step,
)
from tools.torture.scenes import CLEAN_MARKER, POINTS, Placed, Scene, Tree, build, differences, look, visible
from tools.torture.state import State as Done

SCENES: Final = (
    "markers",
    "everything",
    "partitions",
    "leftovers",
    "set-aside",
    "keys",
    "recovery-and-all",
    "markers~until-verified",
    "everything~until-verified",
)
KINDS: Final = ("readonly", "clocks", "topics", "limits", "together")
CASES: Final = 150
"""Of each kind and scene, in a full run."""

_UNCHANGED: Final = frozenset({11, 12, 13})
_IMAGE_BYTES: Final = 24 << 20
_YEAR_S: Final = 365 * 86_400


class Known(NamedTuple):
    """A scene and what it has to be."""

    scene: Scene
    wanted: Wanted


class Case:
    """One case.

    Args:
        runner: runs the verbs.
        known: every scene that may be asked for.
        name: name of its scene.
        seed: seed of all random choices.
    """

    def __init__(self, runner: Runner, known: Callable[[str], Known], name: str, seed: str) -> None:
        self.runner = runner
        self.known = known
        self.scene, self.wanted = known(name)
        self.rng = random.Random(seed)
        self.said: list[str] = []
        self.figures: Counter[str] = Counter()

    def run(
        self,
        placed: Placed,
        word: str,
        *,
        meanwhile: Callable[[], None] | None = None,
        first: Callable[[], None] | None = None,
    ) -> Ended:
        """Run a verb and write down how it ended."""
        ended = self.runner.run(placed, parse_step(word), meanwhile=meanwhile, first=first)
        self.said.append(str(ended))
        self.figures["verbs"] += 1
        self.figures["kills"] += ended.killed
        return ended

    def tried(self, kind: str, folder: Path) -> str:
        """Try it; gives what is wrong, or nothing."""
        wrong = getattr(self, f"_{kind}")(folder)
        return "\n".join([wrong, *self.said]) if wrong else ""

    def _judged(self, ended: Ended, placed: Placed, wanted: Wanted) -> str:
        return judge_end(ended, look(placed.path), wanted)

    def _ends_right(self, placed: Placed, words: Sequence[str]) -> str:
        """Check that undisturbed verbs end with 0, on the tree that they promise."""
        for word in words:
            ended = self.run(placed, word)
            if ended.code and not word.endswith("?"):
                return f"{word} ended with {ended.code}, it has to end with 0"
            wrong = self._judged(ended, placed, self.wanted)
            if wrong:
                return wrong
        return ""

    @property
    def _way(self) -> tuple[str, ...]:
        """Return the verb that ends right after an apply that did not."""
        if self.scene.keep == UNTIL_VERIFIED:
            return self.rng.choice([("apply", "purge"), ("undo?", "apply", "purge")])
        return self.rng.choice([("apply", "undo"), ("undo",), ("apply", "purge")])

    def _some_call(self, verb: str, *, looking: bool = False) -> int:
        calls = len(self.wanted.calls[verb]) if looking else self.wanted.counts[verb]
        return self.rng.randint(1, max(calls, 1))

    # -- a file system that turns read-only

    def _readonly(self, folder: Path) -> str:
        with _Disk(folder) as disk:
            placed = self.scene.place(disk.mount)
            os.sync()
            verb = "apply"
            if self.scene.keep != UNTIL_VERIFIED and self.rng.random() < 0.4:
                verb = self.rng.choice(["undo", "purge"])
                if self.run(placed, "apply").code:
                    return "apply ended wrong"
            away = self.rng.choice([disk.read_only, disk.shut_down])
            ended = self.run(placed, f"{verb}~{self._some_call(verb, looking=True)}", meanwhile=away)
            wrong = self._judged(ended, placed, self.wanted)
            disk.again()
            if wrong or ended.code not in DOCUMENTED:
                return wrong or f"{verb} ended with {ended.code}"
            if verb == "purge":
                return self._ends_right(placed, self.rng.choice([("purge",), ("undo?", "purge")]))
            again = {"undo": ("undo",), "apply": self._way}[verb]
            return self._ends_right(placed, again)

    # -- clocks

    def _clocks(self, folder: Path) -> str:
        placed = self.scene.place(folder)
        words = {
            UNTIL_VERIFIED: ["apply.purge", "apply@.apply.purge"],
        }.get(
            self.scene.keep,
            ["apply.undo.apply.purge", "apply@.apply.undo", "apply.undo@.undo", "apply.purge@.purge"],
        )
        for word in self.rng.choice(words).split("."):
            verb = word.strip("@")
            if word.endswith("@"):
                word = f"{verb}@{self._some_call(verb)}{self.rng.choice('bat')}"
            jump = self.rng.choice([-50 * _YEAR_S, -_YEAR_S, -86_400, 0, 3600, 10 * _YEAR_S, 200 * _YEAR_S])
            self.said.append(f"the clock says {jump:+,} s")
            ended = self.run(placed, word, first=lambda jump=jump: _jump(jump))  # type: ignore[misc]
            if ended.killed:
                continue
            wrong = self._judged(ended, placed, self.wanted)
            if wrong or ended.code:
                return wrong or f"{word} ended with {ended.code}"
        return ""

    # -- topics that go, or change their names

    def _topics(self, folder: Path) -> str:
        placed = self.scene.place(folder)
        word = self.rng.choice(["apply", f"apply@{self._some_call('apply')}b"])
        self.run(placed, word)
        changed = [part.folder for part in self.scene.plan.partitions if part.changes]
        name = self.rng.choice(changed)
        how = self.rng.choice(["delete", "stray", "future", "gone", "anew"])
        moved = placed.path / f"{name}.{'0123456789abcdef' * 2}-{how}"
        if how in {"gone", "anew"}:
            shutil.move(placed.path / name, folder / "taken")
            moved = folder / "taken"
        else:
            (placed.path / name).rename(moved)
        if how == "anew":
            (placed.path / name).mkdir()
            (placed.path / name / f"{0:020d}.log").write_bytes(b"")
        self.said.append(f"{name}: {how}")
        originals = _contents(look(placed.path)) | _contents(look(moved))
        purged = False
        for word in self.rng.choice(
            [["undo"], ["purge"], ["apply"], ["verify"], ["apply", "undo"], ["undo", "purge"]]
        ):
            before = look(placed.path)
            ended = self.run(placed, word)
            purged |= word == "purge" and ended.code in {0, 3}
            if ended.code not in DOCUMENTED | {2}:
                return f"{word} ended with {ended.code}, which it never may: {ended.last_words()}"
            after = look(placed.path)
            if ended.code in _UNCHANGED:
                wrong = differences(visible(after), visible(before))
                if wrong:
                    return f"{word} ended with {ended.code}, but:\n{wrong}"
            if not purged and self.scene.keep == INPLACE:
                lost = self._lost(originals, _contents(after) | _contents(look(moved)))
                if lost:
                    return f"after {word}: {lost}"
            if how == "anew" and [path.name for path in (placed.path / name).iterdir()] != [f"{0:020d}.log"]:
                return f"after {word}: the folder of the new topic was changed"
        wrong = judge_snapshots(
            _without(look(placed.path), name),
            self.wanted._replace(
                before=_without(self.wanted.before, name), applied=_without(self.wanted.applied, name)
            ),
        )
        return f"of the others:\n{wrong}" if wrong and self.scene.plan.root is None else ""

    def _lost(self, before: set[str], now: set[str]) -> str:
        for name, entry in self.wanted.before.items():
            if name.endswith(".log") and entry.content in before and entry.content not in now:
                return f"{name} is lost: no file has its bytes"
        return ""

    # -- limits

    def _limits(self, folder: Path) -> str:
        placed = self.scene.place(folder)
        limit = self.rng.choice([_few_files, _little_memory, _no_memory, _short_files])
        verb = "apply"
        if self.scene.keep != UNTIL_VERIFIED and self.rng.random() < 0.3:
            verb = self.rng.choice(["undo", "purge"])
            if self.run(placed, "apply").code:
                return "apply ended wrong"
        self.said.append(f"under {limit.__name__}")
        before = look(placed.path)
        ended = self.run(placed, verb, first=limit)
        wrong = self._judged(ended, placed, self.wanted)
        if not wrong and ended.code in _UNCHANGED:
            wrong = differences(visible(look(placed.path)), visible(before))
        if wrong or ended.code not in DOCUMENTED:
            return wrong or f"{verb} ended with {ended.code}: {ended.last_words()}"
        if limit is _few_files and ended.code:
            return f"{verb} ended with {ended.code} although it needs few files"
        if ended.code == 0 and verb in {"undo", "purge"}:
            return ""
        return self._ends_right(placed, self._way if verb == "apply" else (verb,))

    # -- two log directories

    def _together(self, folder: Path) -> str:
        names = [self.rng.choice(SCENES), self.rng.choice(SCENES)]
        sites: list[tuple[Placed, Known]] = []
        for side, name in zip("ab", names, strict=True):
            known = self.known(name)
            (folder / side).mkdir()
            sites.append((known.scene.place(folder / side), known))
        self.said.append(f"{names[0]} and {names[1]}")
        for _ in range(self.rng.randint(3, 7)):
            place = self.rng.randrange(2)
            placed, known = sites[place]
            verb = self.rng.choice(["apply", "apply", "undo", "purge"])
            most = max(known.wanted.counts[verb], 1)
            word = (
                f"{verb}@{self.rng.randint(1, most)}{self.rng.choice('bat')}"
                if self.rng.random() < 0.6
                else verb
            )
            other = sites[1 - place][0]
            before = look(other.path)
            self.said.append(f"in {'ab'[place]}:")
            ended = self.run(placed, word)
            if not ended.killed:
                wrong = judge_end(ended, look(placed.path), known.wanted)
                if wrong:
                    return wrong
            touched = differences(look(other.path), before)
            if touched:
                return f"{word} has changed the other log directory:\n{touched}"
        for placed, known in sites:
            ended = self.run(placed, "undo")
            wrong = judge_end(ended, look(placed.path), known.wanted)
            if not wrong and ended.code:
                wrong = judge_snapshots(look(placed.path), known.wanted)
            if wrong:
                return wrong
        return ""


def _contents(tree: Tree) -> set[str]:
    return {entry.content for entry in tree.values()}


def _without(tree: Tree, name: str) -> Tree:
    """Remove a partition folder from a tree, and its fence, which lies in the folder."""
    aside = (CLEAN_MARKER, POINTS)
    return {each: entry for each, entry in tree.items() if not each.startswith(name) and each not in aside}


def _jump(seconds: int) -> None:
    """Change the clock of this process; the times that the system gives to files stay right."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + seconds * 1_000_000_000


def _few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def _address_space(more: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more,) * 2)


def _little_memory() -> None:
    _address_space(64 << 20)


def _no_memory() -> None:
    _address_space(1 << 20)


def _short_files() -> None:
    """Limit the size of files: a longer one fails with EFBIG, because Python ignores the signal."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))


class _Disk:
    """A small ext4 of its own, that can be taken away."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "disk"
        self._image = folder / "image"

    def __enter__(self) -> _Disk:
        self.mount.mkdir()
        with self._image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        _done("mkfs.ext4", "-q", str(self._image))
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        _done("umount", "-l", str(self.mount))

    def _mount(self) -> None:
        _done("mount", "-o", "loop", str(self._image), str(self.mount))

    def read_only(self) -> None:
        """Remount it read-only; if a file is open for writing this fails, and it is shut down."""
        command = ["mount", "-o", "remount,ro", str(self.mount)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            self.shut_down()

    def shut_down(self) -> None:
        """Shut it down as ext4 does after an error of its journal: nothing more is written."""
        _done("mount", "-o", "remount,abort", str(self.mount))

    def again(self) -> None:
        """Mount it again, for writing: a copy of it, as after a restart.

        A mount namespace that another process made meanwhile has the old mount, too, and holds it in the state it has.
        """
        _done("umount", "-l", str(self.mount))
        old, self._image = self._image, self._image.with_name("image again")
        _done("cp", "--sparse=always", str(old), str(self._image))
        old.unlink()
        self._mount()


def _done(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def can_mount(work: Path) -> bool:
    """Return whether file systems can be made and mounted here."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    with case_folder(work) as folder, contextlib.suppress(subprocess.CalledProcessError), _Disk(folder):
        return True
    return False


def _kinds(name: str, work: Path, *, mounts: bool) -> Iterator[str]:
    yield from (kind for kind in KINDS if mounts or kind != "readonly")


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Run ``CASES`` of each kind in every scene, or ``state.samples``."""
    runner = Runner()
    known: dict[str, Known] = {}

    def of(seed: int) -> Callable[[str], Known]:
        def known_of(name: str) -> Known:
            if f"{name} {seed}" not in known:
                if not known:
                    runner.warm_up([build(each) for each in SCENES], workdir)
                scene = build(name, seed)
                known[f"{name} {seed}"] = Known(scene, find_wanted(runner, scene, workdir))
            return known[f"{name} {seed}"]

        return known_of

    mounts = can_mount(workdir)
    for seed in seeds:
        for name in SCENES:
            for kind in _kinds(name, workdir, mounts=mounts):
                unit = f"{name}:{seed}:{kind}"
                if state.is_done(unit) or state.time_is_up():
                    continue
                figures: Counter[str] = Counter()
                for number in range(state.most(CASES)):
                    case = f"{unit}:{number}"
                    tried, wrong = _try(runner, of(seed), case, workdir)
                    figures += tried
                    figures[f"{kind} cases"] += 1
                    if wrong:
                        state.wrong(case, wrong)
                state.keep(unit, figures)


def _try(runner: Runner, known: Callable[[str], Known], text: str, workdir: Path) -> tuple[Counter[str], str]:
    name, _, kind, _ = text.split(":")
    with case_folder(workdir) as folder:
        case = Case(runner, known, name, text)
        wrong = case.tried(kind, folder)
        return case.figures, wrong.replace(f"{folder}/", "")


def replay(text: str, workdir: Path) -> list[str]:
    """Run one case again; gives what is wrong."""
    runner, seed = Runner(), int(text.split(":")[1])

    def known(name: str) -> Known:
        scene = build(name, seed)
        return Known(scene, find_wanted(runner, scene, workdir))

    runner.warm_up([build(name, seed) for name in SCENES], workdir)
    _, wrong = _try(runner, known, text, workdir)
    return [wrong] if wrong else []
