"""The room that undo needs, against what is free, before it writes anything.

What is kept in the log directory goes back by renames: that takes blocks for records alone. Two things are written
anew: bytes that were cut from a log, and logs that are kept as real copies.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from krepair.errors import KrepairError, RefusedError
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT
from krepair.journal.actions.table import action_of
from krepair.journal.backward import APPLIED
from krepair.journal.fence import Watch
from krepair.journal.folder import PartitionFolder
from krepair.journal.journals_seen import JournalsSeen
from krepair.journal.run import in_batches
from krepair.logdir.space import Space, read_space
from krepair.ops.need import Need
from krepair.ops.removable import Lack, Way, last_ways, removable
from krepair.options import Options
from krepair.plan.actions.action import ROUNDING_BYTES
from krepair.plan.figures import OnTop
from krepair.plan.model import PartitionPlan, Plan
from krepair.plan.view import bytes_text, bytes_words, count_text

_RECORDS_BYTES: Final = 4 * ROUNDING_BYTES
"""A block of the journal, and folders that an earlier undo has removed."""
_RECORDS_FILES: Final = 4
_FENCE_FILES: Final = 4

_UNDO: Final = "krepair undo PLAN"


class UndoNeed(NamedTuple):
    """What undo needs on the disk of the log directory.

    Attributes:
        need: at the peak.
        stays: bytes on top when it has ended; negative if it frees more than it takes.
    """

    need: Need
    stays: int


class _Part(NamedTuple):
    """What one partition needs."""

    top: OnTop
    files: int


def need_of_undo(
    plan: Plan,
    parts: Sequence[tuple[PartitionPlan, PartitionFolder]],
    watch: Watch,
    journals: JournalsSeen,
) -> UndoNeed:
    """What the undo of these partitions needs, one after the other.

    A partition that cannot be looked at counts as nothing: its own undo says what is wrong with it.

    Args:
        plan: reviewed.
        parts: in the order in which they are taken back.
        watch: what a fence would write down.
        journals: of the plan.
    """
    together, files = OnTop(0, 0), 0
    fence = _fence_bytes(plan, watch)
    for target, folder in parts:
        with contextlib.suppress(KrepairError, OSError):
            part = _need_of_part(target, folder, fence, journals)
            together, files = together.then(part.top), max(files, part.files)
    return UndoNeed(Need(together.peak, files), together.after)


def check_room(
    plan: Plan,
    parts: Sequence[tuple[PartitionPlan, PartitionFolder]],
    watch: Watch,
    journals: JournalsSeen,
    options: Options,
) -> None:
    """Checks that the disk of the log directory has what undo needs.

    Args:
        plan: reviewed.
        parts: in the order in which they are taken back.
        watch: what a fence would write down.
        journals: of the plan.
        options: ``use_reserved``: root's reserve counts, too.

    Raises:
        RefusedError: it has not; the message has both figures, and what to do. Nothing was changed.
    """
    needed = need_of_undo(plan, parts, watch, journals)
    try:
        space = _space(plan.log_dir, needed, options)
    except OSError:
        return  # the first call that writes says what is wrong with the disk
    if not needed.need.files or needed.need.fits(space):
        return
    way = _way_out(plan, needed, space, options)
    raise RefusedError(
        f"{plan.log_dir}: undo needs {_what(needed, space)}; {way.text}. Nothing was changed",
        next_command=way.command,
    )


def _space(log_dir: str, needed: UndoNeed, options: Options) -> Space:
    """What is free. Root may take its reserve without being asked where undo gives all of it back."""
    if options.use_reserved:
        return read_space(log_dir, use_reserved=True)
    more = _with_reserve(log_dir) if needed.stays <= 0 else None
    return more or read_space(log_dir)


def _with_reserve(log_dir: str) -> Space | None:
    """The space with root's reserve; None where the caller is not root, or nobody knows of one."""
    if os.geteuid() != 0:
        return None
    try:
        return read_space(log_dir, use_reserved=True)
    except (RefusedError, OSError):
        return None


