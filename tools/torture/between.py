"""Starts real brokers on log directories in which krepair was killed, and then runs another verb of krepair.

One episode is one broker with dozens of log directories, each with topics of its own, so that one start meets dozens
of trees. Beside the trees that krepair was killed in are two twins of each scene: the untouched one and the applied
one. All get the same records. Then

    krepair is killed at some call -> broker: read, write, clean, roll, purge beside it; stopped or killed
    -> any verb -> broker: read -> undo

and what must hold is:

- Both times, at both isolation levels, each partition serves the records of one of its twins. Where a cleaner runs, it
  serves the last record of each key, and no record that nobody wrote.
- A broker starts. One start may fail by a defect of the broker (``_NO_SECOND_START``): it is counted, and not wrong.
- Verbs end with a documented exit code. ``undo`` that ends with 0 has put back every original; refused with 12 or 13
  it has changed nothing.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from krepair.formats.checkpoint import decode_offsets
from krepair.ops.plan import make_plan
from krepair.plan import planfile
from tests.corpus.jbod import broker_on
from tests.lab.broker import Broker, BrokerError, Topic
from tests.lab.client import QUIET, Records, read_to_the_end
from tests.lab.jars import VERSIONS, release
from tests.lab.judge import Judge, JudgeError
from tools.torture.brokers import CHECKPOINTS, write_renamed
from tools.torture.runs import DOCUMENTED, Ended, Runner, find_wanted, parse_step
from tools.torture.scenes import Placed, Scene, build, differences, look, visible
from tools.torture.state import State as Done

SCENES: Final = (
    "markers",
    "markers-unclean",
    "markers-without-points",
    "partitions",
    "leftovers",
    "indexes",
    "keys",
)
"""Whole logs under the fence: what a broker cuts of damaged ones, Kafka's classes judge (``loads``)."""

KEEPS: Final = ("inplace", "inplace", "until-verified")
EPISODES: Final = 60
"""For each version, in a full run."""
VICTIMS: Final = 5
"""Killed trees of each scene in an episode."""

HISTORIES: Final = ("apply@", "apply@", "apply", "apply.undo@", "apply.purge@", "apply.apply@")
VERBS: Final = ("apply", "undo", "undo", "purge", "apply.undo", "undo.apply")
FAILED: Final = Path(".torture/between")
"""Where trees are kept on which a broker does not start."""

_NO_SECOND_START: Final = "updateFirstUnstableOffset"
"""Where a loader before 2.4 throws if the first offset of an open transaction is gone from its segment (KAFKA-8443).

A broker that was killed soon after its own cleaner worked leaves that: a snapshot below the recovery point has the
transaction open, and its marker is cleaned away. Logs that krepair never touched do the same, in nine of nine runs.
"""
_READS_ON: Final = (2, 4)
_PROPS: Final = {"log.cleaner.backoff.ms": 100, "log.cleaner.delete.retention.ms": 86_400_000}
_UNCHANGED: Final = frozenset({11, 12, 13})
_BESIDE: Final = frozenset({0, 3, 11, 12, 13})
"""How a purge may end beside a broker."""


class Tree(NamedTuple):
    """One log directory of the broker.

    Attributes:
        name: name of the scene or its twin, the prefix of its topics.
        scene: scene with its contents.
        kind: ``before``, ``after`` or ``victim``.
        folders: its partition folders.
        placed: place on the disk, with a plan of its own.
    """

    name: str
    scene: Scene
    kind: str
    folders: tuple[str, ...]
    placed: Placed

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Topic and number of each partition."""
        return [(topic, int(number)) for topic, _, number in (each.rpartition("-") for each in self.folders)]


@dataclass
class Episode:
    """One broker, its log directories, and what happens to them.

    Attributes:
        version: version of the broker.
        seed: seed of all random choices.
        trees: its log directories.
        told: tree -> how each step of it ended.
        figures: counters to update.
        wrong: tree and what is wrong with it.
    """

    version: str
    seed: int
    trees: list[Tree]
    told: dict[str, list[str]]
    figures: Counter[str]
    wrong: list[tuple[str, str]]

    def note(self, tree: Tree, ended: Ended) -> None:
        """Note that a step of a tree has ended."""
        self.told.setdefault(tree.name, []).append(str(ended))

    def blame(self, tree: Tree, text: str) -> None:
        """Record a fault of a tree."""
        self.wrong.append((tree.name, "\n".join([text, *self.told.get(tree.name, [])])))


def _compacts(scene: Scene) -> bool:
    """Return whether the broker's cleaner works on the topics of a scene: the same in every episode."""
    return scene.name in {"keys", "markers-unclean"}


