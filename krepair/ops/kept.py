"""What applied plans keep in a log directory: which plans, how much, since when, and whether undo is still possible.

Found by the private sub-folders alone, so that it works without any plan file. Everything here only reads, and follows
no link.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.durable.tree import Tree
from krepair.errors import AS_A_READER, KrepairError, StalePlanError, is_forbidden
from krepair.formats.filenames import ROOT_SUFFIX, private_folder
from krepair.journal.actions.table import action_of
from krepair.journal.folder import PartitionFolder, RootFolder
from krepair.journal.plan_copy import CopySearch, find_copies, the_copy
from krepair.journal.record import JOURNAL_NAME, Intent, Journal
from krepair.journal.unrecorded import check_nothing_kept
from krepair.logdir.reading import why
from krepair.logdir.space import taken_below
from krepair.logdir.values import LogDir, Partition, PrivateFolder
from krepair.logdir.view import read_log_dir
from krepair.next_command import Next, again, by_id
from krepair.ops.reports import KeptPlan, KeptReport, KeptState
from krepair.plan.model import Plan

_LOOKED_INTO_BYTES: Final = 64 << 20
"""A larger copy of a plan is not read just to list it; undo reads it."""
_DEEPEST: Final = 3
"""Folders below a private sub-folder; krepair makes one level."""


_NOTHING_TO_UNDO: Final = {
    "undone": "it is undone, only files that are left over have to go",
    "staged": "it has changed nothing; purge removes the files that it staged",
}


class _Found(NamedTuple):
    """One private sub-folder and what it says.

    Attributes:
        partition: the folder it lies in.
        private: the sub-folder.
        written_ms: of its journal, -1 without one.
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
    states: tuple[str, ...] = ()
    half_done: tuple[str, ...] = ()
    purging: bool = False
    fence: bool = False
    obstacle: str = ""
    unreadable: str = ""
    next_command: str = ""
    forbidden: bool = False


