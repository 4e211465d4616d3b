"""One replica of a partition: the state of its folder, and the facts from its batch headers.

``compare`` and ``--replicas`` read replicas into these values, and judge them by these values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from krepair.derive.epochs import EPOCH_COLUMNS, RUN_EPOCH, RUN_FIRST, RUN_LAST
from krepair.derive.sums import RANGE_COLUMNS
from krepair.derive.transactions import TRANSACTION_COLUMNS
from krepair.durable.scratch import SpilledRows
from krepair.formats.arrays import Bools, Int64s, Uint64s
from krepair.logdir.view import ReplicaState

# -- forks: two replicas whose batches have contradicting leader epochs
#
# Leader epochs increase with offsets on every replica, and a follower copies its leader's batches with their epochs.
# The two ``leader-epoch-checkpoint`` files are not compared with each other: a leader writes an entry when it takes
# over, a follower only when a batch arrives, so they differ between healthy replicas.
#
# Source: LeaderEpochFileCache.assign (4.3.1), AbstractFetcherThread.truncateOnFetchResponse (3.9.2).

START_COLUMNS: Final = 2
_START_EPOCH, _START_OFFSET = range(START_COLUMNS)
"""Columns of the start of an epoch; they are also the first two columns of a run."""


class History(NamedTuple):
    """Leader epochs of a replica.

    Attributes:
        runs: int64[N, EPOCH_COLUMNS], runs of the replica's batches.
        starts: int64[M, START_COLUMNS], epoch and start offset, from the replica's ``leader-epoch-checkpoint``.
    """

    runs: Int64s
    starts: Int64s


class Fork(NamedTuple):
    """First contradiction between two histories.

    Attributes:
        offset: first offset at which the histories contradict each other.
        epoch: leader epoch of the replica with the earlier epoch.
        later: leader epoch of the other replica.
        first_is_behind: True if the first replica has the earlier epoch.
    """

    offset: int
    epoch: int
    later: int
    first_is_behind: bool


def find_fork(mine: History, theirs: History) -> Fork | None:
    """Find the first contradiction between the histories of two replicas."""
    forks = [
        Fork(*contradiction, first_is_behind=first)
        for first, contradiction in (
            (True, _find_contradiction(mine.runs, theirs.runs, theirs.starts)),
            (False, _find_contradiction(theirs.runs, mine.runs, mine.starts)),
        )
        if contradiction is not None
    ]
    return min(forks, default=None)


def _find_contradiction(runs: Int64s, other_runs: Int64s, other_file: Int64s) -> tuple[int, int, int] | None:
    """Find the first batch of this replica at whose offset the other replica already has a later epoch.

    Returns:
        (offset, epoch here, epoch there), None if there is no such batch.
    """
    runs, other_runs = (each[each[:, RUN_EPOCH] >= 0] for each in (runs, other_runs))
    starts = np.concatenate([_credible_entries(other_file, other_runs), other_runs[:, :START_COLUMNS]])
    if not len(runs) or not len(starts):
        return None
    starts = starts[np.argsort(starts[:, _START_EPOCH], kind="stable")]
    # Earliest offset at which each epoch, or a later epoch, begins on the other replica.
    earliest = np.minimum.accumulate(starts[::-1, _START_OFFSET])[::-1]
    later = np.searchsorted(starts[:, _START_EPOCH], runs[:, RUN_EPOCH], "right")
    known = later < len(starts)
    begin = earliest[np.minimum(later, len(starts) - 1)]
    wrong = np.flatnonzero(known & (begin <= runs[:, RUN_LAST]))
    if not len(wrong):
        return None
    offsets = np.maximum(runs[wrong, RUN_FIRST], begin[wrong])
    place = int(np.argmin(offsets))
    run = int(wrong[place])
    return int(offsets[place]), int(runs[run, RUN_EPOCH]), int(starts[later[run], _START_EPOCH])


def _credible_entries(file: Int64s, runs: Int64s) -> Int64s:
    """Select the entries of an epoch file that no batch of its log contradicts; the others are wrong (KR402).

    Args:
        file: entries of the epoch file, see ``History.starts``.
        runs: runs of batches in the log, without batches of v0 and v1, which have no epoch.
    """
    runs = runs[np.argsort(runs[:, RUN_EPOCH], kind="stable")]
    # Last offset of all batches with a lower epoch than each run.
    last = np.append(np.int64(-1), np.maximum.accumulate(runs[:, RUN_LAST]))
    before = last[np.searchsorted(runs[:, RUN_EPOCH], file[:, _START_EPOCH], "left")]
    believed: Int64s = file[file[:, _START_OFFSET] > before]
    return believed


NOWHERE: Final = 2**63 - 1
"""Offset that no log reaches."""


# -- one replica


class DamagedOffsets(Struct, frozen=True, kw_only=True):
    """Part of a log that is not a valid batch.

    Attributes:
        first: first offset that the part may hold.
        last: last offset that the part may hold; -1 if the part extends to the end of the log.
        tail: True if no valid batch follows in the last segment; a broker's recovery cuts such a part.
        text: file, position, and what was expected and found.
    """

    first: int
    last: int
    tail: bool
    text: str


class ReplicaHeaders(Struct, frozen=True, kw_only=True):
    """Facts from the batch headers of a log, or of some consecutive segments. Tables are bytes of int64 rows.

    Attributes:
        failure: kind of failure if the log could not be read, a ``FailureKind`` of the engine; else empty.
        why: description of that failure in one line.
        log_end: offset after the last batch.
        first_offset: base offset of the first batch, -1 for none.
        last_offset: last offset of the last batch, -1 for none.
        ranges: (range number, batches, sum, other sum), ascending; see ``derive.sums``.
        epochs: (leader epoch, first base offset, last offset) of runs of batches with one epoch, in offset order.
        epoch_file: (epoch, start offset) entries of ``leader-epoch-checkpoint``.
        transactions: transactions, see ``krepair.derive.transactions``; for some segments only those that no other
            segment changes.
        events: events of the other transactions of some segments; empty for a whole log.
        runs: only if the log is read as evidence: (producer id, first offset, last offset) of consecutive data batches
            of a producer without a marker in between, ascending by the first offset; one part for each reading.
        index_aborts: (producer id, first offset, marker offset) of all ``.txnindex`` files.
        borders: (offset after the last batch, base offset of the next segment) of each segment but the last.
        highest_hole: highest offset within the log without a record, -1 for none.
        cleaned_to: offset after the last batch that holds fewer records than offsets, -1 for none. Up to this offset a
            cleaner or krepair removed records, in this log or in the log that this replica was fetched from.
        damages: damaged parts of the log.
        batches: number of batches that were read.
        log_bytes: bytes of ``.log`` files that were read.
        limited: True if the headers are only from the part of a running broker's log that can no longer change.
        closed_to: for a limited log, the base offset of its active segment, which no cleaner reads; -1 for the log end.
        read_to: for a limited log, the offset up to which the log was read. Records after ``log_end`` only excuse
            differences.
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
    """View a table of ``ReplicaHeaders`` as int64[N, columns]."""
    return np.frombuffer(data, np.int64).reshape(-1, columns)


