"""Lets a broker or a person act on a tree in which krepair was killed, then runs any verb.

A case is ``SCENE:SEED:STEPS+ACT+VERB``, as ``markers:0:apply@91b+session+undo`` or ``keys:0:apply+copy+undo-by-id``.
What must hold, by Kafka's own classes before and after the verb:

- It ends with a documented exit code. What ends with 11, 12 or 13 has changed nothing that a broker sees.
- Every committed record that was served before the verb is served after it; where keys were compacted, the last one of
  each key. No aborted record is shown that was not.
- No bytes that are no batch lie at a log end under the marker of a clean stop, where there was no marker before.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.builders import Record, data
from tests.lab.judge import Judge, JudgeError
from tools.torture.loads import starts_of_folder
from tools.torture.runs import (
    DOCUMENTED,
    Ended,
    Runner,
    Wanted,
    case_folder,
    find_wanted,
    parse_steps,
    plainly,
)
from tools.torture.scenes import CLEAN_MARKER, POINTS, Placed, Scene, Tree, build, differences, look, visible
from tools.torture.state import State

SCENES: Final = (
    "markers",
    "partitions",
    "keys",
    "leftovers",
    "tail-cut",
    "set-aside",
    "excise",
    "indexes",
    "recovery",
    "everything",
    "without-fence-3.9",
)
HISTORIES: Final = ("apply@", "apply", "apply.undo@", "apply.undo@", "apply@", "apply.purge@", "apply@.undo@")
VERBS: Final = ("apply", "undo", "undo", "purge", "undo-by-id", "purge-by-id")
VERSION: Final = "3.9.2"
CASES: Final = 280
"""Of each scene, in a full run."""

_UNCHANGED: Final = frozenset({11, 12, 13})
_MARKER: Final = b'{"version":0,"brokerEpoch":17}'
_LOG_BYTES: Final = 24
_VISIT: Final = b"visit".hex()

Records = dict[int, tuple[str | None, str | None]]
_ORIGINALS: dict[tuple[str, int, bool], dict[str, Records | None]] = {}
"""Scene, seed, and whether all is recovered -> what it serves before the plan."""


class World(NamedTuple):
    """One tree, and who may come to it.

    Attributes:
        path: path of the log directory.
        scene: scene that it was built from.
        judge: loader with Kafka's own classes.
        rng: source of all random choices.
    """

    path: Path
    scene: Scene
    judge: Judge
    rng: random.Random

    def folders(self) -> list[Path]:
        """The partition folders that the plan changes."""
        changing = {partition.folder for partition in self.scene.plan.partitions if partition.changes}
        folders = [path for path in sorted(self.path.iterdir()) if path.is_dir() and path.name in changing]
        return folders or [path for path in sorted(self.path.iterdir()) if path.is_dir()]

    def folder(self) -> Path:
        """One of these folders."""
        return self.rng.choice(self.folders())


def logs(folder: Path) -> list[Path]:
    """Return the segments of a folder, by offset."""
    return sorted(
        path for path in folder.glob("*.log") if len(path.name) == _LOG_BYTES and path.stem.isdigit()
    )


def ends(log: Path) -> list[tuple[int, int]]:
    """Return (position after it, next offset) of each whole batch of format v2."""
    raw, position, offsets = log.read_bytes(), 0, []
    while position + 61 <= len(raw):
        base, length = struct.unpack_from(">qi", raw, position)
        if length < 49 or position + 12 + length > len(raw) or raw[position + 16] != 2:
            break
        position += 12 + length
        offsets.append((position, base + struct.unpack_from(">i", raw, position - 12 - length + 23)[0] + 1))
    return offsets


def log_end(folder: Path) -> int:
    """Return the offset after the last whole batch."""
    for log in reversed(logs(folder)):
        if batch_ends := ends(log):
            return batch_ends[-1][1]
    return int(logs(folder)[-1].stem) if logs(folder) else 0


# -- what a broker does


def start(world: World) -> None:
    """Let a broker load every partition and be killed."""
    for forecast in starts_of_folder(world.path):
        folder = world.path / forecast.folder
        try:
            world.judge.start(
                folder,
                clean=forecast.clean,
                recovery_point=forecast.point,
                log_start=forecast.log_start,
                settings=dict(world.scene.options.settings),
            )
        except JudgeError:
            continue
    (world.path / CLEAN_MARKER).unlink(missing_ok=True)


def start_killed(world: World) -> None:
    """Kill a broker in the middle of its start: some files are as before it, some as after it."""
    before = world.path.with_name("before-start")
    shutil.copytree(world.path, before, symlinks=True, copy_function=shutil.copy2)
    start(world)
    changed = []
    for folder in world.folders():
        old = before / folder.name
        names = {path.name for path in (*folder.iterdir(), *old.iterdir()) if path.is_file()}
        changed += [
            (folder / name, old / name) for name in sorted(names) if _differ(folder / name, old / name)
        ]
    # A log and what replaces it go together: a broker renames, and never has half of one.
    files = [(new, old) for new, old in changed if ".log" not in new.name and ".swap" not in new.name]
    for new, old in files[world.rng.randint(0, len(files)) :]:
        if old.exists():
            shutil.copy2(old, new)
        elif new.suffix in {".index", ".timeindex"}:
            new.write_bytes(bytes(4096))  # as it was reserved
    shutil.rmtree(before)


def _differ(first: Path, other: Path) -> bool:
    if not first.exists() or not other.exists():
        return True
    return first.read_bytes() != other.read_bytes()


def stop_cleanly(world: World) -> None:
    """Set the recovery points to the log ends, and write the clean-shutdown marker."""
    folders = [path for path in sorted(world.path.iterdir()) if path.is_dir() and logs(path)]
    lines = "".join("{} {} {}\n".format(*path.name.rpartition("-")[::2], log_end(path)) for path in folders)
    new = world.path / f"{POINTS}.tmp"
    new.write_text(f"0\n{len(folders)}\n{lines}")
    new.rename(world.path / POINTS)
    (world.path / CLEAN_MARKER).write_bytes(_MARKER)


def session(world: World) -> None:
    """Let a broker start, its leader append, and the broker stop cleanly."""
    start(world)
    for folder in world.folders():
        if logs(folder):
            append(world, folder)
    stop_cleanly(world)


def idle_session(world: World) -> None:
    """Let a broker start and stop cleanly."""
    start(world)
    stop_cleanly(world)


def append(world: World, folder: Path) -> None:
    """Let a leader append a batch after the last whole one."""
    if not logs(folder):
        return
    log, offset = logs(folder)[-1], log_end(folder)
    raw = data(
        offset, [Record(b"visit", b"v%d" % offset)], timestamp=int(time.time() * 1000), leader_epoch=9
    ).raw
    batch_ends = ends(log)
    with log.open("r+b") as file:
        file.truncate(batch_ends[-1][0] if batch_ends else 0)
        file.seek(0, os.SEEK_END)
        file.write(raw)


def cleaner(world: World) -> None:
    """Stop a cleaner so that its new segment waits beside the old one."""
    log = world.rng.choice(logs(world.folder()) or [world.path / "none"])
    if log.exists():
        shutil.copy2(log, f"{log}.cleaned")


def cut_by_leader(world: World) -> None:
    """Let the leader truncate a follower's log, let it fetch other records, and stop it cleanly."""
    start(world)
    folder = world.folder()
    log_paths = logs(folder)
    if log_paths and (batches := ends(log_paths[0])):
        for log in log_paths[1:]:
            for path in folder.glob(f"{log.stem}*"):
                path.unlink()
        os.truncate(log_paths[0], world.rng.choice(batches)[0])
        append(world, folder)
    stop_cleanly(world)


