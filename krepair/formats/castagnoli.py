"""CRC-32C, the checksum of Kafka's batches and producer snapshots.

The library is loaded on the first call, because its import reads package metadata and takes a tenth of the time of a
short run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_LOADED: Final[list[Callable[[Any, int], int]]] = []


def crc32c(data: Any, value: int = 0) -> int:
    """Compute the CRC-32C of an object with contiguous bytes, continuing from ``value`` (0 at first)."""
    if not _LOADED:
        import crc32c as library

        _LOADED.append(library.crc32c)
    return _LOADED[0](data, value)
