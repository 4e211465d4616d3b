"""Kills krepair at each call that changes a file, then runs the same or another verb, which must repair everything.

What must hold: the same verb run again ends with 0 and leaves the tree that it leaves without a crash; undo gives the
original tree, names, bytes, times, owners, modes and the files of the root, and nothing of krepair's stays; a verb
that refuses says so with a documented exit code, and the verb it refuses for can still end right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from krepair.plan.keep import UNTIL_VERIFIED
from tools.torture.runs import (
    Ended,
    Part,
    Runner,
    Tried,
    Wanted,
    case_folder,
    find_wanted,
    judge_end,
    judge_lock,
    judge_snapshots,
    judge_unchanged,
    memory_or,
    parse_steps,
    plainly,
)
from tools.torture.scenes import Scene, build, look
from tools.torture.state import how_many

TEMPLATES = (
    "apply@.apply.undo",
    "apply@.undo.apply.purge",
    "apply@.purge?.apply.undo?",
    "apply.undo@.undo",
    "apply.undo@.apply?.undo",
    "apply.undo@.purge?.undo?.purge",
    "apply.purge@.purge",
    "apply.purge@.undo?.purge",
    "apply.purge@.apply?.purge",
)
"""``@``: killed here, at each of its calls in turn. ``?``: may refuse."""

TWICE = (
    "apply@.apply@.apply.undo",
    "apply@.undo@.undo",
    "apply@.undo@.apply?.undo",
    "apply@.purge@?.apply?.purge.apply.purge",
    "apply.undo@.undo@.undo",
    "apply.undo@.apply@?.undo",
    "apply.purge@.purge@.purge",
    "apply.purge@.undo@?.undo?.purge",
)
"""The first kill at each call in turn, the second at one chosen by the seed."""

INSTALLED = ("apply^.apply.undo", "apply.undo^.undo", "apply.purge^.purge")
"""``^``: the installed command is killed."""

OF_FREED = (
    "apply@.apply.purge",
    "apply@.undo?.apply.purge",
    "apply@.purge?.apply?.purge?",
    "apply.undo@?.undo?.apply.purge",
    "apply.purge@.purge",
    "apply.purge@.undo?.purge",
    "apply.purge@.apply?.purge",
    "apply@.apply@.apply.purge",
    "apply@.undo@?.undo?.apply.purge",
    "apply.purge@.purge@.purge",
    "apply^.apply.purge",
)
"""Of ``--keep until-verified``: undo takes back what is not freed yet, and apply ends right from there."""

_INSTALLED_PER_SCENE = 6
_INSTALLED_SHARE = 0.07


def templates_of(name: str) -> tuple[str, ...]:
    """Return the templates of a scene, whose name says how its originals are kept."""
    return OF_FREED if name.endswith(f"~{UNTIL_VERIFIED}") else (*TEMPLATES, *TWICE, *INSTALLED)


def cases(unit: str, wanted: Wanted, samples: float | None) -> Iterator[str]:
    """Yield the steps of every case of a unit, ``scene:seed:template``."""
    rng = random.Random(unit)
    template = unit.split(":", 2)[2]
    verbs = template.split(".")
    first = next(place for place, verb in enumerate(verbs) if "@" in verb or "^" in verb)
    installed = "^" in template
    calls = wanted.counts[verbs[first].strip("@^?")]
    points = [(number, mode) for number in range(1, calls + 1) for mode in "ba"]
    points += [(number, "t") for number, kind in _transfers(wanted, verbs[first].strip("@^?"))]
    if installed:
        # Each costs a second, which is too much for more than a few of them in the gate.
        gate = samples is not None and samples < 1
        few = int(rng.random() < _INSTALLED_SHARE) if gate else _INSTALLED_PER_SCENE
        points = rng.sample(points, min(few, len(points)))
    elif samples is not None:
        points = rng.sample(points, min(how_many(samples, rng), len(points)))
    for number, mode in points:
        words = list(verbs)
        words[first] = _at(words[first], number, mode)
        for place in range(first + 1, len(words)):
            if "@" in words[place]:
                verb = words[place].strip("@?")
                # Where apply frees originals, there is more to undo in the middle than at the end.
                most = wanted.counts["apply" if verb == "undo" and UNTIL_VERIFIED in unit else verb]
                words[place] = _at(words[place], rng.randint(1, max(most, 1)), rng.choice("bat"))
        yield ".".join(words)


def _transfers(wanted: Wanted, verb: str) -> list[tuple[int, str]]:
    """Return numbers of the calls that move bytes, which a kill can split."""
    return [
        (call.number, call.kind.name)
        for call in wanted.calls[verb]
        if call.number and call.kind.name in {"WRITE", "COPY"} and call.amount > 1
    ]


def _at(word: str, number: int, mode: str) -> str:
    for sign in "@^":
        word = word.replace(sign, f"{sign}{number}{mode}")
    return word


def try_case(runner: Runner, scene: Scene, wanted: Wanted, steps: str, work: Path) -> Tried:
    """Run one case in a folder of its own."""
    ended: list[Ended] = []
    with case_folder(work) as folder:
        placed = scene.place(folder)
        parsed, before = parse_steps(steps), wanted.before
        for place, step in enumerate(parsed):
            run = runner.run(placed, step)
            ended.append(run)
            tree = look(placed.path)
            if step.kills and run.killed:
                before = tree
                continue
            wrong = judge_end(run, tree, wanted) or judge_lock(tree, wanted)
            wrong = wrong or judge_unchanged(run, tree, before)
            before = tree
            if not wrong and run.code and not step.may_refuse:
                wrong = f"{step.text} ended with {run.code}, it has to end with 0"
            if not wrong and run.code and place == len(parsed) - 1:
                wrong = judge_snapshots(tree, wanted)
            if wrong:
                shown = "\n".join(str(each) for each in ended)
                return Tried(sum(each.killed for each in ended), plainly(f"{wrong}\n{shown}", placed))
    return Tried(sum(each.killed for each in ended), "")


def crash_trees(
    names: list[str], seeds: range, on: Path | None = None, samples: float | None = None
) -> Iterator[tuple[str, Scene, Path]]:
    """Yield the log directories that a kill leaves, to be loaded: (case, scene, log directory).

    Each is there until the next one is asked for. The process has to be under a control block.
    """
    runner, work = Runner(), memory_or(on)
    for seed in seeds:
        for name in names:
            scene = build(name, seed)
            runner.warm_up([scene], work)
            wanted = find_wanted(runner, scene, work)
            known: set[str] = set()
            for template in ("apply@", "apply.undo@", "apply.purge@"):
                unit = f"{name}:{seed}:{template}"
                for steps in cases(unit, wanted, samples):
                    with case_folder(work) as folder:
                        placed = scene.place(folder)
                        for step in parse_steps(steps):
                            runner.run(placed, step)
                        shape = repr(sorted(look(placed.path).items())).replace(placed.plan.plan_id, "")
                        if shape not in known:
                            known.add(shape)
                            yield f"{name}:{seed}:{steps}", scene, placed.path


_PART = Part(templates_of, cases, try_case, lambda steps: "installed kills" if "^" in steps else "kills")
run, replay = _PART.run, _PART.replay
