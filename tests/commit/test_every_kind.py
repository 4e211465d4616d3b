"""Every kind of change, stopped before every call of every verb, and each verb after it.

One machine in place of a file per kind: kinds x orders x verb x stop x next verb. ``KREPAIR_EVERY_CALL=1`` stops
before each call; else before the first and the last one of those that are alike. What must hold at each stop:

- The next ``apply`` ends with what an apply makes that nothing stopped, ``undo`` with every byte, time and mode of the
  beginning; a verb that refuses has changed nothing, and ``undo`` gives everything back then.
- ``purge`` changes nothing that a broker reads, and ends only where each log is as it was, or as it becomes.
- Nothing is kept only in a folder that is not synced when an original loses its name, and no record of the journal says
  that something is done before the names are durable.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from krepair.commit.begin import Target, begin, executor_of
from krepair.commit.purge import purge_partition
from krepair.commit.status import ChangeState, status_in
from krepair.durable.disk import Disk
from krepair.errors import RefusedError
from krepair.logdir.fingerprint import digest_bytes
from krepair.plan.model import Change, Commit, CompleteSwap, KeepOriginal, NewFile, RewriteSegments
from tests.commit.loader_model import served
from tests.commit.scene import (
    FENCED,
    FOLDER,
    GROUPS,
    P1,
    P2,
    PLAN_ID,
    Scene,
    Tree,
    UnsyncedDisk,
    fingerprint,
    mended,
    name,
    put,
    replaced,
    rolled,
    set_aside,
    tree,
    whole,
)
from tests.durable.disks import FILE_CHANGING, RecordingDisk, SimulatedCrash, StoppingDisk
from tests.ops.stops import EVERY_CALL, telling_stops

PRIVATE = f"krepair~{PLAN_ID}"
ENDS = (".index", ".timeindex", ".txnindex")
BAD, FRONT = b"damage!" * 9, 6
Made = dict[str, bytes]
Built = tuple[tuple[Change, ...], Made]


def files(scene: Scene) -> Built:
    """One is replaced, one is new, two go."""
    put(scene.path / f"{name(700)}.deleted", b"set aside", 1_700, 0o600)
    made = {name(0, ".timeindex"): b"mended index", name(0, ".txnindex"): b"new index"}
    goes = (name(400, ".snapshot"), f"{name(700)}.deleted")
    return tuple(replaced(scene.path / file, made.get(file)) for file in (*made, *goes)), made


def _mended(scene: Scene, behind: bytes) -> Built:
    log, good = name(600), b"good" * 30
    put(scene.path / log, good + BAD + behind, 2_000, 0o604)
    made = {name(600, end): f"front-and-rest{end}".encode() for end in ENDS}
    change = mended(scene.path / log, "excise" if behind else "cut", BAD, good + behind, made, FRONT)
    return (change,), made | ({log: good + behind} if behind else {})


def cut(scene: Scene) -> Built:
    """The last log loses its end."""
    return _mended(scene, b"")


def excise(scene: Scene) -> Built:
    """The last log loses bytes in its middle."""
    return _mended(scene, b"behind" * 11)


def aside(scene: Scene) -> Built:
    """The last two segments go, the last one first."""
    bases = {
        base: tuple(name(base, end) for end in (".log", *ENDS[: 2 + (base == 500)])) for base in (600, 500)
    }
    return tuple(set_aside(base, names) for base, names in bases.items()), {}


def roll(scene: Scene) -> Built:
    """An empty segment at the log end."""
    return (rolled(700),), {name(700, end): b"" for end in (".index", ".timeindex", ".log")}


def swap(scene: Scene, copied: Sequence[int] = (200,)) -> Built:
    """A broker's swap over three segments, one of them damaged; one index of it waits, too."""
    log, sources = name(100), (100, 200, 300)
    put(scene.path / f"{log}.swap", b"all three", 1_300)
    put(scene.path / f"{name(100, '.index')}.swap", b"waits", 1_300)
    goes = [
        name(base, end)
        for base in sources
        for end in (".log", *ENDS)
        if (scene.path / name(base, end)).exists()
    ]
    made = {name(100, end): f"of the swap {end}".encode() for end in ENDS[:2]}
    change = CompleteSwap(
        change_id=f"{FOLDER}/{log}.swap",
        base_offset=100,
        rule="KR601",
        log_bytes=9,
        last_offset=399,
        batches=1,
        replaces=sources,
        goes=(*goes, f"{name(100, '.index')}.swap"),
        copied=tuple(copied),
        makes=tuple(
            NewFile(name=file, size=len(data), digest=digest_bytes(data)) for file, data in made.items()
        ),
        reason="",
        undo=KeepOriginal(),
    )
    return (change,), made


def groups(scene: Scene) -> Built:
    """Two groups of segments become one each."""
    return scene.partition.changes, {}


def all_of_a_partition(scene: Scene) -> Built:
    """In the order of the fixes: groups, files, a cut."""
    (small, some), (log, more) = files(scene), cut(scene)
    return (*scene.partition.changes, *small, *log), some | more


