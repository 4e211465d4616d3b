"""The result of a simulated start: what the next start of each version sees of one partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from krepair.engine.items import Failed
from krepair.formats.broker_version import VersionNumber, version_text

Answer = TypeVar("Answer")


class LoadedLog(NamedTuple):
    """One partition as the start of one version has loaded it.

    Attributes:
        file: the file that ends the start, empty if the log is loaded.
        failure: what the broker finds in that file.
        recovered: base offsets of the segments that are recovered, ascending.
        segments: (base offset, bytes of the log) of the segments after the start, ascending; swaps are renamed.
        log_end: log end offset that the start takes, -1 if it fails.
        snapshot_offset: offset of the producer snapshot that is loaded, -1 if none is.
        cut: (base offset, bytes that stay) of each log that is truncated, ascending.
        dropped: base offsets of the segments that are deleted, but for those that a swap replaces, ascending.
    """

    file: str = ""
    failure: str = ""
    recovered: tuple[int, ...] = ()
    segments: tuple[tuple[int, int], ...] = ()
    log_end: int = -1
    snapshot_offset: int = -1
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

    def differs(self, question: Callable[[LoadedLog], object]) -> str:
        """Return what each version answers, and ask for the version, where they differ; else an empty text."""
        answers = {version: question(one) for version, one in sorted(self.by_version.items())}
        if len(set(answers.values())) < 2:
            return ""
        each = ", ".join(f"{version_text(version)}: {answer}" for version, answer in answers.items())
        return f"this depends on the version of the broker ({each}); give --broker-version"

    @property
    def log_end(self) -> int | None:
        """Log end offset, None where versions differ or it cannot be told."""
        return self.agreed(lambda one: one.log_end)
