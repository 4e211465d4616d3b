"""Commit, undo and purge of a partition; stopped at every call: ``test_every_kind``, failed: ``torture``."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.commit.change_files import ChangeFiles
from krepair.commit.executor import ExecutionResult
from krepair.commit.fence import Watch
from krepair.commit.group import GroupFiles
from krepair.commit.guards import SafePoints, signals_wait
from krepair.commit.partition import commit_partition, undo_partition
from krepair.commit.purge import purge_partition
from krepair.commit.status import ChangeState, status_in
from krepair.errors import (
    DamagedJournalError,
    ExitCode,
    InterruptedAtSafePointError,
    LockedError,
    LockLostError,
)
from krepair.plan.model import Commit
from tests.commit.scene import (
    FENCED,
    FOLDER,
    P1,
    P2,
    PLAN_ID,
    LockUntil,
    Scene,
    Tree,
    UnsyncedDisk,
    name,
    put,
    tree,
)
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import each_stop, telling_stops

COMMITS = {"P1 fenced": FENCED, "P1": P1, "P2": P2, "P2 fenced": Commit(order="P2", fence=True, why="")}
both_orders = pytest.mark.parametrize("commit", [FENCED, P2], ids=["P1 fenced", "P2"])
commits = pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS.keys())


def applied(tmp_path: Path, commit: Commit) -> Tree:
    scene = Scene(tmp_path / "whole")
    assert all(outcome.outcome == "committed" for outcome in scene.apply(commit))
    return scene.now()


def states(scene: Scene) -> list[ChangeState]:
    return list(status_in(scene.folder(), scene.partition).values())


def stopped_applies(root: Path, commit: Commit) -> Iterator[tuple[int, Scene]]:
    """A scene for each call that tells something new and before which an apply is stopped, and the call's number."""
    whole = RecordingDisk(UnsyncedDisk())
    Scene(root / "recorded").apply(commit, whole)
    for number in telling_stops(whole.calls):
        scene = Scene(root / str(number))
        with pytest.raises(SimulatedCrash):
            scene.apply(commit, StoppingDisk(UnsyncedDisk(), number, FILE_CHANGING))
        yield number, scene


@commits
def test_apply_puts_the_new_files_in_place_and_nothing_else(tmp_path: Path, commit: Commit) -> None:
    scene = Scene(tmp_path / "logs")
    outcomes = scene.apply(commit)
    expected = dict(scene.before)
    for base in (100, 200, 300, 400, 500):
        for extension in (".log", ".index", ".timeindex", ".txnindex"):
            expected.pop(f"t-0/{name(base, extension)}", None)
    for base in (200, 300, 500):
        del expected[f"t-0/{name(base, '.snapshot')}"]
    for base, mtime_s in ((100, 1_300), (400, 1_500)):
        for extension, content in scene.staged[base].items():
            expected[f"t-0/{name(base, extension)}"] = (0o640, mtime_s * 10**9 + 7, content)
    expected[f"t-0/{name(0, '.timeindex')}"] = (0o640, 3_000 * 10**9 + 7, scene.new_index)
    assert expected == scene.now()
    assert [(one.change_id, one.outcome) for one in outcomes] == [
        (c.change_id, "committed") for c in scene.partition.changes
    ]
    assert states(scene) == [ChangeState.COMMITTED] * 3


@pytest.mark.slow
@both_orders
@pytest.mark.parametrize("base", [0, 100], ids=["below the group", "of the group"])
def test_no_swap_is_made_beside_what_a_brokers_cleaner_has_begun_meanwhile(
    tmp_path: Path, commit: Commit, base: int
) -> None:
    """Every broker that starts deletes a swap at or above the lowest cleaned file, and its originals are gone then."""
    for stops, scene in stopped_applies(tmp_path, commit):
        theirs = scene.path / f"{name(base)}.cleaned"
        if theirs.exists():
            continue  # it is of the plan
        theirs.write_bytes(b"of a cleaner")
        second = RecordingDisk(UnsyncedDisk())
        scene.apply(commit, second)
        assert [call for call in second.calls if call.target.endswith(".swap")] == [], stops
        assert theirs.read_bytes() == b"of a cleaner", stops
    assert stops > 60


