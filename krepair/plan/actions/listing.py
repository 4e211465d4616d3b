"""The tables of a plan's page that have one or more rows for a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One table.

    Attributes:
        title: its heading.
        columns: headings of the columns.
        right: places of the columns that hold numbers.
        note: a line above it, or empty.
    """

    title: str
    columns: tuple[str, ...]
    right: frozenset[int]
    note: str = ""


DATA_THAT_GOES: Final = Listing(
    title="Data that goes",
    columns=("log", "rule", "how", "from position", "bytes", "offsets lost", "records", "consent"),
    right=frozenset({3, 4, 6}),
    note="Cut bytes and segments set aside are kept until purge; undo puts them back.",
)

SWAPS: Final = Listing(
    title="Swaps to complete (bytes)",
    columns=("file", "size", "offsets", "replaces the segments", "why"),
    right=frozenset({1}),
)

FILES: Final = Listing(
    title="Files to replace or remove (bytes)",
    columns=("file", "rule", "how", "before", "after", "why"),
    right=frozenset({3, 4}),
)

LINES: Final = Listing(
    title="Lines of checkpoints that change (offsets)",
    columns=("file", "rule", "partition", "before", "after"),
    right=frozenset({3, 4}),
)

ROLLS: Final = Listing(
    title="New segments at log ends (offsets)",
    columns=("segment", "rule", "log end", "why"),
    right=frozenset({2}),
)

LISTINGS: Final = (DATA_THAT_GOES, SWAPS, FILES, ROLLS, LINES)
"""In the order of the page."""
