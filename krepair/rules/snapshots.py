"""Producer snapshots: which of them a broker may keep, and the producer state that belongs at the log end.

The state is worked out as a broker does it: the newest valid snapshot above the log start and not past the log end,
then every batch from there on. A compacted log knows less than a snapshot, so a valid one is never passed over.

Source: ``ProducerStateManager`` and ``ProducerAppendInfo`` (2.2.1, 2.8.2, 3.9.0), ``Log.rebuildProducerState`` (2.2.1);
KAFKA-9144 (2.4.1) for the time of a marker, KAFKA-7190 (2.4) for producers below the log start, KIP-854 (3.4) for
``producer.id.expiration.ms``, KAFKA-9393 (2.8) for snapshots of no segment. Layout 1 is the same up to 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from krepair.formats.damage import Damage
from krepair.formats.producer_snapshot import ENTRY
from krepair.kernels import classes as c
from krepair.rules.model import Int64s

Version = tuple[int, int, int] | None
MARKERS_HAVE_TIMES: Version = (2, 4, 1)
KEEPS_BELOW_LOG_START: Version = (2, 4, 0)
REMOVES_STRAYS: Version = (2, 8, 0)
PRODUCER_ID_EXPIRATION: Version = (3, 4, 0)
_NONE = -1
_LAST_OFFSET = ENTRY.names.index("last_offset")
_TIMESTAMP = ENTRY.names.index("timestamp")
_FIRST_OFFSET = ENTRY.names.index("current_txn_first_offset")


class SnapshotReason(StrEnum):
    """Why a snapshot is not to stay."""

    UNREADABLE = "cannot be read"
    PAST_END = "past the log end"
    OF_NO_SEGMENT = "of no segment"


class SnapshotFile(NamedTuple):
    """One snapshot as it was found.

    Attributes:
        name: file name.
        offset: the offset in it.
        size: bytes.
        damage: why a broker would not load it, or None.
        producers: how many it holds, if it can be read.
    """

    name: str
    offset: int
    size: int
    damage: Damage | None
    producers: int


class JudgedFiles(NamedTuple):
    """What is to become of the snapshots of a partition.

    Attributes:
        wrong: those that are not to stay, and why, ascending.
        base: the newest that a broker would load, or None.
        at_end: whether that one is at the log end.
    """

    wrong: tuple[tuple[SnapshotFile, SnapshotReason], ...]
    base: SnapshotFile | None
    at_end: bool


class SeenSnapshots(NamedTuple):
    """What the snapshots of one partition came to.

    Attributes:
        files: all of them, ascending.
        bases: base offsets of the segments.
        log_start: the log start offset.
        log_end: offset after the last valid batch, -1 if it cannot be told.
        judged: which of them may stay.
        data: the bytes that belong at the log end; None where nothing is wrong.
        producers: how many are in it.
        open_transactions: how many of them have an open transaction.
        forgets: whether the next start knows none of them (KR503).
        left: why nothing is changed, or empty.
        unread: name of a file that the system could not read, and its words; empty if all could be.
    """

    files: tuple[SnapshotFile, ...]
    bases: tuple[int, ...]
    log_start: int
    log_end: int
    judged: JudgedFiles
    data: bytes | None = None
    producers: int = 0
    open_transactions: int = 0
    forgets: bool = False
    left: str = ""
    unread: tuple[str, str] = ("", "")

    @property
    def makes(self) -> bool:
        """Whether a snapshot is to be made at the log end: never for what a broker removes at the next start anyway."""
        if self.left or self.data is None or self.judged.at_end or self.log_end <= self.bases[0]:
            return False
        wrong = {file.name for file, _ in self.judged.wrong}
        stays = any(file.name not in wrong and file.offset > self.log_start for file in self.files)
        damaged = any(reason is not SnapshotReason.OF_NO_SEGMENT for _, reason in self.judged.wrong)
        return damaged or self.forgets or not stays

    @property
    def name_at_end(self) -> str:
        """Name of the snapshot at the log end."""
        return f"{self.log_end:020d}.snapshot"


def judge_files(
    files: Sequence[SnapshotFile], bases: Sequence[int], log_start: int, log_end: int
) -> JudgedFiles:
    """Tell the snapshots that may stay from those that may not.

    Between the bases of the last two segments any offset is usual: each clean stop leaves a snapshot there. Below,
    every version keeps only those named after a segment.

    Args:
        files: ascending by offset.
        bases: base offsets of the segments, ascending.
        log_start: the broker removes, unread, those at or below it.
        log_end: offset after the last valid batch.
    """
    usual_from = bases[-2] if len(bases) > 1 else log_start
    known = set(bases)
    wrong: list[tuple[SnapshotFile, SnapshotReason]] = []
    base: SnapshotFile | None = None
    for file in files:
        if file.damage is not None:
            wrong.append((file, SnapshotReason.UNREADABLE))
        elif file.offset > log_end:
            wrong.append((file, SnapshotReason.PAST_END))
        elif file.offset > log_start:
            base = file
            if file.offset < usual_from and file.offset not in known:
                wrong.append((file, SnapshotReason.OF_NO_SEGMENT))
    return JudgedFiles(tuple(wrong), base, base is not None and base.offset == log_end)


def lost_with_strays(files: Sequence[SnapshotFile], bases: Sequence[int]) -> tuple[int, ...]:
    """Offsets of the snapshots that a broker since 2.8 removes before it loads one (``removeStraySnapshots``).

    Of those of no segment it keeps the greatest, read or not, if it is not below the active segment's base.
    """
    known = set(bases)
    strays = [file.offset for file in files if file.offset not in known]
    keeps_last = bool(strays and bases) and strays[-1] >= bases[-1]
    return tuple(strays[:-1] if keeps_last else strays)


def expiry_of(version: Version, producer_id_ms: int, transactional_id_ms: int) -> int:
    """After how long without a batch a producer is forgotten, in ms; of an unknown version the longer of the two."""
    if version is None:
        return max(producer_id_ms, transactional_id_ms)
    assert PRODUCER_ID_EXPIRATION is not None
    return producer_id_ms if version >= PRODUCER_ID_EXPIRATION else transactional_id_ms


class StateRules(NamedTuple):
    """How one version of the broker forgets producers.

    Attributes:
        version: of the broker, None if unknown: then what keeps more.
        now_ms: the clock.
        expiry_ms: see ``expiry_of``.
    """

    version: Version
    now_ms: int
    expiry_ms: int

    def before(self, since: Version) -> bool:
        """Whether the version is known, and older."""
        return self.version is not None and since is not None and self.version < since


class ProducerTable:
    """Every field of a snapshot per producer, as parallel arrays.

    Args:
        loaded: int64[N, 8], the producers of the snapshot that the replay starts from (``producer_snapshot.table``).
        rows: of the scans to replay, ascending: int64[P, ROW_SIZE] each.
        log_start: below it 2.2 and 2.3 forget a loaded producer.
        rules: of the broker.
    """

    def __init__(self, loaded: Int64s, rows: Sequence[Int64s], log_start: int, rules: StateRules) -> None:
        self.rules = rules
        loaded = loaded[self._lives(loaded[:, _FIRST_OFFSET], loaded[:, _TIMESTAMP])]
        if rules.before(KEEPS_BELOW_LOG_START):
            loaded = loaded[loaded[:, _LAST_OFFSET] >= log_start]
        self.ids: Int64s = np.unique(np.concatenate([loaded[:, 0], *(row[:, c.P_ID] for row in rows)]))
        self.epoch, self.sequence, self.offset, self.data_time, self.time, self.coordinator, self.first = (
            np.full(len(self.ids), _NONE, np.int64) for _ in range(7)
        )
        self.delta: Int64s = np.zeros(len(self.ids), np.int64)
        self.known: Any = np.zeros(len(self.ids), bool)
        self._load(loaded)
        for row in rows:
            self._replay(row)

    def _lives(self, first: Int64s, time: Int64s) -> Any:
        """Whether producers with these open transactions and times are still known."""
        return (first >= 0) | (self.rules.now_ms - time < self.rules.expiry_ms)

    def _load(self, loaded: Int64s) -> None:
        at = np.searchsorted(self.ids, loaded[:, 0])
        fields = (self.epoch, self.sequence, self.offset, self.delta, self.time, self.coordinator)
        for column, mine in enumerate(fields, start=1):
            mine[at] = loaded[:, column]
        self.data_time[at] = self.time[at]
        self.first[at] = np.maximum(loaded[:, _FIRST_OFFSET], _NONE)
        self.known[at] = True

    def _replay(self, rows: Int64s) -> None:
        """Take over what one segment, later than all before, says of its producers."""
        rows = rows[rows[:, c.P_EPOCH] != _NONE]  # a row made by an emptied control batch alone says nothing
        at = np.searchsorted(self.ids, rows[:, c.P_ID])
        same = (rows[:, c.P_EPOCHS_MIXED] == 0) & (self.epoch[at] == rows[:, c.P_EPOCH])
        data = rows[:, c.P_LAST_DATA_OFFSET] >= 0
        for mine, column, none in (
            (self.offset, c.P_LAST_DATA_OFFSET, _NONE),
            (self.sequence, c.P_LAST_SEQUENCE, _NONE),
            (self.delta, c.P_LAST_DATA_DELTA, 0),
            (self.data_time, c.P_LAST_DATA_TIMESTAMP, _NONE),
        ):
            mine[at] = np.where(data, rows[:, column], np.where(same, mine[at], none))
        ended = rows[:, c.P_MARKERS] > 0
        self.epoch[at] = rows[:, c.P_EPOCH]
        self.time[at] = rows[:, c.P_TIMESTAMP]
        self.coordinator[at] = np.where(ended, rows[:, c.P_COORDINATOR_EPOCH], self.coordinator[at])
        carried = np.where(self.first[at] >= 0, self.first[at], rows[:, c.P_OPEN_FIRST])
        self.first[at] = np.where(ended, rows[:, c.P_OPEN_FIRST], carried)
        self.known[at] = True

    def entries(self) -> Int64s:
        """int64[N, 8]: the producers that are not expired, by id, as ``producer_snapshot.encode_table`` takes them."""
        time = self.data_time if self.rules.before(MARKERS_HAVE_TIMES) else self.time
        stays = self.known & self._lives(self.first, time)
        columns = (
            self.ids,
            self.epoch,
            self.sequence,
            self.offset,
            self.delta,
            time,
            self.coordinator,
            self.first,
        )
        table: Int64s = np.column_stack([column[stays] for column in columns])
        return table
