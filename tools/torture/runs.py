"""Runs verbs of krepair on a scene, in processes that are killed or whose calls fail, and checks the resulting tree.

A case is written as steps, one verb each, so that a line tells all of it and it can be run again:

    apply@17b.undo          apply is killed right before its 17th file-changing call, then undo runs undisturbed
    apply.undo@3a.undo      ... right after it; t: in the middle of it, half of the bytes are written
    apply@5rb               right before its 5th rename
    apply!9ENOSPC1.apply    the 9th of the calls that may fail so fails with ENOSPC, once
    apply!9EIO*.undo        that one and all later ones of these kinds
    apply!9EINTR3.undo      that one and the next two
    apply!9short1.undo      only half of the bytes are moved, once (``*``: by all later ones too)
    apply!9shortENOSPC*     half of the bytes, then the disk is full
    apply!9fsyncEIO1        the 9th fsync fails
    apply~17                apply sleeps right before its 17th call, also of those that only look: see ``Runner.run``
    apply^17b               the installed command is killed, not a fork of a warmed process
    purge?                  may refuse, with a documented exit code
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from krepair.plan.keep import UNTIL_VERIFIED
from tools.torture import faults
from tools.torture.faults import CHANGING, Call, Control, Fault, Kind, Mode, mask
from tools.torture.scenes import (
    CHECKPOINT,
    LOCK,
    MEMORY,
    PRIVATE,
    SCENES,
    Placed,
    Scene,
    Seen,
    Tree,
    build,
    differences,
    every_keep,
    look,
    private,
    visible,
)
from tools.torture.state import State

_HANGS_AFTER_S: Final = 60
DOCUMENTED: Final = frozenset({0, 3, 4, 11, 12, 13, 14, 15, 16, 17})
"""Exit codes that apply, undo and purge of a sound plan may end with: see ``krepair.errors``; 1 is a bug."""

SAYS_UNCHANGED: Final = frozenset({11, 12, 13, 15, 17})
"""Exit codes of verbs that have changed nothing that a broker sees."""

_KILLS: Final = {"b": Mode.KILL_BEFORE, "a": Mode.KILL_AFTER, "t": Mode.KILL_TORN}
_STEP: Final = re.compile(
    r"(?P<verb>apply|undo|purge|verify)"
    r"(?:(?P<how>[@^!])(?P<number>\d+)(?:(?P<renames>r?)(?P<kill>[bat])|(?P<only>fsync|short)?(?P<error>E[A-Z]+)?(?P<often>[1*3]))"
    r"|~(?P<pause>\d+))?"
    r"(?P<may_refuse>\??)"
)
_TAKES_SPACE: Final = mask(
    Kind.CREATE, Kind.WRITE, Kind.TRUNCATE, Kind.RENAME, Kind.LINK, Kind.FSYNC, Kind.MKDIR, Kind.COPY,
    Kind.SETXATTR, Kind.ALLOCATE, Kind.SYMLINK,
)  # fmt: skip
_BY_NAME: Final = mask(
    Kind.CREATE, Kind.RENAME, Kind.LINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR, Kind.CHMOD, Kind.CHOWN,
    Kind.UTIMES, Kind.SETXATTR, Kind.SYMLINK, Kind.OPEN, Kind.OPENWRITE, Kind.STAT, Kind.LISTDIR, Kind.ACCESS,
    Kind.GETXATTR, Kind.READLINK,
)  # fmt: skip
_WAITS: Final = mask(
    Kind.CREATE,
    Kind.OPEN,
    Kind.OPENWRITE,
    Kind.READ,
    Kind.WRITE,
    Kind.FSYNC,
    Kind.TRUNCATE,
    Kind.LOCK,
    Kind.COPY,
)
MAY_FAIL: Final = {
    "ENOSPC": _TAKES_SPACE,
    "EDQUOT": _TAKES_SPACE,
    "EIO": faults.ALL_KINDS & ~mask(Kind.LOCK, Kind.STATVFS, Kind.ACCESS),
    "EROFS": (CHANGING | mask(Kind.OPENWRITE)) & ~mask(Kind.FSYNC, Kind.SYNCFS),
    "EACCES": _BY_NAME,
    "EPERM": mask(Kind.CHMOD, Kind.CHOWN, Kind.UTIMES, Kind.LINK, Kind.SETXATTR, Kind.RENAME, Kind.UNLINK),
    "EINTR": _WAITS,
    "EMFILE": mask(Kind.CREATE, Kind.OPEN, Kind.OPENWRITE),
}
"""Which kinds of calls can really end so, per errno: a table of man pages 2."""
MOVES_BYTES: Final = mask(Kind.READ, Kind.WRITE, Kind.COPY)


class Step(NamedTuple):
    """One verb, and what befalls it.

    Attributes:
        verb: ``apply``, ``undo``, ``purge`` or ``verify``.
        fault: fault that is injected, None for none.
        installed: true if the installed command is run instead of a fork.
        may_refuse: true if an exit code other than 0 is right, too.
        text: step as written in a case.
    """

    verb: str
    fault: Fault | None
    installed: bool
    may_refuse: bool
    text: str

    @property
    def kills(self) -> bool:
        """True if the process is to be killed."""
        return self.fault is not None and self.fault.mode in _KILLS.values()

    @property
    def takes_the_disk_away(self) -> bool:
        """True if no file can be removed from some call on: later steps find the files that exist then."""
        fault = self.fault
        return (
            fault is not None
            and fault.mode is Mode.FAIL_FOREVER
            and bool(fault.failing & mask(Kind.UNLINK) and fault.failing & mask(Kind.CHOWN))
        )


def parse_step(text: str) -> Step:
    """Read one step.

    Raises:
        ValueError: it is none.
    """
    match = _STEP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no step; as apply@17b, undo!9EIO1 or purge")
    verb, how, number = match["verb"], match["how"], int(match["number"] or 0)
    may_refuse = bool(match["may_refuse"])
    if match["pause"]:
        return Step(
            verb, Fault(Mode.PAUSE, int(match["pause"]), 0, faults.ALL_KINDS), False, may_refuse, text
        )
    if how is None:
        return Step(verb, None, False, may_refuse, text)
    if match["kill"]:
        counted = mask(Kind.RENAME) if match["renames"] else CHANGING
        fault = Fault(_KILLS[match["kill"]], number, 0, counted)
        return Step(verb, fault, how == "^", may_refuse, text)
    name, only, often = match["error"] or "", match["only"], match["often"]
    if not name and only != "short":
        raise ValueError(f"{text!r}: which errno?")
    kinds = counted = MAY_FAIL[name] if name else MOVES_BYTES
    mode = {"1": Mode.FAIL_ONCE, "3": Mode.FAIL_THRICE, "*": Mode.FAIL_FOREVER}[often]
    if only == "fsync":
        kinds = counted = mask(Kind.FSYNC)
    elif only == "short":
        counted = MOVES_BYTES
        mode = Mode.SHORT_ONCE if often == "1" else Mode.SHORT_FOREVER
        mode = Mode.SHORT_THEN_FAIL if name else mode
    return Step(verb, Fault(mode, number, getattr(errno, name, 0), counted, kinds), False, may_refuse, text)


def parse_steps(text: str) -> list[Step]:
    """Read the steps of a case, divided by dots."""
    return [parse_step(word) for word in text.split(".")]


@dataclass
class Ended:
    """Result of a verb's run.

    Attributes:
        step: step that was run.
        code: exit code, or minus the number of the signal that ended it.
        output: text that it printed.
        calls: calls that it made below the log directory.
        happened: true if the injected fault happened.
        count: number of calls that were counted.
    """

    step: Step
    code: int
    output: str
    calls: list[Call] = field(repr=False)
    happened: bool
    count: int

    @property
    def killed(self) -> bool:
        """True if the process was killed."""
        return self.code == -signal.SIGKILL

    def says(self) -> str:
        """Its error messages, on a few lines."""
        lines = [line for line in self.output.splitlines() if line.startswith(("krepair:", "next:"))]
        with contextlib.suppress(ValueError, KeyError, TypeError):
            document = json.loads(self.output[self.output.index("{") : self.output.rindex("}") + 1])
            results = document.get("report", document).get("results", [])
            lines += [
                f"  {result['change_id']}: {result['outcome']} {result['why']}"
                for result in results
                if result.get("why")
            ]
        return "\n".join(dict.fromkeys(lines[:8])) or self.output[-500:]

    def last_words(self) -> str:
        """The error by which krepair itself ended, and where it was raised."""
        frames = re.findall(r'File "[^"]*/(krepair/[^"]*)", line (\d+), in (\w+)', self.output)
        error = next((line for line in self.output.splitlines() if line.startswith("krepair: ")), "no word")
        error = re.sub(r"'/[^']*/([^/']*)'", r"'\1'", error.partition("please report it: ")[2] or error)
        return f"{error} ({' < '.join(f'{path}:{line} {name}' for path, line, name in frames[:-5:-1])})"

    def __str__(self) -> str:
        """One line, and what it said where that matters."""
        end = f"signal {-self.code}" if self.code < 0 else f"exit {self.code}"
        hit = next((call for call in self.calls if call.number and self._is_hit(call)), None)
        where = f" at: {hit}" if hit is not None and self.happened else ""
        text = f"\n{self.says()}" if self.code > 0 else ""
        return f"{self.step.text}: {end}{where}{text}"

    def _is_hit(self, call: Call) -> bool:
        return self.step.fault is not None and call.number == self.step.fault.number


class Runner:
    """Runs verbs; the process has to be under a control block (``faults.start_again``).

    A verb that something is to befall runs in a fork. One that nothing befalls runs right here, which is twice as
    fast, unless ``fork_all`` is set, as it is in replays.
    """

    fork_all = False

    def __init__(self) -> None:
        if not faults.takes_part():
            raise RuntimeError("this process was not started under LD_PRELOAD; see faults.start_again")
        self.control = faults.own_control()
        os.environ["KREPAIR_DEBUG"] = "1"
        self._warm = False

    def warm_up(self, scenes: list[Scene], work: Path) -> None:
        """Import and compile everything that the verbs on these scenes need, so that forks find it."""
        for scene in scenes:
            with _folder(work) as folder:
                placed = scene.place(folder)
                for verb in ("apply", "undo", "apply", "purge"):
                    self._here(placed, verb)
        gc.collect()
        gc.freeze()

    def run(
        self,
        placed: Placed,
        step: Step,
        *,
        record: bool = False,
        meanwhile: Callable[[], None] | None = None,
        first: Callable[[], None] | None = None,
    ) -> Ended:
        """Run a verb on a placed scene.

        Args:
            placed: scene on its file system.
            step: verb and fault.
            record: keep the calls of a verb that nothing befalls, too.
            meanwhile: called here while the verb sleeps, see ``apply~17``.
            first: called in the fork before the verb begins.
        """
        self.control.set(placed.path, step.fault or Fault())
        watched = record or step.fault is not None or first is not None
        if step.installed:
            code, output = self._installed(placed, step)
        elif watched or self.fork_all:
            code, output = self._forked(placed, step, watched, meanwhile, first)
        else:
            code, output = self._here(placed, step.verb)
        self.control.disarm()
        calls = self.control.calls() if watched else []
        return Ended(step, code, output, calls, self.control.happened, self.control.count)

    def _here(self, placed: Placed, verb: str) -> tuple[int, str]:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            code = run_here(_arguments(verb, placed))
        return code, out.getvalue()

    def _forked(
        self,
        placed: Placed,
        step: Step,
        watched: bool,
        meanwhile: Callable[[], None] | None,
        first: Callable[[], None] | None,
    ) -> tuple[int, str]:
        output = os.memfd_create("output")
        try:
            child = os.fork()
            if child == 0:
                self._live(placed, step.verb, output, watched, first)
            _, status = os.waitpid(child, os.WUNTRACED)
            while os.WIFSTOPPED(status):
                try:
                    if meanwhile is not None:
                        meanwhile()
                finally:
                    os.kill(child, signal.SIGCONT)
                _, status = os.waitpid(child, os.WUNTRACED)
            code = os.waitstatus_to_exitcode(status)
            os.lseek(output, 0, os.SEEK_SET)
            with os.fdopen(os.dup(output), "rb") as file:
                return code, file.read().decode(errors="replace")
        finally:
            os.close(output)

    def _live(
        self, placed: Placed, verb: str, output: int, watched: bool, first: Callable[[], None] | None
    ) -> None:
        """Run the fork's part of a case."""
        code = 1
        try:
            signal.alarm(_HANGS_AFTER_S)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), write_through=True)
            if first is not None:
                first()
            if watched:
                self.control.arm()
            code = run_here(_arguments(verb, placed))
        finally:
            self.control.disarm()
            os._exit(code)

    def _installed(self, placed: Placed, step: Step) -> tuple[int, str]:
        control = Path(f"{self.control.path}-installed")
        own = Control(control)
        try:
            own.set(placed.path, step.fault or Fault())
            own.arm()
            done = subprocess.run(
                [*installed_command(), *_arguments(step.verb, placed)],
                env=faults.environment(control) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                capture_output=True,
                text=True,
                check=False,
                timeout=_HANGS_AFTER_S * 5,
            )
            own.disarm()
            self.control.copy_of(own)
        finally:
            control.unlink()
        return done.returncode, done.stdout + done.stderr


