"""Decisions of ``--fix recovery``, which does in advance the work of an unclean start above the recovery points.

The fix uses the decisions of ``tail``, ``index`` and ``snapshots`` from the segment with the recovery point on, and
appends leader epochs as a recovery would. The fix itself adds an empty segment at the log end, so that a start has
nothing else to recover, and advances the recovery point. The point is advanced last, because a start trusts all files
below the recovery point without reading these files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.checks.recovery_time import recovery_seconds, recovery_text
from krepair.checks.retention import FIRST_WITHOUT_SANITY_CHECK
from krepair.derive.epochs import epochs_of_log
from krepair.engine.items import Failed, LogsItem
from krepair.fixes.analysis import LogFacts, PartitionAnalysis, ResultKey
from krepair.fixes.context import Context, log_start_left, place_of
from krepair.fixes.damage import damaged_logs, damages_in, map_damaged_logs
from krepair.fixes.epochs import log_start_of, read_epochs_file
from krepair.fixes.files import RECOVERED, rebuild_change, removal_change
from krepair.fixes.fix import Proposal
from krepair.fixes.gate import missing_in_range, waits_for_leftovers_alone, why_untouched
from krepair.fixes.index.decide import (
    index_changes,
    inspect_indexes,
    read_logs_and_indexes,
    rebuilt_by_a_load,
    transaction_index,
)
from krepair.fixes.logs import parts_after, read_logs_after
from krepair.fixes.producers_at_end import replayed_from
from krepair.fixes.snapshots import analyze_snapshots, rules_now, target_of
from krepair.fixes.tail.decide import TAIL_RESULT, decide
from krepair.formats.checkpoint import encode_epochs
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    base_offset_of,
    log_name,
    offset_name,
    segment_name,
)
from krepair.formats.words import count_text
from krepair.logdir.config import log_dirs_left_out
from krepair.logdir.reading import read_whole
from krepair.logdir.reading import why as why_unreadable
from krepair.logdir.values import FileRef
from krepair.plan.changes import bases_touched, changes_logs
from krepair.plan.model import Change, KeepOriginal, MendLog, ReplaceFile, RollSegment, SetAside
from krepair.rules.aborts import may_be_untrue
from krepair.rules.changed_entries import ChangedLine
from krepair.rules.damage import why_not_mapped
from krepair.rules.model import SegmentFacts, Skipped
from krepair.rules.recovery import (
    RecoveryPointFacts,
    choose_epochs,
    floor_of,
    skip_until_fixed,
    why_damage_stays,
    why_ends_differ,
    why_not_rolled,
    why_recovery_point_stays,
)
from krepair.rules.snapshots import SnapshotFacts, SnapshotReason

_FEW = 3


def other_log_dirs(context: Context) -> Iterator[str]:
    """Yield a note for each other log directory of the broker without a clean stop, which needs its own plan."""
    for path in log_dirs_left_out([context.view.path], context.options.config):
        if os.path.isdir(path) and not os.path.lexists(f"{path}/{CLEAN_SHUTDOWN}"):
            yield f"{path} is another log directory of this broker; without a plan of its own the start recovers it"


def look_at_gain(context: Context, analysis: PartitionAnalysis) -> None:
    """Store, for ``check``, the bytes that a start need not read after the fix; all files were read already."""
    range_ = Range(context, analysis)
    if (
        range_.left is None
        and range_.spares_reading
        and not any(facts.summary.damage for facts in analysis.segments[:-1])
    ):
        analysis.put(RECOVERY_RESULT, Recovered(before=range_.before))


def sums(results: Mapping[str, Recovered]) -> str:
    """Describe the reading of a start that the plan saves, and the reading that remains, with the reasons."""
    ready = [result for result in results.values() if result.before > result.after]
    before = sum(result.before for result in ready)
    seconds = recovery_seconds(before, sum(result.batches for result in ready))
    return (
        f"the next start would read {before:,} bytes of {count_text(len(ready), 'partition')} that this plan makes "
        f"ready ({recovery_text(seconds)}, one recovery thread); {_still_read(results)}"
    )


def _still_read(results: Mapping[str, Recovered]) -> str:
    rest = {folder: result for folder, result in results.items() if result.after}
    if not rest:
        return "afterwards it reads nothing of the partitions of this plan"
    folders: dict[str, list[str]] = {}
    for folder, result in rest.items():
        folders.setdefault(result.still, []).append(folder)
    each = "; ".join(f"{_few(names)} ({why})" for why, names in folders.items())
    total = sum(result.after for result in rest.values())
    return f"afterwards it still reads {total:,} bytes of {count_text(len(rest), 'partition')}: {each}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _FEW
    text = ", ".join(names[:_FEW])
    return f"{text} and {more:,} more" if more > 0 else text


# -- analysis: each step takes all partitions, so that the engine reads them in one job


class Recovered(NamedTuple):
    """Planned recovery of one partition.

    Attributes:
        proposal: findings, changes and notes of this partition.
        line: changed recovery point entry, None if the entry does not change.
        before: bytes of the partition that a start reads today.
        batches: batches in the bytes that a start reads today.
        after: bytes that a start reads once the plan is applied.
        still: reason why a start still reads bytes; empty if a start reads nothing.
    """

    proposal: Proposal = Proposal()
    line: ChangedLine | None = None
    before: int = 0
    batches: int = 0
    after: int = 0
    still: str = ""


RECOVERY_RESULT: ResultKey[Recovered] = ResultKey("what an unclean start would recover")


class Range:
    """State of one partition's recovery, from the segment with its recovery point to the log end.

    Attributes:
        part: an analysis of the range alone.
        below: an analysis of the segments before the range.
        floor: base offset of the first segment of the range.
        point: recovery point in the checkpoint, None if there is no entry.
        left: reason for skipping the partition, or None.
        log_end: offset at which the log will end.
        roll: True if the partition gets a new segment.
        changes: changes to its log that were decided so far.
        small: changes to small files except indexes.
        aborts: transaction indexes to build.
        notes: notes for the reviewer.
    """

    def __init__(self, context: Context, analysis: PartitionAnalysis) -> None:
        partition = analysis.partition
        self.analysis = analysis
        self.view = context.view
        self.key = partition.key
        points = context.view.recovery_point.offsets
        self.point: int | None = points.get(self.key)
        floor = floor_of([segment.base_offset for segment in partition.segments], self.point or 0)
        self.floor = 0 if floor is None else floor
        segments = tuple(each for each in partition.segments if each.base_offset >= self.floor)
        self.part = PartitionAnalysis(
            partition._replace(segments=segments), analysis.settings, high_watermark=analysis.high_watermark
        )
        before = tuple(each for each in partition.segments if each.base_offset < self.floor)
        self.below = PartitionAnalysis(partition._replace(segments=before), analysis.settings)
        self.before = sum(segment.log.size for segment in segments)
        self.changes: list[Change] = []
        self.notes: list[str] = []
        self.log_end = 0
        self.small: list[ReplaceFile] = []
        self.aborts: list[ReplaceFile] = []
        self.not_rolled = why_not_rolled(partition.topic, context.version)
        self.roll = not self.not_rolled
        self.left = self._why_left()

    def _why_left(self) -> Skipped | None:
        partition, settings, view = self.analysis.partition, self.analysis.settings, self.view
        special = next((file for file in partition.specials if file.name.endswith(SEGMENT_SUFFIXES)), None)
        return why_recovery_point_stays(
            RecoveryPointFacts(
                special=None if special is None else (special.name, special.kind),
                untouched=why_untouched(partition, settings),
                first="leftovers" if waits_for_leftovers_alone(partition, settings) else "",
                marked=[folder.folder for folder in view.marked if folder.key == self.key],
                is_file=all(file.name != RECOVERY_POINT_CHECKPOINT for file in view.foreign),
                damaged=bool(view.recovery_point.damage),
            )
        )

    @property
    def spares_reading(self) -> bool:
        """True if a start would read less of the partition after the plan."""
        return self.before > (0 if self.roll else self.part.partition.segments[-1].log.size)

    def leave(self, code: str, text: str, fix: str = "") -> None:
        """Skip the partition for this reason, unless the partition is already skipped for another reason."""
        self.left = self.left or skip_until_fixed(code, text, fix)

    @property
    def all_changes(self) -> list[Change]:
        """Changes of earlier fixes, followed by those of the range."""
        return [*self.analysis.changes, *self.changes]

    # -- the result

    def outcome(self) -> Recovered:
        """Return the changes in their order, with notes on these changes."""
        if self.left is not None:
            note = f"recovery: its recovery point stays: {self.left.why}"
            still = f"left alone, code {self.left.code}"
            return self._still_reads(Proposal(left=self.left, left_note=note), still)
        folder = self.analysis.partition.folder
        if not self.spares_reading:
            text = (
                f"{self.not_rolled}; the next start still reads its {self.before:,} bytes"
                if self.not_rolled and self.before
                else self.not_rolled or "the next start reads nothing that it need not"
            )
            return self._still_reads(Proposal(notes=(f"recovery: {text}",)), self.not_rolled)
        if self.not_rolled:
            self.notes.append(f"recovery: {self.not_rolled}; its active segment is still read")
        taken = {change.name for change in self.analysis.changes if isinstance(change, ReplaceFile)}
        indexes, _ = index_changes(self.part, bases_touched(self.all_changes))
        small = (*self.small, *indexes, *self.aborts)
        made: list[Change] = [replace(file, rule=RECOVERED) for file in small if file.name not in taken]
        made += self.changes
        last = self.part.segments_after[-1]
        size = last.summary.valid_bytes
        if self.roll and size:
            made.append(
                RollSegment(
                    change_id=f"{folder}/{offset_name(self.log_end)}",
                    base_offset=self.log_end,
                    rule=RECOVERED,
                    reason="with it, what is before it is no longer read at a start",
                    undo=KeepOriginal(),
                )
            )
        topic, number = self.key
        # Keep an entry past the log end: it proves the missing tail, and does not make the start read more.
        line = ChangedLine(topic, number, old=self.point, new=max(self.log_end, self.point or 0))
        after, raises = 0 if self.roll else size, line.old != line.new
        return Recovered(
            Proposal(
                changes=tuple(made),
                notes=(self._told(after), *self.notes),
                log_end=self.log_end,
                raises_point=raises,
            ),
            line=line if raises else None,
            before=self.before,
            batches=sum(facts.summary.batches for facts in self.part.segments),
            after=after,
            still=self.not_rolled if after else "",
        )

    def _still_reads(self, proposal: Proposal, still: str) -> Recovered:
        return Recovered(proposal, before=self.before, after=self.before, still=still)

    def _told(self, after: int) -> str:
        mark = self.analysis.high_watermark
        valid = sum(facts.summary.valid_bytes for facts in self.part.segments_after)
        text = (
            f"recovery: recovery point {'missing' if self.point is None else self.point}, log end {self.log_end}, "
            f"high watermark {'unknown' if mark < 0 else mark}, {self.before - valid} bytes cut; a start would read "
            f"{self.before} bytes of {count_text(len(self.part.segments), 'segment')}, afterwards {after}"
        )
        if mark > self.log_end:
            text += f"; committed records are missing here: offsets {self.log_end} to {mark - 1}"
            text += "; let another replica lead"
        return text


# -- the steps, each for all partitions


def analyze_ranges(context: Context, ranges: Sequence[Range]) -> None:
    """Decide on the changes of all ranges that reduce a start's reading; other ranges are not read."""
    for step in (_look_below, _read, _cut, _measure, _see_snapshots, _see_aborts):
        step(context, [range_ for range_ in ranges if range_.left is None and range_.spares_reading])


