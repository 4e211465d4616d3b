"""Transactions without a marker: those that hang (KR103), and those that may hang (KR107).

Only a broker's clock tells how long a transaction has been open: its coordinator's log, if that is here, or a marker
after it. The times of its own batches come from the producer, and a copy changes the times of files.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from krepair.checks.catalogue import Finding
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, LogsItem
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import log_of, watermark_of
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import Version
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.transaction_state import IN_PROGRESS, TransactionStatus, state_name
from krepair.formats.words import count_text, time_text
from krepair.kernels import classes as c
from krepair.logdir.values import LogDir, Partition
from krepair.rules.broker_clock import last_write, markers_in
from krepair.rules.model import SegmentFacts
from krepair.rules.producers import all_ids, states_by_scan
from krepair.start.coordinator_partitions import partition_of_name, partitions_of_topic

if TYPE_CHECKING:
    from krepair.look.coordinators.transactions import TransactionState

COORDINATOR_SLACK_MS: Final = 5 * 60 * 1000
"""Time beyond ``transaction.max.timeout.ms`` before a transaction hangs, as kafka-transactions.sh has it (KIP-664)."""

Verdict = Literal["hangs", "goes on", "not known"]
Owners = Mapping[int, Sequence["TransactionState"]]

_SHOWN_AT_MOST: Final = 3
GOING: Final = frozenset(state_name(status) for status in IN_PROGRESS)
"""States in which the coordinator has yet to end a transaction."""
_DECIDED: Final = frozenset(
    state_name(status) for status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)
)
"""States whose end is decided. No timeout applies: a coordinator that loads one sends the missing markers again
(``TransactionStateManager.loadTransactionsForTxnTopicPartition`` 2.2.1, 3.9.0)."""
_KNOWN: Final = frozenset(state_name(status) for status in TransactionStatus)


class OpenTransaction(NamedTuple):
    """Transaction of one partition that has no marker.

    Attributes:
        analysis: analysis of the partition.
        epoch: epoch of the producer in the transaction.
        first_offset: offset of the transaction's first batch.
        begun_by_ms: time by which the transaction had begun: that of the earliest marker after it, in epoch
            milliseconds; a very large number if there is none.
    """

    analysis: PartitionAnalysis
    producer_id: int
    epoch: int
    first_offset: int
    begun_by_ms: int


def _topic_and_partition(analysis: PartitionAnalysis) -> str:
    partition = analysis.partition
    return f"--topic {shlex.quote(partition.topic)} --partition {partition.number}"


def transaction_findings(
    views: Sequence[LogDir], analyses: Sequence[PartitionAnalysis], now_ms: int, most_ms: int, engine: Engine
) -> Iterator[Finding]:
    """Yield KR103 per partition with transactions that nobody will end, and KR107 once for those that may be such.

    Args:
        views: all log directories that were given, any of which may hold the coordinator's log; a file of that log that
            cannot be read is reported as KR308.
        analyses: partitions of one of these directories. A partition that was not read whole is not judged, nor one
            with damage before its tail, after which a marker may lie.
        now_ms: current time, epoch milliseconds.
        most_ms: value of ``transaction.max.timeout.ms``.
        engine: engine that reads ``__transaction_state``.
    """
    judging = Judging({}, last_write_of(analyses, now_ms), most_ms + COORDINATOR_SLACK_MS)
    transactions = [transaction for analysis in analyses for transaction in open_in(analysis)]
    if transactions:
        from krepair.look.coordinators.transactions import read_transactions

        items = [
            state_item(view, partition, now_ms)
            for view in views
            for partition in view.partitions
            if partition.topic == TRANSACTIONS_TOPIC
        ]
        results = [
            (items[index][0].place.folder, result) for index, result in engine.map(read_transactions, items)
        ]
        for folder, failed in results:
            if isinstance(failed, Failed):
                yield Finding(rule="KR308", partition=folder, evidence=failed.why)
        read = (result for _, result in results if not isinstance(result, Failed))
        judging = judging.with_states([state for result in read for state in result.states], views)
    judged = [(transaction, *judging.verdict(transaction)[:2]) for transaction in transactions]
    yield from hanging_findings(
        (transaction, why) for transaction, verdict, why in judged if verdict == "hangs"
    )
    unknown = [transaction for transaction, verdict, _ in judged if verdict == "not known"]
    if unknown:
        yield _not_known(unknown)


def last_write_of(analyses: Iterable[PartitionAnalysis], now_ms: int) -> int:
    """Return the time at which the broker of these partitions last wrote, epoch milliseconds."""
    return last_write(
        ((analysis.partition.topic, facts) for analysis in analyses for facts in analysis.segments), now_ms
    )


def state_item(view: LogDir, partition: Partition, now_ms: int) -> tuple[LogsItem, int, int, int]:
    """Return the arguments of ``read_transactions`` for one partition of ``__transaction_state``."""
    log_start = view.log_start.offsets.get(partition.key, 0)
    return log_of(view, partition), log_start, watermark_of(view, partition), now_ms


def owners_of(states: Iterable[TransactionState]) -> Owners:
    """Return producer id -> states of the transactional ids that have, or had, this producer id."""
    owners: dict[int, list[TransactionState]] = {}
    for state in states:
        for producer_id in {state.producer_id, *state.earlier_producer_ids} - {-1}:
            owners.setdefault(producer_id, []).append(state)
    return owners


def is_known(analysis: PartitionAnalysis) -> bool:
    """Return whether a partition was read whole, without damage before its tail that could hide a marker."""
    known = analysis.segments and len(analysis.segments) == len(analysis.partition.segments)
    return bool(known) and all(facts.summary.is_whole for facts in analysis.segments[:-1])


def open_in(analysis: PartitionAnalysis) -> Iterator[OpenTransaction]:
    """Yield every transaction without a marker, by first offset; nothing if ``is_known`` denies the partition."""
    if not is_known(analysis) or not any(len(facts.summary.rows) for facts in analysis.segments):
        return
    states = states_by_scan(analysis.segments, all_ids(analysis.segments, ()), INT64_MAX)
    places = np.flatnonzero(states.known & (states.open_first >= 0))
    places = places[np.argsort(states.open_first[places], kind="stable")]
    firsts = states.open_first[places]
    columns = zip(
        states.ids[places], states.epoch[places], firsts, _begun_by(analysis.segments, firsts), strict=True
    )
    for row in columns:
        yield OpenTransaction(analysis, *map(int, row))


def _begun_by(segments: Sequence[SegmentFacts], firsts: Int64s) -> Int64s:
    """Return the earliest time of a marker after each offset; a very large number if there is none."""
    markers = [markers_in(facts) for facts in segments]
    offsets = np.concatenate([times_of_segment.first_offset for times_of_segment in markers])
    times = np.concatenate([times_of_segment.time_ms for times_of_segment in markers])
    order = np.argsort(offsets, kind="stable")
    dated = np.where(times < 0, INT64_MAX, times)[order]
    earliest = np.append(np.minimum.accumulate(dated[::-1])[::-1], INT64_MAX)
    return earliest[np.searchsorted(offsets[order], firsts, side="right")]


class Judging(NamedTuple):
    """Inputs of the verdict on open transactions: will anybody end them?

    Attributes:
        owners: producer id -> states of transactional ids, see ``owners_of``.
        last_write_ms: time at which a broker last wrote, epoch milliseconds; -1 if unknown.
        limit_ms: longest time in ms for which the cluster lets a transaction be open.
        partitions: number of partitions of ``__transaction_state``; 0 if unknown.
        recorded: True if that number comes from the metadata log.
    """

    owners: Owners
    last_write_ms: int
    limit_ms: int
    partitions: int = 0
    recorded: bool = False

    def with_states(self, states: Sequence[TransactionState], views: Sequence[LogDir]) -> Judging:
        """Return a copy with the states in the coordinators' log, and the number of its partitions."""
        places = [(state.transactional_id, number_of(state.coordinator)) for state in states]
        partitions, recorded = partitions_of_topic(views, TRANSACTIONS_TOPIC, places)
        return self._replace(owners=owners_of(states), partitions=partitions, recorded=recorded)

    def belongs_to(self, state: TransactionState) -> int:
        """Return the partition in which the coordinator of an id looks, if the id's record is in another one; else -1.

        Nobody ends such a transaction. The number of partitions was raised: the id's record is in the old partition,
        and its coordinator looks in the new one (``TransactionStateManager.partitionFor`` 3.9.0; seen on 3.9.2).
        """
        if not self.partitions:
            return -1
        there = partition_of_name(state.transactional_id, self.partitions)
        return -1 if there == number_of(state.coordinator) else there

    def verdict(self, transaction: OpenTransaction) -> tuple[Verdict, str, int]:
        """Return the verdict on a transaction, its reason, and the milliseconds for which the transaction was open."""
        owners = self.owners.get(transaction.producer_id, ())
        owner = owners[0] if len(owners) == 1 else None
        since, source = transaction.begun_by_ms, "a marker behind it"
        if owner is not None and _begins_no_more(owner, transaction) and 0 <= owner.last_update_ms < since:
            since, source = owner.last_update_ms, owner.coordinator
        age = max(self.last_write_ms - since, 0)
        for state in owners:
            there = self.belongs_to(state)
            if there >= 0 and _is_going(state, transaction):
                name = f"{TRANSACTIONS_TOPIC}-{there}"
                many = count_text(self.partitions, "partition")
                text = f"in {state.coordinator}, and of {many} {state.transactional_id} belongs"
                whose = (
                    "no coordinator ends it" if self.recorded else "if that is their number, nobody ends it"
                )
                return "hangs" if self.recorded else "not known", f"{text} to {name}: {whose}", age
        if owner is not None and _is_going(owner, transaction):
            age = max(self.last_write_ms - owner.start_ms, 0) if owner.start_ms >= 0 else 0
            begun = f"begun at {time_text(owner.start_ms)}, by {owner.coordinator}"
            if owner.state in _DECIDED:
                text = (
                    f"{begun}; it is {owner.state}: the coordinator writes its markers, after a start again"
                )
                return "goes on", text, age
            overdue = age > owner.timeout_ms + COORDINATOR_SLACK_MS
            return "hangs" if overdue else "goes on", f"{begun}; its timeout is {owner.timeout_ms} ms", age
        text = (
            f"begun before {time_text(since)}, by {source}"
            if since < INT64_MAX
            else "nothing here says since when"
        )
        # A coordinator records a partition before its first batch is written, so a state without the partition means
        # that the transaction is over, unless the end of the coordinator's log is missing here: hence the slack.
        over = owner is not None and owner.state in _KNOWN
        if owner is not None and over:
            text += f"; {owner.coordinator} has no such transaction"
        hangs = age > (COORDINATOR_SLACK_MS if over else self.limit_ms)
        return "hangs" if hangs else "not known", text, age


