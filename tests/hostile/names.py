"""Names, texts and sizes that break careless code."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.corpus.bases import EPOCHS, Made

TEXTS: dict[str, Callable[[bytes], bytes]] = {
    "escape": lambda topic: b"0\n1\n\x1b[2J%s 0 5\n" % topic,
    "newline in a name": lambda topic: b"0\n1\n%s\\n 0 5\n" % topic,
    "no UTF-8": lambda topic: b"0\n1\n\xff\xfe 0 5\n",
    "controls": lambda topic: bytes(range(256)),
    "count -1": lambda topic: b"0\n-1\n",
    "count 2^31-1": lambda topic: b"0\n2147483647\n",
    "200 000 lines": lambda topic: (
        b"0\n200000\n" + b"".join(b"%s %d 5\n" % (topic, n) for n in range(200_000))
    ),
}
FILES = (
    EPOCHS,
    "partition.metadata",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def path_of(made: Made, name: str) -> Path:
    return (made.folder if name in {EPOCHS, "partition.metadata"} else made.log_dir) / name


def make_terabytes(path: Path) -> None:
    """As long as the file system lets a file be, without a block more."""
    path.touch()
    for size in (8 << 40, 1 << 40, 15 << 30):
        try:
            os.truncate(path, size)
        except OSError:
            continue
        return
