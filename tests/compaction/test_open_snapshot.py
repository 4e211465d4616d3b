"""A clean stop without a producer snapshot at the log end: krepair makes nothing that brokers before 2.4 refuse."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.options import Options
from krepair.plan.model import Plan
from tests.builders import NOW_MS, LogDir, Record, abort, commit, data, emptied
from tests.compaction.directories import topic_config
from tests.lab.judge import Judge, JudgeError

SEGMENT_BYTES = "7000"
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": SEGMENT_BYTES}
VALUE = b"v" * 3000
END = f"{7:020d}.snapshot"


def log_dir(root: Path, *, aborted: bool = False, end_snapshot: bool = False, empty: bool = False) -> Path:
    """A transaction runs over three segments; the snapshot of the last one has it open from offset 2."""
    made = LogDir(root)
    first = (
        emptied(2, pid=7, sequence=0, timestamp=NOW_MS)
        if empty
        else data(2, [Record(b"a", b"old")], pid=7, sequence=0, txn=True)
    )
    partition = made.partition("t")
    partition.segment(data(0, [Record(b"k0", VALUE)]), data(1, [Record(b"k1", VALUE)]), first)
    partition.segment(
        data(3, [Record(b"a", VALUE)], pid=7, sequence=1, txn=True), data(4, [Record(b"k4", VALUE)])
    )
    partition.segment((abort if aborted else commit)(5, pid=7), data(6, [Record(b"k6", b"x")]))
    made.write()
    if not end_snapshot:
        (root / "t-0" / END).unlink()
    return root


def planned(root: Path, fix: str = "compact", version: str = "") -> tuple[Options, Plan]:
    options = Options(
        fixes=(fix,),
        now_ms=NOW_MS + 1000,
        topic_config=str(topic_config(root.parent, SETTINGS, "t")),
        only_replica=("t",),
        broker_version=version,
    )
    return options, make_plan(str(root), options)


@pytest.mark.parametrize(("fix", "empty"), [("compact", False), ("markers", True)])
@pytest.mark.parametrize("aborted", [False, True], ids=["committed", "aborted"])
def test_the_batch_where_an_open_transaction_of_the_last_snapshot_begins_stays(
    tmp_path: Path, fix: str, empty: bool, aborted: bool
) -> None:
    root = log_dir(tmp_path / "logs", aborted=aborted, empty=empty)
    _, plan = planned(root, fix)
    (part,) = plan.partitions
    assert (part.status, part.code, part.changes) == ("left alone", "open-snapshot", ())
    assert "open from offset 2" in part.why


@pytest.mark.parametrize(("end_snapshot", "version"), [(True, ""), (False, "2.4.0"), (False, "3.9.2")])
def test_with_a_snapshot_at_the_log_end_or_a_later_broker_it_goes(
    tmp_path: Path, end_snapshot: bool, version: str
) -> None:
    root = log_dir(tmp_path / "logs", end_snapshot=end_snapshot)
    _, plan = planned(root, version=version)
    assert plan.partitions[0].changes


@pytest.mark.broker
@pytest.mark.slow
def test_kafkas_own_loader_ends_with_a_null_pointer_before_2_4_and_not_later(tmp_path: Path) -> None:
    root = log_dir(tmp_path / "logs")
    options, plan = planned(root, version="2.4.0")
    apply(plan, replace(options, broker_version=""))
    for version, starts in (("2.2.1", False), ("2.8.2", True)):
        copy = tmp_path / version / "t-0"
        shutil.copytree(root / "t-0", copy, ignore=shutil.ignore_patterns("krepair*"))
        with Judge(version) as judge:
            if starts:
                judge.load(copy, now_ms=NOW_MS + 1000, settings=SETTINGS)
            else:
                with pytest.raises(JudgeError, match="updateFirstUnstableOffset"):
                    judge.load(copy, now_ms=NOW_MS + 1000, settings=SETTINGS)
