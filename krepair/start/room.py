"""The free space of a disk, and advice if a plan does not fit (``krepair.plan.fit`` computes that).

The space is checked when ``plan`` makes and prints a plan, and when ``apply`` begins. After that, every call ends
safely on a full disk.

A plan needs a journal. If no block or no inode is free for a journal, the named commands need neither. Tested at 0 free
blocks and at 0 free inodes on ext4, XFS and tmpfs: ``krepair purge``, ``rm``, and ``cp`` to another disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.commit.kept import kept_originals
from krepair.commit.ready import is_root, targets_of
from krepair.errors import KrepairError, RefusedError
from krepair.formats.filenames import private_folder
from krepair.formats.words import count_text, few
from krepair.logdir.space import VolumeSpace, read_space, settled_space
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.next_command import NOTHING, PLAN, Next, by_id
from krepair.options import Options
from krepair.plan.commands import plan_command
from krepair.plan.fit import (
    Shortage,
    fit_of,
    fits_whole,
    room_in,
    shortage_of,
    whole_needs,
    why_not_begun,
    with_undo_decided,
)
from krepair.plan.keep import AUTO
from krepair.plan.model import Change, PartitionPlan, Plan, Preview, Room
from krepair.plan.short import DiskObservation
from krepair.plan.space import ExtraSpace, without_undo
from krepair.plan.view import bytes_text, bytes_words, size_text

_OTHER_DISK: Final = "/OTHER-DISK"
_AWAY: Final = (
    "krepair finds nothing here that can be removed without loss. Copy {} to a folder of another disk: the first "
    "command below removes what has an equal copy. No broker may start before it is back: "
    "docs/runbooks/reclaim-a-full-disk.md. Then"
)


def room_of(view: LogDir) -> Room:
    """Return the broker user's free space, root's reserve, and the space that the next start may need.

    Raises:
        OSError: the disk cannot be asked.
    """
    from krepair.start.needs import needed_at_most  # loads the forecast, which a plan that fits does not need

    return room_in(view.path, settled_space(view.path), *needed_at_most(view))


def room_of_short_disk(view: LogDir, plan: Plan) -> Room | None:
    """Return the free space if a plan does not fit as it is; None if the plan fits.

    Raises:
        OSError: the disk cannot be asked.
    """
    room = room_in(view.path, read_space(view.path))
    if fits_whole(plan, room) or not fit_of(plan, room).left:
        return None
    return room_of(view)


def _space_and_shortage(plan: Plan) -> tuple[VolumeSpace, Shortage | None]:
    """Return the free space, and why a plan does not fit there; None if the plan fits.

    Raises:
        OSError: the disk cannot be asked.
    """
    space = read_space(plan.log_dir)
    lack = shortage_of(plan, space)
    if lack is not None and space.gives_back_later:
        space = settled_space(plan.log_dir)
        lack = shortage_of(plan, space)
    return space, lack


def check_fits(plan: Plan, remaining: Sequence[PartitionPlan], options: Options) -> None:
    """Check before the first write that a plan fits on its disk.

    Args:
        plan: a plan that the review has passed.
        remaining: targets that are still to do, each with its remaining changes.
        options: options that say where the work is done.

    Raises:
        RefusedError: the plan does not fit, or nothing can be written there. The message says what to do.
    """
    space, lack = _space_and_shortage(_with_targets(plan, remaining))
    if space.mounted_read_only:
        raise RefusedError(f"{plan.log_dir}: the file system is mounted read-only")
    if lack is not None:
        lines, commands = _advice(plan, lack, space, options)
        text = " ".join(line.rstrip(".") + "." for line in lines).rstrip(".")
        raise RefusedError(
            f"{plan.log_dir}: the plan needs {lack.text}. {text}",
            next_command=next(iter(commands), NOTHING),
        )


def why_no_room(plan: Plan, partition: PartitionPlan) -> str:
    """Return why the disk has no room for a partition now, or empty."""
    space = read_space(plan.log_dir)
    why = why_not_begun(plan, partition, space)
    if why and space.gives_back_later:
        return why_not_begun(plan, partition, settled_space(plan.log_dir))
    return why


def _with_targets(plan: Plan, targets: Sequence[PartitionPlan]) -> Plan:
    """Return the plan with these targets only."""
    root = plan.root if any(map(is_root, targets)) else None
    return replace(plan, partitions=tuple(target for target in targets if not is_root(target)), root=root)


# -- what to do instead


def _advice(
    plan: Plan, lack: Shortage, space: VolumeSpace, options: Options
) -> tuple[tuple[str, ...], tuple[Next, ...]]:
    """Return advice for a plan that does not fit: lines to print, and the commands to type."""
    again = plan_command(plan, keep=AUTO, at=options)
    root = f"Root may use {bytes_text(space.reserve_bytes)} more here"
    if shortage_of(plan, space, for_root=True) is None:
        return (f"{root}: run apply as root.",), (Next.of("apply", PLAN, when="as root"),)
    if plan.policy.keep != AUTO:
        room = room_of(read_log_dir(plan.log_dir))
        other = _freeing(plan, room)
        fit = fit_of(other, room)
        if fit.left and len(fit.left) < len(other.changing):
            some = f"{len(other.changing) - len(fit.left):,} of {count_text(len(other.changing), 'partition')} fit"
            return (f"With --keep auto {some} now.",), (again,)
        if not fit.lacks and not fit.lacks_files:
            gone = len(without_undo(other))
            undo = f"{count_text(gone, 'change')} of {len(_changes(other)):,} would have no undo"
            return (f"With --keep auto it fits: {undo}.",), (again,)
        if shortage_of(other, space, for_root=True) is None:
            return (f"{root}, and with --keep auto it fits: run apply of that plan as root.",), (again,)
        lack = shortage_of(other, space) or lack
    could = removable(plan.log_dir, but=plan.plan_id)
    least, every = _amount(lack.bytes, lack.files), _amount(lack.all_bytes, lack.all_files)
    short = f"At least {least} more have to be free here"
    short += "." if least == every else f" before one partition fits, {every} before all of this does."
    safe = [f"What can safely go: {removable_files.text}. Then" for removable_files in could]
    commands = [removable_files.command for removable_files in could]
    if not could:
        folders = _to_copy_away(plan, lack)
        safe, commands = [_AWAY.format(few(folders))], [copied_away(plan.log_dir, folders)]
    return (
        short,
        f"{' '.join(safe)} make the plan again with --keep auto.",
    ), (*dict.fromkeys(commands), again)


def copied_away(log_dir: str, folders: Sequence[str]) -> Next:
    """Return the command that copies folders to another disk, and removes each that has an equal copy there."""
    disk = _OTHER_DISK
    copy = f'cp -a "./$f" {disk}/. && sync -f {disk} && diff -r "./$f" "{disk}/$f" && rm -r "./$f"'
    names = shlex.join(folders)
    return Next.by_hand(f"(cd {shlex.quote(log_dir)} && for f in {names}; do {copy}; done)")


def _to_copy_away(plan: Plan, lack: Shortage) -> list[str]:
    """Return which partitions to copy away until one of the others fits: the fewest."""
    size, files, folders = 0, 0, list[str]()
    for partition in sorted(plan.partitions, key=lambda partition: -partition.log_bytes_before):
        if size >= lack.bytes and files >= lack.files and folders:
            break
        size, files = size + partition.log_bytes_before, files + len(partition.files)
        folders.append(partition.folder)
    return folders


def _amount(size: int, files: int) -> str:
    wanted = [f"{-(-size // 1024):,} KiB"] if size or not files else []
    wanted += [count_text(files, "inode")] if files else []
    return " and ".join(wanted)


def _freeing(plan: Plan, room: Room) -> Plan:
    """Return the same changes with ``--keep auto``."""
    other = replace(plan, policy=replace(plan.policy, keep=AUTO, room=room))
    return replace(other, partitions=with_undo_decided(other))


def _changes(plan: Plan) -> list[Change]:
    return [change for partition in plan.partitions for change in partition.changes]


# -- the page


def observe(plan: Plan, options: Options) -> DiskObservation | str:
    """Observe the disk; only its free space is read.

    Returns:
        The observation; a text with the reason if the plan changes nothing, or its log directory cannot be examined.
    """
    if not targets_of(plan):
        return "nothing is needed"
    try:
        space, lack = _space_and_shortage(plan)
        room = room_in(plan.log_dir, space)
        if lack is not None and shortage_of(plan, space, for_root=True) is not None:
            more, commands = _advice(plan, lack, space, options)
            lines = (f"It needs {lack.text}.", *more)
            return DiskObservation(
                room.free_bytes, fit_of(plan, room).needs.peak, lines, commands, fits=False
            )
    except (OSError, RefusedError):
        return "the disk cannot be examined here"
    if lack is not None:  # it fits with what only root may use
        room = replace(room, reserve_bytes=space.reserve_bytes)
    needs = whole_needs(plan)
    # The figure of df, if that is enough; a broker that runs as root has root's reserve too.
    free_bytes = space.free_bytes if needs.peak <= space.free_bytes else room.free_bytes
    return DiskObservation(
        free_bytes, needs.peak, _figures(space, needs), root_bytes=_of_root(space, room, needs)
    )


def _of_root(space: VolumeSpace, room: Room, needs: ExtraSpace) -> int:
    """Return the bytes that only root may use, if the plan fits only with them; else 0."""
    return space.reserve_bytes if needs.peak > room.free_bytes else 0


def _figures(space: VolumeSpace, needs: ExtraSpace) -> tuple[str, ...]:
    inodes = "" if space.free_inodes < 0 else f", and room for {count_text(space.free_inodes, 'file')}"
    root = f" ({size_text(space.reserve_bytes)} more for root alone)" if space.reserve_bytes else ""
    return (
        f"{size_text(max(space.free_bytes, 0))} are free now{root}{inodes}.",
        f"{size_text(needs.peak)} are needed while apply runs, for {count_text(needs.files, 'file')}.",
    )


def observe_again(plan: Plan) -> DiskObservation | str:
    """Observe the disk for a plan that is shown again, unless apply has begun it or never will."""
    if isinstance(plan.preview, Preview):
        return "not looked at: this is a preview"
    name = private_folder(plan.plan_id)
    if any(os.path.lexists(os.path.join(plan.log_dir, target.folder, name)) for target in targets_of(plan)):
        return "not looked at: apply has begun this plan"
    return observe(plan, Options())


# -- damage that a plan met, or sees without reading, and does not repair: the user has to name other fixes


MOST_NAMED: Final = 10
"""Files and folders that one command names, the largest first."""


# -- files in a log directory that can be removed without loss, with a command that works on its disk


class RemovableFiles(NamedTuple):
    """Files that can be removed without loss.

    Attributes:
        text: description of the files, without a full stop.
        command: the command that removes them.
    """

    text: str
    command: Next


def removable(log_dir: str, but: str = "") -> tuple[RemovableFiles, ...]:
    """Return what could be removed without loss; no file is read.

    Args:
        but: id of a plan whose backups are kept, because it is about to be undone.
    """
    try:
        view = read_log_dir(log_dir)
    except KrepairError:
        return ()
    return (*_kept(view, but), *_removed_by_a_start(view))


def _kept(view: LogDir, but: str) -> Iterator[RemovableFiles]:
    for kept in kept_originals(view, 0):
        if kept.bytes and kept.plan_id != but:
            command = by_id("purge", view.path, kept.plan_id)
            amount = f"{bytes_words(kept.bytes)} that plan {kept.plan_id} keeps"
            yield RemovableFiles(f"{amount} ({command}; no undo after it)", command)


def _removed_by_a_start(view: LogDir) -> Iterator[RemovableFiles]:
    """Yield files that brokers left behind, and folders of deleted partitions."""
    sizes = {file.path: file.blocks for part in view.partitions for file in _left_behind(part)}
    there = {part.key for part in view.partitions}
    for part in view.marked:
        # If the partition has another folder, the -delete folder may hold records that the other folder has lost.
        if part.role == "delete" and part.key not in there:
            sizes[part.path] = sum(file.blocks for file in part.files())
    if not sum(sizes.values()):
        return
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:MOST_NAMED]
    some = f", the largest {len(largest)} with the command below" if len(largest) < len(sizes) else ""
    yield RemovableFiles(
        f"{bytes_words(sum(sizes.values()))} of {count_text(len(sizes), 'file or folder', 'files and folders')} that "
        f"brokers left behind{some} (KR701; the next start of the broker removes them, too). Type it only while the "
        "broker is stopped",
        Next.by_hand(shlex.join(("rm", "-r", "--", *largest))),
    )


def _left_behind(part: Partition) -> Iterator[FileRef]:
    """Yield the files that the next start of a broker deletes in any case.

    A ``.cleaned`` file beside a ``.swap`` file decides what a start does with the swap, so the ``.cleaned`` is kept. A
    ``.deleted`` file after the last segment may be the only copy of records that a start has cut.
    """
    last = max((segment.base_offset for segment in part.segments), default=-1)
    swaps = bool(part.waiting_swap)
    for leftover in part.leftovers:
        if (leftover.kind == "deleted" and leftover.base_offset <= last) or (
            leftover.kind == "cleaned" and not swaps
        ):
            yield leftover.file
    yield from part.orphan_indexes
