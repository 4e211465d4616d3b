"""Damages journals (every bit, every length; lost, doubled and exchanged records), then runs every verb and the advice.

At several moments of a plan's life (applied, half applied, half undone, being purged) one journal is damaged, and a
verb is run on it. What has to be true:

- ``apply`` and ``undo`` end with 0 only on the tree that they promise; ``purge`` leaves each file as before or as
  applied, and nothing of krepair's.
- What is refused names a file, and touches no file of the partition but its own journal.
- Nothing is lost: after the verb ``undo``, the lines that it shows, typed in a shell, and ``undo`` again give the
  original tree, unless a purge was at work; after a purge that was refused, that of the partition whose journal is
  damaged. ``purge`` then leaves nothing of krepair's.
- Where apply frees originals, each file is as before or as applied after these lines.
"""

from __future__ import annotations

import os
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from krepair.commit.journal import encode_line, header_of
from krepair.commit.kept import kept_report
from krepair.errors import ExitCode, KrepairError
from krepair.formats.filenames import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from krepair.ops.undo import undo
from krepair.ops.verify import verify_plan
from krepair.plan.keep import INPLACE
from tools.torture.disk_model import State
from tools.torture.power_loss import Outcome, Site, by_partition, placed
from tools.torture.real_tree import differences, has_private, public_tree, read_state
from tools.torture.scenes import FREEING, SCENES, build
from tools.torture.state import State as Done

HALF = (0.15, 0.35, 0.5, 0.65, 0.8, 0.95)
"""Where a killed verb ends, as a share of its calls."""

MOMENTS: tuple[tuple[tuple[str, ...], float], ...] = (
    (("apply",), 0.0),
    *((("killed apply",), share) for share in HALF),
    *((("apply", "killed undo"), share) for share in HALF),
    (("apply", "killed purge"), 0.5),
)
"""What was run until a journal is damaged, and where it was killed."""

VERBS = ("apply", "undo", "purge", "verify", "list")
_KINDS = ("bit", "cut", "zeros", "lost", "doubled", "exchanged", "foreign", "gone")
_REFUSALS = {int(code) for code in ExitCode} - {0, int(ExitCode.BUG)}
_OF_THE_FENCE = {CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT}
MOST = 600
"""Damages of each moment and scene, in a full run."""


