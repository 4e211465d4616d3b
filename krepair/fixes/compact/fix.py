"""Class of ``--fix compact`` for the table of fixes; ``decide`` and ``make`` do the work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from krepair.engine.choice import WorkKind
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.compact.decide import (
    changed_groups,
    compaction_input,
    coordinator_load_findings,
    decide_keys,
    group_with_keys,
    keys_of,
    read_logs_and_keys,
    waiting_findings,
    why_not_asked_for,
    why_skipped,
)
from krepair.fixes.context import Context
from krepair.fixes.evidence import evidence_of, find_evidence, with_bytes
from krepair.fixes.fix import Compacted, Fix, Proposal, Purpose
from krepair.fixes.markers.decide import COMPACT_RESULT, notes_of, rewrite_of
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.logdir.values import Partition
from krepair.rules.model import Skipped

if TYPE_CHECKING:
    from krepair.rewrite.compaction.partitions import CompactionInput


class Compact(Fix):
    """Fix ``compact``, which rewrites segments with the last record of each key."""

    name = "compact"
    reads_logs = True
    work = WorkKind.KEYS
    after = ("leftovers",)
    previews = True
    asks_others = True
    takes = (
        "__consumer_offsets, __transaction_state, and topics whose own configuration (--topic-config FILE) says "
        "cleanup.policy=compact"
    )

    def wants(self, context: Context, partition: Partition) -> bool:
        """Return whether to take a partition; if none was named, its topic must set ``cleanup.policy=compact``."""
        options = context.options
        if options.topics or options.partitions or partition.unreadable:
            return True
        return not why_not_asked_for(partition, context.settings.topic(partition.topic))

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Decide on each partition; one failure never stops the others. ``check`` reads no keys."""
        if purpose == "check":
            return
        left_alone = {analysis.partition.folder: why_skipped(analysis) for analysis in analyses}
        keys = read_logs_and_keys(
            context, [analysis for analysis in analyses if left_alone[analysis.partition.folder] is None]
        )
        find_evidence(
            context,
            [analysis.partition for analysis in analyses if left_alone[analysis.partition.folder] is None],
        )
        able: list[tuple[PartitionAnalysis, CompactionInput]] = []
        for analysis in analyses:
            reason = left_alone[analysis.partition.folder]
            job = reason or compaction_input(context, analysis, keys.get(analysis.partition.folder, {}))
            if isinstance(job, Skipped):
                analysis.put(COMPACT_RESULT, job)
            else:
                able.append((analysis, job))
        decide_keys(context, able)

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return KR108, KR109, and the segments that are rewritten."""
        findings = (*waiting_findings(context, analysis), *coordinator_load_findings(context, analysis))
        decided = analysis.result(COMPACT_RESULT)
        if decided is None:
            return Proposal(findings)
        if isinstance(decided, Skipped):
            return Proposal(
                findings, left=decided, left_note=f"its keys are not changed ({decided.code}): {decided.why}"
            )
        decision, sources = decided.compaction.decision, decided.compaction.sources
        before = sum(source.file_bytes for source in sources.values())
        evidence = evidence_of(context, analysis.partition)
        return Proposal(
            findings,
            changes=tuple(
                rewrite_of(analysis, group_with_keys(group, sources))
                for group in changed_groups(decided.compaction)
            ),
            notes=notes_of(decision),
            compacted=Compacted(
                decision,
                with_bytes(evidence, decision, decided.compaction.horizons, before),
                keys_of(decided, before),
            ),
        )

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Write the new segments after repeating all decisions, and verify the result against all sources."""
        from krepair.fixes.compact.make import stage_compacted_groups

        stage_compacted_groups(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Yield readings of every new batch and index entry; with originals, also of every record and key."""
        from krepair.fixes.compact.make import verify_compacted_groups

        return verify_compacted_groups(work, staging)


COMPACT = Compact()
