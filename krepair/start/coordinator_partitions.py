"""How many partitions a coordinators' topic has, and in which one a group or a transactional id belongs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from krepair.logdir.values import LogDir
from krepair.start.metadata_log import see_metadata_log

_DEFAULT: Final = 50
"""``offsets.topic.num.partitions`` and ``transaction.state.log.num.partitions``, where nobody sets them."""


def partition_of_name(name: str, partitions: int) -> int:
    """Return the partition of a coordinators' topic to which a group or transactional id belongs, by Java's hash."""
    units = name.encode("utf-16-be", "surrogatepass")
    code = 0
    for place in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def partitions_of_topic(
    views: Sequence[LogDir], topic: str, names: Collection[tuple[str, int]]
) -> tuple[int, bool]:
    """Return how many partitions a coordinators' topic has, 0 if nothing tells; and whether the metadata log tells it.

    Where that is not here all are here, if none below the highest one is missing; or it is Kafka's default, if
    every name lies where that number puts it.

    Args:
        views: the log directories of the broker.
        topic: ``__consumer_offsets`` or ``__transaction_state``.
        names: groups or transactional ids, each with the number of the partition in which it lies.
    """
    metadata = see_metadata_log(views)
    image = None if metadata is None else metadata.image
    if image is not None:
        ids = [topic_id for topic_id, name in image.topics.items() if name == topic]
        if ids:
            return len(image.numbers.get(ids[0], ())), True
    here = {one.number for view in views for one in view.partitions if one.topic == topic}
    highest = max(here, default=-1)
    all_here = len(here) if len(here) == highest + 1 else 0
    for number in (all_here, _DEFAULT):
        if number > highest and all(place == partition_of_name(name, number) for name, place in names):
            return number, False
    return all_here, False
