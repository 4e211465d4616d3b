"""What of other brokers a plan rests on: while apply works, it is held, or it is the same as when the plan was made."""

from __future__ import annotations

import contextlib
import os

from msgspec import UnsetType

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import KrepairError, StalePlanError
from krepair.fixes.other_facts import FactsSide, opened_side
from krepair.fixes.other_logs import places_of
from krepair.formats.filenames import FolderKind, FolderName, parse_folder_name
from krepair.logdir.lock import hold_lock
from krepair.logdir.reading import opened_folder
from krepair.ops.plan_command import plan_command
from krepair.plan.model import Evidence, Others, PartitionPlan, Plan, SearchedDir
from krepair.rules.evidence import OtherLog


def hold_others(plan: Plan, stack: contextlib.ExitStack) -> None:
    """Hold the locks of the log directories of other brokers on which a plan rests, until the end of apply.

    Raises:
        StalePlanError: one is not there any more.
        LockedError: one is in use.
        RefusedError: one cannot be locked.
    """
    logs = [log for part in plan.partitions if part.changes for log in _logs(part)]
    for log_dir, inode in sorted(places_of(logs).items()):
        if log_dir != plan.log_dir:
            try:
                tree = stack.enter_context(Tree(log_dir, inode))
            except OSError as error:
                raise StalePlanError(f"{log_dir}: {error.strerror}; the plan rests on its logs") from error
            stack.enter_context(hold_lock(log_dir, RealDisk(tree)))


def moved_since(plan: Plan) -> dict[tuple[str, int], str]:
    """What a broker has begun to make a replica since the plan was made, in the directories that were searched for it.

    It cannot come later, while the log that it would be copied from is in a directory that apply has locked.

    Returns:
        (topic, number) -> path of the folder, of the partitions that rest on evidence.

    Raises:
        StalePlanError: one of the directories is not there any more, or is another one.
    """
    others = plan.policy.others
    resting = [
        part
        for part in plan.partitions
        if part.changes and isinstance(part.evidence, Evidence) and not part.evidence.keeps_all
    ]
    if not resting or not isinstance(others, Others) or isinstance(others.searched, UnsetType):
        return {}
    wanted = {(part.topic, part.partition) for part in resting}
    known = {(log.log_dir, log.folder) for part in resting for log in _logs(part)}
    found: dict[tuple[str, int], str] = {}
    for one in others.searched:
        for folder in _folders(plan, one):
            name = (folder.topic, folder.partition)
            if folder.kind is FolderKind.FUTURE and name in wanted and (one.path, folder.name) not in known:
                found.setdefault(name, f"{one.path}/{folder.name}")
    return found


def _logs(part: PartitionPlan) -> tuple[OtherLog, ...]:
    return part.evidence.logs if isinstance(part.evidence, Evidence) else ()


def _folders(plan: Plan, one: SearchedDir) -> list[FolderName]:
    """The names in a log directory.

    Raises:
        StalePlanError: it cannot be listed, or is another one.
    """
    why = "is another directory than when the plan was made"
    try:
        with opened_folder(one.path) as descriptor:
            if os.fstat(descriptor).st_ino == one.inode:
                return [parse_folder_name(name) for name in sorted(os.listdir(descriptor))]
    except OSError as error:
        why = str(error.strerror)
    raise StalePlanError(
        f"{one.path}: {why}; the plan rests on it: broker {one.broker_id} may be moving a partition there",
        next_command=plan_command(plan),
    )


def open_facts(plan: Plan, stack: contextlib.ExitStack) -> dict[str, FactsSide]:
    """The facts files on which a plan rests, by path. They cannot be locked: the reviewer trusts who has carried them.

    Raises:
        StalePlanError: one is not there any more, or is another file.
    """
    known = {
        one.path: one
        for partition in plan.partitions
        if partition.changes and isinstance(partition.evidence, Evidence)
        for one in partition.evidence.facts
    }
    found = {}
    for path, one in sorted(known.items()):
        try:
            found[path] = stack.enter_context(opened_side(one.broker_id, path, plan.cluster_id))
        except (KrepairError, OSError) as error:
            raise StalePlanError(f"the plan rests on the facts of broker {one.broker_id}: {error}") from error
        if found[path].reader.digest != one.digest:
            raise StalePlanError(
                f"{path}: the facts of broker {one.broker_id} are not those of the plan: digest "
                f"{found[path].reader.digest}, expected {one.digest}",
                next_command=plan_command(plan),
            )
    return found
