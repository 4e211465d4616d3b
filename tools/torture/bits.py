"""Flips bits in plans, journals, staged files and backups, exchanges staged files, and runs verbs of krepair.

What has to be true:

- A plan with a flipped bit is refused with an error that names the file (12, 15 or 64).
- A journal with a flipped bit is refused, and the partition stays as it is; or the bit is in its last line, which
  then counts as torn, and the verb ends right. A verb never ends with 0 unless its tree is there.
- A staged file that changed after it was made is never put in its place: ``apply`` ends with another code than 0,
  and the partition is as it was.
- A kept file that changed is never put back: ``undo`` ends with another code than 0; once the bit is right again,
  ``undo`` gives the original tree.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from krepair.errors import ExitCode, KrepairError
from krepair.plan import planfile
from tests.flips import flip
from tools.torture.disk_model import State
from tools.torture.power_loss import Outcome, Site, by_partition, placed
from tools.torture.real_tree import Tree, public_tree, read_state
from tools.torture.recording import Event, Moved, Wrote
from tools.torture.scenes import SCENES, build
from tools.torture.state import State as Done

_REFUSALS = {int(code) for code in ExitCode} - {0, int(ExitCode.BUG)}
JOURNAL_MOMENTS = {
    "applied": ("apply",),
    "half-applied": ("killed apply",),
    "half-undone": ("apply", "killed undo"),
}
"""When a bit of a journal is flipped -> what was run until then."""

SMALL = "removals"
"""The scene of which every bit of the plan and the journal is flipped; of the others a sample."""

MOST = {"plan": 2000, "journal": 300, "staged": 200, "exchanged": 200, "kept": 400}
"""Cases of each kind and scene, in a full run."""


class Wrong(NamedTuple):
    """One failure of a case.

    Attributes:
        what: the bit or the exchange.
        why: description of the failure.
        case: case that reproduces it.
    """

    what: str
    why: str
    case: str


class Tried(NamedTuple):
    """Number of cases of a kind, and those that failed."""

    cases: int
    wrong: list[Wrong]


def flipped(data: bytes, bit: int) -> bytes:
    """Return the bytes with one bit flipped."""
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def sample(count: int, most: int, seed: str) -> list[int]:
    """Return all numbers below ``count``, or the given number of them."""
    if count <= most:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), most))


# -- plan -------------------------------------------------------------------------------------------
def plan_bits(site: Site, seed: int, most: int, only: int = -1) -> Tried:
    """Flip single bits of the plan file."""
    data = planfile.dumps(site.plan)
    bits = [only] if only >= 0 else sample(len(data) * 8, most, f"plan {seed}")
    wrong = []
    for bit in bits:
        why = _loads(flipped(data, bit))
        if why:
            wrong.append(Wrong(f"plan, bit {bit}", why, _case(site, "plan", bit, seed)))
    return Tried(len(bits), wrong)


def _loads(data: bytes) -> str:
    """Return the fault in the answer to a damaged plan."""
    try:
        planfile.loads(data, "the.plan")
    except KrepairError as error:
        known = error.exit_code in {ExitCode.USAGE, ExitCode.STALE_PLAN, ExitCode.UNREADABLE}
        return "" if known and "the.plan" in error.message else f"{error.exit_code}: {error.message}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "was taken as if it were whole"


# -- journal ----------------------------------------------------------------------------------------
def journal_bits(site: Site, seed: int, most: int, only: int = -1, moment: str = "") -> Tried:
    """Flip bits of a partition's journal, at three moments of its life, then apply, or undo."""
    wrong: list[Wrong] = []
    count = 0
    for name in [moment] if moment else JOURNAL_MOMENTS:
        state = _at_moment(site, name)
        path = next((path for path in sorted(state.files) if path.endswith("/journal")), "")
        if not path:
            continue
        node = state.files[path]
        size = len(state.data[node]) * 8
        bits = [only % size] if only >= 0 else sample(size, most, f"journal {name} {seed}")
        for bit in bits:
            damaged = state._replace(data=state.data | {node: flipped(state.data[node], bit)})
            for verb, expected in (("apply", site.after), ("undo", site.before)):
                count += 1
                why = _journal_answer(site, damaged, path, verb, expected)
                if why:
                    label = f"{path.rpartition('~')[0]} journal, {name}, bit {bit}, {verb}"
                    wrong.append(Wrong(label, why, _case(site, "journal", bit, seed, name)))
    return Tried(count, wrong)


def _at_moment(site: Site, moment: str) -> State:
    site.record(JOURNAL_MOMENTS[moment])
    return read_state(site.watch)


