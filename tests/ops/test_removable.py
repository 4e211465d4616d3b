"""A disk on which no plan fits: each command that krepair names is typed there, at 0 free blocks and 0 free inodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.kernels.cache import CACHE_VARIABLE, user_folders
from krepair.ops.room import removable
from tests.ops.disk_scene import FOLDER, MIB, Host, commands_in, no_inode_left, open_dir
from tests.ops.full_disks import BLOCK, file_system, fill, free_of

__all__ = ["open_dir"]


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


DISKS = [("ext4", "inodes"), ("xfs", "blocks")]
MORE_DISKS = [("ext4", "blocks"), ("tmpfs", "inodes")] if os.environ.get("KREPAIR_EVERY_STATE") else []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "what"), [*DISKS, *MORE_DISKS])
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
