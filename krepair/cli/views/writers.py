"""Writers: a page as text or Markdown, in which no command is ever broken; a report as one JSON document."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgspec
from msgspec import Struct

from krepair import __version__
from krepair.errors import EXIT_CODE_MEANING, ExitCode
from krepair.formats.words import all_printable, json_for_terminals
from krepair.next_command import Next
from krepair.plan.model import Plan
from krepair.plan.planfile import spelled_out
from krepair.plan.view import PARTS, Section, Table, View, typable, unbroken, visible, wrapped

COLUMNS: Final = 110
"""Width of a page without a terminal; the variable ``COLUMNS`` overrides it as usual."""

_GAP: Final = "  "
_WORDS: Final = 14
"""Smallest width in columns to which a column of words shrinks."""

_STYLES: Final = {"title": "1", "part": "1;7", "heading": "1;36", "command": "32", "name": "1"}
Paint = Callable[[str, str], str]
"""Function (style name, text) that gives a text that style."""


def terminal_width() -> int:
    """Return the columns of the terminal on standard output, 0 if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def print_view(view: View) -> None:
    """Print a page on standard output."""
    coloured = (
        sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in {None, "dumb"}
    )
    text = _text(view, _columns(), _painted if coloured else _as_it_is)
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def print_markdown(view: View) -> None:
    """Print a page as Markdown on standard output."""
    sys.stdout.buffer.write(markdown(view).encode())
    sys.stdout.buffer.flush()


def plain(view: View) -> str:
    """Format a page as text for no terminal."""
    return on_screen(view, _columns())


def on_screen(view: View, width: int) -> str:
    """Format a page as text of ``width`` columns, without colours, with one newline at the end."""
    return _text(view, width, _as_it_is)


def _columns() -> int:
    return shutil.get_terminal_size((COLUMNS, 24)).columns


def _as_it_is(_style: str, text: str) -> str:
    return text