# -- what a person does


def copy(world: World) -> None:
    """Replace the directory by a copy with its times."""
    _copied(world, shutil.copy2)


def copy_without_times(world: World) -> None:
    """Replace the directory by a copy with new times."""
    _copied(world, shutil.copy)


def _copied(world: World, how: Callable[[str, str], object]) -> None:
    new = world.path.with_name("copy")
    shutil.copytree(world.path, new, symlinks=True, copy_function=how)
    shutil.rmtree(world.path)
    new.rename(world.path)


def restore(world: World) -> None:
    """Restore the files of one partition from an earlier backup; krepair's own folder stays."""
    folder = world.folder()
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    _from_backup(world, folder, lambda name: True)


def restore_a_log(world: World) -> None:
    """Restore one log from an earlier backup."""
    folder = world.folder()
    names = [entry.name for entry in _entries(world, folder) if entry.name.endswith(".log")]
    if names:
        chosen = world.rng.choice(names)
        _from_backup(world, folder, lambda name: name == chosen)


def _entries(world: World, folder: Path) -> list[Path]:
    own = (entry for entry in world.scene.entries if entry.data is not None)
    return [Path(entry.name) for entry in own if entry.name.startswith(f"{folder.name}/")]


def _from_backup(world: World, folder: Path, wanted: Callable[[str], bool]) -> None:
    for entry in world.scene.entries:
        place, _, name = entry.name.rpartition("/")
        if place == folder.name and entry.data is not None and wanted(name):
            (folder / name).unlink(missing_ok=True)
            (folder / name).write_bytes(entry.data)
            os.utime(folder / name, ns=(entry.mtime_ns, entry.mtime_ns))


