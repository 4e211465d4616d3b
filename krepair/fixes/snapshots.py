"""Fix ``snapshots``: check the producer snapshots of a log directory, and plan their repair."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from krepair.checks.catalogue import Finding, of_version
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, Place, ScanItem, ScanResult
from krepair.fixes.analysis import PartitionAnalysis, ResultKey, next_start_of
from krepair.fixes.context import Context, place_of
from krepair.fixes.files import RebuiltFile, rebuild_change, removal_change
from krepair.fixes.fix import Fix, Proposal, Purpose, partitions_to_analyze, skipped_for_leftovers
from krepair.fixes.forgotten import Open, OpenTransactions, ScanFrom
from krepair.fixes.gate import analysis_apart, gaps_of, waits_for_leftovers_alone, why_untouched
from krepair.fixes.logs import LogPart, facts_of, parts_after
from krepair.fixes.next_start import simulate_next_starts
from krepair.fixes.producers_at_end import SNAPSHOT_AT_MOST_BYTES, read_snapshot_file
from krepair.fixes.staging import Staging, Work
from krepair.formats import producer_snapshot
from krepair.formats.arrays import Int64s
from krepair.formats.broker_version import version_of
from krepair.formats.damage import UnknownVersion, shown
from krepair.formats.filenames import FileKind, NameState, log_name, offset_name, parse_file_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.producer_snapshot import (
    LAST_OFFSET,
    LAST_SEQUENCE,
    OFFSET_DELTA,
    OPEN_FIRST,
    PRODUCER_ID,
    TIMESTAMP,
    ProducerEntry,
)
from krepair.formats.words import count_text, time_text
from krepair.kernels.classes import D_NONE, D_PAST_END, D_TORN, D_ZEROS
from krepair.loading.next_start import LoadedLog, NextStart
from krepair.logdir.config import TopicSettings
from krepair.logdir.fingerprint import digest_bytes
from krepair.logdir.reading import read_whole, why
from krepair.logdir.values import LogDir, Partition, Snapshot
from krepair.plan.changes import names_removed
from krepair.plan.model import Change, ReplaceFile
from krepair.rules.missing import Gaps
from krepair.rules.model import SegmentFacts
from krepair.rules.recovery import floor_of
from krepair.rules.snapshots import (
    JudgedFiles,
    ProducerTable,
    SnapshotFacts,
    SnapshotFile,
    SnapshotReason,
    StaleTransactions,
    StateRules,
    expiry_of,
    judge_snapshots,
    replayed_from,
    without_open,
)
from krepair.rules.stale_transactions import STALE_TRANSACTION

_TORN = frozenset({D_TORN, D_PAST_END, D_ZEROS})
_NO_ENTRIES: Int64s = np.empty((0, len(producer_snapshot.ENTRY.names)), np.int64)


class SnapshotTarget(NamedTuple):
    """One partition whose snapshots are checked.

    Attributes:
        parts: logs as they are, or as they will be once the plan's changes are made.
        snapshots: snapshots of the partition, without those that are removed together with a segment.
        known: facts of segments that were scanned already, by base offset.
        log_start: log start offset in ``log-start-offset-checkpoint``; -1 if it has none for the partition.
        recovered_from: base offset of the first segment that the next start recovers, if the producer state is the one
            that this recovery builds.
        start: simulated next start; empty if none was simulated.
        log_end: log end offset that the next start uses; -1 if the log itself tells it.
        left: reason for an unknown log end, or empty.
        closed: names of the snapshots in which the changes end stale open transactions.
        gaps: reasons for missing offsets.
    """

    partition: Partition
    place: Place
    parts: tuple[LogPart, ...]
    snapshots: tuple[Snapshot, ...]
    known: Mapping[int, SegmentFacts]
    log_start: int
    recovered_from: int = INT64_MAX
    start: NextStart = NextStart()
    log_end: int = -1
    left: str = ""
    closed: frozenset[str] = frozenset()
    gaps: Gaps = Gaps(compacts=False, cleaned=0)

    def at_start(self, start: NextStart) -> SnapshotTarget:
        """Return the target as the next start sees it."""
        end, reason = start.log_end, start.differs(lambda loaded_log: loaded_log.log_end)
        loaded = start.by_version.values()
        recovered = [loaded_log.recovered[0] for loaded_log in loaded if loaded_log.recovered]
        for loaded_log in loaded:
            for base, _ in loaded_log.cut if loaded_log.dropped else ():
                reason = (
                    reason
                    or f"the next start cuts {log_name(base)} and deletes later segments; first --fix tail"
                )
            if loaded_log.dropped and not loaded_log.cut:
                reason = (
                    reason
                    or "the next start deletes its segments: log start is past the log end; first --fix checkpoints"
                )
        since = min(recovered, default=INT64_MAX)
        return self._replace(
            start=start, log_end=-1 if end is None else end, left=reason, recovered_from=since
        )

    @property
    def bases(self) -> tuple[int, ...]:
        """Base offsets of the segments."""
        return tuple(part.base_offset for part in self.parts)

    def recovered(self, since: int, log_end: int = -1) -> SnapshotTarget:
        """Return the target as a recovery from a segment on sees it: without snapshots above its base offset.

        Snapshots past the log end are kept here, because the plan has to remove them.
        """
        usable = (
            snapshot
            for snapshot in self.snapshots
            if snapshot.offset <= since or 0 <= log_end < snapshot.offset
        )
        return self._replace(snapshots=tuple(usable), recovered_from=since)


def target_of(
    log_dir: LogDir,
    partition: Partition,
    known: Iterable[SegmentFacts],
    changes: Sequence[Change],
    settings: TopicSettings,
) -> SnapshotTarget:
    """Return the target for a partition of a log directory.

    Args:
        known: facts of the partition's logs as they will be after the changes.
        changes: changes that are made before a broker reads the snapshots.
        settings: settings of the partition's topic.
    """
    key = partition.key
    recorded = log_dir.log_start.offsets.get(key, -1)
    gone = names_removed(changes)
    return SnapshotTarget(
        partition=partition,
        place=place_of(log_dir, partition),
        parts=parts_after(partition, changes),
        snapshots=tuple(snapshot for snapshot in partition.snapshots if snapshot.file.name not in gone),
        known={facts.base_offset: facts for facts in known},
        log_start=recorded,
        closed=frozenset(
            change.name
            for change in changes
            if isinstance(change, ReplaceFile) and change.rule == STALE_TRANSACTION
        ),
        gaps=gaps_of(log_dir, partition, changes, settings),
    )


def rules_now(context: Context) -> StateRules:
    """Return the rules by which the broker that will start expires producers."""
    settings, version = context.settings, version_of(context.options.broker_version)
    after_ms = expiry_of(version, settings.producer_id_expiration_ms, settings.transactional_id_expiration_ms)
    return StateRules(version, context.options.now_ms, after_ms)


def analyze_snapshots(
    targets: Sequence[SnapshotTarget],
    rules: StateRules,
    engine: Engine,
    *,
    clean: bool,
    always: bool = False,
    closes: bool = False,
) -> list[SnapshotFacts | None]:
    """Return the problems of each target's snapshots and the correct snapshot at its log end; None without a log.

    Args:
        targets: partitions whose snapshots are checked.
        rules: rules by which the broker that will start forgets producers.
        engine: engine that scans segments without known facts.
        clean: True if the broker was cleanly stopped.
        always: True to compute the state even if no snapshot is wrong, since some may be repaired already.
        closes: True to search the log for the open transactions of each snapshot that a start begins with; False to
            search only for those in the snapshots of ``SnapshotTarget.closed``.
    """
    from krepair.scan.scan import scan

    analyses = [_SnapshotAnalysis(target) if target.parts else None for target in targets]
    with_logs = [analysis for analysis in analyses if analysis is not None]
    _scan([(analysis, analysis.bases[-1]) for analysis in with_logs if analysis.needs_end], engine)
    for analysis in with_logs:
        analysis.begin(rules, clean=clean, always=always, closes=closes)
    _scan([(analysis, base) for analysis in with_logs for base in analysis.missing()], engine)
    while wanted := [(analysis, part) for analysis in with_logs for part in analysis.open.wanted()]:
        for (analysis, part), result in engine.each(
            scan, ((request, request[0].item(*request[1])) for request in wanted)
        ):
            analysis.take_part(part, result)
    for analysis in with_logs:
        analysis.finish(rules)
    return [None if analysis is None else analysis.result for analysis in analyses]


def _scan(wanted: Sequence[tuple[_SnapshotAnalysis, int]], engine: Engine) -> None:
    if not wanted:
        return
    from krepair.scan.scan import scan

    requests = (((analysis, base), analysis.item(base, analysis.start)) for analysis, base in wanted)
    for (analysis, base), result in engine.each(scan, requests):
        analysis.take(base, result)


class _SnapshotAnalysis:
    """Analysis of one partition in steps: the log end first, then as much of the log as the producer state needs."""

    def __init__(self, target: SnapshotTarget) -> None:
        self.target = target
        self.bases = target.bases
        self.facts = dict(target.known)
        self.failed: dict[int, str] = {}
        self.start = -1
        self.loads_above = -1
        self.needed: tuple[int, ...] = ()
        self.result = SnapshotFacts((), self.bases, self.bases[0], -1, JudgedFiles((), None, False))
        self.open = OpenTransactions(self.bases, {}, self._is_whole, target.gaps)
        self.suspected: dict[SnapshotFile, tuple[Int64s, bool]] = {}

    def item(self, base_offset: int, start: int) -> ScanItem:
        """Return the work item that scans a segment, or the end of the segment from an offset on."""
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
        """Store the result of a segment's scan."""
        if isinstance(result, Failed):
            self.failed[base_offset] = result.why
            return
        segment = self.target.parts[self.bases.index(base_offset)].segment
        self.facts[base_offset] = facts_of(segment, result)

    def take_part(self, part: ScanFrom, result: ScanResult | Failed) -> None:
        """Store the result of a scan for an open transaction."""
        segment = self.target.parts[self.bases.index(part.base_offset)].segment
        self.open.take(part, None if isinstance(result, Failed) else facts_of(segment, result))

    # -- the end of the log, and the files

    def begin(self, rules: StateRules, *, clean: bool, always: bool, closes: bool) -> None:
        """Judge the files by the log end; if the producer state is needed, list the segments to scan."""
        log_end, reason = self._log_end()
        reason = _misnamed_snapshot(self.target.partition) or reason
        recorded, first = self.target.log_start, self.bases[0]
        log_start = recorded if first < recorded <= log_end else first
        self.result = self.result._replace(log_start=log_start, log_end=log_end, left=reason)
        try:
            files = tuple(read_snapshot_file(snapshot) for snapshot in self.target.snapshots)
        except OSError as error:
            self._not_read(error)
            return
        unknown = next((file for file in files if isinstance(file.damage, UnknownVersion)), None)
        if unknown is not None and unknown.damage is not None:
            reason = reason or f"{unknown.name}: {unknown.damage.text}"
            self.result = self.result._replace(left=reason, unread=(unknown.name, unknown.damage.text))
        end = log_end if log_end >= 0 else INT64_MAX
        judged = judge_snapshots(files, self.bases, log_start, end)
        # A recovery deletes the snapshots above its first segment and replays from there. One of those above may lack
        # producers of which only a marker is left: a load drops an entry without a time, a replay keeps the producer.
        # For the load it compares with the recorded log start, even if that is below the first segment.
        if self.target.recovered_from <= self.bases[-1] and recorded < first:
            self.loads_above = max(recorded, 0)
        else:
            self.loads_above = log_start
        below = [file for file in files if file.offset <= self.target.recovered_from]
        judged = judged._replace(base=judge_snapshots(below, self.bases, self.loads_above, end).base)
        self.result = self.result._replace(files=files, judged=judged)
        if reason:
            return
        state = always or bool(judged.wrong) or (clean and not files)
        try:
            self._search_open_transactions(rules, clean=clean, state=state, closes=closes)
        except OSError as error:
            self._not_read(error)
            return
        if not state:
            return
        newest = -1 if judged.base is None else judged.base.offset
        self.start = replayed_from(self.bases, log_start, newest, self.target.recovered_from)
        ends = [*self.bases[1:], INT64_MAX]
        self.needed = tuple(
            base
            for base, end in zip(self.bases, ends, strict=True)
            if end > self.start and base < max(log_end, 1)
        )

    def _not_read(self, error: OSError) -> str:
        """Store the error of a file that could not be read, and return it as the reason why nothing is changed."""
        name, text = os.path.basename(str(error.filename or "")), f"could not be read: {why(error)}"
        self.result = self.result._replace(left=self.result.left or f"{name} {text}", unread=(name, text))
        return self.result.left

    def _search_open_transactions(self, rules: StateRules, *, clean: bool, state: bool, closes: bool) -> None:
        """Ask about the open transactions of the snapshots that a start reads, or that the state begins with.

        Raises:
            OSError: a snapshot cannot be read.
        """
        result = self.result
        chosen: dict[SnapshotFile, bool] = {}
        if closes:
            chosen = self._read_at_start()
        base = result.judged.base
        if base is not None and ((closes and state) or base.name in self.target.closed):
            chosen.setdefault(base, False)
        self.open = OpenTransactions(self.bases, dict(self.facts), self._is_whole, self.target.gaps)
        for file, at_start in chosen.items():
            table = self._table(file) if file.producers else _NO_ENTRIES
            if isinstance(table, str) or not (table[:, OPEN_FIRST] >= 0).any():
                continue
            self.suspected[file] = (table, at_start)
            for row in table[table[:, OPEN_FIRST] >= result.log_start].tolist():
                self.open.ask(Open(row[PRODUCER_ID], row[OPEN_FIRST]))

    def _read_at_start(self) -> dict[SnapshotFile, bool]:
        """Return the snapshots that the next start may begin with: True if it does so with the files as they are.

        With False, the start begins with the snapshot only after the wrong snapshots are moved to the backup.
        """
        result, loaded = self.result, self.target.start.by_version.values()
        wrong = {file.name for file, _ in result.judged.wrong}
        limit = min(
            (loaded_log.recovered[0] for loaded_log in loaded if loaded_log.recovered), default=result.log_end
        )
        usable = [
            file
            for file in result.files
            if result.log_start < file.offset <= limit and file.name not in wrong
        ]
        at_start = {loaded_log.snapshot_offset for loaded_log in loaded}
        chosen = dict.fromkeys(usable[-1:], False)
        return chosen | dict.fromkeys([file for file in result.files if file.offset in at_start], True)

    @property
    def needs_end(self) -> bool:
        """True if the log end is unknown until the active segment is read."""
        return self.target.log_end < 0 and not self.target.left and self.bases[-1] not in self.facts

    def _is_whole(self, facts: SegmentFacts) -> bool:
        """Return whether the facts cover every batch that a start reads in the segment."""
        torn = facts.base_offset == self.bases[-1] and facts.summary.damage in _TORN
        return facts.summary.damage == D_NONE or (torn and facts.end_offset >= self.result.log_end)

    def _log_end(self) -> tuple[int, str]:
        """Return the log end offset and an empty string, or -1 and why it is not known."""
        if self.target.log_end >= 0 or self.target.left:
            return self.target.log_end, self.target.left
        base = self.bases[-1]
        if base in self.failed:
            return -1, self.failed[base]
        if base not in self.facts:
            return -1, "its active segment could not be read"
        summary = self.facts[base].summary
        if summary.damage not in {D_NONE, *_TORN}:
            return -1, _damage_reason(self.facts[base])
        return max(base, summary.last_offset + 1), ""

    # -- the state

    def missing(self) -> list[int]:
        """Return the segments to scan: those without facts, and the one inside which the replay starts."""
        return [base for base in self.needed if base not in self.facts or base < self.start]

    def finish(self, rules: StateRules) -> None:
        """Add the stale open transactions and the producer state at the log end, or the reason for an unknown state."""
        forgotten = tuple(self._forgotten())
        self.result = self.result._replace(forgotten=forgotten)
        if not self.needed:
            return
        reason = next((self.failed[base] for base in self.needed if base in self.failed), "")
        for base in self.needed:
            known = self.facts.get(base)
            if known is not None and not self._is_whole(known):
                reason = reason or _damage_reason(known)
        if not reason:
            reason = self._add_state(rules)
        self.result = self.result._replace(left=reason)

    def _forgotten(self) -> Iterator[StaleTransactions]:
        """Yield the snapshots with stale open transactions, each with its correct content."""
        for file, (table, at_start) in self.suspected.items():
            entries = [ProducerEntry(*row) for row in table.tolist()]
            producers = tuple(
                (entry.producer_id, entry.producer_epoch, entry.current_txn_first_offset)
                for entry in entries
                if Open(entry.producer_id, entry.current_txn_first_offset) in self.open.forgotten
            )
            if producers:
                data = without_open(table, [(producer_id, first) for producer_id, _, first in producers])
                yield StaleTransactions(file, producers, data, at_start)

    def _add_state(self, rules: StateRules) -> str:
        try:
            loaded = self._loaded()
        except OSError as error:
            return self._not_read(error)
        if isinstance(loaded, str):
            return loaded
        rows = [self.facts[base].summary.rows for base in self.needed]
        if len(loaded) or any(map(len, rows)):
            table = ProducerTable(loaded, rows, self.loads_above, rules).entries()
        else:
            table = _NO_ENTRIES  # as in most partitions: nobody wrote with a producer id
        self.result = self.result._replace(
            data=producer_snapshot.encode_table(table),
            producers=len(table),
            open_transactions=int(np.count_nonzero(table[:, producer_snapshot.OPEN_FIRST] >= 0)),
            forgets=not self.result.files and len(table) > 0,
        )
        return ""

    def _loaded(self) -> Int64s | str:
        """Return the producers of the snapshot with which the replay starts, or the reason for a failure."""
        base = self.result.judged.base
        if base is None:
            return _NO_ENTRIES
        for forgotten in self.result.rewritten:
            if forgotten.file == base:
                return producer_snapshot.table(forgotten.data)
        return self._table(base)

    def _table(self, file: SnapshotFile) -> Int64s | str:
        """Return the producers of a snapshot, or the reason for a failure."""
        if file.size > SNAPSHOT_AT_MOST_BYTES:
            return f"{file.name} has more than {SNAPSHOT_AT_MOST_BYTES} bytes"
        data = read_whole(f"{self.target.partition.path}/{file.name}", SNAPSHOT_AT_MOST_BYTES)
        if producer_snapshot.damage(data):
            return f"{file.name} changed while it was read"
        return producer_snapshot.table(data)


