"""Part ``compact``: plan, apply and verify in one warm process, against one pass of Kafka's own cleaner.

Two more lines need no Kafka to be understood: ``plan`` against ``cat`` of the same files, and ``apply`` against ``cp``
of the bytes that stay, with ``fsync``.

CPU time is that of this process and its children, and of the cleaning thread as its JVM counts it, without its garbage
collector.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import crc32c

from krepair.commit.reports import ApplyReport
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import EngineName, Options
from krepair.plan.model import Plan
from tests import builders
from tests.builders import Record
from tests.codecs import packed
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.data import NOW_MS, close, make
from tools.bench.setting import BROKER_JVM, FAR_MS, Setting
from tools.bench.spent import Spent, make_cold, spent_by, spent_by_cleaner, timed_tasks
from tools.bench.table import Table, log_bytes_of

VERSIONS: Final = ("2.2.1", "3.9.2")
VERBS: Final = ("plan", "apply", "verify")
SIZE: Final = 200_000_000
_WORTH_TELLING_S: Final = 0.0005
RECORDS_EACH: Final = 16
KEYS: Final = 5000
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": 1 << 30}
IO_BUFFER: Final = {"io.buffer": 1 << 20}


@dataclass(frozen=True)
class Kind:
    """One kind of log.

    Attributes:
        name: name in the table.
        commits: offset commits of 150 bytes, one a batch; else batches of 16 records of 1 kB.
        codec: codec of its batches.
        own: share of the records whose key no other has, so that they stay.
        half: ``half`` of ``tools.bench.data``, and ``--fix markers``: every 2.2 kB something stays and something goes.
    """

    name: str
    commits: bool = False
    codec: int = 0
    own: float = 0.0
    half: bool = False

    @property
    def topic(self) -> str:
        """Offset commits are in their own topic."""
        return "__consumer_offsets" if self.commits or self.half else "t"


HALF_STAYS: Final = Kind("1 kB records, half stays", own=0.5)
HALF: Final = Kind("half markers, half data", half=True)
KINDS: Final = (
    Kind("1 kB records"),
    HALF_STAYS,
    Kind("150-byte commits", commits=True),
    Kind("1 kB records, lz4", codec=3),
    Kind("1 kB records, zstd", codec=4),
    HALF,
)


# -- the logs
def _record(kind: Kind, chance: random.Random) -> Record:
    if not kind.commits:
        return Record(b"key-%08d" % chance.randrange(KEYS), chance.randbytes(500) + b"x" * 480)
    name = b"consumer-group-%05d" % chance.randrange(KEYS // 20)
    key = struct.pack(">hh", 1, len(name)) + name + b"\0\x0btopic-%05d" % chance.randrange(20) + bytes(4)
    return Record(key, struct.pack(">hqihqq", 3, chance.randrange(10**9), -1, 0, NOW_MS, 0)[:28])


def _with_own_keys(raw: bytes, offset: int, kind: Kind, chance: random.Random) -> bytearray:
    """Return a batch in which a share of the records have keys that no other record has."""
    new = bytearray(raw)
    for number, match in enumerate(re.finditer(rb"(key-|consumer-group-)[0-9]{5}", raw)):
        if chance.random() < kind.own:
            new[match.end() - 9 : match.end()] = b"%09d" % (offset + number)
    struct.pack_into(">I", new, 17, crc32c.crc32c(new[21:]))
    return bytearray(packed(bytes(new), kind.codec))


def _template(kind: Kind, chance: random.Random) -> bytearray:
    raw = builders.encode(0, [_record(kind, chance) for _ in range(1 if kind.commits else RECORDS_EACH)])
    return bytearray(raw if kind.own else packed(raw, kind.codec))


def write_log(root: Path, kind: Kind, size: int) -> Path:
    """Write a log directory with one partition: two closed segments of many batches and a small active one."""
    if kind.half:
        return make(root, "half", size).folder
    chance = random.Random(1)
    folder = root / f"{kind.topic}-0"
    folder.mkdir(parents=True)
    batches = [_template(kind, chance) for _ in range(2000)]
    offset = 0
    for _ in range(2):
        with (folder / f"{offset:020d}.log").open("wb") as file:
            while file.tell() < size // 2:
                # neither the offset nor the leader epoch is covered by a batch's CRC
                raw = chance.choice(batches)
                if kind.own:
                    raw = _with_own_keys(raw, offset, kind, chance)
                struct.pack_into(">q", raw, 0, offset)
                file.write(raw)
                offset += 1 if kind.commits else RECORDS_EACH
    (folder / f"{offset:020d}.log").write_bytes(builders.data(offset, 1).raw)
    for path in folder.glob("*.log"):
        os.utime(path, ns=(NOW_MS * 10**6, NOW_MS * 10**6))
    close(root, kind.topic, [offset + 1])
    return folder


# -- krepair
def options_for(kind: Kind, beside: Path) -> Options:
    """Return options of ``--fix compact``, with the topic's configuration in ``beside``; or of ``--fix markers``."""
    if kind.half:
        return Options(
            engine=EngineName.INLINE,
            now_ms=NOW_MS,
            delete_horizon=str(FAR_MS),
            only_replica=("*",),
            fixes=("markers",),
        )
    config = {kind.topic: {key: str(value) for key, value in SETTINGS.items()}}
    beside.write_text(json.dumps(config))
    return Options(
        engine=EngineName.INLINE,
        now_ms=NOW_MS,
        fixes=("compact",),
        topic_config=str(beside),
        only_replica=("*",),
    )


