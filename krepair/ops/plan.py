"""``krepair plan``: looks at a log directory and says what would be changed, why, and at what cost. Writes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from krepair.checks.tail import LOOK_AT_MOST_BYTES, holds_whole_batch
from krepair.errors import LockedError, NotALogDirError
from krepair.fixes.checkpoints import CHECKPOINTS_FIX, keeper_of, log_ends, root_plan, see_checkpoints
from krepair.fixes.epochs import EPOCHS_FIX, epoch_changes, look_at_epochs
from krepair.fixes.indexes import (
    depth_of,
    index_changes,
    look_at_indexes,
    look_at_txn_indexes,
    why_untouched,
)
from krepair.fixes.leftovers import LEFTOVERS_FIX, leftover_changes, look_at_leftovers, told_version
from krepair.fixes.snapshots import SNAPSHOTS_FIX, look_at_snapshots, snapshot_changes
from krepair.fixes.survey import Surveyed, TailDecision, log_end_of, scan_partitions, survey
from krepair.fixes.swaps import log_swaps
from krepair.fixes.tail import check_asked, decide_tails, way_of
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.journal.choose import DamagedSegment, choose_commit
from krepair.kernels.classes import D_NONE, D_PAST_END, D_TORN, D_ZEROS
from krepair.logdir.config import Setting as ConfigSetting
from krepair.logdir.config import Settings, load_settings
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.lock import is_locked
from krepair.logdir.reading import opened_for_reading
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.findings.kept import kept_text
from krepair.ops.findings.trouble import cleaner_stands_still, mtimes_look_copied
from krepair.ops.kept import kept_originals
from krepair.options import Options
from krepair.pipeline.engine import Engine, choose_engine
from krepair.pipeline.progress import Progress, SilentProgress
from krepair.plan.build import LogDirFacts, build_plan
from krepair.plan.model import (
    Commit,
    CompleteSwap,
    FileFingerprint,
    HorizonChoice,
    KeepOriginal,
    PartitionPlan,
    Plan,
    Policy,
    ReasonTally,
    RewriteSegments,
    Setting,
    SourceSegment,
    Span,
)
from krepair.rules.grouping import index_bytes_at_most
from krepair.rules.markers import RULES
from krepair.rules.model import GroupDecision, LeftAlone, PartitionDecision, SegmentFacts, SegmentOutcome

_TOPIC_KEYS_USED = (
    "cleanup.policy",
    "delete.retention.ms",
    "index.interval.bytes",
    "min.compaction.lag.ms",
    "remote.storage.enable",
    "segment.bytes",
    "segment.index.bytes",
)
_BROKER_KEYS_USED = ("producer.id.expiration.ms", "transactional.id.expiration.ms")


def make_plan(log_dir: str, options: Options, progress: Progress | None = None) -> Plan:
    """Make a plan for one log directory.

    Raises:
        NotALogDirError: it is none.
        LockedError: a broker, or another krepair, is using it.
        PersonDecidesError: the safe order of commit depends on a broker version that is not known.
        UsageError: a configuration file or value is wrong.
    """
    progress = progress or SilentProgress()
    check_asked(options)
    view = read_log_dir(log_dir)
    refuse_if_locked(view.path)
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    chosen = wanted_partitions(view, settings, options) if "markers" in options.fixes else []
    depth = depth_of(options.fixes)
    with_epochs, with_snapshots = EPOCHS_FIX in options.fixes, SNAPSHOTS_FIX in options.fixes
    with_tail, with_leftovers = bool(way_of(options.fixes)), LEFTOVERS_FIX in options.fixes
    whole = with_epochs or with_tail
    others = _other_partitions(view, options) if depth or whole or with_snapshots or with_leftovers else []
    to_read = chosen + others if depth == "regenerate" or whole else chosen
    if with_leftovers:
        to_read = to_read + [each for each in others if log_swaps(each)]
    engine = choose_engine(options.engine, options.master, _bytes_to_scan(to_read))
    try:
        surveyed = survey(view, chosen, settings, options, engine, progress)
        known = {each.partition.folder for each in surveyed}
        surveyed += [
            Surveyed(each, settings.topic(each.topic)) for each in others if each.folder not in known
        ]
        if with_leftovers:
            look_at_leftovers(view, surveyed, options, engine, progress)
        if with_epochs:
            look_at_epochs(view, surveyed, options, engine, progress)
        if with_tail:
            decide_tails(view, surveyed, options, engine, progress)
        if with_snapshots:
            look_at_snapshots(view, surveyed, settings, options, engine, progress)
        if depth:
            touched = [each for each in surveyed if not why_untouched(each.partition, each.settings)]
            look_at_indexes(view, touched, depth, engine, progress, include_active=options.include_active)
            look_at_txn_indexes(view, touched, depth, engine, progress)
        return plan_of(view, surveyed, settings, options, engine, progress)
    finally:
        engine.close()


def refuse_if_locked(path: str) -> None:
    """Raise ``LockedError`` when somebody holds the log directory's lock."""
    holder = is_locked(path)
    if holder is not None:
        raise LockedError(
            f"{path}/.lock is held by {holder}: the log directory is in use; stop the broker first",
            next_command=f"krepair plan {shlex.quote(path)} --out PLAN",
        )


