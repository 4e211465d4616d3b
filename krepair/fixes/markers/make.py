"""Staging and verification of the segments that ``--fix markers`` rewrites; ``apply`` repeats all decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.commit.begin import StagedGroup, check_fresh
from krepair.commit.folder import PartitionFolder
from krepair.durable.attributes import read_attributes
from krepair.engine.items import Failed, FinishItem, LogsItem, PartitionItem, Place, ScanResult, StageItem
from krepair.errors import StalePlanError, UnreadableError
from krepair.fixes.evidence import (
    NotKnownError,
    OtherReplicas,
    Staged,
    planned_logs_now,
    prove_markers,
    read_others,
)
from krepair.fixes.markers.decide import policy_with
from krepair.fixes.replicas import ReplicaLog
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.staging import Kind, Staging, Work
from krepair.formats.filenames import LOG, TRANSACTIONS_TOPIC, log_name
from krepair.logdir.view import replica_state
from krepair.plan.model import FileFingerprint, MendLog, RewriteSegments
from krepair.rules.evidence import Evidence
from krepair.rules.markers import StageInputs, limit_now, stage_inputs, why_undecided
from krepair.rules.model import MarkerPolicy, SegmentFacts

NEW_SEGMENTS: Final = Kind(
    "new segments", "every batch, every entry of its indexes, and the plan's counts", is_log=True
)
ORIGINALS: Final = Kind("new segments", "its batches against the kept originals")


def groups_of(staging: Staging) -> list[RewriteSegments]:
    """Return the groups of segments among the changes of a staging."""
    return [change for change in staging.changes if isinstance(change, RewriteSegments)]


def stage_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Copy, recheck, finish and verify the groups; each partition's problem is stored in its ``Staging``."""
    _copy(work, stagings)
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                _recheck(work, staging)
    finish_groups(work, stagings)
    _prove(work, stagings)


def _prove(work: Work, stagings: Sequence[Staging]) -> None:
    """Prove that no other replica needs the removed markers, before the first swap.

    A replica with a transaction's batches but without the marker would serve aborted records as committed records, or
    never advance its last stable offset.
    """
    staged: list[Staged] = []
    for staging in stagings:
        with staging.taking_problems():
            if staging.problem is None and groups_of(staging):
                place = work.place(staging)
                results = {
                    source.base_offset: f"{staging.stage_folder}/{log_name(group.base_offset)}"
                    for group in groups_of(staging)
                    for source in group.sources
                }
                excised = {
                    change.base_offset
                    for change in staging.plan.changes
                    if isinstance(change, MendLog) and change.method != "cut"
                }
                logs = tuple(
                    (base_offset, f"{place.stem(base_offset)}.log", size)
                    for base_offset, size in _logs_now(staging, work.all_facts(staging))
                    if base_offset not in excised  # still damaged at this point, and no source of a group
                )
                staged.append(Staged(staging, place, other_logs_now(work, staging), logs, results))
    prove_markers(work, staged)


def _logs_now(staging: Staging, facts: Sequence[SegmentFacts]) -> list[tuple[int, int]]:
    """Return (base offset, bytes of valid batches) of all logs, with the new log of each finished group.

    An earlier run proved that no replica needs the markers of a finished group, so the group's sources need not be read
    again.
    """
    sizes = {segment.base_offset: segment.summary.valid_bytes for segment in facts}
    for group in staging.plan.changes:
        if isinstance(group, RewriteSegments) and not group.loses_records and group.change_id in staging.made:
            for source in group.sources:
                sizes.pop(source.base_offset, None)
            sizes[group.base_offset] = group.log_bytes
    return sorted(sizes.items())


def _copy(work: Work, stagings: Sequence[Staging]) -> None:
    from krepair.rewrite.segments.stage import stage

    jobs = [
        (staging, item)
        for staging in stagings
        if staging.problem is None
        for item in _prepared(work, staging)
    ]
    items = [item for _, item in jobs]
    crcs: dict[tuple[str, int], int] = {}
    for index, result in work.engine.map(stage, items):
        staging, item = jobs[index]
        source = item.change.sources[item.source]
        work.take_facts(staging, source.base_offset, result, with_txn_index=True)
        if isinstance(result, ScanResult):
            crcs[item.change.change_id, source.base_offset] = result.written_crc
    for staging in stagings:
        for group in groups_of(staging):
            parts = tuple(
                (source.kept_bytes, crcs.get((group.change_id, source.base_offset), 0))
                for source in group.sources
            )
            staging.staged[group.change_id] = StagedGroup(parts)


