"""What the bits of a batch say of its compression; the libraries are loaded by what decompresses (``compression``)."""

from __future__ import annotations

from enum import IntEnum

DEFAULT_MAX_BYTES = 1 << 30


class Codec(IntEnum):
    """Codec ids, the low three bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4
