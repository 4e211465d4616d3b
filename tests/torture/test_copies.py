"""A sample of log directories that are copied in the middle; ``make torture`` copies them after every call."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.torture.copies import FIRST, VERBS, Case, Copied, try_unit, ways


def test_a_case_is_read_as_it_is_written() -> None:
    case = Case("markers", 0, "apply", 7, "torn", "undo")
    assert Case.parse(str(case)) == case


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markers", "recovery"])
def test_every_verb_ends_right_on_a_copy(name: str, tmp_path: Path) -> None:
    copied = Copied(name, 0, tmp_path)
    tried = 0
    for first in FIRST:
        for way in ways():
            for verb in VERBS:
                cases, wrong = try_unit(copied, Case(name, 0, first, 0, way, verb), most=2)
                assert wrong == []
                tried += cases
    copied.close()
    assert tried > len(VERBS)
