"""Makes sure that a plan is for this host and this log directory, and passes the coded review."""

from __future__ import annotations

import contextlib
import shlex
import stat
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import RefusedError, StalePlanError, UnreadableError
from krepair.formats.filenames import META_PROPERTIES
from krepair.journal.actions.table import action_for
from krepair.journal.fence import Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.permission import check_may_change, check_may_change_root
from krepair.journal.root import ROOT, RootFolder, as_partition
from krepair.logdir.reading import kind_of, why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import meta_of, read_log_dir
from krepair.ops.plan_command import after_stop_command
from krepair.plan.model import PartitionPlan, Plan, Preview
from krepair.plan.review import review
from krepair.plan.space import apply_order

_SHOWN_OBJECTIONS: Final = 5


def check_target(plan: Plan, log_dir: str = "") -> Plan:
    """Review the plan, and see that its directory is there and is of the plan's broker.

    Whether it is as the plan has left it, its journals and what its files hold tell: so a copy of the directory, or one
    that was restored, is as good as the directory.

    Args:
        plan: as read from its file.
        log_dir: absolute path of the directory in which a copy of the plan lies; empty: the plan's path.

    Returns:
        The plan, of that directory.

    Raises:
        RefusedError: it is a preview; or the review objects; the first objections and all codes are named.
        StalePlanError: the directory is not there, or is of another broker or cluster.
    """
    if isinstance(plan.preview, Preview):
        raise RefusedError(
            f"plan {plan.plan_id} is a preview, made while a broker may have been running: it is never applied",
            next_command=after_stop_command(plan),
        )
    _review(plan)
    plan = replace(plan, log_dir=log_dir or plan.log_dir)
    _check_broker(plan)
    return plan


def _check_broker(plan: Plan) -> None:
    """Refuse a directory of another broker. What the plan does not know (2.2 writes no cluster id) is not asked."""
    try:
        meta = meta_of(plan.log_dir)
    except OSError as error:
        raise StalePlanError(
            f"{plan.log_dir}: {error.strerror}; the plan is for a directory that is not here. Is the disk mounted?",
            next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
        ) from error
    now = ("", "", "") if meta is None else (meta.cluster_id, meta.broker_id, meta.directory_id)
    was = (plan.cluster_id, plan.broker_id, plan.directory_id if now[2] else "")
    for what, expected, here in zip(("cluster.id", "broker.id", "directory.id"), was, now, strict=True):
        if expected not in ("", here):
            raise StalePlanError(
                f"{plan.log_dir}/{META_PROPERTIES}: {what} is {here or 'not there'}, the plan was made of the "
                f"directory with {expected}; nothing was changed",
                next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
            )


def disk_of(plan: Plan, given: Disk | None = None) -> contextlib.AbstractContextManager[Disk]:
    """What writes below the plan's log directory, and nowhere else; ``given`` is taken instead."""
    return disk_below(plan.log_dir, given)


@contextlib.contextmanager
def disk_below(log_dir: str, given: Disk | None = None) -> Iterator[Disk]:
    """The same for a log directory of which no plan is known."""
    if given is not None:
        yield given
        return
    with Tree(log_dir) as tree:
        yield RealDisk(tree)


def check_ground(plan: Plan, disk: Disk) -> None:
    """Look, before anything is begun, at everything of krepair's own that is there, and at who may change it.

    Raises:
        RefusedError: a link, or something else, stands where a folder or file of krepair's own should be; or this user
            may not change what the plan changes.
        UnreadableError: something could not be looked at.
    """
    folders = [journal_folder(disk, plan, target) for target in targets_of(plan)]
    try:
        check_may_change_root(disk.tree, plan.log_dir)
        for folder in folders:
            # A partition that is gone, or is a link, is left alone by itself.
            if disk.tree.is_folder(folder.holder):
                folder.check_no_links()
                check_may_change(folder)
    except OSError as error:
        raise UnreadableError(f"{error.filename}: could not be looked at: {why(error)}") from error


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


def targets_of(plan: Plan) -> list[PartitionPlan]:
    """Everything that the plan changes, in the order of ``apply``: partitions, then the root as one more.

    The root comes last: a fence lowers a line of one of its files, so all fences have to be down.
    """
    root = [] if plan.root is None else [as_partition(plan.root)]
    return [*apply_order(plan), *root]


def commit_order(targets: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """Targets as they are committed: damaged files of the root, which fences must read; partitions; then its lines."""
    partitions = [target for target in targets if not is_root(target)]
    first, last = [], []
    for root in targets:
        if is_root(root):
            late = [change for change in root.changes if action_for(change).after_fences]
            first.append(replace(root, changes=tuple(one for one in root.changes if one not in late)))
            last.append(replace(root, changes=tuple(late)))
    return [target for target in (*first, *partitions, *last) if target.changes]


def undo_order(plan: Plan) -> list[PartitionPlan]:
    """Targets as they are taken back: commit order backwards. So what a start trusts goes before what it trusts.

    Source: a recovery point that is still raised while an index or a snapshot is the old one again would be believed.
    """
    return commit_order([*plan.partitions, *([] if plan.root is None else [as_partition(plan.root)])])[::-1]


def is_root(target: PartitionPlan) -> bool:
    """Whether a target is the root of the log directory."""
    return target.folder == ROOT


def check_no_fence(target: PartitionPlan, watch: Watch | None) -> None:
    """Files of the root wait until every fence is down: it has lowered a line of one of them, and watches the others.

    Raises:
        RefusedError: the target is the root, and a fence is up.
    """
    places = watch.places() if watch is not None and is_root(target) else []
    if places:
        raise RefusedError(
            f"{places[0]}: this fence is still up; the files in the root wait until it is down",
            next_command="krepair apply PLAN",
        )


def listed(view: LogDir, target: PartitionPlan) -> Partition | None:
    """The partition as it is listed now, None if its folder is gone."""
    # They are listed by topic and number.
    at = bisect_left(view.partitions, (target.topic, target.partition), key=lambda one: one.key)
    found = view.partitions[at] if at < len(view.partitions) else None
    return found if found is not None and found.folder == target.folder else None


def journal_folder(disk: Disk, plan: Plan, target: PartitionPlan) -> PartitionFolder:
    """The folder of a partition, or of the root, as the journal wants it."""
    if is_root(target) and plan.root is not None:
        return RootFolder(disk, plan.log_dir, plan.root.keeper, plan.plan_id)
    return PartitionFolder(disk, plan.log_dir, target.folder, plan.plan_id)


def why_left_alone(folder: PartitionFolder) -> str:
    """Why a partition is left as it is: its folder is gone, or is a link behind which nothing is touched; or empty.

    Raises:
        OSError: it could not be looked at.
    """
    found = folder.tree.status(folder.holder)
    if found is None:
        return f"{folder.holder}: is gone; the partition is left as it is"
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder.holder}: expected a folder, found a {kind_of(found.st_mode)}; the partition is left as it is"
    return ""
