"""Check that the evidence for a plan still holds when the plan is applied."""

from __future__ import annotations

import os

from krepair.errors import StalePlanError
from krepair.fixes.evidence import read_metadata, why_no_longer_only_replica
from krepair.formats.filenames import FolderKind, FolderName, parse_folder_name
from krepair.logdir.reading import opened_folder
from krepair.logdir.values import LogDir
from krepair.logdir.view import meta_of, read_log_dir
from krepair.options import EVERY_TOPIC
from krepair.plan.commands import plan_command
from krepair.plan.model import Evidence, PartitionPlan, Plan, SearchedDir
from krepair.rules.evidence import OtherLog


def check_evidence(plan: Plan) -> tuple[LogDir, dict[tuple[str, int], str]]:
    """Check the log directories that a plan relies on for new or changed replicas; their locks are held.

    Returns:
        The log directory under the lock; and, by (topic, number), why a partition may have more replicas than at
        planning time.

    Raises:
        StalePlanError: a directory is gone, or belongs to another broker.
    """
    moved = _replicas_moved_since(plan)
    view = read_log_dir(plan.log_dir)
    return view, moved | _replicas_assigned_since(plan, view)


def _replicas_moved_since(plan: Plan) -> dict[tuple[str, int], str]:
    """Return the replicas that a broker began to move after the plan was made, in the searched directories.

    No move can begin later: the log that would be copied is in a directory that apply has locked.

    Returns:
        The new folder of each partition that relies on evidence, by (topic, number).

    Raises:
        StalePlanError: a directory is gone, or belongs to another broker.
    """
    others = plan.policy.others
    resting = _partitions_on_evidence(plan)
    if not resting:
        return {}
    wanted = {(part.topic, part.partition) for part in resting}
    known = {(log.log_dir, log.folder) for part in resting for log in _logs(part)}
    moved: dict[tuple[str, int], str] = {}
    for searched in others.searched:
        for folder in _folders(plan, searched):
            name = (folder.topic, folder.partition)
            if (
                folder.kind is FolderKind.FUTURE
                and name in wanted
                and (searched.path, folder.name) not in known
            ):
                moved.setdefault(name, f"{searched.path}/{folder.name}: appeared after the plan was made")
    return moved


def _replicas_assigned_since(plan: Plan, view: LogDir) -> dict[tuple[str, int], str]:
    """Return the partitions whose only replica got company after the plan was made, by their broker's metadata.

    A broker that was started after the plan was made may have copied a value to a new replica; the value's tombstone
    must not be removed here.

    Args:
        plan: the plan that is applied.
        view: the log directory as it is now.

    Returns:
        The reason why the replica is no longer the only one, by (topic, number).
    """
    others = plan.policy.others
    only = {
        (part.topic, part.partition)
        for part in _partitions_on_evidence(plan)
        if isinstance(part.evidence, Evidence) and part.evidence.kind == "only-replica"
    }
    if not only:
        return {}
    metadata, assigned = read_metadata(view, others.own_metadata), dict[tuple[str, int], str]()
    for partition in view.partitions:
        if partition.key in only:
            vouched_for = not {partition.topic, EVERY_TOPIC}.isdisjoint(others.only_replica)
            text = why_no_longer_only_replica(view, metadata, partition, vouched_for=vouched_for)
            if text:
                assigned[partition.key] = text
    return assigned


def _partitions_on_evidence(plan: Plan) -> list[PartitionPlan]:
    """Return the partitions from which markers or tombstones may be removed."""
    return [
        part
        for part in plan.partitions
        if part.changes and isinstance(part.evidence, Evidence) and not part.evidence.keeps_all
    ]


def _folders(plan: Plan, searched: SearchedDir) -> list[FolderName]:
    """List the folder names in a log directory.

    Raises:
        StalePlanError: the directory cannot be listed, or belongs to another broker.
    """
    try:
        meta = meta_of(searched.path)
        if meta is not None and meta.broker_id == str(searched.broker_id):
            with opened_folder(searched.path) as descriptor:
                return [parse_folder_name(name) for name in sorted(os.listdir(descriptor))]
        text = "is of another broker than when the plan was made"
    except OSError as error:
        text = str(error.strerror)
    raise StalePlanError(
        f"{searched.path}: {text}; the plan rests on it: broker {searched.broker_id} may be moving a partition there",
        next_command=plan_command(plan),
    )


def dirs_rested_on(plan: Plan) -> list[str]:
    """Return the log directories of other brokers whose logs are evidence for a plan."""
    logs = [log for part in plan.partitions if part.changes for log in _logs(part)]
    return sorted({log.log_dir for log in logs} - {plan.log_dir})


def _logs(part: PartitionPlan) -> tuple[OtherLog, ...]:
    return part.evidence.logs if isinstance(part.evidence, Evidence) else ()