def place(scene: Scene, name: str, path: Path) -> tuple[str, ...]:
    """Write a scene with topics of other names; gives its partition folders."""
    prefix = f"{name}."
    folders = [entry.name for entry in scene.entries if entry.data is None and entry.name != "."]
    files = ((entry.name, entry.data, entry.mtime_ns) for entry in scene.entries if entry.data is not None)
    write_renamed(path, prefix, folders, files)
    return tuple(prefix + folder for folder in folders)


def make(version: str, seed: int, work: Path, victims: int) -> tuple[Episode, Broker]:
    """Write all trees of an episode, register their topics with a broker, and plan each."""
    rng = random.Random(f"{version} {seed}")
    cases: list[tuple[str, Scene, str, tuple[str, ...], Path]] = []
    for name in SCENES:
        scene = build(name)
        for kind in ("before", "after", *(f"victim{number}" for number in range(victims))):
            path = work / f"{name}-{kind}"
            folders = place(scene, f"{name}.{kind}", path)
            cases.append((f"{name}.{kind}", scene, kind.rstrip("0123456789"), folders, path))
    topics: dict[str, Topic] = {}
    for _, scene, _, folders, _ in cases:
        policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        config = {"retention.ms": "-1", "segment.bytes": "1500", "delete.retention.ms": "86400000"}
        config |= policy if _compacts(scene) else {"cleanup.policy": "delete"}
        for folder in folders:
            topic, _, number = folder.rpartition("-")
            most = max(int(number) + 1, topics[topic].partitions if topic in topics else 0)
            topics[topic] = Topic(most, config)
    broker = broker_on(version, [path for *_, path in cases], topics, work / "broker", cleaner=True)
    broker.props |= _PROPS
    episode = Episode(version, seed, [], {}, Counter(), [])
    for name, scene, kind, folders, path in cases:
        keep = rng.choice(KEEPS) if kind == "victim" else "inplace"
        options = scene.options
        plan = make_plan(os.fspath(path), replace(options, keep=keep, broker_version=version))
        plan_file = work / f"{path.name}.plan"
        plan_file.write_bytes(planfile.dumps(plan))
        episode.trees.append(Tree(name, scene, kind, folders, Placed(path, plan, plan_file)))
    return episode, broker


def kill(episode: Episode, runner: Runner, calls: Mapping[str, Mapping[str, int]]) -> None:
    """Run apply on the applied twins, and a history that is killed on each victim."""
    rng = random.Random(f"kill {episode.version} {episode.seed}")
    for tree in episode.trees:
        if tree.kind == "before":
            continue
        history = rng.choice(HISTORIES) if tree.kind == "victim" else "apply"
        for word in history.split("."):
            verb = word.strip("@")
            if word.endswith("@"):
                word = f"{verb}@{rng.randint(1, max(calls[tree.scene.name][verb], 1))}{rng.choice('bat')}"
            ended = runner.run(tree.placed, parse_step(word))
            episode.note(tree, ended)
            episode.figures["kills"] += ended.killed
            if not ended.killed and ended.code not in DOCUMENTED:
                episode.blame(tree, f"{word} ended with {ended.code}: {ended.last_words()}")


