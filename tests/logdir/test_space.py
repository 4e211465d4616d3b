"""Free space of real file systems, for root and for other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.durable import medium
from krepair.durable.tree import Tree
from krepair.logdir.space import read_space
from tests.ops.disk_scene import MIB
from tests.ops.full_disks import file_system, fill_up


@pytest.mark.parametrize("percent", [0, 5])
@pytest.mark.parametrize("has_sys", [True, False])
def test_what_ext4_keeps_for_itself_is_not_told_to_be_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, percent: int, *, has_sys: bool
) -> None:
    """A disk without a reserve for root shows free blocks that no write gets; in a bare tree nothing tells how many."""
    if not has_sys:
        monkeypatch.setattr("krepair.logdir.space._block_device", lambda device: "of a tree without /sys")
    with file_system("ext4", tmp_path, 64 * MIB, percent) as mount:
        before = read_space(str(mount)).reserve_bytes
        assert before == pytest.approx(64 * MIB * percent / 100, abs=MIB)
        fill_up(mount)
        full = read_space(str(mount))
        assert full.reserve_bytes <= 64 << 10
        assert -before <= full.free_bytes <= (64 << 10) - (before if has_sys else 0)


def test_a_new_file_system_on_a_device_that_had_another_one_is_asked_again(tmp_path: Path) -> None:
    for number, percent in enumerate((5, 0)):
        (tmp_path / str(number)).mkdir()
        with file_system("ext4", tmp_path / str(number), (64 << number) * MIB, percent) as mount:
            fill_up(mount)
            assert read_space(str(mount)).free_bytes <= 64 << 10
            assert read_space(str(mount)).reserve_bytes <= 64 << 10


@pytest.mark.parametrize(("kind", "kept"), [(medium.XFS, 1 << 20), (medium.TMPFS, 0), (-1, 0)])
def test_what_a_kind_of_file_system_does_not_give_is_not_told_to_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, kept: int
) -> None:
    found = os.statvfs(tmp_path)
    monkeypatch.setattr("krepair.logdir.space.os.statvfs", lambda folder: found)
    monkeypatch.setattr(medium, "kind_of", lambda descriptor: kind)
    space = read_space(str(tmp_path))
    assert space.free_bytes == (found.f_bavail - kept // found.f_frsize) * found.f_frsize
    assert space.links_are_files == (kind == medium.TMPFS)


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="no tmpfs is mounted there")
def test_the_kernel_tells_of_which_kind_a_file_system_is() -> None:
    with Tree("/dev/shm").reached("/dev/shm") as folder:
        assert medium.kind_of(folder) == medium.TMPFS
    with Tree("/proc").reached("/proc") as folder:
        assert medium.kind_of(folder) not in {medium.TMPFS, medium.XFS, -1}
