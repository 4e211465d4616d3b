"""One self-contained HTML page for a change ticket: no network, no script, pictures as inline SVG.

Names of topics, folders and files come from others. jinja2 escapes everything that is put into a page, and before that
control characters and direction marks are spelled out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from krepair.checks.catalogue import Severity
from krepair.durable.output_file import OutputKind
from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.plan.facts import LOG_NAME, sizes_by_name
from krepair.plan.log_contents import Content, ContentRange, fate_of, summed
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.view import Section, View, bytes_text, typable, visible

FIRST_LINE: Final = "<!doctype html><!-- krepair page -->"
"""First line of every page; a file with another one is never overwritten."""

_ROWS_IN_SIGHT: Final = 12
"""Rows of a table that are always visible; the rest opens with a click."""

_SHORT_WORD: Final = 32
"""Longest word in characters that a table never breaks."""

_MOST_ROWS: Final = 3000
"""Number of rows above which a browser opens a page slowly."""

PAGE: Final = OutputKind(option="--html", what="pages", first=FIRST_LINE.encode())


def plan_page(plan: Plan, view: View) -> str:
    """Build the page of a plan: its short page, then pictures, then its parts.

    Args:
        plan: any plan; its pictures are computed here.
        view: text of the plan, from ``krepair.ops.show.show_view``.
    """
    strips, more_strips = strips_of(plan)
    contents = _contents(cell.runs for strip in strips for cell in (*strip.before, *strip.after))
    return _render(
        "plan.html", plan=plan, view=view, strips=strips, more_strips=more_strips, contents=contents
    )


def found_page(view: View) -> str:
    """Build the page of what ``check`` or ``compare`` found."""
    return _render("found.html", view=view)


def _contents(groups: Iterable[Sequence[Any]]) -> list[Content]:
    """List the kinds that a legend has to name, in the order of ``Content``."""
    contents = {run.content for runs in groups for run in runs}
    return [content for content in Content if content in contents]


def _split(section: Section) -> tuple[Sequence[tuple[str, ...]], Sequence[tuple[str, ...]], int]:
    """Split rows into visible and folded ones, and count those left out; a slightly longer table is not folded."""
    table = section.table
    rows = table.rows if table is not None else ()
    if table is None or not any(table.columns) or len(rows) <= _ROWS_IN_SIGHT + 3:
        return rows, (), 0
    folded = rows[_ROWS_IN_SIGHT:]
    return rows[:_ROWS_IN_SIGHT], folded[:_MOST_ROWS], max(len(folded) - _MOST_ROWS, 0)


def _breaks(cell: Any) -> bool:
    """Return whether a cell has a word that is too long to be kept whole."""
    return any(len(word) > _SHORT_WORD for word in str(cell).split())


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
        "typable": typable,
        "breaks": _breaks,
        "count": count_text,
        "name": lambda cell: " " not in str(cell) or isinstance(cell, Severity),
        "thousands": lambda count: f"{count:,}",
        "css": lambda text: text.replace(" ", "-").replace("'", ""),
    }
    environment.tests["severity"] = lambda cell: isinstance(cell, Severity)
    return environment


def _shown(value: Any) -> Any:
    """Make others' text visible, and keep the markup of the templates."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


MOST_STRIPS: Final = 8
MOST_CELLS: Final = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One segment of a strip, or a few neighbours drawn as one.

    Attributes:
        first_base: base offset of the first segment.
        segments: number of segments in the cell.
        runs: content of the segments.
    """

    first_base: int
    segments: int
    runs: tuple[ContentRange, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all runs."""
        return sum(run.bytes for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """Logs of one partition, segment by segment, in offset order.

    Attributes:
        partition: name of the partition folder.
        before: cells of the present logs.
        after: cells of the logs that apply leaves.
        segments_before: number of present segments.
        segments_after: number of segments that apply leaves.
    """

    partition: str
    before: tuple[Cell, ...]
    after: tuple[Cell, ...]
    segments_before: int
    segments_after: int


def strips_of(plan: Plan) -> tuple[list[Strip], int]:
    """Return the partitions whose logs change most, and the number of further ones whose logs change."""
    changing = [
        partition for partition in plan.changing if any(change.segments for change in partition.changes)
    ]
    changing.sort(
        key=lambda partition: abs(partition.log_bytes_before - partition.log_bytes_after), reverse=True
    )
    return [_strip(partition) for partition in changing[:MOST_STRIPS]], max(len(changing) - MOST_STRIPS, 0)


def merged(cells: Sequence[Cell], most: int = MOST_CELLS) -> tuple[Cell, ...]:
    """Join neighbours until at most ``most`` cells are left."""
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
    touched = {base: runs for fate in fates for base, runs in fate.before.items()}
    then = {base: runs for fate in fates for base, runs in fate.after.items()}
    untouched = {
        int(match[1]): summed(((Content.LEFT, file.size),))
        for file in partition.files
        if (match := LOG_NAME.fullmatch(file.name))
    }
    before = _cells(untouched | touched)
    after = _cells({base: runs for base, runs in untouched.items() if base not in touched} | then)
    return Strip(
        partition=partition.folder,
        before=merged(before),
        after=merged(after),
        segments_before=len(before),
        segments_after=len(after),
    )


def _cells(by_base: dict[int, tuple[ContentRange, ...]]) -> list[Cell]:
    return [Cell(first_base=base, segments=1, runs=runs) for base, runs in sorted(by_base.items())]


# -- shapes

WIDTH: Final = 1000.0
_LOST: Final = frozenset({Content.DAMAGED, Content.CUT, Content.ASIDE})
_MOST_GAPS: Final = 60
_TINY: Final = 4.0
"""Smallest width of damage, so that it stays visible however small its share."""


class Box(NamedTuple):
    """A rectangle in a strip.

    Attributes:
        x: left edge of the rectangle.
        width: width of the rectangle.
        kind: word for the style sheet.
        title: text shown when pointed at.
    """

    x: float
    width: float
    kind: str
    title: str


def strip(cells: Sequence[Cell], whole: int) -> list[Box]:
    """Draw segments side by side, each as wide as its bytes and coloured by its content."""
    boxes, at = [], 0.0
    for cell in cells:
        for run in cell.runs:
            width = WIDTH * run.bytes / whole if whole > 0 else 0.0
            damaged = run.content in _LOST
            title = f"{_name(cell)}: {run.content}, {bytes_text(run.bytes)}"
            boxes.append(Box(at, max(width, _TINY) if damaged else width, str(run.content), title))
            at += width
    return boxes


def seams(cells: Sequence[Cell], whole: int) -> list[float]:
    """Return the borders between segments; none if they would cover the picture."""
    if len(cells) > _MOST_GAPS or whole <= 0:
        return []
    at, edges = 0.0, []
    for cell in cells[:-1]:
        at += WIDTH * cell.bytes / whole
        edges.append(at)
    return edges


def strip_bytes(cells: Sequence[Cell]) -> int:
    """Sum the bytes of all cells."""
    return sum(cell.bytes for cell in cells)


def _name(cell: Cell) -> str:
    if cell.segments == 1:
        return f"segment {offset_name(cell.first_base)}"
    return f"{count_text(cell.segments, 'segment')} from {offset_name(cell.first_base)}"
