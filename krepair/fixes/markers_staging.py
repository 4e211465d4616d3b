"""Segments written anew: copied on the engine, decided again, finished, and read once more before any swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from krepair.durable.attributes import read_attributes
from krepair.errors import StalePlanError, UnreadableError
from krepair.fixes.context import ListedLog
from krepair.fixes.evidence_proof import Staged, prove_markers
from krepair.fixes.other_logs import Asking, NotKnownError, held_of, logs_again
from krepair.fixes.producers_at_end import newest_snapshot
from krepair.fixes.staging import Decided, Staging, Work, error_of
from krepair.formats.arrays import Int64s
from krepair.formats.filenames import log_name
from krepair.journal.actions.action import StagedGroup
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import check_fresh
from krepair.logdir.replica import replica_state
from krepair.pipeline.items import FinishItem, Place, StageItem
from krepair.pipeline.wire import encode_summary
from krepair.plan.facts import number
from krepair.plan.model import FileFingerprint, MendLog, RewriteSegments
from krepair.rules.evidence import Evidence
from krepair.rules.markers import StageInputs, limit_now, stage_inputs, why_undecided
from krepair.rules.model import MarkerPolicy, SegmentFacts


def groups_of(staging: Staging) -> list[RewriteSegments]:
    """The groups of segments among its changes."""
    return [change for change in staging.changes if isinstance(change, RewriteSegments)]


def stage_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Copy, recheck, finish and verify; each partition's problem is put into its ``Staging``."""
    _copy(work, stagings)
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                _recheck(work, staging)
    finish_groups(work, stagings)
    _prove(work, stagings)


def _prove(work: Work, stagings: Sequence[Staging]) -> None:
    """Hold the markers that are gone against the other replicas, before anything is committed."""
    found: list[Staged] = []
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
                logs = [
                    (base_offset, f"{place.stem(base_offset)}.log", size)
                    for base_offset, size in _logs_now(staging, work.all_facts(staging))
                    if base_offset not in excised  # damaged until its change comes, and no source of a group
                ]
                found.append(Staged(staging, place, others_again(work, staging), logs, results))
    prove_markers(work, found)


def _logs_now(staging: Staging, facts: Sequence[SegmentFacts]) -> list[tuple[int, int]]:
    """(base offset, bytes of valid batches) of all logs: of groups that are made by now, those of their new log.

    It is proven that nobody needs the markers that such a group has lost: its new log says as much as its sources.
    """
    sizes = {one.base_offset: one.summary.valid_bytes for one in facts}
    for group in staging.plan.changes:
        if isinstance(group, RewriteSegments) and not group.loses_records and group.change_id in staging.made:
            for source in group.sources:
                sizes.pop(source.base_offset, None)
            sizes[group.base_offset] = group.log_bytes
    return sorted(sizes.items())


# -- copy


def _copy(work: Work, stagings: Sequence[Staging]) -> None:
    from krepair.pipeline.rewrite.stage import stage

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
        crcs[item.change.change_id, source.base_offset] = result.written_crc
    for staging in stagings:
        for group in groups_of(staging):
            parts = tuple(
                (source.kept_bytes, crcs.get((group.change_id, source.base_offset), 0))
                for source in group.sources
            )
            staging.staged[group.change_id] = StagedGroup(parts)


def _prepared(work: Work, staging: Staging) -> list[StageItem]:
    """Folders and files that the copies are written into, and the items that write them."""
    items: list[StageItem] = []
    planned = staging.plan.by_name
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
                change=replace(group, sources=(source,)),  # the others need not travel with it
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


# -- recheck


def _recheck(work: Work, staging: Staging) -> None:
    """Work out from fresh scans what the rewrites were told, and compare with the plan.

    Raises:
        StalePlanError: it is not the same.
        UnreadableError: a producer snapshot could not be read.
    """
    facts = work.all_facts(staging, with_txn_index=True)
    policy = policy_now(work, staging, facts, work.place(staging))
    found = _decided_before(staging, facts, policy)
    if found is None:
        found = stage_inputs(facts, policy, dict(staging.plan.kept_last))
    if len(groups_of(staging)) < sum(isinstance(one, RewriteSegments) for one in staging.plan.changes):
        staging.decided[:] = [Decided(facts, policy, found)]  # for the groups that are staged after these
    check_decisions(staging, found, lambda: f"may no longer be compacted: {limit_now(facts, policy)}")


