"""The way out where a journal is damaged: undo shows the lines, a person types them, and purge ends the plan."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import apply
from krepair.ops.kept import COPY_NAME, kept_report
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo, undo_by_id
from krepair.ops.verify import verify_plan
from krepair.plan.planfile import write_plan
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.by_hand import end_by_hand, take_back_by_hand
from tools.torture.scenes import Placed, Scene, build, differences, look, private, visible

BREAK: dict[str, Callable[[bytes], bytes]] = {
    "a bit in its middle": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
    "no beginning": lambda data: data.partition(b"\n")[2],
    "zeros at its end": lambda data: data[: len(data) // 3] + bytes(len(data) - len(data) // 3),
    "nothing left in it": lambda data: b"",
}
VERBS = {"apply": apply, "undo": undo, "purge": purge, "verify": verify_plan}


def journals(placed: Placed) -> list[Path]:
    return sorted(placed.path.rglob("journal"))


def break_all(placed: Placed, how: str) -> None:
    for journal in journals(placed):
        journal.write_bytes(BREAK[how](journal.read_bytes()))


def applied(name: str, folder: Path) -> tuple[Scene, Placed, object]:
    """The scene, applied, and how its directory was before."""
    scene = build(name)
    placed = scene.place(folder)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    return scene, placed, before


def stopped(scene: Scene, placed: Placed, share: float) -> None:
    """An apply that ends after a share of its calls."""
    counting = RecordingDisk(RealDisk())
    assert apply(placed.plan, scene.options, disk=counting).exit_code == ExitCode.DONE
    calls = sum(call.kind in FILE_CHANGING for call in counting.calls)
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    with pytest.raises(SimulatedCrash):
        apply(placed.plan, scene.options, disk=StoppingDisk(RealDisk(), int(calls * share)))


@pytest.mark.parametrize("how", BREAK)
def test_the_lines_that_undo_shows_give_the_tree_back_byte_for_byte(memory_dir: Path, how: str) -> None:
    scene, placed, before = applied("everything", memory_dir)
    now = look(placed.path)
    break_all(placed, how)
    report = undo(placed.plan, scene.options)
    assert report.exit_code == ExitCode.REFUSED
    assert differences(visible(look(placed.path)), visible(now)) == "", "undo itself changes nothing"
    assert all(line.startswith(("mv ", "cat ", "touch ", "rm ")) for line in report.by_hand)
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


@pytest.mark.parametrize(
    "name",
    ["markers", "tail-cut", "excise", "set-aside", "leftovers", "recovery", "removals", "derived", "keys"],
)
def test_so_they_do_of_each_kind_of_change(memory_dir: Path, name: str) -> None:
    scene, placed, before = applied(name, memory_dir)
    break_all(placed, "nothing left in it")
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_what_is_half_done_goes_back_and_apply_and_purge_refuse_it(memory_dir: Path, share: float) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    stopped(scene, placed, share)
    half = visible(look(placed.path))
    break_all(placed, "a bit in its middle")
    assert apply(placed.plan, scene.options).exit_code != ExitCode.DONE
    assert differences(visible(look(placed.path)), half) == ""
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


def test_originals_that_apply_has_freed_do_not_come_back_and_purge_ends_it(memory_dir: Path) -> None:
    scene = build("markers~until-verified")
    whole = scene.place(_folder(memory_dir, "whole"))
    old = visible(look(whole.path))
    counting = RecordingDisk(RealDisk())
    assert apply(whole.plan, scene.options, disk=counting).exit_code == ExitCode.DONE
    new = visible(look(whole.path))
    calls = sum(call.kind in FILE_CHANGING for call in counting.calls)
    seen = set()
    for share in (0.5, 0.7, 0.9):
        again = scene.place(_folder(memory_dir, f"{share}"))
        with pytest.raises(SimulatedCrash):
            apply(again.plan, scene.options, disk=StoppingDisk(RealDisk(), int(calls * share)))
        break_all(again, "zeros at its end")
        report = take_back_by_hand(again.plan, scene.options)
        seen |= {one.why.partition("stays: ")[2] for one in report.results}
        now = visible(look(again.path))
        assert all(found in (old.get(path), new.get(path)) for path, found in now.items() if ".log" in path)
        for kept in again.path.rglob("keep/*"):
            kept.unlink()
        assert purge(again.plan, scene.options).exit_code == ExitCode.DONE
        assert private(look(again.path)) == []
    assert any("is neither in its place nor kept" in why for why in seen)


def _folder(memory_dir: Path, name: str) -> Path:
    (memory_dir / name).mkdir()
    return memory_dir / name


def test_purge_names_what_may_be_the_last_copy_and_ends_the_plan_once_a_person_has_removed_it(
    memory_dir: Path,
) -> None:
    scene, placed, _ = applied("removals", memory_dir)
    now = visible(look(placed.path))
    break_all(placed, "a bit in its middle")
    report = purge(placed.plan, scene.options)
    assert report.exit_code == ExitCode.REFUSED
    kept = journals(placed)[0].with_name("keep")
    assert f"rm -r {shlex.quote(str(kept))}" in report.results[0].why
    assert "may be the last copy" in report.results[0].why
    for file in kept.iterdir():
        file.unlink()
    assert purge(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(visible(look(placed.path)), now) == ""
    assert private(look(placed.path)) == []


@pytest.mark.parametrize("verb", [*VERBS, "list"])
def test_every_verb_that_meets_a_damaged_journal_names_it_its_place_and_the_next_command(
    memory_dir: Path, verb: str
) -> None:
    scene, placed, _ = applied("removals", memory_dir)
    break_all(placed, "a bit in its middle")
    command = f"krepair undo {placed.path} --plan-id {placed.plan.plan_id}"
    if verb == "list":
        assert str(kept_report(str(placed.path), scene.options.now_ms).next_command) == command
        return
    report = VERBS[verb](placed.plan, scene.options)  # type: ignore[operator]
    assert report.exit_code != ExitCode.DONE
    assert str(report.next_command) == command
    texts = [getattr(one, "why", "") or getattr(one, "text", "") for one in getattr(report, "results", ())]
    texts += [one.text for one in getattr(report, "problems", ())]
    assert f"{journals(placed)[0]}: byte " in texts[0]
    assert "expected a journal record with a right CRC" in texts[0]


def test_by_id_it_goes_by_the_copy_and_where_that_is_gone_by_the_plan_file(memory_dir: Path) -> None:
    scene, placed, before = applied("derived", memory_dir)
    break_all(placed, "zeros at its end")
    where = (str(placed.path), placed.plan.plan_id, scene.options)
    shown = undo_by_id(*where)
    assert shown.by_hand
    for copy in placed.path.rglob(COPY_NAME):
        copy.unlink()
    with pytest.raises(KrepairError, match="undo needs the plan file"):
        undo_by_id(*where)
    report = undo(placed.plan, scene.options)
    assert report.by_hand == shown.by_hand
    assert take_back_by_hand(placed.plan, scene.options).exit_code == ExitCode.DONE
    if private(look(placed.path)):
        assert purge_by_id(*where).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


def test_a_copy_of_the_plan_that_somebody_has_edited_shows_no_lines(memory_dir: Path) -> None:
    scene, placed, _ = applied("derived", memory_dir)
    break_all(placed, "nothing left in it")
    for copy in placed.path.rglob(COPY_NAME):
        copy.write_bytes(copy.read_bytes().replace(b".index", b".other"))
    with pytest.raises(KrepairError, match="cannot be used, undo needs the plan file"):
        undo_by_id(str(placed.path), placed.plan.plan_id, scene.options)


@pytest.mark.parametrize("where", ["in its place", "kept"])
def test_a_link_in_the_way_ends_the_lines(memory_dir: Path, where: str) -> None:
    scene, placed, _ = applied("markers", memory_dir)
    break_all(placed, "nothing left in it")
    last = placed.plan.partitions[0].changes[-1].change_id.partition("/")[2]
    folder = journals(placed)[0].parent
    path = folder.parent / f"{last}.log" if where == "in its place" else folder / "keep" / f"{last}.log"
    path.rename(memory_dir / "elsewhere")
    path.symlink_to(memory_dir / "elsewhere")
    if where == "kept":
        with pytest.raises(RefusedError, match="found a symlink; somebody put it there"):
            undo(placed.plan, scene.options)
        return
    report = undo(placed.plan, scene.options)
    assert (report.exit_code, report.by_hand) == (ExitCode.STALE_PLAN, ())


def test_it_waits_until_the_broker_is_stopped(memory_dir: Path) -> None:
    scene, placed, _ = applied("removals", memory_dir)
    break_all(placed, "nothing left in it")
    with hold_lock(str(placed.path), RealDisk()), pytest.raises(LockedError):
        undo(placed.plan, scene.options)


def test_a_journal_that_lost_its_end_between_two_records_is_refused_and_not_taken_for_whole(
    memory_dir: Path,
) -> None:
    scene, placed, before = applied("markers", memory_dir)
    now = visible(look(placed.path))
    journal = journals(placed)[0]
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))
    for verb in (apply, undo, purge):
        report = verb(placed.plan, scene.options)
        assert report.exit_code != ExitCode.DONE
        assert any("a record is gone" in one.why for one in report.results)
    assert differences(visible(look(placed.path)), now) == ""
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


def test_changes_that_undo_does_not_come_to_say_that_a_later_one_stopped_it(memory_dir: Path) -> None:
    scene, placed, _ = applied("markers", memory_dir)
    *before, last = (change.change_id for change in placed.plan.partitions[0].changes)
    log = placed.path / f"{last}.log"
    log.write_bytes(log.read_bytes() + b"x")
    report = undo(placed.plan, scene.options)
    why = {one.change_id: one.why for one in report.results}
    assert before
    assert "written since" in why[last]
    assert {why[change] for change in before} == {
        "undo takes the last change back first, and has stopped at a later one of this partition"
    }


@pytest.mark.parametrize("verb", [apply, undo])
def test_a_lost_record_that_originals_were_freed_is_named_and_purge_ends_it(
    memory_dir: Path, verb: Callable[..., ApplyReport]
) -> None:
    scene = build("markers~until-verified")
    counting = RecordingDisk(RealDisk())
    whole = scene.place(_folder(memory_dir, "whole"))
    apply(whole.plan, scene.options, disk=counting)
    calls = [call for call in counting.calls if call.kind in FILE_CHANGING]
    freeing = [number for number, call in enumerate(calls) if call.kind == "unlink" and "/keep/" in call.path]
    placed = scene.place(_folder(memory_dir, "stopped"))
    with pytest.raises(SimulatedCrash):
        apply(placed.plan, scene.options, disk=StoppingDisk(RealDisk(), freeing[1] + 1))
    (journal,) = journals(placed)
    *records, freed = journal.read_bytes().splitlines(keepends=True)
    assert b'"type":"freed"' in freed
    journal.write_bytes(b"".join(records))
    report = verb(placed.plan, scene.options)
    assert report.exit_code != ExitCode.DONE
    assert str(report.next_command) == f"krepair purge {placed.path} --plan-id {placed.plan.plan_id}"
    assert any("no record says that apply has freed it" in one.why for one in report.results)


def test_a_journal_that_the_disk_cannot_read_is_a_damaged_one(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, placed, before = applied("derived", memory_dir)
    bad = {journal.stat().st_ino for journal in journals(placed)}
    read = Tree.read

    def failing(self: Tree, path: str, at_most: int) -> bytes | None:
        if os.path.exists(path) and os.stat(path).st_ino in bad:
            raise OSError(errno.EIO, "Input/output error", path)
        return read(self, path, at_most)

    monkeypatch.setattr(Tree, "read", failing)
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


def test_a_kept_file_that_rotted_is_not_put_back(memory_dir: Path) -> None:
    scene, placed, _ = applied("markers", memory_dir)
    now = visible(look(placed.path))
    break_all(placed, "nothing left in it")
    last = placed.plan.partitions[0].changes[-1].change_id.partition("/")[2]
    kept = journals(placed)[0].parent / "keep" / f"{last}.log"
    flip(kept, 100, bits=4)
    report = undo(placed.plan, scene.options)
    assert report.exit_code != ExitCode.DONE
    assert report.by_hand == ()
    assert any(
        f"{last}.log: its original is neither in its place nor kept" in one.why for one in report.results
    )
    assert differences(visible(look(placed.path)), now) == ""


def test_a_page_shows_the_lines_one_below_the_other_and_the_next_command(memory_dir: Path) -> None:
    _, placed, before = applied("partitions", memory_dir)
    plan = str(memory_dir / "j.krplan")
    write_plan(plan, placed.plan, RealDisk())
    os.truncate(journals(placed)[0], 200)
    ran = run("undo", plan)
    assert ran.code == ExitCode.PARTLY
    lines = [line.strip() for line in ran.out.splitlines()]
    assert "By hand, while the broker is stopped" in lines
    typed = [line for line in lines if line.startswith("mv ")]
    assert typed
    for line in typed:
        assert os.system(line) == 0
    again = run("undo", plan)
    assert again.code == ExitCode.DONE
    assert run("purge", plan).code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""
