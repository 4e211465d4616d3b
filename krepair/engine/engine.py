"""Maps functions over items: in this process, or on Spark. An engine tells how far it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from krepair.engine.items import WorkItem
from krepair.engine.place import kept_open
from krepair.engine.progress import Progress, SilentProgress, shown_of

Item = TypeVar("Item", bound=WorkItem)
Result = TypeVar("Result")
What = TypeVar("What")


class Engine(ABC):
    """Maps functions for one verb.

    Args:
        why: why this engine was taken, for the report.
        progress: told of each job, by the bytes that its items read; None: nobody is told.
        slow_because: why Spark could not be taken, where it would be sooner done; else empty.
    """

    def __init__(self, why: str, progress: Progress | None = None, slow_because: str = "") -> None:
        self.why = why
        self.slow_because = slow_because
        self._progress = progress or SilentProgress()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Yield (index of the item, what the function gives for it) as results come, in any order.

        Args:
            function: of a module, so that a worker finds it by its name; it may run twice for an item.
            items: that can be pickled, as what the function gives.
        """
        if not items:
            return
        sizes = [item.bytes_to_read for item in items]
        self._progress.start(shown_of(function), sum(sizes))
        try:
            for index, result in self._results(function, items):
                self._progress.advance(sizes[index])
                yield index, result
        finally:
            self._progress.finish()

    def each(
        self, function: Callable[[Item], Result], asked: Iterable[tuple[What, Item]]
    ) -> Iterator[tuple[What, Result]]:
        """As ``map``, of items each of which is asked for something: gives that with the result.

        Args:
            function: see ``map``.
            asked: (what it is asked for, item).
        """
        pairs = list(asked)
        for index, result in self.map(function, [item for _, item in pairs]):
            yield pairs[index][0], result

    @abstractmethod
    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        """As ``map``, of at least one item; nobody is told."""

    def writing(self, log_dir: str, make_folder: Callable[[], str]) -> AbstractContextManager[None]:
        """Make sure that whoever works elsewhere shares the directory and its locks while the body runs.

        Args:
            log_dir: absolute path of the log directory, whose lock is held.
            make_folder: makes krepair's own sub-folder of one partition, if it is needed, and gives its absolute path;
                empty if there is none to write into.
        """
        del log_dir, make_folder
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """Give back what the engine holds."""


class InlineEngine(Engine):
    """Runs every item here, one after the other."""

    def _results(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]:
        with kept_open():
            for index, item in enumerate(items):
                yield index, function(item)

    def close(self) -> None:
        """Nothing is held."""