def _decided_before(
    staging: Staging, facts: Sequence[SegmentFacts], policy: MarkerPolicy
) -> Mapping[int, StageInputs] | None:
    """What was decided of the partition for a group before, if that was from the very same facts; else None."""
    for before in staging.decided:
        if (
            policy == before.policy
            and np.array_equal(policy.held_markers, before.policy.held_markers)
            and len(facts) == len(before.facts)
            and all(map(_are_same, facts, before.facts))
        ):
            return before.inputs
    return None


def _are_same(one: SegmentFacts, other: SegmentFacts) -> bool:
    return one is other or (
        (one.base_offset, one.mtime_ms) == (other.base_offset, other.mtime_ms)
        and encode_summary(one.summary) == encode_summary(other.summary)
        and np.array_equal(one.entries, other.entries)
    )


def check_decisions(
    staging: Staging, found: Mapping[int, StageInputs], why_not: Callable[[], str] | None = None
) -> None:
    """What was decided anew of each source is what the plan says.

    Args:
        staging: the partition.
        found: base offset -> what was decided anew, of the segments that may still be compacted.
        why_not: says why a segment is not among them.

    Raises:
        StalePlanError: it is not; the message names the segment.
    """
    for source in (source for group in groups_of(staging) for source in group.sources):
        planned = StageInputs(
            source.carried_open,
            source.keep_positions,
            source.protected,
            source.drop_unstamped,
            source.keeps,
        )
        now = found.get(source.base_offset)
        if now != planned:
            why = (
                why_not()
                if now is None and why_not
                else "what stays was decided again, and is not what the plan has"
            )
            where = f"{staging.plan.folder}/{log_name(source.base_offset)}"
            raise StalePlanError(f"{where}: {why}")


def others_again(work: Work, staging: Staging) -> tuple[ListedLog, ...]:
    """The logs of the other replicas on which a partition's part of the plan rests, as they are now.

    Raises:
        StalePlanError: one is not there, or has changed.
    """
    evidence = staging.plan.evidence
    if not isinstance(evidence, Evidence) or evidence.kind == "none":
        return ()
    mine = replica_state(work.view, staging.listed)
    moved = work.moved.get((mine.topic, mine.partition))
    if moved is not None:
        raise StalePlanError(moved)
    return tuple(logs_again(evidence.logs, work.view, mine, work.other_dirs))


def _held_now(work: Work, staging: Staging, facts: Sequence[SegmentFacts], place: Place) -> Int64s:
    others = others_again(work, staging)
    for logs, held in staging.held:
        if logs == others:
            return held  # the others are as they were, and a group that is made since has lost none of these
    closed = tuple(_logs_now(staging, facts[:-1]))
    [found] = held_of(work.engine, work.scratch.path, [Asking(place, closed, others)])
    if isinstance(found, NotKnownError):
        raise StalePlanError(f"{staging.plan.folder}: {found}") from found
    staging.held.append((others, found.markers))
    return found.markers


def policy_now(work: Work, staging: Staging, facts: Sequence[SegmentFacts], place: Place) -> MarkerPolicy:
    """The plan's inputs of compaction, with the high watermark and the producers as they are now.

    Raises:
        StalePlanError: there is no high watermark any more, or nothing would be decided on the partition now.
        UnreadableError: a producer snapshot could not be read.
    """
    if work.high_watermark(staging) < 0 <= staging.plan.high_watermark:
        text = f"{staging.plan.folder}: its high watermark is no longer recorded"
        if not work.plan.policy.assume_high_watermark:
            raise StalePlanError(f"{text}; the plan has {staging.plan.high_watermark}")
    try:
        policy = _policy(work, staging, facts, place)
    except OSError as error:
        raise UnreadableError(f"{staging.plan.folder}: {error}") from error
    if _decided_before(staging, facts, policy) is not None:
        return policy
    minded = why_undecided(facts, policy)
    if minded is not None:
        raise StalePlanError(f"{staging.plan.folder}: {minded.why}")
    return policy


