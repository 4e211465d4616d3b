"""Transactions without a marker: which of them nobody will end (KR103), and of which that is not known (KR107).

Only the clocks of brokers tell since when one is open: its coordinator's log, if that is here, or a marker behind it.
The times of its own batches come from the producer, and a copy changes those of files.
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
from krepair.engine.items import Failed
from krepair.fixes.context import place_of, watermark_of
from krepair.fixes.survey import Survey
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import Version
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.transaction_state import IN_PROGRESS, TransactionStatus, state_name
from krepair.formats.words import count_text, time_text
from krepair.kernels import classes as c
from krepair.logdir.values import LogDir, Partition
from krepair.ops.broker_clock import last_write, markers_in
from krepair.rules.model import SegmentFacts
from krepair.rules.producers import all_ids, states_by_scan
from krepair.start.coordinator_partitions import partition_of_name, partitions_of_topic

if TYPE_CHECKING:
    from krepair.look.coordinators.transactions import TransactionsItem, TransactionState

COORDINATOR_SLACK_MS: Final = 5 * 60 * 1000
"""Time beyond ``transaction.max.timeout.ms`` before a transaction hangs, as kafka-transactions.sh has it (KIP-664)."""

Verdict = Literal["hangs", "goes on", "not known"]
Owners = Mapping[int, Sequence["TransactionState"]]

_SHOWN_AT_MOST: Final = 3
GOING: Final = frozenset(state_name(status) for status in IN_PROGRESS)
"""States in which the coordinator has yet to end a transaction."""
_KNOWN: Final = frozenset(state_name(status) for status in TransactionStatus)


class OpenTransaction(NamedTuple):
    """A transaction of one partition that has no marker.

    Attributes:
        survey: the partition.
        producer_id: of its producer.
        epoch: of its producer.
        first_offset: of its first batch.
        begun_by_ms: epoch milliseconds of the earliest marker behind it, a very large number if there is none.
    """

    survey: Survey
    producer_id: int
    epoch: int
    first_offset: int
    begun_by_ms: int


def transaction_findings(
    views: Sequence[LogDir], surveys: Sequence[Survey], now_ms: int, most_ms: int, engine: Engine
) -> Iterator[Finding]:
    """KR103 for each partition with transactions that nobody will end, KR107 once for those that may be such.

    Args:
        views: all log directories that were given, for what the coordinator's log says. Of it a file that cannot be
            read says nothing here but that (KR308).
        surveys: the partitions of one of them. One that was not read whole is not judged, nor one with damage before
            its tail, behind which a marker may lie.
        now_ms: the clock.
        most_ms: ``transaction.max.timeout.ms``.
        engine: where ``__transaction_state`` is read.
    """
    judging = Judging({}, last_write_of(surveys, now_ms), most_ms + COORDINATOR_SLACK_MS)
    found = [one for survey in surveys for one in open_in(survey)]
    if found:
        from krepair.look.coordinators.transactions import read_transactions

        items = [
            state_item(view, partition, now_ms)
            for view in views
            for partition in view.partitions
            if partition.topic == TRANSACTIONS_TOPIC
        ]
        results = [
            (items[index].place.folder, result) for index, result in engine.map(read_transactions, items)
        ]
        for folder, failed in results:
            if isinstance(failed, Failed):
                yield Finding(rule="KR308", partition=folder, evidence=failed.why)
        read = (one for _, one in results if not isinstance(one, Failed))
        judging = judging.with_states([state for one in read for state in one.states], views)
    judged = [(one, *judging.verdict(one)[:2]) for one in found]
    yield from hanging_findings((one, why) for one, verdict, why in judged if verdict == "hangs")
    unknown = [one for one, verdict, _ in judged if verdict == "not known"]
    if unknown:
        yield _not_known(unknown)


def last_write_of(surveys: Iterable[Survey], now_ms: int) -> int:
    """When the broker of these partitions last wrote."""
    return last_write(
        ((survey.partition.topic, facts) for survey in surveys for facts in survey.segments), now_ms
    )


def state_item(view: LogDir, partition: Partition, now_ms: int) -> TransactionsItem:
    """What reads one partition of ``__transaction_state``."""
    from krepair.look.coordinators.transactions import TransactionsItem

    return TransactionsItem(
        place=place_of(view, partition),
        segments=partition.log_sizes,
        log_start=view.log_start.offsets.get(partition.key, 0),
        high_watermark=watermark_of(view, partition),
        now_ms=now_ms,
    )


def owners_of(states: Iterable[TransactionState]) -> Owners:
    """The states of the transactional ids that have, or had, each producer id."""
    owners: dict[int, list[TransactionState]] = {}
    for state in states:
        for producer_id in {state.producer_id, *state.earlier_producer_ids} - {-1}:
            owners.setdefault(producer_id, []).append(state)
    return owners


def is_known(survey: Survey) -> bool:
    """Whether a partition was read whole, and no marker can lie behind damage before its tail."""
    known = survey.segments and len(survey.segments) == len(survey.partition.segments)
    return bool(known) and all(facts.summary.is_whole for facts in survey.segments[:-1])


def open_in(survey: Survey) -> Iterator[OpenTransaction]:
    """Every transaction without a marker, by first offset; none of a partition of which too little is known."""
    if not is_known(survey) or not any(len(facts.summary.rows) for facts in survey.segments):
        return
    states = states_by_scan(survey.segments, all_ids(survey.segments, ()), INT64_MAX)
    places = np.flatnonzero(states.known & (states.open_first >= 0))
    places = places[np.argsort(states.open_first[places], kind="stable")]
    firsts = states.open_first[places]
    columns = zip(
        states.ids[places], states.epoch[places], firsts, _begun_by(survey.segments, firsts), strict=True
    )
    for row in columns:
        yield OpenTransaction(survey, *map(int, row))


def _begun_by(segments: Sequence[SegmentFacts], firsts: Int64s) -> Int64s:
    """The earliest time of a marker behind each offset; a very large number if there is none."""
    markers = [markers_in(facts) for facts in segments]
    offsets = np.concatenate([one.first_offset for one in markers])
    times = np.concatenate([one.time_ms for one in markers])
    order = np.argsort(offsets, kind="stable")
    dated = np.where(times < 0, INT64_MAX, times)[order]
    earliest = np.append(np.minimum.accumulate(dated[::-1])[::-1], INT64_MAX)
    return earliest[np.searchsorted(offsets[order], firsts, side="right")]


class Judging(NamedTuple):
    """What tells whether somebody will end an open transaction.

    Attributes:
        owners: see ``owners_of``.
        last_write_ms: time in epoch milliseconds at which a broker last wrote, -1 if not known.
        limit_ms: how long the cluster lets a transaction be open.
        partitions: of ``__transaction_state``; 0 if nothing tells.
        recorded: whether the metadata log tells it.
    """

    owners: Owners
    last_write_ms: int
    limit_ms: int
    partitions: int = 0
    recorded: bool = False

    def with_states(self, states: Sequence[TransactionState], views: Sequence[LogDir]) -> Judging:
        """Return the same with what the coordinators' log says, and how many partitions it has."""
        places = [(one.transactional_id, number_of(one.coordinator)) for one in states]
        partitions, recorded = partitions_of_topic(views, TRANSACTIONS_TOPIC, places)
        return self._replace(owners=owners_of(states), partitions=partitions, recorded=recorded)

    def belongs_to(self, state: TransactionState) -> int:
        """Return the partition in which the coordinator of an id looks, where that is another one; else -1.

        Nobody ends a transaction that is open in another partition: the number of partitions was raised, and its
        coordinator has the id in the old one (``TransactionStateManager.partitionFor`` 3.9.0; seen on 3.9.2).
        """
        if not self.partitions:
            return -1
        there = partition_of_name(state.transactional_id, self.partitions)
        return -1 if there == number_of(state.coordinator) else there

    def verdict(self, one: OpenTransaction) -> tuple[Verdict, str, int]:
        """Whether nobody will end a transaction, how that is known, and for how many milliseconds it was open."""
        owners = self.owners.get(one.producer_id, ())
        owner = owners[0] if len(owners) == 1 else None
        since, told = one.begun_by_ms, "a marker behind it"
        if owner is not None and _begins_no_more(owner, one) and 0 <= owner.last_update_ms < since:
            since, told = owner.last_update_ms, owner.coordinator
        age = max(self.last_write_ms - since, 0)
        for state in owners:
            there = self.belongs_to(state)
            if there >= 0 and _is_going(state, one):
                name = f"{TRANSACTIONS_TOPIC}-{there}"
                many = count_text(self.partitions, "partition")
                text = f"in {state.coordinator}, and of {many} {state.transactional_id} belongs"
                whose = (
                    "no coordinator ends it" if self.recorded else "if that is their number, nobody ends it"
                )
                return "hangs" if self.recorded else "not known", f"{text} to {name}: {whose}", age
        if owner is not None and _is_going(owner, one):
            age = max(self.last_write_ms - owner.start_ms, 0) if owner.start_ms >= 0 else 0
            begun = f"begun at {time_text(owner.start_ms)}, by {owner.coordinator}"
            overdue = age > owner.timeout_ms + COORDINATOR_SLACK_MS
            return "hangs" if overdue else "goes on", f"{begun}; its timeout is {owner.timeout_ms} ms", age
        text = (
            f"begun before {time_text(since)}, by {told}"
            if since < INT64_MAX
            else "nothing here says since when"
        )
        # A coordinator notes a partition before its first batch is written; but the end of its log may not be here.
        over = owner is not None and owner.state in _KNOWN
        if owner is not None and over:
            text += f"; {owner.coordinator} has no such transaction"
        hangs = age > (COORDINATOR_SLACK_MS if over else self.limit_ms)
        return "hangs" if hangs else "not known", text, age