class Kind(Scene):
    """A partition with changes of one kind, or of all."""

    def __init__(self, root: Path, build: Callable[[Scene], Built]) -> None:
        super().__init__(root, index_change=False)
        changes, self.made = build(self)
        known = tuple(fingerprint(path) for path in sorted(self.path.iterdir()) if path.is_file())
        self.partition = replace(self.partition, files=known, changes=changes)
        self.before = tree(root)

    def stage(self, change: Change) -> None:
        """What staging does before the journal begins."""
        if isinstance(change, RewriteSegments):
            super().stage(change)
            return
        stage = self.path / PRIVATE / "stage"
        stage.mkdir(parents=True, exist_ok=True)
        for file in change.files:
            if file.name in self.made and file.how in {"made", "new", "cut"}:
                put(
                    stage / file.name, self.made[file.name], 2_000, 0o604 if file.name == name(600) else 0o640
                )

    def run(self, verb: str, commit: Commit, disk: Disk | None = None) -> bool:
        """Whether a verb came to its end."""
        try:
            if verb == "purge":
                purge_partition(self.folder(disk))
                return True
            outcomes = getattr(self, verb)(commit, disk)
        except RefusedError:
            return False
        return not any(one.failed for one in outcomes)


KINDS = [
    *itertools.product((files, cut, excise, aside, roll), [FENCED]),
    *itertools.product((groups, swap), [FENCED, P2]),
    (all_of_a_partition, P2),
]
STATES = {"apply": ChangeState.COMMITTED, "undo": ChangeState.PLANNED, "purge": ChangeState.PURGED}
VERBS = tuple(STATES)
kinds = pytest.mark.parametrize(
    ("build", "commit"),
    KINDS,
    ids=[f"{build.__name__}-{commit.order}{'-fenced' * commit.fence}" for build, commit in KINDS],
)


def at(root: Path, build: Callable[[Scene], Built], verb: str, commit: Commit) -> Kind:
    """A scene in which a verb can begin."""
    shutil.rmtree(root, ignore_errors=True)
    scene = Kind(root, build)
    assert verb == "apply" or scene.run("apply", commit)
    return scene


@kinds
@pytest.mark.parametrize("verb", VERBS)
def test_stopped_before_any_call_the_next_verb_ends_right_or_changes_nothing(
    memory_dir: Path, build: Callable[[Scene], Built], commit: Commit, verb: str
) -> None:
    root, recording = memory_dir / "logs", RecordingDisk(UnsyncedDisk())
    scene = at(root, build, verb, commit)
    before, begun = scene.before, scene.now()
    assert scene.run(verb, commit, recording)
    ended = scene.now()
    applied = ended if verb == "apply" else begun
    assert (ended == before) is (verb == "undo")
    assert set(status_in(scene.folder(), scene.partition).values()) == {STATES[verb]}
    whole_logs = whole_states(root, build, commit)
    for place, stop in enumerate(telling_stops(recording.calls)):
        for then in VERBS if EVERY_CALL else {"undo", VERBS[place % 3]}:
            scene = at(root, build, verb, commit)
            with pytest.raises(SimulatedCrash):
                scene.run(verb, commit, StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))
            check_whole(scene, build)
            was, why = scene.now(), (stop, then)
            done = scene.run(then, commit)
            if verb == "purge":
                # What is kept may be gone in part: nothing comes back, but where the purge had not begun.
                assert scene.now() == applied or (then == "undo" and done and scene.now() == before), why
                continue
            if then == "purge" or not done:
                assert scene.now() == was, why
            else:
                assert scene.now() == (applied if then == "apply" else before), why
            if done and then == "purge":
                assert not (scene.path / PRIVATE).exists(), why
                assert of_logs(was) in whole_logs, why
            elif then != "undo":
                assert scene.run("undo", commit), why
                assert tree(scene.root) == before, why
            else:
                assert done, why
                assert tree(scene.root) == before, why


@pytest.mark.parametrize("build", [files, cut, excise, aside, roll])
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_no_original_is_lost_where_somebody_left_a_file_after_a_stop_and_purge_ends_the_plan(
    memory_dir: Path, build: Callable[[Scene], Built], verb: str
) -> None:
    root, recording = memory_dir / "logs", RecordingDisk(UnsyncedDisk())
    assert at(root, build, verb, FENCED).run(verb, FENCED, recording)
    for stop, then in itertools.product(telling_stops(recording.calls), ("apply", "undo")):
        scene = at(root, build, verb, FENCED)
        with pytest.raises(SimulatedCrash):
            scene.run(verb, FENCED, StoppingDisk(UnsyncedDisk(), stop, FILE_CHANGING))
        put(scene.path / "notes.txt", b"somebody's", 9_000)
        scene.run(then, FENCED)
        held = {row[2] for row in tree(scene.root).values()}
        lost = [file for file, row in scene.before.items() if row[2] not in held]
        assert lost in ([], [f"{FOLDER}/{name(600)}"] if build is cut else []), (stop, then)
        done = scene.run("undo", FENCED)
        rows = {file: row for file, row in tree(scene.root).items() if not file.endswith("notes.txt")}
        # A log that is kept alone is the last copy: purge leaves it to a person.
        assert rows == scene.before if done else scene.run("purge", FENCED) or build is aside, (stop, then)


