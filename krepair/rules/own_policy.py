"""Whether a topic's own configuration says that its records may go by key. Plain, and cheap to import: no numpy."""

from __future__ import annotations

from typing import Final

COMPACTED_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics whose keys may go without a configuration that says so; ``__share_group_state`` is not compacted."""


def not_asked_for(topic: str, cleanup_policy: str, source: str) -> str:
    """Why the records of a topic must not be compacted by key, or empty.

    Args:
        topic: its name.
        cleanup_policy: value of ``cleanup.policy``.
        source: where the value came from, as ``plan.model.Setting.source``.

    Only a topic's own configuration counts: the broker's default and ``--set`` hold for all topics, and a topic that
    is kept by time would lose its records.
    """
    of_all = source == "default" or source.startswith(("server.properties", "--set"))
    if topic in COMPACTED_INTERNAL_TOPICS and of_all:
        return ""
    if of_all:
        return "its own configuration does not say cleanup.policy=compact (broker defaults and --set do not count)"
    if "compact" not in {part.strip() for part in cleanup_policy.split(",")}:
        return f"its cleanup.policy is {cleanup_policy or 'empty'}"
    return ""
