"""Whether the indexes of a segment are true: each entry against the batches of the ``.log``, window by window.

Truth, not equality with a rebuild: a live broker's time index names the record's own offset where recovery names the
batch's last, and its offset index follows whole appends. Independent of the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krepair.checks.walk import Walked
from krepair.formats import batch_v2

Int64s = np.ndarray[Any, np.dtype[np.int64]]
Problem = tuple[str, int, str]


@dataclass
class CompanionAudit:
    """Feed it the windows of a log in order, then ask for ``finish``.

    Attributes:
        base_offset: of the segment.
        offsets: int64[N, 2] (absolute offset, position) of the ``.index``.
        times: int64[N, 2] (timestamp, absolute offset) of the ``.timeindex``.
        aborted: int64[N, 2] (producer id, offset of the abort marker) of the ``.txnindex``.
        problems: (suffix, byte of the file, what is wrong), one per kind and window at most.
    """

    base_offset: int
    offsets: Int64s
    times: Int64s
    aborted: Int64s
    problems: list[Problem] = field(default_factory=list)
    _next_offset: int = 0
    _next_time: int = 0
    _next_aborted: int = 0
    _largest: int = -1
    _last_offset: int = -1

    def __post_init__(self) -> None:
        """Entries must ascend before they can be walked."""
        for suffix, entries, size in ((".index", self.offsets, 8), (".timeindex", self.times, 12)):
            back = np.flatnonzero((np.diff(entries, axis=0) < 0).any(axis=1))
            if len(back):
                self.problems.append(
                    (suffix, int(back[0] + 1) * size, "the entry is below the one before it")
                )

    def feed(self, walked: Walked) -> None:
        """Check the entries that belong to these batches."""
        if len(walked.positions) == 0:
            return
        base = walked.headers["base_offset"].astype(np.int64)
        last = base + walked.headers["last_offset_delta"].astype(np.int64)
        stamps = walked.headers["max_timestamp"].astype(np.int64)
        # a wrapper of v0 or v1 names its last message only: it can begin right after what is before it
        old = walked.headers["magic"] < batch_v2.MAGIC
        lowest = np.where(old, np.append(self._last_offset, last[:-1]) + 1, base) if old.any() else base
        self._feed_offsets(walked.positions, lowest)
        self._feed_times(lowest, last, stamps)
        self._feed_aborted(walked, base)
        self._last_offset = int(last[-1])
        self._largest = max(self._largest, int(stamps.max()))

    def _feed_offsets(self, positions: Int64s, base: Int64s) -> None:
        end = int(np.searchsorted(self.offsets[:, 1], positions[-1], side="right"))
        mine = self.offsets[self._next_offset : end]
        at = np.minimum(np.searchsorted(positions, mine[:, 1]), len(positions) - 1)
        wrong = (positions[at] != mine[:, 1]) | (base[at] > mine[:, 0])
        self._note(
            ".index",
            wrong,
            self._next_offset,
            8,
            "the entry does not point at a batch that its offset can be found from",
        )
        self._next_offset = max(end, self._next_offset)

    def _feed_times(self, base: Int64s, last: Int64s, stamps: Int64s) -> None:
        end = int(np.searchsorted(self.times[:, 1], last[-1], side="right"))
        mine = self.times[self._next_time : end]
        at = np.minimum(np.searchsorted(last, mine[:, 1]), len(last) - 1)
        wrong = (base[at] > mine[:, 1]) | (last[at] < mine[:, 1]) | (stamps[at] < mine[:, 0])
        self._note(
            ".timeindex",
            wrong,
            self._next_time,
            12,
            "the entry names an offset whose batch has no such timestamp",
        )
        self._next_time = max(end, self._next_time)

    def _feed_aborted(self, walked: Walked, base: Int64s) -> None:
        end = int(np.searchsorted(self.aborted[:, 1], base[-1], side="right"))
        mine = self.aborted[self._next_aborted : end]
        at = np.minimum(np.searchsorted(base, mine[:, 1]), len(base) - 1)
        control = (walked.headers["attributes"][at] & batch_v2.CONTROL) != 0
        wrong = (base[at] != mine[:, 1]) | ~control | (walked.headers["producer_id"][at] != mine[:, 0])
        self._note(".txnindex", wrong, self._next_aborted, 34, "the entry names no marker of that producer")
        self._next_aborted = max(end, self._next_aborted)

    def _note(self, suffix: str, wrong: Any, first: int, size: int, text: str) -> None:
        if wrong.any():
            self.problems.append((suffix, (first + int(np.argmax(wrong))) * size, text))

    def finish(self) -> list[Problem]:
        """All problems, once the whole log was fed."""
        rest = (
            (".index", self._next_offset, len(self.offsets), 8),
            (".timeindex", self._next_time, len(self.times), 12),
            (".txnindex", self._next_aborted, len(self.aborted), 34),
        )
        for suffix, following, count, size in rest:
            if following < count:
                self.problems.append((suffix, following * size, "the entry lies past the end of the log"))
        if len(self.times) and self._largest > int(self.times[-1, 0]):
            text = f"the last entry's timestamp is {self.times[-1, 0]}, the log's largest is {self._largest}"
            self.problems.append((".timeindex", (len(self.times) - 1) * 12, text))
        return self.problems
