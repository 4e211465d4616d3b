"""What lies in a log directory and can go without loss, each with its bytes and with a command that works on its disk.

A plan needs a journal. Where none can be written, since no block or no inode is free, a command of the system is named
that needs neither. Run at 0 free blocks and at 0 free inodes on ext4, XFS and tmpfs: ``krepair purge``, ``rm``,
``fallocate --dig-holes``, and ``cp`` to another disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.errors import KrepairError
from krepair.formats.filenames import offset_name
from krepair.logdir.reading import opened_for_reading
from krepair.logdir.space import read_space, reserved_for_root
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.ops.kept import by_id_command, kept_originals
from krepair.ops.need import FILES_OF_A_TARGET
from krepair.plan.figures import PLAN_COPY_STEP_BYTES, PRIVATE_FOLDER_BYTES
from krepair.plan.view import bytes_text, bytes_words, count_text

MOST_FILES: Final = 10
"""Files that one command names, the largest first."""
_LARGEST_INDEX: Final = 64 << 20
_SECTOR: Final = 512
_TAILS: Final = (".index", ".timeindex")


class Way(NamedTuple):
    """What to do instead.

    Attributes:
        text: in words, without a full stop.
        command: to type, or empty.
        then: what to type after it, or instead of it, or empty; the text says which.
    """

    text: str
    command: str
    then: str = ""

    @property
    def commands(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(filter(None, (self.command, self.then)))


class _Tail(NamedTuple):
    bytes: int
    path: str


def removable(log_dir: str, but: str = "") -> tuple[Way, ...]:
    """What could go without loss. It reads no log, and of active indexes only those that take more than a block.

    Args:
        log_dir: the log directory.
        but: id of a plan that keeps what it keeps: it is about to be taken back.
    """
    try:
        view = read_log_dir(log_dir)
        journal = room_for_a_journal(log_dir)
    except (KrepairError, OSError):
        return ()
    return (*_kept(view, but), *_leftovers(view, journal=journal), *_tails(view), *_deleted(view))


def room_for_a_journal(log_dir: str) -> bool:
    """Whether the disk has room for the journal of a plan, and for the copy of the plan.

    Raises:
        OSError: the disk cannot be asked.
    """
    space = read_space(log_dir)
    files = space.free_inodes < 0 or space.free_inodes > FILES_OF_A_TARGET
    return files and space.free_bytes >= PRIVATE_FOLDER_BYTES + PLAN_COPY_STEP_BYTES + space.block_bytes


class Lack(NamedTuple):
    """What has to become free before the first plan fits.

    Attributes:
        bytes: of room.
        files: for which there has to be room, too.
        begin_with: folder of the partition that this plan changes.
    """

    bytes: int
    files: int
    begin_with: str


def last_ways(log_dir: str, again: str, lack: Lack) -> tuple[Way, ...]:
    """What is left where nothing that can go is enough: what only root has, and partitions that wait on another disk.

    Args:
        log_dir: the log directory.
        again: the command that makes the plan again.
        lack: of the first plan.
    """
    try:
        view = read_log_dir(log_dir)
        return (*_as_root(log_dir, again, lack), *_to_another_disk(view, lack))
    except (KrepairError, OSError):
        return ()


def _as_root(log_dir: str, again: str, lack: Lack) -> Iterator[Way]:
    """Root may take more blocks than the broker's user, who is not told of them by a plan."""
    more = reserved_for_root(log_dir)
    if os.geteuid() != 0 and lack.bytes and more >= lack.bytes and not lack.files:
        yield Way(
            f"As root, the same command can take a part of {bytes_words(more)} that only root has. Type it as root, "
            "and the apply that it names, too",
            again,
        )


def _to_another_disk(view: LogDir, lack: Lack) -> Iterator[Way]:
    """The smallest partition that makes room while it waits on another disk; else the largest ones."""
    able = [
        _Movable(_blocks_of(part), sum(1 for _ in part.files()) + 1, part)
        for part in view.partitions
        if part.folder != lack.begin_with and not (part.private or part.specials or part.unreadable)
    ]
    chosen = _enough(sorted(able, key=lambda one: (one.bytes, one.files, one.part.folder)), lack)
    if not chosen:
        return
    parts = sorted((one.part for one in chosen), key=lambda part: (part.topic, part.number))
    held = sum(file.size for part in parts for file in part.files())
    them = "it" if len(parts) == 1 else "them"
    names = [part.folder for part in parts]
    yield Way(
        f"What can wait on another disk meanwhile: {', '.join(names)}, {bytes_words(held)}. Move {them} there (DIR) "
        "while no broker can start: a broker would begin such a partition anew, without its records. Then make the "
        f"plan again, apply it, verify it, purge what it keeps, and move {them} back",
        _moved([part.path for part in parts], "DIR"),
        _moved([f"DIR/{name}" for name in names], f"{view.path}/"),
    )


