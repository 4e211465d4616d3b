"""Every case of the corpus: check twice, plan, apply, verify, an empty second plan, undo, and no byte differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.plan.review import review
from tests.corpus.bases import BASES
from tests.corpus.case import Case
from tests.corpus.cases import CASES
from tests.corpus.harness import checked, forecasts, made, options, rules
from tests.lab.jars import VERSIONS
from tests.ops.conftest import memory_dir
from tests.ops.scene import tree
from tests.twins.of_plan import verified

__all__ = ["memory_dir"]


def changes(plan: Plan) -> list[str]:
    """Ids of all changes."""
    in_root = plan.root.changes if plan.root is not None else ()
    return [
        change.change_id for change in (*in_root, *(one for each in plan.partitions for one in each.changes))
    ]


def test_names_are_unique_and_there_are_as_many_cases_as_were_promised() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(CASES) >= 120


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_case_breaks_is_found_and_mended_as_it_promises(case: Case, memory_dir: Path) -> None:
    log_dir = made(case, memory_dir / "damaged").log_dir
    before = tree(log_dir)
    report = checked(case, log_dir)
    assert rules(report) == case.findings
    assert checked(case, log_dir) == report
    assert forecasts(case, log_dir) == {version: case.before.of(version) for version in VERSIONS}
    plan = planfile.loads(planfile.dumps(make_plan(str(log_dir), options(case))), "PLAN")
    assert review(plan) == []
    assert tree(log_dir) == before
    assert bool(changes(plan)) is case.mended
    if not case.mended:
        assert apply(plan, options(case)).exit_code == ExitCode.DONE
        assert tree(log_dir) == before
        return

    assert apply(plan, options(case)).exit_code == ExitCode.DONE
    mended = checked(case, log_dir)
    assert rules(mended) == case.left
    assert [(one.plan_id, one.state, one.copy, one.undo, one.why_not) for one in mended.kept] == [
        (plan.plan_id, "applied", "there", "yes", "")
    ]
    assert set(forecasts(case, log_dir).values()) == {case.after}
    healthy = BASES[case.base].write(memory_dir / "healthy", case.name)
    for name in case.restores:
        assert (log_dir / f"{case.name}-0" / name).read_bytes() == (healthy.folder / name).read_bytes()
    assert verified(plan, options(case)) == []
    assert changes(make_plan(str(log_dir), replace(options(case), accepted_losses=()))) == []
    assert undo(plan, options(case)).exit_code == ExitCode.DONE
    assert tree(log_dir) == before
