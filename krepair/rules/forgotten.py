"""The rule of transactions that a snapshot keeps open and the log has forgotten, by itself: without numpy."""

from __future__ import annotations

from typing import Final

FORGOTTEN: Final = "KR505"
"""The rule of the changes that end such a transaction in its snapshot."""
