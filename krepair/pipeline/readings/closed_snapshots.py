"""Second reading of a producer snapshot in which open transactions were ended, because the log has forgotten them.

The new file is its original but for first offsets that are gone. Of each of these transactions the log has no batch
from its first offset on, but for control batches without records.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from krepair.durable.tree import Tree
from krepair.formats import batch_v2, producer_snapshot
from krepair.formats.damage import Damage
from krepair.formats.filenames import log_name
from krepair.formats.producer_snapshot import ProducerSnapshot
from krepair.pipeline.progress import shown
from krepair.pipeline.readings.partition import (
    LogFilesItem,
    Part,
    Reading,
    not_the_planned_file,
    parts_of,
    read_kept,
    second_reading,
)
from krepair.plan.model import ReplaceFile

SNAPSHOT_AT_MOST_BYTES = 1 << 30


class ClosedSnapshotItem(LogFilesItem, frozen=True, kw_only=True):
    """Read a producer snapshot in which transactions were ended.

    Attributes:
        change: of the plan.
        path: absolute path of the new file.
        original: absolute path of the kept original, empty if there was none.
        logs: of all segments, ascending.
        logs_are_whole: whether these logs are as they were then. If not, they are not read.
    """

    change: ReplaceFile
    path: str
    original: str
    logs_are_whole: bool = True


@shown("verify")
@second_reading
def verify_closed_snapshot(item: ClosedSnapshotItem, tree: Tree) -> Reading:
    """Hold the new file against its original, and each transaction that was ended against the log."""
    data, wrong = not_the_planned_file(item.path, item.change, tree)
    if wrong:
        return Reading(problems=(wrong,))
    before = read_kept(item.original, SNAPSHOT_AT_MOST_BYTES, tree)
    if before is None:
        return Reading()  # what the file was made of is not there any more
    new, old = producer_snapshot.decode(data), producer_snapshot.decode(before)
    if isinstance(new, Damage) or isinstance(old, Damage):
        return Reading(problems=("it or its original cannot be read as a producer snapshot",))
    ended, problems = _ended(old, new)
    if problems or not item.logs_are_whole:
        return Reading(problems=tuple(problems))
    read = 0
    since = min(ended.values())
    if item.logs[0].base_offset > since:
        problems.append(
            f"the log begins at offset {item.logs[0].base_offset}, a transaction at {since} was ended"
        )
    ends = [*(log.base_offset for log in item.logs[1:]), 2**63 - 1]
    needed = [log for log, end in zip(item.logs, ends, strict=True) if end > since]
    for part in parts_of(needed, tree, check_crc=True):
        read += int(part.walked.sizes.sum())
        problems += _batches_of(part, ended)
    return Reading(problems=tuple(problems[:3]), bytes=read)


def _ended(old: ProducerSnapshot, new: ProducerSnapshot) -> tuple[dict[int, int], list[str]]:
    """The transactions that were ended, as producer id -> first offset; and what else has changed."""
    if len(old.entries) != len(new.entries):
        return {}, [f"{len(old.entries)} producers were expected, found {len(new.entries)}"]
    ended: dict[int, int] = {}
    for one, other in zip(old.entries, new.entries, strict=True):
        if one == other:
            continue
        if not one.has_open_txn or one._replace(current_txn_first_offset=-1) != other:
            return {}, [f"producer {one.producer_id}: more has changed than that its transaction is not open"]
        ended[one.producer_id] = one.current_txn_first_offset
    return ended, [] if ended else ["no transaction was ended in it"]


def _batches_of(part: Part, ended: dict[int, int]) -> Iterator[str]:
    """Batches that speak against the end of a transaction."""
    headers = part.walked.headers
    emptied_control = ((headers["attributes"] & batch_v2.CONTROL) != 0) & (headers["record_count"] == 0)
    for producer_id, first in ended.items():
        mine = part.is_v2 & (headers["producer_id"] == producer_id) & (part.lasts >= first) & ~emptied_control
        for place in np.flatnonzero(mine)[:1].tolist():
            yield (
                f"{log_name(part.base_offset)}, position {int(part.walked.positions[place])}: a batch of producer "
                f"{producer_id}, whose transaction from offset {first} on was ended"
            )