def _misnamed_snapshot(partition: Partition) -> str:
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


def _damage_reason(facts: SegmentFacts) -> str:
    return (
        f"{log_name(facts.base_offset)} is damaged at position {facts.summary.valid_bytes}: which producers wrote "
        "behind it is unknown"
    )


SNAPSHOTS_RESULT: ResultKey[SnapshotFacts | None] = ResultKey("producer snapshots")
_UNKNOWN = (
    "producer snapshots: no valid one is left, and the log was compacted or cut at its start: producers without any "
    "remaining batch are unknown, so a retry of their last batch would be appended twice"
)
_FEW = 3
_MANY = 100_000
"""Producers of one partition from which on they take tens of MiB of a broker's heap, and MiB in each snapshot."""
_RULES = {
    SnapshotReason.UNREADABLE: "KR501",
    SnapshotReason.PAST_END: "KR502",
    SnapshotReason.OF_NO_SEGMENT: "KR504",
}


class Snapshots(Fix):
    """Fix ``snapshots``, which removes wrong producer snapshots and builds one at the log end from the log."""

    name = "snapshots"
    after = ("markers", "tail")

    def read(self, context: Context, analyses: Sequence[PartitionAnalysis], purpose: Purpose) -> None:
        """Compare the snapshots with the ends of the logs.

        If a snapshot is wrong, the log is read from the newest valid snapshot on, except for parts scanned already.
        """
        looked = partitions_to_analyze(analyses, purpose)
        touched = [
            analysis for analysis in looked if not why_untouched(analysis.partition, analysis.settings)
        ]
        simulate_next_starts(context, touched)
        targets = [
            target_of(
                context.view, analysis.partition, analysis.segments_after, analysis.changes, analysis.settings
            ).at_start(next_start_of(analysis))
            for analysis in touched
        ]
        clean = context.view.clean_shutdown
        results = analyze_snapshots(targets, rules_now(context), context.engine, clean=clean, closes=True)
        for analysis, result in zip(touched, results, strict=True):
            analysis.put(SNAPSHOTS_RESULT, result)

    def propose(self, context: Context, analysis: PartitionAnalysis) -> Proposal:
        """Return findings KR501 to KR506, the snapshot to build, and the snapshots to remove."""
        apart = analysis_apart(analysis)
        damaged = apart is not None and any(finding.rule == "KR501" for finding in _beside_swap(apart))
        if apart is not None and (damaged or snapshot_changes(apart)[0]):
            return skipped_for_leftovers(analysis, "producer snapshots")
        result = analysis.result(SNAPSHOTS_RESULT)
        if result is None:
            return Proposal(_beside_swap(analysis))
        findings = chain(snapshot_findings(analysis, result), _many_producers(context, analysis, result))
        return Proposal(findings, *snapshot_changes(analysis), log_end=result.log_end)

    def bytes_of(self, work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
        return (
            _rebuilt_without_stale(work, staging, change)
            if change.rule == STALE_TRANSACTION
            else rebuilt_snapshot(work, staging, change)
        )


SNAPSHOTS = Snapshots()


def rebuilt_snapshot(
    work: Work, staging: Staging, change: ReplaceFile, recovered_from: int | None = None
) -> RebuiltFile:
    """Return the rebuilt snapshot at the log end.

    Args:
        staging: staging of the partition.
        change: planned replacement of the snapshot.
        recovered_from: base offset of the first segment that the next start would recover; None if it recovers none.
    """
    target = _target_again(work, staging)
    if recovered_from is not None:
        targets = [target.recovered(recovered_from)]
    elif work.view.clean_shutdown:
        changes, log_end = list(staging.plan.changes), staging.plan.log_end_offset
        analysis = PartitionAnalysis(staging.listed, work.settings(staging), changes=changes, log_end=log_end)
        simulate_next_starts(work.context, [analysis])
        targets = [target.at_start(next_start_of(analysis))]
    else:  # planned after an unclean stop, or after a clean one whose marker the recovery guard holds now: try both
        floor = floor_of(target.bases, work.view.recovery_point.offsets.get(staging.listed.key, 0)) or 0
        named = int(change.name.partition(".")[0])
        targets = [target._replace(recovered_from=floor), target, target._replace(log_end=named)]
        # A start since 2.3 also recovers each segment without an index, which this plan may have made by now.
        targets += [target._replace(recovered_from=base) for base in target.bases if base < floor]
    made = _rebuilt_for(work, targets[0], change)
    others = (_rebuilt_for(work, target, change) for target in targets[1:])
    return next(
        (file for file in chain((made,), others) if digest_bytes(file.data) == change.digest_after), made
    )


def _rebuilt_for(work: Work, target: SnapshotTarget, change: ReplaceFile) -> RebuiltFile:
    rules = rules_now(work.context)
    (result,) = analyze_snapshots([target], rules, work.engine, clean=work.view.clean_shutdown, always=True)
    if result is None:
        return RebuiltFile(b"")
    at_end = result.name_at_end == change.name
    return RebuiltFile(
        result.data or b"", result.left or ("" if at_end else f"(the log ends at offset {result.log_end})")
    )


def _target_again(work: Work, staging: Staging) -> SnapshotTarget:
    settings, facts = work.settings(staging), staging.facts.values()
    return target_of(work.view, staging.listed, facts, staging.plan.changes, settings)


def _rebuilt_without_stale(work: Work, staging: Staging, change: ReplaceFile) -> RebuiltFile:
    """Return a snapshot without the open transactions that a new reading of the log proves stale."""
    target = _target_again(work, staging)
    target = target.recovered(int(change.name.partition(".")[0]))._replace(
        log_end=staging.plan.log_end_offset
    )
    (result,) = analyze_snapshots([target], rules_now(work.context), work.engine, clean=False)
    forgotten = () if result is None else result.forgotten
    data = next(
        (forgotten_file.data for forgotten_file in forgotten if forgotten_file.file.name == change.name), None
    )
    if data is None:  # repaired by an earlier run, or no longer stale
        data = read_whole(staging.folder.at(change.name), SNAPSHOT_AT_MOST_BYTES)
    return RebuiltFile(data)


# -- findings


def snapshot_findings(analysis: PartitionAnalysis, result: SnapshotFacts) -> Iterator[Finding]:
    """Yield the findings on the snapshots of one partition."""
    folder = analysis.partition.folder
    name, text = result.unread
    if name:
        unknown = any(isinstance(file.damage, UnknownVersion) for file in result.files if file.name == name)
        rule = "KR501" if unknown else "KR308"
        yield of_version(Finding(rule=rule, partition=folder, file=name, evidence=text), unknown=unknown)
    for file, reason in result.judged.wrong:
        if reason is SnapshotReason.UNREADABLE and file.damage is not None:
            yield Finding(
                rule="KR501",
                partition=folder,
                file=file.name,
                position=file.damage.position,
                evidence=f"{file.damage.text}; {_state_text(result)}",
                bytes=file.size,
            )
        elif reason is SnapshotReason.PAST_END:
            yield Finding(
                rule="KR502",
                partition=folder,
                file=file.name,
                evidence=f"offset {file.offset} is past the log end {result.log_end}: the log has lost what was "
                f"written up to there, or the file is not of this partition; {_state_text(result)}",
                bytes=file.size,
            )
    strays = [file for file, reason in result.judged.wrong if reason is SnapshotReason.OF_NO_SEGMENT]
    if strays:
        shown = ", ".join(file.name for file in strays[:_FEW]) + (" ..." if len(strays) > _FEW else "")
        yield Finding(
            rule=_RULES[SnapshotReason.OF_NO_SEGMENT],
            partition=folder,
            file=strays[0].name,
            evidence=f"{len(strays)} snapshots below the last two segments are named after no segment: {shown}; a "
            "broker writes one at each clean stop and each recovery, and deletes it later",
            bytes=sum(file.size for file in strays),
        )
    if result.forgets:
        yield Finding(
            rule="KR503",
            partition=folder,
            evidence=f"no snapshot at all, the log ends at {result.log_end}; cleanly stopped, so the log will not be "
            f"read either: {_producer_counts(result)} will be forgotten",
        )
    for forgotten in result.forgotten:
        if forgotten.at_start and not result.left:
            yield Finding(
                rule=STALE_TRANSACTION,
                partition=folder,
                file=forgotten.file.name,
                evidence=f"{_stale_text(forgotten)}; the next start begins with this snapshot",
                bytes=forgotten.file.size,
            )


def _many_producers(
    context: Context, analysis: PartitionAnalysis, result: SnapshotFacts
) -> Iterator[Finding]:
    """Yield KR506 with figures of the newest snapshot, if a broker keeps very many producers."""
    newest = result.judged.base
    if newest is None or newest.producers < _MANY or newest.size > SNAPSHOT_AT_MOST_BYTES:
        return
    try:
        data = read_whole(f"{analysis.partition.path}/{newest.name}", SNAPSHOT_AT_MOST_BYTES)
    except OSError as error:
        text = f"could not be read: {why(error)}"
        yield Finding(rule="KR308", partition=analysis.partition.folder, file=newest.name, evidence=text)
        return
    columns = producer_snapshot.table(data).T
    is_one_batch = columns[LAST_SEQUENCE] == columns[OFFSET_DELTA]
    once = int(np.count_nonzero((columns[LAST_OFFSET] >= 0) & is_one_batch))
    timestamp = columns[TIMESTAMP]
    ended = timestamp[columns[OPEN_FIRST] < 0]
    rules, settings = rules_now(context), context.settings
    key = "producer" if rules.expiry_ms == settings.producer_id_expiration_ms else "transactional"
    first, last = (
        int(end_ms) + rules.expiry_ms for end_ms in (ended.min(initial=INT64_MAX), ended.max(initial=-1))
    )
    forgets = "" if not len(ended) else f": from {time_text(first)} to {time_text(last)}"
    yield Finding(
        rule="KR506",
        partition=analysis.partition.folder,
        file=newest.name,
        evidence=f"{len(timestamp):,} producer ids, {once:,} of them of one batch only, {newest.size} bytes; "
        f"{count_text(len(result.files), 'snapshot')} here of {sum(file.size for file in result.files)} bytes. A "
        f"broker forgets an id {key}.id.expiration.ms={rules.expiry_ms} after its last batch{forgets}; "
        f"{len(timestamp) - len(ended):,} have a transaction open, and stay",
        bytes=newest.size,
    )


def _stale_text(forgotten: StaleTransactions) -> str:
    shown = ", ".join(
        f"of producer {producer}, epoch {epoch}, from offset {first} on"
        for producer, epoch, first in forgotten.producers[:_FEW]
    )
    more = " ..." if len(forgotten.producers) > _FEW else ""
    count = count_text(len(forgotten.producers), "transaction is", "transactions are")
    return f"{count} open here, but the log has no batch of it and no end of it: {shown}{more}"


def _beside_swap(analysis: PartitionAnalysis) -> Iterator[Finding]:
    """Yield the findings that snapshots show by themselves, if the log end depends on a pending swap."""
    if not waits_for_leftovers_alone(analysis.partition, analysis.settings):
        return
    waiting = "left as it is: a .swap in its folder has to become a segment first (--fix leftovers)"
    for name, position, text in snapshot_problems(analysis.partition):
        rule = "KR501" if position >= 0 else "KR308"
        evidence = f"{text}; {waiting}" if position >= 0 else text
        yield Finding(
            rule=rule, partition=analysis.partition.folder, file=name, position=position, evidence=evidence
        )


def _producer_counts(result: SnapshotFacts) -> str:
    return f"{result.producers} producers, {result.open_transactions} of them with an open transaction"


def _state_text(result: SnapshotFacts) -> str:
    if result.left:
        return f"left as it is: {result.left}"
    return f"{_producer_counts(result)} at the log end {result.log_end}, {_source_text(result)}"


def _source_text(result: SnapshotFacts) -> str:
    if result.judged.base is None:
        return f"by the log from offset {result.log_start} on"
    if result.judged.at_end:
        return f"by {result.judged.base.name}"
    return f"by {result.judged.base.name} and the log from there on"


def snapshot_problems(partition: Partition) -> Iterator[tuple[str, int, str]]:
    """Yield (file, position, problem) of each snapshot that a broker would not load."""
    for snapshot in partition.snapshots:
        try:
            damage = read_snapshot_file(snapshot).damage
        except OSError as error:
            yield snapshot.file.name, -1, why(error)
            continue
        if damage is not None and not isinstance(damage, UnknownVersion):
            yield snapshot.file.name, damage.position, damage.text


# -- forecast


def snapshot_forecast(analysis: PartitionAnalysis, loaded: LoadedLog | None) -> str:
    """Return what the next start does with wrong snapshots, in words for its forecast, or empty.

    Args:
        analysis: analyzed partition.
        loaded: simulated load of the log, None if unknown.
    """
    result = analysis.result(SNAPSHOTS_RESULT)
    if result is None or result.left or loaded is None:
        return ""
    if result.forgets:
        return f"without a producer snapshot {_producer_counts(result)} are forgotten"
    clean = not loaded.recovered
    end = loaded.log_end if clean else loaded.recovered[0]
    wrong = [file for file, reason in result.judged.wrong if reason is not SnapshotReason.OF_NO_SEGMENT]
    if not any(file.offset > result.log_start and (clean or file.offset <= end) for file in wrong):
        return ""
    texts = []
    unread = [offset for offset in loaded.unread if offset > result.log_start]
    if unread:
        texts.append(f"removes the producer snapshots {_names(unread)} unread")
    if loaded.unreadable:
        texts.append(f"removes the producer snapshots {_names(loaded.unreadable)} as unreadable")
    newest = max(loaded.snapshot_offset, result.log_start)
    if newest < end:
        texts.append(f"reads the log from offset {newest} on for its producers")
    return ", ".join(texts)


def _names(offsets: Sequence[int]) -> str:
    return ", ".join(offset_name(offset) for offset in offsets[:_FEW]) + (
        " ..." if len(offsets) > _FEW else ""
    )


# -- plan


def snapshot_changes(analysis: PartitionAnalysis) -> tuple[tuple[ReplaceFile, ...], tuple[str, ...]]:
    """Return the snapshot to build, the snapshots to remove, and notes for the reviewer."""
    result = analysis.result(SNAPSHOTS_RESULT)
    if result is None:
        return (), ()
    wrong, taken = result.judged.wrong, names_removed(analysis.changes)
    if result.left:
        is_told = wrong or not result.files or any(result.unread)
        return (), (f"its producer snapshots are not changed: {result.left}",) if is_told else ()
    changes = [_rebuilt_change(analysis, result)] if result.makes else []
    changes += [
        _closing_change(analysis, forgotten)
        for forgotten in result.rewritten
        if forgotten.file.name not in taken
    ]
    changes += [
        _removal_change(analysis, file, reason)
        for file, reason in wrong
        if file.name not in taken and not (result.makes and file.name == result.name_at_end)
    ]
    return tuple(changes), _notes(analysis, result) if result.makes else ()


def _notes(analysis: PartitionAnalysis, result: SnapshotFacts) -> tuple[str, ...]:
    """Return notes on unknown state, and on transactions for which read_committed consumers wait."""
    table = producer_snapshot.table(result.data or b"")
    opened = table[table[:, OPEN_FIRST] >= 0]
    first = opened[np.argsort(opened[:, OPEN_FIRST], kind="stable")][:_FEW]
    lines = [
        f"producer snapshots: producer {entry.producer_id}, epoch {entry.producer_epoch}, has a transaction open since "
        f"offset {entry.current_txn_first_offset}; its last batch is of {time_text(entry.timestamp)}; read_committed "
        "stops there until it is ended"
        for entry in (ProducerEntry(*row) for row in first.tolist())
    ]
    if len(opened) > _FEW:
        lines.append(f"producer snapshots: {len(opened) - _FEW} more have a transaction open")
    if result.judged.base is None and (analysis.settings.compacts or result.log_start > 0):
        lines.append(_UNKNOWN)
    return tuple(lines)


def _rebuilt_change(analysis: PartitionAnalysis, result: SnapshotFacts) -> ReplaceFile:
    before = next((file for file in result.files if file.offset == result.log_end), None)
    reason = f"{_damage_text(before)}{_producer_counts(result)}, {_source_text(result)}"
    folder, data = analysis.partition.folder, result.data or b""
    return rebuild_change(folder, result.name_at_end, before, data, _first_rule(result), reason)


def _closing_change(analysis: PartitionAnalysis, forgotten: StaleTransactions) -> ReplaceFile:
    file, data = forgotten.file, forgotten.data
    return rebuild_change(
        analysis.partition.folder, file.name, file, data, STALE_TRANSACTION, _stale_text(forgotten)
    )


def _removal_change(analysis: PartitionAnalysis, file: SnapshotFile, reason: SnapshotReason) -> ReplaceFile:
    return removal_change(
        analysis.partition.folder, file, _RULES[reason], f"{_damage_text(file)}{reason.value}"
    )


def _damage_text(file: SnapshotFile | None) -> str:
    damage = None if file is None else file.damage
    return "" if damage is None else f"{damage.text}; "


def _first_rule(result: SnapshotFacts) -> str:
    if result.forgets:
        return "KR503"
    reasons = {reason for _, reason in result.judged.wrong}
    return next((rule for reason, rule in _RULES.items() if reason in reasons), "KR502")
