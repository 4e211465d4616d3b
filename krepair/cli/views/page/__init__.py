"""One self-contained HTML page for a change ticket: no network, no script, pictures as inline SVG.

Names of topics, folders and files are chosen by others. Whatever is put into a page is escaped by jinja2, and every
text has its control characters and its marks of direction spelled out before that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from krepair.checks.catalogue import Severity
from krepair.cli.views.check import CheckPage, check_view
from krepair.cli.views.compare import compare_view
from krepair.cli.views.page import drawing
from krepair.formats.words import few
from krepair.ops.compare import CompareReport
from krepair.ops.output_file import OutputKind
from krepair.ops.pictures import check_pictures, compare_pictures
from krepair.ops.reports import CheckReport, LogDirReport
from krepair.plan.log_contents import Content
from krepair.plan.model import FreeWhenVerified, NotReversible, Plan
from krepair.plan.pictures import pictures_of
from krepair.plan.risks import consents_of
from krepair.plan.short import OR_UNTIL, Observed, changes_of
from krepair.plan.view import (
    Section,
    View,
    bytes_text,
    bytes_words,
    count_text,
    exact_bytes,
    expected_text,
    large_unit,
    size_text,
    time_text,
    visible,
)

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
    pictures = pictures_of(plan)
    contents = _contents(cell.runs for strip in pictures.strips for cell in (*strip.before, *strip.after))
    return _render(
        "plan.html",
        plan=plan,
        view=view,
        sections={section.title: section for section in view.sections},
        tiles=_plan_tiles(plan, observed),
        free_bytes=observed.free_bytes if isinstance(observed, Observed) else -1,
        pictures=pictures,
        contents=contents,
        warnings=[section for section in view.sections if section.warns and not section.empty],
    )


def check_page(report: CheckReport) -> str:
    """The page of what ``check`` found."""
    return _render(
        "check.html",
        report=report,
        view=check_view(report, CheckPage(every=True, sums=False)),
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
