"""How long work tells that it goes on. The verbs call it; the command line draws it; tests ignore it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

_SHOWN: Final = "shown"
_Function = TypeVar("_Function", bound=Callable[..., object])


def shown(words: str) -> Callable[[_Function], _Function]:
    """Say in one or two words what a person reads while an engine maps a function."""

    def with_words(function: _Function) -> _Function:
        vars(function)[_SHOWN] = words
        return function

    return with_words


def shown_of(function: Callable[..., object]) -> str:
    """The words of ``shown``; without them the function's name."""
    return str(getattr(function, _SHOWN, function.__name__))


class Progress(Protocol):
    """Told by one thread: ``start``, any number of ``advance``, ``finish``; then perhaps the next task."""

    def start(self, task: str, total_bytes: int) -> None:
        """A task begins.

        Args:
            task: one or two words for a person, as ``scan`` or ``stage``.
            total_bytes: how much there is to do; 0 if unknown.
        """

    def advance(self, done_bytes: int) -> None:
        """So many more bytes of the task are done."""

    def finish(self) -> None:
        """The task is over, done or not."""


class SilentProgress:
    """Says nothing."""

    def start(self, task: str, total_bytes: int) -> None:
        """Say nothing."""

    def advance(self, done_bytes: int) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""
