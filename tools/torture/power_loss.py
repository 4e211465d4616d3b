"""Simulates power losses: each verb is recorded once, and then the power fails at each call of the recording.

What may then be on the disk says ``tools.torture.disk_model``. Each such tree is made on a real file system, with
the same inodes, and the same command is run again, or ``undo`` (by turns). It has to end right:

- after a loss in ``apply``: ``apply`` ends with 0 and gives the tree that it gives without a loss, and ``undo``
  after it the original one; or ``undo`` at once gives the original one.
- after a loss in ``undo``: ``undo`` ends with 0 and gives the original tree; ``apply`` ends with 0 as above, or
  refuses because the undo has to end first, and ``undo`` then gives the original tree.
- after a loss in ``purge``: ``purge`` ends with 0, the applied tree stays and nothing of krepair's is left;
  ``undo`` puts back what was not purged yet: each partition is as before, or as applied.
- what a verb that ended with 0 has done is there without running anything again.
- after a loss in ``apply``: where a journal is, a whole copy of the plan is beside it; and once ``apply`` has ended
  with 0, krepair's own folders have the owner and mode of the partition folder.

Some histories begin with a verb that is killed: what it had not synced is still in the memory of the system, where
the next run finds it, and may lose it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from krepair.commit.journal import COPY_NAME, JOURNAL_NAME
from krepair.durable import medium
from krepair.errors import ExitCode, KrepairError
from krepair.ops.apply import apply
from krepair.ops.purge import purge
from krepair.ops.undo import undo
from krepair.options import Options
from krepair.plan.keep import UNTIL_VERIFIED
from krepair.plan.model import Plan
from krepair.plan.planfile import kept_copy
from tools.torture.disk_model import State, Volume
from tools.torture.real_tree import RealTree, Tree, differences, has_private, public_tree, read_state
from tools.torture.recording import PRIVATE, Attrs, Ended, Event, KilledError, Synced, Watch
from tools.torture.scenes import MEMORY, ONE_BARRIER, SCENES, Scene, build, every_keep
from tools.torture.state import State as Done

HISTORIES: dict[str, tuple[str, ...]] = {
    "apply": ("apply",),
    "undo": ("apply", "undo"),
    "purge": ("apply", "purge"),
    "apply-after-undo": ("apply", "undo", "apply"),
    "apply-after-kill": ("killed apply", "apply"),
    "undo-after-kill": ("killed apply", "undo"),
    "undo-after-killed-undo": ("apply", "killed undo", "undo"),
    "apply-after-killed-undo": ("apply", "killed undo", "undo", "apply"),
    "purge-after-kill": ("apply", "killed purge", "purge"),
}
"""Name -> verbs that are run one after the other; the power goes in the last one."""

KILLS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where a killed verb ends, as a share of its calls."""

PER_POINT = 5
"""States of each instant of a history, in a full run."""

MOST_PER_UNIT = 800
"""States of each history, in a full run."""

_UNDO_OF = 3
"""After a loss in ``apply``, what the second ``apply`` makes is undone in one of so many states."""

_NO_JOURNAL = "no journal of this plan is here"
_UNCHANGED = frozenset({ExitCode.STALE_PLAN, ExitCode.REFUSED, ExitCode.UNWRITABLE})

_VERBS: dict[str, Callable[..., object]] = {"apply": apply, "undo": undo, "purge": purge}


class Outcome(NamedTuple):
    """Result of a verb's run: its exit code (-1: an error that no verb may raise) and its messages."""

    code: int
    said: str


def run_verb(verb: str, plan: Plan, options: Options) -> Outcome:
    """Run a verb as the command line does.

    Raises:
        KeyboardInterrupt: somebody wants the programme to stop: the verb took the signal for its own.
    """
    outcome = _outcome(verb, plan, options)
    if outcome.code == ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    return outcome


