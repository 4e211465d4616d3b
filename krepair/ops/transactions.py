"""``krepair transactions``: what ``__transaction_state`` and the logs say of transactions. Writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

from msgspec import Struct, field

from krepair.checks.catalogue import Finding
from krepair.durable.scratch import Scratch
from krepair.errors import ExitCode
from krepair.fixes.context import Context, next_version, place_of, watermark_of
from krepair.fixes.logs import read_logs
from krepair.fixes.survey import Survey
from krepair.formats.broker_version import Version
from krepair.formats.filenames import TRANSACTIONS_TOPIC, log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.transaction_state import IN_PROGRESS, TransactionStatus, TransactionValue, state_name
from krepair.formats.words import count_text
from krepair.logdir.config import Settings, load_settings
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.coordinator_topic import (
    PassedOver,
    log_bytes,
    partitions_of,
    passed_over,
    read_partitions,
)
from krepair.ops.findings.broker_clock import LastWrite, last_write
from krepair.ops.findings.open_transactions import (
    COORDINATOR_SLACK_MS,
    CoordinatorLog,
    OpenTransaction,
    WaitingBytes,
    abort_command,
    coordinator_epochs,
    hanging_finding,
    is_known,
    judge,
    live_commands,
    open_in,
    why_not_proven,
)
from krepair.ops.log_dirs_given import check_named
from krepair.ops.reports import Report
from krepair.options import Options
from krepair.pipeline.coordinators.transaction_book import TransactionState
from krepair.pipeline.coordinators.transactions import TransactionsItem, TransactionsResult
from krepair.pipeline.engines.choice import WorkKind, choose_engine
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.progress import Progress

Verdict = Literal["hangs", "goes on", "not known"]
_STATUS_OF = {state_name(status): status for status in TransactionStatus}
_GOING = frozenset(state_name(status) for status in IN_PROGRESS)


class OpenInLog(Struct, frozen=True, kw_only=True):
    """A transaction of one partition that has no marker in the log here.

    Attributes:
        partition: folder name.
        first_offset: of its first batch; the last stable offset cannot be higher.
        producer_id: of its producer.
        producer_epoch: of its producer.
        coordinator_epoch: of the last marker of the producer in this log, -1 if there is none.
        transactional_id: whose producer id it is, empty if that is not known.
        state: what the coordinator's log says of the transactional id, empty if nothing.
        at_least_ms: it was open for at least so long when a broker last wrote; 0 if nothing is known.
        at_most_ms: and for at most so long, -1 if nothing is known.
        verdict: whether somebody will end it.
        why: how that is known.
        held_back_bytes: of closed segments that the cleaner cannot clean before it ends; 0 if nothing is compacted.
        abort: what is typed on the live cluster, only where ``__transaction_state`` here proves that it is over.
        no_abort: why there is no such line; only of one that hangs.
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
        state: its newest record.
        age_ms: how long its transaction was open when a broker last wrote, -1 if none is open or it is not known.
        open_in: partitions here in which a transaction of its producer ids has no marker.
        held_back_bytes: that these keep from being compacted.
    """

    state: TransactionState
    age_ms: int = -1
    open_in: tuple[str, ...] = ()
    held_back_bytes: int = 0

    @property
    def goes_on(self) -> bool:
        """Whether the coordinator has yet to end it, as far as its log tells."""
        return self.state.state in _GOING or bool(self.state.problem)


class NotJudged(Struct, frozen=True, kw_only=True):
    """A partition whose open transactions cannot be told.

    Attributes:
        partition: folder name.
        why: what is wrong with it.
    """

    partition: str
    why: str


class TransactionsReport(Report, frozen=True, kw_only=True):
    """What ``transactions`` found.

    Attributes:
        log_dir: its path.
        last_write_ms: when a broker last wrote a batch with a time of its own; ages count up to then. -1 if not known.
        partitions: folders of ``__transaction_state`` that were read.
        states: how many transactional ids are in each state.
        transactions: by transactional id, those that were asked for.
        open: transactions without a marker, by partition and offset.
        live_commands: what to ask a running cluster, before anything is aborted.
        findings: KR103.
        damaged: what of ``__transaction_state`` was passed over.
        damages: how many such parts there are.
        not_judged: partitions whose open transactions cannot be told.
        unknown: records of ``__transaction_state`` with a key that krepair does not know.
        bytes_read: of ``.log``.
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
        """FOUND when there is a finding, or something could not be told."""
        return ExitCode.FOUND if self.findings or self.damages or self.not_judged else ExitCode.DONE


