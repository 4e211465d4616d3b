"""A full disk is reclaimed by the real command, and every figure of space is held against ``df``."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest

from krepair.engine.spark import folder_with_room
from krepair.errors import ExitCode
from krepair.formats.words import count_text
from krepair.kernels.cache import CACHE_VARIABLE, user_folders
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.plan.fit import fit_of
from krepair.plan.keep import is_freed_by_apply
from krepair.plan.model import Room
from krepair.plan.planfile import read_plan
from krepair.plan.space import free_after_apply, without_undo
from krepair.start.room import removable
from tests.fixture_dirs import unpack
from tests.hostile.verbs import run
from tests.ops.disk_scene import BROKER, FOLDER, MIB, Host, commands_in, no_inode_left, open_dir
from tests.ops.full_disks import BLOCK, file_system, fill, fill_up, free_of
from tools.torture.scenes import look, visible

pytestmark = pytest.mark.slow
__all__ = ["open_dir"]
ENGINE = Options(engine=EngineName.INLINE)
KINDS = ("ext4", "xfs", "tmpfs")


@pytest.fixture(autouse=True)
def _kernels_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, user_folders()[0])


def odd_files(host: Host) -> None:
    """Files that go: a hole, one that was allocated ahead, and two that have another name elsewhere."""
    folder = host.path / FOLDER
    with (folder / f"{1:020d}.log.deleted").open("wb") as hole:
        hole.truncate(10 * MIB)
    with (folder / f"{1:020d}.timeindex.deleted").open("wb") as ahead:
        os.posix_fallocate(ahead.fileno(), 0, 2 * MIB)
    (folder / f"{2:020d}.log.deleted").write_bytes(bytes(MIB))
    linked = min((host.path / "__consumer_offsets-1").glob("*.log"))
    os.link(folder / f"{2:020d}.log.deleted", host.mount / "one")
    os.link(linked, host.mount / "another")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_said_to_be_freed_is_what_df_shows(open_dir: Path, kind: str) -> None:
    with file_system(kind, open_dir, 64 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 3, None)
        odd_files(host)
        options = Options(**(vars_of(host, "inplace") | {"fixes": ("leftovers", "markers")}))
        plan = make_plan(str(host.path), options)
        before = free_of(mount)
        steps = []
        for verb in (apply, undo, apply, purge):
            at = free_of(mount)
            report = verb(plan, ENGINE)
            assert report.exit_code == ExitCode.DONE, report
            steps.append((verb.__name__, report.bytes_freed, free_of(mount) - at))
        files = sum(1 for _ in host.path.rglob("*"))
        slack = BLOCK * (files if kind == "xfs" else len(plan.changing) + 1)
        for name, said, shown in steps:
            assert abs(said - shown) <= slack, (name, said, shown, slack)
        assert steps[0][2] < 0 < steps[3][2]
        assert free_after_apply(plan) - slack <= steps[0][2] < plan.freed_at_apply, steps
        # The plan has upper bounds of what is made; a folder may have become a block larger.
        came = free_of(mount) - before
        made = sum(len(change_names(change)) for one in plan.changing for change in one.changes)
        assert -slack <= came - plan.freed_at_purge <= made * BLOCK + slack, (came, plan.freed_at_purge)


def vars_of(host: Host, keep: str) -> dict[str, object]:
    given = host.options(keep)
    return {name: getattr(given, name) for name in ("settings", "now_ms", "topics", "keep")}


def change_names(change: object) -> list[str]:
    sources = getattr(change, "sources", ())
    return ["x"] * (4 * len(sources) or 1)


def _typed(host: Host, *words: str, code: ExitCode) -> str:
    ended, said = host.type(*words)
    assert ended == code, said
    return said


DISKS = [("ext4", None, 0), ("ext4", None, 5), ("ext4", BROKER, 0), ("tmpfs", BROKER, 0), ("xfs", None, 0)]
ROUNDS = 4
"""A plan holds what fits; what it frees makes room for the next one."""
FIXES = ("markers", "index,markers,recovery")
ALL_OF_THEM = [(*disk, fixes) for disk in DISKS for fixes in FIXES]


@pytest.mark.parametrize(
    ("kind", "user", "reserve", "fixes"),
    ALL_OF_THEM if os.environ.get("KREPAIR_EVERY_STATE") else ALL_OF_THEM[::3],
)
def test_plans_of_what_fits_lead_out_of_a_full_disk(
    open_dir: Path, kind: str, user: tuple[int, int] | None, reserve: int, fixes: str
) -> None:
    """With nothing free for the broker's user. Where only root has bytes, root's plan takes and gives them back."""
    partitions = 6
    with file_system(kind, open_dir, partitions * 1_900_000 + 24 * MIB, reserve) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, partitions, user)
        for place in [host.path, *host.path.rglob("*")]:
            os.chown(place, *BROKER)
        (host.path / ".kafka_cleanshutdown").unlink(missing_ok=True)
        if kind == "xfs" or not reserve:
            fill_up(mount)
        else:
            fill(mount, 0)
        words = ("plan", *host.words(), "--fix", fixes, "--broker-version", "2.2.1", "--out")
        said = _typed(host, *words, "b.krplan", code=ExitCode.FOUND)
        assert "It does NOT fit on the disk" in said
        if not reserve:
            missing = int(
                re.search(r"At least ([\d,]+) KiB more have to be free", " ".join(said.split()))[1].replace(
                    ",", ""
                )
            )
            assert missing <= 2560 + (1024 if kind == "xfs" else 0)
            _typed(host, "apply", "b.krplan", code=ExitCode.REFUSED)
            os.truncate(mount / "filler", (mount / "filler").stat().st_size - (missing + 4) * 1024)
        (command,) = [one for one in commands_in(said) if " --keep auto " in one][:1]
        at, rounds = free_of(mount), 0
        while rounds < ROUNDS:
            page = host.type(*shlex.split(command.replace("PLAN", "a.krplan"))[1:])[1]
            plan = read_plan(str(work / "a.krplan"))
            if not plan.changing:
                break
            rounds += 1
            assert re.search(r"Fits +(yes: |yes, for root: |\d+ of \d+ partitions now; )", page)
            total = sum(len(one.changes) for one in plan.changing)
            gone = len(without_undo(plan))
            assert not gone or f"{gone:,} of {count_text(total, 'change')}, in " in page
            _typed(host, "apply", "a.krplan", "--engine", "inline", code=ExitCode.DONE)
            assert free_of(mount) >= at
            _typed(host, "verify", "a.krplan", "--engine", "inline", code=ExitCode.DONE)
            _typed(host, "purge", "a.krplan", code=ExitCode.DONE)
        assert 0 < rounds < ROUNDS
        assert list(host.path.glob("*/krepair~*")) == []
        assert free_of(mount) - at > partitions * MIB


def test_a_group_that_no_longer_fits_is_left_and_the_same_apply_goes_on(open_dir: Path) -> None:
    with file_system("ext4", open_dir, 64 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 6, None)
        fill(mount, 4 * MIB)
        _typed(host, "plan", *host.words(), "--keep", "auto", "--out", "a.krplan", code=ExitCode.FOUND)
        plan = read_plan(str(work / "a.krplan"))
        assert not any(is_freed_by_apply(change) for one in plan.changing for change in one.changes)
        fill(mount, plan.peak_extra_bytes // 2, "more")
        said = _typed(host, "apply", "a.krplan", "--engine", "inline", code=ExitCode.PARTLY)
        assert "it is left as it is" in said
        (mount / "more").unlink()
        _typed(host, "apply", "a.krplan", "--engine", "inline", code=ExitCode.DONE)


def test_what_is_kept_can_be_taken_back_where_the_first_ones_are_freed(open_dir: Path) -> None:
    with file_system("ext4", open_dir, 64 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 6, None)
        plan = make_plan(str(host.path), host.options("auto"))
        assert isinstance(plan.policy.room, Room)
        fill(mount, fit_of(plan, plan.policy.room).begin.peak + 8 * BLOCK)
        plan = make_plan(str(host.path), host.options("auto"))
        kept = {one.folder for one in plan.changing if not any(map(is_freed_by_apply, one.changes))}
        assert kept
        assert len(kept) < 6
        before = visible(look(host.path))
        assert apply(plan, ENGINE).exit_code == ExitCode.DONE
        assert undo(plan, ENGINE).exit_code == ExitCode.PARTLY
        after = visible(look(host.path))
        for folder in kept:
            assert {path: file for path, file in after.items() if path.startswith(f"{folder}/")} == {
                path: file for path, file in before.items() if path.startswith(f"{folder}/")
            }


def test_what_spark_writes_goes_past_a_full_temporary_folder(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file_system("tmpfs", open_dir, MIB) as mount:
        monkeypatch.setattr(tempfile, "tempdir", str(mount))
        found = folder_with_room()
        assert found != str(mount)
        state = os.statvfs(found)
        assert state.f_bavail * state.f_frsize > MIB


@pytest.mark.parametrize(
    "words",
    [("check", "LOGDIR", "--html", "FILE"), ("facts", "LOGDIR", "--out", "FILE")],
    ids=["a page", "facts"],
)
def test_what_a_full_disk_does_not_take_is_an_error_of_writing_and_goes_elsewhere(
    open_dir: Path, words: tuple[str, ...]
) -> None:
    log_dir = unpack("offsets-cleaned-2.2.1", open_dir)
    with file_system("tmpfs", open_dir, MIB) as mount:
        fill_up(mount)
        path = mount / "some.facts"
        ran = run(*(word.replace("LOGDIR", str(log_dir)).replace("FILE", str(path)) for word in words))
        assert ran.code == ExitCode.UNWRITABLE
        assert f"{path}: could not be written: no space is left on the file system {mount}" in ran.err
        assert re.search(rf"next: the same command with {words[2]} /\S+/some\.facts$", ran.err, re.MULTILINE)
        assert os.listdir(mount) == ["filler"]


def test_undo_on_a_full_disk_ends_safely_and_goes_on_when_there_is_room(open_dir: Path) -> None:
    with file_system("ext4", open_dir, 48 * MIB) as mount:
        host = Host(mount, open_dir / "work", 1, None)
        before = look(host.path)
        plan = make_plan(str(host.path), host.options("inplace"))
        assert apply(plan, ENGINE).exit_code == ExitCode.DONE
        fill_up(mount)
        report = undo(plan, ENGINE)
        if report.exit_code != ExitCode.DONE:
            assert str(report.next_command) == "krepair undo PLAN"
            os.truncate(mount / "filler", (mount / "filler").stat().st_size - MIB)
            assert undo(plan, ENGINE).exit_code == ExitCode.DONE
        assert visible(look(host.path)) == visible(before)


# -- A disk on which no plan fits: each command that krepair names is typed there, at 0 free blocks and 0 free
# inodes.


def left_behind(host: Host) -> None:
    """A deleted log, and a partition that a broker had marked for deletion."""
    (host.path / FOLDER / f"{0:020d}.log.deleted").write_bytes(b"x" * MIB)
    deleted = host.path / f"gone-0.{'0' * 32}-delete"
    deleted.mkdir()
    (deleted / f"{0:020d}.log").write_bytes(b"x" * MIB)


def an_applied_plan(host: Host) -> None:
    """Of the partition 1, whose originals are kept."""
    words = [word for word in host.words() if word not in ("--topic", "__consumer_offsets")]
    words += ["--partition", "__consumer_offsets-1", "--engine", "inline"]
    assert host.type("plan", *words, "--out", "a.krplan")[0] == ExitCode.FOUND
    assert host.type("apply", "a.krplan", "--engine", "inline")[0] == ExitCode.DONE


FULL = [("ext4", "inodes"), ("xfs", "blocks")]
MORE_DISKS = [("ext4", "blocks"), ("tmpfs", "inodes")] if os.environ.get("KREPAIR_EVERY_STATE") else []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "what"), [*FULL, *MORE_DISKS])
def test_what_krepair_names_works_with_nothing_free_and_leads_to_a_plan_that_fits(
    open_dir: Path, kind: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernels are there: here nobody waits for them on a full disk.
    monkeypatch.setenv(CACHE_VARIABLE, user_folders()[0])
    with file_system(kind, open_dir, 40 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 3, None)
        an_applied_plan(host)
        left_behind(host)
        if what == "blocks":
            fill(mount, MIB if kind == "xfs" else 0)
        else:
            no_inode_left(kind, mount)
        free = ["plan", *host.words(), "--keep", "auto", "--engine", "inline", "--out", "s.krplan"]
        code, said = host.type(*free)
        assert code == ExitCode.FOUND, said
        assert "It does NOT fit on the disk" in said
        named = {str(way.command) for way in removable(str(host.path))}
        purge, rm = (next(one for one in named if one.startswith(word)) for word in ("krep", "rm"))
        assert rm in said
        bytes_before = free_of(mount)
        subprocess.run(rm, shell=True, check=True)
        assert free_of(mount) - bytes_before >= 2 * MIB - BLOCK
        bytes_before = free_of(mount)
        assert purge in commands_in(said)
        code, said = host.type(*purge.split()[1:])
        assert code == ExitCode.DONE, said
        assert free_of(mount) > bytes_before + MIB
        if what == "blocks":
            code, said = host.type(*free)
            assert (code, "does NOT fit" in said) == (ExitCode.FOUND, False), said
            code, said = host.type("apply", "s.krplan", "--engine", "inline")
            assert code == ExitCode.DONE, said
