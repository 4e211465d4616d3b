"""What is asked before each group: the lock, the wish to stop, the space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from krepair.durable import medium
from krepair.errors import KrepairError, LockLostError, UnwritableError
from krepair.journal.fence import Watch
from krepair.journal.folder import SYNCED_WHEN_OPENED, PartitionFolder
from krepair.journal.safe_points import SafePoints
from krepair.plan.model import Change


class HeldLock(Protocol):
    """The log directory's lock, as ``krepair.logdir.lock`` gives it."""

    def check(self) -> None:
        """Raises ``LockedError`` or ``RefusedError`` when it is no longer ours."""


@dataclass
class Guards:
    """What is asked before each group.

    Attributes:
        lock: of the log directory, held.
        safe_points: whether somebody asked to stop.
        check_space: given a change, raises ``RefusedError`` when there is not enough free space for it.
        watch: of the fences of the log directory; None: each partition looks for itself.
        begun: whether this run has changed anything yet.
        settled: whether one barrier made all durable that earlier runs may have left unsynced, see ``settle``.
        not_given_back: folders whose fence went down as after a broker's start, see ``Fence.lift``.
        taken_back: what an earlier run had left and this one took back: fences, and changes that were half done.
        asked_for: what to type next, of each failure that says it, in the order in which they were met.
        by_hand: lines that a person types where a journal is damaged.
        keep_plan: given a folder whose private sub-folders are there, puts the copy of the plan into it.
    """

    lock: HeldLock
    safe_points: SafePoints
    check_space: Callable[[Change], None]
    watch: Watch | None = None
    begun: bool = False
    settled: bool = False
    not_given_back: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    keep_plan: Callable[[PartitionFolder], None] = lambda folder: None

    def check(self, change: Change) -> None:
        """All of them."""
        self.safe_points.check()
        self.hold()
        self.check_space(change)

    def hold(self) -> None:
        """Makes sure that the lock is still ours.

        Raises:
            LockLostError: it is not, or that could not be seen; then nothing more may be touched.
        """
        try:
            self.lock.check()
        except KrepairError as error:
            before = None if self.begun else error.exit_code
            raise LockLostError(f"{error.message}; nothing more is changed", before=before) from error

    def settle(self, folders: Sequence[PartitionFolder]) -> None:
        """Where earlier runs have left many private sub-folders, one barrier for all in place of those of each.

        To be called once, before the first of them is opened.

        Raises:
            UnwritableError: something could not be written.
        """
        there = [folder for folder in folders if _was_begun(folder)]
        if len(there) * SYNCED_WHEN_OPENED < medium.MANY:
            return
        first = there[0]
        try:
            self.settled = first.disk.sync_file_system(first.log_dir, [folder.path for folder in there])
        except OSError as error:
            message = f"{error.filename or first.log_dir}: {error.strerror}; nothing was changed"
            raise UnwritableError(message) from error


def _was_begun(folder: PartitionFolder) -> bool:
    """Whether an earlier run has left a private sub-folder. If the folder cannot be reached, its own run says why."""
    try:
        return folder.tree.is_folder(folder.private)
    except OSError:
        return False
