"""One fix: what it looks at, what it finds, what it changes, how its bytes are made again, how they are verified.

A fix is one module beside this one and one line in ``krepair.fixes.table``. How much space a change takes, how
it is reviewed, committed and taken back, is not its business: see ``krepair.plan.changes`` and
``krepair.commit``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from krepair.checks.catalogue import RULES, Finding
from krepair.engine.choice import WorkKind
from krepair.errors import UsageError
from krepair.fixes.context import Context
from krepair.fixes.files import Made, stage_again
from krepair.fixes.second_readings import SecondReading, as_planned, gone
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Survey
from krepair.fixes.untouched import beside_leftovers, left_for_leftovers, why_untouched
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options, consents_of
from krepair.plan.model import Change, ChangeLines, Evidence, KeyCompaction, ReplaceFile
from krepair.rules.model import LeftAlone, PartitionDecision

Purpose = Literal["check", "plan"]


class Compacted(NamedTuple):
    """What was decided on the markers of one partition, and on its keys.

    Attributes:
        decision: on each segment.
        evidence: what is known of the other replicas.
        keys: what becomes of its records, if they go by key.
    """

    decision: PartitionDecision
    evidence: Evidence
    keys: KeyCompaction | UnsetType = UNSET


class Seen(NamedTuple):
    """What one fix sees in a partition, and what it wants to change there.

    Attributes:
        findings: what is wrong; worked out as they are read.
        changes: in the order in which they are carried out.
        notes: for the reviewer.
        left: why the partition is left as it is by this fix, None if it is not.
        left_note: a note that says so, where another fix changes the partition.
        log_end: the log end offset, as far as this fix knows it; else 0.
        raises_point: whether a line of the root, its recovery point, changes for it.
        compacted: what was decided on its markers and keys, None if nothing was.
    """

    findings: Iterable[Finding] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    left: LeftAlone | None = None
    left_note: str = ""
    log_end: int = 0
    raises_point: bool = False
    compacted: Compacted | None = None


class SeenRoot(NamedTuple):
    """The same of the root of the log directory."""

    findings: Iterable[Finding] = ()
    changes: tuple[ReplaceFile | ChangeLines, ...] = ()
    notes: tuple[str, ...] = ()


class Fix(ABC):
    """One name that ``--fix`` takes.

    Attributes:
        name: as typed.
        ways: what may be typed after ``=``; the first is meant where nothing is typed. Empty: nothing may be.
        after: names of the fixes whose changes it has to know.
        reads_logs: whether ``plan`` reads every batch of the logs for it.
        work: what it does with the logs that it reads whole: what that costs decides on the engine.
        previews: whether ``plan --preview`` may run it beside a running broker: it decides from closed segments, and
            reads logs through ``krepair.fixes.logs``.
        asks_others: whether it decides by what other replicas hold.
        takes: which partitions it takes where none is named, if these are not all: a line for plans that have none.
        of_root: whether it changes files of the root alone: it looks at no partition by itself.
    """

    name: ClassVar[str]
    ways: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    previews: ClassVar[bool] = False
    asks_others: ClassVar[bool] = False
    takes: ClassVar[str] = ""
    of_root: ClassVar[bool] = False
    reads_logs: ClassVar[bool] = False
    work: ClassVar[WorkKind] = WorkKind.READ

    def way(self, asked: Collection[str]) -> str:
        """How it was asked for: a word of ``ways``, ``""`` if it has none; see ``is_asked``."""
        typed = next((word.partition("=")[2] for word in asked if word.partition("=")[0] == self.name), "")
        return typed or (self.ways[0] if self.ways else "")

    def is_asked(self, asked: Collection[str]) -> bool:
        """Whether it is among the words given to ``--fix``."""
        return any(word.partition("=")[0] == self.name for word in asked)

    def answers(self, finding: Finding) -> bool:
        """Whether it has something for a finding: the catalogue says which fix mends a rule."""
        return RULES[finding.rule].fix == self.name

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """What ``check`` advises to type for it; empty where it has nothing to do after all."""
        return self.name

    def check_options(self, options: Options) -> None:
        """A consent means nothing where the fix that it is for is not asked for.

        Raises:
            UsageError: there is one.
        """
        mine = consents_of(self.name, options.accepted_losses)
        if mine and not self.is_asked(options.fixes):
            raise UsageError(
                f"--accept-data-loss {mine[0]}: means nothing without --fix {self.name}",
                next_command=Next.of(
                    "plan", LOG_DIR, "--fix", self.name, "--accept-data-loss", mine[0], out=PLAN
                ),
            )

    def wants(self, context: Context, partition: Partition) -> bool:
        """Whether ``plan`` has it look at a partition that the command line lets in."""
        return True

    def reads_whole(self, partition: Partition, way: str) -> bool:
        """Whether ``plan`` has to read the logs of a partition for it: more of that calls for a larger engine."""
        return self.reads_logs and bool(partition.segments)

    def read(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:  # noqa: B027
        """Read what ``look`` has to know of partitions, in as few jobs as possible, and put it into their surveys."""

    @abstractmethod
    def look(self, context: Context, survey: Survey) -> Seen:
        """Look at one partition; ``survey.changes`` are those of the fixes before it. Reads no log."""

    def look_root(self, context: Context) -> SeenRoot:
        """Look at the root of the log directory, once for all partitions."""
        return SeenRoot()

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> Made:
        """The bytes of a small file that it makes anew, worked out by what has worked them out for the plan."""
        raise NotImplementedError(f"{self.name} makes {change.change_id} in another way")

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Make the bytes of the changes again, stage and sync them; a partition's problem is put into its staging.

        So are those of small files; of a removal only the folder that keeps the original is needed.
        """
        for staging in stagings:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                for change in staging.changes:
                    if isinstance(change, ReplaceFile) and change.method != "remove":
                        stage_again(work, staging, change, self.bytes_of(work, staging, change))

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """How what applied changes made is read once more: small files here, by the plan and by their form."""
        for change in staging.changes:
            assert isinstance(change, ReplaceFile)
            if change.method == "remove":
                yield gone(staging, change, (change.name,))
            else:
                yield as_planned(staging, change)


def looked_at(surveys: Sequence[Survey], purpose: Purpose) -> list[Survey]:
    """Those whose files are looked at: ``plan`` leaves some as they are, and looks at those that wait apart."""
    if purpose == "check":
        return list(surveys)
    touched = [one for one in surveys if not why_untouched(one.partition, one.settings)]
    return touched + beside_leftovers(surveys)


def waits(survey: Survey, what: str) -> Seen:
    """Of a partition in which something is to be mended once its leftovers are gone.

    Args:
        survey: of it.
        what: would be mended, such as ``indexes``.
    """
    left = left_for_leftovers(survey.partition, what)
    return Seen(left=left, left_note=f"its {what} are left alone: {left.why}")


def named_or_all(view: LogDir, options: Options) -> list[Partition]:
    """Partitions that the command line lets in."""
    return [partition for partition in view.partitions if options.wants(partition.topic, partition.number)]
