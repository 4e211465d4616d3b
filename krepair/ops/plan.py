"""``krepair plan``: analyze a log directory, and plan what to change, why, and at what cost. Writes nothing.

The last part is ``--preview``: a plan made beside a running broker, for reading; after the stop the real one is made.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.commit.kept import kept_originals
from krepair.commit.ready import why_not_begun
from krepair.commit.reports import KeptPlan
from krepair.durable.scratch import Scratch
from krepair.engine.choice import SECONDS_PER_GB, Load, WorkKind, choose_engine
from krepair.engine.progress import Progress
from krepair.errors import LockedError, RefusedError, UnreadableError, UsageError
from krepair.fixes.analysis import PartitionAnalysis, log_end_of, next_start_of
from krepair.fixes.context import Context, OtherDirs
from krepair.fixes.dead_cleaner import cleaner_is_stalled
from krepair.fixes.evidence import others_of, read_clusters
from krepair.fixes.fix import Compacted, Fix, Proposal, named_or_all
from krepair.fixes.gate import why_not_to_end
from krepair.fixes.logs import read_logs_after
from krepair.fixes.next_start import simulate_next_starts, why_not_started
from krepair.fixes.order import commit_of
from krepair.fixes.replica_holders import loss_risks
from krepair.fixes.replicas import (
    GivenBroker,
    brokers_of_plan,
    check_ids,
    ids_of,
    refuse_if_in_use,
    with_whole_paths,
)
from krepair.fixes.table import COMMIT_ORDER, FIXES, requested_fixes
from krepair.fixes.tail.decide import damage_that_stays
from krepair.formats.filenames import METADATA_TOPIC, log_name, segment_name
from krepair.formats.words import count_text, few
from krepair.logdir.cluster import ClusterView, configs_of
from krepair.logdir.config import load_settings
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.lock import is_locked
from krepair.logdir.values import FileRef, LogDir, Partition, deleted_files, why_changed, without_deleted
from krepair.logdir.view import read_log_dir
from krepair.next_command import LOG_DIR, NOTHING, PLAN, Next
from krepair.options import Options
from krepair.plan.build import build_plan
from krepair.plan.changes import changes_logs, names_removed
from krepair.plan.commands import second_plan_command
from krepair.plan.fit import AFTER_PURGE, NO_ROOM, WHY_NO_ROOM, root_without, without_room
from krepair.plan.keep import AUTO
from krepair.plan.model import (
    WHOLE_BLOCKS,
    ChangeLines,
    Commit,
    FileFingerprint,
    PartitionPlan,
    Plan,
    Policy,
    Preview,
    ReplaceFile,
    Risk,
    Room,
    RootPlan,
    Span,
)
from krepair.plan.risks import KEPT_ORIGINALS
from krepair.plan.short import changes_of
from krepair.plan.view import size_text
from krepair.rules.broker_clock import mtimes_look_copied
from krepair.rules.markers import RULES
from krepair.rules.model import Skipped
from krepair.rules.replicas.model import PartitionVerdict
from krepair.rules.tail import parts_of_consent
from krepair.start.log_dirs_given import check_consents, check_named, is_same, other_dirs
from krepair.start.room import room_of, room_of_short_disk

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

ByFix = Mapping[str, Proposal]
"""Name of a fix -> what it sees in one partition."""


_LOG: Final = logging.getLogger(__name__)


def make_plan(log_dir: str, options: Options, progress: Progress | None = None) -> Plan:
    """Make a plan for one log directory.

    Args:
        options: options as they were typed.
        progress: receives the number of bytes read.

    Raises:
        NotALogDirError: the folder is no log directory, or a named partition is not in it.
        LockedError: a broker, or another krepair, is using the log directory.
        UsageError: a configuration file or value is wrong.
        PersonDecidesError: the safe order of commit depends on a broker version that is not known.
    """
    fixes = requested_fixes(options.fixes)
    options = with_whole_paths(options)
    for fix in FIXES:
        fix.check_options(options)
    view = read_log_dir(log_dir)
    for path in (view.path, options.keep):
        _check_is_utf8(path)
    refuse_if_locked(view.path, can_preview=all(fix.previews for fix in fixes))
    partitions = partitions_named(view, options)
    check_consents([view], options)
    with contexts(view, options, fixes, partitions, progress) as context_of:
        context = context_of(view)
        plan = plan_of(context, fixes, propose_changes(context, fixes, partitions))
        # The finished plan is checked as ``apply`` would check it: a plan that apply refuses must never be written.
        refused = why_not_started(context) | why_not_begun(plan, view)
        if refused:
            plan = _plan_without(context_of(view), fixes, partitions, refused)
    _log_decisions(plan)
    return plan


def _plan_without(
    context: Context, fixes: Sequence[Fix], partitions: Sequence[Partition], refused: Mapping[str, Skipped]
) -> Plan:
    """Return a plan that skips the partitions which ``apply`` would refuse, or whose next start would fail.

    Args:
        context: a fresh context, since changes of the root depend on all partitions.
        fixes: fixes that were requested.
        partitions: partitions that are analyzed.
        refused: partition folder -> reason for skipping the partition.
    """
    losses = context.options.accepted_losses
    kept = tuple(text for text in losses if parts_of_consent(text)[1] not in refused)
    context.options = with_fields(context.options, accepted_losses=kept)
    context.analyze_all(partitions)  # in their order
    by_folder = propose_changes(context, fixes, [part for part in partitions if part.folder not in refused])
    first = next(fix.name for fix in COMMIT_ORDER if fix in fixes)
    for folder, reason in refused.items():
        by_folder[folder] = {first: Proposal(left=reason)}
    return plan_of(context, fixes, by_folder)


def _log_decisions(plan: Plan) -> None:
    """Log what a plan changes, and why it skips the other partitions."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    for partition in plan.partitions:
        if partition.status == "left alone":
            _LOG.info("%s: left alone: %s: %s", partition.folder, partition.code, partition.why)
    for change in changes_of(plan):
        _LOG.info("%s: to be changed by %s", change.change_id, ", ".join(change.rules))


