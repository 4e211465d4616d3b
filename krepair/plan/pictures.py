"""The values that the pictures of a page show, computed from a plan alone.

The command line draws them. This module knows no shapes, colours or markup. All figures are zero or more unless stated,
even for a plan that another program wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple, TypeVar

from krepair.formats import time_index
from krepair.formats.filenames import TIME_INDEX, log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.plan.facts import LOG_NAME, sizes_by_name
from krepair.plan.log_contents import Content, ContentRange, fate_of, small_file, summed
from krepair.plan.model import PartitionPlan, Plan, SourceSegment
from krepair.rules.reasons import Reason

MOST_BARS: Final = 20
MOST_STRIPS: Final = 8
MOST_CELLS: Final = 240
MOST_BINS: Final = 48
MOST_STEPS: Final = 200
_MOST_COMPARED: Final = 2000
"""Partitions whose pictures are compared with each other; there is a row for each segment of them."""
_SEEN: Final = 500
"""Parts of a strip that an eye can tell from each other."""
_NAMED: Final = 5

_Item = TypeVar("_Item")


_MARKERS_KEPT: Final = frozenset(
    {
        Reason.MARKER_DATA_REMAINS.value,
        Reason.MARKER_HORIZON.value,
        Reason.MARKER_STAMP.value,
        Reason.MARKER_EPOCH.value,
        Reason.MARKER_HELD.value,
    }
)
_MARKERS_GONE: Final = frozenset({Reason.MARKER.value, Reason.MARKER_STAMP_PAST.value})


@dataclass(frozen=True, kw_only=True, slots=True)
class BeforeAfter:
    """The bytes of one partition, or of several together.

    Attributes:
        name: folder name, or how many partitions.
        before: bytes.
        after: bytes.
        partitions: how many they are.
        alike: how many more partitions have the same two figures.
    """

    name: str
    before: int
    after: int
    partitions: int = 1
    alike: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One segment of a strip, or a few neighbours drawn as one.

    Attributes:
        first_base: base offset of the first of them.
        segments: how many.
        runs: what they hold.
    """

    first_base: int
    segments: int
    runs: tuple[ContentRange, ...]

    @property
    def bytes(self) -> int:
        """Of all runs."""
        return sum(run.bytes for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """The logs of one partition, segment by segment, in offset order.

    Attributes:
        partition: folder name.
        before: as they are.
        after: as apply leaves them.
        segments_before: how many there are.
        segments_after: how many apply leaves.
        alike: how many more partitions give the same picture.
        alike_names: folder names of a few of them.
    """

    partition: str
    before: tuple[Cell, ...]
    after: tuple[Cell, ...]
    segments_before: int
    segments_after: int
    alike: int = 0
    alike_names: tuple[str, ...] = ()

    @property
    def look(self) -> tuple[object, ...]:
        """What is seen of it: strips of equal looks are drawn once."""
        whole = max(sum(cell.bytes for cell in self.before), sum(cell.bytes for cell in self.after), 1)
        return (
            self.segments_before,
            self.segments_after,
            *(
                tuple((run.content, _SEEN * run.bytes // whole) for cell in cells for run in cell.runs)
                for cells in (self.before, self.after)
            ),
        )


class MarkerBin(NamedTuple):
    """Markers of segments that were last modified within one stretch of time.

    Attributes:
        kept: how many stay.
        gone: how many go.
    """

    kept: int
    gone: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerAges:
    """The markers of one partition by the last modification of their segment.

    Attributes:
        partition: folder name.
        first_ms: where the first bin begins, epoch milliseconds.
        last_ms: where the last bin ends.
        horizon_ms: the delete horizon, within the two; -1 where there is none to draw.
        bins: of equal length, ascending.
        kept: markers that stay.
        gone: markers that go.
        alike: how many more partitions give the same picture.
    """

    partition: str
    first_ms: int
    last_ms: int
    horizon_ms: int
    bins: tuple[MarkerBin, ...]
    kept: int
    gone: int
    alike: int = 0

    @property
    def look(self) -> tuple[object, ...]:
        """What is seen of it: pictures of equal looks are drawn once."""
        return self.first_ms, self.last_ms, self.horizon_ms, self.bins


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexTail:
    """A time index with zeros behind its entries.

    Attributes:
        partition: folder name.
        file: file name.
        entry_bytes: bytes of its entries.
        zero_bytes: bytes of zeros behind them.
    """

    partition: str
    file: str
    entry_bytes: int
    zero_bytes: int

    @property
    def entries(self) -> int:
        """How many there are."""
        return self.entry_bytes // time_index.ENTRY_SIZE


class SpaceStep(NamedTuple):
    """Free bytes compared with the time before apply.

    Attributes:
        done: share of the partitions that are applied, 0 to 1.
        bytes: negative where apply has taken space.
    """

    done: float
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpacePicture:
    """Free bytes during apply and after purge, compared with now.

    Attributes:
        applying: while apply runs, after each partition or each few partitions.
        lowest: largest need of extra bytes at any moment, as a negative number.
        after_apply: until purge.
        after_purge: at the end.
    """

    applying: tuple[SpaceStep, ...]
    lowest: int
    after_apply: int
    after_purge: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Pictures:
    """Everything that the page of a plan draws. An empty tuple means that there is nothing to draw.

    Attributes:
        logs: ``.log`` bytes by partition, largest difference first.
        files: bytes of the other files that are replaced or removed, by partition, likewise.
        strips: the partitions that change most.
        strips_left_out: how many more partitions have logs that change.
        ages: of those partitions that have markers.
        tails: time indexes with a tail of zeros, longest first.
        tails_left_out: how many more there are.
        space: through apply and purge; None if the plan changes nothing.
    """

    logs: tuple[BeforeAfter, ...]
    files: tuple[BeforeAfter, ...]
    strips: tuple[Strip, ...]
    strips_left_out: int
    ages: tuple[MarkerAges, ...]
    tails: tuple[IndexTail, ...]
    tails_left_out: int
    space: SpacePicture | None


def pictures_of(plan: Plan) -> Pictures:
    """What there is to draw of a plan."""
    changing = plan.changing
    with_logs = sorted(filter(_changes_logs, changing), key=_log_difference, reverse=True)
    compared = with_logs[:_MOST_COMPARED]
    strips = _once(map(_strip, compared))
    ages = _once(filter(None, map(_ages, compared)))
    drawn = strips[:MOST_STRIPS]
    tails = longest_tails(tail for partition in changing for tail in _tails(partition))
    return Pictures(
        logs=most_first(_log_bytes(partition) for partition in with_logs),
        files=most_first(_file_bytes(plan, changing)),
        strips=tuple(_named(first, others) for first, others in drawn),
        strips_left_out=len(with_logs) - sum(1 + len(others) for _, others in drawn),
        ages=tuple(replace(first, alike=len(others)) for first, others in ages[:MOST_STRIPS]),
        tails=tails[:MOST_BARS],
        tails_left_out=max(0, len(tails) - MOST_BARS),
        space=_space(plan, changing) if changing or plan.root is not None else None,
    )


_Looks = TypeVar("_Looks", Strip, MarkerAges)


def _once(pictures: Iterable[_Looks]) -> list[tuple[_Looks, list[_Looks]]]:
    """The first picture of each look, and the others that look like it."""
    seen: dict[tuple[object, ...], list[_Looks]] = {}
    for picture in pictures:
        seen.setdefault(picture.look, []).append(picture)
    return [(group[0], group[1:]) for group in seen.values()]


def _named(strip: Strip, alike: Sequence[Strip]) -> Strip:
    names = tuple(one.partition for one in alike[:_NAMED])
    return replace(strip, alike=len(alike), alike_names=names)


def most_first(rows: Iterable[BeforeAfter]) -> tuple[BeforeAfter, ...]:
    """The rows with the largest difference, equal ones once, and one row for all others together."""
    ordered = sorted(rows, key=lambda row: (-abs(row.before - row.after), -row.before, row.name))
    ordered = [
        _and_alike(list(alike)) for _, alike in groupby(ordered, key=lambda row: (row.before, row.after))
    ]
    shown, rest = ordered[:MOST_BARS], ordered[MOST_BARS:]
    if rest:
        partitions = sum(row.partitions * (1 + row.alike) for row in rest)
        before, after = (
            sum(getattr(row, side) * (1 + row.alike) for row in rest) for side in ("before", "after")
        )
        name = f"{partitions:,} others together"
        shown.append(BeforeAfter(name=name, before=before, after=after, partitions=partitions))
    return tuple(shown)


def _and_alike(rows: Sequence[BeforeAfter]) -> BeforeAfter:
    return replace(rows[0], alike=len(rows) - 1)


def longest_tails(tails: Iterable[IndexTail]) -> tuple[IndexTail, ...]:
    """All of them, longest first."""
    return tuple(sorted(tails, key=lambda tail: (-tail.zero_bytes, tail.partition, tail.file)))


def merged(cells: Sequence[Cell], most: int = MOST_CELLS) -> tuple[Cell, ...]:
    """Neighbours joined, so that no more than ``most`` cells are left."""
    per_cell = -(-len(cells) // most)
    return tuple(
        cells[at] if per_cell == 1 else _joined(cells[at : at + per_cell])
        for at in range(0, len(cells), max(per_cell, 1))
    )


def _joined(cells: Sequence[Cell]) -> Cell:
    return Cell(
        first_base=cells[0].first_base,
        segments=sum(cell.segments for cell in cells),
        runs=summed((run.content, run.bytes) for cell in cells for run in cell.runs),
    )


def _changes_logs(partition: PartitionPlan) -> bool:
    return any(change.segments for change in partition.changes)


def _log_difference(partition: PartitionPlan) -> int:
    return abs(partition.log_bytes_before - partition.log_bytes_after)


def _log_bytes(partition: PartitionPlan) -> BeforeAfter:
    return BeforeAfter(
        name=partition.folder,
        before=max(partition.log_bytes_before, 0),
        after=max(partition.log_bytes_after, 0),
    )


def _file_bytes(plan: Plan, changing: Iterable[PartitionPlan]) -> Iterable[BeforeAfter]:
    of_root = plan.root.changes if plan.root is not None else ()
    for name, changes in ((".", of_root), *((one.folder, one.changes) for one in changing)):
        files = [file for file in map(small_file, changes) if file is not None]
        if files:
            before, after = sum(file.before for file in files), sum(file.after for file in files)
            yield BeforeAfter(name=name, before=before, after=after)


def _strip(partition: PartitionPlan) -> Strip:
    sizes = sizes_by_name(partition.files)
    fates = [fate_of(change, sizes) for change in partition.changes]
    told = {base: runs for fate in fates for base, runs in fate.before.items()}
    then = {base: runs for fate in fates for base, runs in fate.after.items()}
    untouched = {
        int(match[1]): summed(((Content.LEFT, file.size),))
        for file in partition.files
        if (match := LOG_NAME.fullmatch(file.name))
    }
    before = _cells(untouched | told)
    after = _cells({base: runs for base, runs in untouched.items() if base not in told} | then)
    return Strip(
        partition=partition.folder,
        before=merged(before),
        after=merged(after),
        segments_before=len(before),
        segments_after=len(after),
    )


def _cells(by_base: dict[int, tuple[ContentRange, ...]]) -> list[Cell]:
    return [Cell(first_base=base, segments=1, runs=runs) for base, runs in sorted(by_base.items())]


def _ages(partition: PartitionPlan) -> MarkerAges | None:
    modified = {file.name: file.mtime_ns // 1_000_000 for file in partition.files}
    seen: list[tuple[int, int, int]] = []
    for change in partition.changes:
        for source in change.decides_on:
            kept, gone = _count(source, _MARKERS_KEPT), _count(source, _MARKERS_GONE)
            moment = modified.get(log_name(source.base_offset))
            if moment is not None and (kept or gone):
                seen.append((moment, kept, gone))
    if not seen:
        return None
    bounded = 0 < partition.horizon_ms < INT64_MAX
    moments = [moment for moment, _, _ in seen] + [partition.horizon_ms] * bounded
    # A little room at both ends, so that a horizon at an end can be seen.
    room = 1 + (max(moments) - min(moments)) // 20
    first, last = min(moments) - room, max(moments) + room
    return MarkerAges(
        partition=partition.folder,
        first_ms=first,
        last_ms=last,
        horizon_ms=partition.horizon_ms if bounded else -1,
        bins=_bins(seen, first, last),
        kept=sum(kept for _, kept, _ in seen),
        gone=sum(gone for _, _, gone in seen),
    )


def _bins(seen: Iterable[tuple[int, int, int]], first: int, last: int) -> tuple[MarkerBin, ...]:
    count = min(MOST_BINS, last - first)
    bins = [(0, 0)] * count
    for moment, kept, gone in seen:
        place = (moment - first) * count // (last - first)
        bins[place] = (bins[place][0] + kept, bins[place][1] + gone)
    return tuple(MarkerBin(kept, gone) for kept, gone in bins)


def _count(source: SourceSegment, codes: frozenset[str]) -> int:
    return sum(max(tally.batches, 0) for tally in source.reasons if tally.reason in codes)


def _tails(partition: PartitionPlan) -> Iterable[IndexTail]:
    """Tails of zeros. Only for truncated files they are certain; a rebuilt index may differ in other ways."""
    for change in partition.changes:
        file = small_file(change)
        if file is not None and file.is_cut and file.name.endswith(TIME_INDEX) and file.before > file.after:
            yield IndexTail(
                partition=partition.folder,
                file=file.name,
                entry_bytes=file.after,
                zero_bytes=file.before - file.after,
            )


def _space(plan: Plan, changing: Sequence[PartitionPlan]) -> SpacePicture:
    steps, free = [SpaceStep(0.0, 0)], 0
    for place, partition in enumerate(changing, 1):
        free += partition.freed_at_apply
        steps.append(SpaceStep(place / len(changing), free))
    return SpacePicture(
        applying=_thinned(steps, MOST_STEPS, lambda step: step.bytes),
        lowest=min(0, -plan.peak_extra_bytes),
        after_apply=plan.freed_at_apply,
        after_purge=plan.freed_at_purge,
    )


def _thinned(items: Sequence[_Item], most: int, low: Callable[[_Item], int]) -> tuple[_Item, ...]:
    """At most about ``most`` of them, the lowest of each few, and the last."""
    few = -(-len(items) // most)
    if few <= 1:
        return tuple(items)
    kept = [min(items[at : at + few], key=low) for at in range(0, len(items), few)]
    return (*kept, items[-1])
