"""Does it fit: what a plan needs on the disk against what is free there, and what to do where it does not.

It is looked at when ``plan`` is printed, and when ``apply`` begins. After that a full disk ends every call safely.

A plan needs a journal. Where none can be written, since no block or no inode is free, commands are named that need
neither. Run at 0 free blocks and at 0 free inodes on ext4, XFS and tmpfs: ``krepair purge``, ``rm``, and ``cp`` to
another disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.errors import KrepairError, RefusedError
from krepair.fixes.checkpoints import CHECKPOINTS, moved_away, see_checkpoints
from krepair.fixes.gone_ends import gone_of
from krepair.fixes.leftovers import LEFTOVERS
from krepair.fixes.table import asked
from krepair.formats.filenames import private_folder
from krepair.formats.words import count_text, names_text
from krepair.logdir.config import configured_id, why_of_another_broker
from krepair.logdir.space import VolumeSpace, read_space
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.next_command import NOTHING, PLAN, Next, by_id
from krepair.ops.kept import kept_originals
from krepair.ops.log_dirs_given import named_and_missing
from krepair.ops.ready import is_root, targets_of
from krepair.ops.show import around_of, options_of, plan_command
from krepair.options import Options
from krepair.plan.facts import fix_names
from krepair.plan.keep import AUTO, is_freed_by_apply
from krepair.plan.model import Change, PartitionPlan, Plan, Preview, Room
from krepair.plan.render import plan_view
from krepair.plan.risks import OTHERS_FIRST
from krepair.plan.short import Observed
from krepair.plan.space import (
    decided,
    fit_of,
    on_top,
    parts_on_top,
    plan_copy_bytes,
    without_undo,
)
from krepair.plan.view import Section, View, bytes_text, bytes_words, size_text
from krepair.rules.gone_ends import GoneEnd
from krepair.start.needs import needed_at_most

_FILES_OF_A_TARGET: Final = 12
"""Folders, journals, fence files and the copy of the plan in one private sub-folder."""
_AWAY: Final = (
    "krepair finds nothing here that can be removed without loss. Copy a partition to another disk, and remove it "
    "here: docs/runbooks/reclaim-a-full-disk.md says how, and what must not happen while you do"
)


def room_of(view: LogDir) -> Room:
    """What is free for the broker's user, what only root has beside it, and what the next start may write.

    Raises:
        OSError: the disk cannot be asked.
    """
    return replace(_room_in(view.path, read_space(view.path)), start_bytes=needed_at_most(view))


def _room_in(path: str, space: VolumeSpace) -> Room:
    """The same, without the next start."""
    free, reserve = space.free_bytes, space.reserve_bytes
    if os.stat(path).st_uid == 0:
        free, reserve = max(free, 0) + reserve, 0  # a broker that is root takes the reserve, too
    return Room(free_bytes=free, reserve_bytes=reserve if os.geteuid() == 0 else 0, start_bytes=0)


class Lack(NamedTuple):
    """Why a plan does not fit.

    Attributes:
        text: what it needs, and what is free.
        bytes: that have to become free before it can begin; 0 where files are what is missing.
    """

    text: str
    bytes: int


def lack_of(plan: Plan, space: VolumeSpace) -> Lack | None:
    """Why a plan does not fit; None if it does.

    Args:
        plan: what is left to do.
        space: of the disk.
    """
    room = _room_in(plan.log_dir, space)
    copy_bytes = plan_copy_bytes(plan)
    if plan.policy.keep == AUTO:
        fit = fit_of(plan, room, copy_bytes)
        needed, missing = fit.begin, fit.lacks
    else:
        top = parts_on_top(plan)
        has = room.free_bytes + (room.reserve_bytes if top.after <= 0 else 0)
        needed = top.peak + copy_bytes
        missing = max(needed - has, 0)
    files = _files_of(plan, space)
    if not missing and 0 <= space.free_inodes < files:
        return Lack(
            f"{count_text(files, 'new file')} while it is applied, the file system has room for {space.free_inodes:,}",
            0,
        )
    if not missing:
        return None
    return Lack(
        f"{bytes_words(needed)} on top {'to begin' if plan.policy.keep == AUTO else 'while it is applied'}, "
        f"{bytes_text(max(room.free_bytes, 0))} are free",
        missing,
    )


def check_fits(plan: Plan, left: Sequence[PartitionPlan], options: Options) -> None:
    """Checks before the first write that a plan fits on its disk.

    Args:
        plan: reviewed.
        left: targets that are still to do, each with the changes that are.
        options: where the work is done.

    Raises:
        RefusedError: it does not, or nothing can be written there. The message says what to do.
    """
    space = read_space(plan.log_dir)
    if space.mounted_read_only:
        raise RefusedError(f"{plan.log_dir}: the file system is mounted read-only")
    lack = lack_of(_of(plan, left), space)
    if lack is not None:
        lines, commands = _way_out(plan, lack, options)
        text = " ".join(line.rstrip(".") + "." for line in lines).rstrip(".")
        raise RefusedError(
            f"{plan.log_dir}: the plan needs {lack.text}. {text}",
            next_command=next(iter(commands), NOTHING),
        )


def why_not_begun(plan: Plan, partition: PartitionPlan) -> str:
    """Why the disk has no room for a partition, or empty.

    What ``--keep auto`` keeps has to leave the room for the next start, and may not take what only root has.
    """
    top, room = on_top(partition, plan.policy), _room_in(plan.log_dir, read_space(plan.log_dir))
    keeps = any(change.by_itself and not is_freed_by_apply(change) for change in partition.changes)
    need = top.peak + (plan.policy.room.start_bytes if keeps and isinstance(plan.policy.room, Room) else 0)
    has = room.free_bytes + (0 if plan.policy.keep == AUTO and top.after > 0 else room.reserve_bytes)
    if need <= has:
        return ""
    return f"{partition.folder}: needs {need} bytes, {max(has, 0)} are free; it is left as it is"


def _of(plan: Plan, targets: Sequence[PartitionPlan]) -> Plan:
    """The plan with nothing but these targets."""
    root = plan.root if any(map(is_root, targets)) else None
    return replace(plan, partitions=tuple(one for one in targets if not is_root(one)), root=root)


def _files_of(plan: Plan, space: VolumeSpace) -> int:
    """New files and folders; where a second name counts as a file, also those that originals have meanwhile."""
    files = 0
    for target in targets_of(plan):
        there = {file.name for file in target.files}
        files += _FILES_OF_A_TARGET + sum(len(change.leaves) + 1 for change in target.changes)
        if space.links_are_files:
            files += len(there.intersection(name for change in target.changes for name in change.touches))
    return files


# -- what to do instead


def _way_out(plan: Plan, lack: Lack, options: Options) -> tuple[tuple[str, ...], tuple[Next, ...]]:
    """What to do where a plan does not fit: lines, and the commands to type."""
    if plan.policy.keep != AUTO and lack.bytes:
        room = room_of(read_log_dir(plan.log_dir))
        other = replace(plan, policy=replace(plan.policy, keep=AUTO, room=room))
        other = replace(other, partitions=decided(other))
        fit = fit_of(other, room, plan_copy_bytes(other))
        if not fit.lacks:
            gone = len(without_undo(other))
            undo = f"{count_text(gone, 'change')} of {len(_changes(other)):,} would have no undo"
            return (f"With --keep auto it fits: {undo}.",), (plan_command(plan, keep=AUTO, at=options),)
        lack = Lack(lack.text, fit.lacks)
    could = removable(plan.log_dir, but=plan.plan_id)
    short = (
        f"At least {-(-lack.bytes // 1024):,} KiB more have to be free here."
        if lack.bytes
        else "There has to be room for more files here."
    )
    safe = [f"What can safely go: {one.text}." for one in could] or [f"{_AWAY}."]
    commands = [one.command for one in could]
    again = plan_command(plan, keep=AUTO, at=options)
    return (short, *safe, "Then type the last command."), (*dict.fromkeys(commands), again)


def _changes(plan: Plan) -> list[Change]:
    return [change for one in plan.partitions for change in one.changes]


# -- the page


def planned_view(plan: Plan, path: str, options: Options | None = None) -> View:
    """The page of a plan that was made just now: with what is free on its disk, and what it does not mend.

    Args:
        plan: the plan.
        path: of its file.
        options: as typed; where the work is done counts.
    """
    options = options or Options()
    place = options.words("scratch")
    around = around_of(plan, path, place)._replace(
        observed=observe(plan, options),
        unmended=not_mended(plan),
        doubt=_of_another_broker(plan, options),
    )
    return plan_view(plan, around)


def observe(plan: Plan, options: Options) -> Observed | str:
    """Look at the disk; nothing is read but its figures.

    Returns:
        A text where nothing can be said, as the plan changes nothing, or its log directory cannot be looked at: why.
    """
    if not targets_of(plan):
        return "nothing is needed"
    try:
        space = read_space(plan.log_dir)
        room = _room_in(plan.log_dir, space)
    except (OSError, RefusedError):
        return "the disk cannot be looked at here"
    needed = parts_on_top(plan).peak + plan_copy_bytes(plan)
    lack = lack_of(plan, space)
    if lack is None:
        # What df shows, where that is enough; a broker that is root has its reserve, too.
        free_bytes = space.free_bytes if needed <= space.free_bytes else room.free_bytes
        return Observed(free_bytes, needed, lines=_figures(plan, space, needed))
    more, commands = _way_out(plan, lack, options)
    return Observed(room.free_bytes, needed, (f"It needs {lack.text}.", *more), commands, fits=False)


def _figures(plan: Plan, space: VolumeSpace, needed: int) -> tuple[str, ...]:
    inodes = "" if space.free_inodes < 0 else f", and room for {count_text(space.free_inodes, 'file')}"
    root = f" ({size_text(space.reserve_bytes)} more for root alone)" if space.reserve_bytes else ""
    files = count_text(_files_of(plan, space), "file")
    return (
        f"{size_text(max(space.free_bytes, 0))} are free now{root}{inodes}.",
        f"{size_text(needed)} are needed while apply runs, for {files}.",
    )


def observe_again(plan: Plan) -> Observed | str:
    """As ``observe``, of a plan that is shown again; not where apply has begun it, or never will."""
    if isinstance(plan.preview, Preview):
        return "not looked at: this is a preview"
    name = private_folder(plan.plan_id)
    if any(os.path.lexists(os.path.join(plan.log_dir, one.folder, name)) for one in targets_of(plan)):
        return "not looked at: apply has begun this plan"
    return observe(plan, Options())


def _of_another_broker(plan: Plan, options: Options) -> str:
    """That the settings of a plan are those of another broker; empty where nothing shows it."""
    text = why_of_another_broker(options.config, plan.log_dir, plan.broker_id)
    return f"{text}. The settings are those of broker {configured_id(options.config)}" if text else ""


# -- what a plan met, or can see without reading, and does not mend: other fixes have to be named for it

_MOST: Final = 3


def not_mended(plan: Plan) -> Section:
    """What is damaged and stays so, with the commands; and that ``check`` looks for more, where nothing is planned."""
    damaged = [partition for partition in plan.partitions if partition.uncleanable_bytes]
    names = ", ".join(fix.name for fix in asked(plan.policy.fixes))
    lines: list[str] = []
    commands: list[Next] = []
    if damaged:
        many = count_text(len(damaged), "damaged partition")
        lines.append(f"{many} would stay damaged: {damaged[0].folder}: {damaged[0].why}.")
        if any(partition.what_next.accepts_loss for partition in damaged):
            lines.append(OTHERS_FIRST)
        commands += [partition.what_next.filled(log_dir=plan.log_dir) for partition in damaged]
    swaps, away, gone = _seen_in(plan.log_dir)
    waiting = [one for one in gone if one.consent and one.consent not in plan.policy.accepted_losses]
    if waiting and CHECKPOINTS in asked(plan.policy.fixes):
        lines.append(f"{waiting[0].folder}: {waiting[0].text}. These lines tell of the loss, so they stay.")
        lines += [f"So do those of {count_text(len(waiting) - 1, 'more partition')}."] if waiting[1:] else []
        lines.append(OTHERS_FIRST)
        words = (plan.log_dir, "--fix", "checkpoints", "--accept-data-loss", waiting[0].consent)
        commands.append(Next.of("plan", *words, out=PLAN).carrying(options_of(plan)))
    if away:
        lines.append(f"{away}.")
    if swaps and LEFTOVERS.name not in fix_names(plan.policy):
        lines.append(f"{count_text(swaps, 'file')} of an unfinished swap (KR601, data loss) would stay.")
        first = Next.of("plan", plan.log_dir, "--fix", LEFTOVERS.name, out=PLAN)
        commands.append(first.carrying(options_of(plan)))
    if not plan.partitions:
        lines += [
            f"No partition was looked at for --fix {fix.name}: it takes {fix.takes}."
            for fix in asked(plan.policy.fixes)
            if fix.takes
        ]
    elif unseen := _named_and_not_there(plan):
        lines.append(
            f"Nothing was looked at of {names_text(unseen)}: it is not in this directory, or "
            f"--fix {names} does not take it."
        )
    if lines or not targets_of(plan):
        lines.append(
            f"This plan only looks for what --fix {names} mends. krepair check looks for all the rest."
        )
        commands.append(Next.of("check", plan.log_dir).carrying(options_of(plan)))
    kept = [command for command in dict.fromkeys(commands) if command]
    if len(kept) > _MOST:
        lines.append("Each partition is below, with its command.")
    return Section(
        title="What this plan does not mend",
        lines=tuple(lines),
        commands=tuple(kept[:_MOST]),
        part="partitions",
    )


def _named_and_not_there(plan: Plan) -> list[str]:
    """Topics and partitions that were named, and of which the plan holds nothing: a typing error would look well."""
    there = {(one.topic, one.partition) for one in plan.partitions}
    return [f"{kind} {name}" for kind, name in named_and_missing(options_of(plan), there)]


def _seen_in(log_dir: str) -> tuple[int, str, tuple[GoneEnd, ...]]:
    """Files of unfinished swaps, what is said of partitions that were moved away, and ends that are gone."""
    try:
        view = read_log_dir(log_dir)
    except KrepairError:
        return 0, "", ()
    there = {one.key: None for one in (*view.marked, *view.partitions)}
    swaps = sum(one.kind == "swap" for partition in view.partitions for one in partition.leftovers)
    gone = gone_of(view, {one.folder for one in view.partitions})
    return swaps, moved_away(see_checkpoints(view, there)), gone


MOST_NAMED: Final = 10
"""Files and folders that one command names, the largest first."""


# -- what lies in a log directory and can go without loss, with a command that works on its disk


class RemovableFiles(NamedTuple):
    """What can go.

    Attributes:
        text: in words, without a full stop.
        command: to type.
    """

    text: str
    command: Next


def removable(log_dir: str, but: str = "") -> tuple[RemovableFiles, ...]:
    """What could go without loss; no file is read.

    Args:
        log_dir: the log directory.
        but: id of a plan that keeps what it keeps: it is about to be taken back.
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
            what = f"{bytes_words(kept.bytes)} that plan {kept.plan_id} keeps"
            yield RemovableFiles(f"{what} ({command}; no undo after it)", command)


def _removed_by_a_start(view: LogDir) -> Iterator[RemovableFiles]:
    """Files that brokers left behind, and folders of deleted partitions."""
    sizes = {file.path: file.blocks for part in view.partitions for file in _left_behind(part)}
    for part in view.marked:
        if part.role == "delete":
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
    """Files that the next start of a broker deletes, whatever else it finds.

    A ``.cleaned`` file beside a ``.swap`` file decides what becomes of that one, so it is not stray. A ``.deleted``
    file behind the last segment may be the only copy of what a start has cut.
    """
    last = max((one.base_offset for one in part.segments), default=-1)
    swaps = any(one.kind == "swap" for one in part.leftovers)
    for one in part.leftovers:
        if (one.kind == "deleted" and one.base_offset <= last) or (one.kind == "cleaned" and not swaps):
            yield one.file
    yield from part.orphan_indexes
