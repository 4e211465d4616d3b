"""Class of ``--fix markers`` for the table of fixes; ``decide`` and ``make`` do the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context
from krepair.fixes.evidence import evidence_of, find_evidence, with_bytes
from krepair.fixes.fix import Compacted, Fix, Proposal, Purpose
from krepair.fixes.gate import cannot_compact
from krepair.fixes.logs import read_logs
from krepair.fixes.markers.decide import (
    MARKERS_RESULT,
    bloat_findings,
    check_transaction_indexes,
    decide_markers,
    decided_by_key,
    notes_of,
    rewrite_of,
)
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.logdir.values import Partition
from krepair.rules.model import Skipped


class Markers(Fix):
    """Fix ``markers``, which rewrites segments without obsolete markers and empty batches, and merges neighbours."""

    name = "markers"
    reads_logs = True
    after = ("leftovers", "compact")
    previews = True
    asks_others = True
    takes = (
        "__consumer_offsets, __transaction_state, and topics that --topic-config FILE, the broker's configuration or "
        "--set says are compacted"
    )

    def wants(self, context: Context, partition: Partition) -> bool:
        """Return whether to take a partition; if none was named, whether the cleaner would compact this one."""
        options = context.options
        named = bool(options.topics or options.partitions)
        return named or context.settings.topic(partition.topic).compacts or bool(partition.unreadable)

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Decide on each partition; one failure never stops others (KIP-346 requires the same of the cleaner)."""
        left_to_us = [analysis for analysis in analyses if decided_by_key(analysis) is None]
        left_alone = {
            analysis.partition.folder: cannot_compact(analysis.partition, analysis.settings)
            for analysis in left_to_us
        }
        read_logs(
            context, [analysis for analysis in left_to_us if left_alone[analysis.partition.folder] is None]
        )
        find_evidence(
            context,
            [analysis.partition for analysis in left_to_us if left_alone[analysis.partition.folder] is None],
        )
        for analysis in left_to_us:
            reason = left_alone[analysis.partition.folder]
            if reason is None and analysis.log is not None:
                reason = analysis.log.problem
            analysis.put(MARKERS_RESULT, reason or decide_markers(context, analysis))
        if purpose == "plan":  # check compares every .txnindex with its log anyway
            check_transaction_indexes(context, left_to_us)

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR101 and the segments that are rewritten."""
        decision = analysis.result(MARKERS_RESULT)
        if decision is None:
            return Proposal()
        if isinstance(decision, Skipped):
            note = f"its markers are not changed ({decision.code}): {decision.why}"
            return Proposal(left=decision, left_note=note)
        evidence = with_bytes(evidence_of(context, analysis.partition), decision)
        return Proposal(
            bloat_findings(context, analysis, decision),
            changes=tuple(rewrite_of(analysis, group) for group in decision.groups if group.changes),
            notes=notes_of(decision),
            compacted=Compacted(decision, evidence),
        )

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Write the new segments; repeat all decisions, which must equal those of the plan."""
        from krepair.fixes.markers.make import stage_groups

        stage_groups(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield readings of every new batch and index entry; with originals, also a comparison of each batch."""
        from krepair.fixes.markers.make import verify_groups

        return verify_groups(work, staging)


MARKERS = Markers()
