"""The forecast of ``krepair check`` held against Kafka's own loader classes: damaged partitions, each by a seed.

A case is a partition (built, or out of ``fixtures/``), what is broken in it, how the broker stopped, and its lines in
the checkpoints of the root. ``krepair check`` looks at many cases at once, as partitions of one log directory; the
classes of each version then load each case by itself, on a copy.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from krepair.durable.scratch import Scratch
from krepair.engine.engine import InlineEngine
from krepair.fixes.context import Context
from krepair.fixes.survey import Survey
from krepair.formats.broker_version import VersionNumber, version_of
from krepair.logdir.config import load_settings
from krepair.logdir.view import read_log_dir
from krepair.ops.check import look_at_everything
from krepair.options import EngineName, Options
from krepair.start.findings import starting_of
from krepair.start.forecast import forecast
from krepair.start.identity import node_of
from krepair.start.line import ForecastLine
from tests import builders
from tests.builders import NOW_MS
from tests.fixture_dirs import unpack
from tests.lab.damaging import SEALED, SWAP, damage, files
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Judge, JudgeError, Started
from tests.strategies import Shape, history

VERSIONS: tuple[VersionNumber, ...] = tuple(filter(None, map(version_of, LOADER_VERSIONS)))
SETTINGS: tuple[dict[str, int], ...] = (
    {"index.interval.bytes": 4096, "segment.index.bytes": 10 << 20},
    {"index.interval.bytes": 200, "segment.index.bytes": 10 << 20},
    {"index.interval.bytes": 1, "segment.index.bytes": 1 << 20},
    {"index.interval.bytes": 200, "segment.index.bytes": 96},
)
FIXTURES = (
    "leader-epochs-2.2.1",
    "oldformat-2.2.1-before",
    "compact-2.2.1-before",
    "compact-2.2.1-after-2.2.1",
    "offsets-tv2-4.3.1",
    "timeindex-padded-2.2.1",
)
ANSWER_S = 120
"""None of the cases needs a second; a loader that splits a segment without end is told by the harness itself."""
CLOCK_MS = NOW_MS + 60_000
DAY_MS = 86_400_000
EXPIRY_MS = {(2, 2): 7 * DAY_MS, (2, 8): 7 * DAY_MS, (3, 9): DAY_MS, (4, 3): DAY_MS, (4, 4): DAY_MS}


@dataclass(frozen=True)
class Case:
    """One damaged partition.

    Attributes:
        seed: of it.
        settings: number in ``SETTINGS``.
        clean: whether the broker was cleanly stopped.
        recovery_point: its line in the root, None for no line.
        log_start: the same.
        kinds: of damage.
        said: what was done.
    """

    seed: int
    settings: int
    clean: bool
    recovery_point: int | None
    log_start: int | None
    kinds: tuple[str, ...]
    said: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Its name in a log directory."""
        return f"d-{self.seed}"


@dataclass
class Figures:
    """What a run came to.

    Attributes:
        cases: damaged partitions.
        compared: (version) -> forecasts that were held against the classes.
        outcomes: (version, what the classes did) -> how often.
        kinds: of damage -> how often.
        left_out: why -> how many forecasts were not compared.
        wrong: each forecast that was not what the classes did, with the command that replays it.
    """

    cases: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Sources:
    """Sound partitions to break: unpacked once."""

    def __init__(self, scratch: Path) -> None:
        self.partitions: list[Path] = []
        for name in FIXTURES:
            log_dir = unpack(name, scratch / "fixtures")
            found = (
                [path for path in sorted(log_dir.iterdir()) if files(path, ".log")]
                if log_dir.is_dir()
                else []
            )
            self.partitions += [path for path in found if not path.name.startswith("__cluster")]
        self.size = {path: sum(one.stat().st_size for one in files(path, ".log")) for path in self.partitions}
        self.partitions = [path for path in self.partitions if self.size[path] < 900_000]

    def write(self, chance: random.Random, seed: int, target: Path, interval_bytes: int) -> None:
        """Write a sound partition."""
        if chance.random() < 0.6:
            shape = Shape(
                segments=chance.randint(1, 5),
                steps=chance.choice([3, 8, 14, 30]),
                emptied=chance.random() < 0.3,
                stamps=chance.random() < 0.3,
                epoch_per_marker=chance.random() < 0.3,
                open_at_end=chance.random() < 0.7,
            )
            made = builders.LogDir(target.parent).partition("d", seed, index_interval_bytes=interval_bytes)
            history(seed, shape).fill(made).write(clean_stop=chance.random() < 0.8)
            return
        weights = [1 / (1 + self.size[path] / 50_000) for path in self.partitions]
        (source,) = chance.choices(self.partitions, weights)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("partition.metadata"))


