"""Codes of rules that earlier builds looked for; none of them is used again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GONE: Final[Mapping[str, str]] = {
    "KR670": "krepair compare names a wrong replica; docs/compare.md, The way back, says how to make it right",
}
"""Code -> what stands in its place."""