def _is_going(state: TransactionState, one: OpenTransaction) -> bool:
    """Whether the coordinator has yet to end a transaction; an id with a new producer id says nothing of the old."""
    going = state.state in GOING and state.producer_id == one.producer_id
    return going and one.survey.partition.key in state.partitions


def _begins_no_more(state: TransactionState, one: OpenTransaction) -> bool:
    """Whether its coordinator is done with the epoch of a transaction, or with its producer id."""
    taken = state.producer_id != one.producer_id or state.producer_epoch > one.epoch
    return state.state == state_name(TransactionStatus.DEAD) or (state.state in OVER and taken)


def number_of(folder: str) -> int:
    """Return the number of a partition from the name of its folder."""
    return int(folder.rpartition("-")[2])


class WaitingBytes:
    """Bytes of ``.log`` from the segment of an offset to the end; made once for many offsets.

    Args:
        survey: the partition, read whole.
        active: whether the active segment counts.
    """

    def __init__(self, survey: Survey, *, active: bool = True) -> None:
        rows = list(zip(survey.partition.segments, survey.segments, strict=True))
        ends = sorted(
            (facts.summary.last_offset, segment.log.size)
            for segment, facts in (rows if active else rows[:-1])
        )
        self._ends = [end for end, _ in ends]
        # how many bytes are in the segments from each on
        self._bytes = [*accumulate((size for _, size in reversed(ends)), initial=0)][::-1]

    def since(self, offset: int) -> int:
        """Of the segments whose last offset is this one or behind it."""
        return self._bytes[bisect_left(self._ends, offset)]


