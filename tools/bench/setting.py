"""Shared settings of all parts: location and size of the data, and number of measurements."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.bench.data import NOW_MS, Made, make

FAR_MS: Final = NOW_MS + 10**10
BROKER_JVM: Final = ("-XX:+UseG1GC", "-Xshare:auto", "-Djava.net.preferIPv4Stack=true")
"""Options of a broker's JVM, which compiles in all tiers; the tests' judge stops at the first for a quick start."""

OFTEN: Final = 3
"""Factor for measurements that take a tenth of a second, or vary by as much."""


class Setting(NamedTuple):
    """Settings of one run of the benchmark.

    Attributes:
        folder: path of the folder for data.
        runs: number of times that each thing is measured.
        markers: size in bytes of the log of markers.
        half: size in bytes of the log of markers and data; a cleaner's offset map must hold its keys.
        cluster: size in bytes of all logs of part ``cluster``.
        partitions: number of partitions of part ``many``.
        share: share of all these bytes; below 1 to try the parts.
    """

    folder: Path
    runs: int
    markers: int
    half: int
    cluster: int
    partitions: int
    share: float = 1.0

    @property
    def often(self) -> int:
        """Number of runs of short measurements."""
        return OFTEN * self.runs

    def scaled(self, size: int) -> int:
        """Scale the size of a log to the requested share."""
        return int(size * self.share)

    def log(self, kind: str, size: int, **more: Any) -> Made:
        """Return a log directory of that kind, see ``tools.bench.data.make``, created on first use."""
        return _made(self.folder, kind, self.scaled(size), **more)

    def tiny(self, kind: str) -> Made:
        """Return ten batches of a kind, which load the same kernels."""
        return self.log(kind, 0)

    def copy_of(self, made: Made) -> Path:
        """Copy a log directory, into the page cache and onto the disk."""
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made.root, target)
        os.sync()
        return target

    @contextlib.contextmanager
    def room(self) -> Iterator[Path]:
        """Provide an empty folder while the body runs."""
        room = self.folder / "room"
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir(parents=True)
        try:
            yield room
        finally:
            shutil.rmtree(room)


@functools.cache
def _made(folder: Path, kind: str, size: int, **more: Any) -> Made:
    words = [kind, str(size), *(f"{name}-{value}" for name, value in sorted(more.items()))]
    return make(folder / "-".join(words), kind, size, **more)