@contextmanager
def contexts(
    view: LogDir,
    options: Options,
    fixes: Sequence[Fix],
    partitions: Sequence[Partition],
    progress: Progress | None,
    *,
    beside_broker: bool = False,
) -> Iterator[Callable[[LogDir], Context]]:
    """Yield the function that makes the context of a listing: settings, engine and the logs of other replicas.

    Args:
        options: options as they were typed.
        fixes: fixes that were requested.
        partitions: partitions that the fixes will read.
        progress: receives the number of bytes read.
        beside_broker: True if a broker may be running.

    Raises:
        KrepairError: the reasons of ``make_plan`` and ``read_other_brokers``.
    """
    clusters = read_clusters(options, view)
    recorded = configs_of(*clusters, view.broker_id)
    settings = load_settings(options.config, options.topic_config, dict(options.settings), recorded)
    other_brokers = read_other_brokers(fixes, options, view, clusters[0])
    work = work_of(fixes, partitions, options)
    with (
        closing(choose_engine(options.engine, options.master, work, progress)) as engine,
        closing(Scratch(options.scratch, (view.path,))) as scratch,
    ):

        def context_of(listed: LogDir) -> Context:
            context = Context(listed, settings, options, engine, scratch, beside_broker=beside_broker)
            context.cluster, context.own_metadata = clusters
            context.other_brokers, context.own_dirs = other_brokers
            return context

        yield context_of


OtherBrokers = tuple[Mapping[int, tuple[LogDir, ...]], OtherDirs]
"""The log directories of other brokers, and the others of this one."""


