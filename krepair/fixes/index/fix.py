"""Class of ``--fix index`` for the table of fixes; ``decide`` and ``make`` do the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.engine.items import Failed
from krepair.fixes.analysis import PartitionAnalysis, indexes_of
from krepair.fixes.context import Context
from krepair.fixes.fix import Fix, Proposal, Purpose, partitions_to_analyze, skipped_for_leftovers
from krepair.fixes.gate import analysis_apart, why_untouched
from krepair.fixes.index.decide import (
    index_changes,
    index_findings,
    inspect_indexes,
    inspect_transaction_indexes,
    transaction_indexes_of,
)
from krepair.fixes.second_readings import SecondReading, verify_transaction_indexes
from krepair.fixes.staging import Staging, Work
from krepair.formats.filenames import segment_name
from krepair.logdir.values import Partition
from krepair.next_command import PLAN, Next
from krepair.plan.changes import bases_touched

if TYPE_CHECKING:
    from krepair.rewrite.indexes.segment import Depth


def _findings(context: Context, analysis: PartitionAnalysis) -> Iterator[Finding]:
    active = Next.of("plan", context.view.path, "--fix", "index=regenerate", out=PLAN)
    last = analysis.partition.segments[-1].base_offset if analysis.partition.segments else -1
    for finding in index_findings(analysis):
        is_active = finding.file in {segment_name(last, ".index"), segment_name(last, ".timeindex")}
        yield replace(finding, command=active) if is_active else finding


class Index(Fix):
    """Fix ``index``, which cuts padded or torn ``.index``, ``.timeindex`` and ``.txnindex``, and rebuilds others."""

    name = "index"
    modes = ("auto", "truncate", "regenerate")
    after = ("leftovers", "markers", "tail")
    previews = True

    def answers(self, finding: Finding) -> bool:
        """Return whether the fix repairs a finding; a broker deletes an index without a log (KR205, no position)."""
        return super().answers(finding) and (finding.rule != "KR205" or finding.position >= 0)

    def best_mode(self, analyses: Sequence[PartitionAnalysis]) -> str:
        """Return ``index=regenerate`` if a file cannot be repaired by a cut."""
        for analysis in analyses:
            replayed = transaction_indexes_of(analysis)
            if (not isinstance(replayed, Failed) and replayed.problems) or any(
                not isinstance(inspected, Failed) and inspected.needs_reading
                for inspected in indexes_of(analysis).values()
            ):
                return f"{self.name}=regenerate"
        return self.name

    def reads_whole(self, partition: Partition, mode: str) -> bool:
        """Return whether the fix rebuilds files, which requires a reading of the logs."""
        return mode == "regenerate" and bool(partition.segments)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Examine the indexes of all segments in one job, then the transaction indexes; ``check`` did the first."""
        depth: Depth = "check"
        touched = partitions_to_analyze(analyses, purpose)
        if purpose == "plan":
            depth = cast("Depth", self.mode(context.options.fixes))
            inspect_indexes(context, touched, depth)
        inspect_transaction_indexes(context, touched, depth)

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR201 to KR207, and the files to replace unless a segment gets new indexes anyway."""
        apart = analysis_apart(analysis)
        if apart is not None and index_changes(apart, set())[0]:
            return skipped_for_leftovers(analysis, "indexes")
        changes, notes = index_changes(analysis, bases_touched(analysis.changes))
        why = why_untouched(analysis.partition, analysis.settings)
        if context.beside_broker:
            notes = (*notes, "the active segment's indexes are not looked at: a broker may be writing them")
        if why:
            notes = (*notes, f"its indexes are not changed: {why}")
        return Proposal(_findings(context, analysis), changes, notes)

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Stage the files, one task per segment."""
        from krepair.fixes.index.make import stage_indexes

        stage_indexes(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield checks of each file against its log, and of transaction indexes against a replay."""
        from krepair.fixes.index.make import indexes_against_logs, transaction_indexes_made

        yield from indexes_against_logs(work, staging)
        yield from verify_transaction_indexes(work, staging, transaction_indexes_made(staging))


INDEX = Index()