def _journal_answer(site: Site, state: State, path: str, verb: str, expected: Tree) -> str:
    site.real_tree.put(state)
    outcome = site.run(verb)
    folder = path.partition("/")[0]
    tree = by_partition(public_tree(read_state(site.watch))).get(folder)
    was, wanted = by_partition(public_tree(state)).get(folder), by_partition(expected).get(folder)
    if outcome.code == 0:
        return "" if tree == wanted else f"{verb} ends with 0, {folder} is not as it should be"
    if outcome.code not in _REFUSALS:
        return f"{verb} ends with {outcome.code}: {outcome.said}"
    return (
        "" if tree in (was, wanted) else f"{verb} ends with {outcome.code} and left a mixture: {outcome.said}"
    )


# -- staged files -----------------------------------------------------------------------------------
def staged_bits(site: Site, seed: int, most: int, only: int = -1) -> Tried:
    """Flip a bit of a staged file right after its last byte is written, then continue."""
    moments = _made(site)
    numbers = [only] if only >= 0 else range(most if moments else 0)
    wrong = []
    for number in numbers:
        moment, share = number % len(moments), random.Random(f"staged {seed} {number}").random()
        names: list[str] = []

        def flip_one(path: str, share: float = share, names: list[str] = names) -> None:
            names.append(path)
            _flip_in(path, share)

        outcome, state = _disturbed(site, moments[moment], flip_one)
        why = _never_put_in_place(site, outcome, state, names[0]) if names else ""
        if why:
            label = f"staged {os.path.relpath(names[0], site.root)}"
            wrong.append(Wrong(label, why, _case(site, "staged", number, seed)))
    return Tried(len(numbers), wrong)


def _made(site: Site) -> list[int]:
    """Return the events after which a staged file has all its bytes: the last write of each nonempty one."""
    recording = site.record(("apply",))
    last: dict[int, int] = {}
    public = set(site.original.files.values())
    for number, event in enumerate(recording.events):
        if isinstance(event, Wrote) and event.node not in public and event.data:
            last[event.node] = number
    staged = {event.node for event in recording.events if isinstance(event, Moved)}
    return sorted(number for node, number in last.items() if node in staged)


def _disturbed(site: Site, moment: int, disturb: Callable[[str], None]) -> tuple[Outcome, State]:
    """Apply from the original tree; right after an event the file that it is about is disturbed."""
    site.reset()

    def on_event(event: Event) -> None:
        if (
            isinstance(event, Wrote)
            and site.watch.events is not None
            and len(site.watch.events) == moment + 1
        ):
            path = _path_of(site.root, event.node)
            if "/stage/" in path:
                site.watch.on_event = None
                with site.watch.silence():
                    disturb(path)

    site.watch.on_event = on_event
    try:
        with site.watch.recording():
            outcome = site.run("apply")
    finally:
        site.watch.on_event = None
    return outcome, read_state(site.watch)


def _path_of(root: str, node: int) -> str:
    for folder, _, names in os.walk(root):
        for name in names:
            if os.lstat(f"{folder}/{name}").st_ino == node:
                return f"{folder}/{name}"
    return ""


