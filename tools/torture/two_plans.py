"""Runs the verbs of several plans of one log directory in any order; all plans were made before one was applied.

A case is ``SCENE:SEED:PLANS:STEPS``, as ``keys:0:0+3:a-apply@17b.swap.b-apply!9EIO1.a-undo``: plans 0 and 3 of the
scene are ``a`` and ``b`` (see ``plans_of``). A step is of one plan, as in ``runs``, or one of these:

    list       ``krepair undo LOG_DIR``, which lists the plans
    swap       somebody leaves a ``.log.swap`` beside a log
    cleaner    the same, and the log is renamed to ``.deleted``: a broker was stopped while its cleaner replaced it
    cleaned    a broker's cleaner leaves a ``.log.cleaned``

What must hold:

- A verb ends with a documented exit code. What ended with 0 is done. What says that nothing was changed has changed
  nothing.
- All plans that were begun are listed, whatever was killed.
- A refusal because of another plan names that plan and the next command.
- No file of somebody else goes or changes.
- In the end all plans are undone, in any order, and what a refusal prints is typed. Then the log directory is as in
  the beginning: bytes, modes, times, the clean-shutdown marker and the checkpoints. Nothing of krepair's is left.
- Where originals were freed, each file is as in the beginning or as one of the plans makes it. Each record that all
  of these plans keep is there, and no record is new.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from krepair.errors import ExitCode, KrepairError
from krepair.formats.batch_v2 import HEADER_SIZE, decode_header, header_damage
from krepair.formats.record import Record, batch_records
from krepair.ops.plan import make_plan
from krepair.plan.keep import UNTIL_VERIFIED
from tools.torture.faults import Kind
from tools.torture.runs import (
    DOCUMENTED,
    Ended,
    Runner,
    Step,
    Wanted,
    case_folder,
    find_wanted,
    judge_lock,
    judge_unchanged,
    parse_step,
    without_lock,
)
from tools.torture.scenes import (
    CLEAN_MARKER,
    PRIVATE,
    SCENES,
    Scene,
    Tree,
    build,
    differences,
    look,
    private,
    visible,
)
from tools.torture.state import State

CASES: Final = 200
"""Of each scene and seed, in a full run."""

PLANS: Final = 6
"""Of each scene and seed, at the most."""

FIXES: Final = (
    ("markers",),
    ("compact",),
    ("compact", "markers"),
    ("index=regenerate",),
    ("leftovers",),
    ("tail",),
    ("recovery",),
    ("checkpoints", "epochs", "snapshots"),
    ("checkpoints", "epochs", "index", "leftovers", "markers", "snapshots", "tail"),
)
SEGMENT_BYTES: Final = ("420", "700", "1500")
PLANTS: Final = ("swap", "cleaner", "cleaned")
FAULTS: Final = ("ENOSPC1", "ENOSPC*", "EIO1", "EIO*", "fsyncEIO1", "shortENOSPC*")
ROUNDS: Final = 5
"""So often all plans are undone."""

_WARM: Final = ("everything", "keys", "recovery-and-all")
_TRIES: Final = 16
_OF_FIRST_GROUP: Final = 8
"""So many renames come before the second group: two plans are most in each other's way in the first one."""
_OFFERED: Final = frozenset({"apply", "undo", "purge", "verify"})
_OF_VERIFY: Final = frozenset({ExitCode.FOUND})
_ABOUT_ANOTHER: Final = re.compile(r"another plan|of plan|half done here|plan [0-9a-f]{8}")

Records = dict[str, frozenset[tuple[object, ...]]]
"""Partition folder -> (offset, key, value) of what its logs hold."""


class Known(NamedTuple):
    """One plan of a scene, and what it makes.

    Attributes:
        scene: the scene with this plan.
        wanted: results of its undisturbed verbs.
        changed: names of files that it makes, changes or removes.
        held: records of the logs as they were.
        made: records of the logs as it makes them.
    """

    scene: Scene
    wanted: Wanted
    changed: frozenset[str]
    held: Records
    made: Records