def read_other_brokers(
    fixes: Sequence[Fix], options: Options, view: LogDir, cluster: ClusterView | None = None
) -> OtherBrokers:
    """Read the other brokers' log directories, if a fix may remove records or markers from this one.

    Args:
        fixes: fixes that were requested.
        options: options as they were typed.
        cluster: the state of the cluster that ``--cluster`` names.

    Raises:
        UsageError: a value of ``--replicas`` cannot be read.
        LockedError: a log directory is in use.
        RefusedError: a log directory belongs to another broker or cluster.
    """
    if not any(fix.asks_others for fix in fixes):
        return {}, OtherDirs()
    if not options.replicas:
        return {}, other_dirs(view, None, options.config, None) if options.config else OtherDirs()
    given = {broker.broker_id: broker for broker in brokers_of_plan(options.replicas)}
    views = {broker_id: tuple(map(read_log_dir, broker.log_dirs)) for broker_id, broker in given.items()}
    check_ids(((broker, map(ids_of, views[broker_id])) for broker_id, broker in given.items()), ids_of(view))
    for broker in given.values():
        for path in broker.log_dirs:
            refuse_if_in_use(path)
    own = given.get(int(view.broker_id)) if view.broker_id.isdecimal() else None
    others = {
        broker_id: tuple(directory for directory in directories if not is_same(view, directory))
        for broker_id, directories in views.items()
        if str(broker_id) != view.broker_id
    }
    return others, other_dirs(
        view, own, options.config, cluster
    ) if view.broker_id.isdecimal() else OtherDirs()


def _check_is_utf8(path: str) -> None:
    """Check that a plan, which is JSON, can hold a path: else apply would look for another one.

    Raises:
        RefusedError: the path is not UTF-8.
    """
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise RefusedError(
            f"{path}: this path is not UTF-8 (character {error.start}), and a plan cannot hold it. Give its "
            "folder another name, or mount the directory in a second place (mount --bind), and plan that one"
        ) from error


def refuse_if_locked(path: str, *, can_preview: bool) -> None:
    """Raise ``LockedError`` when somebody holds the log directory's lock.

    Args:
        path: path of the log directory that is planned for.
        can_preview: True if the same plan can be previewed beside the broker.
    """
    holder = is_locked(path)
    if holder is not None:
        beside = can_preview and not holder.is_krepair
        more = ", or add --preview" if beside else ", then type the same command again"
        raise LockedError(
            f"{path}: is locked by {holder}: {holder.what_to_do()}{more}",
            next_command=Next.of("plan", path, "--preview", out=PLAN) if beside else NOTHING,
        )


def partitions_named(view: LogDir, options: Options) -> list[Partition]:
    """Return the partitions that the command line selects.

    Raises:
        NotALogDirError: partitions were named, and none of them is there.
    """
    chosen = named_or_all(view, options)
    if not chosen:
        check_named([view], options)
    return chosen


def work_of(fixes: Sequence[Fix], partitions: Sequence[Partition], options: Options) -> Load:
    """Sum the bytes of logs that the fixes read whole, by the most expensive work on each."""
    work = dict.fromkeys(WorkKind, 0)
    for partition in partitions:
        kinds = {fix.work for fix in fixes if fix.reads_whole(partition, fix.mode(options.fixes))}
        if kinds:
            work[max(kinds, key=SECONDS_PER_GB.__getitem__)] += partition.log_bytes
    return work


def propose_changes(
    context: Context, fixes: Sequence[Fix], partitions: Sequence[Partition]
) -> dict[str, dict[str, Proposal]]:
    """Run the fixes, one after the other: each knows the changes that the fixes before it want.

    Returns:
        Partition folder -> name of the fix -> what it sees there.
    """
    by_folder: dict[str, dict[str, Proposal]] = {}
    for fix in fixes:
        analyses = [context.analysis(partition) for partition in partitions if fix.wants(context, partition)]
        fix.read(context, analyses, "plan")
        if fix.of_root:
            continue
        for analysis in analyses:
            proposal = fix.propose(context, analysis)
            by_folder.setdefault(analysis.partition.folder, {})[fix.name] = proposal
            analysis.changes += proposal.changes
        read_logs_after(
            context,
            [
                analysis
                for analysis in analyses
                if changes_logs(by_folder[analysis.partition.folder][fix.name].changes)
            ],
        )
    return by_folder