def _look_below(context: Context, ranges: Sequence[Range]) -> None:
    """Check the indexes before the ranges, for brokers that check all indexes when they load a log.

    A broker up to 2.2 recovers a segment with a wrong index, and removes all later snapshots. The broker then finds
    open transactions again only because it also reads the log above the recovery point; with an advanced recovery
    point, the broker would lose these transactions (seen on 2.2.1).
    """
    if context.version is not None and context.version >= FIRST_WITHOUT_SANITY_CHECK:
        return
    range_of = {id(range_.below): range_ for range_ in ranges}
    for analysis, segment, result in rebuilt_by_a_load(context, [range_.below for range_ in ranges]):
        range_ = range_of[id(analysis)]
        replaced = {name for change in range_.analysis.changes for name in change.touches}
        names = {segment_name(segment.base_offset, suffix) for suffix in (INDEX, TIME_INDEX)}
        if isinstance(result, Failed):
            range_.leave("unreadable", result.why)
        elif not names & replaced:
            text = f"an index of {segment.log.name} is not right: a broker up to 2.2 recovers that segment"
            range_.leave("index", text, "index,recovery")


def _read(context: Context, ranges: Sequence[Range]) -> None:
    """Read every batch of the ranges, and their indexes, except those that earlier fixes have read."""
    unread = [range_ for range_ in ranges if range_.analysis.log is None]
    read_logs_and_indexes(context, [range_.part for range_ in unread], "regenerate", trim_active=True)
    known = [range_ for range_ in ranges if range_.analysis.log is not None]
    for range_ in known:
        range_.part.log = _from(range_.analysis.log, range_.floor)
    inspect_indexes(context, [range_.part for range_ in known], "regenerate", trim_active=True)
    for range_ in ranges:
        range_.part.log_after = _from(range_.analysis.log_after, range_.floor)
        for facts in range_.part.segments:
            range_.analysis.digests[log_name(facts.base_offset)] = facts.summary.headers
        problem = range_.part.log.problem if range_.part.log is not None else None
        if problem is not None and problem.code != "txnindex-damage":
            range_.left = problem
        elif len(range_.part.segments) != len(range_.part.partition.segments):
            range_.leave("unreadable", "not all of its segments could be read")


