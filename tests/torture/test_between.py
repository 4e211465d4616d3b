"""A real broker between the verbs: one episode of each version; ``make torture`` has hundreds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.jars import VERSIONS
from tests.torture.programme import run_part, wrong_of

pytestmark = [
    pytest.mark.broker,
    pytest.mark.slow,
    pytest.mark.every_broker,
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


@pytest.mark.parametrize("version", VERSIONS)
def test_killed_trees_that_a_broker_serves_and_writes_to_lose_nothing(tmp_path: Path, version: str) -> None:
    state = run_part("between", tmp_path, "--samples", "1", "--scene", version)
    assert not state.all_wrong, wrong_of(state)
    not_by_us = state.figures[f"starts of {version} that KAFKA-8443 prevents"]
    assert state.figures["starts of a broker"] + not_by_us == 2
    assert state.figures["steps"] > (20 if not_by_us else 50)
    assert state.figures["kills"] > 5
