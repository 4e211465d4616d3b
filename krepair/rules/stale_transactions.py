"""The finding code of stale open transactions. It has a module of its own, because that loads without numpy."""

from __future__ import annotations

from typing import Final

STALE_TRANSACTION: Final = "KR505"
"""Finding code of a transaction that a snapshot keeps open although the log no longer has it."""
