"""Whether the inodes of a journal hold where it is, and where each of its files is in a copy of the directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from krepair.journal.actions.mend import CUT
from krepair.journal.moved import Rebound, adopt, bound, has_moved, rebind, timed
from krepair.journal.record import (
    FileState,
    Freed,
    Here,
    Journal,
    LogIntent,
    PurgeIntent,
    Together,
)
from krepair.logdir.fingerprint import digest_content, digest_file
from tests.journal.scene import HERE, P1, PLAN_ID, Scene, name, put, tree
from tests.journal.test_mend import LOG, TIMES, Torn, cut
from tests.ops.stops import each_stop

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


def test_new_log_as_long_and_as_old_as_the_original_is_not_taken_for_it(scene: Scene) -> None:
    journal, original = journal_of(scene), kept(scene, 100).stat()
    intent: Any = journal.intents[GROUP]
    log, *rest = intent.merged
    log = replace(log, size=original.st_size, mtime_ns=original.st_mtime_ns)
    journal.intents[GROUP] = replace(intent, merged=(log, *rest))
    assert not has_moved(scene.folder(), journal, HERE, is_plans=True)


def test_original_that_is_kept_as_a_real_copy_never_had_the_inode_of_its_record(scene: Scene) -> None:
    assert name(200) in journal_of(scene).intents[GROUP].copied  # type: ignore[union-attr]
    made_anew(kept(scene, 200))
    assert not has_moved(scene.folder(), journal_of(scene), HERE, is_plans=True)


# -- where each file is in a copy


def all_made_anew(scene: Scene) -> None:
    """Every file of the partition is another one with the same bytes and the same time."""
    for path in sorted(scene.path.rglob("*")):
        if path.is_file():
            made_anew(path)


def rebound(scene: Scene, journal: Journal | None = None, **given: Any) -> Rebound:
    values: dict[str, Any] = {"partition": scene.partition, "made_too": True} | given
    return rebind(scene.folder(), journal or scene.folder().journal(), **values)


def here(scene: Scene, path: Path) -> FileState:
    found = scene.folder().state(str(path.relative_to(scene.path)))
    assert found is not None
    return replace(found, name=path.name)


@pytest.fixture
def whole(memory_dir: Path) -> Scene:
    """Everything is applied: an index made anew and two groups."""
    made = Scene(memory_dir / "logs")
    made.apply(P1)
    return made


@pytest.mark.parametrize("planned", [True, False], ids=["with its plan", "without a plan"])
def test_in_a_copy_each_file_is_found_where_it_is_with_its_inode(whole: Scene, planned: bool) -> None:
    before = {path: here(whole, path) for path in whole.path.rglob("*") if path.is_file()}
    all_made_anew(whole)
    found = rebound(whole, partition=whole.partition if planned else None)
    assert (found.wrong, found.times_lost, found.torn_bytes) == ((), False, 0)
    keep = kept(whole, 100).parent
    originals = [path for path in before if path.parent == keep]
    made = [whole.path / name(base, end) for base in (100, 400) for end in (".log", ".index")]
    assert len(originals) > 20
    assert {before[path]: here(whole, path) for path in (*originals, *made)}.items() <= found.states.items()


def test_copy_that_lost_the_time_of_a_file_whose_bytes_are_known_is_told(whole: Scene) -> None:
    index = whole.path / name(0, ".timeindex")
    before = here(whole, index)
    all_made_anew(whole)
    os.utime(index, ns=(9, 9))
    found = rebound(whole)
    assert (found.wrong, found.times_lost) == ((), True)
    assert found.states[before].mtime_ns == 9
    found = rebound(whole, read=False)
    assert found.wrong == (f"{kept(whole, 0).parent}/{index.name}: is not there",)


def test_file_whose_bytes_nobody_knows_is_not_known_without_its_time(whole: Scene) -> None:
    all_made_anew(whole)
    os.utime(whole.path / name(100), ns=(9, 9))
    found = rebound(whole)
    assert (found.wrong, found.times_lost) == ((f"{kept(whole, 100)}: is not there",), False)


@pytest.mark.parametrize("time", [True, False], ids=["its time", "another time"])
def test_original_of_other_bytes_is_named_whatever_its_time(whole: Scene, time: bool) -> None:
    all_made_anew(whole)
    before = kept(whole, 300).stat()
    kept(whole, 300).write_bytes(b"x" * before.st_size)
    os.utime(kept(whole, 300), ns=(0, before.st_mtime_ns if time else 9))
    words = f"{kept(whole, 300)}: its bytes are not those that plan {PLAN_ID} has put there"
    assert rebound(whole).wrong == (words,)


@pytest.mark.parametrize("read", [True, False])
def test_new_file_of_other_bytes_under_its_size_and_time_is_named_where_bytes_are_read(
    whole: Scene, read: bool
) -> None:
    all_made_anew(whole)
    index = whole.path / name(0, ".timeindex")
    put(index, b"MENDED INDEX", 3_000)
    words = f"{index}: its bytes are not those that plan {PLAN_ID} has put there"
    assert rebound(whole, read=read).wrong == ((words,) if read else ())
    assert rebound(whole, read=read, made_too=False).wrong == ()


@pytest.mark.parametrize("made_too", [True, False])
def test_new_log_that_is_gone_counts_where_what_was_made_does(whole: Scene, made_too: bool) -> None:
    all_made_anew(whole)
    (whole.path / name(100)).unlink()
    expected = (f"{kept(whole, 100)}: is not there",) if made_too else ()
    assert rebound(whole, made_too=made_too).wrong == expected


def test_new_index_of_a_group_that_is_gone_is_no_fault_since_a_broker_makes_it_anew(whole: Scene) -> None:
    all_made_anew(whole)
    (whole.path / name(100, ".index")).unlink()
    assert rebound(whole).wrong == ()


def test_new_index_of_other_bytes_is_named_although_it_need_not_be_there(whole: Scene) -> None:
    journal, index = whole.folder().journal(), whole.path / name(100, ".index")
    intent: Any = journal.intents[GROUP]
    journal.intents[GROUP] = replace(intent, made={index.name: digest_file(str(index))})
    assert rebound(whole, journal).wrong == ()
    found = index.stat()
    index.write_bytes(b"x" * found.st_size)
    os.utime(index, ns=(0, found.st_mtime_ns))
    words = f"{index}: its bytes are not those that plan {PLAN_ID} has put there"
    assert rebound(whole, journal).wrong == (words,)


@pytest.mark.parametrize("state", ["committing", "rolled back", "undone"])
def test_nothing_that_was_made_has_to_be_there_unless_its_change_is_done(whole: Scene, state: str) -> None:
    (whole.path / name(100)).unlink()
    journal = whole.folder().journal()
    journal.states[GROUP] = state
    assert rebound(whole, journal).wrong == ()


@pytest.mark.parametrize("state", ["rolled back", "undone"])
def test_nothing_is_kept_for_a_change_that_is_not_done(whole: Scene, state: str) -> None:
    kept(whole, 300).unlink()
    journal = whole.folder().journal()
    journal.states[GROUP] = state
    assert rebound(whole, journal).wrong == ()


@pytest.mark.parametrize("planned", [True, False], ids=["with its plan", "without a plan"])
def test_original_of_which_the_journal_has_no_digest_is_known_by_that_of_the_plan(
    whole: Scene, planned: bool
) -> None:
    index = kept(whole, 300).with_name(name(300, ".index"))
    journal, digest, found = whole.folder().journal(), digest_file(str(index)), index.stat()
    intent: Any = journal.intents[GROUP]
    journal.intents[GROUP] = replace(intent, digests={})
    files = [replace(one, digest=digest) if one.name == index.name else one for one in whole.partition.files]
    partition = replace(whole.partition, files=tuple(files)) if planned else None
    assert rebound(whole, journal, partition=partition).wrong == ()
    index.write_bytes(b"x" * found.st_size)
    os.utime(index, ns=(0, found.st_mtime_ns))
    words = f"{index}: its bytes are not those that plan {PLAN_ID} has put there"
    assert rebound(whole, journal, partition=partition).wrong == ((words,) if planned else ())


def test_index_that_a_broker_made_anew_under_another_time_is_no_fault(whole: Scene) -> None:
    journal, index = whole.folder().journal(), whole.path / name(100, ".index")
    intent: Any = journal.intents[GROUP]
    journal.intents[GROUP] = replace(intent, made={index.name: digest_file(str(index))})
    put(index, b"x" * index.stat().st_size, 9)
    assert rebound(whole, journal).wrong == ()


def test_new_file_that_is_equal_to_the_original_is_not_taken_for_the_kept_one(whole: Scene) -> None:
    """Both may be empty indexes."""
    index = whole.path / name(100, ".index")
    original = kept(whole, 100).with_name(index.name)
    recorded = here(whole, original)
    shutil.copy2(original, index)
    new = here(whole, index)
    journal = whole.folder().journal()
    intent: Any = journal.intents[GROUP]
    merged = [replace(new, inode=1) if one.name == index.name else one for one in intent.merged]
    journal.intents[GROUP] = replace(intent, merged=tuple(merged))
    found = rebound(whole, journal)
    assert (found.wrong, found.torn_bytes) == ((), 0)
    assert found.states[recorded] == here(whole, original)
    assert found.states[replace(new, inode=1)] == new


def test_of_two_files_with_the_bytes_of_an_original_the_one_with_its_time_is_it(whole: Scene) -> None:
    recorded = here(whole, kept(whole, 300))
    put(whole.path / name(300), kept(whole, 300).read_bytes(), 9)
    found = rebound(whole)
    assert (found.states[recorded], found.times_lost) == (recorded, False)


def test_new_log_of_another_size_under_its_time_is_another_file(whole: Scene) -> None:
    log = whole.path / name(100)
    found = log.stat()
    log.write_bytes(log.read_bytes() + b"more")
    os.utime(log, ns=(0, found.st_mtime_ns))
    assert rebound(whole).wrong == (f"{kept(whole, 100)}: is not there",)


def test_empty_file_is_known_without_its_time_and_its_bytes(whole: Scene) -> None:
    index = whole.path / name(100, ".index")
    put(index, b"", 9)
    journal = whole.folder().journal()
    intent: Any = journal.intents[GROUP]
    empty = FileState(name=index.name, size=0, mtime_ns=1, inode=1)
    merged = [empty if one.name == index.name else one for one in intent.merged]
    journal.intents[GROUP] = replace(intent, merged=tuple(merged), made={})
    assert rebound(whole, journal).states[empty] == here(whole, index)


@pytest.mark.parametrize("place", ["out/{}.back", "out/{}"])
def test_original_on_its_way_back_is_found_there(whole: Scene, place: str) -> None:
    original = kept(whole, 300)
    recorded, way = here(whole, original), original.parent.parent / place.format(original.name)
    way.parent.mkdir(exist_ok=True)
    original.rename(way)
    found = rebound(whole)
    assert (found.wrong, found.torn_bytes) == ((), 0)
    assert found.states[recorded].inode == way.stat().st_ino
    put(original, way.read_bytes(), 9)
    assert rebound(whole).torn_bytes == 0, "only an original in its place was one file with the kept one"


def test_kept_file_of_another_size_was_never_one_with_the_original_in_its_place(whole: Scene) -> None:
    shutil.copy2(kept(whole, 300), whole.path / name(300))
    assert rebound(whole).torn_bytes == kept(whole, 300).stat().st_size
    kept(whole, 300).write_bytes(b"half")
    assert rebound(whole).torn_bytes == 0


def freed(scene: Scene) -> Journal:
    """The originals of the first group went when what replaces them had been read again."""
    journal, log = scene.folder().journal(), scene.path / name(100)
    journal.states[GROUP] = "freed"
    journal.freed[GROUP] = Freed(change_id=GROUP, made={log.name: digest_content(str(log))})
    for path in kept(scene, 0).parent.glob("*00[123]00.*"):
        path.unlink()
    return journal


def test_change_that_was_freed_has_its_new_files_and_no_originals(whole: Scene) -> None:
    log = whole.path / name(100)
    journal, found = freed(whole), log.stat()
    assert rebound(whole, journal).wrong == ()
    log.write_bytes(b"x" * found.st_size)
    os.utime(log, ns=(0, found.st_mtime_ns))
    words = f"{log}: its bytes are not those that plan {PLAN_ID} has put there"
    assert rebound(whole, journal).wrong == (words,)
    log.unlink()
    assert rebound(whole, journal).wrong == (f"{kept(whole, 100)}: is not there",)
    journal.purging = PurgeIntent(changes=())
    assert rebound(whole, journal).wrong == ()


def test_file_like_an_original_that_was_freed_is_not_taken_for_it_in_its_place(whole: Scene) -> None:
    recorded = here(whole, kept(whole, 300))
    shutil.copy2(kept(whole, 300), whole.path / name(300))
    assert rebound(whole, freed(whole)).states[recorded].inode == 0


@pytest.mark.parametrize("made_too", [True, False])
@pytest.mark.parametrize("purging", [True, False])
def test_original_that_is_gone_is_a_fault_unless_the_purge_has_begun(
    whole: Scene, purging: bool, made_too: bool
) -> None:
    all_made_anew(whole)
    lost = here(whole, kept(whole, 300))
    recorded = next(state for state in rebound(whole).states if state.name == lost.name)
    kept(whole, 300).unlink()
    journal = whole.folder().journal()
    journal.purging = PurgeIntent(changes=()) if purging else None
    found = rebound(whole, journal, made_too=made_too)
    assert found.wrong == (() if purging else (f"{kept(whole, 300)}: is not there",))
    assert found.states[recorded].inode == 0


def test_change_that_was_never_begun_has_no_files(whole: Scene) -> None:
    journal = whole.folder().journal()
    journal.states = {"t-0/never begun": "rolled back", **journal.states}
    assert rebound(whole, journal) == rebound(whole)


def test_originals_that_were_one_file_in_two_places_and_are_two_are_counted(memory_dir: Path) -> None:
    """While a group is kept, each original has two names; a copy without hard links makes two files of it."""
    seen = set()
    for stop in each_stop(step=3):
        scene = Scene(memory_dir / str(stop.number), index_change=False)
        scene.damaged = frozenset({200})  # kept as real copies, which are two files anyway
        with stop as disk:
            scene.apply(P1, disk)
        journal = scene.folder().journal()
        if not journal.unfinished():
            continue
        keep = kept(scene, 0).parent
        twice = [path for path in keep.iterdir() if (scene.path / path.name).exists()]
        both = [path for path in twice if path.samefile(scene.path / path.name)]
        sizes = sum(path.stat().st_size for path in both)
        assert rebound(scene, journal).torn_bytes == 0
        all_made_anew(scene)
        assert rebound(scene, journal).torn_bytes == sizes, stop.number
        assert rebound(scene, journal).wrong == (), stop.number
        staged = {here(scene, path) for path in keep.with_name("stage").iterdir()}
        inodes = {(state.name, state.inode) for state in rebound(scene, journal).states.values()}
        begun = {state.name for intent in journal.intents.values() for state in intent.merged}
        assert {(one.name, one.inode) for one in staged if one.name in begun} <= inodes, stop.number
        seen.add(bool(both))
    assert seen == {True, False}


def test_journal_that_was_made_to_fit_says_so_and_every_verb_goes_on(whole: Scene) -> None:
    all_made_anew(whole)
    whole.folder().journal(to_write=True).append(HERE, HERE)
    journal, elsewhere = whole.folder().journal(), replace(HERE, inode=3)
    assert any(isinstance(one, Together) and HERE in one.records for one in journal.records())
    assert has_moved(whole.folder(), journal, elsewhere, is_plans=False)
    bound(journal, rebound(whole))
    for _ in range(2):
        adopt(whole.folder(), whole.folder().journal(), rebound(whole), elsewhere)
    in_memory, journal = journal.intents, whole.folder().journal()
    assert journal.intents == in_memory
    assert journal.here == replace(elsewhere, adopted=True)
    steps = [
        step for one in journal.records() for step in (one.records if isinstance(one, Together) else (one,))
    ]
    assert [step for step in steps if isinstance(step, Here)] == [journal.here]
    assert not has_moved(whole.folder(), journal, elsewhere, is_plans=False)
    whole.undo(P1)
    assert tree(whole.root) == whole.before


# -- a log that is cut in its place


LOST = Rebound({}, (), times_lost=True)
"""Of another partition of a directory that has lost times."""


def of_cut(
    torn: Torn, intent: LogIntent, *, planned: bool = True, state: str = "committed", **given: Any
) -> Rebound:
    journal, change = torn.folder().journal(), torn.change()
    journal.intents[change.change_id], journal.states[change.change_id] = intent, state
    partition = replace(torn.partition, changes=(change,)) if planned else None
    return rebind(torn.folder(), journal, partition, made_too=True, **given)


def test_log_that_is_cut_is_the_same_file_with_another_inode_in_a_copy(memory_dir: Path) -> None:
    torn, intent = cut(memory_dir)
    made_anew(torn.path / LOG)
    inode = (torn.path / LOG).stat().st_ino
    found = of_cut(torn, intent)
    assert (found.wrong, found.times_lost) == ((), False)
    assert intent.original not in found.states
    assert timed([found])[0].states[intent.original] == replace(intent.original, inode=inode)


def test_cut_log_with_the_bytes_of_the_plan_and_another_time_tells_that_times_are_lost(
    memory_dir: Path,
) -> None:
    torn, intent = cut(memory_dir)
    made_anew(torn.path / LOG)
    os.utime(torn.path / LOG, ns=(9, 9))
    assert not of_cut(torn, intent).times_lost, (
        "the cut bytes have the recorded time, which the log gets back"
    )
    os.utime(torn.private / "keep" / (LOG + CUT), ns=(9, 9))
    found = of_cut(torn, intent)
    assert (found.wrong, found.times_lost) == ((), True)
    assert timed([found])[0].states[intent.original].mtime_ns == 9
    assert not of_cut(torn, intent, read=False).times_lost


def test_index_of_a_cut_log_tells_that_times_are_lost_too(memory_dir: Path) -> None:
    torn, intent = cut(memory_dir)
    os.utime(torn.path / TIMES, ns=(9, 9))
    assert of_cut(torn, intent).times_lost


def test_cut_log_of_which_nobody_knows_the_bytes_goes_by_the_whole_directory(memory_dir: Path) -> None:
    torn, intent = cut(memory_dir)
    os.utime(torn.path / LOG, ns=(9, 9))
    found = of_cut(torn, intent, planned=False)
    assert not found.times_lost
    assert timed([found])[0].states[intent.original].mtime_ns == intent.original.mtime_ns
    assert timed([found, LOST])[0].states[intent.original].mtime_ns == 9


def test_cut_log_that_was_written_since_keeps_its_recorded_time_so_that_undo_sees_it(
    memory_dir: Path,
) -> None:
    torn, intent = cut(memory_dir)
    data = (torn.path / LOG).read_bytes()
    (torn.path / LOG).write_bytes(b"x" + data[1:])
    os.utime(torn.path / LOG, ns=(9, 9))
    found = of_cut(torn, intent)
    assert not found.times_lost
    assert timed([found, LOST])[0].states[intent.original].mtime_ns == intent.original.mtime_ns


@pytest.mark.parametrize(
    ("given", "told"),
    [({}, True), ({"read": False}, False), ({"state": "undone"}, False)],
    ids=["done", "bytes are not read", "undone"],
)
def test_cut_bytes_that_are_gone_are_named_while_they_are_kept(
    memory_dir: Path, given: dict[str, Any], told: bool
) -> None:
    torn, intent = cut(memory_dir)
    lost = torn.private / "keep" / (LOG + CUT)
    lost.unlink()
    assert of_cut(torn, intent, **given).wrong == ((f"{lost}: is not there",) if told else ())


def test_log_that_is_gone_has_no_place_in_the_copy(memory_dir: Path) -> None:
    torn, intent = cut(memory_dir)
    (torn.path / LOG).unlink()
    assert intent.original not in timed([of_cut(torn, intent)])[0].states
