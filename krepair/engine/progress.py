"""Progress of long work. The verbs report it; the command line draws it; tests ignore it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

_SHOWN: Final = "shown"
_Function = TypeVar("_Function", bound=Callable[..., object])


def shown(words: str) -> Callable[[_Function], _Function]:
    """Attach the one or two words that a person reads while an engine maps the function."""

    def with_words(function: _Function) -> _Function:
        vars(function)[_SHOWN] = words
        return function

    return with_words


def shown_of(function: Callable[..., object]) -> str:
    """Return the words that ``shown`` attached; without them the function's name."""
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
        """Add ``done_bytes`` bytes to what is done."""

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
    """Receiver for the jobs inside a task that is shown as a whole, part by part.

    A job may read a part more than once: its bytes count until the part is full.

    Args:
        task: progress of the task.
    """

    def __init__(self, task: Progress) -> None:
        self._task = task
        self._left = 0

    def next(self, part_bytes: int) -> None:
        """Begin a part of so many bytes; the one before it is done."""
        self._task.advance(self._left)
        self._left = part_bytes

    def advance(self, done_bytes: int) -> None:
        """Add ``done_bytes`` bytes to what is done of the part."""
        done = min(done_bytes, self._left)
        self._left -= done
        self._task.advance(done)
