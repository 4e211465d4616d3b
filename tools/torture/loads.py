"""Opens every tree that a kill or a power loss leaves with Kafka's own classes, and a sample with real brokers.

A broker that is started there must serve the records that were readable before, or after, in both isolation
levels: no record comes, goes or changes, none is repeated, no reader is stuck. What is allowed is found by loading
the original tree and the one that ``apply`` makes; a version that refuses one of them may refuse what is between.

Trees are told apart by what a broker looks at: the files of the partition folder, whether the stop was a clean one,
and from where it would recover. Each different one is loaded once by each version.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from krepair.formats.checkpoint import decode_offsets
from tests.lab import jars
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge, JudgeError, Reading
from tools.torture import kills
from tools.torture.disk_model import State
from tools.torture.power_loss import HISTORIES, Case, Site, placed, trials
from tools.torture.recording import PRIVATE
from tools.torture.scenes import CLEAN_MARKER, POINTS, SCENES, Scene, build
from tools.torture.state import State as Done

STARTS = "log-start-offset-checkpoint"
_ORDERS = {
    "without-fence-2.2": ("2.2.1",),
    "without-fence-3.9": VERSIONS[1:],
    "leftovers-without-fence": VERSIONS[1:],
}
"""Without the fence an order of renames is right on some versions only; see ``docs/commit-protocol.md``."""

HISTORIES_LOADED = tuple(history for history in HISTORIES if "kill" not in history)
PER_POINT = 4
KILLS_PER_SCENE = 40


class Start(NamedTuple):
    """One partition as a broker would find it.

    Attributes:
        folder: name of the folder.
        files: name -> bytes, of regular files only.
        clean: true if the log directory was stopped cleanly.
        point: recovery point of the partition.
        log_start: its log start offset.
    """

    folder: str
    files: Mapping[str, bytes]
    clean: bool
    point: int
    log_start: int

    @property
    def digest(self) -> str:
        """Equal for what no broker can tell apart."""
        digest = hashlib.blake2b(
            repr((self.folder, self.clean, self.point, self.log_start)).encode(), digest_size=16
        )
        for name, data in sorted(self.files.items()):
            digest.update(f"{name} {len(data)} ".encode(errors="surrogateescape") + data)
        return digest.hexdigest()


class Served(NamedTuple):
    """Records that a broker gives to its clients, or its failure to start.

    Attributes:
        log_end: log end offset.
        stable_offset: the last stable one.
        readings: digests of the records by isolation level, and in small fetches.
        trouble: a reader that is stuck or meets a record twice.
    """

    log_end: int
    stable_offset: int
    readings: tuple[str, str, str]
    trouble: str


def starts_of_state(state: State) -> Iterator[Start]:
    """Return the partitions of a tree of the model."""
    files = {path: state.data[node] for path, node in state.files.items()}
    yield from _starts(files, {path for path in state.folders if "/" not in path})


def starts_of_folder(log_dir: Path) -> Iterator[Start]:
    """Return the partitions of a log directory."""
    files: dict[str, bytes] = {}
    folders = {entry.name for entry in log_dir.iterdir() if entry.is_dir()}
    for path in log_dir.rglob("*"):
        shown = os.path.relpath(path, log_dir)
        if path.is_file() and PRIVATE not in shown:
            files[shown] = path.read_bytes()
    yield from _starts(files, folders)


def _starts(files: Mapping[str, bytes], folders: set[str]) -> Iterator[Start]:
    clean = CLEAN_MARKER in files
    points, log_starts = (_offsets(files.get(name, b"")) for name in (POINTS, STARTS))
    for folder in sorted(folders):
        own = {
            path.removeprefix(f"{folder}/"): data
            for path, data in files.items()
            if path.startswith(f"{folder}/") and PRIVATE not in path
        }
        yield Start(folder, own, clean, points.get(folder, 0), log_starts.get(folder, 0))


def _offsets(data: bytes) -> dict[str, int]:
    if not data:
        return {}
    return {f"{entry.topic}-{entry.partition}": entry.offset for entry in decode_offsets(data).entries}


class Loader:
    """Loads the partitions of a scene's trees and compares them with what is allowed.

    Args:
        scene: scene whose trees are loaded.
        before: original tree of the scene.
        after: applied tree of the scene.
        judges: loader processes by version.
        work: an empty folder for copies.
        versions: versions of brokers; by default those that the scene's order of renames is made for.
    """

    def __init__(
        self,
        scene: Scene,
        before: State,
        after: State,
        judges: Mapping[str, Judge],
        work: Path,
        *,
        versions: Collection[str] = (),
    ) -> None:
        self.scene = scene
        self.judges = {version: judges[version] for version in versions or _ORDERS.get(scene.name, VERSIONS)}
        self.work = work
        self.figures: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.allowed: dict[tuple[str, str], set[Served | None]] = {}
        for tree in (before, after):
            for start in starts_of_state(tree):
                for version in self.judges:
                    self.allowed.setdefault((version, start.folder), set()).add(self.load(version, start))

    def load(self, version: str, start: Start) -> Served | None:
        """Return what a version serves of a partition, None if it does not start."""
        copy = self.work / start.folder
        copy.mkdir()
        try:
            for name, data in start.files.items():
                (copy / name).write_bytes(data)
            self.figures[f"loads by {version}"] += 1
            loaded = self.judges[version].load(
                copy,
                clean=start.clean,
                recovery_point=start.point,
                log_start=start.log_start,
                settings=dict(self.scene.options.settings) | {"file.delete.delay.ms": "600000"},
            )
        except JudgeError:
            return None
        finally:
            shutil.rmtree(copy)
        trouble = _trouble(loaded.uncommitted) or _trouble(loaded.committed)
        if not trouble and loaded.committed.digest != loaded.committed_in_small_fetches:
            trouble = "small fetches differ"
        return Served(loaded.log_end, loaded.stable_offset, loaded.served, trouble)

    def check(self, starts: Iterator[Start]) -> list[str]:
        """Return what a broker would serve wrong; a partition that was loaded before is not loaded again."""
        wrong = []
        for start in starts:
            digest = start.digest
            if digest in self.seen:
                continue
            self.seen.add(digest)
            self.figures["different partitions"] += 1
            for version in self.judges:
                served = self.load(version, start)
                allowed = self.allowed[version, start.folder]
                if served not in allowed:
                    wrong.append(
                        f"{version} on {start.folder}: {_shown(served)} instead of {_all_shown(allowed)}"
                    )
        return wrong


def _trouble(reading: Reading) -> str:
    if reading.stuck:
        return f"stuck: {reading.stuck}"
    return f"{reading.repeats} records repeated" if reading.repeats else ""


def _shown(served: Served | None) -> str:
    if served is None:
        return "does not start"
    digests = ", ".join(digest[:8] for digest in served.readings)
    return f"end {served.log_end}, stable {served.stable_offset}, records {digests} {served.trouble}".strip()


def _all_shown(allowed: set[Served | None]) -> str:
    return " or ".join(sorted(map(_shown, allowed)))


class Judges(dict[str, Judge]):
    """One JVM per version for as long as the block lasts."""

    def __enter__(self) -> Judges:
        for version in VERSIONS:
            jars.fetch(version)
            self[version] = Judge(version)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for judge in self.values():
            judge.close()


def loader_of(site: Site, judges: Mapping[str, Judge], work: Path) -> Loader:
    """Return the loader of a scene on the disk."""
    recording = site.record(("apply",))
    work.mkdir(exist_ok=True)
    return Loader(site.scene, site.original, recording.end, judges, work)


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Load power losses and kills of every scene by every version; with ``state.samples`` that many trees of each."""
    with Judges() as judges:
        for seed in seeds:
            for name in SCENES:
                if state.time_is_up() or state.is_done(f"{name}:{seed}"):
                    continue
                with placed(build(name, seed), workdir) as site:
                    loader = loader_of(site, judges, workdir / "loads")
                    for history in HISTORIES_LOADED:
                        case = Case(name, seed, history, per_point=PER_POINT)
                        for at, tree in _power_losses(site, case, state.most(sys.maxsize)):
                            for wrong in loader.check(starts_of_state(tree)):
                                state.wrong(f"power_loss:{at}", wrong)
                for case_name, _, log_dir in kills.crash_trees(
                    [name],
                    range(seed, seed + 1),
                    workdir,
                    min(state.most(KILLS_PER_SCENE), KILLS_PER_SCENE),
                ):
                    for wrong in loader.check(starts_of_folder(log_dir)):
                        state.wrong(f"kills:{case_name}", wrong)
                state.keep(f"{name}:{seed}", loader.figures)


