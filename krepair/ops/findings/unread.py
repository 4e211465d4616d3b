"""A file that the system does not let this user read: that is no failing disk."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from krepair.checks.catalogue import Finding
from krepair.logdir.reading import is_forbidden

_WAY: Final = "this user may not read it; run krepair as root, or as the user of the broker"


def with_way_to_read(finding: Finding) -> Finding:
    """A KR308 that the permissions cause, with what to do; any other finding as it is."""
    if finding.rule != "KR308" or not is_forbidden(finding.evidence):
        return finding
    return replace(finding, evidence=f"{finding.evidence}: {_WAY}")
