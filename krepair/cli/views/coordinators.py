"""Pages of ``krepair groups`` and ``krepair transactions``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.cli.views.reports import end_of_page
from krepair.formats.damage import shown
from krepair.formats.filenames import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krepair.formats.words import count_text, names_text, time_text
from krepair.look.coordinators.groups import Group
from krepair.next_command import Next
from krepair.ops.groups import GroupsReport, PassedOver
from krepair.ops.transactions import OpenInLog, Transaction, TransactionsReport
from krepair.plan.view import Section, View, bytes_words, size_text, table_of

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def groups_view(report: GroupsReport, wanted: Sequence[str] = ()) -> View:
    """Build the page of groups, one per line; members and commits are shown for groups requested by name.

    Args:
        wanted: ids of groups requested by name.
    """
    alive = [group for group in report.groups if group.state != "Dead"]
    dead = len(report.groups) - len(alive)
    lines = [
        f"Partitions of __consumer_offsets: {len(report.partitions)}; {bytes_words(report.bytes_read)} of .log read."
    ]
    if not report.partitions:
        lines = ["There is no partition of __consumer_offsets here."]
    there = {group.group for group in report.groups}
    lines += [not_there("group", name, OFFSETS_TOPIC) for name in wanted if name not in there]
    if dead and not wanted:
        lines.append(f"Deleted groups whose tombstones are still in the log: {dead}.")
    lines += (*_passed_over(report), *_misplaced(report), *_out_of_range(report))
    listed = report.groups if wanted else alive
    sections = [
        Section(
            title=f"Groups in {report.log_dir}",
            lines=tuple(lines),
            table=table_of(
                "group | kind | state | # partition | # generation | protocol | # members | # commits | # unseen | "
                "# out of range | # newest | # pending | # tombstones",
                (_group_row(group, report.now_ms) for group in listed),
            ),
        )
    ]
    if wanted:
        for group in report.groups:
            sections += _group(group, report.now_ms)
    sections += [
        *found_sections(report.findings, report.damaged),
        *end_of_page(report.next_command),
    ]
    return View(title="krepair groups", sections=tuple(sections))


def _group_row(group: Group, now_ms: int) -> tuple[str, ...]:
    newest = max((commit.commit_timestamp for commit in group.commits), default=-1)
    return (
        group.group,
        group.kind,
        group.state,
        group.partition.rpartition("-")[2],
        "-" if group.generation < 0 else str(group.generation),
        "/".join(part for part in (group.protocol_type, group.protocol) if part) or "-",
        str(len(group.members)),
        str(len(group.commits)),
        str(group.unseen_commits),
        str(sum(commit.out_of_range for commit in group.commits)),
        age_text(newest, now_ms),
        str(len(group.pending)),
        str(group.tombstones),
    )


def _misplaced(report: GroupsReport) -> list[str]:
    """Describe groups that lie in another partition than the one in which their coordinator looks."""
    unseen = [group for group in report.groups if group.unseen_commits]
    if unseen:
        commits = count_text(sum(group.unseen_commits for group in unseen), "commit")
        groups = count_text(len({group.group for group in unseen}), "group")
        source = (
            "as the metadata log says"
            if report.partitions_recorded
            else "judging by the folders here, since no metadata log lies beside them"
        )
        return [
            f"{OFFSETS_TOPIC} has {count_text(report.partitions_of_topic, 'partition')}, {source}.",
            f"{commits} of {groups} lie in a partition that is no longer the right one (unseen).",
            "A broker since 4.0 does not see them; an older one does while it leads both partitions.",
            "Set them again with kafka-consumer-groups.sh --reset-offsets before the consumers start.",
        ]
    if report.twice and not report.partitions_of_topic:
        groups = count_text(len(report.twice), "group")
        return [
            f"{groups} in two partitions of {OFFSETS_TOPIC}, such as {shown(report.twice[0])}.",
            "The number of partitions was changed. Nothing here shows which number is right.",
        ]
    return []


def _out_of_range(report: GroupsReport) -> list[str]:
    commits = sum(commit.out_of_range for group in report.groups for commit in group.commits)
    text = (
        f"Commits outside the log of their partition: {commits}. A consumer of such a commit starts where "
        "auto.offset.reset says."
    )
    return [text] if commits else []


def _group(group: Group, now_ms: int) -> list[Section]:
    name = f"{group.group} ({group.partition})"
    history = group.history
    lines = []
    if history.generations:
        lines.append(
            f"{history.generations} generations in the log; subscriptions changed {history.changes} times."
        )
    lines += [f"Could not be read: {problem}" for problem in group.problems]
    members = tuple(
        (
            member.member_id,
            member.client_id,
            member.client_host,
            f"/{member.topic_regex}/" if member.topic_regex else ", ".join(member.topics),
            ", ".join(f"{topic}: {' '.join(map(str, parts))}" for topic, parts in member.assigned.items()),
        )
        for member in group.members
    )
    commits = tuple(
        (
            commit.topic,
            str(commit.partition),
            commit.problem or str(commit.offset),
            _number(commit.log_start),
            _number(commit.log_end),
            "yes" if commit.out_of_range else "",
            age_text(commit.commit_timestamp, now_ms),
            time_text(commit.commit_timestamp),
            commit.metadata,
        )
        for commit in group.commits
    )
    pending = tuple(
        (
            commit.topic,
            str(commit.partition),
            str(commit.offset),
            str(commit.producer_id),
            age_text(commit.commit_timestamp, now_ms),
        )
        for commit in group.pending
    )
    return [
        Section(
            title=f"Members of {name}",
            lines=tuple(lines),
            table=table_of("member | client | host | subscribes to | assigned", members),
        ),
        Section(
            title=f"Committed by {name}",
            table=table_of(
                "topic | # partition | # offset | # log start | # log end | out of range | # age | committed at | "
                "metadata",
                commits,
            ),
        ),
        Section(
            title=f"In open transactions of {name}",
            table=table_of("topic | # partition | # offset | # producer id | # age", pending),
        ),
    ]


def not_there(kind: str, name: str, topic: str) -> str:
    """Describe a requested name that was not found: a typo, expired, or in a partition that is not here."""
    return (
        f"No {kind} {shown(name)}: no record of it is in the partitions of {topic} here. Check the spelling. It may "
        "also have expired, or its partition may be on other brokers only."
    )


def found_sections(findings: Sequence[Finding], damaged: Sequence[PassedOver]) -> tuple[Section, Section]:
    """Build the sections of findings in a coordinator's topic and of skipped damage."""
    rows = ((finding.rule, finding.partition, finding.evidence) for finding in findings)
    passed_over = (
        (
            damage.partition,
            damage.part.file,
            f"{damage.part.position:,}",
            f"{damage.part.length:,}",
            damage.part.text,
        )
        for damage in damaged
    )
    return (
        Section(title="Findings", table=table_of("rule | partition | evidence", rows)),
        Section(
            title="Passed over", table=table_of("partition | file | # position | # bytes | what", passed_over)
        ),
    )


