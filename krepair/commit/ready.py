"""Check that a plan may be applied or undone; the checks run in the order below.

1. The plan (``check_target``): the plan is a preview; the review objects; the log directory is missing, or belongs to
   another broker.
2. Access (``ready``): a link is in the place of one of krepair's own folders; this user may not change the files; a
   broker or another krepair holds the lock of the directory, or of a directory whose logs are evidence for apply; or
   such a directory is gone.
3. Evidence (``check_evidence``): another log directory that was searched for replicas is gone or was replaced.
4. Each partition, after half-done changes are finished (``may_begin``): its folder is gone or unreadable; its files
   have neither the planned old nor the planned new state; another plan has begun or is applied here.
5. Disk space (``room.check_fits``) and the recovery guard (``order.why_not_in_order``).
6. The files of the root (``check_no_fence``), which are changed only when every recovery guard is lifted.

Right before each change, krepair checks the files of the change again (``commit.begin``).
"""

from __future__ import annotations

import contextlib
import os
import stat
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.commit.fence import Watch, check_one_mount
from krepair.commit.folder import ROOT, PartitionFolder, RootFolder, as_partition
from krepair.commit.status import Beside, ChangeState, plans_beside, status_in, why_half_done, why_not_ended
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import (
    DirectoryGoneError,
    KrepairError,
    RefusedError,
    StalePlanError,
    UnreadableError,
    WrongUserError,
)
from krepair.formats.filenames import CLEAN_SHUTDOWN, META_PROPERTIES, RECOVERY_POINT_CHECKPOINT
from krepair.logdir.lock import Lock, hold_lock
from krepair.logdir.reading import kind_of, why
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import meta_of
from krepair.next_command import NOTHING, PLAN, Next
from krepair.plan.commands import after_stop_command, plan_command
from krepair.plan.model import PartitionPlan, Plan, Preview
from krepair.plan.review import review
from krepair.plan.space import apply_order
from krepair.rules.model import Skipped

_SHOWN_OBJECTIONS: Final = 5
NOT_DONE: Final = frozenset({ChangeState.PLANNED, ChangeState.UNDONE})
"""States of a change that apply still has to stage."""
FINISHED: Final = frozenset({ChangeState.COMMITTED, ChangeState.FREED, ChangeState.PURGED})
"""States of a change that apply has completed."""

# -- the plan and its directory


def check_target(plan: Plan, log_dir: str = "") -> Plan:
    """Review the plan, and check that its directory exists and belongs to the plan's broker.

    Journals and file contents show whether the directory is as the plan left it. So a copy or a restored backup of the
    directory is equally good.

    Args:
        plan: plan as read from its file.
        log_dir: absolute path of the directory that contains a copy of the plan; empty for the plan's own path.

    Returns:
        The plan, with the path of that directory.

    Raises:
        RefusedError: the plan is a preview, or the review objects; the message has the first objections and all codes.
        StalePlanError: the directory is missing, or belongs to another broker or cluster.
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
    """Refuse another broker's directory. Ids that the plan lacks (2.2 writes no cluster id) are not compared."""
    try:
        meta = meta_of(plan.log_dir)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DirectoryGoneError(
            f"{plan.log_dir}: {error.strerror}; the plan is for a directory that is not here. Is the disk mounted?"
        ) from error
    except OSError as error:
        if not (plan.cluster_id or plan.broker_id or plan.directory_id):
            return  # it was unreadable when the plan was made, too
        raise UnreadableError(f"{error.filename or plan.log_dir}: could not be read: {why(error)}") from error
    now = ("", "", "") if meta is None else (meta.cluster_id, meta.broker_id, meta.directory_id)
    was = (plan.cluster_id, plan.broker_id, plan.directory_id if now[2] else "")
    for key, expected, here in zip(("cluster.id", "broker.id", "directory.id"), was, now, strict=True):
        if expected not in ("", here):
            raise StalePlanError(
                f"{plan.log_dir}/{META_PROPERTIES}: {key} is {here or 'not there'}, the plan was made of the "
                f"directory with {expected}; nothing was changed",
                next_command=Next.of("plan", plan.log_dir, out=PLAN),
            )


