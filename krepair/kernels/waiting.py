"""Notify a run that it waits for the compiler. This module is light: it loads neither the compiler nor a kernel."""

from __future__ import annotations

from collections.abc import Callable

_listener: Callable[[], None] | None = None


def tell(listener: Callable[[], None] | None) -> None:
    """Set the function that is called once, in the thread that waits; None: no function."""
    global _listener  # noqa: PLW0603
    _listener = listener


def compiling() -> None:
    """Notify the listener that a kernel is compiled now, because no cache has it, while its caller waits."""
    listener = _listener
    tell(None)
    if listener is not None:
        listener()
