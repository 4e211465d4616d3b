"""Lines of one ``.log`` for ``krepair dump``: batches, records and damage.

Behind damage the walk goes on at the next valid batch. Batches with a wrong checksum are shown when the next header
stands where their length says; else they are part of the damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels import dump_rows as r
from krepair.kernels.scan import ReadInto
from krepair.look.dump.lines import HeldLines, LineColumns
from krepair.look.dump.log_walk import WINDOW_BYTES, LogWalk, Wanted
from krepair.look.dump.record import BULK_FORMS, RecordLines, Shown, Style, shown_of


@dataclass
class WantedLines(Wanted):
    """What is shown of logs.

    Attributes:
        lines: how records are written.
    """

    lines: RecordLines = field(default_factory=lambda: RecordLines(Style(as_json=True)))


class LogDump(LogWalk):
    """One log.

    Args:
        read_into: as of ``LogWalk``.
        file_size: bytes of the log.
        base_offset: of the segment.
        wanted: what is shown.
        window_bytes: size of the window.
    """

    def __init__(
        self,
        read_into: ReadInto,
        file_size: int,
        base_offset: int,
        wanted: WantedLines,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        super().__init__(read_into, file_size, base_offset, wanted, window_bytes)
        self._how = wanted.lines
        self._held = HeldLines(
            LineColumns(
                as_json=self._how.style.as_json,
                key_form=_form_of(self._how.key_form),
                value_form=_form_of(self._how.value_form),
            )
        )

    def lines(self) -> Iterator[bytes | memoryview]:
        """As of ``LogWalk``."""
        for piece in super().lines():
            if piece or self._held.are_many:
                yield from self._held.given()
            if piece:
                yield piece
        yield from self._held.given()

    def _batch_lines(self, rows: Any) -> Iterator[bytes]:
        self._held.add_batches(rows[: self._wanted.left])
        self._wanted.left -= self._held.added
        yield b""
        self._held.keep()

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Lines of batches and their records, in bulk where that can be."""
        if not self._how.in_bulk:
            yield from self._slow_lines(buf, rows, counts, records)
        elif self._how.table is None:
            yield from self._bulk_lines(buf, rows, counts, records)
        else:
            yield from self._decoded_lines(buf, rows, counts, records)

    def _decoded_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Runs of markers in bulk, of other batches by plain Python."""
        markers = rows["attributes"] & batch_v2.CONTROL != 0
        edges = [0, *(np.flatnonzero(markers[1:] != markers[:-1]) + 1).tolist(), len(rows)]
        first = 0
        for begin, end in pairwise(edges):
            count = int(counts[begin:end].sum())
            way = self._bulk_lines if markers[begin] else self._slow_lines
            yield from way(buf, rows[begin:end], counts[begin:end], records[first : first + count])
            first += count
            if self._is_done():
                return

    def _bulk_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes]:
        wanted = self._wanted
        of = np.repeat(np.arange(len(rows)), counts[: len(rows)])
        offsets = rows["base_offset"][of] + records[: len(of), r.R_OFFSET_DELTA]
        chosen = np.flatnonzero((offsets >= wanted.lowest) & (offsets <= wanted.highest))
        self._held.add_records(buf, rows, of[chosen], records[chosen], wanted.left, batches=self._say_batches)
        wanted.left -= self._held.added
        yield b""
        self._held.keep()

    def _slow_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        first = 0
        for row, count in zip(rows, counts[: len(rows)].tolist(), strict=True):
            if self._say_batches:
                self._unsaid = row
                if self._how.grep is None:
                    yield from self._say()
            for record_row in records[first : first + count]:
                if self._wanted.left <= 0:
                    return
                yield from self._one_record(row, shown_of(row, record_row, buf))
            first += count
        if self._say_batches:
            self._unsaid = None

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        wanted = self._wanted
        if wanted.left > 0 and wanted.lowest <= shown.offset <= wanted.highest:
            line = self._how.line(row, shown)
            if line is not None:
                wanted.left -= 1
                yield from self._say()
                self._held.add_line(line)
                yield b""


def _form_of(name: str) -> int:
    return BULK_FORMS.index(name) if name in BULK_FORMS else 0
