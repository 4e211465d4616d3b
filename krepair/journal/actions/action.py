"""What a kind of change tells the journal: one interface, implemented once per kind in the modules beside it."""

from __future__ import annotations

import shlex
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


class Found(NamedTuple):
    """The files of a partition, as a plan knows them and as they are.

    Attributes:
        planned: fingerprints of the plan, by name.
        here: the files that were looked at, by name; None where there is none.
    """

    planned: Mapping[str, FileFingerprint]
    here: Mapping[str, FileState | None]


class JournalAction(Protocol[ChangeT_contra]):
    """One kind of change, carried out and taken back. Every call may be repeated after a crash at any instant.

    A new kind must say everything that is abstract here. The rest has an answer that is right for most kinds.

    Attributes:
        kind: the struct of its changes.
        fenced: whether the fence is up meanwhile; else it is down.
        together: whether neighbouring changes of this kind are carried out at once, behind one set of barriers. Each
            is still committed, or not, by itself.
        after_fences: whether it waits until the fences of all partitions are down.
        at_log_end: whether it may take the end of a log away, or make a new one.
        crc_told: whether every batch of its originals had a right CRC when the plan was made.
    """

    kind: type[Change]
    fenced: bool = False
    together: bool = False
    after_fences: bool = False
    at_log_end: bool = False
    crc_told: bool = False

    # -- before

    def recovers_from(self, change: ChangeT_contra) -> int | None:
        """Of a fenced change the offset from which a broker that is started meanwhile must recover; else None."""
        return None

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

    # -- without a journal

    @abstractmethod
    def names_by_hand(
        self, change: ChangeT_contra, planned: Mapping[str, FileFingerprint]
    ) -> tuple[str, ...]:
        """Every name in the partition folder under which an original or a new file of a change can be."""

    @abstractmethod
    def is_ours(
        self,
        folder: PartitionFolder,
        planned: Mapping[str, FileFingerprint],
        change: ChangeT_contra,
        name: str,
    ) -> bool:
        """Whether the file that has such a name may give way: the change made it, or a broker can make it anew.

        Raises:
            OSError: it cannot be read.
        """

    def lines_by_hand(
        self, folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: ChangeT_contra
    ) -> Sequence[str]:
        """What is typed for a file that no renaming brings back.

        Raises:
            StalePlanError: it cannot come back.
            OSError: it cannot be read.
        """
        return ()

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

    @abstractmethod
    def told_by(self, change: ChangeT_contra) -> tuple[str, ...]:
        """Names of the files that tell, where there is no journal, whether a change was made; at least one."""

    def is_planned(self, folder: PartitionFolder, change: ChangeT_contra, found: Found) -> bool:
        """Whether every file that tells of it is still the one that the plan was made of.

        A file made anew may have the old one's size and time: what it holds tells.
        """
        return are_as_planned(found) and not self.is_made(folder, change, found)

    @abstractmethod
    def is_made(self, folder: PartitionFolder, change: ChangeT_contra, found: Found) -> bool:
        """Whether the files that ``told_by`` names are as the change makes them.

        Args:
            folder: the partition folder.
            change: the change.
            found: these files as they were planned and as they are.

        Raises:
            OSError: a file could not be looked at.
        """


def move_line(source: str, target: str) -> str:
    """What a person types to rename a file."""
    return f"mv {shlex.quote(source)} {shlex.quote(target)}"


def are_as_planned(found: Found) -> bool:
    """Whether all files have the size and time of the plan, and those that were not there are not."""
    return all(
        (None if here is None else (here.size, here.mtime_ns))
        == (None if plan is None else (plan.size, plan.mtime_ns))
        for name, here in found.here.items()
        for plan in (found.planned.get(name),)
    )
