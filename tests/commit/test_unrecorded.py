"""The last record of a journal is damaged: what files tell is never overlooked, and nothing is left half done."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit.journal import Journal
from krepair.commit.purge import purge_partition
from krepair.commit.steps import CLEANED
from krepair.commit.unrecorded import check_all_recorded, is_all_recorded
from krepair.durable.disk import Disk
from krepair.errors import DamagedJournalError, RefusedError
from krepair.formats.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, SWAP
from krepair.plan.model import Commit
from tests.commit.scene import FENCED, P1, P2, PLAN_ID, Scene, Tree, UnsyncedDisk, name, tree
from tests.durable.disks import RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import EVERY_CALL, each_stop, telling_stops
from tests.pairs import meeting_in_pairs

PRIVATE = f"krepair~{PLAN_ID}"
COMMITS = {"P1 fenced": FENCED, "P1": P1, "P2": P2}
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a byte": lambda line: line[:40] + bytes([line[40] ^ 1]) + line[41:],
    "its end": lambda line: line[:-1] + b"\x0b",
    "a sector of zeros": lambda line: line[:20] + bytes(40) + line[60:],
    "cut off": lambda line: line[: len(line) // 2],
}


def damage(scene: Scene, how: str) -> bool:
    """Damages the last record, if there is one behind the header."""
    path = scene.path / PRIVATE / "journal"
    if not path.exists():
        return False
    *lines, last = path.read_bytes().splitlines(keepends=True)
    if not lines or len(last) < 80:
        return False
    path.write_bytes(b"".join(lines) + DAMAGE[how](last))
    return True


def whole_states(root: Path, commit: Commit) -> list[Tree]:
    """The directory with none of the changes done, with the first, with the first two, with all."""
    states = []
    for count in range(4):
        scene = Scene(root / str(count))
        scene.partition = replace(scene.partition, changes=scene.partition.changes[:count])
        if count:
            scene.apply(commit)
        states.append(scene.now())
    return states


def journal_of(scene: Scene) -> Journal:
    folder = scene.folder()
    return Journal(folder.disk, folder.private, folder.plan_id, folder.folder)


WHEREVER = list(itertools.product(("apply", "undo"), DAMAGE, COMMITS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "how", "commit"), WHEREVER if EVERY_CALL else meeting_in_pairs(WHEREVER, lambda case: case)
)
def test_damaged_wherever_a_verb_was_stopped_every_verb_ends_right_or_changes_nothing(
    memory_dir: Path, verb: str, how: str, commit: str
) -> None:
    _stop_everywhere(memory_dir, verb, how, COMMITS[commit], each=1 if EVERY_CALL else 2)


@pytest.mark.slow
@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS)
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_damaged_in_places_of_a_verb_every_verb_ends_right_or_changes_nothing(
    memory_dir: Path, verb: str, commit: Commit
) -> None:
    _stop_everywhere(memory_dir, verb, "a byte", commit, each=4)


def begun(root: Path, verb: str, commit: Commit) -> tuple[Scene, Callable[[Disk], object]]:
    """A scene, and the verb that is to be stopped there."""
    scene = Scene(root)
    if verb == "undo":
        scene.apply(commit)
    return scene, partial(scene.apply if verb == "apply" else scene.undo, commit)


def _stop_everywhere(root: Path, stopped: str, how: str, commit: Commit, *, each: int = 1) -> None:
    none, *_, every = whole = whole_states(root / "whole", commit)
    expected = {"apply": [every], "undo": [none], "purge": whole}
    refused = ended = 0
    recording = RecordingDisk(UnsyncedDisk())
    begun(root / "recorded", stopped, commit)[1](recording)
    for verb, ends in expected.items():
        for stop in telling_stops(recording.calls)[::each]:
            scene, run = begun(root / "logs", stopped, commit)
            with pytest.raises(SimulatedCrash):
                run(StoppingDisk(UnsyncedDisk(), stop))
            if damage(scene, how):
                was = scene.now()
                if _ends_right(scene, verb, commit):
                    assert (_but_for_fence(scene.now()) if verb == "purge" else scene.now()) in [
                        _but_for_fence(end) if verb == "purge" else end for end in ends
                    ], (stop, verb)
                    ended += 1
                elif scene.now() != was:
                    # An undo that was half done goes on; one that is to begin says first that it has to.
                    assert scene.now() in whole, (stop, verb)
                else:
                    refused += 1
            shutil.rmtree(scene.root)
    assert ended
    assert refused


def _but_for_fence(found: Tree) -> Tree:
    """With a damaged journal a fence is purged, too: the next start of a broker is as after an unclean stop."""
    left = {CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT}
    return {name: row for name, row in found.items() if name not in left}


def _ends_right(scene: Scene, verb: str, commit: Commit) -> bool:
    try:
        if verb == "purge":
            purge_partition(scene.folder())
            return True
        outcomes = scene.apply(commit) if verb == "apply" else scene.undo(commit)
    except RefusedError:
        return False
    return not any(outcome.failed for outcome in outcomes)


def stopped_in_the_first_group(root: Path) -> Scene:
    """The index is done; of the first group the intent is damaged, and two of its originals are out."""
    for stop in each_stop(every=True):
        shutil.rmtree(root, ignore_errors=True)
        scene = Scene(root)
        with stop as disk:
            scene.apply(P1, disk)
        assert stop.happened
        if not (scene.path / name(200)).exists():
            break
    assert damage(scene, "a byte")
    return scene


@pytest.mark.parametrize("verb", ["apply", "undo", "purge"])
def test_group_whose_record_is_lost_is_named_and_nothing_is_touched_not_even_the_damaged_record(
    memory_dir: Path, verb: str
) -> None:
    scene = stopped_in_the_first_group(memory_dir / "logs")
    before = scene.now()
    journal = (scene.path / PRIVATE / "journal").read_bytes()
    why = "its last record is damaged, and .* tells that a change was begun"
    if verb != "apply":
        with pytest.raises(DamagedJournalError, match=why):
            purge_partition(scene.folder()) if verb == "purge" else scene.undo(P1)
    else:
        first, *_ = scene.apply(P1)
        assert first.failed
        assert "its last record is damaged" in first.why
    assert scene.now() == before
    assert (scene.path / PRIVATE / "journal").read_bytes() == journal
    assert all((scene.path / PRIVATE / "keep" / name(base)).exists() for base in (100, 200, 300))


@pytest.mark.parametrize("suffix", [CLEANED, SWAP])
def test_purge_leaves_no_swap_behind_of_which_the_record_is_lost(memory_dir: Path, suffix: str) -> None:
    """Every original is in its place, so nothing that is kept is needed; but nobody would know whose the swap is."""
    scene = Scene(memory_dir / "logs", index_change=False)
    swap = scene.path / f"{name(100)}{suffix}"
    for stop in each_stop(every=True):
        shutil.rmtree(scene.root)
        scene = Scene(memory_dir / "logs", index_change=False)
        with stop as disk:
            scene.apply(P2, disk)
        if swap.exists():
            break
    journal = scene.path / PRIVATE / "journal"
    header, *_ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(header)
    before = tree(scene.root)
    waiting = [path for path in scene.path.iterdir() if path.suffix in {CLEANED, SWAP}]
    with pytest.raises(DamagedJournalError, match="|".join(path.name for path in waiting)) as refused:
        purge_partition(scene.folder())
    assert tree(scene.root) == before
    assert str(refused.value.next_command).startswith("krepair undo ")
    for path in waiting:
        path.unlink()
    purge_partition(scene.folder())
    assert not (scene.path / PRIVATE).exists()


def test_swap_of_which_no_record_is_left_tells_before_any_original_is_out(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs")
    scene.partition = replace(scene.partition, changes=scene.partition.changes[:1])
    scene.apply(P1)
    with (scene.path / PRIVATE / "journal").open("ab") as file:
        file.write(b'00000000 [{"type":"begin"}]\n')
    planned = {file.name for file in scene.partition.files}
    check_all_recorded(scene.folder(), journal_of(scene), planned)
    (scene.path / f"{name(100)}.swap").write_bytes(b"new")
    check_all_recorded(scene.folder(), journal_of(scene), {*planned, f"{name(100)}.swap"})
    with pytest.raises(RefusedError, match=rf"{name(100)}\.swap tells that a change was begun"):
        check_all_recorded(scene.folder(), journal_of(scene), planned)


def test_kept_file_of_a_change_that_is_recorded_tells_nothing(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs")
    scene.apply(P1)
    assert is_all_recorded(scene.folder(), journal_of(scene))
    (scene.path / PRIVATE / "keep" / name(600)).write_bytes(b"another")
    assert not is_all_recorded(scene.folder(), journal_of(scene))


def test_snapshot_that_is_back_tells_of_an_undo_whose_record_is_lost(memory_dir: Path) -> None:
    scene = Scene(memory_dir / "logs", index_change=False)
    scene.apply(P1)
    (scene.path / name(200, ".snapshot")).hardlink_to(scene.path / PRIVATE / "keep" / name(200, ".snapshot"))
    first, *_ = scene.apply(P1)
    assert first.failed
    assert "an undo was begun and has to end first" in first.why
    assert not any(outcome.failed for outcome in scene.undo(P1))
    assert scene.now() == scene.before


def test_new_file_of_a_change_whose_record_is_torn_tells_of_it(memory_dir: Path) -> None:
    """It keeps no original, so nothing else does."""
    scene = Scene(memory_dir / "logs")
    scene.partition = replace(scene.partition, changes=scene.partition.changes[:1])
    scene.apply(P1)
    planned, new = {file.name for file in scene.partition.files}, name(999, ".index")
    (scene.path / new).write_bytes(b"new")
    check_all_recorded(scene.folder(), journal_of(scene), planned, {new})
    with (scene.path / PRIVATE / "journal").open("ab") as file:
        file.write(b'00000000 [{"type":"begin"}]\n')
    check_all_recorded(scene.folder(), journal_of(scene), planned)
    with pytest.raises(RefusedError, match=rf"{new} tells that a change was begun"):
        check_all_recorded(scene.folder(), journal_of(scene), planned, {new})
