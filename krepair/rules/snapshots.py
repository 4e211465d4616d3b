"""Rules of ``--fix snapshots``: which producer snapshots may be kept, and the producer state at the log end.

The state is computed as a broker computes it: from the newest valid snapshot between log start and log end, and from
all batches after it. A valid snapshot is always used, because a compacted log may lack batches that it knows.

Source: ``ProducerStateManager`` and ``ProducerAppendInfo`` (2.2.1, 2.8.2, 3.9.0), ``Log.rebuildProducerState`` (2.2.1);
KAFKA-9144 (2.4.1) for the time of a marker, KAFKA-7190 (2.4) for producers below the log start, KIP-854 (3.4) for
``producer.id.expiration.ms``, KAFKA-9393 (2.8) for snapshots of no segment. Layout 1 is the same up to 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np

from krepair.derive.producers import Producers, is_active
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import Version, VersionNumber
from krepair.formats.damage import Damage, UnknownVersion
from krepair.formats.filenames import segment_name
from krepair.formats.producer_snapshot import LAST_OFFSET, OPEN_FIRST, PRODUCER_ID, TIMESTAMP, encode_table
from krepair.kernels import classes as c

MARKERS_HAVE_TIMES: Final = (2, 4, 1)
KEEPS_BELOW_LOG_START: Final = (2, 4, 0)
REMOVES_STRAYS: Final = (2, 8, 0)
PRODUCER_ID_EXPIRATION: Final = (3, 4, 0)
_NONE = -1


class SnapshotReason(StrEnum):
    """Reason why a snapshot must not be kept."""

    UNREADABLE = "cannot be read"
    PAST_END = "past the log end"
    OF_NO_SEGMENT = "of no segment"


class SnapshotFile(NamedTuple):
    """One producer snapshot on disk.

    Attributes:
        offset: offset in the file name.
        size: size of the file in bytes.
        damage: reason why a broker would not load it, or None.
        producers: number of producers in it, if it is readable.
    """

    name: str
    offset: int
    size: int
    damage: Damage | None
    producers: int


class JudgedFiles(NamedTuple):
    """Judgement on the snapshots of a partition.

    Attributes:
        wrong: snapshots that must not be kept, with their reasons, ascending.
        base: newest snapshot that a broker would load, or None.
        at_end: True if ``base`` is at the log end.
    """

    wrong: tuple[tuple[SnapshotFile, SnapshotReason], ...]
    base: SnapshotFile | None
    at_end: bool


class StaleTransactions(NamedTuple):
    """Snapshot with stale open transactions, which the log no longer has.

    Attributes:
        file: the snapshot file.
        producers: (producer id, epoch, first offset) of each stale transaction.
        data: content of the repaired file: these transactions are no longer open, all else is unchanged.
        at_start: True if the next start loads this file as it is. If False, the start loads it only after the plan has
            moved newer snapshots to the backup, or the plan builds a new snapshot from it.
    """

    file: SnapshotFile
    producers: tuple[tuple[int, int, int], ...]
    data: bytes
    at_start: bool


class SnapshotFacts(NamedTuple):
    """Facts about the snapshots of one partition.

    Attributes:
        files: all snapshots, ascending by offset.
        bases: base offsets of the segments.
        log_start: log start offset of the partition.
        log_end: offset after the last valid batch, -1 if unknown.
        judged: judgement on which of the snapshots may be kept.
        data: content of the correct snapshot at the log end; None if nothing is wrong.
        producers: number of producers in ``data``.
        open_transactions: number of these producers that have an open transaction.
        forgets: True if a broker knows none of these producers after its next start (KR503).
        left: reason why nothing is changed, or empty.
        unread: name of a file that could not be read, and the system's message; two empty texts if all were read.
        forgotten: snapshots with stale open transactions.
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
    forgotten: tuple[StaleTransactions, ...] = ()

    @property
    def rewritten(self) -> tuple[StaleTransactions, ...]:
        """Snapshots with stale open transactions that are kept, with these transactions ended."""
        wrong = {file.name for file, _ in self.judged.wrong}
        return tuple(forgotten for forgotten in self.forgotten if forgotten.file.name not in wrong)

    @property
    def makes(self) -> bool:
        """True if the plan creates a snapshot at the log end: one that a broker keeps at its next start."""
        if self.left or self.data is None or self.judged.at_end or self.log_end <= self.bases[0]:
            return False
        wrong = {file.name for file, _ in self.judged.wrong}
        stays = any(file.name not in wrong and file.offset > self.log_start for file in self.files)
        damaged = any(reason is not SnapshotReason.OF_NO_SEGMENT for _, reason in self.judged.wrong)
        return damaged or self.forgets or not stays

    @property
    def name_at_end(self) -> str:
        """Name of the snapshot at the log end."""
        return segment_name(self.log_end, ".snapshot")