def recreate(world: World) -> None:
    """Delete the topic and create it again."""
    folder = world.folder()
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / f"{0:020d}.log").write_bytes(data(0, 1).raw)
    for suffix in (".index", ".timeindex"):
        (folder / f"{0:020d}{suffix}").write_bytes(b"")


def _delete(world: World, pattern: str, most: int = 1) -> None:
    paths = sorted(world.folder().glob(pattern))
    for path in world.rng.sample(paths, min(most, len(paths))):
        path.unlink()


def _truncate(world: World, pattern: str) -> None:
    paths = sorted(world.folder().glob(pattern))
    if paths:
        path = world.rng.choice(paths)
        batches = [0, *(position for position, _ in ends(path))] if path.suffix == ".log" else [0]
        os.truncate(path, world.rng.choice(batches))


def touch(world: World) -> None:
    """Set the time of all files of a partition to now."""
    for path in world.folder().iterdir():
        if path.is_file():
            os.utime(path)


def stranger(world: World) -> None:
    """Leave files that neither a broker nor krepair knows."""
    for name in ("notes.txt", f"{7:020d}.log.bak"):
        (world.folder() / name).write_bytes(b"somebody's")


def marker_comes(world: World) -> None:
    """Write the clean-shutdown marker, whatever existed before."""
    (world.path / CLEAN_MARKER).write_bytes(_MARKER)


def second_replica(world: World) -> None:
    """Let a broker begin to move the partition to another log directory."""
    folder = world.folder()
    (world.path / f"{folder.name}.{'0' * 31}1-future").mkdir(exist_ok=True)


ACTS: Final[dict[str, Callable[[World], None]]] = {
    "start": start,
    "start-killed": start_killed,
    "session": session,
    "idle-session": idle_session,
    "cleaner": cleaner,
    "cut-by-leader": cut_by_leader,
    "copy": copy,
    "copy-without-times": copy_without_times,
    "restore": restore,
    "restore-a-log": restore_a_log,
    "recreate": recreate,
    "delete-a-log": lambda world: _delete(world, "*.log"),
    "delete-an-index": lambda world: _delete(world, "*index"),
    "delete-logs": lambda world: _delete(world, "*.log", 99),
    "truncate-a-log": lambda world: _truncate(world, "*.log"),
    "truncate-an-index": lambda world: _truncate(world, "*index"),
    "append": lambda world: append(world, world.folder()),
    "marker-goes": lambda world: (world.path / CLEAN_MARKER).unlink(missing_ok=True),
    "marker-comes": marker_comes,
    "touch": touch,
    "stranger": stranger,
    "second-replica": second_replica,
    "nobody": lambda world: None,
}
"""Word -> what happens between the kill and the verb."""


