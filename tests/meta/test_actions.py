"""Each layer has one table of the kinds of change, and only the modules behind the tables ask of which kind one is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import krepair
from krepair.plan.change_review import REVIEWS
from krepair.plan.change_words import WORDS
from krepair.plan.model import Change

ROOT = Path(krepair.__file__).parent
KINDS = frozenset(kind.__name__ for kind in get_args(Change))

BEHIND_THE_TABLES = (
    "plan/change_review.py",
    "plan/log_contents.py",
    "commit/begin.py",
    "commit/by_disk.py",
    "commit/unrecorded.py",
    "fixes/",
)
"""What knows a kind by itself; and the fixes, each of which knows the kinds that it makes."""


@pytest.mark.parametrize("table", [WORDS, REVIEWS], ids=["words", "review"])
def test_the_table_of_each_layer_has_every_kind_of_change_and_no_other(table: dict[type, object]) -> None:
    assert set(table) == set(get_args(Change))


def test_only_the_modules_behind_the_tables_ask_of_which_kind_a_change_is() -> None:
    asking = {
        name
        for path in ROOT.rglob("*.py")
        if not (name := str(path.relative_to(ROOT))).startswith(BEHIND_THE_TABLES)
        and any(asked(ast.parse(path.read_text(encoding="utf-8"))))
    }
    assert asking == set()


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(change, MendLog)",
        "isinstance(change, (int, model.MendLog))",
        "isinstance(change, MendLog | SetAside)",
        "issubclass(kind, SetAside)",
        "type(change) is MendLog",
        "type(change) in {MendLog, SetAside}",
        "change.__class__ == MendLog",
        "match change:\n    case MendLog(name=name): pass",
        "match change:\n    case [model.MendLog()]: pass",
    ],
)
def test_every_way_to_ask_is_seen(text: str) -> None:
    assert any(asked(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["isinstance(change, str)", "MendLog(name='x')", "WORDS[type(change)]", "type(change) is str"]
)
def test_what_does_not_ask_is_passed_over(text: str) -> None:
    assert not any(asked(ast.parse(text)))


def asked(tree: ast.AST) -> Iterator[bool]:
    """For each place where a program may ask for a kind: whether it asks for a kind of change."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in {"isinstance", "issubclass"}:
                yield any(map(names_a_kind, node.args[1:]))
        elif isinstance(node, ast.MatchClass):
            yield names_a_kind(node.cls)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            yield any(map(is_a_type, sides)) and any(map(names_a_kind, sides))


def names_a_kind(node: ast.AST) -> bool:
    named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    named |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return bool(named & KINDS)


def is_a_type(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type"
    return isinstance(node, ast.Attribute) and node.attr == "__class__"
