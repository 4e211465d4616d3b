"""Who is told that a run waits for the compiler. This module is light: it loads neither the compiler nor a kernel."""

from __future__ import annotations

from collections.abc import Callable

_told: Callable[[], None] | None = None


def tell(told: Callable[[], None] | None) -> None:
    """This function is told once, in the thread that waits; None: nobody."""
    global _told  # noqa: PLW0603
    _told = told


def compiling() -> None:
    """A kernel that was found in no cache is compiled now, while its caller waits."""
    told = _told
    tell(None)
    if told is not None:
        told()
