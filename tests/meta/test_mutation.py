"""What counts as a mutant: it changes one thing, is valid Python, and keeps its id while the code around it changes."""

from __future__ import annotations

import ast

import pytest

from tools.torture.mutation import MODULE, mutants, mutated

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


def changes(source: str, function: str = "judge") -> set[tuple[str, str]]:
    return {
        (mutant.site.before, mutant.site.after)
        for mutant in mutants(source, "m.py", "m")
        if mutant.site.function == function
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("not values or len(values) > most", "True"),
        ("not values or len(values) > most", "False"),
        ("not values or len(values) > most", "not values"),
        ("not values", "values"),
        ("len(values) > most", "len(values) >= most"),
        ("raise ValueError('too many values')", "pass"),
        ("0", "1"),
        ("value < 0", "value <= 0"),
        ("continue", "pass"),
        ("total += value", "pass"),
        ("total += value", "total -= value"),
        ("f'{total}.log'", "f'{total}.log~'"),
    ],
)
def test_a_function_is_changed_in_one_thing(before: str, after: str) -> None:
    assert (before, after) in changes(SOURCE)


def test_messages_docstrings_and_asserts_are_left_alone() -> None:
    words = {before for before, _ in changes(SOURCE) | changes(SOURCE, MODULE)}
    assert not any("Words" in word or word in {"'too many values'", "total >= 0"} for word in words)


def test_what_runs_on_import_belongs_to_no_function() -> None:
    assert changes(SOURCE, MODULE) == {("7", "8"), ("3", "4")}


def test_every_mutant_is_valid_and_differs_from_the_source() -> None:
    plain = ast.dump(ast.parse(SOURCE))
    found = [mutated(SOURCE, mutant.number) for mutant in mutants(SOURCE, "m.py", "m")]
    for tree in found:
        compile(tree, "m.py", "exec")
    dumped = [ast.dump(tree) for tree in found]
    assert plain not in dumped
    assert len(set(dumped)) == len(dumped)


def test_ids_stay_when_something_else_changes_and_go_with_their_statement() -> None:
    def ids(source: str) -> set[str]:
        return {mutant.id for mutant in mutants(source, "m.py", "m")}

    before = ids(SOURCE)
    assert len(before) == len(mutants(SOURCE, "m.py", "m"))
    moved = ids(SOURCE.replace("LIMIT = 7", "LIMIT = 7\nMORE = 'more words'\n\n\ndef other():\n    return 1"))
    assert before < moved
    edited = ids(SOURCE.replace("value < 0", "value < 1"))
    assert {one.split(":")[1] for one in before - edited} == {"judge"}
    assert 0 < len(before - edited) < len(before) / 2