def one_round(root: Path, options: Options) -> list[Spent]:
    """Run plan, apply and verify once, on a copy; return the cost of each."""
    plans: list[Plan] = []
    reports: list[ApplyReport] = []
    problems: list[Any] = []
    spent = [
        spent_by(lambda: plans.append(make_plan(str(root), options))),
        spent_by(lambda: reports.append(apply(plans[0], options))),
        spent_by(lambda: problems.extend(verify_plan(plans[0], options).problems)),
    ]
    assert plans[0].partitions[0].changes, plans[0].partitions[0].why
    assert reports[0].exit_code == 0, reports[0].results
    assert not problems, problems
    return spent


# -- all of it
class Logs(NamedTuple):
    """One kind of log.

    Attributes:
        kind: kind of the log.
        root: its log directory, of which copies are worked on.
        folder: name of the partition's.
        size: bytes of all its logs.
        options: options of the verbs.
    """

    kind: Kind
    root: Path
    folder: str
    size: int
    options: Options

    @property
    def ours(self) -> str:
        """Name of the line of all three verbs."""
        return f"{self.kind.name}: krepair plan + apply + verify"

    @property
    def cat(self) -> str:
        """Name of the line of ``cat``."""
        return f"{self.kind.name}: cat of the same files"

    @property
    def cp(self) -> str:
        """Name of the line of ``cp``."""
        return f"{self.kind.name}: cp of the bytes that stay, with fsync"


def compact(table: Table, setting: Setting) -> None:
    """Measure each kind of log: krepair and each peer in turns."""
    for kind in KINDS:
        with setting.room() as room, ExitStack() as stack:
            root = room / "made"
            folder = write_log(root, kind, setting.scaled(SIZE))
            logs = Logs(kind, root, folder.name, log_bytes_of(root), options_for(kind, room / "topics.json"))
            stack.enter_context(mock.patch.object(jvm, "QUICK", BROKER_JVM))
            judges = [stack.enter_context(Judge(version, heap="2g", timeout_s=3600)) for version in VERSIONS]
            for _ in range(2):  # all is compiled and warm
                _in_turns(Table(), room, logs, judges, cold=False)
            for cold in (False, True):
                for _ in range(setting.runs):
                    _in_turns(table, room, logs, judges, cold=cold)
            _tasks(table, room, logs)
            for version in VERSIONS:
                table.against(logs.ours, f"{kind.name}: cleaner of {version}")
            table.against(f"{kind.name}: krepair plan", logs.cat)
            table.against(f"{kind.name}: krepair apply", logs.cp)


def _in_turns(table: Table, room: Path, logs: Logs, judges: Sequence[Judge], *, cold: bool) -> None:
    with _copy(room, logs, cold=cold) as copy:
        table.note(logs.cat, logs.size, spent_by(lambda: _cat(copy / logs.folder)), cold=cold)
        if cold:
            make_cold(copy)
        verbs = one_round(copy, logs.options)
        if cold:
            make_cold(copy)
        table.note(logs.cp, logs.size, spent_by(lambda: _cp(copy / logs.folder, room / "kept")), cold=cold)
        shutil.rmtree(room / "kept")
    table.note(logs.ours, logs.size, verbs[0].more(verbs[1]).more(verbs[2]), cold=cold)
    for verb, spent in zip(VERBS, verbs, strict=True):
        table.note(f"{logs.kind.name}: krepair {verb}", logs.size, spent, cold=cold)
    for judge in judges:
        with _copy(room, logs, cold=False) as copy:
            spent = peer_round(judge, copy / logs.folder, half=logs.kind.half, cold=cold)
            table.note(f"{logs.kind.name}: cleaner of {judge.version}", logs.size, spent, cold=cold)


def _cat(folder: Path) -> None:
    with Path(os.devnull).open("wb") as nowhere:
        subprocess.run(["cat", *sorted(folder.glob("*.log"))], stdout=nowhere, check=True)


def _cp(folder: Path, target: Path) -> None:
    target.mkdir()
    subprocess.run(["cp", *sorted(folder.glob("*.log")), target], check=True)
    subprocess.run(["sync", *sorted(target.iterdir())], check=True)


def _tasks(table: Table, room: Path, logs: Logs) -> None:
    """Return CPU time by task, from a separate round."""
    with _copy(room, logs, cold=False) as copy, timed_tasks(time.process_time) as tasks:
        one_round(copy, logs.options)
    for task, seconds in sorted(tasks.items()):
        if seconds > _WORTH_TELLING_S:
            table.fact(f"{logs.kind.name}: task {task}, one run (CPU ms)", 1000 * seconds)


@contextlib.contextmanager
def _copy(room: Path, logs: Logs, *, cold: bool) -> Iterator[Path]:
    copy = room / "copy"
    shutil.copytree(logs.root, copy)
    os.sync()
    if cold:
        make_cold(copy)
    yield copy
    shutil.rmtree(copy)


def peer_round(judge: Judge, folder: Path, *, half: bool, cold: bool) -> Spent:
    """Run one pass of a cleaner over a copy, with all keys in its map.

    Args:
        judge: process with the peer's classes.
        folder: partition folder to clean.
        half: share of markers that are removed.
        cold: true to begin with an empty page cache.
    """
    judge.recover(folder, SETTINGS | IO_BUFFER)
    if cold:
        make_cold(folder)
    horizon = FAR_MS if half else 1
    return spent_by_cleaner(
        judge,
        lambda: judge.clean(
            folder, first_dirty=0, horizon=horizon, settings=SETTINGS | IO_BUFFER, now_ms=NOW_MS
        ),
    )