def of_logs(found: Tree) -> Tree:
    """The logs, and the clean-shutdown marker: an index can be made again."""
    return {file: row for file, row in found.items() if ".log" in file or file == ".kafka_cleanshutdown"}


def whole_states(root: Path, build: Callable[[Scene], Built], commit: Commit) -> list[Tree]:
    """The logs with none of the changes done, with the first one, with the first two, with all."""
    states = []
    for count in range(len(Kind(root / "counted", build).partition.changes) + 1):
        scene = Kind(root / f"whole-{count}", build)
        scene.partition = replace(scene.partition, changes=scene.partition.changes[:count])
        assert scene.run("apply", commit)
        states.append(of_logs(scene.now()))
    return states


def check_whole(scene: Kind, build: Callable[[Scene], Built]) -> None:
    """A broker that was started now would serve each group as it was, or as it becomes."""
    if build is not groups:
        return
    logs = served(scene.path)
    for base, sources in GROUPS:
        found = {each: logs.pop(each) for each in map(name, sources) if each in logs}
        old = {each: scene.before[f"{FOLDER}/{each}"][2] for each in map(name, sources)}
        assert found in (old, {name(base): scene.staged[base][".log"]})


@kinds
def test_an_executor_tells_how_far_a_change_came_and_what_it_keeps(
    memory_dir: Path, build: Callable[[Scene], Built], commit: Commit
) -> None:
    scene = Kind(memory_dir / "logs", build)
    folder, begun = scene.folder(), []
    folder.make_private_folders()
    for change in scene.partition.changes:
        scene.stage(change)
        intent = begin(Target(folder, scene.partition, commit.order), change)
        executor = executor_of(intent)
        assert {file.name for file in change.files if file.how != "swap"} >= set(intent.names)
        assert (executor.is_committed(folder, intent), executor.can_go_on(folder, intent)) == (False, True)
        assert executor.kept(folder, intent) == []
        for _ in range(2):
            whole(executor.go_on(folder, [intent]))
            assert (executor.is_committed(folder, intent), executor.can_go_on(folder, intent)) == (True, True)
        assert not executor.is_back(folder, intent)
        kept = executor.kept(folder, intent)
        assert all(folder.state(one.path) is not None for one in kept)
        assert len(kept) == len(intent.originals)
        begun.append((executor, intent))
    for executor, intent in reversed(begun):
        executor.check_undo(folder, intent, "committed")
        for _ in range(2):
            whole(executor.go_back(folder, [intent], committed=True))
            assert not executor.is_committed(folder, intent)
        assert executor.is_back(folder, intent) or not intent.originals
    assert tree(scene.root, private=False) == scene.before


@kinds
def test_what_is_kept_is_durable_before_an_original_goes_and_names_before_their_record(
    memory_dir: Path, build: Callable[[Scene], Built], commit: Commit
) -> None:
    """A power cut loses names that are not synced: the last link of an original would be gone with them."""
    scene, gone = Kind(memory_dir / "logs", build), 0
    originals = {str(scene.root / file) for file in scene.before if file.startswith(f"{FOLDER}/")}
    partition, keep = str(scene.path), f"{scene.path}/{PRIVATE}/keep"
    for verb in ("apply", "undo"):
        disk, unsynced = RecordingDisk(UnsyncedDisk()), set[str]()
        assert scene.run(verb, commit, disk)
        for call in disk.calls:
            comes = call.target or call.path
            goes = {"unlink": call.path, "truncate": call.path, "rename": comes}.get(call.kind, "")
            if verb == "apply" and goes in originals:
                gone += 1
                assert keep not in unsynced, call
            if call.kind == "sync_dir":
                unsynced.discard(call.path)
            elif call.kind == "append":
                assert not {partition, keep} & unsynced, call
            elif call.kind in {"link", "rename", "create", "copy", "unlink"}:
                unsynced.add(comes.rpartition("/")[0])
                if call.kind == "rename" and not call.path.startswith(f"{partition}/{PRIVATE}/"):
                    unsynced.add(call.path.rpartition("/")[0])
    assert gone > 0 or build is roll


@pytest.mark.parametrize("commit", [P1, P2], ids=["P1", "P2"])
def test_swap_that_did_not_come_back_whole_is_told_before_what_is_kept_goes(
    memory_dir: Path, commit: Commit
) -> None:
    """Size and time of a kept copy are right, and its bytes are not."""
    scene = Kind(memory_dir / "logs", swap)
    assert scene.run("apply", commit)
    kept = scene.path / PRIVATE / "keep" / name(200)
    was = kept.stat()
    put(kept, b"x" * was.st_size, was.st_mtime_ns // 10**9, 0o640)
    assert not scene.run("undo", commit)
    assert kept.exists()
    assert (scene.path / PRIVATE / "keep" / name(300)).exists()
