"""What krepair makes of the markers and emptied batches that a real 2.2.0 broker left (KAFKA-8335)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from krepair.errors import ExitCode
from krepair.ops.verify import verify_log_dir, verify_plan
from krepair.plan import planfile
from tests.builders import CONTROL
from tests.fixture_dirs import FIXTURES
from tests.flips import flip
from tests.lab.judge import UNLIMITED, Judge
from tests.ops.inline import there_and_back
from tests.ops.scene import Scene, markers, part, rewrites, scene, tree, whole_log

NUMBERS = {0: (1_308_238, 75_800, 307), 1: (1_297_520, 49_470, 211)}
BROKER_RECLAIMED = {0: 166_124, 1: 149_388}


@pytest.fixture
def bloat(tmp_path: Path) -> Scene:
    return scene(tmp_path)


@pytest.mark.parametrize("number", NUMBERS)
def test_far_horizon_reclaims_to_the_bytes_and_markers_of_the_fixpoint(bloat: Scene, number: int) -> None:
    folder = bloat.path / f"__consumer_offsets-{number}"
    before, after, markers_left = NUMBERS[number]
    plan = bloat.plan()
    planned = part(plan, folder.name)
    assert (planned.log_bytes_before, planned.log_bytes_after) == (before, after)
    assert len(whole_log(folder)) == before
    assert bloat.apply(plan).exit_code == ExitCode.DONE
    log = whole_log(folder)
    assert (len(log), markers(log)) == (after, markers_left)


@pytest.mark.broker
@pytest.mark.parametrize("number", NUMBERS)
def test_applied_log_is_byte_for_byte_what_the_cleaner_of_2_2_1_comes_to_rest_at(
    bloat: Scene, tmp_path: Path, judge: Callable[[str], Judge], number: int
) -> None:
    theirs = scene(tmp_path / "theirs").path / f"__consumer_offsets-{number}"
    reached = judge("2.2.1").fixpoint(
        theirs, horizon=UNLIMITED, settings={"segment.bytes": 100_000}, now_ms=bloat.now_ms
    )
    assert reached.reached
    bloat.apply(bloat.plan())
    ours = bloat.path / theirs.name
    assert whole_log(ours) == whole_log(theirs)
    assert b"".join(path.read_bytes() for path in sorted(ours.glob("*.txnindex"))) == b"".join(
        path.read_bytes() for path in sorted(theirs.glob("*.txnindex"))
    )


@pytest.mark.parametrize("horizon", ["newest", "next-pass"])
def test_default_horizon_reclaims_at_least_what_three_passes_of_a_real_2_2_1_did(
    tmp_path: Path, horizon: str
) -> None:
    bloat = scene(tmp_path, horizon=horizon)
    cleaned = msgspec.json.decode((FIXTURES / "offsets-cleaned-2.2.1.json").read_bytes())
    plan = bloat.plan()
    assert bloat.apply(plan).exit_code == ExitCode.DONE
    for number, theirs in BROKER_RECLAIMED.items():
        folder = f"__consumer_offsets-{number}"
        assert cleaned[folder]["bytes"] == theirs
        assert len(whole_log(bloat.path / folder)) == part(plan, folder).log_bytes_after <= theirs


def test_damage_in_the_value_of_a_marker_that_goes_stops_apply_of_its_partition_alone(bloat: Scene) -> None:
    """The plan's digest is of headers; this byte is no part of one."""
    plan = bloat.plan()
    folders = [bloat.path / f"__consumer_offsets-{number}" for number in NUMBERS]
    log = sorted(folders[0].glob("*.log"))[0]
    raw, place = log.read_bytes(), 0
    while not raw[place + 22] & CONTROL:
        place += int.from_bytes(raw[place + 8 : place + 12], "big") + 12
    end = place + int.from_bytes(raw[place + 8 : place + 12], "big") + 12
    flip(log, end - 2)
    before = tree(folders[0])
    report = bloat.apply(plan)
    assert report.exit_code == ExitCode.PARTLY
    failed = [one for one in report.results if one.outcome == "failed"]
    assert {one.partition for one in failed} == {folders[0].name}
    assert f"{log.name}, position {place}: the batch's CRC-32C" in failed[0].why
    assert tree(folders[0], private=False) == before
    assert len(whole_log(folders[1])) == NUMBERS[1][1]


