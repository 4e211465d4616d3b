"""Work items and results of the verification of key compactions; see ``krepair.pipeline.compaction.check``."""

from __future__ import annotations

from msgspec import Struct

from krepair.pipeline.items import Place

CHECKED_ROW_BYTES = 48
"""Of a row of a table of keys: six words."""
PARTS = 256
"""Rows are joined by the highest eight bits of their first hash."""


class CheckedSource(Struct, frozen=True, kw_only=True):
    """One source of a group.

    Attributes:
        base_offset: of the segment.
        path: absolute path of its ``.log``, where it is now.
        size: bytes of it.
        horizon_passed: whether tombstones without a stamp may go.
    """

    base_offset: int
    path: str
    size: int
    horizon_passed: bool


class CheckItem(Struct, frozen=True, kw_only=True):
    """Hold one new segment against its sources.

    Attributes:
        place: where.
        sources: of the group, ascending.
        result: absolute path of the new ``.log``; of a segment that does not change its own.
        now_ms: the clock for stamps.
        aborted: see ``compaction.tasks.find_aborted``.
        transactions: whether there may be any; if not, a batch of one is wrong.
        elsewhere: the sources are logs of another replica: their records only hold tombstones back.
        points: 16 bytes, drawn for this verification.
        rows_inline: the result holds at most so many rows.
        scratch: path of the scratch folder, empty if there is none.
    """

    place: Place
    sources: tuple[CheckedSource, ...]
    result: str
    now_ms: int
    aborted: bytes
    points: bytes
    rows_inline: int
    scratch: str
    transactions: bool = True
    elsewhere: bool = False

    @property
    def bytes_to_read(self) -> int:
        """The sources; the new log is at most as large, and is not counted."""
        return sum(source.size for source in self.sources)


class CheckedRows(Struct, frozen=True, kw_only=True):
    """Rows of one table, sorted by part: int64[PARTS + 1] rows before each, then uint64[N, ROW_WORDS].

    Attributes:
        path: in the scratch folder; empty: ``data`` holds them.
        data: the same bytes.
    """

    path: str = ""
    data: bytes = b""


class CheckResult(Struct, frozen=True, kw_only=True):
    """A group in which nothing is wrong by itself.

    Attributes:
        rows: for the join.
        records: of the sources.
        kept: of the result.
    """

    rows: tuple[CheckedRows, ...] = ()
    records: int = 0
    kept: int = 0


class CheckJoinItem(Struct, frozen=True, kw_only=True):
    """Judge the keys of some parts of a partition.

    Attributes:
        place: where, for the host.
        rows: of all its groups.
        first: part.
        after: the last of them.
        count: rows in them.
    """

    place: Place
    rows: tuple[CheckedRows, ...]
    first: int
    after: int
    count: int

    @property
    def bytes_to_read(self) -> int:
        """The rows."""
        return self.count * CHECKED_ROW_BYTES