def _is_going(state: TransactionState, transaction: OpenTransaction) -> bool:
    """Return whether the coordinator has yet to end a transaction; after a change of producer id it cannot tell."""
    going = state.state in GOING and state.producer_id == transaction.producer_id
    return going and transaction.analysis.partition.key in state.partitions


def _begins_no_more(state: TransactionState, transaction: OpenTransaction) -> bool:
    """Return whether the coordinator is done with the transaction's epoch, or with its producer id."""
    taken = state.producer_id != transaction.producer_id or state.producer_epoch > transaction.epoch
    return state.state == state_name(TransactionStatus.DEAD) or (state.state in OVER and taken)


def number_of(folder: str) -> int:
    """Return the number of a partition from the name of its folder."""
    return int(folder.rpartition("-")[2])


class WaitingBytes:
    """Bytes of ``.log`` files from the segment of an offset to the end, prepared once for many offsets.

    Args:
        analysis: partition that was read whole.
        active: True to count the active segment.
    """

    def __init__(self, analysis: PartitionAnalysis, *, active: bool = True) -> None:
        rows = list(zip(analysis.partition.segments, analysis.segments, strict=True))
        ends = sorted(
            (facts.summary.last_offset, segment.log.size)
            for segment, facts in (rows if active else rows[:-1])
        )
        self._ends = [end for end, _ in ends]
        # bytes from each segment to the end
        self._bytes = [*accumulate((size for _, size in reversed(ends)), initial=0)][::-1]

    def since(self, offset: int) -> int:
        """Return the bytes of the segments whose last offset is this one or after it."""
        return self._bytes[bisect_left(self._ends, offset)]


