"""One partition's trouble is its own: it is named and counted, and the others go on (KIP-346)."""

from __future__ import annotations

import errno
import os
import struct
import subprocess
from pathlib import Path

import pytest

from krepair.durable.real_disk import RealDisk
from krepair.errors import ExitCode, PersonDecidesError, RefusedError
from krepair.ops.reports import ApplyReport
from krepair.plan.model import Plan
from tests.durable.disks import FailingDisk
from tests.flips import flip
from tests.ops.scene import Scene, markers, outcomes, part, scene, tree, whole_log

FIRST, SECOND = "__consumer_offsets-0", "__consumer_offsets-1"


@pytest.fixture
def bloat(memory_dir: Path) -> Scene:
    return scene(memory_dir)


def logs(one: Scene, folder: str) -> list[Path]:
    return sorted((one.path / folder).glob("*.log"))


def failures(report: ApplyReport) -> dict[str, tuple[int, str]]:
    return {r.partition: (r.exit_code, r.why) for r in report.results if r.outcome == "failed"}


def test_file_that_changed_since_the_plan_refuses_its_partition_and_names_the_file(bloat: Scene) -> None:
    plan = bloat.plan()
    changed = logs(bloat, FIRST)[3]
    os.utime(changed)
    before = tree(bloat.path / FIRST)
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.PARTLY
    assert failures(report).keys() == {FIRST}
    code, why = failures(report)[FIRST]
    assert code == ExitCode.STALE_PLAN
    assert str(changed) in why
    assert tree(bloat.path / FIRST) == before
    assert {key: value for key, value in outcomes(report).items() if key != FIRST} == {
        each.folder: {"committed"} for each in plan.partitions if each.folder != FIRST
    }
    assert (report.uncleanable_partitions, report.uncleanable_bytes) == (0, 0)


def test_active_segment_that_was_cut_since_the_plan_refuses_its_partition(bloat: Scene) -> None:
    plan = bloat.plan()
    active = logs(bloat, SECOND)[-1]
    os.truncate(active, active.stat().st_size - 1)
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.PARTLY
    assert failures(report).keys() == {SECOND}
    assert logs(bloat, SECOND)[-1].name in failures(report)[SECOND][1]


def test_all_partitions_changed_since_the_plan_is_a_stale_plan(bloat: Scene) -> None:
    plan = bloat.plan()
    for each in plan.partitions:
        os.utime(logs(bloat, each.folder)[0])
    before = tree(bloat.path)
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.STALE_PLAN
    assert {code for code, _ in failures(report).values()} == {ExitCode.STALE_PLAN}
    assert tree(bloat.path) == before


def test_bytes_changed_under_the_same_size_and_time_are_found_by_the_digest(bloat: Scene) -> None:
    """Only apply's own reading can know: no ``stat`` tells."""
    plan = bloat.plan()
    flip(logs(bloat, FIRST)[5], 40)
    before = tree(bloat.path / FIRST)
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.PARTLY
    assert failures(report).keys() == {FIRST}
    assert logs(bloat, FIRST)[5].name in failures(report)[FIRST][1]
    assert tree(bloat.path / FIRST) == before


def test_bad_crc_in_a_middle_segment_leaves_the_partition_alone_and_counts_it(bloat: Scene) -> None:
    damaged = logs(bloat, FIRST)[7]
    flip(damaged, 3_000)
    plan = bloat.plan()
    left = part(plan, FIRST)
    assert (left.status, left.code, left.changes) == ("left alone", "damage", ())
    assert damaged.name in left.why
    assert "CRC" in left.why
    assert (plan.uncleanable_partitions, plan.uncleanable_bytes) == (1, 1_308_238)
    before = tree(bloat.path / FIRST)
    report = bloat.apply(plan)
    assert (report.exit_code, FIRST in outcomes(report)) == (ExitCode.DONE, False)
    assert (report.uncleanable_partitions, report.uncleanable_bytes) == (1, 1_308_238)
    assert tree(bloat.path / FIRST) == before
    assert markers(whole_log(bloat.path / SECOND)) == 211


@pytest.mark.parametrize("damage", ["truncated", "zeros", "absurd length", "empty name", "not sorted"])
def test_other_damage_in_a_middle_segment_is_that_partitions_alone(bloat: Scene, damage: str) -> None:
    target = logs(bloat, FIRST)[4]
    data = target.read_bytes()
    broken = {
        "truncated": data[:-20],
        "zeros": data[:1000] + bytes(len(data) - 1000),
        "absurd length": data[:8] + struct.pack(">i", 2**31 - 1) + data[12:],
        "empty name": data,
        "not sorted": data + data,
    }[damage]
    target.write_bytes(broken)
    if damage == "empty name":
        (target.parent / ".log").write_bytes(b"")
        (target.parent / "99999999999999999999999.log").write_bytes(b"x")
    plan = bloat.plan()
    assert {each.folder for each in plan.partitions} >= {FIRST, SECOND}
    if damage != "empty name":
        assert part(plan, FIRST).status == "left alone"
        assert target.name in part(plan, FIRST).why
    assert part(plan, SECOND).status == "change"
    assert SECOND in outcomes(bloat.apply(plan))
    assert markers(whole_log(bloat.path / SECOND)) == 211


