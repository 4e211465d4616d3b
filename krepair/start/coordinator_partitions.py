"""Partition count of a coordinator topic, and the partition to which a group or transactional id belongs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from krepair.logdir.values import LogDir
from krepair.start.metadata_log import see_metadata_log

_DEFAULT: Final = 50
"""Kafka's default of ``offsets.topic.num.partitions`` and ``transaction.state.log.num.partitions``."""


def partition_of_name(name: str, partitions: int) -> int:
    """Return the partition of a coordinator topic that holds a group or transactional id, by Java's hash."""
    units = name.encode("utf-16-be", "surrogatepass")
    code = 0
    for position in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[position : position + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def partitions_of_topic(
    views: Sequence[LogDir], topic: str, names: Collection[tuple[str, int]]
) -> tuple[int, bool]:
    """Return the partition count of a coordinator topic (0 if unknown), and whether the metadata log states it.

    Without a metadata log the count is inferred: all partitions are here if none below the highest is missing;
    else Kafka's default is assumed if every name lies in the partition that this default gives for the name.

    Args:
        views: the log directories of the broker.
        topic: ``__consumer_offsets`` or ``__transaction_state``.
        names: groups or transactional ids, each with the number of the partition that holds its records.
    """
    metadata = see_metadata_log(views)
    image = None if metadata is None else metadata.image
    if image is not None:
        ids = [topic_id for topic_id, name in image.topics.items() if name == topic]
        if ids:
            return len(image.numbers.get(ids[0], ())), True
    here = {partition.number for view in views for partition in view.partitions if partition.topic == topic}
    highest = max(here, default=-1)
    all_here = len(here) if len(here) == highest + 1 else 0
    for count in (all_here, _DEFAULT):
        if count > highest and all(
            number_of_name == partition_of_name(name, count) for name, number_of_name in names
        ):
            return count, False
    return all_here, False
