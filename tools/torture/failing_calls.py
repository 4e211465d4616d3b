"""Makes calls of krepair fail, one at a time or all from one on: full disks, bad disks, missing rights, signals.

What must hold:

- a verb ends with a documented exit code, and never with 0 when something was not done;
- with 11, 12, 13, 15 and 17 a broker sees exactly what it saw before: they say that nothing was changed; so it does
  with 14, where originals stay in place;
- after a failed ``fsync`` a verb never ends with 0, and what that file was to hold is never taken for durable
  because a later ``fsync`` of it went well: the kernel may have thrown the bytes away and marked them clean (Rebello
  and others, "Can Applications Recover from fsync Failures?", ATC 2020);
- when nothing fails any more the same verb ends with 0, and undo gives the original tree, with the clean-shutdown
  marker and the recovery points.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from krepair.errors import ExitCode
from krepair.plan.keep import INPLACE, UNTIL_VERIFIED
from tools.torture.faults import CHANGING, Call, Kind, mask
from tools.torture.runs import (
    MAY_FAIL,
    MOVES_BYTES,
    Ended,
    Part,
    Runner,
    Tried,
    Wanted,
    case_folder,
    judge_end,
    judge_lock,
    judge_snapshots,
    judge_unchanged,
    parse_steps,
    plainly,
)
from tools.torture.scenes import LOCK, PRIVATE, Scene, Tree, differences, look, private, visible
from tools.torture.state import how_many

FAULTS = (
    "fsyncEIO1",
    "fsyncEIO*",
    *(f"{name}{often}" for name in ("ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES") for often in "1*"),
    "EPERM1",
    "EMFILE1",
    "EINTR1",
    "EINTR3",
    "short1",
    "short*",
    "shortENOSPC*",
)
"""Each at every call that may end so; ``1``: once, ``3``: three times, ``*``: for ever."""

TEMPLATES = {
    "apply": ("apply!.apply.undo", "apply!.undo.apply.purge"),
    "undo": ("apply.undo!.undo", "apply.undo!.apply?.undo"),
    "purge": ("apply.purge!.purge", "apply.purge!.undo?.purge"),
}
"""What comes after the verb that fails; which one is chosen by the seed."""

OF_FREED = {
    "apply": ("apply!.apply.purge", "apply!.undo?.apply.purge"),
    "purge": ("apply.purge!.purge", "apply.purge!.undo?.purge"),
}
"""The same of ``--keep until-verified``."""

_MOST_PER_UNIT = 40


def templates_of(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return verb that fails -> templates of a scene, whose name says how its originals are kept."""
    return OF_FREED if name.endswith(f"~{UNTIL_VERIFIED}") else TEMPLATES


def cases(unit: str, wanted: Wanted, samples: float | None) -> Iterator[str]:
    """Yield the steps of every case of a unit, ``scene:seed:verb:fault``."""
    rng = random.Random(unit)
    *_, verb, fault = unit.split(":")
    most = _MOST_PER_UNIT if samples is None else how_many(samples, rng)
    kinds = _kinds(fault)
    count = sum(bool(kinds & mask(call.kind)) for call in wanted.calls[verb])
    numbers: Sequence[int] = range(1, count + 1)
    if count > most and not (samples is None and fault.startswith("fsync")):
        numbers = sorted(rng.sample(numbers, most))
    for number in numbers:
        yield rng.choice(templates_of(unit.partition(":")[0])[verb]).replace("!", f"!{number}{fault}")


def _kinds(fault: str) -> int:
    if fault.startswith("fsync"):
        return mask(Kind.FSYNC)
    return MOVES_BYTES if fault.startswith("short") else MAY_FAIL[fault.rstrip("13*")]


def try_case(runner: Runner, scene: Scene, wanted: Wanted, steps: str, work: Path) -> Tried:
    """Run one case in a folder of its own."""
    ended: list[Ended] = []
    calls: list[Call] = []
    parsed = parse_steps(steps)
    with case_folder(work) as folder:
        placed = scene.place(folder)
        before = wanted.before
        for place, step in enumerate(parsed):
            run = runner.run(placed, step, record=any(map(_is_failed_fsync, calls)))
            ended.append(run)
            calls += run.calls
            tree = look(placed.path)
            wrong = judge_end(run, tree, wanted) or _judge(run, tree, before, scene.keep)
            if not wrong and not step.takes_the_disk_away:
                wrong = judge_lock(tree, wanted)
            if not wrong and run.code and step.fault is None and not step.may_refuse:
                wrong = f"{step.text} ended with {run.code}, it has to end with 0: nothing fails any more"
            if not wrong and run.code == 0:
                wrong = taken_for_durable(calls, placed.path)
            if not wrong and run.code and place == len(parsed) - 1:
                wrong = judge_snapshots(tree, wanted)
            if wrong:
                break
            before = tree
    report = plainly("\n".join([wrong, *map(str, ended)]), placed) if wrong else ""
    return Tried(sum(call.injected for call in calls), report)


