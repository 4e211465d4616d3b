"""Somebody was here: what apply, undo and purge do where a change is half done, or done, and files are others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit.guards import Guards, SafePoints
from krepair.commit.journal import FolderListing, Intent, Journal
from krepair.commit.listing import listed, take_listing
from krepair.commit.partition import commit_partition, undo_partition
from krepair.commit.purge import purge_partition
from krepair.commit.result import ChangeResult
from krepair.errors import DamagedJournalError, ExitCode, KrepairError
from krepair.plan.model import Commit
from tests.builders import data
from tests.commit.scene import (
    FENCED,
    FOLDER,
    P1,
    P2,
    PLAN_ID,
    FreeLock,
    Scene,
    Tree,
    UnsyncedDisk,
    name,
    put,
    tree,
)
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import telling_stops

PRIVATE = f"krepair~{PLAN_ID}"
Act = Callable[[Scene], None]


@pytest.fixture
def scene(memory_dir: Path) -> Scene:
    return Scene(memory_dir / "logs", index_change=False)


def killed(scene: Scene, verb: str, stop: int, commit: Commit = FENCED) -> None:
    with pytest.raises(SimulatedCrash):
        getattr(scene, verb)(commit, StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))


def calls(scene: Scene, verb: str, commit: Commit = FENCED) -> list[int]:
    recording = RecordingDisk(UnsyncedDisk())
    getattr(scene, verb)(commit, recording)
    return telling_stops(recording.calls)


def stops(memory_dir: Path, verb: str, commit: Commit) -> list[int]:
    """The calls of a verb that tell something new."""
    whole = Scene(memory_dir / "whole", index_change=False)
    if verb == "undo":
        whole.apply(commit)
    telling = calls(whole, verb, commit)
    shutil.rmtree(memory_dir / "whole")
    return telling


def appended(scene: Scene) -> None:
    with (scene.path / name(600)).open("ab") as log:
        log.write(b"a leader's batch")


def without_marker(scene: Scene) -> None:
    for marker in scene.root.rglob(".kafka_cleanshutdown"):
        marker.unlink()


ACTS: dict[str, Act] = {
    "the active log grew": appended,
    "a segment came": lambda scene: put(scene.path / name(700), b"rolled", 9_000),
    "a closed log is gone": lambda scene: (scene.path / name(0)).unlink(),
    "an index became empty": lambda scene: put(scene.path / name(600, ".index"), b"", 1_600),
    "a cleaner was stopped": lambda scene: put(scene.path / name(0, ".log.cleaned"), b"x", 9_000),
    "the marker is gone": without_marker,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("verb", ["apply", "undo"])
@pytest.mark.parametrize("then", ["apply", "undo", "purge"])
def test_half_done_changes_of_a_folder_that_somebody_wrote_go_nowhere_or_are_settled(
    memory_dir: Path, act: Act, verb: str, then: str
) -> None:
    for stop in stops(memory_dir, verb, FENCED)[::3]:
        scene = Scene(memory_dir / f"{stop}", index_change=False)
        if verb == "undo":
            scene.apply()
        killed(scene, verb, stop)
        if not half_done(scene):
            continue
        act(scene)
        before = scene.now()
        results = run(scene, then)
        failures = [one for one in results if one.failed]
        if any(one.exit_code in {ExitCode.STALE_PLAN, ExitCode.REFUSED} for one in failures):
            assert logs(scene.now()) == logs(before), (stop, failures[0].why)
        assert nothing_lost(scene), stop
        if then == "purge" and failures:
            others = [one for other in ("apply", "undo") for one in run(scene, other) if one.failed]
            if len(others) == 2 and len({one.exit_code for one in others}) == 1:
                said = " ".join(one.why for one in (*failures, *others))
                assert "type mv " in said or "start the broker" in said, said


def half_done(scene: Scene) -> bool:
    return bool(scene.folder().journal().unfinished())


def run(scene: Scene, verb: str) -> list[ChangeResult]:
    if verb != "purge":
        return getattr(scene, verb)()  # type: ignore[no-any-return]
    try:
        purge_partition(scene.folder())
    except KrepairError as error:
        return [
            ChangeResult(
                change_id="",
                partition=FOLDER,
                outcome="failed",
                exit_code=int(error.exit_code),
                why=error.message,
            )
        ]
    return []


def logs(found: Tree) -> Tree:
    return {file: row for file, row in found.items() if ".log" in file}


def nothing_lost(scene: Scene) -> bool:
    """Whether each record is there: of each group the originals or the new log, somewhere."""
    held = {row[2] for file, row in tree(scene.root).items() if ".log" in file}
    for base, sources in ((100, (100, 200, 300)), (400, (400, 500))):
        old = {scene.before[f"{FOLDER}/{name(one)}"][2] for one in sources}
        if not (old <= held or scene.staged[base][".log"] in held):
            return False
    return True


@pytest.mark.parametrize("then", ["apply", "undo", "purge"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_second_name_of_an_original_whose_first_one_is_gone_stays(
    scene: Scene, then: str, count: int
) -> None:
    keep = scene.path / PRIVATE / "keep"
    stop = 0
    while not (keep / name(300)).exists():
        stop += 1
        killed(scene, "apply", stop)
    gone = {base: (scene.path / name(base)).read_bytes() for base in (100, 200, 300)[:count]}
    for base in gone:
        (scene.path / name(base)).unlink()
    results = run(scene, then)
    assert [one.exit_code for one in results if one.failed]
    held = {path.read_bytes() for path in scene.root.rglob("*.log")}
    assert set(gone.values()) <= held


@pytest.mark.parametrize("judged", ["", "an entry is wrong"])
def test_a_swap_that_a_broker_has_finished_counts_as_done_if_its_indexes_are_true(
    scene: Scene, judged: str
) -> None:
    stop = 0
    while not (scene.path / name(100, ".log.swap")).exists():
        stop += 1
        killed(scene, "apply", stop)
    for path in scene.path.glob("*"):
        if path.name[:20] in {f"{base:020d}" for base in (100, 200, 300)} and not path.name.endswith(
            (".swap", ".snapshot")
        ):
            path.unlink()
    (scene.path / name(100, ".log.swap")).rename(scene.path / name(100))
    for extension in (".index", ".timeindex", ".txnindex"):
        put(scene.path / name(100, extension), b"by the broker", 9_000)
    guards = Guards(FreeLock(), SafePoints(), judge=lambda folder, names: judged)
    before = scene.now()
    results = commit_partition(scene.folder(), scene.partition, FENCED, guards, scene.stage)
    if judged:
        assert [one.exit_code for one in results if one.failed] == [ExitCode.STALE_PLAN]
        assert judged in results[0].why
        assert scene.now() == before
        assert (scene.path / PRIVATE / "fence").exists(), "the fence stays as it is"
    else:
        assert not [one for one in results if one.failed], results
        assert not (scene.root / ".kafka_cleanshutdown").exists(), "a broker has been here"


def test_a_fence_that_neither_apply_nor_undo_may_take_down_goes_with_what_is_kept(
    scene: Scene, memory_dir: Path
) -> None:
    private = scene.path / PRIVATE
    stop = calls(scene, "apply")[-1]
    scene.undo()
    while not (private / "fence" / ".kafka_cleanshutdown").exists():
        scene.undo()
        stop -= 1
        killed(scene, "apply", stop)
    assert not half_done(scene)
    [refused] = run(scene, "purge")
    assert refused.exit_code == ExitCode.REFUSED
    assert "the recovery guard is still set" in refused.why
    put(scene.path / name(100), data(100, 1).raw, 9_000)
    before = scene.now()
    for verb in ("apply", "undo"):
        assert [one.exit_code for one in run(scene, verb) if one.failed] == [ExitCode.STALE_PLAN]
        assert scene.now() == before
    [refused] = run(scene, "purge")
    assert refused.exit_code == ExitCode.REFUSED
    assert "type mv " in refused.why
    assert f"{private}/keep/{name(300)}" in refused.why
    assert scene.now() == before
    for kept in list((private / "keep").iterdir()):
        shutil.move(kept, memory_dir / kept.name)
    assert run(scene, "purge") == []
    assert not private.exists()
    assert not (scene.root / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize(("first", "second"), [(P1, P2), (P2, P1)])
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_an_order_of_renames_goes_on_in_that_of_another_broker(
    memory_dir: Path, first: Commit, second: Commit, verb: str
) -> None:
    for stop in stops(memory_dir, verb, first):
        scene = Scene(memory_dir / f"{stop}", index_change=False)
        if verb == "undo":
            scene.apply(first)
        killed(scene, verb, stop, first)
        if verb == "apply":
            assert not [one for one in scene.apply(second) if one.failed], stop
            assert (scene.path / name(100, ".index")).read_bytes() == scene.staged[100][".index"], stop
        assert not [one for one in scene.undo(second) if one.failed], stop
        assert tree(scene.root) == scene.before, stop


# -- a change that is done


def test_a_log_that_a_cleaner_copied_and_left_is_no_undo_that_was_begun(scene: Scene) -> None:
    scene.apply()
    shutil.copy2(scene.path / name(100), scene.path / name(100, ".log.cleaned"))
    assert not [one for one in scene.apply() if one.failed]
    assert run(scene, "purge") == []


def test_a_finished_change_over_which_a_person_put_an_original_back_ends_with_purge(
    scene: Scene, memory_dir: Path
) -> None:
    keep = scene.path / PRIVATE / "keep"
    scene.apply()
    os.unlink(scene.path / name(100))
    shutil.copy2(keep / name(100), scene.path / name(100))
    before = scene.now()
    for verb in ("apply", "undo"):
        assert any(one.failed for one in run(scene, verb)), verb
    [refused] = run(scene, "purge")
    assert "its originals are back, at least in part, this may be the last copy" in refused.why
    assert f"{keep}/{name(200)}" in refused.why
    assert scene.now()[f"{FOLDER}/{name(100)}"] == before[f"{FOLDER}/{name(100)}"]
    for kept in list(keep.iterdir()):
        shutil.move(kept, memory_dir / kept.name)
    [damaged] = run(scene, "purge")
    assert "was written since apply and is damaged" in damaged.why, "the logs of this scene hold no batches"


def derived(scene: Scene, file: str, data: bytes) -> None:
    put(scene.path / file, data, 9_000)


@pytest.mark.parametrize(
    ("file", "data", "back"),
    [
        (name(600, ".txnindex"), b"more", True),  # of the last segment: a later transaction was aborted
        (name(300, ".txnindex"), b"", True),  # of the change itself: it comes back
        (name(0, ".txnindex"), b"an entry", False),
        ("leader-epoch-checkpoint", b"0\n1\n0 0\n", True),
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n4 700\n", True),
        ("leader-epoch-checkpoint", b"0\n1\n0 300\n", False),
        ("leader-epoch-checkpoint", b"0\n1\n2 0\n", False),
        ("leader-epoch-checkpoint", b"0\n0\n", False),
    ],
)
def test_batches_come_back_only_beside_what_was_derived_from_them(
    scene: Scene, file: str, data: bytes, back: bool
) -> None:
    """A recovery derives aborted transactions and epochs from the log that it finds, see ``docs/crash-safety.md``."""
    scene.partition = replace(scene.partition, log_end_offset=660)
    scene.apply()
    if file != name(300, ".txnindex"):
        derived(scene, file, data)
    before = scene.now()
    results = scene.undo()
    if back:
        assert not [one for one in results if one.failed], results
    else:
        assert [one.exit_code for one in results if one.failed] == [ExitCode.STALE_PLAN]
        assert "derived this file again" in results[0].why
        assert scene.now() == before


def test_epochs_before_a_log_start_that_moved_are_not_missed(scene: Scene) -> None:
    scene.partition = replace(scene.partition, log_end_offset=660)
    scene.apply()
    put(scene.root / "log-start-offset-checkpoint", b"0\n1\nt 0 50\n", 9_000)
    derived(scene, "leader-epoch-checkpoint", b"0\n1\n0 50\n")
    assert not [one for one in scene.undo() if one.failed]


# -- what is written down


def test_a_listing_takes_at_most_40_bytes_a_file_and_knows_every_name(scene: Scene) -> None:
    for odd in ("5.log", "partition.metadata", ":x", "\udcff.tmp", f"{7:020d}.log.deleted"):
        (scene.path / odd).write_bytes(b"odd")
    listing = take_listing(scene.folder(), "")
    names = {path.name for path in scene.path.iterdir() if path.is_file()}
    assert set(listed(listing)) == names
    assert len(listing.files) <= 40 * len(names)


def test_listings_are_written_once_in_a_run(scene: Scene) -> None:
    scene.apply()
    folder = scene.folder()
    journal = folder.journal()
    given = [intent.before for intent in journal.intents.values()]
    assert [one is not None for one in given] == [True, False]
    assert journal.listing == given[0]
    assert set(journal.since) == set(journal.intents)


@pytest.mark.parametrize("bad", ["x\0.log", "../x.log", "", ".", "a/b.log", "n" * 256])
def test_a_journal_that_names_no_file_of_a_folder_is_damaged(scene: Scene, bad: str) -> None:
    scene.apply()
    folder = scene.folder()
    intent = next(iter(folder.journal().intents.values()))
    wrong = replace(intent, originals=(*intent.originals, replace(intent.originals[0], name=bad)))
    assert isinstance(wrong, Intent)
    shutil.rmtree(scene.path / PRIVATE / "keep")
    os.unlink(scene.path / PRIVATE / "journal")
    journal = Journal(UnsyncedDisk(), f"{scene.path}/{PRIVATE}", PLAN_ID, FOLDER)
    journal.append(wrong)
    with pytest.raises(DamagedJournalError):
        scene.folder().journal()


def test_journals_of_1_0_0_have_no_listing_and_no_number(scene: Scene) -> None:
    journal = Journal(UnsyncedDisk(), f"{scene.path}/{PRIVATE}", PLAN_ID, FOLDER)
    assert (journal.listing, journal.number, journal.began_with) == (None, 0, {})
    assert FolderListing() == FolderListing(files="", marker="", epochs=())


def test_undo_with_a_guard_of_another_run_begins_no_second_listing_while_one_counts(scene: Scene) -> None:
    scene.apply()
    killed(scene, "undo", 12)
    listing = scene.folder().journal().listing
    undo_partition(scene.folder(), scene.partition, FENCED, scene.guards())
    assert listing is not None
    assert not (scene.path / PRIVATE).exists()
