"""A full disk is reclaimed by the real command: ext4 and tmpfs, as root and as the broker's user."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.errors import ExitCode, RefusedError
from krepair.ops import apply as apply_module
from krepair.ops.need import need_of_all, need_of_part
from krepair.ops.plan import make_plan
from krepair.ops.target import targets_of
from krepair.ops.undo import undo
from krepair.options import Engine, Options
from krepair.pipeline.engines.spark import folder_with_room
from krepair.plan.model import Plan
from tests.ops.disk_scene import BROKER, FOLDER, MIB, Host, commands_in, open_dir
from tests.ops.full_disks import BLOCK, file_system, fill, fill_up, free_of
from tools.torture.scenes import Tree, look, visible

__all__ = ["open_dir"]

ENGINE = Options(engine=Engine.INLINE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "user", "partitions"),
    [("ext4", None, 50), ("ext4", BROKER, 8), ("tmpfs", None, 8), ("tmpfs", BROKER, 8)],
    ids=["ext4-root", "ext4-broker", "tmpfs-root", "tmpfs-broker"],
)
def test_a_full_disk_is_reclaimed_in_the_room_of_one_group(
    open_dir: Path, kind: str, user: tuple[int, int] | None, partitions: int
) -> None:
    size = (partitions * 2 + 32) * MIB
    with file_system(kind, open_dir, size) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, partitions, user)
        need, whole = host.need("until-verified"), host.need("inplace")
        assert need.bytes < whole.bytes
        fill(mount, -(-need.bytes // BLOCK) * BLOCK)
        assert free_of(mount) < whole.bytes

        code, said = host.type("plan", *host.words(), "--out", "a.krplan")
        assert code == ExitCode.FOUND, said
        assert "It does NOT fit on the disk" in said
        assert " --keep until-verified " in said
        code, said = host.type("apply", "a.krplan", "--engine", "inline")
        assert code == ExitCode.REFUSED, said
        assert "--keep until-verified" in said

        code, said = host.type("plan", *host.words(), "--keep", "until-verified", "--out", "b.krplan")
        assert code == ExitCode.FOUND, said
        assert "It fits on the disk" in said
        before = free_of(mount)
        code, said = host.type("apply", "b.krplan", "--engine", "inline")
        assert code == ExitCode.DONE, said
        freed = free_of(mount) - before
        assert freed > partitions * MIB, freed
        code, said = host.type("verify", "b.krplan", "--engine", "inline")
        assert code == ExitCode.DONE, said
        assert list(host.path.glob("*/krepair~*")) == []


def follow(host: Host, said: str, most: int = 4) -> list[str]:
    """Type nothing but what krepair names, until the plan of all changes nothing; the commands.

    Args:
        said: what the plan of all said, which did not fit.
        most: rounds of a plan and an apply.
    """
    typed = []
    for number in range(most):
        if "It does NOT fit" in said:
            command = commands_in(said)[0]
            assert commands_in(said)[-1] == command, said
            words = shlex.split(command)[1:]
            words[words.index("PLAN")] = f"{number}.krplan"
            code, said = host.type(*words)
            typed.append(command)
            assert (code, "It does NOT fit" in said) == (ExitCode.FOUND, False), said
        apply = next(command for command in commands_in(said) if command.startswith("krepair apply "))
        code, done = host.type(*shlex.split(apply)[1:], "--engine", "inline")
        typed.append(apply)
        assert code == ExitCode.DONE, done
        code, said = host.type("plan", *host.words(), "--keep", "until-verified", "--out", "rest.krplan")
        if code == ExitCode.DONE:
            return typed
    raise AssertionError(typed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_in_the_room_of_the_smallest_part_what_krepair_names_leads_out(open_dir: Path, kind: str) -> None:
    with file_system(kind, open_dir, 64 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 6, None)
        plan = make_plan(str(host.path), host.options("until-verified"))
        smallest = min(need_of_part(plan, [target]).bytes for target in targets_of(plan))
        assert smallest < need_of_all(plan, targets_of(plan)).bytes
        fill(mount, smallest + 8 * BLOCK + (MIB if kind == "xfs" else 0))  # see ``krepair.logdir.space``
        code, said = host.type("plan", *host.words(), "--out", "a.krplan")
        assert (code, "parts fit one at a time" in said) == (ExitCode.FOUND, True), said
        code, refused = host.type("apply", "a.krplan", "--engine", "inline")
        assert code == ExitCode.REFUSED, refused
        assert f"next: {commands_in(said)[0]}" in refused.replace(" --engine inline", "")
        follow(host, said)
        code, said = host.type("purge", "0.krplan")
        assert code == ExitCode.DONE, said
        assert list(host.path.glob("*/krepair~*")) == []


@pytest.mark.slow
def test_with_nothing_free_root_is_told_of_the_reserve_and_what_krepair_names_leads_out(
    open_dir: Path,
) -> None:
    with file_system("ext4", open_dir, 40 * MIB, reserved_percent=1) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 5, None)
        for place in [host.path, *host.path.rglob("*")]:
            os.chown(place, *BROKER)
        fill(mount, 0)
        assert free_of(mount) == 0
        for keep in ("inplace", "until-verified"):
            code, said = host.type("plan", *host.words(), "--keep", keep, "--out", "a.krplan")
            assert (code, "It does NOT fit" in said) == (ExitCode.FOUND, True), said
            assert " --use-reserved " in commands_in(said)[0]
        typed = follow(host, said)
        assert all(" --use-reserved" in command for command in typed[:2]), typed
        assert free_of(mount) > MIB


@pytest.mark.slow
def test_without_room_for_one_group_the_refusal_says_what_is_missing_and_nothing_is_changed(
    open_dir: Path,
) -> None:
    with file_system("ext4", open_dir, 40 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 4, None)
        (host.path / FOLDER / f"{0:020d}.log.deleted").write_bytes(b"x" * MIB)
        code, said = host.type("plan", *host.words(), "--keep", "until-verified", "--out", "a.krplan")
        assert code == ExitCode.FOUND, said
        fill(mount, 8 * BLOCK)
        before = free_of(mount)
        code, said = host.type("apply", "a.krplan", "--engine", "inline")
        assert code == ExitCode.REFUSED, said
        assert "more bytes have to be free" in said
        assert "1,048,576 bytes (1.0 MiB) of files that brokers left behind, 1 in number (KR701" in said
        assert free_of(mount) == before


@pytest.mark.slow
def test_as_root_the_reserve_of_ext4_is_used_where_enough_is_left_for_the_broker(open_dir: Path) -> None:
    with file_system("ext4", open_dir, 64 * MIB, reserved_percent=10) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 8, None)
        for place in [host.path, *host.path.rglob("*")]:
            os.chown(place, *BROKER)
        fill(mount, 0)
        assert free_of(mount) == 0
        code, said = host.type("plan", *host.words(), "--keep", "until-verified", "--out", "a.krplan")
        assert (code, "It does NOT fit" in said) == (ExitCode.FOUND, True), said
        code, said = host.type("apply", "a.krplan", "--engine", "inline")
        assert code == ExitCode.REFUSED, said
        assert "0 are free" in said
        code, said = host.type(
            "plan", *host.words(), "--keep", "until-verified", "--use-reserved", "--out", "a.krplan"
        )
        assert (code, "It fits on the disk" in said) == (ExitCode.FOUND, True), said
        code, said = host.type("plan", *host.words(), "--use-reserved", "--out", "b.krplan")
        assert code == ExitCode.FOUND, said
        code, said = host.type("apply", "b.krplan", "--use-reserved", "--engine", "inline")
        assert code == ExitCode.REFUSED, said
        assert "would be free for the broker, which is not root" in said
        code, said = host.type("apply", "a.krplan", "--use-reserved", "--engine", "inline")
        assert code == ExitCode.DONE, said
        assert free_of(mount) > 0


@pytest.mark.slow
def test_the_reserve_is_refused_where_nobody_knows_of_one(open_dir: Path) -> None:
    with file_system("tmpfs", open_dir, 40 * MIB) as mount:
        work = open_dir / "work"
        work.mkdir()
        host = Host(mount, work, 2, None)
        host.type("plan", *host.words(), "--out", "a.krplan")
        code, said = host.type("apply", "a.krplan", "--use-reserved", "--engine", "inline")
        assert code == ExitCode.REFUSED, said
        assert "expected an ext4 file system" in said


@pytest.mark.slow
def test_what_spark_writes_goes_past_a_full_temporary_folder(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with file_system("tmpfs", open_dir, MIB) as mount:
        monkeypatch.setattr(tempfile, "tempdir", str(mount))
        found = folder_with_room()
        assert found != str(mount)
        state = os.statvfs(found)
        assert state.f_bavail * state.f_frsize > MIB


def applied_here(host: Host, keep: str) -> tuple[Plan, Tree]:
    """A plan that is carried out, and what was there before."""
    before = look(host.path)
    plan = make_plan(str(host.path), host.options(keep))
    assert apply_module.apply(plan, ENGINE).exit_code == ExitCode.DONE
    return plan, before


@pytest.mark.slow
def test_undo_of_what_is_kept_here_says_before_it_begins_how_many_blocks_it_lacks(open_dir: Path) -> None:
    with file_system("ext4", open_dir, 48 * MIB) as mount:
        host = Host(mount, open_dir / "work", 1, None)
        plan, before = applied_here(host, "inplace")
        applied = look(host.path)
        fill_up(mount)
        with pytest.raises(RefusedError, match=r"undo needs .* are free there") as refused:
            undo(plan, ENGINE)
        assert look(host.path) == applied
        # Its own originals are no room: without them there would be nothing to take back.
        assert "purge" not in refused.value.message + refused.value.next_command
        lacks = re.search(r"at least ([\d,]+) bytes .*more have to be free", refused.value.message)
        assert lacks is not None, refused.value.message
        os.truncate(mount / "filler", (mount / "filler").stat().st_size - int(lacks[1].replace(",", "")))
        assert undo(plan, ENGINE).exit_code == ExitCode.DONE
        assert visible(look(host.path)) == visible(before)


@pytest.mark.slow
def test_undo_as_root_takes_the_reserve_for_a_moment_without_a_word_and_for_good_only_when_asked(
    open_dir: Path,
) -> None:
    (open_dir / "a").mkdir()
    (open_dir / "b").mkdir()
    with (
        file_system("ext4", open_dir / "a", 48 * MIB, reserved_percent=20) as mount,
        file_system("tmpfs", open_dir / "b", 40 * MIB) as other,
    ):
        host = Host(mount, open_dir / "work", 1, None)
        for keep in ("inplace", str(other)):
            plan, before = applied_here(host, keep)
            fill(mount, 0)
            assert free_of(mount) == 0
            asked = ENGINE
            if keep != "inplace":
                with pytest.raises(RefusedError, match="it fits with --use-reserved") as refused:
                    undo(plan, ENGINE)
                assert refused.value.next_command == "krepair undo PLAN --use-reserved"
                asked = replace(ENGINE, use_reserved=True)
            assert undo(plan, asked).exit_code == ExitCode.DONE
            assert visible(look(host.path)) == visible(before)
            (mount / "filler").unlink()
