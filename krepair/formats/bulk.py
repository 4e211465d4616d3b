"""Making millions of small values at once."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def many_values() -> Iterator[None]:
    """Without the collector of reference cycles while the body makes values that hold none.

    It would look at all of them again and again while they are made, which takes longer than making them.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
