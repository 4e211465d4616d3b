"""What something cost: CPU time, wall time with a cold cache, and bytes read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cost:
    """The least of several runs.

    Attributes:
        cpu: seconds of CPU time, by what they were spent for; everything was in the page cache.
        cold: seconds of wall time, likewise; nothing was in the page cache when it began.
        read: bytes that were read, wherever they came from.
    """

    cpu: dict[str, float] = field(default_factory=dict)
    cold: dict[str, float] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, seconds: float) -> None:
        """CPU time of one more run of something."""
        self.cpu[what] = min(self.cpu.get(what, seconds), seconds)

    def note_cold(self, what: str, seconds: float) -> None:
        """Wall time of one more run of something."""
        self.cold[what] = min(self.cold.get(what, seconds), seconds)


def bytes_read(process: int | None = None) -> int:
    """Bytes that a process has read so far, from the page cache or the disk; children that have ended are counted too.

    Args:
        process: its id; None: this one.
    """
    return int(Path(f"/proc/{process or 'self'}/io").read_text().split()[1])


def make_cold(root: Path) -> None:
    """Write all to the disk, and have the kernel forget the pages of a directory, but not the names in it."""
    os.sync()
    for path in root.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
