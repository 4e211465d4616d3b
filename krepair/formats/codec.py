"""Ids of compression codecs. Only ``compression`` loads the codec libraries."""

from __future__ import annotations

from enum import IntEnum

DEFAULT_MAX_BYTES = 1 << 30


class Codec(IntEnum):
    """Codec ids: the low three bits of the attributes of a batch or message (``CompressionType``, 2.2.1)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