class _LogsRead(NamedTuple):
    """All that was read."""

    view: LogDir
    surveys: Sequence[Survey]
    coordinators: Sequence[Partition]
    results: Sequence[TransactionsResult]
    engine: str


class _Judging(NamedTuple):
    """What every open transaction is judged by."""

    owners: Mapping[int, Sequence[TransactionState]]
    logs: Mapping[str, CoordinatorLog]
    written: LastWrite
    limit_ms: int
    version: Version


def transactions(
    log_dir: str, options: Options, wanted: Sequence[str] = (), progress: Progress | None = None
) -> TransactionsReport:
    """Read every partition of ``__transaction_state``, and look for transactions without a marker in every log.

    A directory is judged by itself: the coordinator of a transaction may be on another broker.

    Args:
        log_dir: its path.
        options: configuration, broker version, engine, clock, and the partitions whose logs are looked at.
        wanted: transactional ids to show; empty for all.
        progress: told how far it is.

    Raises:
        NotALogDirError: it is none, or a partition that was named is not in it.
        UnreadableError: a partition of ``__transaction_state`` could not be read.
        UsageError: a configuration file or value is wrong.
    """
    settings = load_settings(options.config, options.topic_config, dict(options.settings))
    view = read_log_dir(log_dir)
    check_named([view], options)
    total = sum(log_bytes(partition) for partition in _partitions_of(view, options))
    with closing(choose_engine(options.engine, options.master, {WorkKind.READ: total}, progress)) as engine:
        seen = _look(view, settings, options, engine)
    written = last_write(
        ((survey.partition.topic, facts) for survey in seen.surveys for facts in survey.segments),
        options.now_ms,
    )
    judging = _Judging(
        owners=_owners(seen.results),
        logs=_logs(seen),
        written=written,
        limit_ms=settings.transaction_max_timeout_ms + COORDINATOR_SLACK_MS,
        version=next_version(seen.view, options),
    )
    judged = [pair for survey in seen.surveys for pair in _judged(survey, judging, wanted)]
    rows = [row for _, row in judged]
    by_producer: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        by_producer.setdefault(row.producer_id, []).append(place)
    hanging = [(one, row) for one, row in judged if row.verdict == "hangs"]
    findings = _findings(hanging)
    damages = sum(result.damages for result in seen.results)
    not_judged = tuple(_not_judged(seen.surveys))
    states = [state for result in seen.results for state in result.states]
    return TransactionsReport(
        log_dir=seen.view.path,
        last_write_ms=written.by_batch_ms,
        partitions=tuple(partition.folder for partition in seen.coordinators),
        states=_counted(states),
        transactions=tuple(
            _transaction(state, rows, by_producer, written)
            for state in sorted(states, key=lambda state: (state.transactional_id, state.coordinator))
            if not wanted or state.transactional_id in wanted
        ),
        open=tuple(rows),
        live_commands=live_commands(
            seen.view.broker_id,
            settings.transaction_max_timeout_ms,
            [(one, row.transactional_id) for one, row in hanging],
        ),
        findings=findings,
        damaged=passed_over(seen.coordinators, seen.results),
        damages=damages,
        not_judged=not_judged,
        unknown=sum(result.unknown for result in seen.results),
        bytes_read=sum(log_bytes(survey.partition) for survey in seen.surveys),
        engine=seen.engine,
        next_command=_next_command(
            seen.view.path, damaged=bool(damages or not_judged), hangs=bool(findings), version=judging.version
        ),
    )


