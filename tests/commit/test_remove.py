"""A file that only goes: kept first, stopped and failed at every call, run again, taken back, purged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit.purge import purge_partition
from krepair.commit.result import ChangeResult
from krepair.commit.status import ChangeState, status_in
from krepair.durable.disk import Disk
from krepair.errors import ExitCode
from krepair.plan.model import Change, KeepOriginal, ReplaceFile
from tests.commit.scene import FENCED, FOLDER, PLAN_ID, Scene, UnsyncedDisk, fingerprint, name, put, tree
from tests.durable.disks import FILE_CHANGING, SimulatedCrash, StoppingDisk

GOING = (name(300, ".snapshot"), f"{name(700)}.deleted")


def removal(scene: Scene, file: str) -> ReplaceFile:
    return ReplaceFile(
        change_id=f"{FOLDER}/{file}",
        name=file,
        method="remove",
        rule="KR601",
        size_before=(scene.path / file).stat().st_size,
        size_after=-1,
        digest_after="",
        reason="",
        undo=KeepOriginal(),
    )


def removing(root: Path) -> Scene:
    """A scene whose plan removes two files and mends an index."""
    scene = Scene(root)
    put(scene.path / GOING[1], b"set aside", 1_700, 0o600)
    whole = Scene(root.with_name(root.name + "-other"))
    changes: tuple[Change, ...] = (
        *(removal(scene, file) for file in GOING),
        whole.partition.changes[0],
    )
    files = [*scene.partition.files, fingerprint(scene.path / GOING[1])]
    scene.partition = replace(
        scene.partition, changes=changes, files=tuple(sorted(files, key=lambda one: one.name))
    )
    scene.before = tree(scene.root)
    return scene


def stage(scene: Scene, change: Change) -> None:
    if not (isinstance(change, ReplaceFile) and change.method == "remove"):
        scene.stage(change)


def apply(scene: Scene, disk: Disk | None = None) -> list[ChangeResult]:
    return scene.apply(FENCED, disk, lambda change: stage(scene, change))


def states(scene: Scene) -> list[ChangeState]:
    return list(status_in(scene.folder(), scene.partition).values())


def after(scene: Scene) -> dict[str, tuple[int, int, bytes]]:
    expected = {
        file: row for file, row in scene.before.items() if file not in {f"t-0/{one}" for one in GOING}
    }
    expected[f"t-0/{name(0, '.timeindex')}"] = (0o640, 3_000 * 10**9 + 7, scene.new_index)
    return expected


def test_files_that_go_are_gone_and_kept_and_come_back_with_their_inode(tmp_path: Path) -> None:
    scene = removing(tmp_path / "logs")
    inodes = [(scene.path / file).stat().st_ino for file in GOING]
    assert [o.outcome for o in apply(scene)] == ["committed"] * 3
    assert after(scene) == scene.now()
    keep = scene.path / f"krepair~{PLAN_ID}" / "keep"
    assert inodes == [(keep / file).stat().st_ino for file in GOING]
    assert states(scene) == [ChangeState.COMMITTED] * 3
    assert [o.outcome for o in scene.undo()] == ["undone"] * 3
    assert scene.before == tree(scene.root)
    assert inodes == [(scene.path / file).stat().st_ino for file in GOING]
    assert states(scene) == [ChangeState.PLANNED] * 3


def test_purge_frees_what_went(tmp_path: Path) -> None:
    scene = removing(tmp_path / "logs")
    sizes = sum((scene.path / file).stat().st_size for file in GOING)
    apply(scene)
    assert purge_partition(scene.folder()) >= sizes
    assert after(scene) == tree(scene.root)
    assert states(scene) == [ChangeState.PURGED] * 3


def test_a_file_that_changed_since_the_plan_stays_and_one_that_a_broker_removed_ends_the_change(
    tmp_path: Path,
) -> None:
    scene = removing(tmp_path / "logs")
    os.utime(scene.path / GOING[0], ns=(5, 5))
    outcome = apply(scene)[0]
    assert outcome.failed
    assert outcome.exit_code == ExitCode.STALE_PLAN
    assert (scene.path / GOING[0]).exists()

    other = removing(tmp_path / "other")
    with pytest.raises(SimulatedCrash):  # between the intent and the first link
        apply(other, StoppingDisk(UnsyncedDisk(), 7, FILE_CHANGING))
    (other.path / GOING[0]).unlink()
    assert states(other)[0] is ChangeState.COMMITTING
    outcomes = other.undo()
    assert not [o for o in outcomes if o.failed]
    assert not list(other.path.glob("krepair~*"))


def test_a_file_that_a_broker_made_anew_is_not_overwritten_by_undo(tmp_path: Path) -> None:
    scene = removing(tmp_path / "logs")
    apply(scene)
    (scene.path / GOING[0]).write_bytes(b"made by a broker")
    outcomes = scene.undo()
    failure = outcomes[-1]
    assert failure.failed
    assert failure.exit_code == ExitCode.STALE_PLAN
    assert (scene.path / GOING[0]).read_bytes() == b"made by a broker"
