"""The judge of the programme with a broker in between: what is put back, and where two logs differ."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from krepair.ops.plan import make_plan
from tests.builders import LogDir, Record, abort, data
from tools.torture.between import Episode, Tree, _is_by_its_own_cleaner, _not_put_back, _unlike, place
from tools.torture.scenes import Placed, build

SWAPPED = f"{100:020d}.log"
SNAPSHOT = f"t-0/{3:020d}.snapshot"


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


def killed_after_its_cleaner(root: Path, *scenes: str) -> Episode:
    """A log directory for each scene: a snapshot has a transaction open that the log knows nothing of any more."""
    trees = []
    for scene in scenes:
        whole, cleaned = (
            _log_dir(root / f"{scene}-whole", cleaned=False),
            _log_dir(root / scene, cleaned=True),
        )
        shutil.copy(whole / SNAPSHOT, cleaned / SNAPSHOT)
        plan = make_plan(os.fspath(cleaned), build(scene).options)
        trees.append(Tree(scene, build(scene), "victim", ("t-0",), Placed(cleaned, plan, root)))
    return Episode("2.2.1", 0, trees, {}, Counter({"starts of a broker": 1}), [])


def _log_dir(root: Path, *, cleaned: bool) -> Path:
    """A transaction begins at 2 and is aborted at 3, the base offset of the active segment."""
    made = LogDir(root)
    partition = made.partition("t")
    begin = [data(2, [Record(b"a", b"1")], pid=7, sequence=0, txn=True)]
    partition.segment(*(data(n, [Record(b"k%d" % n, b"0")]) for n in (0, 1)), *([] if cleaned else begin))
    partition.segment(*([] if cleaned else [abort(3, pid=7)]), data(4, [Record(b"m", b"0")]), base_offset=3)
    return made.write(clean_stop=False)


@pytest.mark.broker
def test_a_start_that_the_brokers_own_cleaner_prevents_is_told_from_other_failures(tmp_path: Path) -> None:
    episode = killed_after_its_cleaner(tmp_path, "keys")
    assert _is_by_its_own_cleaner(episode)
    assert not _is_by_its_own_cleaner(killed_after_its_cleaner(tmp_path / "more", "keys", "indexes"))
    episode.version = "3.9.2"
    assert not _is_by_its_own_cleaner(episode)
    episode.version = "2.2.1"
    episode.figures.clear()
    assert not _is_by_its_own_cleaner(episode)