def installed_command() -> list[str]:
    """Return the path of the command ``krepair`` of this environment."""
    beside = Path(sys.executable).with_name("krepair")
    if beside.exists():
        return [str(beside)]
    return [sys.executable, "-m", "krepair"]


def _arguments(verb: str, placed: Placed) -> list[str]:
    plan = placed.by or (str(placed.plan_file),)
    return [verb, *plan, *inline(verb), "--json"]


def inline(verb: str) -> tuple[str, ...]:
    """Return the options that keep a verb from using Spark; ``purge`` never does."""
    return () if verb == "purge" else ("--engine", "inline")


@functools.cache
def _command() -> Callable[[list[str]], object]:
    """Return the command line's own object; typer needs 10 ms to build it from the signatures, so build it once."""
    import typer.main

    from krepair.cli.main import app

    return typer.main.get_command(app)


def run_here(words: list[str]) -> int:
    """Run a command in this process, through the command line's own code; gives its exit code."""
    try:
        _command()(words)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


@contextlib.contextmanager
def _folder(work: Path) -> Iterator[Path]:
    """Create a folder for one case and remove it afterwards; always with the same name, so that messages compare."""
    folder = Path(tempfile.mkdtemp(prefix="case-", dir=work))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


case_folder = _folder


class Wanted(NamedTuple):
    """Expected trees of a scene, from runs without any fault.

    Attributes:
        before: whole tree, as it was written.
        applied: tree after apply, as a broker sees it.
        purged: whole tree after apply and purge.
        counts: verb -> calls that change files, when nothing befalls it (purge and undo after apply). Where apply frees
            originals, undo takes back only the changes that keep theirs.
        calls: the same, one by one, with those that only look.
    """

    before: Tree
    applied: Tree
    purged: Tree
    counts: dict[str, int]
    calls: dict[str, list[Call]]


