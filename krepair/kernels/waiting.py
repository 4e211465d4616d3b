"""Who is told that a run waits for the compiler. This module is light: it loads neither the compiler nor a kernel."""

from __future__ import annotations

from collections.abc import Callable

Told = Callable[[int, int], None]
"""Called with the number of kernels that are compiled or being compiled, and how many there are; 0 if unknown."""

_told: Told | None = None
_compiled = 0


def tell(told: Told | None) -> None:
    """From now on this function is told, in the thread that waits; None: nobody."""
    global _told, _compiled
    _told, _compiled = told, 0


def compiling() -> None:
    """A kernel that was found in no cache is compiled now, while its caller waits."""
    global _compiled  # noqa: PLW0603
    _compiled += 1
    if _told is not None:
        _told(_compiled, 0)
