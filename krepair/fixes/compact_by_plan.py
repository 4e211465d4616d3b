"""Segments written anew by the offsets that the plan has: no key is looked for before they are written.

The plan names the last record of each key. Whether it is right is for the proof to say, which finds these records in
the source itself. Everything else that decides on records and markers is worked out anew, from the scans of the very
bytes that were written; if that is not what the writers were told, nothing is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from krepair.errors import StalePlanError
from krepair.fixes.compact_originals import Originals, compacted_groups, key_compaction
from krepair.fixes.markers_staging import high_watermark_now
from krepair.fixes.staging import Staging, Work
from krepair.formats.filenames import log_name
from krepair.formats.offset_set import OffsetSetError, of_text
from krepair.pipeline.compaction.items import CompactItem, OffsetFile
from krepair.pipeline.compaction.partitions import CompactionInput, Prepared, Reading, readings_of
from krepair.pipeline.items import Place
from krepair.plan.model import PartitionPlan, RewriteSegments
from krepair.rules.compaction import bound_of
from krepair.rules.evidence import Evidence
from krepair.rules.model import LeftAlone, MarkerPolicy, SegmentFacts
from krepair.rules.outcome import CompactedSource


def keys_by_base(groups: Sequence[RewriteSegments]) -> dict[int, CompactedSource]:
    """Base offset -> what becomes of the keys of a source, of all sources of some groups."""
    sources = (source for group in groups for source in group.sources)
    return {source.base_offset: source.by_key for source in sources if source.by_key is not None}


def goes_by_plan(plan: PartitionPlan, originals: Originals) -> bool:
    """Whether the plan says of all segments that lose records which of them stay, and no other replica matters."""
    keys = keys_by_base(compacted_groups(plan))
    others = isinstance(plan.evidence, Evidence) and plan.evidence.logs
    return (
        not others
        and not originals.purged
        and all(isinstance(each.stays, str) and originals.logs[base].digest for base, each in keys.items())
    )


def readings_by_plan(
    work: Work, staging: Staging, originals: Originals, facts: Mapping[int, SegmentFacts]
) -> dict[int, Reading]:
    """Base offset -> how it is read, of the sources that lose records.

    Args:
        work: what is staged with.
        staging: the partition.
        originals: of it.
        facts: base offset -> facts of the logs that are not written anew.

    Raises:
        StalePlanError: what the plan says of a source is no set of offsets.
    """
    following = dict(pairwise(originals.logs))
    high_watermark = high_watermark_now(work, staging, list(facts.values()))
    readings: dict[int, Reading] = {}
    for source in (source for group in compacted_groups(staging.plan) for source in group.sources):
        keys, base = source.by_key, source.base_offset
        assert keys is not None
        item = CompactItem(
            place=originals.place,
            base_offset=base,
            next_base=following[base],
            size=originals.logs[base].size,
            now_ms=work.plan.policy.now_ms,
            high_watermark=high_watermark,
            protected=source.protected,
            drop_unstamped=source.drop_unstamped,
            aborted=b"",
            stays=(_planned(work, staging, base, keys),),
            keyless=keys.keyless > 0,
            keeps_all=staging.plan.keeps_all,
        )
        readings[base] = Reading(item, originals.logs[base].digest)
    return readings


def _planned(work: Work, staging: Staging, base_offset: int, keys: CompactedSource) -> OffsetFile:
    try:
        return OffsetFile(packed=of_text(str(keys.stays)))
    except OffsetSetError as error:
        where = f"{staging.plan.folder}/{log_name(base_offset)}"
        raise StalePlanError(f"{where}: which of its records stay: {error}") from error


def prepared_by_plan(
    plan: PartitionPlan,
    place: Place,
    facts: Sequence[SegmentFacts],
    policy: MarkerPolicy,
    readings: Mapping[int, Reading],
) -> Prepared:
    """What would have been prepared, had the keys been looked for: from the scans of what was written.

    Args:
        plan: the partition's part of the plan.
        place: of its originals.
        facts: of all its logs, ascending.
        policy: inputs that do not come from the log, as they are now.
        readings: see ``readings_by_plan``.
    """
    prepared = Prepared(CompactionInput(place, tuple(facts), policy, b""))
    prepared.keys = key_compaction(plan).keys  # the proof counts them
    bound = bound_of(facts, policy)
    if isinstance(bound, LeftAlone):
        prepared.problem = bound
    else:
        prepared.bound = bound
    for base, keys in keys_by_base(compacted_groups(plan)).items():
        (prepared.planned[base],) = readings[base].item.stays
        prepared.keyless[base] = keys.keyless
    return prepared


def check_readings(work: Work, staging: Staging, prepared: Prepared, readings: Mapping[int, Reading]) -> None:
    """What the writers were told is what the scans of what they have read come to.

    The markers that stay for a producer are compared with the others, when all decisions are.

    Raises:
        StalePlanError: it is not.
    """
    assert prepared.bound is not None
    now = readings_of(prepared, keys_by_base(compacted_groups(staging.plan)))
    for base, reading in readings.items():
        found = now.get(base)
        item = None if found is None else replace(found.item, protected=reading.item.protected)
        if prepared.bound.transactions or item != reading.item:
            why = (
                "its log has transactions"
                if prepared.bound.transactions
                else "not those by which it was written"
            )
            raise StalePlanError(
                f"{staging.plan.folder}/{log_name(base)}: what stays was decided again, and is not what the plan has: "
                f"{why}"
            )