@dataclass(frozen=True, eq=False)
class Replica:
    """Replica that was read, or that could not be read for a known reason.

    Attributes:
        state: state of the replica's folder, with the log end offset.
        headers: facts from the headers of its log.
        at_rest: True if the replica did not change while it was read.
        from_facts: True if the replica was read from a facts file.
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
        """Build a replica from a state that has no log end offset yet."""
        log_end = state.log_start if headers.failure else headers.log_end
        return Replica(broker, replace(state, log_end=log_end), headers, at_rest, from_facts)

    @property
    def failure(self) -> str:
        """Reason why the replica could not be read; empty if it was read: then all but its damage is compared."""
        return self.headers.why if self.headers.failure else ""

    @cached_property
    def ranges(self) -> Uint64s:
        """Sums by range, uint64[N, RANGE_COLUMNS], see ``ReplicaHeaders``."""
        return table(self.headers.ranges, RANGE_COLUMNS).view(np.uint64)

    @cached_property
    def history(self) -> History:
        """Leader epochs of the replica."""
        runs = table(self.headers.epochs, EPOCH_COLUMNS)
        return History(runs, table(self.headers.epoch_file, START_COLUMNS))

    @cached_property
    def transactions(self) -> Int64s:
        """Transactions of the replica, int64[N, TRANSACTION_COLUMNS]."""
        return table(self.headers.transactions, TRANSACTION_COLUMNS)

    @cached_property
    def index_aborts(self) -> Int64s:
        """Aborts in the index, int64[N, 3], see ``ReplicaHeaders``."""
        return table(self.headers.index_aborts, 3)

    @property
    def limited(self) -> bool:
        """True if the replica is only the part of a running broker's log that can no longer change."""
        return self.headers.limited

    @property
    def cut_by_recovery(self) -> int:
        """First offset that the next start cuts, -1 for none: damage above the recovery point after an unclean stop."""
        if self.state.clean_stop:
            return -1
        firsts = [
            damage.first
            for damage in self.headers.damages
            if damage.first >= max(self.state.recovery_point, 0)
        ]
        return min(firsts, default=-1)

    @property
    def start(self) -> int:
        """Log start offset."""
        return self.state.log_start

    @cached_property
    def end(self) -> int:
        """Log end offset after the next start."""
        cut = self.cut_by_recovery
        tails = [damage.first for damage in self.headers.damages if damage.tail]
        return min([self.state.log_end, *([cut] if cut >= 0 else []), *tails])

    @property
    def corrupt(self) -> tuple[DamagedOffsets, ...]:
        """Damage that no start repairs."""
        cut = self.cut_by_recovery
        return tuple(damage for damage in self.headers.damages if cut < 0 or damage.first < cut)

    @property
    def first_dirty_offset(self) -> int:
        """First dirty offset in the replica's ``cleaner-offset-checkpoint``, -1 for none."""
        return self.state.cleaner_position

    @property
    def cleanable_end(self) -> int:
        """Offset up to which a cleaner may have read the replica's log."""
        return max(self.headers.closed_to, self.end)

    @property
    def read_to(self) -> int:
        """Offset up to which the replica's keys are known; a running broker may have later records of any key."""
        return max(self.headers.read_to, self.end)

    @cached_property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """(offset after a segment's last batch, base offset of the next segment) where the two differ."""
        borders = table(self.headers.borders, 2)
        return tuple((first, after) for first, after in borders.tolist() if first < after)

    @property
    def last_gap_end(self) -> int:
        """Base offset of the last segment before which offsets are missing, 0 for none."""
        return max((after for _, after in self.gaps), default=0)

    @cached_property
    def damaged_ranges(self) -> tuple[tuple[int, int], ...]:
        """First and last offset of each damaged part inside the log."""
        return tuple(
            (damage.first, damage.last if damage.last >= 0 else NOWHERE)
            for damage in self.corrupt
            if not damage.tail
        )

    @property
    def damaged_to(self) -> int:
        """Highest offset in a damaged part, -1 for none; the damaged parts may hide a record of any key."""
        return max((last for _, last in self.damaged_ranges), default=-1)

    def covers(self, offsets: Int64s) -> Bools:
        """Mark the offsets for which it is known whether the replica has the record or a later record of its key."""
        known: Bools = (
            (offsets >= self.start) & (offsets < self.end) & (offsets > self.damaged_to) & (not self.failure)
        )
        return known
