"""Directories of several brokers in one run of check and verify: each is judged as it would be alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import to_builtins
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.errors import ExitCode, UsageError
from krepair.ops.check import check
from krepair.ops.groups import groups, groups_of_each
from krepair.ops.transactions import transactions, transactions_of_each
from krepair.ops.verify import verify_log_dir, verify_log_dirs
from krepair.options import Engine, Options
from tests.builders import NOW_MS, Record, data
from tests.ops.scene import tree
from tests.ops.test_other_replicas import OLD
from tests.ops.test_replicas_read import broker, cleaned, whole

pytestmark = pytest.mark.replicas
OPTIONS = Options(engine=Engine.INLINE, now_ms=NOW_MS)


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
        assert found.brokers == ("1", "2", "3")
        assert [bool(report.problems) for report in found.reports] == [False, True, False]
        assert found.exit_code is ExitCode.FOUND
        assert [tree(Path(path)) for path in dirs] == before

    def test_the_page_sums_up_by_broker_and_names_what_is_wrong(self, dirs: list[str]) -> None:
        result = typed("verify", *dirs)
        assert result.exit_code == ExitCode.FOUND
        for words in (
            "3 log directories of 3 brokers",
            "problems in 1 log directory",
            f"Broker 2: {dirs[1]}",
        ):
            assert words in result.output
        assert f"Broker 1: {dirs[0]}" not in result.output
        assert typed("verify", dirs[0], dirs[2]).exit_code == ExitCode.DONE

    def test_the_document_has_a_report_for_each(self, dirs: list[str]) -> None:
        report = json.loads(typed("verify", *dirs, "--json").stdout)["report"]
        assert report["brokers"] == ["1", "2", "3"]
        assert report["reports"][1]["problems"]

    def test_a_directory_twice_or_a_plan_among_them_is_refused(self, dirs: list[str], tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="given twice"):
            verify_log_dirs([dirs[0], dirs[0]], OPTIONS)
        assert typed("verify", dirs[0], str(tmp_path / "a.krplan")).exit_code == ExitCode.USAGE


class TestCheck:
    def test_each_report_is_that_of_a_run_of_its_own(self, dirs: list[str]) -> None:
        found = check(dirs, OPTIONS, each=True)
        alone = [check([path], OPTIONS).log_dirs[0] for path in dirs]
        for one, other in zip(found.log_dirs, alone, strict=True):
            left, right = to_builtins(one), to_builtins(other)
            left.pop("free_bytes"), right.pop("free_bytes")
            assert left == right
        assert found.log_dirs[1].rules != found.log_dirs[2].rules

    def test_without_each_they_are_held_against_each_other(self, dirs: list[str]) -> None:
        rules = {finding.rule for one in check(dirs, OPTIONS).log_dirs for finding in one.findings}
        each = {finding.rule for one in check(dirs, OPTIONS, each=True).log_dirs for finding in one.findings}
        assert "KR407" in rules - each

    def test_two_directories_of_one_broker_are_held_against_each_other(
        self, dirs: list[str], tmp_path: Path
    ) -> None:
        again = broker(tmp_path, 9, whole()).rename(tmp_path / "b1-more")
        (again / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
        found = check([*dirs, str(again)], OPTIONS, each=True)
        two = check([dirs[0], str(again)], OPTIONS)
        rules = [{finding.rule for finding in one.findings} for one in (*found.log_dirs, *two.log_dirs)]
        assert rules[0] == rules[4]
        assert rules[3] == rules[5]
        alone = {finding.rule for finding in check([dirs[0]], OPTIONS).log_dirs[0].findings}
        assert rules[0] - alone

    def test_the_page_has_a_row_for_each_broker(self, dirs: list[str]) -> None:
        result = typed("check", "--each", *dirs)
        assert result.exit_code == ExitCode.FOUND
        assert "By broker" in result.output
        assert all(path in result.output.replace("\n", "") for path in dirs)
        assert "By broker" not in typed("check", dirs[0]).output

    def test_a_directory_that_does_not_say_whose_it_is_is_refused(self, dirs: list[str]) -> None:
        (Path(dirs[1]) / "meta.properties").unlink()
        with pytest.raises(UsageError, match="whose log directory"):
            check(dirs, OPTIONS, each=True)


class TestGroupsAndTransactions:
    @pytest.fixture
    def two(self, tmp_path: Path) -> list[str]:
        """Two brokers with different transactions; neither has a coordinator's topic."""
        open_at_2 = [data(0, [Record(b"k", b"v")], pid=7, txn=True, timestamp=OLD)]
        return [str(broker(tmp_path, 1, whole())), str(broker(tmp_path, 2, open_at_2))]

    def test_each_report_is_that_of_a_run_of_its_own(self, two: list[str]) -> None:
        before = [tree(Path(path)) for path in two]
        found = transactions_of_each(two, OPTIONS)
        assert found.reports == tuple(transactions(path, OPTIONS) for path in two)
        assert [len(report.open) for report in found.reports] == [0, 1]
        assert groups_of_each(two, OPTIONS).reports == tuple(groups(path, OPTIONS) for path in two)
        assert [tree(Path(path)) for path in two] == before

    @pytest.mark.parametrize("verb", ["groups", "transactions"])
    def test_the_page_names_the_broker_of_each_part(self, verb: str, two: list[str]) -> None:
        result = typed(verb, *two)
        titles = [line for line in result.output.splitlines() if line.startswith("Broker ")]
        assert {title.partition(":")[0] for title in titles} == {"Broker 1", "Broker 2"}
        one = typed(verb, two[1])
        assert "Broker 2" not in one.output
        assert result.exit_code == max(one.exit_code, typed(verb, two[0]).exit_code)
        report = json.loads(typed(verb, *two, "--now", str(NOW_MS), "--json").stdout)["report"]
        assert report["brokers"] == ["1", "2"]
        assert (
            report["reports"][1]
            == json.loads(typed(verb, two[1], "--now", str(NOW_MS), "--json").stdout)["report"]
        )

    @pytest.mark.parametrize("verb", ["groups", "transactions"])
    def test_a_directory_twice_is_refused(self, verb: str, two: list[str]) -> None:
        assert typed(verb, two[0], two[0]).exit_code == ExitCode.USAGE


def test_dump_takes_folders_of_several_brokers(dirs: list[str]) -> None:
    shown = CliRunner().invoke(app, ["dump", *(f"{path}/t-0" for path in dirs)])
    assert all(f'file="{path}/t-0/' in shown.output for path in dirs)