def plan_of(context: Context, fixes: Sequence[Fix], by_folder: Mapping[str, ByFix]) -> Plan:
    """Build the plan of what the fixes want; read the active segments of other partitions that a guard would reach."""
    view = context.view
    analyses = [context.analyses[folder] for folder in by_folder]
    simulate_next_starts(
        context, [analysis for analysis in analyses if analysis.log is not None or analysis.changes]
    )
    by_folder = {
        folder: _without_unsound(context.analyses[folder], by_fix, context.options)
        for folder, by_fix in by_folder.items()
    }
    partitions = [
        partition_plan(context, analysis, by_folder[folder])
        for folder, analysis in context.analyses.items()
        if folder in by_folder
    ]
    if not context.options.preview:  # a running broker is still writing the end of each log
        stays = damage_that_stays(context, analyses)
        partitions = [_with_damage(partition, stays.get(partition.folder, ())) for partition in partitions]
    plan = _built(context, fixes, partitions, analyses)
    room = plan.policy.room
    if isinstance(room, UnsetType) and (short := room_of_short_disk(view, plan)) is not None:
        room = short
    not_fitting = frozenset(() if isinstance(room, UnsetType) else without_room(plan, room))
    return _built(context, fixes, partitions, analyses, not_fitting, room) if not_fitting else plan


def _built(
    context: Context,
    fixes: Sequence[Fix],
    partitions: Sequence[PartitionPlan],
    analyses: Sequence[PartitionAnalysis],
    not_fitting: Collection[str] = (),
    room: Room | UnsetType = UNSET,
) -> Plan:
    """Build the plan of these partitions; those in ``not_fitting`` keep their files and checkpoint entries.

    Args:
        fixes: fixes that were requested.
        partitions: partitions that were analyzed.
        analyses: analyses of these partitions.
        not_fitting: folders of partitions whose changes do not fit on the disk.
        room: free space of the disk, where partitions are left out.
    """
    view, options = context.view, context.options
    gone = [partition for partition in partitions if partition.folder in not_fitting]
    if gone:
        partitions = [
            _without_room(partition, options) if partition.folder in not_fitting else partition
            for partition in partitions
        ]
        context.analyses = {
            folder: analysis for folder, analysis in context.analyses.items() if folder not in not_fitting
        }
        for fix in fixes:
            if fix.of_root:  # it has seen the root as it would be after all changes
                fix.read(context, list(context.analyses.values()), "plan")
    root = root_without(_root_plan(context, fixes, partitions), gone)
    policy = policy_of(context, analyses)
    copied, still = copied_and_stalled(view, analyses)
    return build_plan(
        view,
        policy if isinstance(room, UnsetType) else replace(policy, room=room),
        partitions,
        commit_of(context, partitions, {file.name for file in root.files} if root else ()),
        copied_mtimes=copied,
        dead_cleaner=still,
        root=root,
        kept=[_kept_risk(view, kept) for kept in kept_originals(view, options.now_ms)],
        loss_risks=loss_risks(view, options, partitions, context.analyses, _compare),
        asked=options.words("plan", "reading"),
    )


def _compare(brokers: Sequence[GivenBroker], options: Options) -> Sequence[PartitionVerdict]:
    from krepair.ops.compare import compare

    return compare(brokers, options).partitions


def _with_damage(plan: PartitionPlan, stays: Sequence[Finding]) -> PartitionPlan:
    """Return a partition with a note on the damage that its plan met and leaves as it is."""
    if not stays or plan.status == "left alone":
        return plan
    first = stays[0]
    more = f"; and {count_text(len(stays) - 1, 'more damaged range')}" if stays[1:] else ""
    why = f"{first.rule} would stay in {plan.folder}/{first.file}, position {first.position}: {first.evidence}{more}"
    repair = f"; to repair it: {first.command}" if first.command else ""
    notes = (*plan.notes, f"{why}{repair}")  # ``show`` later has the plan file alone, without the finding
    return replace(plan, why=why, next_command=str(first.command), notes=notes)


def _without_unsound(analysis: PartitionAnalysis, by_fix: ByFix, options: Options) -> ByFix:
    """Return what the fixes want, without rewrites that were decided up to another log end than the start takes."""
    proposals = dict(by_fix)
    for name, proposal in by_fix.items():
        if proposal.compacted is None or not proposal.changes:
            continue
        reason = why_not_to_end(analysis, proposal.compacted.decision.log_end_offset, options)
        if reason is not None:
            note = f"its {'keys' if name == 'compact' else 'markers'} are not changed ({reason.code}): {reason.why}"
            proposals[name] = Proposal(proposal.findings, left=reason, left_note=note)
            analysis.changes = [change for change in analysis.changes if change not in proposal.changes]
    return proposals


