"""Tries forged plans and journals, and folders that the broker's user has prepared as a trap for root.

- ``plan``: a value of a sound plan is changed (paths that lead outside, other names, sizes, offsets, lists cut,
  doubled, emptied) and the plan is sealed again, so that its digest is right.
- ``journal``: the same with a record of a journal, half way through or at the end; its checksum is right.
- ``planted``: links, pipes, devices, sockets, hard links, files without end and folders lie where krepair's own files
  or the partition's should be, when a verb begins.
- ``raced``: the same, but they are put there while the verb sleeps before one of its calls: between look and use.

What has to be true: a verb ends with a documented exit code and in time. Nothing outside the log directory is changed,
created or linked. A verb that says that nothing was changed has changed nothing. Every file that it makes or leaves is
one of the scene, and no original is gone but by ``purge``, or as the plan says. With the sound plan and journal back,
and what was planted taken away, ``undo`` gives the original tree or refuses and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from krepair.cli.incident import SUFFIX
from krepair.commit.carried_out import NOT_PUT_BACK
from krepair.plan import planfile
from krepair.plan.model import Plan
from tools.torture.runs import (
    DOCUMENTED,
    Ended,
    Part,
    Runner,
    Tried,
    Wanted,
    case_folder,
    parse_step,
    plainly,
)
from tools.torture.scenes import CLEAN_MARKER, POINTS, PRIVATE, Scene, Seen, Tree, differences, look, visible

SCENES: Final = ("markers", "everything", "tail-cut", "set-aside", "leftovers", "keys", "recovery")
KINDS: Final = ("plan", "journal", "planted", "raced")
CASES: Final = 400
"""Of each kind and scene, in a full run."""

VERBS: Final = ("apply", "undo", "purge", "verify")
_ENDS: Final = DOCUMENTED | {2, 10, 64}
_UNCHANGED: Final = frozenset({10, 11, 12, 13, 64})
_HUGE: Final = 1 << 40
"""Bytes of a file that is nothing but a hole."""


class Site:
    """One copy of a scene, and beside it what must never be touched."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.placed = scene.place(folder)
        self.folder = folder
        self.outside = folder / "outside"
        (self.outside / "inner").mkdir(parents=True)
        for name in ("precious", "inner/precious"):
            (self.outside / name).write_bytes(b"precious " * 50)
        self.precious = self.outside / "precious"
        self.safe = self.picture()

    def picture(self) -> Tree:
        """Read everything outside the log directory; beside it only the names, without the plan's report."""
        here = os.listdir(self.folder)
        beside = [name for name in here if not name.startswith("logs") and not name.endswith(SUFFIX)]
        nothing = Seen(0, (0, 0), 0, 0, "", "")
        return look(self.outside) | {f"../{name}": nothing for name in beside}

    def broken(self) -> str:
        """Return how the outside has changed; the names of our own hard links do not count."""
        now = {name: entry._replace(links=0) for name, entry in self.picture().items()}
        return differences(now, {name: entry._replace(links=0) for name, entry in self.safe.items()})


# -- values that somebody might write -------------------------------------------------------------------
def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths to all values in a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield from places(element, (*path, number))


def craft(document: Any, rng: random.Random, outside: str) -> str:
    """Change one value of a document in place; gives what was done."""
    path = rng.choice(list(places(document)))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    old = holder[path[-1]]
    if rng.random() < 0.1:
        del holder[path[-1]]
        return f"{path}: gone"
    holder[path[-1]] = _another(old, document, rng, outside)
    return f"{path}: {str(old)[:60]!r} is {str(holder[path[-1]])[:80]!r}"


def _another(old: Any, document: Any, rng: random.Random, outside: str) -> Any:
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice([0, -1, 1, old + 1, old - 1, old ^ 1 << rng.randrange(40), 1 << 31, (1 << 63) - 1])
    if isinstance(old, str):
        texts = [text for text in _texts(document) if text != old]
        tricks = [
            "",
            ".",
            "..",
            "../outside/precious",
            outside,
            "a/b",
            "x" * 300,
            "\0",
            "~",
            "b-0/../../outside",
        ]
        return rng.choice([*tricks, rng.choice(texts or [""]), old + "x", old[:-1], f"../{old}"])
    if isinstance(old, list):
        if not old or rng.random() < 0.2:
            return [] if old else [0]
        changed = list(old)
        match rng.randrange(4):
            case 0:
                changed.pop(rng.randrange(len(changed)))
            case 1:
                changed.append(rng.choice(changed))
            case 2:
                changed.reverse()
            case _:
                rng.shuffle(changed)
        return changed
    return rng.choice([None, 0, "", [], {}])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for element in value.values():
            yield from _texts(element)
    elif isinstance(value, list):
        for element in value:
            yield from _texts(element)


def crafted_plan(plan: Plan, rng: random.Random, outside: str) -> tuple[bytes, str]:
    """Return the bytes of a plan with one or two other values, sealed if it is still a plan."""
    document = msgspec.json.decode(planfile.in_full(plan))
    done = "; ".join(craft(document, rng, outside) for _ in range(rng.choice([1, 1, 2])))
    try:
        return planfile.dumps(planfile.seal(planfile.of_full(document))), done
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError, KeyError, TypeError, AttributeError):
        return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", done


