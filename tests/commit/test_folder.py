"""Krepair's own folders, and the new files that are staged in them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from krepair.commit.begin import check_fresh, check_staged
from krepair.commit.folder import RootFolder
from krepair.commit.group import GroupFiles
from krepair.commit.journal import MAGIC, VERSION, Done, Intent, JournalHeader, Order, decode_lines
from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.logdir.fingerprint import digest_file
from krepair.plan.model import RewriteSegments
from tests.commit.scene import PLAN_ID, Scene, UnsyncedDisk, name, put

PRIVATE = f"krepair~{PLAN_ID}"


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    made = Scene(memory_dir / "logs", index_change=False)
    for place in ("stage", "keep", "out", "fence"):
        (made.path / PRIVATE / place).mkdir(parents=True)
        (made.path / PRIVATE / place / "file").write_bytes(b"our own")
    return made


def group(scene: Scene) -> RewriteSegments:
    change = scene.partition.changes[0]
    assert isinstance(change, RewriteSegments)
    return change


def test_our_own_folders_and_files_are_taken(scene: Scene) -> None:
    (scene.path / PRIVATE / "journal").write_bytes(b"")
    scene.folder().check_no_links()


@pytest.mark.parametrize("place", ["stage/a", "keep/a", "out/a", "fence/a", "journal"])
def test_link_among_our_own_files_is_refused(scene: Scene, place: str) -> None:
    os.symlink(scene.path / name(100), scene.path / PRIVATE / place)
    with pytest.raises(RefusedError, match="expected a regular file of krepair's own") as caught:
        scene.folder().check_no_links()
    assert caught.value.message.startswith(f"{scene.path}/{PRIVATE}/{place}: ")


@pytest.mark.parametrize("place", ["", "/stage", "/keep", "/out", "/fence"])
def test_link_in_the_place_of_our_own_folder_is_refused(scene: Scene, place: str) -> None:
    os.rename(f"{scene.path}/{PRIVATE}{place}", f"{scene.root}/aside")
    os.symlink(f"{scene.root}/aside", f"{scene.path}/{PRIVATE}{place}")
    with pytest.raises((RefusedError, OSError)):
        scene.folder().check_no_links()


def test_staged_log_is_known_by_its_own_size_and_time_and_an_index_by_its_bytes(scene: Scene) -> None:
    change = group(scene)
    scene.stage(change)
    names = [name(100, end) for end in (".log", ".index", ".timeindex", ".txnindex")]
    for index in names[1:]:
        os.utime(scene.path / PRIVATE / "stage" / index, ns=(5, 5))
    states = check_staged(scene.folder(), change)
    assert [state.name for state in states] == names
    log, index = states[:2]
    assert index.size != log.size
    for other in (
        msgspec.structs.replace(change, log_bytes=index.size),
        msgspec.structs.replace(change, mtime_ns=index.mtime_ns),
    ):
        with pytest.raises(RefusedError, match=f"expected {other.log_bytes} bytes of mtime {other.mtime_ns}"):
            check_staged(scene.folder(), other)
    path = scene.path / PRIVATE / "stage" / index.name
    made = {index.name: digest_file(str(path))}
    assert len(check_staged(scene.folder(), change, made)) == 4
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(VerifyFailedError, match="its bytes are not those that krepair wrote"):
        check_staged(scene.folder(), change, made)


def test_staged_log_of_one_byte_is_a_log(scene: Scene) -> None:
    scene.staged[100][".log"] = b"x"
    change = msgspec.structs.replace(group(scene), log_bytes=1)
    scene.stage(change)
    assert check_staged(scene.folder(), change)[0].size == 1


def test_snapshot_that_a_broker_set_aside_is_not_the_newest(scene: Scene) -> None:
    for snapshot in scene.path.glob("*.snapshot"):
        if snapshot.name > name(300, ".snapshot"):
            snapshot.unlink()
    put(scene.path / name(900, ".snapshot.deleted"), b"", 1)
    with pytest.raises(RefusedError, match="is the newest producer snapshot, which must stay"):
        check_fresh(scene.folder(), scene.partition, group(scene))


def test_folder_in_the_place_of_a_file_is_told(scene: Scene) -> None:
    (scene.path / name(100)).unlink()
    (scene.path / name(100)).mkdir()
    with pytest.raises(StalePlanError, match="expected a regular file"):
        check_fresh(scene.folder(), scene.partition, group(scene))


def intent_of(scene: Scene, order: Order, paths: Mapping[str, str]) -> Intent:
    """A group that has made these files: final name -> where it is."""
    made = []
    for final, path in paths.items():
        found = scene.folder().state(path)
        assert found is not None
        made.append(msgspec.structs.replace(found, name=final))
    return Intent(change_id="c", executor="segments", originals=(), made=tuple(made), order=order)


def test_staged_file_that_was_written_anew_is_not_the_one_of_the_intent(scene: Scene) -> None:
    path = scene.path / PRIVATE / "stage" / name(100)
    put(path, b"staged", 1_000)
    intent = intent_of(scene, "P1", {name(100): f"{PRIVATE}/stage/{name(100)}"})
    assert GroupFiles(scene.folder(), intent).staged_are_there()
    put(path, b"another", 1_000)
    assert not GroupFiles(scene.folder(), intent).staged_are_there()
    path.unlink()
    assert not GroupFiles(scene.folder(), intent).staged_are_there()


@pytest.mark.parametrize(
    ("place", "committed"),
    [(f"{PRIVATE}/stage/{{}}", False), ("{}.cleaned", False), ("{}.swap", True), ("{}", True)],
    ids=["staged", "cleaned", "swap", "in its place"],
)
def test_group_of_p2_is_committed_once_its_last_new_file_is_no_longer_a_cleaned_one(
    scene: Scene, place: str, committed: bool
) -> None:
    log, last = name(100), name(100, ".timeindex")
    put(scene.path / f"{log}.swap", b"new log", 1_000)
    put(scene.path / place.format(last), b"new times", 1_000)
    intent = intent_of(scene, "P2", {log: f"{log}.swap", last: place.format(last)})
    assert GroupFiles(scene.folder(), intent).is_committed() is committed
    assert GroupFiles(scene.folder(), msgspec.structs.replace(intent, order="P1")).is_committed()


def test_journal_of_the_root_is_that_of_a_folder_that_every_krepair_names_by_a_dot(scene: Scene) -> None:
    """Another version goes on only with a journal whose header names the folder as it does."""
    root = RootFolder(UnsyncedDisk(), str(scene.root), scene.path.name, PLAN_ID)
    root.make_private_folders()
    root.journal(to_write=True).append(Done(change_id="c", state="rolled back"))
    header, *_ = decode_lines(Path(root.private, "journal").read_bytes(), "journal")[0]
    assert header == JournalHeader(magic=MAGIC, version=VERSION, plan_id=PLAN_ID, folder=".")
