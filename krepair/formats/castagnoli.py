"""CRC-32C, as Kafka guards its batches and snapshots: the library is loaded when the first bytes are summed.

Importing it reads the metadata of its package, which takes as long as a tenth of a short run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_LOADED: Final[list[Callable[[Any, int], int]]] = []


def crc32c(data: Any, value: int = 0) -> int:
    """CRC-32C of ``data``, anything that holds bytes in one piece, continuing from ``value`` (0 at first)."""
    if not _LOADED:
        import crc32c as library

        _LOADED.append(library.crc32c)
    return _LOADED[0](data, value)