def _what(needed: UndoNeed, space: Space) -> str:
    need = needed.need
    if need.bytes <= space.free_bytes:
        return (
            f"room for {count_text(need.files_on(links_are_files=space.links_are_files), 'new file')} while it works, "
            f"and the file system has room for {space.free_inodes:,}"
        )
    return (
        f"{bytes_words(need.bytes)} on the disk of the log directory while it works, and "
        f"{bytes_text(space.free_bytes)} are free there"
    )


def _way_out(plan: Plan, needed: UndoNeed, space: Space, options: Options) -> Way:
    """The first way that works: root's reserve, what can go, what only root has, or what waits on another disk."""
    more = None if options.use_reserved else _with_reserve(plan.log_dir)
    if more is not None and needed.need.fits(more):
        return Way(
            f"it fits with --use-reserved, which takes what is free for root alone; a broker that is not root then "
            f"finds {bytes_words(space.free_bytes)} less",
            f"{_UNDO} --use-reserved",
        )
    missing = max(needed.need.bytes - space.free_bytes + space.withheld_bytes, 0)
    short = (
        f"at least {bytes_words(missing)} more have to be free"
        if missing
        else "files have to go before it can begin"
    )
    lack = Lack(missing, 0 if missing else needed.need.files - space.free_inodes, "")
    could = removable(plan.log_dir, but=plan.plan_id)
    ways = could or last_ways(plan.log_dir, _UNDO, lack)
    if not ways:
        return Way(f"{short}. Make room, then type the same command again", _UNDO)
    told = "; ".join(one.text for one in ways)
    first = next((one.command for one in ways if one.command), _UNDO)
    return Way(f"{short}. What can safely go: {told}. Then type the same command again", first)


# -- what is needed


def _fence_bytes(plan: Plan, watch: Watch) -> Callable[[PartitionFolder], int]:
    """What a fence writes: the list of what it saw, and a copy of the recovery points with one line changed."""

    @cache
    def seen_bytes() -> int:
        """Of all partitions of the directory; none of it changes while room is looked for."""
        return len(msgspec.json.encode(watch.seen()))

    def measure(folder: PartitionFolder) -> int:
        if not plan.commit.fence:
            return 0
        points = folder.tree.status(f"{folder.log_dir}/{RECOVERY_POINT_CHECKPOINT}")
        return ROUNDING_BYTES + _rounded(seen_bytes()) + _rounded(points.st_size if points is not None else 0)

    return measure


def _need_of_part(
    target: PartitionPlan,
    folder: PartitionFolder,
    fence: Callable[[PartitionFolder], int],
    journals: JournalsSeen,
) -> _Part:
    if not folder.tree.is_folder(folder.private):
        return _Part(OnTop(0, 0), 0)
    journal = journals.of(folder)
    applied = [one for one in target.changes if journal.states.get(one.change_id) in APPLIED]
    if not applied:
        return _Part(OnTop(0, 0), 0)
    intents = [journal.intents[one.change_id] for one in applied]
    fenced = any(action_of(intent).fenced for intent in intents)
    top, files = OnTop(0, 0), _RECORDS_FILES + _FENCE_FILES * fenced
    for batch in in_batches(applied[::-1]):
        together = [journal.intents[one.change_id] for one in batch]
        written = sum(_rounded(action_of(intent).written_by_undo(intent)) for intent in together)
        top = top.then(OnTop(written, 0))
    records = _RECORDS_BYTES + (fence(folder) if fenced else 0)
    # What was made for this partition's records goes when it is back.
    return _Part(OnTop(records, records).then(top).then(OnTop(0, -records)), files)


def _rounded(size: int) -> int:
    return -(-size // ROUNDING_BYTES) * ROUNDING_BYTES
