"""For ``krepair groups``: reads one partition of ``__consumer_offsets`` from its first segment to its last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, group_metadata
from krepair.kernels import dump_rows as r
from krepair.kernels.scan import ReadInto
from krepair.pipeline.coordinators.commits import LARGEST_RECORD, Commits
from krepair.pipeline.coordinators.group_book import GroupBook
from krepair.pipeline.coordinators.group_model import Group
from krepair.pipeline.coordinators.walk import DamagedPart, KeptDamage, RecordWalk, walk_segments
from krepair.pipeline.dump.log_walk import Wanted
from krepair.pipeline.dump.record import Shown
from krepair.pipeline.items import LogsItem
from krepair.pipeline.place import in_its_place
from krepair.pipeline.progress import shown

_LAST_VERSION_OF_COMMITS = b"\x00\x01"


class GroupsItem(LogsItem, frozen=True, kw_only=True):
    """One partition.

    Attributes:
        log_start: records of lower offsets do not count.
        groups: ids to keep; empty for all.
    """

    log_start: int = 0
    groups: tuple[str, ...] = ()


class GroupsResult(Struct, frozen=True, kw_only=True):
    """What one partition says.

    Attributes:
        groups: by id.
        damaged: what was passed over, the first ``MOST_RANGES``.
        damages: how many such parts there are.
        unknown: records with a key that krepair does not know, or none.
        batches: batches read.
        bytes: bytes of ``.log`` read.
    """

    groups: tuple[Group, ...] = ()
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0
    batches: int = 0
    bytes: int = 0


class _GroupWalk(RecordWalk):
    """Hands every record of a log to the commits and the book."""

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        base_offset: int,
        wanted: Wanted,
        commits: Commits,
        book: GroupBook,
        log_start: int,
    ) -> None:
        super().__init__(read_into, size, base_offset, wanted)
        self._commits, self._book, self._log_start = commits, book, log_start

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        """As for every walk; but what is too large for the tables, and no commit, passes them by."""
        key, value = shown.key or b"", shown.value or b""
        control = row["magic"] == batch_v2.MAGIC and row["attributes"] & batch_v2.CONTROL
        if len(key) + len(value) <= LARGEST_RECORD:
            yield from super()._one_record(row, shown)
        elif not control and shown.offset >= self._log_start:
            if len(key) < 2 or key[:2] > _LAST_VERSION_OF_COMMITS:
                self._book.take(group_metadata.RECORDS.decode(shown.key, shown.value), shown.offset)
            else:
                yield from super()._one_record(row, shown._replace(value=value[:LARGEST_RECORD]))

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        for batch, record in self._commits.take(buf, rows, counts, records, self._log_start):
            key, value = (
                None
                if record[column + 1] < 0
                else buf[record[column] : record[column] + record[column + 1]].tobytes()
                for column in (r.R_KEY, r.R_VALUE)
            )
            offset = int(batch["base_offset"] + record[r.R_OFFSET_DELTA])
            self._book.take(group_metadata.RECORDS.decode(key, value), offset)
        yield from ()


@shown("groups")
@in_its_place
def read_groups(item: GroupsItem, tree: Tree) -> GroupsResult:
    """Read one partition."""
    commits, book = Commits(), GroupBook(item.place.folder, frozenset(item.groups))
    kept = KeptDamage()

    def walk_of(read_into: ReadInto, size: int, base_offset: int) -> _GroupWalk:
        return _GroupWalk(read_into, size, base_offset, kept, commits, book, item.log_start)

    walk_segments(item, tree, kept, walk_of)
    groups = tuple(book.groups(commits))
    return GroupsResult(
        groups=groups,
        damaged=tuple(kept.parts),
        damages=kept.damages,
        unknown=book.unknown,
        batches=kept.batches_read,
        bytes=sum(size for _, size in item.segments),
    )
