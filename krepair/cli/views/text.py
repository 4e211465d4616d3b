"""Pages on a terminal through rich; the same page as plain text where there is none."""

from __future__ import annotations

import io
import shutil
import sys
import textwrap
from itertools import zip_longest
from typing import TYPE_CHECKING

from krepair.plan.markdown import markdown
from krepair.plan.view import PARTS, Section, ShareBar, Table, View, typable, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_GAP = "  "
_BLANK = "\n"
_COLUMNS = 110
"""Of a page where no terminal is."""
_WORDS = 14
"""Columns that words may be squeezed into."""
_LEAST_WORDS = 24
"""The same where no terminal is: there are more columns."""


def terminal_width() -> int:
    """Columns of the terminal that standard output is, 0 if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def print_view(view: View) -> None:
    """Put a page on standard output."""
    if sys.stdout.isatty():
        from rich.console import Console

        # Text takes what it is given: names of topics and files are never read as markup.
        _print_rich(view, Console(highlight=False))
    else:
        sys.stdout.write(_encodable(plain(view)))
    sys.stdout.flush()


def on_screen(view: View, width: int) -> str:
    """The page as a terminal of so many columns shows it, without its colours."""
    from rich.console import Console

    shown = io.StringIO()
    _print_rich(view, Console(file=shown, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in shown.getvalue().splitlines()) + "\n"


def print_markdown(view: View) -> None:
    """The page as Markdown on standard output."""
    sys.stdout.buffer.write(markdown(view).encode())
    sys.stdout.buffer.flush()


def _encodable(text: str) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def plain(view: View) -> str:
    """The page as text of aligned columns, with one newline at the end."""
    text = f"{visible(view.title)}\n"
    for part, sections in view.in_parts:
        if part:
            text += f"\n{_heading(part)}\n{'=' * len(_heading(part))}\n"
        for section in sections:
            text += f"{'' if _goes_on(section) else _BLANK}{_plain_section(section)}\n"
    return text


def _heading(part: str) -> str:
    """Of one part of a page, with the option that shows it alone."""
    return f"{PARTS[part]} (--section {part})"


def _goes_on(section: Section) -> bool:
    """Whether no empty line stands between it and what is above."""
    return not section.title


def _plain_section(section: Section) -> str:
    lines = [visible(section.title), "-" * len(visible(section.title))] if section.title else []
    for line in section.lines:
        lines += _wrapped(visible(line), _COLUMNS)
    if section.table is not None and section.table.rows:
        lines += _plain_table(section.table)
    lines += [f"  {typable(command)}" for command in section.commands]
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a text; a long path or word stays whole."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def _plain_table(table: Table) -> list[str]:
    # A table of names and values has no headings.
    headings = (table.columns,) if any(table.columns) else ()
    rows = [tuple(map(visible, row)) for row in (*headings, *table.rows)]
    widths = _widths(rows, table.right)
    if widths is None:
        return _plain_blocks(table)
    lines = [line for row in rows for line in _lines_of(row, widths)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(table.columns))]
    return [_plain_row(line, widths, table.right) for line in lines]


def _plain_blocks(table: Table) -> list[str]:
    """One block a row: the name in full on a line of its own, the rest below it."""
    lines = []
    for row in table.rows:
        lines += [
            visible(row[0]),
            *(f"{_GAP}{line}" for line in _wrapped(_rest_of(table, row), _COLUMNS - len(_GAP))),
        ]
    return lines


def _rest_of(table: Table, row: tuple[str, ...]) -> str:
    """The cells of a row behind its first one, each with its heading."""
    named = zip(table.columns[1:], row[1:], strict=True)
    return "; ".join(
        f"{column} {visible(cell)}" if column else visible(cell) for column, cell in named if cell
    )


def _widths(rows: list[tuple[str, ...]], right: frozenset[int]) -> list[int] | None:
    """Of the columns, where those of words are made narrower until a row fits; None where they would be too narrow.

    Names and numbers stay whole.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    bars = {place for row in rows for place, cell in enumerate(row) if isinstance(cell, ShareBar)}
    words = [place for place in range(1, len(widths)) if place not in right | bars]
    while (over := sum(widths) + len(_GAP) * (len(widths) - 1) - _COLUMNS) > 0:
        widest = max(words, key=widths.__getitem__, default=0)
        if not widest or widths[widest] <= _LEAST_WORDS:
            return None
        others = [widths[place] for place in words if place != widest]
        widths[widest] = max(
            widths[widest] - over, min(max(others, default=0), widths[widest] - 1), _LEAST_WORDS
        )
    return widths


def _lines_of(row: tuple[str, ...], widths: list[int]) -> list[tuple[str, ...]]:
    """The lines of one row, as many as its longest cell needs."""
    cells = [
        _wrapped(cell, width) if len(cell) > width else [cell]
        for cell, width in zip(row, widths, strict=True)
    ]
    return list(zip_longest(*cells, fillvalue=""))


def _plain_row(row: tuple[str, ...], widths: list[int], right: frozenset[int]) -> str:
    cells = [
        cell.rjust(width) if place in right else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return _GAP.join(cells).rstrip()


def _print_rich(view: View, console: Console) -> None:
    from rich.text import Text

    console.print(Text(visible(view.title), style="bold"))
    for part, sections in view.in_parts:
        if part:
            console.print()
            console.print(Text(_heading(part), style="bold reverse"))
        for section in sections:
            _print_section(section, console)


def _print_section(section: Section, console: Console) -> None:
    from rich.text import Text

    if not _goes_on(section):
        console.print()
        console.print(Text(visible(section.title), style="bold cyan"))
    for line in section.lines:
        console.print(Text(visible(line)))
    if section.table is not None and section.table.rows:
        if _too_wide(section.table, console.width):
            _print_blocks(console, section.table)
        else:
            console.print(_drawn(section.table))
    for command in section.commands:
        console.print(Text(f"  {typable(command)}", style="green"), soft_wrap=True)


def _drawn(table: Table) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=any(table.columns))
    for place, column in enumerate(table.columns):
        narrow = place in table.right or place == 0
        drawn.add_column(
            Text(column),
            justify="right" if place in table.right else "left",
            overflow="fold",
            no_wrap=narrow,
        )
    for row in table.rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    return drawn


def _too_wide(table: Table, width: int) -> bool:
    """Whether a name or a number would have to be broken; columns of words may be."""
    if not any(table.columns):
        return False
    needed = 0
    for place, column in enumerate(table.columns):
        cells = [column, *(visible(row[place]) for row in table.rows)]
        longest = max(map(len, cells))
        needed += len(_GAP) + (longest if place in table.right or place == 0 else min(longest, _WORDS))
    return needed > width


def _print_blocks(console: Console, table: Table) -> None:
    """One block a row: the name in full on a line of its own, the rest below it."""
    from rich.padding import Padding
    from rich.text import Text

    for row in table.rows:
        console.print(Text(visible(row[0]), style="bold"), soft_wrap=True)
        console.print(Padding(Text(_rest_of(table, row)), (0, 0, 0, len(_GAP))))
