"""What functions share that read a coordinator's topic from its first segment to its last: damage, records, buffers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import BAD_CRC
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.look.dump.log_walk import LogWalk, Wanted
from krepair.look.dump.record import Shown, Style

MOST_RANGES = 100
_CUT_BYTES = 16 << 20  # a group of thousands of members is one record of tens of MB; it is held three times


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


class KeptDamage(Wanted):
    """Keeps what is damaged instead of writing lines."""

    def __init__(self, cut: int = _CUT_BYTES) -> None:
        super().__init__(Style(as_json=True), batches=False, cut=cut)
        self.file = ""
        self.parts: list[DamagedPart] = []

    def damage(self, found: Damage, rule: str = "") -> bytes:
        """Count a damaged range, and keep it if there are not too many."""
        self.damages += 1
        if len(self.parts) < MOST_RANGES:
            text = f"expected {found.expected}, found {found.found}" + (f" ({rule})" if rule else "")
            self.parts.append(
                DamagedPart(file=self.file, position=found.position, length=found.length, text=text)
            )
        return b""


class RecordWalk(LogWalk):
    """Hands every record of a log to ``_record_lines``; batches with a wrong checksum are left out."""

    def _one_batch(self, row: Any, origin: int) -> Iterator[bytes | memoryview]:
        if row["problem"] != BAD_CRC:
            yield from super()._one_batch(row, origin)

    @abstractmethod
    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Take records in order; nothing is written."""

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        """A record or message larger than the buffer: the same way, by a buffer of its own."""
        key, value = shown.key or b"", shown.value or b""
        buf = np.frombuffer(b"".join((key, value, bytes(64))), np.uint8)
        batch = row.copy()
        batch["base_offset"] = shown.offset
        record = np.zeros(r.RECORD_COLUMNS, np.int64)
        record[r.R_KEY_SIZE] = -1 if shown.key is None else len(key)
        record[r.R_VALUE], record[r.R_VALUE_SIZE] = len(key), -1 if shown.value is None else len(value)
        one = np.ones(1, np.int64)
        for _ in self._record_lines(buf, batch.reshape(1), one, record.reshape(1, -1)):
            pass
        yield from ()


def walk_segments(
    item: LogsItem, tree: Tree, kept: KeptDamage, walk_of: Callable[[ReadInto, int, int], RecordWalk]
) -> None:
    """Walk the logs of one partition in order.

    Args:
        item: which.
        tree: of the partition.
        kept: takes what is damaged.
        walk_of: makes the walk of a log from how it is read, its bytes and its base offset.

    Raises:
        OSError: a log cannot be read.
    """
    for base_offset, size in item.segments:
        kept.file = log_name(base_offset)
        with opened_for_reading(f"{item.place.path}/{kept.file}", tree) as descriptor:
            for _ in walk_of(read_into_from(descriptor), size, base_offset).lines():
                pass
