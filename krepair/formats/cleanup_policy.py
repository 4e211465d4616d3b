"""The value of ``cleanup.policy``."""

from __future__ import annotations


def policies_of(value: str) -> frozenset[str]:
    """What a value names: ``compact``, ``delete``, both or none."""
    return frozenset(word.strip() for word in value.split(",")) - {""}


def compacts(value: str) -> bool:
    """Whether the cleaner compacts a topic with this value."""
    return "compact" in policies_of(value)
