"""Records of a coordinator's partition, and the ranges skipped, shared by ``groups`` and ``transactions``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.engine.items import LogsItem
from krepair.formats.filenames import log_name
from krepair.kernels import dump_rows as r
from krepair.logdir.reading import opened_for_reading, read_into_from
from krepair.scan.log_records import DamageRead, LargeRecordRead, LogRecords, RecordOptions, RecordsRead

MOST_RANGES = 100
"""Largest number of skipped ranges that are listed of a partition."""
LARGEST_PART_BYTES = (
    16 << 20
)  # a group of thousands of members is one record of tens of MB; it is held three times


class DamagedPart(Struct, frozen=True, kw_only=True):
    """Range of a log that was skipped: its records are not in the result.

    Attributes:
        file: name of the log file.
        position: position of the first skipped byte.
        length: number of skipped bytes.
        text: expected and actual content, in words.
    """

    file: str
    position: int
    length: int
    text: str


class CoordinatorRecords:
    """Records of one partition of a coordinator's topic, first segment to last.

    Args:
        tree: tree that holds the partition.
        cut: number of bytes kept of a large key or value.

    Attributes:
        damaged: skipped ranges of the log, at most ``MOST_RANGES``.
        damages: number of all skipped ranges.
        batches_read: number of batches read.
    """

    def __init__(self, item: LogsItem, tree: Tree, cut: int = LARGEST_PART_BYTES) -> None:
        self._item, self._tree = item, tree
        self._options = RecordOptions(cut=cut)
        self.damaged: list[DamagedPart] = []
        self.damages = 0
        self.batches_read = 0

    def parts(self) -> Iterator[RecordsRead | LargeRecordRead]:
        """Yield records in order, without batches that have a wrong checksum.

        Raises:
            OSError: a log cannot be read.
        """
        for base_offset, size in self._item.segments:
            name = log_name(base_offset)
            with opened_for_reading(f"{self._item.place.path}/{name}", self._tree) as descriptor:
                log = LogRecords(read_into_from(descriptor), size, base_offset, self._options)
                for part in log.parts():
                    if isinstance(part, DamageRead):
                        self._pass_over(name, part)
                    elif isinstance(part, RecordsRead | LargeRecordRead):
                        yield part
                self.batches_read += log.batches_read

    def _pass_over(self, file: str, part: DamageRead) -> None:
        self.damages += 1
        if len(self.damaged) < MOST_RANGES:
            mismatch, rule = part.damage, " (KR307)" if part.is_compressed else ""
            text = f"expected {mismatch.expected}, found {mismatch.found}{rule}"
            self.damaged.append(
                DamagedPart(file=file, position=mismatch.position, length=mismatch.length, text=text)
            )


def in_a_buffer(part: LargeRecordRead) -> RecordsRead:
    """Return a large record in the form of the others: in a buffer with the kept bytes of its key and value."""
    key, value = part.record.key, part.record.value
    batch = part.batch.copy()
    batch["base_offset"] = part.record.offset
    row = np.zeros(r.RECORD_COLUMNS, np.int64)
    row[r.R_KEY_SIZE] = -1 if key is None else len(key)
    row[r.R_VALUE], row[r.R_VALUE_SIZE] = len(key or b""), -1 if value is None else len(value)
    return RecordsRead(
        np.frombuffer(b"".join((key or b"", value or b"", bytes(64))), np.uint8),
        batch.reshape(1),
        np.ones(1, np.int64),
        row.reshape(1, -1),
        are_whole=False,
    )
