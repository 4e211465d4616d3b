"""Task of ``krepair groups``: read one partition of ``__consumer_offsets`` from its first segment to its last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from krepair.formats import batch_v2, group_metadata
from krepair.formats.damage import Damage
from krepair.kernels import dump_rows as r
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, why
from krepair.pipeline.commit_tables import CommitTables
from krepair.pipeline.dump_record import Shown
from krepair.pipeline.dump_style import Style
from krepair.pipeline.group_book import GroupBook
from krepair.pipeline.group_model import Group
from krepair.pipeline.items import FailureKind, Place
from krepair.pipeline.log_walk import LogWalk, Wanted
from krepair.pipeline.place import reached
from krepair.pipeline.regenerate import read_into_from
from krepair.pipeline.tasks import log_name

MOST_RANGES = 100
_CUT_BYTES = 64 << 20  # a group of thousands of members is one record of tens of MB


class GroupsItem(Struct, frozen=True, kw_only=True):
    """One partition.

    Attributes:
        place: where.
        segments: (base offset, bytes of the ``.log``), ascending.
        log_start: records of lower offsets do not count.
        groups: ids to keep; empty for all.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]
    log_start: int = 0
    groups: tuple[str, ...] = ()


class DamagedPart(Struct, frozen=True, kw_only=True):
    """Bytes that were passed over: what they said is not in the answer.

    Attributes:
        file: name.
        position: of the first byte.
        length: how many.
        text: what was expected and found.
    """

    file: str
    position: int
    length: int
    text: str


class GroupsResult(Struct, frozen=True, kw_only=True):
    """What one partition says.

    Attributes:
        failure: kind of failure, empty if it could be read.
        why: of a failure.
        groups: by id.
        damaged: what was passed over, the first ``MOST_RANGES``.
        damages: how many such parts there are.
        unknown: records with a key that krepair does not know, or none.
        batches: batches read.
        bytes: bytes of ``.log`` read.
    """

    failure: FailureKind = ""
    why: str = ""
    groups: tuple[Group, ...] = ()
    damaged: tuple[DamagedPart, ...] = ()
    damages: int = 0
    unknown: int = 0
    batches: int = 0
    bytes: int = 0


class _Kept(Wanted):
    """Keeps what is damaged instead of writing lines."""

    def __init__(self) -> None:
        super().__init__(Style(as_json=True), batches=False, cut=_CUT_BYTES)
        self.file = ""
        self.parts: list[DamagedPart] = []

    def damage(self, found: Damage, rule: str = "") -> bytes:
        self.damages += 1
        if len(self.parts) < MOST_RANGES:
            text = f"expected {found.expected}, found {found.found}" + (f" ({rule})" if rule else "")
            self.parts.append(
                DamagedPart(file=self.file, position=found.position, length=found.length, text=text)
            )
        return b""


class _GroupWalk(LogWalk):
    """Hands every record of a log to the tables and the book."""

    def __init__(
        self,
        read_into: ReadInto,
        size: int,
        base_offset: int,
        wanted: Wanted,
        tables: CommitTables,
        book: GroupBook,
        log_start: int,
    ) -> None:
        super().__init__(read_into, size, base_offset, wanted)
        self._tables, self._book, self._log_start = tables, book, log_start

    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        if row[r.B_PROBLEM] != r.BAD_CRC:
            yield from super()._one_batch(row, origin)

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        for batch, record in self._tables.take(buf, rows, counts, records, self._log_start):
            if batch[r.B_ATTRIBUTES] & batch_v2.CONTROL:
                continue
            key, value = (
                None
                if record[column + 1] < 0
                else buf[record[column] : record[column] + record[column + 1]].tobytes()
                for column in (r.R_KEY, r.R_VALUE)
            )
            offset = int(batch[r.B_BASE_OFFSET] + record[r.R_OFFSET_DELTA])
            self._book.take(group_metadata.RECORDS.decode(key, value), offset)
        yield from ()

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        """A message of an old format, or a record larger than the buffer: the same way, by a buffer of its own."""
        key, value = shown.key or b"", shown.value or b""
        buf = np.frombuffer(key + value + bytes(64), np.uint8)
        batch = row.copy()
        batch[r.B_BASE_OFFSET] = shown.offset
        if batch[r.B_MAGIC] < batch_v2.MAGIC:
            batch[r.B_ATTRIBUTES] = 0
        record = np.zeros(r.RECORD_COLUMNS, np.int64)
        record[r.R_KEY_SIZE] = -1 if shown.key is None else len(key)
        record[r.R_VALUE], record[r.R_VALUE_SIZE] = len(key), -1 if shown.value is None else len(value)
        one = np.ones(1, np.int64)
        for _ in self._record_lines(buf, batch.reshape(1, -1), one, record.reshape(1, -1)):
            pass
        yield from ()


def read_groups(item: GroupsItem) -> GroupsResult:
    """Read one partition."""
    tree, wrong = reached(item.place)
    if wrong:
        return GroupsResult(failure="elsewhere", why=wrong)
    tables, book, kept = CommitTables(), GroupBook(item.place.folder, frozenset(item.groups)), _Kept()
    for base_offset, size in item.segments:
        kept.file = log_name(base_offset)
        try:
            with opened_for_reading(f"{item.place.path}/{kept.file}", tree) as descriptor:
                walk = _GroupWalk(
                    read_into_from(descriptor), size, base_offset, kept, tables, book, item.log_start
                )
                for _ in walk.lines():
                    pass
        except OSError as error:
            return GroupsResult(failure="unreadable", why=f"{item.place.folder}/{kept.file}: {why(error)}")
    groups = tuple(book.groups(tables))
    return GroupsResult(
        groups=groups,
        damaged=tuple(kept.parts),
        damages=kept.damages,
        unknown=book.unknown,
        batches=kept.batches_read,
        bytes=sum(size for _, size in item.segments),
    )
