"""The differences between the loaders of the versions, as far as they decide what a start does; how loading fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from krepair.formats.broker_version import LATEST_TRIED, VersionNumber
from krepair.formats.filenames import offset_name

JUDGED_VERSIONS: tuple[VersionNumber, ...] = ((2, 2, 1), (2, 8, 2), (3, 9, 2), LATEST_TRIED)
"""Versions whose loader classes were compared with the forecast, for many kinds of damage."""


class Behaviour(NamedTuple):
    """The behaviour of one version.

    Attributes:
        checks_indexes: it opens all offset and time indexes, makes missing ones, and recovers a segment whose index
            contradicts itself. Later versions (KAFKA-7283) only recover a segment without an offset index.
        fences_producers: it throws if a marker has an older producer or coordinator epoch (until KAFKA-7502).
        drops_producers_below_start: when it loads a snapshot, it drops producers whose last batch is below the log
            start (until KAFKA-8483, KIP-360).
        completes_empty_transactions: a marker without data before it counts as the end of a transaction, and an abort
            marker then gets an entry in the transaction index (until KAFKA-10702).
        lists_snapshots_each_time: it lists the snapshots on the disk each time. Later versions (KAFKA-9393) remember
            them, and remove snapshots that belong to no segment or to a deleted one.
        looks_in_one_segment: it looks up the first offset of a transaction only in its own segment, and throws if
            nothing is left there. It looks for an end only behind the beginning. Later versions (2.4) go on to the next
            segment.
        needs_first_unstable_offset: it throws if the first offset of an open transaction is past the log end.
        searches_by_first_offset: it looks up a batch by first offsets, and opens all wrappers of v0 and v1 on the way
            (since KAFKA-18989). Earlier versions take the first batch whose last offset is high enough.
        reads_whole_txn_version: of the version of an entry of a transaction index it reads both bytes, and throws if it
            is not 0 (4.4). Earlier versions read the first one, and throw if it is above 0.
        renames_swaps_first: it renames all swaps, as they are, before it loads a segment, and deletes what lies between
            the first and the last of them (since KAFKA-12520, 3.0). Earlier versions delete the indexes of a base
            offset that has a swap, load the segments, and then recover each swap and put it in their place.
    """

    checks_indexes: bool
    fences_producers: bool
    drops_producers_below_start: bool
    completes_empty_transactions: bool
    lists_snapshots_each_time: bool
    looks_in_one_segment: bool
    needs_first_unstable_offset: bool
    searches_by_first_offset: bool
    reads_whole_txn_version: bool
    renames_swaps_first: bool


def behaviour_of(version: VersionNumber) -> Behaviour:
    """The behaviour of a version.

    Source: Log, LogSegment, ProducerStateManager in the branches 2.2 to 2.8; LogLoader, UnifiedLog (3.0, 3.9, 4.3);
    FileRecords (4.3).
    """
    return Behaviour(
        checks_indexes=version < (2, 3, 0),
        fences_producers=version < (2, 3, 0),
        drops_producers_below_start=version < (2, 4, 0),
        completes_empty_transactions=version < (2, 8, 0),
        lists_snapshots_each_time=version < (2, 8, 0),
        looks_in_one_segment=version < (2, 4, 0),
        needs_first_unstable_offset=version < (3, 8, 0),
        searches_by_first_offset=version >= (4, 1, 0),
        reads_whole_txn_version=version >= (4, 4, 0),
        renames_swaps_first=version >= (3, 0, 0),
    )


class Broker(NamedTuple):
    """A broker that may start.

    Attributes:
        version: of it.
        behaviour: of its version.
        expiry_ms: how long after its last batch it forgets a producer, in ms.
    """

    version: VersionNumber
    behaviour: Behaviour
    expiry_ms: int


Question = Callable[[Broker], bool]


class BrokersPartError(Exception):
    """Brokers that are played together do not do the same here. Each group is to be played by itself.

    Attributes:
        groups: the brokers, by what they do.
    """

    def __init__(self, groups: tuple[Brokers, ...]) -> None:
        super().__init__()
        self.groups = groups


class Brokers(NamedTuple):
    """Brokers of several versions, whose start is played once for all while they do the same.

    A play asks what its brokers do only where that makes a difference. As long as all give the same answer, the play of
    each one alone would be the same, step by step.
    """

    members: tuple[Broker, ...]

    def agree(self, question: Question) -> bool:
        """Whether all give the same answer."""
        return len({question(one) for one in self.members}) == 1

    def may(self, question: Question) -> bool:
        """Whether any of them does it."""
        return any(question(one) for one in self.members)

    def do(self, question: Question) -> bool:
        """What all of them do.

        Raises:
            BrokersPartError: they do not do the same.
        """
        if not self.agree(question):
            self.part(question)
        return question(self.members[0])

    def part(self, question: Question) -> NoReturn:
        """Part them by what they do.

        Raises:
            BrokersPartError: always.
        """
        sides = (
            tuple(one for one in self.members if question(one)),
            tuple(one for one in self.members if not question(one)),
        )
        raise BrokersPartError(tuple(Brokers(side) for side in sides))


class _FileError(Exception):
    """What a file causes.

    Attributes:
        file: its name.
        text: what the broker finds there.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class StartFailsError(_FileError):
    """An exception that no version catches: the log is not loaded, and the broker does not start."""


class CorruptRecordError(_FileError):
    """``CorruptRecordException`` or ``InvalidRecordException``: a recovery truncates the log, another read fails."""


class CorruptIndexError(Exception):
    """``CorruptIndexException``: the segment is recovered."""


class InvalidOffsetError(_FileError):
    """``InvalidOffsetException``: an index entry would have a lower offset than the one before."""


class OffsetOverflowError(Exception):
    """``LogSegmentOffsetOverflowException``: an offset that does not fit the base offset of its segment."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(offset_name(base_offset))
        self.base_offset = base_offset
