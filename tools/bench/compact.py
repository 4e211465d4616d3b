"""Compaction: plan, apply and verify in one warm process, against one pass of Kafka's own cleaner.

By CPU time, since both are one thread and other work on the machine changes wall time: of this process, and of the
cleaning thread as its JVM counts it. Taken in turns; the least of several says what the work costs. Then, in turns of
their own, by wall time with a cold cache. How many bytes each reads does not depend on the machine at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import crc32c

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.options import Engine, Options
from krepair.pipeline.engines import engine
from krepair.pipeline.jobs import Task
from tests import builders
from tests.builders import Record
from tests.compaction import twin
from tests.lab import jvm
from tests.lab.judge import Judge
from tools.bench.cost import Cost, bytes_read, make_cold
from tools.bench.data import NOW_MS, make

VERSIONS: Final = ("2.2.1", "3.9.2")
VERBS: Final = ("plan", "apply", "verify")
OURS: Final = "krepair"
_WORTH_TELLING_S: Final = 0.0005
RECORDS_EACH: Final = 16
KEYS: Final = 5000
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": 1 << 30}
IO_BUFFER: Final = {"io.buffer": 1 << 20}
FAR_MS: Final = NOW_MS + 10**10


@dataclass(frozen=True)
class Kind:
    """One kind of log.

    Attributes:
        name: for the table.
        commits: offset commits of 150 bytes, one a batch; else batches of 16 records of 1 kB.
        codec: of its batches.
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
        """Offset commits are in their own topic, of which a plan also tells groups."""
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
    """A batch of which a share of the records have keys that no other record has."""
    new = bytearray(raw)
    for number, found in enumerate(re.finditer(rb"(key-|consumer-group-)[0-9]{5}", raw)):
        if chance.random() < kind.own:
            new[found.end() - 9 : found.end()] = b"%09d" % (offset + number)
    struct.pack_into(">I", new, 17, crc32c.crc32c(new[21:]))
    return bytearray(twin.packed(bytes(new), kind.codec)) if kind.codec else new


def _template(kind: Kind, chance: random.Random) -> bytearray:
    raw = builders.encode(0, [_record(kind, chance) for _ in range(1 if kind.commits else RECORDS_EACH)])
    return bytearray(twin.packed(raw, kind.codec) if kind.codec and not kind.own else raw)


