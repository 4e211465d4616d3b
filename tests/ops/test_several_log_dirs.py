"""Several log directories in one run of check and verify."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.errors import ExitCode, UsageError
from krepair.ops.check import check
from krepair.ops.verify import verify_log_dir, verify_log_dirs
from krepair.options import EngineName, Options
from tests.builders import NOW_MS
from tests.ops.replicas_read import broker, cleaned, whole
from tests.ops.scene import tree

pytestmark = pytest.mark.replicas
OPTIONS = Options(engine=EngineName.INLINE, now_ms=NOW_MS)


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    """Three brokers with the same partition; that of broker 2 is damaged."""
    found = [broker(tmp_path, number, whole() if number == 1 else cleaned()) for number in (1, 2, 3)]
    log = found[1] / "t-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:-3] + b"abc")
    return [str(path) for path in found]


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--engine", "inline"])


class TestVerify:
    def test_each_report_is_that_of_a_run_of_its_own(self, dirs: list[str]) -> None:
        before = [tree(Path(path)) for path in dirs]
        found = verify_log_dirs(dirs, OPTIONS)
        assert found.reports == tuple(verify_log_dir(path, OPTIONS) for path in dirs)
        assert [bool(report.problems) for report in found.reports] == [False, True, False]
        assert found.exit_code is ExitCode.FOUND
        assert [tree(Path(path)) for path in dirs] == before

    def test_the_page_sums_up_by_directory_and_names_what_is_wrong(self, dirs: list[str]) -> None:
        result = typed("verify", *dirs)
        assert result.exit_code == ExitCode.FOUND
        for words in ("Verified: 3 log directories", "problems in 1 log directory", f"\n{dirs[1]}\n"):
            assert words in result.output
        assert f"\n{dirs[0]}\n" not in result.output
        assert typed("verify", dirs[0], dirs[2]).exit_code == ExitCode.DONE

    def test_the_document_has_a_report_for_each(self, dirs: list[str]) -> None:
        report = json.loads(typed("verify", *dirs, "--json").stdout)["report"]
        assert report["reports"][1]["problems"]

    def test_a_directory_twice_or_a_plan_among_them_is_refused(self, dirs: list[str], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="given twice"):
            verify_log_dirs([dirs[0], dirs[0]], OPTIONS)
        assert typed("verify", dirs[0], str(tmp_path / "a.krplan")).exit_code == ExitCode.USAGE


def test_two_directories_of_one_broker_are_held_against_each_other(dirs: list[str], tmp_path: Path) -> None:
    again = broker(tmp_path, 9, whole()).rename(tmp_path / "b1-more")
    (again / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    two = check([dirs[0], str(again)], OPTIONS)
    rules = [{finding.rule for finding in one.findings} for one in two.log_dirs]
    alone = {finding.rule for finding in check([dirs[0]], OPTIONS).log_dirs[0].findings}
    assert "KR603" in rules[0] - alone


def test_dump_takes_folders_of_several_brokers(dirs: list[str]) -> None:
    shown = CliRunner().invoke(app, ["dump", *(f"{path}/t-0" for path in dirs)])
    assert all(f'file="{path}/t-0/' in shown.output for path in dirs)
