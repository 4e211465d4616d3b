"""Page of ``krepair diff``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from krepair.plan.diff import Difference, PartitionDiff, PlanDiff
from krepair.plan.view import Section, Table, View

_ONLY: Final = {"first": "only in the first plan", "second": "only in the second plan", "both": ""}
_FILES: Final = "files."
_FOR_THE_READER: Final = ("horizons.", "notes", "reasons.")
_NAMED_AT_MOST: Final = 4


def diff_view(found: PlanDiff, first: str, second: str) -> View:
    """What changed: clock, options, settings and sums; then partitions, then changes.

    Args:
        found: what differs.
        first: path of the first plan.
        second: path of the second plan.
    """
    columns = ("what", "first", "second")
    return View(
        title="krepair diff",
        sections=(
            Section(
                title=f"Two plans of {found.log_dir}",
                lines=tuple(_head(found)),
                table=Table(
                    columns=("plan", "digest", "file"),
                    rows=(("first", found.first, first), ("second", found.second, second)),
                ),
            ),
            Section(
                title="Clock, options, settings and sums",
                table=Table(columns=columns, rows=tuple(_rows(found.differences))),
            ),
            Section(
                title="Partitions",
                table=Table(
                    columns=("partition", "decisions", "what differs"),
                    rows=tuple((one.folder, _decisions(one), _summary(one)) for one in found.partitions),
                ),
            ),
            Section(
                title="Changes whose decisions differ",
                table=Table(
                    columns=("change", *columns),
                    rows=tuple(
                        row
                        for partition in found.partitions
                        if partition.where == "both"
                        for row in _change_rows(partition)
                    ),
                ),
            ),
        ),
    )


def _head(found: PlanDiff) -> Iterator[str]:
    if found.same:
        yield "The plans are the same."
        return
    other = len(found.partitions) - found.same_decisions
    yield (
        f"Partitions: {found.same_partitions:,} are the same; {found.same_decisions:,} differ and have the same "
        f"decisions; {other:,} have other decisions."
    )
    if not other:
        yield "Both plans make the same changes in every partition."


def _decisions(partition: PartitionDiff) -> str:
    if partition.where != "both":
        return _ONLY[partition.where]
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
        f"{one.what}: {one.first or '-'} -> {one.second or '-'}"
        for one in partition.differences
        if not _is_of_file(one) and not one.what.startswith(_FOR_THE_READER)
    ]
    more = [f"and {len(others) - _NAMED_AT_MOST} more"] if len(others) > _NAMED_AT_MOST else []
    return "; ".join([*parts, *others[:_NAMED_AT_MOST], *more])


def _is_of_file(one: Difference) -> bool:
    return one.what.startswith(_FILES)


def _change_rows(partition: PartitionDiff) -> Iterator[tuple[str, ...]]:
    for change in partition.changes:
        if change.where != "both":
            yield change.change_id, _ONLY[change.where], "", ""
        elif not change.decisions_same:
            for row in _rows(change.differences):
                yield change.change_id, *row


def _rows(differences: Iterable[Difference]) -> Iterator[tuple[str, ...]]:
    for one in differences:
        yield one.what, one.first or "-", one.second or "-"
