"""Result of a simulated start: one partition after the next start, for each version that may start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from krepair.engine.items import Failed
from krepair.formats.broker_version import Version, VersionNumber, version_text

Answer = TypeVar("Answer")


class LoadedLog(NamedTuple):
    """One partition after the start of one version has loaded it.

    Attributes:
        file: name of the file that ends the start, empty if the log is loaded.
        failure: fault that the broker finds in that file.
        recovered: base offsets of the recovered segments, ascending.
        bytes_read: log bytes of the recovered segments, as they are before the recovery.
        segments: (base offset, log bytes) of the segments after the start, ascending; swaps are renamed.
        log_end: log end offset after the start; -1 if the start fails, or if it depends on logs that were not read.
        snapshot_offset: offset of the producer snapshot that is loaded, -1 if none is; if segments are recovered,
            offset of the snapshot with which the first recovery begins.
        unread: offsets of the snapshots that a start without recovery deletes unread, ascending.
        unreadable: offsets of the snapshots that are deleted because they cannot be read, ascending.
        cut: (base offset, bytes that are kept) of each truncated log, ascending.
        dropped: base offsets of the deleted segments, except those that a swap replaces, ascending.
        producers: number of producers that the broker knows, if all batches after the snapshot were replayed; -1 if the
            broker begins without producers, because no snapshot is left after a clean stop.
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
    producers: int = 0


@dataclass(frozen=True)
class NextStart:
    """Next start of one partition, for every version that may start.

    Attributes:
        by_version: loaded log by version; empty if the start cannot be predicted.
        unread: reason why the start cannot be predicted, or None.
        is_simulated: True if the start was simulated because something is wrong; else the log is loaded as it is.
    """

    by_version: Mapping[VersionNumber, LoadedLog] = field(default_factory=dict)
    unread: Failed | None = None
    is_simulated: bool = True

    def agreed(self, question: Callable[[LoadedLog], Answer]) -> Answer | None:
        """Return the answer that all versions give; None if they differ or the start cannot be predicted."""
        answers = [question(loaded) for loaded in self.by_version.values()]
        return answers[0] if answers and all(answer == answers[0] for answer in answers) else None

    def of(self, version: Version) -> LoadedLog | None:
        """Return the start of a version, or of the newest if it is unknown; None if it cannot be predicted."""
        if version is None and self.by_version:
            return self.by_version[max(self.by_version)]
        return None if version is None else self.by_version.get(version)

    def differs(self, question: Callable[[LoadedLog], object]) -> str:
        """Return the differing answers of the versions with a request for the version; empty if all agree."""
        answers = {
            version: question(loaded)
            for version, loaded in sorted(self.by_version.items())
            if not loaded.failure
        }
        if len(set(answers.values())) < 2:
            return ""
        each = ", ".join(f"{version_text(version)}: {answer}" for version, answer in answers.items())
        return f"this depends on the version of the broker ({each}); give --broker-version"

    @property
    def log_end(self) -> int | None:
        """Log end offset that all starting versions agree on, else None."""
        ends = {loaded.log_end for loaded in self.by_version.values() if not loaded.failure}
        return ends.pop() if len(ends) == 1 and -1 not in ends else None