def wanted_partitions(view: LogDir, settings: Settings, options: Options) -> list[Partition]:
    """Partitions to look at: those named, else every one that the cleaner would compact."""
    named = bool(options.topics or options.partitions)
    if named:
        chosen = [each for each in view.partitions if options.wants(each.topic, each.number)]
        if not chosen:
            raise NotALogDirError(
                f"{view.path}: no partition of those named is there",
                next_command=f"krepair check {shlex.quote(view.path)}",
            )
        return chosen
    return [each for each in view.partitions if settings.topic(each.topic).compacts or each.unreadable]


def _other_partitions(view: LogDir, options: Options) -> list[Partition]:
    """Partitions whose derived files are looked at: those named, else all."""
    chosen = [each for each in view.partitions if options.wants(each.topic, each.number)]
    if not chosen and (options.topics or options.partitions):
        raise NotALogDirError(
            f"{view.path}: no partition of those named is there",
            next_command=f"krepair check {shlex.quote(view.path)}",
        )
    return chosen


def _bytes_to_scan(partitions: Sequence[Partition]) -> int:
    return sum(segment.log.size for each in partitions for segment in each.segments)


def plan_of(
    view: LogDir,
    surveyed: Sequence[Surveyed],
    settings: Settings,
    options: Options,
    engine: Engine,
    progress: Progress,
) -> Plan:
    """The plan of what was decided; looks at the other partitions' active segments if a fence would reach them."""
    partitions = [partition_plan(each, options) for each in surveyed]
    lowest = {
        each.folder: min(swapped)
        for each in partitions
        if (
            swapped := [
                one.base_offset for one in each.changes if isinstance(one, CompleteSwap | RewriteSegments)
            ]
        )
    }
    root = None
    if CHECKPOINTS_FIX in options.fixes:
        changing = [each.folder for each in partitions if each.changes]
        seen = see_checkpoints(view, log_ends(view, engine, surveyed))
        root = root_plan(seen, keeper_of(view, changing))
    why = (
        "each file is replaced by one rename"
        if root is not None or any(each.changes for each in partitions)
        else "nothing to commit"
    )
    commit = Commit(order="P1", fence=True, why=why)
    if lowest:
        damaged = _damage(view, surveyed) + _damage_elsewhere(
            view, surveyed, settings, options, engine, progress
        )
        commit = choose_commit(lowest, damaged, options.broker_version or told_version(view))
    facts = LogDirFacts(
        host=view.host, path=view.path, inode=view.inode, cluster_id=view.cluster_id, broker_id=view.broker_id
    )
    return build_plan(
        facts,
        policy_of(surveyed, settings, options),
        partitions,
        commit,
        copied_mtimes=[
            each.partition.folder
            for each in surveyed
            if mtimes_look_copied(each.segments, each.partition.topic)
        ],
        dead_cleaner=[each.partition.folder for each in surveyed if cleaner_stands_still(view, each)],
        root=root,
        kept=[kept_text(view, one) for one in kept_originals(view, options.now_ms)],
    )


def _damage(view: LogDir, surveyed: Sequence[Surveyed]) -> list[DamagedSegment]:
    return [
        DamagedSegment(each.partition.folder, facts.base_offset, active=facts is each.segments[-1])
        for each in surveyed
        for facts in each.segments
        if _would_lose(view, each.partition, facts, active=facts is each.segments[-1])
    ]


def _would_lose(view: LogDir, partition: Partition, facts: SegmentFacts, *, active: bool) -> bool:
    """Whether a recovery under the fence could cut something that the next start would leave.

    Of a torn tail nothing is lost; and without a clean-shutdown marker the active segment is recovered in any case.
    """
    if facts.summary.damage == D_NONE:
        return False
    return not (active and (not view.clean_shutdown or _is_torn_tail(partition, facts)))


def _is_torn_tail(partition: Partition, facts: SegmentFacts) -> bool:
    """Whether all that follows the last valid batch is the torn rest of one, or zeros that were never written over."""
    if facts.summary.damage not in (D_TORN, D_PAST_END, D_ZEROS):
        return False
    rest = facts.summary.file_size - facts.summary.valid_bytes
    if rest > LOOK_AT_MOST_BYTES:
        return False
    try:
        with opened_for_reading(f"{partition.path}/{facts.base_offset:020d}.log") as descriptor:
            data = os.pread(descriptor, rest, facts.summary.valid_bytes)
            return not any(data) if facts.summary.damage == D_ZEROS else not holds_whole_batch(data)
    except OSError:
        return False  # what cannot be read is not taken for harmless


