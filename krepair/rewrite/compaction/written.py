"""Writes what stays of one source to its place in the new log, and has it proven before the next window is read."""

from __future__ import annotations

from krepair.durable.disk import Disk
from krepair.formats.arrays import Uint8s
from krepair.kernels.scan import ReadInto, WholeWindows
from krepair.rewrite.compaction.check import SourceProof
from krepair.rewrite.compaction.items import CompactStageItem
from krepair.rewrite.segments.stage import KeptBytes


class ProvenBytes(KeptBytes):
    """Holds the kept batches of a compacted log, and writes them once they are proven. Nothing else is audited.

    Args:
        item: the source.
        read_into: reads the compacted log, forward only.
        disk: writes the new log.
        proof: of the source, None if it is made later.
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
        """Take one window of the source, once all that stays of it is held; see ``CompactedLog``."""
        if self._proof:
            self._proof.take(window, end, self.held[self._proven :], self.holds - self._proven)
        self._source.take(window, end)  # last: so it covers all that was done with these bytes
        self._proven = self.holds
        self.write_front()

    def write(self, count: int) -> None:
        """Write the front of what is held. The proof needs all that stays of a window, else it is made later."""
        if self._proof and self._proven < self.holds:
            self._proof.give_up()
        super().write(count)
        self._proven = self.holds
