"""The pending swaps of a partition: what they hold, the indexes made for them, and whether they were completed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from krepair.formats.filenames import NameState, log_name
from krepair.logdir.values import Leftover, Partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Place
from krepair.plan.model import NewFile
from krepair.rules.leftovers import PendingSwap, Removal, SwapDecision

if TYPE_CHECKING:
    from krepair.pipeline.swaps import SwapItem, SwapResult

SWAP: Final = NameState.SWAP.value


class SeenSwap(NamedTuple):
    """One pending swap, read whole.

    Attributes:
        pending: what it holds.
        makes: the indexes that a recovery would make of it.
    """

    pending: PendingSwap
    makes: tuple[NewFile, ...]


class SeenLeftovers(NamedTuple):
    """The leftovers of one partition, looked at.

    Attributes:
        swaps: what becomes of its swaps.
        makes: base offset of a swap -> the indexes made for it.
        removals: files that go, in the order in which they go.
        left: why nothing was done in this partition, or empty.
        damaged: base offsets of live segments that are not valid to their ends.
    """

    swaps: SwapDecision = SwapDecision()
    makes: dict[int, tuple[NewFile, ...]] = {}  # noqa: RUF012
    removals: tuple[Removal, ...] = ()
    left: str = ""
    damaged: frozenset[int] = frozenset()


def log_swaps(partition: Partition) -> list[Leftover]:
    """The ``.log.swap`` files of a partition that a broker would name so, ascending."""
    found = [
        leftover
        for leftover in partition.leftovers
        if leftover.kind == "swap" and leftover.file.name == f"{log_name(max(leftover.base_offset, 0))}{SWAP}"
    ]
    return sorted(found, key=lambda each: each.base_offset)


def swap_item(place: Place, partition: Partition, swap: Leftover, interval_bytes: int) -> SwapItem:
    """The item that reads a ``.log.swap``, and beside the segments if a ``.cleaned`` makes it void.

    A broker throws a void swap away, so it matters whether there is anything that only it has.
    """
    from krepair.pipeline.swaps import SwapItem

    cleaned = [leftover.base_offset for leftover in partition.leftovers if leftover.kind == "cleaned"]
    void = any(base <= swap.base_offset for base in cleaned)
    segments = partition.log_sizes
    return SwapItem(
        place=place,
        base_offset=swap.base_offset,
        size=swap.file.size,
        interval_bytes=interval_bytes,
        segments=segments if void else (),
    )


def look_at_swaps(items: Sequence[SwapItem], engine: Engine) -> dict[str, list[SeenSwap]]:
    """Read pending swaps whole, where the engine runs.

    Returns:
        Partition folder -> what each of its swaps holds, in the order of the items.
    """
    if not items:
        return {}
    results: dict[int, SwapResult] = {}
    from krepair.pipeline.swaps import look_at_swap

    for index, result in engine.map(look_at_swap, items):
        results[index] = result
    seen: dict[str, list[SeenSwap]] = {}
    for index, item in enumerate(items):
        found = results[index]
        pending = PendingSwap(
            base_offset=item.base_offset,
            end_offset=found.end_offset,
            log_bytes=item.size,
            batches=found.batches,
            problem=found.problem,
            missing=found.missing,
        )
        seen.setdefault(item.place.folder, []).append(SeenSwap(pending, found.makes))
    return seen