class Damage(NamedTuple):
    """One way to damage a journal; its text is ``kind-number``."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Damage:
        """Parse a damage from its text."""
        kind, _, number = text.partition("-")
        return cls(kind, int(number))


def damages(data: bytes) -> Iterator[Damage]:
    """Yield every damage of a journal."""
    lines = data.count(b"\n")
    for kind in _KINDS:
        count = {"bit": len(data) * 8, "cut": len(data), "zeros": len(data), "foreign": 2, "gone": 1}
        yield from (Damage(kind, number) for number in range(count.get(kind, lines)))


def damaged(data: bytes, damage: Damage) -> bytes | None:
    """Return the journal with a damage; None if the file is gone."""
    lines, number = data.splitlines(keepends=True), damage.number
    match damage.kind:
        case "bit":
            out = bytearray(data)
            out[number // 8] ^= 1 << number % 8
            return bytes(out)
        case "cut":
            return data[:number]
        case "zeros":
            return data[:number] + bytes(len(data) - number)
        case "lost":
            return b"".join(lines[:number] + lines[number + 1 :])
        case "doubled":
            return b"".join(lines[: number + 1] + lines[number:])
        case "exchanged":
            return b"".join(lines[:number] + lines[number : number + 2][::-1] + lines[number + 2 :])
        case "foreign":
            header = header_of("0" * 8, "t-0") if number else header_of("f" * 8, "another-0")
            return b"".join([encode_line(header), *lines[1:]])
        case _:
            return None


def run_any(site: Site, verb: str) -> Outcome:
    """Run a verb of this programme, those that only look among them; ``by hand``: undo, and the lines that it shows."""
    if verb in {"apply", "undo", "purge"}:
        return site.run(verb)
    try:
        if verb == "verify":
            verified = verify_plan(site.plan, site.scene.options)
            return Outcome(int(verified.exit_code), "; ".join(problem.text for problem in verified.problems))
        if verb == "list":
            listed = kept_report(site.root, site.scene.options.now_ms)
            return Outcome(0, "; ".join(plan.why_not for plan in listed.plans))
        report = undo(site.plan, site.scene.options)
        for line in report.by_hand:
            _type(line)
    except KrepairError as error:
        return Outcome(int(error.exit_code), error.message)
    except Exception as error:
        return Outcome(-1, f"{type(error).__name__}: {error}")
    text = "; ".join(f"{result.change_id}: {result.outcome} {result.why}" for result in report.results)
    return Outcome(int(report.exit_code), text)


def _type(line: str) -> None:
    """Do what a shell does with a line of undo, by calls that this programme sees."""
    for command in line.split(" && "):
        match shlex.split(command):
            case ["mv", source, target]:
                os.rename(source, target)
            case ["rm", path]:
                os.unlink(path)
            case ["cat", source, ">>", target]:
                more = Path(source).read_bytes()
                with open(target, "ab") as file:
                    file.write(more)
            case ["truncate", "-s", size, path]:
                os.truncate(path, int(size))
            case ["touch", "-m", "-d", moment, path]:
                seconds, nanoseconds = moment.removeprefix("@").split(".")
                now = os.stat(path)
                os.utime(path, ns=(now.st_atime_ns, int(seconds) * 10**9 + int(nanoseconds)))
            case other:
                raise AssertionError(other)


class Case(NamedTuple):
    """Damage of a journal at a moment, and the next verb; its text joins them by colons."""

    scene: str
    seed: int
    moment: int
    journal: int
    damage: str
    verb: str

    def __str__(self) -> str:
        return ":".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> Case:
        """Parse a case from its text."""
        scene, seed, moment, journal, damage, verb = text.split(":")
        return cls(scene, int(seed), int(moment), int(journal), damage, verb)


class Moment:
    """One scene at one moment.

    Args:
        site: scene on its file system.
        number: number of the moment.
    """

    def __init__(self, site: Site, number: int) -> None:
        self.site = site
        self.history, share = MOMENTS[number]
        site.record(self.history, share)
        self.state = read_state(site.watch)
        self.journals = [path for path in sorted(self.state.files) if path.endswith("/journal")]

    def data(self, journal: int) -> bytes:
        """Return the bytes of a journal."""
        return self.state.data[self.state.files[self.journals[journal]]]

    def with_damage(self, journal: int, damage: Damage) -> State:
        """Return the tree with a damaged journal."""
        path = self.journals[journal]
        data, files = damaged(self.data(journal), damage), dict(self.state.files)
        if data is None:
            del files[path]
            return self.state._replace(files=files)
        return self.state._replace(data=self.state.data | {files[path]: data})

    def wrong(self, journal: int, damage: Damage, verb: str) -> str:
        """Return the fault after a verb on a damaged journal, or an empty string."""
        site, state = self.site, self.with_damage(journal, damage)
        site.real_tree.put(state)
        outcome = run_any(site, verb)
        after = read_state(site.watch)
        tree, was = public_tree(after), public_tree(state)
        text = f"{verb} ends with {outcome.code}: {outcome.said}"
        if outcome.code not in _REFUSALS | {0}:
            return text
        if verb in {"verify", "list"} and tree != was:
            return f"{text}; it changed what a broker reads"
        if outcome.code == 0 and not self._is_promised(verb, outcome.said, after, damage):
            return f"{text}; but the tree is another one"
        if outcome.code and verb != "verify" and "/" not in outcome.said:
            return f"{text}; no file is named"
        if "killed purge" in self.history or (verb == "purge" and outcome.code == 0):
            return ""
        if site.plan.policy.keep != INPLACE:
            return self._ends(text)
        return self._is_lost(text, verb, self.journals[journal])

    def _is_promised(self, verb: str, text: str, after: State, damage: Damage) -> bool:
        site, tree = self.site, public_tree(after)
        if verb == "apply":
            return tree == site.after
        private = [path for path in after.files if "/krepair~" in path]
        # A purge that was killed, and of which no record tells any more, has taken files that had no other name.
        is_reported = "killed purge" not in self.history or damage.kind not in {"cut", "zeros", "lost", "bit"}
        if verb == "undo":
            ends = not private or "every original is in its place" in text
            return ends and (tree == site.before or not is_reported)
        if verb == "purge":
            old, new = site.before, site.after
            # A fence whose journal is damaged goes as after an unclean stop.
            return not private and all(
                path in _OF_THE_FENCE or entry in (old.get(path), new.get(path))
                for path, entry in tree.items()
            )
        return True

    def _ends(self, text: str) -> str:
        """Check that each file is old or new: where apply frees originals, there may be no way back."""
        outcomes = [run_any(self.site, "by hand") for _ in range(2)]
        tree, old, new = public_tree(read_state(self.site.watch)), self.site.before, self.site.after
        if any(
            path not in _OF_THE_FENCE and entry not in (old.get(path), new.get(path))
            for path, entry in tree.items()
        ):
            return f"{text}; after it undo ends with {outcomes}, and a file is neither old nor new"
        return ""

    def _is_lost(self, text: str, verb: str, journal: str) -> str:
        # The lines of the root come first, or last: then undo has to be typed once more for the partitions.
        outcomes = [run_any(self.site, "by hand") for _ in range(3)]
        now, before = public_tree(read_state(self.site.watch)), self.site.before
        if verb == "purge":
            # The other partitions may be purged by now, and with the root goes the way back of what it trusts.
            folder = journal.partition("/")[0]
            lost = self.site.plan.root is None and (
                by_partition(now).get(folder) != by_partition(before).get(folder)
            )
        else:
            lost = outcomes[-1].code != 0 or now != before
        if lost:
            return f"{text}; after it undo and its lines end with {outcomes}; {differences(now, before)}"
        purged = self.site.run("purge")
        if verb != "purge" and (purged.code or has_private(read_state(self.site.watch))):
            return f"{text}; after it undo and its lines end with {outcomes}, and purge with {purged}"
        return ""


def moments_of(name: str) -> list[int]:
    """Return numbers of the moments that a scene can have: freed originals are not undone."""
    return [number for number, (history, _) in enumerate(MOMENTS) if name not in FREEING or len(history) == 1]


def try_moment(
    site: Site, name: str, number: int, most: int, verbs: Sequence[str] = VERBS, seed: int = 0
) -> tuple[int, list[tuple[Case, str]]]:
    """Try damages of the journals of one moment; gives how many cases that were, and what went wrong."""
    moment = Moment(site, number)
    chosen = [
        (journal, damage)
        for journal in range(len(moment.journals))
        for damage in damages(moment.data(journal))
    ]
    rng = random.Random(f"{name} {seed} {number}")
    if len(chosen) > most:
        # Most damages are bits: of every kind there are some.
        rare = [pair for pair in chosen if pair[1].kind not in {"bit", "cut", "zeros"}]
        common = [pair for pair in chosen if pair[1].kind in {"bit", "cut", "zeros"}]
        rare = rng.sample(rare, min(len(rare), most // 2))
        chosen = rare + rng.sample(common, min(len(common), most - len(rare)))
    wrong = []
    for place, (journal, damage) in enumerate(chosen):
        verb = verbs[place % len(verbs)]
        why = moment.wrong(journal, damage, verb)
        if why:
            wrong.append((Case(name, seed, number, journal, str(damage), verb), why))
    return len(chosen), wrong


def run(seeds: range, workdir: Path, state: Done) -> None:
    """Try every moment of every scene; with ``state.samples`` that many damages of each."""
    for seed in seeds:
        for name in (*SCENES, *FREEING):
            units = {f"{name}:{seed}:{number}": number for number in moments_of(name)}
            remaining = {unit: number for unit, number in units.items() if not state.is_done(unit)}
            if not remaining or state.time_is_up():
                continue
            with placed(build(name, seed), workdir) as site:
                for unit, number in remaining.items():
                    if state.time_is_up():
                        break
                    cases, wrong = try_moment(site, name, number, state.most(MOST), seed=seed)
                    for case, why in wrong:
                        state.wrong(str(case), why)
                    state.keep(unit, Counter({"damaged journals": cases}))


def replay(text: str, workdir: Path) -> list[str]:
    """Make one case again; gives what is wrong."""
    case = Case.parse(text)
    with placed(build(case.scene, case.seed), workdir) as site:
        why = Moment(site, case.moment).wrong(case.journal, Damage.parse(case.damage), case.verb)
    return [why] if why else []