def _without_room(plan: PartitionPlan, options: Options) -> PartitionPlan:
    """Return a partition without changes, since they do not fit on the disk now."""
    reason = Skipped(NO_ROOM, WHY_NO_ROOM, Next.of("plan", LOG_DIR, out=PLAN).at(AFTER_PURGE))
    return _left_alone(replace(plan, changes=()), reason, options)


def copied_and_stalled(view: LogDir, analyses: Collection[PartitionAnalysis]) -> tuple[list[str], list[str]]:
    """Return folders whose modification times look copied (KR106), and folders with a stalled cleaner (KR104)."""
    copied = [
        analysis for analysis in analyses if mtimes_look_copied(analysis.segments, analysis.partition.topic)
    ]
    still = [analysis for analysis in analyses if cleaner_is_stalled(view, analysis)]
    return [analysis.partition.folder for analysis in copied], [
        analysis.partition.folder for analysis in still
    ]


def _kept_risk(view: LogDir, plan: KeptPlan) -> Risk:
    """Return the risk that an earlier plan is for a new one; it has no age, so equal directories give equal bytes."""
    where = few(plan.partitions)
    return Risk(
        code=KEPT_ORIGINALS,
        text=f"Plan {plan.plan_id} is half done in {where}."
        if plan.state == "half done"
        else f"Plan {plan.plan_id} still keeps {size_text(plan.bytes)} in {where}.",
        more="If both plans change the same files, undo this plan before that one. To see what is kept: "
        f"{Next.of('undo', view.path)}",
    )


# -- the root


def _root_plan(
    context: Context, fixes: Sequence[Fix], partitions: Sequence[PartitionPlan]
) -> RootPlan | None:
    """Return the changes of the root's files; None if there are none."""
    proposals = [fix.propose_root(context) for fix in fixes]
    changes, later = _one_of_each_file([change for proposal in proposals for change in proposal.changes])
    keeper = keeper_of(context.view, [partition.folder for partition in partitions if partition.changes])
    if not changes or not keeper:
        return None
    names = {name for change in changes for name in change.touches}
    view = context.view
    checkpoints = (view.recovery_point, view.high_watermark, view.log_start, view.cleaner)
    files = [
        checkpoint.file
        for checkpoint in checkpoints
        if checkpoint.file is not None and checkpoint.file.name in names
    ]
    return RootPlan(
        keeper=keeper,
        files=tuple(
            _fingerprint(file, "", context.block_bytes) for file in sorted(files, key=lambda file: file.name)
        ),
        changes=changes,
        notes=(*(note for proposal in proposals for note in proposal.notes), *later),
    )


def _one_of_each_file(
    proposed: Sequence[ReplaceFile | ChangeLines],
) -> tuple[tuple[ReplaceFile | ChangeLines, ...], list[str]]:
    """Return one change of each file, as a file has one backup, and notes on those that wait for the next plan."""
    chosen: dict[str, ReplaceFile | ChangeLines] = {}
    later = []
    for change in proposed:
        if chosen.setdefault(change.name, change) is not change:
            later.append(f"{change.name}: {change.reason} ({change.rule}) waits for the next plan")
    return tuple(chosen[name] for name in sorted(chosen)), later


def keeper_of(view: LogDir, changing: Sequence[str]) -> str:
    """Return the partition folder that holds staged files and backups of the root; empty if no folder is usable.

    Args:
        changing: folders of partitions that change; one of these is taken, so that no other is touched.
    """
    usable = [
        partition.folder
        for partition in view.partitions
        if not partition.unreadable and partition.topic != METADATA_TOPIC
    ]
    wanted = frozenset(changing)
    return next((folder for folder in usable if folder in wanted), usable[0] if usable else "")


# -- the policy


def policy_of(context: Context, analyses: Sequence[PartitionAnalysis]) -> Policy:
    """Return the policy as the plan records it: each setting with its source, and the statements on other replicas."""
    view, options = context.view, context.options
    topics = {analysis.partition.topic: analysis.settings for analysis in analyses}
    recorded = {
        topic: tuple(setting for setting in values.settings if setting.key in _TOPIC_KEYS_USED)
        for topic, values in sorted(topics.items())
    }
    recorded[""] = tuple(setting for setting in context.settings.broker if setting.key in _BROKER_KEYS_USED)
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
        room=room_of(view) if options.keep == AUTO else UNSET,
        links_are_files=context.links_are_files or UNSET,
        block_bytes=context.block_bytes,
        others=others_of(context),
    )


