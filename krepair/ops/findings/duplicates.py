"""The same partition in two of the log directories that were given (KR603): which of the two is the longer one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import Finding
from krepair.checks.side_by_side import SideBySide, batches_of, side_by_side
from krepair.kernels.scan import ReadInto
from krepair.logdir.reading import opened_for_reading, why
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.regenerate import read_into_from

_REFUSED = "a broker with both log directories does not start: move one of the two folders out"


def duplicate_findings(view: LogDir, others: Sequence[LogDir]) -> Iterator[Finding]:
    """Partitions of a log directory that another one has too, both read and held against each other.

    Args:
        view: the log directory.
        others: the other ones that were given.
    """
    for other in others:
        if other.path == view.path:
            continue
        there = {(each.topic, each.number): each for each in other.partitions}
        for here in view.partitions:
            twin = there.get((here.topic, here.number))
            if twin is not None:
                yield Finding(
                    rule="KR603", partition=here.folder, evidence=f"{_told(here, twin)}; {_REFUSED}"
                )


def _told(here: Partition, there: Partition) -> str:
    bad = next((each.unreadable for each in (here, there) if each.unreadable), "")
    if bad:
        return f"also {there.path}, which cannot be held against it: {bad}"
    try:
        seen = side_by_side(batches_of(_logs(here)), batches_of(_logs(there)))
    except OSError as error:
        return f"also {there.path}, which cannot be held against it: {error.filename}: {why(error)}"
    ends = f"also {there.path}: the log here ends at {seen.first_end}, there at {seen.second_end}"
    return f"{ends}; {said(seen)}"


def _logs(partition: Partition) -> Iterator[tuple[ReadInto, int]]:
    for segment in partition.segments:
        with opened_for_reading(segment.log.path) as descriptor:
            yield read_into_from(descriptor), segment.log.size


def said(seen: SideBySide) -> str:
    """Which log is the beginning of which, in words; "here" is the first."""
    if seen.differ:
        return (
            f"they are not the same log: the batch that ends at {seen.first_difference} is another one in each "
            f"({seen.differ} of {seen.same + seen.differ} differ); ask the other replicas which is right"
        )
    if not seen.first_end or not seen.second_end:
        return f"the one {'here' if not seen.first_end else 'there'} holds no batch"
    lacks = _lacks(seen)
    if not seen.after_second and not seen.after_first:
        return (
            f"both hold the same {seen.same} batches{lacks or ''}" if not lacks else f"they end alike{lacks}"
        )
    longer, shorter = ("here", "there") if seen.after_second else ("there", "here")
    more = seen.after_second or seen.after_first
    if lacks:
        return f"the one {longer} goes on for {more} batches{lacks}"
    return f"the one {shorter} is the beginning of the one {longer}, which goes on for {more} batches"


def _lacks(seen: SideBySide) -> str:
    """Batches that one lacks below the other's end: it was compacted, cut at its start, or damaged."""
    parts = [
        f"{count} of their common offsets are only {where}"
        for count, where in ((seen.only_first, "here"), (seen.only_second, "there"))
        if count
    ]
    text = ", ".join(parts)
    return f"; batches: {text} (compaction, or a log start that moved)" if text else ""
