"""What pre-recovery made, read once more for ``verify``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from krepair.fixes.index import indexes_against_logs, transaction_indexes_made
from krepair.fixes.recovery_look import replayed_from
from krepair.fixes.recovery_staging import floor_in, is_index, range_items
from krepair.fixes.second_readings import (
    EPOCHS_AGAIN,
    LINES,
    PRODUCERS_AGAIN,
    Applied,
    SecondReading,
    aborted_of,
    as_planned,
    gone,
    seen_here,
)
from krepair.fixes.snapshots import is_snapshot
from krepair.fixes.staging import Kind, Staging, Wrong
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.journal.actions.lines import current_data
from krepair.plan.model import ChangeLines, ReplaceFile, RollSegment
from krepair.rules.checkpoint_lines import lines_in, lines_left

if TYPE_CHECKING:
    from krepair.pipeline.readings.partition import Reading


ROLLED: Final = Kind("new empty segments", "that its files are there and empty")
RECOVERED_LOGS: Final = Kind("recovered logs", "every batch, as a start would read it", is_log=True)


def second_readings(applied: Applied) -> Iterator[SecondReading]:
    """Small files, indexes and new segments of a partition; of the root the lines, and the logs of those raised.

    Raises:
        KrepairError: a segment is gone.
        OSError: a file cannot be read.
    """
    staging = applied.staging
    if staging.partition is None:
        for change in applied.changes:
            assert isinstance(change, ChangeLines)
            yield _lines_again(applied, change)
        return
    yield from (_roll_again(staging, one) for one in applied.changes if isinstance(one, RollSegment))
    yield from indexes_against_logs(Applied(applied.work, staging.only(*filter(is_index, staging.changes))))
    replayed = replayed_from(staging.listed, floor_in(applied.work, applied.part))
    made = transaction_indexes_made(applied)
    for change in applied.changes:
        if isinstance(change, ReplaceFile):
            yield from _small_file_again(applied, change)
    if made:
        logs = applied.logs_before_compaction() or applied.logs_now()
        yield aborted_of(applied, made, tuple(one for one in logs if one.base_offset >= replayed))


def _roll_again(staging: Staging, change: RollSegment) -> SecondReading:
    wrong = []
    for name in change.names:
        found = staging.folder.state(name)
        if found is None or found.size:
            size = "nothing" if found is None else f"{found.size} bytes"
            wrong.append(f"{name}: an empty file was expected, found {size}")
    return seen_here(change, ROLLED, *wrong)


def _small_file_again(applied: Applied, change: ReplaceFile) -> Iterator[SecondReading]:
    if change.method == "remove":
        yield gone(applied, change, (change.name,))
    elif change.name == LEADER_EPOCH_CHECKPOINT:
        yield as_planned(applied, change, EPOCHS_AGAIN)
    elif is_snapshot(change.name):
        yield as_planned(applied, change, PRODUCERS_AGAIN)


def _lines_again(applied: Applied, change: ChangeLines) -> SecondReading:
    work = applied.work
    data = current_data(applied.staging.folder, change)
    raised = lines_in(data, change.lines)
    if not raised:
        return seen_here(change, LINES, "none of its lines is as the plan makes it")
    why = "its recovery point is not raised: a start reads it. krepair apply PLAN raises it once it is ready"
    below = [Wrong(f"{line.topic}-{line.partition}", "", why) for line in lines_left(data, change.lines)]
    keys = {(line.topic, line.partition) for line in raised}
    listed = {one.folder: one for one in work.view.partitions}
    items = [
        item
        for part in work.plan.partitions
        if (part.topic, part.partition) in keys and part.folder in listed
        for item in range_items(work, part, listed[part.folder], barrier=False, settle=False, audit=True)
    ]

    def says(results: Sequence[Reading]) -> Iterator[Wrong]:
        yield from below
        for item, result in zip(items, results, strict=True):
            yield from (Wrong(item.place.folder, "", text) for text in result.problems)

    from krepair.pipeline.readings.recovered import read_recovered

    return SecondReading(change, RECOVERED_LOGS, read_recovered, tuple(items), says, files=len(items))
