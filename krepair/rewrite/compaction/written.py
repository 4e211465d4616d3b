"""Writing of what stays of one source into the new log, proven before the next window is read."""

from __future__ import annotations

from krepair.durable.disk import Disk
from krepair.formats.arrays import Uint8s
from krepair.kernels.scan import ReadInto, WholeWindows
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.items import CompactStageItem
from krepair.rewrite.segments.stage import KeptBytes


class ProvenBytes(KeptBytes):
    """Writer of a compacted log's kept batches, once they are proven. Nothing else is audited.

    Args:
        item: item of the source.
        read_into: reader of the compacted log, forward only.
        proof: proof of the source, None if it is made later.
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
        """Take one source window after everything that stays of it is buffered; see ``CompactedLog``."""
        if self._proof:
            self._proof.take(window, end, self.held[self._proven :], self.holds - self._proven)
        # The source's CRCs are checked last, so they cover every use of these bytes.
        self._source.take(window, end)
        self._proven = self.holds
        self.write_aligned()

    def write(self, count: int) -> None:
        """Write the start of the buffer; if a window's remains are not complete, the proof is made later."""
        if self._proof and self._proven < self.holds:
            self._proof.give_up()
        super().write(count)
        self._proven = self.holds