def hanging_findings(hanging: Iterable[tuple[OpenTransaction, str]]) -> Iterator[Finding]:
    """Yield KR103 for each partition with transactions that nobody will end, each with the reason for the verdict."""
    by_folder: dict[str, list[tuple[OpenTransaction, str]]] = {}
    for transaction, why in hanging:
        by_folder.setdefault(transaction.analysis.partition.folder, []).append((transaction, why))
    for folder, some in by_folder.items():
        shown = "; ".join(
            f"producer {transaction.producer_id}, epoch {transaction.epoch}, open since offset "
            f"{transaction.first_offset}, {text}"
            for transaction, text in some[:_SHOWN_AT_MOST]
        )
        yield Finding(
            rule="KR103",
            partition=folder,
            evidence=(
                f"{count_text(len(some), 'transaction')} without a marker when the broker last wrote: "
                f"{shown}; first ask the running "
                "cluster: kafka-transactions.sh find-hanging, then describe"
            ),
            bytes=WaitingBytes(some[0][0].analysis).since(
                min(transaction.first_offset for transaction, _ in some)
            ),
        )


def _not_known(some: Sequence[OpenTransaction]) -> Finding:
    folders = len({transaction.analysis.partition.folder for transaction in some})
    shown = ", ".join(
        f"{transaction.analysis.partition.folder} since offset {transaction.first_offset} "
        f"(producer {transaction.producer_id})"
        for transaction in some[:_SHOWN_AT_MOST]
    )
    more = f" and {len(some) - _SHOWN_AT_MOST} more" if len(some) > _SHOWN_AT_MOST else ""
    return Finding(
        rule="KR107",
        evidence=(
            f"{count_text(len(some), 'transaction')} of {count_text(folders, 'partition')}: open, "
            f"but it is not known for "
            "how long: "
            f"{shown}{more}; the times of their batches come from producers, and markers and "
            "__transaction_state do not show it. Ask the running cluster: kafka-transactions.sh find-hanging"
        ),
    )


