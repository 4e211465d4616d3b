"""Reads every partition of a coordinator's topic in one job: the common part of ``groups`` and ``transactions``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Protocol, TypeVar

from msgspec import Struct

from krepair.errors import UnreadableError
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.coordinators.walk import DamagedPart
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed, WorkItem


class PassedOver(Struct, frozen=True, kw_only=True):
    """Damage that was passed over: what these bytes said is not in the answer.

    Attributes:
        partition: folder name.
        part: where, and what was found.
    """

    partition: str
    part: DamagedPart


class PartitionResult(Protocol):
    """What the function of either verb gives."""

    @property
    def damaged(self) -> tuple[DamagedPart, ...]:
        """What was passed over."""


Item = TypeVar("Item", bound=WorkItem)
Result = TypeVar("Result", bound=PartitionResult)


def partitions_of(view: LogDir, topic: str, wants: Callable[[str, int], bool]) -> list[Partition]:
    """The partitions of a topic that were asked for.

    Raises:
        UnreadableError: the folder of one cannot be read.
    """
    chosen = [
        partition
        for partition in view.partitions
        if partition.topic == topic and wants(partition.topic, partition.number)
    ]
    unreadable = next((partition.unreadable for partition in chosen if partition.unreadable), "")
    if unreadable:
        raise UnreadableError(unreadable)
    return chosen


def log_bytes(partition: Partition) -> int:
    """Bytes of ``.log`` of a partition."""
    return sum(segment.log.size for segment in partition.segments)


def read_partitions(
    engine: Engine,
    function: Callable[[Item], Result | Failed],
    items: Sequence[Item],
    what: str,
) -> list[Result]:
    """Map a function over partitions.

    Args:
        engine: where.
        function: of ``pipeline.coordinators``.
        items: one a partition.
        what: what cannot be told when a log cannot be read, as ``groups``.

    Returns:
        The results in the order of the items.

    Raises:
        UnreadableError: a log could not be read.
    """
    ordered: list[Result] = []
    for _, result in sorted(engine.map(function, items), key=itemgetter(0)):
        if isinstance(result, Failed):
            raise UnreadableError(f"{result.why}; the {what} cannot be told without it")
        ordered.append(result)
    return ordered


def passed_over(
    partitions: Sequence[Partition], results: Sequence[PartitionResult]
) -> tuple[PassedOver, ...]:
    """What was passed over in all partitions."""
    return tuple(
        PassedOver(partition=partition.folder, part=part)
        for partition, result in zip(partitions, results, strict=True)
        for part in result.damaged
    )
