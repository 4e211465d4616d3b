"""Differences between the loaders of Kafka's versions that matter to a start, and the errors that end loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from krepair.formats.broker_version import LATEST_TRIED, VersionNumber
from krepair.formats.filenames import offset_name

JUDGED_VERSIONS: tuple[VersionNumber, ...] = ((2, 2, 1), (2, 8, 2), (3, 9, 2), LATEST_TRIED)
"""Versions whose loader classes were compared with the forecast for many kinds of damage."""


class Behaviour(NamedTuple):
    """Behaviour of one version's loader.

    Attributes:
        checks_indexes: the loader opens all offset and time indexes, creates missing ones, and recovers a segment whose
            index contradicts itself. Later versions (KAFKA-7283) only recover a segment without an offset index.
        fences_producers: the loader throws if a marker has an older producer or coordinator epoch (until KAFKA-7502).
        drops_producers_below_start: loading a snapshot drops producers whose last batch is below the log start offset
            (until KAFKA-8483, KIP-360).
        completes_empty_transactions: a marker without data before it counts as the end of a transaction, and an abort
            marker then gets an entry in the transaction index (until KAFKA-10702).
        lists_snapshots_each_time: the loader lists the snapshots on the disk each time. Later versions (KAFKA-9393)
            remember them, and remove snapshots that belong to no segment or to a deleted one.
        looks_in_one_segment: the loader looks up the first offset of a transaction only in one segment, and throws if
            no batch follows there. The loader looks for an end only after the beginning. Later versions (2.4) continue
            in the next segment.
        needs_first_unstable_offset: the loader throws if the first offset of an open transaction is past the log end.
        searches_by_first_offset: the loader looks up a batch by first offsets, and opens all wrappers of v0 and v1 on
            the way (since KAFKA-18989). Earlier versions take the first batch whose last offset is high enough.
        reads_whole_txn_version: the loader reads both bytes of a transaction index entry's version, and throws unless
            it is 0 (4.4). Earlier versions read only the first byte, and throw if it is above 0.
        renames_swaps_first: the loader renames all swaps unread before it loads a segment, and deletes the segments
            between the first and the last swap (since KAFKA-12520, 3.0). Earlier versions delete the indexes of a base
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
    """Return the behaviour of a version.

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
    """Broker that may start.

    Attributes:
        version: the broker's Kafka version.
        behaviour: behaviour of that version's loader.
        expiry_ms: milliseconds after its last batch when the broker forgets a producer.
    """

    version: VersionNumber
    behaviour: Behaviour
    expiry_ms: int


Question = Callable[[Broker], bool]


class BrokersPartError(Exception):
    """Error: the brokers of one simulation behave differently here, so each group needs its own simulation.

    Attributes:
        groups: brokers grouped by their behaviour.
    """

    def __init__(self, groups: tuple[Brokers, ...]) -> None:
        super().__init__()
        self.groups = groups


class Brokers(NamedTuple):
    """Brokers of several versions that share one simulation as long as they behave alike.

    The simulation asks for the brokers' behaviour only where it matters. As long as all give the same answer, a
    separate simulation of each broker would be the same, step by step.
    """

    members: tuple[Broker, ...]

    def agree(self, question: Question) -> bool:
        """Return True if all brokers give the same answer."""
        return len({question(broker) for broker in self.members}) == 1

    def may(self, question: Question) -> bool:
        """Return True if any broker answers yes."""
        return any(question(broker) for broker in self.members)

    def do(self, question: Question) -> bool:
        """Return the answer of all brokers.

        Raises:
            BrokersPartError: the brokers give different answers.
        """
        if not self.agree(question):
            self.part(question)
        return question(self.members[0])

    def part(self, question: Question) -> NoReturn:
        """Raise the error that separates the brokers by their answer.

        Raises:
            BrokersPartError: always.
        """
        sides = (
            tuple(broker for broker in self.members if question(broker)),
            tuple(broker for broker in self.members if not question(broker)),
        )
        raise BrokersPartError(tuple(Brokers(side) for side in sides))


class _FileError(Exception):
    """Error that the content of a file causes.

    Attributes:
        file: name of the file.
        text: fault that the broker finds in the file.
    """

    def __init__(self, file: str, text: str) -> None:
        super().__init__(f"{file}: {text}")
        self.file = file
        self.text = text


class StartFailsError(_FileError):
    """Exception that no version catches: the log is not loaded, and the broker does not start."""


class CorruptRecordError(_FileError):
    """``CorruptRecordException`` or ``InvalidRecordException``: a recovery truncates the log, another read fails."""


class CorruptIndexError(Exception):
    """``CorruptIndexException``, after which the loader recovers the segment."""


class InvalidOffsetError(_FileError):
    """``InvalidOffsetException``: an index entry would have a lower offset than the entry before."""


class OffsetOverflowError(Exception):
    """``LogSegmentOffsetOverflowException``: an offset that does not fit the base offset of its segment."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(offset_name(base_offset))
        self.base_offset = base_offset
