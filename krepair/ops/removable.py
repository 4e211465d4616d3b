"""What lies in a log directory and can go without loss, each with its bytes and with a command that works on its disk.

A plan needs a journal. Where none can be written, since no block or no inode is free, a command of the system is named
that needs neither. Run at 0 free blocks and at 0 free inodes on ext4, XFS and tmpfs: ``krepair purge``, ``rm``,
``fallocate --dig-holes``, and ``cp`` to another disk.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Final, NamedTuple

from krepair.errors import KrepairError
from krepair.formats.filenames import offset_name
from krepair.formats.words import count_text
from krepair.logdir.reading import SECTOR, opened_for_reading
from krepair.logdir.space import read_space
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.logdir.view import read_log_dir
from krepair.next_command import PLAN, Next, by_id
from krepair.ops.kept import kept_originals
from krepair.plan.space import PLAN_COPY_STEP_BYTES, PRIVATE_FOLDER_BYTES
from krepair.plan.view import bytes_words

MOST_FILES: Final = 10
"""Files that one command names, the largest first."""
_LARGEST_INDEX: Final = 64 << 20
_LEAST_FILES: Final = 12
_TAILS: Final = (".index", ".timeindex")


class RemovableFiles(NamedTuple):
    """What can go.

    Attributes:
        text: in words, without a full stop.
        command: to type.
    """

    text: str
    command: str


class _Tail(NamedTuple):
    bytes: int
    path: str


def removable(log_dir: str, but: str = "") -> tuple[RemovableFiles, ...]:
    """What could go without loss. It reads no log, and of active indexes only those that take more than a block.

    Args:
        log_dir: the log directory.
        but: id of a plan that keeps what it keeps: it is about to be taken back.
    """
    try:
        view = read_log_dir(log_dir)
        journal = _room_for_a_journal(log_dir)
    except (KrepairError, OSError):
        return ()
    return (*_kept(view, but), *_leftovers(view, journal=journal), *_tails(view), *_deleted(view))


def _room_for_a_journal(log_dir: str) -> bool:
    """Whether the disk has room for the journal of a plan, and for the copy of the plan.

    Raises:
        OSError: the disk cannot be asked.
    """
    space = read_space(log_dir)
    files = space.free_inodes < 0 or space.free_inodes > _LEAST_FILES
    return files and space.free_bytes >= PRIVATE_FOLDER_BYTES + PLAN_COPY_STEP_BYTES + space.block_bytes


def _kept(view: LogDir, but: str) -> Iterator[RemovableFiles]:
    for kept in kept_originals(view, 0):
        if kept.bytes and kept.plan_id != but:
            command = str(by_id("purge", view.path, kept.plan_id))
            what = f"{bytes_words(kept.bytes)} that plan {kept.plan_id} keeps"
            yield RemovableFiles(f"{what} ({command}; no undo after it)", command)


def _leftovers(view: LogDir, *, journal: bool) -> Iterator[RemovableFiles]:
    files = [file for part in view.partitions for file in _left_behind(part)]
    if not sum(file.blocks for file in files):
        return
    what = (
        f"{bytes_words(sum(file.blocks for file in files))} of files that brokers left behind, {len(files):,} in "
        "number"
    )
    if journal:
        words = (view.path, "--fix", "leftovers", "--keep", "until-verified")
        command = str(Next.of("plan", *words, out=PLAN))
        yield RemovableFiles(
            f"{what} (KR701; {command}; the next start of the broker removes them, too)", command
        )
        return
    largest = sorted(files, key=lambda file: (-file.blocks, file.path))[:MOST_FILES]
    command = shlex.join(("rm", "--", *(file.path for file in largest)))
    some = f", the largest {len(largest)} with the command below" if len(largest) < len(files) else ""
    yield RemovableFiles(
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


def _tails(view: LogDir) -> Iterator[RemovableFiles]:
    tails = [tail for part in view.partitions for tail in _tails_of(part)]
    if not tails:
        return
    largest = sorted(tails, key=lambda tail: (-tail.bytes, tail.path))[:MOST_FILES]
    command = " && ".join(shlex.join(("fallocate", "--dig-holes", tail.path)) for tail in largest)
    some = f", the largest {len(largest)} with the command below" if len(largest) < len(tails) else ""
    size, many = bytes_words(sum(tail.bytes for tail in tails)), count_text(len(tails), "active index file")
    yield RemovableFiles(
        f"{size} of zeros at the end of {many}{some}: the command makes holes of them, and a broker reads the same as "
        "before. Type it only while the broker is stopped",
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
                if state.st_blocks * SECTOR <= block or state.st_size > _LARGEST_INDEX:
                    continue
                used = len(_all(descriptor, state.st_size).rstrip(b"\0"))
        except OSError:
            continue
        gain = state.st_blocks * SECTOR - -(-used // block) * block
        if gain > 0:
            yield _Tail(gain, path)


def _all(descriptor: int, size: int) -> bytes:
    pieces, at = [], 0
    while at < size and (piece := os.pread(descriptor, size - at, at)):
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


def _deleted(view: LogDir) -> Iterator[RemovableFiles]:
    folders = [part for part in view.marked if part.role == "delete"]
    size = sum(file.blocks for part in folders for file in part.files())
    if size:
        largest = sorted(folders, key=lambda part: (-sum(file.blocks for file in part.files()), part.path))
        yield RemovableFiles(
            f"{bytes_words(size)} of deleted partitions (KR701; the next start of the broker removes them, too). "
            "Type it only while the broker is stopped",
            shlex.join(("rm", "-r", "--", *(part.path for part in largest[:MOST_FILES]))),
        )