def _moved(sources: Sequence[str], target: str) -> str:
    """A command that removes folders only when their copies are on the other disk; typed again, it goes on."""
    copy = shlex.join(("cp", "-a", "--", *sources, target))
    return f"{copy} && sync && {shlex.join(('rm', '-r', '--', *sources))}"


class _Movable(NamedTuple):
    bytes: int
    files: int
    part: Partition


def _enough(able: Sequence[_Movable], lack: Lack) -> list[_Movable]:
    """Of partitions, smallest first: one that is enough, else as few as are, the largest first."""
    for one in able:
        if one.bytes >= lack.bytes and one.files >= lack.files:
            return [one]
    chosen: list[_Movable] = []
    for one in reversed(able[-MOST_FILES:]):
        chosen.append(one)
        if (
            sum(each.bytes for each in chosen) >= lack.bytes
            and sum(each.files for each in chosen) >= lack.files
        ):
            return chosen
    return []


def _blocks_of(part: Partition) -> int:
    """Bytes of the blocks that its files take."""
    return sum(os.lstat(f"{part.path}/{file.name}").st_blocks * _SECTOR for file in part.files())


def _kept(view: LogDir, but: str) -> Iterator[Way]:
    for kept in kept_originals(view, 0):
        if kept.bytes and kept.plan_id != but:
            command = by_id_command("purge", view.path, kept.plan_id)
            what = f"{bytes_words(kept.bytes)} that plan {kept.plan_id} keeps"
            yield Way(f"{what} ({command}; no undo after it)", command)


def _leftovers(view: LogDir, *, journal: bool) -> Iterator[Way]:
    files = [file for part in view.partitions for file in _left_behind(part)]
    if not sum(file.size for file in files):
        return
    what = (
        f"{bytes_words(sum(file.size for file in files))} of files that brokers left behind, {len(files):,} in "
        "number"
    )
    if journal:
        command = f"krepair plan {shlex.quote(view.path)} --fix leftovers --keep until-verified --out PLAN"
        yield Way(f"{what} (KR701; {command}; the next start of the broker removes them, too)", command)
        return
    largest = sorted(files, key=lambda file: (-file.size, file.path))[:MOST_FILES]
    command = shlex.join(("rm", "--", *(file.path for file in largest)))
    some = f", the largest {len(largest)} with the command below" if len(largest) < len(files) else ""
    yield Way(
        f"{what}{some} (KR701; the next start of the broker removes them, too). No plan has room for its journal now, "
        "so this is a command of the system: type it only while the broker is stopped",
        command,
    )


def _left_behind(part: Partition) -> Iterator[FileRef]:
    """Files that the next start of a broker deletes, whatever else it finds.

    A ``.cleaned`` file beside a ``.swap`` file decides what becomes of that one, so it is not stray.
    """
    swaps = any(one.kind == "swap" for one in part.leftovers)
    for one in part.leftovers:
        if one.kind == "deleted" or (one.kind == "cleaned" and not swaps):
            yield one.file
    yield from part.orphan_indexes


def _tails(view: LogDir) -> Iterator[Way]:
    tails = [tail for part in view.partitions for tail in _tails_of(part)]
    if not tails:
        return
    largest = sorted(tails, key=lambda tail: (-tail.bytes, tail.path))[:MOST_FILES]
    command = " && ".join(shlex.join(("fallocate", "--dig-holes", tail.path)) for tail in largest)
    some = f", the largest {len(largest)} with the command below" if len(largest) < len(tails) else ""
    size, many = bytes_text(sum(tail.bytes for tail in tails)), count_text(len(tails), "active index file")
    yield Way(
        f"{size} bytes of blocks of zeros at the end of {many}{some}: the command makes holes of them, and what a "
        "broker reads stays the same. Type it only while the broker is stopped",
        command,
    )


def _tails_of(part: Partition) -> Iterator[_Tail]:
    """Active index files that end with blocks of zeros that take room; a hole takes none."""
    if not part.segments or part.unreadable:
        return
    base = part.segments[-1].base_offset
    for suffix in _TAILS:
        path = f"{part.path}/{offset_name(base)}{suffix}"
        try:
            with opened_for_reading(path) as descriptor:
                state = os.fstat(descriptor)
                block = max(state.st_blksize, 1)
                if state.st_blocks * _SECTOR <= block or state.st_size > _LARGEST_INDEX:
                    continue
                used = len(_all(descriptor, state.st_size).rstrip(b"\0"))
        except OSError:
            continue
        gain = state.st_blocks * _SECTOR - -(-used // block) * block
        if gain > 0:
            yield _Tail(gain, path)


def _all(descriptor: int, size: int) -> bytes:
    pieces, at = [], 0
    while at < size and (piece := os.pread(descriptor, size - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def _deleted(view: LogDir) -> Iterator[Way]:
    sizes: Sequence[int] = [
        file.size for part in view.marked if part.role == "delete" for file in part.files()
    ]
    if sum(sizes):
        size = bytes_text(sum(sizes))
        yield Way(
            f"{size} bytes of deleted partitions (KR701; the next start of the broker removes them)", ""
        )