def find_wanted(runner: Runner, scene: Scene, work: Path) -> Wanted:
    """Run the verbs on a scene undisturbed.

    Raises:
        AssertionError: one of them fails, or undo does not give the scene back.
    """
    counts: dict[str, int] = {}
    calls: dict[str, list[Call]] = {}

    def run(placed: Placed, verb: str) -> Ended:
        ended = runner.run(placed, Step(verb, None, False, False, verb), record=True)
        counts[verb], calls[verb] = ended.count, ended.calls
        frees = verb == "undo" and scene.keep == UNTIL_VERIFIED
        assert frees or ended.code == 0, f"{scene.name}, seed {scene.seed}, undisturbed: {ended}"
        return ended

    with _folder(work) as folder:
        placed = scene.place(folder)
        before = look(placed.path)
        run(placed, "apply")
        applied = look(placed.path)
        if run(placed, "undo").code == 0:
            after = look(placed.path)
            assert after == before, f"{scene.name}, seed {scene.seed}: undo:\n{differences(after, before)}"
    with _folder(work) as folder:
        placed = scene.place(folder)
        run(placed, "apply")
        run(placed, "purge")
        purged = look(placed.path)
    return Wanted(before, visible(applied), purged, counts, calls)


def without_lock(tree: Tree) -> Tree:
    """Return the tree without ``.lock``."""
    return {name: entry for name, entry in tree.items() if name != LOCK}


