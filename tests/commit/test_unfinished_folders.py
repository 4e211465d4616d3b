"""Folders of krepair's own that a killed run has made and not finished: they have no owner and mode yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from krepair.commit.fence import Fence, Point
from krepair.commit.folder import PartitionFolder
from krepair.durable.real_disk import RealDisk
from tests.commit.scene import PLAN_ID, Scene, UnsyncedDisk, name
from tests.durable.disks import RecordingDisk

BROKER = (4242, 4343) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
MODE = 0o750
FOLDERS = ("", "/stage", "/keep", "/out")


class Site:
    """A partition folder of the broker's user; root works on it where the test may be root."""

    def __init__(self, root: Path) -> None:
        self.scene = Scene(root / "logs", index_change=False)
        self.path = self.scene.path
        os.chown(self.path, *BROKER)
        self.path.chmod(MODE)
        self.private = self.path / f"krepair~{PLAN_ID}"

    def folder(self, disk: RealDisk | RecordingDisk | None = None) -> PartitionFolder:
        return PartitionFolder(disk or UnsyncedDisk(), str(self.scene.root), self.path.name, PLAN_ID)

    def make(self) -> None:
        self.folder().make_private_folders()


@pytest.fixture
def site(memory_dir: Path) -> Site:
    return Site(memory_dir)


def seen(path: Path) -> tuple[int, tuple[int, int]]:
    found = path.stat()
    return stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)


def unfinish(path: Path) -> None:
    """As ``mkdir`` has left it, before its owner and mode were given."""
    os.chown(path, os.geteuid(), os.getegid())
    path.chmod(0o700)


@pytest.mark.parametrize("left", range(len(FOLDERS)))
def test_a_folder_that_a_killed_run_left_unfinished_is_made_anew_with_owner_and_mode(
    site: Site, left: int
) -> None:
    for place in FOLDERS[: left + 1]:
        (site.private / place.lstrip("/")).mkdir()
        os.chown(f"{site.private}{place}", *BROKER)
        Path(f"{site.private}{place}").chmod(MODE)
    unfinish(Path(f"{site.private}{FOLDERS[left]}"))
    site.make()
    assert [seen(Path(f"{site.private}{place}")) for place in FOLDERS] == [(MODE, BROKER)] * len(FOLDERS)


def test_a_folder_that_holds_something_stays_as_it_is(site: Site) -> None:
    site.make()
    (site.private / "keep" / name(0)).write_bytes(b"an original")
    (site.private / "keep").chmod(0o700)
    site.make()
    assert (site.private / "keep" / name(0)).read_bytes() == b"an original"
    assert seen(site.private / "keep") == (0o700, BROKER)


def test_a_folder_that_is_as_it_has_to_be_is_not_made_again(site: Site) -> None:
    site.make()
    inodes = [os.stat(f"{site.private}{place}").st_ino for place in FOLDERS]
    site.make()
    assert [os.stat(f"{site.private}{place}").st_ino for place in FOLDERS] == inodes


def test_what_is_missing_in_an_old_sub_folder_is_durable_at_once_with_its_owner(site: Site) -> None:
    site.make()
    (site.private / "out").rmdir()
    disk = RecordingDisk(UnsyncedDisk())
    site.folder(disk).make_private_folders()
    synced = [path for call, path, *_ in disk.calls if call == "sync_dir"]
    assert synced == [f"{site.private}/out", str(site.private), str(site.path)]


def test_a_fence_that_was_left_unfinished_is_the_brokers_once_it_is_up(site: Site) -> None:
    site.make()
    (site.private / "fence").mkdir()
    unfinish(site.private / "fence")
    fence = Fence(site.folder(), Point("t", 0, 0))
    fence.put_up()
    assert seen(site.private / "fence") == (0o700, BROKER)
    assert seen(site.private / "fence" / "seen.json")[1] == BROKER
    fence.lift()
