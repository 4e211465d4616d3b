"""One self-contained HTML page for a change ticket: no network, no script, pictures as inline SVG.

Names of topics, folders and files are chosen by others. Whatever is put into a page is escaped by jinja2, and every
text has its control characters and its marks of direction spelled out before that.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from krepair.checks.catalogue import Severity
from krepair.cli.views.check import check_view
from krepair.cli.views.comparisons import compare_view
from krepair.durable.output_file import OutputKind
from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text, few, time_text
from krepair.ops.by_rule import by_rule
from krepair.ops.compare import CompareReport
from krepair.ops.reports import CheckReport, LogDirReport
from krepair.options import Options
from krepair.plan.facts import LOG_NAME, sizes_by_name
from krepair.plan.log_contents import Content, ContentRange, fate_of, summed
from krepair.plan.model import FreeWhenVerified, NotReversible, PartitionPlan, Plan
from krepair.plan.risks import consents_of
from krepair.plan.short import OR_UNTIL, Observed, changes_of
from krepair.plan.view import (
    Section,
    View,
    bytes_text,
    bytes_words,
    exact_bytes,
    expected_text,
    large_unit,
    size_text,
    typable,
    visible,
)
from krepair.rules.replicas import model as m

FIRST_LINE: Final = "<!doctype html><!-- krepair page -->"
"""What every page begins with; a file that does not is never overwritten."""

_ROWS_IN_SIGHT: Final = 12
"""Rows of a table that are always shown; the rest opens with a click."""

_SHORT_NAME: Final = 48
"""A name up to this long is never broken."""

_SHORT_WORD: Final = 32
"""A word up to this long is never broken in a table."""

_ROWS_OF_A_KIND: Final = 3
"""Rows of one kind in sight where there are several kinds, so that many of one do not hide the others."""

_MOST_ROWS: Final = 3000
"""A browser opens a page of more rows slowly."""

PAGE: Final = OutputKind(option="--html", what="pages", first=FIRST_LINE.encode())


class Tile(NamedTuple):
    """One figure at the head of a page.

    Attributes:
        name: what it is.
        value: at a glance.
        more: in full, or empty.
        kind: word for the style sheet, or empty.
    """

    name: str
    value: str
    more: str = ""
    kind: str = ""


def plan_page(plan: Plan, view: View, observed: Observed | str = "not looked at here") -> str:
    """The page of a plan.

    Args:
        plan: any plan; its pictures are worked out here.
        view: its text, as ``krepair.ops.show.show_view`` makes it, with what the review and the disk object.
        observed: what its disk says, or why it was not looked at.
    """
    strips, more_strips = strips_of(plan)
    contents = _contents(cell.runs for strip in strips for cell in (*strip.before, *strip.after))
    return _render(
        "plan.html",
        plan=plan,
        view=view,
        sections={section.title: section for section in view.sections},
        tiles=_plan_tiles(plan, observed),
        free_bytes=observed.free_bytes if isinstance(observed, Observed) else -1,
        strips=strips,
        more_strips=more_strips,
        contents=contents,
        warnings=[section for section in view.sections if section.warns and not section.empty],
    )


def check_page(report: CheckReport) -> str:
    """The page of what ``check`` found."""
    return _render(
        "check.html",
        report=report,
        view=check_view(report, Options(every=True), sums=False),
        log_dirs=[(one, by_rule(one.findings), _check_tiles(one)) for one in report.log_dirs],
    )


def compare_page(report: CompareReport) -> str:
    """The page of what ``compare`` found."""
    return _render(
        "compare.html",
        report=report,
        view=compare_view(report),
        pictures=compare_pictures(report),
        tiles=[Tile(name, f"{count:,}", "partitions") for name, count in report.counts.items()],
    )


def _plan_tiles(plan: Plan, observed: Observed | str) -> list[Tile]:
    changing = plan.changing
    alone = sum(partition.status == "left alone" for partition in plan.partitions)
    tiles = []
    if changing or plan.root is not None:
        tiles = [
            _fits_tile(plan, observed),
            _undo_tile(plan),
            _consents_tile(plan),
            Tile(
                "expected time of apply",
                expected_text(plan.expected_seconds),
                "the broker is down for apply and verify, plus its own stop and start",
            ),
            _bytes_tile("freed after purge, compared with now", plan.freed_at_purge),
        ]
    tiles.append(Tile("partitions to change", f"{len(changing):,} of {len(plan.partitions):,}"))
    if alone:
        tiles.append(Tile("partitions left alone", f"{alone:,}"))
    return tiles


def _fits_tile(plan: Plan, observed: Observed | str) -> Tile:
    name = "fits on the disk"
    if isinstance(observed, str):
        more = f"{observed}; apply looks first, and needs {size_text(plan.peak_extra_bytes)} while it runs"
        return Tile(name, "not known", more)
    more = f"apply needs {size_text(observed.needed_bytes)} while it runs; {size_text(observed.free_bytes)} are free"
    return Tile(
        name, "yes" if observed.fits else "no: apply will refuse", more, "" if observed.fits else "bad"
    )


def _consents_tile(plan: Plan) -> Tile:
    given = consents_of(plan)
    if not given:
        return Tile("consents", "none", "nothing goes by somebody's word alone")
    folders = tuple(dict.fromkeys(folder for consent in given for folder in consent.folders))
    more = f"for {few(folders)}" if folders else "no partition rests on it"
    options = [consent.option for consent in given]
    if len(options) == 1:
        return Tile("consents", options[0], more, "bad")
    return Tile("consents", f"{len(options)} kinds", f"{', '.join(options)}; {more}", "bad")


def _undo_tile(plan: Plan) -> Tile:
    undo = [change.undo for change in changes_of(plan)]
    never = sum(isinstance(one, NotReversible) for one in undo)
    verified = sum(isinstance(one, FreeWhenVerified) for one in undo)
    if never:
        return Tile(
            "krepair undo",
            "not of all",
            f"{count_text(never, 'change')} of {len(undo):,} cannot be undone",
            "bad",
        )
    if verified:
        more = (
            f"{count_text(verified, 'original')} of {len(undo):,} freed by apply, once the result is verified"
        )
        return Tile("krepair undo", "not afterwards" if verified == len(undo) else "not of all", more, "bad")
    return Tile("krepair undo", "until krepair purge", OR_UNTIL)


def _bytes_tile(name: str, count: int) -> Tile:
    large, exact = large_unit(count), exact_bytes(count)
    return Tile(name, large, exact) if large else Tile(name, exact)


def _check_tiles(report: LogDirReport) -> list[Tile]:
    log_bytes = sum(partition.log_bytes for partition in report.partitions)
    tiles = [
        Tile("findings", f"{len(report.findings):,}"),
        Tile("partitions", f"{len(report.partitions):,}"),
        _bytes_tile("in .log files", log_bytes),
    ]
    if report.uncleanable_partitions:
        more = f"{bytes_text(report.uncleanable_bytes)} in them"
        tiles.append(Tile("uncleanable partitions (KIP-346)", f"{report.uncleanable_partitions:,}", more))
    return tiles


def _contents(groups: Iterable[Sequence[Any]]) -> list[Content]:
    """Which kinds a legend has to name, in the order of ``Content``."""
    seen = {run.content for runs in groups for run in runs}
    return [content for content in Content if content in seen]


def _split(section: Section) -> tuple[Sequence[tuple[str, ...]], Sequence[tuple[str, ...]], int]:
    """The rows in sight, the folded ones, how many are left out; a table a little longer than that is not folded."""
    table = section.table
    rows = table.rows if table is not None else ()
    if table is None or not any(table.columns) or len(rows) <= _ROWS_IN_SIGHT + 3:
        return rows, (), 0
    in_sight = (
        set(range(_ROWS_IN_SIGHT)) if table.kind < 0 else _some_of_each([row[table.kind] for row in rows])
    )
    folded = [row for place, row in enumerate(rows) if place not in in_sight]
    return [rows[place] for place in sorted(in_sight)], folded[:_MOST_ROWS], max(len(folded) - _MOST_ROWS, 0)


def _some_of_each(kinds: Sequence[str]) -> set[int]:
    """Places of the first few of each kind, then of the first ones until enough are in sight."""
    seen: Counter[str] = Counter()
    places = set()
    for place, kind in enumerate(kinds):
        seen[kind] += 1
        if seen[kind] <= _ROWS_OF_A_KIND:
            places.add(place)
    return places | set(range(max(_ROWS_IN_SIGHT - len(places), 0)))


def _breaks(cell: Any) -> bool:
    """Whether a cell has a word that is too long to be kept whole."""
    return any(len(word) > _SHORT_WORD for word in str(cell).split())


def _change(count: int) -> str:
    """``1,408 (1.4 KiB) more``, as in "there are ... than now"."""
    return f"{bytes_words(abs(count))} {'less' if count < 0 else 'more'}"


def _render(template: str, **values: Any) -> str:
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("krepair.cli.views"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"draw": sys.modules[__name__], "first_line": Markup(FIRST_LINE), "split": _split}  # noqa: S704
    environment.filters |= {
        "bytes": bytes_text,
        "time": time_text,
        "typable": typable,
        "breaks": _breaks,
        "change": _change,
        "count": count_text,
        "name": lambda cell: " " not in str(cell) or isinstance(cell, Severity),
        "short": lambda text: len(text) <= _SHORT_NAME,
        "thousands": lambda count: f"{count:,}",
        "css": lambda text: text.replace(" ", "-").replace("'", ""),
    }
    environment.tests["severity"] = lambda cell: isinstance(cell, Severity)
    return environment


def _shown(value: Any) -> Any:
    """What a template puts out: text of others made visible, markup of the templates as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


