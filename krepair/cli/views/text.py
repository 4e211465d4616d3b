"""Pages on a terminal through rich; the same page as plain text where there is none."""

from __future__ import annotations

import io
import shutil
import sys
from typing import TYPE_CHECKING

from krepair.plan.markdown import markdown
from krepair.plan.view import PARTS, Section, Table, View, typable, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

_GAP = "  "
_BLANK = "\n"
_WORDS = 14
"""Columns that words may be squeezed into."""


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
    # Nothing is wrapped: a line may hold a command, which is typed as it stands.
    lines = [visible(section.title), "-" * len(visible(section.title))] if section.title else []
    lines += [visible(line) for line in section.lines]
    if section.table is not None and section.table.rows:
        lines += _plain_table(section.table)
    lines += [f"  {typable(command)}" for command in section.commands]
    return "\n".join(lines)


def _plain_table(table: Table) -> list[str]:
    # A table of names and values has no headings.
    headings = (table.columns,) if any(table.columns) else ()
    rows = [tuple(map(visible, row)) for row in (*headings, *table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    return [_plain_row(row, widths, table.right) for row in rows]


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
        named = zip(table.columns[1:], row[1:], strict=True)
        rest = [f"{column} {visible(cell)}" if column else visible(cell) for column, cell in named if cell]
        console.print(Padding(Text("; ".join(rest)), (0, 0, 0, len(_GAP))))
