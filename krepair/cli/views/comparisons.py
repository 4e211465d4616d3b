"""Pages of ``krepair compare``, ``facts`` and ``diff``: sums first, then what is wrong, then one line each if asked."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from krepair.cli.views.reports import end_of_page
from krepair.formats.words import count_text, names_text, time_text
from krepair.next_command import Next
from krepair.ops.compare import CompareReport, SideSummary, WayBack
from krepair.ops.diff import Difference, PartitionDiff, PlanDiff, number, words
from krepair.ops.facts import FactsReport
from krepair.plan.view import Section, Table, View, bytes_words, table_of
from krepair.rules.replicas import model as m

_BAD: Final = frozenset({m.DIVERGED, m.DAMAGED, m.DECIDED_BY_LEADER, m.MISSING, m.CANNOT_TELL})
_PARTITIONS_SHOWN: Final = 40
_BEHIND_SHOWN: Final = 10
_MARKED_SHOWN: Final = 10
_KEYS_SHOWN: Final = 6
_REASSIGN: Final = "kafka-reassign-partitions.sh --bootstrap-server BROKER:9092"
_BEFORE_AWAY: Final = (
    "Do not move or delete a folder by hand. If its broker is alone in the ISR, everything is gone on all replicas.",
    "Kafka itself can fetch a wrong replica again: take the partition away from its broker, and give it back.",
    "Before the first command: the brokers of the wrong replicas run, since only a running broker deletes its folder.",
    "And a right replica leads: kafka-topics.sh --describe shows it.",
    "If a wrong one leads, stop its broker, and start it again when a right one leads.",
    "The lists have the brokers that were compared. If a partition has other replicas, add them to both files.",
    "Meanwhile the partition has fewer replicas. A spare broker may take the wrong one's place in away.json.",
    "Before Kafka 2.5 type --zookeeper ZOOKEEPER:2181 in the place of --bootstrap-server BROKER:9092.",
)
_WORDS: Final = {
    m.DIVERGED: "which records are served depends on which replica leads",
    m.DAMAGED: "a replica has damaged or torn batches",
    m.DECIDED_BY_LEADER: "a replica is behind, and not each of the others may lead while it catches up",
    m.MISSING: "a replica could not be read",
    m.CANNOT_TELL: "they differ, and it cannot be told which is right",
    m.IS_BEHIND: "a replica ends earlier and fetches the rest",
    m.HARMLESS: "they differ as healthy replicas do",
    m.BYTE_EQUAL: "the same batches in the same segments",
    m.ALONE: "on one of these brokers only, so nothing was compared",
}


def compare_view(report: CompareReport, *, every: bool = False) -> View:
    """What ``compare`` found.

    Args:
        report: what was found.
        every: one line for each partition.
    """
    bad = [one for one in report.partitions if one.verdict in _BAD]
    behind = [one for one in report.partitions if one.verdict == m.IS_BEHIND]
    sections = [
        Section(
            title="Sides",
            table=table_of("# broker | from | host | read at | # partitions", map(_side, report.sides)),
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
    sections.append(_matrix(shown, [side.broker for side in report.sides], left_out))
    for one in bad if every else bad[:_PARTITIONS_SHOWN]:
        sections.append(_partition(one))
    sections += _harmless(report.partitions)
    sections.append(_marked(report, every=every))
    if report.way_back is not None:
        sections += _way_back(report.way_back)
    sections += end_of_page(report.next_command)
    return View(title="krepair compare", sections=tuple(sections))


def _side(side: SideSummary) -> tuple[str, ...]:
    origin = side.facts or ", ".join(side.log_dirs)
    if side.not_read:
        origin += f" (not read: {', '.join(side.not_read)})"
    return str(side.broker), origin, side.host, time_text(side.taken_ms), f"{side.partitions:,}"


def _matrix(partitions: Sequence[m.PartitionVerdict], brokers: Sequence[int], left_out: int) -> Section:
    """Partitions down, brokers across: the state of each replica and where it ends."""
    lines = (f"{left_out:,} more are not shown here; --all or --json has them.",) if left_out else ()
    return Section(
        title="Partitions and brokers",
        lines=lines,
        table=Table(
            columns=("partition", "verdict", *(f"broker {broker}" for broker in brokers)),
            rows=tuple((one.name, one.verdict, *_cells(one, brokers)) for one in partitions),
        ),
    )


def _cells(one: m.PartitionVerdict, brokers: Sequence[int]) -> Iterator[str]:
    columns = {column.broker: column for column in one.replicas}
    for broker in brokers:
        column = columns.get(broker)
        if column is None:
            yield "-"
            continue
        doubt = "" if column.state == m.AS_IT_SHOULD_BE else f" ({column.state})"
        yield f"{column.log_start:,} to {column.log_end:,}{doubt}"


def _partition(one: m.PartitionVerdict) -> Section:
    """One partition that is not as it should be."""
    right = (
        f"Right in all that was compared: broker {_brokers(one.right)}."
        if one.right
        else "None of these replicas can be called right by itself."
    )
    lines = [f"{one.verdict}. {right}"]
    for found in one.disagreements:
        at = f" from offset {found.offset:,}" if found.offset >= 0 else ""
        tell = f" What would tell: {found.would_tell}." if found.would_tell else ""
        lines.append(f"{found.rule} {found.kind}{at}: {found.text}.{tell}")
    return Section(
        title=one.name,
        lines=tuple(lines),
        table=table_of("rule | # offset | key | has it | lacks it | as leader it would serve", _keys(one)),
        commands=(one.next_command,) if one.next_command else (),
    )


def _keys(one: m.PartitionVerdict) -> Iterator[tuple[str, ...]]:
    for found in one.disagreements:
        for line in found.keys[:_KEYS_SHOWN]:
            served = "; ".join(f"{each.broker}: {_served(each)}" for each in line.served) or "-"
            have, lack = _brokers(line.have) or "-", _brokers(line.lack) or "-"
            yield found.rule, f"{line.offset:,}", line.key, have, lack, served
        if found.keys and found.count > _KEYS_SHOWN:
            yield found.rule, "...", f"{found.count - min(found.count, _KEYS_SHOWN):,} more", "", "", ""


def _served(each: m.ServedKey) -> str:
    if each.offset < 0:
        return "nothing"
    if each.tombstone:
        return "deleted"
    return f"{each.value!r} (offset {each.offset:,})" if each.value else f"the record at {each.offset:,}"


def _brokers(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers))


def _harmless(partitions: Iterable[m.PartitionVerdict]) -> list[Section]:
    """What differs without harm, summed up by name."""
    counts: dict[str, int] = defaultdict(int)
    for one in partitions:
        for name in one.harmless:
            counts[name.partition(" ")[0]] += 1
    rows = tuple((name, f"{count:,}") for name, count in sorted(counts.items()))
    table = table_of("what differs | # partitions", rows)
    return [Section(title="What differs and does no harm (KR666)", table=table)]


def _marked(report: CompareReport, *, every: bool) -> Section:
    shown = report.marked if every else report.marked[:_MARKED_SHOWN]
    left_out = len(report.marked) - len(shown)
    return Section(
        title="Folders that a broker has marked, listed and not compared",
        lines=(f"{left_out:,} more are not shown here; --all or --json has them.",) if left_out else (),
        table=table_of(
            "broker | folder | kind | log directory",
            ((str(one.broker), one.folder, one.kind, one.log_dir) for one in shown),
        ),
    )


def _way_back(way: WayBack) -> Iterator[Section]:
    """What to type while the cluster runs; it is never a folder that is moved by hand."""
    left = (f"Left out here: {count_text(way.left, 'partition')}.",) if way.left else ()
    yield Section(
        title="The way back",
        lines=(*_BEFORE_AWAY, *left),
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
        f"On 2.2.1 {name} stays if that broker was down meanwhile: then type this half, the first half and this half."
    )
    yield Section(
        title="The way back, second half",
        lines=(
            "Wait until --verify says that each of them is complete.",
            folders,
            "A folder that is still there when its partition comes back is used again, wrong as it is.",
        ),
        commands=tuple(_reassign("back.json")),
    )


def _reassign(file: str) -> Iterator[Next]:
    for what in ("--execute", "--verify"):
        yield Next.by_hand(f"{_REASSIGN} --reassignment-json-file {file} {what}")


def facts_view(report: FactsReport) -> View:
    """What ``facts`` wrote."""
    share = report.file_bytes / report.log_bytes if report.log_bytes else 0.0
    lines = [
        f"{count_text(report.partitions, 'replica')}, {bytes_words(report.log_bytes)} of .log read.",
        f"{report.path}: {bytes_words(report.file_bytes)}, {share:.2%} of that.",
        f"SHA-256 {report.digest}",
        "The file holds hashes, offsets and numbers, no key and no value.",
        "The digest does not prove who made the file: fetch it in a way that you trust.",
    ]
    if report.not_read:
        lines.append(
            f"Not read: {', '.join(report.not_read)}. Nothing is known of a replica that was not found."
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
_FILES: Final = "files."
_SETTINGS: Final = "settings."
_IN_A_WORD: Final = {
    "horizons": "what other horizons would give",
    "notes": "notes",
    "reasons": "counts by reason",
}
_NAMED_AT_MOST: Final = 4
_MOST_ROWS: Final = 200
_SAME_AT_LEAST: Final = 10


def diff_view(found: PlanDiff, first: str, second: str) -> View:
    """What changed: clock, options, settings and sums; then partitions, then changes.

    Args:
        found: what differs.
        first: path of the first plan.
        second: path of the second plan.
    """
    rows = (("first", found.first, first), ("second", found.second, second))
    head = Section(
        title=f"Two plans of {found.log_dir}",
        lines=tuple(_head(found)),
        table=table_of(
            "plan | digest | file", ((_name(found, place), digest, path) for place, digest, path in rows)
        ),
    )
    return View(title="krepair diff", sections=(head, *_sections(found)))


def _sections(found: PlanDiff) -> tuple[Section, ...]:
    """Clock, options, settings and sums; then partitions, then changes."""
    columns = ("what", "first", "second")
    others = [one for one in found.partitions if not one.decisions_same]
    same = [one for one in found.partitions if one.decisions_same]
    shown = [*others[:_MOST_ROWS], *same[: max(_MOST_ROWS - len(others), _SAME_AT_LEAST)]]
    left = len(found.partitions) - len(shown)
    changes = [row for partition in others if partition.where == "both" for row in _change_rows(partition)]
    return (
        Section(
            title="Clock, options, settings and sums",
            table=Table(columns=columns, rows=tuple(_heads(found.differences))),
        ),
        Section(
            title="Partitions",
            lines=(f"{left:,} more are in krepair diff --json.",) if left > 0 else (),
            table=table_of(
                "partition | changes | what differs",
                ((one.folder, _decisions(one), _summary(one)) for one in shown),
            ),
        ),
        Section(
            title="Changes that differ",
            lines=(f"{count_text(len(changes) - _MOST_ROWS, 'more row')}: see krepair diff --json.",)
            if len(changes) > _MOST_ROWS
            else (),
            table=Table(columns=("change", *columns), rows=tuple(changes[:_MOST_ROWS])),
        ),
    )


def _name(found: PlanDiff, place: str) -> str:
    return f"{place}, a preview" if place in found.previews else place


def _head(found: PlanDiff) -> Iterator[str]:
    if found.same:
        yield "The plans are the same."
        return
    if found.previews:
        yield "Beside a running broker the order of commit is not known; it is not compared."
    other = len(found.partitions) - found.same_decisions
    alike = found.same_partitions + found.same_decisions
    if not other:
        yield "Both plans make the same changes in every partition."
    else:
        every = count_text(alike + other, "partition")
        yield f"Both plans make the same changes in {alike:,} of {every}; {_differ(other)}."
    if found.same_decisions:
        yield f"Of the {alike:,}: {'; '.join(_alike(found))}."


def _alike(found: PlanDiff) -> Iterator[str]:
    """How partitions with the same changes differ nevertheless."""
    if found.same_partitions:
        yield f"{found.same_partitions:,} are the same in every field of the plan"
    if found.only_seen:
        yield (
            f"{_differ(found.only_seen)} only in notes, or in what was seen (sizes and times of files, offsets): apply "
            "does the same"
        )
    if found.same_decisions > found.only_seen:
        yield (
            f"{_differ(found.same_decisions - found.only_seen)} in figures, as space or time: the same batches and "
            "files go"
        )


def _differ(count: int) -> str:
    return f"{count:,} {'differs' if count == 1 else 'differ'}"


def _decisions(partition: PartitionDiff) -> str:
    if partition.where != "both":
        return f"only in the {partition.where} plan"
    return "the same" if partition.decisions_same else "different"


def _summary(partition: PartitionDiff) -> str:
    """In a few words: changes by where they are, files by count, every other value by its name."""
    if partition.where != "both":
        return "-"
    counts = Counter(change.where for change in partition.changes)
    parts = [f"changes {_ONLY[where]}: {counts[where]}" for where in ("first", "second") if counts[where]]
    if counts["both"]:
        parts.append(f"changes that differ: {counts['both']}")
    files = {one.what[len(_FILES) :].rsplit(".", 1)[0] for one in partition.differences if _is_of_file(one)}
    if files:
        parts.append(f"files that differ: {len(files)}")
    others = [
        f"{one.label}: {one.before or '-'} -> {one.after or '-'}"
        for one in partition.differences
        if not _is_of_file(one) and _top(one) not in _IN_A_WORD
    ]
    said = {_IN_A_WORD[_top(one)]: None for one in partition.differences if _top(one) in _IN_A_WORD}
    more = [f"and {len(others) - _NAMED_AT_MOST} more"] if len(others) > _NAMED_AT_MOST else []
    return "; ".join([*parts, *others[:_NAMED_AT_MOST], *more, *said])


def _top(one: Difference) -> str:
    """The field of a partition that a difference is in."""
    return one.what.partition(".")[0]


def _is_of_file(one: Difference) -> bool:
    return one.what.startswith(_FILES)


def _change_rows(partition: PartitionDiff) -> Iterator[tuple[str, ...]]:
    for change in partition.changes:
        if change.where != "both":
            yield change.change_id, _ONLY[change.where], "", ""
        else:
            by_label: dict[str, list[Difference]] = {}
            for one in change.differences:
                by_label.setdefault(one.label, []).append(one)
            for name, found in by_label.items():
                yield change.change_id, name, *_together(found)


def _together(found: Sequence[Difference]) -> tuple[str, str]:
    """The same field in several segments: the sum of numbers; of anything else in how many it differs."""
    if len(found) == 1:
        return found[0].before or "-", found[0].after or "-"
    sums = [_summed(found[0].what, [getattr(one, side) for one in found]) for side in ("first", "second")]
    if "" not in sums:
        return sums[0], sums[1]
    if len({(one.before, one.after) for one in found}) == 1:
        return f"{found[0].before or '-'} ({len(found):,} times)", f"{found[0].after or '-'}"
    times = f"in {count_text(len(found), 'place')}"
    if not any(one.after for one in found):
        return times, "-"
    return ("-", times) if not any(one.before for one in found) else (times, "another value")


def _summed(what: str, values: Iterable[str]) -> str:
    """The sum of values of one field as text; empty where one is no number and no tally."""
    numbers, tallies = 0, Counter[str]()
    for value in values:
        try:
            read = json.loads(value or "0")
        except ValueError:
            return ""
        if isinstance(read, dict) and {"batches", "bytes"} <= read.keys():
            tallies.update(batches=read["batches"], bytes=read["bytes"])
        elif isinstance(read, int) and not isinstance(read, bool):
            numbers += read
        else:
            return ""
    if tallies:
        return words(what, dict(tallies))
    return number(what.rpartition(".")[2], numbers) if numbers else "-"


def _heads(differences: Iterable[Difference]) -> Iterator[tuple[str, ...]]:
    """Differences of the whole plan; settings of topics that only one plan has to do with are one row."""
    topics: dict[str, set[str]] = {"first": set(), "second": set()}
    for one in differences:
        if one.what.startswith(_SETTINGS) and not (one.first and one.second):
            topics["second" if one.second else "first"].add(one.what.split(".")[1])
        else:
            yield one.label, one.before or "-", one.after or "-"
    for side, names in topics.items():
        if names:
            told = (f"given, for {names_text(sorted(names))}", "-")
            yield "settings", *(told if side == "first" else reversed(told))
