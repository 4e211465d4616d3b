"""Page of ``krepair transactions``."""

from __future__ import annotations

from collections.abc import Sequence

from krepair.cli.views.groups import age_text, found_sections, not_there
from krepair.cli.views.reports import end_of_page
from krepair.formats.filenames import TRANSACTIONS_TOPIC
from krepair.ops.transactions import OpenInLog, Transaction, TransactionsReport
from krepair.plan.view import Section, View, bytes_words, size_text, table_of, time_text

_MOST_PARTITIONS = 5
_THE_PAST = "A log directory shows the past. Brokers of 3.0 and later answer these; older ones do not."
_ONLY_THEN = (
    "__transaction_state here proves that these are over for the coordinator. But if this directory was written a "
    "while ago, only the answers to the commands above count."
)
_OLD_BROKERS = (
    "For brokers before 3.0 take kafka-transactions.sh of Kafka 3.0 to 3.9: that of 4.0 and later cannot write markers "
    "to them."
)


def transactions_view(report: TransactionsReport, *, detailed: bool, wanted: Sequence[str] = ()) -> View:
    """Transactions that go on, those without a marker, and what to type on a live cluster.

    Args:
        report: what was found.
        detailed: whether ids are shown that have no open transaction, too.
        wanted: ids that were asked for by name.
    """
    shown = [
        transaction
        for transaction in report.transactions
        if detailed or transaction.goes_on or transaction.open_in
    ]
    aborts = [row for row in report.open if row.abort]
    return View(
        title="krepair transactions",
        sections=(
            Section(
                title=f"Transactions in {report.log_dir}",
                lines=_head(report, wanted),
                table=table_of(
                    "transactional id | # producer id | # epoch | state | # age | # timeout | "
                    "partitions | no marker in | # held back",
                    (_row(transaction) for transaction in shown),
                ),
            ),
            Section(
                title="Without a marker in the logs here",
                table=table_of(
                    "partition | # since offset | # producer id | # epoch | transactional id | "
                    "state | # held back | verdict | what tells",
                    (_open_row(row) for row in report.open),
                ),
            ),
            Section(
                title="Ask the running cluster first",
                lines=(_THE_PAST,) if report.live_commands else (),
                commands=report.live_commands,
            ),
            Section(
                title="Abort what find-hanging still names, and nothing else",
                lines=_on_aborts(aborts),
                commands=tuple(row.abort for row in aborts),
            ),
            Section(
                title="Not to be aborted on this evidence",
                table=table_of(
                    "partition | # since offset | why",
                    (
                        (row.partition, str(row.first_offset), row.no_abort)
                        for row in report.open
                        if row.no_abort
                    ),
                ),
            ),
            *found_sections(report.findings, report.damaged),
            Section(
                title="Partitions that could not be judged",
                table=table_of("partition | why", ((one.partition, one.why) for one in report.not_judged)),
            ),
            *end_of_page(report.next_command),
        ),
    )


def _on_aborts(aborts: list[OpenInLog]) -> tuple[str, ...]:
    if not aborts:
        return ()
    return (
        (_ONLY_THEN, _OLD_BROKERS) if any("--producer-id" in row.abort for row in aborts) else (_ONLY_THEN,)
    )


def _head(report: TransactionsReport, wanted: Sequence[str]) -> tuple[str, ...]:
    lines = [
        f"Partitions of __transaction_state: {len(report.partitions)}; {bytes_words(report.bytes_read)} of .log read."
    ]
    if not report.partitions:
        lines.append(
            "There is no partition of __transaction_state here, so krepair cannot say what the coordinator knows."
        )
    there = {one.state.transactional_id for one in report.transactions}
    lines += [not_there("transactional id", name, TRANSACTIONS_TOPIC) for name in wanted if name not in there]
    if report.states:
        counts = ", ".join(f"{count} {state}" for state, count in report.states.items())
        lines.append(f"Transactional ids by state: {counts}.")
    if report.last_write_ms >= 0:
        lines.append(
            f"A broker last wrote at {time_text(report.last_write_ms)}; ages are counted up to then."
        )
    if report.unknown:
        lines.append(f"Records with a key that this version does not know: {report.unknown}.")
    if report.damages:
        lines.append(f"Damaged parts passed over: {report.damages}. The answer may lack what they said.")
    return tuple(lines)


def _row(each: Transaction) -> tuple[str, ...]:
    state = each.state
    names = [f"{topic}-{number}" for topic, number in state.partitions]
    return (
        state.transactional_id,
        _number(state.producer_id),
        _number(state.producer_epoch),
        state.problem or state.state,
        "-" if each.age_ms < 0 else age_text(0, each.age_ms),
        "-" if state.timeout_ms < 0 else age_text(0, state.timeout_ms),
        _some(names),
        _some(each.open_in),
        size_text(each.held_back_bytes),
    )


def _open_row(row: OpenInLog) -> tuple[str, ...]:
    return (
        row.partition,
        str(row.first_offset),
        str(row.producer_id),
        str(row.producer_epoch),
        row.transactional_id or "-",
        row.state or "-",
        size_text(row.held_back_bytes),
        row.verdict,
        row.why,
    )


def _number(value: int) -> str:
    return "-" if value < 0 else str(value)


def _some(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _MOST_PARTITIONS} more" if len(names) > _MOST_PARTITIONS else ""
    return ", ".join(names[:_MOST_PARTITIONS]) + more or "-"