# -- one partition


def partition_plan(context: Context, analysis: PartitionAnalysis, by_fix: ByFix) -> PartitionPlan:
    """Build one partition's part of the plan; the builder fills in the figures that follow from other partitions."""
    partition = analysis.partition
    in_order = [by_fix[fix.name] for fix in COMMIT_ORDER if fix.name in by_fix]
    changes = tuple(change for proposal in in_order for change in proposal.changes)
    lefts = [proposal.left for proposal in in_order if proposal.left is not None]
    if analysis.log is not None and analysis.log.problem is not None:
        # What a fix says of damage in the log is more exact than that a .txnindex cannot be read beside it.
        of_damage = lefts and lefts[0].code == "damage" and analysis.log.problem.code != "damage"
        lefts.insert(1 if of_damage else 0, analysis.log.problem)
    if analysis.settings.tiered and not lefts:
        lefts.append(Skipped("tiered", analysis.settings.tiered))
    # A plan may advance the recovery point of a partition and change nothing in its folder: it is not skipped then.
    raised = any(proposal.raises_point for proposal in in_order)
    reason = lefts[0] if lefts and not changes and not raised else None
    left_notes = [
        note
        for name, proposal in by_fix.items()
        if proposal.left != reason
        for note in _left_notes(context, analysis, by_fix, name)
    ]
    notes = [note for proposal in in_order for note in proposal.notes]
    plan = PartitionPlan(
        topic=partition.topic,
        partition=partition.number,
        folder=partition.folder,
        status="change" if changes else "nothing",
        log_start_offset=partition.segments[0].base_offset if partition.segments else 0,
        log_end_offset=_log_end(analysis, in_order),
        high_watermark=analysis.high_watermark,
        files=fingerprints(analysis, context.block_bytes) if changes or raised else (),
        log_bytes_before=partition.log_bytes,
        changes=changes,
        notes=(*_private_notes(partition), *left_notes, *notes),
    )
    for proposal in in_order:
        if proposal.compacted is not None:
            plan = _with_decision(plan, proposal.compacted)
    return plan if reason is None else _left_alone(plan, reason, context.options)


def _log_end(analysis: PartitionAnalysis, in_order: Sequence[Proposal]) -> int:
    """Return the log end that the next start takes, or that the logs tell; 0 if no fix had to know it."""
    log_end = max([log_end_of(analysis.segments_after), *(proposal.log_end for proposal in in_order)])
    known = next_start_of(analysis).log_end
    return log_end if known is None or not log_end else known


def _with_decision(plan: PartitionPlan, compacted: Compacted) -> PartitionPlan:
    decision, span = compacted.decision, compacted.decision.cleanable
    return replace(
        plan,
        span=Span(
            start_offset=span.start_offset,
            end_offset=span.end_offset,
            limit=span.limit,
            limit_text=span.limit_text,
        ),
        horizon_ms=decision.horizon_ms,
        horizons=decision.horizons,
        kept_last=decision.kept_last,
        compaction=compacted.keys,
        evidence=compacted.evidence,
    )


def _left_notes(context: Context, analysis: PartitionAnalysis, by_fix: ByFix, name: str) -> Iterator[str]:
    """Yield why a fix skips part of a partition that this plan changes, and the command that gets it its turn."""
    reason, note = by_fix[name].left, by_fix[name].left_note
    if reason is None or not note:
        return
    yield note
    # Of damage that another fix mends here, this one knows nothing: it has decided on the files as they are.
    if reason.damaged and any(proposal.changes for other, proposal in by_fix.items() if other != name):
        word = next(word for word in context.options.fixes if word.partition("=")[0] == name)
        partition = analysis.partition
        command = second_plan_command(context.view.path, context.options, word, partition.key)
        yield f"after this plan is applied, make a second one for {name}: {command}"


