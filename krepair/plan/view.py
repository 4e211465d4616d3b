"""A neutral page of titles, lines and tables. Markdown, the terminal and HTML are drawn from it."""

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
"""Name of a part of a plan's page, as ``--section`` takes it -> its heading."""

_QUOTED: Final = re.compile("\"'\"|'[^']*'")
"""Pieces of a command as ``shlex.quote`` makes them."""

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of text.

    Attributes:
        columns: headings; all empty for names and values.
        rows: cells, as many as headings.
        right: places of the columns that hold numbers.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()


def table_of(columns: str, rows: Iterable[Sequence[Cell]]) -> Table:
    """A table by its headings.

    Args:
        columns: divided by `` | ``; what begins with ``#`` holds numbers: ``partition | # bytes | why``.
        rows: cells, as many as headings; a whole number is written with a comma for each thousand.
    """
    headings = columns.split(" | ")
    return Table(
        columns=tuple(heading.removeprefix("# ") for heading in headings),
        rows=tuple(tuple(cell if isinstance(cell, str) else f"{cell:,}" for cell in row) for row in rows),
        right=frozenset(place for place, heading in enumerate(headings) if heading.startswith("# ")),
    )


def folded(rows: Iterable[tuple[Cell, ...]]) -> list[tuple[Cell, ...]]:
    """Rows of which those that are equal, but for their first cell, are there once: ``t-0 and 24 like it``."""
    alike: dict[tuple[Cell, ...], list[Cell]] = {}
    for name, *cells in rows:
        alike.setdefault(tuple(cells), []).append(name)
    return [(like_it(str(names[0]), len(names) - 1), *cells) for cells, names in alike.items()]


def like_it(name: str, more: int) -> str:
    """The name of the first of several that are alike."""
    return f"{name} and {more:,} like it" if more else name


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a page. Empty parts are not drawn.

    Attributes:
        title: heading; empty: it goes on from the section above.
        lines: paragraphs, one line each.
        table: or None.
        commands: to type, one line each.
        part: of ``PARTS``, which is folded where a writer can; empty: it is always in sight.
    """

    title: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    commands: tuple[Next, ...] = ()
    part: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing under the heading."""
        return not (self.lines or self.commands or (self.table and self.table.rows))


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A whole page."""

    title: str
    sections: tuple[Section, ...]

    @property
    def short(self) -> View:
        """What is always in sight."""
        return self.only("")

    def only(self, part: str) -> View:
        """One part."""
        return View(title=self.title, sections=tuple(one for one in self.sections if one.part == part))

    @property
    def in_parts(self) -> Iterator[tuple[str, tuple[Section, ...]]]:
        """Each run of sections of the same part that has something in it, with the part's name."""
        for part, sections in groupby(self.sections, key=lambda section: section.part):
            found = tuple(section for section in sections if not section.empty)
            if found:
                yield part, found


def visible(text: str) -> str:
    """The text with unprintable characters spelled out, so that a name cannot move the cursor or break a line."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def typable(command: Next) -> str:
    r"""A command as one line that a shell takes: what cannot be printed in a quoted word is spelled as bytes.

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
    of_a_name = 0xDC80 <= ord(letter) <= 0xDCFF  # a byte that is not UTF-8, as Python has it in a file name
    data = letter.encode("utf-8", "surrogateescape" if of_a_name else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in data)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def bytes_text(count: int) -> str:
    """A number of bytes, exact and in a large unit: ``1,308,238 (1.2 MiB)``."""
    large = large_unit(count)
    return f"{count:,} ({large})" if large else f"{count:,}"


def bytes_words(count: int) -> str:
    """A number of bytes in a sentence: ``1 byte``, ``1,308,238 bytes (1.2 MiB)``."""
    large = large_unit(count)
    return f"{exact_bytes(count)} ({large})" if large else exact_bytes(count)


def size_text(count: int) -> str:
    """A number of bytes in a large unit, for a line that is read at a glance: ``1.2 MiB``, ``61 bytes``."""
    return large_unit(count) or exact_bytes(count)


def exact_bytes(count: int) -> str:
    """A number of bytes in full: ``1,308,238 bytes``."""
    return f"{count:,} byte{'' if abs(count) == 1 else 's'}"


def large_unit(count: int) -> str:
    """A number of bytes in a large unit, ``1.2 MiB``; empty where it is less than one of them."""
    size, power = float(abs(count)), 0
    while size >= 1024 and power < len(_UNITS):
        size /= 1024
        power += 1
    sign = "-" if count < 0 else ""
    return f"{sign}{size:.1f} {_UNITS[power - 1]}" if power else ""


def expected_text(seconds: float) -> str:
    """An expected time in seconds as text. It is only an estimate, so below a minute no number is given."""
    return "less than a minute" if seconds < 60 else duration_text(seconds)


def horizon_text(milliseconds: int) -> str:
    """A delete horizon: a moment, or whether it lets markers and tombstones go at any time or never."""
    if milliseconds >= INT64_MAX:
        return "any time"
    return time_text(milliseconds) if milliseconds > 0 else "never"


def asked_horizon(text: str) -> str:
    """A delete horizon as it was asked for: a name, or a moment."""
    is_time = text.isascii() and text.isdigit() and len(text) <= len(str(INT64_MAX))
    return time_text(int(text)) if is_time else text


def share_text(part: int, whole: int) -> str:
    """How much of something is left, as ``17%``; of what is left nothing is shown as nothing."""
    share = min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
    return "<1%" if part > 0 and share < 0.01 else f"{share:.0%}"


# -- lines no longer than a width

_PROGRAM: Final = re.compile(r"\W?(?:krepair|kafka-[a-z-]+\.sh)")
_VERB: Final = re.compile(r"[a-z]+\W?")
_ARGUMENT: Final = re.compile(r"-|[$'\"*]|\S*[/=]|[A-Z][A-Z0-9_-]*\W*$|\w[\w-]*\.\w+\W*$")
"""A word that may be part of a command: an option, a path, a name in capital letters, the name of a file."""
_ENDS: Final = tuple(",;.:)")


def wrapped(text: str, width: int) -> list[str]:
    """Lines of a text. A command in it, an option with its value, and a long word stay whole."""
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
    """The words of a text; those of a command are one, and so are a size and its unit."""
    pieces: list[str] = []
    for word in text.split(" "):
        if pieces and _belongs_to(pieces[-1], word):
            pieces[-1] += f" {word}"
        else:
            pieces.append(word)
    return pieces


def _belongs_to(piece: str, word: str) -> bool:
    """Whether a word goes on with a command, is the value of an option, or the unit of a size."""
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
