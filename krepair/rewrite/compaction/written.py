"""Writes what stays of one source to its place in the new log, and has it proven before the next window is read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from krepair.durable.disk import Disk
from krepair.formats import batch_v2
from krepair.formats.arrays import Bools, Int32s, Uint8s
from krepair.formats.castagnoli import crc32c
from krepair.kernels.classes import CLASS_COUNT
from krepair.kernels.compact_records import SLACK
from krepair.kernels.gather import fronts_summed
from krepair.kernels.scan import WINDOW_BYTES, ReadInto, WholeWindows
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.items import CompactStageItem
from krepair.rules.markers import stays as batch_stays

_WRITE_BYTES: Final = 2 << 20
_HELD_BYTES: Final = 3 << 20
"""What stays of one window is as large as the window, or little more where it is compressed anew."""


class Written:
    """Takes the windows of the scan of a compacted log and writes its kept batches, side by side.

    Args:
        item: the source.
        read_into: reads the compacted log, forward only.
        disk: writes the new log.
        proof: of the source, None if it is made later.
        source: scan of the source, with its CRCs.

    Attributes:
        written: bytes of the new log that came from this source, once ``finish`` was called.
        crc: of their fronts, see ``krepair.checks.parts``.
    """

    def __init__(
        self,
        item: CompactStageItem,
        read_into: ReadInto,
        disk: Disk,
        proof: SourceProof | None,
        source: WholeWindows,
    ) -> None:
        self.written = 0
        self.crc = 0
        self._item = item
        self._read_into = read_into
        self._disk = disk
        self._proof = proof
        self._source = source
        self._read = 0
        self._stays = bytes(
            batch_stays(number, drop_unstamped=item.source.drop_unstamped, keeps_all=item.compact.keeps_all)
            for number in range(CLASS_COUNT)
        ).ljust(1 << 8, b"\0")
        self._buffer: Uint8s = np.empty(_HELD_BYTES + SLACK, np.uint8)[:_HELD_BYTES]
        self._held = 0
        self._proven = 0

    def take(self, window: Uint8s, end: int, starts: Int32s, batch_classes: Uint8s) -> None:
        """Take one window; see ``scan_segment`` for the arguments."""
        # a translation of bytes costs a tenth of looking each class up in an array
        kept = np.frombuffer(batch_classes.tobytes().translate(self._stays), np.bool_)
        if end > len(window):
            self._huge(window, end, starts, kept)
        else:
            self._gather(window, end, starts, kept)
        self._read += end

    def take_source(self, window: Uint8s, end: int) -> None:
        """Take one window of the source, once all that stays of it was taken; see ``CompactedLog``."""
        if self._proof:
            self._proof.take(window, end, self._buffer[self._proven :], self._held - self._proven)
        self._source.take(window, end)  # last: so it covers all that was done with these bytes
        self._proven = self._held
        if self._held >= _WRITE_BYTES:
            self.finish()

    def _gather(self, window: Uint8s, end: int, starts: Int32s, kept: Bools) -> None:
        place, last = self._item.source.last_position - self._read, b""
        if place == starts[-1]:
            # None: it is not the stream that was planned; who compares the two says so
            last = batch_v2.emptied(window[place:end].tobytes()) or b""
        if last:
            end, starts, kept = place, starts[:-1], kept[:-1]
        self.crc = fronts_summed(window, starts, kept, self.crc)
        for first, after in _runs(kept):
            self._hold(window[starts[first] : starts[after] if after < len(starts) else end])
        if last:
            self._hold_made(last)

    def _huge(self, window: Uint8s, size: int, starts: Int32s, kept: Bools) -> None:
        """A batch larger than the window, of which that holds the first bytes; the others are next in the stream."""
        self._without_proof()
        if self._read == self._item.source.last_position:
            header = batch_v2.decode_header(window[: batch_v2.HEADER_SIZE].tobytes())
            self._hold_made(batch_v2.empty_batch(header))
            return
        if not kept[0]:
            return
        self.crc = fronts_summed(window, starts, kept, self.crc)
        self._hold(window)
        done, piece = len(window), np.empty(WINDOW_BYTES, np.uint8)
        while done < size:
            got = self._read_into(piece.data[: min(WINDOW_BYTES, size - done)], self._read + done)
            if got == 0:
                break
            self._hold(piece[:got])
            done += got

    def _hold_made(self, batch: bytes) -> None:
        self.crc = crc32c(batch[: batch_v2.CRC_START], self.crc)
        self._hold(np.frombuffer(batch, np.uint8))

    def _without_proof(self) -> None:
        if self._proof:
            self._proof.give_up()
            self._proof = None

    def _hold(self, piece: Uint8s) -> None:
        if self._held + len(piece) > len(self._buffer):
            self._without_proof()  # it needs all that stays of a window
            self.finish()
        self._buffer[self._held : self._held + len(piece)] = piece
        self._held += len(piece)

    def finish(self) -> None:
        """Write what is held."""
        if not self._held:
            return
        data = self._buffer[: self._held].data
        self._disk.write_at(self._item.target, self._item.out_position + self.written, [data])
        self.written += self._held
        self._held = self._proven = 0


def _runs(kept: Any) -> list[tuple[int, int]]:
    """(first, after the last) of each run of batches that stay. Of small batches, nothing stays of most windows."""
    if not kept.any():
        return []
    if kept.all():
        return [(0, len(kept))]
    turns = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    return list(zip(turns[::2], turns[1::2], strict=True))