def _from(log: LogFacts | None, floor: int) -> LogFacts | None:
    if log is None:
        return None
    return log._replace(segments=tuple(facts for facts in log.segments if facts.base_offset >= floor))


def _cut(context: Context, ranges: Sequence[Range]) -> None:
    """Cut torn tails; skip partitions with other damage."""
    map_damaged_logs(context, [range_.part for range_ in ranges if not changes_logs(range_.analysis.changes)])
    torn = []
    for range_ in ranges:
        if changes_logs(range_.analysis.changes):
            if any(
                isinstance(change, SetAside) or _is_by_consent(change) for change in range_.analysis.changes
            ):
                range_.leave(
                    "damage",
                    "bytes of its log go by a consent; once that is applied, plan its recovery",
                    "recovery",
                )
            elif any(facts.summary.damage for facts in range_.part.segments_after):
                range_.leave("damage", "damage is left in what a start would read", "tail,recovery")
            continue
        damages = damages_in(context.view, range_.part)
        range_.left = range_.left or why_damage_stays(damages, why_not_mapped(damaged_logs(range_.part)))
        if range_.left is None and damages:
            torn.append(range_)
    decide(context, [range_.part for range_ in torn])
    for range_ in torn:
        proposal = range_.part.result(TAIL_RESULT) or Proposal()
        if not proposal.changes:
            text = "its torn tail cannot be cut" if proposal.left is None else proposal.left.why
            range_.leave("damage", "; ".join([text, *proposal.notes]))
            continue
        range_.changes += proposal.changes
        range_.part.changes += proposal.changes
    read_logs_after(context, [range_.part for range_ in torn if range_.left is None])