def _prepared(work: Work, staging: Staging) -> list[StageItem]:
    """Make the folders and files for the copies; return the work items that write the copies."""
    items: list[StageItem] = []
    planned = staging.planned
    with staging.taking_problems():
        for group in groups_of(staging):
            check_fresh(staging.folder, staging.plan, group)
        staging.folder.make_private_folders()
        for group in groups_of(staging):
            items.extend(_stage_items(work, staging, group, planned))
    return items if staging.problem is None else []


def _stage_items(
    work: Work, staging: Staging, group: RewriteSegments, planned: Mapping[str, FileFingerprint]
) -> list[StageItem]:
    target = f"{staging.stage_folder}/{log_name(group.base_offset)}"
    if work.disk.tree.is_there(target):
        work.disk.unlink(target)
    work.disk.reserve(target, group.log_bytes)
    items = []
    position = 0
    for source in group.sources:
        file = planned.get(log_name(source.base_offset))
        items.append(
            StageItem(
                place=work.place(staging),
                change=replace(group, sources=(source,)),  # the other sources need not travel with the item
                source=0,
                target=target,
                out_position=position,
                headers="" if file is None else file.digest,
                now_ms=work.plan.policy.now_ms,
                high_watermark=work.scan_watermark(staging),
            )
        )
        position += source.kept_bytes
    return items


def _recheck(work: Work, staging: Staging) -> None:
    """Repeat the decisions from fresh scans, and compare these with the plan.

    Raises:
        StalePlanError: the decisions differ.
        UnreadableError: a producer snapshot could not be read.
    """
    if staging.decided:
        check_decisions(staging, staging.decided)
        return
    facts = work.all_facts(staging, with_txn_index=True)
    policy = policy_now(work, staging, facts, read_others_now(work, staging, facts, work.place(staging)))
    minded = why_undecided(facts, policy)
    if minded is not None:
        raise StalePlanError(f"{staging.plan.folder}: {minded.why}")
    staging.decided.update(stage_inputs(facts, policy, dict(staging.plan.kept_last)))
    check_decisions(
        staging, staging.decided, lambda: f"may no longer be compacted: {limit_now(facts, policy)}"
    )


def check_decisions(
    staging: Staging, decided: Mapping[int, StageInputs], why_not: Callable[[], str] | None = None
) -> None:
    """Check that the repeated decisions on each source are those of the plan.

    Args:
        staging: staging of the partition.
        decided: repeated decisions on the segments that may still be compacted, by base offset.
        why_not: function that returns why a segment may no longer be compacted.

    Raises:
        StalePlanError: a decision differs; the message names the segment.
    """
    for source in (source for group in groups_of(staging) for source in group.sources):
        planned = StageInputs(
            source.carried_open,
            source.keep_positions,
            source.protected,
            source.drop_unstamped,
            source.keeps,
        )
        now = decided.get(source.base_offset)
        if now != planned:
            why = (
                why_not()
                if now is None and why_not
                else "what stays was decided again, and is not what the plan has"
            )
            where = f"{staging.plan.folder}/{log_name(source.base_offset)}"
            raise StalePlanError(f"{where}: {why}")


def other_logs_now(work: Work, staging: Staging) -> tuple[ReplicaLog, ...]:
    """Return the present logs of the other replicas that a partition's part of the plan relies on.

    Raises:
        StalePlanError: a log is gone or has changed.
    """
    evidence = staging.plan.evidence
    if not isinstance(evidence, Evidence) or evidence.kind == "none":
        return ()
    mine = replica_state(work.view, staging.listed)
    moved = work.moved.get((mine.topic, mine.partition))
    if moved is not None:
        raise StalePlanError(moved)
    return tuple(planned_logs_now(evidence.logs, work.view, mine, work.other_dirs))


def read_others_now(
    work: Work, staging: Staging, facts: Sequence[SegmentFacts], place: Place
) -> OtherReplicas:
    """Read the other replicas that a partition's part of the plan relies on.

    Raises:
        StalePlanError: a log is gone, has changed, or is no longer readable.
    """
    logs = other_logs_now(work, staging)
    closed = tuple(_logs_now(staging, facts[:-1]))
    [others_read] = read_others(
        work.engine, work.scratch.path, [(LogsItem(place=place, segments=closed), logs)]
    )
    if isinstance(others_read, NotKnownError):
        raise StalePlanError(f"{staging.plan.folder}: {others_read}") from others_read
    return others_read


