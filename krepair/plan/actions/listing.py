"""The tables of a plan's page that have one or more rows for a change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """One table.

    Attributes:
        title: its heading.
        columns: headings of the columns, see ``krepair.plan.view.table_of``.
        note: a line above it, or empty.
    """

    title: str
    columns: str
    note: str = ""


DATA_THAT_GOES: Final = Listing(
    title="Data that goes",
    columns="log | rule | how | # from position | # bytes | offsets lost | # records | consent",
    note="Cut bytes and segments set aside are kept until purge; undo puts them back.",
)

SWAPS: Final = Listing(
    title="Swaps to complete (bytes)",
    columns="file | # size | offsets | replaces the segments | why",
)

FILES: Final = Listing(
    title="Files to replace or remove (bytes)",
    columns="file | rule | how | # before | # after | why",
)

LINES: Final = Listing(
    title="Lines of checkpoints that change (offsets)",
    columns="file | rule | partition | # before | # after",
)

ROLLS: Final = Listing(
    title="New segments at log ends (offsets)",
    columns="segment | rule | # log end | why",
)

LISTINGS: Final = (DATA_THAT_GOES, SWAPS, FILES, ROLLS, LINES)
"""In the order of the page."""
