"""What applied plans keep in a log directory: which plans, how much, since when, and whether undo is still possible.

Found by the private sub-folders alone, so that it works without any plan file. No link is followed; only ``PlanKeeper``
writes.

A copy of the plan stays with what the plan keeps, so that undo can do without the plan file: the file ``plan`` in the
private sub-folders, which is the plan file without the partitions that do not change, and proves the same plan id. It
is one file with several names. So no partition has to be the
last one that is undone or purged: each takes its own name away, and the bytes go with the last name. Where a file
system makes no link, the partition gets a file of its own. Whoever may write the log directory may also write such a
file. So what is read back is checked as any plan is, and it is carried out in the directory in which it lies, and
nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from krepair.commit.begin import check_not_gone_on, executor_of
from krepair.commit.by_disk import logs_made
from krepair.commit.folder import PartitionFolder, RootFolder
from krepair.commit.journal import COPY_NAME, JOURNAL_NAME, Journal
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
from krepair.ops.reports import KeptPlan, KeptReport, KeptState
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.planfile import MAX_PLAN_BYTES, kept_copy, loads

_LOOKED_INTO_BYTES: Final = 64 << 20
"""A larger copy of a plan is not read just to list it; undo reads it."""
_DEEPEST: Final = 3
"""Folders below a private sub-folder; krepair makes one level."""


_NOTHING_TO_UNDO: Final = {
    "undone": "it is undone; only files that are left over have to go",
    "staged": "it has changed nothing; purge removes the files that it staged",
}


class _Found(NamedTuple):
    """One private sub-folder and what it says.

    Attributes:
        partition: the folder it lies in.
        private: the sub-folder.
        written_ms: of its journal, -1 without one.
        number: of its journal; it grows from plan to plan.
        states: change id to what the journal says of it.
        half_done: ids of the changes that were interrupted.
        purging: whether a purge has begun.
        fence: whether the fence is up.
        obstacle: why it cannot be undone, or empty.
        unreadable: why the rest is not known, or empty.
        next_command: what to type about that; may be empty.
        forbidden: whether only the permissions are in the way.
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
    """What is kept in a log directory, and what to type about the plan that comes first.

    Args:
        log_dir: its path.
        now_ms: for the ages, epoch milliseconds.
        verb: ``undo`` or ``purge``, for the next command.

    Raises:
        NotALogDirError: it is none.
        UnreadableError: the operating system could not read the directory.
    """
    view = read_log_dir(log_dir)
    plans = kept_originals(view, now_ms)
    return KeptReport(log_dir=view.path, plans=plans, next_command=_next_command(verb, view.path, plans))


def _next_command(verb: str, log_dir: str, plans: Sequence[KeptPlan]) -> Next:
    """About the first plan that the verb can do something for; a damaged journal comes first."""
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
        # It may well be undone by somebody who may look at it: so nobody is told to free it.
        return Next.of(verb, log_dir, when=AS_A_READER)
    return by_id("purge", log_dir, plans[-1].plan_id) if plans else NOTHING


def kept_originals(view: LogDir, now_ms: int) -> tuple[KeptPlan, ...]:
    """What each plan keeps in a log directory, the newest one first: undo takes it first, and purge the oldest.

    Kept files are not read: whether each is the original byte for byte, only undo finds out.

    Args:
        view: the log directory as it is.
        now_ms: for the ages, epoch milliseconds.
    """
    found: dict[str, list[tuple[Partition, PrivateFolder]]] = {}
    for partition, private in private_of(view):
        found.setdefault(private.plan_id, []).append((partition, private))
    with Tree(view.path, view.inode) as tree:
        plans = [_plan(view, tree, plan_id, folders, now_ms) for plan_id, folders in found.items()]
    newest_first = sorted(plans, key=lambda one: (-one[0], -one[1].last_written_ms, one[1].plan_id))
    return tuple(plan for _, plan in newest_first)


def nothing_to_undo(view: LogDir, plan_id: str) -> bool:
    """Whether a plan has left nothing but files that are in nobody's way: it changed nothing, or is undone."""
    with Tree(view.path, view.inode) as tree:
        disk = RealDisk(tree)
        found = [_look(disk, view, partition, private) for partition, private in private_of(view, plan_id)]
    return _state(found) in _NOTHING_TO_UNDO


