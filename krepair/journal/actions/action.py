"""What a kind of change tells the journal: one interface, implemented once per kind in the modules beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

from krepair.errors import KrepairError
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState, Intent, Order
from krepair.plan.model import Change, FileFingerprint, PartitionPlan

ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)


class StagedGroup(NamedTuple):
    """How the staged files of a rewritten group are known until they are read for the last time.

    Attributes:
        parts: (bytes, CRC-32C) of what each source gave to the new ``.log``, in order.
        made: name -> 32 hex digits over the bytes of each new index.
    """

    parts: tuple[tuple[int, int], ...] = ()
    made: Mapping[str, str] = {}


@dataclass(frozen=True)
class Target:
    """The partition in which a change is carried out.

    Attributes:
        folder: the partition folder.
        partition: its part of the plan.
        order: of the renames of a swap.
        staged: change id -> how the staged files of a rewritten group are known.
    """

    folder: PartitionFolder
    partition: PartitionPlan
    order: Order
    staged: Mapping[str, StagedGroup] = field(default_factory=dict)

    @cached_property
    def planned(self) -> Mapping[str, FileFingerprint]:
        """Fingerprints of the partition's files as they were planned, by name."""
        return self.partition.by_name


class KeptFile(NamedTuple):
    """An original that undo would put back.

    Attributes:
        path: relative to the partition folder.
        original: as it was when it was kept.
        plain: whether its digest is the plan's, over the bytes one by one: of bytes that were cut.
    """

    path: str
    original: FileState
    plain: bool = False


class Came(NamedTuple):
    """How far a number of changes came.

    Attributes:
        done: so many of them, from the first on, are done, durably.
        error: what stopped the next one, or None.
    """

    done: int
    error: KrepairError | OSError | None = None


class JournalAction(Protocol[ChangeT_contra]):
    """One kind of change, carried out and taken back. Every call may be repeated after a crash at any instant.

    A new kind must say everything that is abstract here. The rest has an answer that is right for most kinds.

    Attributes:
        kind: the struct of its changes.
        fenced: whether the fence is up meanwhile; else it is down.
        together: whether neighbouring changes of this kind are carried out at once, behind one set of barriers. Each
            is still committed, or not, by itself.
    """

    kind: type[Change]
    fenced: bool = False
    together: bool = False

    # -- before

    def check_before(self, target: Target, changes: Sequence[ChangeT_contra]) -> None:
        """Checks, before anything is staged for changes that are carried out together, that they are not stale.

        Nothing is checked where ``begin`` looks at every file anyway.

        Raises:
            StalePlanError: a file changed, came or went since the plan was made; the message names it.
        """
        return

    @abstractmethod
    def begin(self, target: Target, change: ChangeT_contra) -> Intent:
        """The intent of a change, once every file is found as it was planned.

        Raises:
            StalePlanError: a file changed, came or went since the plan was made; the message names it.
            RefusedError: a staged file is missing or is not the plan's.
            OSError: a file could not be looked at.
        """

    # -- forward

    @abstractmethod
    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether an interrupted change is committed, or has all that it needs to be.

        Raises:
            StalePlanError: it can neither go on nor be taken back: somebody else wrote one of its files.
        """

    @abstractmethod
    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether a change has passed its commit: then undo takes it back, and ``forget`` no longer does."""

    @abstractmethod
    def go_on(self, folder: PartitionFolder, intent: Intent) -> None:
        """Carries a change out, or continues it.

        Raises:
            StalePlanError: a file is neither an original nor one of ours.
            OSError: a call failed.
        """

    def go_on_all(self, folder: PartitionFolder, intents: Sequence[Intent]) -> Came:
        """Carries out changes that belong together; more than one only where ``together`` says so.

        Raises:
            KrepairError, OSError: it is not known how far they came.
        """
        for intent in intents:
            self.go_on(folder, intent)
        return Came(len(intents))

    def has_more(self, folder: PartitionFolder, change: ChangeT_contra, intent: Intent) -> bool:
        """Whether a committed change left some of its work undone, which another run may do.

        Raises:
            OSError: a file could not be read.
        """
        return False

    def continued(self, earlier: Intent, intent: Intent) -> Intent:
        """The intent of such another run: undo goes back to before the first one.

        Args:
            earlier: what is committed.
            intent: as ``begin`` made it of the files as they are now.
        """
        return intent

    # -- back

    @abstractmethod
    def forget(self, folder: PartitionFolder, intent: Intent) -> None:
        """Takes back a change that has not passed its commit: every file is as before."""

    def forget_all(self, folder: PartitionFolder, intents: Sequence[Intent]) -> None:
        """As ``forget``, of changes that belong together."""
        for intent in intents:
            self.forget(folder, intent)

    @abstractmethod
    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Whether any of the originals is in its place: of a committed change a sign that an undo was begun."""

    def is_given_back(self, folder: PartitionFolder, intent: Intent, kept: str) -> bool:
        """Whether a file of this name in ``keep/`` holds only what is in its place again, under no link of it."""
        return False

    @abstractmethod
    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Checks, before the first step of an undo, that nobody wrote since and that the originals can come back.

        Args:
            folder: the partition folder.
            intent: of the change.
            state: ``committed``, ``committing`` (half done) or ``undoing`` (half undone).

        Raises:
            StalePlanError: somebody wrote a file, or an original is gone; the message names it.
        """

    def check_log_ends_before(
        self, folder: PartitionFolder, intent: Intent, planned: Mapping[str, FileFingerprint]
    ) -> None:
        """Checks, before an undo brings back the end of a log, that nobody has gone on with the log without it.

        Args:
            folder: the partition folder.
            intent: of the change.
            planned: fingerprints of the plan, by name.

        Raises:
            StalePlanError: a log lies behind what would come back, or the one before it is not as the plan knew it.
        """
        return

    @abstractmethod
    def undo(self, folder: PartitionFolder, intent: Intent, order: Order) -> None:
        """Puts the originals back, or continues to."""

    def undo_all(self, folder: PartitionFolder, intents: Sequence[Intent], order: Order) -> Came:
        """As ``undo``, of changes that belong together.

        Raises:
            KrepairError, OSError: it is not known how far they came.
        """
        for intent in intents:
            self.undo(folder, intent, order)
        return Came(len(intents))

    # -- what it has and what it makes

    @abstractmethod
    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """The originals that undo would put back; those that are in their places already are not among them."""
