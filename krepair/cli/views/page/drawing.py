"""From values to shapes: where a rectangle or a line lies in a picture of 1000 units width.

Pictures are stretched to the width of the page, so they hold no text: what is written stands beside them in HTML and
keeps its size on a telephone and on paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.ops.pictures import ReplicaBar
from krepair.plan.log_contents import Content, ContentRange
from krepair.plan.pictures import BeforeAfter, Cell, IndexTail, MarkerAges, SpacePicture
from krepair.plan.view import bytes_text, size_text, time_text

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


def bar(part: int, whole: int, kind: str) -> list[Box]:
    """One bar whose length is a share of ``whole``."""
    return [Box(0.0, 0.0, _width(part, whole), 1.0, kind, bytes_text(part))] if part > 0 else []


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


def scale(rows: Sequence[BeforeAfter], row: BeforeAfter) -> int:
    """What the longest bar stands for; a row of several partitions has a scale of its own."""
    beside = [other for other in rows if other.partitions == 1] if row.partitions == 1 else [row]
    return max(max(other.before, other.after) for other in beside)


def runs(items: Sequence[ContentRange], whole: int) -> list[Box]:
    """Stretches side by side, on the scale of ``whole``."""
    boxes, at = [], 0.0
    for run in items:
        width = _width(run.bytes, whole)
        boxes.append(Box(at, 0.0, width, 1.0, str(run.content), f"{run.content}: {bytes_text(run.bytes)}"))
        at += width
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


def age_bars(ages: MarkerAges) -> list[Box]:
    """One bar for each stretch of time: what stays below, what goes above it."""
    highest = age_top(ages)
    step = WIDTH / max(len(ages.bins), 1)
    length = (ages.last_ms - ages.first_ms) / max(len(ages.bins), 1)
    boxes = []
    for place, item in enumerate(ages.bins):
        until = time_text(round(ages.first_ms + (place + 1) * length))
        base = CHART_HEIGHT
        for kind, count in (("stay", item.kept), ("go", item.gone)):
            if count:
                height = max(CHART_HEIGHT * count / highest, _TINY)
                title = f"up to {until}: {count_text(count, 'marker')} {kind}"
                boxes.append(Box(place * step, base - height, step * 0.92, height, kind, title))
                base -= height
    return boxes


def age_top(ages: MarkerAges) -> int:
    """Markers of the highest bar."""
    return max((item.kept + item.gone for item in ages.bins), default=0)


def age_place(ages: MarkerAges) -> float:
    """The x of the delete horizon; negative where there is none to draw."""
    if ages.horizon_ms < 0:
        return -1.0
    return WIDTH * (ages.horizon_ms - ages.first_ms) / max(ages.last_ms - ages.first_ms, 1)


def tail(item: IndexTail) -> list[Box]:
    """Entries and zeros of one time index, from its first byte to its last."""
    whole = item.entry_bytes + item.zero_bytes
    width = _width(item.entry_bytes, whole)
    entries = Box(0.0, 0.0, width, 1.0, "entries", f"{count_text(item.entries, 'entry', 'entries')}")
    zeros = Box(width, 0.0, WIDTH - width, 1.0, "zeros", f"{bytes_text(item.zero_bytes)} of zeros")
    return [entries, zeros] if item.entry_bytes else [zeros]


def space(item: SpacePicture, free_now: int = -1) -> SpaceDrawing:
    """The line of free space: now, while apply runs, until purge, after it.

    Args:
        item: compared with now.
        free_now: bytes that are free now, or -1; then the scale says only what is more or less.
    """
    levels = [(0, _now_text(free_now), "now"), (item.lowest, f"{_signed(item.lowest)} lowest", "lowest")]
    levels.append((item.after_purge, f"{_signed(item.after_purge)} after purge", "purged"))
    figures = [step.bytes for step in item.applying] + [item.after_apply, *(level for level, _, _ in levels)]
    if 0 <= free_now <= 2 * (max(figures) - min(figures)):
        levels.append((-free_now, "0 bytes free", "full"))
        figures.append(-free_now)
    top, room = max(figures), max(max(figures) - min(figures), 1)

    def height(figure: int) -> float:
        return 8.0 + (CHART_HEIGHT - 16.0) * (top - figure) / room

    corners = [(0.0, height(0))]
    corners += [
        (APPLY_FROM + (APPLY_TO - APPLY_FROM) * step.done, height(step.bytes)) for step in item.applying
    ]
    corners += [(APPLY_TO, height(item.after_apply)), (PURGE_AT, height(item.after_apply))]
    corners += [(PURGE_AT, height(item.after_purge)), (WIDTH, height(item.after_purge))]
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


def _width(part: int, whole: int) -> float:
    """Share of the whole width; what is there is seen."""
    if part <= 0 or whole <= 0:
        return 0.0
    return min(max(WIDTH * part / whole, _TINY), WIDTH)


def _name(cell: Cell) -> str:
    if cell.segments == 1:
        return f"segment {offset_name(cell.first_base)}"
    return f"{count_text(cell.segments, 'segment')} from {offset_name(cell.first_base)}"
