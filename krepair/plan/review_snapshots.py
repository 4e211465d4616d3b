"""Review of what becomes of producer snapshots: see ``krepair.plan.review``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from krepair.plan.model import PartitionPlan, ReplaceFile, RewriteSegments
from krepair.plan.objection import Objection

SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})\.snapshot")
SNAPSHOTS_FIX: Final = "snapshots"


def review_made(partition: PartitionPlan, change: ReplaceFile, fix: str) -> Iterator[Objection]:
    """What speaks against a snapshot that is made: it is named after the log end, and nothing else is."""
    if fix != SNAPSHOTS_FIX or change.method != "regenerate":
        yield Objection(
            "RV25", change.change_id, "producer snapshots are regenerated, and only by --fix snapshots"
        )
    if change.name != f"{partition.log_end_offset:020d}.snapshot":
        yield Objection("RV25", change.change_id, f"the log ends at offset {partition.log_end_offset}")


def review_what_stays(partition: PartitionPlan) -> Iterator[Objection]:
    """A partition that had snapshots is not left with none: a clean start would then forget every producer."""
    removed: set[str] = set()
    made: set[str] = set()
    for change in partition.changes:
        if isinstance(change, RewriteSegments):
            removed.update(change.removes_snapshots)
        elif isinstance(change, ReplaceFile) and SNAPSHOT_NAME.fullmatch(change.name):
            (removed if change.method == "remove" else made).add(change.name)
    names = {file.name for file in partition.files if SNAPSHOT_NAME.fullmatch(file.name)}
    empty = partition.log_end_offset <= partition.log_start_offset
    if removed and not empty and not (names - removed) | made:
        yield Objection("RV23", partition.folder, "no producer snapshot would be left")
