"""The result of a simulated start: what the next start of each version sees of one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from krepair.engine.items import Failed
from krepair.formats.broker_version import Version, VersionNumber, version_text

Answer = TypeVar("Answer")


class LoadedLog(NamedTuple):
    """One partition as the start of one version has loaded it.

    Attributes:
        file: the file that ends the start, empty if the log is loaded.
        failure: what the broker finds in that file.
        recovered: base offsets of the segments that are recovered, ascending.
        bytes_read: of their logs, as they are before the recovery.
        segments: (base offset, bytes of the log) of the segments after the start, ascending; swaps are renamed.
        log_end: log end offset that the start takes, -1 if it fails, or if that depends on logs that were not read.
        snapshot_offset: offset of the producer snapshot that is loaded, -1 if none is; of a start that recovers, of
            the one with which the first recovery begins.
        unread: offsets of the snapshots that a start which recovers nothing deletes unread, ascending.
        unreadable: offsets of the snapshots that are deleted because they cannot be read, ascending.
        cut: (base offset, bytes that stay) of each log that is truncated, ascending.
        dropped: base offsets of the segments that are deleted, but for those that a swap replaces, ascending.
    """

    file: str = ""
    failure: str = ""
    recovered: tuple[int, ...] = ()
    bytes_read: int = 0
    segments: tuple[tuple[int, int], ...] = ()
    log_end: int = -1
    snapshot_offset: int = -1
    unread: tuple[int, ...] = ()
    unreadable: tuple[int, ...] = ()
    cut: tuple[tuple[int, int], ...] = ()
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True)
class NextStart:
    """The next start of one partition, for every version that may start.

    Attributes:
        by_version: the loaded log of each version; empty where nothing can be told.
        unread: why nothing can be told, or None.
        is_simulated: whether the start was simulated, since something is wrong; else the log is loaded as it is.
    """

    by_version: Mapping[VersionNumber, LoadedLog] = field(default_factory=dict)
    unread: Failed | None = None
    is_simulated: bool = True

    def agreed(self, question: Callable[[LoadedLog], Answer]) -> Answer | None:
        """Return the answer that all versions give; None where they differ, or nothing can be told."""
        answers = [question(one) for one in self.by_version.values()]
        return answers[0] if answers and all(one == answers[0] for one in answers) else None

    def of(self, version: Version) -> LoadedLog | None:
        """Return the start of a version; of an unknown one that of the newest; None if nothing can be told."""
        if version is None and self.by_version:
            return self.by_version[max(self.by_version)]
        return None if version is None else self.by_version.get(version)

    def differs(self, question: Callable[[LoadedLog], object]) -> str:
        """Return what each version that starts answers, and ask for the version, where they differ; else nothing."""
        answers = {
            version: question(one) for version, one in sorted(self.by_version.items()) if not one.failure
        }
        if len(set(answers.values())) < 2:
            return ""
        each = ", ".join(f"{version_text(version)}: {answer}" for version, answer in answers.items())
        return f"this depends on the version of the broker ({each}); give --broker-version"

    @property
    def log_end(self) -> int | None:
        """Log end offset for the versions that start, None where they differ or it cannot be told."""
        ends = {one.log_end for one in self.by_version.values() if not one.failure}
        return ends.pop() if len(ends) == 1 and -1 not in ends else None
