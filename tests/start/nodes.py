"""A node of KRaft that is started on a directory, alone or beside the controllers of a real quorum.

Its controllers were there before it: their metadata logs are copies of the one that it has, and they have a leader.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.lab.jvm import java
from tests.lab.ports import free_port
from tests.lab.three import NODES

METADATA = "__cluster_metadata-0"
ROLES = ("alone", "one of three", "broker")
SECONDS = 25
"""So long a node may take to end or to load its logs; the busiest machine needed half."""


class Quorum(NamedTuple):
    """Who votes.

    Attributes:
        role: of node 0: a controller ``alone`` or ``one of three``, or a ``broker`` that is none.
        ports: of the listeners of the controllers 0, 1 and 2, then of node 0 as a broker.
    """

    role: str
    ports: tuple[int, int, int, int]

    @property
    def others(self) -> tuple[int, ...]:
        """The controllers beside node 0."""
        return {"alone": (), "one of three": (1, 2), "broker": (1,)}[self.role]

    @property
    def voters(self) -> tuple[int, ...]:
        """All that vote."""
        return self.others if self.role == "broker" else (0, *self.others)


def quorum(role: str) -> Quorum:
    """A quorum on free ports."""
    return Quorum(role, (free_port(), free_port(), free_port(), free_port()))


def settings(of: Quorum, node: int, log_dir: Path, more: Mapping[str, str]) -> dict[str, str]:
    """A ``server.properties``; ``more`` goes over it."""
    controller = f"CONTROLLER://127.0.0.1:{of.ports[node]}"
    own = f"PLAINTEXT://127.0.0.1:{of.ports[3]}"
    if node:
        roles, listeners = "controller", controller
    elif of.role == "broker":
        roles, listeners = "broker", own
    else:
        roles, listeners = "broker,controller", f"{own},{controller}"
    return {
        "process.roles": roles,
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{one}@127.0.0.1:{of.ports[one]}" for one in of.voters),
        "listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "broker.session.timeout.ms": "3000",
        "log.dirs": str(log_dir),
        **more,
    }


def written(path: Path, lines: Mapping[str, str]) -> Path:
    """Write a file of settings."""
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def voting(log_dir: Path, of: Quorum) -> None:
    """Let the ``quorum-state`` of a directory name the voters, as before 4.0 a node asks for."""
    path = log_dir / METADATA / "quorum-state"
    names = ",".join(f'{{"voterId":{one}}}' for one in of.voters)
    path.write_text(re.sub(r'"currentVoters":\[.*?\]', f'"currentVoters":[{names}]', path.read_text()))


def forget_leader(log_dir: Path) -> None:
    """Let nobody lead: node 0 led when this was written, and one that lost its log must not be told that it leads."""
    path = log_dir / METADATA / "quorum-state"
    path.write_text(re.sub(r'"leaderId":\d+', '"leaderId":-1', path.read_text()))


@contextmanager
def others(
    version: str,
    of: Quorum,
    base: Path,
    folder: Path,
    *,
    without_log: Sequence[int] = (),
    not_running: Sequence[int] = (),
) -> Iterator[None]:
    """The controllers beside node 0, each with a copy of the metadata log of ``base``; if all run they have a leader.

    Args:
        version: of them.
        of: who votes.
        base: a log directory.
        folder: gets theirs; it does not exist yet.
        without_log: those whose metadata log was set aside.
        not_running: those that are down.
    """
    if not of.others:
        yield
        return
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            java(version, str(NODES)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        running = [node for node in of.others if node not in not_running]
        for node in running:
            own = folder / str(node)
            shutil.copytree(base / METADATA, own / METADATA)
            for file in base.glob("*.*"):
                if file.is_file():
                    shutil.copy(file, own)
            meta = (base / "meta.properties").read_text().replace("node.id=0", f"node.id={node}")
            (own / "meta.properties").write_text(re.sub(r"(?m)^directory.id=.*\n", "", meta))
            voting(own, of)
            forget_leader(own)
            if node in without_log:
                shutil.rmtree(own / METADATA)
            config = written(folder / f"{node}.properties", settings(of, node, own, {}))
            process.stdin.write(f"start {node} {config}\n")
        process.stdin.flush()
        for _ in running if not not_running else ():
            answer = process.stdout.readline()
            assert answer.startswith("OK"), (answer, (folder / "log").read_text()[-4000:])
        yield
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Seen(NamedTuple):
    """What a start came to.

    Attributes:
        ended: whether the process ended.
        aside: folders that it put aside.
        log: what it said.
    """

    ended: bool
    aside: frozenset[str]
    log: str

    @property
    def loaded(self) -> bool:
        """Whether it loaded its logs."""
        ready = ("Finished loading offsets", "Kafka Server started", "[KafkaServer id=0] started")
        return any(words in self.log for words in ready)

    @property
    def up(self) -> bool:
        """Whether it loaded its logs, or put some aside, and goes on."""
        return not self.ended and (self.loaded or bool(self.aside))


def started(
    version: str,
    config: Path,
    log_dirs: Sequence[Path],
    expected: Callable[[Seen], bool] = lambda seen: False,
    *,
    seconds: float = SECONDS,
) -> Seen:
    """Start a node and watch it until it ended, or is as expected, or its time is up; then end it."""
    path = config.with_suffix(".log")
    with path.open("wb") as out:
        process = subprocess.Popen(
            java(version, "kafka.Kafka", str(config)), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        end = time.monotonic() + seconds
        while True:
            ended = process.poll() is not None
            seen = Seen(ended, aside(log_dirs), path.read_text(errors="replace"))
            if ended or time.monotonic() > end or expected(seen):
                return seen
            time.sleep(0.2)
    finally:
        process.kill()
        process.wait()


def aside(log_dirs: Sequence[Path]) -> frozenset[str]:
    """Partitions whose folders were put aside."""
    return frozenset(path.name.rpartition(".")[0] for one in log_dirs for path in one.glob("*-stray"))
