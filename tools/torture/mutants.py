"""Mutation testing: which small changes of the code does no test notice?

    python -m tools.torture.mutants rules                  every mutant of krepair/rules, from where it was stopped
    python -m tools.torture.mutants rules --sample 300     a seeded sample of them
    python -m tools.torture.mutants rules --id ID          one mutant again: what it is, and which test kills it
    python -m tools.torture.mutants --report               the table of figures, and what survives without an argument

    python -m tools.torture.mutants rules --again          those that have survived, after tests were added
    python -m tools.torture.mutants rules --wide           the same by more tests, which take seconds each
    python -m tools.torture.mutants journal --syncs        those that leave out a sync, by simulated power losses

Why an own runner. cosmic-ray starts the test command anew for each mutant, and mutmut 3 forks but has pytest collect
anew: here imports, collection and compiled kernels take seconds, for tests that take milliseconds. mutmut 3 changes
only what is inside of functions. This runner imports and collects once, learns which tests run which line, and forks
for each mutant: the child exchanges the code of one function, runs the tests of that line, those that killed its
neighbours and then the fastest first, and stops at the first failure. Most killed mutants take 0.2 to 0.5 seconds on a
busy machine; one that lives takes as long as its tests, up to a limit. What runs on import (constants, defaults,
fields) cannot be exchanged after the fact; for it a new process is started with the changed source.

What counts as killed: a test fails, or takes more than five times its processor time and three seconds. Tests against
real brokers, with Spark, or of elapsed time take no part (``NEITHER`` and ``Target.deselect``), and what only they
notice counts as survived. Survivors are listed with an argument each in ``survivors.json``; one without is the work to
do, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings

from tools.torture.mutation import MODULE, Mutant, changed_lines, mutants, mutated

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".torture" / "mutants"
SURVIVORS = Path(__file__).with_name("survivors.json")
HERE = "tools.torture.mutants"
ENV_MUTANT = "KREPAIR_MUTANT"
NEITHER = "not broker and not spark"
"""Marks of tests that take part: a JVM survives no fork, and costs more than it would find here."""

CPU_FACTOR = 5
CPU_GRACE_S = 3.0
MOST_TEST_S = 20.0
"""No mutant is tried on more than this much of test time, unless ``--seconds`` says another."""
CHEAP_S = 0.1
MEMORY_GRACE_BYTES = 4 << 30
MOST_EXAMPLES = 40
"""Of a property: some ask for hundreds, and a mutant that lives pays for all of them."""
SETTINGS = "_hypothesis_internal_use_settings"
PR_SET_PDEATHSIG = 1
COLD_MOST_S = 180
RUNNING = "running"
"""File in a child's folder that names the test it is at."""


class Target(NamedTuple):
    """What is mutated, and by which tests it is judged.

    Attributes:
        sources: files or folders.
        tests: files or folders.
        wide: more of them, which take seconds each; with ``--wide`` those that survive the others are tried on them.
        deselect: name parts of tests that take no part: they measure elapsed time.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    wide: tuple[str, ...] = ()
    deselect: tuple[str, ...] = ("in_time",)


TARGETS = {
    "rules": Target(
        ("krepair/rules",),
        (
            "tests/rules",
            "tests/formats/test_offset_lines.py",
            *(
                f"tests/replicas/test_{name}.py"
                for name in ("compare", "compacted", "cut", "pairs", "pending_swaps", "running_side")
            ),
        ),
        ("tests/plan", "tests/checks", "tests/compaction", "tests/ops"),
    ),
    "review": Target(
        ("krepair/plan/actions", "krepair/plan/review.py", "krepair/plan/planfile.py"),
        ("tests/plan",),
        ("tests/ops", "tests/hostile"),
    ),
    "audits": Target(
        (
            "krepair/checks/audit.py",
            "krepair/checks/companions.py",
            "krepair/checks/index_findings.py",
            "krepair/checks/index_judge.py",
            "krepair/pipeline/rewrite/compare.py",
            "krepair/pipeline/readings",
            "krepair/pipeline/rewrite/verify.py",
        ),
        ("tests/checks", "tests/pipeline/test_verify.py", "tests/readings"),
        ("tests/pipeline", "tests/ops"),
    ),
    "journal": Target(
        ("krepair/journal",),
        (
            "tests/journal",
            "tests/formats/test_offset_lines.py",
            *(
                f"tests/ops/test_{name}.py"
                for name in (
                    "durable",
                    "half_done",
                    "contents_decide",
                    "users",
                    "kept",
                    "barriers",
                    "resume",
                    "came_since",
                    "moved",
                )
            ),
        ),
        # the power losses are in this process; what runs krepair as another program cannot see an exchanged function
        ("tests/torture/test_power_loss.py", "tests/ops", "tests/hostile"),
        ("in_time", "test_histories", "left_out_is_missed", "stand_in_for_each_other"),
    ),
    "durable": Target(
        ("krepair/durable",),
        (
            "tests/durable",
            "tests/hostile/test_links.py",
            "tests/ops/test_users.py",
            "tests/logdir/test_lock.py",
        ),
        ("tests/torture/test_power_loss.py", "tests/journal", "tests/ops"),
        ("in_time", "test_histories", "left_out_is_missed", "stand_in_for_each_other"),
    ),
}


class Result(NamedTuple):
    """What became of a mutant: ``killed``, ``timeout``, ``survived`` or ``unrun`` (no test runs its line)."""

    outcome: str
    by: str = ""
    tests: int = 0
    seconds: float = 0.0


KILLED = frozenset({"killed", "timeout"})


def source_files(target: Target) -> list[str]:
    """The modules of a target, those of the packages in it too, relative to the root."""
    found: list[str] = []
    for source in target.sources:
        place = ROOT / source
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        found += [str(file.relative_to(ROOT)) for file in files]
    return found


def module_of(path: str) -> str:
    """Dotted name of a file of the project."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def mutants_of(target: Target) -> list[Mutant]:
    """Every mutant of a target."""
    found: list[Mutant] = []
    for path in source_files(target):
        found += mutants((ROOT / path).read_text(), path, module_of(path))
    return found


