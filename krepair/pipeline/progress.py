"""How long work tells that it goes on. The verbs call it; the command line draws it; tests ignore it."""

from __future__ import annotations

from typing import Protocol


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
