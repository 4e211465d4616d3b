"""Reads what producer snapshots say and what the log says from there on: as little of it as tells the state at its end.

Of a partition whose snapshots are in order only the active segment is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from krepair.fixes.context import Context, place_of
from krepair.fixes.forgotten import Open, OpenTransactions, ScanFrom
from krepair.fixes.logs import LogPart, facts_of, parts_after
from krepair.formats import producer_snapshot
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import version_of
from krepair.formats.damage import shown
from krepair.formats.filenames import FileKind, NameState, log_name, parse_file_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.kernels.classes import D_NONE, D_PAST_END, D_TORN, D_ZEROS
from krepair.logdir.reading import opened_with_status, read_whole, why
from krepair.logdir.values import LogDir, Partition, Snapshot
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed, Place, ScanItem, ScanResult
from krepair.plan.changes import names_removed
from krepair.plan.model import Change, ReplaceFile
from krepair.rules.forgotten import FORGOTTEN
from krepair.rules.model import SegmentFacts
from krepair.rules.recovery import floor_of
from krepair.rules.snapshots import (
    Forgotten,
    JudgedFiles,
    ProducerTable,
    SeenSnapshots,
    SnapshotFile,
    StateRules,
    expiry_of,
    judge_files,
    read_at_start,
    replayed_from,
    without_open,
)

SNAPSHOT_AT_MOST_BYTES = 1 << 30
_TORN = frozenset({D_TORN, D_PAST_END, D_ZEROS})
_NO_ENTRIES: Int64s = np.empty((0, len(producer_snapshot.ENTRY.names)), np.int64)


class SnapshotTarget(NamedTuple):
    """One partition to look at.

    Attributes:
        partition: as listed.
        place: of its files.
        parts: its logs as they are, or as they will be once the plan's changes are made.
        snapshots: its snapshots, without those that go with a segment.
        known: facts of segments that were scanned already, by base offset.
        log_start: what ``log-start-offset-checkpoint`` says, -1 if nothing.
        recovered_from: base offset of the first segment that the next start recovers, as far as the state of the
            producers is to be what that start makes of it.
        unflushed_from: base offset of the segment that holds the recovery point.
        closed: names of the snapshots in which the changes end transactions that the log has forgotten.
    """

    partition: Partition
    place: Place
    parts: tuple[LogPart, ...]
    snapshots: tuple[Snapshot, ...]
    known: Mapping[int, SegmentFacts]
    log_start: int
    recovered_from: int = INT64_MAX
    unflushed_from: int = INT64_MAX
    closed: frozenset[str] = frozenset()

    def recovered(self, since: int, log_end: int = -1) -> SnapshotTarget:
        """As a recovery from that segment on sees it: it builds on no snapshot above its base offset.

        Snapshots past the log end stay in sight: they have to go.
        """
        usable = (one for one in self.snapshots if one.offset <= since or 0 <= log_end < one.offset)
        return self._replace(snapshots=tuple(usable), recovered_from=since)


def target_of(
    log_dir: LogDir, partition: Partition, known: Iterable[SegmentFacts], changes: Sequence[Change]
) -> SnapshotTarget:
    """A partition of a log directory as a target.

    Args:
        log_dir: where it is.
        partition: as listed.
        known: facts of its logs as they will be after the changes.
        changes: that are made before its snapshots are read by a broker.
    """
    key = partition.key
    recorded = log_dir.log_start.offsets.get(key, -1)
    gone = names_removed(changes)
    parts = parts_after(partition, changes)
    floor = floor_of([part.base_offset for part in parts], log_dir.recovery_point.offsets.get(key, 0))
    return SnapshotTarget(
        partition=partition,
        place=place_of(log_dir, partition),
        parts=parts,
        snapshots=tuple(one for one in partition.snapshots if one.file.name not in gone),
        known={facts.base_offset: facts for facts in known},
        log_start=recorded,
        unflushed_from=INT64_MAX if floor is None else floor,
        closed=frozenset(
            change.name for change in changes if isinstance(change, ReplaceFile) and change.rule == FORGOTTEN
        ),
    )


def rules_now(context: Context) -> StateRules:
    """How the broker that will be started forgets producers."""
    settings, version = context.settings, version_of(context.options.broker_version)
    after_ms = expiry_of(version, settings.producer_id_expiration_ms, settings.transactional_id_expiration_ms)
    return StateRules(version, context.options.now_ms, after_ms)


def see_snapshots(
    targets: Sequence[SnapshotTarget],
    rules: StateRules,
    engine: Engine,
    *,
    clean: bool,
    always: bool = False,
    closes: bool = False,
) -> list[SeenSnapshots | None]:
    """What is there, what is wrong with it, and what belongs at the log end; None for a partition without a log.

    Args:
        targets: partitions.
        rules: of the broker.
        engine: scans what is not known yet.
        clean: whether the broker was cleanly stopped.
        always: work the state out although nothing may be wrong: some of it may be mended already.
        closes: whether to ask the log about the open transactions of each snapshot that a start begins with; if not,
            only about those of the snapshots in ``SnapshotTarget.closed``.
    """
    from krepair.pipeline.scan import scan

    looks = [_Look(target) if target.parts else None for target in targets]
    there = [look for look in looks if look is not None]
    _scan([(look, look.bases[-1]) for look in there if look.bases[-1] not in look.facts], engine)
    for look in there:
        look.begin(rules, clean=clean, always=always, closes=closes)
    _scan([(look, base) for look in there for base in look.missing()], engine)
    while wanted := [(look, part) for look in there for part in look.open.wanted()]:
        for (look, part), result in engine.each(scan, ((one, one[0].item(*one[1])) for one in wanted)):
            look.take_part(part, result)
    for look in there:
        look.finish(rules)
    return [None if look is None else look.seen for look in looks]


def _scan(wanted: Sequence[tuple[_Look, int]], engine: Engine) -> None:
    if not wanted:
        return
    from krepair.pipeline.scan import scan

    asked = (((look, base), look.item(base, look.start)) for look, base in wanted)
    for (look, base), result in engine.each(scan, asked):
        look.take(base, result)


class _Look:
    """One partition on its way: its end first, then as much of its log as the state needs."""

    def __init__(self, target: SnapshotTarget) -> None:
        self.target = target
        self.bases = tuple(part.base_offset for part in target.parts)
        self.facts = dict(target.known)
        self.failed: dict[int, str] = {}
        self.start = -1
        self.needed: tuple[int, ...] = ()
        self.seen = SeenSnapshots((), self.bases, self.bases[0], -1, JudgedFiles((), None, False))
        self.open = OpenTransactions(self.bases, {}, self._is_whole)
        self.suspected: dict[SnapshotFile, tuple[Int64s, bool]] = {}

    def item(self, base_offset: int, start: int) -> ScanItem:
        """The work item that scans a segment, or the end of it from an offset on."""
        part = self.target.parts[self.bases.index(base_offset)]
        return ScanItem(
            place=self.target.place,
            base_offset=base_offset,
            size=part.segment.log.size,
            without=part.without,
            now_ms=0,
            high_watermark=INT64_MAX,
            from_offset=start if start > base_offset else -1,
        )

    def take(self, base_offset: int, result: ScanResult | Failed) -> None:
        """What came of it."""
        if isinstance(result, Failed):
            self.failed[base_offset] = result.why
            return
        segment = self.target.parts[self.bases.index(base_offset)].segment
        self.facts[base_offset] = facts_of(segment, result)

    def take_part(self, part: ScanFrom, result: ScanResult | Failed) -> None:
        """What came of a scan for an open transaction."""
        segment = self.target.parts[self.bases.index(part.base_offset)].segment
        self.open.take(part, None if isinstance(result, Failed) else facts_of(segment, result))

    # -- the end of the log, and the files

    def begin(self, rules: StateRules, *, clean: bool, always: bool, closes: bool) -> None:
        """Judge the files by the log end; where that calls for the state, tell what it needs."""
        log_end, left = self._log_end()
        left = _odd_name(self.target.partition) or left
        recorded, first = self.target.log_start, self.bases[0]
        log_start = recorded if first < recorded <= log_end else first
        self.seen = self.seen._replace(log_start=log_start, log_end=log_end, left=left)
        try:
            files = tuple(read_snapshot_file(one) for one in self.target.snapshots)
        except OSError as error:
            name = os.path.basename(str(error.filename or ""))
            text = f"could not be read: {why(error)}"
            self.seen = self.seen._replace(left=left or f"{name} {text}", unread=(name, text))
            return
        judged = judge_files(files, self.bases, log_start, log_end if log_end >= 0 else INT64_MAX)
        self.seen = self.seen._replace(files=files, judged=judged)
        if left:
            return
        state = always or bool(judged.wrong) or (clean and not files)
        try:
            self._suspect(rules, clean=clean, state=state, closes=closes)
        except OSError as error:
            self.seen = self.seen._replace(left=f"could not be read: {why(error)}")
            return
        if not state:
            return
        newest = -1 if judged.base is None else judged.base.offset
        self.start = replayed_from(self.bases, log_start, newest, self.target.recovered_from)
        ends = [*self.bases[1:], INT64_MAX]
        self.needed = tuple(base for base, end in zip(self.bases, ends, strict=True) if end > self.start)

    def _suspect(self, rules: StateRules, *, clean: bool, state: bool, closes: bool) -> None:
        """Ask about the open transactions of the snapshots that a start reads, or that the state begins with.

        Raises:
            OSError: one cannot be read.
        """
        seen = self.seen
        chosen: dict[SnapshotFile, bool] = {}
        if closes:
            chosen = read_at_start(seen, rules.version, -1 if clean else self.target.unflushed_from)
        base = seen.judged.base
        if base is not None and ((closes and state) or base.name in self.target.closed):
            chosen.setdefault(base, False)
        self.open = OpenTransactions(self.bases, dict(self.facts), self._is_whole)
        for file, at_start in chosen.items():
            table = self._table(file) if file.producers else _NO_ENTRIES
            if isinstance(table, str) or not (table[:, -1] >= 0).any():
                continue
            self.suspected[file] = (table, at_start)
            for row in table[table[:, -1] >= seen.log_start].tolist():
                self.open.ask(Open(row[0], row[-1]))

    def _is_whole(self, facts: SegmentFacts) -> bool:
        """Whether the facts tell all that a start finds in a segment."""
        torn_end = facts.base_offset == self.bases[-1] and facts.summary.damage in _TORN
        return facts.summary.damage == D_NONE or torn_end

    def _log_end(self) -> tuple[int, str]:
        """The log end, -1 if it cannot be told, and then why."""
        base = self.bases[-1]
        if base in self.failed:
            return -1, self.failed[base]
        if base not in self.facts:
            return -1, "its active segment could not be read"
        summary = self.facts[base].summary
        if summary.damage not in {D_NONE, *_TORN}:
            return -1, _damaged(self.facts[base])
        return max(base, summary.last_offset + 1), ""

    # -- the state

    def missing(self) -> list[int]:
        """Segments that have to be scanned: those not known, and the one that the replay starts inside of."""
        return [base for base in self.needed if base not in self.facts or base < self.start]

    def finish(self, rules: StateRules) -> None:
        """Add the forgotten transactions and the producer state at the log end, or why it cannot be told."""
        found = tuple(self._forgotten())
        self.seen = self.seen._replace(forgotten=found)
        if not self.needed:
            return
        left = next((self.failed[base] for base in self.needed if base in self.failed), "")
        for base in self.needed:
            known = self.facts.get(base)
            if known is not None and not self._is_whole(known):
                left = left or _damaged(known)
        if not left:
            left = self._add_state(rules)
        self.seen = self.seen._replace(left=left)

    def _forgotten(self) -> Iterator[Forgotten]:
        """The snapshots that have a transaction open which the log has forgotten, and what they should hold."""
        for file, (table, at_start) in self.suspected.items():
            gone = [row for row in table.tolist() if Open(row[0], row[-1]) in self.open.forgotten]
            if gone:
                data = without_open(table, [(row[0], row[-1]) for row in gone])
                told = tuple((row[0], row[1], row[-1]) for row in gone)
                yield Forgotten(file, told, data, at_start)

    def _add_state(self, rules: StateRules) -> str:
        try:
            loaded = self._loaded()
        except OSError as error:
            return f"could not be read: {why(error)}"
        if isinstance(loaded, str):
            return loaded
        rows = [self.facts[base].summary.rows for base in self.needed]
        if len(loaded) or any(map(len, rows)):
            table = ProducerTable(loaded, rows, self.seen.log_start, rules).entries()
        else:
            table = _NO_ENTRIES  # as in most partitions: nobody wrote with a producer id
        self.seen = self.seen._replace(
            data=producer_snapshot.encode_table(table),
            producers=len(table),
            open_transactions=int(np.count_nonzero(table[:, -1] >= 0)),
            forgets=not self.seen.files and len(table) > 0,
        )
        return ""

    def _loaded(self) -> Int64s | str:
        """The producers of the snapshot that the replay starts from, or why they are not to be had."""
        base = self.seen.judged.base
        if base is None:
            return _NO_ENTRIES
        for one in self.seen.rewritten:
            if one.file == base:
                return producer_snapshot.table(one.data)
        return self._table(base)

    def _table(self, file: SnapshotFile) -> Int64s | str:
        """The producers of a snapshot, or why they are not to be had."""
        if file.size > SNAPSHOT_AT_MOST_BYTES:
            return f"{file.name} has more than {SNAPSHOT_AT_MOST_BYTES} bytes"
        data = read_whole(f"{self.target.partition.path}/{file.name}", SNAPSHOT_AT_MOST_BYTES)
        if producer_snapshot.damage(data):
            return f"{file.name} changed while it was read"
        return producer_snapshot.table(data)


def read_snapshot_file(snapshot: Snapshot) -> SnapshotFile:
    """Check one snapshot, piece by piece.

    Raises:
        OSError: it cannot be read.
    """
    with opened_with_status(snapshot.file.path) as (descriptor, status):
        size = status.st_size
        damage = producer_snapshot.damage_in(
            size, lambda start, end: os.pread(descriptor, end - start, start)
        )
    entries = (size - producer_snapshot.HEADER_SIZE) // producer_snapshot.ENTRY_SIZE
    return SnapshotFile(snapshot.file.name, snapshot.offset, size, damage, 0 if damage else entries)


def _odd_name(partition: Partition) -> str:
    for special in partition.specials:
        if parse_file_name(special.name).kind is FileKind.SNAPSHOT:
            return f"{special.name} is no regular file"
    for leftover in partition.leftovers:
        name = parse_file_name(leftover.file.name)
        if name.kind is FileKind.SNAPSHOT and name.state is NameState.LIVE:
            return (
                f"{shown(name.name)} is not how a broker names a snapshot, but it would read it: move it away"
            )
    return ""


def _damaged(facts: SegmentFacts) -> str:
    return (
        f"{log_name(facts.base_offset)} is damaged at position {facts.summary.valid_bytes}: which producers wrote "
        "behind it cannot be told"
    )
