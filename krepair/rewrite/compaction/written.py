"""The writer of a compacted log, which verifies each window of the source before the next one is read."""

from __future__ import annotations

from krepair.durable.disk import Disk
from krepair.formats.arrays import Uint8s
from krepair.kernels.scan import ReadInto, WholeWindows
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.items import CompactStageItem
from krepair.rewrite.segments.stage import KeptBytes


class ProvenBytes(KeptBytes):
    """Writer of the kept batches of a compacted log, each of which is verified before it is written.

    Args:
        item: item of the source.
        read_into: reader of the compacted log, forward only.
        proof: verification of the source, None if the source is verified later.
        source: scan of the source, with its CRCs.
    """

    def __init__(
        self,
        item: CompactStageItem,
        read_into: ReadInto,
        disk: Disk,
        proof: SourceProof | None,
        source: WholeWindows,
    ) -> None:
        super().__init__(
            item.source, item.target, item.out_position,
            keeps_all=item.compact.keeps_all, read_into=read_into, disk=disk, audits=False,
        )  # fmt: skip
        self._proof = proof
        self._source = source
        self._proven = 0

    def take_source(self, window: Uint8s, end: int) -> None:
        """Verify one source window, whose kept batches are all in the buffer; see ``CompactedLog.on_source``."""
        if self._proof:
            self._proof.take(window, end, self.held[self._proven :], self.holds - self._proven)
        # The CRCs are checked last: so they also show a bit that flipped in memory before the bytes were used.
        self._source.take(window, end)
        self._proven = self.holds
        self.write_aligned()

    def write(self, count: int) -> None:
        """Write the start of the buffer. If it has only a part of a window's batches, they are verified later."""
        if self._proof and self._proven < self.holds:
            self._proof.give_up()
        super().write(count)
        self._proven = self.holds
