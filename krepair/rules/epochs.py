"""Merging of a ``leader-epoch-checkpoint`` with the epochs of the batches in its log, for ``--fix epochs``.

A leader writes an entry when it becomes leader, before any data. A follower writes it only when it appends. Compaction
removes the first batches of an epoch. So an entry may be right although it has no batch, or starts before its first
batch, and the log alone cannot restore it. If a batch contradicts an entry, the batch is the proof and the log wins.
The exception is a compacted log: there the batches that support the entry may have been removed.

Entries below the log start offset are kept. A broker moves these entries up by itself. But on a tiered topic it finds
its remote segments by these entries, and deletes remote segments whose epochs all lie before the first entry.

Source: ``LeaderEpochFileCache`` (2.1, 2.3, 3.9): ``assign``, ``truncateFromEnd``, ``truncateFromStart``;
``LogSegment.recover`` (epoch 0 counts from 2.7 on); ``RemoteLogManager.cleanupExpiredRemoteLogSegments`` (3.6, 3.9);
KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from krepair.derive.epochs import DoubtedEpoch, EpochStart, LogEpochs
from krepair.formats.broker_version import Version
from krepair.formats.checkpoint import (
    LINE_END,
    EpochEntry,
    decode_epochs,
    encode_epochs,
    epochs_end_unchecked,
)
from krepair.formats.damage import Damage

MOST_BYTES = 64 << 20
"""Largest accepted file in bytes: a million entries take less."""

_MANY = 20_000
"""Number of entries above which they are sorted first, to keep the merge fast. No healthy log has as many epochs."""

EPOCH_ZERO_SINCE = (2, 7, 0)
_FIRST_LINE_AT_MOST = 4096


class EpochReason(StrEnum):
    """Reason why an entry is in the merged file, or is not."""

    RECORDED = "recorded"
    LOG = "from the log"
    LOG_LATE = "from the log, may start late"
    UNPROVEN = "recorded, against batches of a compacted log"
    NEGATIVE = "negative"
    PAST_END = "past the log end"
    CONTRADICTED = "contradicted by a batch"
    CUT = "last line cut"
    REPEATED = "repeated"
    NO_DATA = "no data was written under it"
    DISORDER = "out of order with a later line"
    EPOCH_ZERO = "epoch 0, which this version leaves out"


_IN = frozenset({EpochReason.RECORDED, EpochReason.LOG, EpochReason.LOG_LATE, EpochReason.UNPROVEN})
_TRIVIAL = frozenset({EpochReason.PAST_END, EpochReason.REPEATED, EpochReason.NO_DATA})
"""Reasons that need no attention: a broker does the same on load, or followers get the same answers."""

_CONFLICTS = frozenset(
    {EpochReason.CONTRADICTED, EpochReason.DISORDER, EpochReason.UNPROVEN, EpochReason.NEGATIVE}
)


class Recorded(NamedTuple):
    """Content of the ``leader-epoch-checkpoint`` on disk.

    Attributes:
        exists: True if the file exists.
        entries: readable entries in the order of the file.
        damage: damage of the file itself.
        broker_reads: True if a broker reads the file without error, or creates it because it is missing.
        cut: True if the last entry has no line end, so that its number may be cut off.
        ends_broker: True if the file ends a broker since 3.2 with all of its log directories.
    """

    exists: bool
    entries: tuple[EpochEntry, ...] = ()
    damage: tuple[Damage, ...] = ()
    broker_reads: bool = True
    cut: bool = False
    ends_broker: bool = False

    @property
    def intact(self) -> bool:
        """True if the file has entries and no damage."""
        return bool(self.entries) and not self.damage

    @property
    def has_negative(self) -> bool:
        """True if an entry has a negative number, which a broker since 2.8 does not load."""
        return any(min(entry) < 0 for entry in self.entries)

    @property
    def stops_start(self) -> bool:
        """True if some broker does not start with the file, so that it must be repaired, whatever the log holds."""
        return not self.broker_reads or self.has_negative


class EpochDecision(NamedTuple):
    """Decision on one entry.

    Attributes:
        recorded: recorded start offset, None if the epoch is not recorded.
        shown: base offset of the first batch of this or a later epoch in the log, None if there is none.
        start: start offset in the merged file, None if the epoch is not in it.
    """

    reason: EpochReason
    epoch: int
    recorded: int | None
    shown: int | None
    start: int | None

    @property
    def trivial(self) -> bool:
        """True if a broker does the same on load, or followers get the same answers."""
        return self.reason in _TRIVIAL

    @property
    def conflict(self) -> bool:
        """True if the recorded entry contradicts the log or another entry."""
        return self.reason in _CONFLICTS

    @property
    def text(self) -> str:
        """Decision as one line: recorded start, start in the log, and result."""
        recorded = "is not recorded" if self.recorded is None else f"is recorded to start at {self.recorded}"
        shown = (
            "no batch of it or a later one"
            if self.shown is None
            else f"the first batch of it or a later one at {self.shown}"
        )
        becomes = "dropped" if self.start is None else f"starts at {self.start}"
        return f"epoch {self.epoch} {recorded}, the log has {shown}: {becomes} ({self.reason.value})"


class MergedEpochs(NamedTuple):
    """Merged epoch history.

    Attributes:
        entries: entries with increasing epochs and start offsets, which every broker loads.
        decisions: one decision per entry of the file and per epoch of the log, by epoch.
        needed: True if the file on disk has to be replaced.
    """

    entries: tuple[EpochEntry, ...]
    decisions: tuple[EpochDecision, ...]
    needed: bool

    @property
    def data(self) -> bytes:
        """Content of the merged file, as a broker writes it."""
        return encode_epochs(self.entries)

    @property
    def may_be_late(self) -> tuple[int, ...]:
        """Epochs that may have started earlier, because only their first remaining batch is known."""
        return tuple(decision.epoch for decision in self.decisions if decision.reason is EpochReason.LOG_LATE)


class EpochFacts(NamedTuple):
    """Facts about the leader epochs of one partition.

    Attributes:
        recorded: content of the file on disk.
        merged: history that the file should have.
        digest: digest of the file's content, empty if the file is missing.
        left: reason why the file must not be replaced, or empty.
        unread: reason why the file could not be read, so that its entries are unknown; else empty.
        doubted: batches whose epoch cannot be right, so that no entry was derived from them.
    """

    recorded: Recorded
    merged: MergedEpochs
    digest: str
    left: str = ""
    unread: str = ""
    doubted: tuple[DoubtedEpoch, ...] = ()

    @property
    def mends(self) -> bool:
        """True if the file has to be replaced, and nothing forbids that."""
        return self.merged.needed and not self.left


def read_recorded(data: bytes | None) -> Recorded:
    """Read the entries of a file, even if its version is wrong: each entry is compared with the log anyway.

    Args:
        data: content of the file, None if it is missing.
    """
    if data is None:
        return Recorded(exists=False)
    decoded = decode_epochs(data)
    entries = decoded.entries
    if not entries and decoded.damage and not decoded.broker_reads:
        head = LINE_END.search(data[: _FIRST_LINE_AT_MOST + 2])
        if head is not None:
            entries = decode_epochs(b"0\n" + data[head.end() :]).entries
    cut = bool(data) and data[-1:] not in {b"\n", b"\r"}
    ends_broker = not decoded.broker_reads and epochs_end_unchecked(data)
    return Recorded(
        True, entries, decoded.damage, decoded.broker_reads, cut and _last_line_is_entry(data), ends_broker
    )


def _last_line_is_entry(data: bytes) -> bool:
    tail = LINE_END.split(data[-_FIRST_LINE_AT_MOST:])[-1]
    return bool(decode_epochs(b"0\n1\n" + tail).entries)


def writes_epoch_zero(version: Version) -> bool:
    """Return whether a broker of this version takes epoch 0 from the log; unknown means 2.7 or later."""
    return version is None or version >= EPOCH_ZERO_SINCE


def merge_epochs(recorded: Recorded, log: LogEpochs, version: Version = None) -> MergedEpochs:
    """Merge the recorded epochs with those of the log. Merging the result again changes nothing.

    Args:
        recorded: content of the file on disk.
        log: epochs of the batches.
        version: version of the broker that will read the file, None if unknown.
    """
    epoch_starts = _from_log_start(log)
    rising = [epoch_start.epoch for epoch_start in epoch_starts]
    doubted = {doubt.epoch_start.epoch: doubt.epoch_start for doubt in reversed(log.doubted)}
    history = _History()
    lines = recorded.entries
    if len(lines) > _MANY:
        lines = tuple(sorted(lines))
    for entry in lines:
        at = bisect_left(rising, entry.epoch)
        epoch_start = epoch_starts[at] if at < len(epoch_starts) else None
        if epoch_start is None or epoch_start.epoch != entry.epoch:
            epoch_start = doubted.get(entry.epoch, epoch_start)  # an entry that its batch confirms
        is_cut = recorded.cut and entry == recorded.entries[-1]
        decision = _judge(entry, epoch_start, log, is_cut=is_cut)
        if decision.start is None:
            history.gone.append(decision)
        else:
            history.assign(decision)
    _add_from_log(epoch_starts, log, history, with_zero=writes_epoch_zero(version))
    entries = tuple(EpochEntry(entry.epoch, entry.start) for entry in history.kept if entry.start is not None)
    everything = sorted(
        [*history.gone, *history.kept],
        key=lambda entry: (entry.epoch, entry.start is None, entry.recorded or 0),
    )
    if recorded.intact and _only_epoch_zero_is_new(entries, recorded.entries):
        entries = recorded.entries
        everything = [decision for decision in everything if decision.epoch != 0]
    return MergedEpochs(entries, tuple(everything), bool(recorded.damage) or entries != recorded.entries)


def _only_epoch_zero_is_new(entries: tuple[EpochEntry, ...], recorded: tuple[EpochEntry, ...]) -> bool:
    """Return whether the merged file only adds epoch 0, which is not worth a change.

    Followers get the same answers without epoch 0, and a broker before 2.7 omits it.
    """
    return entries[1:] == recorded and entries[0].epoch == 0


def _from_log_start(log: LogEpochs) -> list[EpochStart]:
    """Return the epoch starts at or above the log start; batches below it are deleted, though still in the segment."""
    below = [epoch_start for epoch_start in log.epoch_starts if epoch_start.first_offset <= log.start]
    above = [epoch_start for epoch_start in log.epoch_starts if epoch_start.first_offset > log.start]
    return [*(EpochStart(epoch_start.epoch, log.start, -1) for epoch_start in below[-1:]), *above]


def _judge(
    entry: EpochEntry, epoch_start: EpochStart | None, log: LogEpochs, *, is_cut: bool
) -> EpochDecision:
    """Compare a recorded entry with the log.

    Args:
        epoch_start: start in the log of the entry's epoch or, if the log lacks that epoch, of the next higher one.
        is_cut: True if the entry's number may be cut off.
    """
    epoch, start = entry
    shown = epoch_start.first_offset if epoch_start else None
    lower = epoch_start.before + 1 if epoch_start else log.last_offset + 1
    if epoch < 0 or start < 0:
        reason = EpochReason.NEGATIVE
    elif log.end is not None and start > log.end:
        reason = EpochReason.PAST_END
    elif max(start, log.start) < lower or (shown is not None and start > shown):
        reason = EpochReason.UNPROVEN if log.compacted else EpochReason.CONTRADICTED
    else:
        reason = EpochReason.RECORDED
    # A cut number may be too small, so it is not kept if only compaction could explain it.
    if is_cut and reason in {EpochReason.UNPROVEN, EpochReason.CONTRADICTED}:
        reason = EpochReason.CUT
    if is_cut and log.compacted and start != shown:
        reason = EpochReason.CUT
    return EpochDecision(reason, epoch, start, shown, start if reason in _IN else None)


def _drop_entry(decision: EpochDecision, reason: EpochReason) -> EpochDecision:
    return decision._replace(reason=reason, start=None)


class _History:
    """Merged file under construction, whose epochs and start offsets always increase."""

    def __init__(self) -> None:
        self.kept: list[EpochDecision] = []
        self.gone: list[EpochDecision] = []
        self._epochs: list[int] = []

    def assign(self, new: EpochDecision) -> None:
        """Add an entry as a broker does, but keep entries that are merely out of order."""
        start = _start(new)
        at = bisect_left(self._epochs, new.epoch)
        if at < len(self.kept) and self.kept[at].epoch == new.epoch:
            if _start(self.kept[at]) <= start:
                self.gone.append(_drop_entry(new, EpochReason.REPEATED))
                return
            self._drop(at, at + 1, EpochReason.REPEATED)
        if at < len(self.kept) and _start(self.kept[at]) == start:
            self.gone.append(_drop_entry(new, EpochReason.NO_DATA))
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
        """Return whether an entry of a new epoch would fit between its neighbours."""
        at = bisect_left(self._epochs, epoch)
        fits_before = at == 0 or _start(self.kept[at - 1]) <= start
        return fits_before and (at == len(self.kept) or _start(self.kept[at]) >= start)

    def has(self, epoch: int) -> bool:
        """Return whether the history has an epoch."""
        at = bisect_left(self._epochs, epoch)
        return at < len(self._epochs) and self._epochs[at] == epoch

    def _drop(self, start: int, end: int, reason: EpochReason) -> None:
        self.gone.extend(_drop_entry(entry, reason) for entry in self.kept[start:end])
        del self.kept[start:end]
        del self._epochs[start:end]


def _start(decision: EpochDecision) -> int:
    assert decision.start is not None
    return decision.start


def _add_from_log(
    epoch_starts: Sequence[EpochStart], log: LogEpochs, history: _History, *, with_zero: bool
) -> None:
    """Add the epochs of the log that no entry of the file has."""
    missing = [epoch_start for epoch_start in epoch_starts if not history.has(epoch_start.epoch)]
    if missing and missing[0].epoch == 0 and not with_zero:
        zero = missing.pop(0)
        history.gone.append(EpochDecision(EpochReason.EPOCH_ZERO, 0, None, zero.first_offset, None))
    added = True
    while added:  # an added epoch may replace the entry that contradicted other epochs
        before = len(missing)
        missing = [epoch_start for epoch_start in missing if not _add_epoch(epoch_start, log, history)]
        added = len(missing) < before


def _add_epoch(epoch_start: EpochStart, log: LogEpochs, history: _History) -> bool:
    """Add an epoch unless an entry contradicts it; return whether it was added."""
    epoch, start = epoch_start.epoch, epoch_start.first_offset
    if not history.takes(epoch, start):
        return False
    late = (log.compacted or bool(log.doubted)) and not epoch_start.exact and start > log.start
    reason = EpochReason.LOG_LATE if late else EpochReason.LOG
    history.assign(EpochDecision(reason, epoch, None, start, start))
    return True
