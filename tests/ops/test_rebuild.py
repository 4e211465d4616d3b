"""``undo --rebuild-journal``: the way out where a journal is damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, KrepairError, LockedError
from krepair.journal.rebuild import DAMAGED_NAME
from krepair.logdir.lock import hold_lock
from krepair.ops import show
from krepair.ops.apply import apply
from krepair.ops.by_id import undo_by_id
from krepair.ops.kept import kept_report
from krepair.ops.purge import purge
from krepair.ops.rebuild import rebuild, rebuild_by_id
from krepair.ops.reports import ApplyReport
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from tests.durable.disks import FILE_CHANGING, FailingDisk, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.hostile.verbs import run
from tests.ops.stops import each_stop
from tools.torture.scenes import Placed, Scene, build, differences, look, private, visible

BREAK: dict[str, Callable[[bytes], bytes]] = {
    "a bit in its middle": lambda data: data[: len(data) // 2] + b"\xff" + data[len(data) // 2 + 1 :],
    "zeros at its end": lambda data: data[: len(data) // 3] + bytes(len(data) - len(data) // 3),
    "nothing left in it": lambda data: b"",
}


def journals(placed: Placed) -> list[Path]:
    return sorted(placed.path.rglob("journal"))


def break_all(placed: Placed, how: str) -> None:
    for journal in journals(placed):
        journal.write_bytes(BREAK[how](journal.read_bytes()))


def stopped(scene: Scene, placed: Placed, share: float) -> None:
    """An apply that ends after a share of its calls; the scene is placed anew for it."""
    counting = RecordingDisk(RealDisk())
    assert apply(placed.plan, scene.options, disk=counting).exit_code == ExitCode.DONE
    calls = sum(call.kind in FILE_CHANGING for call in counting.calls)
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    with pytest.raises(SimulatedCrash):
        apply(placed.plan, scene.options, disk=StoppingDisk(RealDisk(), int(calls * share)))


def told(report: ApplyReport) -> set[str]:
    return {one.why for one in report.results if one.outcome == "rebuilt"}


@pytest.mark.parametrize("how", BREAK)
def test_an_applied_plan_is_told_from_its_files_and_can_be_taken_back(memory_dir: Path, how: str) -> None:
    scene = build("everything")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    applied = look(placed.path)
    break_all(placed, how)
    report = rebuild(placed.plan, scene.options)
    assert (report.exit_code, report.next_command) == (ExitCode.DONE, "krepair undo PLAN")
    assert told(report) == {
        "the new files are in place, and the originals are kept; undo takes it back, purge keeps the new ones"
    }
    assert differences(visible(look(placed.path)), visible(applied)) == ""
    assert verify_plan(placed.plan, scene.options).problems == ()
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_what_is_half_done_goes_back_and_neither_apply_nor_purge_goes_on(
    memory_dir: Path, share: float
) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    stopped(scene, placed, share)
    half = visible(look(placed.path))
    break_all(placed, "a bit in its middle")
    report = rebuild(placed.plan, scene.options)
    assert report.exit_code == ExitCode.DONE
    assert differences(visible(look(placed.path)), half) == ""
    if any(why.startswith("it is half done") for why in told(report)):
        assert apply(placed.plan, scene.options).exit_code != ExitCode.DONE
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


def test_every_stop_while_a_journal_is_written_anew_leaves_one_that_it_can_be_done_with_again(
    memory_dir: Path,
) -> None:
    scene = build("indexes")
    for stop in each_stop(inner=RealDisk):
        folder = memory_dir / str(stop.number)
        folder.mkdir()
        placed = scene.place(folder)
        before = look(placed.path)
        assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
        break_all(placed, "zeros at its end")
        with stop as disk:
            rebuild(placed.plan, scene.options, disk=disk)
        if stop.happened:
            assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
            assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
            assert differences(look(placed.path), before) == ""
    assert stop.number > 5


def test_originals_that_apply_has_freed_are_told_and_apply_goes_on(memory_dir: Path) -> None:
    scene = build("markers~until-verified")
    (memory_dir / "whole").mkdir()
    whole = scene.place(memory_dir / "whole")
    assert apply(whole.plan, scene.options).exit_code == ExitCode.DONE
    counting = RecordingDisk(RealDisk())
    (memory_dir / "counted").mkdir()
    apply(scene.place(memory_dir / "counted").plan, scene.options, disk=counting)
    calls = sum(call.kind in FILE_CHANGING for call in counting.calls)
    seen = set()
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        again = scene.place(_folder(memory_dir, f"{share}"))
        with pytest.raises(SimulatedCrash):
            apply(again.plan, scene.options, disk=StoppingDisk(RealDisk(), int(calls * share)))
        break_all(again, "zeros at its end")
        report = rebuild(again.plan, scene.options)
        assert report.exit_code == ExitCode.DONE
        seen |= told(report)
        undo(again.plan, scene.options)  # ends what is half done, as far as there is a way back
        assert apply(again.plan, scene.options).exit_code == ExitCode.DONE
        assert differences(visible(look(again.path)), visible(look(whole.path))) == ""
        assert private(look(again.path)) == []
    assert any("apply has freed" in why for why in seen)


def _folder(memory_dir: Path, name: str) -> Path:
    (memory_dir / name).mkdir()
    return memory_dir / name


def test_a_whole_journal_stays_as_it_is(memory_dir: Path) -> None:
    scene = build("indexes")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    before = look(placed.path)
    report = rebuild(placed.plan, scene.options)
    assert {one.outcome for one in report.results} == {"already"}
    assert differences(look(placed.path), before) == ""


def test_the_damaged_journal_is_set_aside_and_goes_with_the_rest(memory_dir: Path) -> None:
    scene = build("indexes")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    damaged = {}
    for number in (1, 2):
        break_all(placed, "a bit in its middle")
        damaged[number] = journals(placed)[0].read_bytes()
        assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
    for number, data in damaged.items():
        assert journals(placed)[0].with_name(f"{DAMAGED_NAME}-{number}").read_bytes() == data
    assert purge(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert private(look(placed.path)) == []


def test_files_that_somebody_else_has_changed_in_the_middle_of_a_change_are_for_a_person(
    memory_dir: Path,
) -> None:
    scene = build("excise")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    break_all(placed, "nothing left in it")
    name = scene.plan.partitions[0].changes[0].change_id.partition("/")[2]
    (journals(placed)[0].parent / "keep" / name).unlink()
    (placed.path / "d-0" / name).unlink()
    journal = journals(placed)[0].read_bytes()
    report = rebuild(placed.plan, scene.options)
    assert report.exit_code == ExitCode.PERSON_DECIDES
    assert name in report.results[0].why
    assert "another replica" in report.results[0].why
    assert journals(placed)[0].read_bytes() == journal


@pytest.mark.parametrize("verb", ["apply", "undo", "purge", "verify", "list"])
def test_every_verb_that_meets_a_damaged_journal_names_it_its_place_and_the_next_command(
    memory_dir: Path, verb: str
) -> None:
    scene = build("removals")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    break_all(placed, "a bit in its middle")
    command = f"krepair undo {placed.path} --plan-id {placed.plan.plan_id} --rebuild-journal"
    if verb == "list":
        listed = kept_report(str(placed.path), scene.options.now_ms)
        assert listed.next_command == command
        return
    verbs = {"apply": apply, "undo": undo, "purge": purge, "verify": verify_plan}
    report = verbs[verb](placed.plan, scene.options)  # type: ignore[operator]
    assert report.exit_code != ExitCode.DONE
    assert report.next_command == command
    texts = [getattr(one, "why", "") or getattr(one, "text", "") for one in getattr(report, "results", ())]
    texts += [one.text for one in getattr(report, "problems", ())]
    assert f"{journals(placed)[0]}: byte " in texts[0]
    assert "expected a journal record with a right CRC" in texts[0]


def test_by_id_it_goes_by_the_copy_of_the_plan(memory_dir: Path) -> None:
    scene = build("derived")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    break_all(placed, "zeros at its end")
    assert rebuild_by_id(str(placed.path), placed.plan.plan_id, scene.options).exit_code == ExitCode.DONE
    assert undo_by_id(str(placed.path), placed.plan.plan_id, scene.options).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


def test_it_waits_until_the_broker_is_stopped(memory_dir: Path) -> None:
    scene = build("removals")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    break_all(placed, "nothing left in it")
    with hold_lock(str(placed.path), RealDisk()), pytest.raises(LockedError):
        rebuild(placed.plan, scene.options)


def test_a_journal_that_lost_its_end_between_two_records_is_refused_and_not_taken_for_whole(
    memory_dir: Path,
) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    applied = visible(look(placed.path))
    journal = journals(placed)[0]
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3]))
    for verb in (apply, undo, purge):
        report = verb(placed.plan, scene.options)
        assert report.exit_code != ExitCode.DONE
        assert any("a record is gone" in one.why for one in report.results)
    assert differences(visible(look(placed.path)), applied) == ""
    assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


def test_changes_that_undo_does_not_come_to_say_that_a_later_one_stopped_it(memory_dir: Path) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    *before, last = (change.change_id for change in placed.plan.partitions[0].changes)
    log = placed.path / f"{last}.log"
    log.write_bytes(log.read_bytes() + b"x")
    report = undo(placed.plan, scene.options)
    why = {one.change_id: one.why for one in report.results}
    assert before
    assert "written since" in why[last]
    assert {why[change] for change in before} == {
        "undo goes back from the last change, and stopped at a later one of this partition"
    }


@pytest.mark.parametrize("verb", [apply, undo])
def test_a_lost_record_that_originals_were_freed_is_named_and_apply_goes_on_after_the_way_out(
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
    assert report.next_command.endswith("--rebuild-journal")
    assert any("no record says that apply has freed it" in one.why for one in report.results)
    assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(visible(look(placed.path)), visible(look(whole.path))) == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_call_that_fails_leaves_the_old_journal_or_the_new_one_and_it_can_be_done_again(
    memory_dir: Path, number: int
) -> None:
    scene = build("indexes")
    for fail_at in range(1, 40):
        placed = scene.place(_folder(memory_dir, f"{fail_at}"))
        before = look(placed.path)
        assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
        break_all(placed, "a bit in its middle")
        disk = FailingDisk(RealDisk(), fail_at, number)
        try:
            code = rebuild(placed.plan, scene.options, disk=disk).exit_code
        except KrepairError as error:
            code = error.exit_code
        assert code is not ExitCode.BUG
        met = disk.seen >= fail_at
        assert met or code is ExitCode.DONE
        assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
        assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
        assert differences(look(placed.path), before) == ""
        if not met:
            assert fail_at > 5
            return
    raise AssertionError("it never came to its end")


def test_a_journal_that_the_disk_cannot_read_is_set_aside_as_well(
    memory_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = build("derived")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    bad = {journal.stat().st_ino for journal in journals(placed)}
    read = Tree.read

    def failing(self: Tree, path: str, at_most: int) -> bytes | None:
        if path.endswith("/journal") and Path(path).stat().st_ino in bad:
            raise OSError(errno.EIO, "Input/output error", path)
        return read(self, path, at_most)

    monkeypatch.setattr(Tree, "read", failing)
    assert undo(placed.plan, scene.options).exit_code == ExitCode.PARTLY
    assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert undo(placed.plan, scene.options).exit_code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""


def test_a_kept_file_that_rotted_is_not_put_back_after_the_journal_was_written_anew(memory_dir: Path) -> None:
    scene = build("markers")
    placed = scene.place(memory_dir)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    applied = visible(look(placed.path))
    break_all(placed, "nothing left in it")
    last = placed.plan.partitions[0].changes[-1].change_id.partition("/")[2]
    kept = journals(placed)[0].parent / "keep" / f"{last}.log"
    found = kept.stat()
    data = bytearray(kept.read_bytes())
    data[100] ^= 4
    with kept.open("r+b") as file:
        file.write(data)
    os.utime(kept, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert rebuild(placed.plan, scene.options).exit_code == ExitCode.DONE
    report = undo(placed.plan, scene.options)
    assert report.exit_code != ExitCode.DONE
    assert any(str(kept) in one.why and "damaged" in one.why for one in report.results)
    assert differences(visible(look(placed.path)), applied) == ""


def test_a_page_says_what_was_rebuilt_and_that_the_undo_is_still_to_come(memory_dir: Path) -> None:
    scene = build("partitions")
    placed = scene.place(memory_dir)
    before = look(placed.path)
    plan = str(memory_dir / "j.krplan")
    show.save(plan, placed.plan)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    os.truncate(journals(placed)[0], 200)
    ran = run("undo", plan, "--rebuild-journal")
    assert ran.code == ExitCode.DONE
    words = " ".join(ran.out.split())
    assert "Done: 1 journal rebuilt; nothing to rebuild in" in words
    assert "Nothing was taken back yet: the next command is the undo." in words
    assert "nothing of this plan is applied" not in words
    # No journal is damaged any more, and the plan is still applied.
    again = run("undo", plan, "--rebuild-journal")
    assert "no damaged journal was found. Nothing was taken back yet" in " ".join(again.out.split())
    for one in (ran, again):
        assert one.out.rstrip().endswith(f"krepair undo {plan}"), one.out
    assert run("undo", plan).code == ExitCode.DONE
    assert differences(look(placed.path), before) == ""
