"""The copy of a plan that stays with what the plan keeps, so that undo can do without the plan file.

The copy is the file ``plan`` in the private sub-folders, with the bytes of the plan file. It is one file with several
names: it is written into the private sub-folder of the first partition, and every other partition gets a hard link to
it. So no partition has to be the last one that is undone or purged: each takes its own name away, and the bytes go with
the last name. Where a file system makes no link, the partition gets a file of its own.

Whoever may write the log directory may also write such a file. So what is read back is checked as any plan is, and
besides it is carried out in the directory in which it lies, and nowhere else.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from krepair.durable.disk import Disk, put_whole
from krepair.durable.tree import Tree
from krepair.errors import KrepairError, RefusedError
from krepair.formats.filenames import private_folder, root_private_folder
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import COPY_NAME
from krepair.plan.model import Plan
from krepair.plan.planfile import MAX_PLAN_BYTES, dumps, loads

_NEW_NAME: Final = "plan.new"
# Only a person knows where a plan file may still be.
_WITH_PLAN_FILE: Final = "krepair undo PLAN-FILE"
# A file has its most names, a file system has no links, or the folder is on another one.
_NO_LINK: Final = frozenset({errno.EMLINK, errno.EPERM, errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS})


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
            self._copy = _known(path, self._status(path))

    def _find(self) -> tuple[str, int, int] | None:
        """Path, device and inode of a copy that is right, from this run or an earlier one."""
        if self._copy is not None and not self._disk.tree.is_there(self._copy[0]):
            self._copy = None  # the partition that had it has failed, and what was staged there is gone
        if self._copy is None:
            self._data = self._data or dumps(self._plan)
            self._copy = next((copy for copy in map(self._if_right, self._places) if copy), None)
        return self._copy

    def _if_right(self, private: str) -> tuple[str, int, int] | None:
        path = f"{private}/{COPY_NAME}"
        try:
            found = self._disk.tree.status(path)
            if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != len(self._data):
                return None
            same = self._disk.tree.read(path, len(self._data) + 1) == self._data
        except OSError:
            return None  # that partition is left alone for it; the others do without its copy
        return _known(path, found) if same else None

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


def _known(path: str, found: os.stat_result | None) -> tuple[str, int, int] | None:
    return None if found is None else (path, found.st_dev, found.st_ino)


def private_folders(plan: Plan) -> list[str]:
    """Absolute paths of the private sub-folders that a plan can have, in the order of the plan."""
    own = private_folder(plan.plan_id)
    paths = [f"{plan.log_dir}/{partition.folder}/{own}" for partition in plan.changing]
    if plan.root is not None:
        paths.append(f"{plan.log_dir}/{plan.root.keeper}/{root_private_folder(plan.plan_id)}")
    return paths


class CopySearch(NamedTuple):
    """Where copies are looked for, and what they must be for.

    Attributes:
        log_dir: absolute path of the log directory, links resolved. The plan may be for another path: whoever asks must
            carry it out in this directory, and nowhere else.
        plan_id: of the plan.
        private: absolute paths of the private sub-folders of that plan.
    """

    log_dir: str
    plan_id: str
    private: Sequence[str]


class PlanCopy(NamedTuple):
    """One copy that was found.

    Attributes:
        path: of the copy.
        plan: as read, None if it cannot be used.
        problem: why it cannot be used, one line; empty if it can.
    """

    path: str
    plan: Plan | None
    problem: str = ""


def find_copies(tree: Tree, search: CopySearch, *, at_most: int = MAX_PLAN_BYTES) -> list[PlanCopy]:
    """Every copy of a plan, each file once however many names it has; writes nothing.

    A further copy with the same digest is listed without its plan, so that one plan is held in memory.

    Args:
        tree: the log directory, or what is above it.
        search: where to look.
        at_most: bytes; of a larger file only that it is there is told (a copy without plan and problem).
    """
    copies: list[PlanCopy] = []
    seen: set[tuple[int, int]] = set()
    digests: set[str] = set()
    for private in search.private:
        path = f"{private}/{COPY_NAME}"
        try:
            found = tree.status(path)
            if found is None or (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
            copy = _read(tree, path, found, search, at_most)
        except OSError as error:
            copy = PlanCopy(path, None, f"could not be read: {error.strerror}")
        except KrepairError as error:
            copy = PlanCopy(path, None, error.message.removeprefix(f"{path}: "))
        if copy.plan is not None and copy.plan.digest in digests:
            copy = copy._replace(plan=None)
        elif copy.plan is not None:
            digests.add(copy.plan.digest)
        copies.append(copy)
    return copies


def _read(tree: Tree, path: str, found: os.stat_result, search: CopySearch, at_most: int) -> PlanCopy:
    if not stat.S_ISREG(found.st_mode):
        return PlanCopy(path, None, "is no regular file")
    if found.st_size > MAX_PLAN_BYTES:
        return PlanCopy(path, None, f"has {found.st_size} bytes; a plan has at most {MAX_PLAN_BYTES}")
    if found.st_size > at_most:
        return PlanCopy(path, None)
    plan = loads(tree.read(path, found.st_size + 1) or b"", path)
    if plan.plan_id != search.plan_id:
        return PlanCopy(path, None, f"is a copy of plan {plan.plan_id}, plan {search.plan_id} was expected")
    return PlanCopy(path, plan)


def the_copy(search: CopySearch, copies: Iterable[PlanCopy]) -> Plan:
    """The plan that the copies agree on.

    Raises:
        RefusedError: there is no copy, none can be used, or two that can be used differ.
    """
    copies = list(copies)
    plans = [copy for copy in copies if copy.plan is not None]
    if len(plans) > 1:
        raise RefusedError(
            f"{plans[0].path} and {plans[1].path}: two copies of plan {search.plan_id} that differ; "
            f"undo needs the plan file",
            next_command=_WITH_PLAN_FILE,
        )
    if plans and plans[0].plan is not None:
        return plans[0].plan
    if copies:
        bad = next((copy for copy in copies if copy.problem), copies[0])
        raise RefusedError(
            f"{bad.path}: {bad.problem}; this copy of the plan cannot be used, undo needs the plan file",
            next_command=_WITH_PLAN_FILE,
        )
    raise RefusedError(
        f"{search.log_dir}: no copy of plan {search.plan_id} lies with what it keeps; "
        f"undo needs the plan file",
        next_command=_WITH_PLAN_FILE,
    )
