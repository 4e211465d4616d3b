"""Brokers whose replicas of one partition were cleaned differently."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from krepair.engine.engine import Engine
from krepair.errors import ExitCode
from krepair.fixes import evidence as evidence_of
from krepair.fixes.evidence import NotKnownError, OtherReplicas, ReplicasToRead, read_others
from krepair.fixes.markers import make as markers
from krepair.plan.model import Evidence, PartitionPlan, Plan
from krepair.plan.review import review
from tests.builders import NOW_MS, Batch, LogDir, Record, abort, commit, data
from tests.compaction.directories import Verbs, options
from tests.ops.replica_scenes import EXPIRED, OLD, Left, left_in, watermark

FIXES = ("markers", "compact")
LINE = "\tTopic: t\tPartition: 0\tLeader: 2\tReplicas: {replicas}\tIsr: {isr}\n"


def value(offset: int, key: str, text: bytes | None = b"1") -> Batch:
    return data(offset, [Record(key.encode(), text)], timestamp=OLD)


def in_txn(offset: int, key: str, pid: int) -> Batch:
    return data(offset, [Record(key.encode(), b"1")], pid=pid, txn=True, timestamp=OLD)


def whole() -> list[Batch]:
    """The log as it was written: a deleted key, a committed and an aborted transaction whose keys came again."""
    return [
        value(0, "gone"),
        in_txn(1, "b", 7),
        commit(2, pid=7, timestamp=OLD),
        value(3, "gone", None),
        in_txn(4, "x", 8),
        abort(5, pid=8, timestamp=OLD),
        value(6, "b"),
        value(7, "end"),
    ]


def cleaned(*, tombstone: bool = True) -> list[Batch]:
    """The same, cleaned: nothing older is left of what tombstone and markers end."""
    stays = {2, 5, 6, 7} | ({3} if tombstone else set())
    return [batch for batch in whole() if batch.base_offset in stays]


def broker(
    root: Path, number: int, batches: Sequence[Batch], *, folder: str = "t-0", topic_id: str = ""
) -> Path:
    """The log directory of one broker: one closed segment and an active one."""
    log_dir = root / f"b{number}"
    made = LogDir(log_dir)
    partition = made.partition("t", index_interval_bytes=200)
    partition.segment(*batches, base_offset=0, mtime_ms=OLD)
    partition.segment(value(8, "late"), mtime_ms=NOW_MS - 1000)
    partition.segment(value(9, "active"))
    made.write()
    (log_dir / "meta.properties").write_text(f"version=0\nbroker.id={number}\ncluster.id=c\n")
    watermark(log_dir, 10)
    if folder != "t-0":
        (log_dir / "t-0").rename(log_dir / folder)
    if topic_id:
        (log_dir / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return log_dir


def describe(root: Path, *lines: str, factor: int = 3, topic_id: str = "") -> str:
    """A file as ``kafka-topics.sh --describe`` prints it, with these lines of the topic."""
    named = f"\tTopicId: {topic_id}" if topic_id else ""
    head = f"Topic: t{named}\tPartitionCount: {len(lines)}\tReplicationFactor: {factor}\tConfigs: a=1\n"
    file = root / "cluster.txt"
    file.write_text(head + "".join(lines))
    return str(file)


def verbs(root: Path, fix: str, *sides: str, replicas: str = "1,2,3", **more: object) -> Verbs:
    if "cluster" not in more:
        line = LINE.format(replicas=replicas, isr=replicas)
        more["cluster"] = describe(root, line, factor=replicas.count(",") + 1)
    common: dict[str, object] = {
        "delete_horizon": str(NOW_MS),
        "assume_high_watermark": "",
        "settings_given": EXPIRED,
        "fixes": (fix,),
        "replicas": sides,
    }
    return Verbs(root / "b1", options(root, **(common | more)))


def of_two(
    root: Path, fix: str, mine: Sequence[Batch] = (), theirs: Sequence[Batch] = (), **more: object
) -> Verbs:
    """The partition has two replicas, here and on broker 2, whose log is read; cleaned ones if not said otherwise."""
    broker(root, 1, mine or cleaned())
    return verbs(root, fix, f"2={broker(root, 2, theirs or cleaned())}", replicas="1,2", **more)


def left_here(root: Path) -> Left:
    """What is in the partition of broker 1."""
    return left_in(root / "b1" / "t-0")


def future(root: Path, log_dir: Path) -> None:
    """A folder with the whole log, which is about to become the replica of this log directory."""
    made = broker(root / "elsewhere", 5, whole())
    shutil.copytree(made / "t-0", log_dir / f"t-0.{'a' * 32}-future")


def part(plan: Plan) -> PartitionPlan:
    return plan.partitions[0]


def evidence(plan: Plan) -> Evidence:
    found = part(plan).evidence
    assert isinstance(found, Evidence)
    return found


def sides(root: Path, *numbers: int) -> list[str]:
    return [f"{number}={root}/b{number}" for number in numbers]


def applied(run: Verbs) -> Plan:
    plan = run.plan()
    assert review(plan) == []
    if part(plan).changes:
        report = run.apply(plan)
        assert report.exit_code is ExitCode.DONE, report.results
        assert run.verify(plan).problems == ()
    return plan


def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No marker is held back, by whom it may be."""

    def nothing(
        engine: Engine, scratch: str, asked: Sequence[ReplicasToRead]
    ) -> list[OtherReplicas | NotKnownError]:
        read = read_others(engine, scratch, asked)
        return [one if isinstance(one, NotKnownError) else OtherReplicas(one.replicas) for one in read]

    for module in (evidence_of, markers):
        monkeypatch.setattr(module, "read_others", nothing)