def judge_lock(tree: Tree, wanted: Wanted) -> str:
    """Return faults of ``.lock``: an existing one stays as it was; a crash may leave one that the broker accepts."""
    have, was = tree.get(LOCK), wanted.before.get(LOCK)
    if was is not None:
        return "" if have == was else f".lock is {have}, was {was}"
    if have is None:
        return ""
    owner = wanted.before["."].owner
    if have.owner != owner or have.mode & 0o600 != 0o600:
        text = f"was left behind with owner {have.owner}, mode {have.mode & 0o7777:o}"
        return f".lock {text}: a broker of {owner} may not be able to open it"
    return ""


def judge_snapshots(tree: Tree, wanted: Wanted) -> str:
    """Return faults of a tree with some changes made and others not: files that are neither old nor new.

    In a checkpoint of the root each partition has its line, which waits for the changes of that partition alone.
    """
    have, old = visible(tree), visible(wanted.before)
    names = sorted(have.keys() | old.keys() | wanted.applied.keys())
    odd = [
        name
        for name in names
        if have.get(name) not in (old.get(name), wanted.applied.get(name))
        and not _is_mixed(have.get(name), old.get(name), wanted.applied.get(name), name)
    ]
    return differences(
        {name: have[name] for name in odd if name in have}, {name: old[name] for name in odd if name in old}
    )


