"""What a person types where a journal cannot be gone by: the lines that put the originals back, and nothing else.

The plan and the disk tell them. A change has lines only if each of its originals is in its place or kept, as the plan
knows it, and nobody but this plan has written what is in the way. Nothing is removed: what the plan made moves into the
private sub-folder, which goes with the purge.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from krepair.errors import KrepairError, StalePlanError
from krepair.formats.filenames import LOG, SWAP, FileKind, NameState, parse_file_name
from krepair.journal.actions.mend import lines_of_cut
from krepair.journal.by_disk import is_ours, names_by_hand
from krepair.journal.folder import PartitionFolder
from krepair.journal.unrecorded import is_displaced
from krepair.logdir.fingerprint import digest_batches, digest_file
from krepair.plan.changes import Change, FileChange, MendLog
from krepair.plan.model import FileFingerprint, PartitionPlan


class ByHand(NamedTuple):
    """How the originals of a partition come back.

    Attributes:
        lines: of a shell, in the order in which they are typed; empty if every original is in its place.
        left: why a change, and those before it, have no lines: its id, a file, and what is wrong; else empty.
    """

    lines: tuple[str, ...]
    left: str


def by_hand(folder: PartitionFolder, partition: PartitionPlan) -> ByHand:
    """The lines for a partition, last change first; the first change that cannot come back ends them.

    Raises:
        OSError: a file could not be looked at.
    """
    lines: list[str] = []
    gone_on = _gone_on(folder, partition)
    for change in partition.changes[::-1]:
        try:
            lines += _lines(folder, partition, change, gone_on)
        except KrepairError as error:
            return ByHand(tuple(lines), f"{change.change_id} stays: {error.message}")
    return ByHand(tuple(lines), "")


def _lines(folder: PartitionFolder, partition: PartitionPlan, change: Change, gone_on: str) -> list[str]:
    planned, crc_told = partition.by_name, bool(change.decides_on)
    away: list[str] = []
    back = [line for file in change.files for line in _lines_of_log(folder, planned, change, file)]
    for name in names_by_hand(change, planned):
        plan, here = planned.get(name), folder.state(name)
        kept = folder.names.keep(name)
        is_kept = plan is not None and _is_as_planned(folder, kept, plan, crc_told=crc_told)
        if plan is None:
            if here is None:
                continue
        elif is_kept:
            # Where no digest is known, a new file may look like the old one: then what is kept tells.
            if not is_displaced(folder, name):
                continue
        elif _is_as_planned(folder, name, plan, crc_told=crc_told):
            continue
        if here is not None and not is_ours(folder, planned, change, name):
            raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
        if plan is None:
            away.append(_move_line(folder.at(name), f"{folder.private}/{name}"))
        elif is_kept:
            back.append(_move_line(folder.at(kept), folder.at(name)))
        else:
            raise StalePlanError(f"{folder.at(name)}: its original is neither in its place nor kept")
    at_log_end = not change.in_order and any(file.name.endswith(LOG) for file in change.files)
    if gone_on and at_log_end and (away or back):
        raise StalePlanError(f"{gone_on}: a broker has gone on with the log")
    return [*away, *back]


def _lines_of_log(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change, file: FileChange
) -> Sequence[str]:
    """What is typed for a log that no renaming out of what is kept brings back.

    Raises:
        StalePlanError: it cannot come back.
        OSError: it cannot be read.
    """
    if isinstance(change, MendLog) and file.how == "cut":
        return lines_of_cut(folder, planned[file.name], change)
    swap = file.name + SWAP
    if file.how != "swapped" or is_ours(folder, planned, change, swap):
        return ()
    if not is_ours(folder, planned, change, file.name):
        raise StalePlanError(f"{folder.at(swap)}: is gone, and so is the segment that it became")
    return (_move_line(folder.at(file.name), folder.at(swap)),)


def _move_line(source: str, target: str) -> str:
    return f"mv {shlex.quote(source)} {shlex.quote(target)}"


def _gone_on(folder: PartitionFolder, partition: PartitionPlan) -> str:
    """A log that the plan neither knows as it is nor changes; empty if there is none."""
    planned = partition.by_name
    changed = {name for change in partition.changes for name in change.touches}
    for name in map(parse_file_name, folder.file_names()):
        if name.kind is not FileKind.LOG or name.state is not NameState.LIVE or name.name in changed:
            continue
        plan, here = planned.get(name.name), folder.state(name.name)
        if here is not None and (plan is None or plan.size != here.size):
            return folder.at(name.name)
    return ""


def _is_as_planned(folder: PartitionFolder, path: str, planned: FileFingerprint, *, crc_told: bool) -> bool:
    """Whether a file has the size, the time and the digest of the plan.

    Of a log that was damaged before, no digest is known of all its bytes.

    Raises:
        OSError: it cannot be read.
    """
    here = folder.state(path)
    if here is None or (here.size, here.mtime_ns) != (planned.size, planned.mtime_ns):
        return False
    if not planned.digest or (LOG in planned.name and not crc_told):
        return True
    if planned.name.endswith(LOG):
        base_offset = int(planned.name.partition(".")[0])
        found = digest_batches(folder.at(path), base_offset, folder.tree, check_crc=True)
        return found == planned.digest
    return digest_file(folder.at(path), folder.tree) == planned.digest
