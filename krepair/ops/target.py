"""Makes sure that a plan is for this host and this log directory, and passes the coded review."""

from __future__ import annotations

import os
import shlex
import socket
from typing import Final

from krepair.durable.disk import Disk
from krepair.errors import RefusedError, StalePlanError
from krepair.journal.folder import PartitionFolder
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.review import review

_SHOWN_OBJECTIONS: Final = 5


def check_target(plan: Plan) -> None:
    """Review the plan and see that it was made here.

    Raises:
        RefusedError: the review objects; the first objections and all codes are named.
        StalePlanError: it is for another host or directory.
    """
    _review(plan)
    if plan.host != socket.gethostname():
        raise StalePlanError(f"the plan is for host {plan.host}, this is {socket.gethostname()}")
    try:
        inode = os.stat(plan.log_dir).st_ino
    except OSError as error:
        raise StalePlanError(
            f"{plan.log_dir}: {error.strerror}; the plan is for a directory that is not here"
        ) from error
    if inode != plan.log_dir_inode:
        raise StalePlanError(
            f"{plan.log_dir} is another directory than the one the plan was made of (inode {inode}, not "
            f"{plan.log_dir_inode})",
            next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
        )


def _review(plan: Plan) -> None:
    objections = review(plan)
    if not objections:
        return
    shown = "; ".join(
        f"{one.code} {one.where or 'plan'}: {one.text}" for one in objections[:_SHOWN_OBJECTIONS]
    )
    codes = ", ".join(sorted({one.code for one in objections}))
    raise RefusedError(
        f"the review of the plan objects ({codes}): {shown}; nothing was changed",
        next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
    )


def view_of(plan: Plan) -> LogDir:
    """The log directory of a plan as it is now."""
    return read_log_dir(plan.log_dir)


def listed(view: LogDir, partition: PartitionPlan) -> Partition | None:
    """The partition as it is listed now, None if its folder is gone."""
    return next((each for each in view.partitions if each.folder == partition.folder), None)


def journal_folder(disk: Disk, plan: Plan, partition: PartitionPlan) -> PartitionFolder:
    """The partition's folder as the journal wants it."""
    return PartitionFolder(disk, plan.log_dir, partition.folder, plan.plan_id)
