"""A log directory that was copied or restored is the log directory: every verb goes on there as if nothing had been."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import subprocess
from functools import partial
from pathlib import Path

import pytest

from krepair.commit.kept import kept_report
from krepair.commit.reports import ApplyReport
from krepair.errors import ExitCode, KrepairError, StalePlanError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.ops.verify import verify_plan
from tests.ops.full_disks import file_system
from tests.ops.journeys import built
from tests.ops.stops import EVERY_CALL, calls_of, stopped, stops
from tools.torture.copies import FIRST, Case, Copied, try_unit, ways
from tools.torture.copies import VERBS as AFTER_A_COPY
from tools.torture.scenes import Placed, Scene, Tree, differences, look, private, visible

VERBS = {"apply": apply, "undo": undo, "purge": purge}
NAMES = ("markers", "everything", "leftovers", "tail-cut", "excise", "set-aside", "indexes", "recovery")
WHOLE = ("-a",)
TORN = ("-r", "--no-dereference", "--preserve=mode,ownership,timestamps,xattr")
TIMELESS = ("-r", "--no-dereference", "--preserve=mode,ownership,links,xattr")


def run(verb: str, scene: Scene, placed: Placed, disk: object = None) -> ApplyReport:
    return VERBS[verb](placed.plan, scene.options, disk=disk)  # type: ignore[operator, no-any-return]


def seen(placed: Placed) -> Tree:
    return visible(look(placed.path))


def without_times(tree: Tree) -> Tree:
    return {name: one._replace(mtime_ns=0) for name, one in tree.items()}


def moved(path: Path, how: tuple[str, ...] = WHOLE) -> None:
    """The directory is a copy of itself now, under the same path; every file has another inode."""
    old = path.with_name("old")
    path.rename(old)
    subprocess.run(["cp", *how, str(old), str(path)], check=True)
    shutil.rmtree(old)


def fresh(scene: Scene, folder: Path) -> Placed:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return scene.place(folder)


HOW = pytest.mark.parametrize(
    "how", [pytest.param(WHOLE, id="whole"), pytest.param(TORN, id="torn links", marks=pytest.mark.slow)]
)


@HOW
@pytest.mark.parametrize("name", NAMES)
def test_what_was_applied_is_verified_taken_back_and_purged_in_a_copy(
    memory_dir: Path, name: str, how: tuple[str, ...]
) -> None:
    scene = built(name)
    for verb in ("undo", "purge", "apply"):
        placed = fresh(scene, memory_dir / "try")
        before = seen(placed)
        run("apply", scene, placed)
        after = seen(placed)
        moved(placed.path, how)
        assert verify_plan(placed.plan, scene.options).problems == ()
        report = run(verb, scene, placed)
        assert report.exit_code == ExitCode.DONE, (verb, report.results)
        assert differences(seen(placed), before if verb == "undo" else after) == "", verb
        if verb == "apply":
            again = run("undo", scene, placed)
            assert again.exit_code == ExitCode.DONE, again.results
            assert differences(seen(placed), before) == ""
        assert private(look(placed.path)) == []


@pytest.mark.parametrize("first", ["apply", "undo"])
@pytest.mark.parametrize("name", NAMES)
def test_in_a_copy_without_times_no_verb_ends_well_on_what_is_wrong(
    memory_dir: Path, name: str, first: str
) -> None:
    """With its hard links as they were for the first scene, and without any for the others."""
    how = TIMELESS if name == NAMES[0] else ("-r", "--preserve=mode,ownership")
    scene = built(name)
    placed = fresh(scene, memory_dir / "try")
    before, calls = seen(placed), {}
    calls["apply"] = len(calls_of(partial(run, "apply", scene, placed)))
    wanted = {"apply": seen(placed), "undo": before}
    calls["undo"] = len(calls_of(partial(run, "undo", scene, placed)))
    for stop in (*stops(calls[first], 3), 0):
        for verb in ("apply", "undo"):
            placed = fresh(scene, memory_dir / "try")
            kept = {path.read_bytes() for path in placed.path.rglob("*") if path.is_file()}
            if first == "undo":
                run("apply", scene, placed)
            if stop:
                stopped(partial(run, first, scene, placed), stop)
            else:
                run(first, scene, placed)
            moved(placed.path, how)
            kept |= {path.read_bytes() for path in placed.path.rglob("*") if path.is_file()}
            try:
                code = run(verb, scene, placed).exit_code
            except KrepairError as error:
                code = error.exit_code
            if code == ExitCode.DONE:
                found, want = without_times(seen(placed)), without_times(wanted[verb])
                for tree in (found, want):
                    tree.pop(".kafka_cleanshutdown", None)
                    tree.pop("recovery-point-offset-checkpoint", None)
                assert differences(found, want) == "", (stop, verb)
            else:
                logs = {path.read_bytes() for path in placed.path.rglob("*.log") if path.is_file()}
                assert logs <= kept, (stop, verb)


WAYS = [way for way in ways() if way != "timeless"]
"""In the gate the scenes take turns; part ``copies`` of torture copies each of them in each way."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"), itertools.product(NAMES, WAYS) if EVERY_CALL else zip(NAMES, itertools.cycle(WAYS))
)
def test_copied_at_a_call_of_apply_or_undo_each_verb_ends_right(
    memory_dir: Path, name: str, way: str
) -> None:
    """With and without links, with other owners; ``make torture`` copies at every call."""
    copied = Copied(name, 0, memory_dir)
    tried = 0
    for first, verb in itertools.product(FIRST, AFTER_A_COPY):
        cases, wrong = try_unit(copied, Case(name, 0, first, 0, way, verb), most=2)
        assert wrong == []
        tried += cases
    assert tried


