"""The same partition in two of the log directories that were given (KR603): which of the two is the longer one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from krepair.checks.catalogue import Finding
from krepair.checks.side_by_side import SideBySide
from krepair.fixes.context import place_of
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed

if TYPE_CHECKING:
    from krepair.pipeline.items import LogsItem

_REFUSED = "a broker with both log directories does not start: move one of the two folders out"


def duplicate_findings(view: LogDir, others: Sequence[LogDir], engine: Engine) -> Iterator[Finding]:
    """Partitions of a log directory that another one has too, both read and held against each other.

    Args:
        view: the log directory.
        others: the other ones that were given.
        engine: where both logs are read.
    """
    twins: list[_Twins] = []
    for other in others:
        if other.path != view.path:
            there = {partition.key: partition for partition in other.partitions}
            twins += [(view, here, other, there[here.key]) for here in view.partitions if here.key in there]
    for (_, here, _, _), evidence in zip(twins, _told(twins, engine), strict=True):
        yield Finding(rule="KR603", partition=here.folder, evidence=f"{evidence}; {_REFUSED}")


_Twins = tuple[LogDir, Partition, LogDir, Partition]


def _told(twins: Sequence[_Twins], engine: Engine) -> list[str]:
    if not twins:
        return []
    from krepair.pipeline.same_batches import TwoLogsItem, compare_two_logs

    told: dict[int, str] = {}
    to_read = []
    for number, (_, here, _, there) in enumerate(twins):
        bad = here.unreadable or there.unreadable
        if bad:
            told[number] = f"also {there.path}, which cannot be held against it: {bad}"
        else:
            to_read.append(number)
    items = [
        TwoLogsItem(first=log_of(twins[number][0], twins[number][1]), second=log_of(*twins[number][2:]))
        for number in to_read
    ]
    for index, result in engine.map(compare_two_logs, items):
        there = twins[to_read[index]][3]
        if isinstance(result, Failed):
            told[to_read[index]] = f"also {there.path}, but the two cannot be compared: {result.why}"
        else:
            ends = f"also {there.path}: the log here ends at {result.first_end}, there at {result.second_end}"
            told[to_read[index]] = f"{ends}; {said(result)}"
    return [told[number] for number in range(len(twins))]


def log_of(view: LogDir, partition: Partition) -> LogsItem:
    """The whole log of a partition, as a task takes it."""
    from krepair.pipeline.items import LogsItem

    segments = partition.log_sizes
    return LogsItem(place=place_of(view, partition), segments=segments)


def said(seen: SideBySide) -> str:
    """Which log is the beginning of which, in words; "here" is the first."""
    if seen.differ:
        every = count_text(seen.same + seen.differ, "batch", "batches")
        return (
            f"they are not the same log: the batch that ends at {seen.first_difference} differs "
            f"({seen.differ} of {every}); compare with the other replicas to see which one "
            "is right"
        )
    if not seen.first_end or not seen.second_end:
        return f"the one {'here' if not seen.first_end else 'there'} holds no batch"
    lacks = _lacks(seen)
    if not seen.after_second and not seen.after_first:
        return (
            f"both hold the same {count_text(seen.same, 'batch', 'batches')}{lacks or ''}"
            if not lacks
            else f"they end alike{lacks}"
        )
    longer, shorter = ("here", "there") if seen.after_second else ("there", "here")
    going = count_text(seen.after_second or seen.after_first, "batch", "batches")
    if lacks:
        return f"the one {longer} goes on for {going}{lacks}"
    return f"the one {shorter} is the beginning of the one {longer}, which goes on for {going}"


def _lacks(seen: SideBySide) -> str:
    """Batches that one lacks below the other's end: it was compacted, cut at its start, or damaged."""
    parts = [
        f"{count} of their common offsets are only {where}"
        for count, where in ((seen.only_first, "here"), (seen.only_second, "there"))
        if count
    ]
    text = ", ".join(parts)
    return f"; batches: {text} (compaction, or a log start that moved)" if text else ""
