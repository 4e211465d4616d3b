"""Plans of several brokers in one run: each is the plan that would be made alone, and one page says how to go on."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.cli.views.each import each_view
from krepair.errors import ExitCode, NotALogDirError, RefusedError, UsageError
from krepair.logdir import view
from krepair.logdir.cluster import Assignment, ClusterView
from krepair.logdir.values import LogDir
from krepair.ops import plan_each as plan_each_module
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.plan_each import EachReport, order_of, plan_each, save_all
from krepair.ops.purge import purge
from krepair.ops.show import load
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.markdown import markdown
from krepair.plan.model import Plan
from krepair.plan.review import review
from tests.builders import NOW_MS
from tests.ops.scene import tree
from tests.ops.test_replicas_read import broker, cleaned, verbs, whole

pytestmark = pytest.mark.replicas


@pytest.fixture
def given(tmp_path: Path) -> Options:
    """Three brokers: one was never cleaned, the others were."""
    broker(tmp_path, 1, whole())
    broker(tmp_path, 2, cleaned())
    broker(tmp_path, 3, cleaned())
    (tmp_path / "plans").mkdir()
    return verbs(tmp_path, "compact").given


def dirs(root: Path, *numbers: int) -> list[str]:
    return [str(root / f"b{number}") for number in numbers or (1, 2, 3)]


def made(root: Path, given: Options, *numbers: int) -> tuple[EachReport, tuple[Plan, ...]]:
    report, plans = plan_each(dirs(root, *numbers), str(root / "plans"), given)
    save_all(report, plans, markdown(each_view(report)))
    return report, plans


def test_each_is_the_plan_that_would_be_made_alone_with_the_others_as_replicas(
    tmp_path: Path, given: Options
) -> None:
    before = [tree(tmp_path / f"b{number}") for number in (1, 2, 3)]
    report, plans = made(tmp_path, given, 3, 1, 2)
    assert [tree(tmp_path / f"b{number}") for number in (1, 2, 3)] == before
    for number, (row, plan) in enumerate(zip(report.plans, plans, strict=True), 1):
        others = tuple(f"{other}={tmp_path}/b{other}" for other in (1, 2, 3) if other != number)
        assert plan == make_plan(str(tmp_path / f"b{number}"), replace(given, replicas=others))
        assert review(plan) == []
        assert (row.broker_id, row.plan_id) == (number, plan.plan_id)
        assert load(row.path) == plan
    assert report.freed_at_purge == sum(plan.freed_at_purge for plan in plans)


def test_each_directory_is_listed_twice_however_many_brokers_there_are(
    tmp_path: Path, given: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: Counter[str] = Counter()
    real = view._read_root

    def reading(path: str, *more: Any) -> LogDir:
        listed[Path(path).name] += 1
        return real(path, *more)

    monkeypatch.setattr(view, "_read_root", reading)
    for numbers in ((1, 2), (1, 2, 3)):
        listed.clear()
        made(tmp_path, given, *numbers)
        # once to know all of them, and once more right before its own plan is made
        assert listed == {f"b{number}": 2 for number in numbers}


def test_a_directory_at_which_a_broker_was_at_work_while_another_plan_was_made_is_listed_anew(
    tmp_path: Path, given: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: Counter[str] = Counter()
    real, real_make = view._read_root, plan_each_module.make_plan

    def reading(path: str, *more: Any) -> LogDir:
        listed[Path(path).name] += 1
        return real(path, *more)

    def making(log_dir: str, *more: Any) -> Plan:
        plan = real_make(log_dir, *more)
        if log_dir.endswith("b1"):  # its broker starts and stops: it writes its checkpoints anew
            checkpoint = tmp_path / "b3" / "recovery-point-offset-checkpoint"
            checkpoint.write_bytes(checkpoint.read_bytes() if checkpoint.exists() else b"0\n0\n")
            os.utime(checkpoint)
        return plan

    monkeypatch.setattr(view, "_read_root", reading)
    monkeypatch.setattr(plan_each_module, "make_plan", making)
    made(tmp_path, given, 1, 2, 3)
    assert listed == {"b1": 2, "b2": 2, "b3": 3}


def test_a_plan_that_rests_on_a_changed_log_is_made_again_and_so_the_page_says(
    tmp_path: Path, given: Options
) -> None:
    report, plans = made(tmp_path, given)
    todo = [row for row in report.plans if row.exit_code]
    assert len(todo) > 1
    assert all(row.rests_on for row in todo)
    page = Path(report.page).read_text()
    assert page.count("make the plans again first") == len(todo) - 1
    first, second = (plans[report.plans.index(row)] for row in todo[:2])
    assert apply(first, given).exit_code is ExitCode.DONE
    assert verify_plan(first, given).exit_code is ExitCode.DONE
    there = tree(Path(second.log_dir), private=False)
    stale = apply(second, given)
    assert stale.exit_code is ExitCode.STALE_PLAN
    assert first.log_dir in str(stale.results)
    assert {**tree(Path(second.log_dir), private=False), ".lock": 0} == {**there, ".lock": 0}
    assert purge(first, given).exit_code is ExitCode.DONE

    again, new = made(tmp_path, given)
    plan = next(
        plan for row, plan in zip(again.plans, new, strict=True) if row.broker_id == todo[1].broker_id
    )
    assert apply(plan, given).exit_code is ExitCode.DONE
    assert verify_plan(plan, given).exit_code is ExitCode.DONE


def test_two_log_directories_of_one_broker_have_a_plan_each_and_are_one_side(
    tmp_path: Path, given: Options
) -> None:
    empty = broker(tmp_path, 9, [], folder="t-5").rename(tmp_path / "b1-more")
    (empty / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=c\n")
    report, plans = plan_each([*dirs(tmp_path), str(empty)], str(tmp_path / "plans"), given)
    assert [Path(row.path).name for row in report.plans] == [
        "b1-1.krplan",
        "b1-2.krplan",
        "b2.krplan",
        "b3.krplan",
    ]
    asked = plans[2].asked
    assert f"1={tmp_path}/b1,{empty}" in str(asked)
    assert [one.broker_id for one in report.order] == [1, 3, 2]  # 2 leads


def test_a_broker_that_has_nothing_of_what_was_named_stops_no_other_and_has_no_plan(
    tmp_path: Path, given: Options
) -> None:
    without = broker(tmp_path, 9, [], folder="u-0")
    paths = [*dirs(tmp_path), str(without)]
    named = replace(given, topics=("t",))
    report, plans = plan_each(paths, str(tmp_path / "plans"), named)
    assert [row.broker_id for row in report.plans] == [1, 2, 3]
    assert {one.broker_id for one in report.order} == {1, 2, 3}
    assert report.nothing_named == (str(without),)
    said = " ".join(each_view(report).sections[0].lines)
    assert f"Nothing of what was named is in {without}: no plan is made there." in said
    assert all(f"9={without}" in str(plan.asked) for plan in plans)
    with pytest.raises(NotALogDirError, match="not there: topic x") as refused:
        plan_each(paths, str(tmp_path / "plans"), replace(given, topics=("x",)))
    assert refused.value.next_command.startswith("krepair check --each ")


def cluster(**partitions: tuple[int, tuple[int, ...]]) -> ClusterView:
    """(leader, ISR) of partitions; 2 is the active controller."""
    return ClusterView(
        path="c",
        source="metadata-log",
        source_is_certain=True,
        digest="",
        cluster_id="",
        as_of_ms=1,
        partitions={
            (name, 0): Assignment("", (1, 2, 3), isr, None, None, leader, -1, (), (), moving=False)
            for name, (leader, isr) in partitions.items()
        },
        topic_configs={},
        active_controller=2,
    )


def test_the_one_that_leads_least_comes_first_the_controller_late_and_who_is_alone_last() -> None:
    view = cluster(a=(1, (1, 2, 3)), b=(1, (1, 3)), c=(3, (3, 1)), d=(4, (4,)))
    order = order_of([1, 2, 3, 4], view)
    assert [one.broker_id for one in order] == [3, 1, 2, 4]
    assert [one.leads for one in order] == [1, 2, 0, 1]
    assert order[-1].alone_in_sync == ("d-0",)
    assert [one.broker_id for one in order_of([3, 1, 2], None)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"fixes": ("refetch",)}, "one broker at a time"),
        ({"replicas": ("2=/nowhere",)}, "names broker 2"),
    ],
)
def test_what_is_of_one_plan_only_is_refused(
    tmp_path: Path, given: Options, changed: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        made(tmp_path, replace(given, **changed))  # type: ignore[arg-type]
    assert [*(tmp_path / "plans").iterdir()] == []


def test_directories_that_do_not_go_together_are_refused(tmp_path: Path, given: Options) -> None:
    with pytest.raises(UsageError, match="at least 2"):
        made(tmp_path, given, 1)
    with pytest.raises(UsageError, match="given twice"):
        made(tmp_path, given, 1, 1, 2)
    meta = tmp_path / "b2" / "meta.properties"
    meta.write_text("version=0\nbroker.id=2\ncluster.id=another\n")
    with pytest.raises(RefusedError, match="several clusters"):
        made(tmp_path, given)
    meta.write_text("version=0\ncluster.id=c\n")
    with pytest.raises(UsageError, match="whose log directory"):
        made(tmp_path, given)
    assert [*(tmp_path / "plans").iterdir()] == []


def test_plans_go_into_no_log_directory_and_over_nothing_else(tmp_path: Path, given: Options) -> None:
    with pytest.raises(RefusedError):
        plan_each(dirs(tmp_path), str(tmp_path / "b2"), given)
    (tmp_path / "plans" / "plans.md").write_text("somebody's notes")
    with pytest.raises(RefusedError, match="not written by krepair"):
        made(tmp_path, given)
    (tmp_path / "plans" / "plans.md").unlink()
    (tmp_path / "plans" / "b2.krplan").write_text("somebody's notes")
    with pytest.raises(RefusedError):
        made(tmp_path, given)
    assert (tmp_path / "plans" / "b2.krplan").read_text() == "somebody's notes"


class TestTyped:
    def typed(self, root: Path, *words: str) -> Result:
        common = ["--topic-config", str(root / "topics.json"), "--engine", "inline", "--now", str(NOW_MS)]
        more = ["--cluster", str(root / "cluster.txt"), "--fix", "compact", "--delete-horizon", str(NOW_MS)]
        return CliRunner().invoke(app, ["plan", "--each", *dirs(root), *common, *more, *words])

    def test_the_page_is_that_of_the_terminal_and_its_commands_can_be_typed(
        self, tmp_path: Path, given: Options
    ) -> None:
        result = self.typed(tmp_path, "--out", str(tmp_path / "plans"))
        assert result.exit_code == ExitCode.FOUND, result.output
        page = (tmp_path / "plans" / "plans.md").read_text()
        for words in ("Before you go on to the next broker", "3 plans of 3 brokers", "1. Broker 1"):
            assert words in page
            assert words in result.output
        shows = re.findall(r"^krepair (show \S+)$", page, re.MULTILINE)
        assert shows
        for command in shows:
            assert CliRunner().invoke(app, command.split()).exit_code in {ExitCode.DONE, ExitCode.FOUND}
        assert self.typed(tmp_path, "--out", str(tmp_path / "plans")).exit_code == ExitCode.FOUND

    def test_the_page_frees_nothing_in_one_go_with_apply_and_asks_only_brokers_that_run(
        self, tmp_path: Path, given: Options
    ) -> None:
        assert self.typed(tmp_path, "--out", str(tmp_path / "plans")).exit_code == ExitCode.FOUND
        page = (tmp_path / "plans" / "plans.md").read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        of_first = [block for block in blocks if "b1.krplan" in block]
        plan = str(tmp_path / "plans" / "b1.krplan")
        assert of_first[:3] == [
            f"krepair show {plan}\n",
            f"krepair apply {plan} && krepair verify {plan} --originals\n",
            f"krepair purge {plan}\n",
        ]
        assert page.count("Type this only if verify ended with 0.") == sum(
            "purge" in block for block in blocks
        )
        asked = [line for line in page.splitlines() if "--under-replicated-partitions" in line]
        assert len(asked) == 1
        assert asked[0].startswith("- Where brokers run: ")
        assert "kafka-topics.sh --bootstrap-server HOST:PORT --describe --under-replicated" in asked[0]
        for verb in ("apply", "verify", "purge"):
            commands = [
                one for block in of_first[:3] for one in block.strip().split(" && ") if verb in one.split()
            ]
            assert [CliRunner().invoke(app, one.split()[1:]).exit_code for one in commands] == [ExitCode.DONE]

    def test_the_document_has_every_plan(self, tmp_path: Path, given: Options) -> None:
        result = self.typed(tmp_path, "--out", str(tmp_path / "plans"), "--json")
        report = json.loads(result.stdout)["report"]
        assert [Path(plan["path"]).name for plan in report["plans"]] == [
            "b1.krplan",
            "b2.krplan",
            "b3.krplan",
        ]
        assert report["again"].startswith("krepair plan --each ")

    def test_without_a_folder_or_as_a_preview_it_is_refused(self, tmp_path: Path, given: Options) -> None:
        into = ("--out", str(tmp_path / "plans"))
        for words in ((), (*into, "--preview"), (*into, "--free"), ("--out", str(tmp_path / "none"))):
            assert self.typed(tmp_path, *words).exit_code == ExitCode.USAGE
