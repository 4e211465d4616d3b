"""Whether a plan fits: said when it is made, and by apply, with what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from krepair.errors import ExitCode, RefusedError
from krepair.logdir.space import Space
from krepair.ops import apply as apply_module
from krepair.ops import fit
from krepair.ops.apply import apply
from krepair.ops.target import targets_of
from krepair.options import Engine, Options
from krepair.plan.figures import on_top_of_all
from krepair.plan.model import Plan
from tests.ops.scene import Scene, scene, tree

INLINE = Options(engine=Engine.INLINE)


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def space(free_bytes: int, free_inodes: int = -1) -> Space:
    return Space(free_bytes=free_bytes, free_inodes=free_inodes, block_bytes=4096, mounted_read_only=False)


def needs(plan: Plan) -> tuple[fit.Need, list[fit.Need]]:
    targets = targets_of(plan)
    return fit.need_of_all(plan, targets), [fit.need_of_all(plan, [target]) for target in targets]


def test_the_need_is_the_peak_that_the_plan_says(bloat: Scene) -> None:
    plan = bloat.plan()
    assert fit.need_of_all(plan, targets_of(plan)).bytes == plan.peak_extra_bytes


def test_a_plan_that_fits_says_so_last(bloat: Scene) -> None:
    page = fit.planned_view(bloat.plan(), "P")
    assert page.sections[-1].title == "It fits on the disk"


def freeing_needs(bloat: Scene) -> tuple[fit.Need, list[fit.Need]]:
    """As ``needs``, of the plan that frees what it verified."""
    return needs(bloat.plan(keep="until-verified"))


def test_a_plan_that_fits_only_where_groups_make_room_for_the_next_ones_says_the_command(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bloat.plan()
    whole, freeing = needs(plan)[0], freeing_needs(bloat)[0]
    tight = space(freeing.bytes)
    assert tight.free_bytes < whole.bytes
    monkeypatch.setattr(fit, "read_space", lambda *_, **__: tight)
    first = fit.planned_view(plan, "P").sections[0]
    assert "does NOT fit" in first.title
    assert "with --keep until-verified it fits" in first.lines[-1].lower()
    assert first.commands == (f"krepair plan {bloat.path} --keep until-verified --out PLAN",)


def test_a_plan_of_which_parts_fit_names_the_command_for_one(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = bloat.plan()
    whole, parts = freeing_needs(bloat)
    assert len(parts) > 1
    tight = space(min(part.bytes for part in parts))
    assert tight.free_bytes < whole.bytes
    monkeypatch.setattr(fit, "read_space", lambda *_, **__: tight)
    first = fit.planned_view(plan, "P").sections[0]
    assert "does NOT fit" in first.title
    assert "one at a time" in first.lines[-1]
    assert "--keep until-verified --partition __" in first.commands[0]


def test_a_plan_of_which_no_group_fits_says_how_many_bytes_are_missing_and_what_could_go(
    bloat: Scene,
) -> None:
    plan = bloat.plan()
    _, parts = freeing_needs(bloat)
    free = min(part.bytes for part in parts) - 10_000
    assert "at least 10000 more bytes" in fit.way_out(plan, targets_of(plan), space(free))
    assert "knows of nothing here that can go" in fit.way_out(plan, targets_of(plan), space(free))
    (Path(bloat.path) / "__consumer_offsets-0" / f"{0:020d}.log.deleted").write_bytes(b"x" * 5000)
    earlier = bloat.plan(partitions=(("__consumer_offsets", 1),))
    assert bloat.apply(earlier).exit_code == ExitCode.DONE
    text = fit.way_out(plan, targets_of(plan), space(free))
    assert f"krepair purge {bloat.path} --plan-id {earlier.plan_id}" in text
    assert "5000 bytes in 1 files that brokers left behind (KR701; krepair plan" in text
    assert fit.next_command(plan, targets_of(plan), space(free)).startswith("krepair purge ")


def test_partitions_that_need_least_come_first_where_what_they_free_makes_room(bloat: Scene) -> None:
    plan = bloat.plan(keep="until-verified")
    needed = [on_top_of_all([target]) for target in targets_of(plan)]
    freeing = [one.peak for one in needed if one.after <= 0]
    assert [one.peak for one in needed][: len(freeing)] == sorted(freeing)
    assert freeing


@pytest.mark.parametrize("tight", [space(100_000), space(10**12, 20)], ids=["bytes", "inodes"])
def test_apply_refuses_what_does_not_fit_and_changes_nothing(
    bloat: Scene, monkeypatch: pytest.MonkeyPatch, tight: Space
) -> None:
    plan, before = bloat.plan(), tree(Path(bloat.path))
    monkeypatch.setattr(apply_module, "read_space", lambda *_, **__: tight)
    with pytest.raises(RefusedError) as refused:
        apply(plan, INLINE)
    assert ("new files" in refused.value.message) == (tight.free_inodes == 20)
    assert refused.value.exit_code == ExitCode.REFUSED
    assert tree(Path(bloat.path)) == before


def test_the_files_that_apply_makes_are_no_more_than_was_said(bloat: Scene) -> None:
    plan = bloat.plan()
    before = len(list(Path(bloat.path).rglob("*")))
    bloat.apply(plan)
    made = len(list(Path(bloat.path).rglob("*"))) - before
    assert made <= fit.need_of_all(plan, targets_of(plan)).files