def judge_snapshots(
    files: Sequence[SnapshotFile], bases: Sequence[int], log_start: int, log_end: int
) -> JudgedFiles:
    """Find the snapshots that must not be kept.

    In the last two segments a snapshot may have any offset, because each clean stop leaves one at the log end. Below
    them, all versions keep only snapshots at the base offset of a segment.

    Args:
        files: snapshots, ascending by offset.
        bases: base offsets of the segments, ascending.
        log_start: log start offset. The broker removes snapshots at or below it without reading them.
        log_end: offset after the last valid batch.
    """
    usual_from = bases[-2] if len(bases) > 1 else log_start
    known = set(bases)
    wrong: list[tuple[SnapshotFile, SnapshotReason]] = []
    base: SnapshotFile | None = None
    for file in files:
        if file.damage is not None:
            # A snapshot of a later version is no damage: the later broker can read it, and needs its producers.
            if not isinstance(file.damage, UnknownVersion):
                wrong.append((file, SnapshotReason.UNREADABLE))
        elif file.offset > log_end:
            wrong.append((file, SnapshotReason.PAST_END))
        elif file.offset > log_start:
            base = file
            if file.offset < usual_from and file.offset not in known:
                wrong.append((file, SnapshotReason.OF_NO_SEGMENT))
    return JudgedFiles(tuple(wrong), base, base is not None and base.offset == log_end)


def replayed_from(bases: Sequence[int], log_start: int, newest: int, recovered_from: int) -> int:
    """Return the offset of the first batch that a start of the broker reads for its producers.

    A start reads from the newest snapshot above the log start, or, without one, from the log start. But a start that
    recovers a segment reads the whole segment, even its batches below the log start.

    Args:
        bases: base offsets of the segments, ascending.
        log_start: log start offset, within the log.
        newest: offset of the newest snapshot that a broker would load, -1 if there is none.
        recovered_from: base offset of the first segment that the start recovers; any offset past the log if it recovers
            none.

    Source: ``Log.recoverSegment``, ``Log.rebuildProducerState`` (2.2.1, 2.8.2), ``LogLoader.recoverSegment``,

    ``UnifiedLog.rebuildProducerState``, ``LogSegment.recover`` (3.9.2, 4.3.1).
    """
    holder = max((base for base in bases if base <= log_start), default=log_start)
    return holder if recovered_from <= holder else max(newest, log_start)


def without_open(table: Int64s, ended: Collection[tuple[int, int]]) -> bytes:
    """Encode a snapshot in which the transactions ``ended``, as (producer id, first offset), are no longer open."""
    rows, ends = table.copy(), frozenset(ended)
    for row in rows:
        if (int(row[PRODUCER_ID]), int(row[OPEN_FIRST])) in ends:
            row[OPEN_FIRST] = _NONE
    return encode_table(rows)


def expiry_of(version: Version, producer_id_ms: int, transactional_id_ms: int) -> int:
    """Return the time in ms after which an idle producer expires; for an unknown version the longer of the two."""
    if version is None:
        return max(producer_id_ms, transactional_id_ms)
    return producer_id_ms if version >= PRODUCER_ID_EXPIRATION else transactional_id_ms


class StateRules(NamedTuple):
    """Rules by which a version of the broker expires producers.

    Attributes:
        version: version of the broker. None selects the rules that keep more producers.
        now_ms: current time in epoch milliseconds.
        expiry_ms: expiry time in ms, see ``expiry_of``.
    """

    version: Version
    now_ms: int
    expiry_ms: int

    def before(self, since: VersionNumber) -> bool:
        """Return whether the version is known and older than ``since``."""
        return self.version is not None and self.version < since


class ProducerTable:
    """Producers of a snapshot at the end of a log.

    Args:
        loaded: int64[N, 8], the producers of the snapshot with which the replay starts (``producer_snapshot.table``).
        rows: int64[P, ROW_SIZE] for each scan to replay, ascending.
        log_start: log start offset. 2.2 and 2.3 drop a loaded producer whose last offset is below it.
        rules: expiry rules of the broker.
    """

    def __init__(self, loaded: Int64s, rows: Sequence[Int64s], log_start: int, rules: StateRules) -> None:
        self.rules = rules
        loaded = loaded[is_active(loaded[:, OPEN_FIRST], loaded[:, TIMESTAMP], rules.now_ms, rules.expiry_ms)]
        if rules.before(KEEPS_BELOW_LOG_START):  # KAFKA-7190
            loaded = loaded[loaded[:, LAST_OFFSET] >= log_start]
        ids: Int64s = np.unique(np.concatenate([loaded[:, PRODUCER_ID], *(row[:, c.P_ID] for row in rows)]))
        self._known = Producers(ids)
        self._known.load(loaded)
        for row in rows:
            self._known.replay_rows(row)

    def entries(self) -> Int64s:
        """Return the producers that have not expired, by id: int64[N, 8] for ``producer_snapshot.encode_table``."""
        known = self._known
        # Up to 2.4.0 a marker does not keep its producer from expiring (KAFKA-9144).
        time = known.data_time if self.rules.before(MARKERS_HAVE_TIMES) else known.timestamp
        stays = known.known & is_active(known.open_first, time, self.rules.now_ms, self.rules.expiry_ms)
        return known.table(stays, time)