def test_same_directory_policy_and_clock_give_the_same_bytes_of_plan(bloat: Scene) -> None:
    one, again = planfile.dumps(bloat.plan()), planfile.dumps(bloat.plan())
    assert one == again
    later = planfile.dumps(bloat.plan(now_ms=bloat.now_ms + 1))
    assert later != one


def test_without_merging_every_segment_stays_by_itself(bloat: Scene) -> None:
    plan = bloat.plan(merge=False)
    planned = part(plan, "__consumer_offsets-0")
    assert {len(change.sources) for change in rewrites(planned)} == {1}
    bases = sorted(path.name for path in (bloat.path / planned.folder).glob("*.log"))
    bloat.apply(plan)
    assert sorted(path.name for path in (bloat.path / planned.folder).glob("*.log")) == bases


@pytest.mark.parametrize("merge", [True, False])
def test_what_was_applied_verifies_nothing_is_left_and_undo_gives_every_byte_and_time_back(
    bloat: Scene, merge: bool
) -> None:
    plan = bloat.plan(merge=merge)
    with there_and_back(bloat.path, plan, bloat.options()):
        verified = verify_plan(plan, bloat.options(originals=True))
        assert (verified.exit_code, verified.problems) == (ExitCode.DONE, ())
        assert verified.batches == sum(
            change.batches for each in plan.partitions for change in rewrites(each)
        )
        assert verify_log_dir(str(bloat.path), bloat.options()).problems == ()
        again = bloat.plan(merge=merge)
        assert {each.status for each in again.partitions} == {"nothing"}
        before = tree(bloat.path)
        report = bloat.apply(again)
        assert (report.exit_code, report.results, tree(bloat.path)) == (ExitCode.DONE, (), before)


def test_kept_bytes_of_the_plan_are_those_of_the_result_by_source_segment(bloat: Scene) -> None:
    plan = bloat.plan()
    for each in plan.partitions:
        kept = sum(s.kept_bytes for change in rewrites(each) for s in change.sources)
        dropped = sum(s.log_bytes - s.kept_bytes for change in rewrites(each) for s in change.sources)
        assert kept == sum(change.log_bytes for change in rewrites(each))
        assert each.log_bytes_before - dropped == each.log_bytes_after


# -- New files take over owner, group, mode, extended attributes and modification time of those they replace.

BROKER_UID, BROKER_GID = 4711, 4712
NAME, VALUE = "user.krepair-test", b"kept\0whole"


def dress(one: Scene) -> None:
    """As a broker of another user would have left the directory."""
    for path in [one.path, *one.path.rglob("*")]:
        mtime_ns = path.stat().st_mtime_ns
        if path.is_file():
            path.chmod(0o640)
        else:
            path.chmod(0o2750)
        if os.geteuid() == 0:
            os.chown(path, BROKER_UID, BROKER_GID)
        if path.suffix == ".log":
            os.setxattr(path, NAME, VALUE)
        os.utime(path, ns=(mtime_ns, mtime_ns))


def who(path: Path) -> tuple[int, int]:
    return path.stat().st_uid, path.stat().st_gid


def test_new_files_belong_to_whom_the_old_ones_did_and_undo_restores_all(tmp_path: Path) -> None:
    one = scene(tmp_path)
    try:
        os.setxattr(one.path, NAME, VALUE)
    except OSError:
        pytest.skip("the file system has no extended attributes")
    os.removexattr(one.path, NAME)
    dress(one)
    expected = (BROKER_UID, BROKER_GID) if os.geteuid() == 0 else who(one.path)
    plan = one.plan()
    with there_and_back(one.path, plan, one.options()):
        new = 0
        for each in plan.partitions:
            for change in rewrites(each):
                stem = one.path / each.folder / f"{change.base_offset:020d}"
                for path in (
                    stem.with_suffix(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")
                ):
                    if not path.exists():
                        continue
                    new += 1
                    assert who(path) == expected, path
                    assert stat.S_IMODE(path.stat().st_mode) == 0o640, path
                    assert path.stat().st_mtime_ns == change.mtime_ns, path
                assert os.getxattr(stem.with_suffix(".log"), NAME) == VALUE
        assert new >= 12
        # the journal is krepair's own, in a folder from which the broker may remove it
        strangers = {path.name for path in one.path.rglob("*") if who(path) != expected}
        assert strangers <= {"journal"}
