"""Implement ``krepair transactions``: what ``__transaction_state`` and the logs say of transactions. Writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing

from msgspec import Struct, field

from krepair.checks.catalogue import Finding
from krepair.durable.scratch import Scratch
from krepair.engine.choice import WorkKind, choose_engine
from krepair.engine.progress import Progress
from krepair.errors import ExitCode
from krepair.findings.open_transactions import (
    COORDINATOR_SLACK_MS,
    GOING,
    CoordinatorLog,
    Judging,
    OpenTransaction,
    Verdict,
    WaitingBytes,
    abort_command,
    coordinator_epochs,
    hanging_findings,
    is_known,
    last_write_of,
    live_commands,
    open_in,
    state_item,
    why_not_proven,
)
from krepair.fixes.analysis import PartitionAnalysis
from krepair.fixes.context import Context, next_version, watermark_of
from krepair.fixes.logs import read_logs
from krepair.formats.broker_version import Version
from krepair.formats.filenames import TRANSACTIONS_TOPIC, log_name
from krepair.logdir.config import load_settings
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.look.coordinators.transactions import TransactionState
from krepair.next_command import NOTHING, Next
from krepair.ops.groups import PassedOver, partitions_of, passed_over, read_partitions
from krepair.options import Options
from krepair.report import Report
from krepair.start.log_dirs_given import check_named


class OpenInLog(Struct, frozen=True, kw_only=True):
    """Transaction of one partition that has no marker in the log here.

    Attributes:
        partition: folder name of the partition.
        first_offset: offset of the first batch; the last stable offset cannot be higher.
        producer_id: id of the transaction's producer.
        producer_epoch: epoch of the transaction's producer.
        coordinator_epoch: epoch in the producer's last marker in this log; -1 if there is none.
        transactional_id: transactional id that owns the producer id; empty if unknown.
        state: state of the transactional id in the coordinator's log; empty if it says nothing.
        at_least_ms: time in ms for which the transaction was open at least when a broker last wrote; 0 if unknown.
        at_most_ms: always -1; 1.0.0 had an estimate here.
        verdict: answer to the question whether somebody will end the transaction.
        why: reason for the verdict.
        held_back_bytes: bytes of closed segments that the cleaner cannot clean before the transaction ends; 0 if the
            topic is not compacted.
        abort: command for the live cluster, only if ``__transaction_state`` here proves that the transaction is over.
        no_abort: reason why a hanging transaction has no ``abort`` command; else empty.
    """

    partition: str
    first_offset: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transactional_id: str
    state: str
    at_least_ms: int
    at_most_ms: int
    verdict: Verdict
    why: str
    held_back_bytes: int = 0
    abort: str = ""
    no_abort: str = ""


class Transaction(Struct, frozen=True, kw_only=True):
    """One transactional id.

    Attributes:
        state: newest record of the transactional id.
        age_ms: time that the transaction was open when a broker last wrote, in ms; -1 if none is open or it is unknown.
        open_in: partitions here in which a transaction of its producer ids has no marker.
        held_back_bytes: bytes that the transactions in ``open_in`` keep from being compacted.
        belongs_to: partition of ``__transaction_state`` in which its coordinator looks, where its record is in another
            one; else -1. Nobody ends a transaction of it that is open.
    """

    state: TransactionState
    age_ms: int = -1
    open_in: tuple[str, ...] = ()
    held_back_bytes: int = 0
    belongs_to: int = -1

    @property
    def goes_on(self) -> bool:
        """True if the coordinator has yet to end the transaction, as far as its log tells."""
        return (self.state.state in GOING and self.belongs_to < 0) or bool(self.state.problem)


class NotJudged(Struct, frozen=True, kw_only=True):
    """Partition whose open transactions are unknown.

    Attributes:
        partition: folder name of the partition.
        why: fault that keeps the partition from being judged.
    """

    partition: str
    why: str


class TransactionsReport(Report, frozen=True, kw_only=True):
    """Result of ``transactions``.

    Attributes:
        log_dir: path of the log directory.
        last_write_ms: time of the last batch that a broker stamped itself, up to which ages count; -1 if unknown.
        partitions: folders of ``__transaction_state`` that were read.
        states: number of transactional ids in each state.
        transactions: requested transactions, sorted by transactional id.
        open: transactions without a marker, by partition and offset.
        live_commands: questions for a running cluster, to ask before anything is aborted.
        findings: hanging transactions, as findings KR103.
        damaged: parts of ``__transaction_state`` that could not be read.
        damages: number of parts that could not be read.
        not_judged: partitions whose open transactions are unknown.
        unknown: records of ``__transaction_state`` with a key that krepair does not know.
        bytes_read: bytes of ``.log`` files that were read.
    """

    log_dir: str
    last_write_ms: int = -1
    partitions: tuple[str, ...] = ()
    states: dict[str, int] = field(default_factory=dict)
    transactions: tuple[Transaction, ...] = ()
    open: tuple[OpenInLog, ...] = ()
    live_commands: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    damaged: tuple[PassedOver, ...] = ()
    damages: int = 0
    not_judged: tuple[NotJudged, ...] = ()
    unknown: int = 0
    bytes_read: int = 0

    @property
    def exit_code(self) -> ExitCode:
        """FOUND if there is a finding or something could not be judged, else DONE."""
        return ExitCode.FOUND if self.findings or self.damages or self.not_judged else ExitCode.DONE


def transactions(log_dir: str, options: Options, progress: Progress | None = None) -> TransactionsReport:
    """Read every partition of ``__transaction_state``, and look for transactions without a marker in every log.

    A directory is judged by itself: the coordinator of a transaction may be on another broker.

    Args:
        options: configuration, broker version, engine, clock, the partitions whose logs are looked at, and the
            transactional ids to show.
        progress: receiver of the bytes done so far.

    Raises:
        NotALogDirError: the path is no log directory, or a named partition is not in it.
        UnreadableError: a partition of ``__transaction_state`` could not be read.
        UsageError: a configuration file or value is wrong.
    """
    from krepair.look.coordinators.transactions import read_transactions

    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    view = read_log_dir(log_dir)
    check_named([view], options)
    total = sum(partition.log_bytes for partition in _partitions_of(view, options))
    coordinators = partitions_of(view, TRANSACTIONS_TOPIC, lambda *_: True)
    with (
        closing(choose_engine(options.engine, options.master, {WorkKind.READ: total}, progress)) as engine,
        closing(Scratch(options.scratch, (view.path,))) as scratch,
    ):
        context = Context(view, settings, options, engine, scratch)
        analyses = context.analyze_all(_partitions_of(view, options))
        read_logs(context, analyses)
        items = [state_item(view, partition, options.now_ms) for partition in coordinators]
        results = read_partitions(engine, read_transactions, items, "transactions")
    most_ms = settings.transaction_max_timeout_ms
    states = [state for result in results for state in result.states]
    judging = Judging({}, last_write_of(analyses, options.now_ms), most_ms + COORDINATOR_SLACK_MS)
    judging = judging.with_states(states, [view])
    logs = {
        partition.folder: CoordinatorLog(
            watermark_of(view, partition), result.newest_ms, result.damages + result.unknown
        )
        for partition, result in zip(coordinators, results, strict=True)
    }
    version = next_version(view, options)
    wanted = options.transactional_id
    judged = [pair for analysis in analyses for pair in _judged(analysis, judging, logs, version, wanted)]
    rows = [row for _, row in judged]
    by_producer: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        by_producer.setdefault(row.producer_id, []).append(place)
    hanging = [(transaction, row) for transaction, row in judged if row.verdict == "hangs"]
    findings = tuple(hanging_findings((transaction, row.why) for transaction, row in hanging))
    damages = sum(result.damages for result in results)
    not_judged = tuple(_not_judged(analyses))
    return TransactionsReport(
        log_dir=view.path,
        last_write_ms=judging.last_write_ms,
        partitions=tuple(partition.folder for partition in coordinators),
        states=dict(sorted(Counter(state.state for state in states).items())),
        transactions=tuple(
            _transaction(state, rows, by_producer, judging)
            for state in sorted(states, key=lambda state: (state.transactional_id, state.coordinator))
            if not wanted or state.transactional_id in wanted
        ),
        open=tuple(rows),
        live_commands=live_commands(
            view.broker_id,
            most_ms,
            [(transaction, row.transactional_id) for transaction, row in hanging],
        ),
        findings=findings,
        damaged=passed_over(coordinators, results),
        damages=damages,
        not_judged=not_judged,
        unknown=sum(result.unknown for result in results),
        bytes_read=sum(analysis.partition.log_bytes for analysis in analyses),
        engine=engine.why,
        next_command=_next_command(
            view.path, damaged=bool(damages or not_judged), hangs=bool(findings), version=version
        ),
    )


def _partitions_of(view: LogDir, options: Options) -> list[Partition]:
    """Return the coordinators' partitions, and those that the command line selects."""
    return [
        partition
        for partition in view.partitions
        if partition.topic == TRANSACTIONS_TOPIC or options.wants(partition.topic, partition.number)
    ]


