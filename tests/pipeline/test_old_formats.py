"""Partitions with messages of v0 and v1 are compacted like others, their messages carried over byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.check import check
from krepair.ops.verify import verify_log_dir, verify_plan
from tests.lab.judge import Judge
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
    assert verify_plan(plan, old.options()).exit_code == ExitCode.DONE
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
@pytest.mark.parametrize("version", ["2.2.1", "3.9.2", "4.3.1"])
def test_a_broker_serves_the_same_records_from_merged_old_segments(
    old: Scene, judge: Callable[[str], Judge], version: str
) -> None:
    before = {path.name: judge(version).load(path).served for path in partitions(old)}
    plan = old.plan()
    assert all(rewrites(part(plan, name)) for name in before)
    assert old.apply(plan).exit_code == ExitCode.DONE
    assert {path.name: judge(version).load(path).served for path in partitions(old)} == before
