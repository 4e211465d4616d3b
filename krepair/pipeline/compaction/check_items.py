"""Work items and results of the verification of key compactions; see ``krepair.pipeline.compaction.check``."""

from __future__ import annotations

from msgspec import Struct

from krepair.kernels.check_compacted import ROW_WORDS
from krepair.pipeline.compaction.rows import RowFile
from krepair.pipeline.items import Place


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


class CheckResult(Struct, frozen=True, kw_only=True):
    """A group in which nothing is wrong by itself.

    Attributes:
        rows: for the join.
        records: of the sources.
        kept: of the result.
    """

    rows: tuple[RowFile, ...] = ()
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
    rows: tuple[RowFile, ...]
    first: int
    after: int
    count: int

    @property
    def bytes_to_read(self) -> int:
        """The rows."""
        return self.count * 8 * ROW_WORDS
