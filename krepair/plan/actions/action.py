"""The interface of a kind of change for the plan layer. Each kind implements it in a module of this package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from krepair.checks.catalogue import RULES
from krepair.plan.actions.listing import Listing
from krepair.plan.actions.log_contents import Fate
from krepair.plan.facts import OnDisk, PartitionFacts
from krepair.plan.model import Change, FileFingerprint, SourceSegment
from krepair.plan.objection import Objection

ROUNDING_BYTES: Final = 4096
"""Bytes that a new file may need beyond its size: one block."""

REMOVAL_BYTES: Final = 1024
"""Bytes that the removal of a file needs: two records in the journal, and a folder entry for the kept file."""

EVERY_REPLICA: Final = "every-replica"
LAGGING_REPLICA: Final = "lagging-replica"
LATE_READERS: Final = "late-readers"
ANOTHER_REPLICA: Final = "another-replica"
OTHERS_HAVE: Final = "others-have"

ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)


class Touched(NamedTuple):
    """The files of the partition folder that a change touches.

    Attributes:
        segments: base offsets of the segments whose ``.log`` it changes, replaces or takes out, ascending.
        makes: names of the files that hold its bytes afterwards, whether or not they were there before.
        removes: names of the files that are gone afterwards. One that was never there does no harm.
    """

    segments: tuple[int, ...]
    makes: tuple[str, ...]
    removes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every file that the change touches, each once."""
        return tuple(dict.fromkeys((*self.makes, *self.removes)))


class Space(NamedTuple):
    """What a change costs and frees: bytes of blocks on the disk, but for ``log_shrinks``.

    Attributes:
        made: what its new files take at most.
        back: what is free once its originals are gone.
        peak: what it needs on top while it is applied.
        log_shrinks: bytes that the ``.log`` files of the partition lose; negative if they grow.
        kept_anew: what keeping its originals takes besides ``made``: bytes that are kept as a copy.
    """

    made: int
    back: int
    peak: int
    log_shrinks: int
    kept_anew: int = 0


class BytesRead(NamedTuple):
    """What has to be read for a change, in bytes.

    Attributes:
        stage: bytes of the partition's logs, read to make the new files.
        verify: bytes of the new logs, read to verify them once.
        apply: all bytes that apply reads, with every second reading. The estimate of a plan is made from it.
    """

    stage: int = 0
    verify: int = 0
    apply: int = 0


class LogEffect(NamedTuple):
    """The bytes that a change removes from the logs of a partition and that a reader could see.

    Attributes:
        segments: base offsets of segments that are removed as a whole.
        ranges: base offset -> (size of its log before, ranges of removed bytes, ascending).
    """

    segments: tuple[int, ...] = ()
    ranges: Mapping[int, tuple[int, tuple[tuple[int, int], ...]]] = {}


class Trimmed(NamedTuple):
    """The end of a derived file that is cut off.

    Attributes:
        name: of the file.
        left: bytes that stay.
        cut: bytes that are cut off.
    """

    name: str
    left: int
    cut: int