# -- results ---------------------------------------------------------------------------------------------------------


class State:
    """Results on disk, a line each; the last line of an id counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError):  # the last line of a run that was stopped
                    entry = json.loads(line)
                    fields = {name: entry[name] for name in Result._fields}
                    self.results[entry["id"]] = Result(**fields)

    def note(self, mutant_id: str, result: Result) -> None:
        """Keep one result."""
        self.results[mutant_id] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(
                json.dumps({"id": mutant_id, "at": time.strftime("%Y-%m-%d"), **result._asdict()}) + "\n"
            )


def state_of(name: str, kept: Path = STATE) -> State:
    """The results of a target, from the folder in which they are kept."""
    return State(kept / f"{name}.jsonl")


# -- one warmed process ----------------------------------------------------------------------------------------------


class Learned(NamedTuple):
    """What one run of all tests without a mutant has shown.

    Attributes:
        seconds: processor time by test.
        lines: (path, line) -> tests that run it.
        failed: tests that do not pass without a mutant; they take no part.
    """

    seconds: dict[str, float]
    lines: dict[tuple[str, int], set[str]]
    failed: set[str]


class Runner:
    """A pytest plugin that, instead of the usual loop, tries mutants in forks."""

    def __init__(
        self,
        target: Target,
        wanted: Sequence[Mutant],
        state: State,
        *,
        tell: bool,
        seconds: float = MOST_TEST_S,
    ) -> None:
        self.target = target
        self.seconds = seconds
        self.wanted = wanted
        self.state = state
        self.tell = tell
        self.killers: dict[str, list[str]] = defaultdict(list)
        self.failure = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what measures time, and let no property take too many examples."""
        items[:] = [item for item in items if not any(part in item.nodeid for part in self.target.deselect)]
        for item in items:
            test = getattr(item, "obj", None)
            asked = getattr(test, SETTINGS, None)
            if asked is not None and asked.max_examples > MOST_EXAMPLES:
                getattr(test, "__func__", test).__dict__[SETTINGS] = settings(
                    asked, max_examples=MOST_EXAMPLES
                )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first test that fails."""
        if report.failed and not self.failure:
            self.failure = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Learn, then try every mutant that is wanted."""
        self.items = {item.nodeid: item for item in session.items}
        self.session = session
        started = time.monotonic()
        learned = self._learn()
        print(f"{len(self.items)} tests without a mutant: {time.monotonic() - started:.0f} s", flush=True)
        if learned.failed:
            print(f"not green without a mutant, so they take no part: {sorted(learned.failed)}")
        functions = _functions({str(ROOT / path) for path in source_files(self.target)})
        self.caches = _caches()
        gc.collect()
        gc.freeze()
        started = time.monotonic()
        for number, mutant in enumerate(self.wanted, start=1):
            result = self._try(mutant, learned, functions)
            self.state.note(mutant.id, result)
            if result.outcome in KILLED and result.by:
                killers = self.killers[mutant.site.function]
                if result.by in killers:
                    killers.remove(result.by)
                killers.insert(0, result.by)
            if self.tell or result.outcome not in KILLED:
                print(
                    f"{result.outcome:9}{mutant.id} {mutant.path}:{mutant.site.line} {result.by}", flush=True
                )
            if number % 100 == 0:
                rate = number / (time.monotonic() - started)
                print(f"{number} of {len(self.wanted)}, {rate:.1f} a second", flush=True)
        return True

    def _learn(self) -> Learned:
        """Run every test once, each line of the target's modules noted."""
        learned = Learned({}, defaultdict(set), set())
        wanted = {str(ROOT / path): path for path in source_files(self.target)}
        order = list(self.items.values())
        for place, item in enumerate(order):
            seen: set[tuple[str, int]] = set()
            self.failure = ""
            before = time.process_time()
            # the first item comes next after the last, so that what the session shares stays ready for the forks
            following = order[place + 1] if place + 1 < len(order) else order[0]
            with _lines_noted(wanted, seen):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            learned.seconds[item.nodeid] = time.process_time() - before
            if self.failure:
                learned.failed.add(item.nodeid)
                continue
            for line in seen:
                learned.lines[line].add(item.nodeid)
        self.failure = ""
        return learned

    def _tests_for(self, mutant: Mutant, learned: Learned) -> list[str]:
        if mutant.site.function == MODULE:
            chosen = {
                test for (path, _), tests in learned.lines.items() if path == mutant.path for test in tests
            }
            # a table is looked at by tests that run no line of its module
            chosen |= {test for test, spent in learned.seconds.items() if spent < CHEAP_S} - learned.failed
        else:
            rows = range(mutant.site.first, mutant.site.last + 1)
            chosen = {test for row in rows for test in learned.lines.get((mutant.path, row), ())}
        killers = self.killers[mutant.site.function]
        first = [test for test in killers[:5] if test in chosen]
        rest = sorted(chosen - set(first), key=lambda test: learned.seconds[test])
        out, spent = [], 0.0
        for test in [*first, *rest]:
            spent += learned.seconds[test]
            if spent > self.seconds and out:
                break
            out.append(test)
        return out

    def _try(self, mutant: Mutant, learned: Learned, functions: Functions) -> Result:
        tests = self._tests_for(mutant, learned)
        if not tests:
            return Result("unrun")
        source = (ROOT / mutant.path).read_text()
        if mutant.site.function == MODULE:
            return _try_cold(mutant, tests)
        code = compile(mutated(source, mutant.number), str(ROOT / mutant.path), "exec")
        new = _code_of(code, mutant.site.function)
        live = functions.get((str(ROOT / mutant.path), mutant.site.function), [])
        if new is None or not live:
            return _try_cold(mutant, tests)
        return self._forked(live, new, tests, {test: _most_s(learned.seconds[test]) for test in tests})

    def _forked(
        self, live: list[types.FunctionType], new: types.CodeType, tests: list[str], most_s: dict[str, float]
    ) -> Result:
        started = time.monotonic()
        folder = tempfile.mkdtemp(prefix="mutant-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                by = self._in_child(live, new, most_s, folder)
                os.write(writer, by.encode()[:4000])
            finally:
                os._exit(0)
        os.close(writer)
        _waited(child, 4 * sum(most_s.values()) + 60)
        with os.fdopen(reader, "rb") as pipe:
            by = pipe.read().decode()
        running = _read_or_empty(f"{folder}/{RUNNING}")
        shutil.rmtree(folder, ignore_errors=True)
        seconds = round(time.monotonic() - started, 3)
        if not by:  # killed by a limit before it could say anything
            return Result("timeout", running, len(tests), seconds)
        return Result("survived" if by == "-" else "killed", "" if by == "-" else by, len(tests), seconds)

    def _in_child(
        self, live: list[types.FunctionType], new: types.CodeType, most_s: dict[str, float], folder: str
    ) -> str:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        quiet = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(quiet, descriptor)
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_GRACE_BYTES,) * 2)
        factory = self.session.config._tmp_path_factory  # type: ignore[attr-defined]  # noqa: SLF001
        factory._basetemp = Path(folder)  # noqa: SLF001
        tempfile.tempdir = folder
        for function in live:
            function.__code__ = new
        for cached in self.caches:  # what was remembered before knows nothing of the change
            cached.cache_clear()
        chosen = [self.items[test] for test in most_s]
        running = os.open(f"{folder}/{RUNNING}", os.O_WRONLY | os.O_CREAT)
        for place, item in enumerate(chosen):
            os.pwrite(running, item.nodeid.encode().ljust(1000), 0)
            signal.setitimer(signal.ITIMER_PROF, most_s[item.nodeid])  # its signal ends the process
            following = chosen[place + 1] if place + 1 < len(chosen) else chosen[0]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failure:
                return self.failure
        return "-"


