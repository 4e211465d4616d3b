"""Reads every kept original before anything is put back: what is damaged must not replace what is whole.

A kept log is held against the plan's digest over its batches' headers, and every batch against its CRC. A log with
bytes outside of valid batches, and every other file, is held against the digest that was journalled when it was kept.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from krepair.errors import KrepairError
from krepair.formats.java_numbers import INT64_MAX
from krepair.journal.actions.action import KeptFile
from krepair.journal.actions.table import action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.journals_seen import JournalsSeen
from krepair.journal.record import Journal
from krepair.kernels.classes import D_NONE
from krepair.logdir.fingerprint import digest_content, digest_file
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed, Place, ScanItem, ScanResult
from krepair.plan.model import FileFingerprint, PartitionPlan, Plan

BadCopies = dict[str, str]
"""Change id -> what is wrong with its kept originals."""


class _Log(NamedTuple):
    """A kept log that has to be read batch by batch."""

    partition: PartitionPlan
    change_id: str
    path: str
    item: ScanItem
    digest: str


class Kept(NamedTuple):
    """What undo would put back in one partition.

    Attributes:
        partition: its part of the plan.
        folder: as the journal sees it.
        files: (change id, kept original); empty where that cannot be told: undo itself meets it, and says so.
    """

    partition: PartitionPlan
    folder: PartitionFolder
    files: Sequence[tuple[str, KeptFile]]


def kept_in(folders: Sequence[tuple[PartitionPlan, PartitionFolder]], journals: JournalsSeen) -> list[Kept]:
    """What undo would put back.

    Args:
        folders: partitions with their folders as the journal sees them.
        journals: of the plan.
    """
    return [Kept(partition, folder, _kept(folder, journals)) for partition, folder in folders]


def bad_copies(plan: Plan, kept: Sequence[Kept], engine: Engine) -> dict[str, BadCopies]:
    """Read what undo would put back.

    Args:
        plan: reviewed.
        kept: of its partitions.
        engine: where logs are read.

    Returns:
        Partition folder -> what is wrong, for those where something is.
    """
    from krepair.pipeline.scan import scan

    bad: dict[str, BadCopies] = {}
    logs: list[_Log] = []
    for partition, folder, files in kept:
        found = bad.setdefault(partition.folder, {})
        planned = partition.by_name
        try:
            for change_id, one in files:
                if one.original.digest or not one.original.name.endswith(".log"):
                    wrong = _file_problem(folder, one)
                    if wrong:
                        found.setdefault(change_id, wrong)
                elif folder.state(one.path) is not None:
                    logs.append(_log(plan, partition, folder, change_id, one, planned))
        except (KrepairError, OSError):
            continue  # undo itself meets it, and says so
    for index, result in engine.map(scan, [log.item for log in logs]):
        log = logs[index]
        wrong = _log_problem(log, result)
        if wrong:
            bad[log.partition.folder].setdefault(log.change_id, wrong)
    return bad


def bytes_to_read(kept: Iterable[Kept]) -> int:
    """How much there is to read, for the choice of the engine."""
    return sum(one.original.size for part in kept for _, one in part.files)


def _kept(folder: PartitionFolder, journals: JournalsSeen) -> list[tuple[str, KeptFile]]:
    try:
        return _kept_by(folder, journals.of(folder))
    except (KrepairError, OSError):
        return []


def _kept_by(folder: PartitionFolder, journal: Journal) -> list[tuple[str, KeptFile]]:
    applied = [
        change for change, state in journal.states.items() if state in {"committing", "committed", "undoing"}
    ]
    intents = [journal.intents[change] for change in applied]
    with folder.tree.keeping_folders():
        return [
            (intent.change_id, kept)
            for intent in intents
            if action_of(intent).is_committed(folder, intent)
            or journal.states[intent.change_id] != "committing"
            for kept in action_of(intent).kept(folder, intent)
        ]


def _file_problem(folder: PartitionFolder, kept: KeptFile) -> str:
    path = folder.at(kept.path)
    found = folder.state(kept.path)
    if found is None or not kept.original.digest:
        return ""  # that it is gone, undo itself says; a log of whole batches has the digest of the plan
    digest = digest_file if kept.plain else digest_content
    if digest(path) != kept.original.digest:
        return _bad(path, "its bytes are not those that were kept")
    return ""


def _log(
    plan: Plan,
    partition: PartitionPlan,
    folder: PartitionFolder,
    change_id: str,
    kept: KeptFile,
    planned: Mapping[str, FileFingerprint],
) -> _Log:
    name = kept.original.name
    item = ScanItem(
        place=Place(
            host=socket.gethostname(),
            log_dir=plan.log_dir,
            log_dir_inode=os.stat(plan.log_dir).st_ino,
            folder=f"{partition.folder}/{folder.names.keep()}",
        ),
        base_offset=int(name.partition(".")[0]),
        size=kept.original.size,
        now_ms=plan.policy.now_ms,
        high_watermark=INT64_MAX,
    )
    digest = planned[name].digest if name in planned else ""
    return _Log(partition, change_id, folder.at(kept.path), item, digest)


def _log_problem(log: _Log, result: ScanResult | Failed) -> str:
    if isinstance(result, Failed):
        return _bad(log.path, result.why)
    summary = result.summary
    if log.digest and summary.headers == log.digest:
        return ""  # it may have been damaged before: of such a log an older krepair knows the batches, not the bytes
    if summary.damage != D_NONE or summary.valid_bytes != log.item.size:
        return _bad(log.path, f"there is no valid batch at position {summary.valid_bytes}")
    if log.digest:
        return _bad(log.path, "the headers of its batches are not those that the plan was made of")
    return ""


def _bad(path: str, text: str) -> str:
    return (
        f"{path}: the kept original is damaged: {text}; what is in its place now stays, and so does all that lies "
        "below it; fetch this partition from another replica, or purge"
    )
