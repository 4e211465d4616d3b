"""Undo says only what is proven; where a journal is damaged it shows the lines that a person types."""

from __future__ import annotations

import errno
import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.cli.views.reports import apply_view
from krepair.cli.views.writers import markdown, on_screen
from krepair.commit.kept import COPY_NAME, kept_report
from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import ExitCode, KrepairError, LockedError, RefusedError
from krepair.logdir.lock import hold_lock
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.ops.verify import verify_plan
from krepair.options import Options
from krepair.plan.model import Plan
from krepair.plan.planfile import write_plan
from tests.flips import flip
from tests.hostile.verbs import run
from tests.ops.by_hand import end_by_hand, take_back_by_hand
from tests.ops.journeys import built
from tests.ops.scene import BLOAT
from tests.ops.scene import scene as scene_of_fixture
from tests.ops.stops import calls_of, stopped
from tools.torture.scenes import Placed, Scene, differences, look, private, visible

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
    scene = built(name)
    placed = scene.place(folder)
    before = look(placed.path)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    return scene, placed, before


def applying(scene: Scene, placed: Placed) -> Callable[[Disk], ApplyReport]:
    return lambda disk: apply(placed.plan, scene.options, disk=disk)


KINDS = ("markers", "tail-cut", "excise", "set-aside", "leftovers", "recovery", "removals", "derived", "keys")
BROKEN = [*(("everything", how) for how in BREAK), *((name, "nothing left in it") for name in KINDS)]


@pytest.mark.parametrize(("name", "how"), BROKEN)
def test_the_lines_that_undo_shows_give_the_tree_back_byte_for_byte(
    memory_dir: Path, name: str, how: str
) -> None:
    scene, placed, before = applied(name, memory_dir)
    now = look(placed.path)
    break_all(placed, how)
    report = undo(placed.plan, scene.options)
    assert report.exit_code == ExitCode.REFUSED
    assert differences(visible(look(placed.path)), visible(now)) == "", "undo itself changes nothing"
    assert all(line.startswith(("mv ", "cat ", "touch ", "rm ")) for line in report.by_hand)
    end_by_hand(placed.plan, scene.options)
    assert differences(look(placed.path), before) == ""


def test_what_was_purged_and_applied_again_in_part_is_refused_in_one_sentence(memory_dir: Path) -> None:
    scene, placed, _ = applied("partitions", memory_dir / "one")
    original = scene.place(memory_dir / "two").path
    assert purge(placed.plan, scene.options).exit_code == ExitCode.DONE
    first, second = next(part for part in placed.plan.partitions if part.folder == "a-0").changes
    shutil.copy2(original / first.change_id, placed.path / first.change_id)
    assert apply(placed.plan, scene.options).exit_code == ExitCode.DONE
    now = look(placed.path)
    report = undo(placed.plan, scene.options)
    assert (report.exit_code, report.by_hand) == (ExitCode.REFUSED, ())
    why = next(result.why for result in report.results if result.partition == "a-0")
    assert why.startswith(
        f"{second.change_id}: its originals were purged, and a later apply changed other files"
    )
    assert str(report.next_command).startswith("krepair purge")
    assert differences(visible(look(placed.path)), visible(now)) == ""
    assert purge(placed.plan, scene.options).exit_code == ExitCode.DONE


def _folder(memory_dir: Path, name: str) -> Path:
    (memory_dir / name).mkdir()
    return memory_dir / name


def test_purge_names_what_may_be_the_last_copy_and_ends_the_plan_once_a_person_has_moved_it(
    memory_dir: Path,
) -> None:
    scene, placed, _ = applied("removals", memory_dir)
    now = visible(look(placed.path))
    break_all(placed, "a bit in its middle")
    report = purge(placed.plan, scene.options)
    assert report.exit_code == ExitCode.REFUSED
    kept = journals(placed)[0].with_name("keep")
    assert f"mv {shlex.quote(str(kept))} DIRECTORY" in report.results[0].why
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
        with pytest.raises(RefusedError, match="found a symlink; another program put it there"):
            undo(placed.plan, scene.options)
        return
    report = undo(placed.plan, scene.options)
    assert (report.exit_code, report.by_hand) == (ExitCode.STALE_PLAN, ())


def test_it_waits_until_the_broker_is_stopped(memory_dir: Path) -> None:
    scene, placed, _ = applied("removals", memory_dir)
    break_all(placed, "nothing left in it")
    with hold_lock(str(placed.path), RealDisk()), pytest.raises(LockedError):
        undo(placed.plan, scene.options)


