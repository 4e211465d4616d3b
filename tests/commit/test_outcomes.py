"""What a run says of each change when one of them fails, and what it does with the others."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.commit import partition
from krepair.commit.begin import Target, begin
from krepair.commit.change_files import ChangeFiles
from krepair.commit.folder import PartitionFolder
from krepair.commit.group import GroupFiles
from krepair.commit.guards import SafePoints
from krepair.commit.journal import Intent, Journal, Order
from krepair.commit.partition import commit_partition, finish_partition, undo_partition
from krepair.commit.result import ChangeResult
from krepair.commit.segments import SwapGroups
from krepair.commit.stepping import run
from krepair.commit.steps import Keep, Put, Restore, replace_steps, staged_extensions, waiting_steps
from krepair.errors import (
    ExitCode,
    InterruptedAtSafePointError,
    LockLostError,
    StalePlanError,
    VerifyFailedError,
)
from krepair.logdir.fingerprint import digest_content
from krepair.plan.model import Change, Commit, FreeWhenVerified, Undo
from tests.commit.scene import (
    FENCED,
    FOLDER,
    P1,
    PLAN_ID,
    LockUntil,
    Scene,
    UnsyncedDisk,
    name,
    put,
    replaced,
    tree,
)
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk

PRIVATE = f"krepair~{PLAN_ID}"
TIMES = tuple(name(base, ".timeindex") for base in (0, 100, 200))


class FailingRename(UnsyncedDisk):
    """A disk on which no file can be renamed over, or out of, a path that contains a text."""

    text = ""

    def rename(self, source: str, target: str) -> None:
        if self.text and self.text in f"{source}\n{target}":
            raise OSError(errno.EIO, os.strerror(errno.EIO), source)
        super().rename(source, target)


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    return Scene(memory_dir / "logs", index_change=False)


@pytest.fixture
def files(memory_dir: Path) -> Scene:
    """Three indexes that are replaced together."""
    made = Scene(memory_dir / "logs", index_change=False)
    changes = tuple(replaced(made.path / file, made.new_index) for file in TIMES)
    made.partition = msgspec.structs.replace(made.partition, changes=changes)
    return made


def kinds(outcomes: list[ChangeResult]) -> list[str]:
    return [outcome.outcome for outcome in outcomes]


def intent_of(scene: Scene) -> Intent:
    journal = Journal(UnsyncedDisk(), f"{scene.path}/{PRIVATE}", PLAN_ID, FOLDER)
    return journal.intents[f"{FOLDER}/{100:020d}"]


# -- files that are replaced together --------------------------------------------------------------------
def test_of_files_replaced_together_those_before_a_failure_stay_and_it_is_taken_back(files: Scene) -> None:
    disk = FailingRename(str(files.root))
    disk.text = f"/{TIMES[1]}"
    outcomes = files.apply(disk=disk)
    assert kinds(outcomes) == ["committed", "failed", "skipped"]
    failure = outcomes[1]
    assert failure.failed
    assert "Input/output error" in failure.why
    assert [(files.path / file).read_bytes() == files.new_index for file in TIMES] == [True, False, False]
    assert kinds(files.apply()) == ["committed"] * 3


def test_a_change_that_was_made_and_cannot_be_looked_at_fails_alone_and_stays(
    files: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kinds(files.apply()) == ["committed"] * 3
    assert all((files.path / file).read_bytes() == files.new_index for file in TIMES)
    is_back = ChangeFiles.is_back

    def unreadable(action: ChangeFiles, folder: PartitionFolder, intent: Any) -> bool:
        if intent.change_id.endswith(TIMES[1]):
            raise OSError(errno.EIO, os.strerror(errno.EIO), TIMES[1])
        return is_back(action, folder, intent)

    with monkeypatch.context() as patched:
        patched.setattr(ChangeFiles, "is_back", unreadable)
        outcomes = files.apply()
    assert kinds(outcomes) == ["committed", "failed", "committed"]
    failure = outcomes[1]
    assert failure.failed
    assert "Input/output error" in failure.why
    assert all((files.path / file).read_bytes() == files.new_index for file in TIMES)
    assert kinds(files.apply()) == ["committed"] * 3


def test_failure_of_an_earlier_file_comes_before_a_stale_later_one(files: Scene) -> None:
    put(files.path / TIMES[2], b"by a broker", 9_000)
    disk = FailingRename(str(files.root))
    disk.text = f"/{TIMES[0]}"
    outcomes = files.apply(disk=disk)
    assert kinds(outcomes) == ["failed", "skipped", "skipped"]
    outcomes = files.apply()
    assert kinds(outcomes) == ["committed", "committed", "failed"]
    assert TIMES[2] in outcomes[2].why  # type: ignore[union-attr]


def test_what_cannot_be_taken_back_either_is_half_done(files: Scene) -> None:
    class Broken(FailingRename):
        def append(self, path: str, data: bytes) -> None:
            if b"rolled back" in data:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            super().append(path, data)

    disk = Broken(str(files.root))
    disk.text = f"/{TIMES[1]}"
    failure = files.apply(disk=disk)[1]
    assert failure.failed
    assert failure.exit_code == ExitCode.PARTLY
    assert kinds(files.apply()) == ["committed"] * 3


def test_undo_of_files_stops_before_one_that_was_written_since(files: Scene) -> None:
    files.apply()
    put(files.path / TIMES[2], b"by a broker", 9_000)
    put(files.path / TIMES[1], b"by a broker", 9_000)
    before = files.now()
    outcomes = files.undo()
    assert kinds(outcomes) == ["failed", "skipped", "skipped"]
    assert files.now() == before


def test_undo_of_files_comes_as_far_as_it_can(files: Scene) -> None:
    files.apply()
    put(files.path / TIMES[0], b"by a broker", 9_000)
    assert kinds(files.undo()) == ["undone", "undone", "failed"]


# -- the fence ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("commit", "fenced"), [(FENCED, True), (P1, False)])
def test_fence_goes_up_only_where_the_plan_says_so_and_once(
    scene: Scene, commit: Commit, fenced: bool
) -> None:
    disk = RecordingDisk(UnsyncedDisk())
    scene.apply(commit, disk)
    places = [call.path for call in disk.calls if call.kind == "make_dir" and call.path.endswith("/fence")]
    assert places == ([f"{scene.path}/{PRIVATE}/fence"] if fenced else [])


def test_fence_never_goes_up_for_single_files(files: Scene) -> None:
    disk = RecordingDisk(UnsyncedDisk())
    files.apply(disk=disk)
    assert not [call for call in disk.calls if "fence" in call.path]


def test_fence_that_cannot_be_taken_down_is_told_by_its_place(scene: Scene) -> None:
    disk = FailingRename(str(scene.root))

    def stage(change: Change) -> None:
        scene.stage(change)
        if change is scene.partition.changes[1]:
            disk.text = f"{PRIVATE}/fence/.kafka_cleanshutdown\n"

    outcomes = scene.apply(disk=disk, stage=stage)
    assert kinds(outcomes) == ["committed", "committed", "failed"]
    failure = outcomes[2]
    assert failure.failed
    assert (failure.change_id, failure.exit_code) == (f"{FOLDER}/fence", ExitCode.PARTLY)
    assert failure.why.startswith("the recovery guard is still set")
    assert kinds(scene.apply()) == ["committed", "committed"]
    assert not os.path.exists(f"{scene.path}/{PRIVATE}/fence")


def test_stop_that_was_asked_for_tells_of_a_fence_that_is_still_up(scene: Scene) -> None:
    disk, safe_points = FailingRename(str(scene.root)), SafePoints()

    def stage(change: Change) -> None:
        scene.stage(change)
        safe_points.request("SIGTERM")
        disk.text = f"{PRIVATE}/fence/.kafka_cleanshutdown\n"

    with pytest.raises(InterruptedAtSafePointError) as caught:
        commit_partition(scene.folder(disk), scene.partition, FENCED, scene.guards(safe_points), stage)
    assert "; the recovery guard is still set" in caught.value.message


# -- what was interrupted ------------------------------------------------------------------------------------
def interrupted(scene: Scene, wanted: Callable[[], bool]) -> None:
    """Stop an apply at the first call at which something is so."""
    for stop in range(1, 200):
        with pytest.raises(SimulatedCrash):
            scene.apply(disk=StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))
        if wanted():
            return
    raise AssertionError("never so")


def announced(scene: Scene) -> bool:
    journal = scene.path / PRIVATE / "journal"
    return journal.exists() and b'"begin"' in journal.read_bytes()


def test_interrupted_group_whose_staged_files_are_gone_is_begun_anew(scene: Scene) -> None:
    interrupted(scene, lambda: announced(scene))
    for file in (scene.path / PRIVATE / "stage").iterdir():
        file.unlink()
    assert kinds(scene.apply()) == ["committed", "committed"]
    assert kinds(scene.undo()) == ["undone", "undone"]
    assert tree(scene.root) == scene.before


def test_lock_that_is_lost_while_an_interrupted_group_is_finished_stops_the_run(scene: Scene) -> None:
    interrupted(scene, lambda: announced(scene))

    guards = dataclasses.replace(scene.guards(), lock=LockUntil(1))
    before = scene.now()
    with pytest.raises(LockLostError):
        finish_partition(scene.folder(), scene.partition, FENCED, guards)
    assert scene.now() == before


def test_committed_group_that_cannot_be_looked_at_is_a_failure(scene: Scene) -> None:
    scene.apply()
    (scene.path / name(100)).unlink()
    (scene.path / name(100)).mkdir()
    outcomes = scene.apply()
    assert kinds(outcomes)[0] == "failed"
    assert "expected a regular file" in outcomes[0].why  # type: ignore[union-attr]


# -- a group and its files -------------------------------------------------------------------------------------
def test_digests_of_all_originals_are_journalled(scene: Scene) -> None:
    digests = {path.name: digest_content(str(path)) for path in scene.path.iterdir()}
    scene.apply()
    intent = intent_of(scene)
    assert {state.name: state.digest for state in intent.originals} == {
        state.name: digests[state.name] for state in intent.originals
    }
    assert len(intent.originals) > 9


def test_group_is_back_once_one_of_its_logs_is(scene: Scene) -> None:
    scene.apply()
    intent = intent_of(scene)
    assert not SwapGroups().is_back(scene.folder(), intent)
    os.link(scene.path / PRIVATE / "keep" / name(300), scene.path / name(300))
    assert SwapGroups().is_back(scene.folder(), intent)


def folder_and_group(scene: Scene) -> tuple[PartitionFolder, Intent]:
    scene.apply()
    return scene.folder(), intent_of(scene)


def test_log_that_a_broker_made_is_not_put_over(scene: Scene) -> None:
    folder, group = folder_and_group(scene)
    put(scene.path / name(200), b"by a broker", 9_000)
    back = Restore(folder.names.keep(name(200)), name(200), "linked")
    with pytest.raises(StalePlanError, match="was written since the plan was applied"):
        run(folder, [back], GroupFiles(folder, group))
    assert (scene.path / name(200)).read_bytes() == b"by a broker"


def test_only_the_kept_file_itself_is_removed_under_the_name_that_a_broker_gave_it(scene: Scene) -> None:
    folder, group = folder_and_group(scene)
    os.link(scene.path / PRIVATE / "keep" / name(200), scene.path / name(200, ".log.deleted"))
    put(scene.path / name(300, ".log.deleted"), b"another segment", 9_000)
    GroupFiles(folder, group).remove_set_aside()
    assert not (scene.path / name(200, ".log.deleted")).exists()
    assert (scene.path / name(300, ".log.deleted")).read_bytes() == b"another segment"


@pytest.mark.parametrize(
    ("extension", "size", "refused"), [(".txnindex", 0, False), (".txnindex", 1, True), (".index", 0, True)]
)
def test_only_an_empty_transaction_index_may_be_gone_after_a_brokers_start(
    memory_dir: Path, extension: str, size: int, refused: bool
) -> None:
    scene = Scene(memory_dir / "logs", index_change=False)
    scene.staged[100][extension] = b"x" * size
    folder, group = folder_and_group(scene)
    (scene.path / name(100, extension)).unlink()
    if refused:
        with pytest.raises(StalePlanError, match="is gone: removed by a broker started in between"):
            GroupFiles(folder, group).check_replaced()
    else:
        GroupFiles(folder, group).check_replaced()


@pytest.mark.parametrize("end", [".log", ".log.swap", ".log.cleaned"])
def test_log_of_somebody_else_under_a_name_of_the_group_is_told(scene: Scene, end: str) -> None:
    folder, group = folder_and_group(scene)
    GroupFiles(folder, group).check_logs()
    put(scene.path / name(200, end), b"by a broker", 9_000)
    with pytest.raises(
        StalePlanError, match=f"{name(200, end)}: expected the original, or the file that this plan made"
    ):
        GroupFiles(folder, group).check_logs()


@pytest.mark.parametrize(("order", "by_way_of_swap"), [("P1", False), ("P2", True)])
def test_indexes_of_a_completed_swap_come_by_way_of_swap_from_3_0_on(
    scene: Scene, order: Order, by_way_of_swap: bool
) -> None:
    """A broker from 3.0 on renames every ``.swap``; one before has renamed the log alone."""
    folder, group = folder_and_group(scene)
    made, index = staged_extensions(group), name(100, ".index")
    staged = folder.names.stage(index)
    waiting = waiting_steps(group, folder.names, order, made)
    assert (Put((staged,), f"{index}.swap") in waiting) is by_way_of_swap
    replacing = replace_steps(group, folder.names, order, made)
    assert (Put((staged, f"{index}.swap"), index) in replacing) is not by_way_of_swap


def test_staged_file_that_is_not_the_one_that_was_read_last_gets_no_name(scene: Scene) -> None:
    folder, group = folder_and_group(scene)
    log = name(100)
    staged = folder.names.stage(log)
    (scene.path / log).rename(scene.path / staged)
    for _ in range(2):
        run(folder, [Put((staged,), f"{log}.swap"), Put((f"{log}.swap",), log)], GroupFiles(folder, group))
        assert folder.holds(log, group.made[0])
    (scene.path / log).unlink()
    put(scene.path / staged, b"another file", 1_300)
    with pytest.raises(VerifyFailedError, match=f"{log}: is not the file that krepair made"):
        run(folder, [Put((staged,), f"{log}.swap")], GroupFiles(folder, group))
    assert not (scene.path / f"{log}.swap").exists()


@pytest.mark.parametrize("damaged", [frozenset(), frozenset({200})])
def test_original_that_is_kept_already_is_not_kept_again(scene: Scene, damaged: frozenset[int]) -> None:
    folder, group = folder_and_group(scene)
    scene.undo()
    folder.make_private_folders()
    log = name(200)
    group = msgspec.structs.replace(group, copied=(log,) if damaged else ())
    keep = Keep(log, folder.names.keep(log), folder.names.out(f"{log}.keep") if damaged else "")
    run(folder, [keep], GroupFiles(folder, group))
    first = folder.state(keep.kept)
    assert first is not None
    assert folder.is_one_file(keep.kept, log) is not bool(damaged)
    run(folder, [keep], GroupFiles(folder, group))
    assert folder.state(keep.kept) == first
    os.utime(scene.path / log, ns=(1, 1))
    run(folder, [keep], GroupFiles(folder, group))
    second = folder.state(keep.kept)
    assert second is not None
    assert second.mtime_ns == 1


def test_pending_swap_is_looked_for_once_for_all_files_that_are_replaced_together(
    files: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(partition, "check_before", lambda target, changes: asked.append(len(changes)))
    assert kinds(files.apply()) == ["committed"] * 3
    assert asked == [3]


def test_after_a_half_done_change_that_cannot_be_finished_the_next_one_is_left_as_it_is(scene: Scene) -> None:
    """Only a journal that was made again can tell of two that are half done."""
    folder = scene.folder()
    for change in scene.partition.changes:
        scene.stage(change)
    for place in ("keep", "out"):
        (scene.path / PRIVATE / place).mkdir()
    target = Target(folder, scene.partition, "P1")
    groups = [begin(target, change) for change in scene.partition.changes]  # type: ignore[arg-type]
    folder.journal().append(*groups)
    put(scene.path / name(200), b"by a broker", 9_000)
    outcomes = finish_partition(scene.folder(), scene.partition, FENCED, scene.guards())
    assert kinds(outcomes) == ["failed", "skipped"]
    assert outcomes[0].change_id == scene.partition.changes[0].change_id
    assert scene.folder().journal().states[groups[1].change_id] == "committing"
    assert (scene.path / name(400)).read_bytes() == b"400.log " * 5


def test_undo_stops_where_somebody_asks_and_where_the_lock_is_lost(scene: Scene) -> None:
    scene.apply()
    applied, safe_points = scene.now(), SafePoints()
    safe_points.request("SIGTERM")
    with pytest.raises(InterruptedAtSafePointError):
        undo_partition(scene.folder(), scene.partition, FENCED, scene.guards(safe_points))
    assert scene.now() == applied

    guards = dataclasses.replace(scene.guards(), lock=LockUntil(1))
    with pytest.raises(LockLostError):
        undo_partition(scene.folder(), scene.partition, FENCED, guards)
    assert scene.now() == applied


def test_undo_that_cannot_be_written_down_is_a_failure_and_changes_nothing(files: Scene) -> None:
    class Broken(FailingRename):
        def append(self, path: str, data: bytes) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    files.apply()
    before = files.now()
    outcomes = files.undo(disk=Broken(str(files.root)))
    assert kinds(outcomes) == ["failed"] * 3
    assert files.now() == before
    assert kinds(files.undo()) == ["undone"] * 3


# -- originals that apply frees --------------------------------------------------------------------------------
def freed_by_apply(scene: Scene, undo: Undo) -> None:
    changes = tuple(msgspec.structs.replace(change, undo=undo) for change in scene.partition.changes)
    scene.partition = msgspec.structs.replace(scene.partition, changes=changes)


def test_the_space_of_freed_originals_is_given_back_durably(scene: Scene) -> None:
    freed_by_apply(scene, FreeWhenVerified())
    disk = RecordingDisk(UnsyncedDisk())
    assert kinds(scene.apply(disk=disk)) == ["committed", "committed"]
    keep = f"{scene.path}/{PRIVATE}/keep"
    calls = [(call.kind, call.path) for call in disk.calls]
    gone = [number for number, (kind, path) in enumerate(calls) if kind == "unlink" and path.startswith(keep)]
    assert len(gone) > 10
    assert ("sync_dir", keep) in calls[gone[-1] :]
    assert os.listdir(keep) == []
    again = RecordingDisk(UnsyncedDisk())
    assert kinds(scene.apply(disk=again)) == ["committed", "committed"]
    assert [call for call in again.calls if call.kind == "unlink"] == []
