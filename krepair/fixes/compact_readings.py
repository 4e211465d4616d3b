"""What key compaction made, read once more for ``verify``: the files, and with the originals every record and key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.fixes.compact_originals import (
    Originals,
    compacted_groups,
    originals_of,
    partition_to_prove,
    proof_problem,
)
from krepair.fixes.markers_readings import finished_again
from krepair.fixes.markers_staging import groups_of
from krepair.fixes.second_readings import Applied, InTurn, SecondReading
from krepair.fixes.staging import Kind, Staging, Work
from krepair.pipeline.compaction.proof import PartitionToProve, prove
from krepair.pipeline.items import ScanItem
from krepair.pipeline.wire import decode_summary

PROVEN: Final = Kind("new segments", "every record and every key against the kept originals")


def compacted_groups_again(applied: Applied) -> Iterator[SecondReading]:
    """New segments are held against the plan; with ``work.originals`` they are proven against the kept originals.

    Raises:
        KrepairError: an original is neither in its place nor kept.
        OSError: one cannot be looked at.
    """
    yield from finished_again(applied)
    work, staging = applied.work, applied.staging
    groups = compacted_groups(staging.plan)
    if not work.originals or not applied.keep or len(groups_of(staging)) != len(groups):
        return  # nothing is kept, or what is not applied is told already
    originals = originals_of(work, staging)
    if not originals.purged:
        results = {group.base_offset: staging.folder.path for group in groups}
        proof = partition_to_prove(work, staging, originals, results, {})
        item = ProofItem(proof, _active_log(work, staging, originals))
        yield SecondReading(
            groups[0],
            PROVEN,
            InTurn(_prove_applied),
            (item,),
            lambda proofs: [proof_problem(staging.plan, proofs[0])],
            files=len(groups),
        )


class ProofItem(NamedTuple):
    """Once more every record and every key of a partition.

    Attributes:
        proof: of it.
        active: scan of its last log, which alone may end in damage.
    """

    proof: PartitionToProve
    active: ScanItem


def _active_log(work: Work, staging: Staging, originals: Originals) -> ScanItem:
    base = max(originals.logs)
    return ScanItem(
        place=originals.place,
        base_offset=base,
        size=originals.logs[base].size,
        now_ms=work.plan.policy.now_ms,
        high_watermark=work.scan_watermark(staging),
        check_crc=True,
    )


def _prove_applied(work: Work, items: Sequence[ProofItem]) -> Iterator[tuple[int, PartitionToProve]]:
    from krepair.pipeline.scan import scan

    proofs = [item.proof for item in items]
    for index, result in work.engine.map(scan, [item.active for item in items]):
        if not result.failure:
            *before, (path, _) = proofs[index].logs
            proofs[index].logs = (*before, (path, decode_summary(result.summary).valid_bytes))
    prove(work.engine, proofs, work.scratch.path)
    return iter(enumerate(proofs))
