"""Pages of ``krepair compare``, ``facts`` and ``diff``: sums, then problems, then single lines on request."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from krepair.cli.views.reports import end_of_page
from krepair.formats.words import count_text, time_text
from krepair.next_command import Next
from krepair.ops.compare import CompareReport, SideSummary, WayBack
from krepair.ops.diff import ChangeDiff, Difference, PartitionDiff, PlanDiff
from krepair.ops.facts import FactsReport
from krepair.plan.view import Section, Table, View, bytes_words, folded, table_of
from krepair.rules.replicas import model as m

_BAD: Final = frozenset({m.DIVERGED, m.DAMAGED, m.DECIDED_BY_LEADER, m.MISSING, m.CANNOT_TELL})
_PARTITIONS_SHOWN: Final = 40
_BEHIND_SHOWN: Final = 10
_MARKED_SHOWN: Final = 10
_NEVER_CLEANED_SHOWN: Final = 10
_KEYS_SHOWN: Final = 6
_REASSIGN: Final = "kafka-reassign-partitions.sh --bootstrap-server BROKER:9092"
_BEFORE_AWAY: Final = (
    "Do not move or delete a folder by hand. If its broker is alone in the ISR, everything is gone on all replicas.",
    "Kafka itself can fetch a wrong replica again: take the partition away from its broker, and give it back.",
    "Before the first command, start the brokers of the wrong replicas: only a running broker deletes its folder.",
    "Also make sure that a right replica leads: kafka-topics.sh --describe shows the leader.",
    "If a wrong one leads, stop its broker, and start it again when a right one leads.",
    "Both files name only the brokers that were compared. If a partition has other replicas, add them to both.",
    "Until the last command the partition has fewer replicas. In away.json a spare broker may replace the wrong one.",
    "Before Kafka 2.5, type --zookeeper ZOOKEEPER:2181 instead of --bootstrap-server BROKER:9092.",
)
_WORDS: Final = {
    m.DIVERGED: "which records are served depends on which replica leads",
    m.DAMAGED: "a replica has damaged or torn batches",
    m.DECIDED_BY_LEADER: "a replica is behind, and not every other one may lead while it catches up",
    m.MISSING: "a replica could not be read",
    m.CANNOT_TELL: "they differ, and it is unknown which is right",
    m.IS_BEHIND: "a replica ends earlier, or will after its start",
    m.HARMLESS: "they differ as healthy replicas do",
    m.BYTE_EQUAL: "the same batches in the same segments",
    m.ALONE: "on one of these brokers only, so nothing was compared",
}


def compare_view(report: CompareReport, *, every: bool = False) -> View:
    """Build the page of ``compare``.

    Args:
        every: True for one line for each partition.
    """
    bad = [partition for partition in report.partitions if partition.verdict in _BAD]
    behind = [partition for partition in report.partitions if partition.verdict == m.IS_BEHIND]
    sections = [
        Section(
            title="Brokers",
            table=table_of("# broker | from | host | read at | # partitions", map(_broker_row, report.sides)),
        ),
        Section(
            title="Verdicts",
            table=table_of(
                "verdict | # partitions | what it means",
                ((name, f"{count:,}", _WORDS[name]) for name, count in report.counts.items()),
            ),
        ),
    ]
    shown = report.partitions if every else (*bad[:_PARTITIONS_SHOWN], *behind[:_BEHIND_SHOWN])
    left_out = 0 if every else len(bad) + len(behind) - len(shown)
    sections.append(_matrix(shown, [broker.broker for broker in report.sides], left_out))
    for partition in bad if every else bad[:_PARTITIONS_SHOWN]:
        sections.append(_partition(partition))
    sections += _harmless(report.partitions)
    sections.append(_never_cleaned(report.partitions, every=every))
    sections.append(_marked(report, every=every))
    if report.way_back is not None:
        sections += _way_back(report.way_back)
    sections += end_of_page(report.next_command)
    return View(title="krepair compare", sections=tuple(sections))


def _broker_row(broker: SideSummary) -> tuple[str, ...]:
    origin = broker.facts or ", ".join(broker.log_dirs)
    if broker.not_read:
        origin += f" (not read: {', '.join(broker.not_read)})"
    return str(broker.broker), origin, broker.host, time_text(broker.taken_ms), f"{broker.partitions:,}"


def _matrix(partitions: Sequence[m.PartitionVerdict], brokers: Sequence[int], left_out: int) -> Section:
    """Build the table of partitions (rows) and brokers (columns): state and end of each replica."""
    lines = (f"{left_out:,} more are not shown here; --all or --json has them.",) if left_out else ()
    return Section(
        title="Partitions and brokers",
        lines=lines,
        table=Table(
            columns=("partition", "verdict", *(f"broker {broker}" for broker in brokers)),
            rows=tuple(
                (partition.name, partition.verdict, *_cells(partition, brokers)) for partition in partitions
            ),
        ),
    )


def _cells(partition: m.PartitionVerdict, brokers: Sequence[int]) -> Iterator[str]:
    columns = {column.broker: column for column in partition.replicas}
    for broker in brokers:
        column = columns.get(broker)
        if column is None:
            yield "-"
            continue
        doubt = "" if column.state == m.AS_IT_SHOULD_BE else f" ({column.state})"
        yield f"{column.log_start:,} to {column.log_end:,}{doubt}"


def _partition(partition: m.PartitionVerdict) -> Section:
    """Build the section of one partition that is not as it should be."""
    right = (
        f"Right in all that was compared: broker {_brokers(partition.right)}."
        if partition.right
        else "None of these replicas can be called right by itself."
    )
    lines = [f"{partition.verdict}. {right}"]
    for disagreement in partition.disagreements:
        at = f" from offset {disagreement.offset:,}" if disagreement.offset >= 0 else ""
        tell = f" What would decide it: {disagreement.would_tell}." if disagreement.would_tell else ""
        lines.append(f"{disagreement.rule} {disagreement.kind}{at}: {disagreement.text}.{tell}")
    return Section(
        title=partition.name,
        lines=tuple(lines),
        table=table_of(
            "rule | # offset | key | has it | lacks it | as leader it would serve", _keys(partition)
        ),
        commands=(partition.next_command,) if partition.next_command else (),
    )


def _keys(partition: m.PartitionVerdict) -> Iterator[tuple[str, ...]]:
    for disagreement in partition.disagreements:
        for line in disagreement.keys[:_KEYS_SHOWN]:
            served = "; ".join(f"{each.broker}: {_served(each)}" for each in line.served) or "-"
            have, lack = _brokers(line.have) or "-", _brokers(line.lack) or "-"
            yield disagreement.rule, f"{line.offset:,}", line.key, have, lack, served
        if disagreement.keys and disagreement.count > _KEYS_SHOWN:
            yield (
                disagreement.rule,
                "...",
                f"{disagreement.count - min(disagreement.count, _KEYS_SHOWN):,} more",
                "",
                "",
                "",
            )


def _served(each: m.ServedKey) -> str:
    if each.offset < 0:
        return "nothing"
    if each.tombstone:
        return "deleted"
    return f"{each.value!r} (offset {each.offset:,})" if each.value else f"the record at {each.offset:,}"


def _brokers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _harmless(partitions: Iterable[m.PartitionVerdict]) -> list[Section]:
    """Sum up harmless differences by name."""
    counts = Counter(
        difference.name
        for partition in partitions
        for difference in partition.harmless
        if difference.name != m.NEVER_CLEANED
    )
    rows = tuple((name, f"{count:,}") for name, count in sorted(counts.items()))
    table = table_of("what differs | # partitions", rows)
    return [Section(title="Harmless differences (KR666)", table=table)]


def _never_cleaned(partitions: Iterable[m.PartitionVerdict], *, every: bool) -> Section:
    """List what may be lost after all if the topic, only assumed to be compacted, is not."""
    lines = [
        f"{partition.name}: {difference.more}."
        for partition in partitions
        for difference in partition.harmless
        if difference.name == m.NEVER_CLEANED
    ]
    shown = lines if every else lines[:_NEVER_CLEANED_SHOWN]
    if len(lines) > len(shown):
        shown.append(f"{len(lines) - len(shown):,} more are not shown here; --all or --json has them.")
    return Section(title="Missing records where no cleaner is known to have run", lines=tuple(shown))


def _marked(report: CompareReport, *, every: bool) -> Section:
    shown = report.marked if every else report.marked[:_MARKED_SHOWN]
    left_out = len(report.marked) - len(shown)
    return Section(
        title="Folders that a broker has marked (not compared)",
        lines=(f"{left_out:,} more are not shown here; --all or --json has them.",) if left_out else (),
        table=table_of(
            "broker | folder | kind | log directory",
            ((str(folder.broker), folder.folder, folder.kind, folder.log_dir) for folder in shown),
        ),
    )


def _way_back(way: WayBack) -> Iterator[Section]:
    """Build the commands for a running cluster; a folder is never moved by hand."""
    left_out = (f"Left out here: {count_text(way.left, 'partition')}.",) if way.left else ()
    yield Section(
        title="The way back",
        lines=(*_BEFORE_AWAY, *left_out),
        table=table_of(
            "partition | wrong on broker | one of these must lead",
            ((name, _brokers(wrong), _brokers(way.right[name])) for name, wrong in way.wrong.items()),
        ),
        commands=(
            Next.by_hand(f"echo '{way.away}' > away.json"),
            Next.by_hand(f"echo '{way.back}' > back.json"),
            *_reassign("away.json"),
        ),
    )
    name, wrong = next(iter(way.wrong.items()))
    folders = (
        "Then wait until the folders of the wrong replicas are gone, also those whose names end with -delete: here "
        f"{name} and {name}.*-delete on broker {wrong[0]}. It takes a minute (file.delete.delay.ms). "
        f"On 2.2.1 {name} stays if that broker was down in between: then type this half, the first half and this half."
    )
    yield Section(
        title="The way back, second half",
        lines=(
            "Wait until --verify says that each of them is complete.",
            folders,
            "If a folder still exists when its partition comes back, the broker uses it again, with its wrong content.",
        ),
        commands=tuple(_reassign("back.json")),
    )


def _reassign(file: str) -> Iterator[Next]:
    for action in ("--execute", "--verify"):
        yield Next.by_hand(f"{_REASSIGN} --reassignment-json-file {file} {action}")


def facts_view(report: FactsReport) -> View:
    """Build the page of ``facts``."""
    share = report.file_bytes / report.log_bytes if report.log_bytes else 0.0
    lines = [
        f"{count_text(report.partitions, 'replica')}, {bytes_words(report.log_bytes)} of .log read.",
        f"{report.path}: {bytes_words(report.file_bytes)}, {share:.2%} of that.",
        f"SHA-256 {report.digest}",
        "The file holds hashes, offsets and numbers, no key and no value.",
        "The digest does not prove who made the file: transfer it over a channel that you trust.",
    ]
    if report.not_read:
        lines.append(
            f"Not read: {', '.join(report.not_read)}. The file knows nothing about a replica that was not found."
        )
    return View(
        title="krepair facts",
        sections=(
            Section(title=f"Facts of broker {report.broker_id or 'unknown'}", lines=tuple(lines)),
            Section(title="Could not be read", lines=report.failed),
            *end_of_page(report.next_command),
        ),
    )


_ONLY: Final = {"first": "only in the first plan", "second": "only in the second plan", "both": ""}
_NAMED_AT_MOST: Final = 4
_MOST_ROWS: Final = 200


def diff_view(diff: PlanDiff, first: str, second: str) -> View:
    """Build the page of differences: clock, options, settings and sums, then partitions, then changes.

    Args:
        diff: differences between the plans.
        first: path of the first plan.
        second: path of the second plan.
    """
    others = [partition for partition in diff.partitions if not partition.decisions_same]
    same = [partition for partition in diff.partitions if partition.decisions_same]
    plans = (("first", diff.first, first), ("second", diff.second, second))
    return View(
        title="krepair diff",
        sections=(
            Section(
                title=f"Two plans of {diff.log_dir}",
                lines=tuple(_head(diff)),
                table=table_of(
                    "plan | digest | file",
                    (
                        (f"{place}, a preview" if place in diff.previews else place, digest, path)
                        for place, digest, path in plans
                    ),
                ),
            ),
            _rows_of_diff(
                "Clock, options, settings and sums",
                "what | first | second",
                (
                    (difference.label, difference.before or "-", difference.after or "-")
                    for difference in diff.differences
                ),
            ),
            _rows_of_diff(
                "Partitions",
                "partition | changes | what differs",
                (
                    (partition.folder, _decisions(partition), _summary(partition))
                    for partition in (*others, *same)
                ),
            ),
            _rows_of_diff(
                "Changes that differ",
                "change | what | first | second",
                (row for partition in others for change in partition.changes for row in _change_rows(change)),
            ),
        ),
    )


def _rows_of_diff(title: str, columns: str, rows: Iterable[tuple[str, ...]]) -> Section:
    """Build a table in which rows that differ only in their first cell are one row."""
    alike = folded(rows)
    hidden = len(alike) - _MOST_ROWS
    return Section(
        title=title,
        lines=(f"{count_text(hidden, 'more row')}: see krepair diff --json.",) if hidden > 0 else (),
        table=table_of(columns, alike[:_MOST_ROWS]),
    )


def _head(diff: PlanDiff) -> Iterator[str]:
    if diff.same:
        yield "The plans are the same."
        return
    if diff.previews:
        yield "Beside a running broker the order of commit is not known; it is not compared."
    other = len(diff.partitions) - diff.same_decisions
    alike = diff.same_partitions + diff.same_decisions
    if not other:
        yield "Both plans make the same changes in every partition."
    else:
        every = count_text(alike + other, "partition")
        yield f"Both plans make the same changes in {alike:,} of {every}; {_differ(other)}."
    if diff.same_decisions:
        yield f"Of the {alike:,}: {'; '.join(_alike(diff))}."


def _alike(diff: PlanDiff) -> Iterator[str]:
    """Describe how partitions with the same changes differ nevertheless."""
    if diff.same_partitions:
        yield f"{diff.same_partitions:,} are the same in every field of the plan"
    if diff.only_seen:
        yield (
            f"{_differ(diff.only_seen)} only in notes, or in what was seen (sizes and times of files, offsets): apply "
            "does the same"
        )
    if diff.same_decisions > diff.only_seen:
        yield (
            f"{_differ(diff.same_decisions - diff.only_seen)} in figures, as space or time: the same batches and "
            "files go"
        )


def _differ(count: int) -> str:
    return f"{count:,} {'differs' if count == 1 else 'differ'}"


def _decisions(partition: PartitionDiff) -> str:
    if partition.where != "both":
        return f"only in the {partition.where} plan"
    return "the same" if partition.decisions_same else "different"


def _summary(partition: PartitionDiff) -> str:
    """Summarize a difference: changes by plan, every other value by its name."""
    if partition.where != "both":
        return "-"
    counts = Counter(change.where for change in partition.changes)
    parts = [f"changes {_ONLY[where]}: {counts[where]}" for where in ("first", "second") if counts[where]]
    if counts["both"]:
        parts.append(f"changes that differ: {counts['both']}")
    values = [
        f"{difference.label}: {difference.before or '-'} -> {difference.after or '-'}"
        for difference in partition.differences
        if difference.before or difference.after
    ]
    only_named = dict.fromkeys(
        difference.label
        for difference in partition.differences
        if not (difference.before or difference.after)
    )
    more = [f"and {len(values) - _NAMED_AT_MOST} more"] if len(values) > _NAMED_AT_MOST else []
    return "; ".join([*parts, *values[:_NAMED_AT_MOST], *more, *only_named])


def _change_rows(change: ChangeDiff) -> Iterator[tuple[str, ...]]:
    if change.where != "both":
        yield change.change_id, _ONLY[change.where], "", ""
    by_label: dict[str, list[Difference]] = defaultdict(list)
    for difference in change.differences:
        by_label[difference.label].append(difference)
    for name, differences in by_label.items():
        places = f", in {count_text(len(differences), 'place')}" if len(differences) > 1 else ""
        before, after = (
            {getattr(difference, side) for difference in differences} for side in ("before", "after")
        )
        yield change.change_id, f"{name}{places}", _one_of(before), _one_of(after)


def _one_of(values: set[str]) -> str:
    return f"{len(values):,} values" if len(values) > 1 else values.pop() or "-"
