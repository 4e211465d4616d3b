"""Undo says only what is proven: a plan that was never applied is neither taken back, nor purged, nor freed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.cli.views.reports import apply_view
from krepair.cli.views.writers import markdown, on_screen
from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan
from tests.ops.scene import BLOAT, scene
from tools.torture.scenes import build, look

UNPROVEN = (
    "were purged",
    "were freed",
    "was purged",
    "taken back before",
    "made before",
)


class Directory:
    """A scene on a disk, and two plans of it that make equal files."""

    def __init__(self, root: Path, name: str = "partitions", keep: str = "inplace") -> None:
        placed = build(name)
        self.path = placed.place(root).path
        self.options: Options = replace(placed.options, keep=keep)
        self.plan = self.planned(self.options)
        self.other = self.planned(replace(self.options, now_ms=(self.options.now_ms or 0) + 1))
        assert self.plan.plan_id != self.other.plan_id

    def planned(self, options: Options) -> Plan:
        return make_plan(str(self.path), options)

    def undo(self, plan: Plan) -> ApplyReport:
        before = look(self.path)
        report = undo(plan, self.options)
        assert look(self.path) == before
        return report


def said(report: ApplyReport) -> str:
    return markdown(apply_view(report))


def is_proven(report: ApplyReport) -> bool:
    return not any(words in said(report) for words in UNPROVEN)


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
def test_a_plan_that_was_never_applied_is_called_that(memory_dir: Path, keep: str) -> None:
    directory = Directory(memory_dir, keep=keep)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.DONE
    assert is_proven(report), said(report)
    assert "nothing of this plan is applied here" in said(report)


def test_a_plan_that_was_taken_back_is_not_applied_here_at_the_second_undo(memory_dir: Path) -> None:
    directory = Directory(memory_dir)
    apply(directory.plan, directory.options)
    assert "changes taken back." in said(undo(directory.plan, directory.options))
    report = directory.undo(directory.plan)
    assert (report.exit_code, is_proven(report)) == (ExitCode.DONE, True)
    assert "nothing of this plan is applied here" in said(report)


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
@pytest.mark.parametrize("purged", [False, True], ids=["kept", "purged"])
def test_equal_files_of_another_plan_are_not_taken_for_this_one_s(
    memory_dir: Path, keep: str, purged: bool
) -> None:
    directory = Directory(memory_dir, keep=keep)
    assert apply(directory.other, directory.options).exit_code == ExitCode.DONE
    if purged:
        purge(directory.other, directory.options)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.REFUSED
    assert is_proven(report), said(report)
    assert "no journal of this plan is here" in said(report)


def test_partitions_that_were_taken_back_and_changed_by_another_plan_are_not_called_purged(
    memory_dir: Path,
) -> None:
    directory = Directory(memory_dir)
    apply(directory.plan, directory.options)
    undo(directory.plan, directory.options)
    apply(directory.other, directory.options)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.REFUSED
    assert is_proven(report), said(report)


def test_purge_of_a_plan_that_was_never_applied_here_does_not_say_that_originals_went(tmp_path: Path) -> None:
    one = scene(tmp_path, BLOAT)
    plan = make_plan(str(one.path), one.options())
    for _ in range(2):
        report = purge(plan, one.options())
        assert {result.outcome for result in report.results} == {"already"}
        shown = on_screen(apply_view(report), 100)
        assert "nothing of this plan is kept here" in shown
        assert "originals are gone" not in shown
