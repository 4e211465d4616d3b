"""Codes of rules and objections of earlier builds; none of them is used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF_THE_REVIEW: Final = "krepair apply works it out anew and refuses what differs"
GONE: Final[Mapping[str, str]] = {
    "KR670": "krepair compare names a wrong replica; docs/compare.md, The way back, says how to make it right",
    **{
        f"RV{number:02d}": _OF_THE_REVIEW
        for number in (1, 2, 3, 6, 7, 8, 10, 11, 12, 15, 19, 20, 22, 26, 27, 32, 34)
    },
}
"""Code -> what stands in its place."""
