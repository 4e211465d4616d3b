"""The basic functions of kernels, such as loads of big-endian integers and CRC-32C: each is a few machine instructions.

This module only names them, so that importing a kernel does not load the compiler. They are defined and described in
``instructions``. On the first call of a kernel these names are replaced by the real functions.
"""

from __future__ import annotations

from typing import Any

from krepair.kernels.jit import Word

be16: Any = Word("be16")
be32: Any = Word("be32")
be64: Any = Word("be64")
byte_at: Any = Word("byte_at")
le64: Any = Word("le64")
store64: Any = Word("store64")
prefetch: Any = Word("prefetch")
swapped: Any = Word("swapped")
product_low: Any = Word("product_low")
product_high: Any = Word("product_high")
crc32c_of_57: Any = Word("crc32c_of_57")
crc32c_update: Any = Word("crc32c_update")