def _review(plan: Plan) -> None:
    objections = review(plan)
    if not objections:
        return
    shown = "; ".join(
        f"{objection.code} {objection.where or 'plan'}: {objection.text}"
        for objection in objections[:_SHOWN_OBJECTIONS]
    )
    codes = ", ".join(sorted({objection.code for objection in objections}))
    raise RefusedError(
        f"the review of the plan objects ({codes}): {shown}; nothing was changed",
        next_command=Next.of("plan", plan.log_dir, out=PLAN),
    )


# -- the ground


@contextlib.contextmanager
def disk_below(log_dir: str, writer: Disk | None = None) -> Iterator[Disk]:
    """Yield the writer for a log directory, which writes only there; or ``writer`` if it is given."""
    if writer is not None:
        yield writer
        return
    with Tree(log_dir) as tree:
        yield RealDisk(tree)


@contextlib.contextmanager
def ready(
    plan: Plan, writer: Disk | None = None, rests_on: Iterable[str] = ()
) -> Iterator[tuple[Disk, Lock]]:
    """Check krepair's own files and this user's permissions before anything is changed; then hold the lock.

    Args:
        plan: the plan that ``check_target`` returned.
        writer: writer to use instead of the real one, for tests.
        rests_on: other log directories whose logs are read but not changed; their locks are held as well.

    Yields:
        The writer for the log directory, and its lock, which is held until the end.

    Raises:
        RefusedError: a link or another kind of file is in the place of one of krepair's own folders or files; or this
            user may not change the plan's files.
        UnreadableError: a file or folder could not be read.
        LockedError: a broker or another krepair is working in one of the directories.
        StalePlanError: a directory whose logs are evidence for the plan is gone.
    """
    with disk_below(plan.log_dir, writer) as disk, contextlib.ExitStack() as held:
        folders = [journal_folder(disk, plan, target) for target in targets_of(plan)]
        try:
            check_may_change_root(disk.tree, plan.log_dir)
            for folder in folders:
                # A partition folder that is gone or is a link is skipped later, with the reason in the partition's
                # result.
                if disk.tree.is_folder(folder.holder):
                    folder.check_no_links()
                    check_may_change(folder)
        except OSError as error:
            raise UnreadableError(f"{error.filename}: could not be read: {why(error)}") from error
        lock = held.enter_context(hold_lock(plan.log_dir, disk))
        for log_dir in rests_on:
            try:
                tree = held.enter_context(Tree(log_dir))
            except OSError as error:
                raise StalePlanError(f"{log_dir}: {error.strerror}; the plan rests on its logs") from error
            held.enter_context(hold_lock(log_dir, RealDisk(tree)))
        yield disk, lock


# -- who may change the files: a new file takes over the owner of the one that it replaces, which only root can set, and
# with fs.protected_hardlinks the kernel lets only the owner and root make a hard link to a file


def check_may_change_root(tree: Tree, log_dir: str) -> None:
    """Check that this user owns the files in the root, so that a recovery guard can be set.

    Raises:
        WrongUserError: a file belongs to another user; the message names the first one.
        OSError: a file could not be read.
    """
    if os.geteuid() == 0:
        return
    _check_folder(tree, log_dir)
    _check_files(tree, [f"{log_dir}/{name}" for name in (RECOVERY_POINT_CHECKPOINT, CLEAN_SHUTDOWN)])


def check_may_change(folder: PartitionFolder) -> None:
    """Check that this user owns the files of a partition and krepair's own files in its folder.

    Raises:
        WrongUserError: a file belongs to another user; the message names the file.
        OSError: a file could not be read.
    """
    if os.geteuid() == 0:
        return
    _check_files(folder.tree, [f"{folder.path}/{name}" for name in folder.file_names()])
    check_may_purge(folder)


def check_may_purge(folder: PartitionFolder) -> None:
    """Check that this user owns krepair's own files in a partition; the partition's other files do not matter.

    Raises:
        WrongUserError: a file or folder belongs to another user; the message names this file or folder.
        OSError: a file or folder could not be read.
    """
    if os.geteuid() == 0:
        return
    tree = folder.tree
    _check_folder(tree, folder.holder)
    for path in (folder.private, *(f"{folder.private}/{name}" for name in ("stage", "keep", "out", "fence"))):
        if tree.is_folder(path):
            _check_folder(tree, path)
            _check_files(tree, [f"{path}/{name}" for name in tree.names(path)])


