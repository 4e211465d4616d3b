"""Leader epochs: what is recorded on disk, merged with what the batches of the log show.

A leader writes an entry on becoming leader, before any data; a follower only when it appends; compaction removes the
first batches of an epoch. So an entry without a batch, or earlier than its first batch, is right as long as no batch
contradicts it, and the log alone cannot give it back. Where the two contradict, batches are the proof: the log wins,
unless compaction may have removed the batches that would speak for the entry.

Source: ``LeaderEpochFileCache`` (2.1, 2.3, 3.9): ``assign``, ``truncateFromEnd``, ``truncateFromStart``;
``LogSegment.recover`` (epoch 0 counts from 2.7 on); KIP-101, KIP-279.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from krepair.formats.checkpoint import EpochEntry, decode_epochs, encode_epochs
from krepair.formats.damage import Damage
from krepair.rules.model import SegmentFacts

MOST_BYTES = 64 << 20
"""A file beyond this is no epoch history: a million entries take less."""

_MANY = 20_000
"""No broker has led so often; lines beyond that are not put in one by one where each stands, to stay quick."""

EPOCH_ZERO_SINCE = (2, 7, 0)
NO_EPOCH = -1
_LINE_END = re.compile(rb"\r\n|\n|\r")
_FIRST_LINE_AT_MOST = 4096


class EpochReason(StrEnum):
    """Why an entry is in the merged file, or is not."""

    RECORDED = "recorded"
    FOLDED = "recorded, moved up to the log start"
    LOG = "from the log"
    LOG_LATE = "from the log, may start late"
    UNPROVEN = "recorded, against batches of a compacted log"
    NEGATIVE = "negative"
    PAST_END = "past the log end"
    BEFORE_START = "before the log start"
    CONTRADICTED = "contradicted by a batch"
    CUT = "last line cut"
    REPEATED = "repeated"
    NO_DATA = "no data was written under it"
    DISORDER = "out of order with a later line"
    EPOCH_ZERO = "epoch 0, which this version leaves out"


_IN = frozenset(
    {EpochReason.RECORDED, EpochReason.FOLDED, EpochReason.LOG, EpochReason.LOG_LATE, EpochReason.UNPROVEN}
)
_TRIVIAL = frozenset(
    {
        EpochReason.PAST_END,
        EpochReason.BEFORE_START,
        EpochReason.REPEATED,
        EpochReason.NO_DATA,
        EpochReason.FOLDED,
    }
)
"""What a broker does itself on loading, and what takes no answer away from a follower."""

_CONFLICTS = frozenset(
    {EpochReason.CONTRADICTED, EpochReason.DISORDER, EpochReason.UNPROVEN, EpochReason.NEGATIVE}
)


class Recorded(NamedTuple):
    """A ``leader-epoch-checkpoint`` as it is on disk.

    Attributes:
        exists: whether the file is there.
        entries: those that could be read, in the file's order.
        damage: what is wrong with the file itself.
        broker_reads: whether a broker would take it; a missing file is created.
        cut: whether the last entry has no line end, so that its number may be cut.
    """

    exists: bool
    entries: tuple[EpochEntry, ...] = ()
    damage: tuple[Damage, ...] = ()
    broker_reads: bool = True
    cut: bool = False

    @property
    def intact(self) -> bool:
        """Whether it holds a history that nothing of the file itself speaks against."""
        return bool(self.entries) and not self.damage


class Rise(NamedTuple):
    """A batch whose leader epoch is greater than that of every batch before it.

    Attributes:
        epoch: its leader epoch.
        first_offset: its base offset.
        before: last offset of the batch before it in the log, -1 if it is the first.
    """

    epoch: int
    first_offset: int
    before: int

    @property
    def exact(self) -> bool:
        """Whether no offset is missing before it, so that the epoch cannot have begun earlier."""
        return self.before + 1 == self.first_offset


class LogEpochs(NamedTuple):
    """What the log says.

    Attributes:
        rises: ascending in epoch and offset.
        last_offset: last offset of the last batch, -1 if there is none.
        start: log start offset.
        end: log end offset, None where damage hides it.
        compacted: whether batches may have been removed from between the others.
    """

    rises: tuple[Rise, ...]
    last_offset: int
    start: int
    end: int | None
    compacted: bool


class EpochDecision(NamedTuple):
    """One entry and what becomes of it.

    Attributes:
        reason: why.
        epoch: the leader epoch.
        recorded: start offset as recorded, None if it is not recorded.
        shown: offset of the first batch of this or a later epoch that the log shows, None if it shows none.
        start: start offset in the merged file, None if it is not in it.
    """

    reason: EpochReason
    epoch: int
    recorded: int | None
    shown: int | None
    start: int | None

    @property
    def trivial(self) -> bool:
        """Whether a broker does the same on loading, or no answer to a follower changes."""
        return self.reason in _TRIVIAL

    @property
    def conflict(self) -> bool:
        """Whether the recorded entry and something else cannot both be right."""
        return self.reason in _CONFLICTS

    @property
    def text(self) -> str:
        """One line with both sides."""
        recorded = "is not recorded" if self.recorded is None else f"is recorded to start at {self.recorded}"
        shown = (
            "no batch of it or a later one"
            if self.shown is None
            else f"its first batch or a later one's at {self.shown}"
        )
        becomes = "dropped" if self.start is None else f"starts at {self.start}"
        return f"epoch {self.epoch} {recorded}, the log has {shown}: {becomes} ({self.reason.value})"


class MergedEpochs(NamedTuple):
    """The merged history.

    Attributes:
        entries: growing in epoch and start offset: every broker loads them.
        decisions: one for each entry that is recorded or that the log shows, by epoch.
        needed: whether the file on disk has to be replaced to say this.
    """

    entries: tuple[EpochEntry, ...]
    decisions: tuple[EpochDecision, ...]
    needed: bool

    @property
    def data(self) -> bytes:
        """The file as a broker writes it."""
        return encode_epochs(self.entries)

    @property
    def may_be_late(self) -> tuple[int, ...]:
        """Epochs whose start is only that of their first batch left."""
        return tuple(one.epoch for one in self.decisions if one.reason is EpochReason.LOG_LATE)


class SeenEpochs(NamedTuple):
    """All that is known about one partition's leader epochs.

    Attributes:
        recorded: what is on disk.
        merged: what should be there.
        digest: of the file's bytes, empty without a file.
        left: why the file is not to be replaced, or empty.
    """

    recorded: Recorded
    merged: MergedEpochs
    digest: str
    left: str = ""

    @property
    def mends(self) -> bool:
        """Whether the file has to be replaced and may be."""
        return self.merged.needed and not self.left


def read_recorded(data: bytes | None) -> Recorded:
    """Read the file; lines under a wrong version are read too, each is held against the log anyway.

    Args:
        data: its bytes, None if there is no file.
    """
    if data is None:
        return Recorded(exists=False)
    found = decode_epochs(data)
    entries = found.entries
    if not entries and found.damage and not found.broker_reads:
        head = _LINE_END.search(data[: _FIRST_LINE_AT_MOST + 2])
        if head is not None:
            entries = decode_epochs(b"0\n" + data[head.end() :]).entries
    cut = bool(data) and data[-1:] not in {b"\n", b"\r"}
    return Recorded(True, entries, found.damage, found.broker_reads, cut and _last_line_is_entry(data))


def _last_line_is_entry(data: bytes) -> bool:
    tail = _LINE_END.split(data[-_FIRST_LINE_AT_MOST:])[-1]
    return bool(decode_epochs(b"0\n1\n" + tail).entries)


def epochs_of_log(segments: Sequence[SegmentFacts], log_start: int, *, compacted: bool) -> LogEpochs:
    """Put the segments' rises together; an epoch counts where it rises above all before it, as in recovery.

    Args:
        segments: all of the partition, ascending.
        log_start: its log start offset.
        compacted: whether the topic is compacted. A gap between two segments says so too, and batches hidden behind
            damage count as compacted away.
    """
    rises: list[Rise] = []
    highest, last, end = NO_EPOCH, -1, 0
    for facts in segments:
        summary = facts.summary
        for epoch, first, before in summary.epochs.tolist():
            if epoch > highest:
                rises.append(Rise(epoch, first, last if before < facts.base_offset else before))
                highest = epoch
        if summary.batches:
            compacted = compacted or 0 <= last < facts.base_offset - 1
            last = summary.last_offset
        compacted = compacted or summary.damage != 0
        end = max(facts.base_offset, last + 1)
    hidden = bool(segments) and segments[-1].summary.damage != 0
    return LogEpochs(tuple(rises), last, log_start, None if hidden else end, compacted)


def clears_history(segments: Sequence[SegmentFacts]) -> bool:
    """Whether messages of v0 or v1 may follow batches of v2: appending one makes a broker forget all epochs."""
    seen = False
    for facts in segments:
        summary = facts.summary
        if summary.old_batches and (seen or (len(summary.epochs) and summary.old_position > 0)):
            return True
        seen = seen or len(summary.epochs) > 0
    return False


def writes_epoch_zero(version: tuple[int, int, int] | None) -> bool:
    """Whether a broker of this version takes epoch 0 from the log; an unknown one counts as a newer one."""
    return version is None or version >= EPOCH_ZERO_SINCE


def merge_epochs(
    recorded: Recorded, log: LogEpochs, version: tuple[int, int, int] | None = None
) -> MergedEpochs:
    """Merge; pure, and it comes to rest: merged again, the result is the same.

    Args:
        recorded: the file.
        log: what the batches say.
        version: of the broker that will read it, None if not known.
    """
    rises = _from_log_start(log)
    rising = [rise.epoch for rise in rises]
    history = _History()
    lines = recorded.entries
    if len(lines) > _MANY:
        lines = tuple(sorted(lines))
    for entry in lines:
        at = bisect_left(rising, entry.epoch)
        rise = rises[at] if at < len(rises) else None
        is_cut = recorded.cut and entry == recorded.entries[-1]
        decision = _judge(entry, rise, log, is_cut=is_cut)
        if decision.start is None:
            history.gone.append(decision)
        else:
            history.assign(decision)
    _add_from_log(rises, log, history, with_zero=writes_epoch_zero(version))
    history.fold(log.start)
    entries = tuple(EpochEntry(one.epoch, one.start) for one in history.kept if one.start is not None)
    everything = sorted(
        [*history.gone, *history.kept], key=lambda one: (one.epoch, one.start is None, one.recorded or 0)
    )
    if recorded.intact and _only_epoch_zero_is_new(entries, recorded.entries):
        entries = recorded.entries
        everything = [one for one in everything if one.epoch != 0]
    return MergedEpochs(entries, tuple(everything), bool(recorded.damage) or entries != recorded.entries)


def _only_epoch_zero_is_new(entries: tuple[EpochEntry, ...], recorded: tuple[EpochEntry, ...]) -> bool:
    """A history without epoch 0 answers the same questions the same way; a broker before 2.7 makes such ones."""
    return entries[1:] == recorded and entries[0].epoch == 0


def _from_log_start(log: LogEpochs) -> list[Rise]:
    """The rises as they count from the log start on: batches below it are deleted, though still in the segment."""
    below = [rise for rise in log.rises if rise.first_offset <= log.start]
    above = [rise for rise in log.rises if rise.first_offset > log.start]
    return [*(Rise(rise.epoch, log.start, -1) for rise in below[-1:]), *above]


def _judge(entry: EpochEntry, rise: Rise | None, log: LogEpochs, *, is_cut: bool) -> EpochDecision:
    """One recorded entry against the log; ``rise`` is that of its epoch or, without one, of the next."""
    epoch, start = entry
    shown = rise.first_offset if rise else None
    lower = rise.before + 1 if rise else log.last_offset + 1
    if epoch < 0 or start < 0:
        reason = EpochReason.NEGATIVE
    elif log.end is not None and start > log.end:
        reason = EpochReason.PAST_END
    elif max(start, log.start) < lower or (shown is not None and start > shown):
        reason = EpochReason.UNPROVEN if log.compacted else EpochReason.CONTRADICTED
    else:
        reason = EpochReason.RECORDED
    # A number that was cut is too small: what only compaction could explain is then no proof of anything.
    if is_cut and reason in {EpochReason.UNPROVEN, EpochReason.CONTRADICTED}:
        reason = EpochReason.CUT
    if is_cut and log.compacted and start != shown:
        reason = EpochReason.CUT
    return EpochDecision(reason, epoch, start, shown, start if reason in _IN else None)


def _dropped(decision: EpochDecision, reason: EpochReason) -> EpochDecision:
    return decision._replace(reason=reason, start=None)


class _History:
    """What is in the merged file so far: growing in epoch and in start offset, whatever is put in."""

    def __init__(self) -> None:
        self.kept: list[EpochDecision] = []
        self.gone: list[EpochDecision] = []
        self._epochs: list[int] = []

    def assign(self, new: EpochDecision) -> None:
        """Take an entry in as a broker does, but let lines that are only in the wrong order stand side by side."""
        start = _start(new)
        at = bisect_left(self._epochs, new.epoch)
        if at < len(self.kept) and self.kept[at].epoch == new.epoch:
            if _start(self.kept[at]) <= start:
                self.gone.append(_dropped(new, EpochReason.REPEATED))
                return
            self._drop(at, at + 1, EpochReason.REPEATED)
        if at < len(self.kept) and _start(self.kept[at]) == start:
            self.gone.append(_dropped(new, EpochReason.NO_DATA))
            return
        after = at
        while after < len(self.kept) and _start(self.kept[after]) <= start:
            after += 1
        self._drop(at, after, EpochReason.DISORDER)
        before = at
        while before > 0 and _start(self.kept[before - 1]) > start:
            before -= 1
        self._drop(before, at, EpochReason.DISORDER)
        if before > 0 and _start(self.kept[before - 1]) == start:
            self._drop(before - 1, before, EpochReason.NO_DATA)
            before -= 1
        self.kept.insert(before, new)
        self._epochs.insert(before, new.epoch)

    def takes(self, epoch: int, start: int) -> bool:
        """Whether an entry of an epoch that is not there would fit between its neighbours."""
        at = bisect_left(self._epochs, epoch)
        fits_before = at == 0 or _start(self.kept[at - 1]) <= start
        return fits_before and (at == len(self.kept) or _start(self.kept[at]) >= start)

    def has(self, epoch: int) -> bool:
        """Whether an epoch is there."""
        at = bisect_left(self._epochs, epoch)
        return at < len(self._epochs) and self._epochs[at] == epoch

    def fold(self, log_start: int) -> None:
        """What ``truncateFromStart`` does on loading: the last entry at or below the log start moves up to it."""
        below = bisect_right([_start(one) for one in self.kept], log_start)
        if below == 0:
            return
        self._drop(0, below - 1, EpochReason.BEFORE_START)
        if _start(self.kept[0]) != log_start:
            self.kept[0] = self.kept[0]._replace(reason=EpochReason.FOLDED, start=log_start)

    def _drop(self, start: int, end: int, reason: EpochReason) -> None:
        self.gone.extend(_dropped(one, reason) for one in self.kept[start:end])
        del self.kept[start:end]
        del self._epochs[start:end]


def _start(decision: EpochDecision) -> int:
    assert decision.start is not None
    return decision.start


def _add_from_log(rises: Sequence[Rise], log: LogEpochs, history: _History, *, with_zero: bool) -> None:
    """The epochs that the log shows and no line has."""
    left = [rise for rise in rises if not history.has(rise.epoch)]
    if left and left[0].epoch == 0 and not with_zero:
        zero = left.pop(0)
        history.gone.append(EpochDecision(EpochReason.EPOCH_ZERO, 0, None, zero.first_offset, None))
    added = True
    while added:  # an epoch that is put in may take the place of the line that spoke against others
        before = len(left)
        left = [rise for rise in left if not _added(rise, log, history)]
        added = len(left) < before


def _added(rise: Rise, log: LogEpochs, history: _History) -> bool:
    """Whether an epoch is put in; else a line speaks against it that a compacted log does not overrule."""
    epoch, start = rise.epoch, rise.first_offset
    if not history.takes(epoch, start):
        return False
    late = log.compacted and not rise.exact and start > log.start
    reason = EpochReason.LOG_LATE if late else EpochReason.LOG
    history.assign(EpochDecision(reason, epoch, None, start, start))
    return True
