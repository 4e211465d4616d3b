"""What all parts of the benchmark share: where data lie, how large they are, and how often each thing is measured."""

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
"""A broker's JVM compiles in all tiers; the judge of the tests stops at the first for a quick start."""

OFTEN: Final = 3
"""What takes a tenth of a second, or varies by as much, is measured so many times as often."""


class Setting(NamedTuple):
    """Of one run of the benchmark.

    Attributes:
        folder: where data lie.
        runs: how often each thing is measured.
        markers: bytes of the log of markers.
        half: bytes of the log of markers and data; a cleaner's offset map must hold its keys.
        cluster: bytes of all logs of part ``cluster``.
        partitions: of part ``many``.
        share: of all these bytes; below 1 to try the parts.
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
        """Runs of what is short."""
        return OFTEN * self.runs

    def scaled(self, size: int) -> int:
        """Bytes of a log: so many, or the share of them that was asked for."""
        return int(size * self.share)

    def log(self, kind: str, size: int, **more: Any) -> Made:
        """A log directory of that kind, see ``tools.bench.data.make``; made when it is first asked for."""
        return _made(self.folder, kind, self.scaled(size), **more)

    def tiny(self, kind: str) -> Made:
        """Ten batches of a kind, so that the same kernels are loaded."""
        return self.log(kind, 0)

    def copy_of(self, made: Made) -> Path:
        """A fresh copy of a log directory, in the page cache and on the disk."""
        target = self.folder / "copy"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made.root, target)
        os.sync()
        return target

    @contextlib.contextmanager
    def room(self) -> Iterator[Path]:
        """An empty folder, for a while."""
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