def _judged(
    analysis: PartitionAnalysis,
    judging: Judging,
    logs: Mapping[str, CoordinatorLog],
    version: Version,
    wanted: Sequence[str],
) -> Iterator[tuple[OpenTransaction, OpenInLog]]:
    """Yield the open transactions of one partition that were requested; shared values are made once."""
    some = [
        transaction
        for transaction in open_in(analysis)
        if not wanted
        or any(owner.transactional_id in wanted for owner in judging.owners.get(transaction.producer_id, ()))
    ]
    if not some:
        return
    epochs = coordinator_epochs(analysis)
    waiting = WaitingBytes(analysis, active=False) if analysis.settings.compacts else None
    for transaction in some:
        owners = judging.owners.get(transaction.producer_id, ())
        verdict, why, age = judging.verdict(transaction)
        coordinator_epoch = epochs.get(transaction.producer_id, -1)
        abort = no_abort = ""
        if verdict == "hangs":
            no_abort = why_not_proven(transaction, owners, logs)
            if not no_abort:
                abort = abort_command(transaction, coordinator_epoch, version)
                no_abort = "" if abort else "the broker's version is not known; give it with --broker-version"
        yield (
            transaction,
            OpenInLog(
                partition=analysis.partition.folder,
                first_offset=transaction.first_offset,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                coordinator_epoch=coordinator_epoch,
                transactional_id=owners[0].transactional_id if len(owners) == 1 else "",
                state=owners[0].state if len(owners) == 1 else "",
                at_least_ms=age,
                at_most_ms=-1,
                verdict=verdict,
                why=why,
                held_back_bytes=0 if waiting is None else waiting.since(transaction.first_offset),
                abort=abort,
                no_abort=no_abort,
            ),
        )