# -- conditions for aborting an open transaction by hand, and the command for a live cluster

BY_START_OFFSET_SINCE: Final = (3, 0, 0)
"""Version of ``abort --start-offset`` (KIP-664). The tool of 3.0 to 3.9 also works with older brokers, that of 4.x does
not (KIP-896).
"""

TOOL: Final = "kafka-transactions.sh --bootstrap-server HOST:PORT"
OVER: Final = frozenset(
    state_name(status)
    for status in (
        TransactionStatus.EMPTY,
        TransactionStatus.COMPLETE_COMMIT,
        TransactionStatus.COMPLETE_ABORT,
        TransactionStatus.DEAD,
    )
)
"""States in which nothing waits for a marker; a tombstone is only written in one of them."""


class CoordinatorLog(NamedTuple):
    """One partition of ``__transaction_state``.

    Attributes:
        high_watermark: high watermark in the checkpoint, -1 if none.
        newest_ms: newest time of a batch below the high watermark, -1 if none.
        gaps: damaged parts and records that could not be read.
    """

    high_watermark: int
    newest_ms: int
    gaps: int


def why_not_proven(
    transaction: OpenTransaction, owners: Sequence[TransactionState], logs: Mapping[str, CoordinatorLog]
) -> str:
    """Return why the coordinator's log does not prove that a transaction is over; empty if it does.

    An abort of a transaction that is not over would discard records that its producer may still commit.

    Args:
        owners: states of all transactional ids that had the transaction's producer id.
        logs: folder of ``__transaction_state`` -> what its log covers.
    """
    if not transaction.analysis.segments[-1].summary.is_whole:
        return f"the tail of {transaction.analysis.partition.folder} is damaged; a marker may be in it"
    if len(owners) != 1:
        count = "no transactional id" if not owners else f"{len(owners)} transactional ids"
        return f"__transaction_state here names {count} for producer {transaction.producer_id}"
    state = owners[0]
    log = logs[state.coordinator]
    if log.gaps:
        return f"{state.coordinator} has {log.gaps} parts that could not be read"
    if state.state not in OVER:
        return f"its transactional id is {state.state} by {state.coordinator}" + (
            f" ({state.problem})" if state.problem else ""
        )
    if state.record_offset >= log.high_watermark:
        known = f"the high watermark is {log.high_watermark}"
        return (
            f"the record that says {state.state} is at offset {state.record_offset} of {state.coordinator}, and "
            f"{known if log.high_watermark >= 0 else 'no high watermark is recorded'}"
        )
    return _why_maybe_later(transaction, state, log)