def run(seeds: range, workdir: Path, state: State) -> None:
    """Run ``CASES`` of each scene, or ``state.samples``."""
    runner, warm = Runner(), False
    for seed in seeds:
        for name in SCENES:
            unit = f"{name}:{seed}"
            if state.is_done(unit) or state.time_is_up():
                continue
            if not warm:
                runner.warm_up([build(each) for each in _WARM], workdir)
                warm = True
            known = known_of(runner, name, seed, workdir)
            figures: Counter[str] = Counter()
            for case in cases(unit, known, state.most(CASES)):
                episode = Episode(runner, known, case, workdir)
                wrong = episode.play()
                figures.update(episode.figures)
                figures["sequences"] += 1
                if wrong:
                    state.wrong(f"{unit}:{case}", wrong)
            state.keep(unit, figures)


def replay(case: str, workdir: Path) -> list[str]:
    """Play one case again; gives what is wrong, and how each of its steps ended."""
    name, seed, rest = case.split(":", 2)
    runner = Runner()
    runner.fork_all = True
    known = known_of(runner, name, int(seed), workdir)
    wrong = Episode(runner, known, rest, workdir).play()
    return [wrong] if wrong else []


# -- the plans ------------------------------------------------------------------------------------------
def known_of(runner: Runner, name: str, seed: int, workdir: Path) -> list[Known]:
    """Return the plans of a scene, without those that are refused even undisturbed."""
    out = []
    for scene in plans_of(name, seed, workdir):
        with case_folder(workdir) as folder:
            if runner.run(scene.place(folder), parse_step("apply")).code:
                continue
        wanted = find_wanted(runner, scene, workdir)
        before = visible(wanted.before)
        names = before.keys() | wanted.applied.keys()
        changed = frozenset(each for each in names if before.get(each) != wanted.applied.get(each))
        with case_folder(workdir) as folder:
            placed = scene.place(folder)
            held = records_of(placed.path)
            runner.run(placed, parse_step("apply"))
            made = records_of(placed.path)
        out.append(Known(scene, wanted, changed, held, made))
    return out


def plans_of(name: str, seed: int, workdir: Path) -> list[Scene]:
    """Return the plan of a scene, and others of the same files: other fixes, settings, partitions, ``--keep``."""
    first = build(name, seed)
    rng = random.Random(f"{name} {seed} plans")
    scenes = {first.plan.digest: first}
    with case_folder(workdir) as folder:
        path = first.place(folder).path
        folders = [entry.name for entry in first.entries if entry.data is None and "-" in entry.name]
        for _ in range(_TRIES):
            options = replace(
                first.options,
                fixes=rng.choice((first.options.fixes, *FIXES)),
                settings=_with_segment_bytes(first.options.settings, rng.choice(SEGMENT_BYTES)),
                keep=rng.choice(("inplace", "inplace", UNTIL_VERIFIED)),
                partitions=_chosen(folders, rng) if rng.random() < 0.3 else (),
            )
            try:
                plan = make_plan(str(path), options)
            except KrepairError:
                continue  # this fix is not for this directory
            if plan.root is not None or any(partition.changes for partition in plan.partitions):
                scenes.setdefault(plan.digest, replace(first, options=options, plan=plan))
            if len(scenes) == PLANS:
                break
    return list(scenes.values())


def _with_segment_bytes(settings: tuple[tuple[str, str], ...], size: str) -> tuple[tuple[str, str], ...]:
    return tuple((key, size if key == "segment.bytes" else value) for key, value in settings)


def _chosen(folders: Sequence[str], rng: random.Random) -> tuple[tuple[str, int], ...]:
    topic, _, number = rng.choice(folders).rpartition("-")
    return ((topic, int(number)),)


# -- the cases ------------------------------------------------------------------------------------------
def cases(unit: str, known: Sequence[Known], count: int) -> Iterator[str]:
    """Yield plans and steps of the cases of a unit, ``scene:seed``."""
    for number in range(count if len(known) > 1 else 0):
        rng = random.Random(f"{unit} {number}")
        chosen = _plans(known, rng)
        yield f"{'+'.join(map(str, chosen))}:{'.'.join(_steps([known[each] for each in chosen], rng))}"


