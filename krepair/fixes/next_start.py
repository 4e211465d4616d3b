"""Simulation of each partition's next start, for every fix and for the forecast.

A start is simulated only if files are wrong. Otherwise the result is known: the start reads the unflushed segments and
changes nothing.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from krepair.checks.index_judge import ENTRY_SIZES
from krepair.engine.items import Failed
from krepair.fixes.analysis import NEXT_START, PartitionAnalysis, ResultKey, indexes_of, next_start_of
from krepair.fixes.context import Context, log_start_left, place_of
from krepair.fixes.logs import LogPart, parts_after, read_active_segments
from krepair.fixes.producers_at_end import newest_snapshot, read_snapshot_file
from krepair.formats import producer_snapshot
from krepair.formats.batch_v2 import LOG_OVERHEAD, MAGIC
from krepair.formats.broker_version import VersionNumber, version_text
from krepair.formats.filenames import (
    INDEX,
    INDEX_KINDS,
    SWAP,
    TIME_INDEX,
    FileKind,
    log_name,
    parse_file_name,
    segment_name,
)
from krepair.formats.java_numbers import INT64_MAX, LARGEST_FILE_BYTES
from krepair.loading.behaviour import JUDGED_VERSIONS, Broker, behaviour_of
from krepair.loading.next_start import LoadedLog, NextStart
from krepair.logdir.reading import opened_for_reading
from krepair.logdir.values import FileRef, LogDir, Partition, Segment, Snapshot
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options
from krepair.plan.changes import CompleteSwap, ReplaceFile, RewriteSegments, SetAside, names_removed
from krepair.rules.model import SegmentFacts, Skipped
from krepair.rules.recovery import floor_of
from krepair.rules.snapshots import expiry_of

if TYPE_CHECKING:
    from krepair.loading.simulate import SegmentFiles, StartItem


_ENTRY: Final = struct.Struct(">ii")


def simulate_next_starts(
    context: Context, analyses: Sequence[PartitionAnalysis], *, whole: bool = False
) -> None:
    """Store ``NEXT_START`` of each partition, for its files after the changes proposed so far.

    The simulated version is the broker's, or each of ``JUDGED_VERSIONS`` if the version is unknown. A second call
    without new changes does nothing. The log end offset remains unknown for logs that a start after an unclean stop
    reads but krepair has not read yet.

    Args:
        whole: True to replay also the producers up to the log end, because these may make a start fail.
    """
    versions = _versions(context)
    _find_ends_below_log_starts(context, analyses)
    chosen: list[tuple[PartitionAnalysis, _Files]] = []
    for analysis in analyses:
        wanted = _StartAsked(len(analysis.changes), analysis.log is not None, whole)
        before = analysis.result(_ASKED)
        if before is not None and before.covers(wanted):
            continue
        analysis.put(_ASKED, wanted)
        if not analysis.partition.unreadable:
            chosen.append((analysis, _Files(context, analysis)))
    starts = _simulated(context, [files for _, files in chosen], versions, whole=whole)
    for (analysis, _), start in zip(chosen, starts, strict=True):
        analysis.put(NEXT_START, start)


def _find_ends_below_log_starts(context: Context, analyses: Sequence[PartitionAnalysis]) -> None:
    """Read active segments of logs that may end below a recorded log start, which ``checkpoints`` then removes."""
    starts = context.view.log_start.offsets if "checkpoints" in context.options.fixes else {}
    doubted = {
        analysis.partition.folder: analysis
        for analysis in analyses
        if analysis.log is None and analysis.log_end < 0 and analysis.partition.segments
        if starts.get(analysis.partition.key, 0) > analysis.partition.segments[-1].base_offset
    }
    partitions = [analysis.partition for analysis in doubted.values()]
    for folder, facts in read_active_segments(context.view, context.engine, partitions).items():
        if not facts.summary.damage:
            doubted[folder].log_end = facts.end_offset


def _simulated(
    context: Context, chosen: Sequence[_Files], versions: Sequence[VersionNumber], *, whole: bool
) -> list[NextStart]:
    """Return the next start of each partition, simulated if one of its files is wrong."""
    starts: dict[int, NextStart] = {}
    for number, files in enumerate(chosen):
        loaded = files.as_found(versions, whole=whole) if files.is_told else files.not_read()
        if loaded is not None:
            starts[number] = NextStart(dict.fromkeys(versions, loaded), is_simulated=False)
    wrong = [number for number in range(len(chosen)) if number not in starts]
    if wrong:
        from krepair.loading.simulate import simulate_start

        brokers = _brokers(context, versions)
        items = [chosen[number].item(context.options.now_ms, brokers, whole=whole) for number in wrong]
        for index, result in context.engine.map(simulate_start, items):
            starts[wrong[index]] = (
                NextStart(unread=result) if isinstance(result, Failed) else NextStart(result)
            )
    return [starts[number] for number in range(len(chosen))]


def _versions(context: Context) -> tuple[VersionNumber, ...]:
    if context.version is not None:
        return (context.version,)
    return (
        tuple(version for version in JUDGED_VERSIONS if (*version[:2], 0) in context.readable_by)
        or JUDGED_VERSIONS
    )


def _brokers(context: Context, versions: Sequence[VersionNumber]) -> tuple[Broker, ...]:
    settings = context.settings
    return tuple(
        Broker(
            version,
            behaviour_of(version),
            expiry_of(version, settings.producer_id_expiration_ms, settings.transactional_id_expiration_ms),
        )
        for version in versions
    )


def why_not_started(context: Context) -> dict[str, Skipped]:
    """Return reasons to skip partitions whose next start is worse with the changes than without, by folder.

    A worse start fails; or the start recovers offsets that it would not recover without the changes, except in a merged
    segment; or it recovers fewer offsets, from a snapshot that cannot be right; or the start forgets all producers,
    which happens if no snapshot remains after a clean stop. A cut by consent may leave no snapshot up to the new log
    end. When a broker of 2.8 or later recovers a segment, the broker deletes all snapshots above that segment. Only the
    recovery of a later segment makes a snapshot again, so rebuilding the indexes of some segments may remove the last
    snapshot.
    """
    versions = _versions(context)
    pairs: dict[str, tuple[_Files, _Files]] = {}
    for folder, analysis in context.analyses.items():
        if analysis.changes and _can_be_simulated(analysis):
            as_found = PartitionAnalysis(analysis.partition, analysis.settings, log=analysis.log)
            pairs[folder] = _Files(context, as_found), _Files(context, analysis)
    doubted = [
        folder
        for folder in pairs
        if any(loaded.failure for loaded in next_start_of(context.analyses[folder]).by_version.values())
        or any(
            change.consents or isinstance(change, CompleteSwap) for change in context.analyses[folder].changes
        )
    ]
    others = [
        folder
        for folder, (before, after) in pairs.items()
        if folder not in doubted and before.is_told and after.may_change_what_is_recovered(before)
    ]
    starts = _simulated(
        context, [files for folder in others for files in pairs[folder]], versions, whole=False
    )
    doubted += [
        folder
        for folder, *both in zip(others, starts[::2], starts[1::2], strict=True)
        if any(loaded.recovered for start in both for loaded in start.by_version.values())
    ]
    starts = _simulated(
        context, [files for folder in doubted for files in pairs[folder]], versions, whole=True
    )
    more = "" if context.version else "; give --broker-version, if it is a later one"
    worse: dict[str, Skipped] = {}
    for folder, before, after in zip(doubted, starts[::2], starts[1::2], strict=True):
        files, analysis = pairs[folder][1], context.analyses[folder]
        for version, loaded in sorted(after.by_version.items(), reverse=True):
            without = before.by_version.get(version)
            if without is None or without.failure:
                continue
            text = f"with these changes {version_text(version)} would"
            if loaded.failure:
                text = f"{text} not start any more: {loaded.file}: {loaded.failure}{more}"
                worse[folder] = Skipped("fails-to-start", text, damaged=True)
            elif base := _recovered_anew(analysis, without, loaded):
                text = f"{text} recover {log_name(base[0])}, which it does not recover as the files are{more}"
                worse[folder] = Skipped("recovers-more", text, damaged=True)
            elif len(loaded.recovered) < len(without.recovered) and files.is_impossible(
                loaded.snapshot_offset
            ):
                name = segment_name(loaded.snapshot_offset, ".snapshot")
                text = f"{text} recover less, and begin with {name}, which cannot be right"
                worse[folder] = _with_snapshots(context.options, text)
            elif without.producers > 0 > loaded.producers and any(size for _, size in loaded.segments):
                worse[folder] = _forgets_producers(context.options, text, loaded)
    return worse


def _recovered_anew(analysis: PartitionAnalysis, without: LoadedLog, loaded: LoadedLog) -> tuple[int, ...]:
    """Return the segments that a start recovers only because of the changes, except merged segments.

    A merged segment has its own indexes. After a withdrawal of segments by consent, an earlier segment is the last one,
    which a start then recovers. A segment that the start would delete behind a cut, without the changes, loses nothing
    if the start recovers it instead.
    """
    merged = {
        change.base_offset
        for change in analysis.changes
        if isinstance(change, (CompleteSwap, RewriteSegments))
    }
    if any(isinstance(change, SetAside) for change in analysis.changes):
        merged |= {base for base, _ in loaded.segments[-1:]}
    bases = sorted({segment.base_offset for segment in analysis.partition.segments} | merged)
    before = {floor_of(bases, base) for base in without.recovered}
    there = {base for base, _ in without.segments}
    return tuple(base for base in loaded.recovered if base in there and base not in before | merged)


def _with_snapshots(options: Options, text: str) -> Skipped:
    """Return the reason with ``--fix snapshots`` as the way out, or a start of the broker if the plan has that fix."""
    if "snapshots" in options.fixes:
        why = f"{text}, and --fix snapshots makes none here: a start on the files as they are keeps the producers"
        return Skipped("forgets-producers", why, damaged=True)
    fixes = ",".join(dict.fromkeys([*options.fixes, "snapshots"]))
    consents = (word for consent in options.accepted_losses for word in ("--accept-data-loss", consent))
    again = Next.of("plan", LOG_DIR, "--fix", fixes, *consents, out=PLAN)
    return Skipped("forgets-producers", f"{text}: add --fix snapshots", again, damaged=True)


def _forgets_producers(options: Options, text: str, loaded: LoadedLog) -> Skipped:
    text = f"{text} forget all producers of the log"
    if loaded.recovered:
        recovered = ", ".join(map(log_name, loaded.recovered))
        why = f"{text}, as it recovers {recovered} only and deletes all snapshots"
        return Skipped("forgets-producers", why, damaged=True)
    return _with_snapshots(options, f"{text}, as no producer snapshot is left")


class _StartAsked(NamedTuple):
    """State of a partition for which a start was simulated, and the extent of the simulation."""

    changes: int
    read: bool
    whole: bool

    def covers(self, wanted: _StartAsked) -> bool:
        """Return whether the earlier simulation also answers this request."""
        return self[:2] == wanted[:2] and self.whole >= wanted.whole


_ASKED: ResultKey[_StartAsked] = ResultKey("what the next start was asked of")


class _Files:
    """Files of one partition in the state that its next start finds."""

    def __init__(self, context: Context, analysis: PartitionAnalysis) -> None:
        view = self._view = context.view
        self._analysis = analysis
        self._clean = view.clean_shutdown
        finished = [change for change in analysis.changes if isinstance(change, CompleteSwap)]
        self._finished = {change.base_offset for change in finished}
        replaced = self._finished.union(*(change.replaces for change in finished))
        self._parts = tuple(
            part
            for part in parts_after(analysis.partition, analysis.changes)
            if part.base_offset not in replaced
        )
        after = analysis.segments_after
        self._facts = {facts.base_offset: facts for facts in after}
        log_end = after[-1].end_offset if after and not after[-1].summary.damage else analysis.log_end
        self._log_start = log_start_left(context, analysis.partition.key, log_end)
        made = {name for change in analysis.changes for name in change.leaves}
        gone = names_removed(analysis.changes)
        self._made = made
        # A merged segment does not exist yet: its sources and their indexes represent the merged segment.
        self._gone = names_removed(change for change in analysis.changes if isinstance(change, ReplaceFile))
        self._snapshots = tuple(
            snapshot for snapshot in analysis.partition.snapshots if snapshot.file.name not in gone
        )
        kept = {snapshot.file.name for snapshot in self._snapshots}
        self._new_snapshots = tuple(
            int(name.removesuffix(".snapshot")) for name in made - kept if name.endswith(".snapshot")
        )
        bases = [part.base_offset for part in self._parts]
        floor = floor_of(bases, view.recovery_point.offsets.get(analysis.partition.key, 0))
        self._recovered = (
            () if self._clean or floor is None else tuple(base for base in bases if base >= floor)
        )

    @property
    def is_told(self) -> bool:
        """True if the start can be simulated, because all its inputs are known or need only a few reads."""
        is_known = self._clean or bool(self._facts) or not self._parts
        return is_known and _can_be_simulated(self._analysis)

    def may_change_what_is_recovered(self, before: _Files) -> bool:
        """Return whether changed indexes may decide which flushed segments a start recovers."""
        closed = [part.segment for part in self._parts if not self._is_recovered(part.base_offset)]
        names = {
            segment_name(segment.base_offset, suffix) for segment in closed for suffix in (INDEX, TIME_INDEX)
        }
        touched = (self._made - before._made) | self._gone
        return any(segment.index is None for segment in closed) or any(
            name.removesuffix(SWAP) in names for name in touched
        )

    def is_impossible(self, offset: int) -> bool:
        """Return whether a snapshot not made by the changes has a producer at or past the snapshot's own offset."""
        for snapshot in self._snapshots:
            if snapshot.offset == offset and snapshot.file.name not in self._made:
                try:
                    _, producers = newest_snapshot([snapshot], offset)
                except OSError:
                    return True
                return any(producer.last_data_offset >= offset for producer in producers)
        return False

    # -- without a simulation

    def as_found(self, versions: Sequence[VersionNumber], *, whole: bool) -> LoadedLog | None:
        """Return the log as it is if no file that a start may read is wrong; else None."""
        partition, analysis = self._analysis.partition, self._analysis
        if not self._parts or partition.waiting_swap:
            return None
        if any(self._is_wrong(part, whole=whole) for part in self._parts):
            return None
        stops_at_gaps = any(behaviour_of(version).looks_in_one_segment for version in versions)
        if whole and stops_at_gaps and _is_missing_a_beginning(analysis):
            return None
        last = self._parts[-1].base_offset
        facts = self._facts.get(last)
        log_end = last if facts is None else facts.end_offset
        snapshot = self._newest(self._recovered[0] if self._recovered else log_end, whole=whole)
        if snapshot is None or log_end < self._log_start:
            return None
        return LoadedLog(
            recovered=self._recovered,
            bytes_read=self._bytes_read(),
            segments=tuple((part.base_offset, part.size) for part in self._parts),
            log_end=log_end,
            snapshot_offset=snapshot,
        )

    def not_read(self) -> LoadedLog:
        """Return the known results of a start that reads logs which krepair has not read."""
        limit = self._recovered[0] if self._recovered else -1
        return LoadedLog(
            recovered=self._recovered,
            bytes_read=self._bytes_read(),
            snapshot_offset=self._readable_below(limit),
        )

    def _bytes_read(self) -> int:
        return sum(part.size for part in self._parts if self._is_recovered(part.base_offset))

    def _is_recovered(self, base_offset: int) -> bool:
        return bool(self._recovered) and base_offset >= self._recovered[0]

    def _readable_below(self, limit: int) -> int:
        """Return the offset of the newest readable snapshot up to a limit, -1 without such a snapshot."""
        for snapshot in reversed(self._snapshots):
            if self._log_start < snapshot.offset <= limit and self._is_readable(snapshot):
                return snapshot.offset
        return -1

    def _is_readable(self, snapshot: Snapshot) -> bool:
        try:
            return snapshot.file.name in self._made or read_snapshot_file(snapshot).damage is None
        except OSError:
            return False

    def _is_wrong(self, part: LogPart, *, whole: bool) -> bool:
        """Return whether a segment differs from what a broker leaves, in the parts that a start may read."""
        analysis, segment = self._analysis, part.segment
        facts = self._facts.get(segment.base_offset)
        is_last = part is self._parts[-1]
        is_read = whole or self._is_recovered(segment.base_offset) or (is_last and self._clean)
        is_unread = facts is None and (part.size > 0 or analysis.log is not None)
        if is_read and (is_unread or (facts is not None and facts.summary.damage)):
            return True
        if not self._clean and _may_fill_its_index(analysis, segment):
            return True
        aborts = segment.txn_index
        known = {} if analysis.log is None else analysis.log.txn_entries
        empty = analysis.log is None and aborts is not None and not aborts.size
        if aborts and not self._is_made(aborts) and not empty and segment.base_offset not in known:
            return True
        if is_last and _is_too_long(analysis, segment):
            return True
        if whole:
            return _index_is_wrong(self._view, analysis, segment)
        if any(file is None or file.size % size for file, size in _sizes(segment) if not self._is_made(file)):
            return True
        return is_last and self._clean and not self._is_made(segment.index) and not _leads_in(segment, facts)

    def _is_made(self, file: FileRef | None) -> bool:
        return file is not None and file.name in self._made

    def _newest(self, limit: int, *, whole: bool) -> int | None:
        """Return the offset of the snapshot that a start loads, -1 without one; None if only a simulation can tell."""
        if any(snapshot.offset > limit for snapshot in self._snapshots) and self._clean:
            return None
        usable = [snapshot for snapshot in self._snapshots if self._log_start < snapshot.offset <= limit]
        if not usable:
            return None if whole and (self._clean or not self._snapshots) else -1
        newest = usable[-1]
        plain = newest.offset == limit or newest.offset in {part.base_offset for part in self._parts}
        if not plain or (self._clean and newest.offset != limit):
            return None
        return newest.offset if self._is_readable(newest) else None

    # -- with a simulation

    def item(self, now_ms: int, brokers: tuple[Broker, ...], *, whole: bool) -> StartItem:
        """Return the item that simulates the start."""
        from krepair.loading.simulate import StartItem

        partition, view = self._analysis.partition, self._view
        leftovers = tuple(left for left in partition.leftovers if left.file.name not in self._gone)
        swaps = swaps_of(partition._replace(leftovers=leftovers))
        segments = [self._segment(part, whole=whole) for part in self._parts]
        segments += [
            swap._replace(offset_index=None, time_index=None, made=(True, True))
            for swap in swaps
            if swap.base_offset in self._finished
        ]
        return StartItem(
            place=place_of(view, partition),
            segments=tuple(sorted(segments, key=lambda segment: segment.base_offset)),
            swaps=tuple(swap for swap in swaps if swap.base_offset not in self._finished),
            lowest_cleaned=min(
                (leftover.base_offset for leftover in leftovers if leftover.kind == "cleaned"),
                default=INT64_MAX,
            ),
            snapshots=tuple(snapshot.offset for snapshot in self._snapshots),
            new_snapshots=self._new_snapshots,
            clean=self._clean,
            recovery_point=view.recovery_point.offsets.get(partition.key, 0),
            log_start=self._log_start,
            interval_bytes=self._analysis.settings.index_interval_bytes,
            index_bytes=self._analysis.settings.segment_index_bytes,
            now_ms=now_ms,
            brokers=brokers,
            follows_producers=whole,
        )

    def _segment(self, part: LogPart, *, whole: bool) -> SegmentFiles:
        from krepair.loading.simulate import SegmentFiles

        segment = part.segment
        facts = self._facts.get(segment.base_offset)
        sound = None
        if not whole and facts is not None and facts.summary.batches:
            summary = facts.summary
            sound = (summary.valid_bytes, summary.last_offset, summary.last_position)
        makes_index, makes_times = (
            bool(part.without) or segment_name(segment.base_offset, suffix) in self._made
            for suffix in (INDEX, TIME_INDEX)
        )
        return SegmentFiles(
            segment.base_offset,
            segment.log,
            self._left(segment.index),
            self._left(segment.time_index),
            None if self._is_made(segment.txn_index) else self._left(segment.txn_index),
            without=part.without,
            made=(makes_index, makes_times),
            sound=sound,
        )

    def _left(self, file: FileRef | None) -> FileRef | None:
        return None if file is not None and file.name in self._gone else file


