"""The twin of rebuilt ``.txnindex`` files: the aborted transactions of a partition, by a plain replay.

krepair has a kernel that links open transactions in a list (``krepair.kernels.transactions``). This keeps
a dictionary of open transactions, and a heap of their first offsets.

Source: ``ProducerAppendInfo.appendEndTxnMarker``, ``ProducerStateManager.lastStableOffset`` (2.2.1, 2.8, 3.9);
KAFKA-10702 for markers without data.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, txn_index
from krepair.formats.control import ControlType
from krepair.formats.filenames import log_name
from krepair.formats.txn_index import AbortedTxn
from krepair.logdir.reading import read_whole
from tests.twins.logs import LogBatches, LogPath, parts_of

TXN_INDEX_AT_MOST_BYTES = 1 << 30
_NO_MARKER = -2


class AbortedIndex(NamedTuple):
    """The ``.txnindex`` of one segment.

    Attributes:
        base_offset: of the segment.
        path: absolute path of its ``.txnindex``; a file that is not there has no entries.
        original: absolute path of the kept one, empty if there was none. One that is gone was purged.
    """

    base_offset: int
    path: str
    original: str


def aborted_problems(indexes: Sequence[AbortedIndex], logs: Sequence[LogPath], tree: Tree) -> tuple[str, ...]:
    """What is wrong with each file, or empty: at the end of its segment it is held against a replay.

    Args:
        indexes: at most one of each segment.
        logs: of all segments, ascending. A transaction may begin in any of them.
        tree: below which all are.
    """
    replay, wrong = _Replay(), ""
    log_start = logs[0].base_offset if logs else 0
    waiting = deque(sorted(indexes, key=lambda index: index.base_offset))
    found: dict[int, str] = {}

    def hold(index: AbortedIndex) -> None:
        if replay.base_offset != index.base_offset:
            replay.begin(index.base_offset)  # its log is not there
        found[index.base_offset] = wrong or _problem(index, replay, log_start, tree)

    for log in logs:
        while waiting and waiting[0].base_offset < log.base_offset:
            hold(waiting.popleft())
        if not waiting or wrong:
            break
        replay.begin(log.base_offset, keeps=log.base_offset == waiting[0].base_offset)
        for part in parts_of([log], tree, check_crc=False):
            replay.take(part)
            if part.walked.problem:
                name = log_name(part.base_offset)
                wrong = f"{name}, position {part.walked.position}: {part.walked.problem}"
                break
    while waiting:
        hold(waiting.popleft())
    return tuple(found[index.base_offset] for index in indexes)


def _problem(index: AbortedIndex, replay: _Replay, log_start: int, tree: Tree) -> str:
    """What a file is not; empty if all is as it should be."""
    data = _read(index.path, tree) or b""
    damage = txn_index.damage(data, index.base_offset)
    if damage:
        return f"position {damage[0].position}: {damage[0].expected} was expected, found {damage[0].found}"
    original = _read(index.original, tree) if index.original else None
    recorded = None if index.original and original is None else set(txn_index.decode(original or b""))
    return next(_problems(txn_index.decode(data), replay, recorded, log_start), "")


def _read(path: str, tree: Tree) -> bytes | None:
    try:
        return read_whole(path, TXN_INDEX_AT_MOST_BYTES, tree)
    except FileNotFoundError:
        return None


@dataclass
class _Replay:
    """Open transactions by producer, and what ended in the segment at hand, if that is kept.

    Attributes:
        base_offset: of the segment at hand.
        keeps: whether what ends in it is kept.
        aborted: (producer id, offset of the marker) -> the entry of each aborted transaction with data.
        without_data: the same keys, of abort markers without data.
        begun: (first offset, producer id) of each transaction that begins in it.
        compacted: whether records are missing from the log.
    """

    base_offset: int = -1
    keeps: bool = False
    aborted: dict[tuple[int, int], AbortedTxn] = field(default_factory=dict)
    without_data: set[tuple[int, int]] = field(default_factory=set)
    begun: list[tuple[int, int]] = field(default_factory=list)
    compacted: bool = False
    _opened: dict[int, int] = field(default_factory=dict)
    _by_offset: list[tuple[int, int]] = field(default_factory=list)
    _next_offset: int = -1

    def begin(self, base_offset: int, *, keeps: bool = False) -> None:
        """The next segment; what ended in the one before it is forgotten."""
        self.base_offset, self.keeps = base_offset, keeps
        self.aborted, self.without_data, self.begun = {}, set(), []

    def take(self, part: LogBatches) -> None:
        """The next batches."""
        if not len(part.firsts):
            return
        headers, firsts, lasts = part.walked.headers, part.firsts, part.lasts
        before = np.append(self._next_offset if self._next_offset >= 0 else firsts[0], lasts[:-1] + 1)
        short = part.is_v2 & (headers["record_count"] < lasts - firsts + 1)
        self.compacted = self.compacted or bool((firsts > before).any() or short.any())
        self._next_offset = int(lasts[-1]) + 1
        attributes, ids = headers["attributes"], headers["producer_id"]
        control = (attributes & batch_v2.CONTROL) != 0
        data = ~control & ((attributes & batch_v2.TRANSACTIONAL) != 0)
        mine = part.is_v2 & (ids >= 0) & (data | (control & (headers["record_count"] > 0)))
        markers = np.flatnonzero(mine & control)
        types = np.full(len(firsts), _NO_MARKER, np.int64)
        types[markers] = part.marker_types(markers)
        columns = (ids[mine].tolist(), firsts[mine].tolist(), types[mine].tolist())
        for producer_id, first, kind in zip(*columns, strict=True):
            if kind == _NO_MARKER:
                if producer_id not in self._opened:
                    self._opened[producer_id] = first
                    heappush(self._by_offset, (first, producer_id))
                    self.begun += [(first, producer_id)] if self.keeps else []
            elif kind in (ControlType.ABORT, ControlType.COMMIT):
                self._end(producer_id, first, aborted=kind == ControlType.ABORT)

    def _end(self, producer_id: int, offset: int, *, aborted: bool) -> None:
        first = self._opened.pop(producer_id, -1)
        if not aborted or not self.keeps:
            return
        if first < 0:
            self.without_data.add((producer_id, offset))
            return
        entry = AbortedTxn(txn_index.VERSION, producer_id, first, offset, self._stable(offset + 1))
        self.aborted[producer_id, offset] = entry

    def _stable(self, end: int) -> int:
        """First offset of the earliest transaction that is open, else the end of the log."""
        while self._by_offset:
            first, producer_id = self._by_offset[0]
            if self._opened.get(producer_id) == first:
                return first
            heappop(self._by_offset)  # it has ended
        return end


def _problems(
    entries: tuple[AbortedTxn, ...], replay: _Replay, recorded: set[AbortedTxn] | None, log_start: int
) -> Iterator[str]:
    left = dict(replay.aborted)
    for number, entry in enumerate(entries):
        where = f"position {number * txn_index.ENTRY_SIZE}"
        key = (entry.producer_id, entry.last_offset)
        expected = left.pop(key, None)
        if expected is None:
            if key not in replay.without_data:
                yield f"{where}: no transaction of producer {key[0]} was aborted at offset {key[1]}"
        elif entry != expected and not _may_differ(entry, expected, replay, recorded, log_start):
            wants = f"first offset {expected.first_offset}, last stable offset {expected.last_stable_offset}"
            found = f"{entry.first_offset} and {entry.last_stable_offset}"
            yield f"{where}: {wants} were expected, found {found}"
    for producer_id, offset in left:
        yield f"the transaction of producer {producer_id} that was aborted at offset {offset} is missing"


def _may_differ(
    entry: AbortedTxn,
    expected: AbortedTxn,
    replay: _Replay,
    recorded: set[AbortedTxn] | None,
    log_start: int,
) -> bool:
    """Whether the entry was recorded, and tells of what the log has lost since, or what a follower sees.

    A follower that catches up enters a whole fetch, and then asks for each end in it which transaction of another
    producer is open. So one that begins behind the end counts, if none before it is open (``UnifiedLog.append``, 3.9).
    """
    if recorded is not None and entry not in recorded:
        return False
    below = entry.first_offset < log_start
    if replay.compacted or (below and 0 <= entry.last_stable_offset <= expected.last_stable_offset):
        return True
    if not below and entry.first_offset != expected.first_offset:
        return False
    behind = (first for first, who in replay.begun if first > entry.last_offset and who != entry.producer_id)
    is_alone = expected.last_stable_offset == expected.last_offset + 1
    return is_alone and entry.last_stable_offset == next(behind, -1)