def _outcome(verb: str, plan: Plan, options: Options) -> Outcome:
    try:
        report = _VERBS[verb](plan, options)
    except KrepairError as error:
        return Outcome(int(error.exit_code), error.message)
    except Exception as error:
        return Outcome(-1, f"{type(error).__name__}: {error}")
    why = "; ".join(result.why for result in report.results if result.why)  # type: ignore[attr-defined]
    return Outcome(int(report.exit_code), why)  # type: ignore[attr-defined]


class Failure(NamedTuple):
    """A state from which a verb did not end right.

    Attributes:
        point: index of the last event before the power went.
        choice: number of the state at that instant.
        check: name of the broken promise.
        why: difference from what was promised.
        event: the last call before the power went.
    """

    point: int
    choice: int
    check: str
    why: str
    event: str

    def __str__(self) -> str:
        return f"{self.check}: {self.why}\nthe last call before the loss: {self.event}"


class Recording(NamedTuple):
    """One history written down.

    Attributes:
        start: the tree before its last verb's first call, all durable, or the very first tree.
        events: calls of all verbs.
        first: index of the first event of the last verb.
        end: the tree after the last event, with nothing lost.
    """

    start: State
    events: list[Event]
    first: int
    end: State


class Site:
    """One scene on the disk, with everything that was written down of it.

    Args:
        scene: scene that is tried.
        folder: an empty folder in memory; the caller removes it.
    """

    def __init__(self, scene: Scene, folder: str) -> None:
        self.scene = scene
        whole = Path(folder) / "scene"
        placed = scene.place(whole)
        self.plan = placed.plan
        self.root = os.fspath(placed.path)
        pool = f"{folder}/pool"
        os.mkdir(pool)
        self.watch = Watch(self.root, pool)
        self.watch.believes_syncfs = scene.one_barrier
        self.real_tree = RealTree(self.watch)
        with self.watch:
            self.original = read_state(self.watch)
            self.before = public_tree(self.original)
            outcome = self.run("apply")
            if outcome.code != 0:
                raise AssertionError(f"{scene.name}: apply ends with {outcome}")
            self.after = public_tree(read_state(self.watch))
            self.real_tree.put(self.original)

    def run(self, verb: str) -> Outcome:
        """Run a verb on it."""
        return run_verb(verb, self.plan, self.scene.options)

    def record(self, verbs: Sequence[str], kill: float = 0.5) -> Recording:
        """Run verbs one after the other from the original tree and write down what they ask of the system.

        Args:
            verbs: verbs of a history in ``HISTORIES``.
            kill: share of its calls after which a killed verb ends.

        Raises:
            AssertionError: a verb failed; or the model does not come to the tree that is there at the end.
        """
        calls = self._calls_of_killed(verbs) if any(verb.startswith("killed ") for verb in verbs) else 0
        self.reset()
        first = 0
        with self.watch.recording() as events:
            for verb in verbs:
                first = len(events)
                if verb.startswith("killed "):
                    self._kill(verb.removeprefix("killed "), len(events) + int(kill * calls))
                    continue
                outcome = self.run(verb)
                if outcome.code != 0:
                    raise AssertionError(f"{self.scene.name}: {verb} ends with {outcome}")
                events.append(Ended(verb, outcome.code))
        volume = Volume(self.node, self.original)
        for event in events:
            volume.take(event)
        newest, state = volume.newest(), read_state(self.watch)
        if newest.signature != state.signature:
            raise AssertionError(f"{self.scene.name}: the recording of {verbs} misses calls")
        return Recording(self.original, events, first, newest)

    def reset(self) -> None:
        """Make the original tree again, and forget the files of earlier recordings."""
        self.watch.forget(set(self.original.files.values()), {self.node, *self.original.folders.values()})
        self.real_tree.put(self.original)

    def _calls_of_killed(self, verbs: Sequence[str]) -> int:
        """Return how many calls the killed verb makes if nobody kills it."""
        until = next(number for number, verb in enumerate(verbs) if verb.startswith("killed "))
        whole = self.record([*verbs[:until], verbs[until].removeprefix("killed ")])
        return len(whole.events) - whole.first

    def _kill(self, verb: str, at: int) -> None:
        self.watch.kill_at = at
        with contextlib.suppress(KilledError):
            self.run(verb)
        self.watch.kill_at = sys.maxsize

    @property
    def node(self) -> int:
        """The inode of the log directory."""
        return os.stat(self.watch.root).st_ino


