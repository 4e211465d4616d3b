"""Task of ``check``: scan a segment and look at its indexes, in one reading of the log."""

from __future__ import annotations

from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.pipeline.indexes.segment import FedInspection, InspectItem, InspectResult, inspect
from krepair.pipeline.items import Failed, ScanItem, ScanResult
from krepair.pipeline.place import reached
from krepair.pipeline.progress import shown
from krepair.pipeline.scan import scan, scan_below


class LookItem(Struct, frozen=True, kw_only=True):
    """Both of one segment.

    Attributes:
        scan: the scan.
        inspect: the look at its offset and time index.
    """

    scan: ScanItem
    inspect: InspectItem

    @property
    def bytes_to_read(self) -> int:
        """The log is read once for both."""
        return self.scan.bytes_to_read


class LookResult(Struct, frozen=True, kw_only=True):
    """The results of both; each holds its own failure."""

    scan: ScanResult | Failed
    inspect: InspectResult | Failed


@shown("scan")
def look_at_segment(item: LookItem) -> LookResult:
    """Scan one segment and hold its indexes against the batches that the scan finds.

    A log in which the scan finds damage is read once more for its indexes: what is before the damage tells of them.
    """
    tree, wrong = reached(item.scan.place)
    fed = None if wrong else _fed(item, tree)
    if fed is None:
        return LookResult(scan=scan(item.scan), inspect=inspect(item.inspect))
    scanned = scan_below(tree, item.scan, fed.take)
    whole = isinstance(scanned, ScanResult) and scanned.summary.is_whole
    return LookResult(scan=scanned, inspect=fed.result() if whole else inspect(item.inspect))


def _fed(item: LookItem, tree: Tree) -> FedInspection | None:
    """What takes the windows of the scan, None where the indexes are to be looked at by themselves."""
    scanned, inspected = item.scan, item.inspect
    same = scanned.size == inspected.log_bytes and not scanned.without and scanned.from_offset <= 0
    if not same or not scanned.check_crc or inspected.depth not in {"check", "regenerate"}:
        return None
    return FedInspection.begin(inspected, tree)
