"""Of a few closed segments this host reads the headers itself, and holds what a worker said against them.

Inode, size, time and some bytes can be equal in an older snapshot or in a stale cache. What the batches of a segment
say cannot, if it is read here and there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from krepair.errors import RefusedError
from krepair.pipeline.items import ScanItem

_AT_MOST: Final = 3
_BYTES_AT_MOST: Final = 128 << 20
"""Of one segment: this host works alone meanwhile."""


class SpotChecks:
    """Segments that this host reads as well.

    Args:
        function: of the items; only scans are looked at.
        items: of one job.
        rng: draws the segments.
    """

    def __init__(self, function: Callable[[Any], Any], items: Sequence[Any], rng: random.Random) -> None:
        from krepair.pipeline.scan import scan

        self._items = items
        able = _closed(items) if function is scan else []
        self.places = frozenset(rng.sample(able, min(_AT_MOST, len(able))))

    def check(self, place: int, host: str, result: Any) -> None:
        """Hold one result of a worker against what is read here. A failure is not looked at.

        Raises:
            RefusedError: the worker has read another segment.
        """
        if place not in self.places or result.failure:
            return
        item = self._items[place]
        from krepair.pipeline.scan import scan

        own = scan(item)
        if not own.failure and own.summary != result.summary:
            raise RefusedError(
                f"{item.place.stem(item.base_offset)}.log: host {host} read other batches than this host reads, under "
                "the same inode, size and time: it sees a copy, or an older state; nothing was replaced",
                next_command="krepair ... --engine inline",
            )


def _closed(items: Sequence[ScanItem]) -> list[int]:
    """Places of the segments after which there is another one of their partition, and that are not too large."""
    last: dict[tuple[str, str], int] = {}
    for item in items:
        key = (item.place.log_dir, item.place.folder)
        last[key] = max(last.get(key, -1), item.base_offset)
    return [
        place
        for place, item in enumerate(items)
        if item.base_offset < last[item.place.log_dir, item.place.folder] and item.size <= _BYTES_AT_MOST
    ]