# -- a case


def serve(world: World, *, recovers: bool = False) -> dict[str, Records | None]:
    """Return what a broker gives to readers of committed records, for each partition; None if it cannot load it.

    Args:
        world: tree that is served.
        recovers: true if it first rebuilds all indexes: then it hides every aborted record.
    """
    served: dict[str, Records | None] = {}
    for forecast in starts_of_folder(world.path):
        copied = world.path.with_name("served") / forecast.folder
        copied.mkdir(parents=True)
        try:
            for name, content in forecast.files.items():
                (copied / name).write_bytes(content)
            loaded = world.judge.load(
                copied,
                clean=forecast.clean and not recovers,
                recovery_point=0 if recovers else forecast.point,
                log_start=forecast.log_start,
                settings=dict(world.scene.options.settings) | {"file.delete.delay.ms": "600000"},
                list_records=True,
            )
            served[forecast.folder] = {row.offset: (row.key, row.value) for row in loaded.committed.records}
        except JudgeError:
            served[forecast.folder] = None
        finally:
            shutil.rmtree(copied.parent)
    return served


def torn(path: Path) -> dict[str, int]:
    """Return partition folder -> bytes after the last whole batch of its last log."""
    torn_logs = {}
    for folder in path.iterdir():
        if folder.is_dir() and (files := logs(folder)):
            behind = ends(files[-1])
            torn_logs[folder.name] = files[-1].stat().st_size - (behind[-1][0] if behind else 0)
    return torn_logs


def _true(served: Records | None, original: Records | None) -> Records | None:
    """Return what was committed before the plan, or by the act: an index that hides aborted records may be gone."""
    if served is None or original is None:
        return served
    return {offset: row for offset, row in served.items() if row[0] == _VISIT or original.get(offset) == row}


def _lost(before: Records | None, after: Records | None, *, by_key: bool) -> str:
    if before is None:
        return ""
    if after is None:
        return "cannot be loaded any more"
    if by_key:
        last_before, last_after = (dict(records.values()) for records in (before, after))
        lost = [key for key, value in last_before.items() if value and last_after.get(key) != value]
        return f"the last value of {len(lost)} keys is another one" if lost else ""
    lost_offsets = [offset for offset, row in before.items() if after.get(offset) != row]
    return (
        f"{len(lost_offsets)} committed records are gone, from offset {lost_offsets[0]}"
        if lost_offsets
        else ""
    )


def try_case(
    runner: Runner, scene: Scene, judge: Judge, original: dict[str, Records | None], text: str, work: Path
) -> tuple[str, Ended]:
    """Run one case; gives what is wrong, and how its verb ended."""
    steps, act, verb = text.split("+")
    with case_folder(work) as folder:
        placed = scene.place(folder)
        runs = [runner.run(placed, step) for step in parse_steps(steps)]
        world = World(placed.path, scene, judge, random.Random(f"{scene.name} {text}"))
        ACTS[act](world)
        before, served, was_torn = visible(look(placed.path)), serve(world), torn(placed.path)
        name, by_id, _ = verb.partition("-by-id")
        if by_id:
            placed = Placed(
                placed.path,
                placed.plan,
                placed.plan_file,
                (str(placed.path), "--plan-id", placed.plan.plan_id),
            )
        ended = runner.run(placed, parse_steps(name)[0])
        wrong = _judge(world, ended, before, served, original, was_torn)
        shown = "\n".join(str(each) for each in (*runs, ended))
        return (plainly(f"{wrong}\n{shown}", placed) if wrong else ""), ended


