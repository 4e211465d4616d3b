"""Define the interface that carries changes out and takes them back.

Files become other files (``change_files.py``); a log loses bytes (``mend.py``); segments are swapped, or a
broker's swap is finished (``segments.py``). They know what a change began with, and not its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import FileState, Intent
from krepair.errors import KrepairError


class KeptFile(NamedTuple):
    """An original that undo would put back.

    Attributes:
        path: relative to the partition folder.
        original: state of the file when it was kept.
        plain: whether its digest is the plan's, over the bytes one by one: of bytes that were cut.
    """

    path: str
    original: FileState
    plain: bool = False


class ExecutionResult(NamedTuple):
    """Result of carrying several changes out, or taking them back.

    Attributes:
        done: number of changes, from the first on, that are durably done.
        error: what stopped the next one, or None.
    """

    done: int
    error: KrepairError | OSError | None = None


class Executor(ABC):
    """Interface that carries changes out and takes them back; every call may be repeated after any crash.

    Changes of whole files come several at once, if they belong together; every other one comes by itself.

    Attributes:
        fenced: True if the fence is up during the change, else it is down.
    """

    fenced: ClassVar[bool] = False

    # -- forward

    @abstractmethod
    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted change is committed, or has all that it needs to be committed.

        Raises:
            StalePlanError: it can neither go on nor be taken back: somebody else wrote one of its files.
        """

    @abstractmethod
    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether a change has passed its commit; its rollback then needs a record of its own."""

    @abstractmethod
    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Carry changes out, or resume them.

        Raises:
            StalePlanError: a file is neither an original nor one of ours.
            KrepairError, OSError: it is not known how far they came.
        """

    # -- back

    @abstractmethod
    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an original is in its place, which shows that an undo of a committed change was begun."""

    @abstractmethod
    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check, before the first step of an undo, that nothing was written since and the originals can come back.

        Args:
            state: ``committed``, ``committing`` (half done) or ``undoing`` (half undone).

        Raises:
            StalePlanError: somebody wrote a file, or an original is gone; the message names it.
        """

    @abstractmethod
    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Make every file what it was before the changes, or resume doing so.

        Args:
            committed: True if the changes have ever passed their commit. If not, a file that is neither in its place
                nor kept was removed by a broker.

        Raises:
            KrepairError, OSError: it is not known how far they came.
        """

    # -- what it has and what it makes

    @abstractmethod
    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Return the originals that undo would put back, without those already in their places."""