def make_case(seed: int, root: Callable[[int, bool], Path], sources: Sources) -> Case:
    """Write the partition of a seed.

    Args:
        seed: of it.
        root: (number of the settings, clean stop) -> the log directory to write into.
        sources: of sound partitions.
    """
    chance = random.Random(seed)
    number = chance.choice([0, 0, 1, 1, 1, 2, 2, 3])
    clean = chance.random() < 0.5
    folder = root(number, clean) / f"d-{seed}"
    sources.write(chance, seed, folder, SETTINGS[number]["index.interval.bytes"])
    bases = [int(path.name.split(".")[0]) for path in files(folder, ".log")]
    ends = [*bases, bases[-1] + 10, bases[-1] + 10**6]
    point = chance.choice([None, 0, *ends, *ends, bases[-1], bases[-1] + 1])
    start = chance.choice(
        [None] * 8 + [0, bases[0], bases[0] + 1, bases[-1], bases[-1] + 2, bases[-1] + 10**6]
    )
    done = [damage(chance, folder) for _ in range(chance.choice([1, 1, 1, 2, 2, 3]))]
    return Case(seed, number, clean, point, start, tuple(k for k, _ in done), tuple(s for _, s in done))


def write_root(root: Path, cases: Sequence[Case]) -> None:
    """The files of the root of a log directory with these cases."""
    (root / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=krepair-test-cluster00\n")
    for name, lines in (
        ("recovery-point-offset-checkpoint", [(one, one.recovery_point) for one in cases]),
        ("log-start-offset-checkpoint", [(one, one.log_start) for one in cases]),
        ("replication-offset-checkpoint", []),
        ("cleaner-offset-checkpoint", []),
    ):
        rows = [f"d {one.seed} {offset}" for one, offset in lines if offset is not None]
        (root / name).write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")
    if cases[0].clean:
        (root / ".kafka_cleanshutdown").touch()


def forecasts(root: Path, settings: dict[str, int]) -> dict[str, dict[tuple[int, int, int], ForecastLine]]:
    """What ``check`` says of each partition by itself, by folder and version."""
    options = Options(
        engine=EngineName.INLINE,
        now_ms=CLOCK_MS,
        settings=tuple((key, str(value)) for key, value in settings.items()),
    )
    known = load_settings(None, None, dict(options.settings))
    view = read_log_dir(str(root))
    context = Context(view, known, options, InlineEngine("test"), Scratch("", (str(root),)))
    surveys, facts = look_at_everything(context)
    nodes = {
        version: node_of([view], replace(options, broker_version=_text(version))) for version in VERSIONS
    }

    def line(survey: Survey, version: tuple[int, int, int]) -> ForecastLine:
        starting = starting_of(context, [], [survey], facts, nodes[version], None)
        return next(iter(forecast(view, [survey], {}, facts, version, starting)))

    return {
        survey.partition.folder: {version: line(survey, version) for version in VERSIONS}
        for survey in surveys
    }


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True)
class Done:
    """What the classes did.

    Attributes:
        started: None if the loader threw.
        error: what it threw.
    """

    started: Started | None
    error: str = ""


def load(judge: Judge, case: Case, folder: Path, scratch: Path) -> Done:
    """Let the classes of a version load a copy of a case."""
    copy = scratch / "copy" / folder.name
    shutil.rmtree(copy.parent, ignore_errors=True)
    shutil.copytree(folder, copy)
    try:
        started = judge.start(
            copy,
            clean=case.clean,
            recovery_point=case.recovery_point or 0,
            log_start=case.log_start or 0,
            settings=SETTINGS[case.settings],
            now_ms=CLOCK_MS,
        )
    except JudgeError as error:
        if "without end" in str(error):
            judge.close(kill=True)  # its process ends itself
        return Done(None, str(error).partition("\n")[0])
    return Done(started)


def said_by(line: ForecastLine, before: dict[int, int]) -> tuple[str, object]:
    """A forecast as what is compared: what happens, and what is left of each log."""
    if line.expected == "refuse":
        return "refuse", ()
    return line.expected, line.log_bytes or tuple(sorted(before.items()))


def done_by(done: Done, before: dict[int, int]) -> tuple[str, object]:
    """The same of what the classes did."""
    if done.started is None:
        return "refuse", ()
    after = {one.base_offset: one.bytes for one in done.started.segments}
    moved = set(after) - set(before)
    cut = not moved and any(base in after and after[base] < size for base, size in before.items())
    gone = [base for base in before if base not in after]
    if gone and not cut and not (moved and sum(after.values())):
        what = "delete"
    elif cut:
        what = "truncate"
    else:
        what = "recover" if done.started.recovered else "start"
    return what, tuple(sorted(after.items()))


