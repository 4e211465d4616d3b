"""What applied plans keep is found without any plan file, told truly, and taken back or freed by the plan's id."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.checks.catalogue import Severity
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME
from krepair.commit.kept import kept_originals, kept_report, load_kept
from krepair.commit.reports import ApplyReport, KeptPlan
from krepair.durable.disk import Disk
from krepair.errors import ExitCode, RefusedError
from krepair.logdir.view import read_log_dir
from krepair.ops.apply import apply
from krepair.ops.check import check
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo_by_id
from krepair.plan.model import Plan
from krepair.plan.objection import OBJECTIONS
from tests.ops.journeys import built
from tests.ops.scene import Scene, scene, tree
from tests.ops.stops import calls_of, stopped
from tools.torture.resealed import changed, exchange_copy
from tools.torture.scenes import look

ZERO, ONE = ("__consumer_offsets", 0), ("__consumer_offsets", 1)
FOLDERS = ("__consumer_offsets-0", "__consumer_offsets-1")


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def kept(bloat: Scene, now_ms: int = 0) -> list[KeptPlan]:
    return list(kept_originals(read_log_dir(str(bloat.path)), now_ms))


def small_plan(bloat: Scene, *partitions: tuple[str, int]) -> Plan:
    return bloat.plan(partitions=partitions or (ZERO, ONE))


def applied(bloat: Scene, *partitions: tuple[str, int]) -> Plan:
    plan = small_plan(bloat, *partitions)
    bloat.apply(plan)
    return plan


def copy_of(bloat: Scene, plan: Plan, folder: str = FOLDERS[0]) -> Path:
    return bloat.path / folder / f"krepair~{plan.plan_id}" / COPY_NAME


def used(root: Path) -> int:
    """Bytes of the blocks of everything, each once however many names it has."""
    return sum({found.st_ino: found.st_blocks * 512 for found in map(Path.lstat, root.rglob("*"))}.values())


def test_an_applied_plan_is_listed_with_its_partitions_bytes_age_and_copy(bloat: Scene):
    plan = applied(bloat)
    (one,) = kept(bloat)
    assert (one.plan_id, one.state, one.partitions) == (plan.plan_id, "applied", FOLDERS)
    assert (one.copy, one.undo, one.why_not, one.fence, one.half_done) == ("there", "yes", "", (), ())
    assert kept(bloat, one.last_written_ms + 90_000)[0].age_seconds == 90
    assert load_kept(read_log_dir(str(bloat.path)), plan.plan_id) == plan


def test_the_bytes_listed_are_those_that_purge_frees(bloat: Scene):
    plan = applied(bloat)
    (one,) = kept(bloat)
    before = used(bloat.path)
    report = purge_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert report.exit_code is ExitCode.DONE
    assert before - used(bloat.path) == one.bytes
    # What purge itself wrote into the journals went again, too.
    assert 0 <= report.bytes_freed - one.bytes <= 4096
    assert not list(bloat.path.rglob("krepair~*"))


def test_the_peak_of_the_plan_covers_its_copy(bloat: Scene):
    plan = small_plan(bloat)
    before = used(bloat.path)
    bloat.apply(plan)
    assert used(bloat.path) - before <= plan.peak_extra_bytes
    assert copy_of(bloat, plan).stat().st_nlink == 2


def test_several_plans_are_listed_the_last_one_first_and_each_is_undone_by_itself(bloat: Scene):
    before = tree(bloat.path)
    first = applied(bloat, ZERO)
    second = small_plan(bloat, ONE)
    os.utime(bloat.path / FOLDERS[0] / f"krepair~{first.plan_id}" / "journal", (1, 1))
    bloat.apply(second)
    assert [one.plan_id for one in kept(bloat)] == [second.plan_id, first.plan_id]
    for plan in (first, second):
        assert undo_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert tree(bloat.path) == before


def test_a_new_plan_says_what_earlier_ones_keep_and_is_the_same_bytes_again(bloat: Scene):
    first = applied(bloat, ZERO)
    second = small_plan(bloat, ZERO)
    assert second == small_plan(bloat, ZERO)
    (risk,) = [risk for risk in second.risks if risk.code == "kept-originals"]
    assert f"Plan {first.plan_id} still keeps" in risk.text
    assert [note for note in second.partitions[0].notes if first.plan_id in note]


def test_check_tells_of_kept_originals_as_information_with_the_commands(bloat: Scene):
    plan = applied(bloat)
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR901"]
    assert finding.bytes == report.log_dirs[0].kept[0].bytes > 0
    for command in ("undo", "purge"):
        assert f"krepair {command} {bloat.path} --plan-id {plan.plan_id}" in finding.evidence
    assert not [one for one in report.log_dirs[0].findings if one.rule == "KR902"]


def test_of_a_damaged_journal_check_names_the_undo_and_no_purge(bloat: Scene):
    plan = applied(bloat)
    for part in plan.partitions:
        journal = bloat.path / part.folder / f"krepair~{plan.plan_id}" / "journal"
        if journal.exists():
            journal.write_bytes(b"rotten\n" + journal.read_bytes())
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR901"]
    (one,) = kept(bloat)
    assert (one.undo, str(copy_of(bloat, plan).with_name("journal")) in one.why_not) == ("no", True)
    undo = f"krepair undo {bloat.path} --plan-id {plan.plan_id}"
    assert finding.severity is Severity.SLOW
    assert str(finding.command) == undo == str(report.next_command)
    assert finding.evidence.endswith(f"; next: {undo}")
    assert "purge" not in finding.evidence


@pytest.mark.slow
def test_after_a_crash_anywhere_what_is_there_is_listed_and_taken_back_without_the_plan_file(bloat: Scene):
    plan = small_plan(bloat)
    before = tree(bloat.path)
    seen = set()
    calls = len(calls_of(partial(bloat.apply, plan)))
    bloat.undo(plan)
    assert tree(bloat.path) == before
    for stop in range(2, calls + 1, calls // 12):
        stopped(partial(bloat.apply, plan), stop)
        for one in kept(bloat):
            seen.add(one.state)
            report = undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
            assert report.exit_code is ExitCode.DONE, (stop, one, report)
        assert tree(bloat.path) == before, stop
    assert seen >= {"staged", "half done"}


@pytest.mark.slow
def test_an_undo_by_id_that_was_interrupted_anywhere_ends_by_the_same_command(bloat: Scene):
    plan = small_plan(bloat, ZERO)
    before = tree(bloat.path)
    bloat.apply(plan)

    def undone(disk: Disk) -> ApplyReport:
        return undo_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=disk)

    calls = len(calls_of(undone))
    without_copy = 0
    # The copy goes among the last calls.
    for stop in sorted({*range(1, calls, calls // 6), *range(calls - 7, calls + 1)}):
        bloat.apply(plan)
        stopped(undone, stop)
        without_copy += not copy_of(bloat, plan).exists()
        if kept(bloat):
            report = undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
            assert report.exit_code is ExitCode.DONE, (stop, report)
        assert tree(bloat.path) == before, stop
    assert without_copy > 1


def test_a_change_that_is_half_done_is_a_finding_that_counts_and_names_the_fence(bloat: Scene):
    plan = small_plan(bloat)
    calls = calls_of(partial(bloat.apply, plan))
    bloat.undo(plan)
    swap = next(i for i, call in enumerate(calls, 1) if call.target.endswith(".log.swap"))
    stopped(partial(bloat.apply, plan), swap + 1)
    (one,) = kept(bloat)
    assert (one.state, len(one.fence), len(one.half_done)) == ("half done", 1, 1)
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR902"]
    assert report.exit_code is ExitCode.FOUND
    assert "a broker that starts now recovers" in finding.evidence
    assert str(report.next_command) == f"krepair undo {bloat.path}"


@pytest.mark.parametrize("verb", ["purge", "purge by id"])
def test_a_purge_that_was_interrupted_is_told_and_ends_by_id(bloat: Scene, verb: str):
    plan = applied(bloat)
    if verb == "purge":
        stopped(lambda disk: purge(plan, bloat.options(), disk=disk), 9)
    else:
        stopped(lambda disk: purge_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=disk), 9)
    (one,) = kept(bloat)
    assert (one.state, one.undo) == ("being purged", "no")
    assert purge_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert not list(bloat.path.rglob("krepair~*"))


def test_a_segment_that_a_broker_wrote_ends_the_way_back_of_its_partition_only(bloat: Scene):
    applied(bloat)
    log = min((bloat.path / FOLDERS[0]).glob("*.log"))
    log.write_bytes(log.read_bytes() + b"\0")
    (one,) = kept(bloat)
    assert one.undo == "partly"
    assert one.why_not.startswith(f"{log}: ")
    assert "was written since" in one.why_not


def test_a_kept_file_that_is_gone_is_told(bloat: Scene):
    plan = applied(bloat, ZERO)
    gone = min((bloat.path / FOLDERS[0] / f"krepair~{plan.plan_id}" / "keep").glob("*.log"))
    gone.unlink()
    (one,) = kept(bloat)
    assert one.undo == "no"
    assert one.why_not.startswith(f"{gone}: ")


def test_what_is_kept_in_a_folder_marked_for_deletion_is_listed_and_cannot_be_undone(bloat: Scene):
    applied(bloat, ZERO)
    (bloat.path / FOLDERS[0]).rename(bloat.path / f"{FOLDERS[0]}.0123456789abcdef-delete")
    (one,) = kept(bloat)
    assert one.undo == "no"
    assert one.bytes > 0
    assert one.why_not.endswith("the partition folder is marked delete")


@pytest.mark.parametrize("kind", ["delete", "stray"])
def test_of_a_plan_with_a_folder_that_a_broker_marked_the_other_partitions_come_back(bloat: Scene, kind: str):
    """A stray folder stays until somebody removes it: the undo of the others must not wait for that."""
    before = tree(bloat.path / FOLDERS[1])
    plan = applied(bloat)
    marked = bloat.path / f"{FOLDERS[0]}.0123456789abcdef-{kind}"
    (bloat.path / FOLDERS[0]).rename(marked)
    seen = tree(marked)
    assert kept(bloat)[0].undo == "partly"
    report = undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert {one.partition for one in report.results if one.outcome == "undone"} >= {FOLDERS[1]}
    (left,) = [one for one in report.results if one.outcome != "undone"]
    assert left.why == f"{bloat.path / FOLDERS[0]}: is gone; the partition is left as it is"
    assert tree(bloat.path / FOLDERS[1]) == before
    assert tree(marked) == seen
    (one,) = kept(bloat)
    assert (one.undo, one.why_not) == ("no", f"{marked}: the partition folder is marked {kind}")
    assert purge_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert bool(kept(bloat)) is (kind == "delete")


def test_without_a_copy_undo_asks_for_the_plan_file_and_purge_needs_none(bloat: Scene):
    plan = applied(bloat)
    for folder in FOLDERS:
        copy_of(bloat, plan, folder).unlink()
    (one,) = kept(bloat)
    assert (one.copy, one.undo) == ("missing", "yes")
    with pytest.raises(RefusedError, match="undo needs the plan file"):
        undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert purge_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert kept(bloat) == []


def test_a_damaged_copy_is_told_and_refused_and_nothing_is_touched(bloat: Scene):
    plan = applied(bloat)
    copy = copy_of(bloat, plan)
    copy.write_bytes(copy.read_bytes().replace(b'"folder"', b'"f0lder"'))
    before = tree(bloat.path)
    (one,) = kept(bloat)
    assert one.copy == "damaged"
    assert one.why_not.startswith(str(copy))
    with pytest.raises(RefusedError, match="this copy of the plan cannot be used"):
        undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert tree(bloat.path) == before


def test_a_journal_of_nothing_but_zeros_is_told_where_originals_are_kept(bloat: Scene):
    """A power cut may leave its length and not its bytes. Nothing was staged only: the new files are in place."""
    plan = applied(bloat, ZERO)
    journal = bloat.path / FOLDERS[0] / f"krepair~{plan.plan_id}" / JOURNAL_NAME
    journal.write_bytes(bytes(journal.stat().st_size))
    (one,) = kept(bloat)
    assert (one.state, one.undo) == ("unknown", "no")
    assert "is kept and not in its place" in one.why_not
    report = kept_report(str(bloat.path), 0)
    assert str(report.next_command) == f"krepair undo {bloat.path} --plan-id {plan.plan_id}"


@pytest.mark.parametrize("fixes", [("checkpoints",), ("checkpoints", "markers")])
@pytest.mark.parametrize("verb", ["undo", "purge"])
def test_files_of_the_root_are_kept_listed_undone_and_purged_by_id_like_any(
    bloat: Scene, fixes: tuple[str, ...], verb: str
):
    points = bloat.path / "recovery-point-offset-checkpoint"
    points.write_bytes(points.read_bytes() + b"t-a-0 x 7\n")
    before = tree(bloat.path)
    plan = bloat.plan(fixes=fixes)
    assert plan.root is not None
    bloat.apply(plan)
    applied = tree(bloat.path, private=False)
    (one,) = kept(bloat)
    assert (one.state, one.copy, one.undo) == ("applied", "there", "yes")
    assert plan.root.keeper in one.partitions
    by_id = undo_by_id if verb == "undo" else purge_by_id
    assert by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert tree(bloat.path) == (before if verb == "undo" else applied)


# -- The copy of the plan that lies with what it keeps: the broker's user can write it, and root's undo reads it.
# Folders and journals name the edited plan, and its digest is right. What the review refuses of a plan file it refuses
# of the copy, and a copy that names less than is kept is refused, too. Nothing is changed then.

FIRST = ("partitions", 0, "changes", 0)
FREED = {"type": "free when verified"}
TIERED = {"key": "remote.storage.enable", "value": "true", "source": "test"}
EDITS: list[tuple[str, str, tuple[Any, ...], Any]] = [
    ("RV04", "markers", ("commit", "order"), "P2"),
    ("RV05", "markers", (*FIRST, "undo"), FREED),
    ("RV09", "markers", ("partitions", 0, "folder"), "../b-0"),
    (
        "RV13",
        "markers",
        ("policy", "settings", "b", 0),
        TIERED,
    ),
    ("RV14", "markers", ("policy", "settings", "b"), []),
    ("RV16", "markers", ("partitions", 0, "span"), None),
    ("RV17", "markers", (*FIRST, "base_offset"), 1),
    ("RV18", "markers", ("partitions", 0, "files", "last log"), msgspec.UNSET),
    ("RV21", "markers", (*FIRST, "batches"), 0),
    ("RV23", "markers", (*FIRST, "removes_snapshots"), []),
    ("RV24", "markers", (*FIRST, "mtime_ns"), 5),
    ("RV25", "removals", (*FIRST, "rule"), "KR201"),
    ("RV28", "recovery", ("root", "keeper"), ".."),
    ("RV29", "excise", ("policy", "accepted_losses"), []),
    ("RV30", "excise", (*FIRST, "size_after"), 1),
    ("RV31", "leftovers", ("partitions", 1, "changes", 2, "goes"), []),
    ("RV33", "markers", ("policy", "others", "only_replica"), []),
    ("does not name it", "tail-cut", ("partitions", 0, "changes"), []),
    ("does not name it", "everything", ("root",), None),
    ("does not name it", "everything", (*FIRST[:3], "first"), msgspec.UNSET),
]


@pytest.mark.parametrize(
    ("words", "scene", "path", "value"), EDITS, ids=[f"{e[0]} {e[2][-1]}" for e in EDITS]
)
def test_an_edited_copy_is_refused_and_nothing_is_changed(
    words: str, scene: str, path: tuple[Any, ...], value: Any, memory_dir: Path
) -> None:
    scenario = built(scene)
    placed = scenario.place(memory_dir)
    if path[-1] == "last log":
        logs = [n for n, file in enumerate(placed.plan.partitions[0].files) if file.name.endswith(".log")]
        path = (*path[:-1], logs[-1])
    if path[-1] == "first":
        path, value = path[:-1], placed.plan.partitions[0].changes[1:]
    edited = changed(placed.plan, [(path, value)])
    assert edited is not None
    apply(placed.plan, scenario.options)
    exchange_copy(placed, edited)
    before = look(placed.path)
    with pytest.raises(RefusedError, match=words):
        undo_by_id(str(placed.path), edited.plan_id, scenario.options)
    assert look(placed.path) == before


def test_every_kind_of_objection_is_tried() -> None:
    assert {words for words, *_ in EDITS} - {"does not name it"} == set(OBJECTIONS)
