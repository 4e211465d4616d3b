"""Logs that several tests read, and their scan items."""

from __future__ import annotations

import random
from collections.abc import Sequence

from krepair.engine.engine import InlineEngine
from krepair.engine.items import ScanItem
from krepair.formats.java_numbers import INT64_MAX
from krepair.logdir.view import read_log_dir
from krepair.scan.scan import scan
from tests import builders
from tests.builders import NOW_MS, joined
from tests.old_messages import plain
from tests.ops.scene import Scene

LOGS = ("whole", "torn", "empty", "old formats", "a huge batch", "wrong CRC", "zeros behind")


def log_of(kind: str, chance: random.Random) -> bytes:
    """A log of one kind."""
    if kind == "empty":
        return b""
    batches = [
        builders.data(3 * number, 3, timestamp=NOW_MS + chance.randrange(-500, 500)) for number in range(60)
    ]
    if kind == "old formats":
        batches[10:12] = [plain(30), plain(33, magic=0)]
    if kind == "a huge batch":
        value = builders.Record(b"k", b"v" * (3 << 20))
        batches[20] = builders.data(60, [value, value], timestamp=NOW_MS)
    log = bytearray(joined(batches))
    if kind == "torn":
        del log[-20:]
    if kind == "wrong CRC":
        log[len(log) // 2] ^= 1
    if kind == "zeros behind":
        log += bytes(100)
    return bytes(log)


HUGE = "__consumer_offsets-0"


def scan_items(one: Scene, folder: str) -> list[ScanItem]:
    """One item per segment of a partition, as a plan makes them."""
    from krepair.fixes.context import place_of

    view = read_log_dir(str(one.path))
    partition = next(each for each in view.partitions if each.folder == folder)
    return [
        ScanItem(
            place=place_of(view, partition),
            base_offset=segment.base_offset,
            size=segment.log.size,
            now_ms=one.now_ms,
            high_watermark=INT64_MAX,
        )
        for segment in partition.segments
    ]


def inline(items: Sequence[ScanItem]) -> dict[int, object]:
    return dict(InlineEngine("").map(scan, items))
