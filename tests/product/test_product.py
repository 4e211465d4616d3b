"""Every plan can be applied, verified, undone and purged, whatever the directory and the request."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode, PersonDecidesError, RefusedError, UnreadableError
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.model import Plan, RollSegment
from krepair.plan.review import review
from tests.ops.scene import tree
from tests.product.scene import Drawn, draw
from tests.twins.of_plan import verified

ENDS_GONE = "KR312"
FIRST, AFTER = map(int, os.environ.get("KREPAIR_PRODUCT", "0:40").split(":"))
"""Seeds that are tried; ``KREPAIR_PRODUCT=1000:5000`` tries others."""


def failures(report: ApplyReport) -> list[str]:
    """What failed, in words."""
    return [f"{one.partition}: {one.why}" for one in report.results if one.outcome == "failed"]


def problems(plan: Plan, options: Options) -> list[str]:
    """What verify and the twins find wrong; but an end that was gone before the plan is gone after it."""
    return [text for text in verified(plan, options) if f"({ENDS_GONE})" not in text]


def changes(plan: Plan) -> set[tuple[str, str]]:
    """Folder (``.`` is the root) and kind of every change."""
    found = {(part.folder, type(change).__name__) for part in plan.partitions for change in part.changes}
    root = () if plan.root is None else plan.root.changes
    return found | {(".", type(change).__name__) for change in root}


def waits_for_another(plan: Plan) -> set[str]:
    """Folders of which the plan says that something is left to a second plan."""
    left = {
        part.folder
        for part in plan.partitions
        if part.status == "left alone"
        or any(word in note for note in part.notes for word in ("not changed", "left as", "stays", "consent"))
    }
    raises_points = plan.root is not None and any(change.rule == "KR801" for change in plan.root.changes)
    return left | {"."} if left or raises_points else left


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FIRST, AFTER))
def test_what_is_planned_can_be_applied_verified_taken_back_applied_again_and_purged(
    seed: int, tmp_path: Path
) -> None:
    drawn = draw(seed, tmp_path / "logs")
    path, options, before = str(drawn.path), drawn.options, tree(drawn.path)
    checked = check([path], Options(engine=options.engine, now_ms=options.now_ms))
    gone = any(found.rule == ENDS_GONE for one in checked.log_dirs for found in one.findings)
    try:
        plan = make_plan(path, options)
    except (RefusedError, PersonDecidesError, UnreadableError):
        assert tree(drawn.path) == before, drawn.text
        return
    assert review(plan) == [], drawn.text
    assert tree(drawn.path) == before, drawn.text
    applied(plan, drawn)
    if options.keep == "inplace":
        plan = taken_back(plan, drawn, before)
    purged = purge(plan, options)
    if gone and purged.exit_code in {ExitCode.REFUSED, ExitCode.PARTLY}:
        assert any("are gone" in why for why in failures(purged)), drawn.text
        return
    assert purged.exit_code == ExitCode.DONE, drawn.text
    assert failures(apply(plan, options)) == [], drawn.text
    assert not [name for name in tree(drawn.path) if "krepair" in name], drawn.text
    assert_at_rest(plan, drawn)


def applied(plan: Plan, drawn: Drawn) -> None:
    """Once, and once more, which does nothing; and verified."""
    for _ in range(2):
        report = apply(plan, drawn.options)
        assert (report.exit_code, failures(report)) == (ExitCode.DONE, []), drawn.text
        assert problems(plan, drawn.options) == [], drawn.text


def taken_back(plan: Plan, drawn: Drawn, before: dict[str, tuple[object, ...]]) -> Plan:
    """To the byte; and applied again, after which the plan that was applied is given."""
    with_originals = Options(engine=drawn.options.engine, now_ms=drawn.options.now_ms, originals=True)
    assert problems(plan, with_originals) == [], drawn.text
    report = undo(plan, drawn.options)
    assert (report.exit_code, failures(report)) == (ExitCode.DONE, []), drawn.text
    assert tree(drawn.path) == before, drawn.text
    if any("pending swap" in one for one in drawn.damages):
        # Damaged originals of a swap are kept as copies: those that come back are other files to the plan.
        plan = make_plan(str(drawn.path), drawn.options)
    assert failures(apply(plan, drawn.options)) == [], drawn.text
    return plan


def assert_at_rest(plan: Plan, drawn: Drawn) -> None:
    """A second plan has nothing to do but for what the first one left, and what the first one made possible."""
    second = changes(make_plan(str(drawn.path), drawn.options))
    rolled = {
        part.folder
        for part in plan.partitions
        if any(isinstance(change, RollSegment) for change in part.changes)
    }
    # Once a log is rolled, what was its active segment can be cleaned, and the snapshot before that is of no use.
    possible = {(folder, kind) for folder in rolled for kind in ("RewriteSegments", "ReplaceFile")}
    if drawn.options.delete_horizon == "next-pass":  # each pass has its own horizon
        possible |= {(folder, "RewriteSegments") for folder, _ in second}
    waits = waits_for_another(plan)
    assert {one for one in second - possible if one[0] not in waits} == set(), drawn.text