def _flip_in(path: str, share: float) -> None:
    bit = int(share * os.path.getsize(path) * 8)
    flip(Path(path), bit // 8, 1 << bit % 8)


def _never_put_in_place(site: Site, outcome: Outcome, state: State, name: str) -> str:
    """Return the fault after an apply with one disturbed staged file."""
    tree = public_tree(state)
    if outcome.code == 0:
        return "" if tree == site.after else f"apply ends with 0, other than it should: {outcome.said}"
    if outcome.code not in _REFUSALS:
        return f"apply ends with {outcome.code}: {outcome.said}"
    # What is staged for the root lies in a partition folder, too.
    folder = "" if "~root/" in name else os.path.relpath(name, site.root).partition("/")[0]
    for path, entry in tree.items():
        if path.rpartition("/")[0] == folder and entry not in (site.before.get(path), site.after.get(path)):
            return f"apply ends with {outcome.code} and left {path} neither old nor new: {outcome.said}"
    return ""


def staged_exchanged(site: Site, seed: int, most: int, only: int = -1) -> Tried:
    """Exchange the names of two staged files of one folder right after the second was made."""
    moments = _made(site)
    numbers = [only] if only >= 0 else sample(len(moments) * 2, most, f"exchanged {seed}")
    wrong = []
    count = 0
    for number in numbers:
        moment, which = moments[number // 2], number % 2
        names: list[str] = []

        def exchange(path: str, which: int = which, number: int = number, names: list[str] = names) -> None:
            others = [
                other
                for other in sorted(os.listdir(os.path.dirname(path)))
                if other != os.path.basename(path)
            ]
            alike = [other for other in others if other.rpartition(".")[2] == path.rpartition(".")[2]]
            choice = (alike or others) if which else others
            if choice:
                other = f"{os.path.dirname(path)}/{choice[number % len(choice)]}"
                names.extend([path, other])
                os.rename(path, f"{path}.between")
                os.rename(other, path)
                os.rename(f"{path}.between", other)

        outcome, state = _disturbed(site, moment, exchange)
        if not names:
            continue
        count += 1
        why = _never_put_in_place(site, outcome, state, names[0])
        if why:
            label = " and ".join(os.path.relpath(name, site.root) for name in names)
            wrong.append(Wrong(f"exchanged {label}", why, _case(site, "exchanged", number, seed)))
    return Tried(count, wrong)


# -- kept files -------------------------------------------------------------------------------------
def kept_bits(site: Site, seed: int, most: int, only: int = -1) -> Tried:
    """Flip a bit of a kept file, then undo; then flip it back, and undo again."""
    site.record(("apply",))
    state = read_state(site.watch)
    kept = [path for path, node in sorted(state.files.items()) if "/keep/" in path and state.data[node]]
    numbers = [only] if only >= 0 else range(most if kept else 0)
    wrong = []
    for number in numbers:
        path, share = kept[number % len(kept)], random.Random(f"kept {seed} {number}").random()
        why = _kept_answer(site, state, path, share)
        if why:
            wrong.append(Wrong(f"kept {path}", why, _case(site, "kept", number, seed)))
    return Tried(len(numbers), wrong)


def _kept_answer(site: Site, state: State, path: str, share: float) -> str:
    node = state.files[path]
    bit = int(share * len(state.data[node]) * 8)
    bad = flipped(state.data[node], bit)
    site.real_tree.put(state._replace(data=state.data | {node: bad}))
    outcome = site.run("undo")
    if outcome.code == 0:
        return "undo ends with 0"
    if outcome.code not in _REFUSALS:
        return f"undo ends with {outcome.code}: {outcome.said}"
    now = read_state(site.watch)
    name = path.rpartition("/")[2]
    if os.path.basename(name) not in outcome.said:
        return f"undo ends with {outcome.code} and does not name the file: {outcome.said}"
    folder = "" if "~root/" in path else f"{path.partition('/')[0]}/"
    if now.data.get(now.files.get(f"{folder}{name}", -1)) == bad:
        return f"undo ends with {outcome.code}, but put the bad copy back"
    if now.data.get(now.files.get(path, -1)) != bad:
        return f"undo ends with {outcome.code}; the kept copy is gone"
    healed = now._replace(data=now.data | {now.files[path]: state.data[node]})
    site.real_tree.put(healed)
    again = site.run("undo")
    tree = public_tree(read_state(site.watch))
    if again.code != 0 or tree != site.before:
        return f"with the right bytes again undo ends with {again.code}: {again.said}"
    return ""


# -- all ----------------------------------------------------------------------------------------------
KINDS: dict[str, Callable[..., Tried]] = {
    "plan": plan_bits,
    "journal": journal_bits,
    "staged": staged_bits,
    "exchanged": staged_exchanged,
    "kept": kept_bits,
}


def _case(site: Site, kind: str, number: int, seed: int, moment: str = "") -> str:
    return f"{site.scene.name}:{seed}:{kind}:{number}:{moment}".rstrip(":")


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Try every kind in every scene; with ``state.samples`` that many cases of each."""
    for seed in seeds:
        for name in SCENES:
            remaining = [kind for kind in KINDS if not state.is_done(f"{name}:{seed}:{kind}")]
            if not remaining or state.time_is_up():
                continue
            with placed(build(name, seed), workdir) as site:
                for kind in remaining:
                    if state.time_is_up():
                        break
                    every = name == SMALL and kind in ("plan", "journal")
                    tried = KINDS[kind](site, seed, state.most(sys.maxsize if every else MOST[kind]))
                    for wrong in tried.wrong:
                        state.wrong(wrong.case, f"{kind}: {wrong.why}\n{wrong.what}")
                    state.keep(f"{name}:{seed}:{kind}", Counter({_WORDS[kind]: tried.cases}))


_WORDS = {
    "plan": "bits of plans",
    "journal": "bits of journals",
    "staged": "bits of staged files",
    "exchanged": "exchanges",
    "kept": "bits of kept files",
}


def replay(text: str, workdir: Path) -> list[str]:
    """Try one case again."""
    name, seed, kind, number, *moment = text.split(":")
    with placed(build(name, int(seed)), workdir) as site:
        more = {"moment": moment[0]} if moment else {}
        tried = KINDS[kind](site, int(seed), MOST[kind], int(number), **more)
        return [f"{wrong.what}: {wrong.why}" for wrong in tried.wrong]