def _left_alone(plan: PartitionPlan, reason: Skipped, options: Options) -> PartitionPlan:
    return replace(
        plan,
        status="left alone",
        code=reason.code,
        why=reason.why,
        # A plan does not hold where the work was done.
        next_command=str(reason.next_command.carrying(with_fields(options, scratch=""))),
        uncleanable_bytes=plan.log_bytes_before if reason.damaged else 0,
    )


def _private_notes(partition: Partition) -> tuple[str, ...]:
    ids = sorted({private.plan_id for private in partition.private})
    return tuple(
        f"originals of plan {plan_id} are still kept here; once this plan is applied, it has to be undone before that "
        f"one can be"
        for plan_id in ids
    )


def fingerprints(analysis: PartitionAnalysis, block_bytes: int) -> tuple[FileFingerprint, ...]:
    """Return the fingerprints of every regular file of the partition."""
    digests = {log_name(facts.base_offset): facts.summary.headers for facts in analysis.segments}
    digests |= analysis.digests
    if analysis.log is not None:
        digests |= {
            segment_name(base, ".txnindex"): digest_bytes(data)
            for base, data in analysis.log.txn_entries.items()
        }
    return tuple(
        _fingerprint(file, digests.get(file.name, ""), block_bytes) for file in analysis.partition.files()
    )


