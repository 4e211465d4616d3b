"""One fix: what it looks at, what it finds, what it proposes, how its bytes are made again, how they are verified.

A fix is one module beside this one and one line in ``krepair.fixes.table``. How much space a change takes, how
it is reviewed, committed and taken back, is not its business: see ``krepair.plan.actions`` and
``krepair.journal.actions``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from krepair.checks.catalogue import Finding
from krepair.fixes.context import Context
from krepair.fixes.second_readings import Applied, SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Survey
from krepair.logdir.values import LogDir, Partition
from krepair.options import Options
from krepair.pipeline.engines.costs import WorkKind
from krepair.plan.model import Change, ChangeLines, ReplaceFile
from krepair.rules.model import LeftAlone

Purpose = Literal["check", "plan"]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What one fix wants of one partition.

    Attributes:
        changes: in the order in which they are carried out.
        root_changes: of files of the root, by name.
        notes: for the reviewer.
        left: why the partition is left as it is by this fix, None if it is not.
        left_note: a note that says so, where another fix changes the partition.
        log_end: the log end offset, as far as this fix knows it; else 0.
        raises_point: whether a line of the root, its recovery point, changes for it.
        fields: fields of ``PartitionPlan`` that only this fix knows, by name.
    """

    changes: tuple[Change, ...] = ()
    root_changes: tuple[ReplaceFile | ChangeLines, ...] = ()
    notes: tuple[str, ...] = ()
    left: LeftAlone | None = None
    left_note: str = ""
    log_end: int = 0
    raises_point: bool = False
    fields: dict[str, Any] | None = None


class Fix(ABC):
    """One name that ``--fix`` takes.

    Attributes:
        name: as typed.
        ways: what may be typed after ``=``; the first is meant where nothing is typed. Empty: nothing may be.
        after: names of the fixes whose changes it has to know.
        mends: rules of the findings that it answers.
        work: what it does with the logs that it reads whole: what that costs decides on the engine.
        previews: whether ``plan --preview`` may run it beside a running broker: it decides from closed segments, and
            reads logs through ``krepair.fixes.logs``.
        asks_others: whether it decides by what other replicas hold.
        takes: which partitions it takes where none is named, if these are not all: a line for plans that have none.
    """

    name: ClassVar[str]
    ways: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    mends: ClassVar[frozenset[str]] = frozenset()
    previews: ClassVar[bool] = False
    asks_others: ClassVar[bool] = False
    takes: ClassVar[str] = ""
    work: ClassVar[WorkKind] = WorkKind.READ

    def way(self, asked: Collection[str]) -> str:
        """How it was asked for: a word of ``ways``, ``""`` if it has none; see ``is_asked``."""
        typed = next((word.partition("=")[2] for word in asked if word.partition("=")[0] == self.name), "")
        return typed or (self.ways[0] if self.ways else "")

    def is_asked(self, asked: Collection[str]) -> bool:
        """Whether it is among the words given to ``--fix``."""
        return any(word.partition("=")[0] == self.name for word in asked)

    def answers(self, finding: Finding) -> bool:
        """Whether it has something for a finding."""
        return finding.rule in self.mends

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """What ``check`` advises to type for it; empty where it has nothing to do after all."""
        return self.name

    def check_options(self, options: Options) -> None:
        """Refuse options that make no sense.

        Raises:
            UsageError: they do not.
        """
        del options

    def wants(self, context: Context, partition: Partition) -> bool:
        """Whether ``plan`` has it look at a partition that the command line lets in."""
        return True

    def reads_whole(self, partition: Partition, way: str) -> bool:
        """Whether ``plan`` has to read the logs of a partition for it: more of that calls for a larger engine."""
        return False

    @abstractmethod
    def look(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Look at partitions, in as few jobs as possible, and put what was seen into their surveys."""

    def findings(self, context: Context, survey: Survey) -> Iterator[Finding]:
        """What is wrong with one partition, of what was seen."""
        return iter(())

    @abstractmethod
    def propose(self, context: Context, survey: Survey) -> Proposal:
        """What to change in one partition; ``survey.changes`` are those of the fixes before it. Reads nothing."""

    def propose_root(self, context: Context) -> Proposal:
        """What to change in the root of the log directory, once for all partitions."""
        return Proposal()

    @abstractmethod
    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Make the bytes of the changes again, stage and sync them; a partition's problem is put into its staging."""

    @abstractmethod
    def second_readings(self, applied: Applied) -> Iterator[SecondReading]:
        """How what applied changes made is read once more."""


class RootFix(Fix, ABC):
    """A fix of the checkpoint files in the root of the log directory.

    It looks at all partitions, and proposes once, for the root.
    """

    def propose(self, context: Context, survey: Survey) -> Proposal:
        return Proposal()

    @abstractmethod
    def propose_root(self, context: Context) -> Proposal:
        """What to change in the root."""

    @abstractmethod
    def root_findings(self, context: Context) -> Iterator[Finding]:
        """What is wrong in the root."""


def named_or_all(view: LogDir, options: Options) -> list[Partition]:
    """Partitions that the command line lets in."""
    return [partition for partition in view.partitions if options.wants(partition.topic, partition.number)]
