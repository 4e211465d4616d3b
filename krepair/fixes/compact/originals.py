"""Original logs of a key compaction at ``apply`` and ``verify``: their locations, readings, and proofs.

If a plan lists the offset of each key's last record, ``apply`` writes the new segments by this list, without searching
for keys. The verification then independently finds the last record of each key in the original logs, so a wrong list is
detected. All other decisions on records and markers are repeated from scans of the written bytes; if the results differ
from the decisions that the writers used, nothing is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import UnsetType
from msgspec.structs import replace

from krepair.commit.begin import grown
from krepair.engine.items import LogsItem, Place
from krepair.errors import StalePlanError
from krepair.fixes.markers.decide import high_watermark_of
from krepair.fixes.staging import Staging, Work
from krepair.formats.filenames import FileKind, log_name, parse_file_name
from krepair.formats.offset_set import OffsetSetError, of_text
from krepair.plan.model import FileFingerprint, KeyCompaction, MendLog, PartitionPlan, RewriteSegments
from krepair.rewrite.compaction.items import CheckedSource, CompactItem, OffsetFile
from krepair.rewrite.compaction.partitions import CompactionInput, PreparedPartition, compact_items
from krepair.rewrite.compaction.proof import GroupToProve, PartitionToProve
from krepair.rules.compaction import compaction_range_of
from krepair.rules.evidence import Evidence
from krepair.rules.model import MarkerPolicy, SegmentFacts, Skipped
from krepair.rules.outcome import CompactedSource

_NEVER_MS: Final = -(2**63)


class Originals(NamedTuple):
    """Original logs of a partition, from which all decisions are derived.

    Attributes:
        place: location of the originals: the partition folder, and the backup folder for originals that were moved.
        logs: fingerprints of the original logs, ascending by base offset.
    """

    place: Place
    logs: dict[int, FileFingerprint]


def compacted_groups(plan: PartitionPlan) -> list[RewriteSegments]:
    """Return the groups of a partition that lose records by key."""
    return [change for change in plan.changes if isinstance(change, RewriteSegments) and change.loses_records]


def _planned_logs(plan: PartitionPlan) -> dict[int, FileFingerprint]:
    logs: dict[int, FileFingerprint] = {}
    for file in plan.files:
        name = parse_file_name(file.name)
        if name.kind is FileKind.LOG and not name.state and name.base_offset is not None:
            logs[name.base_offset] = file
    return dict(sorted(logs.items()))


def _current_logs(staging: Staging) -> dict[int, FileFingerprint]:
    """Return the logs of the plan; the active log may have grown if the log still covers the same offsets.

    A log whose torn tail the plan cuts in place has the same batches before and after the cut.
    """
    logs = _planned_logs(staging.plan)
    for change in staging.plan.changes:
        if isinstance(change, MendLog) and change.method == "cut":
            state, planned = staging.folder.state(change.name), logs[change.base_offset]
            if state is not None and (state.size, state.mtime_ns) == (change.size_after, planned.mtime_ns):
                logs[change.base_offset] = replace(planned, size=change.size_after)
    active = max(logs)
    grown_log = grown(staging.folder, logs[active])
    if grown_log is not None:
        logs[active] = replace(logs[active], size=grown_log.size, mtime_ns=grown_log.mtime_ns, digest="")
    return logs


def originals_of(work: Work, staging: Staging) -> Originals:
    """Locate each original log of a partition, in its place or among the backups.

    Raises:
        StalePlanError: a log is in neither place, as after a purge of a partly applied plan.
        OSError: a log cannot be read.
    """
    folder, logs = staging.folder, _current_logs(staging)
    moved: list[int] = []
    written = {
        group.base_offset: (group.log_bytes, group.mtime_ns) for group in compacted_groups(staging.plan)
    }
    for base_offset, planned in logs.items():
        alike = written.get(base_offset) == (planned.size, planned.mtime_ns)
        if _holds_original(staging, planned.name, planned, compare_content=alike):
            continue
        if not _holds_original(staging, folder.names.keep(planned.name), planned):
            raise StalePlanError(
                f"{folder.at(planned.name)}: is neither in its place nor in the backup; the keys that it held are lost"
            )
        moved.append(base_offset)
    place = replace(work.place(staging), kept=folder.names.keep() if moved else "", moved=tuple(moved))
    return Originals(place, logs)


def _holds_original(
    staging: Staging, name: str, planned: FileFingerprint, *, compare_content: bool = False
) -> bool:
    """Return whether a path holds an original; if the new log has the same size and time, the content decides."""
    state = staging.folder.state(name)
    if state is None or (state.size, state.mtime_ns) != (planned.size, planned.mtime_ns):
        return False
    return not compare_content or staging.folder.begins_with(state, planned)


def key_compaction(plan: PartitionPlan) -> KeyCompaction:
    """Return the figures of the key compaction in the plan.

    Raises:
        StalePlanError: the plan has no such figures; the review refuses such a plan earlier.
    """
    if isinstance(plan.compaction, UnsetType):
        raise StalePlanError(f"{plan.folder}: the plan does not say what becomes of its keys")
    return plan.compaction


def proof_problem(plan: PartitionPlan, proof: PartitionToProve) -> str:
    """Return the problem that the verification of a partition found; empty if it found none."""
    if proof.failure:
        return proof.why
    planned = key_compaction(plan)
    proven, expected = (proof.records, proof.kept, proof.keys), (planned.records, planned.kept, planned.keys)
    if proven != expected:
        return f"{plan.folder}: (records, kept, keys) are {proven}, the plan has {expected}"
    return ""


def partition_to_prove(
    work: Work,
    staging: Staging,
    originals: Originals,
    results: Mapping[int, str],
    ends: Mapping[int, int],
) -> PartitionToProve:
    """Build the proof of one partition.

    Args:
        staging: staging of the partition.
        originals: original logs of the partition.
        results: absolute path of the folder with each group's new log, by base offset.
        ends: bytes of valid batches in logs that may end in damage, by base offset.

    Raises:
        StalePlanError: the plan has no cleanable range.
    """
    plan = staging.plan
    if plan.span is None:
        raise StalePlanError(f"{plan.folder}: the plan has no span")
    place, logs = originals.place, originals.logs
    groups: list[GroupToProve] = []
    in_groups: set[int] = set()

    def checked(base_offset: int) -> CheckedSource:
        file = logs[base_offset]
        return CheckedSource(
            base_offset=base_offset,
            path=f"{place.stem(base_offset)}.log",
            size=file.size,
            horizon_passed=not plan.keeps_all and file.mtime_ns // 1_000_000 <= plan.horizon_ms,
        )

    for group in compacted_groups(plan):
        bases = [source.base_offset for source in group.sources]
        in_groups.update(bases)
        result = f"{results[group.base_offset]}/{log_name(group.base_offset)}"
        groups.append(GroupToProve(tuple(map(checked, bases)), result))
    for base_offset in logs:
        if base_offset < plan.span.end_offset and base_offset not in in_groups:
            groups.append(GroupToProve((checked(base_offset),), f"{place.stem(base_offset)}.log"))
    groups.sort(key=lambda group: group.sources[0].base_offset)
    return PartitionToProve(
        place=place,
        groups=tuple(groups),
        logs=LogsItem(
            place=place, segments=tuple((base, ends.get(base, file.size)) for base, file in logs.items())
        ),
        # If all tombstones are kept, use a time at which no batch's delete horizon has passed.
        now_ms=_NEVER_MS if plan.keeps_all else work.plan.policy.now_ms,
    )


def keys_by_base(groups: Sequence[RewriteSegments]) -> dict[int, CompactedSource]:
    """Return the key compaction of every source of these groups, by base offset."""
    sources = (source for group in groups for source in group.sources)
    return {source.base_offset: source.by_key for source in sources if source.by_key is not None}


def goes_by_plan(plan: PartitionPlan, originals: Originals) -> bool:
    """Return whether the plan lists the kept records of every segment that loses records.

    No list is used if other replicas exist, because their logs may require that more records are kept.
    """
    keys = keys_by_base(compacted_groups(plan))
    others = isinstance(plan.evidence, Evidence) and plan.evidence.logs
    return not others and all(
        isinstance(each.stays, str) and originals.logs[base].digest for base, each in keys.items()
    )


def readings_by_plan(
    work: Work, staging: Staging, originals: Originals, facts: Mapping[int, SegmentFacts]
) -> dict[int, CompactItem]:
    """Return the work items that read, by the plan's list, the sources that lose records; by base offset.

    Args:
        staging: staging of the partition.
        originals: original logs of the partition.
        facts: facts of the logs that are not rewritten, by base offset.

    Raises:
        StalePlanError: the plan's list of offsets for a source is invalid.
    """
    following = dict(pairwise(originals.logs))
    high_watermark = high_watermark_of(work.context, work.analysis(staging, facts.values()))
    readings: dict[int, CompactItem] = {}
    for source in (source for group in compacted_groups(staging.plan) for source in group.sources):
        keys, base = source.by_key, source.base_offset
        assert keys is not None
        readings[base] = CompactItem(
            place=originals.place,
            base_offset=base,
            next_base=following[base],
            size=originals.logs[base].size,
            now_ms=work.plan.policy.now_ms,
            high_watermark=high_watermark,
            protected=source.protected,
            drop_unstamped=source.drop_unstamped,
            aborted=b"",
            latest_offsets=(_planned(staging, base, keys),),
            keyless=keys.keyless > 0,
            keeps_all=staging.plan.keeps_all,
            source_headers=originals.logs[base].digest,
        )
    return readings


def _planned(staging: Staging, base_offset: int, keys: CompactedSource) -> OffsetFile:
    try:
        return OffsetFile(encoded=of_text(str(keys.stays)))
    except OffsetSetError as error:
        where = f"{staging.plan.folder}/{log_name(base_offset)}"
        raise StalePlanError(f"{where}: which of its records stay: {error}") from error


def prepared_by_plan(
    plan: PartitionPlan,
    place: Place,
    facts: Sequence[SegmentFacts],
    policy: MarkerPolicy,
    readings: Mapping[int, CompactItem],
) -> PreparedPartition:
    """Build, from scans of the logs, the values that a search for keys would have given.

    Args:
        plan: the partition's part of the plan.
        place: location of the originals.
        facts: facts of all logs of the partition, ascending.
        policy: present inputs that do not come from the log.
        readings: result of ``readings_by_plan``.
    """
    prepared = PreparedPartition(CompactionInput(place, tuple(facts), policy, b""))
    prepared.keys = key_compaction(plan).keys  # the proof counts the keys
    bound = compaction_range_of(facts, policy)
    if isinstance(bound, Skipped):
        prepared.problem = bound
    else:
        prepared.compaction_range = bound
    for base, keys in keys_by_base(compacted_groups(plan)).items():
        (prepared.planned[base],) = readings[base].latest_offsets
        prepared.keyless[base] = keys.keyless
    return prepared


def check_readings(
    staging: Staging, prepared: PreparedPartition, readings: Mapping[int, CompactItem]
) -> None:
    """Check that the scans of the logs lead to the same work items that the writers used.

    Markers that are kept for a producer are not compared here, but later, together with all other decisions.

    Raises:
        StalePlanError: the scans lead to different items.
    """
    assert prepared.compaction_range is not None
    now = compact_items(prepared, keys_by_base(compacted_groups(staging.plan)))
    for base, reading in readings.items():
        repeated = now.get(base)
        item = None if repeated is None else replace(repeated, protected=reading.protected)
        if prepared.compaction_range.transactions or item != reading:
            why = (
                "its log has transactions"
                if prepared.compaction_range.transactions
                else "not those by which it was written"
            )
            raise StalePlanError(
                f"{staging.plan.folder}/{log_name(base)}: what stays was decided again, and is not what the plan has: "
                f"{why}"
            )