def _is_by_consent(change: Change) -> bool:
    return isinstance(change, MendLog) and any(removed.consent for removed in change.removed)


def _measure(context: Context, ranges: Sequence[Range]) -> None:
    """Find the end of each log, compare the end with other evidence, and merge the leader epochs up to the end."""
    for range_ in ranges:
        segments = range_.part.segments_after
        range_.log_end = segments[-1].end_offset
        start = log_start_left(context, range_.key, range_.log_end)
        range_.left = range_.left or why_ends_differ(segments, start)
        range_.left = range_.left or missing_in_range(
            context.view, range_.analysis, segments, range_.all_changes
        )
        taken = {segment_name(range_.log_end, suffix) for suffix in SEGMENT_SUFFIXES}
        orphan = next(
            (file.name for file in range_.analysis.partition.orphan_indexes if file.name in taken), ""
        )
        if orphan and range_.roll and segments[-1].summary.valid_bytes:
            text = f"{orphan} is without its log, where the new segment would be"
            if base_offset_of(orphan) in range_.analysis.partition.missing_logs:
                range_.leave("leftovers", f"{text}: move it out of the folder, then plan again")
            else:
                range_.leave("leftovers", text, "leftovers")
        if range_.left is None:
            _see_epochs(context, range_, segments)


def _see_epochs(context: Context, range_: Range, segments: Sequence[SegmentFacts]) -> None:
    partition = range_.analysis.partition
    if any(
        isinstance(each, ReplaceFile) and each.name == LEADER_EPOCH_CHECKPOINT
        for each in range_.analysis.changes
    ):
        return
    file = read_epochs_file(partition)
    log_start = log_start_of(context.view, partition, segments)
    log = epochs_of_log(
        [each.summary for each in segments],
        log_start,
        compacted=range_.analysis.settings.compacts,
        recorded=file.recorded.entries,
    )
    is_whole = len(segments) == len(range_.analysis.partition.segments)
    chosen = choose_epochs(file.recorded, log, segments, context.version, file.wrong, is_whole=is_whole)
    range_.left = range_.left or chosen.left
    if chosen.entries is None:
        return
    if file.digest:
        range_.analysis.digests[LEADER_EPOCH_CHECKPOINT] = file.digest
    count = count_text(len(chosen.entries), "entry", "entries")
    range_.small.append(
        rebuild_change(
            partition.folder,
            LEADER_EPOCH_CHECKPOINT,
            partition.leader_epoch_checkpoint,
            encode_epochs(chosen.entries),
            RECOVERED,
            f"{count}: a recovery appends the epochs of the batches that it reads",
        )
    )


