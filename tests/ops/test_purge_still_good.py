"""Purge does not free the originals of a new segment that was damaged since; what a broker does is no damage."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.ops.apply import apply
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.reports import ApplyReport
from krepair.ops.verify import verify_plan
from krepair.plan.model import RewriteSegments
from tools.torture.scenes import Placed, Scene, build, look


def by_plan(scene: Scene, placed: Placed) -> ApplyReport:
    return purge(placed.plan, scene.options)


def by_id(scene: Scene, placed: Placed) -> ApplyReport:
    return purge_by_id(str(placed.path), placed.plan.plan_id, scene.options)


Purge = Callable[[Scene, Placed], ApplyReport]
BOTH = pytest.mark.parametrize("verb", [by_plan, by_id])


@pytest.fixture(params=["partitions", "keys"])
def applied(request: pytest.FixtureRequest, memory_dir: Path) -> tuple[Scene, Placed]:
    scene = build(request.param)
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code is ExitCode.DONE
    return scene, placed


def new_log(placed: Placed) -> Path:
    """The first segment that apply made; others follow it."""
    return next(
        placed.path / part.folder / f"{change.base_offset:020d}.log"
        for part in placed.plan.partitions
        for change in part.changes
        if isinstance(change, RewriteSegments)
    )


def append(log: Path) -> None:
    with log.open("ab") as file:
        file.write(b"rubbish" * 20)


def flip(log: Path) -> None:
    with log.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))


@BOTH
@pytest.mark.parametrize("damage", [append, flip])
def test_the_partition_keeps_its_originals_and_the_others_go_on(
    damage: Callable[[Path], None], verb: Purge, applied: tuple[Scene, Placed]
) -> None:
    scene, placed = applied
    log = new_log(placed)
    good = log.stat().st_size
    damage(log)
    assert verify_plan(placed.plan, scene.options).exit_code is ExitCode.FOUND
    kept = log.parent / f"krepair~{placed.plan.plan_id}"
    before = look(kept / "keep")
    report = verb(scene, placed)
    (failed,) = [
        one for one in report.results if one.outcome == "failed" and one.partition == log.parent.name
    ]
    assert failed.exit_code == ExitCode.REFUSED
    assert failed.why.startswith(f"{log}: was written since apply and is damaged at byte ")
    if damage is append:
        assert f"at byte {good} " in failed.why
    assert report.exit_code in (ExitCode.PARTLY, ExitCode.REFUSED)
    assert str(report.next_command) == f"krepair check {placed.path}"
    assert look(kept / "keep") == before
    others = [one for one in placed.path.glob("*/krepair~*") if one.parent != log.parent]
    assert not [one for one in others if not one.name.endswith("root")]


@BOTH
def test_what_a_broker_makes_of_a_closed_segment_is_no_damage(
    verb: Purge, applied: tuple[Scene, Placed]
) -> None:
    scene, placed = applied
    log = new_log(placed)
    cleaned = log.with_suffix(".log.cleaned")
    cleaned.write_bytes(log.read_bytes())
    cleaned.replace(log)
    assert verb(scene, placed).exit_code is ExitCode.DONE


@BOTH
def test_a_new_time_alone_is_read_and_found_good(verb: Purge, applied: tuple[Scene, Placed]) -> None:
    scene, placed = applied
    os.utime(new_log(placed))
    assert verb(scene, placed).exit_code is ExitCode.DONE


@BOTH
def test_a_segment_that_retention_deleted_is_in_nobodys_way(
    verb: Purge, applied: tuple[Scene, Placed]
) -> None:
    scene, placed = applied
    new_log(placed).unlink()
    assert verb(scene, placed).exit_code is ExitCode.DONE
