"""Read-only disks, clocks, topics that go, limits, two log directories: a seeded sample of ``make torture``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.torture.programme import run_part, wrong_of
from tools.torture.surroundings import KINDS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.mark.slow
def test_whatever_happens_around_it_the_next_run_ends_right(tmp_path: Path) -> None:
    state = run_part("surroundings", tmp_path, "--samples", "1")
    assert not state.all_wrong, wrong_of(state)
    kinds = [kind for kind in KINDS if kind != "readonly" or os.geteuid() == 0]
    assert all(state.figures[f"{kind} cases"] >= 8 for kind in kinds), state.figures
