"""Check that a topic's own configuration asks for key compaction. Plain Python without numpy, so that it loads fast."""

from __future__ import annotations

from typing import Final

from krepair.formats.cleanup_policy import compacts
from krepair.logdir.config import of_every_topic

COMPACTED_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that may be compacted without their own configuration. ``__share_group_state`` is not compacted."""


def not_asked_for(topic: str, cleanup_policy: str, source: str) -> str:
    """Return why the records of a topic must not be compacted by key; empty if they may be.

    Only the topic's own configuration is used. The broker's default and ``--set`` apply to all topics, and compaction
    would remove records of a topic with ``cleanup.policy=delete``.

    Args:
        cleanup_policy: value of ``cleanup.policy``.
        source: source of the value, as in ``Setting.source``.
    """
    of_all = of_every_topic(source)
    if topic in COMPACTED_INTERNAL_TOPICS and of_all:
        return ""
    if of_all:
        return "its own configuration does not say cleanup.policy=compact (broker defaults and --set do not count)"
    if not compacts(cleanup_policy):
        return f"its cleanup.policy is {cleanup_policy or 'empty'}"
    return ""
