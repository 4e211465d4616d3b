"""The interface by which verbs and engines report progress; the command line draws a bar from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

_SHOWN: Final = "shown"
_Function = TypeVar("_Function", bound=Callable[..., object])


def shown_as(words: str) -> Callable[[_Function], _Function]:
    """Decorate a task with the one or two words that the progress bar shows while an engine maps it."""

    def with_words(function: _Function) -> _Function:
        vars(function)[_SHOWN] = words
        return function

    return with_words


def words_of_function(function: Callable[..., object]) -> str:
    """Return the words that ``shown_as`` attached to a task; its name if there are none."""
    return str(getattr(function, _SHOWN, function.__name__))


class Progress(Protocol):
    """Receiver of progress from one thread: ``start``, any number of ``advance``, ``finish``, then the next task."""

    def start(self, task: str, total_bytes: int) -> None:
        """Begin a task.

        Args:
            task: one or two words for a person, such as ``scan`` or ``stage``.
            total_bytes: size of the task in bytes; 0 if unknown.
        """

    def advance(self, done_bytes: int) -> None:
        """Add ``done_bytes`` bytes to the progress of the task."""

    def finish(self) -> None:
        """End the task, completed or not."""


class SilentProgress:
    """Receiver that shows nothing."""

    def start(self, task: str, total_bytes: int) -> None:
        """Ignore the start."""

    def advance(self, done_bytes: int) -> None:
        """Ignore the progress."""

    def finish(self) -> None:
        """Ignore the end."""


class TaskParts(SilentProgress):
    """Receiver that shows the jobs inside a task as progress of the task as a whole, part by part.

    If a job reads a part more than once, its bytes count only until the part is complete.

    Args:
        task: progress of the task.
    """

    def __init__(self, task: Progress) -> None:
        self._task = task
        self._left = 0

    def next(self, part_bytes: int) -> None:
        """Complete the previous part, and begin a part of ``part_bytes`` bytes."""
        self._task.advance(self._left)
        self._left = part_bytes

    def advance(self, done_bytes: int) -> None:
        """Add ``done_bytes`` bytes to the progress of the part."""
        done = min(done_bytes, self._left)
        self._left -= done
        self._task.advance(done)
