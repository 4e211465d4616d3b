"""Ends of logs that are gone: what the last clean stop recorded, and the log does not have. Pure.

A broker that stops cleanly writes out its logs first, then their recovery points and high watermarks, at last the
marker. So after such a stop no line may lie above the end of its log, and no index without its ``.log``. The first
offset that the cleaner has not cleaned may: it proves nothing.

Source: ``LogManager.shutdown`` (2.2.1, 3.9), ``ReplicaManager.shutdown``; seen on 2.2.1, 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

RULE: Final = "KR312"


class GoneEnd(NamedTuple):
    """One partition whose log ends below what was recorded of it.

    Attributes:
        folder: of the partition.
        end: log end offset, the first that is gone.
        recorded: the highest offset that a line has, -1 if only an index tells.
        said: what tells, in words.
        orphans: names of the indexes from there on that are without their log.
    """

    folder: str
    end: int
    recorded: int
    said: tuple[str, ...]
    orphans: tuple[str, ...]

    @property
    def consent(self) -> str:
        """What has to be typed after ``--accept-data-loss`` before the lines that tell it are changed."""
        return f"{RULE}:{self.folder}:{self.end}" if self.recorded >= 0 else ""

    @property
    def last(self) -> int:
        """The last offset that is gone, -1 if that is not known."""
        return self.recorded - 1 if self.recorded >= 0 else -1

    @property
    def text(self) -> str:
        """What is gone, and what tells it."""
        offsets = f"offsets {self.end} to {self.last}" if self.last >= 0 else f"offsets from {self.end} on"
        return (
            f"{offsets} are gone: the log ends at {self.end}, the last clean stop left {', '.join(self.said)}"
        )


def wrong_consent(text: str, gone: Iterable[GoneEnd]) -> str:
    """Why a consent of this rule means nothing; empty if it names an end that is gone."""
    offered = [one.consent for one in gone if one.consent]
    if text in offered:
        return ""
    known = (
        f"type --accept-data-loss {' or '.join(offered)}"
        if offered
        else "no log here ends below its checkpoints"
    )
    return f"--accept-data-loss {text}: nothing of that name is gone; {known}"
