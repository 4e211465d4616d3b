"""Base class of a fix: findings, proposed changes, staging at ``apply`` and verification.

A fix is one module or package in this folder and one line in ``krepair.fixes.table``. Space, review, commit and undo of
a change are not the fix's work: see ``krepair.plan.changes`` and ``krepair.commit``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import ClassVar, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from krepair.checks.catalogue import RULES, Finding
from krepair.engine.choice import WorkKind
from krepair.errors import UsageError
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context
from krepair.fixes.files import RebuiltFile, stage_again
from krepair.fixes.gate import analyses_apart, left_for_leftovers, why_untouched
from krepair.fixes.second_readings import SecondReading, as_planned, check_removed
from krepair.fixes.staging import Staging, Work
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options, consents_of
from krepair.plan.model import Change, ChangeLines, Evidence, KeyCompaction, ReplaceFile
from krepair.rules.model import PartitionDecision, Skipped

Purpose = Literal["check", "plan"]


class Compacted(NamedTuple):
    """Decision on the markers and keys of one partition.

    Attributes:
        decision: decision on the markers of each segment.
        evidence: evidence about the other replicas.
        keys: figures of the key compaction; unset if records are not compacted by key.
    """

    decision: PartitionDecision
    evidence: Evidence
    keys: KeyCompaction | UnsetType = UNSET


class Proposal(NamedTuple):
    """Findings and changes that one fix proposes for a partition.

    Attributes:
        findings: findings, evaluated lazily.
        changes: changes in the order in which they are carried out.
        notes: notes for the reviewer of the plan.
        left: reason for skipping the partition; None if the fix does not skip the partition.
        left_note: note with that reason, for a partition that another fix changes.
        log_end: log end offset that this fix has determined; 0 if unknown.
        raises_point: True if the partition's recovery point in the root advances.
        compacted: decision on the partition's markers and keys, or None.
    """

    findings: Iterable[Finding] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    left: Skipped | None = None
    left_note: str = ""
    log_end: int = 0
    raises_point: bool = False
    compacted: Compacted | None = None


class RootProposal(NamedTuple):
    """Findings and changes that one fix proposes for the root of the log directory."""

    findings: Iterable[Finding] = ()
    changes: tuple[ReplaceFile | ChangeLines, ...] = ()
    notes: tuple[str, ...] = ()


class Fix(ABC):
    """A fix that ``--fix`` accepts by name.

    Attributes:
        name: the word that ``--fix`` accepts.
        modes: modes that may follow ``=``, the default first; empty if the fix has no modes.
        after: names of the fixes whose changes this fix builds on.
        reads_logs: True if ``plan`` reads every batch of the logs for this fix.
        work: kind of work on logs that the fix reads completely; the cost of this work decides on the engine.
        previews: True if ``plan --preview`` may run the fix beside a running broker, because the fix decides from
            closed segments and reads logs through ``krepair.fixes.logs``.
        asks_others: True if the decisions depend on the logs of other replicas.
        takes: description of the partitions that the fix takes if none is named, for a plan without partitions; empty
            for all.
        of_root: True if the fix changes only files of the root and analyzes no partition.
    """

    name: ClassVar[str]
    modes: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()
    previews: ClassVar[bool] = False
    asks_others: ClassVar[bool] = False
    takes: ClassVar[str] = ""
    of_root: ClassVar[bool] = False
    reads_logs: ClassVar[bool] = False
    work: ClassVar[WorkKind] = WorkKind.READ

    def mode(self, words: Collection[str]) -> str:
        """Return the requested mode, or the default mode.

        The result is meaningful only if ``is_asked`` returns True, and empty for a fix without modes.
        """
        typed = next((word.partition("=")[2] for word in words if word.partition("=")[0] == self.name), "")
        return typed or (self.modes[0] if self.modes else "")

    def is_asked(self, words: Collection[str]) -> bool:
        """Return whether the fix is among the words given to ``--fix``."""
        return any(word.partition("=")[0] == self.name for word in words)

    def answers(self, finding: Finding) -> bool:
        """Return whether the fix repairs a finding; by default, the catalogue decides."""
        return RULES[finding.rule].fix == self.name

    def best_mode(self, analyses: Sequence[PartitionAnalysis]) -> str:
        """Return the ``--fix`` word that ``check`` recommends; empty if the fix would have nothing to do."""
        return self.name

    def check_options(self, options: Options) -> None:
        """Refuse a consent for this fix if the fix itself was not requested.

        Raises:
            UsageError: a consent needs this fix.
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
        """Return whether ``plan`` should analyze a partition that the command line selects."""
        return True

    def reads_whole(self, partition: Partition, mode: str) -> bool:
        """Return whether ``plan`` must read a partition's logs completely for the fix; this decides on the engine."""
        return self.reads_logs and bool(partition.segments)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:  # noqa: B027
        """Read what ``propose`` needs about partitions, in as few jobs as possible; store it in the analyses."""

    @abstractmethod
    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings and changes for one partition, without reading its logs.

        ``analysis.changes`` has the changes of earlier fixes.
        """

    def propose_root(self, context: Context) -> RootProposal:
        """Return findings and changes for the root of the log directory, once for all partitions."""
        return RootProposal()

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
        """Return the bytes of a small file that this fix rebuilds, by the code that computed them for the plan."""
        raise NotImplementedError(f"{self.name} makes {change.change_id} in another way")

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Build the bytes of the changes again, stage and sync them.

        The default implementation handles small files; a removal needs only the folder for the backup. A failure
        becomes the ``problem`` of the partition's staging and stops no other partition.
        """
        for staging in stagings:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                for change in staging.changes:
                    if isinstance(change, ReplaceFile) and change.method != "remove":
                        stage_again(work, staging, change, self.bytes_of(work, staging, change))

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield the readings that verify applied changes.

        The default implementation compares small files with the plan and with the form that a broker writes.
        """
        for change in staging.changes:
            assert isinstance(change, ReplaceFile)
            if change.method == "remove":
                yield check_removed(staging, change, (change.name,))
            else:
                yield as_planned(staging, change)


def partitions_to_analyze(analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> list[PartitionAnalysis]:
    """Return the partitions to analyze: all for ``check``; ``plan`` skips some, and takes waiting ones apart."""
    if purpose == "check":
        return list(analyses)
    touched = [analysis for analysis in analyses if not why_untouched(analysis.partition, analysis.settings)]
    return touched + analyses_apart(analyses)


def skipped_for_leftovers(analysis: PartitionAnalysis, repairs: str) -> Proposal:
    """Return the proposal that skips a partition, which needs a repair after its leftovers are gone.

    Args:
        repairs: files that would be repaired, such as ``indexes``.
    """
    reason = left_for_leftovers(analysis.partition, repairs)
    return Proposal(left=reason, left_note=f"its {repairs} are not changed: {reason.why}")


def named_or_all(view: LogDir, options: Options) -> list[Partition]:
    """Return the partitions that the command line selects."""
    return [partition for partition in view.partitions if options.wants(partition.topic, partition.number)]
