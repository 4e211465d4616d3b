"""For code that makes millions of small values at once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def many_values() -> Iterator[None]:
    """Stop Python's garbage collector while the body makes many values without reference cycles.

    The collector would look at all of them again and again, and that takes longer than making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
