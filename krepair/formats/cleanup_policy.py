"""Parses the topic setting ``cleanup.policy``."""

from __future__ import annotations


def policies_of(value: str) -> frozenset[str]:
    """Split a value into the policies that it names: ``compact``, ``delete``, both or none."""
    return frozenset(word.strip() for word in value.split(",")) - {""}


def compacts(value: str) -> bool:
    """Return whether the log cleaner compacts a topic with this value."""
    return "compact" in policies_of(value)
