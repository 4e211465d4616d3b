"""When an open transaction may be aborted by hand, and what is typed for that on a live cluster.

An abort of a transaction that is still alive takes records that its producer believes to be written. So the command is
shown only where the coordinator's own log proves that the transaction is over for the coordinator: it is not ongoing,
and it is neither prepared to commit nor prepared to abort.

Source: KIP-664; TransactionsCommand (3.9.2, 4.3.1), whose ``abort`` takes the start offset where a broker tells its
producers (3.0 and later), else what the marker must hold; ProducerAppendInfo.checkCoordinatorEpoch (2.2.1).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from krepair.fixes.survey import Survey
from krepair.formats.broker_version import Version
from krepair.formats.transaction_state import TransactionStatus, state_name
from krepair.kernels import classes as c
from krepair.ops.findings.open_transactions import COORDINATOR_SLACK_MS, OpenTransaction
from krepair.pipeline.coordinators.transaction_book import TransactionState

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
    if state.producer_id != one.producer_id or state.state == state_name(TransactionStatus.DEAD):
        return ""  # a producer id that was taken from its transactional id begins nothing any more
    if state.producer_epoch > one.epoch:
        return ""  # nor does an epoch
    if state.producer_epoch < one.epoch:
        newer = f"{state.coordinator} ends at epoch {state.producer_epoch} of the producer"
        return f"{newer}, the transaction is of epoch {one.epoch}"
    if log.newest_ms - COORDINATOR_SLACK_MS > one.bounds.begun_by_ms:
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
    where = f"--topic {word(one.survey.partition.topic)} --partition {one.survey.partition.number}"
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
        f"--topic {word(one.survey.partition.topic)} --partition {one.survey.partition.number}"
        for one, _ in hanging
    )
    commands = [f"{find} --broker-id {broker_id}"] if broker_id.isdigit() else []
    commands = commands or [f"{find} {where}" for where in partitions]
    commands += [f"{TOOL} describe --transactional-id {word(name)}" for name in _ids(hanging)]
    nameless = dict.fromkeys(
        f"--topic {word(one.survey.partition.topic)} --partition {one.survey.partition.number}"
        for one, name in hanging
        if not name
    )
    return (*commands, *(f"{TOOL} describe-producers {where}" for where in nameless))


def _ids(hanging: Sequence[tuple[OpenTransaction, str]]) -> list[str]:
    return sorted({name for _, name in hanging if name})


def word(text: str) -> str:
    """A name as one word of a shell's command line; letters that cannot be printed are spelled out by their numbers."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_spelled, text)) + "'"


def _spelled(letter: str) -> str:
    if letter in "\\'":
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
