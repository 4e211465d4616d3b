"""The twin of a ``leader-epoch-checkpoint``: its answers against every batch, its lines against the original.

krepair merges lines (``krepair.rules.epochs``). This one asks, batch by batch, which epoch the new file names
for its offsets, and whether each line of it comes from somewhere.

Source: ``LeaderEpochFileCache.endOffsetFor`` (2.2.1, 3.9): the entry in force at an offset is the last that starts at
or below it; KIP-101.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats.arrays import Int64s
from krepair.formats.checkpoint import EpochEntry, decode_epochs, encode_epochs
from tests.twins.logs import LogBatches, LogPath, parts_of

_LINE = re.compile(rb"([0-9]+)[ \t]+([0-9]+)")
_NO_EPOCH = -1


class MadeOf(NamedTuple):
    """What a new leader epoch checkpoint was made of.

    Attributes:
        original: bytes of the file that it has replaced, None if there was none.
        original_is_known: whether that is to be had still.
        logs: of its segments, ascending, at least one.
        logs_are_whole: whether these logs are as they were then. If not, batches may be missing, and it is only asked
            whether the file names the right epochs for those that are there.
        log_start: what ``log-start-offset-checkpoint`` says of the partition, -1 if nothing.
        compacts: whether the topic is compacted.
        zero_counts: whether the broker writes epoch 0 (2.7 and later).
    """

    original: bytes | None
    logs: tuple[LogPath, ...]
    tree: Tree
    log_start: int = -1
    compacts: bool = False
    original_is_known: bool = True
    logs_are_whole: bool = True
    zero_counts: bool = True


def epoch_problems(data: bytes, made_of: MadeOf) -> list[str]:
    """What every batch header of the partition has against the bytes of a new file."""
    found = decode_epochs(data)
    if found.damage or encode_epochs(found.entries) != data:
        text = found.damage[0].expected if found.damage else "the bytes that a broker writes"
        return [f"{text} was expected"]
    log = _Log(made_of, found.entries, _log_start(made_of))
    for part in parts_of(made_of.logs, made_of.tree, check_crc=True):
        log.take(part)
    recorded = _Recorded.of(made_of.original) if made_of.original_is_known else None
    log.done(recorded.lines if recorded else found.entries)
    return list(_problems(made_of, found.entries, log, recorded))


def _log_start(made_of: MadeOf) -> int:
    """The recorded log start, if it lies in the log; else the first segment's base offset."""
    first, end = made_of.logs[0].base_offset, made_of.logs[-1].base_offset
    for part in parts_of(made_of.logs[-1:], made_of.tree, check_crc=True):
        end = max([end, *(part.lasts[-1:] + 1).tolist()])
    return made_of.log_start if first < made_of.log_start <= end else first


class _Recorded(NamedTuple):
    """What the original said, read leniently.

    Attributes:
        lines: every line of two numbers.
        cut: the last of them, if it has no line end, so that its number may be cut.
        intact: whether nothing of the file itself speaks against it.
    """

    lines: tuple[EpochEntry, ...] = ()
    cut: EpochEntry | None = None
    intact: bool = False

    @classmethod
    def of(cls, data: bytes | None) -> _Recorded:
        if data is None:
            return cls()
        matches = [_LINE.fullmatch(line.strip()) for line in re.split(rb"\r\n|\n|\r", data)]
        lines = tuple(EpochEntry(int(match[1]), int(match[2])) for match in matches if match)
        whole = data.endswith((b"\n", b"\r"))
        cut = None if whole or not matches or not matches[-1] else lines[-1]
        intact = bool(lines) and not decode_epochs(data).damage
        return cls(lines, cut, intact)


class _Misnamed(NamedTuple):
    """A batch whose offsets the new file gives to another epoch.

    Attributes:
        offset: first of its offsets that counts.
        shown: its epoch, or the greatest before it.
        named: entry in force there, None if there is none.
    """

    offset: int
    shown: int
    named: EpochEntry | None


class _Rise(NamedTuple):
    """A batch whose epoch is greater than that of all before it."""

    epoch: int
    first: int
    before: int


