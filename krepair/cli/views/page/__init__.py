"""One self-contained HTML page for a change ticket: no network, no script, pictures as inline SVG.

Names of topics, folders and files are chosen by others. Whatever is put into a page is escaped by jinja2, and every
text has its control characters and its marks of direction spelled out before that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from krepair.cli.views.check import Asked, check_view
from krepair.cli.views.compare import compare_view
from krepair.cli.views.page import drawing
from krepair.ops.check_pictures import check_pictures
from krepair.ops.compare import CompareReport
from krepair.ops.compare_pictures import compare_pictures
from krepair.ops.output_file import OutputKind
from krepair.ops.reports import CheckReport, LogDirReport
from krepair.plan.actions.fate import Content
from krepair.plan.model import Plan
from krepair.plan.pictures import pictures_of
from krepair.plan.view import Section, View, bytes_text, expected_text, time_text, visible

FIRST_LINE: Final = "<!doctype html><!-- krepair page -->"
"""What every page begins with; a file that does not is never overwritten."""

_ROWS_IN_SIGHT: Final = 12
"""Rows of a table that are always shown; the rest opens with a click."""

_SHORT_NAME: Final = 48
"""A name up to this long is never broken."""

_MOST_ROWS: Final = 3000
"""A browser opens a page of more rows slowly."""

PAGE: Final = OutputKind(option="--html", what="pages", first=FIRST_LINE.encode())


class Tile(NamedTuple):
    """One figure at the head of a page.

    Attributes:
        name: what it is.
        value: at a glance.
        more: in full, or empty.
    """

    name: str
    value: str
    more: str = ""


def plan_page(plan: Plan, view: View) -> str:
    """The page of a plan.

    Args:
        plan: any plan; its pictures are worked out here.
        view: its text, as ``krepair.ops.show.show_view`` makes it, with what the review objects.
    """
    pictures = pictures_of(plan)
    contents = _contents(cell.runs for strip in pictures.strips for cell in (*strip.before, *strip.after))
    return _render(
        "plan.html",
        plan=plan,
        view=view,
        sections={section.title: section for section in view.sections},
        tiles=_plan_tiles(plan),
        pictures=pictures,
        contents=contents,
        objections=[section for section in view.sections if section.title.startswith("The review objects")],
    )


def check_page(report: CheckReport) -> str:
    """The page of what ``check`` found."""
    return _render(
        "check.html",
        report=report,
        view=check_view(report, Asked(every=True, sums=False)),
        log_dirs=[_log_dir(one) for one in report.log_dirs],
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


def _log_dir(report: LogDirReport) -> dict[str, Any]:
    pictures = check_pictures(report)
    largest = max((row.bytes for row in pictures.makeup), default=0)
    return {
        "report": report,
        "pictures": pictures,
        "largest": largest,
        "contents": _contents(row.runs for row in pictures.makeup),
        "tiles": _check_tiles(report),
    }


def _plan_tiles(plan: Plan) -> list[Tile]:
    changing = [partition for partition in plan.partitions if partition.changes]
    alone = sum(partition.status == "left alone" for partition in plan.partitions)
    tiles = [Tile("partitions to change", f"{len(changing):,} of {len(plan.partitions):,}")]
    if changing or plan.root is not None:
        tiles += [
            _bytes_tile("freed after purge", plan.freed_at_purge),
            _bytes_tile("needed on top meanwhile", plan.peak_extra_bytes),
            Tile("expected time of apply", expected_text(plan.expected_seconds)),
        ]
    if alone:
        tiles.append(Tile("partitions left alone", f"{alone:,}"))
    return tiles


def _bytes_tile(name: str, count: int) -> Tile:
    exact, _, unit = bytes_text(count).partition(" (")
    return Tile(name, unit.rstrip(")"), f"{exact} bytes") if unit else Tile(name, f"{exact} bytes")


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
    rows = section.table.rows if section.table is not None else ()
    if section.table is not None and not any(section.table.columns):
        return rows, (), 0  # names and values
    if len(rows) <= _ROWS_IN_SIGHT + 3:
        return rows, (), 0
    folded = rows[_ROWS_IN_SIGHT:_MOST_ROWS]
    return rows[:_ROWS_IN_SIGHT], folded, len(rows) - _ROWS_IN_SIGHT - len(folded)


def _render(template: str, **values: Any) -> str:
    return str(_environment().get_template(template).render(**values))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__name__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"draw": drawing, "first_line": Markup(FIRST_LINE), "split": _split}  # noqa: S704
    environment.filters |= {
        "bytes": bytes_text,
        "time": time_text,
        "short": lambda text: len(text) <= _SHORT_NAME,
        "thousands": lambda count: f"{count:,}",
        "css": lambda text: text.replace(" ", "-").replace("'", ""),
    }
    return environment


def _shown(value: Any) -> Any:
    """What a template puts out: text of others made visible, markup of the templates as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
