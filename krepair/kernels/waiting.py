"""Notifies the command line that a run waits for the compiler. It loads neither the compiler nor a kernel."""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[], None] | None = None


def tell(listener: Callable[[], None] | None) -> None:
    """Set the function that is called once when a thread waits for the compiler; None for no function."""
    global _listener  # noqa: PLW0603
    _listener = listener


def compiling() -> None:
    """Notify the listener that a kernel is being compiled because it is in no cache."""
    listener = _listener
    tell(None)
    if listener is not None:
        listener()