@pytest.mark.parametrize("verb", ["undo", "purge"])
def test_what_a_cleaner_has_begun_is_no_lost_record_where_only_indexes_are_kept(
    memory_dir: Path, verb: str
) -> None:
    """Purge runs beside a broker whose cleaner is at work; and one that was killed leaves such files."""
    scene, placed, before = applied("indexes", memory_dir)
    bases = {path.name[:20]: path.parents[2] for path in placed.path.glob("*/krepair~*/keep/*.*")}
    theirs = [
        folder / f"{base}{end}.cleaned" for base, folder in bases.items() for end in (".log", ".txnindex")
    ]
    for file in theirs:
        file.write_bytes(b"of a cleaner")
    assert VERBS[verb](placed.plan, scene.options).exit_code == ExitCode.DONE
    for file in theirs:
        assert file.read_bytes() == b"of a cleaner"
        file.unlink()
    assert private(look(placed.path)) == []
    assert (differences(look(placed.path), before) == "") is (verb == "undo")


def test_files_of_the_root_that_stay_are_told(memory_dir: Path) -> None:
    """A damaged one was replaced first, and comes back last, so it stays as long as a partition does."""
    scene, placed, _ = applied("everything", memory_dir)
    assert placed.plan.root is not None
    shutil.rmtree(placed.path / "e-0")
    report = undo(placed.plan, scene.options)
    told = {one.change_id: one for one in report.results}
    for change in placed.plan.root.changes:
        assert told[change.change_id].outcome == "skipped"
        assert "undo restores it last" in told[change.change_id].why


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
    scene = built("markers~until-verified")
    calls = calls_of(applying(scene, scene.place(_folder(memory_dir, "whole"))))
    freeing = [number for number, call in enumerate(calls) if call.kind == "unlink" and "/keep/" in call.path]
    placed = scene.place(_folder(memory_dir, "stopped"))
    stopped(applying(scene, placed), freeing[1] + 1)
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


# -- Undo says only what is proven: a plan that was never applied is neither undone, nor purged, nor freed.

UNPROVEN = (
    "were purged",
    "were freed",
    "was purged",
    "undone before",
    "made before",
)


class Directory:
    """A scene on a disk, and two plans of it that make equal files."""

    def __init__(self, root: Path, name: str = "partitions", keep: str = "inplace") -> None:
        placed = built(name)
        self.path = placed.place(root).path
        self.options: Options = replace(placed.options, keep=keep)
        self.plan = self.planned(self.options)
        self.other = self.planned(replace(self.options, now_ms=(self.options.now_ms or 0) + 1))
        assert self.plan.plan_id != self.other.plan_id

    def planned(self, options: Options) -> Plan:
        return make_plan(str(self.path), options)

    def undo(self, plan: Plan) -> ApplyReport:
        before = look(self.path)
        report = undo(plan, self.options)
        assert look(self.path) == before
        return report


def said(report: ApplyReport) -> str:
    return markdown(apply_view(report))


def is_proven(report: ApplyReport) -> bool:
    return not any(words in said(report) for words in UNPROVEN)


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
def test_a_plan_that_was_never_applied_is_called_that(memory_dir: Path, keep: str) -> None:
    directory = Directory(memory_dir, keep=keep)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.DONE
    assert is_proven(report), said(report)
    assert "nothing of this plan is applied here" in said(report)


def test_a_plan_that_was_taken_back_is_not_applied_here_at_the_second_undo(memory_dir: Path) -> None:
    directory = Directory(memory_dir)
    apply(directory.plan, directory.options)
    assert "changes undone." in said(undo(directory.plan, directory.options))
    report = directory.undo(directory.plan)
    assert (report.exit_code, is_proven(report)) == (ExitCode.DONE, True)
    assert "nothing of this plan is applied here" in said(report)


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
@pytest.mark.parametrize("purged", [False, True], ids=["kept", "purged"])
def test_equal_files_of_another_plan_are_not_taken_for_this_one_s(
    memory_dir: Path, keep: str, purged: bool
) -> None:
    directory = Directory(memory_dir, keep=keep)
    assert apply(directory.other, directory.options).exit_code == ExitCode.DONE
    if purged:
        purge(directory.other, directory.options)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.REFUSED
    assert is_proven(report), said(report)
    assert "no journal of this plan is here" in said(report)


def test_partitions_that_were_taken_back_and_changed_by_another_plan_are_not_called_purged(
    memory_dir: Path,
) -> None:
    directory = Directory(memory_dir)
    apply(directory.plan, directory.options)
    undo(directory.plan, directory.options)
    apply(directory.other, directory.options)
    report = directory.undo(directory.plan)
    assert report.exit_code == ExitCode.REFUSED
    assert is_proven(report), said(report)


def test_purge_of_a_plan_that_was_never_applied_here_does_not_say_that_originals_went(tmp_path: Path) -> None:
    one = scene_of_fixture(tmp_path, BLOAT)
    plan = make_plan(str(one.path), one.options())
    for _ in range(2):
        report = purge(plan, one.options())
        assert {result.outcome for result in report.results} == {"already"}
        shown = on_screen(apply_view(report), 100)
        assert "nothing of this plan is kept here" in shown
        assert "originals are gone" not in shown
