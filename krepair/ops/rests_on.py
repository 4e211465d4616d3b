"""What of other brokers a plan rests on: while apply works, it is held, or it is the same as when the plan was made."""

from __future__ import annotations

import contextlib
import os

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import StalePlanError
from krepair.fixes.evidence import read_metadata, why_not_only_now
from krepair.formats.filenames import FolderKind, FolderName, parse_folder_name
from krepair.logdir.lock import hold_lock
from krepair.logdir.reading import opened_folder
from krepair.logdir.values import LogDir
from krepair.logdir.view import meta_of
from krepair.ops.plan_command import plan_command
from krepair.options import EVERY_TOPIC
from krepair.plan.model import Evidence, PartitionPlan, Plan, SearchedDir
from krepair.rules.evidence import OtherLog


def hold_others(plan: Plan, stack: contextlib.ExitStack) -> None:
    """Hold the locks of the log directories of other brokers on which a plan rests, until the end of apply.

    Raises:
        StalePlanError: one is not there any more.
        LockedError: one is in use.
        RefusedError: one cannot be locked.
    """
    logs = [log for part in plan.partitions if part.changes for log in _logs(part)]
    for log_dir in sorted({log.log_dir for log in logs}):
        if log_dir != plan.log_dir:
            try:
                tree = stack.enter_context(Tree(log_dir))
            except OSError as error:
                raise StalePlanError(f"{log_dir}: {error.strerror}; the plan rests on its logs") from error
            stack.enter_context(hold_lock(log_dir, RealDisk(tree)))


def moved_since(plan: Plan) -> dict[tuple[str, int], str]:
    """What a broker has begun to make a replica since the plan was made, in the directories that were searched for it.

    It cannot come later, while the log that it would be copied from is in a directory that apply has locked.

    Returns:
        (topic, number) -> what has come, of the partitions that rest on evidence.

    Raises:
        StalePlanError: one of the directories is not there any more, or is another one.
    """
    others = plan.policy.others
    resting = _resting(plan)
    if not resting:
        return {}
    wanted = {(part.topic, part.partition) for part in resting}
    known = {(log.log_dir, log.folder) for part in resting for log in _logs(part)}
    found: dict[tuple[str, int], str] = {}
    for one in others.searched:
        for folder in _folders(plan, one):
            name = (folder.topic, folder.partition)
            if folder.kind is FolderKind.FUTURE and name in wanted and (one.path, folder.name) not in known:
                found.setdefault(name, f"{one.path}/{folder.name}: has come since the plan was made")
    return found


def assigned_since(plan: Plan, view: LogDir) -> dict[tuple[str, int], str]:
    """What was the only replica when the plan was made, and is not by the metadata logs of its broker as they are now.

    A broker that was started since may have given a new replica a value whose tombstone would go here.

    Args:
        plan: that is applied.
        view: the log directory as it is now.

    Returns:
        (topic, number) -> why it is not the only one.
    """
    others = plan.policy.others
    only = {
        (part.topic, part.partition)
        for part in _resting(plan)
        if isinstance(part.evidence, Evidence) and part.evidence.kind == "only-replica"
    }
    if not only:
        return {}
    metadata, found = read_metadata(view, others.own_metadata), dict[tuple[str, int], str]()
    for one in view.partitions:
        if one.key in only:
            said = not {one.topic, EVERY_TOPIC}.isdisjoint(others.only_replica)
            why = why_not_only_now(view, metadata, one, said=said)
            if why:
                found[one.key] = why
    return found


def _resting(plan: Plan) -> list[PartitionPlan]:
    """The partitions of which markers or tombstones may go."""
    return [
        part
        for part in plan.partitions
        if part.changes and isinstance(part.evidence, Evidence) and not part.evidence.keeps_all
    ]


def _logs(part: PartitionPlan) -> tuple[OtherLog, ...]:
    return part.evidence.logs if isinstance(part.evidence, Evidence) else ()


def _folders(plan: Plan, one: SearchedDir) -> list[FolderName]:
    """The names in a log directory.

    Raises:
        StalePlanError: it cannot be listed, or is another one.
    """
    try:
        meta = meta_of(one.path)
        if meta is not None and meta.broker_id == str(one.broker_id):
            with opened_folder(one.path) as descriptor:
                return [parse_folder_name(name) for name in sorted(os.listdir(descriptor))]
        why = "is of another broker than when the plan was made"
    except OSError as error:
        why = str(error.strerror)
    raise StalePlanError(
        f"{one.path}: {why}; the plan rests on it: broker {one.broker_id} may be moving a partition there",
        next_command=plan_command(plan),
    )