def _sizes(segment: Segment) -> tuple[tuple[FileRef | None, int], ...]:
    return (segment.index, ENTRY_SIZES[INDEX]), (segment.time_index, ENTRY_SIZES[TIME_INDEX])


_FRONT: Final = struct.Struct(">qi4xb6xi")
"""Layout of base offset, size and magic of a batch, and in v2 the delta of the batch's last offset."""


def _leads_in(segment: Segment, facts: SegmentFacts | None) -> bool:
    """Return whether the last entry of an ``.index`` leads to a batch of a sound log."""
    if segment.index is None or not segment.index.size:
        return segment.index is not None
    try:
        with opened_for_reading(segment.index.path) as descriptor:
            entry = os.pread(descriptor, _ENTRY.size, segment.index.size - _ENTRY.size)
        offset, position = _ENTRY.unpack(entry)
        with opened_for_reading(segment.log.path) as descriptor:
            base, size, magic, _ = _FRONT.unpack(os.pread(descriptor, _FRONT.size, position))
    except (OSError, struct.error):
        return False
    if facts is None or not 0 <= magic <= MAGIC:
        return False
    inside: bool = position + size + LOG_OVERHEAD <= facts.summary.valid_bytes
    return inside and segment.base_offset <= base <= segment.base_offset + offset <= facts.summary.last_offset


