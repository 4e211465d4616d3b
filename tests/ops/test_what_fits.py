"""What ``plan`` says of a disk is what ``apply`` then does there: on real file systems, at and around nothing free."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.errors import ExitCode, RefusedError
from krepair.logdir.space import VolumeSpace, read_space, settled_space
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.plan.fit import NO_ROOM, whole_needs
from krepair.plan.keep import AUTO, INPLACE, UNTIL_VERIFIED
from krepair.plan.model import ChangeLines, Plan, Room
from krepair.plan.planfile import dumps, loads
from krepair.plan.short import DiskObservation
from krepair.plan.space import plan_copy_bytes
from krepair.start.room import copied_away, observe
from tests.builders import NOW_MS
from tests.ops.disk_scene import MIB, open_dir
from tests.ops.full_disks import BLOCK, file_system, fill
from tests.ops.written import write
from tools.torture.scenes import look, visible

__all__ = ["open_dir"]
PARTITIONS = 8


def options(keep: str = INPLACE, fixes: tuple[str, ...] = ("recovery", "checkpoints")) -> Options:
    return Options(engine=EngineName.INLINE, now_ms=NOW_MS, fixes=fixes, broker_version="3.9.2", keep=keep)


def waiting(plan: Plan) -> list[str]:
    return [one.folder for one in plan.partitions if one.code == NO_ROOM]


def has(monkeypatch: pytest.MonkeyPatch, free: int, files: int) -> None:
    """The disk seems to have so much."""
    space = VolumeSpace(free, files, BLOCK, mounted_read_only=False)
    for place in ("krepair.start.room.read_space", "krepair.start.room.settled_space"):
        monkeypatch.setattr(place, lambda path, tree=None: space)


@pytest.fixture
def unclean(tmp_path: Path) -> Path:
    """A directory that needs a line of the root for each of its partitions."""
    return write(tmp_path / "logs", PARTITIONS, clean=False)


@pytest.mark.parametrize("keep", [INPLACE, UNTIL_VERIFIED, AUTO])
@pytest.mark.parametrize("what", ["bytes", "files"])
def test_where_space_is_short_what_fits_is_the_plan_and_no_line_of_the_root_is_without_its_partition(
    unclean: Path, monkeypatch: pytest.MonkeyPatch, keep: str, what: str
) -> None:
    whole = make_plan(str(unclean), options(INPLACE))
    needs = whole_needs(whole)
    assert waiting(whole) == []
    assert not isinstance(whole.policy.room, Room)
    has(
        monkeypatch,
        needs.peak // 2 if what == "bytes" else 1 << 40,
        needs.files // 2 if what == "files" else -1,
    )
    plan = make_plan(str(unclean), options(keep))
    left = waiting(plan)
    assert 0 < len(left) < PARTITIONS
    assert isinstance(plan.policy.room, Room)
    assert len(left) + len(plan.changing) == PARTITIONS
    assert plan.root is not None
    lines = {
        f"{line.topic}-{line.partition}"
        for change in plan.root.changes
        if isinstance(change, ChangeLines)
        for line in change.lines
    }
    assert lines == {one.folder for one in plan.changing}
    assert loads(dumps(plan), "p") == plan
    seen = observe(plan, options(keep))
    assert isinstance(seen, DiskObservation)
    assert seen.fits
    assert make_plan(str(unclean), options(keep)) == plan
    before = visible(look(unclean))
    report = apply(plan, options(keep))
    assert report.exit_code == ExitCode.DONE
    after = visible(look(unclean))
    touched = {
        path.partition("/")[0] for path in after.keys() | before.keys() if after.get(path) != before.get(path)
    }
    assert touched.isdisjoint(left)
    monkeypatch.undo()
    assert purge(plan, options(keep)).exit_code == ExitCode.DONE
    rest = make_plan(str(unclean), options(keep))
    assert [one.folder for one in rest.changing] == left
    assert apply(rest, options(keep)).exit_code == ExitCode.DONE
    assert make_plan(str(unclean), options(keep)).changing == []


def test_where_nothing_fits_the_plan_is_whole_and_is_refused(
    unclean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, BLOCK, -1)
    plan = make_plan(str(unclean), options())
    assert (waiting(plan), len(plan.changing)) == ([], PARTITIONS)
    seen = observe(plan, options())
    assert isinstance(seen, DiskObservation)
    assert not seen.fits
    with pytest.raises(RefusedError, match="the plan needs"):
        apply(plan, options())


# -- real file systems

STEPS = 7


def sweep(log_dir: Path, keep: str, leave: Callable[[int], None], whole: int) -> set[int]:
    """Plan and apply with ever more room; the numbers of partitions that were changed.

    Args:
        log_dir: the log directory.
        keep: what becomes of originals.
        leave: leaves so much room.
        whole: what all partitions need.
    """
    before = visible(look(log_dir))
    seen = set()
    for step in range(STEPS):
        leave(whole * step // (STEPS - 1))
        plan = make_plan(str(log_dir), options(keep))
        found = observe(plan, options(keep))
        assert isinstance(found, DiskObservation)
        if not found.fits:
            with pytest.raises(RefusedError):
                apply(plan, options(keep))
            assert visible(look(log_dir)) == before
            seen.add(0)
            continue
        report = apply(plan, options(keep))
        assert report.exit_code == ExitCode.DONE, (step, report)
        changed = {one.partition for one in report.results if one.outcome == "committed"} - {"."}
        assert changed == {one.folder for one in plan.changing}
        seen.add(len(changed))
        if undo(plan, options(keep)).exit_code != ExitCode.DONE:
            break
        assert visible(look(log_dir)) == before
    return seen


DISKS = [("ext4", 0), ("ext4", 5), ("xfs", 0)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "reserve"), DISKS)
def test_with_any_free_bytes_apply_does_what_the_plan_says(open_dir: Path, kind: str, reserve: int) -> None:
    with file_system(kind, open_dir, 40 * MIB, reserve) as mount:
        log_dir = write(mount / "logs", PARTITIONS, clean=False)
        os.chown(log_dir, 4242, 4242)  # of a broker that is not root
        whole = whole_needs(make_plan(str(log_dir), options())).peak
        seen = sweep(log_dir, INPLACE, lambda left: fill(mount, left + (MIB if kind == "xfs" else 0)), whole)
        assert {0, PARTITIONS} < seen


@pytest.mark.slow
@pytest.mark.parametrize("keep", [INPLACE, AUTO])
def test_with_any_free_inodes_apply_does_what_the_plan_says(open_dir: Path, keep: str) -> None:
    with file_system("ext4", open_dir, 40 * MIB, files=2000) as mount:
        log_dir = write(mount / "logs", PARTITIONS, clean=False)
        (log_dir / ".lock").touch()
        whole = whole_needs(make_plan(str(log_dir), options())).files
        many = mount / "many"
        many.mkdir()

        def leave(left: int) -> None:
            there = sorted(many.iterdir())
            for number in range(os.statvfs(mount).f_favail - left):
                os.mknod(many / f"{len(there) + number:06d}")
            for path in there[: max(left - os.statvfs(mount).f_favail, 0)]:
                path.unlink()
            assert os.statvfs(mount).f_favail == left

        seen = sweep(log_dir, keep, leave, whole)
        # What auto has freed is not taken back, and ends the sweep.
        assert {0, PARTITIONS if keep == INPLACE else 1} <= seen


@pytest.mark.slow
def test_what_xfs_gives_back_later_is_counted(open_dir: Path) -> None:
    """Blocks behind the ends of files that were closed more than once, and of what was just removed."""
    with file_system("xfs", open_dir, 40 * MIB) as mount:
        log_dir = write(mount / "logs", 1, clean=False)
        paths = [log_dir / "t-0" / f"{number:020d}.log.deleted" for number in range(1, 9)]
        for _ in range(4):
            for path in paths:
                with path.open("ab") as file:
                    file.write(bytes(1 << 20))
        os.sync()
        behind = sum(path.stat().st_blocks * 512 - path.stat().st_size for path in paths)
        free = read_space(str(log_dir)).free_bytes
        assert behind > MIB
        assert settled_space(str(log_dir)).free_bytes >= free + behind
        fill(mount, MIB)
        before = settled_space(str(log_dir)).free_bytes
        need = whole_needs(plan := make_plan(str(log_dir), options())).peak
        assert read_space(str(log_dir)).free_bytes < need <= before
        found = observe(plan, options())
        assert isinstance(found, DiskObservation)
        assert found.fits
        assert apply(plan, options()).exit_code == ExitCode.DONE


def test_the_copy_counts_with_what_it_takes_and_no_more(unclean: Path) -> None:
    plan = make_plan(str(unclean), options())
    assert apply(plan, options()).exit_code == ExitCode.DONE
    (copy,) = {path.stat().st_ino: path for path in unclean.glob("*/krepair~*/plan")}.values()
    assert copy.stat().st_size <= plan_copy_bytes(plan) <= copy.stat().st_size + 2 * BLOCK
    assert replace(plan, partitions=tuple(plan.changing)) == loads(copy.read_bytes(), "p")


def test_the_copy_that_is_printed_removes_only_what_has_an_equal_copy(tmp_path: Path) -> None:
    log_dir, disk = tmp_path / "a log dir", tmp_path / "disk"
    for folder in ("-t-0", "u-1"):
        (log_dir / folder).mkdir(parents=True)
        (log_dir / folder / "x.log").write_bytes(folder.encode())
    typed = str(copied_away(str(log_dir), ["-t-0", "u-1"])).replace("/OTHER-DISK", str(disk))
    subprocess.run(["sh", "-c", typed], check=False, capture_output=True)
    assert not disk.exists(), "a name that is typed wrong must not become a folder"
    assert len(list(log_dir.iterdir())) == 2
    (disk / "u-1").mkdir(parents=True)
    (disk / "u-1" / "other").touch()
    subprocess.run(["sh", "-c", typed], check=False, capture_output=True)
    assert [path.name for path in log_dir.iterdir()] == ["u-1"]
    assert (disk / "-t-0" / "x.log").read_bytes() == b"-t-0"
