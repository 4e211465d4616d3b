"""Changes that take something away: damaged bytes out of a log, a whole segment out of a partition.

One place that tells them apart, for the runner.
"""

from __future__ import annotations

from collections.abc import Mapping

from krepair.journal.aside import begin_aside, can_set_aside, is_aside, put_segment_back, set_aside
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import AsideIntent, LogIntent
from krepair.journal.surgery import (
    begin_surgery,
    can_operate,
    check_mended,
    is_mended,
    operate,
    put_log_back,
)
from krepair.plan.model import FileFingerprint, MendLog, SetAside

LossyIntent = LogIntent | AsideIntent


def begin(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: MendLog | SetAside
) -> LossyIntent:
    """The intent of a change, once all that it needs is found as it was planned.

    Raises:
        StalePlanError: a file changed since the plan was made.
        RefusedError: a staged file is missing, or the log has other names.
    """
    if isinstance(change, MendLog):
        return begin_surgery(folder, planned, change)
    return begin_aside(folder, planned, change)


def can_go_on(folder: PartitionFolder, intent: LossyIntent) -> bool:
    """Whether an interrupted change is committed, or has all it needs to be."""
    if isinstance(intent, LogIntent):
        return can_operate(folder, intent)
    return can_set_aside(folder, intent)


def is_committed(folder: PartitionFolder, intent: LossyIntent) -> bool:
    """Whether what goes is gone from the partition, and kept."""
    return is_mended(folder, intent) if isinstance(intent, LogIntent) else is_aside(folder, intent)


def go_on(folder: PartitionFolder, intent: LossyIntent) -> None:
    """Carries a change out; may be repeated."""
    if isinstance(intent, LogIntent):
        operate(folder, intent)
    else:
        set_aside(folder, intent)


def check_committed(folder: PartitionFolder, intent: LossyIntent) -> None:
    """Checks, before anything is put back, that nobody wrote since.

    Raises:
        StalePlanError: somebody did; the message names the file.
    """
    if isinstance(intent, LogIntent):
        check_mended(folder, intent)


def put_back(folder: PartitionFolder, intent: LossyIntent) -> None:
    """Gives back what was taken away; may be repeated, also before anything was."""
    if isinstance(intent, LogIntent):
        put_log_back(folder, intent)
    else:
        put_segment_back(folder, intent)
