"""Copies of one log directory that can be reached beside each other: only a person knows which one is meant.

A directory counts as another one of a plan if it holds a journal of the plan and is not the same directory by device
and inode. Looked for are the path of the plan, the paths that journals name, what lies
beside the log directory, and the same place below every other local file system that is mounted. Nothing is read there
but names. What this user cannot look at, other hosts, and file systems over a network are not seen.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from krepair.durable.disk import Disk
from krepair.durable.writing_error import FileSystem, innermost, mounted
from krepair.errors import PersonDecidesError, RefusedError, StalePlanError
from krepair.formats.filenames import FolderKind, parse_folder_name
from krepair.journal.record import JOURNAL_NAME, MOST_BYTES, Here, Together, decode_records

_LOCAL: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay", "jfs", "reiserfs", "bcachefs"}
)
"""Kinds of file systems on which a look at a name cannot hang."""
_MOST_BESIDE: Final = 1000
_MOST_LISTED: Final = 100
"""Names of a folder that are listed, also for a plan of fewer partitions."""
_SHOWN: Final = 3


def other_directories(log_dir: str, private: Sequence[str], named: Iterable[str]) -> tuple[str, ...]:
    """Other directories that hold a journal of the same plan, in the order in which they were found.

    Args:
        log_dir: absolute path of the one that was given.
        private: the private sub-folders that the plan can have, relative to a log directory.
        named: further absolute paths to look at.
    """
    journals = [f"{path}/{JOURNAL_NAME}" for path in private]
    seen, found = {_known(log_dir)}, []
    mounts = mounted()
    for path in dict.fromkeys((*named, *_beside(log_dir, mounts), *_mounted_elsewhere(log_dir, mounts))):
        known = _known(path)
        if known is None or known in seen:
            continue
        seen.add(known)
        if _holds_one(path, journals):
            found.append(path)
    return tuple(found)


def _holds_one(path: str, journals: Sequence[str]) -> bool:
    """Whether a folder holds one of these files.

    Most folders hold no partition of the plan. A listing tells that at once, and no file has to be looked at: a host
    may have a thousand mounts, and a plan thousands of partitions. A listing that would take longer than that is left.
    """
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        most = max(len(journals), _MOST_LISTED)
        names = {entry.name for entry in islice(entries, most + 1)}
        if len(names) <= most:
            journals = [journal for journal in journals if journal.partition("/")[0] in names]
    return any(os.path.lexists(f"{path}/{journal}") for journal in journals)


def told_places(disk: Disk, log_dir: str, private: Sequence[str]) -> list[str]:
    """Where the plan was at work, as the first journal tells that can be read; empty where none does.

    Args:
        disk: of the log directory.
        log_dir: absolute path.
        private: see ``other_directories``.
    """
    for path in private:
        with contextlib.suppress(OSError, RefusedError):
            data = disk.tree.read(f"{log_dir}/{path}/{JOURNAL_NAME}", MOST_BYTES)
            for record in decode_records(data or b"", path)[0]:
                steps = record.records if isinstance(record, Together) else (record,)
                told = [step.log_dir for step in steps if isinstance(step, Here)]
                if told:
                    return told
    return []


def _known(path: str) -> tuple[int, int] | None:
    """Device and inode of a folder; None if it is none, or cannot be looked at."""
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(path)
        return (found.st_dev, found.st_ino) if os.path.isdir(path) else None
    return None


def _beside(log_dir: str, mounts: Sequence[FileSystem]) -> Iterator[str]:
    """Folders beside a log directory. Mount points are left to ``_mounted_elsewhere``: a look at one may hang."""
    parent = os.path.dirname(log_dir)
    skipped = {mount.mounted_at for mount in mounts} | {log_dir}
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        paths = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        yield from (path for path in paths[:_MOST_BESIDE] if path not in skipped)


def _mounted_elsewhere(log_dir: str, mounts: Sequence[FileSystem]) -> Iterator[str]:
    below = os.path.relpath(log_dir, innermost(f"{log_dir}/.", mounts).mounted_at)
    for mount in mounts:
        if mount.kind in _LOCAL:
            yield mount.mounted_at
            yield os.path.normpath(f"{mount.mounted_at}/{below}")


def check_only_one(log_dir: str, plan_id: str, others: Sequence[str]) -> None:
    """Checks that no other directory could be meant.

    Args:
        log_dir: absolute path of the one that was given.
        plan_id: of the plan.
        others: see ``other_directories``.

    Raises:
        PersonDecidesError: there is another one.
    """
    if others:
        shown = ", ".join(others[:_SHOWN])
        raise PersonDecidesError(
            f"{log_dir} and {shown}: each holds a journal of plan {plan_id}, so one is a copy of the other, and only "
            "you know which one is meant. Nothing was changed. Name it with --at LOGDIR; only that one is changed then",
            next_command=f"krepair verify PLAN --at {shlex.quote(log_dir)}",
        )


def check_is_copy(log_dir: str, others: Iterable[str]) -> None:
    """Checks that a directory is not another log directory into which folders of partitions were copied.

    A copy has the partitions of its original, but for what a broker has made or deleted in one of them since. So where
    each of the two holds partitions that the other one does not hold, neither is a copy of the other.

    Args:
        log_dir: absolute path of the directory that may not be the plan's.
        others: absolute paths of others that hold a journal of the plan.

    Raises:
        StalePlanError: it is another log directory.
    """
    mine = _partitions(log_dir)
    for other in others:
        theirs = _partitions(other)
        if mine - theirs and theirs - mine:
            raise StalePlanError(
                f"{log_dir}: is another log directory than {other}, and no copy of it: it lacks "
                f"{min(theirs - mine)} and holds {min(mine - theirs)}; nothing was changed"
            )


def check_holds_the_plans(log_dir: str, planned: Iterable[str], begun: Iterable[str]) -> None:
    """As ``check_is_copy``, where the original cannot be reached: held against the partitions that the plan names.

    A folder of a partition that was copied brings the journal in it. So it tells nothing; the others do. A plan of
    these folders alone, as ``--topic`` makes it, knows no others: then nothing tells two log directories of a broker
    apart.

    Args:
        log_dir: absolute path of the directory that may not be the plan's.
        planned: folders of all partitions in the plan, changed or not.
        begun: those of them that hold a journal of the plan here.

    Raises:
        StalePlanError: it holds none of the plan's other partitions, and others that the plan does not name.
    """
    mine, planned = _partitions(log_dir), frozenset(planned)
    rest = planned - frozenset(begun)
    if rest and not rest & mine and mine - planned:
        raise StalePlanError(
            f"{log_dir}: is another log directory than the plan's, and no copy of it: beside what holds a journal of "
            f"the plan it lacks all of the plan's partitions, {min(rest)} the first, and holds {min(mine - planned)}, "
            "which the plan does not name; nothing was changed"
        )


def _partitions(path: str) -> frozenset[str]:
    with contextlib.suppress(OSError):
        names = [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
        return frozenset(name for name in names if parse_folder_name(name).kind is FolderKind.PARTITION)
    return frozenset()
