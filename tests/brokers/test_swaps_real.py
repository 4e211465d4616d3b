"""A real ``__consumer_offsets`` whose cleaner, Kafka's own, was stopped in the middle of its swap."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.plan import make_plan
from krepair.ops.verify import verify_plan
from krepair.plan.model import CompleteSwap
from tests.lab.jars import VERSIONS
from tests.lab.judge import Judge
from tests.ops.pending import EXTENSIONS, name
from tests.ops.scene import BLOAT, Scene, part, scene, tree

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PARTITION = "__consumer_offsets-0"
JudgeOf = Callable[[str], Judge]


def bases(folder: Path) -> list[int]:
    return sorted(int(path.name.partition(".")[0]) for path in folder.glob("*.log"))


def stop_in_the_middle(here: Scene, work: Path, judge: Judge) -> tuple[int, int]:
    """Have the cleaner of that version make a segment of several, and put it beside them as its crash would."""
    folder = here.path / PARTITION
    cleaned = Path(shutil.copytree(folder, work / PARTITION))
    larger = here.settings | {"segment.bytes": "400000"}
    judge.clean(cleaned, settings=larger, now_ms=here.now_ms)
    before, after = bases(folder), bases(cleaned)
    at = next(
        place
        for place, base in enumerate(after[:-1])
        if sum(base <= o < after[place + 1] for o in before) > 1
    )
    base, end = after[at], after[at + 1]
    for extension in EXTENSIONS:
        source = cleaned / name(base, extension)
        if source.exists():
            shutil.copy2(source, folder / (name(base, extension) + ".swap"))
    first = next(each for each in before if base < each < end)
    for extension in EXTENSIONS:  # the first that it set aside
        original = folder / name(first, extension)
        if original.exists():
            original.rename(f"{original}.deleted")
    return base, sum(base <= each < end for each in before) - 1


@pytest.mark.parametrize("cleaner", ["2.2.1", "3.9.2"])
def test_the_swap_of_a_real_cleaner_is_completed_to_what_every_broker_serves(
    judge: JudgeOf, tmp_path: Path, cleaner: str
) -> None:
    here = scene(tmp_path, BLOAT)
    base, replaced = stop_in_the_middle(here, tmp_path / "work", judge(cleaner))
    theirs = {}
    for version in VERSIONS:
        copy = Path(shutil.copytree(here.path / PARTITION, tmp_path / version / PARTITION))
        theirs[version] = judge(version).load(copy, settings=here.settings, now_ms=here.now_ms)
    before = tree(here.path)
    plan = here.plan(fixes=("leftovers",))
    (change, *removed) = part(plan, PARTITION).changes
    assert isinstance(change, CompleteSwap)
    assert (change.base_offset, len(change.replaces)) == (base, replaced)
    assert {one.rule for one in removed} == {"KR601"}  # type: ignore[union-attr]
    assert here.apply(plan).exit_code == ExitCode.DONE
    assert not verify_plan(plan, here.options()).problems
    for version in VERSIONS:
        copy = Path(shutil.copytree(here.path / PARTITION, tmp_path / "ours" / version / PARTITION))
        ours = judge(version).load(copy, settings=here.settings, now_ms=here.now_ms)
        assert theirs[version].served == ours.served, version
        assert (theirs[version].log_end, theirs[version].stable_offset) == (ours.log_end, ours.stable_offset)
        assert [one.base_offset for one in theirs[version].segments] == [
            one.base_offset for one in ours.segments
        ]
    second = make_plan(str(here.path), here.options())
    assert part(second, PARTITION).code == ""
    assert here.undo(plan).exit_code == ExitCode.DONE
    assert before == tree(here.path)
    assert os.path.isdir(here.path / PARTITION)
