"""Lines of one ``.log`` for ``krepair dump``: batches, records and damage.

Behind damage the walk goes on at the next valid batch. Batches with a wrong checksum are shown when the next header
stands where their length says; else they are part of the damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np

from krepair.formats import batch_v2
from krepair.kernels import dump_lines as d
from krepair.kernels import dump_rows as r
from krepair.kernels.scan import ReadInto
from krepair.pipeline.dump.log_walk import WINDOW_BYTES, LogWalk, Wanted
from krepair.pipeline.dump.record import KERNEL_FORMS, RecordLines, Shown, shown_of
from krepair.pipeline.dump.style import Style

OUT_BYTES: Final = 10 << 20


@dataclass
class WantedLines(Wanted):
    """What is shown of logs.

    Attributes:
        lines: how records are written.
    """

    lines: RecordLines = field(default_factory=lambda: RecordLines(Style(as_json=True)))
    table: Any = field(init=False)
    lengths: Any = field(init=False)
    out: Any = field(init=False)

    def __post_init__(self) -> None:
        self.table, self.lengths = d.literals(as_json=self.style.as_json)
        self.out = np.empty(OUT_BYTES, np.uint8)


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
        self._lines = wanted
        self._options = np.zeros(d.OPTIONS, np.int64)
        self._options[d.O_RECORDS] = wanted.records
        self._options[d.O_KEY_FORM] = KERNEL_FORMS.get(wanted.lines.key_form, 0)
        self._options[d.O_VALUE_FORM] = KERNEL_FORMS.get(wanted.lines.value_form, 0)
        self._options[d.O_LOWEST] = wanted.lowest
        self._options[d.O_HIGHEST] = wanted.highest
        self._options[d.O_PERSON] = not wanted.lines.style.as_json
        self._options[d.O_CUT] = wanted.cut

    def _batch_lines(self, rows: Any) -> Iterator[memoryview]:
        wanted, out, at = self._lines, self._lines.out, 0
        state = np.zeros(d.LINE_STATE, np.int64)
        status = d.FULL
        while status == d.FULL:
            self._options[d.O_LEFT] = wanted.left
            status, at = d.batch_lines(rows, self._options, wanted.table, wanted.lengths, state, out, 0)
            wanted.left = int(self._options[d.O_LEFT])
            if at:
                yield out.data[:at]

    def _record_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Lines of batches and their records, by the kernel where it can."""
        lines = self._lines.lines
        if not lines.kernel_can:
            yield from self._slow_lines(buf, rows, counts, records)
        elif lines.table is None:
            yield from self._fast_lines(buf, rows, counts, records)
        else:
            yield from self._decoded_lines(buf, rows, counts, records)

    def _decoded_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        """Runs of markers by the kernel, of other batches by plain Python."""
        markers = rows[:, r.B_ATTRIBUTES] & batch_v2.CONTROL != 0
        edges = [0, *(np.flatnonzero(markers[1:] != markers[:-1]) + 1).tolist(), len(rows)]
        first = 0
        for begin, end in pairwise(edges):
            count = int(counts[begin:end].sum())
            way = self._fast_lines if markers[begin] else self._slow_lines
            yield from way(buf, rows[begin:end], counts[begin:end], records[first : first + count])
            first += count
            if self._done:
                return

    def _fast_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        wanted, out = self._lines, self._lines.out
        state = np.zeros(d.LINE_STATE, np.int64)
        status = d.FULL
        while status in {d.FULL, d.SLOW}:
            self._options[d.O_LEFT], self._options[d.O_BATCHES] = wanted.left, self._say_batches
            status, at = d.record_lines(
                buf, rows, counts, records, self._options, wanted.table, wanted.lengths, state, out, 0
            )
            wanted.left = int(self._options[d.O_LEFT])
            if at:
                yield out.data[:at]
            if status == d.SLOW:
                yield from self._one_record(rows[state[d.L_BATCH]], shown_of(
                    rows[state[d.L_BATCH]], records[state[d.L_ROW]], buf
                ))  # fmt: skip
                state[d.L_RECORD] += 1
                state[d.L_ROW] += 1

    def _slow_lines(self, buf: Any, rows: Any, counts: Any, records: Any) -> Iterator[bytes | memoryview]:
        first = 0
        for row, count in zip(rows, counts[: len(rows)].tolist(), strict=True):
            said = not self._say_batches
            if not said and self._lines.lines.grep is None:
                yield from self._batch_lines(row.reshape(1, -1))
                said = True
            for record_row in records[first : first + count]:
                if self._wanted.left <= 0:
                    return
                line = list(self._one_record(row, shown_of(row, record_row, buf)))
                if line and not said:
                    yield from self._batch_lines(row.reshape(1, -1))
                    said = True
                yield from line
            first += count

    def _one_record(self, row: Any, shown: Shown) -> Iterator[bytes]:
        wanted = self._lines
        if wanted.left > 0 and wanted.lowest <= shown.offset <= wanted.highest:
            line = wanted.lines.line(row, shown)
            if line is not None:
                wanted.left -= 1
                yield line
