"""``plan --keep DIR`` says in its first lines where DIR may be lost by a reboot, or together with the log directory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.logdir import medium_below
from krepair.logdir.medium_below import disks_of, memory_file_system
from krepair.ops import keep_place
from krepair.ops.plan import make_plan
from krepair.ops.preview import make_preview
from krepair.plan.render import to_markdown
from tests.ops.full_disks import file_system
from tools.torture.scenes import build

MIB = 1 << 20
TITLE = "The originals may be lost where they are copied to"


@pytest.fixture
def in_memory(memory_dir: Path, tmp_path: Path) -> Path:
    """A folder in memory, while the log directory is on a disk."""
    if memory_dir.stat().st_dev == tmp_path.stat().st_dev or not memory_file_system(str(memory_dir)):
        pytest.skip("there is no file system in memory")
    return memory_dir.resolve()


@pytest.fixture
def open_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="krepair-place-") as folder:
        yield Path(folder)


def page(root: Path, keep: str) -> str:
    scene = build("markers")
    placed = scene.place(root)
    return to_markdown(make_plan(str(placed.path), replace(scene.options, keep=keep)))


def test_copies_in_memory_are_said_in_the_first_lines(in_memory: Path, tmp_path: Path) -> None:
    text = page(tmp_path, str(in_memory))
    assert TITLE in text.splitlines()[2], text
    # Markdown escapes the underscores of a name; a temporary folder has one now and then.
    assert f"{in_memory} is in the memory of this host (tmpfs)" in text.replace("\\_", "_")
    assert "keep-place: " in text


def test_a_preview_says_it_too(in_memory: Path, tmp_path: Path) -> None:
    scene = build("markers")
    placed = scene.place(tmp_path)
    preview = make_preview(str(placed.path), replace(scene.options, keep=str(in_memory)))
    assert preview.risks[0].code == "keep-place"
    assert TITLE in to_markdown(preview)


@pytest.mark.parametrize("keep", ["inplace", "until-verified"])
def test_a_plan_that_copies_nothing_says_nothing(in_memory: Path, tmp_path: Path, keep: str) -> None:
    assert TITLE not in page(tmp_path, keep)


def test_a_folder_on_the_disk_of_the_log_directory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    on = {"/log": frozenset({"sda", "sdb"}), "/same": frozenset({"sda"}), "/other": frozenset({"sdc"})}
    monkeypatch.setattr(keep_place, "disks_of", lambda path: on.get(path, frozenset()))
    monkeypatch.setattr(keep_place, "memory_file_system", lambda path: "")
    (same,) = keep_place.unsafe_places("/same", "/log")
    assert "is on a disk of the log directory (sda)" in same
    assert list(keep_place.unsafe_places("/other", "/log")) == []
    assert list(keep_place.unsafe_places("/unknown", "/log")) == []


def test_partitions_and_volumes_are_followed_to_their_disks(tmp_path: Path) -> None:
    for name in ("sda/sda1", "sdb/sdb1", "dm-0/slaves"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("sda/sda1", "sdb/sdb1"):
        (tmp_path / name / "partition").write_text("1\n")
        (tmp_path / "dm-0" / "slaves" / Path(name).name).symlink_to(tmp_path / name)
    assert medium_below.disks_below(str(tmp_path / "dm-0")) == {"sda", "sdb"}
    assert medium_below.disks_below(str(tmp_path / "sdb" / "sdb1")) == {"sdb"}
    assert medium_below.disks_below(str(tmp_path / "gone")) == frozenset()


@pytest.mark.slow
def test_a_file_system_in_a_file_is_on_the_disk_of_that_file(open_dir: Path) -> None:
    if not disks_of(str(open_dir)):
        pytest.skip("the disk of the temporary folder is not known")
    with file_system("ext4", open_dir, 8 * MIB) as mount:
        assert disks_of(str(mount)) == disks_of(str(open_dir))