def _judge(ended: Ended, tree: Tree, before: Tree, keep: str) -> str:
    """Return the faults after a verb in which a call failed."""
    if ended.code == 0:
        lost = next(
            (call for place, call in enumerate(ended.calls) if _loses(ended.calls[place:], tree, keep)), None
        )
        return f"{ended.step.verb} ended with 0, but an fsync had failed: {lost}" if lost is not None else ""
    # Where originals are freed, a change that fails its second reading stays until undo, with its originals.
    if ended.code == ExitCode.VERIFY_FAILED and keep == INPLACE and visible(tree) != visible(before):
        return f"{ended.step.verb} ended with 14, but:\n{differences(visible(tree), visible(before))}"
    return judge_unchanged(ended, tree, before)


def _loses(calls: Sequence[Call], tree: Tree, keep: str) -> bool:
    """Return whether the first of these calls is an ``fsync`` that failed and was needed.

    What it removes of krepair's own folders may come back as litter. Where apply has freed all, its last deed is to
    drop its records; if it cannot, the journal and the plan stay until purge, and nothing else. Then only the lock
    goes, where krepair made it: it says nothing of what was done.
    """
    call, *later = calls
    if not _is_failed_fsync(call):
        return False
    names_left = {name[len(call.path) + 1 :] for name in private(tree) if name.startswith(f"{call.path}/")}
    if keep == UNTIL_VERIFIED and Path(call.path).name.startswith(PRIVATE):
        return not names_left <= {"journal", "plan"} or any(
            CHANGING & mask(call.kind) and call.path != LOCK for call in later
        )
    return keep != UNTIL_VERIFIED or "/" in call.path or bool(names_left)


def _is_failed_fsync(call: Call) -> bool:
    """Return whether an ``fsync`` failed; an interrupted one loses nothing: Python repeats it (PEP 475)."""
    return call.kind is Kind.FSYNC and call.error not in {0, errno.EINTR}


def taken_for_durable(calls: Sequence[Call], root: Path) -> str:
    """Return files that a failed ``fsync`` may have lost, and that are still used after a verb ended with 0.

    Bytes that were written before a failed ``fsync`` have to be written again, cut off, or given up with the file.
    """
    unsynced: Counter[tuple[int, int]] = Counter()
    lost: dict[tuple[int, int], tuple[int, Call]] = {}
    linked: set[tuple[int, int]] = set()
    for call in calls:
        if call.inode == (0, 0):
            continue
        if call.kind in {Kind.WRITE, Kind.COPY} and not call.error:
            unsynced[call.inode] += call.amount
            if call.inode in lost:
                missing_bytes = lost[call.inode][0] - call.amount
                lost[call.inode] = (missing_bytes, lost[call.inode][1])
                if missing_bytes <= 0:
                    del lost[call.inode]
        elif call.kind is Kind.TRUNCATE and not call.error:
            lost.pop(call.inode, None)
        elif _is_failed_fsync(call):
            if unsynced[call.inode]:
                lost[call.inode] = (unsynced[call.inode], call)
        elif call.kind is Kind.FSYNC and not call.error:
            unsynced[call.inode] = 0
        elif call.kind is Kind.LINK and not call.error:
            linked.add(call.inode)
        elif call.kind is Kind.UNLINK and not call.error and call.inode not in linked:
            # The file system gives the number to the next new file.
            unsynced[call.inode] = 0
            lost.pop(call.inode, None)
    if not lost:
        return ""
    for folder, _, names in os.walk(root):
        for name in names:
            status = os.lstat(f"{folder}/{name}")
            if (status.st_dev, status.st_ino) in lost:
                _, call = lost[(status.st_dev, status.st_ino)]
                path = os.path.relpath(f"{folder}/{name}", root)
                return f"{path} is used, but its bytes may be lost: {call}, and they were not written again"
    return ""


def _units(name: str) -> list[str]:
    return [f"{verb}:{fault}" for verb in templates_of(name) for fault in FAULTS]


_PART = Part(_units, cases, try_case, lambda steps: "failing calls")
run, replay = _PART.run, _PART.replay
