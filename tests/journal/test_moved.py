"""Whether the inodes of a journal hold where it is: the directory may be a copy, made anew even under its old inode."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.journal.moved import has_moved
from krepair.journal.record import Here, Journal
from tests.journal.scene import P1, PLAN_ID, Scene, name

HERE = Here(
    host="broker-1",
    log_dir="/data",
    file_system="5f",
    inode=2,
    cluster_id="",
    broker_id="",
    directory_id="",
    plan_digest="",
)
GROUP = f"t-0/{100:020d}"


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    """Everything is applied; of the first group, the log at 200 was damaged, and so is kept as a real copy."""
    made = Scene(memory_dir / "logs", index_change=False)
    made.damaged = frozenset({200})
    made.apply(P1)
    return made


def journal_of(scene: Scene, *, here: Here | None = HERE) -> Journal:
    journal = scene.folder().journal()
    journal.here = here
    return journal


def kept(scene: Scene, base: int) -> Path:
    return scene.path / f"krepair~{PLAN_ID}" / "keep" / name(base)


def made_anew(path: Path) -> None:
    """The same bytes and the same time in another file, as a copy has them."""
    other = path.with_name("copy")
    shutil.copy2(path, other)
    other.rename(path)


@pytest.mark.parametrize(
    ("other", "moved"),
    [
        ({}, False),
        ({"file_system": "60"}, True),
        ({"inode": 3}, True),
        ({"host": "broker-2"}, True),
        ({"log_dir": "/mnt"}, False),
    ],
    ids=["the same", "another file system", "another folder", "another host", "another path to it"],
)
@pytest.mark.parametrize("is_plans", [True, False])
def test_journal_that_says_where_it_is_has_moved_if_it_is_elsewhere(
    scene: Scene, other: dict[str, Any], moved: bool, is_plans: bool
) -> None:
    here = replace(HERE, **other)
    assert has_moved(scene.folder(), journal_of(scene), here, is_plans=is_plans) is moved


@pytest.mark.parametrize("is_plans", [True, False])
def test_journal_that_does_not_say_where_it_is_has_moved_unless_the_directory_is_the_plans(
    scene: Scene, is_plans: bool
) -> None:
    journal = journal_of(scene, here=None)
    assert has_moved(scene.folder(), journal, HERE, is_plans=is_plans) is not is_plans


@pytest.mark.parametrize(
    ("state", "moved"),
    [
        ("committing", True),
        ("committed", True),
        ("undoing", True),
        ("rolled back", False),
        ("undone", False),
        ("freed", False),
    ],
)
def test_one_kept_file_with_another_inode_shows_a_copy_while_it_is_kept_for_its_change(
    scene: Scene, state: str, moved: bool
) -> None:
    made_anew(kept(scene, 300))
    journal = journal_of(scene)
    assert journal.states[GROUP] == "committed"
    journal.states[GROUP] = state
    assert has_moved(scene.folder(), journal, HERE, is_plans=True) is moved


def test_kept_file_of_another_time_or_size_was_written_and_shows_no_copy(scene: Scene) -> None:
    for path, changed in ((kept(scene, 100), "time"), (kept(scene, 300), "size")):
        made_anew(path)
        before = path.stat()
        if changed == "size":
            path.write_bytes(path.read_bytes() + b"more")
        os.utime(path, ns=(0, before.st_mtime_ns + (changed == "time")))
    assert not has_moved(scene.folder(), journal_of(scene), HERE, is_plans=True)


def test_kept_file_that_is_gone_shows_no_copy(scene: Scene) -> None:
    kept(scene, 300).unlink()
    assert not has_moved(scene.folder(), journal_of(scene), HERE, is_plans=True)


def test_original_that_is_kept_as_a_real_copy_never_had_the_inode_of_its_record(scene: Scene) -> None:
    assert name(200) in journal_of(scene).intents[GROUP].copied  # type: ignore[union-attr]
    made_anew(kept(scene, 200))
    assert not has_moved(scene.folder(), journal_of(scene), HERE, is_plans=True)
