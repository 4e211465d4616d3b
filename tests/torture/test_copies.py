"""A sample of log directories that are copied in the middle; ``make torture`` copies them after every call."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.torture.copies import FIRST, VERBS, Case, Copied, try_unit, ways
from tools.torture.scenes import MEMORY


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where a sync costs nothing."""
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        yield Path(folder)


def test_a_case_is_read_as_it_is_written() -> None:
    case = Case("markers", 0, "apply", 7, "torn", "undo")
    assert Case.parse(str(case)) == case


@pytest.mark.slow
def test_every_verb_ends_right_on_a_copy(memory: Path) -> None:
    name = "markers"
    copied = Copied(name, 0, memory)
    tried = 0
    for first in FIRST:
        for way in ways():
            for verb in VERBS:
                cases, wrong = try_unit(copied, Case(name, 0, first, 0, way, verb), most=2)
                assert wrong == []
                tried += cases
    copied.close()
    assert tried > len(VERBS)
