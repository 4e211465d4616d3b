"""Originals are never orphaned: an applied plan is not overwritten, and its originals are found without its file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from krepair.cli.main import app
from tests.ops.conftest import memory_dir
from tests.ops.scene import Scene, scene, tree

__all__ = ["memory_dir"]

PARTITIONS = ("__consumer_offsets-0", "__consumer_offsets-1")


class Desk:
    """A log directory, a place for plan files beside it, and the command line."""

    def __init__(self, bloat: Scene, plans: Path) -> None:
        self.log_dir = str(bloat.path)
        self.path = bloat.path
        self.plans = plans
        self.options = ["--now", str(bloat.now_ms), "--engine", "inline"]
        for key, value in bloat.settings.items():
            self.options += ["--set", f"{key}={value}"]
        self.horizon = ["--delete-horizon", bloat.horizon]

    def run(self, *words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(words))
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    def json(self, *words: str, code: int = 0) -> dict[str, Any]:
        document = json.loads(self.run(*words, "--json", code=code).stdout)
        assert (document["format_version"], document["exit_code"]) == ("1.0", code)
        assert document["verb"] == words[0]
        return document

    def plan(self, name: str, *partitions: str, code: int = 2) -> Result:
        chosen = [word for one in partitions for word in ("--partition", one)]
        out = ["--out", str(self.plans / name)]
        return self.run("plan", self.log_dir, *chosen, *self.options, *self.horizon, *out, code=code)

    def apply(self, name: str) -> None:
        self.run("apply", str(self.plans / name), "--engine", "inline")

    def kept(self, verb: str = "undo") -> list[dict[str, Any]]:
        return self.json(verb, self.log_dir)["report"]["plans"]


@pytest.fixture
def desk(memory_dir: Path) -> Desk:
    plans = memory_dir / "plans"
    plans.mkdir()
    return Desk(scene(memory_dir), plans)


def test_planning_again_over_an_applied_plan_is_refused_and_undo_still_gives_all_back(desk: Desk):
    before = tree(desk.path)
    desk.plan("p", *PARTITIONS)
    desk.apply("p")
    applied = (desk.plans / "p").read_bytes()
    refused = desk.plan("p", *PARTITIONS, code=13)
    assert "krepair undo" in refused.stderr
    assert "krepair purge" in refused.stderr
    assert refused.stderr.rstrip().endswith("--out OTHER-PLAN")
    assert f"next: krepair plan {desk.log_dir} " in refused.stderr
    assert (desk.plans / "p").read_bytes() == applied
    desk.run("undo", str(desk.plans / "p"))
    assert tree(desk.path) == before
    desk.plan("p", *PARTITIONS)


def test_once_its_originals_are_purged_a_plan_may_be_overwritten(desk: Desk):
    desk.plan("p", *PARTITIONS)
    desk.apply("p")
    desk.run("purge", str(desk.plans / "p"))
    desk.plan("p", *PARTITIONS, code=0)


@pytest.mark.parametrize("verb", ["undo", "purge"])
def test_after_the_plan_file_is_gone_its_id_is_enough(desk: Desk, verb: str):
    before = tree(desk.path)
    desk.plan("p", *PARTITIONS)
    desk.apply("p")
    (desk.plans / "p").unlink()
    (plan,) = desk.kept(verb)
    page = desk.run(verb, desk.log_dir)
    command = f"krepair {verb} {desk.log_dir} --plan-id {plan['plan_id']}"
    assert page.stdout.rstrip().endswith(command)
    document = desk.json(*command.split()[1:])
    assert document["report"]["verb"] == verb
    assert document["report"]["next_command"] == f"krepair verify {desk.log_dir}"
    assert not list(desk.path.rglob("krepair~*"))
    assert (tree(desk.path) == before) is (verb == "undo")
    assert desk.kept() == []
    assert "No plan keeps originals here." in desk.run(verb, desk.log_dir).stdout


def test_each_of_several_plans_is_undone_by_its_id(desk: Desk):
    before = tree(desk.path)
    for number, partition in enumerate(PARTITIONS):
        desk.plan(f"p{number}", partition)
        desk.apply(f"p{number}")
        (desk.plans / f"p{number}").unlink()
    plans = desk.kept()
    assert {tuple(plan["partitions"]) for plan in plans} == {(one,) for one in PARTITIONS}
    assert "2 plans keep originals" in desk.run("undo", desk.log_dir).stdout
    for plan in plans:
        desk.run("undo", desk.log_dir, "--plan-id", plan["plan_id"])
    assert tree(desk.path) == before


def test_a_plan_that_does_nothing_points_to_what_other_plans_keep(desk: Desk):
    desk.plan("never applied", PARTITIONS[1])
    desk.plan("p", PARTITIONS[0])
    desk.apply("p")
    for verb in ("undo", "purge"):
        page = desk.run(verb, str(desk.plans / "never applied"))
        assert page.stdout.rstrip().endswith(f"krepair {verb} {desk.log_dir}")
    desk.run("undo", str(desk.plans / "p"))


def test_check_lists_what_is_kept_for_programs_and_stays_without_findings_that_count(desk: Desk):
    desk.plan("p", *PARTITIONS)
    desk.apply("p")
    report = desk.json("check", desk.log_dir, *desk.options)["report"]["log_dirs"][0]
    assert report["kept"][0] | {"age_seconds": 0} == desk.kept()[0] | {"age_seconds": 0}
    assert "KR901" in {finding["rule"] for finding in report["findings"]}


def test_wrong_use_is_told_with_what_is_there(desk: Desk):
    desk.plan("p", *PARTITIONS)
    for verb in ("undo", "purge"):
        told = desk.json(verb, desk.log_dir, "--plan-id", "0123abcd", code=12)["error"]["message"]
        assert "no plan keeps anything here" in told
        desk.run(verb, desk.log_dir, "--plan-id", "../x", code=64)
        with_file = desk.run(verb, str(desk.plans / "p"), "--plan-id", "0123abcd", code=64)
        assert "--plan-id needs a log directory" in with_file.stderr
        desk.run(verb, str(desk.plans), code=10)
    desk.apply("p")
    unknown = desk.run("undo", desk.log_dir, "--plan-id", "0123abcd", code=12)
    assert desk.kept()[0]["plan_id"] in unknown.stderr
    assert unknown.stderr.rstrip().endswith(f"next: krepair undo {desk.log_dir}")
    for copy in desk.path.rglob("krepair~*/plan"):
        copy.unlink()
    missing = desk.run("undo", desk.log_dir, "--plan-id", desk.kept()[0]["plan_id"], code=13)
    assert missing.stderr.rstrip().endswith("next: krepair undo PLAN-FILE")
    desk.run("undo", str(desk.plans / "p"))
