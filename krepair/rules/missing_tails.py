"""Missing log tails: logs that end below an offset that the broker has recorded for them.

A broker that stops cleanly flushes its logs first, then writes their recovery points and high watermarks, and at last
the clean-shutdown file. So after such a stop no checkpoint entry may lie above the end of its log, and no index may
lack its ``.log``. The first dirty offset may lie above: it proves nothing.

After a crash the log of a replica may end below its high watermark: the leader has the records. Of an only replica
nobody has them.

Source: ``LogManager.shutdown`` (2.2.1, 3.9), ``ReplicaManager.shutdown``; seen on 2.2.1, 3.9.2 and 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

RULE: Final = "KR312"


class MissingTail(NamedTuple):
    """Partition whose log ends below its recorded offsets.

    Attributes:
        folder: name of the partition folder.
        end: log end offset, the first missing one.
        recorded: highest recorded offset, -1 if only an index shows the loss.
        signs: descriptions of what shows the loss.
        orphans: names of the later index files that lack their log.
        is_alone: True if there is no other replica, and the stop was not clean.
    """

    folder: str
    end: int
    recorded: int
    signs: tuple[str, ...]
    orphans: tuple[str, ...]
    is_alone: bool = False

    @property
    def consent(self) -> str:
        """Value of ``--accept-data-loss`` without which the entries that show the loss must not change."""
        return f"{RULE}:{self.folder}:{self.end}" if self.recorded >= 0 else ""

    @property
    def last(self) -> int:
        """Last missing offset, -1 if unknown."""
        return self.recorded - 1 if self.recorded >= 0 else -1

    @property
    def text(self) -> str:
        """Description of the missing offsets, and of the file that shows them."""
        count = self.recorded - self.end
        known = f"offsets {self.end} to {self.last} are gone, {count} in all"
        offsets = known if self.last >= 0 else f"offsets from {self.end} on are gone"
        stop = "this is the only replica, and its broker" if self.is_alone else "the last clean stop"
        return f"{offsets}: the log ends at {self.end}, {stop} left {', '.join(self.signs)}"


def wrong_consent(text: str, gone: Iterable[MissingTail]) -> str:
    """Return why a value of ``--accept-data-loss`` names no missing tail; empty if it names one."""
    offered = [missing.consent for missing in gone if missing.consent]
    if text in offered:
        return ""
    known = (
        f"type --accept-data-loss {' or '.join(offered)}"
        if offered
        else "no log here ends below its checkpoints"
    )
    return f"--accept-data-loss {text}: nothing of that name is gone; {known}"
