"""A partition that the broker moves to another of its log directories: its markers and tombstones stay meanwhile."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from krepair.errors import ExitCode, StalePlanError
from tests.builders import LogDir
from tests.compaction.directories import Verbs, options
from tests.ops.replica_scenes import EXPIRED, OLD, left_in
from tests.ops.replicas_read import FIXES, LINE, broker, cleaned, in_txn, part, value, whole
from tests.ops.replicas_read import verbs as of_replicas

KINDS: dict[str, dict[str, Any]] = {
    "only-replica": {"only_replica": ("t",)},
    "as-broker": {"as_broker": True},
    "in-sync": {},
}


def log_dirs(root: Path) -> tuple[Path, Path, Path]:
    """Two log directories of broker 1, the first with the whole log; and its configuration."""
    broker(root, 1, whole())
    broker(root, 11, [value(0, "z")])
    first, second = root / "b1", root / "b11"
    shutil.rmtree(second / "t-0")
    (second / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    (second / "replication-offset-checkpoint").write_text("0\n0\n")
    os.utime(first / "replication-offset-checkpoint", (OLD / 1000, OLD / 1000))
    config = root / "server.properties"
    config.write_text(f"broker.id=1\nlog.dirs={first},{second}\n")
    return first, second, config


def begun_to_move(root: Path, log_dir: Path) -> None:
    """The new log has the value and the records of the transaction, but not their tombstone and their marker."""
    made = LogDir(root / "copied")
    partition = made.partition("t", index_interval_bytes=200)
    partition.segment(value(0, "gone"), in_txn(1, "b", 7), base_offset=0, mtime_ms=OLD)
    shutil.copytree(made.write() / "t-0", log_dir / f"t-0.{'a' * 32}-future")


def verbs(root: Path, first: Path, kind: str, fix: str, config: Path | None) -> Verbs:
    given = {
        "delete_horizon": "newest",
        "assume_high_watermark": "",
        "settings_given": EXPIRED,
        "fixes": (fix,),
    }
    given |= {"only_replica": ()} | KINDS[kind]
    if config is not None:
        given["config"] = str(config)
    if kind == "in-sync":
        cluster = root / "cluster.txt"
        head = "Topic: t\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1\n"
        cluster.write_text(head + LINE.format(replicas="1,2,3", isr="2,3"))
        given |= {"cluster": str(cluster)}
    return Verbs(first, options(root, **given))


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("here", [True, False], ids=["the same directory", "another one"])
def test_markers_and_tombstones_stay_while_the_broker_moves_the_partition(
    tmp_path: Path, kind: str, here: bool, fix: str
) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs(tmp_path, first, kind, fix, config)
    before = left_in(first / "t-0")
    assert part(run.plan()).evidence.kind == kind, "it would go"
    begun_to_move(tmp_path, first if here else second)
    plan = run.plan()
    assert part(plan).evidence.kind == "none"
    assert "moves it to another log directory" in part(plan).evidence.why
    if part(plan).changes:
        assert run.apply(plan).exit_code == 0
    after = left_in(first / "t-0")
    assert (after.markers, after.tombstones) == (before.markers, before.tombstones)


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_apply_sees_a_move_that_began_after_the_plan_was_made(tmp_path: Path, kind: str, fix: str) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs(tmp_path, first, kind, fix, config)
    plan = run.plan()
    assert part(plan).changes
    before = left_in(first / "t-0")
    begun_to_move(tmp_path, second)
    report = run.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert f"{second}/t-0.{'a' * 32}-future: has come since the plan was made" in report.results[0].why
    assert left_in(first / "t-0") == before


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("whose", ["this broker's", "the other one's"])
def test_apply_sees_a_move_in_a_directory_that_holds_none_of_the_logs_that_were_read(
    tmp_path: Path, whose: str, fix: str
) -> None:
    first, second, config = log_dirs(tmp_path)
    broker(tmp_path, 2, cleaned())
    third = tmp_path / "b22"
    shutil.copytree(second, third)
    (third / "meta.properties").write_text("version=0\nbroker.id=2\ncluster.id=c\n")
    run = of_replicas(
        tmp_path, fix, f"2={tmp_path}/b2,{third}", replicas="1,2", config=str(config), only_replica=()
    )
    plan = run.plan()
    assert part(plan).evidence.kind == "replicas", part(plan).evidence.why
    assert part(plan).changes
    before = left_in(first / "t-0")
    begun_to_move(tmp_path, second if whose == "this broker's" else third)
    report = run.apply(plan)
    assert report.exit_code is ExitCode.STALE_PLAN
    assert "has come since the plan was made" in report.results[0].why
    assert left_in(first / "t-0") == before


@pytest.mark.parametrize("what", ["gone", "of another broker"])
def test_apply_needs_the_directories_in_which_a_move_would_be_seen(tmp_path: Path, what: str) -> None:
    first, second, config = log_dirs(tmp_path)
    run = verbs(tmp_path, first, "only-replica", "compact", config)
    plan = run.plan()
    second.rename(tmp_path / "away")
    if what == "of another broker":
        shutil.copytree(tmp_path / "away", second)
        meta = second / "meta.properties"
        meta.write_text(re.sub(r"(broker|node)\.id=\d+", r"\1.id=77", meta.read_text()))
    with pytest.raises(StalePlanError, match=r"b11") as refused:
        run.apply(plan)
    assert str(refused.value.next_command).startswith("krepair plan ")


@pytest.mark.parametrize("fix", FIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_everything_stays_where_a_configured_directory_of_this_broker_cannot_be_read(
    tmp_path: Path, kind: str, fix: str
) -> None:
    first, second, config = log_dirs(tmp_path)
    second.rename(tmp_path / "away")
    plan = verbs(tmp_path, first, kind, fix, config).plan()
    assert part(plan).evidence.kind == "none"
    assert str(second) in part(plan).evidence.why


def test_a_configured_directory_may_be_a_link(tmp_path: Path) -> None:
    first, second, config = log_dirs(tmp_path)
    second.rename(tmp_path / "disk")
    second.symlink_to(tmp_path / "disk")
    run = verbs(tmp_path, first, "only-replica", "compact", config)
    plan = run.plan()
    assert part(plan).changes
    assert run.apply(plan).exit_code is ExitCode.DONE