def with_ids(path: Path, **ids: str) -> None:
    (path / "meta.properties").write_text("".join(f"{key.replace('_', '.')}={ids[key]}\n" for key in ids))


PLANS = {"version": "1", "cluster_id": "abc", "node_id": "1"}
OWN, OTHERS = "AAAAAAAAAAAAAAAAAAAAzg", "AAAAAAAAAAAAAAAAAAAAzw"


@pytest.mark.parametrize(
    ("was", "now", "wrong"),
    [
        (PLANS, PLANS, ""),
        (PLANS, PLANS | {"node_id": "9"}, "broker.id is 9"),
        (PLANS, PLANS | {"cluster_id": "x"}, "cluster.id is x"),
        (PLANS, {}, "cluster.id is not there"),
        (PLANS, PLANS | {"directory_id": OWN}, ""),
        (PLANS | {"directory_id": OWN}, PLANS, ""),
        (PLANS | {"directory_id": OWN}, PLANS | {"directory_id": OTHERS}, f"directory.id is {OTHERS}"),
    ],
)
def test_of_a_directory_cluster_and_node_are_the_plans_and_its_own_id_where_both_have_one(
    memory_dir: Path, was: dict[str, str], now: dict[str, str], wrong: str
) -> None:
    scene = built("markers")
    placed = fresh(scene, memory_dir / "try")
    if was:
        with_ids(placed.path, **was)
    plan = make_plan(str(placed.path), scene.options)
    assert apply(plan, scene.options).exit_code == ExitCode.DONE
    if was:
        (placed.path / "meta.properties").unlink()
    if now:
        with_ids(placed.path, **now)
    before = look(placed.path)
    for verb in (apply, undo, purge):
        if wrong:
            with pytest.raises(StalePlanError, match=re.escape(wrong)):
                verb(plan, scene.options)
            assert look(placed.path) == before
    if not wrong:
        assert undo(plan, scene.options).exit_code == ExitCode.DONE


@pytest.mark.parametrize("name", ["markers", "leftovers", "everything"])
def test_at_another_path_the_copy_of_the_plan_undoes_and_purges(memory_dir: Path, name: str) -> None:
    scene = built(name)
    for number, verb in enumerate((undo_by_id, purge_by_id)):
        placed = fresh(scene, memory_dir / str(number))
        before = seen(placed)
        run("apply", scene, placed)
        after, beside = look(placed.path), memory_dir / f"copy-{number}"
        subprocess.run(["cp", *WHOLE, str(placed.path), str(beside)], check=True)
        assert [one.undo for one in kept_report(str(beside), scene.options.now_ms).plans] == ["yes"]
        report = verb(str(beside), placed.plan.plan_id, scene.options)
        assert report.exit_code == ExitCode.DONE, report.results
        assert differences(visible(look(beside)), visible(after) if number else before) == ""
        assert private(look(beside)) == []
        assert look(placed.path) == after  # the one that the plan names is not touched


def test_two_mounts_whose_roots_have_one_inode_are_told_apart(tmp_path: Path) -> None:
    """The root of every ext4 file system is inode 2; files copied in one order get equal numbers, too."""
    scene = built("markers")
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        file_system("ext4", tmp_path / "a", 64 << 20) as one,
        file_system("ext4", tmp_path / "b", 64 << 20) as two,
    ):
        made = fresh(scene, tmp_path / "made")
        for mount in (one, two):
            (mount / "lost+found").rmdir()
        subprocess.run(["cp", "-a", f"{made.path}/.", str(one)], check=True)
        plan = make_plan(str(one), scene.options)
        before = visible(look(one))
        assert apply(plan, scene.options).exit_code == ExitCode.DONE
        after = look(one)
        # Copied in another order, so that numbers are those of other files.
        for name in sorted(os.listdir(one), reverse=True):
            subprocess.run(["cp", "-a", str(one / name), str(two)], check=True)
        assert one.stat().st_ino == two.stat().st_ino
        subprocess.run(["mount", "--bind", str(two), str(one)], check=True)
        try:
            report = undo(plan, scene.options)
            assert report.exit_code == ExitCode.DONE, report.results
            assert differences(visible(look(one)), before) == ""
        finally:
            subprocess.run(["umount", str(one)], check=True)
        assert look(one) == after
        shutil.rmtree(two / "b-0", ignore_errors=True)


@pytest.mark.parametrize("how", [WHOLE, TORN])
def test_a_plan_that_was_never_applied_is_applied_to_a_copy(memory_dir: Path, how: tuple[str, ...]) -> None:
    scene = built("everything")
    placed = fresh(scene, memory_dir / "try")
    before = seen(placed)
    moved(placed.path, how)
    assert run("apply", scene, placed).exit_code == ExitCode.DONE
    assert run("undo", scene, placed).exit_code == ExitCode.DONE
    assert differences(seen(placed), before) == ""


def test_a_host_may_have_another_name(memory_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = built("markers")
    placed = fresh(scene, memory_dir / "try")
    before = seen(placed)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert run("apply", scene, placed).exit_code == ExitCode.DONE
    monkeypatch.setattr(socket, "gethostname", lambda: "a third one")
    assert run("undo", scene, placed).exit_code == ExitCode.DONE
    assert differences(seen(placed), before) == ""