MOST_STRIPS: Final = 8
MOST_CELLS: Final = 240
MOST_STEPS: Final = 200


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
    """

    partition: str
    before: tuple[Cell, ...]
    after: tuple[Cell, ...]
    segments_before: int
    segments_after: int


def strips_of(plan: Plan) -> tuple[list[Strip], int]:
    """The partitions whose logs change most, and how many more there are whose logs change."""
    changing = [one for one in plan.changing if any(change.segments for change in one.changes)]
    changing.sort(key=lambda one: abs(one.log_bytes_before - one.log_bytes_after), reverse=True)
    return [_strip(one) for one in changing[:MOST_STRIPS]], max(len(changing) - MOST_STRIPS, 0)


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


def steps_of(plan: Plan) -> list[tuple[float, int]]:
    """Free bytes compared with now, negative where apply has taken space, by the share of partitions that are done.

    Of many the lowest of each few, and the last.
    """
    steps, free = [(0.0, 0)], 0
    for place, partition in enumerate(plan.changing, 1):
        free += partition.freed_at_apply
        steps.append((place / len(plan.changing), free))
    few = -(-len(steps) // MOST_STEPS)
    if few > 1:
        lowest = (min(steps[at : at + few], key=itemgetter(1)) for at in range(0, len(steps), few))
        steps = [*lowest, steps[-1]]
    return steps


# -- what the pictures of a comparison show

_BAD: Final = frozenset({m.DIVERGED, m.DAMAGED, m.CANNOT_TELL})
_MOST_COMPARISONS: Final = 200


class ReplicaBar(NamedTuple):
    """One replica.

    Attributes:
        broker: whose.
        start: log start offset.
        end: log end offset.
        stands_at: last stable offset, where readers of committed records end.
        state: in a word.
        wrong_from: first offset at which it is wrong or in doubt, -1 none.
    """

    broker: int
    start: int
    end: int
    stands_at: int
    state: str
    wrong_from: int


class PartitionPicture(NamedTuple):
    """One partition that is not as it should be.

    Attributes:
        name: of the partition.
        verdict: on it.
        low: lowest offset of any replica.
        high: highest log end offset.
        bars: of its replicas.
    """

    name: str
    verdict: str
    low: int
    high: int
    bars: tuple[ReplicaBar, ...]


def compare_pictures(report: CompareReport) -> tuple[PartitionPicture, ...]:
    """The partitions to draw, in order."""
    bad = [one for one in report.partitions if one.verdict in _BAD and one.replicas]
    return tuple(map(_picture, bad[:_MOST_COMPARISONS]))


def _picture(one: m.PartitionVerdict) -> PartitionPicture:
    return PartitionPicture(
        name=one.name,
        verdict=one.verdict,
        low=min(column.log_start for column in one.replicas),
        high=max(column.log_end for column in one.replicas),
        bars=tuple(
            ReplicaBar(
                broker=column.broker,
                start=column.log_start,
                end=column.log_end,
                stands_at=column.last_stable_offset,
                state=column.state,
                wrong_from=min(
                    (
                        max(found.offset, column.log_start)
                        for found in one.disagreements
                        if column.broker in found.brokers and m.VERDICT_OF[found.kind] != m.IS_BEHIND
                    ),
                    default=-1,
                ),
            )
            for column in one.replicas
        ),
    )


# -- shapes

WIDTH: Final = 1000.0
CHART_HEIGHT: Final = 160.0
APPLY_FROM: Final = 80.0
APPLY_TO: Final = 620.0
PURGE_AT: Final = 860.0
_LOST: Final = frozenset({Content.DAMAGED, Content.CUT, Content.ASIDE})
_MOST_GAPS: Final = 60
_TEXT_LINE: Final = 17.0
_TINY: Final = 4.0
"""What is there is seen, however small its share."""


class Box(NamedTuple):
    """A rectangle.

    Attributes:
        x: left edge.
        y: upper edge.
        width: to the right.
        height: downwards.
        kind: word for the style sheet.
        title: what it says when pointed at.
    """

    x: float
    y: float
    width: float
    height: float
    kind: str
    title: str


class ScaleMark(NamedTuple):
    """A word beside a picture.

    Attributes:
        y: of its line in the picture.
        at: y of the text, moved where two would lie on each other.
        text: what is there.
        kind: word for the style sheet.
    """

    y: float
    at: float
    text: str
    kind: str


class SpaceDrawing(NamedTuple):
    """Free space through apply and purge.

    Attributes:
        path: corners of the line, as SVG takes them.
        marks: what the levels are, from above.
    """

    path: str
    marks: tuple[ScaleMark, ...]


def replica(bar_of: ReplicaBar, low: int, high: int) -> list[Box]:
    """One replica on a scale of offsets: what is as the others have it, then what is wrong or in doubt."""
    whole = max(high - low, 1)
    edge = bar_of.end if bar_of.wrong_from < 0 else min(bar_of.wrong_from, bar_of.end)
    boxes = []
    for kind, first, after in (("after", bar_of.start, edge), ("damaged", edge, bar_of.end)):
        if first < after:
            left = WIDTH * (first - low) / whole
            width = max(WIDTH * (after - first) / whole, _TINY)
            boxes.append(Box(left, 0.0, width, 1.0, kind, f"{first:,} to {after:,}"))
    return boxes


def strip(cells: Sequence[Cell], whole: int) -> list[Box]:
    """Segments side by side; each is as wide as its bytes, and shows what it holds."""
    boxes, at = [], 0.0
    for cell in cells:
        for run in cell.runs:
            width = WIDTH * run.bytes / whole if whole > 0 else 0.0
            damaged = run.content in _LOST
            title = f"{_name(cell)}: {run.content}, {bytes_text(run.bytes)}"
            boxes.append(Box(at, 0.0, max(width, _TINY) if damaged else width, 1.0, str(run.content), title))
            at += width
    return boxes


def seams(cells: Sequence[Cell], whole: int) -> list[float]:
    """Where one segment ends and the next begins; nothing where they would cover the picture."""
    if len(cells) > _MOST_GAPS or whole <= 0:
        return []
    at, found = 0.0, []
    for cell in cells[:-1]:
        at += WIDTH * cell.bytes / whole
        found.append(at)
    return found


def strip_bytes(cells: Sequence[Cell]) -> int:
    """Of all cells."""
    return sum(cell.bytes for cell in cells)


def space(plan: Plan, free_now: int = -1) -> SpaceDrawing:
    """The line of free space: now, while apply runs, until purge, after it.

    Args:
        plan: that changes something.
        free_now: bytes that are free now, or -1; then the scale says only what is more or less.
    """
    steps, least = steps_of(plan), min(0, -plan.peak_extra_bytes)
    levels = [(0, _now_text(free_now), "now"), (least, f"{_signed(least)} lowest", "lowest")]
    levels.append((plan.freed_at_purge, f"{_signed(plan.freed_at_purge)} after purge", "purged"))
    figures = [free for _, free in steps] + [plan.freed_at_apply, *(level for level, _, _ in levels)]
    if 0 <= free_now <= 2 * (max(figures) - min(figures)):
        levels.append((-free_now, "0 bytes free", "full"))
        figures.append(-free_now)
    top, room = max(figures), max(max(figures) - min(figures), 1)

    def height(figure: int) -> float:
        return 8.0 + (CHART_HEIGHT - 16.0) * (top - figure) / room

    corners = [(0.0, height(0))]
    corners += [(APPLY_FROM + (APPLY_TO - APPLY_FROM) * done, height(free)) for done, free in steps]
    corners += [(x, height(plan.freed_at_apply)) for x in (APPLY_TO, PURGE_AT)]
    corners += [(x, height(plan.freed_at_purge)) for x in (PURGE_AT, WIDTH)]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in corners)
    return SpaceDrawing(path, _marks([(height(level), text, kind) for level, text, kind in levels]))


def _now_text(free_now: int) -> str:
    return "free now" if free_now < 0 else f"{size_text(free_now)} free now"


def _signed(count: int) -> str:
    return f"{'+' if count > 0 else ''}{size_text(count)}"


def _marks(levels: Sequence[tuple[float, str, str]]) -> tuple[ScaleMark, ...]:
    """Texts from above, each a line below the one before it, and none below the picture."""
    marks: list[ScaleMark] = []
    ordered = sorted(levels)
    for place, (y, text, kind) in enumerate(ordered):
        below = len(ordered) - 1 - place
        at = min(
            max(y, marks[-1].at + _TEXT_LINE if marks else _TEXT_LINE / 2),
            CHART_HEIGHT - below * _TEXT_LINE - 4,
        )
        marks.append(ScaleMark(y, at, text, kind))
    return tuple(marks)


def _name(cell: Cell) -> str:
    if cell.segments == 1:
        return f"segment {offset_name(cell.first_base)}"
    return f"{count_text(cell.segments, 'segment')} from {offset_name(cell.first_base)}"
