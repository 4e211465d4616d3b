"""Reads the swaps that brokers left behind, so that a log is compared as its next start leaves it.

A broker that stops or dies while its cleaner puts a segment in its place leaves a ``.swap``, and of the segments that
it replaces only some, or none. What looks like a lost segment then lies in the swap. A clean stop of 2.2.1 does that,
too: its scheduler stops before its cleaner, which fails at the first segment that it has set aside.

Source: Log.replaceSegments and asyncDeleteSegment, KafkaServer.shutdown (2.2.1); UnifiedLog.replaceSegments (3.9.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from krepair.fixes.context import place_of
from krepair.fixes.leftovers import cleaned_bases, log_swaps, look_at_swaps, swap_item, why_left_alone
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.replicas.items import ReplicaItem
from krepair.rules.leftovers import LiveSegment, PendingSwap, SwapDecision, decide_swaps

_INTERVAL_BYTES = 4096
"""Of the indexes that the reading of a swap makes on the way; nothing is taken from them here."""


@dataclass(frozen=True)
class FinishedLog:
    """The log of a folder as the next start leaves it.

    Attributes:
        segments: (base offset, bytes of the log) of its segments, ascending.
        swaps: base offsets of those that lie in a ``.log.swap`` today.
        why: why it is not known what the next start leaves, or empty; then there are no segments.
    """

    segments: tuple[tuple[int, int], ...] = ()
    swaps: tuple[int, ...] = ()
    why: str = ""


def finished_logs(
    engine: Engine, view: LogDir, wants: Callable[[str, int], bool]
) -> Iterator[tuple[str, FinishedLog]]:
    """Yield (folder, its log once its swaps are finished) for each partition of a directory with a pending swap.

    Args:
        engine: reads the swaps, and the segments beside them.
        view: a log directory that no broker uses.
        wants: which partitions are wanted.
    """
    found = [
        one
        for one in view.partitions
        if log_swaps(one) and not one.unreadable and wants(one.topic, one.number)
    ]
    items = [
        swap_item(place_of(view, one), one, swap, _INTERVAL_BYTES) for one in found for swap in log_swaps(one)
    ]
    read = look_at_swaps(items, engine)
    for one in found:
        pending = [swap.pending for swap in read[one.folder]]
        yield one.folder, _finished(one, pending, list(_live(engine, view, one)))


def _live(engine: Engine, view: LogDir, partition: Partition) -> Iterator[LiveSegment]:
    """The segments that are there, each read for itself; one that cannot be read counts as damaged."""
    from krepair.pipeline.replicas.headers import read_headers

    place = place_of(view, partition)
    sizes = partition.log_sizes
    parts = dict(engine.map(read_headers, [ReplicaItem(place=place, segments=(one,)) for one in sizes]))
    for number, (base, size) in enumerate(sizes):
        part = parts[number]
        yield LiveSegment(
            base_offset=base,
            end_offset=max(base, part.last_offset + 1),
            log_bytes=size,
            batches=part.batches,
            damaged=bool(part.failure or part.damages),
        )


def _finished(partition: Partition, pending: Iterable[PendingSwap], live: list[LiveSegment]) -> FinishedLog:
    swaps = sorted(pending)
    why = why_left_alone(partition)
    decision = SwapDecision() if why else decide_swaps(swaps, live, cleaned_bases(partition), None)
    if why or decision.left:
        return FinishedLog(why=f"a cleaning was interrupted here: {why or decision.left}")
    gone = {one.base_offset for completion in decision.completions for one in completion.replaces}
    made = [(one.swap.base_offset, one.swap.log_bytes) for one in decision.completions]
    stays = [(one.base_offset, one.log_bytes) for one in live if one.base_offset not in gone]
    return FinishedLog(tuple(sorted(stays + made)), tuple(base for base, _ in sorted(made)))
