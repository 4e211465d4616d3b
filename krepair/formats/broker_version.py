"""Broker versions in the form in which people type them."""

from __future__ import annotations

import re
from typing import Final

_PARTS: Final = re.compile(r"([0-9]{1,6})\.([0-9]{1,6})(?:\.([0-9]{1,6}))?(?:[.\-][0-9A-Za-z.\-]{1,20})?")


LATEST_TRIED: Final = (4, 4, 0)
"""Latest version whose brokers and classes krepair was tested with."""

VersionNumber = tuple[int, int, int]
Version = VersionNumber | None
"""Version of a broker; None if it is unknown."""


def version_of(text: str) -> Version:
    """Parse a version such as ``2.2.1``, ``3.9.2-ccs`` or ``2.8``; None if the text is not a version."""
    match = _PARTS.fullmatch(text)
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def why_not_tried(text: str) -> str:
    """Return the warning for a version later than every tested one, which is treated like the latest; else ""."""
    version, latest = version_of(text), ".".join(map(str, LATEST_TRIED))
    return (
        f"later than {latest}, the latest that was tried"
        if version is not None and version > LATEST_TRIED
        else ""
    )


def version_text(version: VersionNumber) -> str:
    """Return a version as people type it."""
    return ".".join(map(str, version))