def _damage_elsewhere(
    view: LogDir,
    surveyed: Sequence[Surveyed],
    settings: Settings,
    options: Options,
    engine: Engine,
    progress: Progress,
) -> list[DamagedSegment]:
    """Damage in the active segments of all other partitions, which the fence would have a broker recover.

    Without a clean-shutdown marker a broker recovers them at its next start in any case.
    """
    if not view.clean_shutdown:
        return []
    seen = {each.partition.folder for each in surveyed if each.segments}
    others = [
        Surveyed(partition, settings.topic(partition.topic))
        for partition in view.partitions
        if partition.folder not in seen and partition.segments and not partition.unreadable
    ]
    scan_partitions(view, others, options, engine, progress, only_active=True)
    return _damage(view, others)


def policy_of(surveyed: Sequence[Surveyed], settings: Settings, options: Options) -> Policy:
    """The policy as the plan records it, with each setting's source."""
    topics = {each.partition.topic: each.settings for each in surveyed}
    recorded = {
        topic: tuple(_recorded(one) for one in values.settings if one.key in _TOPIC_KEYS_USED)
        for topic, values in sorted(topics.items())
    }
    recorded[""] = tuple(_recorded(one) for one in settings.broker if one.key in _BROKER_KEYS_USED)
    return Policy(
        rules=RULES,
        fixes=options.fixes,
        now_ms=options.now_ms,
        horizon=options.delete_horizon,
        merge=options.merge,
        keep=options.keep,
        broker_version=options.broker_version,
        assume_high_watermark=options.assume_high_watermark,
        settings=recorded,
        accepted_losses=options.accepted_losses,
    )


def _recorded(setting: ConfigSetting) -> Setting:
    return Setting(key=setting.key, value=setting.value, source=setting.source)


def partition_plan(each: Surveyed, options: Options) -> PartitionPlan:
    """One partition's part of the plan; figures that follow from others are filled in by the builder."""
    partition = each.partition
    plan = PartitionPlan(
        topic=partition.topic,
        partition=partition.number,
        folder=partition.folder,
        status="nothing",
        log_start_offset=partition.segments[0].base_offset if partition.segments else 0,
        log_end_offset=max(log_end_of(each.segments), each.snapshots.log_end if each.snapshots else 0),
        high_watermark=each.high_watermark,
        files=fingerprints(each),
        log_bytes_before=sum(segment.log.size for segment in partition.segments),
        notes=_private_notes(partition),
    )
    if isinstance(each.outcome, PartitionDecision):
        plan = _decided(plan, each, each.outcome, options)
    rewritten = {
        source.base_offset
        for change in plan.changes
        if isinstance(change, RewriteSegments)
        for source in change.sources
    }
    tail = each.tail or TailDecision((), (), frozenset())
    files, notes = index_changes(each, rewritten | tail.bases)
    epochs, epoch_notes = epoch_changes(each)
    snapshots, snapshot_notes = snapshot_changes(each, _removed_snapshots(plan))
    if tail.changes and snapshots:
        snapshots, snapshot_notes = (), ("its producer snapshots are for a second plan: its log end changes",)
    left_behind, leftover_notes = leftover_changes(each)
    notes = (*leftover_notes, *tail.notes, *epoch_notes, *snapshot_notes, *notes)
    if each.outcome is None and each.leftovers is not None and each.leftovers.left:
        each.outcome = LeftAlone("leftovers", each.leftovers.left, damaged=True)
    outcome = tail.left if each.outcome is None else each.outcome
    mended = (*files, *epochs, *snapshots, *tail.changes, *left_behind)
    if isinstance(outcome, LeftAlone) and not mended:
        return _left_alone(replace(plan, notes=(*plan.notes, *notes)), outcome)
    if isinstance(each.outcome, LeftAlone):
        notes = (f"its markers are left alone ({each.outcome.code}): {each.outcome.why}", *notes)
    if depth_of(options.fixes) and (why := why_untouched(partition, each.settings)):
        notes = (*notes, f"its indexes are left alone: {why}")
    # Leader epochs and producers first: they are worked out from the log as it is before it is compacted.
    changes = (*epochs, *snapshots, *plan.changes, *files, *tail.changes, *left_behind)
    status = "change" if changes else plan.status
    return replace(plan, status=status, changes=changes, notes=(*plan.notes, *notes))


def _removed_snapshots(plan: PartitionPlan) -> set[str]:
    return {
        name
        for change in plan.changes
        if isinstance(change, RewriteSegments)
        for name in change.removes_snapshots
    }