def private_of(view: LogDir, plan_id: str = "") -> Iterator[tuple[Partition, PrivateFolder]]:
    """Every private sub-folder with its partition folder; those of one plan only, if it is named."""
    for partition in (*view.partitions, *view.marked):
        for private in partition.private:
            if plan_id in ("", private.plan_id):
                yield partition, private


def others_keep(log_dir: str, plan_id: str) -> bool:
    """Whether another plan keeps anything in the log directory; False if that cannot be seen."""
    try:
        return any(private.plan_id != plan_id for _, private in private_of(read_log_dir(log_dir)))
    except KrepairError:
        return False


def load_kept(view: LogDir, plan_id: str) -> Plan:
    """The plan of an id, read from the copy that lies with what it keeps.

    The copy may be from anybody who can write the directory. It is proven here that it is a whole plan of this id;
    ``krepair.ops.ready.check_target`` has to review it as any plan.

    Raises:
        RefusedError: there is no copy, or none can be used.
    """
    paths = [private.path for _, private in private_of(view, plan_id)]
    with Tree(view.path, view.inode) as tree:
        return load_copy(view.path, plan_id, find_copy(tree, plan_id, paths))


def check_keeps(view: LogDir, plan_id: str) -> None:
    """Check that a plan keeps something in a log directory.

    Raises:
        StalePlanError: it does not; the plans that do are named.
        UsageError: the id is none.
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
    """What a private sub-folder belongs to, as the journal wants it: a partition folder, or the root."""
    if private.name.endswith(ROOT_SUFFIX):
        return RootFolder(disk, log_dir, partition, private.plan_id)
    return PartitionFolder(disk, log_dir, partition, private.plan_id)


def folders_of(view: LogDir, plan_id: str, disk: Disk) -> list[PartitionFolder]:
    """What a plan keeps something in, where nobody has the plan: each folder has to be looked into.

    Raises:
        UnreadableError: one cannot be; what it keeps may need what the root keeps.
    """
    for one in (*view.partitions, *view.marked):
        if one.unreadable and not one.is_link and disk.tree.is_there(one.path):
            raise UnreadableError(
                f"{one.unreadable}; so it is not known whether plan {plan_id} keeps something there. With the plan "
                "file only its own folders are asked"
            )
    return [folder_of(disk, view.path, one.folder, private) for one, private in private_of(view, plan_id)]


# -- one private sub-folder


def _look(
    disk: Disk,
    view: LogDir,
    partition: Partition,
    private: PrivateFolder,
    plan: PartitionPlan | None = None,
) -> _Found:
    """What a private sub-folder says, held against its part of the plan where that is known."""
    found = _Found(partition, private)
    try:
        folder = folder_of(disk, view.path, partition.folder, private)
        journal = folder.journal()
        if not journal.at_work():
            check_nothing_kept(folder, journal)
        written = disk.tree.status(f"{private.path}/{JOURNAL_NAME}")
        return found._replace(
            written_ms=-1 if written is None else written.st_mtime_ns // 1_000_000,
            number=journal.number,
            states=tuple(journal.states.values()),
            half_done=() if journal.purging else tuple(journal.unfinished()),
            purging=journal.purging,
            fence=disk.tree.is_folder(f"{private.path}/fence"),
            obstacle=_obstacle_of(folder, journal, partition, plan),
        )
    except KrepairError as error:
        return found._replace(
            unreadable=error.message, next_command=of_error(error), forbidden=is_forbidden(error)
        )
    except OSError as error:
        return found._replace(
            unreadable=f"{error.filename or private.path}: {why(error)}",
            forbidden=is_forbidden(error),
        )


def _obstacle_of(
    folder: PartitionFolder, journal: Journal, partition: Partition, plan: PartitionPlan | None
) -> str:
    """Why undo would refuse the partition, or empty; half-done changes are for undo itself to judge."""
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
                    check_not_gone_on(folder, changes[change_id], intent, state, planned, made)
            except StalePlanError as error:
                return error.message
    gone = next((change_id for change_id, state in journal.states.items() if state == "freed"), "")
    return f"{gone}: its originals were freed once it was verified" if gone else ""


# -- one plan


def _plan(
    view: LogDir,
    tree: Tree,
    plan_id: str,
    places: Sequence[tuple[Partition, PrivateFolder]],
    now_ms: int,
) -> tuple[int, KeptPlan]:
    """The number of a plan, and what it keeps."""
    paths = [private.path for _, private in places]
    copy = find_copy(tree, plan_id, paths, at_most=_LOOKED_INTO_BYTES)
    partitions = copy.plan.changing if copy is not None and copy.plan is not None else ()
    parts = {part.folder: part for part in partitions}
    disk = RealDisk(tree)
    folders = [
        _look(disk, view, partition, private, parts.get(partition.folder)) for partition, private in places
    ]
    bad = f"{copy.path}: {copy.problem}" if copy is not None and copy.problem else ""
    hindered = [found for found in folders if found.obstacle or found.unreadable]
    written = max(found.written_ms for found in folders)
    state = _state(folders)
    able = state in ("applied", "half done") and len(hindered) < len(folders)
    first = next(iter(hindered), None)
    told = "" if first is None or state in _NOTHING_TO_UNDO else first.obstacle or first.unreadable
    plan = KeptPlan(
        plan_id=plan_id,
        state=state,
        partitions=tuple(sorted({found.partition.folder for found in folders})),
        bytes=sum(taken_below(paths, tree).values()),
        last_written_ms=written,
        age_seconds=max(0, now_ms - written) // 1000 if written >= 0 else -1,
        copy="missing" if copy is None else "damaged" if bad else "there",
        undo=("partly" if hindered else "yes") if able else "no",
        why_not=_NOTHING_TO_UNDO.get(state, "") or told or bad,
        next_command=first.next_command if told and first is not None else NOTHING,
        forbidden=bool(told) and first is not None and first.forbidden,
        fence=tuple(sorted({found.partition.folder for found in folders if found.fence})),
        half_done=tuple(change for found in folders for change in found.half_done),
    )
    return max(found.number for found in folders), plan


def _state(folders: Sequence[_Found]) -> KeptState:
    states = [state for found in folders for state in found.states]
    if any(found.half_done or found.fence for found in folders):
        return "half done"
    if any(found.purging for found in folders):
        return "being purged"
    if {"committed", "freed"}.intersection(states):
        return "applied"
    if any(found.unreadable for found in folders):
        return "unknown"
    return "undone" if "undone" in states else "staged"


_NEW_NAME: Final = "plan.new"
# A file has its most names, a file system has no links, or the folder is on another one.
_NO_LINK: Final = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS})


# -- the copy of a plan


class PlanKeeper:
    """Puts the copy of one plan where the plan keeps something; one keeper serves a whole run.

    Args:
        disk: what writes.
        plan: sealed.
    """

    def __init__(self, disk: Disk, plan: Plan) -> None:
        self._disk = disk
        self._plan = plan
        self._places = private_folders(plan)
        self._data = b""
        self._copy: tuple[str, int, int] | None = None
        self._done: set[str] = set()

    def keep_in(self, folder: PartitionFolder) -> None:
        """Makes sure, durably, that the copy is in a private sub-folder that is there; may be repeated.

        To be called before the first intent of the partition. In a folder that is not durable itself the copy is not,
        either, until ``PartitionFolder.sync_new`` is called.

        Raises:
            RefusedError: something that is no regular file has the name of the copy.
            OSError: a call failed.
        """
        if folder.private not in self._done:
            self._keep_in(folder)
            self._done.add(folder.private)

    def _keep_in(self, folder: PartitionFolder) -> None:
        path = f"{folder.private}/{COPY_NAME}"
        first = self._find()
        found = self._status(path)
        if first is not None and found is not None and (found.st_dev, found.st_ino) == first[1:]:
            return

        def make(new: str) -> None:
            if first is None or not self._link(first[0], new):
                self._disk.create(new, self._data, owner=folder.owner())

        # ``sync_new`` syncs the name with the others in a new folder
        put_whole(self._disk, path, f"{folder.private}/{_NEW_NAME}", make, sync_name=not folder.is_unsynced)
        if first is None:
            self._copy = _path_and_inode(path, self._status(path))

    def _find(self) -> tuple[str, int, int] | None:
        """Path, device and inode of a copy that is right, from this run or an earlier one."""
        if self._copy is not None and not self._disk.tree.is_there(self._copy[0]):
            self._copy = None  # the partition that had it has failed, and what was staged there is gone
        if self._copy is None:
            self._data = self._data or kept_copy(self._plan)
            self._copy = next((copy for copy in map(self._copy_if_right, self._places) if copy), None)
        return self._copy

    def _copy_if_right(self, private: str) -> tuple[str, int, int] | None:
        path = f"{private}/{COPY_NAME}"
        try:
            found = self._disk.tree.status(path)
            if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != len(self._data):
                return None
            same = self._disk.tree.read(path, len(self._data) + 1) == self._data
        except OSError:
            return None  # that partition is left alone for it; the others do without its copy
        return _path_and_inode(path, found) if same else None

    def _status(self, path: str) -> os.stat_result | None:
        found = self._disk.tree.status(path)
        if found is not None and not stat.S_ISREG(found.st_mode):
            raise RefusedError(
                f"{path}: expected a copy of the plan, found something that is no regular file"
            )
        return found

    def _link(self, source: str, target: str) -> bool:
        try:
            self._disk.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        return True


def _path_and_inode(path: str, found: os.stat_result | None) -> tuple[str, int, int] | None:
    return None if found is None else (path, found.st_dev, found.st_ino)


def private_folders(plan: Plan) -> list[str]:
    """Absolute paths of the private sub-folders that a plan can have, in the order of the plan."""
    own = private_folder(plan.plan_id)
    paths = [f"{plan.log_dir}/{partition.folder}/{own}" for partition in plan.changing]
    if plan.root is not None:
        paths.append(f"{plan.log_dir}/{plan.root.keeper}/{root_private_folder(plan.plan_id)}")
    return paths


class PlanCopy(NamedTuple):
    """A copy that was found.

    Attributes:
        path: of the copy.
        plan: as read; None if it cannot be used, or was too large to be read.
        problem: why it cannot be used, one line; empty if it can.
    """

    path: str
    plan: Plan | None
    problem: str = ""


def find_copy(
    tree: Tree, plan_id: str, private: Iterable[str], *, at_most: int = MAX_PLAN_BYTES
) -> PlanCopy | None:
    """The first copy of a plan that can be used; else the first one that is there; None if there is none.

    Each file is read once, however many names it has. Nothing is written.

    Args:
        tree: the log directory, or what is above it.
        plan_id: of the plan.
        private: absolute paths of its private sub-folders.
        at_most: bytes; of a larger file only that it is there is told (a copy without plan and problem).
    """
    first: PlanCopy | None = None
    seen: set[tuple[int, int]] = set()
    for path in (f"{folder}/{COPY_NAME}" for folder in private):
        try:
            found = tree.status(path)
            if found is None or (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            copy = _read(tree, path, found, plan_id, at_most)
        except OSError as error:
            copy = PlanCopy(path, None, f"could not be read: {error.strerror}")
        except KrepairError as error:
            copy = PlanCopy(path, None, error.message.removeprefix(f"{path}: "))
        if not copy.problem:
            return copy
        first = first or copy
    return first


def _read(tree: Tree, path: str, found: os.stat_result, plan_id: str, at_most: int) -> PlanCopy:
    if not stat.S_ISREG(found.st_mode):
        return PlanCopy(path, None, "is no regular file")
    if found.st_size > MAX_PLAN_BYTES:
        return PlanCopy(path, None, f"has {found.st_size} bytes; a plan has at most {MAX_PLAN_BYTES}")
    if found.st_size > at_most:
        return PlanCopy(path, None)
    plan = loads(tree.read(path, found.st_size + 1) or b"", path)
    if plan.plan_id != plan_id:
        return PlanCopy(path, None, f"is a copy of plan {plan.plan_id}, plan {plan_id} was expected")
    return PlanCopy(path, plan)


def load_copy(log_dir: str, plan_id: str, copy: PlanCopy | None) -> Plan:
    """The plan of a copy that was found.

    The plan may be for another path: whoever asks must carry it out in this directory, and nowhere else.

    Raises:
        RefusedError: there is no copy, or it cannot be used.
    """
    if copy is None:
        why = f"{log_dir}: no copy of plan {plan_id} lies with what it keeps;"
    elif copy.plan is None:
        why = f"{copy.path}: {copy.problem}; this copy of the plan cannot be used,"
    else:
        return copy.plan
    # Only a person knows where a plan file may still be.
    raise RefusedError(f"{why} undo needs the plan file", next_command=Next.of("undo", "PLAN-FILE"))
