"""The copy of the plan that lies with what it keeps: the broker's user can write it, and root's undo reads it.

Folders and journals name the edited plan, and its digest is right. What the review refuses of a plan file it refuses of
the copy, and a copy that names less than is kept is refused, too. Nothing is changed then.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.errors import RefusedError
from krepair.ops.apply import apply
from krepair.ops.undo import undo_by_id
from krepair.plan.objection import OBJECTIONS
from tools.torture.resealed import changed, exchange_copy
from tools.torture.scenes import build, look

scene_of = functools.cache(build)
FIRST = ("partitions", 0, "changes", 0)
FREED = {"type": "free when verified"}
TIERED = {"key": "remote.storage.enable", "value": "true", "source": "test"}
EDITS: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("RV04", "markers", ("commit", "order"), "P2"),
    ("RV05", "markers", (*FIRST, "undo"), FREED),
    ("RV09", "markers", ("partitions", 0, "folder"), "../b-0"),
    (
        "RV13",
        "markers",
        ("policy", "settings", "b", 0),
        TIERED,
    ),
    ("RV14", "markers", ("policy", "settings", "b"), []),
    ("RV16", "markers", ("partitions", 0, "span"), None),
    ("RV17", "markers", (*FIRST, "base_offset"), 1),
    ("RV18", "markers", ("partitions", 0, "files", "last log"), msgspec.UNSET),
    ("RV21", "markers", (*FIRST, "batches"), 0),
    ("RV23", "markers", (*FIRST, "removes_snapshots"), []),
    ("RV24", "markers", (*FIRST, "mtime_ns"), 5),
    ("RV25", "removals", (*FIRST, "rule"), "KR201"),
    ("RV28", "recovery", ("root", "keeper"), ".."),
    ("RV29", "excise", ("policy", "accepted_losses"), []),
    ("RV30", "excise", (*FIRST, "size_after"), 1),
    ("RV31", "leftovers", ("partitions", 1, "changes", 0, "goes"), []),
    ("RV33", "markers", ("policy", "others", "only_replica"), []),
    ("does not name it", "tail-cut", ("partitions", 0, "changes"), []),
    ("does not name it", "everything", ("root",), None),
]


@pytest.mark.parametrize(
    ("words", "scene", "path", "value"), EDITS, ids=[f"{e[0]} {e[2][-1]}" for e in EDITS]
)
def test_an_edited_copy_is_refused_and_nothing_is_changed(
    words: str, scene: str, path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    built = scene_of(scene)
    placed = built.place(tmp_path)
    if path[-1] == "last log":
        logs = [n for n, file in enumerate(placed.plan.partitions[0].files) if file.name.endswith(".log")]
        path = (*path[:-1], logs[-1])
    edited = changed(placed.plan, [(path, value)])
    assert edited is not None
    apply(placed.plan, built.options)
    exchange_copy(placed, edited)
    before = look(placed.path)
    with pytest.raises(RefusedError, match=words):
        undo_by_id(str(placed.path), edited.plan_id, built.options)
    assert look(placed.path) == before


def test_every_kind_of_objection_is_tried() -> None:
    assert {words for words, *_ in EDITS} - {"does not name it"} == set(OBJECTIONS)


def test_a_copy_whose_changes_were_taken_out_is_refused(tmp_path: Path) -> None:
    built = scene_of("everything")
    placed = built.place(tmp_path)
    kept = placed.plan.partitions[0].changes[1:]
    edited = changed(placed.plan, [(FIRST[:3], kept)])
    assert edited is not None
    apply(placed.plan, built.options)
    exchange_copy(placed, edited)
    with pytest.raises(RefusedError, match="does not name it"):
        undo_by_id(str(placed.path), edited.plan_id, built.options)