class Trial(NamedTuple):
    """A state, and where it came from."""

    point: int
    choice: int
    state: State


def trials(
    site: Site, recording: Recording, *, seed: str, per_point: int, without: Collection[str] = ()
) -> Iterator[Trial]:
    """Yield every state of a recording that is tried; the same for the same seed.

    Args:
        site: scene on its file system.
        recording: recorded calls of the history.
        seed: seed of the samples.
        per_point: number of states of each instant.
        without: syncs that are left out of the recording, as if their lines did not exist.
    """
    volume = Volume(site.node, recording.start)
    bare = Volume(site.node, recording.start) if without else None
    for number, event in enumerate(recording.events):
        if isinstance(event, Synced) and event.site in without:
            if bare is not None:
                bare.take(event)
            continue
        volume.take(event)
        if bare is not None:
            bare.take(event)
        # A sync only takes states away, so nothing new can be there after it, but what a verb's end claims.
        if number < recording.first or isinstance(event, Synced):
            continue
        if bare is not None and bare.pending == volume.pending:
            continue  # nothing is on its way that is not also with the sync
        rng = random.Random(f"{seed} {number}")
        states = volume.states_without(bare, rng, per_point) if bare else volume.states(rng, per_point)
        for choice, state in enumerate(states):
            yield Trial(number, choice, state)


