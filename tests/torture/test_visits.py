"""Killed trees to which a broker or a person came: a seeded sample of ``make torture``."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.torture.programme import run_part, wrong_of
from tools.torture.visits import ACTS, VERBS, cases

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.slow
@pytest.mark.broker
def test_whoever_came_meanwhile_no_record_that_was_served_is_lost(tmp_path: Path) -> None:
    state = run_part("visits", tmp_path, "--samples", "2", "--seeds", "1")
    assert not state.all_wrong, wrong_of(state)
    assert state.figures["cases"] > 20


def test_every_act_is_followed_by_every_verb() -> None:
    wanted: Any = SimpleNamespace(counts={"apply": 100, "undo": 100, "purge": 20})
    found = {text.split("+", 1)[1] for text in cases("markers", 0, wanted, len(ACTS) * len(VERBS))}
    assert found == {f"{act}+{verb}" for act in ACTS for verb in VERBS}
