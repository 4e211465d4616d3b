"""The interface of the two engines, and the one that works in this process.

A verb hands an engine a function and many work items, such as one item for each segment, and gets the results as they
arrive. It need not know where they are computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, TypeVarTuple, overload

from krepair.engine.items import arguments_of, bytes_to_read
from krepair.engine.place import keep_log_dir_open
from krepair.engine.progress import Progress, SilentProgress, TaskParts, words_of_function

Item = TypeVar("Item")
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")
What = TypeVar("What")


class Engine(ABC):
    """Mapper of functions for one verb.

    Args:
        why: reason for this engine, for the report.
        progress: receiver of each job's progress in bytes read; None for no receiver.
        slow_because: reason why Spark could not be used although it would finish sooner; else empty.
    """

    def __init__(self, why: str, progress: Progress | None = None, slow_because: str = "") -> None:
        self.why = why
        self.slow_because = slow_because
        self._progress = progress or SilentProgress()

    @overload
    def map(
        self, function: Callable[[*Arguments], Result], items: Sequence[tuple[*Arguments]]
    ) -> Iterator[tuple[int, Result]]: ...

    @overload
    def map(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[tuple[int, Result]]: ...

    def map(self, function: Callable[..., Result], items: Sequence[Any]) -> Iterator[tuple[int, Result]]:
        """Yield (index of the item, result of the function) as results arrive, in any order.

        Args:
            function: function of a module, so that a worker finds it by name; it may run twice for an item.
            items: picklable items with picklable results: a ``WorkItem``, or a tuple of all arguments of the function,
                of which the first is a ``WorkItem``.
        """
        if not items:
            return
        sizes = [bytes_to_read(item) for item in items]
        self._progress.start(words_of_function(function), sum(sizes))
        try:
            for index, result in self._results(function, items):
                self._progress.advance(sizes[index])
                yield index, result
        finally:
            self._progress.finish()

    @overload
    def each(
        self,
        function: Callable[[*Arguments], Result],
        tagged_items: Iterable[tuple[What, tuple[*Arguments]]],
    ) -> Iterator[tuple[What, Result]]: ...

    @overload
    def each(
        self, function: Callable[[Item], Result], tagged_items: Iterable[tuple[What, Item]]
    ) -> Iterator[tuple[What, Result]]: ...

    def each(
        self, function: Callable[..., Result], tagged_items: Iterable[tuple[What, Any]]
    ) -> Iterator[tuple[What, Result]]:
        """Map over tagged items like ``map``; yield each tag with its result.

        Args:
            function: see ``map``.
            tagged_items: (tag, item) pairs.
        """
        pairs = list(tagged_items)
        for index, result in self.map(function, [item for _, item in pairs]):
            yield pairs[index][0], result

    @contextmanager
    def as_one(self, task: str, total_bytes: int) -> Iterator[TaskParts]:
        """Show a single progress bar while the body runs, instead of one for each job in it.

        Args:
            task: one or two words for a person.
            total_bytes: size of all parts in bytes.
        """
        progress = self._progress
        progress.start(task, total_bytes)
        self._progress = parts = TaskParts(progress)
        try:
            yield parts
            parts.next(0)
        finally:
            self._progress = progress
            progress.finish()

    @abstractmethod
    def _results(self, function: Callable[..., Result], items: Sequence[Any]) -> Iterator[tuple[int, Result]]:
        """Yield the results of at least one item like ``map``, without progress."""

    def writing(self, log_dir: str, make_folder: Callable[[], str]) -> AbstractContextManager[None]:
        """Let workers write while the body runs, but only if they see the same log directory and its lock.

        Args:
            log_dir: absolute path of the log directory, whose lock is held.
            make_folder: function that creates krepair's work folder in one partition, if needed, and returns its
                absolute path; empty if there is no partition to write into.
        """
        del log_dir, make_folder
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """Release what the engine holds."""


class InlineEngine(Engine):
    """Engine that runs all items in this process, one after another."""

    def _results(self, function: Callable[..., Result], items: Sequence[Any]) -> Iterator[tuple[int, Result]]:
        with keep_log_dir_open():
            for index, item in enumerate(items):
                yield index, function(*arguments_of(item))

    def close(self) -> None:
        """Do nothing: this engine holds nothing."""
