"""Backups that plans left in a log directory: their plans, sizes and ages, and whether undo is still possible.

The work folders alone show the backups, so no plan file is needed. Links are not followed. Only ``PlanKeeper`` writes
files.

Each work folder holds a copy of the plan, so that undo works without the plan file. The copy is named ``plan``, leaves
out unchanged partitions, and proves the same plan id. All copies are hard links to one file, so partitions can be
undone or purged in any order, and the space is freed with the last link. A file system without hard links gets one file
per partition. Anyone with write access to the log directory can forge a copy. So krepair reviews a copy like any plan,
and carries out the plan only in the directory that contains the copy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from krepair.commit.begin import check_not_written_since, executor_of
from krepair.commit.by_disk import logs_made
from krepair.commit.folder import PartitionFolder, RootFolder
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME, Journal
from krepair.commit.reports import KeptPlan, KeptReport, KeptState
from krepair.commit.unrecorded import check_nothing_kept
from krepair.durable.disk import Disk, put_whole
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import (
    AS_A_READER,
    KrepairError,
    RefusedError,
    StalePlanError,
    UnreadableError,
    is_forbidden,
)
from krepair.formats.filenames import ROOT_SUFFIX, private_folder, root_private_folder
from krepair.logdir.reading import why
from krepair.logdir.space import taken_below
from krepair.logdir.values import LogDir, Partition, PrivateFolder
from krepair.logdir.view import read_log_dir
from krepair.next_command import NOTHING, Next, by_id, of_error
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.planfile import MAX_PLAN_BYTES, kept_copy, loads

_LOOKED_INTO_BYTES: Final = 64 << 20
"""Maximum size in bytes of a plan's copy that is read only for a list of backups; undo also reads larger copies."""
_DEEPEST: Final = 3
"""Number of folder levels searched below a work folder, of which krepair creates one."""


_NOTHING_TO_UNDO: Final = {
    "undone": "it is undone; only files that are left over have to go",
    "staged": "it has changed nothing; purge removes the files that it staged",
}


class _WorkFolderState(NamedTuple):
    """State of one work folder.

    Attributes:
        partition: partition folder that contains the work folder.
        private: the work folder itself.
        written_ms: modification time of the journal in epoch milliseconds, -1 without a journal.
        number: plan number in the journal, higher for later plans.
        states: states of the changes in the journal.
        half_done: ids of interrupted changes.
        purging: True if a purge has begun.
        fence: True if the recovery guard is in place.
        obstacle: reason why undo is impossible, or empty.
        unreadable: reason why the other fields are unknown, or empty.
        next_command: command that resolves the reason in ``unreadable``; may be empty.
        forbidden: True if the state is unknown only because permissions are missing.
    """

    partition: Partition
    private: PrivateFolder
    written_ms: int = -1
    number: int = 0
    states: tuple[str, ...] = ()
    half_done: tuple[str, ...] = ()
    purging: bool = False
    fence: bool = False
    obstacle: str = ""
    unreadable: str = ""
    next_command: Next = NOTHING
    forbidden: bool = False


def kept_report(log_dir: str, now_ms: int, verb: str = "undo") -> KeptReport:
    """Report the backups in a log directory, with the next command.

    Args:
        log_dir: path of the log directory.
        now_ms: time from which ages count, epoch milliseconds.
        verb: ``undo`` or ``purge``, for the next command.

    Raises:
        NotALogDirError: the path is no log directory.
        UnreadableError: the operating system could not read the directory.
    """
    view = read_log_dir(log_dir)
    plans = kept_originals(view, now_ms)
    return KeptReport(log_dir=view.path, plans=plans, next_command=_next_command(verb, view.path, plans))


