"""No verb leaves a descriptor open, however it ends: an open one keeps a file system busy that is to be unmounted.

An error keeps the frames that it came through until the garbage collector meets it, and these keep what they opened.
So the collector is off here. More calls, drawn anew: ``KREPAIR_EVERY_CALL=1``.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.durable.tree import Tree
from krepair.errors import KrepairError
from krepair.ops.apply import apply
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.ops.verify import verify_plan
from tests.ops.journeys import built
from tests.ops.stops import EVERY_CALL
from tools.torture.scenes import Placed, Scene

VERBS = {
    "apply": lambda placed, options: apply(placed.plan, options),
    "undo": lambda placed, options: undo(placed.plan, options),
    "purge": lambda placed, options: purge(placed.plan, options),
    "verify": lambda placed, options: verify_plan(placed.plan, options),
    "undo by id": lambda placed, options: undo_by_id(str(placed.path), placed.plan.plan_id, options),
    "purge by id": lambda placed, options: purge_by_id(str(placed.path), placed.plan.plan_id, options),
}
CALLS = 60 if EVERY_CALL else 3
EVERY_SCENE = ("markers~until-verified", "keys~until-verified", "recovery", "everything")


class Opens:
    """Counts what is opened below any log directory; one of these calls fails."""

    def __init__(self, fails: int, error: int) -> None:
        self.count = 0
        self.fails = fails
        self.error = error

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        whole = Tree.reach

        def reach(tree: Tree, path: str) -> tuple[int, bool]:
            self.count += 1
            if self.count == self.fails:
                raise OSError(self.error, os.strerror(self.error), path)
            return whole(tree, path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Tree, "reach", reach)
            yield


def descriptors() -> dict[str, str]:
    """Number -> what is open."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def run(verb: str, scene: Scene, placed: Placed, fails: int = 0) -> int:
    """Run a verb of which one call fails; gives how many calls there were."""
    opens = Opens(fails, errno.EACCES)
    with opens.watched(), contextlib.suppress(KrepairError):
        VERBS[verb](placed, scene.options)
    return opens.count


def applied(scene: Scene, folder: Path, verb: str) -> Placed:
    placed = scene.place(folder)
    if verb != "apply":
        apply(placed.plan, scene.options)
    return placed


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("name", "verb"),
    [(name, verb) for name in EVERY_SCENE for verb in VERBS]
    if EVERY_CALL
    else [
        ("recovery", "apply"),
        pytest.param("keys~until-verified", "apply", marks=pytest.mark.slow),
        *(pytest.param("markers~until-verified", verb, marks=pytest.mark.slow) for verb in VERBS),
    ],
)
def test_nothing_stays_open_after_a_verb_that_failed_anywhere(memory_dir: Path, name: str, verb: str) -> None:
    scene = built(name)
    (memory_dir / "count").mkdir()
    total = run(verb, scene, applied(scene, memory_dir / "count", verb))
    rng = random.Random(f"{name} {verb}" if not EVERY_CALL else None)
    for fails in [0, *rng.sample(range(1, total + 1), min(total, CALLS))]:
        folder = memory_dir / str(fails)
        folder.mkdir()
        placed = applied(scene, folder, verb)
        gc.collect()
        gc.disable()
        try:
            before = descriptors()
            run(verb, scene, placed, fails)
            left = {what for number, what in descriptors().items() if before.get(number) != what}
        finally:
            gc.enable()
        assert left == set(), fails
        shutil.rmtree(folder)


def test_key_compaction_that_is_verified_again_leaves_no_scratch_folder(
    memory_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading of the new files wants the keys again; it gets the scratch folder of apply, which goes then."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scene = built("keys~until-verified")
    apply(scene.place(memory_dir).plan, scene.options)
    assert list(tmp_path.glob("krepair-scratch-*")) == []
