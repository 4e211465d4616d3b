"""Copies what stays of one source segment to its place in the new ``.log``, auditing every window on the way."""

from __future__ import annotations

import os

import numpy as np

from krepair.checks.audit import audit_gathered, audit_window
from krepair.durable.disk import Disk
from krepair.formats import batch_v2
from krepair.formats.arrays import Bools, Int32s, Uint8s
from krepair.formats.castagnoli import crc32c
from krepair.kernels.batch_starts import gather_kept
from krepair.kernels.classes import CLASS_COUNT
from krepair.kernels.scan import WINDOW_BYTES
from krepair.pipeline.items import StageItem
from krepair.plan.model import SourceSegment
from krepair.rules.markers import stays

_AT_ONCE_BYTES = 1 << 21
"""Writes end at multiples of this in the new log: file systems keep whole stretches of memory for aligned writes."""


class KeptBytes:
    """Takes the windows of a scan and writes their kept batches, side by side.

    Args:
        item: what is staged; ``item.target`` is there already.
        descriptor: of the source, open for reading.
        source: its part of the plan.
        disk: writes.

    Attributes:
        problem: what is wrong, empty if nothing; then nothing more is written.
        written: bytes of the new log that came from this source, once ``finish`` was called.
        crc: CRC-32C of these bytes.
    """

    def __init__(self, item: StageItem, descriptor: int, source: SourceSegment, disk: Disk) -> None:
        self.problem = ""
        self.written = 0
        self.crc = 0
        self._item = item
        self._descriptor = descriptor
        self._disk = disk
        self._read = 0
        self._stays = np.array(
            [
                stays(number, drop_unstamped=source.drop_unstamped, keeps_all=source.keeps)
                for number in range(CLASS_COUNT)
            ]
        )
        self._last_position = source.last_position
        self._held: Uint8s = np.empty(_AT_ONCE_BYTES + WINDOW_BYTES, np.uint8)
        self._holds = 0

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Take one window; see ``scan_segment`` for the arguments."""
        if self.problem:
            return
        kept = self._stays.take(batch_classes)
        self.problem = audit_window(window, starts, end, kept)
        if self.problem:
            self.problem = f"position {self._read}: {self.problem}"
            return
        if end > len(window):
            self._copy_huge(end)
        elif kept.any():
            self._gather(window, end, starts, kept)
        self._read += end

    def finish(self) -> None:
        """Write what is still held."""
        if self._holds and not self.problem:
            self._write(self._holds)

    def _gather(self, window: Uint8s, end: int, starts: Int32s, kept: Bools) -> None:
        last = self._last_batch(window, end, starts)
        if last:
            end = self._last_position - self._read
            starts, kept = starts[:-1], kept[:-1]
        if kept.any():
            room = self._held[self._holds :]
            count = max(gather_kept(window, starts, end, kept, room), 0)
            self.problem = audit_gathered(window, starts, end, kept, room[:count])
            self._holds += count
        self._hold(last)

    def _last_batch(self, window: Uint8s, end: int, starts: Int32s) -> bytes:
        """The batch that stays as the last one, emptied; nothing if it is not here.

        Where another batch is the last one, the log is not that of the plan. Who compares the decisions says so.
        """
        place = self._last_position - self._read
        return (batch_v2.emptied(window[place:end].tobytes()) or b"") if starts[-1] == place else b""

    def _copy_huge(self, size: int) -> None:
        for done in range(0, size, WINDOW_BYTES):
            self._hold(os.pread(self._descriptor, min(WINDOW_BYTES, size - done), self._read + done))

    def _hold(self, piece: bytes) -> None:
        self._held[self._holds : self._holds + len(piece)] = np.frombuffer(piece, np.uint8)
        self._holds += len(piece)
        if self._holds >= _AT_ONCE_BYTES and not self.problem:
            past = (self._item.out_position + self.written + self._holds) % _AT_ONCE_BYTES
            self._write(self._holds - past)

    def _write(self, count: int) -> None:
        """Write the front of what is held, and sum it. Who reads the new log finds by the sums if the file has it."""
        held = self._held[:count]
        self.written += self._disk.write_at(
            self._item.target, self._item.out_position + self.written, [held.data]
        )
        self.crc = crc32c(held.data, self.crc)
        self._held[: self._holds - count] = self._held[count : self._holds]
        self._holds -= count
