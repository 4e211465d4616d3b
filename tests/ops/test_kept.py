"""What applied plans keep is found without any plan file, told truly, and taken back or freed by the plan's id."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.checks.catalogue import Severity
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME
from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, NotALogDirError, RefusedError, StalePlanError, UsageError
from krepair.logdir.view import read_log_dir
from krepair.ops.check import check
from krepair.ops.kept import kept_originals, kept_report, load_kept
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.reports import KeptPlan
from krepair.ops.undo import undo_by_id
from krepair.plan.model import Plan
from krepair.plan.planfile import dumps, seal
from tests.durable.disks import RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.scene import Scene, scene, tree

ZERO, ONE = ("__consumer_offsets", 0), ("__consumer_offsets", 1)
FOLDERS = ("__consumer_offsets-0", "__consumer_offsets-1")


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def kept(bloat: Scene, now_ms: int = 0) -> list[KeptPlan]:
    return list(kept_originals(read_log_dir(str(bloat.path)), now_ms))


def small_plan(bloat: Scene, *partitions: tuple[str, int]) -> Plan:
    return bloat.plan(partitions=partitions or (ZERO, ONE))


def copy_of(bloat: Scene, plan: Plan, folder: str = FOLDERS[0]) -> Path:
    return bloat.path / folder / f"krepair~{plan.plan_id}" / COPY_NAME


def used(root: Path) -> int:
    """Bytes of the blocks of everything, each once however many names it has."""
    return sum({found.st_ino: found.st_blocks * 512 for found in map(Path.lstat, root.rglob("*"))}.values())


def test_nothing_is_kept_before_apply_nor_after_undo(bloat: Scene):
    plan = small_plan(bloat)
    assert kept(bloat) == []
    before = tree(bloat.path)
    bloat.apply(plan)
    assert undo_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert kept(bloat) == []
    assert tree(bloat.path) == before


def test_an_applied_plan_is_listed_with_its_partitions_bytes_age_and_copy(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    (one,) = kept(bloat)
    assert (one.plan_id, one.state, one.partitions) == (plan.plan_id, "applied", FOLDERS)
    assert (one.copy, one.undo, one.why_not, one.fence, one.half_done) == ("there", "yes", "", (), ())
    assert kept(bloat, one.last_written_ms + 90_000)[0].age_seconds == 90
    assert load_kept(read_log_dir(str(bloat.path)), plan.plan_id) == plan


def test_the_bytes_listed_are_those_that_purge_frees(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
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
    first = small_plan(bloat, ZERO)
    bloat.apply(first)
    second = small_plan(bloat, ONE)
    os.utime(bloat.path / FOLDERS[0] / f"krepair~{first.plan_id}" / "journal", (1, 1))
    bloat.apply(second)
    assert [one.plan_id for one in kept(bloat)] == [second.plan_id, first.plan_id]
    for plan in (first, second):
        assert undo_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert tree(bloat.path) == before


def test_a_new_plan_says_what_earlier_ones_keep_and_is_the_same_bytes_again(bloat: Scene):
    first = small_plan(bloat, ZERO)
    bloat.apply(first)
    second = small_plan(bloat, ZERO)
    assert second == small_plan(bloat, ZERO)
    (risk,) = [risk for risk in second.risks if risk.code == "kept-originals"]
    assert f"Plan {first.plan_id} still keeps" in risk.text
    assert [note for note in second.partitions[0].notes if first.plan_id in note]


def test_check_tells_of_kept_originals_as_information_with_the_commands(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR901"]
    assert finding.bytes == report.log_dirs[0].kept[0].bytes > 0
    for command in ("undo", "purge"):
        assert f"krepair {command} {bloat.path} --plan-id {plan.plan_id}" in finding.evidence
    assert not [one for one in report.log_dirs[0].findings if one.rule == "KR902"]


def test_of_a_damaged_journal_check_names_the_undo_and_no_purge(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    for part in plan.partitions:
        journal = bloat.path / part.folder / f"krepair~{plan.plan_id}" / "journal"
        if journal.exists():
            journal.write_bytes(b"rotten\n" + journal.read_bytes())
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR901"]
    undo = f"krepair undo {bloat.path} --plan-id {plan.plan_id}"
    assert finding.severity is Severity.SLOW
    assert str(finding.command) == undo == str(report.next_command)
    assert finding.evidence.endswith(f"; next: {undo}")
    assert "purge" not in finding.evidence


def calls_of_apply(bloat: Scene, plan: Plan) -> int:
    disk = RecordingDisk(RealDisk())
    bloat.apply(plan, disk)
    bloat.undo(plan)
    return len([call for call in disk.calls if not call.kind.startswith("sync")])


@pytest.mark.slow
def test_after_a_crash_anywhere_what_is_there_is_listed_and_taken_back_without_the_plan_file(bloat: Scene):
    plan = small_plan(bloat)
    before = tree(bloat.path)
    seen = set()
    calls = calls_of_apply(bloat, plan)
    assert tree(bloat.path) == before
    for stop in range(2, calls + 1, calls // 12):
        with pytest.raises(SimulatedCrash):
            bloat.apply(plan, StoppingDisk(RealDisk(), stop))
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
    disk = RecordingDisk(RealDisk())
    bloat.apply(plan)
    undo_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=disk)
    calls = len([call for call in disk.calls if not call.kind.startswith("sync")])
    without_copy = 0
    # The copy goes among the last calls.
    for stop in sorted({*range(1, calls, calls // 6), *range(calls - 7, calls + 1)}):
        bloat.apply(plan)
        with pytest.raises(SimulatedCrash):
            undo_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=StoppingDisk(RealDisk(), stop))
        without_copy += not copy_of(bloat, plan).exists()
        if kept(bloat):
            report = undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
            assert report.exit_code is ExitCode.DONE, (stop, report)
        assert tree(bloat.path) == before, stop
    assert without_copy > 1


def test_a_change_that_is_half_done_is_a_finding_that_counts_and_names_the_fence(bloat: Scene):
    plan = small_plan(bloat)
    disk = RecordingDisk(RealDisk())
    bloat.apply(plan, disk)
    bloat.undo(plan)
    changing = [call for call in disk.calls if not call.kind.startswith("sync")]
    swap = next(i for i, call in enumerate(changing, 1) if call.target.endswith(".log.swap"))
    with pytest.raises(SimulatedCrash):
        bloat.apply(plan, StoppingDisk(RealDisk(), swap + 1))
    (one,) = kept(bloat)
    assert (one.state, len(one.fence), len(one.half_done)) == ("half done", 1, 1)
    report = check([str(bloat.path)], bloat.options())
    (finding,) = [one for one in report.log_dirs[0].findings if one.rule == "KR902"]
    assert report.exit_code is ExitCode.FOUND
    assert "a broker that starts now recovers" in finding.evidence
    assert str(report.next_command) == f"krepair undo {bloat.path}"
    before = tree(bloat.path)
    with pytest.raises(RefusedError, match="is half done; nothing is purged of the whole plan"):
        purge_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert tree(bloat.path) == before


@pytest.mark.parametrize("verb", ["purge", "purge by id"])
def test_a_purge_that_was_interrupted_is_told_and_ends_by_id(bloat: Scene, verb: str):
    plan = small_plan(bloat)
    bloat.apply(plan)
    disk = StoppingDisk(RealDisk(), 9)
    if verb == "purge":
        with pytest.raises(SimulatedCrash):
            purge(plan, bloat.options(), disk=disk)
    else:
        with pytest.raises(SimulatedCrash):
            purge_by_id(str(bloat.path), plan.plan_id, bloat.options(), disk=disk)
    (one,) = kept(bloat)
    assert (one.state, one.undo) == ("being purged", "no")
    assert purge_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert not list(bloat.path.rglob("krepair~*"))


def test_a_segment_that_a_broker_wrote_ends_the_way_back_of_its_partition_only(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    log = min((bloat.path / FOLDERS[0]).glob("*.log"))
    log.write_bytes(log.read_bytes() + b"\0")
    (one,) = kept(bloat)
    assert one.undo == "partly"
    assert one.why_not.startswith(f"{log}: ")
    assert "was written since" in one.why_not


def test_a_kept_file_that_is_gone_is_told(bloat: Scene):
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    gone = min((bloat.path / FOLDERS[0] / f"krepair~{plan.plan_id}" / "keep").glob("*.log"))
    gone.unlink()
    (one,) = kept(bloat)
    assert one.undo == "no"
    assert one.why_not.startswith(f"{gone}: ")


def test_what_is_kept_in_a_folder_marked_for_deletion_is_listed_and_cannot_be_undone(bloat: Scene):
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    (bloat.path / FOLDERS[0]).rename(bloat.path / f"{FOLDERS[0]}.0123456789abcdef-delete")
    (one,) = kept(bloat)
    assert one.undo == "no"
    assert one.bytes > 0


def test_without_a_copy_undo_asks_for_the_plan_file_and_purge_needs_none(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    for folder in FOLDERS:
        copy_of(bloat, plan, folder).unlink()
    (one,) = kept(bloat)
    assert (one.copy, one.undo) == ("missing", "yes")
    with pytest.raises(RefusedError, match="undo needs the plan file"):
        undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert purge_by_id(str(bloat.path), plan.plan_id, bloat.options()).exit_code is ExitCode.DONE
    assert kept(bloat) == []


def test_a_damaged_copy_is_told_and_refused_and_nothing_is_touched(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    copy = copy_of(bloat, plan)
    copy.write_bytes(copy.read_bytes().replace(b'"folder"', b'"f0lder"'))
    before = tree(bloat.path)
    (one,) = kept(bloat)
    assert one.copy == "damaged"
    assert one.why_not.startswith(str(copy))
    with pytest.raises(RefusedError, match="this copy of the plan cannot be used"):
        undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert tree(bloat.path) == before


def test_a_forged_copy_has_to_pass_the_review_as_any_plan(bloat: Scene):
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    part = plan.partitions[0]
    forged = seal(replace(plan, partitions=(replace(part, folder="../outside", topic="../outside"),)))
    private = copy_of(bloat, plan).parent
    moved = private.rename(private.with_name(f"krepair~{forged.plan_id}"))
    (moved / COPY_NAME).write_bytes(dumps(forged))
    before = tree(bloat.path)
    with pytest.raises(RefusedError, match="RV09"):
        undo_by_id(str(bloat.path), forged.plan_id, bloat.options())
    assert tree(bloat.path) == before


def test_on_another_host_the_directory_is_the_same(bloat: Scene, monkeypatch: pytest.MonkeyPatch):
    plan = small_plan(bloat, ZERO)
    before = tree(bloat.path)
    bloat.apply(plan)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    report = undo_by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert report.exit_code is ExitCode.DONE
    assert tree(bloat.path) == before


@pytest.mark.parametrize("verb", ["undo", "undo by id", "purge by id"])
def test_a_link_in_the_place_of_the_copy_is_refused_before_anything_is_done(
    bloat: Scene, tmp_path: Path, verb: str
):
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    (tmp_path / "victim").write_bytes(dumps(plan))
    copy_of(bloat, plan).unlink()
    copy_of(bloat, plan).symlink_to(tmp_path / "victim")
    before = tree(bloat.path)
    by_id = purge_by_id if verb == "purge by id" else undo_by_id
    with pytest.raises(RefusedError):
        bloat.undo(plan) if verb == "undo" else by_id(str(bloat.path), plan.plan_id, bloat.options())
    assert tree(bloat.path) == before
    assert (tmp_path / "victim").read_bytes() == dumps(plan)


def test_a_journal_that_cannot_be_read_is_told_and_stops_nothing(bloat: Scene):
    plan = small_plan(bloat)
    bloat.apply(plan)
    journal = copy_of(bloat, plan).with_name("journal")
    journal.write_bytes(b"x\n" + journal.read_bytes())
    (one,) = kept(bloat)
    assert one.undo == "partly"
    assert str(journal) in one.why_not


def test_a_journal_of_nothing_but_zeros_is_told_where_originals_are_kept(bloat: Scene):
    """A power cut may leave its length and not its bytes. Nothing was staged only: the new files are in place."""
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    journal = bloat.path / FOLDERS[0] / f"krepair~{plan.plan_id}" / JOURNAL_NAME
    journal.write_bytes(bytes(journal.stat().st_size))
    (one,) = kept(bloat)
    assert (one.state, one.undo) == ("unknown", "no")
    assert "is kept and not in its place" in one.why_not
    report = kept_report(str(bloat.path), 0)
    assert str(report.next_command) == f"krepair undo {bloat.path} --plan-id {plan.plan_id}"


def test_an_unknown_id_is_refused_with_the_ids_that_are_there(bloat: Scene):
    with pytest.raises(StalePlanError, match="no plan keeps anything here"):
        undo_by_id(str(bloat.path), "0123abcd", bloat.options())
    plan = small_plan(bloat, ZERO)
    bloat.apply(plan)
    for by_id in (undo_by_id, purge_by_id):
        with pytest.raises(StalePlanError, match=f"kept are: {plan.plan_id}"):
            by_id(str(bloat.path), "0123abcd", bloat.options())
        with pytest.raises(UsageError, match="hex digits"):
            by_id(str(bloat.path), "../../etc", bloat.options())


def test_a_directory_that_is_no_log_directory_is_refused(tmp_path: Path):
    for by_id in (undo_by_id, purge_by_id):
        with pytest.raises(NotALogDirError):
            by_id(str(tmp_path), "0123abcd", Scene.options)  # type: ignore[arg-type]


def test_a_link_where_a_private_folder_should_be_is_nothing_that_is_kept(bloat: Scene, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("precious")
    (bloat.path / FOLDERS[0] / "krepair~0123abcd").symlink_to(victim)
    assert kept(bloat) == []
    with pytest.raises(StalePlanError):
        purge_by_id(str(bloat.path), "0123abcd", bloat.options())
    assert (victim / "precious").read_text() == "precious"


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