class Checker:
    """Checks of states, with counters.

    Args:
        site: scene on its file system.
        history: name of the recording.
        recording: recorded calls of the history.
        figures: counters: states, distinct trees, runs of verbs.
    """

    def __init__(self, site: Site, history: str, recording: Recording, figures: Counter[str]) -> None:
        self.site = site
        self.verb = HISTORIES[history][-1]
        self.recording = recording
        self.figures = figures
        self.seen: set[tuple[int, bool, int]] = set()
        self.frees = site.plan.policy.keep == UNTIL_VERIFIED
        self.plan_bytes = kept_copy(site.plan)

    def check(self, trial: Trial) -> Failure | None:
        """Try one state, one way on; a tree that was tried before in this way is not tried again."""
        event = self.recording.events[trial.point]
        ended = isinstance(event, Ended)
        self.figures["states"] += 1
        signature = trial.state.signature
        key = (signature, ended, trial.choice % 2)
        if key in self.seen:
            return None
        self.figures["trees"] += (
            not {(signature, end, way) for end in (False, True) for way in (0, 1)} & self.seen
        )
        self.seen.add(key)
        if self.verb == "apply":
            wrong = self._without_plan(trial.state) or (self._owners(trial.state) if ended else "")
            if wrong:
                return Failure(trial.point, trial.choice, f"loss in {self.verb}", wrong, shown(event))
        for name, check in self._checks(trial.choice, ended=ended):
            self.site.real_tree.put(trial.state)
            why = check()
            if why:
                return Failure(
                    trial.point, trial.choice, f"loss in {self.verb}, then {name}", why, shown(event)
                )
        return None

    def _checks(self, choice: int, *, ended: bool) -> list[tuple[str, Callable[[], str]]]:
        """Run by turns one of the two ways to continue; and check the claims of a verb at its end."""
        claims = {"apply": self._applied, "undo": self._undone, "purge": self._purged}
        again = self._apply if choice // 2 % _UNDO_OF == 0 else self._apply_only
        if self.frees:
            ways_of_freeing = [("apply", self._apply_only), ("undo", self._undo_as_far_as_it_goes)]
            return [*([("nothing", claims[self.verb])] if ended else []), ways_of_freeing[choice % 2]]
        ways = {
            "apply": [("apply", again), ("undo", self._undo)],
            "undo": [("undo", self._undo), ("apply", self._apply_of_undone)],
            "purge": [("purge", self._purge), ("undo", self._undo_of_purged)],
        }
        return [*([("nothing", claims[self.verb])] if ended else []), ways[self.verb][choice % 2]]

    # -- what has to be true; each gives what is not, or nothing

    def _without_plan(self, state: State) -> str:
        """Check that a kept original always has a copy of the plan beside it: no verb needs the plan file."""
        for path in state.files:
            private, _, name = path.rpartition("/")
            keeps = any(f"{private}/{folder}" in state.folders for folder in ("keep", "out"))
            if PRIVATE in private and name == JOURNAL_NAME and keeps:
                copy = state.files.get(f"{private}/{COPY_NAME}")
                if copy is None or state.data[copy] != self.plan_bytes:
                    return f"{path} is there, and no whole copy of the plan beside it"
        return ""

    def _owners(self, state: State) -> str:
        """Check that owner and mode of krepair's own folders let the broker delete them."""
        end = self.recording.end
        for path, node in state.folders.items():
            if PRIVATE in path and state.attrs[node] != end.attrs.get(node, state.attrs[node]):
                return f"{path}: {state.attrs[node]} instead of {end.attrs[node]}"
        return ""

    def _run(self, verb: str) -> Outcome:
        self.figures["runs"] += 1
        return self.site.run(verb)

    def _is(self, expected: Tree, *, private: bool) -> str:
        state = read_state(self.site.watch)
        different = differences(public_tree(state), expected)
        if not private and has_private(state):
            different.append("a folder of krepair's is left")
        return "; ".join(different[:4])

    def _applied(self) -> str:
        return self._is(self.site.after, private=True)

    def _undone(self) -> str:
        return self._is(self.site.before, private=True)

    def _purged(self) -> str:
        return self._is(self.site.after, private=False)

    def _must(self, verb: str, expected: Tree, *, private: bool = True) -> str:
        outcome = self._run(verb)
        if outcome.code != 0:
            return f"{verb} ends with {outcome.code}: {outcome.said}"
        different = self._is(expected, private=private)
        return f"{verb} ends with 0, but {different}" if different else ""

    def _undo(self) -> str:
        return self._must("undo", self.site.before, private=False)

    def _undo_as_far_as_it_goes(self) -> str:
        """Check that undo leaves what apply has freed; every file is old or new, and apply can resume."""
        tree = public_tree(read_state(self.site.watch))
        outcome = self._run("undo")
        now = public_tree(read_state(self.site.watch))
        if outcome.code == -1:
            return f"undo ends with {outcome.said}"
        if outcome.code == 0:
            different = self._is(self.site.before, private=True)
            if different:
                return f"undo ends with 0, but {different}"
        elif "freed" not in outcome.said and not self._keeps_nothing_any_more(outcome, tree):
            return f"undo ends with {outcome.code}: {outcome.said}"
        elif outcome.code in _UNCHANGED and now != tree:
            return f"undo ends with {outcome.code}, but {'; '.join(differences(now, tree)[:4])}"
        for path in sorted(now.keys() | self.site.before.keys() | self.site.after.keys()):
            if now.get(path) not in (self.site.before.get(path), self.site.after.get(path)):
                return f"undo ends with {outcome.code}, and {path} is neither the old nor the new file"
        return self._apply_only()

    def _keeps_nothing_any_more(self, outcome: Outcome, tree: Tree) -> bool:
        """Return whether a refusal without freed originals is right: all was applied, and the records went last.

        Apply removes its records once the whole plan is carried out and freed. From then on nobody can tell this plan
        from another one that made equal files, so undo says that no journal is here. While a file is still the old one
        records are there, and this refusal would be wrong.
        """
        refused = outcome.code == ExitCode.REFUSED and _NO_JOURNAL in outcome.said
        return refused and not differences(tree, self.site.after)

    def _apply_only(self) -> str:
        return self._must("apply", self.site.after)

    def _apply(self) -> str:
        return self._apply_only() or self._undo()

    def _apply_of_undone(self) -> str:
        outcome = self._run("apply")
        if outcome.code == 0:
            different = self._is(self.site.after, private=True)
            if different:
                return f"apply ends with 0, but {different}"
        elif outcome.code == -1 or "undo" not in outcome.said:
            return f"apply ends with {outcome.code}: {outcome.said}"
        return self._undo()

    def _purge(self) -> str:
        return self._must("purge", self.site.after, private=False)

    def _undo_of_purged(self) -> str:
        outcome = self._run("undo")
        if outcome.code == -1:
            return f"undo ends with {outcome.said}"
        now = by_partition(public_tree(read_state(self.site.watch)))
        before, after = by_partition(self.site.before), by_partition(self.site.after)
        mixed = [
            f"{name}: {'; '.join([*differences(tree, before[name])[:2], *differences(tree, after[name])[:2]])}"
            for name, tree in now.items()
            if tree not in (before[name], after[name])
        ]
        return f"undo ends with {outcome.code}, a mixture is left: {mixed[0]}" if mixed else ""


