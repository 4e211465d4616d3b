"""Any field of a sound plan is changed and the plan sealed anew: the review objects to it, or it does no harm.

No harm: apply ends with what the sound plan would have come to, or changes nothing; or it stops half way, and undo
gives everything back. The gate tries each kind of field in one scene, ``KREPAIR_EVERY_STATE=1`` in each of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from krepair.errors import ExitCode, KrepairError
from krepair.ops.apply import apply
from krepair.ops.undo import undo
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.plan.review import review
from tests.ops.conftest import memory_dir
from tools.torture.crafted import places
from tools.torture.scenes import SCENES, Placed, Scene, Tree, build, look, visible

__all__ = ["memory_dir"]
pytestmark = pytest.mark.slow

EVERY = os.environ.get("KREPAIR_EVERY_STATE") == "1"
Path_ = tuple[Any, ...]


class Change(NamedTuple):
    """Another value of one field."""

    path: Path_
    value: Any


def kind_of(path: Path_) -> Path_:
    """Fields that differ only in the number of a row are of one kind; so are settings of any topic."""
    kind = tuple("*" if isinstance(step, int) else step for step in path)
    of_topic = kind[:2] == ("policy", "settings") and any(kind[2:3])
    return (*kind[:2], "topic", *kind[3:]) if of_topic else kind


def others(old: Any) -> list[Any]:
    """Values of the same type that are near."""
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int):
        return [old + 1, old - 1]
    if isinstance(old, str):
        return [f"{old}x"]
    return [old[:-1], [*old, old[-1]]] if isinstance(old, list) and old else []


def holder_of(document: Any, path: Path_) -> Any:
    for step in path[:-1]:
        document = document[step]
    return document


def changes_of(document: Any, tried: set[Path_]) -> Iterator[Change]:
    """The first field of each kind that was not tried."""
    for path in places(document):
        if kind_of(path) not in tried:
            tried.add(kind_of(path))
            for value in others(holder_of(document, path)[path[-1]]):
                yield Change(path, value)


def changed(plan: Plan, change: Change) -> Plan | None:
    """The plan with another value, sealed; None where it is none any more."""
    document = msgspec.json.decode(planfile.dumps(plan))
    holder_of(document, change.path)[change.path[-1]] = change.value
    try:
        return planfile.seal(msgspec.convert(document, Plan))
    except msgspec.ValidationError:
        return None


def outside(placed: Placed) -> Tree:
    """What a broker sees; the clock says when the files of the root were written anew."""
    return {
        name: seen._replace(mtime_ns=0 if "/" not in name else seen.mtime_ns)
        for name, seen in visible(look(placed.path)).items()
    }


def harm_of(scene: Scene, change: Change, placed: Placed, before: Tree, after: Tree) -> str:
    """What goes wrong where the plan is carried out, or nothing."""
    plan = changed(placed.plan, change)
    assert plan is not None
    try:
        code = apply(plan, scene.options).exit_code
    except KrepairError as error:
        code = error.exit_code
    if outside(placed) in (before, after):
        return ""
    if code is not ExitCode.PARTLY:
        return f"apply ends with {code} and something else"
    undo(plan, scene.options)
    return "" if outside(placed) == before else "undo does not give everything back"


@pytest.fixture(scope="module")
def tried() -> set[Path_]:
    """The kinds of fields that an earlier scene had."""
    return set()


@pytest.mark.parametrize("name", SCENES)
def test_a_changed_field_is_objected_to_or_does_no_harm(
    name: str, tried: set[Path_], memory_dir: Path
) -> None:
    scene = build(name)
    sound = scene.place(memory_dir / "sound")
    before = outside(sound)
    apply(sound.plan, scene.options)
    after = outside(sound)
    harmful = []
    kinds: set[Path_] = set() if EVERY else tried
    for number, change in enumerate(changes_of(msgspec.json.decode(planfile.dumps(scene.plan)), kinds)):
        plan = changed(scene.plan, change)
        if plan is not None and not review(plan):
            harm = harm_of(scene, change, scene.place(memory_dir / str(number)), before, after)
            harmful += [(change, harm)] if harm else []
    assert harmful == []
