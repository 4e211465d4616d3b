"""Starts a real broker on a sample of the trees that power losses leave.

A broker takes many log directories, so one start of it meets dozens of trees; topics are renamed, so that each tree
has its own. The original tree and the applied one of each scene are among them, and say what must be served.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from krepair.formats.checkpoint import CheckpointEntry, decode_offsets, encode_offsets
from tests.corpus.jbod import broker_on
from tests.lab import client
from tests.lab.broker import Topic
from tests.lab.jars import VERSIONS
from tools.torture.disk_model import State
from tools.torture.power_loss import HISTORIES, Case, placed, trials
from tools.torture.scenes import LOCK, build
from tools.torture.state import State as Done

SCENES_STARTED = (
    "markers",
    "markers-unclean",
    "markers-without-points",
    "partitions",
    "leftovers",
    "indexes",
)
"""Whole logs under the fence. What a broker cuts of damaged ones, and the orders without it, the classes judge."""

TREES_PER_SCENE = 12
CHECKPOINTS = "-offset-checkpoint"


class Tree(NamedTuple):
    """One log directory for the broker.

    Attributes:
        case: origin of the tree; the others are compared with ``before`` and ``after``.
        scene: name of the scene.
        prefix: put before the names of its topics.
        state: files of the tree.
    """

    case: str
    scene: str
    prefix: str
    state: State


def trees_of(name: str, seed: int, most: int, workdir: Path) -> Iterator[Tree]:
    """Return the original tree, the applied one, and the given number of power losses in apply and undo."""
    with placed(build(name, seed), workdir) as site:
        applied = site.record(("apply",))
        yield Tree("before", name, f"{name}.before.", site.original)
        yield Tree("after", name, f"{name}.after.", applied.end)
        results: list[Tree] = []
        for history in ("apply", "undo"):
            case = Case(name, seed, history)
            recording = applied if history == "apply" else site.record(HISTORIES[history])
            for trial in trials(site, recording, seed=case.words, per_point=case.per_point):
                at = case._replace(point=trial.point, choice=trial.choice)
                results.append(
                    Tree(str(at), name, f"{name}.{history}.{trial.point}.{trial.choice}.", trial.state)
                )
        yield from random.Random(f"{name} {seed}").sample(results, min(most, len(results)))


def write(tree: Tree, root: Path) -> dict[str, set[int]]:
    """Write a tree with renamed topics; gives topic -> partitions."""
    state, topics = tree.state, dict[str, set[int]]()
    for folder in sorted(state.folders):
        if "/" not in folder:
            topic, _, number = folder.rpartition("-")
            topics.setdefault(tree.prefix + topic, set()).add(int(number))
    files = ((path, state.data[node], state.attrs[node].mtime_ns) for path, node in state.files.items())
    write_renamed(root, tree.prefix, sorted(state.folders), files)
    return topics


def write_renamed(
    root: Path, prefix: str, folders: Iterable[str], files: Iterable[tuple[str, bytes, int]]
) -> None:
    """Write a log directory, without ``.lock``, with the prefix before the names of all topics.

    Args:
        root: folder to create.
        prefix: prefix of partition folders, and of entries in the root's checkpoints.
        folders: a folder before what is in it.
        files: path, bytes and modification time.
    """
    root.mkdir(parents=True)
    for folder in folders:
        (root / (prefix + folder)).mkdir()
    for path, data, mtime_ns in files:
        if path == LOCK:
            continue
        if path.endswith(CHECKPOINTS) and "/" not in path and data:
            lines = decode_offsets(data).entries
            data = encode_offsets(CheckpointEntry(prefix + e.topic, e.partition, e.offset) for e in lines)
        file = root / (prefix + path if "/" in path else path)
        file.write_bytes(data)
        os.utime(file, ns=(mtime_ns, mtime_ns))


def start(version: str, trees: list[Tree], work: Path) -> list[tuple[str, str]]:
    """Start one broker on the trees and read everything; gives (case, what is served wrong)."""
    dirs = [work / f"dir{number}" for number in range(len(trees))]
    topics: dict[str, set[int]] = {}
    for tree, path in zip(trees, dirs, strict=True):
        topics |= write(tree, path)
    config = {"retention.ms": "-1", "segment.bytes": "1073741824"}
    registered = {name: Topic(max(numbers) + 1, config) for name, numbers in topics.items()}
    with broker_on(version, dirs, registered, work / "broker") as broker:
        served = {
            isolation: client.read_to_the_end(broker.bootstrap, topics, isolation)
            for isolation in ("read_uncommitted", "read_committed")
        }
        broker.stop()
    wrong = [("all", f"{version}: nothing was read") for rows in served.values() if not any(rows.values())]
    for tree in trees:
        allowed = [
            other for other in trees if other.scene == tree.scene and other.case in ("before", "after")
        ]
        for topic in sorted(topic for topic in topics if topic.startswith(tree.prefix)):
            name = topic.removeprefix(tree.prefix)
            for number in sorted(topics[topic]):
                for isolation, rows in served.items():
                    right = {rows.get((other.prefix + name, number)) for other in allowed}
                    mine = rows.get((topic, number))
                    if mine is None or mine not in right:
                        count = "nothing" if mine is None else f"{len(mine)} records"
                        wrong.append(
                            (tree.case, f"{version} {isolation} serves {count} of {name}-{number} wrong")
                        )
    return wrong


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Start each version once per seed."""
    for seed in seeds:
        for version in VERSIONS:
            unit = f"{version}:{seed}"
            if state.is_done(unit) or state.time_is_up():
                continue
            most = state.most(TREES_PER_SCENE)
            trees = [tree for name in SCENES_STARTED for tree in trees_of(name, seed, most, workdir)]
            work = workdir / f"brokers-{version}-{seed}"
            try:
                for case, text in start(version, trees, work):
                    state.wrong(f"{version}:{case}", text)
            finally:
                shutil.rmtree(work, ignore_errors=True)
            state.keep(unit, Counter({"trees": len(trees), f"starts of {version}": 1}))


def replay(text: str, workdir: Path) -> list[str]:
    """Start a broker on one tree, beside what it must serve."""
    version, _, rest = text.partition(":")
    case = Case.parse(rest)
    trees = [
        tree
        for tree in trees_of(case.scene, case.seed, 10**9, workdir)
        if tree.case in ("before", "after", rest)
    ]
    return [f"{at}: {wrong}" for at, wrong in start(version, trees, workdir / "brokers")]