def _partitions_of(view: LogDir, options: Options) -> list[Partition]:
    """The coordinators' partitions, and those that the command line lets in."""
    return [
        partition
        for partition in view.partitions
        if partition.topic == TRANSACTIONS_TOPIC or options.wants(partition.topic, partition.number)
    ]


def _look(view: LogDir, settings: Settings, options: Options, engine: Engine) -> _LogsRead:
    coordinators = partitions_of(view, TRANSACTIONS_TOPIC, lambda *_: True)
    with closing(Scratch(options.scratch, (view.path,))) as scratch:
        context = Context(view, settings, options, engine, scratch)
        surveys = context.survey_all(_partitions_of(view, options))
        read_logs(context, surveys)
    results = _read_states(view, coordinators, options, engine)
    return _LogsRead(view, surveys, coordinators, results, engine.why)


def _read_states(
    view: LogDir, coordinators: Sequence[Partition], options: Options, engine: Engine
) -> list[TransactionsResult]:
    from krepair.pipeline.coordinators.transactions import read_transactions

    items = [
        TransactionsItem(
            place=place_of(view, partition),
            segments=partition.log_sizes,
            log_start=view.log_start.offsets.get(partition.key, 0),
            high_watermark=watermark_of(view, partition),
            now_ms=options.now_ms,
        )
        for partition in coordinators
    ]
    return read_partitions(engine, read_transactions, items, "transactions")


def _owners(results: Sequence[TransactionsResult]) -> dict[int, list[TransactionState]]:
    """The transactional ids that have, or had, each producer id."""
    owners: dict[int, list[TransactionState]] = {}
    for result in results:
        for state in result.states:
            for producer_id in {state.producer_id, *state.earlier_producer_ids} - {-1}:
                owners.setdefault(producer_id, []).append(state)
    return owners


def _logs(seen: _LogsRead) -> dict[str, CoordinatorLog]:
    return {
        partition.folder: CoordinatorLog(
            watermark_of(seen.view, partition), result.newest_ms, result.damages + result.unknown
        )
        for partition, result in zip(seen.coordinators, seen.results, strict=True)
    }


