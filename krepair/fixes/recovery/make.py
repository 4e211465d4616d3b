"""Staging and verification of ``recovery``: rebuild files, read logs from the disk, advance recovery points last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from krepair.commit.by_disk import current_data, is_made
from krepair.commit.folder import PartitionFolder
from krepair.commit.status import ChangeState, status_in
from krepair.derive.epochs import epochs_of_log
from krepair.durable.attributes import read_attributes
from krepair.engine.items import Failed, ScanItem
from krepair.errors import KrepairError, RefusedError, StalePlanError, VerifyFailedError
from krepair.fixes.context import place_in
from krepair.fixes.epochs import read_epochs_file
from krepair.fixes.files import RebuiltFile, put_staged, stage_again
from krepair.fixes.index.make import indexes_against_logs, mend_items, stage_indexes, transaction_indexes_made
from krepair.fixes.logs import parts_after
from krepair.fixes.producers_at_end import replayed_from
from krepair.fixes.second_readings import (
    LINES,
    SecondReading,
    as_planned,
    check_removed,
    problems_of,
    read_here,
    verify_transaction_indexes,
)
from krepair.fixes.snapshots import rebuilt_snapshot
from krepair.fixes.staging import Kind, Staging, Work, Wrong
from krepair.formats.broker_version import version_of
from krepair.formats.checkpoint import encode_epochs
from krepair.formats.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    TXN_INDEX,
    FileKind,
    base_offset_of,
    offset_name,
    parse_file_name,
)
from krepair.logdir.values import Partition
from krepair.plan.changes import bases_touched
from krepair.plan.facts import segment_bases
from krepair.plan.model import Change, ChangeLines, PartitionPlan, ReplaceFile, RollSegment
from krepair.rewrite.recovered import RecoveredItem, RecoveredResult, verify_recovered
from krepair.rules.changed_entries import ChangedLine, entries_in, entries_left, with_entries
from krepair.rules.epochs import writes_epoch_zero
from krepair.rules.model import SegmentFacts
from krepair.rules.recovery import epochs_after_recovery, floor_of

if TYPE_CHECKING:
    from krepair.rewrite.indexes.segment import RepairItem


ROLLED: Final = Kind("new empty segments", "that its files are there and empty")
RECOVERED_LOGS: Final = Kind("recovered logs", "every batch, as a start would read it", is_log=True)
_MADE_ANEW = "its segments are not those of the plan: the topic may have been deleted and created again"
_MADE = frozenset({ChangeState.COMMITTED, ChangeState.FREED, ChangeState.PURGED})


def floor_in(work: Work, part: PartitionPlan) -> int:
    """Return the base offset of the first recovered segment, by the recovery point at planning time."""
    line = work.recovery_points.get((part.topic, part.partition))
    known = work.view.recovery_point.offsets.get((part.topic, part.partition))
    point = known if line is None else line.old
    return floor_of(segment_bases(part.files), point or 0) or 0


# -- apply


def stage(work: Work, stagings: Sequence[Staging]) -> None:
    """Rebuild the files of partitions, and flush and read the logs; or advance the recovery points in the root."""
    partitions = [staging for staging in stagings if staging.partition is not None]
    made = _flush(work, partitions)
    able = [staging for staging in partitions if staging.problem is None]
    for staging in able:
        with staging.taking_problems():
            staging.folder.make_private_folders()
            floor = floor_in(work, staging.plan)
            for change in staging.changes:
                _stage_one(work, staging, change, floor)
    indexes = [
        (
            staging,
            staging.only(
                *(change for change in staging.changes if is_index(change) and change.change_id not in made)
            ),
        )
        for staging in able
    ]
    wanted = [(staging, part) for staging, part in indexes if part.changes and staging.problem is None]
    stage_indexes(
        work,
        [part for _, part in wanted],
        lambda part: replayed_from(part.listed, floor_in(work, part.plan)),
    )
    for staging, part in wanted:
        staging.problem, staging.unsynced = part.problem, staging.unsynced or part.unsynced
    for staging in stagings:
        if staging.partition is None:
            with staging.taking_problems():
                staging.folder.make_private_folders()
                for change in staging.changes:
                    assert isinstance(change, ChangeLines)
                    _stage_lines(work, staging, change)


def is_index(change: Change) -> bool:
    """Return whether a change builds an index file."""
    return isinstance(change, ReplaceFile) and change.method != "remove" and change.name.endswith("index")


def _stage_one(work: Work, staging: Staging, change: Change, floor: int) -> None:
    if isinstance(change, RollSegment):
        like = read_attributes(staging.listed.segments[-1].log.path, work.disk.tree)
        for name in change.names:
            put_staged(work, staging, name, b"", like)
    elif isinstance(change, ReplaceFile) and change.method != "remove":
        segments = [] if is_index(change) else work.all_facts(staging, floor)
        if change.name == LEADER_EPOCH_CHECKPOINT:
            stage_again(work, staging, change, _epochs_again(work, staging, segments, floor))
        elif parse_file_name(change.name).kind is FileKind.SNAPSHOT:
            stage_again(work, staging, change, rebuilt_snapshot(work, staging, change, recovered_from=floor))


def _epochs_again(work: Work, staging: Staging, segments: Sequence[SegmentFacts], floor: int) -> RebuiltFile:
    file = read_epochs_file(staging.listed)
    zero = writes_epoch_zero(version_of(work.plan.policy.broker_version))
    recorded = file.recorded.entries
    epoch_starts = epochs_of_log(
        [facts.summary for facts in segments], floor, compacted=False, recorded=recorded
    ).epoch_starts
    after = epochs_after_recovery(recorded, epoch_starts, staging.plan.log_end_offset, with_zero=zero)
    return RebuiltFile(encode_epochs(after), file.wrong)


def _flush(work: Work, stagings: Sequence[Staging]) -> set[str]:
    """Flush the ranges, drop their pages from the cache, and read the ranges from disk, before anything is changed.

    If only the broker crashed, a log may be complete only in the page cache. After a power cut, an advanced recovery
    point would then vouch for bytes that never reached the disk. If the plan changes no log, the same reading also
    builds the files that are derived from the logs.

    Returns:
        Ids of the changes whose new files are staged.
    """
    for staging in stagings:
        changed = _changed_log(staging.plan, staging.listed)
        if changed:
            staging.problem = staging.problem or StalePlanError(f"{staging.folder.path}: {changed}")
    wanted = [
        staging for staging in stagings if staging.plan.folder not in work.settled and staging.problem is None
    ]
    if not wanted:
        return set()
    try:
        barrier = not _all_is_written(work, [staging.plan for staging in wanted])
    except OSError:  # the one barrier failed for all partitions
        for staging in wanted:
            with staging.taking_problems():
                raise
        return set()
    jobs: list[tuple[tuple[Staging, RecoveredItem], RecoveredItem]] = []
    for staging in wanted:
        with staging.taking_problems():
            items = range_items(work, staging.plan, staging.listed, barrier=barrier, flush=True, audit=False)
            if _needs_log(staging) and not bases_touched(staging.plan.changes):
                items = _making(work, staging, items)
            jobs += [((staging, item), item) for item in items]
    problems: dict[str, list[str]] = {}
    made: set[str] = set()
    for (staging, item), result in work.engine.each(verify_recovered, jobs):
        if isinstance(result, Failed) or result.problems:
            _note(work, problems, staging.plan.folder, result)
            continue
        work.bytes_read += result.bytes
        if result.scan is not None:
            work.take_facts(staging, item.base_offset, result.scan, with_txn_index=False)
        for made_item, failed in zip(item.makes, result.files, strict=True):
            made.add(made_item.change.change_id)
            staging.record_failure(failed)
    for staging in wanted:
        reported = problems.get(staging.plan.folder)
        if reported:
            staging.problem = staging.problem or VerifyFailedError(f"{staging.folder.path}: {reported[0]}")
        elif not bases_touched(staging.plan.changes):
            work.settled.add(staging.plan.folder)
    return made


def _note(work: Work, problems: dict[str, list[str]], folder: str, result: RecoveredResult | Failed) -> None:
    """Record the problems that a reading reported on a partition."""
    if isinstance(result, Failed):
        problems.setdefault(folder, []).append(result.why)
        return
    work.bytes_read += result.bytes
    if result.problems:
        problems.setdefault(folder, []).extend(result.problems)


def _all_is_written(work: Work, parts: Sequence[PartitionPlan]) -> bool:
    """Flush everything with one barrier; return False if the file system has no such barrier.

    Raises:
        OSError: a write failed.
    """
    folders = [f"{work.view.path}/{part.folder}" for part in parts]
    return work.disk.sync_file_system(work.view.path, folders)


def _needs_log(staging: Staging) -> bool:
    """Return whether a staging builds a file that is derived from batches."""
    return any(isinstance(change, ReplaceFile) and change.method != "remove" for change in staging.changes)


def _making(work: Work, staging: Staging, items: Sequence[RecoveredItem]) -> list[RecoveredItem]:
    """Return the work items, extended so that the same reading also builds indexes and collects facts of the logs.

    Raises:
        KrepairError: the work folder cannot be made, or a segment is gone.
        OSError: a file whose owner and mode a new file gets cannot be read.
    """
    from_log = [
        change
        for change in staging.changes
        if is_index(change) and isinstance(change, ReplaceFile) and change.method == "regenerate"
    ]
    changes = [change for change in from_log if not change.name.endswith(".txnindex")]
    files: dict[int, list[RepairItem]] = {}
    if changes:
        staging.folder.make_private_folders()
        staging.unsynced = True
        for item in mend_items(work, staging.only(*changes), staging.stage_folder):
            files.setdefault(item.base_offset, []).append(item)
    listed = staging.listed
    # the scan refuses a name that is no regular file
    without = (
        set()
        if listed.specials
        else {segment.base_offset for segment in listed.segments if segment.txn_index is None}
    )
    high_watermark = work.scan_watermark(staging)
    return [
        replace(
            item,
            scan=ScanItem(
                place=item.place,
                base_offset=item.base_offset,
                size=item.log_bytes,
                now_ms=work.plan.policy.now_ms,
                high_watermark=high_watermark,
                check_crc=False,  # the second reading checks the CRCs
                has_txn_index=item.base_offset not in without,
            ),
            makes=tuple(files.get(item.base_offset, ())),
        )
        for item in items
    ]


def _read_ranges(work: Work, parts: Sequence[tuple[PartitionPlan, Partition]]) -> dict[str, list[str]]:
    """Flush the ranges of partitions whose changes are made, and read logs and indexes from the disk.

    Returns:
        The problems that the reading reported, by partition folder.
    """
    barrier = not _all_is_written(work, [part for part, _ in parts])
    jobs = [
        (part.folder, item)
        for part, partition in parts
        for item in range_items(work, part, partition, barrier=barrier, flush=True, audit=True)
    ]
    problems: dict[str, list[str]] = {}
    for folder, result in work.engine.each(verify_recovered, jobs):
        _note(work, problems, folder, result)
    return problems


def range_items(
    work: Work, part: PartitionPlan, partition: Partition, *, barrier: bool, flush: bool, audit: bool
) -> list[RecoveredItem]:
    """Return the items that read the range of a partition, one for each remaining segment; see ``RecoveredItem``.

    A topic that was deleted and created again has none of the plan's segments.
    """
    floor = floor_in(work, part)
    remaining = [
        log_part for log_part in parts_after(partition, part.changes) if log_part.base_offset >= floor
    ]
    if not remaining:
        return []
    small = _small_files(partition) if flush else {}
    own = [small.pop(offset_name(log_part.base_offset), []) for log_part in remaining]
    if own:
        own[-1] += [name for names in small.values() for name in names]
    ends = [*(log_part.base_offset for log_part in remaining[1:]), part.log_end_offset]
    # Last segment among the plan's files, without the new segment. If the last segment is empty, offsets before it may
    # be missing.
    last = segment_bases(part.files)[-1]
    place = place_in(work.view, part.folder)
    interval_bytes = work.topic(part.topic).index_interval_bytes
    return [
        RecoveredItem(
            place=place,
            base_offset=log_part.base_offset,
            log_bytes=log_part.size,
            log_end=end,
            exact=log_part.base_offset == last,
            interval_bytes=interval_bytes,
            files=tuple(names),
            flush=flush,
            barrier=barrier,
            audit=audit,
        )
        for log_part, end, names in zip(remaining, ends, own, strict=True)
    ]


def _small_files(partition: Partition) -> dict[str, list[str]]:
    """Return the names of all files but the logs, by the part of the name before the first dot."""
    names: dict[str, list[str]] = {}
    for file in partition.files():
        if not file.name.endswith(".log"):
            names.setdefault(file.name.partition(".")[0], []).append(file.name)
    return names


def _stage_lines(work: Work, staging: Staging, change: ChangeLines) -> None:
    """Advance the recovery points of partitions whose other changes are made and durable; keep all others.

    The recovery point comes last, because a start trusts every file below the recovery point without reading it.

    Raises:
        RefusedError: no partition is ready.
        StalePlanError: an entry differs from the plan.
        OSError: a file could not be read or written.
    """
    data = current_data(staging.folder, change)
    lines_to_raise = entries_left(data, change.lines)
    ready = _ready(work, lines_to_raise)
    lines = [line for line in lines_to_raise if (line.topic, line.partition) in ready]
    if not lines:
        raise RefusedError(
            f"{staging.folder.at(change.name)}: no partition whose recovery point is still to be raised is ready"
        )
    made = with_entries(data, lines)
    if made is None:
        raise StalePlanError(
            f"{staging.folder.at(change.name)}: its lines are not those that the plan changes"
        )
    path = staging.folder.at(change.name)
    like = path if work.disk.tree.is_there(path) else _neighbour(work)
    put_staged(work, staging, change.name, made, read_attributes(like, work.disk.tree))


def _neighbour(work: Work) -> str:
    """Return a file of the root whose owner and mode a new checkpoint gets."""
    view = work.view
    known = [
        checkpoint.file
        for checkpoint in (view.high_watermark, view.log_start, view.cleaner)
        if checkpoint.file is not None
    ]
    known += [view.meta_properties] if view.meta_properties is not None else []
    logs = [partition.segments[-1].log for partition in view.partitions if partition.segments]
    return (known or logs)[0].path


def _ready(work: Work, lines: Sequence[ChangedLine]) -> set[tuple[str, int]]:
    """Return partitions whose changes are all made, and whose logs are as planned and were read back from the disk."""
    wanted = {(line.topic, line.partition) for line in lines}
    listed = {partition.folder: partition for partition in work.view.partitions}
    parts = []
    for part in work.plan.partitions:
        if (part.topic, part.partition) in wanted:
            why = _why_not_ready(work, part, listed.get(part.folder))
            if why:
                work.wrong.append(Wrong(part.folder, "", f"its recovery point stays: {why}"))
            else:
                parts.append((part, listed[part.folder]))
    unsettled = [(part, partition) for part, partition in parts if part.folder not in work.settled]
    problems = _read_ranges(work, unsettled) if unsettled else {}
    for folder, texts in problems.items():
        work.wrong.append(Wrong(folder, "", f"its recovery point stays: {texts[0]}"))
    work.settled |= {part.folder for part, _ in parts if part.folder not in problems}
    return {(part.topic, part.partition) for part, _ in parts if part.folder not in problems}


def _why_not_ready(work: Work, part: PartitionPlan, partition: Partition | None) -> str:
    if partition is None or partition.unreadable:
        return "it is gone, or cannot be read"
    folder = PartitionFolder(work.disk, work.plan.log_dir, part.folder, work.plan.plan_id)
    try:
        states = status_in(folder, part)
    except KrepairError as error:
        return error.message
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    missing = next((name for name, state in states.items() if state not in _MADE), "")
    if missing:
        return f"{missing} is not applied"
    floor = floor_in(work, part)
    if partition.segments[-1].base_offset < floor:
        return _MADE_ANEW
    return _changed_log(part, partition) or _changed_companion(folder, part, floor)


def _changed_log(part: PartitionPlan, partition: Partition) -> str:
    """Return the first log without a planned change that differs from the plan; or empty."""
    effects = [change.log_effect for change in part.changes]
    touched = {base for effect in effects for base in (*effect.segments, *effect.ranges)}
    made = {name for change in part.changes for name in change.touches}
    here = {segment.base_offset: segment.log for segment in partition.segments}
    for file in part.files:
        stem, _, suffix = file.name.partition(".")
        if suffix != "log" or not stem.isdigit() or int(stem) in touched:
            continue
        log = here.get(int(stem))
        if log is None:
            continue  # merged into another segment by a change of this plan that was made
        if (log.size, log.mtime_ns) != (file.size, file.mtime_ns) and log.name not in made:
            return f"{file.name} changed since the plan was made"
    return ""


def _changed_companion(folder: PartitionFolder, part: PartitionPlan, floor: int) -> str:
    """Return the first small file in a state that the plan neither made nor found; or empty.

    A start that is killed during recovery leaves a transaction index or the leader epochs half built. No reading of one
    segment shows such a file, and below the new recovery point no start rebuilds the file.
    """
    made = {name for change in part.changes for name in change.touches}
    for change in part.changes:
        if (
            isinstance(change, ReplaceFile)
            and change.method != "remove"
            and not is_made(folder, part.by_name, change)
        ):
            return f"{change.name} is not the file that the plan makes"
    for file in part.files:
        derived = file.name == LEADER_EPOCH_CHECKPOINT or (
            file.name.endswith(TXN_INDEX) and (base_offset_of(file.name) or 0) >= floor
        )
        here = folder.state(file.name) if derived and file.name not in made else None
        if here is not None and (here.size, here.mtime_ns) != (file.size, file.mtime_ns):
            return f"{file.name} changed since the plan was made"
    return ""


# -- verify


def second_readings(work: Work, staging: Staging) -> Iterator[SecondReading]:
    """Yield readings of small files, indexes and new segments; for the root, of entries and the logs below them.

    Raises:
        KrepairError: a segment is gone.
        OSError: a file cannot be read.
    """
    if staging.partition is None:
        for change in staging.changes:
            assert isinstance(change, ChangeLines)
            yield _lines_again(work, staging, change)
        return
    yield from (_roll_again(staging, change) for change in staging.changes if isinstance(change, RollSegment))
    yield from indexes_against_logs(work, staging.only(*filter(is_index, staging.changes)))
    replayed = replayed_from(staging.listed, floor_in(work, staging.plan))
    for change in staging.changes:
        if isinstance(change, ReplaceFile) and change.method == "remove":
            yield check_removed(staging, change, (change.name,))
        elif isinstance(change, ReplaceFile) and not is_index(change):
            yield as_planned(staging, change)
    yield from verify_transaction_indexes(work, staging, transaction_indexes_made(staging), replayed)


def _roll_again(staging: Staging, change: RollSegment) -> SecondReading:
    wrong = []
    for name in change.names:
        state = staging.folder.state(name)
        if state is None or state.size:
            size = "nothing" if state is None else f"{state.size} bytes"
            wrong.append(f"{name}: an empty file was expected, found {size}")
    return read_here(change, ROLLED, *wrong)


def _lines_again(work: Work, staging: Staging, change: ChangeLines) -> SecondReading:
    data = current_data(staging.folder, change)
    raised = entries_in(data, change.lines)
    if not raised:
        return read_here(change, LINES, "none of its lines is as the plan makes it")
    why = "its recovery point is not raised: a start reads it. krepair apply PLAN raises it once it is ready"
    below = [Wrong(f"{line.topic}-{line.partition}", "", why) for line in entries_left(data, change.lines)]
    keys = {(line.topic, line.partition) for line in raised}
    listed = {partition.folder: partition for partition in work.view.partitions}
    items: list[RecoveredItem] = []
    for part in work.plan.partitions:
        if (part.topic, part.partition) in keys and part.folder in listed:
            own = range_items(work, part, listed[part.folder], barrier=False, flush=False, audit=True)
            below += [] if own else [Wrong(part.folder, "", _MADE_ANEW)]
            items += own

    def says(results: Sequence[RecoveredResult | Failed]) -> Iterator[Wrong]:
        yield from below
        for item, result in zip(items, results, strict=True):
            yield from (Wrong(item.place.folder, "", text) for text in problems_of([result]))

    return SecondReading(change, RECOVERED_LOGS, verify_recovered, tuple(items), says, files=len(items))