class _Log:
    """What the batches show; those below the log start count for the greatest epoch only."""

    def __init__(self, made_of: MadeOf, entries: Sequence[EpochEntry], start: int) -> None:
        self.entries = entries
        self.starts = np.array([entry.start_offset for entry in entries], np.int64)
        self.epochs = np.array([_NO_EPOCH, *(entry.epoch for entry in entries)], np.int64)
        self.start = start
        self.compacted = made_of.compacts
        self.damaged = False
        self.last, self.end = -1, made_of.logs[0].base_offset
        self.epoch_starts: list[_Rise] = []
        self.misnamed: list[_Misnamed] = []
        self._segment = -1
        self._batches: list[tuple[Int64s, Int64s, Int64s]] = []
        self.doubted: set[tuple[int, int]] = set()

    def take(self, part: LogBatches) -> None:
        """The next batches."""
        if part.base_offset != self._segment:
            self.compacted = self.compacted or 0 <= self.last < part.base_offset - 1
            self._segment = part.base_offset
            self.end = max(self.end, part.base_offset)
        self.damaged = self.damaged or bool(part.walked.problem)
        self.compacted = self.compacted or bool(part.walked.problem)
        if not len(part.firsts):
            return
        epochs = np.where(part.is_v2, part.walked.headers["partition_leader_epoch"], _NO_EPOCH).astype(
            np.int64
        )
        self._batches.append((part.firsts, part.lasts, epochs))
        self.last = int(part.lasts[-1])
        self.end = max(self.end, self.last + 1)

    def done(self, lines: Sequence[EpochEntry]) -> None:
        """There are no more batches: each neighbour is known, and so are the lines of the file."""
        if not self._batches:
            return
        firsts, lasts, epochs = (np.concatenate(column) for column in zip(*self._batches, strict=True))
        believed = epochs.copy()
        known = np.flatnonzero(epochs != _NO_EPOCH).tolist()
        for at, number in enumerate(known):
            around = [int(epochs[other]) for other in (*known[max(at - 1, 0) : at], *known[at + 1 : at + 2])]
            epoch = int(epochs[number])
            last_but_higher = not around or (epoch > around[0] and at + 1 == len(known))
            first_but_lower = not around or (epoch < around[0] and at == 0)
            peak, valley = all(epoch > one for one in around), all(epoch < one for one in around)
            begun = {line.epoch for line in lines if line.start_offset == firsts[number]}
            alone = epoch not in around and bool(begun) and epoch not in begun
            if alone or (peak and not last_but_higher) or (valley and not first_but_lower):
                believed[number] = _NO_EPOCH
                self.doubted.add((epoch, int(firsts[number])))
        shown = np.maximum.accumulate(believed)
        befores = np.append(-1, lasts[:-1])
        for number in np.flatnonzero((believed == _NO_EPOCH) & (epochs != _NO_EPOCH)).tolist():
            befores[number + 1 : number + 2] = befores[number]
        previous = np.append(_NO_EPOCH, shown[:-1])
        for at in np.flatnonzero(shown > previous).tolist():
            self.epoch_starts.append(_Rise(int(shown[at]), int(firsts[at]), int(befores[at])))
        sure = believed == epochs
        self.last = max(lasts[sure].tolist(), default=-1)
        self._name(np.maximum(firsts, self.start)[sure], lasts[sure], shown[sure])

    def _name(self, firsts: Int64s, lasts: Int64s, shown: Int64s) -> None:
        for offsets in (firsts, lasts):
            force = np.searchsorted(self.starts, offsets, side="right")
            wrong = (self.epochs[force] != shown) & (lasts >= self.start)
            # one of each stretch is enough to tell
            edges = wrong & np.append(
                True, (force[1:] != force[:-1]) | (shown[1:] != shown[:-1]) | ~wrong[:-1]
            )
            for at in np.flatnonzero(edges).tolist():
                entry = self.entries[int(force[at]) - 1] if force[at] else None
                self.misnamed.append(_Misnamed(int(offsets[at]), int(shown[at]), entry))


def _problems(
    made_of: MadeOf, entries: Sequence[EpochEntry], log: _Log, recorded: _Recorded | None
) -> Iterator[str]:
    for entry in entries:
        if entry.start_offset < 0 or entry.epoch < 0:
            yield f"epoch {entry.epoch} starts at {entry.start_offset}: a negative number"
        if entry.start_offset > log.end and not log.damaged and made_of.logs_are_whole:
            yield f"epoch {entry.epoch} starts at {entry.start_offset}, past the log end {log.end}"
    for one in log.misnamed:
        if not _may_be(made_of, one, log, recorded):
            named = f"epoch {one.named.epoch}" if one.named else "no epoch"
            yield f"offset {one.offset} is of epoch {one.shown}, the file gives it to {named}"
            break
    if recorded is not None and made_of.logs_are_whole:
        yield from _invented(entries, log, recorded)
        yield from _dropped(entries, log, recorded)


def _may_be(made_of: MadeOf, one: _Misnamed, log: _Log, recorded: _Recorded | None) -> bool:
    """Whether the file may name another epoch: without one, for epoch 0, or as compaction leaves room for."""
    if one.shown == _NO_EPOCH:
        return True
    if one.named is None and one.shown == 0:
        left_out = recorded is None or (recorded.intact and all(line.epoch for line in recorded.lines))
        if left_out or not made_of.zero_counts:
            return True
    # Where a line of the original speaks against batches of a compacted log, the merge keeps the line.
    return log.compacted and (recorded is None or not all(_agrees(line, log) for line in recorded.lines))


def _agrees(line: EpochEntry, log: _Log) -> bool:
    """Whether no batch speaks against a line: none of a lower epoch at its start or later, none of it before."""
    if tuple(line) in log.doubted:
        return True
    start = max(line.start_offset, log.start)
    epoch_start = next(
        (epoch_start for epoch_start in log.epoch_starts if epoch_start.epoch >= line.epoch), None
    )
    if epoch_start is None:
        return start > log.last
    return epoch_start.before < start <= max(epoch_start.first, log.start)


def _invented(entries: Sequence[EpochEntry], log: _Log, recorded: _Recorded) -> Iterator[str]:
    shown = {(epoch_start.epoch, max(epoch_start.first, log.start)) for epoch_start in log.epoch_starts}
    for entry in entries:
        if tuple(entry) not in shown and entry not in recorded.lines:
            yield f"epoch {entry.epoch} at {entry.start_offset} is neither in the log nor in the original"


def _dropped(entries: Sequence[EpochEntry], log: _Log, recorded: _Recorded) -> Iterator[str]:
    """Lines of the original that nothing speaks against, and that are gone."""
    epochs = [entry.epoch for entry in entries]
    for line in recorded.lines:
        at = bisect_left(epochs, line.epoch)
        there = at < len(epochs) and epochs[at] == line.epoch
        if there or line == recorded.cut or line.start_offset > log.end:
            continue
        fits = (at == 0 or entries[at - 1].start_offset < line.start_offset) and (
            at == len(entries) or line.start_offset < entries[at].start_offset
        )
        if fits and _agrees(line, log):
            yield f"epoch {line.epoch} at {line.start_offset} of the original is gone, and nothing speaks against it"
