"""Partitions with messages of v0 and v1 are compacted like others, their messages copied byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.options import EngineName, Options
from tests.builders import NOW_MS, LogDir
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.old_messages import mixed_log
from tests.ops.scene import OLD_FORMAT, Scene, part, rewrites, scene, tree, whole_log


@pytest.fixture
def old(tmp_path: Path) -> Scene:
    """The fixture with segments small enough for the plan to merge them."""
    return scene(tmp_path, OLD_FORMAT, settings={"segment.bytes": "1000000", "cleanup.policy": "compact"})


def partitions(old: Scene) -> list[Path]:
    return sorted(path for path in old.path.iterdir() if list(path.glob("*.log")))


def test_old_segments_are_merged_verified_and_put_back(old: Scene) -> None:
    before = tree(old.path)
    logs = {path.name: whole_log(path) for path in partitions(old)}
    plan = old.plan()
    assert all(rewrites(part(plan, name)) for name in logs)
    report = old.apply(plan)
    assert report.exit_code == ExitCode.DONE, report
    assert {path.name: whole_log(path) for path in partitions(old)} == logs
    assert verify_plan(plan, old.options(originals=True)).exit_code == ExitCode.DONE
    assert verify_log_dir(str(old.path), old.options()).exit_code == ExitCode.DONE
    assert old.undo(plan).exit_code == ExitCode.DONE
    assert {
        path: row for path, row in tree(old.path, private=False).items() if path.endswith((".log", "index"))
    } == {path: row for path, row in before.items() if path.endswith((".log", "index"))}


def test_old_formats_are_information_and_nothing_is_left_alone(old: Scene) -> None:
    report = check((str(old.path),), old.options())
    rules = {finding.rule for one in report.log_dirs for finding in one.findings}
    assert "KR306" in rules
    assert not rules & {"KR301", "KR302", "KR303", "KR304", "KR305"}


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_the_same_records_from_merged_old_segments(
    old: Scene, judge: Callable[[str], Judge], version: str
) -> None:
    before = {path.name: judge(version).load(path).served for path in partitions(old)}
    plan = old.plan()
    assert all(rewrites(part(plan, name)) for name in before)
    assert old.apply(plan).exit_code == ExitCode.DONE
    assert {path.name: judge(version).load(path).served for path in partitions(old)} == before


@pytest.mark.broker
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_markers_between_old_messages_go_and_no_record_is_served_otherwise(
    tmp_path: Path, judge: Callable[[str], Judge], version: str, seed: int
) -> None:
    batches = mixed_log(seed, 120)
    directory = LogDir(tmp_path / "logs")
    partition = directory.partition("__consumer_offsets")
    for start in range(0, 120, 30):
        part_of = batches[start : start + 30]
        first = batches[start - 1].last_offset + 1 if start else 0
        partition.segment(*part_of, base_offset=first, mtime_ms=NOW_MS)
    root = directory.write()
    # a log with messages of v0 or v1 has no leader epochs
    (partition.folder / "leader-epoch-checkpoint").write_text("0\n0\n")
    options = Options(delete_horizon="4000000000000", now_ms=NOW_MS + 60_000, engine=EngineName.INLINE)
    before = judge(version).load(copied(partition.folder, tmp_path / "before")).served
    plan = make_plan(str(root), options)
    planned = part(plan, partition.folder.name)
    assert planned.log_bytes_after < planned.log_bytes_before, planned
    assert apply(plan, options).exit_code == ExitCode.DONE
    assert verify_plan(plan, replace(options, originals=True)).exit_code == ExitCode.DONE
    assert judge(version).load(copied(partition.folder, tmp_path / "after")).served == before


def copied(folder: Path, target: Path) -> Path:
    """A copy of a partition folder: a broker that loads it may write there."""
    shutil.copytree(folder, target / folder.name)
    return target / folder.name