def _see_snapshots(context: Context, ranges: Sequence[Range]) -> None:
    """Rebuild the producers at each log end from the newest snapshot at or below the range, as a recovery does."""
    rules = rules_now(context)
    targets = []
    for range_ in ranges:
        partition = range_.analysis.partition
        facts = (*range_.analysis.segments_after, *range_.part.segments_after)
        target = target_of(context.view, partition, facts, range_.all_changes, range_.analysis.settings)
        targets.append(target.recovered(range_.floor, range_.log_end))
    snapshots = analyze_snapshots(targets, rules, context.engine, clean=False, always=True)
    for range_, snapshot_facts in zip(ranges, snapshots, strict=True):
        if (
            snapshot_facts is None
            or snapshot_facts.left
            or snapshot_facts.data is None
            or snapshot_facts.log_end != range_.log_end
        ):
            range_.leave(
                "producers",
                f"its producers are unknown: {snapshot_facts.left if snapshot_facts else 'no log'}",
            )
        else:
            _take_snapshots(range_, snapshot_facts)


def _take_snapshots(range_: Range, snapshot_facts: SnapshotFacts) -> None:
    folder, data = range_.analysis.partition.folder, snapshot_facts.data or b""
    existing = next(
        (each for each in range_.analysis.partition.snapshots if each.offset == range_.log_end), None
    )
    file = None if existing is None else existing.file
    if range_.log_end > snapshot_facts.bases[0] and not (file is not None and same_bytes(file, data)):
        text = (
            f"{snapshot_facts.producers} producers, {snapshot_facts.open_transactions} of them with an open "
            "transaction, at the log end"
        )
        name = segment_name(range_.log_end, ".snapshot")
        range_.small.append(rebuild_change(folder, name, file, data, RECOVERED, text))
    range_.small += [
        removal_change(folder, file, RECOVERED, reason.value)
        for file, reason in snapshot_facts.judged.wrong
        if reason is SnapshotReason.PAST_END
    ]
    if snapshot_facts.open_transactions:
        count = count_text(snapshot_facts.open_transactions, "transaction is", "transactions are")
        range_.notes.append(
            f"recovery: {count} open at its log end, as after any crash: read_committed stops there until it ends"
        )


def _see_aborts(context: Context, ranges: Sequence[Range]) -> None:
    """Compare the transaction indexes of the ranges with a replay from the start of the first open transaction."""
    from krepair.rewrite.indexes.transactions import inspect_txn

    chosen = [range_ for range_ in ranges if _has_transactions(range_)]
    items = []
    for range_ in chosen:
        partition = range_.analysis.partition
        try:
            start = replayed_from(partition, range_.floor)
        except OSError as error:
            range_.leave("unreadable", f"a producer snapshot could not be read: {why_unreadable(error)}")
            start = range_.floor
        parts = [part for part in parts_after(partition, range_.all_changes) if part.base_offset >= start]
        items.append(
            LogsItem(
                place=place_of(context.view, partition),
                segments=tuple((part.base_offset, part.size) for part in parts),
            )
        )
    for index, result in context.engine.map(inspect_txn, items):
        range_ = chosen[index]
        if isinstance(result, Failed):
            range_.leave("unreadable", result.why)
            continue
        touched, made = bases_touched(range_.all_changes), _transaction_indexes_cut(range_.all_changes)
        for each in result.problems:
            if each.base_offset not in touched:
                if each.base_offset >= range_.floor:
                    range_.aborts.append(transaction_index(range_.analysis.partition.folder, each, RECOVERED))
            elif made.get(each.base_offset) != each.digest_after:
                name = segment_name(each.base_offset, ".txnindex")
                text = f"{name}: {each.text}; its log changes too: change that first, then recover it"
                range_.leave(
                    "txnindex-disagrees", text, "tail" if each.base_offset in made else "index=regenerate"
                )


def _transaction_indexes_cut(changes: Sequence[Change]) -> dict[int, str]:
    """Return the digest of each cut log's ``.txnindex``, by base offset; empty if the file does not change."""
    return {
        change.base_offset: next(
            (new.digest_after for new in change.companions if new.name.endswith(".txnindex")), ""
        )
        for change in changes
        if isinstance(change, MendLog)
    }


def _has_transactions(range_: Range) -> bool:
    """Return whether a replay may find a wrong transaction index in the range."""
    segments = range_.part.partition.segments
    entries = any(segment.txn_index and segment.txn_index.size for segment in segments)
    return may_be_untrue(entries=entries, summaries=(facts.summary for facts in range_.part.segments))


def same_bytes(file: FileRef, data: bytes) -> bool:
    """Return whether a file holds exactly these bytes; False if it cannot be read."""
    try:
        return read_whole(file.path, len(data) + 1) == data
    except OSError:
        return False