def _left_alone(plan: PartitionPlan, outcome: LeftAlone) -> PartitionPlan:
    return replace(
        plan,
        status="left alone",
        code=outcome.code,
        why=outcome.why,
        next_command=outcome.next_command,
        uncleanable_bytes=plan.log_bytes_before if outcome.damaged else 0,
    )


def _decided(
    plan: PartitionPlan, each: Surveyed, decision: PartitionDecision, options: Options
) -> PartitionPlan:
    changes = tuple(_change(each, group) for group in decision.groups if group.changes)
    span = decision.span
    return replace(
        plan,
        status="change" if changes else "nothing",
        log_end_offset=decision.log_end_offset,
        span=Span(
            start_offset=span.start_offset,
            end_offset=span.end_offset,
            limit=span.limit,
            limit_text=span.limit_text,
        ),
        horizon_ms=decision.horizon_ms,
        horizons=tuple(
            HorizonChoice(
                name=choice.name,
                horizon_ms=choice.horizon_ms,
                log_bytes_after=choice.log_bytes_after,
                markers_dropped=choice.markers_dropped,
                chosen=choice.chosen,
            )
            for choice in decision.horizons
        ),
        kept_last=decision.kept_last,
        changes=changes,
        notes=(*plan.notes, *decision.notes, f"{decision.active_producers} active producers at the log end"),
    )


def _private_notes(partition: Partition) -> tuple[str, ...]:
    ids = sorted({private.plan_id for private in partition.private})
    return tuple(
        f"originals of plan {plan_id} are still kept here; after this plan is applied, that one can only be undone "
        f"once this one is"
        for plan_id in ids
    )


def fingerprints(each: Surveyed) -> tuple[FileFingerprint, ...]:
    """Fingerprints of every regular file of the partition."""
    digests = {f"{facts.base_offset:020d}.log": facts.summary.headers for facts in each.segments}
    if each.epochs is not None:
        digests[LEADER_EPOCH_CHECKPOINT] = each.epochs.digest
    digests |= {f"{base:020d}.txnindex": digest_bytes(data) for base, data in each.txn_entries.items()}
    return tuple(_fingerprint(file, digests.get(file.name, "")) for file in each.partition.files())


def _fingerprint(file: FileRef, digest: str) -> FileFingerprint:
    return FileFingerprint(
        name=file.name, size=file.size, mtime_ns=file.mtime_ns, inode=file.inode, digest=digest
    )


def _change(each: Surveyed, group: GroupDecision) -> RewriteSegments:
    sources = group.sources
    refs = {segment.base_offset: segment for segment in each.partition.segments}
    aborted = sum(len(source.aborted_kept) for source in sources)
    log_bytes = group.kept_bytes
    filled = [source for source in sources if source.batches]
    return RewriteSegments(
        change_id=f"{each.partition.folder}/{sources[0].base_offset:020d}",
        base_offset=sources[0].base_offset,
        sources=tuple(_source(source) for source in sources),
        log_bytes=log_bytes,
        index_bytes_at_most=index_bytes_at_most(log_bytes, each.settings.index_interval_bytes, aborted),
        batches=sum(source.kept_batches for source in sources),
        mtime_ns=refs[sources[-1].base_offset].log.mtime_ns,
        last_offset=filled[-1].last_offset if filled else -1,
        removes_snapshots=_merged_away_snapshots(each.partition, sources),
        freed_at_purge=0,
        peak_extra_bytes=0,
        undo=KeepOriginal(),
    )


def _merged_away_snapshots(partition: Partition, sources: Sequence[SegmentOutcome]) -> tuple[str, ...]:
    """Snapshots named after segments that are merged away go, as on 2.8+ (KAFKA-9393); the newest never does."""
    gone = {source.base_offset for source in sources[1:]}
    return tuple(snapshot.file.name for snapshot in partition.snapshots[:-1] if snapshot.offset in gone)


def _source(source: SegmentOutcome) -> SourceSegment:
    return SourceSegment(
        base_offset=source.base_offset,
        log_bytes=source.log_bytes,
        batches=source.batches,
        kept_bytes=source.kept_bytes,
        kept_batches=source.kept_batches,
        kept_records=source.kept_records,
        kept_markers=source.kept_markers,
        reasons=tuple(
            ReasonTally(reason=reason.value, batches=tally.batches, bytes=tally.bytes)
            for reason, tally in source.reasons.items()
        ),
        drop_unstamped=source.drop_unstamped,
        carried_open=source.carried_open,
        keep_positions=source.keep_positions,
        protected=source.protected,
        last_position=source.last_position,
        decisions=f"{source.decisions & (2**64 - 1):016x}",
        aborted_kept=source.aborted_kept,
    )
