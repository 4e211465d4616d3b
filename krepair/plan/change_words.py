"""Wording of each kind of change, in one table: sentences for a plan's page, and rows for its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from krepair.formats.words import count_text
from krepair.plan.changes import (
    Change,
    ChangeLines,
    CompleteSwap,
    MendLog,
    ReplaceFile,
    RewriteSegments,
    RollSegment,
    SetAside,
)
from krepair.plan.view import size_text


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """A table of a plan's page with one or more rows for each change.

    Attributes:
        title: heading of the table.
        columns: headings of its columns, see ``krepair.plan.view.table_of``.
        note: a line above it, or empty.
    """

    title: str
    columns: str
    note: str = ""


_DATA_THAT_GOES: Final = Listing(
    title="Data that goes",
    columns="log | rule | how | # from position | # bytes | offsets lost | # records | consent",
    note="Cut bytes and segments set aside are kept until purge; undo puts them back.",
)
_SWAPS: Final = Listing(
    title="Swaps to complete (bytes)",
    columns="file | # size | offsets | replaces the segments | why",
)
_FILES: Final = Listing(
    title="Files to replace or remove (bytes)",
    columns="file | rule | how | # before | # after | why",
)
_LINES: Final = Listing(
    title="Lines of checkpoints that change (offsets)",
    columns="file | rule | partition | # before | # after",
)
_ROLLS: Final = Listing(
    title="New segments at log ends (offsets)",
    columns="segment | rule | # log end | why",
)
LISTINGS: Final = (_DATA_THAT_GOES, _SWAPS, _FILES, _ROLLS, _LINES)
"""All tables, in the order of the page."""


class Words(NamedTuple):
    """Wording of the changes of one kind.

    Attributes:
        tells: function that describes all changes of this kind in a plan, at least one: a few words for the short page
            (empty if the row of batches covers the changes), and the rest of the sentence.
        listing: the table that its rows belong to; None if it has none.
        rows: function that yields the rows of one change in that table.
    """

    tells: Callable[[Sequence[Any]], Iterator[tuple[str, str]]]
    listing: Listing | None = None
    rows: Callable[[Any], Iterator[tuple[str, ...]]] = lambda change: iter(())


def _rewrites(changes: Sequence[RewriteSegments]) -> Iterator[tuple[str, str]]:
    """Describe how many segments become how many, and how many snapshots are removed with them."""
    plain = [change for change in changes if not change.loses_records]
    by_key = [change for change in changes if change.loses_records]
    stays = "carried over byte for byte; log start, log end and leader epochs stay"
    if plain:
        yield "", f"{_become(plain)}. Batches with records are {stays}"
    if by_key:
        gone = sum(source.by_key.gone for change in by_key for source in change.sources if source.by_key)
        records = (
            f"{count_text(gone, 'record')} of keys that have a newer record, or were deleted: removed"
            if gone
            else "No record is removed"
        )
        yield "", f"{_become(by_key)}. {records}. Every record that stays is {stays}"
    removed = sum(len(change.removes_snapshots) for change in changes)
    if removed:
        merged = f"{count_text(removed, 'producer snapshot')} of segments that are merged away"
        yield "", f"{merged}: removed; never the newest"


def _become(changes: Sequence[RewriteSegments]) -> str:
    sources = sum(len(change.sources) for change in changes)
    return f"{count_text(sources, 'segment becomes', 'segments become')} {len(changes)}"


def _swaps(changes: Sequence[CompleteSwap]) -> Iterator[tuple[str, str]]:
    gone = count_text(sum(len(change.replaces) for change in changes), "segment is", "segments are")
    yield (
        f"{count_text(len(changes), 'swap')} completed",
        f", as every broker would; {gone} replaced, and no batch changes",
    )


def _row_of_swap(change: CompleteSwap) -> Iterator[tuple[str, ...]]:
    yield (
        change.change_id,
        f"{change.log_bytes:,}",
        f"{change.base_offset} to {change.last_offset}",
        ", ".join(map(str, change.replaces)) or "none that is left",
        change.reason,
    )


def _mends(changes: Sequence[MendLog]) -> Iterator[tuple[str, str]]:
    size = sum(removed.end - removed.start for change in changes for removed in change.removed)
    padding = all(removed.is_padding for change in changes for removed in change.removed)
    what = "zeros cut off" if padding else "damage cut out of"
    yield (
        f"{size_text(size)} of {what} {count_text(len(changes), 'log')}",
        ", and kept; the indexes follow",
    )


def _rows_of_mend(change: MendLog) -> Iterator[tuple[str, ...]]:
    """Yield one row for each range; a torn tail has no consent."""
    for removed in change.removed:
        lost = f"{removed.first_lost} to {removed.last_lost}"
        yield (
            change.change_id,
            removed.rule,
            change.method,
            f"{removed.start:,}",
            f"{removed.end - removed.start:,}",
            lost if removed.last_lost >= removed.first_lost else "-",
            f"{removed.records:,}" if removed.records >= 0 else "?",
            removed.consent or "none needed",
        )


def _asides(changes: Sequence[SetAside]) -> Iterator[tuple[str, str]]:
    yield f"{count_text(len(changes), 'whole segment')} set aside", ", and kept until purge"


def _row_of_aside(change: SetAside) -> Iterator[tuple[str, ...]]:
    yield (
        change.change_id,
        change.rule,
        "set aside",
        "all",
        f"{change.bytes:,}",
        "-",
        f"{change.records:,}" if change.records >= 0 else "all",
        change.consent,
    )


def _files(changes: Sequence[ReplaceFile]) -> Iterator[tuple[str, str]]:
    removed = sum(change.method == "remove" for change in changes)
    if len(changes) > removed:
        yield (
            f"{count_text(len(changes) - removed, 'derived file')} replaced",
            " (indexes, checkpoints, snapshots)",
        )
    if removed:
        yield f"{count_text(removed, 'file')} removed", ", and kept until purge"


def _row_of_file(change: ReplaceFile) -> Iterator[tuple[str, ...]]:
    yield (
        change.change_id,
        change.rule,
        change.method,
        "missing" if change.size_before < 0 else f"{change.size_before:,}",
        "gone" if change.size_after < 0 else f"{change.size_after:,}",
        change.reason,
    )


def _rolls(changes: Sequence[RollSegment]) -> Iterator[tuple[str, str]]:
    yield f"{count_text(len(changes), 'empty segment')} added", " at the log end"


def _row_of_roll(change: RollSegment) -> Iterator[tuple[str, ...]]:
    yield (change.change_id, change.rule, f"{change.base_offset:,}", change.reason)


def _lines(changes: Sequence[ChangeLines]) -> Iterator[tuple[str, str]]:
    lines = count_text(sum(len(change.lines) for change in changes), "line")
    yield (
        f"{lines} of checkpoints changed",
        f" in {count_text(len(changes), 'file')} of the root, after everything else",
    )


def _rows_of_lines(change: ChangeLines) -> Iterator[tuple[str, ...]]:
    """Yield one row for each changed entry."""
    for line in change.lines:
        yield (
            change.name,
            change.rule,
            f"{line.topic}-{line.partition}",
            "missing" if line.old is None else f"{line.old:,}",
            "gone" if line.new is None else f"{line.new:,}",
        )


WORDS: Final[dict[type[Change], Words]] = {
    RewriteSegments: Words(_rewrites),
    CompleteSwap: Words(_swaps, _SWAPS, _row_of_swap),
    MendLog: Words(_mends, _DATA_THAT_GOES, _rows_of_mend),
    SetAside: Words(_asides, _DATA_THAT_GOES, _row_of_aside),
    ReplaceFile: Words(_files, _FILES, _row_of_file),
    RollSegment: Words(_rolls, _ROLLS, _row_of_roll),
    ChangeLines: Words(_lines, _LINES, _rows_of_lines),
}
"""Kind of change -> its wording, in the order in which a reader sees them."""


def words_of(change: Change) -> Words:
    """Return the wording of a change."""
    return WORDS[type(change)]


def by_kind(changes: Iterable[Change]) -> Iterator[tuple[Words, list[Change]]]:
    """Yield the wording of each kind with the changes of that kind, in the order of the table, if it has any."""
    of_kind: dict[type[Change], list[Change]] = {kind: [] for kind in WORDS}
    for change in changes:
        of_kind[type(change)].append(change)
    return ((WORDS[kind], some) for kind, some in of_kind.items() if some)