def _fingerprint(file: FileRef, digest: str, block_bytes: int) -> FileFingerprint:
    disk = file.blocks if file.nlink == 1 else 0
    return FileFingerprint(
        name=file.name,
        size=file.size,
        mtime_ns=file.mtime_ns,
        digest=digest,
        disk=WHOLE_BLOCKS if disk == -(-file.size // block_bytes) * block_bytes else disk,
    )


# -- ``--preview``: a broker changes the directory while it is read. So the reading of a partition counts only if its
# files were the same before and after. Otherwise the partition is read again, and skipped after a few attempts. Damage
# counts only if two readings met it: a broker may have been writing the batch during the first one.

TRIES: Final = 4
"""Number of readings after which a partition that changes under the reader is skipped."""
PAUSE_S: Final = 0.5
CHANGED: Final = "changed"
UNKNOWN: Final = (
    "How files are swapped, and whether under a recovery guard: the active segments tell, after the stop.",
    "High watermarks: a broker writes them down every few seconds. Here they are as they stood in the file.",
    "Where the logs end, and which transactions are open: active segments were read as far as they were written.",
    "What the broker still writes, compacts or deletes until it has stopped.",
)
_NOT_KNOWN: Final = Commit(
    order="P1",
    fence=True,
    why="not known beside a running broker; the plan after the stop decides it",
)


def make_preview(log_dir: str, options: Options, progress: Progress | None = None) -> Plan:
    """Make a preview of a plan for one log directory; a broker may be running on it.

    Raises:
        NotALogDirError: the path is no log directory, or none of the named partitions is there.
        UsageError: a fix needs a stopped broker; or a configuration file or value is wrong.
    """
    fixes = requested_fixes(options.fixes)
    for fix in FIXES:
        fix.check_options(options)
    options = with_whole_paths(options)
    _refuse_what_needs_a_stop(fixes)
    view = _listed(log_dir)
    partitions = partitions_named(view, options)
    check_consents([view], options)
    with contexts(view, options, fixes, partitions, progress, beside_broker=True) as context_of:
        reading = PreviewReading(view, fixes, context_of)
        reading.read(view, [partition.folder for partition in partitions])
    return reading.plan()


def _refuse_what_needs_a_stop(fixes: Sequence[Fix]) -> None:
    able = ", ".join(fix.name for fix in FIXES if fix.previews)
    needs = [fix.name for fix in fixes if not fix.previews]
    if needs:
        raise UsageError(
            f"--preview with --fix {', '.join(needs)}: what it looks at changes while a broker is running; "
            f"a preview is made of {able}"
        )


def _listed(log_dir: str) -> LogDir:
    """List the directory as it is now; retry while files vanish from under the listing."""
    for _ in range(TRIES - 1):
        try:
            return read_log_dir(log_dir)
        except UnreadableError:
            time.sleep(PAUSE_S)
    return read_log_dir(log_dir)


@dataclass(eq=False)
class PreviewReading:
    """Reader of partitions beside a running broker, repeated until what was read of each belongs together.

    Attributes:
        view: the log directory as it was first listed.
        fixes: fixes that were requested.
        context_of: gives a listing its context.
        done: folder -> its part of the plan.
        analyses: folder -> what it was made of.
    """

    view: LogDir
    fixes: Sequence[Fix]
    context_of: Callable[[LogDir], Context]
    done: dict[str, PartitionPlan] = field(default_factory=dict)
    analyses: dict[str, PartitionAnalysis] = field(default_factory=dict)
    _doubted: set[str] = field(default_factory=set)

    def read(self, view: LogDir, folders: Sequence[str]) -> None:
        """Read all of these partitions, as often as needed."""
        waiting = set(folders)
        for number in range(TRIES):
            if number:
                time.sleep(PAUSE_S)
            before = {
                partition.folder: partition for partition in view.partitions if partition.folder in waiting
            }
            context, by_folder = self._look(view, before)
            view = _listed(view.path)
            after = {partition.folder: partition for partition in view.partitions}
            for folder, by_fix in by_folder.items():
                analysis = context.analyses[folder]
                plan = partition_plan(context, analysis, by_fix)
                changed = why_changed(before[folder], after.get(folder), _snapshots_read(analysis, plan))
                if not changed and not self._is_doubtful(folder, plan):
                    self._take(analysis, plan, before[folder])
                elif number == TRIES - 1 or folder not in after:
                    self._skip(analysis, changed or "damage was met in it, once")
            waiting = {folder for folder in by_folder if folder not in self.done}
            if not waiting:
                return

    def plan(self) -> Plan:
        """Return the preview of all partitions that were read."""
        context = self.context_of(self.view)
        copied, still = copied_and_stalled(self.view, self.analyses.values())
        return build_plan(
            self.view,
            policy_of(context, [self.analyses[folder] for folder in self.done]),
            list(self.done.values()),
            _NOT_KNOWN,
            copied_mtimes=copied,
            dead_cleaner=still,
            asked=context.options.words("plan", "reading"),
            preview=Preview(unknown=UNKNOWN),
        )

    def _look(self, view: LogDir, before: Mapping[str, Partition]) -> tuple[Context, Mapping[str, ByFix]]:
        steady = view._replace(partitions=tuple(without_deleted(partition) for partition in view.partitions))
        context = self.context_of(steady)
        partitions = [partition for partition in steady.partitions if partition.folder in before]
        return context, propose_changes(context, self.fixes, partitions)

    def _is_doubtful(self, folder: str, plan: PartitionPlan) -> bool:
        """Return whether damage was met for the first time; the running broker may still have been writing there."""
        if not plan.uncleanable_bytes or folder in self._doubted:
            return False
        self._doubted.add(folder)
        return True

    def _take(self, analysis: PartitionAnalysis, plan: PartitionPlan, listed: Partition) -> None:
        partition = analysis.partition
        self.analyses[partition.folder] = analysis
        self.done[partition.folder] = replace(plan, notes=(*plan.notes, *_notes(listed)))

    def _skip(self, analysis: PartitionAnalysis, changed: str) -> None:
        partition = analysis.partition
        self.analyses[partition.folder] = analysis
        self.done[partition.folder] = PartitionPlan(
            topic=partition.topic,
            partition=partition.number,
            folder=partition.folder,
            status="left alone",
            code=CHANGED,
            why=f"it changed while it was read: {changed}",
            next_command=str(Next.of("plan", LOG_DIR, "--preview", out=PLAN)),
            high_watermark=analysis.high_watermark,
        )


def _notes(listed: Partition) -> tuple[str, ...]:
    deleted = len(deleted_files(listed))
    if not deleted:
        return ()
    text = (
        f"{count_text(deleted, 'file')} (.deleted) will be deleted by the broker; after a stop before that, "
        "plan with --fix leftovers, too"
    )
    return (text,)


def _snapshots_read(analysis: PartitionAnalysis, plan: PartitionPlan) -> set[str]:
    """Return the producer snapshots on which decisions rest, or which would be removed."""
    log_end = log_end_of(analysis.segments)
    below = [snapshot.file.name for snapshot in analysis.partition.snapshots if snapshot.offset <= log_end]
    return {*below[-1:], *names_removed(plan.changes)}