def _is_mixed(have: Seen | None, old: Seen | None, new: Seen | None, name: str) -> bool:
    """Return whether each line of a root checkpoint is its old or its new one, and all else is unchanged."""
    if not name.endswith(CHECKPOINT) or have is None or old is None or new is None:
        return False
    if have._replace(content="") not in (old._replace(content=""), new._replace(content="")):
        return False
    lines, before, after = (
        dict(line.rpartition(" ")[::2] for line in entry.content.splitlines()[2:])
        for entry in (have, old, new)
    )
    keys = lines.keys() | before.keys() | after.keys()
    return all(lines.get(key) in (before.get(key), after.get(key)) for key in keys)


def judge_end(ended: Ended, tree: Tree, wanted: Wanted) -> str:
    """Return faults after a verb that ended: exit 0 promises a tree, any other code must be documented.

    Args:
        ended: result of the verb.
        tree: tree of the log directory.
        wanted: expected trees of the scene.
    """
    if ended.code not in DOCUMENTED:
        return f"{ended.step.verb} ended with {ended.code}, which it never may: {ended.last_words()}"
    if ended.code:
        return ""
    verb = ended.step.verb
    if verb == "apply":
        wrong = differences(visible(tree), wanted.applied) or judge_owners(tree)
    elif verb == "undo":
        wrong = differences(without_lock(tree), without_lock(wanted.before))
    elif private(tree):
        wrong = f"still there: {', '.join(private(tree)[:3])}"
    elif visible(tree) == visible(wanted.purged):
        wrong = differences(without_lock(tree), without_lock(wanted.purged))
    else:
        wrong = judge_snapshots(tree, wanted)  # not everything of the plan was applied when purge came
    return f"{verb} ended with 0, but:\n{wrong}" if wrong else ""


