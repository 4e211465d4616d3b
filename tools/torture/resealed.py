"""Finds the checks of a plan that are needed although ``apply`` decides again, by applying wrong plans without checks.

    python -m tools.torture.resealed                      all scenes, every field of each plan, two processes
    python -m tools.torture.resealed --scene markers      one of them
    python -m tools.torture.resealed --rows 2             of a list only so many rows, spread over it

- ``field``: one field of a sound plan has another value, and the plan is sealed again.
- ``pair``: two fields of it have.
- ``copy``: the sound plan is applied; the copy of the plan that lies with what it keeps has another value, is sealed
  again, and folders and journals name it. ``undo`` and ``purge`` take the plan from there.
- ``named``: a change names another file of its folder, and fits it; or has one more.
- ``build``: ``krepair/plan/build.py`` makes the plan with one small change of its code.

Wrong is: a verb ends with 0 and the tree is another one than with the sound plan; or what ``undo`` gives back then
is not the original byte for byte; or a verb stops half way and ``undo`` does not give it back; or it says that nothing
was changed and has changed something. What the checks object to is asked for each case, so that the table says for each
code how often it alone stood between a plan and harm.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import multiprocessing
import random
import shutil
import signal
import sys
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from krepair.commit import ready
from krepair.errors import ExitCode, KrepairError
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.purge import purge, purge_by_id
from krepair.ops.undo import undo, undo_by_id
from krepair.plan import planfile
from krepair.plan.model import Plan
from krepair.plan.review import review
from tools.torture.crafted import places
from tools.torture.mutants import ROOT, mutants_of, mutated
from tools.torture.scenes import (
    MEMORY,
    PRIVATE,
    SCENES,
    Placed,
    Scene,
    Tree,
    build,
    differences,
    look,
    visible,
)

SCENES_TOO: dict[str, dict[str, Any]] = {
    "keys, no evidence": {"only_replica": ()},
    "markers, as broker": {"only_replica": (), "as_broker": True},
    "keys, as broker": {"only_replica": (), "as_broker": True, "delete_horizon": "newest"},
    "everything~until-verified": {},
}
"""More plans of the same directories: name of a scene, and after a comma what else is typed."""
BUILD = "krepair/plan/build.py"
LEGS = ("field", "pair", "named", "copy", "build")
PAIRS = 60
MOST_SECONDS = 30
NOTHING_CHANGED = frozenset({ExitCode.STALE_PLAN, ExitCode.REFUSED, ExitCode.USAGE})


class Tried(NamedTuple):
    """Result of trying one wrong plan.

    Attributes:
        leg: ``field``, ``pair``, ``copy`` or ``build``.
        scene: name of the scene.
        what: fault of the plan.
        codes: codes of the checks that object.
        ended: ``same``, ``does less`` (it names less), ``refused``, ``half`` (given back), ``crashed`` or ``wrong``.
        why: failure, for ``wrong`` and ``crashed``.
    """

    leg: str
    scene: str
    what: str
    codes: tuple[str, ...]
    ended: str
    why: str = ""


# -- wrong values

_Changes = list[tuple[tuple[Any, ...], Any]]


def others(old: Any, same_key: Sequence[Any]) -> list[Any]:
    """Return values that might replace a value: near ones, borders, and those of other rows."""
    candidates: list[Any]
    if isinstance(old, bool):
        return [not old]
    if isinstance(old, int):
        candidates = [old + 1, old - 1, 0, -1, (1 << 63) - 1]
    elif isinstance(old, float):
        candidates = [old + 1]
    elif isinstance(old, str):
        candidates = ["", f"{old}x", old[:-1], f"../{old}", *WORDS.get(old, ())]
    elif isinstance(old, list):
        candidates = [[], old[:-1], old[1:], [*old, *old[-1:]], old[::-1]]
    else:
        return [None] if old is not None else []
    candidates += list(same_key)[:3]
    return [
        value for number, value in enumerate(candidates) if value != old and value not in candidates[:number]
    ]


_LITERALS = (
    ("truncate", "regenerate", "remove"),
    ("cut", "excise"),
    ("change", "nothing", "left alone"),
    ("P1", "P2"),
    ("inplace", "until-verified", "/tmp"),
    ("next-pass", "newest", "4000000000000", "0"),
    ("none", "in-sync", "only-replica", "as-broker"),
    ("compact", "delete", "compact,delete"),
)
WORDS = {word: [other for other in words if other != word] for words in _LITERALS for word in words}


def _holder(document: Any, path: Sequence[Any]) -> Any:
    for step in path[:-1]:
        document = document[step]
    return document


def kind_of(path: Sequence[Any]) -> tuple[Any, ...]:
    """Return the kind of a field: fields that differ only in a row's number, or a topic's name, share it."""
    kind = tuple("*" if isinstance(step, int) else step for step in path)
    return (*kind[:2], "topic", *kind[3:]) if kind[:2] == ("policy", "settings") and any(kind[2:3]) else kind


def wrong_values(document: Any, rows: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each field with each wrong value; only some of the fields that share a kind, all with 0."""
    of_kind: dict[tuple[Any, ...], list[tuple[Any, ...]]] = collections.defaultdict(list)
    for path in places(document):
        of_kind[kind_of(path)].append(path)
    for paths in of_kind.values():
        values = [_holder(document, path)[path[-1]] for path in paths]
        chosen = (
            paths
            if not rows or len(paths) <= rows
            else [paths[n * (len(paths) - 1) // (rows - 1 or 1)] for n in range(rows)]
        )
        for path in chosen:
            old = _holder(document, path)[path[-1]]
            for value in others(
                old, [value for value in values if value != old and type(value) is type(old)]
            ):
                yield path, value
            if isinstance(path[-1], str):
                yield path, msgspec.UNSET


def other_names(document: Any) -> Iterator[_Changes]:
    """Yield changes of files that the sound plan does not touch, whole and fitting."""
    for number, partition in enumerate(document["partitions"]):
        sizes = {file["name"]: file["size"] for file in partition["files"]}
        folder = partition["folder"]
        for place, change in enumerate(partition["changes"]):
            at = ("partitions", number, "changes", place)
            for name, size in sizes.items():
                if change["type"] == "replace file":
                    new = {"name": name, "change_id": f"{folder}/{name}", "size_before": size}
                    gone = {"method": "remove", "size_after": -1, "digest_after": ""}
                    yield [((*at, key), value) for key, value in new.items()]
                    yield [((*at, key), value) for key, value in (new | gone).items()]
                for key in ("names", "goes", "removes_snapshots"):
                    if name not in change.get(key, [name]):
                        yield [((*at, key), sorted([*change[key], name]))]
            if "base_offset" in change and change["type"] != "rewrite segments":
                for base in (change["base_offset"] + 1, 0):
                    new_id = f"{folder}/{base:020d}{change['change_id'].partition('/')[2][20:]}"
                    yield [((*at, "base_offset"), base), ((*at, "change_id"), new_id)]


def changed(plan: Plan, changes: Sequence[tuple[Sequence[Any], Any]]) -> Plan | None:
    """Return the plan with other values, sealed; None if it is no longer a plan, or equal."""
    document = msgspec.json.decode(planfile.in_full(plan))
    try:
        for path, value in changes:
            holder = _holder(document, path)
            if value is msgspec.UNSET:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
        plan_changed = planfile.seal(planfile.of_full(document))
    except (
        msgspec.ValidationError,
        KeyError,
        IndexError,
        TypeError,
        AttributeError,
        UnicodeEncodeError,
        OverflowError,
    ):
        return None
    return None if plan_changed.digest == plan.digest else plan_changed


# -- what becomes of it


class _TooLongError(Exception):
    pass


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def outside(log_dir: Path) -> Tree:
    """Return the tree as a broker sees it; the clock shows when the files of the root were rewritten."""
    return {
        name: entry._replace(mtime_ns=0 if "/" not in name else entry.mtime_ns)
        for name, entry in visible(look(log_dir)).items()
    }


def run(verb: Any, *words: Any) -> tuple[ExitCode | None, str]:
    """Run a verb; return its exit code, or None and the failure if it must not end so."""
    try:
        with _in_time():
            return verb(*words).exit_code, ""
    except KrepairError as error:
        return error.exit_code, error.message
    except Exception as error:  # the very thing that is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        return None, f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {error}"[:200]


class Sound(NamedTuple):
    """Results of the sound plan: the tree before it, after it, and after its undo."""

    before: Tree
    after: Tree
    undone: Tree
    purged: Tree


def sound_of(scene: Scene, work: Path) -> Sound:
    """Carry out the sound plan, once with undo and once with purge."""
    trees = []
    for number, verb in enumerate((undo, purge)):
        placed = scene.place(work / f"sound-{number}")
        trees.append(outside(placed.path))
        code, why = run(apply, placed.plan, scene.options)
        if code is not ExitCode.DONE:
            raise AssertionError(f"{scene.name}: the sound plan ends with {code}: {why}")
        trees.append(outside(placed.path))
        run(verb, placed.plan, scene.options)
        trees.append(outside(placed.path))
    return Sound(trees[0], trees[1], trees[2], trees[5])


def names_less(plan: Plan, sound: Plan) -> bool:
    """Return whether a plan only leaves out changes of the sound one: such a plan is different, not wrong."""

    def changes(of: Plan) -> set[bytes]:
        root = of.root.changes if of.root is not None else ()
        lines = {line for change in root for line in getattr(change, "lines", ())}
        whole = [change for part in of.partitions for change in part.changes]
        whole += [change for change in root if not hasattr(change, "lines")]
        return {msgspec.json.encode(change) for change in (*whole, *lines)}

    return changes(plan) < changes(sound)


def applied(scene: Scene, sound: Sound, placed: Placed, plan: Plan) -> tuple[str, str]:
    """Apply a wrong plan, undo it, and return how both end."""
    code, why = run(apply, plan, scene.options)
    tree = outside(placed.path)
    strange = _strange(tree, sound)
    if code is ExitCode.DONE and tree != sound.after and (strange or not names_less(plan, placed.plan)):
        return "wrong", f"apply ends with 0 and another tree: {differences(tree, sound.after, 2)}"
    if code in NOTHING_CHANGED and tree != sound.before:
        return "wrong", f"apply ends with {code}: {why}; but {differences(tree, sound.before, 2)}"
    if strange:
        return "wrong", f"apply ends with {code}: {why}; and has made {strange[:2]}"
    if code is not ExitCode.DONE and tree == sound.before:
        return ("crashed", why) if code is None else ("refused", "")
    if scene.keep != "inplace":
        return ("crashed", why) if code is None else ("same" if code is ExitCode.DONE else "half", "")
    back, why_not = run(undo, plan, scene.options)
    given_back = outside(placed.path)
    if given_back != sound.before:
        text = differences(given_back, sound.before, 2)
        return "wrong", f"after apply with {code} undo ends with {back}: {why_not}; {text}"
    if code is None:
        return "crashed", why
    ended = "same" if tree == sound.after else "does less"
    return (ended, "") if code is ExitCode.DONE else ("half", "")


def _strange(tree: Tree, sound: Sound) -> list[str]:
    """Return files of partitions that are neither as before nor as the sound plan makes them."""
    names = [name for name in tree.keys() | sound.before.keys() if "/" in name]
    return sorted(
        name for name in names if tree.get(name) not in (sound.before.get(name), sound.after.get(name))
    )


def exchange_copy(placed: Placed, plan: Plan) -> None:
    """Do what the broker's user can: exchange the copy of the plan, and rename folders and journals to match."""
    for folder in sorted(placed.path.rglob(f"{PRIVATE}{placed.plan.plan_id}*")):
        new = folder.with_name(folder.name.replace(placed.plan.plan_id, plan.plan_id))
        folder.rename(new)
        for file in new.glob("plan"):
            file.unlink()
            file.write_bytes(planfile.dumps(plan))
        journal = new / "journal"
        if journal.exists():
            journal.write_bytes(
                b"".join(_renamed(line, placed.plan, plan) for line in journal.read_bytes().splitlines())
            )


def taken_back(scene: Scene, sound: Sound, placed: Placed, plan: Plan, verb: str) -> tuple[str, str]:
    """Run undo or purge after the sound plan with a forged copy of the plan; return how it ends."""
    run(apply, placed.plan, scene.options)
    exchange_copy(placed, plan)
    by_id = undo_by_id if verb == "undo" else purge_by_id
    wanted = sound.undone if verb == "undo" else sound.purged
    code, why = run(by_id, str(placed.path), plan.plan_id, scene.options)
    tree = outside(placed.path)
    if code is ExitCode.DONE:
        return (
            ("same", "")
            if tree == wanted
            else ("wrong", f"{verb} ends with 0: {differences(tree, wanted, 2)}")
        )
    if code in NOTHING_CHANGED and tree != sound.after:
        return "wrong", f"{verb} ends with {code}: {why}; but {differences(tree, sound.after, 2)}"
    strange = _strange(tree, sound)
    if strange:
        return "wrong", f"{verb} ends with {code}: {why}; and has made {strange[:2]}"
    return ("crashed", why) if code is None else ("refused" if tree == sound.after else "half", "")


def _renamed(line: bytes, old: Plan, new: Plan) -> bytes:
    body = (
        line[9:]
        .replace(old.digest.encode(), new.digest.encode())
        .replace(old.plan_id.encode(), new.plan_id.encode())
    )
    return b"%08x %b\n" % (zlib.crc32(body), body)


# -- the legs


_seen: set[tuple[Any, ...]] = set()
"""Kinds of fields that this process has tried with all values."""


def of_scene(
    name: str, scene: Scene, work: Path, rows: int, legs: Sequence[str], every: int
) -> Iterator[Tried]:
    """Yield every wrong plan of a scene."""
    sound = sound_of(scene, work)
    document = msgspec.json.decode(planfile.in_full(scene.plan))
    rng = random.Random(name)
    everything = list(wrong_values(document, 0))
    pairs = [rng.sample(everything, 2) for _ in range(PAIRS)]

    def some(cases: list[_Changes]) -> list[_Changes]:
        return rng.sample(cases, len(cases) // every)

    known = [
        [wrong_value] for wrong_value in wrong_values(document, rows) if kind_of(wrong_value[0]) in _seen
    ]
    fresh = [
        [wrong_value] for wrong_value in wrong_values(document, rows) if kind_of(wrong_value[0]) not in _seen
    ]
    _seen.update(kind_of(path) for path in places(document))
    singles = fresh + some(known)
    once = some([[wrong_value] for wrong_value in wrong_values(document, 1)])
    named = some(list(other_names(document)))
    for leg, cases in (("field", singles), ("pair", pairs), ("copy", once), ("named", named)):
        for number, changes in enumerate(cases if leg in legs else ()):
            plan = changed(scene.plan, changes)
            if plan is None:
                continue
            changes_text = "; ".join(
                f"{'.'.join(map(str, path))}: {str(value)[:60]}" for path, value in changes
            )
            codes = tuple(sorted({objection.code for objection in review(plan)}))
            for verb in ("undo", *["purge"] * (number % 5 == 0)) if leg == "copy" else ("apply",):
                with _placed(scene, work) as placed:
                    there = changed(placed.plan, changes)
                    if there is None:
                        continue
                    if leg == "copy":
                        ended = taken_back(scene, sound, placed, there, verb)
                        yield Tried(f"copy, {verb}", name, changes_text, codes, *ended)
                    else:
                        yield Tried(leg, name, changes_text, codes, *applied(scene, sound, placed, there))
    if "build" in legs:
        yield from of_builds(name, scene, sound, work)


def of_builds(name: str, scene: Scene, sound: Sound, work: Path) -> Iterator[Tried]:
    """Yield every plan that a mutant of the builder makes."""
    for number, text in enumerate(mutants_of(BUILD).values()):
        with _placed(scene, work) as placed:
            try:
                with _mutated_build(number):
                    plan = make_plan(str(placed.path), scene.options)
            except Exception:
                yield Tried("build", name, text, (), "no plan")
                continue
            if plan.digest == placed.plan.digest:
                yield Tried("build", name, text, (), "the same plan")
                continue
            codes = tuple(sorted({objection.code for objection in review(plan)}))
            yield Tried("build", name, text, codes, *applied(scene, sound, placed, plan))


@contextlib.contextmanager
def _mutated_build(number: int) -> Iterator[None]:
    """Exchange the builder in place: other modules hold references to its functions."""
    from krepair.plan import build as module

    kept = dict(vars(module))
    codes = {
        name: function.__code__
        for name, function in kept.items()
        if hasattr(function, "__code__") and function.__module__ == module.__name__
    }
    tree = mutated((ROOT / BUILD).read_text(), number)
    try:
        exec(compile(tree, BUILD, "exec"), vars(module))
        for name in codes:
            kept[name].__code__ = vars(module)[name].__code__
        yield
    finally:
        vars(module).update(kept)
        for name, code in codes.items():
            kept[name].__code__ = code


@contextlib.contextmanager
def _placed(scene: Scene, work: Path) -> Iterator[Placed]:
    folder = work / "case"
    try:
        yield scene.place(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _tried(name: str, rows: int, legs: Sequence[str], every: int) -> list[Tried]:
    ready.review = lambda plan: []  # type: ignore[attr-defined]
    scene = build(name.partition(",")[0], **SCENES_TOO.get(name, {}))
    with tempfile.TemporaryDirectory(prefix="krepair-resealed-", dir=MEMORY) as work:
        return list(of_scene(name, scene, Path(work), rows, legs, every))


def table(tries: Sequence[Tried]) -> str:
    """Return the results of each leg; and for each code how often it objected, and was the only one that was right."""
    lines = []
    for leg in sorted({tried.leg for tried in tries}):
        ends = Counter(tried.ended for tried in tries if tried.leg == leg)
        lines.append(
            f"{leg}: {sum(ends.values())} plans: "
            + ", ".join(f"{end} {count}" for end, count in ends.most_common())
        )
    wrong = [tried for tried in tries if tried.ended == "wrong"]
    for code in sorted({code for tried in tries for code in tried.codes}):
        objects = [tried for tried in tries if code in tried.codes]
        ends = Counter(tried.ended for tried in objects)
        alone = sum(tried.codes == (code,) for tried in wrong)
        lines.append(f"{code}: {dict(ends)}, alone before harm {alone}")
    lines.append(f"wrong, and nothing objects: {sum(not tried.codes for tried in wrong)}")
    return "\n".join(lines)


def main() -> int:
    """Try everything; the number of wrong plans that no check objects to."""
    parser = argparse.ArgumentParser(prog="python -m tools.torture.resealed", description=__doc__)
    parser.add_argument("--scene", action="append", help="only this; may be repeated")
    parser.add_argument("--rows", type=int, default=3)
    parser.add_argument("--leg", action="append", choices=LEGS, help="only this; may be repeated")
    parser.add_argument("--every", type=int, default=1, help="one in so many, but of new kinds of fields all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="every case, one JSON line each")
    arguments = parser.parse_args()
    names = arguments.scene or [*SCENES, *SCENES_TOO]
    tries: list[Tried] = []
    with multiprocessing.get_context("fork").Pool(arguments.processes) as pool:
        jobs = [
            pool.apply_async(_tried, (name, arguments.rows, arguments.leg or LEGS, arguments.every))
            for name in names
        ]
        for name, job in zip(names, jobs, strict=True):
            more = job.get()
            tries += more
            print(f"{name}: {len(tries)} so far", flush=True)
            if arguments.out:
                with arguments.out.open("ab") as out:
                    out.write(b"".join(msgspec.json.encode(tried._asdict()) + b"\n" for tried in more))
    print(table(tries))
    return sum(tried.ended == "wrong" and not tried.codes for tried in tries)


if __name__ == "__main__":
    sys.exit(main())