def write(broker: Broker, trees: Sequence[Tree], round_number: int) -> list[tuple[bytes, bytes]]:
    """Write the same records to every partition: plain, committed and aborted ones, and enough to roll a segment."""
    sent = [(b"broker-%d" % (n % 5), b"%d-%d-" % (round_number, n) + b"v" * 300) for n in range(12)]
    inside = [(b"broker-%d" % (5 + n), b"%d-in-%d" % (round_number, n)) for n in range(3)]
    aborted = [(b"broker-%d" % n, b"%d-aborted-%d" % (round_number, n)) for n in range(2)]
    common: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "linger.ms": 5,
        "enable.idempotence": True,  # else a retry on a busy machine changes the order
        **QUIET,
    }
    partitions = [each for tree in trees for each in tree.partitions]

    def send(producer: Producer, records: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in records:
            for topic, number in partitions:
                producer.produce(topic, key=key, value=value, partition=number)
            producer.flush(60)

    send(Producer(common), sent)
    transactional = Producer(common | {"transactional.id": f"between-{round_number}"})
    transactional.init_transactions(60)
    for records, ends in ((aborted, False), (inside, True)):
        transactional.begin_transaction()
        send(transactional, records)
        if ends:
            transactional.commit_transaction(60)
        else:
            transactional.abort_transaction(60)
    return [*sent, *inside, *aborted]


def read(broker: Broker, trees: Sequence[Tree]) -> dict[str, dict[tuple[str, int], Records]]:
    """Read isolation level -> partition -> its records."""
    topics: dict[str, set[int]] = {}
    for tree in trees:
        for topic, number in tree.partitions:
            topics.setdefault(topic, set()).add(number)
    return {
        isolation: read_to_the_end(broker.bootstrap, topics, isolation)
        for isolation in ("read_uncommitted", "read_committed")
    }


def judge(
    episode: Episode, records_served: Mapping[str, Mapping[tuple[str, int], Records]], known: bytes, when: str
) -> None:
    """Hold what every tree serves against its twins."""
    twins = {tree.name: tree for tree in episode.trees if tree.kind != "victim"}
    for tree in episode.trees:
        own = tree.scene.name
        for isolation, served in records_served.items():
            for topic, number in tree.partitions:
                name = topic.removeprefix(f"{tree.name}.")
                mine = served.get((topic, number))
                right = [
                    served.get((f"{twin}.{name}", number))
                    for twin in (f"{own}.before", f"{own}.after")
                    if twin in twins
                ]
                episode.figures["partitions read"] += 1
                wrong = _wrong(mine, right, known, isolation, by_key=_compacts(tree.scene) or own == "keys")
                if wrong:
                    episode.blame(tree, f"{episode.version} {when}, {isolation}: {topic}-{number} {wrong}")


def _wrong(
    mine: Records | None, right: Sequence[Records | None], known: bytes, isolation: str, *, by_key: bool
) -> str:
    if mine is None:
        return "cannot be read to its end"
    if mine in right:
        return ""
    if not by_key:
        counts = " or ".join(str(len(each or ())) for each in right)
        return f"serves {len(mine)} records, its twins {counts}, and they are not the same: {_unlike(mine, right)}"
    strange = [record for record in mine if record[2] is not None and record[2] not in known]
    if strange:
        return f"serves a record that nobody wrote: {strange[0]}"
    if isolation == "read_committed" and _last(mine) not in [_last(each or ()) for each in right]:
        return "does not serve the last record of each key"
    return ""


def _unlike(mine: Records, right: Sequence[Records | None]) -> str:
    """Return where two readings begin to differ; a reader that began again returns the same offsets twice."""
    offsets = [record[0] for record in mine]
    twice = len(offsets) - len(set(offsets))
    equal = max(_equal_at_first(mine, each or ()) for each in right)
    place = f"at offset {offsets[equal]}" if equal < len(mine) else "at its end"
    return f"first {place}, {twice} offsets twice"


def _equal_at_first(first: Records, other: Records) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, other, strict=False)) if a != b),
        min(len(first), len(other)),
    )


def _last(records: Records) -> dict[bytes | None, bytes | None]:
    """Return the last value of each key; a key with a tombstone counts as absent."""
    last = {key: value for _, key, value in records}
    return {key: value for key, value in last.items() if value is not None}


