"""What a kind of change tells the plan layer: one interface, implemented once per kind in the modules beside it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from krepair.plan.actions.fate import Fate
from krepair.plan.actions.listing import Listing
from krepair.plan.facts import PartitionFacts
from krepair.plan.model import Change, FileFingerprint, SourceSegment
from krepair.plan.objection import Objection

ROUNDING_BYTES: Final = 4096
"""What a new file may take beyond its size: one block."""

REMOVAL_BYTES: Final = 1024
"""What removing a file takes: its two records in the journal and a folder entry for the kept one."""

EVERY_REPLICA: Final = "every-replica"
LAGGING_REPLICA: Final = "lagging-replica"
LATE_READERS: Final = "late-readers"
ANOTHER_REPLICA: Final = "another-replica"

ChangeT_contra = TypeVar("ChangeT_contra", contravariant=True)


class Touched(NamedTuple):
    """What a change touches in the partition folder.

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
    """What a change costs and frees, in bytes.

    Attributes:
        made: its new files take so much, at most.
        taken_out: the files that it takes out of the folder have so much.
        peak: needed on top while it is applied, each new file rounded up to a block.
        log_shrinks: the ``.log`` files of the partition lose so much; negative if they grow.
        logs_out: of ``taken_out``, what logs have: it is certain to get free with them. An index may be mostly a hole.
    """

    made: int
    taken_out: int
    peak: int
    log_shrinks: int
    logs_out: int = 0


class Work(NamedTuple):
    """What has to be read for a change, in bytes.

    Attributes:
        stage: of the partition's logs, to make the new files.
        verify: of the new logs, to verify them once.
        apply: in all of apply, every second reading counted. The estimate of a plan is made from it.
    """

    stage: int
    verify: int
    apply: int


class LogEffect(NamedTuple):
    """What a change takes out of the logs of a partition that a reader could see.

    Attributes:
        segments: base offsets of segments that go whole.
        ranges: base offset -> (size of its log before, ranges of bytes that go, ascending).
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


class Action(Protocol[ChangeT_contra]):
    """One kind of change, as a plan prices, reviews and shows it. Pure: nothing is read but the plan.

    A new kind must say everything that is abstract here. The rest has an answer that is right for most kinds.

    Attributes:
        listing: the table of the page that its rows go into; None if it has none of its own.
        in_order: whether its files are swapped in the plan's order of renames, under its fence if it has one.
    """

    listing: Listing | None = None
    in_order: bool = False

    # -- what it does

    def by_itself(self, change: ChangeT_contra) -> bool:
        """Whether it can be staged, verified and freed before the changes behind it in its partition are begun."""
        del change
        return False

    def has_originals(self, change: ChangeT_contra) -> bool:
        """Whether it takes bytes out of the folder. What takes out none costs nothing to keep, and stays undoable."""
        del change
        return True

    @abstractmethod
    def touches(self, change: ChangeT_contra) -> Touched:
        """The segments and files that it touches. No file may be touched by two changes of a plan."""

    def may_move_log_end(self, change: ChangeT_contra, bases: Sequence[int]) -> bool:
        """Whether the log may end at another offset afterwards.

        Args:
            change: the change.
            bases: base offsets of all segments of the partition, ascending.
        """
        return False

    def log_effect(self, change: ChangeT_contra) -> LogEffect:
        """What it takes out of the logs. Compaction takes out nothing that a reader could see."""
        return LogEffect()

    def trusts(self, change: ChangeT_contra) -> frozenset[tuple[str, int]]:
        """Partitions (topic, number) of which a start reads less once it is made.

        It is made after everything else of them, and only of those of which everything else is made; and it is taken
        back before anything else of them.
        """
        return frozenset()

    def new_offsets(self, change: ChangeT_contra) -> Iterator[tuple[str, int, int]]:
        """Topic, number and new offset of each line of a checkpoint that stays or comes in."""
        return iter(())

    # -- what it costs

    @abstractmethod
    def space(self, change: ChangeT_contra, sizes: Mapping[str, int]) -> Space:
        """The space that it takes and frees.

        Args:
            change: the change.
            sizes: of the partition's files, by name.
        """

    @abstractmethod
    def work(self, change: ChangeT_contra) -> Work:
        """The bytes that have to be read for it."""

    def with_figures(self, change: ChangeT_contra, sizes: Mapping[str, int]) -> Change:
        """The change with those of its fields filled in that follow from the others."""
        return change  # type: ignore[return-value]

    def sources(self, change: ChangeT_contra) -> tuple[SourceSegment, ...]:
        """The segments whose batches it decides about, with the tallies of what stays and what is removed."""
        return ()

    def risks(self, change: ChangeT_contra) -> tuple[str, ...]:
        """Codes of the risks that a plan with this change has to tell."""
        return ()

    # -- what speaks against it

    @abstractmethod
    def review(self, facts: PartitionFacts, change: ChangeT_contra) -> Iterator[Objection]:
        """Everything that speaks against this one change."""

    def review_all(self, facts: PartitionFacts, changes: Sequence[ChangeT_contra]) -> Iterator[Objection]:
        """Everything that speaks against all changes of this kind in one partition together.

        Args:
            facts: of the partition.
            changes: in the plan's order, at least one.
        """
        return iter(())

    def review_in_root(self, change: ChangeT_contra, file: FileFingerprint) -> Iterator[Objection]:
        """Everything that speaks against this one change of a file in the root.

        Args:
            change: the change.
            file: its fingerprint.
        """
        yield Objection("RV28", ".", "a change of this kind is not made in the root")

    # -- how it is shown

    @abstractmethod
    def summary(self, changes: Sequence[ChangeT_contra]) -> Iterator[str]:
        """One line or two for the reader: what all changes of this kind in a plan do together.

        Args:
            changes: of all partitions and the root, at least one.
        """

    def fate(self, change: ChangeT_contra, sizes: Mapping[str, int]) -> Fate:
        """What becomes of the segments that it touches, for the pictures of a page.

        Args:
            change: the change.
            sizes: of the partition's files, by name.
        """
        return Fate({}, {})

    def file_bytes(self, change: ChangeT_contra) -> tuple[int, int] | None:
        """Bytes before and after of a file beside the logs; None of a log, and where the plan does not know them."""
        return None

    def trimmed(self, change: ChangeT_contra) -> Trimmed | None:
        """What it cuts off the end of a derived file; None if it cuts none."""
        return None

    def rows(self, change: ChangeT_contra) -> Iterator[tuple[str, ...]]:
        """Its rows in the table ``listing``."""
        return iter(())