def kept_report(log_dir: str, now_ms: int, verb: str = "undo") -> KeptReport:
    """What is kept in a log directory, and what to type about the plan that was written last.

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


def _next_command(verb: str, log_dir: str, plans: Sequence[KeptPlan]) -> str:
    """About the first plan that the verb can do something for; a damaged journal comes first."""
    damaged = next((plan.next_command for plan in plans if plan.undo == "no" and plan.next_command), "")
    if damaged:
        return damaged
    if verb == "undo":
        for plan in plans:
            if plan.undo != "no":
                # Only a person knows where a plan file may still be.
                known = plan.copy == "there"
                return str(by_id(verb, log_dir, plan.plan_id) if known else Next.of("undo", "PLAN-FILE"))
    if plans and plans[0].state == "unknown" and plans[0].forbidden:
        # It may well be undone by somebody who may look at it: so nobody is told to free it.
        return again(Next.of(verb, log_dir), AS_A_READER)
    return str(by_id("purge", log_dir, plans[0].plan_id)) if plans else ""


def kept_originals(view: LogDir, now_ms: int) -> tuple[KeptPlan, ...]:
    """What each plan keeps in a log directory, the one written last first.

    Kept files are not read: whether each is the original byte for byte, only undo finds out.

    Args:
        view: the log directory as it is.
        now_ms: for the ages, epoch milliseconds.
    """
    found: dict[str, list[_Found]] = {}
    with Tree(view.path, view.inode) as tree:
        disk = RealDisk(tree)
        for partition, private in private_of(view):
            found.setdefault(private.plan_id, []).append(_look(disk, view, partition, private))
        plans = [_plan(tree, view, plan_id, folders, now_ms) for plan_id, folders in found.items()]
    return tuple(sorted(plans, key=lambda plan: (-plan.last_written_ms, plan.plan_id)))


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


def load_kept(log_dir: str, plan_id: str) -> Plan:
    """The plan of an id, read from the copy that lies with what it keeps.

    The copy may be from anybody who can write the directory. It is proven here that it is a whole plan of this id;
    ``krepair.ops.ready.check_target`` has to review it as any plan.

    Args:
        log_dir: as typed.
        plan_id: of the plan.

    Raises:
        NotALogDirError: it is none.
        StalePlanError: nothing in the directory is kept by a plan of this id; those that keep something are named.
        RefusedError: there is no copy, none can be used, or two differ.
        UsageError: the id is none.
    """
    view = read_log_dir(log_dir)
    search = search_of(view, plan_id)
    with Tree(view.path, view.inode) as tree:
        return the_copy(search, find_copies(tree, search))


def search_of(view: LogDir, plan_id: str) -> CopySearch:
    """The private sub-folders of a plan.

    Raises:
        StalePlanError: there are none; the plans that keep something are named.
        UsageError: the id is none.
    """
    private_folder(plan_id)
    paths = [private.path for _, private in private_of(view, plan_id)]
    if not paths:
        ids = sorted({private.plan_id for _, private in private_of(view)})
        kept = f"kept are: {', '.join(ids)}" if ids else "no plan keeps anything here"
        raise StalePlanError(
            f"{view.path}: nothing is kept by plan {plan_id}; {kept}",
            next_command=Next.of("undo", view.path) if ids else "",
        )
    return CopySearch(view.path, plan_id, paths)


def folder_of(disk: Disk, log_dir: str, partition: str, private: PrivateFolder) -> PartitionFolder:
    """What a private sub-folder belongs to, as the journal wants it: a partition folder, or the root."""
    if private.name.endswith(ROOT_SUFFIX):
        return RootFolder(disk, log_dir, partition, private.plan_id)
    return PartitionFolder(disk, log_dir, partition, private.plan_id)


def folders_of(view: LogDir, plan_id: str, disk: Disk) -> list[PartitionFolder]:
    """What a plan keeps something in."""
    return [folder_of(disk, view.path, one.folder, private) for one, private in private_of(view, plan_id)]


# -- one private sub-folder


def _look(disk: Disk, view: LogDir, partition: Partition, private: PrivateFolder) -> _Found:
    found = _Found(partition, private)
    try:
        folder = folder_of(disk, view.path, partition.folder, private)
        journal = folder.journal()
        if not journal.at_work():
            check_nothing_kept(folder, journal)
        written = disk.tree.status(f"{private.path}/{JOURNAL_NAME}")
        return found._replace(
            written_ms=-1 if written is None else written.st_mtime_ns // 1_000_000,
            states=tuple(journal.states.values()),
            half_done=() if journal.purging else tuple(journal.unfinished()),
            purging=journal.purging,
            fence=disk.tree.is_folder(f"{private.path}/fence"),
            obstacle=_obstacle_of(folder, journal, partition),
        )
    except KrepairError as error:
        return found._replace(
            unreadable=error.message, next_command=error.next_command, forbidden=is_forbidden(error)
        )
    except OSError as error:
        return found._replace(
            unreadable=f"{error.filename or private.path}: {why(error)}",
            forbidden=is_forbidden(error),
        )


def _obstacle_of(folder: PartitionFolder, journal: Journal, partition: Partition) -> str:
    """Why undo would refuse the partition, or empty; half-done changes are for undo itself to judge."""
    if journal.purging:
        return f"{journal.path}: its originals are being purged"
    if partition.role != "normal":
        return f"{partition.path}: the partition folder is marked {partition.role}"
    for change_id, state in journal.states.items():
        if state == "committed":
            obstacle = _obstacle(folder, journal.intents[change_id])
            if obstacle:
                return obstacle
    gone = next((change_id for change_id, state in journal.states.items() if state == "freed"), "")
    return f"{gone}: its originals were freed once it was verified" if gone else ""


def _obstacle(folder: PartitionFolder, intent: Intent) -> str:
    try:
        action_of(intent).check_undo(folder, intent, "committed")
    except StalePlanError as error:
        return error.message
    return ""


# -- one plan


def _plan(tree: Tree, view: LogDir, plan_id: str, folders: Sequence[_Found], now_ms: int) -> KeptPlan:
    search = CopySearch(view.path, plan_id, [found.private.path for found in folders])
    copies = find_copies(tree, search, at_most=_LOOKED_INTO_BYTES)
    good = [copy for copy in copies if not copy.problem]
    bad = next((f"{copy.path}: {copy.problem}" for copy in copies if copy.problem), "")
    hindered = [found for found in folders if found.obstacle or found.unreadable]
    written = max(found.written_ms for found in folders)
    state = _state(folders)
    able = state in ("applied", "half done") and len(hindered) < len(folders)
    first = next(iter(hindered), None)
    told = "" if first is None or state in _NOTHING_TO_UNDO else first.obstacle or first.unreadable
    return KeptPlan(
        plan_id=plan_id,
        state=state,
        partitions=tuple(sorted({found.partition.folder for found in folders})),
        bytes=sum(taken_below([found.private.path for found in folders], tree).values()),
        last_written_ms=written,
        age_seconds=max(0, now_ms - written) // 1000 if written >= 0 else -1,
        copy="there" if good else "damaged" if bad else "missing",
        undo=("partly" if hindered else "yes") if able else "no",
        why_not=_NOTHING_TO_UNDO.get(state, "") or told or ("" if good else bad),
        next_command=first.next_command if told and first is not None else "",
        forbidden=bool(told) and first is not None and first.forbidden,
        fence=tuple(sorted({found.partition.folder for found in folders if found.fence})),
        half_done=tuple(change for found in folders for change in found.half_done),
    )


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