def _power_losses(site: Site, case: Case, most: int) -> Iterator[tuple[Case, State]]:
    recording = site.record(HISTORIES[case.history])
    results = [
        (case._replace(point=trial.point, choice=trial.choice), trial.state)
        for trial in trials(site, recording, seed=case.words, per_point=case.per_point)
    ]
    return iter(results if most >= len(results) else random.Random(case.words).sample(results, most))


def replay(text: str, workdir: Path) -> list[str]:
    """Load one tree again."""
    kind, _, rest = text.partition(":")
    with Judges() as judges:
        if kind == "power_loss":
            case = Case.parse(rest)
            with placed(build(case.scene, case.seed), workdir) as site:
                loader = loader_of(site, judges, workdir / "loads")
                for at, tree in _power_losses(site, case, None):
                    if (at.point, at.choice) == (case.point, case.choice):
                        return loader.check(starts_of_state(tree))
            return [f"{text}: there is no such state; was the source changed since?"]
        name, seed, steps = rest.split(":", 2)
        with placed(build(name, int(seed)), workdir) as site:
            loader = loader_of(site, judges, workdir / "loads")
        for case_name, _, log_dir in kills.crash_trees([name], range(int(seed), int(seed) + 1), workdir):
            if case_name.endswith(steps):
                return loader.check(starts_of_folder(log_dir))
    return [f"{text}: there is no such tree; was the source changed since?"]
