"""Somebody at night before a full disk, who types the runbook and what krepair's pages say, and nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.kernels.cache import CACHE_VARIABLE, user_folders
from tests.brokers.serving import PASSIVE
from tests.lab import client
from tests.lab.broker import Broker, Topic
from tests.ops.full_disks import file_system, fill, fill_up
from tests.ops.test_full_disks import BROKER, FOLDER, MIB, Host, _as
from tests.ops.test_removable import no_inode_left
from tests.runbooks.page import follow
from tests.runbooks.stories import RECLAIM, STORIES

PARTITION_BYTES = 1_900_000
"""On the disk, of one partition of the fixture, rounded up."""
TWIN = "twin"
"""A topic with the same bytes that no plan is about: what it serves, the others have to serve."""
CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": "1000", "segment.bytes": "100000"}
TOPICS_TXT = "All configs for topic __consumer_offsets are:\n" + "".join(
    f"  {key}={value} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:{key}={value}}}\n"
    for key, value in CONFIG.items()
)
STORY = next(story for story in STORIES if story.name == "a disk is reclaimed by one sequence of plans")


@dataclass(frozen=True)
class Cell:
    """One full disk.

    Attributes:
        kind: of its file system.
        reserved_percent: of ext4: what only root may take.
        user: who types: ``root`` or ``broker``. The directory is the broker's.
        partitions: of ``__consumer_offsets``.
        lacks: ``blocks`` or ``inodes``.
    """

    kind: str
    reserved_percent: int
    user: str
    partitions: int
    lacks: str = "blocks"

    def __str__(self) -> str:
        reserve = "-reserve" if self.reserved_percent else ""
        return f"{self.kind}{reserve}-{self.user}-{self.partitions}-{self.lacks}"

    @property
    def size(self) -> int:
        """Bytes of the disk."""
        return (self.partitions + 1) * PARTITION_BYTES + 24 * MIB

    def fill(self, mount: Path) -> None:
        """Take what is left of the disk."""
        if self.lacks == "inodes":
            no_inode_left(self.kind, mount)
        elif self.kind == "xfs" or (self.kind == "ext4" and not self.reserved_percent):
            fill_up(mount)
        else:
            fill(mount, 0)


class Machine(Host):
    """The machine of a cell, before its disk is filled."""

    def __init__(self, cell: Cell, mount: Path, work: Path) -> None:
        super().__init__(mount, work, cell.partitions, BROKER)
        shutil.copytree(self.path / FOLDER, self.path / f"{TWIN}-0")
        (self.path / "meta.properties").unlink()  # of another cluster than the lab's
        for path in [self.path, *self.path.rglob("*")]:
            os.chown(path, *BROKER)
        if cell.user == "root":
            self.user = None


@dataclass
class Operator:
    """Types commands and counts them; whatever a page leaves to a person is a decision.

    Attributes:
        typed: each command.
        decisions: what had to be decided, in words.
        said: what the last command printed.
    """

    machine: Machine
    elsewhere: Path
    typed: list[str] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)
    said: str = ""

    def type(self, command: str, code: ExitCode = ExitCode.DONE) -> None:
        """One command as it stands in the runbook or on the page."""
        self.typed.append(command)
        names = {
            "/root/free.krplan": "free.krplan",
            "/var/lib/kafka": str(self.machine.path),
            "/etc/kafka/server.properties": "server.properties",
        }
        here = re.sub("|".join(names), lambda found: names[found[0]], command)
        words = shlex.split(here, comments=True)
        if words[0] == "krepair":
            ended, self.said = self.machine.type(*words[1:])
        else:
            shell = ["sh", "-c", re.sub(r"\bDIR\b", str(self.elsewhere), here)]
            done = subprocess.run(
                [*_as(self.machine.user), *shell], capture_output=True, text=True, check=False
            )
            ended, self.said = done.returncode, done.stdout + done.stderr
        assert ended == code, (command, ended, self.said)

    def decide(self, what: str) -> None:
        """Something that only a person knows."""
        self.decisions.append(what)

    def commands(self) -> list[str]:
        """What the last page says is to be typed."""
        return re.findall(r"^  ((?:krepair|cp|rm|fallocate) .*?)(?: +#.*)?$", self.said, re.MULTILINE)


def free_the_disk(operator: Operator) -> None:
    """The short way of the runbook, until a broker may start; what is kept then is freed later."""
    plan, apply, verify, purge = [command for command, _ in follow(RECLAIM, STORY.steps)]
    operator.decide("which markers may go: there is no other replica")
    operator.type(f"{plan} --only-replica '*'", ExitCode.FOUND)
    back = ""
    if "Nothing of it fits on the disk" in operator.said:
        back = make_room(operator)
    named = next(command for command in operator.commands() if command.startswith("krepair apply "))
    assert named.replace("free.krplan", "/root/free.krplan").startswith(
        apply.removesuffix(" --free=until-verified")
    )
    if "--free=until-verified" in named:
        operator.decide("the first steps may have no undo")
    operator.type(named)
    operator.type(verify)
    if back:
        operator.type(purge)
        operator.type(back)


def free_what_is_kept(operator: Operator) -> None:
    """The last command of the short way, if it was not typed before."""
    purge = STORY.steps[-1][0]
    if purge not in [command.partition(" #")[0].strip() for command in operator.typed]:
        operator.type(purge)


def make_room(operator: Operator) -> str:
    """What the page says where nothing fits; the command that undoes it at the end, if there is one."""
    commands = operator.commands()
    again = next(command for command in commands if " --free " in command)
    if "As root, the same command can take" in operator.said:
        operator.decide("become root")
        operator.machine.user = None
        operator.type(again, ExitCode.FOUND)
        return ""
    out, back = [command for command in commands if command.startswith("cp ")]
    operator.decide("which other disk has room")
    operator.type(out)
    operator.type(again, ExitCode.FOUND)
    assert "Nothing of it fits" not in operator.said, operator.said
    return back


@contextlib.contextmanager
def on_a_full_disk(cell: Cell, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Operator]:
    """Somebody before the full disk of a cell.

    Args:
        cell: what disk, and who.
        folder: that any user may enter.
        patch: of the test.
    """
    # The kernels are there: here nobody waits for them on a full disk.
    patch.setenv(CACHE_VARIABLE, user_folders()[0])
    work, elsewhere = folder / "work", folder / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    files = 100 * cell.partitions + 6_000
    with file_system(cell.kind, folder, cell.size, cell.reserved_percent, files) as mount:
        machine = Machine(cell, mount, work)
        (work / "topics.txt").write_text(TOPICS_TXT)
        (work / "server.properties").write_text(f"broker.id=0\nlog.dirs={machine.path}\n")
        for path in (work, elsewhere, *work.iterdir()):
            os.chown(path, *BROKER)
        cell.fill(mount)
        yield Operator(machine, elsewhere)


def a_broker_serves_all(cell: Cell, log_dir: Path, work: Path) -> None:
    """A broker of the directory's user starts and serves of some partitions what it serves of the untouched one."""
    work.mkdir(mode=0o755)
    topics = {"__consumer_offsets": Topic(cell.partitions, CONFIG), TWIN: Topic(1, CONFIG)}
    settings = PASSIVE | {"offsets.topic.num.partitions": cell.partitions}
    some = sorted({0, 1, cell.partitions // 2, cell.partitions - 1})
    broker = Broker("2.2.1", log_dir, settings, topics, work_dir=work, before=_as(BROKER), timeout_s=240)
    with broker:
        for isolation in ("read_uncommitted", "read_committed"):
            (before,) = client.read_partitions(broker.bootstrap, TWIN, [0], isolation).values()
            assert before
            served = client.read_partitions(broker.bootstrap, "__consumer_offsets", some, isolation)
            end = before[-1].offset
            assert {
                number: [one for one in found if one.offset <= end] for number, found in served.items()
            } == dict.fromkeys(some, before)
        assert client.fetch_group_offsets(broker.bootstrap)
