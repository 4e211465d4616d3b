"""What purge removes and what it counts; what it leaves alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from krepair.commit.journal import Purge
from krepair.commit.purge import check_all_finished, purge_partition, remove_private_folder
from krepair.commit.status import ChangeState, status_in
from krepair.errors import RefusedError
from tests.commit.scene import PLAN_ID, Scene, UnsyncedDisk, name, tree
from tests.durable.disks import RecordingDisk

PRIVATE = f"krepair~{PLAN_ID}"


def blocks_of(folder: Path) -> int:
    """Bytes of the disk that a folder holds: of files without another name, and of folders."""
    found = [path.lstat() for path in (folder, *folder.rglob("*"))]
    return sum(512 * one.st_blocks for one in found if stat.S_ISDIR(one.st_mode) or one.st_nlink == 1)


def test_folder_without_a_journal_is_removed_and_the_bytes_whose_last_name_went_are_counted(
    memory_dir: Path,
) -> None:
    scene = Scene(memory_dir / "logs")
    keep = scene.path / PRIVATE / "keep"
    keep.mkdir(parents=True)
    os.link(scene.path / name(100), keep / name(100))
    (keep / "alone").write_bytes(b"x" * 77)
    held = blocks_of(scene.path / PRIVATE)
    assert 0 < held < (scene.path / name(100)).stat().st_size + 3 * 4096
    assert remove_private_folder(scene.folder()) == held
    assert tree(scene.root) == scene.before


@pytest.mark.parametrize("verb", [purge_partition, remove_private_folder])
def test_nothing_goes_while_the_fence_is_up(memory_dir: Path, verb: object) -> None:
    scene = Scene(memory_dir / "logs")
    scene.apply()
    private = scene.path / PRIVATE
    (private / "fence").mkdir()
    (private / "fence" / ".kafka_cleanshutdown").write_bytes(b"marker")
    before = tree(scene.root)
    with pytest.raises(RefusedError, match="the recovery guard is still set") as caught:
        verb(scene.folder())  # type: ignore[operator]
    assert str(caught.value.next_command) == "krepair apply PLAN"
    assert tree(scene.root) == before


@pytest.mark.parametrize("verb", [purge_partition, remove_private_folder])
def test_where_nothing_is_kept_only_the_removal_is_made_durable(memory_dir: Path, verb: object) -> None:
    """The run that removed the folder may have been killed before its name was durably gone."""
    scene = Scene(memory_dir / "logs")
    disk = RecordingDisk(UnsyncedDisk())
    assert verb(scene.folder(disk)) == 0  # type: ignore[operator]
    assert [(call.kind, call.path) for call in disk.calls] == [("sync_dir", str(scene.path))]


def test_journal_goes_last_and_every_removal_before_it_is_durable(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs")
    scene.apply()
    disk = RecordingDisk(UnsyncedDisk())
    assert purge_partition(scene.folder(disk)) > 0
    calls = [(call.kind, os.path.relpath(call.path, scene.path)) for call in disk.calls]
    assert calls[-5:] == [
        ("remove_dir", f"{PRIVATE}/stage"),
        ("sync_dir", PRIVATE),
        ("unlink", f"{PRIVATE}/journal"),
        ("remove_dir", PRIVATE),
        ("sync_dir", "."),
    ]
    assert tree(scene.root, private=False).keys() == tree(scene.root).keys()


@pytest.mark.parametrize("fenced", [True, False])
def test_journal_that_cannot_be_read_never_stops_the_purge_of_the_others(
    memory_dir: Path, fenced: bool
) -> None:
    scene = Scene(memory_dir / "logs")
    private = scene.path / PRIVATE
    private.mkdir()
    (private / "journal").write_bytes(b"damaged\n" * 2)
    if fenced:
        (private / "fence").mkdir()
    check_all_finished([scene.folder()])
    purge_partition(scene.folder())
    assert not private.exists()


def test_bytes_that_went_are_those_of_the_private_folder_that_had_no_other_name(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs")
    scene.apply()
    os.link(scene.path / PRIVATE / "keep" / name(200), memory_dir / "another-name")
    journal = scene.folder().journal()
    journal.append(Purge())
    states = status_in(scene.folder(), scene.partition)
    assert list(states.values()) == [ChangeState.PURGED] * 3
    held = blocks_of(scene.path / PRIVATE)
    assert purge_partition(scene.folder()) == held
    assert not (scene.path / PRIVATE).exists()