def test_torn_tail_of_the_active_segment_ends_the_log_and_refuses_nothing(bloat: Scene) -> None:
    active = logs(bloat, FIRST)[-1]
    active.write_bytes(active.read_bytes()[:-5])
    plan = bloat.plan()
    assert (plan.commit.order, plan.commit.fence) == (
        "P1",
        True,
    )  # a recovery would cut only what nobody can read
    assert part(plan, FIRST).status == "change"
    assert any("active segment ends at position" in note for note in part(plan, FIRST).notes)
    torn = active.read_bytes()
    assert bloat.apply(plan).exit_code == ExitCode.DONE
    assert active.read_bytes() == torn


def test_damage_with_a_whole_batch_behind_it_in_the_active_segment_needs_the_broker_version(
    bloat: Scene,
) -> None:
    active = logs(bloat, FIRST)[-1]
    flip(active, 100)
    with pytest.raises(PersonDecidesError, match=active.name):
        bloat.plan()  # the fence would have a broker cut all behind it; only its version says what is safe instead
    plan = bloat.plan(broker_version="2.2.1")
    assert (plan.commit.order, plan.commit.fence) == ("P1", False)


def test_leftovers_of_a_broker_leave_their_partition_alone(bloat: Scene) -> None:
    one = logs(bloat, FIRST)[2]
    (one.parent / f"{one.name}.swap").write_bytes(one.read_bytes())
    plan = bloat.plan()
    assert (part(plan, FIRST).status, part(plan, FIRST).code) == ("left alone", "leftovers")
    assert f"{one.name}.swap" in part(plan, FIRST).why
    assert bloat.apply(plan).exit_code == ExitCode.DONE


def full_disk(one: Scene, plan: Plan, *, kinds: set[str], at: int = 1) -> ApplyReport:
    return one.apply(plan, FailingDisk(RealDisk(), at, errno.ENOSPC, forever=True, kinds=kinds))


@pytest.mark.parametrize("kinds", [{"reserve"}, {"make_dir"}], ids=str)
def test_disk_that_is_full_from_the_start_changes_nothing_and_says_so(bloat: Scene, kinds: set[str]) -> None:
    plan = bloat.plan()
    before = tree(bloat.path, private=False)
    report = full_disk(bloat, plan, kinds=kinds)
    assert report.exit_code == ExitCode.REFUSED
    assert all("No space left" in why for _, why in failures(report).values())
    assert tree(bloat.path, private=False) == before
    assert bloat.apply(plan).exit_code == ExitCode.DONE


def test_disk_that_fills_up_while_a_partition_is_swapped_can_be_continued_later(bloat: Scene) -> None:
    plan = bloat.plan()
    report = full_disk(bloat, plan, kinds={"append", "create", "link"}, at=9)
    assert report.exit_code != ExitCode.DONE
    again = bloat.apply(plan)
    assert again.exit_code == ExitCode.DONE
    assert markers(whole_log(bloat.path / FIRST)) == 307


@pytest.mark.skipif(os.geteuid() != 0, reason="a small file system is mounted by root only")
def test_small_file_system_that_cannot_hold_the_new_files_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", small], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        one = scene(small)
        plan = one.plan()
        before = tree(one.path)
        with (small / "filler").open("wb") as filler:
            free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
            filler.write(bytes(free - 40_000))
        with pytest.raises(RefusedError, match=r"needs [\d,]+ bytes \(.*\) on top"):
            one.apply(plan)
        assert tree(one.path) == before
        (small / "filler").unlink()
        assert one.apply(plan).exit_code == ExitCode.DONE
    finally:
        subprocess.run(["umount", small], check=True)


def test_unreadable_file_is_not_taken_for_damage(bloat: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    target = logs(bloat, FIRST)[3]
    real = os.preadv
    inode = target.stat().st_ino

    def failing(descriptor: int, *given: object) -> int:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(descriptor, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "preadv", failing)
    plan = bloat.plan()
    left = part(plan, FIRST)
    assert (left.status, left.code) == ("left alone", "unreadable")
    assert target.name in left.why
    assert part(plan, SECOND).status == "change"