def _plans(known: Sequence[Known], rng: random.Random) -> list[int]:
    """Choose two or three plans; mostly two that replace the same log."""
    pairs = list(itertools.permutations(range(len(known)), 2))
    same = [(first, other) for first, other in pairs if _logs(known[first]) & _logs(known[other])]
    chosen = list(rng.choice(same if same and rng.random() < 0.7 else pairs))
    others = [each for each in range(len(known)) if each not in chosen]
    return [*chosen, rng.choice(others)] if others and rng.random() < 0.2 else chosen


def _logs(known: Known) -> set[str]:
    return {name for name in known.changed if name.endswith(".log")}


def _steps(plans: Sequence[Known], rng: random.Random) -> list[str]:
    verbs = ["apply"] * 5 + ["undo"] * 3 + ["verify"]
    if rng.random() < 0.3:
        verbs.append("purge")
    places = range(len(plans))
    steps = [_killed(plans, 0, "apply", rng) if rng.random() < 0.85 else _step(plans, 0, "apply", rng)]
    if rng.random() < 0.5:
        steps.append(_killed(plans, 1, "apply", rng))
    steps += [_step(plans, rng.choice(places), rng.choice(verbs), rng) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.2:
        steps.insert(rng.randint(0, len(steps)), "list")
    if rng.random() < 0.3:
        steps.insert(rng.randint(0, len(steps)), rng.choice(PLANTS))
    return steps


def _step(plans: Sequence[Known], place: int, verb: str, rng: random.Random) -> str:
    chance = rng.random()
    if verb == "verify" or chance < 0.3:
        return f"{'abc'[place]}-{verb}"
    if chance < 0.88:
        return _killed(plans, place, verb, rng)
    most = max(plans[place].wanted.counts[verb], 1)
    return f"{'abc'[place]}-{verb}!{rng.randint(1, most)}{rng.choice(FAULTS)}"


def _killed(plans: Sequence[Known], place: int, verb: str, rng: random.Random) -> str:
    """Kill at any call, or, as often, at a rename, where a change passes from one state to the next."""
    wanted = plans[place].wanted
    renames = sum(call.kind is Kind.RENAME for call in wanted.calls[verb])
    if renames and rng.random() < 0.5:
        most = min(renames, rng.choice((_OF_FIRST_GROUP, renames)))
        return f"{'abc'[place]}-{verb}@{rng.randint(1, most)}r{rng.choice('ba')}"
    return f"{'abc'[place]}-{verb}@{rng.randint(1, max(wanted.counts[verb], 1))}{rng.choice('bat')}"


# -- what is played -------------------------------------------------------------------------------------
@dataclass
class Episode:
    """One case in a folder of its own.

    Attributes:
        runner: runs the verbs.
        known: the plans of the scene.
        case: plans that are taken, and the steps.
        work: parent of the case's folder.
        figures: counters to update.
    """

    runner: Runner
    known: Sequence[Known]
    case: str
    work: Path
    figures: Counter[str] = field(default_factory=Counter)

    def play(self) -> str:
        """Play it; gives what is wrong, and how each step ended."""
        chosen, _, steps = self.case.partition(":")
        self.rng = random.Random(self.case)
        self.plans = [self.known[int(each)] for each in chosen.split("+")]
        self.before = self.plans[0].wanted.before
        self.said: list[str] = []
        self.planted: Tree = {}
        self.renamed: dict[Path, Path] = {}
        self.is_freed = False
        with case_folder(self.work) as folder:
            first = self.plans[0].scene.place(folder)
            others = [plan.scene.beside(first, number) for number, plan in enumerate(self.plans[1:], 1)]
            self.placed, self.path = [first, *others], first.path
            wrong = self._play(steps.split("."))
            if not wrong:
                self._take_away_planted()
                wrong = self._end()
            text = "\n".join([wrong, *self.said]).replace(f"{self.path}/", "")
            for number, placed in enumerate(self.placed):
                text = text.replace(placed.plan.plan_id, f"ID-{'abc'[number]}")
        return text if wrong else ""

    def _play(self, steps: Sequence[str]) -> str:
        for word in steps:
            wrong = ""
            if word in PLANTS:
                self._plant(word)
                self.said.append(f"{word}: {', '.join(self.planted) or 'there is no place for it'}")
            elif word == "list":
                wrong = self._list()
            else:
                name, _, step = word.partition("-")
                wrong = self._run("abc".index(name), parse_step(step))[1]
            if wrong:
                return wrong
        return ""

    def _run(self, place: int, step: Step) -> tuple[Ended, str]:
        """Run a step of a plan; gives how it ended, and what is wrong."""
        placed, known = self.placed[place], self.plans[place]
        before = look(self.path)
        ended = self.runner.run(placed, step)
        tree = look(self.path)
        self.said.append(f"{'abc'[place]}-{ended}")
        self.figures["kills"] += ended.killed
        self.figures["failing calls"] += sum(call.injected for call in ended.calls if not ended.killed)
        self._note_freed(known, ended, before)
        wrong = self._judge_planted(tree)
        if not wrong and not ended.killed:
            wrong = self._judge(place, ended, before, tree)
        return ended, f"{'abc'[place]}-{step.text}: {wrong}" if wrong else ""

    def _note_freed(self, known: Known, ended: Ended, before: Tree) -> None:
        """Note whether originals may be gone from now on."""
        refused = ended.code in {ExitCode.LOCKED, ExitCode.STALE_PLAN, ExitCode.REFUSED}
        frees = (
            known.scene.keep == UNTIL_VERIFIED if ended.step.verb == "apply" else ended.step.verb == "purge"
        )
        if frees and not refused and (private(before) or ended.step.verb == "apply"):
            self.is_freed = True

    # -- what is wrong after a verb

    def _judge(self, place: int, ended: Ended, before: Tree, tree: Tree) -> str:
        verb = ended.step.verb
        if ended.code not in (DOCUMENTED | _OF_VERIFY if verb == "verify" else DOCUMENTED):
            return f"ended with {ended.code}, which it never may: {ended.last_words()}"
        if verb == "verify":
            changed = differences(without_lock(tree), without_lock(before))
            return f"has changed something:\n{changed}" if changed else ""
        wrong = judge_unchanged(ended, tree, before)
        if not wrong and not ended.step.takes_the_disk_away:
            wrong = judge_lock(tree, self.plans[place].wanted)
        if wrong:
            return wrong
        if ended.code == 0:
            return self._judge_done(place, verb, tree)
        return self._judge_refusal(ended) if ended.step.fault is None else ""

    def _judge_done(self, place: int, verb: str, tree: Tree) -> str:
        """Return faults after a verb that ended with 0. Root files may come from several plans, and a fence."""
        known, have = self.plans[place], visible(tree)
        names = [name for name in known.changed if "/" in name]
        if verb == "purge":
            names_left = [
                name for name in private(tree) if f"{PRIVATE}{self.placed[place].plan.plan_id}" in name
            ]
            return f"ended with 0, but is still there: {names_left[0]}" if names_left else ""
        old = visible(self.before)
        if verb == "apply":
            odd = [name for name in names if have.get(name) != known.wanted.applied.get(name)]
        else:
            others = {name for other in self.plans if other is not known for name in other.changed}
            odd = [name for name in names if name not in others and have.get(name) != old.get(name)]
        odd = [name for name in odd if not self._is_touched(name)]
        want = known.wanted.applied if verb == "apply" else old
        wrong = differences(_only(have, odd), _only(want, odd))
        return f"ended with 0, but:\n{wrong}" if wrong else ""

    def _judge_refusal(self, ended: Ended) -> str:
        """Check that a refusal because of another plan names it, and the next command."""
        text = ended.says()
        if not _ABOUT_ANOTHER.search(text):
            return ""
        if not any(placed.plan.plan_id in ended.output for placed in self.placed) and not self.planted:
            return f"says that another plan is in its way, and does not name it:\n{text}"
        return "" if _next(ended) else f"says that another plan is in its way, and not what to type:\n{text}"

    def _judge_planted(self, tree: Tree) -> str:
        # An original that a broker renamed to .deleted is put back from what is kept, and that name of it goes.
        contents = {entry.content for name, entry in tree.items() if name not in self.planted}
        gone = {
            name
            for name in (os.path.relpath(aside, self.path) for aside in self.renamed)
            if name not in tree and self.planted[name].content in contents
        }
        planted = {name: entry for name, entry in self.planted.items() if name not in gone}
        wrong = differences(_without_links(_only(tree, planted)), _without_links(planted))
        return f"has touched what is not its own:\n{wrong}" if wrong else ""

    def _list(self) -> str:
        """Check that ``krepair undo LOG_DIR`` names each plan that has a folder here."""
        ended, tree = self._by_words("undo", (str(self.path),))
        plans = {
            name.rpartition(PRIVATE)[2][:8]
            for name in private(tree)
            if "/" not in name.rpartition(PRIVATE)[2]
        }
        if ended.code not in DOCUMENTED:
            return f"list: ended with {ended.code}, which it never may: {ended.last_words()}"
        missing = sorted(plan for plan in plans if plan not in ended.output)
        return f"list: plan {missing[0]} is not listed:\n{ended.output}" if missing else ""

    def _by_words(self, verb: str, words: tuple[str, ...]) -> tuple[Ended, Tree]:
        ended = self.runner.run(self.placed[0]._replace(by=words), parse_step(verb))
        self.said.append(f"{' '.join((verb, *words))}: {ended}")
        return ended, look(self.path)

    # -- files of somebody else

    def _plant(self, kind: str) -> None:
        logs = [log for folder in self._folders() for log in sorted(folder.glob("*.log"))[:-1]]
        suffix = ".cleaned" if kind == "cleaned" else ".swap"
        logs = [log for log in logs if not Path(f"{log}{suffix}").exists()]
        if not logs:
            return
        log = self.rng.choice(logs)
        self._write(Path(f"{log}{suffix}"), log.read_bytes())
        aside = Path(f"{log}.deleted")
        if kind == "cleaner" and not aside.exists():
            log.rename(aside)
            self.renamed[aside] = log
            self.planted |= self._seen(aside)

    def _folders(self) -> list[Path]:
        return sorted(each for each in self.path.iterdir() if each.is_dir() and PRIVATE not in each.name)

    def _write(self, path: Path, content: bytes) -> None:
        if not path.exists():
            path.write_bytes(content)
            self.planted |= self._seen(path)

    def _seen(self, path: Path) -> Tree:
        name = os.path.relpath(path, self.path)
        return {name: look(self.path)[name]}

    def _is_touched(self, name: str) -> bool:
        """Return whether a log was renamed by the cleaner, or lies where something was planted."""
        return any(name.partition(".")[0] == each.partition(".")[0] for each in self.planted)

    def _take_away_planted(self) -> None:
        """Let the broker's user remove what was planted; a restored log stays."""
        for aside, log in self.renamed.items():
            if log.exists():
                aside.unlink(missing_ok=True)
            elif aside.exists():
                aside.rename(log)
            self.planted.pop(os.path.relpath(aside, self.path))
        for name in self.planted:
            (self.path / name).unlink()
        self.planted, self.renamed = {}, {}

    # -- the end

    def _end(self) -> str:
        wrong = self._take_back() or self._list()
        if wrong or not self.is_freed:
            return wrong or self._judge_end()
        for _ in range(ROUNDS):
            for verbs in (("purge",), ("apply", "purge")):
                for place in self._left():
                    for verb in verbs:
                        wrong = self._run(place, parse_step(verb))[1]
                        if wrong:
                            return wrong
        return self._judge_freed()

    def _take_back(self) -> str:
        """Undo all plans in some order, and type what a refusal offers, until nothing of krepair's is there."""
        for _ in range(ROUNDS):
            for place in self.rng.sample(range(len(self.plans)), len(self.plans)):
                ended, wrong = self._run(place, parse_step("undo"))
                if not wrong and "needs it undamaged" in ended.output:
                    wrong = self._mend_root(place)
                elif not wrong and ended.code:
                    wrong = self._follow(ended)
                if wrong:
                    return wrong
            if not private(look(self.path)):
                return ""
        return ""

    def _mend_root(self, place: int) -> str:
        """Apply a plan again whose damaged checkpoint the undo of another plan has restored."""
        for other, placed in enumerate(self.placed):
            if other != place and placed.plan.root is not None:
                for which, verb in ((other, "apply"), (place, "undo"), (other, "undo")):
                    wrong = self._run(which, parse_step(verb))[1]
                    if wrong:
                        return wrong
        return ""

    def _follow(self, ended: Ended) -> str:
        """Type the next commands that are printed, up to three."""
        for _ in range(3):
            words = shlex.split(_next(ended))
            if len(words) < 3 or words[0] != "krepair" or words[1] not in _OFFERED:
                return ""
            before = look(self.path)
            verb, *words_given = words[1:]
            ended, tree = self._by_words(verb, tuple(words_given))
            if verb == "purge" and any("/keep/" in name or "/fence/" in name for name in private(before)):
                self.is_freed = True
            if ended.code not in DOCUMENTED | _OF_VERIFY:
                return f"{' '.join(words)} ended with {ended.code}, which it never may: {ended.last_words()}"
            wrong = judge_unchanged(ended, tree, before)
            if wrong:
                return wrong
        return ""

    def _left(self) -> list[int]:
        """Return the plans with remaining files."""
        tree = private(look(self.path))
        return [
            place
            for place, placed in enumerate(self.placed)
            if any(f"{PRIVATE}{placed.plan.plan_id}" in name for name in tree)
        ]

    def _judge_end(self) -> str:
        tree = look(self.path)
        wrong = differences(without_lock(tree), without_lock(self.before))
        wrong = wrong or judge_lock(tree, self.plans[0].wanted)
        return f"all is undone, but:\n{wrong}" if wrong else ""

    def _judge_freed(self) -> str:
        now = look(self.path)
        names_left = private(now)
        if names_left:
            return f"all is undone or purged, but {names_left[0]} is still there"
        have, old = visible(now), visible(self.before)
        trees = [
            old,
            *(plan.wanted.applied for plan in self.plans),
            *(visible(plan.wanted.purged) for plan in self.plans),
        ]
        odd = [
            name
            for name in {name for tree in (have, *trees) for name in tree}
            if all(have.get(name) != tree.get(name) for tree in trees) and "/" in name
        ]
        if (CLEAN_MARKER in have) != any(CLEAN_MARKER in tree for tree in trees):
            odd.append(CLEAN_MARKER)
        wrong = differences(_only(have, odd), _only(old, odd))
        wrong = wrong or self._judge_records()
        return f"all is undone or purged, but:\n{wrong}" if wrong else ""

    def _judge_records(self) -> str:
        have = records_of(self.path)
        for folder, held in self.plans[0].held.items():
            records = have.get(folder, frozenset())
            made = [plan.made.get(folder, frozenset()) for plan in self.plans]
            kept = held.intersection(*made)
            known = held.union(*made)  # the swap of a broker brings records of its own
            for fault, some in (("is lost", kept - records), ("is new", records - known)):
                if some:
                    return f"{folder}: {min(some, key=repr)} {fault}"
        return ""


def _only(tree: Tree, names: Sequence[str] | Tree) -> Tree:
    return {name: tree[name] for name in names if name in tree}


def _without_links(tree: Tree) -> Tree:
    return {name: entry._replace(links=0) for name, entry in tree.items()}


def _next(ended: Ended) -> str:
    """Return the next command that a verb has printed; empty if none."""
    try:
        document = json.loads(ended.output[ended.output.index("{") : ended.output.rindex("}") + 1])
    except ValueError:
        return ""
    return str(document.get("report", document).get("next_command", "")) or str(
        document.get("next_command", "")
    )


# -- records --------------------------------------------------------------------------------------------
def records_of(path: Path) -> Records:
    """Return the records of each partition's logs, up to the first damage of each."""
    return {
        folder.name: frozenset(
            each for log in sorted(folder.glob("*.log")) for each in _records(log.read_bytes())
        )
        for folder in path.iterdir()
        if folder.is_dir()
    }


def _records(data: bytes) -> Iterator[tuple[object, ...]]:
    position = 0
    while len(data) - position >= HEADER_SIZE and header_damage(data, position) is None:
        header = decode_header(data, position)
        for record in batch_records(data, position):
            if isinstance(record, Record):
                yield (header.base_offset + record.offset_delta, record.key, record.value)
        position += header.size_bytes
