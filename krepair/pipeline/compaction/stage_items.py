"""Work item and result of the staging of one source of a key compaction, with its proof."""

from __future__ import annotations

from msgspec import Struct

from krepair.pipeline.compaction.check_items import CheckItem, CheckResult
from krepair.pipeline.compaction.items import CompactItem, CompactResult
from krepair.pipeline.items import Failed, ScanResult
from krepair.plan.model import SourceSegment


class CompactStageItem(Struct, frozen=True, kw_only=True):
    """Write what stays of one segment to its place in the new ``.log``.

    Attributes:
        compact: how the segment is read.
        target: absolute path of the new ``.log``; several tasks write into it, each its own bytes.
        out_position: first byte of this segment's part.
        source: its part of the plan; positions are in the compacted stream.
        headers: digest of the compacted stream that the plan has.
        check: what proves the source beside it; its ``result`` is not read. None: it is proven later.
    """

    compact: CompactItem
    target: str
    out_position: int
    source: SourceSegment
    headers: str
    check: CheckItem | None = None

    @property
    def bytes_to_read(self) -> int:
        """The source."""
        return self.compact.bytes_to_read


class CompactStageResult(CompactResult, frozen=True, kw_only=True):
    """One source of a new log.

    Attributes:
        written_crc: CRC-32C of what it gave to the new log.
        checked: the result of the proof; None if it was not made, so that the files have to be read for it.
        source: the scan of the source, with all its CRCs.
    """

    written_crc: int = 0
    checked: CheckResult | Failed | None = None
    source: ScanResult | None = None