def judge_owners(tree: Tree) -> str:
    """Return krepair's own folders and files that the broker's user does not own, and could not undo or purge.

    Originals that are kept have owners of their own.
    """
    wrong = []
    for name in private(tree):
        holder, _, inside = name.partition(f"/{PRIVATE}")
        is_folder = stat.S_ISDIR(tree[name].mode)
        if not is_folder and any(f"/{kept}/" in inside for kept in ("keep", "fence", "out", "stage")):
            continue
        if tree[name].owner != tree[holder].owner or (is_folder and tree[name].mode & 0o700 != 0o700):
            wrong.append(f"{name}: owner {tree[name].owner}, mode {tree[name].mode & 0o7777:o}")
    return "\n".join(wrong[:6])


def judge_unchanged(ended: Ended, tree: Tree, before: Tree) -> str:
    """Return faults after a verb whose exit code says that nothing was changed."""
    changed = differences(visible(tree), visible(before)) if ended.code in SAYS_UNCHANGED else ""
    return (
        f"{ended.step.verb} ended with {ended.code}: nothing was changed; but:\n{changed}" if changed else ""
    )


def plainly(text: str, placed: Placed) -> str:
    """Return the text without parts that differ from run to run."""
    return text.replace(f"{placed.path}/", "").replace(placed.plan.plan_id, "ID")


def memory_or(folder: Path | None) -> Path:
    """Return the folder for cases: in memory unless another file system is requested."""
    if folder is not None:
        return folder
    return Path(MEMORY) if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


class Tried(NamedTuple):
    """Result of one case.

    Attributes:
        hits: number of processes killed, or of calls failed.
        wrong: faults, empty if there are none.
    """

    hits: int
    wrong: str


class Part(NamedTuple):
    """A part whose cases are steps in a scene; a unit is ``scene:seed:`` and what is done there.

    Attributes:
        units: names of the units of a scene.
        cases: the steps of each case of a unit; at ``state.samples`` calls, or at each.
        try_case: runs one in a folder of its own.
        counts: name of the figure that sums the hits of a case, by its steps.
        scenes: names of those that are tried; each of ``SCENES``, with each ``--keep``, unless given.
        sequences: true if cases are counted, too.
    """

    units: Callable[[str], Iterable[str]]
    cases: Callable[[str, Wanted, float | None], Iterator[str]]
    try_case: Callable[[Runner, Scene, Wanted, str, Path], Tried]
    counts: Callable[[str], str]
    scenes: tuple[str, ...] = ()
    sequences: bool = True

    def run(self, seeds: range, workdir: Path, state: State) -> None:
        """Try every unit of every scene."""
        runner, warm = Runner(), False
        for seed in seeds:
            for name in self.scenes or every_keep(SCENES):
                units = [f"{name}:{seed}:{unit}" for unit in self.units(name)]
                remaining = [unit for unit in units if not state.is_done(unit)]
                if not remaining or state.time_is_up():
                    continue
                if not warm:
                    runner.warm_up([build(each) for each in self.scenes or SCENES], workdir)
                    warm = True
                scene = build(name, seed)
                wanted = find_wanted(runner, scene, workdir)
                for unit in remaining:
                    if state.time_is_up():
                        break
                    figures: Counter[str] = Counter()
                    for steps in self.cases(unit, wanted, state.samples):
                        tried = self.try_case(runner, scene, wanted, steps, workdir)
                        figures[self.counts(steps)] += tried.hits
                        if self.sequences:
                            figures["sequences"] += 1
                        if tried.wrong:
                            state.wrong(f"{name}:{seed}:{steps}", tried.wrong)
                    state.keep(unit, figures)

    def replay(self, case: str, workdir: Path) -> list[str]:
        """Run one case again; gives what is wrong, and how each of its steps ended."""
        name, seed, steps = case.split(":", 2)
        runner, scene = Runner(), build(name, int(seed))
        runner.fork_all = True
        runner.warm_up([scene], workdir)
        tried = self.try_case(runner, scene, find_wanted(runner, scene, workdir), steps, workdir)
        return [tried.wrong] if tried.wrong else []