@both_orders
@pytest.mark.parametrize("base", [0, 100], ids=["below the group", "of the group"])
def test_no_undo_is_begun_beside_what_a_brokers_cleaner_has_begun_meanwhile(
    tmp_path: Path, commit: Commit, base: int
) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.apply(commit)
    theirs = scene.path / f"{name(base)}.cleaned"
    theirs.write_bytes(b"of a cleaner")
    was = scene.now()
    outcomes = scene.undo(commit)
    assert [outcome.outcome for outcome in outcomes] == ["failed", "skipped"]
    assert f"{theirs}: " in outcomes[0].why
    assert scene.now() == was
    theirs.unlink()
    scene.undo(commit)
    assert scene.before == tree(scene.root)


@both_orders
def test_no_original_is_lost_beside_a_cleaned_log_that_is_the_very_log_in_its_place(
    tmp_path: Path, commit: Commit
) -> None:
    """A broker's cleaner that finds nothing to clean writes the same bytes once more, with the same time."""
    tried = 0
    for stops, scene in stopped_applies(tmp_path, commit):
        log, new = scene.path / name(100), scene.staged[100][".log"]
        theirs, places = Path(f"{log}.cleaned"), (log, Path(f"{log}.swap"))
        ours = next((path for path in places if path.exists() and path.read_bytes() == new), None)
        if ChangeState.COMMITTING not in states(scene) or ours is None or theirs.exists():
            continue
        tried += 1
        shutil.copy2(ours, theirs)
        shutil.copytree(scene.root, tmp_path / "stopped", symlinks=True)
        for verb in (scene.apply, scene.undo):
            verb(commit)
            assert theirs.exists() or ours != log, stops
            theirs.unlink(missing_ok=True)
            scene.apply(commit)
            scene.undo(commit)
            assert scene.before == tree(scene.root), stops
            shutil.rmtree(scene.root)
            shutil.copytree(tmp_path / "stopped", scene.root, symlinks=True)
        shutil.rmtree(tmp_path / "stopped")
    assert tried > 2


def test_purge_removes_what_is_kept_and_then_nothing_can_be_undone(tmp_path: Path) -> None:
    whole = applied(tmp_path, FENCED)
    scene = Scene(tmp_path / "logs")
    scene.apply()
    assert purge_partition(scene.folder()) > 0
    assert whole == tree(scene.root)
    assert states(scene) == [ChangeState.PURGED] * 3
    assert purge_partition(scene.folder()) == 0
    assert all(outcome.outcome == "already" for outcome in scene.undo())
    assert whole == tree(scene.root)