def _most_s(seconds: float) -> float:
    return CPU_FACTOR * seconds + CPU_GRACE_S


def _read_or_empty(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _waited(child: int, most_s: float) -> int:
    """The exit status of a child; after ``most_s`` of real time it is ended, with what it started."""
    end = time.monotonic() + most_s
    pause = 0.001
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


@contextlib.contextmanager
def _lines_noted(wanted: dict[str, str], seen: set[tuple[str, int]]) -> Iterator[None]:
    def local(frame: types.FrameType, event: str, _: Any) -> Any:
        if event == "line":
            seen.add((wanted[frame.f_code.co_filename], frame.f_lineno))
        return local

    def called(frame: types.FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename not in wanted:
            return None
        seen.add((wanted[frame.f_code.co_filename], frame.f_lineno))
        return local

    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(None)


Functions = dict[tuple[str, str], list[types.FunctionType]]


def _functions(files: set[str]) -> Functions:
    """Every live function of these files, decorated or not, by file and qualified name."""
    found: Functions = defaultdict(list)
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and thing.__code__.co_filename in files:
            found[thing.__code__.co_filename, thing.__code__.co_qualname].append(thing)
    return found


def _caches() -> list[Any]:
    """Every function of krepair that remembers what it has returned."""
    return [
        thing
        for thing in gc.get_objects()
        if isinstance(thing, functools._lru_cache_wrapper)  # noqa: SLF001
        and thing.__module__.startswith("krepair.")
    ]


def _code_of(code: types.CodeType, qualified: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_qualname == qualified:
                return constant
            if inner := _code_of(constant, qualified):
                return inner
    return None


# -- what runs on import ---------------------------------------------------------------------------------------------


def _try_cold(mutant: Mutant, tests: Sequence[str]) -> Result:
    """Try one mutant in a process of its own, which loads the changed source."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        arguments = [
            "-q",
            "-x",
            "-p",
            HERE,
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/t",
            "-m",
            NEITHER,
        ]
        env = {**os.environ, ENV_MUTANT: f"{mutant.path}:{mutant.number}", "PYTHONPATH": str(ROOT)}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *arguments, *tests],
                cwd=ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=COLD_MOST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Result("timeout", "", len(tests), round(time.monotonic() - started, 3))
    seconds = round(time.monotonic() - started, 3)
    if done.returncode == 0:
        return Result("survived", "", len(tests), seconds)
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Result("killed", failed[0] if failed else "import", len(tests), seconds)


class _ChangedLoader(importlib.machinery.SourceFileLoader):
    """Loads one module from its changed tree."""

    number = 0

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(mutated(Path(self.path).read_text(), self.number), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        if fullname != module_of(self.path):
            return None
        loader = _ChangedLoader(fullname, str(ROOT / self.path))
        loader.number = self.number
        return importlib.util.spec_from_file_location(fullname, str(ROOT / self.path), loader=loader)


def _quick_properties() -> None:
    """Properties find a counterexample the same way each time, and do not shrink it."""
    settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
    )
    settings.load_profile("mutants")


if ENV_MUTANT in os.environ:
    _path, _, _number = os.environ[ENV_MUTANT].rpartition(":")
    sys.meta_path.insert(0, _Finder(_path, int(_number)))


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """As a plugin: after the conftest has loaded its own profile, before test modules are imported."""
    _quick_properties()


# -- syncs -----------------------------------------------------------------------------------------------------------


def _sync_key(mutant: Mutant) -> str:
    """How the power-loss programme names the sync that a mutant leaves out; empty if it leaves out none."""
    site = mutant.site
    if site.operator != "statement removed" or "sync" not in site.before:
        return ""
    line = (ROOT / mutant.path).read_text().splitlines()[site.first - 1].partition("  #")[0].strip()
    return f"{mutant.path.removeprefix('krepair/')} {site.function}: {line}"


def try_by_power_loss(wanted: Sequence[Mutant], state: State, most_s: float) -> None:
    """Leave out the sync of each mutant in every scene and history, until a power loss shows that it is missed."""
    # Not above: this file is a plugin, too, and must be there before the module that is changed is imported.
    from tools.torture.power_loss import HISTORIES, Case, explore, placed
    from tools.torture.scenes import SCENES, build
    from tools.torture.syncs import MOST, PER_POINT, syncs_of

    keys = {mutant.id: key for mutant in wanted if (key := _sync_key(mutant))}
    spent: dict[str, float] = defaultdict(float)
    for name in SCENES:
        with placed(build(name)) as site:
            for history in HISTORIES:
                kill = 0.5 if "kill" in history else 0.0
                syncs = syncs_of(site, history, kill)
                for mutant_id, key in list(keys.items()):
                    mine = tuple(sorted(sync for sync in syncs if sync.rpartition(" [")[0] == key))
                    if not mine or spent[mutant_id] > most_s:
                        continue
                    started = time.monotonic()
                    case = Case(name, 0, history, kill, PER_POINT)
                    failed = next(explore(site, case, Counter(), most=MOST, without=mine), None)
                    spent[mutant_id] += time.monotonic() - started
                    if failed is not None:
                        state.note(mutant_id, Result("killed", f"power_loss:{failed[0]}"))
                        del keys[mutant_id]
    for mutant_id, key in keys.items():
        print(f"not missed {mutant_id} {key}: {spent[mutant_id]:.0f} s of power losses", flush=True)


# -- the command -----------------------------------------------------------------------------------------------------


def try_mutants(
    name: str,
    wanted: Sequence[Mutant],
    state: State,
    *,
    tell: bool,
    wide: bool,
    seconds: float,
    tests: Sequence[str] = (),
) -> None:
    """Try mutants of one target and keep the results."""
    target = TARGETS[name]
    runner = Runner(target, wanted, state, tell=tell, seconds=seconds)
    arguments = ["-q", "-s", "-p", "no:cacheprovider", "-p", HERE, "-m", NEITHER, "-o", "timeout=0"]
    os.chdir(ROOT)
    judges = tests or (target.wide if wide else target.tests)
    pytest.main([*arguments, *judges], plugins=[runner])


def sample_of(everything: list[Mutant], how_many: int, seed: int) -> list[Mutant]:
    """So many of them, chosen by the seed; all, if none is asked for."""
    if not how_many:
        return everything
    return random.Random(seed).sample(everything, min(how_many, len(everything)))


def run(seeds: range, workdir: Path, state: Any) -> None:
    """As a part of ``make torture``: each target, or a sample of it by the first seed; survivors by the wide tests.

    Results are kept by mutant beside those of the other parts, so a run that was stopped goes on within a target too.
    """
    kept = (state.path.parent if state.path else workdir) / STATE.name
    for name, target in TARGETS.items():
        unit = f"{name}-{seeds.start}"
        if state.is_done(unit) or state.time_is_up():
            continue
        size = state.most(0) if state.samples else 0
        command = [sys.executable, "-m", HERE, name, "--kept", str(kept)]
        command += ["--sample", str(size), "--seed", str(seeds.start)]
        for more in ((), ("--wide",)):
            subprocess.run([*command, *more], cwd=ROOT, check=False)
        results, argued = state_of(name, kept).results, arguments_of_survivors()
        sample = sample_of(mutants_of(target), size, seeds.start)
        tried = [mutant for mutant in sample if mutant.id in results]
        lived = [mutant for mutant in tried if results[mutant.id].outcome not in KILLED]
        for mutant in lived:
            if mutant.id not in argued:
                state.wrong(
                    mutant.id, f"{mutant.path}: no test notices {mutant.site.before} -> {mutant.site.after}"
                )
        figures = {"mutants": len(tried), "killed": len(tried) - len(lived)}
        state.keep(unit, figures | {"argued": sum(mutant.id in argued for mutant in lived)})


def replay(case: str, workdir: Path) -> list[str]:
    """One mutant again, also by the wide tests; says what it is if no test notices it."""
    name, mutant = next(
        (name, mutant) for name in TARGETS for mutant in mutants_of(TARGETS[name]) if mutant.id == case
    )
    for more in ((), ("--wide",)):
        command = [sys.executable, "-m", HERE, name, "--kept", str(workdir), "--id", case]
        subprocess.run([*command, *more], cwd=ROOT, check=False)
        if state_of(name, workdir).results[case].outcome in KILLED:
            return []
    return list(changed_lines((ROOT / mutant.path).read_text(), mutant.number))


def arguments_of_survivors() -> dict[str, dict[str, str]]:
    """Id -> what is said of a survivor: ``kind`` (equivalent, speed, sync, unreachable, words) and ``why``."""
    known: dict[str, dict[str, str]] = json.loads(SURVIVORS.read_text()) if SURVIVORS.exists() else {}
    return known


def report(names: Iterable[str], kept: Path) -> int:
    """Print the table of figures and every survivor without an argument; their number is the exit status."""
    argued = arguments_of_survivors()
    open_ones = 0
    print("| package | mutants | tried | killed | of these by time | survived | argued | killed, % |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    survivors: list[Mutant] = []
    for name in names:
        state = state_of(name, kept)
        everything = mutants_of(TARGETS[name])
        tried = [mutant for mutant in everything if mutant.id in state.results]
        killed = [mutant for mutant in tried if state.results[mutant.id].outcome in KILLED]
        by_time = sum(state.results[mutant.id].outcome == "timeout" for mutant in killed)
        left = [mutant for mutant in tried if state.results[mutant.id].outcome not in KILLED]
        known = sum(mutant.id in argued for mutant in left)
        percent = f"{100 * len(killed) / len(tried):.1f}" if tried else "-"
        print(
            f"| {name} | {len(everything)} | {len(tried)} | {len(killed)} | {by_time} | {len(left)} | {known} "
            f"| {percent} |"
        )
        survivors += [mutant for mutant in left if mutant.id not in argued]
        open_ones += len(left) - known
    for mutant in survivors:
        print(f"\n{mutant.id}  {mutant.path}:{mutant.site.line}")
        print("\n".join(changed_lines((ROOT / mutant.path).read_text(), mutant.number)))
    return open_ones


def _chosen(everything: list[Mutant], state: State, options: argparse.Namespace) -> list[Mutant]:
    if options.id and not options.wide:
        return [mutant for mutant in everything if mutant.id in options.id]
    if options.id:
        everything = [mutant for mutant in everything if mutant.id in options.id]
    everything = sample_of(everything, options.sample, options.seed)
    if options.again or options.wide or options.syncs:
        return [m for m in everything if m.id in state.results and state.results[m.id].outcome not in KILLED]
    return [mutant for mutant in everything if mutant.id not in state.results]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture.mutants", description="mutation testing")
    parser.add_argument("target", nargs="?", choices=TARGETS, help="what is mutated; all without it")
    parser.add_argument(
        "--sample", type=int, default=0, help="how many mutants, chosen by the seed; 0 for all"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--id", nargs="+", help="only these, and say what becomes of each")
    parser.add_argument("--again", action="store_true", help="only those that have survived before")
    parser.add_argument(
        "--wide", action="store_true", help="by the slow tests, those that survived the others"
    )
    parser.add_argument(
        "--syncs", action="store_true", help="by power losses, those that leave out a sync and survived"
    )
    parser.add_argument(
        "--seconds", type=float, default=MOST_TEST_S, help="of tests that a mutant is tried on at most"
    )
    parser.add_argument("--tests", nargs="+", help="judge by these files or folders instead")
    parser.add_argument("--file", help="only mutants of files whose path contains this")
    parser.add_argument("--kept", type=Path, default=STATE, help="where results are kept")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    options = parser.parse_args()
    names = [options.target] if options.target else list(TARGETS)
    if not options.report:
        for name in names:
            everything = mutants_of(TARGETS[name])
            if options.file:
                everything = [mutant for mutant in everything if options.file in mutant.path]
            state = state_of(name, options.kept)
            wanted = _chosen(everything, state, options)
            for mutant in wanted if options.id else []:
                print("\n".join(changed_lines((ROOT / mutant.path).read_text(), mutant.number)))
            if options.syncs:
                try_by_power_loss(wanted, state, options.seconds)
            elif wanted:
                print(f"{name}: {len(wanted)} mutants to try")
                try_mutants(
                    name,
                    wanted,
                    state,
                    tell=bool(options.id),
                    wide=options.wide,
                    seconds=options.seconds,
                    tests=options.tests,
                )
    return 1 if report(names, options.kept) else 0


if __name__ == "__main__":
    # pytest loads this file as a plugin too, so the command must be that same module
    sys.exit(importlib.import_module(HERE).main())