def swaps_of(partition: Partition) -> tuple[SegmentFiles, ...]:
    """Return the ``.swap`` files that a start renames, by base offset."""
    from krepair.loading.simulate import SegmentFiles

    by_base: dict[int, dict[FileKind, FileRef]] = {}
    for leftover in partition.leftovers:
        if leftover.kind == "swap":
            kind = parse_file_name(leftover.file.name).kind
            by_base.setdefault(leftover.base_offset, {})[kind] = leftover.file
    return tuple(
        SegmentFiles(
            base,
            files.get(FileKind.LOG),
            files.get(FileKind.OFFSET_INDEX),
            files.get(FileKind.TIME_INDEX),
            files.get(FileKind.TXN_INDEX),
        )
        for base, files in sorted(by_base.items())
        if files.keys() & {FileKind.LOG, *INDEX_KINDS}
    )


def _can_be_simulated(analysis: PartitionAnalysis) -> bool:
    """Return whether each file is of the kind that its name says, and every index can be mapped."""
    partition = analysis.partition
    pending = [leftover for leftover in partition.leftovers if leftover.kind in {"swap", "cleaned"}]
    if partition.special is not None:
        return False
    if not all(parse_file_name(leftover.file.name).is_canonical for leftover in pending):
        return False
    if not partition.segments and all(leftover.kind != "swap" for leftover in pending):
        return False
    sizes = (file.size for segment in partition.segments for file in segment.files())
    return all(size <= LARGEST_FILE_BYTES for size in sizes)