def write_log(root: Path, kind: Kind, size: int) -> Path:
    """A log directory with one partition: two closed segments of many batches and a small active one."""
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
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n1\n{kind.topic} 0 {offset + 1}\n")
    (root / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=krepair-bench-cluster\n")
    (root / ".kafka_cleanshutdown").touch()
    return folder


# -- krepair
def options_for(kind: Kind, beside: Path) -> Options:
    """``--fix compact``, by the topic's own configuration, which is written to ``beside``; or ``--fix markers``."""
    if kind.half:
        return Options(
            engine=Engine.INLINE,
            now_ms=NOW_MS,
            delete_horizon=str(FAR_MS),
            only_replica=("*",),
            fixes=("markers",),
        )
    config = {kind.topic: {key: str(value) for key, value in SETTINGS.items()}}
    beside.write_text(json.dumps(config))
    return Options(
        engine=Engine.INLINE,
        now_ms=NOW_MS,
        fixes=("compact",),
        topic_config=str(beside),
        only_replica=("*",),
    )


@contextlib.contextmanager
def timed_tasks(cost: Cost) -> Iterator[None]:
    """Add up the CPU time of each task while this lasts."""
    spent: dict[str, float] = {}
    run_inline = engine.InlineEngine.run

    def run(self: engine.InlineEngine, task: Task[Any, Any], items: Any) -> Any:
        results = run_inline(self, task, items)
        while True:
            begun = time.process_time()
            result = next(results, None)
            spent[task.name] = spent.get(task.name, 0.0) + time.process_time() - begun
            if result is None:
                return
            yield result

    with mock.patch.object(engine.InlineEngine, "run", run):
        yield
    for name, seconds in spent.items():
        cost.note(f"task {name}", seconds)


def one_round(root: Path, options: Options, cost: Cost, *, cold: bool = False) -> None:
    """Plan, apply and verify once.

    Args:
        root: of a copy.
        options: of all three.
        cost: what it came to is put into it.
        cold: by wall time, nothing in the page cache at first.
    """
    plan = None

    def planned() -> None:
        nonlocal plan
        plan = make_plan(str(root), options)

    def applied() -> None:
        assert plan is not None
        report = apply(plan, options)
        assert report.exit_code == 0, report.results

    def verified() -> None:
        assert plan is not None
        assert not verify_plan(plan, options).problems

    if cold:
        make_cold(root)
        begun = time.perf_counter()
        for work in (planned, applied, verified):
            work()
        cost.note_cold(OURS, time.perf_counter() - begun)
        return
    with timed_tasks(cost):
        for verb, work in zip(VERBS, (planned, applied, verified), strict=True):
            read, begun = bytes_read(), time.process_time()
            work()
            cost.note(verb, time.process_time() - begun)
            cost.read[verb] = bytes_read() - read
    assert plan is not None
    assert plan.partitions[0].changes, plan.partitions[0].why


# -- the peers
def peer_round(judge: Judge, folder: Path, cost: Cost, *, half: bool, cold: bool = False) -> None:
    """One pass of a cleaner over a copy, all keys in its map; its collector, on other threads, is not counted.

    Args:
        judge: its classes.
        folder: of the partition.
        cost: what it came to is put into it.
        half: of markers; they are to go.
        cold: by wall time, nothing in the page cache at first.
    """
    judge.recover(folder, SETTINGS | IO_BUFFER)
    if cold:
        make_cold(folder)
    before = bytes_read(judge.process_id)
    horizon = FAR_MS if half else 1
    found = judge.clean(folder, first_dirty=0, horizon=horizon, settings=SETTINGS | IO_BUFFER, now_ms=NOW_MS)
    if cold:
        cost.note_cold(judge.version, found.seconds)
        return
    cost.note(judge.version, found.cpu_seconds)
    cost.read[judge.version] = bytes_read(judge.process_id) - before


def measure(
    room: Path, kind: Kind, size: int, runs: int, versions: Sequence[str], java: Sequence[str]
) -> tuple[Cost, int]:
    """One kind of log: krepair and each peer in turns.

    Args:
        room: an empty folder for the data.
        kind: of log.
        size: bytes of ``.log``, about.
        runs: how often each is measured; once before that all is compiled and warm.
        versions: of the peers.
        java: options of their JVMs, which compile in all tiers.

    Returns:
        What each came to, and the bytes of all logs.
    """
    cost, warming = Cost(), Cost()
    made = room / "made"
    folder = write_log(made, kind, size)
    total = sum(path.stat().st_size for path in folder.glob("*.log"))
    options = options_for(kind, room / "topics.json")

    def on_copy(work: Callable[[Path], None]) -> None:
        copy = room / "copy"
        shutil.copytree(made, copy)
        os.sync()
        work(copy)
        shutil.rmtree(copy)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(jvm, "QUICK", tuple(java)))
        judges = [stack.enter_context(Judge(one, heap="2g", timeout_s=3600)) for one in versions]

        def in_turn(into: Cost, *, cold: bool) -> None:
            on_copy(lambda copy: one_round(copy, options, into, cold=cold))
            for judge in judges:
                on_copy(
                    lambda copy, judge=judge: peer_round(  # type: ignore[misc]
                        judge, copy / folder.name, into, half=kind.half, cold=cold
                    )
                )

        for number in range(runs + 2):
            in_turn(cost if number > 1 else warming, cold=False)
        for _ in range(runs):
            in_turn(cost, cold=True)
    return cost, total


def lines(kind: Kind, cost: Cost, total: int, versions: Sequence[str]) -> Mapping[str, float]:
    """What to print: megabytes a CPU second and a cold second, ratios, and how often the logs were read."""
    ours = replace(cost, cpu={OURS: sum(cost.cpu[verb] for verb in VERBS)}, read={OURS: _read(cost)})
    name = f"compact, {kind.name}"
    told: dict[str, float] = {}
    for who in (OURS, *versions):
        known = ours if who == OURS else cost
        what = "plan + apply + verify" if who == OURS else f"cleaner of {who}"
        told[f"{name}: {what} (MB per CPU second)"] = total / known.cpu[who] / 1e6
        told[f"{name}: {what} (MB per second of wall time, cold cache)"] = total / cost.cold[who] / 1e6
        told[f"{name}: {what}, readings of the logs"] = known.read[who] / total
    for version in versions:
        told[f"{name}: krepair / cleaner of {version} (CPU time)"] = cost.cpu[version] / ours.cpu[OURS]
        told[f"{name}: krepair / cleaner of {version} (wall time, cold cache)"] = (
            cost.cold[version] / cost.cold[OURS]
        )
    for what, seconds in sorted(cost.cpu.items()):
        if what not in versions and seconds > _WORTH_TELLING_S:
            told[f"{name}: {what} (CPU ms)"] = seconds * 1000
    for verb in VERBS:
        told[f"{name}: {verb}, readings of the logs"] = cost.read[verb] / total
    return told


def _read(cost: Cost) -> int:
    return sum(cost.read[verb] for verb in VERBS)
