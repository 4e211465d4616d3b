"""The judge of the programme with a broker in between: what is put back, and where two logs differ."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from tools.torture.between import Tree, _not_put_back, _unlike, place
from tools.torture.scenes import Placed, build

SWAPPED = f"{100:020d}.log"


def tree(root: Path, kind: str) -> Tree:
    scene = build("leftovers")
    name, path = f"leftovers.{kind}", root / kind
    folders = place(scene, name, path)
    plan = make_plan(os.fspath(path), scene.options)
    return Tree(name, scene, kind, folders, Placed(path, plan, root / f"{kind}.plan"))


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Tree, Tree]:
    return tree(tmp_path, "victim"), tree(tmp_path, "before")


def log_of(one: Tree) -> Path:
    return one.placed.path / f"{one.name}.t-0" / SWAPPED


def test_an_original_that_is_there_is_put_back(trees: tuple[Tree, Tree]) -> None:
    assert _not_put_back(*trees) == ""


def test_a_swap_that_a_broker_has_completed_is_what_it_makes_of_the_original(
    trees: tuple[Tree, Tree],
) -> None:
    for one in trees:
        shutil.move(f"{log_of(one)}.swap", log_of(one))
    assert _not_put_back(*trees) == ""


def test_a_swap_is_not_put_back_where_a_broker_leaves_the_original(trees: tuple[Tree, Tree]) -> None:
    shutil.move(f"{log_of(trees[0])}.swap", log_of(trees[0]))
    assert SWAPPED in _not_put_back(*trees)


def test_an_original_that_is_gone_is_not_put_back(trees: tuple[Tree, Tree]) -> None:
    log_of(trees[0]).unlink()
    assert SWAPPED in _not_put_back(*trees)


def test_a_difference_is_told_by_its_first_offset_and_by_offsets_that_came_twice() -> None:
    twin = ((0, b"a", b"1"), (1, b"b", b"2"))
    assert _unlike((*twin, twin[0]), [None, twin]) == "first at offset 0, 1 offsets twice"
    assert _unlike((twin[0], (1, b"b", b"3")), [twin]) == "first at offset 1, 0 offsets twice"
    assert _unlike(twin[:1], [twin]) == "first at its end, 0 offsets twice"