def _is_missing_a_beginning(analysis: PartitionAnalysis) -> bool:
    """Return whether a transaction may begin in offsets that are missing between segments of a log with producers."""
    partition = analysis.partition
    if not any(snapshot.file.size > producer_snapshot.HEADER_SIZE for snapshot in partition.snapshots):
        return False
    following = analysis.segments[1:]
    return any(
        facts.summary.last_offset + 1 < later.base_offset
        for facts, later in zip(analysis.segments, following, strict=False)
    )


def _may_fill_its_index(analysis: PartitionAnalysis, segment: Segment) -> bool:
    """Return whether a recovery may fill the time index, because ``segment.index.bytes`` was lowered."""
    room = analysis.settings.segment_index_bytes // ENTRY_SIZES[TIME_INDEX] - 1
    return segment.log.size // max(analysis.settings.index_interval_bytes, 1) >= room


def _index_is_wrong(view: LogDir, analysis: PartitionAnalysis, segment: Segment) -> bool:
    base_offset = segment.base_offset
    inspected = indexes_of(analysis).get(base_offset)
    if inspected is None or segment.time_index is None:
        return True
    known = None if isinstance(inspected, Failed) else inspected
    if known is not None and (known.problems or known.torn or not known.has_index):
        return True
    if segment is not analysis.partition.segments[-1]:
        return known is not None and known.padded
    return known is not None and known.padded and view.clean_shutdown


def _is_too_long(analysis: PartitionAnalysis, segment: Segment) -> bool:
    """Return whether an active index exceeds ``segment.index.bytes``, to which a start resizes active indexes."""
    most = analysis.settings.segment_index_bytes
    return any(file.size > most for file in (segment.index, segment.time_index) if file is not None)
