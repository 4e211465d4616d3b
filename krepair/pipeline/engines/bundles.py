"""Which items share a task: many small segments are one task, a large one is a task of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_EACH_BYTES: Final = 1 << 20
"""What an item costs beside its bytes, in bytes: files are opened, results travel."""
_TASK_BYTES: Final = 64 << 20
_LEAST_TASKS: Final = 64
_TASKS_PER_CORE: Final = 4


def bundled(sizes: Sequence[int], cores: int) -> list[range]:
    """Share items out to tasks, in order.

    Args:
        sizes: bytes that each item reads, see ``WorkItem.bytes_to_read``.
        cores: that work at the same time.

    Returns:
        Of each task the places of its items. There are enough tasks for all cores and for one to be done again at
        little cost; beyond that a task has about 64 MiB, an item counting as 1 MiB more than its bytes.
    """
    if not sizes:
        return []
    weights = [size + _EACH_BYTES for size in sizes]
    total = sum(weights)
    tasks = min(len(sizes), max(_LEAST_TASKS, _TASKS_PER_CORE * cores, -(-total // _TASK_BYTES)))
    if tasks == len(sizes):
        return [range(n, n + 1) for n in range(len(sizes))]
    bundles: list[range] = []
    first, held = 0, 0
    for place, weight in enumerate(weights):
        held += weight
        if held * tasks >= total:
            bundles.append(range(first, place + 1))
            first, held = place + 1, 0
    if first < len(sizes):
        bundles.append(range(first, len(sizes)))
    return bundles