def _transaction(
    state: TransactionState,
    rows: Sequence[OpenInLog],
    by_producer: Mapping[int, Sequence[int]],
    judging: Judging,
) -> Transaction:
    ids = {state.producer_id, *state.earlier_producer_ids} - {-1}
    mine = sorted(place for producer_id in ids for place in by_producer.get(producer_id, ()))
    most: dict[str, int] = {}
    for row in (rows[place] for place in mine):
        most[row.partition] = max(most.get(row.partition, 0), row.held_back_bytes)
    going = state.state in GOING and 0 <= state.start_ms <= judging.last_write_ms
    return Transaction(
        state=state,
        age_ms=judging.last_write_ms - state.start_ms if going else -1,
        open_in=tuple(most),
        held_back_bytes=sum(most.values()),
        belongs_to=judging.belongs_to(state) if judging.recorded else -1,
    )


def _not_judged(analyses: Sequence[PartitionAnalysis]) -> list[NotJudged]:
    partitions = []
    for analysis in analyses:
        partition = analysis.partition
        if partition.unreadable:
            partitions.append(NotJudged(partition=partition.folder, why=partition.unreadable))
        elif partition.segments and not is_known(analysis):
            problem = None if analysis.log is None else analysis.log.problem
            log_problem = "" if problem is None else problem.why
            damaged = next((facts for facts in analysis.segments[:-1] if not facts.summary.is_whole), None)
            damage = (
                f"{log_name(damaged.base_offset)} is damaged: {damaged.summary.damage_text}"
                if damaged
                else ""
            )
            partitions.append(NotJudged(partition=partition.folder, why=log_problem or damage))
    return partitions


def _next_command(log_dir: str, *, damaged: bool, hangs: bool, version: Version) -> Next:
    if damaged:
        return Next.of("check", log_dir)
    if hangs and version is None:
        return Next.of("transactions", log_dir, "--broker-version", "VERSION")
    return Next.of("explain", "KR103") if hangs else NOTHING