def compare(case: Case, folder: Path, line: ForecastLine, done: Done, figures: Figures, version: str) -> str:
    """What is wrong with one forecast, empty if nothing."""
    before = {int(path.name.split(".")[0]): path.stat().st_size for path in files(folder, ".log")}
    if line.expected == "unknown":
        figures.left_out["the forecast says that it does not know"] += 1
        return ""
    if line.log_end < 0 and done.started is None and SEALED in case.kinds:
        figures.left_out[
            "a wrong batch under a right checksum, and nothing else wrong with the partition"
        ] += 1
        return ""
    if "OutOfMemoryError" in done.error:
        figures.left_out["out of memory at a damaged wrapper of v0 or v1: the heap decides"] += 1
        return ""
    figures.compared[version] += 1
    ours, theirs = said_by(line, before), done_by(done, before)
    figures.outcomes[version, theirs[0]] += 1
    if SWAP in case.kinds and "refuse" not in {
        ours[0],
        theirs[0],
    }:  # a merge makes logs shorter, and loses nothing
        ours, theirs = ("start", line.log_bytes), ("start", theirs[1])
    if ours != theirs:
        return f"forecast {ours} ({line.text}), the classes {theirs} {done.error}"
    if done.started is not None and line.log_end not in {-1, done.started.log_end}:
        return f"forecast {line.log_end} as the log end, the classes {done.started.log_end}"
    if done.started is not None:
        silent = {base for base in line.segments if base not in done.started.recovered}
        extra = set(done.started.recovered) - set(line.segments)
        if extra or (silent and (case.clean or not version.startswith(("3.", "4.")))):
            return f"forecast reads {line.segments}, the classes {done.started.recovered}"
    return ""


class Starts:
    """Compares case by case; keeps one JVM per version, and the sound partitions.

    Args:
        scratch: a folder for copies.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._sources = Sources(scratch)
        self._judges = {
            one: Judge(".".join(map(str, one)), heap="1g", timeout_s=ANSWER_S) for one in VERSIONS
        }
        self._asked = 0

    def __enter__(self) -> Starts:
        return self

    def __exit__(self, *error: object) -> None:
        for judge in self._judges.values():
            judge.close(kill=True)

    def run(self, seeds: Sequence[int]) -> Figures:
        """The cases of these seeds."""
        figures = Figures()
        chunk = self._scratch / "chunk"
        shutil.rmtree(chunk, ignore_errors=True)

        def root(number: int, clean: bool) -> Path:
            return chunk / f"{number}-{'clean' if clean else 'killed'}"

        cases = [make_case(seed, root, self._sources) for seed in seeds]
        for path in sorted(chunk.iterdir()):
            here = [one for one in cases if root(one.settings, one.clean) == path]
            self._compare_root(path, here, figures)
        return figures

    def _compare_root(self, root: Path, cases: Sequence[Case], figures: Figures) -> None:
        write_root(root, cases)
        said = forecasts(root, SETTINGS[cases[0].settings])
        for case in cases:
            figures.cases += 1
            figures.kinds.update(case.kinds)
            for version in VERSIONS:
                line, name = said[case.folder][version], ".".join(map(str, version))
                wrong = self._ask(case, root, line, version, figures)
                if wrong and not self._ask(case, root, line, version, Figures()):
                    # 2.8.2 on a busy machine, once in seven runs of a case: NoSuchFileException of a snapshot
                    figures.left_out[f"{name} gave another answer when it was asked again"] += 1
                elif wrong:
                    stop = "clean" if case.clean else "killed"
                    text = f"seed {case.seed}, {name}, {stop}, point {case.recovery_point}, start {case.log_start}, "
                    text += f"{SETTINGS[case.settings]}: {'; '.join(case.said)}: {wrong}"
                    figures.wrong.append(
                        f"{text}\n    python -m tools.torture --replay forecasts:{case.seed}"
                    )

    def _ask(
        self, case: Case, root: Path, line: ForecastLine, version: tuple[int, int, int], figures: Figures
    ) -> str:
        """What is wrong with the forecast of a version, empty if nothing."""
        done = load(self._judge(version), case, root / case.folder, self._scratch)
        return compare(case, root / case.folder, line, done, figures, ".".join(map(str, version)))

    def _judge(self, version: tuple[int, int, int]) -> Judge:
        # a loader that throws leaves its maps and files to the garbage collector
        self._asked += 1
        if self._asked % 4000 == 0:
            for judge in self._judges.values():
                judge.close()
        return self._judges[version]


def chunks(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Seeds in pieces, so that a log directory has some hundred partitions at most."""
    return (seeds[place : place + size] for place in range(0, len(seeds), size))