def verbs(episode: Episode, runner: Runner, round_number: int) -> None:
    """Run any verb on each victim, while no broker runs."""
    rng = random.Random(f"verbs {episode.version} {episode.seed} {round_number}")
    for tree in episode.trees:
        if tree.kind != "victim":
            continue
        for word in rng.choice(VERBS).split(".") if round_number == 1 else ["undo"]:
            before = visible(look(tree.placed.path))
            ended = runner.run(tree.placed, parse_step(word))
            episode.note(tree, ended)
            episode.figures["verbs after a broker"] += 1
            episode.figures[f"{word} ended with {ended.code}"] += 1
            if ended.code not in DOCUMENTED:
                episode.blame(tree, f"{word} ended with {ended.code}: {ended.last_words()}")
            elif ended.code in _UNCHANGED:
                changed = differences(visible(look(tree.placed.path)), before)
                if changed:
                    episode.blame(tree, f"{word} ended with {ended.code}, but:\n{changed}")
            elif word == "undo" and ended.code == 0 and not _compacts(tree.scene):
                twin = next(
                    candidate for candidate in episode.trees if candidate.name == f"{tree.scene.name}.before"
                )
                wrong = _not_put_back(tree, twin)
                if wrong:
                    episode.blame(tree, f"undo ended with 0, but {wrong}")


def _not_put_back(tree: Tree, twin: Tree) -> str:
    """Return an original of the plan that is not restored; the active segment belongs to the broker.

    An undo may have been killed when all was put back. A broker that is started then goes on with it as with its twin
    that krepair never touched: so it completes a swap that the plan had completed.
    """
    original = {entry.name: entry.data for entry in tree.scene.entries}
    for partition in tree.placed.plan.partitions:
        if not partition.changes:
            continue
        folder = partition.folder.removeprefix(f"{tree.name}.")
        logs = sorted(file.name for file in partition.files if file.name.endswith(".log"))
        for name in logs[:-1]:
            path = tree.placed.path / partition.folder / name
            of_twin = twin.placed.path / f"{twin.name}.{folder}" / name
            right = [original[f"{folder}/{name}"], *([of_twin.read_bytes()] if of_twin.exists() else [])]
            if not path.exists() or path.read_bytes() not in right:
                return f"{partition.folder}/{name} is neither the original nor what a broker makes of it"
    return ""


def purge_beside(episode: Episode, broker: Broker, runner: Runner) -> None:
    """Purge some victims while the broker runs and a producer writes to all."""
    rng = random.Random(f"beside {episode.version} {episode.seed}")
    chosen = [tree for tree in episode.trees if tree.kind == "victim" and rng.random() < 0.2]
    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(write, broker, episode.trees, 2)
        for tree in chosen:
            ended = runner.run(tree.placed, parse_step("purge"))
            episode.note(tree, ended)
            episode.figures["purges beside a broker"] += 1
            if ended.code not in _BESIDE:
                episode.blame(tree, f"purge beside a broker ended with {ended.code}")
        load.result()


