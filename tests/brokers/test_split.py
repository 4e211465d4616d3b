"""Kafka's own loader at every instant of completing several swaps at once: a split that a broker did not finish."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from tests.commit.scene import tree
from tests.commit.states_disk import StatesDisk, verdicts
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.ops import pending
from tests.ops.pending import options

pytestmark = [pytest.mark.broker, pytest.mark.slow]

JudgeOf = Callable[[str], Judge]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("fenced", [True, False])
def test_a_broker_started_at_any_instant_serves_what_it_would_have_served(
    judge: JudgeOf, tmp_path: Path, version: str, *, fenced: bool
) -> None:
    root = pending.write_split(tmp_path / "logs", damage_elsewhere=not fenced)
    before = tree(root)
    chosen = options(broker_version="" if fenced else version, partitions=(("t", 0),))
    plan = make_plan(str(root), chosen)
    assert plan.commit.fence is fenced
    disk = StatesDisk(root, tmp_path / "apply")
    assert apply(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "OLD"} == {}
    disk = StatesDisk(root, tmp_path / "undo")
    assert undo(plan, chosen, disk=disk).exit_code == ExitCode.DONE
    found = verdicts(judge(version), disk)
    assert {state: said for state, said in found.items() if said != "OLD"} == {}
    assert before == tree(root)
