"""Definition of a mutant: one thing of the code is changed, and it stays valid Python. A test has to notice it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.torture import mutants

SOURCE = '''
"""A module."""
LIMIT = 7

def judge(values, most=3):
    """Words."""
    if not values or len(values) > most:
        raise ValueError("too many values")
    total = 0
    for value in values:
        if value < 0:
            continue
        total += value
    assert total >= 0
    return f"{total}.log"
'''


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / "m.py").write_text(SOURCE)
    return "m.py"


def test_a_module_is_changed_in_one_thing(path: str) -> None:
    assert [told.partition("    in: ")[0] for told in mutants.mutants_of(path).values()] == [
        "line 3: 7 -> 8",
        "line 5: 3 -> 4",
        "line 7: if not values or len(values) > most: -> if True:",
        "line 7: if not values or len(values) > most: -> if False:",
        "line 7: Or -> And",
        "line 7: not values -> values",
        "line 7: Gt -> GtE",
        "line 8: raise ValueError('too many values') -> pass",
        "line 9: 0 -> 1",
        "line 11: if value < 0: -> if True:",
        "line 11: if value < 0: -> if False:",
        "line 11: Lt -> LtE",
        "line 11: 0 -> 1",
        "line 12: continue -> pass",
        "line 13: total += value -> pass",
        "line 13: Add -> Sub",
        "line 15: '.log' -> '.log~'",
    ]


def test_every_mutant_is_valid_and_no_two_are_the_same(path: str) -> None:
    found = [ast.dump(mutants.mutated(SOURCE, number)) for number in range(len(mutants.mutants_of(path)))]
    assert len({*found, ast.dump(ast.parse(SOURCE))}) == len(found) + 1


@pytest.mark.slow
def test_a_test_notices_a_mutant_and_not_a_message() -> None:
    path = "krepair/rules/own_policy.py"
    found = mutants.mutants_of(path)
    case = next(case for case, told in found.items() if "if " in told and "-> if True" in told)
    assert mutants.replay(case, Path()) == []