def _check_folder(tree: Tree, path: str) -> None:
    folder = tree.open_folder(path)
    try:
        # access() asks the kernel, which also applies access control lists; mode bits alone do not show these.
        may = os.access(f"/proc/self/fd/{folder}", os.R_OK | os.W_OK | os.X_OK, effective_ids=True)
    finally:
        os.close(folder)
    if not may:
        raise WrongUserError(
            f"{path}: {_this_user()} may not change this folder; run krepair as its owner, or as root"
        )


def _check_files(tree: Tree, paths: Iterable[str]) -> None:
    groups = {os.getegid(), *os.getgroups()}
    for path in paths:
        status = tree.status(path)
        if status is None or stat.S_ISDIR(status.st_mode):
            continue
        if status.st_uid != os.geteuid() or status.st_gid not in groups:
            raise WrongUserError(
                f"{path}: belongs to user {status.st_uid}, group {status.st_gid}; {_this_user()} could not give a new "
                "file the same owner; run krepair as that user, or as root"
            )


def _this_user() -> str:
    return f"user {os.geteuid()}"


# -- a partition


def why_not_begun(plan: Plan, view: LogDir) -> dict[str, Skipped]:
    """Return the reasons why ``apply`` would refuse a finished plan on an unchanged directory, by partition folder.

    Lock, user, free space, clock and the cluster's evidence may change before ``apply`` and are not checked.
    """
    changing = {target.folder: target for target in plan.partitions if target.changes}
    reasons: dict[str, Skipped] = {}
    for objection in review(plan):
        folder = objection.where.partition("/")[0]
        if folder in changing:
            text = f"the review of the plan objects ({objection.code}): {objection.text}"
            reasons.setdefault(folder, Skipped("review", text, damaged=True))
    disk = RealDisk(Tree(view.path, view.inode))
    half_done = why_half_done(plans_beside(view, None, plan.plan_id))
    for folder, target in changing.items():
        partition, where = listed(view, target), journal_folder(disk, plan, target)
        with contextlib.suppress(OSError):
            try:
                _check_fence(plan, target, where)
                if half_done or (partition is not None and partition.private):
                    may_begin(plan, view, target, where, half_done)
            except KrepairError as error:
                command = error.next_command
                following = command if isinstance(command, Next) else NOTHING
                reasons.setdefault(folder, Skipped("not-begun", str(error), following))
    return reasons


def _check_fence(plan: Plan, target: PartitionPlan, folder: PartitionFolder) -> None:
    if plan.commit.fence and any(change.recovers_from is not None for change in target.changes):
        check_one_mount(folder)


def may_begin(
    plan: Plan, view: LogDir, target: PartitionPlan, folder: PartitionFolder, half_done_in_root: str
) -> dict[str, ChangeState]:
    """Return the state of each change of a target by change id; raise if ``apply`` must not begin with the target.

    Args:
        plan: the plan that will be applied.
        view: the log directory as listed under the lock, after half-done changes were finished.
        target: a partition of the plan, or the root.
        folder: folder of the target.
        half_done_in_root: reason why another plan is half done in the root, or empty. Such a plan is undone only
            together with all of its partitions.

    Raises:
        StalePlanError: the partition is gone or unreadable, or its files have neither the planned old nor the planned
            new state.
        RefusedError: another plan is at work here; or the plan needs the recovery guard, which cannot be set here.
        OSError: a journal could not be read.
    """
    partition = listed(view, target)
    gone = why_left_alone(folder)
    if gone:
        raise StalePlanError(gone)
    if not is_root(target) and (partition is None or partition.unreadable):
        unreadable = partition.unreadable if partition is not None else "is gone"
        raise StalePlanError(f"{folder.path}: {unreadable}")
    # States come from the journal and the files' contents: a file in neither the old nor the new state may be a
    # broker's.
    states = status_in(folder, target)
    unknown = next((change for change, state in states.items() if state is ChangeState.UNKNOWN), "")
    if unknown:
        raise StalePlanError(_why_unknown(folder, target, unknown), next_command=plan_command(plan))
    present = set(states.values())
    if present & NOT_DONE:
        _check_fence(plan, target, folder)
    if present & NOT_DONE or ChangeState.PURGED in present:
        others = plans_beside(view, partition, plan.plan_id)
        _check_no_other_plan(others, target, folder, "" if is_root(target) else half_done_in_root)
    return states