def crafted_journal(data: bytes, rng: random.Random, outside: str) -> tuple[bytes, str]:
    """Return a journal with another value in one record, and the right checksum."""
    lines = data.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    document = msgspec.json.decode(lines[number][9:])
    done = craft(document, rng, outside)
    body = msgspec.json.encode(document)
    lines[number] = b"%08x %b\n" % (zlib.crc32(body), body)
    return b"".join(lines), f"record {number}, {done}"


# -- what the broker's user may leave -------------------------------------------------------------------
def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(path.parent):
        listener.bind(path.name)


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "inner").write_bytes(b"inner")


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, _HUGE)


TRAPS: Final[dict[str, Callable[[Path, Site], object]]] = {
    "link": lambda path, site: path.symlink_to(site.precious),
    "link-to-folder": lambda path, site: path.symlink_to(site.outside),
    "dangling": lambda path, site: path.symlink_to(site.outside / "not-there"),
    "hard-link": lambda path, site: os.link(site.precious, path),
    "pipe": lambda path, site: os.mkfifo(path),
    "device": lambda path, site: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5)),  # /dev/zero
    "endless": lambda path, site: _endless(path),
    "socket": lambda path, site: _socket(path),
    "folder": lambda path, site: _folder(path),
}


def plant(site: Site, rng: random.Random) -> tuple[str, Callable[[], None]]:
    """Put a trap in the place of something in the log directory; gives what, and how to take it away."""
    paths = sorted(path for path in site.placed.path.rglob("*") if not path.is_symlink())
    private = [path for path in paths if PRIVATE in os.fspath(path)]
    target = rng.choice(private if private and rng.random() < 0.6 else paths)
    if not private and rng.random() < 0.4:
        # where krepair will make its own
        holder = rng.choice([path for path in paths if path.is_dir()] or [site.placed.path])
        target = holder / f"{PRIVATE}{site.placed.plan.plan_id}"
    kinds = list(TRAPS)
    if os.geteuid() != 0:
        kinds.remove("device")
    kind = rng.choice(kinds)
    aside = site.folder / "logs~aside"
    aside.mkdir(exist_ok=True)
    there = target.exists()
    if there:
        target.rename(aside / "was")
    target.parent.mkdir(exist_ok=True)
    TRAPS[kind](target, site)

    def away() -> None:
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
        else:
            shutil.rmtree(target)
        if there and target.parent.is_dir():
            (aside / "was").rename(target)
        shutil.rmtree(aside)

    return f"{kind} at {target.relative_to(site.placed.path)}", away


