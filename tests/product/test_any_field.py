"""Any field of a valid plan is changed and the plan sealed again: the review objects, or the change does no harm.

No harm: apply ends with what the sound plan would have come to, or changes nothing; or it stops half way, and undo
gives everything back. The gate tries each kind of field in one scene, with two values that no review objects
to, ``KREPAIR_EVERY_STATE=1`` all values in each scene;
``python -m tools.torture.resealed`` tries the same without the review.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.plan import planfile
from krepair.plan.review import review
from tests.ops.conftest import memory_dir
from tools.torture.resealed import applied, changed, kind_of, sound_of, wrong_values
from tools.torture.scenes import SCENES, build

__all__ = ["memory_dir"]
pytestmark = pytest.mark.slow
EVERY = os.environ.get("KREPAIR_EVERY_STATE") == "1"
OF_EACH_KIND = 2


@pytest.fixture(scope="module")
def tried() -> set[tuple[Any, ...]]:
    """The kinds of fields that an earlier scene had."""
    return set()


@pytest.mark.parametrize("name", SCENES)
def test_a_changed_field_is_objected_to_or_does_no_harm(
    name: str, tried: set[tuple[Any, ...]], memory_dir: Path
) -> None:
    scene = build(name)
    sound = sound_of(scene, memory_dir)
    values = list(wrong_values(msgspec.json.decode(planfile.in_full(scene.plan)), 1))
    new = [one for one in values if EVERY or kind_of(one[0]) not in tried]
    tried.update(kind_of(path) for path, _ in values)
    harmful = []
    applied_of: Counter[tuple[Any, ...]] = Counter()
    for number, (path, value) in enumerate(new):
        kind = kind_of(path)
        if applied_of[kind] == OF_EACH_KIND and not EVERY:
            continue
        plan = changed(scene.plan, [(path, value)])
        if plan is None or review(plan):
            continue
        applied_of[kind] += 1
        placed = scene.place(memory_dir / str(number))
        there = changed(placed.plan, [(path, value)])
        ended, why = applied(scene, sound, placed, there) if there is not None else ("", "")
        if ended == "crashed" or (ended == "wrong" and not _is_input(path)):
            harmful.append((path, value, why))
    assert harmful == []


def _is_input(path: tuple[Any, ...]) -> bool:
    """Settings by which apply works: with others it is another plan."""
    return path[:2] == ("policy", "settings")
