"""A neutral page of titles, lines and tables. Markdown, the terminal and HTML are rendered from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from krepair.checks.recovery_time import duration_text
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import time_text
from krepair.next_command import Next

Cell = str | int

NAMES_AND_VALUES: Final = " | "
"""Columns of a table without headings."""

PARTS: Final = {
    "partitions": "What changes, partition by partition",
    "reasons": "Why batches stay or go",
    "horizons": "What other delete horizons would give",
    "settings": "How the plan was made",
    "replicas": "What other replicas decide",
    "commit": "Order, space, time and the way back",
    "risks": "Consents and risks",
}
"""Name of a part of a plan's page, as ``--section`` accepts it -> its heading."""

_QUOTED: Final = re.compile("\"'\"|'[^']*'")
"""Quoted pieces of a command, as ``shlex.quote`` writes them."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of text under headings.

    Attributes:
        columns: headings; all empty for names and values.
        rows: rows with as many cells as headings.
        right: indexes of the columns that hold numbers.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


def table_of(columns: str, rows: Iterable[Sequence[Cell]]) -> Table:
    """Build a table from its headings.

    Args:
        columns: headings, separated by `` | ``; a heading with ``#`` has numbers below it: ``partition | # bytes |
            why``.
        rows: rows with as many cells as headings; whole numbers get thousands separators.
    """
    headings = columns.split(" | ")
    return Table(
        columns=tuple(heading.removeprefix("# ") for heading in headings),
        rows=tuple(tuple(cell if isinstance(cell, str) else f"{cell:,}" for cell in row) for row in rows),
        right=frozenset(place for place, heading in enumerate(headings) if heading.startswith("# ")),
    )


def folded(rows: Iterable[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """Return the rows, with rows that differ only in their first cell merged: ``t-0 and 24 like it``."""
    alike: dict[tuple[Cell, ...], list[Cell]] = {}
    for name, *cells in rows:
        alike.setdefault(tuple(cells), []).append(name)
    return [(like_it(str(names[0]), len(names) - 1), *cells) for cells, names in alike.items()]


def like_it(name: str, more: int) -> str:
    """Return the name of the first of several that are alike."""
    return f"{name} and {more:,} like it" if more else name


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a page. Empty parts are not rendered.

    Attributes:
        title: heading; empty: it continues the section above.
        lines: paragraphs, one line each.
        table: table below the lines, or None.
        commands: commands to type, one line each.
        part: name in ``PARTS`` of the part, which is collapsed where a writer can; empty: it is always visible.
    """

    title: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    commands: tuple[Next, ...] = ()
    part: str = ""

    @property
    def empty(self) -> bool:
        """True if there is nothing under the heading."""
        return not (self.lines or self.commands or (self.table and self.table.rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A whole page: title and sections."""

    title: str
    sections: tuple[Section, ...]

    @property
    def short(self) -> View:
        """The sections that are always visible."""
        return self.only("")

    def only(self, part: str) -> View:
        """Return the page with the sections of one part only."""
        return View(
            title=self.title, sections=tuple(section for section in self.sections if section.part == part)
        )

    @property
    def in_parts(self) -> Iterator[tuple[str, tuple[Section, ...]]]:
        """Runs of nonempty sections of the same part, with the part's name."""
        for part, sections in groupby(self.sections, key=lambda section: section.part):
            nonempty = tuple(section for section in sections if not section.empty)
            if nonempty:
                yield part, nonempty


def visible(text: str) -> str:
    """Return the text with unprintable characters escaped, so that a name cannot move the cursor or break a line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def typable(command: Next) -> str:
    r"""Return a command as one line that a shell accepts, with unprintable characters of quoted words as bytes.

    Bash, zsh, ksh and busybox read ``$'a\x0ab'``.
    """
    text = command.typed
    return text if text.isprintable() else visible(_QUOTED.sub(_spelled, text))


def _spelled(word: re.Match[str]) -> str:
    quoted = word[0]
    return quoted if quoted.isprintable() else f"$'{''.join(map(_bytes_of, quoted[1:-1]))}'"


def _bytes_of(letter: str) -> str:
    if letter.isprintable():
        return letter.replace("\\", "\\\\")
    of_a_name = (
        0xDC80 <= ord(letter) <= 0xDCFF
    )  # Python's surrogate for a byte of a file name that is not UTF-8
    data = letter.encode("utf-8", "surrogateescape" if of_a_name else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def bytes_text(count: int) -> str:
    """Return a number of bytes, exact and in a large unit: ``1,308,238 (1.2 MiB)``."""
    large = large_unit(count)
    return f"{count:,} ({large})" if large else f"{count:,}"


def bytes_words(count: int) -> str:
    """Return a number of bytes for a sentence: ``1 byte``, ``1,308,238 bytes (1.2 MiB)``."""
    large = large_unit(count)
    return f"{exact_bytes(count)} ({large})" if large else exact_bytes(count)


def size_text(count: int) -> str:
    """Return a number of bytes in a large unit, for a line that is read at a glance: ``1.2 MiB``, ``61 bytes``."""
    return large_unit(count) or exact_bytes(count)


def exact_bytes(count: int) -> str:
    """Return a number of bytes in full: ``1,308,238 bytes``."""
    return f"{count:,} byte{'' if abs(count) == 1 else 's'}"


def large_unit(count: int) -> str:
    """Return a number of bytes in a large unit, ``1.2 MiB``; an empty string if it is less than one of them."""
    size, power = float(abs(count)), 0
    while size >= 1024 and power < len(_UNITS):
        size /= 1024
        power += 1
    sign = "-" if count < 0 else ""
    return f"{sign}{size:.1f} {_UNITS[power - 1]}" if power else ""


def expected_text(seconds: float) -> str:
    """Return an expected time in seconds as text. It is only an estimate, so below a minute there is no number."""
    return "less than a minute" if seconds < 60 else duration_text(seconds)


def horizon_text(milliseconds: int) -> str:
    """Return a delete horizon as text: a moment, or whether it removes markers and tombstones always or never."""
    if milliseconds >= INT64_MAX:
        return "any time"
    return time_text(milliseconds) if milliseconds > 0 else "never"


def asked_horizon(text: str) -> str:
    """Return the requested delete horizon as text: a name, or a moment."""
    is_time = text.isascii() and text.isdigit() and len(text) <= len(str(INT64_MAX))
    return time_text(int(text)) if is_time else text


def share_text(part: int, whole: int) -> str:
    """Return the share that remains, as ``17%``; 0 of 0 counts as nothing."""
    share = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
    return "<1%" if part > 0 and share < 0.01 else f"{share:.0%}"


# -- wrapping of lines

_PROGRAM: Final = re.compile(r"\W?(?:krepair|kafka-[a-z-]+\.sh)")
_VERB: Final = re.compile(r"[a-z]+\W?")
_ARGUMENT: Final = re.compile(r"-|[$'\"*]|\S*[/=]|[A-Z][A-Z0-9_-]*\W*$|\w[\w-]*\.\w+\W*$")
"""A word that may be part of a command: an option, a path, a name in capital letters, the name of a file."""
_ENDS: Final = tuple(",;.:)")


def wrapped(text: str, width: int) -> list[str]:
    """Wrap a text into lines, without breaking a command, an option with its value, or a long word."""
    if len(text) <= width:
        return [text]
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines = [""]
    for piece in unbroken(text.strip(" ")):
        longer = f"{lines[-1]} {piece}" if lines[-1] else f"{indent}{piece}"
        if lines[-1] and len(longer) > width:
            lines.append(f"{indent}{piece}")
        else:
            lines[-1] = longer
    return lines


def unbroken(text: str) -> list[str]:
    """Split a text into words; a command is one word, and so are a size and its unit."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and _belongs_to(pieces[-1], word):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces


def _belongs_to(piece: str, word: str) -> bool:
    """Return whether a word continues a command, is the value of an option, or the unit of a size."""
    last = piece.rpartition(" ")[2]
    if word.startswith(_UNITS) and last[-1:].isdigit():
        return True
    if last.endswith(_ENDS):
        return False
    if last.startswith("--"):
        return True
    program, *more = piece.split(" ")
    if not _PROGRAM.fullmatch(program):
        return False
    named = more[:1] == ["explain"] and len(more) == 1
    return bool(_ARGUMENT.match(word) or named or (not more and _VERB.fullmatch(word)))