def by_partition(tree: Tree) -> dict[str, Tree]:
    """Split a tree: partition folder -> its part; the files of the root one by one."""
    out: dict[str, Tree] = {}
    for path, entry in tree.items():
        out.setdefault(path.partition("/")[0], {})[path] = entry
    return out


def shown(event: Event, names: Mapping[int, str] | None = None) -> str:
    """Describe an event in one line; folders and files by their names if they are known."""
    fields = []
    for name, value in zip(event._fields, event, strict=True):
        if name in ("node", "folder", "to_folder") and isinstance(value, int):
            fields.append((names or {}).get(value, str(value)))
        elif not isinstance(value, Attrs):
            fields.append(str(value)[:70])
    return f"{type(event).__name__} {'  '.join(fields)}"


@contextlib.contextmanager
def placed(scene: Scene, work: Path | None = None) -> Iterator[Site]:
    """Place a scene on a file system, in memory by default, and watch it."""
    parent = work or (MEMORY if os.access(MEMORY, os.W_OK) else None)
    folder = tempfile.mkdtemp(prefix="krepair-power-", dir=parent)
    many = medium.MANY
    try:
        medium.MANY = 1 if scene.one_barrier else many  # type: ignore[misc]
        site = Site(scene, folder)
        with site.watch:
            yield site
    finally:
        medium.MANY = many  # type: ignore[misc]
        shutil.rmtree(folder)


class Case(NamedTuple):
    """All that makes a state again.

    Attributes:
        scene: name of the scene.
        seed: seed of the scene and of the samples.
        history: name in ``HISTORIES``.
        kill: share of its calls after which a killed verb ends.
        per_point: states of each instant.
        point: number of the instant.
        choice: number of the state.
        without: ids of syncs that are left out, divided by ``+``.
    """

    scene: str
    seed: int
    history: str
    kill: float = 0.0
    per_point: int = PER_POINT
    point: int = -1
    choice: int = -1
    without: str = ""

    def __str__(self) -> str:
        return ":".join(str(value) for value in self).rstrip(":")

    @classmethod
    def parse(cls, text: str) -> Case:
        """Parse a case from its text."""
        values = [*text.split(":"), ""][:8]
        scene, seed, history, kill, per_point, point, choice, without = values
        return cls(scene, int(seed), history, float(kill), int(per_point), int(point), int(choice), without)

    @property
    def words(self) -> str:
        """The text that seeds the samples."""
        return f"{self.scene} {self.seed} {self.history} {self.kill}"


def sync_id(site: str) -> str:
    """Return a short name of a sync, for replaying."""
    return hashlib.blake2b(site.encode(), digest_size=4).hexdigest()


