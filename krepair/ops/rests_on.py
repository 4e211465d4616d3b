"""What of other brokers a plan rests on: while apply works, it is held, or it is the same as when the plan was made."""

from __future__ import annotations

import contextlib

from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import KrepairError, StalePlanError
from krepair.fixes.other_facts import FactsSide, opened_side
from krepair.fixes.other_logs import places_of
from krepair.logdir.lock import hold_lock
from krepair.ops.plan_command import plan_command
from krepair.plan.model import Evidence, Plan


def hold_others(plan: Plan, stack: contextlib.ExitStack) -> None:
    """Hold the locks of the log directories of other brokers on which a plan rests, until the end of apply.

    Raises:
        StalePlanError: one is not there any more.
        LockedError: one is in use.
        RefusedError: one cannot be locked.
    """
    logs = [
        log
        for partition in plan.partitions
        if partition.changes and isinstance(partition.evidence, Evidence)
        for log in partition.evidence.logs
    ]
    for log_dir, inode in sorted(places_of(logs).items()):
        if log_dir != plan.log_dir:
            try:
                tree = stack.enter_context(Tree(log_dir, inode))
            except OSError as error:
                raise StalePlanError(f"{log_dir}: {error.strerror}; the plan rests on its logs") from error
            stack.enter_context(hold_lock(log_dir, RealDisk(tree)))


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
