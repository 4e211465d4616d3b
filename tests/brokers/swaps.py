"""A broker's swaps, interrupted where a test says."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from krepair.options import Options
from krepair.plan.model import CompleteSwap, Plan
from tests.lab.jars import VERSIONS
from tests.ops import pending
from tests.ops.pending import FOLDER, options
from tests.ops.scene import part

CASES = [pytest.param("fenced", version, id=f"fenced, {version}") for version in VERSIONS] + [
    pytest.param("by version", version, id=f"by version, {version}") for version in VERSIONS
]


def scene(root: Path, order: str, version: str) -> tuple[Options, Plan]:
    """M pending over 100 and 300, with 200 already set aside; without the fence where damage is in reach."""
    pending.write(root, deleted=(200,), damage_elsewhere=order != "fenced")
    chosen = options(broker_version="" if order == "fenced" else version, partitions=(("t", 0),))
    plan = make_plan(str(root), chosen)
    assert next(type(change) for change in part(plan, FOLDER).changes) is CompleteSwap
    assert plan.commit.fence is (order == "fenced")
    return chosen, plan