def _judge(
    world: World,
    ended: Ended,
    before: Tree,
    served: dict[str, Records | None],
    original: dict[str, Records | None],
    was_torn: dict[str, int],
) -> str:
    if ended.code not in DOCUMENTED:
        return f"ends with {ended.code}: {ended.last_words()}"
    after_tree = visible(look(world.path))
    if ended.code in _UNCHANGED:
        return differences(after_tree, before) if after_tree != before else ""
    after = serve(world)
    plain = _original(world.scene, world.judge, world.path.parent, recovers=False)
    by_key = world.scene.name.startswith(("keys", "everything"))
    for folder, records in served.items():
        if records == after.get(folder):
            continue
        if plain.get(folder) is None and ended.step.verb == "undo":
            continue  # it could not be loaded before the plan, either
        if lost := _lost(_true(records, original.get(folder)), after.get(folder), by_key=by_key):
            return f"exit {ended.code}: {folder}: {lost}"
        known = [records.get(folder) or {} for records in (plain, original, served)]
        new = [
            offset
            for offset, row in (after.get(folder) or {}).items()
            if row[0] != _VISIT and not any(rows.get(offset) == row for rows in known)
        ]
        if records is not None and new:
            return (
                f"exit {ended.code}: {folder}: shows {len(new)} records that nobody committed, from {new[0]}"
            )
    was_clean = any(entry.name == CLEAN_MARKER for entry in world.scene.entries)
    if (world.path / CLEAN_MARKER).exists() and not was_clean:
        now = torn(world.path)
        for folder, size in now.items():
            if size and not was_torn.get(folder, 0):
                return (
                    f"exit {ended.code}: {folder}: {size} torn bytes are back under a clean-shutdown marker"
                )
    return ""


def cases(name: str, seed: int, wanted: Wanted, most: int) -> Iterator[str]:
    """Yield the cases of a scene: each act with each verb after any kill."""
    rng = random.Random(f"visits {name} {seed}")
    pairs = [(act, verb) for act in ACTS for verb in VERBS]
    rng.shuffle(pairs)
    for number in range(most):
        act, verb = pairs[number % len(pairs)]
        words = []
        for word in rng.choice(HISTORIES).split("."):
            step = word.rstrip("@")
            if word.endswith("@"):
                step = f"{step}@{rng.randint(1, max(wanted.counts[step], 1))}{rng.choice('ba')}"
            words.append(step)
        yield f"{'.'.join(words)}+{act}+{verb}"


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run ``CASES`` of each scene per seed, or ``state.samples`` of them."""
    runner, warm = Runner(), False
    with Judge(VERSION) as judge:
        for seed in seeds:
            for name in SCENES:
                unit = f"{name}:{seed}"
                if state.is_done(unit) or state.time_is_up():
                    continue
                if not warm:
                    runner.warm_up([build(each) for each in SCENES], workdir)
                    warm = True
                scene = build(name, seed)
                figures: Counter[str] = Counter()
                wanted, original = find_wanted(runner, scene, workdir), _original(scene, judge, workdir)
                for text in cases(name, seed, wanted, int(state.most(CASES))):
                    if state.time_is_up():
                        break
                    wrong, ended = try_case(runner, scene, judge, original, text, workdir)
                    figures["cases"] += 1
                    figures[f"ended with {ended.code}"] += 1
                    if wrong:
                        state.wrong(f"{name}:{seed}:{text}", wrong)
                else:
                    state.keep(unit, figures)


def _original(
    scene: Scene, judge: Judge, workdir: Path, *, recovers: bool = True
) -> dict[str, Records | None]:
    key = (scene.name, scene.seed, recovers)
    if key not in _ORIGINALS:
        with case_folder(workdir) as folder:
            world = World(scene.place(folder).path, scene, judge, random.Random(0))
            _ORIGINALS[key] = serve(world, recovers=recovers)
    return _ORIGINALS[key]


def replay(case: str, workdir: Path) -> list[str]:
    """Run one case again."""
    name, seed, text = case.split(":", 2)
    runner, scene = Runner(), build(name, int(seed))
    runner.warm_up([scene], workdir)
    with Judge(VERSION) as judge:
        wrong, _ = try_case(runner, scene, judge, _original(scene, judge, workdir), text, workdir)
    return [wrong] if wrong else []
