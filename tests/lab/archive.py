"""An archive of loaded classes per version (JEP 350): a broker starts with three fifths of the CPU time.

The first broker of a version that is stopped cleanly writes it, and later JVMs of that version map it. A JVM that
cannot use it starts as it does without one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.lab.jars import cache_root

# JVMs before 13 do not know the options; a JVM that refuses an archive must not say so among the broker's lines.
QUIETLY = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:disable", "-Xlog:all=error:stderr")


def archive_of(version: str) -> Path:
    """Where the archive of that version lies; another JVM has another one."""
    found = shutil.which("java") or ""
    real = Path(found).resolve()
    stamp = f"{real} {real.stat().st_mtime_ns if found else 0}"
    return cache_root() / version / f"classes-{hashlib.sha256(stamp.encode()).hexdigest()[:12]}.jsa"


def mapped(version: str) -> tuple[str, ...]:
    """The options of a JVM that maps the archive of that version, or none where there is none yet."""
    archive = archive_of(version)
    return (*QUIETLY, f"-XX:SharedArchiveFile={archive}") if archive.exists() else ()


@dataclass
class Recording:
    """The archive that one JVM writes when it ends; only one process writes the archive of a version."""

    archive: Path
    written: Path
    lock: IO[str]

    @property
    def options(self) -> tuple[str, ...]:
        """For the JVM that records."""
        return (*QUIETLY, f"-XX:ArchiveClassesAtExit={self.written}")

    def end(self, *, whole: bool) -> None:
        """Its JVM has ended; an archive of a killed one is thrown away."""
        if whole and self.written.exists():
            self.written.rename(self.archive)
        self.written.unlink(missing_ok=True)
        self.lock.close()


def recording(version: str) -> Recording | None:
    """A recording, where there is no archive of that version and nobody else writes one."""
    archive = archive_of(version)
    if archive.exists() or not os.access(archive.parent, os.W_OK):
        return None
    lock = (archive.parent / "classes.lock").open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return Recording(archive, archive.with_suffix(f".{os.getpid()}"), lock)
