"""The journals of a plan, each read once, for steps that only look."""

from __future__ import annotations

from typing import Final

from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Journal

_KEPT_BYTES: Final = 16 << 20
"""Most bytes of journals that are remembered; 2,000 partitions of three changes each have 4 MB. What does not fit is
read again."""


class JournalsSeen:
    """Reads a journal when it is first asked for, and remembers it.

    Make it under the lock of the log directory, which keeps every other krepair of this host away. Use it only before
    the first change. Whatever changes a partition reads the journal again.
    """

    def __init__(self) -> None:
        self._seen: dict[str, Journal] = {}
        self._left = _KEPT_BYTES

    def of(self, folder: PartitionFolder) -> Journal:
        """The journal of a folder; it is not to be changed.

        Raises:
            RefusedError: see ``PartitionFolder.journal``.
            OSError: likewise.
        """
        seen = self._seen.get(folder.private)
        if seen is None:
            seen = folder.journal()
            if 0 < seen.bytes_read <= self._left:  # one that is not there is found missing again at once
                self._left -= seen.bytes_read
                self._seen[folder.private] = seen
        return seen