def _next_command(verb: str, log_dir: str, plans: Sequence[KeptPlan]) -> Next:
    """Return the command for a damaged journal if there is one, else for the first plan that the verb can handle."""
    damaged = next((plan.next_command for plan in plans if plan.undo == "no" and plan.next_command), NOTHING)
    if damaged:
        return damaged
    if verb == "undo":
        for plan in plans:
            if plan.undo != "no":
                # Only a person knows where a plan file may still be.
                known = plan.copy == "there"
                return by_id(verb, log_dir, plan.plan_id) if known else Next.of("undo", "PLAN-FILE")
    if plans and plans[0].state == "unknown" and plans[0].forbidden:
        # Do not advise purge here: a user with more rights may still be able to undo the plan, and purge would delete
        # its backups.
        return Next.of(verb, log_dir, when=AS_A_READER)
    return by_id("purge", log_dir, plans[-1].plan_id) if plans else NOTHING


def kept_originals(view: LogDir, now_ms: int) -> tuple[KeptPlan, ...]:
    """Return each plan's backups, newest plan first: undo takes the newest plan, purge the oldest.

    Backups are not read; only undo checks that each backup is intact.

    Args:
        view: current listing of the log directory.
        now_ms: time from which ages count, epoch milliseconds.
    """
    by_plan: dict[str, list[tuple[Partition, PrivateFolder]]] = {}
    for partition, private in private_of(view):
        by_plan.setdefault(private.plan_id, []).append((partition, private))
    with Tree(view.path, view.inode) as tree:
        plans = [_plan(view, tree, plan_id, folders, now_ms) for plan_id, folders in by_plan.items()]
    newest_first = sorted(plans, key=lambda row: (-row[0], -row[1].last_written_ms, row[1].plan_id))
    return tuple(plan for _, plan in newest_first)


def nothing_to_undo(view: LogDir, plan_id: str) -> bool:
    """Return whether a plan left only obsolete files, because the plan changed nothing or is undone."""
    with Tree(view.path, view.inode) as tree:
        disk = RealDisk(tree)
        folders = [
            _read_work_folder(disk, view, partition, private)
            for partition, private in private_of(view, plan_id)
        ]
    return _state(folders) in _NOTHING_TO_UNDO


def private_of(view: LogDir, plan_id: str = "") -> Iterator[tuple[Partition, PrivateFolder]]:
    """Yield every work folder with its partition, optionally of one plan only."""
    for partition in (*view.partitions, *view.marked):
        for private in partition.private:
            if plan_id in ("", private.plan_id):
                yield partition, private


def others_keep(log_dir: str, plan_id: str) -> bool:
    """Return whether another plan has backups in the log directory; False if the directory cannot be read."""
    try:
        return any(private.plan_id != plan_id for _, private in private_of(read_log_dir(log_dir)))
    except KrepairError:
        return False


def load_kept(view: LogDir, plan_id: str) -> Plan:
    """Return the plan with this id, read from the copy in its work folders.

    Anyone with write access to the directory may have written the copy. This function proves that the copy is a
    complete plan with this id; ``krepair.commit.ready.check_target`` still has to review the plan like any other.

    Raises:
        RefusedError: no usable copy exists.
    """
    paths = [private.path for _, private in private_of(view, plan_id)]
    with Tree(view.path, view.inode) as tree:
        return load_copy(view.path, plan_id, find_copy(tree, plan_id, paths))


def check_keeps(view: LogDir, plan_id: str) -> None:
    """Check that a plan has backups in a log directory.

    Raises:
        StalePlanError: the plan has no backups; the message names the plans with backups.
        UsageError: the id is malformed.
    """
    private_folder(plan_id)
    ids = sorted({private.plan_id for _, private in private_of(view)})
    if plan_id not in ids:
        kept = f"kept are: {', '.join(ids)}" if ids else "no plan keeps anything here"
        raise StalePlanError(
            f"{view.path}: nothing is kept by plan {plan_id}; {kept}",
            next_command=Next.of("undo", view.path) if ids else NOTHING,
        )


def folder_of(disk: Disk, log_dir: str, partition: str, private: PrivateFolder) -> PartitionFolder:
    """Return the partition folder or root to which a work folder belongs, for access to the work folder's journal."""
    if private.name.endswith(ROOT_SUFFIX):
        return RootFolder(disk, log_dir, partition, private.plan_id)
    return PartitionFolder(disk, log_dir, partition, private.plan_id)