def age_text(then_ms: int, now_ms: int) -> str:
    """Format an age in its two largest units; a dash if unknown."""
    if then_ms < 0:
        return "-"
    remaining = now_ms - then_ms
    if remaining < 0:
        return "in the future"
    parts: list[str] = []
    for size, unit in _UNITS:
        if remaining >= size and len(parts) < 2:
            parts.append(f"{remaining // size} {unit}")
            remaining %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


_THE_PAST = "A log directory shows the past. Brokers of 3.0 and later answer these; older ones do not."
_ONLY_THEN = (
    "__transaction_state here proves that these are over for the coordinator. But if this directory was written a "
    "while ago, only the answers to the commands above count."
)
_OLD_BROKERS = (
    "For brokers before 3.0 use kafka-transactions.sh of Kafka 3.0 to 3.9: that of 4.0 and later cannot write markers "
    "to them."
)


def transactions_view(report: TransactionsReport, wanted: Sequence[str] = ()) -> View:
    """Build the page of open transactions, those without a marker, and the commands for a live cluster.

    Args:
        wanted: transactional ids requested by name, shown even without an open transaction.
    """
    shown = [
        transaction
        for transaction in report.transactions
        if wanted or transaction.goes_on or transaction.open_in
    ]
    aborts = [row for row in report.open if row.abort]
    return View(
        title="krepair transactions",
        sections=(
            Section(
                title=f"Transactions in {report.log_dir}",
                lines=_head(report, wanted),
                table=table_of(
                    "transactional id | # producer id | # epoch | coordinator | state | # age | # timeout | "
                    "partitions | no marker in | # held back",
                    (_id_row(transaction) for transaction in shown),
                ),
            ),
            Section(
                title="Without a marker in the logs here",
                table=table_of(
                    "partition | # since offset | # producer id | # epoch | transactional id | "
                    "state | # held back | verdict | evidence",
                    (_open_row(row) for row in report.open),
                ),
            ),
            Section(
                title="Ask the running cluster first",
                lines=(_THE_PAST,) if report.live_commands else (),
                commands=tuple(map(Next.by_hand, report.live_commands)),
            ),
            Section(
                title="Abort what find-hanging still names, and nothing else",
                lines=(_ONLY_THEN, _OLD_BROKERS) if aborts else (),
                commands=tuple(Next.by_hand(row.abort) for row in aborts),
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
                table=table_of(
                    "partition | why",
                    ((partition.partition, partition.why) for partition in report.not_judged),
                ),
            ),
            *end_of_page(report.next_command),
        ),
    )


def _head(report: TransactionsReport, wanted: Sequence[str]) -> tuple[str, ...]:
    lines = [
        f"Partitions of __transaction_state: {len(report.partitions)}; {bytes_words(report.bytes_read)} of .log read."
    ]
    if not report.partitions:
        lines.append(
            "There is no partition of __transaction_state here, so krepair cannot say what the coordinator knows."
        )
    there = {transaction.state.transactional_id for transaction in report.transactions}
    lines += [not_there("transactional id", name, TRANSACTIONS_TOPIC) for name in wanted if name not in there]
    if report.states:
        counts = ", ".join(f"{count} {state}" for state, count in report.states.items())
        lines.append(f"Transactional ids by state: {counts}.")
    if report.last_write_ms >= 0:
        lines.append(
            f"A broker last wrote at {time_text(report.last_write_ms)}; ages are counted up to then."
        )
    return (*lines, *_passed_over(report))


def _passed_over(report: GroupsReport | TransactionsReport) -> Iterator[str]:
    if report.unknown:
        yield f"Records with a key that this version of krepair does not know: {report.unknown}."
    if report.damages:
        yield f"Damaged parts skipped: {report.damages}. What they contained may be missing above."


def _id_row(each: Transaction) -> tuple[str, ...]:
    state = each.state
    names = [f"{topic}-{number}" for topic, number in state.partitions]
    return (
        state.transactional_id,
        _number(state.producer_id),
        _number(state.producer_epoch),
        state.coordinator,
        state.problem or state.state,
        "-" if each.age_ms < 0 else age_text(0, each.age_ms),
        "-" if state.timeout_ms < 0 else age_text(0, state.timeout_ms),
        names_text(names) or "-",
        names_text(each.open_in) or "-",
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