def _painted(style: str, text: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def _text(view: View, width: int, paint: Paint) -> str:
    return "".join(f"{line.rstrip()}\n" for line in _page(view, width, paint))


def _page(view: View, width: int, paint: Paint) -> Iterator[str]:
    yield from (paint("title", line) for line in wrapped(visible(view.title), width))
    for part, sections in view.in_parts:
        if part:
            yield ""
            # with the option that shows it alone
            yield paint("part", f"{PARTS[part]} (--section {part})")
        for section in sections:
            if section.title:
                yield ""
                yield from (paint("heading", line) for line in wrapped(visible(section.title), width))
            yield from _body(section, width, paint)


def _body(section: Section, width: int, paint: Paint) -> Iterator[str]:
    for line in section.lines:
        yield from wrapped(visible(line), width)
    if section.table is not None and section.table.rows:
        yield from _table(section.table, width, paint)
    yield from (paint("command", f"{_GAP}{typable(command)}") for command in section.commands)


# -- tables


def _table(table: Table, width: int, paint: Paint) -> Iterator[str]:
    # A table of names and values has no headings.
    headings = (table.columns,) if any(table.columns) else ()
    rows = [tuple(map(visible, row)) for row in (*headings, *table.rows)]
    widths = _widths(rows, table, width)
    if widths is None:
        yield from _blocks(table, width, paint)
        return
    for row in rows:
        cells = [wrapped(cell, size) for cell, size in zip(row, widths, strict=True)]
        for line in zip_longest(*cells, fillvalue=""):
            yield _GAP.join(
                cell.rjust(size) if place in table.right else cell.ljust(size)
                for place, (cell, size) in enumerate(zip(line, widths, strict=True))
            )


def _widths(rows: Sequence[tuple[str, ...]], table: Table, width: int) -> list[int] | None:
    """Compute column widths; columns of words shrink, the widest first, until a row fits.

    Returns:
        The widths; None if something would have to be broken. Names and values have no headings, and always stand side
        by side.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    least = list(widths)
    for place in range(1, len(widths)):
        if place not in table.right:
            longest = max(len(piece) for row in rows for piece in unbroken(row[place]))
            least[place] = min(widths[place], max(longest, _WORDS))
    room = width - len(_GAP) * (len(widths) - 1)
    if not any(table.columns):
        return [*widths[:-1], min(widths[-1], max(room - sum(widths[:-1]), _WORDS))]
    if sum(least) > room:
        return None
    while sum(widths) > room and widths != least:
        widest = max(
            (place for place, size in enumerate(widths) if size > least[place]), key=widths.__getitem__
        )
        widths[widest] -= 1
    return widths


def _blocks(table: Table, width: int, paint: Paint) -> Iterator[str]:
    """Format one block per row: the full name on a line of its own, the rest below it."""
    for row in table.rows:
        yield paint("name", visible(row[0]))
        named = zip(table.columns[1:], row[1:], strict=True)
        rest = [f"{column} {visible(cell)}" if column else visible(cell) for column, cell in named if cell]
        yield from wrapped(f"{_GAP}{'; '.join(rest)}", width)


# -- a page as Markdown for ticket systems: headings, pipe tables, fenced commands

# Other people choose the names of topics and files, so they must not become markup.
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>|~])")


def markdown(view: View) -> str:
    """Format a page with one newline at the end; its parts open with a click, where a ticket system allows it."""
    blocks = [f"# {_escaped_text(view.title)}"]
    for part, sections in view.in_parts:
        inside = [block for section in sections for block in _section(section)]
        folded = [f"<details><summary>{PARTS[part]}</summary>", *inside, "</details>"] if part else inside
        blocks += folded
    return "\n\n".join(blocks) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_escaped_text(section.title)}"] if section.title else []
    if len(section.lines) == 1:
        parts.append(_escaped_text(section.lines[0]))
    elif section.lines:
        parts.append("\n".join(f"- {_escaped_text(line)}" for line in section.lines))
    if section.table is not None and section.table.rows:
        parts.append(_markdown_table(section.table))
    if section.commands:
        commands = "\n".join(typable(command) for command in section.commands)
        fence = "`" * max(3, _longest_run(commands) + 1)
        parts.append(f"{fence}sh\n{commands}\n{fence}")
    return parts


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _markdown_table(table: Table) -> str:
    rule = ["---:" if place in table.right else "---" for place in range(len(table.columns))]
    rows = [table.columns, *table.rows]
    lines = [f"| {' | '.join(map(_escaped_text, row))} |" for row in rows]
    lines.insert(1, f"| {' | '.join(rule)} |")
    return "\n".join(lines)


def _escaped_text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", visible(text))


# -- a report as JSON: one versioned document a run


def report_document(verb: str, report: Any, exit_code: ExitCode) -> bytes:
    """Build the document of a run that ended.

    Args:
        verb: verb as the operator typed it.
        report: any msgspec value.
        exit_code: exit code that the process will return.
    """
    return _encode(_head(verb, exit_code) | {"report": _builtins(report)})


_SIGNAL: Final = 128
"""Offset of exit codes for signals: ``128 + n`` is signal ``n``."""


def error_document(verb: str, message: str, next_command: Next, exit_code: int, *, one_line: bool) -> bytes:
    """Build the document of a refused or failed run, on one line for a verb that writes one object per line."""
    code = ExitCode(exit_code) if exit_code in set(ExitCode) else ExitCode.BUG
    if exit_code > _SIGNAL:
        code = ExitCode.INTERRUPTED
    head = _head(verb, code) | {"exit_code": exit_code}
    error = ErrorBody(message=message, next_command=str(next_command))
    return _encode(head | {"error": msgspec.structs.asdict(error)}, one_line=one_line)


def write(document: bytes) -> None:
    """Write a document to standard output."""
    sys.stdout.write(document.decode())
    sys.stdout.flush()


def _head(verb: str, exit_code: ExitCode) -> dict[str, Any]:
    head = Head(
        format_version=DOCUMENT_VERSION,
        tool_version=__version__,
        verb=verb,
        exit_code=int(exit_code),
        code=exit_code.name,
        meaning=EXIT_CODE_MEANING[exit_code],
    )
    return msgspec.structs.asdict(head)


def _builtins(report: Any) -> Any:
    if isinstance(report, Plan):  # a plan's file leaves out what has its default; a report never has
        return all_printable(spelled_out(report))
    return all_printable(msgspec.to_builtins(report, str_keys=True, enc_hook=str))


def _encode(document: dict[str, Any], *, one_line: bool = False) -> bytes:
    encoded = msgspec.json.encode(all_printable(document))
    text = (encoded if one_line else msgspec.json.format(encoded, indent=2)).decode()
    return json_for_terminals(text).encode() + b"\n"


# -- the shape of everything that ``--json`` prints: for the published schemas, and for those who build it

DOCUMENT_VERSION: Final = "1.0"


class Head(Struct, frozen=True, kw_only=True):
    """Start of every document.

    Attributes:
        format_version: major.minor of these documents.
        tool_version: version of krepair that wrote the document.
        verb: verb as the operator typed it.
        exit_code: exit code of the process.
        code: name of the exit code.
        meaning: meaning of the exit code, in words.
    """

    format_version: str
    tool_version: str
    verb: str
    exit_code: int
    code: str
    meaning: str


class ErrorBody(Struct, frozen=True, kw_only=True):
    """Reason why a run was refused or failed.

    Attributes:
        message: description of the error in words.
        next_command: command to type next, or empty.
    """

    message: str
    next_command: str