def folders_of(view: LogDir, plan_id: str, disk: Disk) -> list[PartitionFolder]:
    """Return all folders in which a plan has backups; without the plan file, every folder must be searched.

    Raises:
        UnreadableError: a folder cannot be listed; backups in that folder may depend on those of the root.
    """
    for partition in (*view.partitions, *view.marked):
        if partition.unreadable and not partition.is_link and disk.tree.is_there(partition.path):
            raise UnreadableError(
                f"{partition.unreadable}; so it is not known whether plan {plan_id} keeps something there. "
                "With the plan file only its own folders are asked"
            )
    return [
        folder_of(disk, view.path, partition.folder, private)
        for partition, private in private_of(view, plan_id)
    ]


# -- one work folder


def _read_work_folder(
    disk: Disk,
    view: LogDir,
    partition: Partition,
    private: PrivateFolder,
    plan: PartitionPlan | None = None,
) -> _WorkFolderState:
    """Return the state of a work folder, compared with the partition's part of the plan if the plan is known."""
    state = _WorkFolderState(partition, private)
    try:
        folder = folder_of(disk, view.path, partition.folder, private)
        journal = folder.journal()
        if not journal.at_work():
            check_nothing_kept(folder, journal)
        written = disk.tree.status(f"{private.path}/{JOURNAL_NAME}")
        return state._replace(
            written_ms=-1 if written is None else written.st_mtime_ns // 1_000_000,
            number=journal.number,
            states=tuple(journal.states.values()),
            half_done=() if journal.purging else tuple(journal.unfinished()),
            purging=journal.purging,
            fence=disk.tree.is_folder(f"{private.path}/fence"),
            obstacle=_obstacle_of(folder, journal, partition, plan),
        )
    except KrepairError as error:
        return state._replace(
            unreadable=error.message, next_command=of_error(error), forbidden=is_forbidden(error)
        )
    except OSError as error:
        return state._replace(
            unreadable=f"{error.filename or private.path}: {why(error)}",
            forbidden=is_forbidden(error),
        )


def _obstacle_of(
    folder: PartitionFolder, journal: Journal, partition: Partition, plan: PartitionPlan | None
) -> str:
    """Return why undo would refuse the partition, or empty; undo itself judges half-done changes."""
    if journal.purging:
        return f"{journal.path}: its originals are being purged"
    if partition.role != "normal":
        return f"{partition.path}: the partition folder is marked {partition.role}"
    changes = {} if plan is None else {change.change_id: change for change in plan.changes}
    planned, made = ({}, {}) if plan is None else (plan.by_name, logs_made(plan.changes))
    for change_id, state in journal.states.items():
        if state == "committed":
            intent = journal.intents[change_id]
            try:
                executor_of(intent).check_undo(folder, intent, state)
                if change_id in changes:
                    check_not_written_since(folder, changes[change_id], intent, state, planned, made)
            except StalePlanError as error:
                return error.message
    freed = next((change_id for change_id, state in journal.states.items() if state == "freed"), "")
    return f"{freed}: its originals were freed once it was verified" if freed else ""


# -- one plan


