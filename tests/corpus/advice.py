"""Somebody who types what krepair advises, and notes where that leads nowhere."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner, Result

from krepair.cli.main import app
from krepair.errors import ExitCode
from krepair.plan.model import Plan
from krepair.plan.planfile import read_plan
from tests.ops.scene import tree

VERBS = "check|plan|show|apply|verify|undo|purge|explain|dump|groups|transactions|diff|compare|facts"
COMMAND = re.compile(rf"^(?:next: +|\$ +)?(krepair (?:{VERBS})\b.*)$")
IN_A_SENTENCE = re.compile(rf"\b(krepair (?:{VERBS})\b[^;,()`]*?)(?=[;,()`]|\.(?:\s|$)|: |$)")
FIX = re.compile(
    r"(?<!krepair )(?<!for what )(?<!looked at for )--fix ([a-z]+(?:=[a-z]+)?(?:,[a-z]+(?:=[a-z]+)?)*)"
)
A_PERSON_FILLS_IN = re.compile(r"\b(?:FILE|DIR|NAME|RULE|VERSION|TOPIC|OFFSET|ID|PID|cluster\.txt)\b|\.\.\.")
LATER = re.compile(r"\bafter (?:this plan|it|that)\b|past the (?:new )?(?:log )?end|\bpast it\b")
OPTION = re.compile(r"(--set|--broker-version|--topic-config) (\S+)")
OPTIONS = ("--only-replica",)
CHANGES = ("krepair apply", "krepair undo", "krepair purge")
MOST = 40
WRONG = frozenset(
    {ExitCode.BUG, ExitCode.USAGE, ExitCode.STALE_PLAN, ExitCode.NOT_A_LOG_DIR, ExitCode.REFUSED}
)


class Typed(NamedTuple):
    """A command that was typed.

    Attributes:
        command: as typed.
        advisor: the command that advised it, or empty.
        code: how it ended.
        changes: of a plan: how many it has; else -1.
    """

    command: str
    advisor: str
    code: int
    changes: int


class Planned(NamedTuple):
    """A plan that was made.

    Attributes:
        advisor: the command that advised it, or empty.
        leads: whether it has a change, or says what a person has to find out.
        ways: plans that it advises.
        told: what it says of each partition.
    """

    advisor: str
    leads: bool
    ways: set[str]
    told: str


@dataclass
class Follower:
    """Types advice until nothing new is advised.

    Args:
        log_dir: the damaged directory; plans are written beside it.
        likes: verb that is typed where a page advises several that change the directory.

    Attributes:
        typed: each command, in order.
        dead_ends: what was wrong, in words.
        plans: command, without its file -> what became of it, in the directory as it is.
    """

    log_dir: Path
    likes: str = "purge"
    typed: list[Typed] = field(default_factory=list)
    dead_ends: list[str] = field(default_factory=list)
    plans: dict[str, Planned] = field(default_factory=dict)

    def follow(self, first: str) -> None:
        """Type a command, and all that it and its successors advise: what only reads at once, then one that changes."""
        reading = deque([(first, "")])
        while reading and len(self.typed) < MOST:
            changing = list(self._read(reading))
            self._judge()
            if not changing:
                return
            liked = [one for one in changing if one[0].startswith(f"krepair {self.likes} ")]
            applies = [one for one in changing if one[0].startswith("krepair apply ")]
            command, advisor = (applies or liked or changing)[0]
            reading = deque((one, command) for one in self._advised(command, self._type(command, advisor)))

    def _read(self, waiting: deque[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        seen: set[str] = set()
        while waiting and len(self.typed) < MOST:
            command, advisor = waiting.popleft()
            if command in seen:
                continue
            seen.add(command)
            if command.startswith(CHANGES):
                if (command, advisor) not in {(one.command, one.advisor) for one in self.typed}:
                    yield command, advisor
                continue
            before = tree(self.log_dir)
            texts = self._type(command, advisor)
            assert tree(self.log_dir) == before, command
            waiting.extend(
                (one, self.typed[-1].command) for one in self._advised(self.typed[-1].command, texts)
            )

    def _type(self, command: str, advisor: str) -> list[str]:
        """Run it; the lines of its page, and the texts of its document."""
        if command.startswith("krepair plan "):
            command = command.replace("--out PLAN", f"--out P{len(self.typed)}")
        words = shlex.split(command, comments=True)
        texts: list[str] = []
        if not command.startswith(CHANGES):
            texts += [line.strip() for line in self._run(words).output.splitlines()]
        result = self._run([*words, "--json"])
        out = self.log_dir.parent / words[-1]
        changes = -1
        if words[1] == "plan" and out.is_file():
            plan = read_plan(str(out))
            parts = [*plan.partitions, *([plan.root] if plan.root else [])]
            changes = sum(len(part.changes) for part in parts)
        self.typed.append(Typed(command, advisor, result.exit_code, changes))
        if result.exit_code in WRONG:
            self.dead_ends.append(f"{advisor} ->\n  {command}: ends with {result.exit_code}: {result.stderr}")
        if result.stdout.startswith("{"):
            texts += list(_texts(json.loads(result.stdout)))
        if words[1] == "plan" and changes >= 0:
            named = [one.next_command for one in plan.partitions]
            leads = (
                bool(changes)
                or any(way in str(texts) for way in OPTIONS)
                or any(map(A_PERSON_FILLS_IN.search, named))
            )
            ways = {_asked(one) for one in self._advised(command, texts) if one.startswith("krepair plan ")}
            self.plans[_asked(command)] = Planned(advisor, leads, ways, _told(plan))
        return texts

    def _judge(self) -> None:
        """Note each plan that has nothing and from which no advice leads to one that has something."""
        untyped = {way for planned in self.plans.values() for way in planned.ways} - set(self.plans)
        good = {command for command, planned in self.plans.items() if planned.leads} | untyped
        while more := {one for one, planned in self.plans.items() if planned.ways & good} - good:
            good |= more
        for command, planned in self.plans.items():
            if planned.advisor and command not in good:
                self.dead_ends.append(
                    f"{planned.advisor} ->\n  {command}: plans nothing, and leads to no other plan: {planned.told}"
                )
        self.plans.clear()

    def _run(self, words: list[str]) -> Result:
        here = os.getcwd()
        os.chdir(self.log_dir.parent)
        try:
            return CliRunner().invoke(app, words[1:])
        finally:
            os.chdir(here)

    def _advised(self, command: str, texts: list[str]) -> list[str]:
        """Commands that can be typed as they stand: what a person has to fill in is left to that person."""
        log_dir = str(self.log_dir)
        found = [match[1] for text in texts if (match := COMMAND.match(text))]
        found += [
            match[1].strip()
            for text in texts
            if not LATER.search(text)
            for match in IN_A_SENTENCE.finditer(text)
        ]
        now = [text for text in texts if not LATER.search(text)]
        fixes = [match[1] for text in now for match in FIX.finditer(text)]
        typed = shlex.join(word for pair in OPTION.findall(command) for word in pair)
        found += [f"krepair plan {shlex.quote(log_dir)} --fix {words} {typed} --out PLAN" for words in fixes]
        plan = shlex.split(command)[-1] if command.startswith("krepair plan ") else ""
        concrete = []
        for one in found:
            one = re.sub(r"\bLOGDIR\b", log_dir, one)
            if plan:
                one = re.sub(r"(?<!--out )\bPLAN\b", plan, one)
            words = shlex.split(one, comments=True)
            named = log_dir in words or any(re.fullmatch(r"P\d+|PLAN", word) for word in words[2:])
            if named and not A_PERSON_FILLS_IN.search(one):
                concrete.append(shlex.join(words))
        return list(dict.fromkeys(concrete))


def _told(plan: Plan) -> str:
    left = [f"{one.folder}: {one.code}: {one.why}; next: {one.next_command}" for one in plan.partitions]
    return "; ".join([*left, *(note for one in plan.partitions for note in one.notes)])


def _asked(command: str) -> str:
    """Its words without the place of the plan, in one order."""
    words = shlex.split(re.sub(r" --out \S+", "", command))
    return shlex.join([*words[:3], *sorted(words[3:])])


def _texts(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from _texts(value)
