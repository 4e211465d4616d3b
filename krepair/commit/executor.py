"""Interface of executors, which carry changes out and undo them.

There are three modules of executors: for whole files that are replaced (``change_files.py``), for logs that lose bytes
(``mend.py``), and for segments that are swapped and brokers' swaps that are completed (``segments.py``). An executor
works from a change's intent record, not from the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import FileState, Intent
from krepair.errors import KrepairError


class KeptFile(NamedTuple):
    """Original that undo would restore.

    Attributes:
        path: path of the backup, relative to the partition folder.
        original: state of the file when krepair kept this file.
        plain: True for bytes that were cut from a log; their digest comes from ``digest_file``, not ``digest_content``.
    """

    path: str
    original: FileState
    plain: bool = False


class ExecutionResult(NamedTuple):
    """Result of carrying out or undoing several changes.

    Attributes:
        done: number of leading changes that are durably done.
        error: error that stopped the next change, or None.
    """

    done: int
    error: KrepairError | OSError | None = None


class Executor(ABC):
    """Interface of executors; every call may be repeated after any crash.

    One call may receive several changes of whole files that share their syncs; any other change is passed alone.

    Attributes:
        fenced: True if the recovery guard is up during the change.
    """

    fenced: ClassVar[bool] = False

    # -- forward

    @abstractmethod
    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted change is committed, or still has every file that the commit needs.

        Raises:
            StalePlanError: the change can neither be resumed nor be undone: another program wrote one of its files.
        """

    @abstractmethod
    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether a change has passed its commit; after the commit a rollback needs its own ``Undo`` record."""

    @abstractmethod
    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Carry changes out, or resume them.

        Raises:
            StalePlanError: a file is neither an original nor one of krepair's own.
            KrepairError, OSError: none of the changes counts as done.
        """

    # -- back

    @abstractmethod
    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an original is in its place, which shows that an undo of the committed change was begun."""

    @abstractmethod
    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check, before an undo begins, that no file was written since apply and all originals can be restored.

        Args:
            state: ``committed``, ``committing`` (interrupted) or ``undoing`` (undo interrupted).

        Raises:
            StalePlanError: another program wrote a file, or an original is gone; the message names it.
        """

    @abstractmethod
    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Restore every file as it was before the changes, or resume an interrupted undo.

        Args:
            committed: True if the changes have ever passed their commit. If False, a broker removed every original that
                is neither in its place nor kept.

        Raises:
            KrepairError, OSError: none of the changes counts as undone.
        """

    # -- backups

    @abstractmethod
    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Return the originals that undo would restore, except those already in their places."""
