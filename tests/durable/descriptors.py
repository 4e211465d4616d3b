"""Number of open descriptors of this process."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path


def open_descriptors(below: str | Path) -> int:
    """Of a folder and of what is in it: tests of before may still close theirs elsewhere, at any moment.

    Of ``/`` only itself counts. Those of trees and files that only wait for the garbage collector do not count either.
    """
    gc.collect()
    return sum(f"{path}/".startswith(f"{below}/") for path in _open_paths())


def _open_paths() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(
            FileNotFoundError
        ):  # that of the listing itself, or one that was just closed
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found
