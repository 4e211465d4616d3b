"""Page of ``krepair diff``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from krepair.formats.words import count_text, names_text
from krepair.ops.diff import Difference, PartitionDiff, PlanDiff, number, words
from krepair.plan.view import Section, Table, View, table_of

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