def hanging_findings(hanging: Iterable[tuple[OpenTransaction, str]]) -> Iterator[Finding]:
    """KR103 of each partition with transactions that nobody will end, each with how that is known."""
    by_folder: dict[str, list[tuple[OpenTransaction, str]]] = {}
    for one, why in hanging:
        by_folder.setdefault(one.survey.partition.folder, []).append((one, why))
    for folder, some in by_folder.items():
        shown = "; ".join(
            f"producer {one.producer_id}, epoch {one.epoch}, open since offset {one.first_offset}, {text}"
            for one, text in some[:_SHOWN_AT_MOST]
        )
        yield Finding(
            rule="KR103",
            partition=folder,
            evidence=(
                f"{count_text(len(some), 'transaction')} without a marker when the broker last wrote: "
                f"{shown}; first ask the running "
                "cluster: kafka-transactions.sh find-hanging, then describe"
            ),
            bytes=WaitingBytes(some[0][0].survey).since(min(one.first_offset for one, _ in some)),
        )


def _not_known(some: Sequence[OpenTransaction]) -> Finding:
    folders = len({one.survey.partition.folder for one in some})
    shown = ", ".join(
        f"{one.survey.partition.folder} since offset {one.first_offset} (producer {one.producer_id})"
        for one in some[:_SHOWN_AT_MOST]
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


# -- when an open transaction may be aborted by hand, and what is typed for that on a live cluster

BY_START_OFFSET_SINCE: Final = (3, 0, 0)
"""KIP-664. The tool of 3.0 to 3.9 writes markers to older brokers, too; that of 4.x does not (KIP-896)."""

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
        high_watermark: from the checkpoint, -1 if none.
        newest_ms: newest time of a batch below it, -1 if none.
        gaps: damaged parts and records that could not be read.
    """

    high_watermark: int
    newest_ms: int
    gaps: int


def why_not_proven(
    one: OpenTransaction, owners: Sequence[TransactionState], logs: Mapping[str, CoordinatorLog]
) -> str:
    """Why the coordinator's log does not prove that a transaction is over; empty if it does.

    Args:
        one: the transaction.
        owners: states of all transactional ids that had its producer id.
        logs: by folder of ``__transaction_state``.
    """
    if not one.survey.segments[-1].summary.is_whole:
        return f"the tail of {one.survey.partition.folder} is damaged; a marker may be in it"
    if len(owners) != 1:
        count = "no transactional id" if not owners else f"{len(owners)} transactional ids"
        return f"__transaction_state here names {count} for producer {one.producer_id}"
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
    return _why_maybe_later(one, state, log)


def _why_maybe_later(one: OpenTransaction, state: TransactionState, log: CoordinatorLog) -> str:
    """Whether the transaction may have begun after the coordinator's log ends, as it is here."""
    if _begins_no_more(state, one):
        return ""
    if state.producer_epoch < one.epoch:
        newer = f"{state.coordinator} ends at epoch {state.producer_epoch} of the producer"
        return f"{newer}, the transaction is of epoch {one.epoch}"
    if log.newest_ms - COORDINATOR_SLACK_MS > one.begun_by_ms:
        return ""
    return f"{state.coordinator} may end before the transaction began"


def abort_command(one: OpenTransaction, coordinator_epoch: int, version: Version) -> str:
    """What is typed to abort it; empty if the broker's version is not known.

    Args:
        one: the transaction.
        coordinator_epoch: of the last marker of its producer in the partition, -1 if there is none.
        version: of the broker.
    """
    if version is None:
        return ""
    where = f"--topic {shlex.quote(one.survey.partition.topic)} --partition {one.survey.partition.number}"
    if version >= BY_START_OFFSET_SINCE:
        return f"{TOOL} abort {where} --start-offset {one.first_offset}"
    return (
        f"{TOOL} abort {where} --producer-id {one.producer_id} --producer-epoch {one.epoch} "
        f"--coordinator-epoch {max(coordinator_epoch, 0)}"
    )


def coordinator_epochs(survey: Survey) -> dict[int, int]:
    """Producer id -> coordinator epoch of its last marker in a partition; only of those that have one."""
    found: dict[int, int] = {}
    for facts in reversed(survey.segments):
        rows = facts.summary.rows
        ended = rows[rows[:, c.P_MARKERS] > 0]
        ids, firsts = np.unique(ended[:, c.P_ID], return_index=True)
        for producer_id, epoch in zip(
            ids.tolist(), ended[firsts, c.P_COORDINATOR_EPOCH].tolist(), strict=True
        ):
            found.setdefault(producer_id, epoch)
    return found


def live_commands(
    broker_id: str, max_timeout_ms: int, hanging: Sequence[tuple[OpenTransaction, str]]
) -> tuple[str, ...]:
    """What asks a running cluster, before anything is aborted.

    Args:
        broker_id: of the log directory, may be empty.
        max_timeout_ms: ``transaction.max.timeout.ms``.
        hanging: transactions that nobody will end, each with its transactional id, empty if that is not known.
    """
    if not hanging:
        return ()
    minutes = max(-(-max_timeout_ms // 60_000), 1)
    find = f"{TOOL} find-hanging --max-transaction-timeout {minutes}"
    partitions = dict.fromkeys(
        f"--topic {shlex.quote(one.survey.partition.topic)} --partition {one.survey.partition.number}"
        for one, _ in hanging
    )
    commands = [f"{find} --broker-id {broker_id}"] if broker_id.isdigit() else []
    commands = commands or [f"{find} {where}" for where in partitions]
    commands += [f"{TOOL} describe --transactional-id {shlex.quote(name)}" for name in _ids(hanging)]
    nameless = dict.fromkeys(
        f"--topic {shlex.quote(one.survey.partition.topic)} --partition {one.survey.partition.number}"
        for one, name in hanging
        if not name
    )
    return (*commands, *(f"{TOOL} describe-producers {where}" for where in nameless))


def _ids(hanging: Sequence[tuple[OpenTransaction, str]]) -> list[str]:
    return sorted({name for _, name in hanging if name})
