"""Findings summed up by rule: how bad each case is, and what to type for it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from krepair.checks.catalogue import Finding, Severity
from krepair.cli.main import app
from krepair.errors import ExitCode
from krepair.ops.by_rule import by_rule
from krepair.ops.check import check
from krepair.ops.metrics import Ended, families, render
from krepair.ops.reports import CheckReport
from krepair.options import EngineName, Options
from krepair.plan.planfile import read_plan
from tests.ops.scene import Scene, scene
from tests.ops.tail import CONSENT, damaged

INLINE = Options(engine=EngineName.INLINE)


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def found(report: CheckReport, code: str) -> list[Finding]:
    return [finding for finding in report.log_dirs[0].findings if finding.rule == code]


def test_a_deleted_file_that_the_start_removes_is_no_data_loss_and_with_room_nobody_is_alarmed(
    bloat: Scene,
) -> None:
    (bloat.path / "__consumer_offsets-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 10)
    report = check([str(bloat.path)], bloat.options())
    (left,), (freed,) = found(report, "KR601"), found(report, "KR701")
    assert (left.severity, left.fix) == (Severity.CONFUSING, "leftovers")
    assert str(left.command) == f"krepair plan {bloat.path} --fix leftovers --out PLAN"
    assert freed.severity is Severity.INFORMATION
    alarming = [
        line
        for line in render(families(report, Ended("check", 2, 0.0, 0.0))).decode().splitlines()
        if 'severity="data loss"' in line
    ]
    assert not any("KR601" in line or "KR701" in line for line in alarming)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_after_a_start_as_root_one_command_gives_every_folder_back(bloat: Scene) -> None:
    for place in [bloat.path, *bloat.path.rglob("*")]:
        os.chown(place, 4242, 4343)
    for name in ("0", "1"):
        for place in (bloat.path / f"__consumer_offsets-{name}").glob("*.index"):
            os.chown(place, 0, 0)
            place.chmod(0o600)
    report = check([str(bloat.path)], bloat.options())
    rows = [row for row in report.log_dirs[0].rules if row.rule == "KR605"]
    assert [str(row.command) for row in rows] == [f"chown -R 4242:4343 {bloat.path}"]
    assert len(rows[0].partitions) == 2


def test_a_damaged_batch_says_offsets_records_and_bytes_as_numbers_and_the_whole_command(
    tmp_path: Path,
) -> None:
    torn = damaged(tmp_path / "logs")
    (finding,) = found(check([str(torn.root)], INLINE), "KR302")
    assert finding.severity is Severity.DATA_LOSS
    assert (finding.first_offset, finding.last_offset, finding.records_lost) == (65, 69, 5)
    assert finding.bytes_lost == finding.bytes
    command = f"krepair plan {torn.root} --fix tail --accept-data-loss {CONSENT} --out PLAN"
    assert str(finding.command) == command
    words = shlex.split(command.replace("PLAN", str(tmp_path / "p.krplan")))[1:]
    assert CliRunner().invoke(app, words).exit_code == ExitCode.FOUND
    assert read_plan(str(tmp_path / "p.krplan")).partitions[0].changes


def test_rows_are_by_rule_and_severity_the_worst_first_and_name_the_largest_partition_first() -> None:
    rows = by_rule(
        [
            Finding(rule="KR601", partition="a-0", bytes=1, severity=Severity.CONFUSING),
            Finding(rule="KR101", partition="b-0", bytes=1),
            Finding(rule="KR101", partition="b-1", bytes=2),
            Finding(rule="KR601", partition="a-1", bytes=5),
        ]
    )
    assert [(row.rule, row.severity, row.partitions) for row in rows] == [
        ("KR601", Severity.DATA_LOSS, ("a-1",)),
        ("KR101", Severity.SLOW, ("b-1", "b-0")),
        ("KR601", Severity.CONFUSING, ("a-0",)),
    ]