def test_a_stop_asked_for_takes_effect_between_groups_and_the_fence_is_down(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    safe_points = SafePoints()

    def stage_and_ask(change: object) -> None:
        scene.stage(scene.partition.changes[0])
        safe_points.request("SIGTERM")

    with pytest.raises(InterruptedAtSafePointError):
        commit_partition(scene.folder(), scene.partition, FENCED, scene.guards(safe_points), stage_and_ask)
    assert states(scene) == [ChangeState.COMMITTED, ChangeState.PLANNED]
    assert not (scene.path / f"krepair~{PLAN_ID}" / "fence").exists()
    assert scene.before[".kafka_cleanshutdown"] == scene.now()[".kafka_cleanshutdown"]
    assert [o.outcome for o in scene.apply()] == ["committed"] * 2


def test_a_lost_lock_stops_before_the_next_group(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    guards = dataclasses.replace(scene.guards(), lock=LockUntil(0, LockedError("gone")))
    with pytest.raises(LockLostError) as caught:
        commit_partition(scene.folder(), scene.partition, FENCED, guards, scene.stage)
    assert caught.value.exit_code == ExitCode.LOCKED
    with pytest.raises(LockLostError):
        undo_partition(scene.folder(), scene.partition, FENCED, guards)
    assert scene.before == tree(scene.root)


def test_a_lock_lost_in_the_middle_is_partly_and_nothing_more_is_touched(tmp_path: Path) -> None:
    whole = applied(tmp_path, FENCED)
    for good in range(1, 8):
        scene = Scene(tmp_path / str(good))
        disk = RecordingDisk(UnsyncedDisk())
        lock = LockUntil(good)
        guards = dataclasses.replace(scene.guards(), lock=lock)
        lost: LockLostError | None = None
        try:
            commit_partition(scene.folder(disk), scene.partition, FENCED, guards, scene.stage)
        except LockLostError as error:
            lost = error
        if lost is not None:
            changed = tree(scene.root) != scene.before
            assert lost.exit_code is (ExitCode.PARTLY if changed else ExitCode.REFUSED)
            assert "nothing more is changed" in lost.message
        else:
            assert lock.left >= 0
        assert all(outcome.outcome == "committed" for outcome in scene.apply())
        assert whole == scene.now()


@pytest.mark.parametrize(
    "changed",
    [
        name(300),
        name(200, ".timeindex"),
        name(300, ".snapshot"),
        name(600, ".log.swap"),
        name(700),
    ],
)
def test_a_file_that_changed_since_the_plan_is_named_and_nothing_is_swapped(
    tmp_path: Path, changed: str
) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    with open(scene.path / changed, "ab") as file:
        file.write(b"more")
    was = scene.now()
    outcomes = scene.apply()
    assert [o.outcome for o in outcomes] == ["failed", "skipped"]
    failure = outcomes[0]
    assert failure.failed
    assert failure.exit_code == ExitCode.STALE_PLAN
    assert changed in failure.why
    assert was == scene.now()


def test_the_newest_snapshot_is_never_taken(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    for snapshot in scene.path.glob("*.snapshot"):
        if snapshot.name > name(300, ".snapshot"):
            snapshot.unlink()
    was = scene.now()
    failure = scene.apply()[0]
    assert failure.failed
    assert failure.exit_code == ExitCode.REFUSED
    assert was == scene.now()


def test_an_empty_or_missing_staged_log_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    failure = scene.apply(stage=lambda change: None)[0]
    assert failure.failed
    assert failure.exit_code == ExitCode.REFUSED
    assert "is missing" in failure.why
    scene.staged[100][".log"] = b""
    failure = scene.apply()[0]
    assert failure.failed
    assert failure.exit_code == ExitCode.REFUSED
    assert scene.before == scene.now()


def test_staged_log_without_bytes_is_refused_even_where_the_plan_expects_none(tmp_path: Path) -> None:
    """An empty ``.swap`` makes a broker bring the originals back."""
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.staged[100][".log"] = b""
    first, second = scene.partition.changes
    changes = (msgspec.structs.replace(first, log_bytes=0), second)
    scene.partition = msgspec.structs.replace(scene.partition, changes=changes)
    failure = scene.apply()[0]
    assert failure.failed
    assert (failure.exit_code, scene.now()) == (ExitCode.REFUSED, scene.before)
    assert "has no bytes" in failure.why


def test_stale_group_is_refused_before_anything_is_staged_for_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    put(scene.path / name(200), b"written since", 5_000)
    staged: list[str] = []
    outcomes = scene.apply(stage=lambda change: staged.append(change.change_id))
    assert [outcome.outcome for outcome in outcomes] == ["failed", "skipped"]
    assert staged == []


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_what_an_interrupted_run_renamed_is_synced_before_the_next_run_changes_anything(
    tmp_path: Path, verb: str
) -> None:
    scene = Scene(tmp_path / "logs")
    if verb == "undo":
        scene.apply()
    with pytest.raises(SimulatedCrash):
        getattr(scene, verb)(disk=StoppingDisk(UnsyncedDisk(), 25, FILE_CHANGING))
    disk = RecordingDisk(UnsyncedDisk())
    getattr(scene, verb)(disk=disk)
    first = next(
        number
        for number, call in enumerate(disk.calls)
        if call.kind in {"rename", "link", "unlink"} and "/journal" not in call.path
    )
    synced = {
        os.path.relpath(call.path, scene.path) for call in disk.calls[:first] if call.kind == "sync_dir"
    }
    private = f"krepair~{PLAN_ID}"
    assert synced >= {".", private, f"{private}/stage", f"{private}/keep", f"{private}/out"}


@pytest.mark.parametrize("commit", [FENCED, P2], ids=["U1", "U2"])
@pytest.mark.parametrize("rewritten", [True, False], ids=["rewritten", "deleted"])
def test_undo_refuses_when_the_new_segment_was_written_since(
    tmp_path: Path, commit: Commit, rewritten: bool
) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.apply(commit)
    log = scene.path / name(400)
    log.unlink()
    if rewritten:
        log.write_bytes(b"cleaned by a broker")
    was = scene.now()
    outcomes = scene.undo(commit)
    assert [o.outcome for o in outcomes] == ["failed", "skipped"]
    failure = outcomes[0]
    assert failure.failed
    assert failure.exit_code == ExitCode.STALE_PLAN
    assert name(400) in failure.why
    assert was == scene.now()


@pytest.mark.parametrize("commit", [FENCED, P2], ids=["U1", "U2"])
@pytest.mark.parametrize(
    ("suffix", "longer", "later", "stops"),
    [
        (".log", True, False, True),
        (".log", False, True, True),
        (".index", True, False, True),
        (".index", False, True, False),
    ],
)
def test_undo_of_a_group_stops_before_its_first_step_where_what_is_kept_has_another_size_or_its_log_another_time(
    tmp_path: Path, commit: Commit, suffix: str, longer: bool, later: bool, stops: bool
) -> None:
    """A broker's look at a kept index may touch its time."""
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.apply(commit)
    (kept,) = scene.path.glob(f"krepair~*/keep/{400:020d}{suffix}")
    status = kept.stat()
    if longer:
        kept.write_bytes(kept.read_bytes() + b"x")
    os.utime(kept, ns=(status.st_atime_ns, status.st_mtime_ns + later * 1_000_000_000))
    was = scene.now()
    outcomes = scene.undo(commit)
    if not stops:
        assert not [outcome for outcome in outcomes if outcome.failed]
        return
    assert [outcome.exit_code for outcome in outcomes if outcome.outcome == "failed"] == [ExitCode.STALE_PLAN]
    assert any(f"{400:020d}{suffix}: is not the original of" in outcome.why for outcome in outcomes)
    assert was == scene.now()


def test_undo_works_after_a_broker_appended_to_the_active_segment(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs")
    scene.apply()
    with open(scene.path / name(600), "ab") as file:
        file.write(b"new records")
    active = scene.now()[f"t-0/{name(600)}"]
    scene.undo()
    assert scene.before | {f"t-0/{name(600)}": active} == tree(scene.root)


def test_undo_is_not_called_done_while_an_original_is_not_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.apply()
    remove_litter = GroupFiles.remove_litter

    def and_another_process_takes_one(group: GroupFiles) -> None:
        remove_litter(group)
        (scene.path / name(200)).unlink(missing_ok=True)

    monkeypatch.setattr(GroupFiles, "remove_litter", and_another_process_takes_one)
    failures = [outcome for outcome in scene.undo() if outcome.failed]
    assert [failure.why for failure in failures if "is not the original that was kept" in failure.why]
    assert ChangeState.UNDOING in states(scene)


def test_apply_refuses_to_go_over_an_interrupted_undo(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "logs", index_change=False)
    scene.apply()
    with pytest.raises(SimulatedCrash):
        scene.undo(FENCED, StoppingDisk(UnsyncedDisk(), 12, FILE_CHANGING))
    assert ChangeState.UNDOING in states(scene)
    failure = next(o for o in scene.apply() if o.failed)
    assert (failure.exit_code, str(failure.next_command)) == (ExitCode.REFUSED, "krepair undo PLAN")
    scene.undo()
    assert scene.before == tree(scene.root)


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_what_a_broker_left_of_a_swap_is_removed_and_its_own_leftovers_stay(
    tmp_path: Path, verb: str
) -> None:
    """2.x leaves index swaps beside the log that it finished; every version sets originals aside first."""
    scene = Scene(tmp_path / "logs", index_change=False)
    private = scene.path / f"krepair~{PLAN_ID}"
    stops = 0
    while not (private / "keep" / name(300)).exists() or (scene.path / name(300)).exists():
        stops += 1
        with pytest.raises(SimulatedCrash):
            scene.apply(P1, StoppingDisk(UnsyncedDisk(), stops, FILE_CHANGING))
    for base, extension in itertools.product((100, 200, 300), (".log", ".index", ".timeindex", ".txnindex")):
        (scene.path / name(base, extension)).unlink(missing_ok=True)
    (scene.path / name(100, ".log.swap")).rename(scene.path / name(100))
    for index in (private / "stage").glob(f"{100:020d}.*index"):
        shutil.copy2(index, scene.path / index.name)
    shutil.copy2(private / "stage" / name(100, ".index"), scene.path / name(100, ".index.swap"))
    os.link(private / "keep" / name(300), scene.path / name(300, ".log.deleted"))
    put(scene.path / name(0, ".log.deleted"), b"not ours", 5_000)
    outcomes = scene.apply(P1) if verb == "apply" else scene.undo(P1)
    assert not [o for o in outcomes if o.failed]
    left = sorted(p.name for p in scene.path.iterdir() if p.name.endswith((".swap", ".cleaned", ".deleted")))
    assert left == [name(0, ".log.deleted")]
    if verb == "apply":
        scene.undo(P1)
    (scene.path / name(0, ".log.deleted")).unlink()
    assert scene.before == tree(scene.root)


def test_signals_only_ask_for_a_stop_and_the_old_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with signals_wait(SafePoints()) as safe_points:
        safe_points.check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(InterruptedAtSafePointError, match="SIGTERM"):
            safe_points.check()
    assert before == signal.getsignal(signal.SIGTERM)


def test_outside_the_main_thread_work_goes_on_with_the_signals_as_they_are() -> None:
    before, seen = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        given = SafePoints()
        with signals_wait(given) as safe_points:
            seen.append((safe_points is given, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(True, before)]


@both_orders
def test_a_lost_last_record_of_the_journal_never_costs_an_original(tmp_path: Path, commit: Commit) -> None:
    """A damaged last record looks like one that was torn and never happened; what is kept must stay all the same."""
    refused = 0
    for stop in range(8, 60, 3):
        scene = Scene(tmp_path / str(stop))
        with pytest.raises(SimulatedCrash):
            scene.apply(commit, StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))
        journal = scene.path / f"krepair~{PLAN_ID}" / "journal"
        if not journal.exists():
            continue
        lines = journal.read_bytes().split(b"\n")
        journal.write_bytes(b"\n".join(lines[:-2]) + b"\n" + lines[-2][:-1] + b"!\n")
        try:
            failed = any(outcome.failed for outcome in scene.undo(commit))
        except DamagedJournalError:
            failed = True
        refused += failed
        assert failed or tree(scene.root) == scene.before, stop
        for shown, row in scene.before.items():
            kept = scene.path / f"krepair~{PLAN_ID}" / "keep" / Path(shown).name
            here = scene.root / shown
            if shown.endswith(".log"):
                assert row[2] in {path.read_bytes() for path in (here, kept) if path.exists()}, (stop, shown)
    assert refused


def test_files_of_a_half_done_change_that_is_taken_back_are_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop in each_stop(every=True):
        scene = Scene(tmp_path / str(stop.number))
        with stop as disk:
            scene.apply(disk=disk)
        change = scene.partition.changes[0].change_id
        if scene.folder().journal().unfinished() == [change]:
            break
    done: list[object] = []
    go_back = ChangeFiles.go_back

    def going_back(*given: Any, committed: bool) -> ExecutionResult:
        came = go_back(*given, committed=committed)
        done.append("taken back")
        return came

    monkeypatch.setattr(ChangeFiles, "can_go_on", lambda *given: False)
    monkeypatch.setattr(ChangeFiles, "go_back", going_back)
    monkeypatch.setattr(Watch, "look_again", lambda watch, paths: done.append(list(paths)))
    scene.apply()
    assert done[:2] == ["taken back", [f"{FOLDER}/{name(0, '.timeindex')}"]]
