"""Who may change a partition: the owner of its files, and root; anybody else is refused with the first file's name.

The system is asked with another user id here, while the process stays root. So what the system itself refuses, a
folder that may not be written, is tested with real users in ``tests/ops/test_users.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from krepair.commit.ready import check_may_change, check_may_change_root, check_may_purge
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from tests.commit.scene import PLAN_ID, Scene, name
from tests.durable.descriptors import open_descriptors

BROKER, OTHER = 4711, 4712

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A log directory of the broker's user, who is the one that asks."""
    made = Scene(tmp_path / "logs")
    private = made.path / f"krepair~{PLAN_ID}"
    for folder in ("stage", "keep"):
        (private / folder).mkdir(parents=True, exist_ok=True)
    (private / "keep" / name(0)).write_bytes(b"kept")
    for path in (made.root, *made.root.rglob("*")):
        os.chown(path, BROKER, BROKER)
    monkeypatch.setattr(os, "geteuid", lambda: BROKER)
    monkeypatch.setattr(os, "getegid", lambda: BROKER)
    monkeypatch.setattr(os, "getgroups", lambda: [7])
    return made


def test_owner_may_change_everything(scene: Scene) -> None:
    check_may_change(scene.folder())
    check_may_change_root(Tree(str(scene.root)), str(scene.root))


def test_files_and_folders_that_are_not_there_stand_in_nobodys_way(scene: Scene) -> None:
    for file in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (scene.root / file).unlink()
    check_may_change_root(Tree(str(scene.root)), str(scene.root))
    (scene.path / f"krepair~{PLAN_ID}" / "stage").rmdir()
    check_may_change(scene.folder())


def test_folder_among_the_files_is_nothing_that_is_changed(scene: Scene) -> None:
    inner = scene.path / f"krepair~{PLAN_ID}" / "keep" / "inner"
    inner.mkdir()
    os.chown(inner, OTHER, OTHER)
    check_may_change(scene.folder())


@pytest.mark.parametrize(
    "path",
    [
        f"t-0/{name(100)}",
        f"t-0/{name(660, '.snapshot')}",
        f"t-0/krepair~{PLAN_ID}/keep/{name(0)}",
        f"t-0/krepair~{PLAN_ID}/left",
    ],
)
@pytest.mark.parametrize(("user", "group"), [(OTHER, BROKER), (BROKER, OTHER), (0, 0)])
def test_file_of_somebody_else_is_named(scene: Scene, path: str, user: int, group: int) -> None:
    (scene.root / path).touch()
    os.chown(scene.root / path, user, group)
    with pytest.raises(
        RefusedError, match=f"belongs to user {user}, group {group}; user {BROKER} could"
    ) as caught:
        check_may_change(scene.folder())
    assert str(scene.root / path) in caught.value.message


@pytest.mark.parametrize("file", [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"])
def test_file_of_the_root_that_is_somebody_elses_is_named(scene: Scene, file: str) -> None:
    os.chown(scene.root / file, OTHER, BROKER)
    with pytest.raises(RefusedError, match=f"{file}: belongs to user {OTHER}"):
        check_may_change_root(Tree(str(scene.root)), str(scene.root))
    check_may_change(scene.folder())


def test_file_of_a_group_that_the_user_is_in_is_his_to_give(scene: Scene) -> None:
    os.chown(scene.path / name(100), BROKER, 7)
    check_may_change(scene.folder())


def test_root_may_change_files_of_anybody(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(scene.path / name(100), OTHER, OTHER)
    os.chown(scene.root / ".kafka_cleanshutdown", OTHER, OTHER)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    check_may_change(scene.folder())
    check_may_change_root(Tree(str(scene.root)), str(scene.root))


@pytest.mark.parametrize("path", ["t-0", f"t-0/krepair~{PLAN_ID}", f"t-0/krepair~{PLAN_ID}/keep"])
def test_folder_that_may_not_be_written_is_named(
    scene: Scene, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = os.stat(scene.root / path).st_ino

    def access(place: str, mode: int, *, effective_ids: bool) -> bool:
        assert (mode, effective_ids) == (os.R_OK | os.W_OK | os.X_OK, True)
        return os.stat(place).st_ino != refused

    monkeypatch.setattr(os, "access", access)
    before = open_descriptors(scene.root)
    with pytest.raises(RefusedError, match=f"user {BROKER} may not change this folder") as caught:
        check_may_change(scene.folder())
    assert caught.value.message.startswith(f"{scene.root / path}: ")
    assert open_descriptors(scene.root) <= before + 1  # that of the log directory


def test_root_folder_that_may_not_be_written_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(RefusedError, match="may not change this folder"):
        check_may_change_root(Tree(str(scene.root)), str(scene.root))


@pytest.mark.parametrize("folder", ["stage", "keep", "out", "fence"])
def test_every_folder_of_krepairs_own_is_looked_at_before_a_purge(scene: Scene, folder: str) -> None:
    path = scene.path / f"krepair~{PLAN_ID}" / folder
    path.mkdir(exist_ok=True)
    check_may_purge(scene.folder())
    (path / "file").touch()
    os.chown(path / "file", OTHER, OTHER)
    with pytest.raises(RefusedError, match=f"{folder}/file: belongs to user {OTHER}"):
        check_may_purge(scene.folder())