def _counted(states: Sequence[TransactionState]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for state in states:
        counts[state.state] = counts.get(state.state, 0) + 1
    return dict(sorted(counts.items()))


def _judged(
    survey: Survey, judging: _Judging, wanted: Sequence[str]
) -> Iterator[tuple[OpenTransaction, OpenInLog]]:
    """The open transactions of one partition that were asked for; what they share is made once."""
    some = [
        one
        for one in open_in(survey, judging.written)
        if not wanted
        or any(owner.transactional_id in wanted for owner in judging.owners.get(one.producer_id, ()))
    ]
    if not some:
        return
    epochs = coordinator_epochs(survey)
    waiting = WaitingBytes(survey, active=False) if survey.settings.compacts else None
    for one in some:
        held_back = 0 if waiting is None else waiting.since(one.first_offset)
        yield one, _open(one, judging, epochs.get(one.producer_id, -1), held_back)


def _open(one: OpenTransaction, judging: _Judging, coordinator_epoch: int, held_back: int) -> OpenInLog:
    owners = judging.owners.get(one.producer_id, ())
    verdict, why = _verdict(one, owners, judging)
    survey = one.survey
    abort = no_abort = ""
    if verdict == "hangs":
        no_abort = why_not_proven(one, owners, judging.logs)
        if not no_abort:
            abort = abort_command(one, coordinator_epoch, judging.version)
            no_abort = "" if abort else "the broker's version is not known; give it with --broker-version"
    return OpenInLog(
        partition=survey.partition.folder,
        first_offset=one.first_offset,
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        coordinator_epoch=coordinator_epoch,
        transactional_id=owners[0].transactional_id if len(owners) == 1 else "",
        state=owners[0].state if len(owners) == 1 else "",
        at_least_ms=one.bounds.at_least_ms,
        at_most_ms=one.bounds.at_most_ms if one.bounds.at_most_ms < INT64_MAX else -1,
        verdict=verdict,
        why=why,
        held_back_bytes=held_back,
        abort=abort,
        no_abort=no_abort,
    )


def _verdict(
    one: OpenTransaction, owners: Sequence[TransactionState], judging: _Judging
) -> tuple[Verdict, str]:
    """The same judgement as that of KR103."""
    if one.bounds.at_most_ms <= judging.limit_ms:
        return (
            "goes on",
            f"it is open for less than {_minutes(one.bounds.at_most_ms)}, and its producer may take that long",
        )
    state = _value_of(owners[0], one.producer_id) if len(owners) == 1 else None
    hangs, why = judge(one, state, judging.written, judging.limit_ms)
    return ("not known" if hangs is None else "hangs" if hangs else "goes on"), why


def _minutes(milliseconds: int) -> str:
    return count_text(milliseconds // 60_000 + 1, "minute")


def _value_of(state: TransactionState, producer_id: int) -> TransactionValue | None:
    """What the rule of KR103 looks at; a transactional id with a new producer id says nothing more of the old one."""
    status = _STATUS_OF.get(state.state)
    if status is None:
        return None
    if state.producer_id != producer_id:
        status = TransactionStatus.DEAD
    return TransactionValue(
        producer_id,
        state.producer_epoch,
        state.timeout_ms,
        status,
        frozenset(state.partitions),
        state.last_update_ms,
        state.start_ms,
    )


def _transaction(
    state: TransactionState,
    rows: Sequence[OpenInLog],
    by_producer: Mapping[int, Sequence[int]],
    written: LastWrite,
) -> Transaction:
    ids = {state.producer_id, *state.earlier_producer_ids} - {-1}
    mine = sorted(place for producer_id in ids for place in by_producer.get(producer_id, ()))
    most: dict[str, int] = {}
    for row in (rows[place] for place in mine):
        most[row.partition] = max(most.get(row.partition, 0), row.held_back_bytes)
    going = state.state in _GOING and 0 <= state.start_ms <= written.by_batch_ms
    return Transaction(
        state=state,
        age_ms=written.by_batch_ms - state.start_ms if going else -1,
        open_in=tuple(most),
        held_back_bytes=sum(most.values()),
    )


def _findings(hanging: Sequence[tuple[OpenTransaction, OpenInLog]]) -> tuple[Finding, ...]:
    by_partition: dict[str, list[tuple[OpenTransaction, str]]] = {}
    for one, row in hanging:
        by_partition.setdefault(row.partition, []).append((one, row.why))
    return tuple(hanging_finding(some) for some in by_partition.values())


def _not_judged(surveys: Sequence[Survey]) -> list[NotJudged]:
    found = []
    for survey in surveys:
        partition = survey.partition
        if partition.unreadable:
            found.append(NotJudged(partition=partition.folder, why=partition.unreadable))
        elif partition.segments and not is_known(survey):
            problem = None if survey.log is None else survey.log.problem
            left = "" if problem is None else problem.why
            damaged = next((facts for facts in survey.segments[:-1] if not facts.summary.is_whole), None)
            where = (
                f"{log_name(damaged.base_offset)} is damaged: {damaged.summary.damage_text}"
                if damaged
                else ""
            )
            found.append(NotJudged(partition=partition.folder, why=left or where))
    return found


def _next_command(log_dir: str, *, damaged: bool, hangs: bool, version: Version) -> str:
    where = shlex.quote(log_dir)
    if damaged:
        return f"krepair check {where}"
    if hangs and version is None:
        return f"krepair transactions {where} --broker-version VERSION"
    return "krepair explain KR103" if hangs else ""
