"""Random damaged partitions by seed, and the results of a start as values that a forecast is compared with.

A case is a partition (built, or out of ``fixtures/``), what is broken in it, how the broker stopped, and its lines in
the checkpoints of the root.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from krepair.formats.broker_version import VersionNumber, version_of
from krepair.start.line import ForecastLine
from tests import builders
from tests.builders import NOW_MS
from tests.fixture_dirs import unpack
from tests.lab.damaging import damage, files
from tests.lab.jars import LOADER_VERSIONS
from tests.lab.judge import Started
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


@dataclass(frozen=True)
class Done:
    """What the classes did.

    Attributes:
        started: None if the loader threw.
        error: what it threw.
    """

    started: Started | None
    error: str = ""


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
