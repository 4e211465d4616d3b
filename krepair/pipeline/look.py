"""Task of ``check``: scan a segment and look at its indexes while the log is still in the page cache."""

from __future__ import annotations

from msgspec import Struct

from krepair.pipeline.indexes import InspectItem, InspectResult, inspect
from krepair.pipeline.items import ScanItem, ScanResult
from krepair.pipeline.tasks import scan


class LookItem(Struct, frozen=True, kw_only=True):
    """Both of one segment.

    Attributes:
        scan: the scan.
        inspect: the look at its offset and time index.
    """

    scan: ScanItem
    inspect: InspectItem


class LookResult(Struct, frozen=True, kw_only=True):
    """What both came to; each holds its own failure."""

    scan: ScanResult
    inspect: InspectResult


def look(item: LookItem) -> LookResult:
    """Scan one segment, then look at its indexes: the disk is read once."""
    return LookResult(scan=scan(item.scan), inspect=inspect(item.inspect))