class PlannedAction(Protocol[ChangeT_contra]):
    """The costs, the review and the display of one kind of change. Pure: it reads only the plan.

    A new kind must implement all abstract methods. The other methods have results that are right for most kinds.

    Attributes:
        kind: the struct of its changes.
        listing: the table of the page for its rows; None if it has none.
        in_order: whether its files are swapped in the plan's order of renames, under the plan's fence if it has one.
    """

    kind: type[Change]
    listing: Listing | None = None
    in_order: bool = False

    # -- what it does

    def fix(self, change: ChangeT_contra) -> str:
        """Name of the fix that makes its bytes and proves them: the one that mends what its rules find."""
        return RULES[self.mends(change)[0]].fix

    def by_itself(self, change: ChangeT_contra) -> bool:
        """Whether it can be staged, verified and freed before the next changes of its partition begin."""
        return False

    def has_originals(self, change: ChangeT_contra) -> bool:
        """Whether it moves bytes out of the folder. If not, keeping costs nothing, and it can always be undone."""
        return True

    @abstractmethod
    def touches(self, change: ChangeT_contra) -> Touched:
        """The segments and files that it touches. Two changes of a plan must not touch the same file."""

    def may_move_log_end(self, change: ChangeT_contra, bases: Sequence[int]) -> bool:
        """Whether the log may end at another offset afterwards.

        Args:
            change: the change.
            bases: base offsets of all segments of the partition, ascending.
        """
        return False

    def log_effect(self, change: ChangeT_contra) -> LogEffect:
        """The bytes that it removes from the logs and that a reader could see. Compaction removes none."""
        return LogEffect()

    def lost_inside(self, change: ChangeT_contra) -> Iterator[tuple[int, int]]:
        """(first offset, offset after the last one) of records that it takes out of the middle of a log as damaged."""
        return iter(())

    def trusts(self, change: ChangeT_contra) -> frozenset[tuple[str, int]]:
        """Partitions (topic, number) of which a start reads less after this change.

        Such a change is made last, and only for partitions whose other changes are all made. It is taken back first.
        """
        return frozenset()

    def new_offsets(self, change: ChangeT_contra) -> Iterator[tuple[str, int, int]]:
        """(topic, number, new offset) of each line of a checkpoint that is changed or added."""
        return iter(())

    # -- what it costs

    @abstractmethod
    def space(self, change: ChangeT_contra, on_disk: OnDisk) -> Space:
        """The space that it needs and frees.

        Args:
            change: the change.
            on_disk: what the files of the partition take.
        """

    def work(self, change: ChangeT_contra) -> BytesRead:
        """The bytes that must be read for it. Small files are not counted, nor is what is read with other files."""
        return BytesRead()

    def sources(self, change: ChangeT_contra) -> tuple[SourceSegment, ...]:
        """The segments whose batches it decides about, with their tallies."""
        return ()

    def risks(self, change: ChangeT_contra) -> tuple[str, ...]:
        """Codes of the risks that a plan with this change must state."""
        return ()

    def mends(self, change: ChangeT_contra) -> tuple[str, ...]:
        """Codes of the findings that it mends; none where it only makes room."""
        return ()

    # -- what speaks against it

    @abstractmethod
    def review(self, facts: PartitionFacts, change: ChangeT_contra) -> Iterator[Objection]:
        """All objections to this change."""

    def review_all(self, facts: PartitionFacts, changes: Sequence[ChangeT_contra]) -> Iterator[Objection]:
        """All objections to the changes of this kind in one partition together.

        Args:
            facts: facts of the partition.
            changes: changes in the order of the plan, at least one.
        """
        return iter(())

    def review_in_root(self, change: ChangeT_contra, file: FileFingerprint) -> Iterator[Objection]:
        """All objections to this change of a file in the root.

        Args:
            change: the change.
            file: its fingerprint.
        """
        yield Objection("RV28", ".", "a change of this kind is not made in the root")

    # -- how it is shown

    @abstractmethod
    def summary(self, changes: Sequence[ChangeT_contra]) -> Iterator[str]:
        """One or two lines for the reader: what all changes of this kind in a plan do together.

        Args:
            changes: changes of all partitions and the root, at least one.
        """

    def goes(self, changes: Sequence[ChangeT_contra]) -> Iterator[str]:
        """The same in a few words each, for the short page; nothing where the batches that go are told."""
        return iter(())

    def records_lost(self, change: ChangeT_contra) -> int:
        """Records that go as damaged; -1 where their number is not known."""
        return 0

    def fate(self, change: ChangeT_contra, sizes: Mapping[str, int]) -> Fate:
        """The logs of the segments that it touches, before and after, for the pictures of a page.

        Args:
            change: the change.
            sizes: sizes of the partition's files, by name.
        """
        return Fate({}, {})

    def file_bytes(self, change: ChangeT_contra) -> tuple[int, int] | None:
        """Bytes before and after, for a file that is not a log; None for a log, or if the plan does not have them."""
        return None

    def trimmed(self, change: ChangeT_contra) -> Trimmed | None:
        """The end that it cuts off a derived file; None if it cuts nothing."""
        return None

    def rows(self, change: ChangeT_contra) -> Iterator[tuple[str, ...]]:
        """Its rows in the table ``listing``."""
        return iter(())