def _policy(work: Work, staging: Staging, facts: Sequence[SegmentFacts], place: Place) -> MarkerPolicy:
    policy, topic = work.plan.policy, staging.plan.topic
    log_end = max(one.summary.last_offset + 1 for one in facts)
    snapshot_offset, snapshot = newest_snapshot(staging.listed.snapshots, log_end)

    def setting_of(key: str, scope: str = topic) -> int:
        return number(policy, scope, key)

    return MarkerPolicy(
        now_ms=policy.now_ms,
        horizon=str(staging.plan.horizon_ms),
        delete_retention_ms=setting_of("delete.retention.ms"),
        min_compaction_lag_ms=setting_of("min.compaction.lag.ms"),
        segment_bytes=setting_of("segment.bytes"),
        segment_index_bytes=setting_of("segment.index.bytes"),
        index_interval_bytes=setting_of("index.interval.bytes"),
        producer_expiry_ms=max(
            setting_of("producer.id.expiration.ms", ""), setting_of("transactional.id.expiration.ms", "")
        ),
        high_watermark=high_watermark_now(work, staging, facts),
        first_dirty_offset=-1,
        stamps=False,
        merge=policy.merge,
        snapshot_offset=snapshot_offset,
        snapshot=snapshot,
        keeps_all=staging.plan.keeps_all,
        held_markers=_held_now(work, staging, facts, place),
    )


def high_watermark_now(work: Work, staging: Staging, facts: Sequence[SegmentFacts]) -> int:
    """The high watermark by which is decided: the log end, where that was said.

    Args:
        work: what is staged with.
        staging: the partition.
        facts: of its logs, the last one among them.
    """
    known = work.high_watermark(staging)
    if work.plan.policy.assume_high_watermark == "log-end":
        return max(known, *(one.summary.last_offset + 1 for one in facts))
    return known


# -- finish


def finish_groups(work: Work, stagings: Sequence[Staging]) -> None:
    """Make the indexes of staged logs, and read all that was staged once more."""
    from krepair.pipeline.rewrite.finish import finish

    jobs: list[tuple[Staging, FinishItem]] = []
    for staging in stagings:
        if staging.problem is None:
            with staging.taking_problems():
                jobs += [
                    (staging, finish_item(work, staging, group, staging.stage_folder))
                    for group in groups_of(staging)
                ]
    for index, result in work.engine.map(finish, [item for _, item in jobs]):
        staging, item = jobs[index]
        if result.failure:
            staging.problem = staging.problem or error_of(result.failure, result.why)
        known = staging.staged.get(item.change.change_id, StagedGroup())
        staging.staged[item.change.change_id] = known._replace(made=result.made)


def finish_item(
    work: Work, staging: Staging, group: RewriteSegments, folder: str, *, make: bool = True
) -> FinishItem:
    """The item that finishes a group in a folder, or only verifies it there.

    Raises:
        OSError: the file whose owner and mode the new ones take over cannot be looked at.
    """
    known = staging.staged.get(group.change_id, StagedGroup())
    like = read_attributes(_like(staging.folder, group), staging.folder.tree)
    return FinishItem(
        place=work.place(staging),
        change=group,
        stage=folder,
        attributes=like._replace(mtime_ns=group.mtime_ns),
        index_interval_bytes=work.index_interval_bytes(staging),
        make=make,
        parts=known.parts,
        made=dict(known.made),
    )


def _like(folder: PartitionFolder, group: RewriteSegments) -> str:
    """The file whose owner, mode and attributes the new ones take over: the last original, kept or in place."""
    name = log_name(group.sources[-1].base_offset)
    for path in (f"{folder.private}/keep/{name}", f"{folder.path}/{name}"):
        if folder.tree.is_there(path):
            return path
    return f"{folder.path}/{log_name(group.base_offset)}"  # purged: only the new one is left