def _plan(
    view: LogDir,
    tree: Tree,
    plan_id: str,
    places: Sequence[tuple[Partition, PrivateFolder]],
    now_ms: int,
) -> tuple[int, KeptPlan]:
    """Return the number of a plan, and the plan's backups."""
    paths = [private.path for _, private in places]
    copy = find_copy(tree, plan_id, paths, at_most=_LOOKED_INTO_BYTES)
    partitions = copy.plan.changing if copy is not None and copy.plan is not None else ()
    parts = {part.folder: part for part in partitions}
    disk = RealDisk(tree)
    folders = [
        _read_work_folder(disk, view, partition, private, parts.get(partition.folder))
        for partition, private in places
    ]
    bad = f"{copy.path}: {copy.problem}" if copy is not None and copy.problem else ""
    hindered = [folder for folder in folders if folder.obstacle or folder.unreadable]
    written = max(folder.written_ms for folder in folders)
    state = _state(folders)
    able = state in ("applied", "half done") and len(hindered) < len(folders)
    first = next(iter(hindered), None)
    reason = "" if first is None or state in _NOTHING_TO_UNDO else first.obstacle or first.unreadable
    plan = KeptPlan(
        plan_id=plan_id,
        state=state,
        partitions=tuple(sorted({folder.partition.folder for folder in folders})),
        bytes=sum(taken_below(paths, tree).values()),
        last_written_ms=written,
        age_seconds=max(0, now_ms - written) // 1000 if written >= 0 else -1,
        copy="missing" if copy is None else "damaged" if bad else "there",
        undo=("partly" if hindered else "yes") if able else "no",
        why_not=_NOTHING_TO_UNDO.get(state, "") or reason or bad,
        next_command=first.next_command if reason and first is not None else NOTHING,
        forbidden=bool(reason) and first is not None and first.forbidden,
        fence=tuple(sorted({folder.partition.folder for folder in folders if folder.fence})),
        half_done=tuple(change for folder in folders for change in folder.half_done),
    )
    return max(folder.number for folder in folders), plan


def _state(folders: Sequence[_WorkFolderState]) -> KeptState:
    states = [state for folder in folders for state in folder.states]
    if any(folder.half_done or folder.fence for folder in folders):
        return "half done"
    if any(folder.purging for folder in folders):
        return "being purged"
    if {"committed", "freed"}.intersection(states):
        return "applied"
    if any(folder.unreadable for folder in folders):
        return "unknown"
    return "undone" if "undone" in states else "staged"


_NEW_NAME: Final = "plan.new"
# The link limit is reached, the file system has no hard links, or the folder is on another file system.
_NO_LINK: Final = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS})


# -- the copy of a plan


class PlanKeeper:
    """Writer of the copies of one plan; one object serves a whole run.

    Args:
        disk: writer of all files.
        plan: sealed plan.
    """

    def __init__(self, disk: Disk, plan: Plan) -> None:
        self._disk = disk
        self._plan = plan
        self._places = private_folders(plan)
        self._data = b""
        self._copy: tuple[str, int, int] | None = None
        self._done: set[str] = set()

    def keep_in(self, folder: PartitionFolder) -> None:
        """Make sure, durably, that an existing work folder contains the copy; safe to repeat.

        Call this before the partition's first intent record is written: without the copy, undo of that intent would
        need the plan file. In a new folder only ``PartitionFolder.sync_new`` makes the copy durable.

        Raises:
            RefusedError: the copy's name is taken by something other than a regular file.
            OSError: a call failed.
        """
        if folder.private not in self._done:
            self._keep_in(folder)
            self._done.add(folder.private)

    def _keep_in(self, folder: PartitionFolder) -> None:
        path = f"{folder.private}/{COPY_NAME}"
        first = self._find_copy()
        status = self._status(path)
        if first is not None and status is not None and (status.st_dev, status.st_ino) == first[1:]:
            return

        def make(new: str) -> None:
            if first is None or not self._link(first[0], new):
                self._disk.create(new, self._data, owner=folder.owner())

        # in a new folder ``sync_new`` makes all names durable together
        put_whole(self._disk, path, f"{folder.private}/{_NEW_NAME}", make, sync_name=not folder.is_unsynced)
        if first is None:
            self._copy = _path_and_inode(path, self._status(path))

    def _find_copy(self) -> tuple[str, int, int] | None:
        """Return path, device and inode of a valid copy, written by this run or an earlier one."""
        if self._copy is not None and not self._disk.tree.is_there(self._copy[0]):
            self._copy = None  # the partition with this copy failed, and its work folder was removed
        if self._copy is None:
            self._data = self._data or kept_copy(self._plan)
            self._copy = next((copy for copy in map(self._copy_if_right, self._places) if copy), None)
        return self._copy

    def _copy_if_right(self, private: str) -> tuple[str, int, int] | None:
        path = f"{private}/{COPY_NAME}"
        try:
            status = self._disk.tree.status(path)
            if status is None or not stat.S_ISREG(status.st_mode) or status.st_size != len(self._data):
                return None
            same = self._disk.tree.read(path, len(self._data) + 1) == self._data
        except OSError:
            return None  # that partition will report the error; other partitions need not use this copy
        return _path_and_inode(path, status) if same else None

    def _status(self, path: str) -> os.stat_result | None:
        status = self._disk.tree.status(path)
        if status is not None and not stat.S_ISREG(status.st_mode):
            raise RefusedError(
                f"{path}: expected a copy of the plan, found something that is no regular file"
            )
        return status

    def _link(self, source: str, target: str) -> bool:
        try:
            self._disk.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        return True