def policy_now(
    work: Work, staging: Staging, facts: Sequence[SegmentFacts], others: OtherReplicas
) -> MarkerPolicy:
    """Return the plan's inputs of compaction, with the present high watermark and producers.

    Raises:
        StalePlanError: there is no high watermark any more.
        UnreadableError: a producer snapshot could not be read.
    """
    # Without a high watermark the committed records are unknown: a removed record might have been the last committed
    # record of its key.
    if work.high_watermark(staging) < 0 <= staging.plan.high_watermark:
        text = f"{staging.plan.folder}: its high watermark is no longer recorded"
        if not work.plan.policy.assume_high_watermark:
            raise StalePlanError(f"{text}; the plan has {staging.plan.high_watermark}")
    try:
        policy = policy_with(work.context, work.analysis(staging, facts), others)
    except OSError as error:
        raise UnreadableError(f"{staging.plan.folder}: {error}") from error
    planned = staging.plan
    return dataclasses.replace(policy, horizon=str(planned.horizon_ms), keeps_all=planned.keeps_all)


def finish_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Build the indexes of staged logs, and read all staged files again."""
    from krepair.rewrite.segments.stage import finish

    jobs: list[tuple[tuple[Staging, str], FinishItem]] = []
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                jobs += [
                    ((staging, group.change_id), finish_item(work, staging, group, staging.stage_folder))
                    for group in groups_of(staging)
                ]
    for (staging, change_id), result in work.engine.each(finish, jobs):
        if isinstance(result, Failed):
            staging.record_failure(result)
            continue
        known = staging.staged.get(change_id, StagedGroup())
        staging.staged[change_id] = known._replace(made=result.made)


def finish_item(
    work: Work, staging: Staging, group: RewriteSegments, folder: str, *, make: bool = True
) -> FinishItem:
    """Return the work item that finishes a group in a folder, or with ``make=False`` only verifies the group.

    Raises:
        OSError: the file whose owner and mode the new files take over cannot be read.
    """
    known = staging.staged.get(group.change_id, StagedGroup())
    like = read_attributes(_owner_and_mode_from(staging.folder, group), staging.folder.tree)
    return FinishItem(
        place=work.place(staging),
        change=group,
        stage=folder,
        attributes=like._replace(mtime_ns=group.mtime_ns),
        index_interval_bytes=work.settings(staging).index_interval_bytes,
        make=make,
        parts=known.parts,
        made=dict(known.made),
        ends_in_records=_ends_in_records(staging, group),
    )


def _ends_in_records(staging: Staging, group: RewriteSegments) -> bool:
    """Return whether a new segment must end with records, because more segments of a coordinator's log follow."""
    if staging.plan.topic != TRANSACTIONS_TOPIC:
        return False
    last = log_name(group.sources[-1].base_offset)
    return any(name.endswith(LOG) and name > last and file.size for name, file in staging.planned.items())


def _owner_and_mode_from(folder: PartitionFolder, group: RewriteSegments) -> str:
    """Return the file whose owner and mode the new files get: the last original, in place or among the backups."""
    name = log_name(group.sources[-1].base_offset)
    for path in (f"{folder.private}/keep/{name}", f"{folder.path}/{name}"):
        if folder.tree.is_there(path):
            return path
    return f"{folder.path}/{log_name(group.base_offset)}"  # purged: only the new log exists


def verify_groups(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield readings that compare new segments with the plan, and with ``work.originals`` also with the backups.

    After a purge no backups exist.
    """
    from krepair.rewrite.segments.verify import compare_originals

    yield from verify_finished_groups(work, staging)
    if work.originals and staging.keep:
        for group in groups_of(staging):
            if log_name(group.base_offset) not in staging.freed:
                size = sum(source.log_bytes for source in group.sources) + group.log_bytes
                item = PartitionItem(place=work.place(staging), bytes_to_read=size)
                yield SecondReading(group, ORIGINALS, compare_originals, ((item, group, staging.keep),))


def verify_finished_groups(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield readings of every batch, every index entry and the plan's counts of new segments."""
    from krepair.rewrite.segments.stage import finish

    for group in groups_of(staging):
        item = finish_item(work, staging, group, staging.folder.path, make=False)
        yield SecondReading(group, NEW_SEGMENTS, finish, (item,))
