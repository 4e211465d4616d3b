"""Items that one worker could not read are tried by another: a lost mount looks like a bad disk to whoever lost it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Doubts:
    """What was said once of items that could not be read, until a second worker, or the last one, says the same."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[str, Any]] = {}

    def is_new(self, place: int, worker: str, result: Any) -> bool:
        """Whether an item has to be tried by another worker.

        Args:
            place: of the item.
            worker: whose result it is, see ``spark_worker.this_worker``.
            result: of any task.
        """
        if not cannot_read(result):
            return False
        before = self._said.get(place)
        if before is not None and before[0] != worker:
            return False
        self._said[place] = (worker, result)
        return True

    def workers(self, places: Iterable[int]) -> tuple[str, ...]:
        """Who could not read items: they are asked no more."""
        return tuple(sorted({self._said[place][0] for place in places if place in self._said}))

    def said(self, places: Iterable[int]) -> list[tuple[int, Any]]:
        """(item, its result) of items that one worker took and could not read. Others are left out."""
        return [(place, self._said[place][1]) for place in places if place in self._said]


def cannot_read(result: Any) -> bool:
    """Whether a result of any task says that a file could not be read."""
    if getattr(result, "failure", "") == "unreadable":
        return True
    return any(cannot_read(one) for one in getattr(result, "results", ()))
