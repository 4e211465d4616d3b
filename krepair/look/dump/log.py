"""Builds the lines of ``krepair dump`` for one ``.log``: batches, records and damage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.formats.damage import Damage
from krepair.formats.filenames import MAX_OFFSET
from krepair.kernels import dump_rows as r
from krepair.kernels.columns import Batches
from krepair.kernels.scan import ReadInto
from krepair.look.dump.lines import HeldLines, LineColumns
from krepair.look.dump.record import BULK_FORMS, RecordLines, Style
from krepair.scan.log_records import (
    DEFAULT_CUT,
    LOWEST_OFFSET,
    WINDOW_BYTES,
    BatchesRead,
    DamageRead,
    LargeRecordRead,
    LogPart,
    LogRecord,
    LogRecords,
    RecordOptions,
    RecordsRead,
    record_at,
)

KR307: Final = "KR307"


@dataclass
class WantedLines:
    """Selection of lines, and counts over all logs of a run.

    Attributes:
        style: output style of damage.
        batches: True if batches have lines.
        records: True if records have lines.
        lowest: lowest offset that has lines.
        highest: highest offset that has lines.
        left: number of lines that may still be written.
        cut: number of bytes kept of the key and the value of a record larger than the buffer.
        searched: True if a batch has a line only with a matching record.
        damages: number of damaged ranges so far.
        batches_read: number of batches read so far.
        lines: writer of the records.
    """

    style: Style
    batches: bool = True
    records: bool = True
    lowest: int = LOWEST_OFFSET
    highest: int = MAX_OFFSET
    left: int = 2**62
    cut: int = DEFAULT_CUT
    searched: bool = False
    damages: int = 0
    batches_read: int = 0
    lines: RecordLines = field(default_factory=lambda: RecordLines(Style(as_json=True)))

    def damage(self, damage_found: Damage, rule: str = "") -> bytes:
        """Count a damaged range and return its line, which no limit suppresses."""
        self.damages += 1
        return self.style.damage(damage_found, rule)


class LogDump:
    """Lines of one log.

    Args:
        read_into: function that fills a buffer from a file position, see ``LogRecords``.
        file_size: size of the log in bytes.
        wanted: selection of lines to print.
        window_bytes: size of the window in bytes.
    """

    def __init__(
        self,
        read_into: ReadInto,
        file_size: int,
        base_offset: int,
        wanted: WantedLines,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        options = RecordOptions(
            records=wanted.records,
            wrong_crc=True,
            lowest=wanted.lowest,
            highest=wanted.highest,
            cut=wanted.cut,
        )
        self._log = LogRecords(read_into, file_size, base_offset, options, window_bytes)
        self._wanted = wanted
        self._how = wanted.lines
        self._waits_for_record = wanted.searched and wanted.records
        self._waiting: Batches | None = None
        self._held = HeldLines(
            LineColumns(
                as_json=self._how.style.as_json,
                key_form=_form_of(self._how.key_form),
                value_form=_form_of(self._how.value_form),
            )
        )

    def lines(self) -> Iterator[bytes | memoryview]:
        """Yield pieces of output, each of whole lines; a piece is valid until the next is requested."""
        wanted = self._wanted
        try:
            for part in self._log.parts():
                damage = self._add(part)
                if damage or self._held.are_many:
                    yield from self._held.given()
                if damage:
                    yield damage
                if wanted.left <= 0:
                    self._log.stop()
                self._held.keep()
        finally:
            wanted.batches_read += self._log.batches_read
        yield from self._held.given()

    def _add(self, part: LogPart) -> bytes:
        """Buffer the lines of a part; return the line of a damage, or nothing."""
        match part:
            case BatchesRead(batches):
                # With --grep a batch has a line once a record in it is found, or its content is damaged.
                self._waiting = batches if self._wanted.batches else None
                if not self._waits_for_record:
                    self._add_waiting()
            case RecordsRead(buf, batches, counts, records, are_whole):
                self._add_records(
                    buf, batches, counts, records, with_batches=are_whole and self._wanted.batches
                )
            case LargeRecordRead(batch, record):
                self._add_record(batch, record)
            case DamageRead(damage, batch, is_compressed):
                if batch is not None:
                    self._add_waiting()
                return self._wanted.damage(damage, KR307 if is_compressed else "")
        return b""

    def _add_waiting(self) -> None:
        """Buffer the lines of batches that waited."""
        batches, self._waiting = self._waiting, None
        if batches is not None:
            self._held.add_batches(batches[: self._wanted.left])
            self._wanted.left -= self._held.added

    def _add_records(self, buf: Any, batches: Any, counts: Any, records: Any, *, with_batches: bool) -> None:
        """Buffer the lines of records and of their batches, in bulk if possible."""
        if self._how.in_bulk and self._how.table is None:
            self._add_in_bulk(buf, batches, counts, records, with_batches=with_batches)
            return
        # Markers are never decoded, so runs of them are written in bulk; each record of other batches by itself.
        control = batches["attributes"] & batch_v2.CONTROL != 0
        edges = [0, *(np.flatnonzero(control[1:] != control[:-1]) + 1).tolist(), len(batches)]
        first = 0
        for begin, end in pairwise(edges):
            count = int(counts[begin:end].sum())
            add = self._add_in_bulk if self._how.in_bulk and control[begin] else self._add_singly
            some = records[first : first + count]
            add(buf, batches[begin:end], counts[begin:end], some, with_batches=with_batches)
            first += count
            if self._wanted.left <= 0:
                return

    def _add_in_bulk(self, buf: Any, batches: Any, counts: Any, records: Any, *, with_batches: bool) -> None:
        wanted = self._wanted
        of = np.repeat(np.arange(len(batches)), counts)
        offsets = batches["base_offset"][of] + records[:, r.R_OFFSET_DELTA]
        chosen = np.flatnonzero((offsets >= wanted.lowest) & (offsets <= wanted.highest))
        self._held.add_records(buf, batches, of[chosen], records[chosen], wanted.left, batches=with_batches)
        wanted.left -= self._held.added
        self._held.keep()

    def _add_singly(self, buf: Any, batches: Any, counts: Any, records: Any, *, with_batches: bool) -> None:
        first = 0
        for number, count in enumerate(counts.tolist()):
            if with_batches:
                self._waiting = batches[number : number + 1]
                if self._how.grep is None:
                    self._add_waiting()
            for row in records[first : first + count]:
                if self._wanted.left <= 0:
                    return
                self._add_record(batches[number], record_at(batches[number], row, buf))
            first += count
        if with_batches:
            self._waiting = None
        self._held.keep()

    def _add_record(self, batch: Any, record: LogRecord) -> None:
        wanted = self._wanted
        if wanted.left > 0 and wanted.lowest <= record.offset <= wanted.highest:
            line = self._how.line(batch, record)
            if line is not None:
                wanted.left -= 1
                self._add_waiting()
                self._held.add_line(line)


def _form_of(name: str) -> int:
    return BULK_FORMS.index(name) if name in BULK_FORMS else 0
