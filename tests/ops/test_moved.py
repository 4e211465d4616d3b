"""A log directory that was copied to another disk, at the same path: every verb goes on, or names what is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, KrepairError, StalePlanError
from krepair.ops.apply import apply
from krepair.ops.by_id import purge_by_id, undo_by_id
from krepair.ops.kept import kept_report
from krepair.ops.purge import purge
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.model import MendLog
from krepair.plan.view import bytes_words
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.full_disks import file_system
from tests.ops.test_resume import stops
from tools.torture.scenes import Placed, Scene, Tree, build, differences, look, private, visible

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


def stopped(scene: Scene, placed: Placed, verb: str, call: int) -> None:
    with pytest.raises(SimulatedCrash):
        run(verb, scene, placed, StoppingDisk(RealDisk(), call))


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {name: build(name) for name in NAMES}


def ends_of(scene: Scene, folder: Path) -> tuple[Tree, Tree, dict[str, int]]:
    """Trees before and after, and how many calls each verb makes."""
    folder.mkdir()
    placed, calls = scene.place(folder), {}
    before = seen(placed)
    recording = RecordingDisk(RealDisk())
    assert run("apply", scene, placed, recording).exit_code == ExitCode.DONE
    calls["apply"] = sum(call.kind in FILE_CHANGING for call in recording.calls)
    after = seen(placed)
    recording = RecordingDisk(RealDisk())
    assert run("undo", scene, placed, recording).exit_code == ExitCode.DONE
    calls["undo"] = sum(call.kind in FILE_CHANGING for call in recording.calls)
    return before, after, calls


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
    memory_dir: Path, scenes: dict[str, Scene], name: str, how: tuple[str, ...]
) -> None:
    scene = scenes[name]
    before, after, _ = ends_of(scene, memory_dir / "whole")
    for verb in ("undo", "purge", "apply"):
        placed = fresh(scene, memory_dir / "try")
        run("apply", scene, placed)
        moved(placed.path, how)
        assert verify_plan(placed.plan, scene.options).problems == ()
        report = run(verb, scene, placed)
        assert report.exit_code == ExitCode.DONE, (verb, report.results)
        assert any("was moved" in note for note in report.notes), verb
        assert differences(seen(placed), before if verb == "undo" else after) == "", verb
        if verb == "apply":
            again = run("undo", scene, placed)
            assert again.exit_code == ExitCode.DONE, again.results
            assert not again.notes  # the journals fit by now
            assert differences(seen(placed), before) == ""
        assert private(look(placed.path)) == []


@pytest.mark.parametrize("name", ["markers", "leftovers", "everything"])
def test_by_id_undo_and_purge_work_in_a_copy(memory_dir: Path, scenes: dict[str, Scene], name: str) -> None:
    scene = scenes[name]
    for number, verb in enumerate((undo_by_id, purge_by_id)):
        placed = fresh(scene, memory_dir / str(number))
        before = seen(placed)
        run("apply", scene, placed)
        after = seen(placed)
        moved(placed.path)
        assert [one.undo for one in kept_report(str(placed.path), scene.options.now_ms).plans] == ["yes"]
        report = verb(str(placed.path), placed.plan.plan_id, scene.options)
        assert report.exit_code == ExitCode.DONE, report.results
        assert differences(seen(placed), after if number else before) == ""
        assert private(look(placed.path)) == []


@pytest.mark.slow
@HOW
@pytest.mark.parametrize("first", ["apply", "undo"])
@pytest.mark.parametrize("name", NAMES)
def test_copied_at_any_call_apply_and_undo_end_as_without_the_copy(
    memory_dir: Path, scenes: dict[str, Scene], name: str, first: str, how: tuple[str, ...]
) -> None:
    scene = scenes[name]
    before, after, calls = ends_of(scene, memory_dir / "whole")
    most = int(os.environ.get("KREPAIR_MOVED", "8"))
    for stop in stops(calls[first], most):
        for verb in ("apply", "undo"):
            placed = fresh(scene, memory_dir / "try")
            if first == "undo":
                run("apply", scene, placed)
            stopped(scene, placed, first, stop)
            if not private(look(placed.path)):
                continue  # nothing was begun, or all is undone: a new plan is needed
            moved(placed.path, how)
            if verb == "apply" and not list(placed.path.rglob("journal")):
                with pytest.raises(StalePlanError, match="no journal"):
                    run(verb, scene, placed)
                continue
            report = run(verb, scene, placed)
            where = (name, first, stop, verb, report.results)
            if (first, verb) == ("undo", "apply") and report.exit_code != ExitCode.DONE:
                assert report.exit_code in {ExitCode.REFUSED, ExitCode.PARTLY}, where
                assert any("undo" in one.why for one in report.results), where
            else:
                assert report.exit_code == ExitCode.DONE, where
                assert differences(seen(placed), after if verb == "apply" else before) == "", where
            if private(look(placed.path)):
                report = run("undo", scene, placed)
                assert report.exit_code == ExitCode.DONE, (where, report.results)
            assert differences(seen(placed), before) == "", where
            assert private(look(placed.path)) == [], where


@pytest.mark.parametrize("name", ["markers", "everything"])
def test_a_copy_without_times_is_taken_back_and_the_marker_stays_away(
    memory_dir: Path, scenes: dict[str, Scene], name: str
) -> None:
    scene = scenes[name]
    before, _, calls = ends_of(scene, memory_dir / "whole")
    marker, said = ".kafka_cleanshutdown", 0
    for stop in stops(calls["apply"], 12):
        placed = fresh(scene, memory_dir / "try")
        stopped(scene, placed, "apply", stop)
        aside = marker in before and not (placed.path / marker).exists()
        if not private(look(placed.path)):
            continue  # nothing was begun: a new plan is needed
        moved(placed.path, TIMELESS)
        report = run("undo", scene, placed)
        assert report.exit_code == ExitCode.DONE, (stop, report.results)
        found, wanted = without_times(seen(placed)), without_times(before)
        if aside:
            assert any("marker was not given back" in note for note in report.notes), stop
            assert marker not in found
            said += 1
            for tree in (found, wanted):
                tree.pop(marker, None)
                tree.pop("recovery-point-offset-checkpoint", None)
        assert differences(found, wanted) == "", stop
    assert said


@pytest.mark.parametrize(
    ("name", "first", "stop"),
    [
        ("tail-cut", "apply", 33),
        ("recovery", "undo", 1),
        ("tail-cut", "undo", 14),
        ("leftovers", "apply", 41),
    ],
)
def test_times_that_are_lost_are_a_fact_of_the_whole_directory(
    memory_dir: Path, name: str, first: str, stop: int
) -> None:
    # A log that was cut in its place, and lines of a checkpoint, have no digest in a journal: the plan knows them.
    scene = build(name, 0)
    before, _, _ = ends_of(scene, memory_dir / "whole")
    placed = fresh(scene, memory_dir / "try")
    if first == "undo":
        run("apply", scene, placed)
    stopped(scene, placed, first, stop)
    moved(placed.path, TIMELESS)
    report = run("undo", scene, placed)
    assert report.exit_code == ExitCode.DONE, report.results
    found, wanted = without_times(seen(placed)), without_times(before)
    for tree in (found, wanted):
        tree.pop(".kafka_cleanshutdown", None)
        tree.pop("recovery-point-offset-checkpoint", None)
    assert differences(found, wanted) == ""


def test_a_cut_log_that_was_written_since_is_refused_although_the_copy_lost_all_times(
    memory_dir: Path,
) -> None:
    scene = build("tail-cut", 0)
    placed = fresh(scene, memory_dir / "try")
    run("apply", scene, placed)
    moved(placed.path, TIMELESS)
    log = next(
        placed.path / part.folder / change.name
        for part in placed.plan.partitions
        for change in part.changes
        if isinstance(change, MendLog)
    )
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(bytes(data))
    was = log.read_bytes()
    report = run("undo", scene, placed)
    assert any("was written since" in one.why for one in report.results), report.results
    assert log.read_bytes() == was


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_other_owners_are_no_reason(memory_dir: Path, scenes: dict[str, Scene]) -> None:
    scene = scenes["everything"]
    placed = fresh(scene, memory_dir / "try")
    run("apply", scene, placed)
    moved(placed.path)
    for path in [placed.path, *placed.path.rglob("*")]:
        os.chown(path, 4711, 4712, follow_symlinks=False)
    assert run("undo", scene, placed).exit_code == ExitCode.DONE
    assert all(one.owner == (4711, 4712) for one in seen(placed).values())


def flip(file: Path) -> None:
    found, data = file.stat(), bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("name", ["markers", "everything", "excise", "set-aside", "leftovers"])
def test_one_kept_or_made_file_that_is_another_is_named_and_nothing_changes(
    memory_dir: Path, scenes: dict[str, Scene], name: str
) -> None:
    scene = scenes[name]
    placed = fresh(scene, memory_dir / "try")
    run("apply", scene, placed)
    files = [path for path in placed.path.rglob("keep/*") if path.stat().st_size > 20]
    for victim in (files[0], files[-1]):
        shutil.rmtree(placed.path)
        placed = fresh(scene, memory_dir / "try")
        run("apply", scene, placed)
        victim = next(placed.path.rglob(f"{victim.parent.parent.parent.name}/*/keep/{victim.name}"))
        moved(placed.path)
        flip(victim)
        before = look(placed.path)
        for verb in ("undo", "purge", "apply"):
            with pytest.raises(StalePlanError) as caught:
                run(verb, scene, placed)
            assert victim.name in caught.value.message, verb
            assert look(placed.path) == before, verb


def test_another_log_directory_and_the_replica_of_another_broker_are_refused(
    memory_dir: Path, scenes: dict[str, Scene]
) -> None:
    scene = scenes["everything"]
    placed = fresh(scene, memory_dir / "try")
    run("apply", scene, placed)
    other = scene.place(memory_dir / "other") if (memory_dir / "other").mkdir() is None else placed
    own, keep = placed.path, memory_dir / "kept"
    own.rename(keep)
    other.path.rename(own)  # equal meta.properties, equal partitions, no journal of the plan
    before = look(own)
    for verb in VERBS:
        with pytest.raises(StalePlanError):
            run(verb, scene, placed)
    assert look(own) == before
    shutil.rmtree(own)
    shutil.copytree(keep, own, symlinks=True)
    meta = own / "meta.properties"
    if not meta.exists():
        pytest.skip("the scene has no meta.properties")
    text = meta.read_text()
    meta.write_text(
        "\n".join("broker.id=9" if "broker.id" in line else line for line in text.splitlines()) + "\n"
    )
    before = look(own)
    for verb in VERBS:
        with pytest.raises(StalePlanError, match=r"broker\.id"):
            run(verb, scene, placed)
    assert look(own) == before


def test_two_mounts_whose_roots_have_one_inode_are_told_apart(
    tmp_path: Path, scenes: dict[str, Scene]
) -> None:
    """The root of every ext4 file system is inode 2; files copied in one order get equal numbers, too."""
    scene = scenes["markers"]
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
        from krepair.ops.plan import make_plan

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
            assert any("was moved" in note for note in report.notes)
            assert differences(visible(look(one)), before) == ""
        finally:
            subprocess.run(["umount", str(one)], check=True)
        assert look(one) == after
        shutil.rmtree(two / "b-0", ignore_errors=True)


def test_a_plan_that_was_never_applied_is_not_for_a_copy(memory_dir: Path, scenes: dict[str, Scene]) -> None:
    scene = scenes["markers"]
    placed = fresh(scene, memory_dir / "try")
    moved(placed.path)
    before = look(placed.path)
    for verb in VERBS:
        with pytest.raises(KrepairError) as caught:
            run(verb, scene, placed)
        assert caught.value.exit_code == ExitCode.STALE_PLAN
    assert look(placed.path) == before


def test_a_host_that_was_renamed_is_proven_like_a_directory_that_moved(
    memory_dir: Path, scenes: dict[str, Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    scene = scenes["markers"]
    placed = fresh(scene, memory_dir / "try")
    before = seen(placed)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    with pytest.raises(StalePlanError, match="is for host"):
        run("apply", scene, placed)
    monkeypatch.undo()
    run("apply", scene, placed)
    monkeypatch.setattr(socket, "gethostname", lambda: "another")
    assert run("undo", scene, placed).exit_code == ExitCode.DONE
    assert differences(seen(placed), before) == ""


def test_hard_links_that_a_copy_has_torn_apart_are_counted(
    memory_dir: Path, scenes: dict[str, Scene]
) -> None:
    scene = scenes["markers"]
    before, _, calls = ends_of(scene, memory_dir / "whole")
    said = 0
    for stop in stops(calls["apply"], 12):
        placed = fresh(scene, memory_dir / "try")
        stopped(scene, placed, "apply", stop)
        if not list(placed.path.rglob("journal")):
            continue
        # Files of two names, one of them kept: what a copy without -H makes two files of.
        kept = {path.stat().st_ino: path.stat().st_size for path in placed.path.rglob("keep/*")}
        both = {path.stat().st_ino for path in placed.path.glob("*/0*") if path.stat().st_nlink > 1}
        torn = sum(size for inode, size in kept.items() if inode in both)
        moved(placed.path, TORN)
        report = run("undo", scene, placed)
        assert report.exit_code == ExitCode.DONE, (stop, report.results)
        text = " ".join(report.notes)
        assert (f"{bytes_words(torn)} of originals were one file" in text) == bool(torn), (
            stop,
            torn,
            text,
        )
        assert differences(seen(placed), before) == "", stop
        said += bool(torn)
    assert said