def explore(
    site: Site,
    case: Case,
    figures: Counter[str],
    *,
    most: int = sys.maxsize,
    without: Collection[str] = (),
) -> Iterator[tuple[Case, Failure]]:
    """Try one history of a scene; gives what went wrong, as it comes.

    Args:
        site: scene on its file system.
        case: history, and the number of states of each instant.
        figures: counters to update.
        most: upper bound of the states, chosen by the seed.
        without: syncs that are left out of the recording.
    """
    recording = site.record(HISTORIES[case.history], case.kill)
    checker = Checker(site, case.history, recording, figures)
    tried = trials(site, recording, seed=case.words, per_point=case.per_point, without=without)
    chosen = None
    if most < sys.maxsize:
        numbers = [
            trial[:2]
            for trial in trials(site, recording, seed=case.words, per_point=case.per_point, without=without)
        ]
        if len(numbers) > most:
            chosen = set(random.Random(case.words).sample(numbers, most))
    for trial in tried:
        if chosen is None or trial[:2] in chosen:
            failure = checker.check(trial)
            if failure:
                left_out = "+".join(sorted(map(sync_id, without)))
                yield case._replace(point=failure.point, choice=failure.choice, without=left_out), failure


def units(name: str, seed: int) -> list[Case]:
    """Return the histories of a scene."""
    keep = name.partition("~")[2]
    if keep == UNTIL_VERIFIED:
        killed = [Case(name, seed, "apply-after-kill", kill) for kill in KILLS]
        return [Case(name, seed, "apply"), *killed]
    cases = [Case(name, seed, history) for history in HISTORIES if "kill" not in history]
    return cases + [
        Case(name, seed, history, kill) for history in HISTORIES if "kill" in history for kill in KILLS
    ]


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Try every history of every scene; with ``state.samples`` that many states of each."""
    for seed in seeds:
        for name in (*every_keep(SCENES), *ONE_BARRIER):
            remaining = [case for case in units(name, seed) if not state.is_done(_unit(case))]
            if not remaining or state.time_is_up():
                continue
            with placed(build(name, seed), workdir) as site:
                for case in remaining:
                    if state.time_is_up():
                        break
                    figures: Counter[str] = Counter()
                    for failed, failure in explore(site, case, figures, most=state.most(MOST_PER_UNIT)):
                        state.wrong(str(failed), str(failure))
                    state.keep(_unit(case), figures)


def _unit(case: Case) -> str:
    return f"{case.scene}:{case.seed}:{case.history}:{case.kill}"


def replay(text: str, workdir: Path) -> list[str]:
    """Make one state again, show it, and say what goes wrong with it."""
    case = Case.parse(text)
    with placed(build(case.scene, case.seed), workdir) as site:
        recording = site.record(HISTORIES[case.history], case.kill)
        syncs = {event.site for event in recording.events if isinstance(event, Synced)}
        without = {sync for sync in syncs if sync_id(sync) in case.without.split("+")}
        for sync in without:
            print(f"left out: {sync}")
        for trial in trials(site, recording, seed=case.words, per_point=case.per_point, without=without):
            if (trial.point, trial.choice) == (case.point, case.choice):
                _show(site, recording, trial, without)
                failure = Checker(site, case.history, recording, Counter()).check(trial)
                return [str(failure)] if failure else []
    return [f"{text}: there is no such state; was the source changed since?"]


def _show(site: Site, recording: Recording, trial: Trial, without: Collection[str]) -> None:
    first = max(0, trial.point - 12)
    names = {node: path for path, node in [*trial.state.files.items(), *trial.state.folders.items()]}
    for number, event in enumerate(recording.events[first : trial.point + 2], first):
        print(f"{'>' if number == trial.point else ' '} {number:4} {shown(event, names | {site.node: '.'})}")
    volume = Volume(site.node, recording.start)
    for event in recording.events[: trial.point + 1]:
        if not (isinstance(event, Synced) and event.site in without):
            volume.take(event)
    print("the tree, where it differs from the one that a killed process leaves:")
    for line in differences(_whole(trial.state), _whole(volume.newest())):
        print(f"  {line}")


def _whole(state: State) -> Tree:
    entries = [*state.files.items(), *state.folders.items()]
    return {path: (state.attrs[node], state.data.get(node, b"")) for path, node in entries}
