"""After markers went as far as they may without evidence, ``check`` names the evidence that is missing."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from krepair.checks.catalogue import Finding
from krepair.cli.views.check import check_view
from krepair.cli.views.writers import plain
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.reports import CheckReport
from krepair.options import EngineName, Options, parse_delete_horizon
from krepair.rules.evidence import DESCRIBE
from tests.fixture_dirs import unpack

pytestmark = pytest.mark.replicas
NOW_MS = 1_795_658_400_000
WITH_FILE = "--cluster cluster.txt --out PLAN"
CLUSTER = "Topic: __consumer_offsets\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: \n" + "".join(
    f"\tTopic: __consumer_offsets\tPartition: {number}\tLeader: 2\tReplicas: 1,2\tIsr: 2\n"
    for number in (0, 1)
)


def options(**given: object) -> Options:
    return Options(engine=EngineName.INLINE, now_ms=NOW_MS, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def cleaned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bloated directory of which a plan without evidence was applied."""
    log_dir = unpack("offsets-bloat-2.2.0-clean", tmp_path_factory.mktemp("bloat"))
    before = check([str(log_dir)], options())
    assert str(before.next_command) == f"krepair plan {log_dir} --out PLAN"
    assert apply(make_plan(str(log_dir), options()), options()).exit_code is ExitCode.DONE
    return log_dir


def bloat(report: CheckReport) -> list[Finding]:
    return [one for one in report.log_dirs[0].findings if one.rule == "KR101"]


def test_where_only_a_later_horizon_frees_something_the_next_command_names_both(
    cleaned: Path, tmp_path: Path
) -> None:
    report = check([str(cleaned)], options())
    command = f"krepair plan {cleaned} --delete-horizon 2026-11-26T02:00:00.000Z {WITH_FILE}"
    assert str(report.next_command) == command
    assert {str(one.command) for one in bloat(report)} == {command}
    assert all(
        "; 0 of " in one.evidence and "0 with evidence that no other replica needs them" in one.evidence
        for one in bloat(report)
    )
    said = shlex.split(command)
    (tmp_path / "cluster.txt").write_text(CLUSTER)
    log_dir = tmp_path / "logs"
    shutil.copytree(cleaned, log_dir)
    (log_dir / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    horizon = parse_delete_horizon(said[said.index("--delete-horizon") + 1])
    typed = options(cluster=str(tmp_path / "cluster.txt"), delete_horizon=horizon)
    assert any(one.changes for one in make_plan(str(log_dir), typed).partitions)
    assert not any(one.changes for one in make_plan(str(log_dir), options()).partitions)


def test_where_time_alone_frees_something_no_horizon_is_named(cleaned: Path) -> None:
    report = check([str(cleaned)], options(settings=(("delete.retention.ms", "0"),)))
    assert str(report.next_command) == f"krepair plan {cleaned} {WITH_FILE}"


@pytest.mark.parametrize(("rule", "width"), [("", 0), ("", 80), ("KR101", 0)], ids=["file", "screen", "rule"])
def test_the_page_names_first_what_writes_the_file_that_the_plan_reads(
    cleaned: Path, rule: str, width: int
) -> None:
    report = check([str(cleaned)], options())
    page = plain(check_view(report, options(rule=rule), width))
    assert page.rstrip().endswith(f"  {DESCRIBE}\n  {report.next_command}")
    assert page.count(str(DESCRIBE)) == (2 if rule else 1)


def test_beside_what_another_fix_mends_the_next_command_is_its_own(cleaned: Path, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(cleaned, log_dir)
    (log_dir / "__consumer_offsets-0" / "leader-epoch-checkpoint").write_bytes(b"0\n7\n")
    report = check([str(log_dir)], options())
    assert "epochs" in str(report.next_command)
    assert WITH_FILE not in str(report.next_command)