def _why_maybe_later(transaction: OpenTransaction, state: TransactionState, log: CoordinatorLog) -> str:
    """Return why the transaction may have begun after the end of the coordinator's log here; empty if it cannot."""
    if _begins_no_more(state, transaction):
        return ""
    if state.producer_epoch < transaction.epoch:
        newer = f"{state.coordinator} ends at epoch {state.producer_epoch} of the producer"
        return f"{newer}, the transaction is of epoch {transaction.epoch}"
    if log.newest_ms - COORDINATOR_SLACK_MS > transaction.begun_by_ms:
        return ""
    return f"{state.coordinator} may end before the transaction began"


def abort_command(transaction: OpenTransaction, coordinator_epoch: int, version: Version) -> str:
    """Return the command that aborts a transaction; empty if the broker's version is unknown.

    Args:
        coordinator_epoch: coordinator epoch of the producer's last marker in the partition, -1 if there is none.
        version: version of the broker that gets the marker.
    """
    if version is None:
        return ""
    partition = transaction.analysis.partition
    where = f"--topic {shlex.quote(partition.topic)} --partition {partition.number}"
    if version >= BY_START_OFFSET_SINCE:
        return f"{TOOL} abort {where} --start-offset {transaction.first_offset}"
    return (
        f"{TOOL} abort {where} --producer-id {transaction.producer_id} --producer-epoch {transaction.epoch} "
        f"--coordinator-epoch {max(coordinator_epoch, 0)}"
    )


def coordinator_epochs(analysis: PartitionAnalysis) -> dict[int, int]:
    """Return producer id -> coordinator epoch of its last marker in a partition, for the producers that have one."""
    epochs: dict[int, int] = {}
    for facts in reversed(analysis.segments):
        rows = facts.summary.rows
        ended = rows[rows[:, c.P_MARKERS] > 0]
        ids, firsts = np.unique(ended[:, c.P_ID], return_index=True)
        for producer_id, epoch in zip(
            ids.tolist(), ended[firsts, c.P_COORDINATOR_EPOCH].tolist(), strict=True
        ):
            epochs.setdefault(producer_id, epoch)
    return epochs


def live_commands(
    broker_id: str, max_timeout_ms: int, hanging: Sequence[tuple[OpenTransaction, str]]
) -> tuple[str, ...]:
    """Return the commands that ask a running cluster before anything is aborted.

    Args:
        broker_id: broker id of the log directory, may be empty.
        max_timeout_ms: value of ``transaction.max.timeout.ms``.
        hanging: transactions that nobody will end, each with its transactional id, empty if that is unknown.
    """
    if not hanging:
        return ()
    minutes = max(-(-max_timeout_ms // 60_000), 1)
    find = f"{TOOL} find-hanging --max-transaction-timeout {minutes}"
    partitions = dict.fromkeys(_topic_and_partition(transaction.analysis) for transaction, _ in hanging)
    commands = [f"{find} --broker-id {broker_id}"] if broker_id.isdigit() else []
    commands = commands or [f"{find} {where}" for where in partitions]
    commands += [
        f"{TOOL} describe --transactional-id {shlex.quote(name)}"
        for name in sorted({name for _, name in hanging if name})
    ]
    nameless = dict.fromkeys(
        _topic_and_partition(transaction.analysis) for transaction, name in hanging if not name
    )
    return (*commands, *(f"{TOOL} describe-producers {where}" for where in nameless))