def _check_no_other_plan(
    others: Sequence[Beside], target: PartitionPlan, folder: PartitionFolder, half_done_in_root: str
) -> None:
    """Check that no other plan has begun with the same files: each plan would mistake the other's files for its own.

    Raises:
        RefusedError: another plan has begun here and has not ended, or another plan is half done in the root.
    """
    names = {name for change in target.changes for name in change.touches}
    other = why_not_ended(others, names) or half_done_in_root
    if other:
        raise RefusedError(f"{folder.path}: {other}", next_command=_list_plans(folder))


def _list_plans(folder: PartitionFolder) -> Next:
    """Return the command that lists the plans at work in the log directory."""
    return Next.of("undo", folder.log_dir)


def _why_unknown(folder: PartitionFolder, plan: PartitionPlan, change_id: str) -> str:
    """Describe the first file that differs from the plan."""
    for file in plan.files:
        path = folder.at(file.name)
        status = folder.tree.status(path)
        if status is None:
            return f"{path}: is gone since the plan was made"
        if (status.st_size, status.st_mtime_ns) != (file.size, file.mtime_ns):
            return (
                f"{path}: changed since the plan was made: {file.size} bytes of mtime {file.mtime_ns} were "
                f"expected, found {status.st_size} of {status.st_mtime_ns}"
            )
    return f"{change_id}: its files are neither what the plan was made of nor what it makes"


def check_no_fence(target: PartitionPlan, watch: Watch | None) -> None:
    """Check that every recovery guard is lifted before files of the root change.

    A recovery guard that is set has lowered an entry of one of these files, and watches the other files.

    Raises:
        RefusedError: the target is the root, and a recovery guard is set.
    """
    places = watch.places() if watch is not None and is_root(target) else []
    if places:
        raise RefusedError(
            f"{places[0]}: this recovery guard is still set; the files in the root wait until it is lifted",
            next_command=Next.of("apply", PLAN),
        )


# -- the targets of a plan


def targets_of(plan: Plan) -> list[PartitionPlan]:
    """Return everything that the plan changes, in the order of ``apply``: partitions, then the root.

    The root comes last, after all guards are lifted, because a guard lowers an entry of one of the root's files.
    """
    root = [] if plan.root is None else [as_partition(plan.root)]
    return [*apply_order(plan), *root]


def commit_order(targets: Sequence[PartitionPlan]) -> list[PartitionPlan]:
    """Return targets in commit order: damaged root files, which guards read; partitions; entries of root files."""
    partitions = [target for target in targets if not is_root(target)]
    first, last = [], []
    for root in targets:
        if is_root(root):
            late = [change for change in root.changes if change.files[0].how == "lines"]
            first.append(
                replace(root, changes=tuple(change for change in root.changes if change not in late))
            )
            last.append(replace(root, changes=tuple(late)))
    return [target for target in (*first, *partitions, *last) if target.changes]


def undo_order(plan: Plan) -> list[PartitionPlan]:
    """Return targets in the order of undo, the reverse of commit order: entries before the files that they vouch for.

    If an old index or snapshot were restored while the recovery point is still advanced, a start would trust that file.
    """
    return commit_order([*plan.partitions, *([] if plan.root is None else [as_partition(plan.root)])])[::-1]


def is_root(target: PartitionPlan) -> bool:
    """Return whether a target is the root of the log directory."""
    return target.folder == ROOT


def listed(view: LogDir, target: PartitionPlan) -> Partition | None:
    """Return the present listing of the partition; None if its folder is gone."""
    # The partitions of a view are sorted by topic and number.
    at = bisect_left(view.partitions, (target.topic, target.partition), key=lambda partition: partition.key)
    partition = view.partitions[at] if at < len(view.partitions) else None
    return partition if partition is not None and partition.folder == target.folder else None


def journal_folder(disk: Disk, plan: Plan, target: PartitionPlan) -> PartitionFolder:
    """Return the folder of a partition or of the root, in the form that the journal needs."""
    if is_root(target) and plan.root is not None:
        return RootFolder(disk, plan.log_dir, plan.root.keeper, plan.plan_id)
    return PartitionFolder(disk, plan.log_dir, target.folder, plan.plan_id)


def why_left_alone(folder: PartitionFolder) -> str:
    """Return why a partition is skipped: its folder is gone or is a link, which krepair never follows; else empty.

    Raises:
        OSError: the folder could not be read.
    """
    status = folder.tree.status(folder.holder)
    if status is None:
        return f"{folder.holder}: is gone; the partition is left as it is"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder.holder}: expected a folder, found a {kind_of(status.st_mode)}; the partition is left as it is"
    return ""