# -- what must be true ----------------------------------------------------------------------------------
class Case:
    """One case: a scene in some state, something crafted, and a verb.

    Args:
        runner: runs the verbs.
        scene: scene that the case is tried on.
        wanted: expected trees of the scene.
        seed: seed of all random choices.
    """

    def __init__(self, runner: Runner, scene: Scene, wanted: Wanted, kind: str, seed: str) -> None:
        self.runner = runner
        self.scene = scene
        self.wanted = wanted
        self.kind = kind
        self.rng = random.Random(seed)
        self.said: list[str] = []
        self.not_put_back = False
        """Whether krepair took what was planted for the trace of a broker, and said so."""

    def run(self, site: Site, verb: str, meanwhile: Callable[[], None] | None = None) -> Ended:
        """Run a verb and write down how it ended."""
        ended = self.runner.run(site.placed, parse_step(verb), record=True, meanwhile=meanwhile)
        self.said.append(str(ended))
        self.not_put_back |= NOT_PUT_BACK in ended.output
        return ended

    def tried(self, folder: Path) -> str:
        """Try it; gives what is wrong, or nothing."""
        site = Site(self.scene, folder)
        wrong = getattr(self, f"_{self.kind}")(site)
        return plainly("\n".join([wrong, *self.said]), site.placed) if wrong else ""

    def _begin(self, site: Site) -> None:
        """Prepare a plan that is not begun, half applied, applied, or half undone."""
        for verb, killed in self.rng.choice(
            [(), (("apply", True),), (("apply", False),), (("apply", False), ("undo", True))]
        ):
            most = max(self.wanted.counts[verb], 1)
            self.run(site, f"{verb}@{self.rng.randint(1, most)}{self.rng.choice('ba')}" if killed else verb)

    def _plan(self, site: Site) -> str:
        if self.rng.random() < 0.5:
            self._begin(site)
        data, done = crafted_plan(site.placed.plan, self.rng, os.fspath(site.precious))
        sound = site.placed.plan_file.read_bytes()
        site.placed.plan_file.write_bytes(data)
        self.said.append(done)
        wrong = self._verbs(site, [self.rng.choice(VERBS)])
        if not wrong and self.said[-1].startswith(("apply: exit 0", "apply: exit 3")):
            wrong = self._verbs(site, ["undo"])  # it is another plan, with another id
        site.placed.plan_file.write_bytes(sound)
        return wrong or self._way_back(site)

    def _journal(self, site: Site) -> str:
        self._begin(site)
        journals = sorted(site.placed.path.rglob("journal"))
        if not journals:
            return ""
        path = self.rng.choice(journals)
        sound = path.read_bytes()
        data, done = crafted_journal(sound, self.rng, os.fspath(site.precious))
        path.write_bytes(data)
        self.said.append(f"{path.parent.parent.name}: {done}")
        verb = self.rng.choice(VERBS)
        wrong = self._verbs(site, [verb])
        if not wrong and verb != "purge" and path.exists() and path.read_bytes() == data:
            path.write_bytes(sound)  # nothing was done: with the sound journal all is as it was
            return self._way_back(site)
        return wrong

    def _planted(self, site: Site) -> str:
        self._begin(site)
        done, away = plant(site, self.rng)
        self.said.append(done)
        verb = self.rng.choice(VERBS)
        wrong = self._verbs(site, [verb])
        if wrong:
            return wrong
        with contextlib.suppress(FileNotFoundError):  # krepair has removed the folder that it lay in
            away()
        return "" if verb == "purge" else self._way_back(site)

    def _raced(self, site: Site) -> str:
        self._begin(site)
        verb = self.rng.choice(VERBS)
        calls = len(self.wanted.calls.get(verb, self.wanted.calls["apply"]))

        def meanwhile() -> None:
            done, _ = plant(site, self.rng)
            self.said.append(f"meanwhile {done}")

        return self._verbs(site, [f"{verb}~{self.rng.randint(1, calls)}"], meanwhile)

    def _verbs(self, site: Site, words: list[str], meanwhile: Callable[[], None] | None = None) -> str:
        for word in words:
            before = visible(look_beside_traps(site.placed.path))
            ended = self.run(site, word, meanwhile)
            if ended.code not in _ENDS:
                return f"{word} ended with {ended.code}, which it never may: {ended.last_words()}"
            broken = site.broken()
            if broken:
                return f"{word} ended with {ended.code}, and outside of the log directory:\n{broken}"
            if ended.code in _UNCHANGED and meanwhile is None:
                changed = differences(visible(look_beside_traps(site.placed.path)), before)
                if changed:
                    return f"{word} ended with {ended.code}: nothing was changed; but:\n{changed}"
        return ""

    def _way_back(self, site: Site) -> str:
        """Check that with the sound files back undo restores the original tree, or refuses and keeps every original."""
        ended = self.run(site, "undo")
        if ended.code not in _ENDS:
            return f"undo ended with {ended.code}, which it never may: {ended.last_words()}"
        now = look_beside_traps(site.placed.path)
        purged = any(text.startswith("purge: exit 0") for text in self.said)
        if ended.code == 0 and not purged:
            aside = () if not self.not_put_back else (CLEAN_MARKER, POINTS)
            trees = [
                {name: entry for name, entry in visible(tree).items() if name not in aside}
                for tree in (now, self.wanted.before)
            ]
            wrong = differences(*trees)
            return f"undo ended with 0, but:\n{wrong}" if wrong else ""
        return "" if purged else self._lost(now)

    def _lost(self, tree: Tree) -> str:
        """Return an original log without any copy in the log directory."""
        there = {entry.content for entry in tree.values()}
        for name, entry in self.wanted.before.items():
            if name.endswith(".log") and entry.content not in there and name not in self._mended():
                return f"{name} is lost: no file has its bytes"
        return ""

    def _mended(self) -> set[str]:
        """Return logs that lose bytes at their end, which are kept separately."""
        return {
            f"{part.folder}/{file.name}"
            for part in self.scene.plan.partitions
            for file in part.files
            if any(type(change).__name__ == "MendLog" for change in part.changes)
        }


def look_beside_traps(root: Path) -> Tree:
    """Read the tree without pipes, devices, sockets and endless files."""

    def is_trap(path: str) -> bool:
        status = os.lstat(path)
        plain = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
        return not plain or status.st_size >= _HUGE

    return look(root, without=is_trap)


def cases(unit: str, wanted: Wanted, samples: float | None) -> Iterator[str]:
    """Yield the cases of a unit, ``scene:seed:kind``: ``CASES``, or the given number."""
    del wanted
    kind = unit.rpartition(":")[2]
    return (f"{kind}:{number}" for number in range(max(1, int(samples)) if samples else CASES))


def try_case(runner: Runner, scene: Scene, wanted: Wanted, steps: str, work: Path) -> Tried:
    """Run one case in a folder of its own; of everything in it its name is the seed."""
    kind = steps.partition(":")[0]
    with case_folder(work) as folder:
        case = Case(runner, scene, wanted, kind, f"{scene.name}:{scene.seed}:{steps}")
        return Tried(1, case.tried(folder))


_PART = Part(
    lambda name: KINDS,
    cases,
    try_case,
    lambda steps: f"{steps.partition(':')[0]} cases",
    scenes=SCENES,
    sequences=False,
)
run, replay = _PART.run, _PART.replay
