"""One replica of a partition: its folder, and what the headers of its log say. Compare and evidence share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.derive.epochs import EPOCH_COLUMNS
from krepair.derive.sums import RANGE_COLUMNS
from krepair.derive.transactions import TRANSACTION_COLUMNS
from krepair.durable.scratch import SpilledRows
from krepair.formats.arrays import Bools, Int64s, Uint64s
from krepair.logdir.view import ReplicaState

# -- two histories: the leader epochs of the batches of two replicas contradict each other
#
# Leader epochs grow with offsets on every replica, and a follower takes over its leader's batches with their epochs.
# The two ``leader-epoch-checkpoint`` files are not held against each other: a leader writes an entry when it takes
# over, a follower only when a batch comes, so they differ between healthy replicas.
#
# Source: LeaderEpochFileCache.assign (4.3.1), AbstractFetcherThread.truncateOnFetchResponse (3.9.2).

START_COLUMNS: Final = 2


class History(NamedTuple):
    """The leader epochs of a replica.

    Attributes:
        runs: int64[N, 3] (epoch, first base offset, last offset) of its batches.
        starts: int64[M, 2] (epoch, start offset) of its ``leader-epoch-checkpoint``.
    """

    runs: Int64s
    starts: Int64s


class Fork(NamedTuple):
    """Where two histories part.

    Attributes:
        offset: the first offset on which they contradict each other.
        epoch: leader epoch of the replica that stayed behind.
        later: epoch of the other one.
        first_is_behind: whether the first replica has the earlier epoch.
    """

    offset: int
    epoch: int
    later: int
    first_is_behind: bool


def find_fork(one: History, other: History) -> Fork | None:
    """Find the first contradiction between two replicas."""
    found = [
        Fork(*contradiction, first_is_behind=first)
        for first, contradiction in (
            (True, _contradiction(one.runs, other.runs, other.starts)),
            (False, _contradiction(other.runs, one.runs, one.starts)),
        )
        if contradiction is not None
    ]
    return min(found, default=None)


def _contradiction(runs: Int64s, other_runs: Int64s, other_file: Int64s) -> tuple[int, int, int] | None:
    """(offset, epoch, later epoch): batches of an epoch at or above the start of a later epoch elsewhere."""
    runs, other_runs = runs[runs[:, 0] >= 0], other_runs[other_runs[:, 0] >= 0]
    starts = np.concatenate([_believed(other_file, other_runs), other_runs[:, :2]])
    if not len(runs) or not len(starts):
        return None
    starts = starts[np.argsort(starts[:, 0], kind="stable")]
    # where any epoch from this one on begins at the earliest
    earliest = np.minimum.accumulate(starts[::-1, 1])[::-1]
    later = np.searchsorted(starts[:, 0], runs[:, 0], "right")
    known = later < len(starts)
    begin = earliest[np.minimum(later, len(starts) - 1)]
    wrong = np.flatnonzero(known & (begin <= runs[:, 2]))
    if not len(wrong):
        return None
    offsets = np.maximum(runs[wrong, 1], begin[wrong])
    place = int(np.argmin(offsets))
    run = int(wrong[place])
    return int(offsets[place]), int(runs[run, 0]), int(starts[later[run], 0])


def _believed(file: Int64s, runs: Int64s) -> Int64s:
    """The entries of a file that no batch beside it contradicts: of these the file is wrong (KR402), and tells nothing.

    Args:
        file: see ``History.starts``.
        runs: of the same replica, without those of old formats.
    """
    runs = runs[np.argsort(runs[:, 0], kind="stable")]
    # up to where the log has batches of any epoch before each
    last = np.append(np.int64(-1), np.maximum.accumulate(runs[:, 2]))
    found: Int64s = file[file[:, 1] > last[np.searchsorted(runs[:, 0], file[:, 0], "left")]]
    return found


NOWHERE: Final = 2**63 - 1
"""An offset that no log reaches."""


# -- one replica


class DamagedOffsets(Struct, frozen=True, kw_only=True):
    """One part of a log that is no valid batch.

    Attributes:
        first: first offset that it may hold.
        last: last offset; -1 if it reaches to the end of the log.
        tail: whether no valid batch follows in the last segment: what a broker's recovery cuts.
        text: file, position, what was expected and found.
    """

    first: int
    last: int
    tail: bool
    text: str


class ReplicaHeaders(Struct, frozen=True, kw_only=True):
    """What the headers of a log say, or of some of its segments side by side. Tables are bytes of int64 rows.

    Attributes:
        failure: why it could not be read, a ``FailureKind`` of the engine; empty if it could.
        why: the same as a line.
        log_end: offset after the last batch.
        first_offset: of the first batch, -1 none.
        last_offset: of the last batch, -1 none.
        ranges: (number of the range of offsets, batches, sum, other sum), ascending; see ``replicas.headers``.
        epochs: (leader epoch, first base offset, last offset) of runs of batches of one epoch, in offset order.
        epoch_file: (epoch, start offset) of ``leader-epoch-checkpoint``.
        transactions: see ``krepair.derive.transactions``; of some segments those that no other one changes.
        events: of some segments what is left of their transactions, see there; of a whole log empty.
        runs: of a reading for evidence, part by part: (producer id, offset of the first and of the last batch of data)
            of data without a marker of the producer in between, ascending by the first offset.
        index_aborts: (producer id, first offset, offset of the marker) of all ``.txnindex``.
        borders: (offset after the last batch, base offset of the next segment) of each segment but the last.
        highest_hole: highest offset that has no record although it lies in the log, -1 none.
        cleaned_to: offset after the last batch that holds fewer records than offsets, -1 none: so far a cleaner or
            krepair has been here, or in the log that this one was fetched from.
        damages: what is damaged.
        batches: how many were read.
        log_bytes: of ``.log`` that were read.
        limited: whether it is only the part of a running broker's log that cannot change any more.
        closed_to: of a limited one the base offset of its active segment, which no cleaner reads; -1: its end.
        read_to: of a limited one the offset to which it was read; what lies behind ``log_end`` only excuses.
    """

    failure: str = ""
    why: str = ""
    log_end: int = 0
    first_offset: int = -1
    last_offset: int = -1
    ranges: bytes = b""
    epochs: bytes = b""
    epoch_file: bytes = b""
    transactions: bytes = b""
    events: bytes = b""
    runs: tuple[SpilledRows, ...] = ()
    index_aborts: bytes = b""
    borders: bytes = b""
    highest_hole: int = -1
    cleaned_to: int = -1
    damages: tuple[DamagedOffsets, ...] = ()
    batches: int = 0
    log_bytes: int = 0
    limited: bool = False
    closed_to: int = -1
    read_to: int = -1


def table(data: bytes, columns: int) -> Int64s:
    """int64[N, columns] of a table of ``ReplicaHeaders``."""
    return np.frombuffer(data, np.int64).reshape(-1, columns)


@dataclass(frozen=True, eq=False)
class Replica:
    """One replica that was read, or of which is known why it could not be.

    Attributes:
        broker: broker id.
        state: of its folder, with the log end.
        headers: of its log.
        at_rest: whether it did not change while it was read.
        from_facts: whether it was read from a facts file.
    """

    broker: int
    state: ReplicaState
    headers: ReplicaHeaders
    at_rest: bool = True
    from_facts: bool = False

    @staticmethod
    def of(
        broker: int,
        state: ReplicaState,
        headers: ReplicaHeaders,
        *,
        at_rest: bool = True,
        from_facts: bool = False,
    ) -> Replica:
        """A replica whose state has no log end yet."""
        log_end = state.log_start if headers.failure else headers.log_end
        return Replica(broker, replace(state, log_end=log_end), headers, at_rest, from_facts)

    @property
    def failure(self) -> str:
        """Why it could not be read, or empty; then all of it counts against others, but for what is damaged."""
        return self.headers.why if self.headers.failure else ""

    @cached_property
    def ranges(self) -> Uint64s:
        """uint64[N, RANGE_COLUMNS], see ``ReplicaHeaders``."""
        return table(self.headers.ranges, RANGE_COLUMNS).view(np.uint64)

    @cached_property
    def history(self) -> History:
        """Its leader epochs."""
        runs = table(self.headers.epochs, EPOCH_COLUMNS)
        return History(runs, table(self.headers.epoch_file, START_COLUMNS))

    @cached_property
    def transactions(self) -> Int64s:
        """int64[N, TRANSACTION_COLUMNS]."""
        return table(self.headers.transactions, TRANSACTION_COLUMNS)

    @cached_property
    def index_aborts(self) -> Int64s:
        """int64[N, 3], see ``ReplicaHeaders``."""
        return table(self.headers.index_aborts, 3)

    @property
    def limited(self) -> bool:
        """Whether it is only the part of a running broker's log that cannot change any more."""
        return self.headers.limited

    @property
    def cut_by_recovery(self) -> int:
        """First offset that the next start cuts, -1 none: damage above the recovery point after an unclean stop."""
        if self.state.clean_stop:
            return -1
        firsts = [one.first for one in self.headers.damages if one.first >= max(self.state.recovery_point, 0)]
        return min(firsts, default=-1)

    @property
    def start(self) -> int:
        """Log start offset."""
        return self.state.log_start

    @cached_property
    def end(self) -> int:
        """Log end offset as the next start leaves it."""
        cut = self.cut_by_recovery
        tails = [one.first for one in self.headers.damages if one.tail]
        return min([self.state.log_end, *([cut] if cut >= 0 else []), *tails])

    @property
    def corrupt(self) -> tuple[DamagedOffsets, ...]:
        """Damage that no start mends."""
        cut = self.cut_by_recovery
        return tuple(one for one in self.headers.damages if cut < 0 or one.first < cut)

    @property
    def cleaner(self) -> int:
        """First offset that its cleaner has not cleaned, -1 if it has recorded none."""
        return self.state.cleaner_position

    @property
    def closed_to(self) -> int:
        """Offset to which a cleaner can have read it."""
        return max(self.headers.closed_to, self.end)

    @property
    def read_to(self) -> int:
        """Offset to which its keys are known; of a running broker's there may be later records of any key behind."""
        return max(self.headers.read_to, self.end)

    @cached_property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """(offset after a segment's last batch, base offset of the next) where these are not equal."""
        borders = table(self.headers.borders, 2)
        return tuple((first, after) for first, after in borders.tolist() if first < after)

    @property
    def last_gap_end(self) -> int:
        """Base offset of the last segment before which offsets are missing, 0 none."""
        return max((after for _, after in self.gaps), default=0)

    @cached_property
    def hidden(self) -> tuple[tuple[int, int], ...]:
        """(first, last) offset of each damaged part inside of the log. Of these nothing is known."""
        return tuple(
            (one.first, one.last if one.last >= 0 else NOWHERE) for one in self.corrupt if not one.tail
        )

    @property
    def hidden_to(self) -> int:
        """Highest offset that lies in a damaged part, -1 none. Up to there a record of any key may be hidden."""
        return max((last for _, last in self.hidden), default=-1)

    def covers(self, offsets: Int64s) -> Bools:
        """Of which offsets it is known whether it has a record there, or a later one of the same key."""
        found: Bools = (
            (offsets >= self.start) & (offsets < self.end) & (offsets > self.hidden_to) & (not self.failure)
        )
        return found