def _path_and_inode(path: str, status: os.stat_result | None) -> tuple[str, int, int] | None:
    return None if status is None else (path, status.st_dev, status.st_ino)


def private_folders(plan: Plan) -> list[str]:
    """Return absolute paths of the work folders that a plan can have, in the order of the plan."""
    own = private_folder(plan.plan_id)
    paths = [f"{plan.log_dir}/{partition.folder}/{own}" for partition in plan.changing]
    if plan.root is not None:
        paths.append(f"{plan.log_dir}/{plan.root.keeper}/{root_private_folder(plan.plan_id)}")
    return paths


class PlanCopy(NamedTuple):
    """Copy of a plan in a work folder.

    Attributes:
        path: path of the copy.
        plan: plan as read; None if the copy is unusable or too large to be read.
        problem: one-line reason why the copy is unusable, else empty.
    """

    path: str
    plan: Plan | None
    problem: str = ""


def find_copy(
    tree: Tree, plan_id: str, private: Iterable[str], *, at_most: int = MAX_PLAN_BYTES
) -> PlanCopy | None:
    """Return the first usable copy of a plan, else the first copy, else None.

    Each file is read once, however many links it has. Nothing is written.

    Args:
        tree: log directory, or a folder above it.
        private: absolute paths of the plan's work folders.
        at_most: size limit in bytes; a larger file gives a copy without plan and problem.
    """
    first: PlanCopy | None = None
    files_read: set[tuple[int, int]] = set()
    for path in (f"{folder}/{COPY_NAME}" for folder in private):
        try:
            status = tree.status(path)
            if status is None or (status.st_dev, status.st_ino) in files_read:
                continue
            files_read.add((status.st_dev, status.st_ino))
            copy = _read(tree, path, status, plan_id, at_most)
        except OSError as error:
            copy = PlanCopy(path, None, f"could not be read: {error.strerror}")
        except KrepairError as error:
            copy = PlanCopy(path, None, error.message.removeprefix(f"{path}: "))
        if not copy.problem:
            return copy
        first = first or copy
    return first


def _read(tree: Tree, path: str, status: os.stat_result, plan_id: str, at_most: int) -> PlanCopy:
    if not stat.S_ISREG(status.st_mode):
        return PlanCopy(path, None, "is no regular file")
    if status.st_size > MAX_PLAN_BYTES:
        return PlanCopy(path, None, f"has {status.st_size} bytes; a plan has at most {MAX_PLAN_BYTES}")
    if status.st_size > at_most:
        return PlanCopy(path, None)
    plan = loads(tree.read(path, status.st_size + 1) or b"", path)
    if plan.plan_id != plan_id:
        return PlanCopy(path, None, f"is a copy of plan {plan.plan_id}, plan {plan_id} was expected")
    return PlanCopy(path, plan)


def load_copy(log_dir: str, plan_id: str, copy: PlanCopy | None) -> Plan:
    """Return the plan in a copy.

    The plan may name another path: the caller must carry out the plan in this directory only.

    Raises:
        RefusedError: the copy is missing or unusable.
    """
    if copy is None:
        why = f"{log_dir}: no copy of plan {plan_id} lies with what it keeps;"
    elif copy.plan is None:
        why = f"{copy.path}: {copy.problem}; this copy of the plan cannot be used,"
    else:
        return copy.plan
    # Only a person knows where a plan file may still be.
    raise RefusedError(f"{why} undo needs the plan file", next_command=Next.of("undo", "PLAN-FILE"))
