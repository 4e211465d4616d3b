"""Check the lock and requested stops before each change."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol

from krepair.commit.fence import Watch
from krepair.commit.folder import SYNCED_WHEN_OPENED, PartitionFolder
from krepair.durable import medium
from krepair.errors import InterruptedAtSafePointError, KrepairError, LockLostError, UnwritableError


class HeldLock(Protocol):
    """Lock of the log directory, as ``krepair.logdir.lock`` returns it."""

    def check(self) -> None:
        """Raise ``LockedError`` or ``RefusedError`` if the lock is lost."""


class SafePoints:
    """Requests to stop, which take effect only between two groups."""

    def __init__(self) -> None:
        self.requested = ""

    def request(self, why: str) -> None:
        """Request a stop at the next safe point."""
        self.requested = why

    def check(self) -> None:
        """Raise if a stop was requested.

        Raises:
            InterruptedAtSafePointError: a stop was requested.
        """
        if self.requested:
            message = (
                f"stopped by {self.requested} between two groups; run the same command again to continue"
            )
            raise InterruptedAtSafePointError(message)


@contextlib.contextmanager
def signals_wait(safe_points: SafePoints) -> Iterator[SafePoints]:
    """Turn SIGINT and SIGTERM into requests to stop at the next safe point, while open.

    Outside the main thread signals cannot be caught, so nothing is changed there.
    """

    def ask(number: int, frame: FrameType | None) -> None:
        safe_points.request(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield safe_points
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield safe_points
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Guards:
    """Checks before each change.

    Attributes:
        lock: held lock of the log directory.
        safe_points: requests to stop.
        watch: guards of the log directory, shared by all partitions; None if each partition searches for guards itself.
        begun: True once this run has changed a file.
        settled: True if one sync of the file system replaced the syncs of earlier runs' work folders (``settle``).
        not_given_back: partition folders whose guard was lifted without restoring the marker, see ``Fence.lift``.
        taken_back: recovery guards and unfinished changes of earlier runs that this run rolled back.
        number: function that returns the number for a new journal, see ``JournalHeader``.
        judge: function that checks indexes written by another program, see ``visited.Judge``.
        keep_plan: function that writes the copy of the plan into an existing work folder.
    """

    lock: HeldLock
    safe_points: SafePoints
    watch: Watch | None = None
    begun: bool = False
    settled: bool = False
    not_given_back: list[str] = field(default_factory=list)
    taken_back: list[str] = field(default_factory=list)
    number: Callable[[], int] = lambda: 0
    judge: Callable[[PartitionFolder, Sequence[str]], str] = lambda folder, names: ""
    keep_plan: Callable[[PartitionFolder], None] = lambda folder: None

    def check(self) -> None:
        """Check that nobody requested a stop and that the lock is still held."""
        self.safe_points.check()
        self.hold()

    def hold(self) -> None:
        """Check that the lock is still held.

        Raises:
            LockLostError: the lock is lost or could not be checked; the caller must not change anything more.
        """
        try:
            self.lock.check()
        except KrepairError as error:
            before = None if self.begun else error.exit_code
            raise LockLostError(f"{error.message}; nothing more is changed", before=before) from error

    def settle(self, folders: Sequence[PartitionFolder]) -> None:
        """Sync the whole file system once, instead of every folder, if earlier runs left many work folders.

        Call this once, before the first of these work folders is opened.

        Raises:
            UnwritableError: the sync failed.
        """
        begun = [folder for folder in folders if folder.was_begun()]
        if len(begun) * SYNCED_WHEN_OPENED < medium.MANY:
            return
        first = begun[0]
        try:
            self.settled = first.disk.sync_file_system(first.log_dir, [folder.path for folder in begun])
        except OSError as error:
            message = f"{error.filename or first.log_dir}: {error.strerror}; nothing was changed"
            raise UnwritableError(message) from error