def written(episode: Episode, sent: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return everything that was written, in order; the logs of the scenes are not compressed."""
    logs = [
        entry.data
        for tree in episode.trees
        for entry in tree.scene.entries
        if tree.kind == "before" and ".log" in entry.name and entry.data
    ]
    return b"".join([*logs, *(value for _, value in sent)])


def play(
    version: str,
    seed: int,
    work: Path,
    runner: Runner,
    calls: Mapping[str, Mapping[str, int]],
    victims: int = VICTIMS,
) -> Episode:
    """Run one episode."""
    work.mkdir()
    try:
        episode, broker = make(version, seed, work, victims)
        kill(episode, runner, calls)
        try:
            _serve(episode, broker, runner)
        except BrokerError as error:
            _blame_start(episode, broker, str(error))
        finally:
            broker.close()
        verbs(episode, runner, 2)
        return episode
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _serve(episode: Episode, broker: Broker, runner: Runner) -> None:
    rng = random.Random(f"stops {episode.version} {episode.seed}")
    steps = sum(tree.kind == "victim" for tree in episode.trees)
    broker.start()
    first = write(broker, episode.trees, 1)
    purge_beside(episode, broker, runner)
    known = written(episode, [*first, *((key, value.replace(b"1-", b"2-", 1)) for key, value in first)])
    time.sleep(2)  # the cleaner looks every tenth of a second
    judge(episode, read(broker, episode.trees), known, "first start")
    broker.stop(kill=rng.random() < 0.5)
    episode.figures += Counter({"steps": steps, "starts of a broker": 1})
    verbs(episode, runner, 1)
    broker.start()
    judge(episode, read(broker, episode.trees), known, "second start")
    broker.stop()
    episode.figures += Counter({"steps": steps, "starts of a broker": 1})


def _blame_start(episode: Episode, broker: Broker, output: str) -> None:
    """Keep and name the trees that the broker did not load to their ends, after a failed start."""
    log = broker.log()
    begun = set(re.findall(r"partition=([^,\]]+)", log))
    loaded = set(re.findall(r"partition=([^,]+), dir[^\n]*Completed load", log))
    error = next((line for line in log.splitlines() if "Exception" in line), output[-300:])
    if _is_by_its_own_cleaner(episode):
        episode.figures[f"starts of {episode.version} that KAFKA-8443 prevents"] += 1
        return
    for tree in episode.trees:
        stuck = [folder for folder in tree.folders if folder in begun - loaded]
        if stuck:
            kept = FAILED / f"{episode.version}-{episode.seed}-{tree.name}"
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(tree.placed.path, kept, symlinks=True)
            shutil.copy(tree.placed.plan_file, f"{kept}.plan")
            episode.blame(
                tree, f"{episode.version} does not start; {stuck} were not loaded; kept in {kept}: {error}"
            )
    if not episode.wrong:
        episode.wrong.append(("all", f"{episode.version} does not start: {error}"))


def _is_by_its_own_cleaner(episode: Episode) -> bool:
    """Return whether a second start failed only in logs of the broker's own cleaner, by KAFKA-8443."""
    if release(episode.version) >= _READS_ON or not episode.figures["starts of a broker"]:
        return False
    with Judge(episode.version) as judge:
        failed = [(tree, error) for tree in episode.trees for error in _refusals(judge, tree)]
    return bool(failed) and all(_compacts(tree.scene) and _NO_SECOND_START in error for tree, error in failed)


def _refusals(judge: Judge, tree: Tree) -> Iterator[str]:
    """Return the errors that the loader throws for copies of partitions."""
    root = tree.placed.path
    points, starts = (_lines(root / f"{kind}{CHECKPOINTS}") for kind in ("recovery-point", "log-start"))
    for folder, partition in zip(tree.folders, tree.partitions, strict=True):
        copy = root.parent / "refusals" / folder
        shutil.copytree(root / folder, copy)
        try:
            judge.start(
                copy,
                clean=(root / ".kafka_cleanshutdown").exists(),
                recovery_point=points.get(partition, 0),
                log_start=starts.get(partition, 0),
            )
        except JudgeError as error:
            yield str(error)
        shutil.rmtree(copy.parent)


def _lines(checkpoint: Path) -> dict[tuple[str, int], int]:
    return {
        (line.topic, line.partition): line.offset for line in decode_offsets(checkpoint.read_bytes()).entries
    }


def calls_of(runner: Runner, workdir: Path) -> dict[str, dict[str, int]]:
    """Return scene -> verb -> number of calls that change files."""
    scenes = [build(name) for name in SCENES]
    runner.warm_up(scenes, workdir)
    return {scene.name: find_wanted(runner, scene, workdir).counts for scene in scenes}


def episodes(seeds: range, samples: float | None) -> Iterator[tuple[str, int]]:
    """Yield version and seed of each episode."""
    most = max(1, int(samples)) if samples else EPISODES
    for seed in seeds:
        for number in range(most):
            for version in VERSIONS:
                yield version, seed * EPISODES + number


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Run ``EPISODES`` of each version per seed, or ``state.samples`` of them."""
    runner, calls = Runner(), None
    for version, seed in episodes(seeds, state.samples):
        unit = f"{version}:{seed}"
        if state.is_done(unit) or state.time_is_up():
            continue
        calls = calls or calls_of(runner, workdir)
        episode = play(version, seed, workdir / f"between-{version}-{seed}", runner, calls)
        for name, text in episode.wrong:
            state.wrong(f"{unit}:{name}", text)
        state.keep(unit, episode.figures)


def replay(text: str, workdir: Path) -> list[str]:
    """Play one episode again; gives what is wrong with the tree that is named, or with all."""
    version, seed, *name = text.split(":")
    runner = Runner()
    episode = play(version, int(seed), workdir / "between", runner, calls_of(runner, workdir))
    return [why for tree, why in episode.wrong if not name or tree == name[0]]
