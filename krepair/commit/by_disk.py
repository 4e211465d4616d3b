"""Judge a change without a journal: whether the change was made, and which files krepair may replace.

A change lists its files with their planned states (``OneChange.files``). This module compares that list with the
folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.commit.steps import CLEANED
from krepair.formats.filenames import LOG, SEGMENT_SUFFIXES, SWAP
from krepair.logdir.fingerprint import digest_batches, digest_file
from krepair.logdir.reading import read_whole
from krepair.plan.changes import Change, ChangeLines, FileChange
from krepair.plan.model import FileFingerprint
from krepair.rules.changed_entries import entries_in, entries_left, has_new_entries, with_entries

LARGEST_BYTES: Final = 1 << 28
NO_LINES: Final = b"0\n0\n"
"""Content of an empty checkpoint, assumed for a missing file."""


def telling(change: Change) -> list[FileChange]:
    """Return the files that show, without a journal, whether a change was made; there is at least one."""
    return [file for file in change.files if file.tells]


def is_planned(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change) -> bool:
    """Return whether every file that shows a change is still as the plan recorded it.

    A rebuilt file may have the size and time of the old file. Then the file's content decides; for a log, the digest of
    its batches.

    Raises:
        OSError: a file could not be read.
    """
    if isinstance(change, ChangeLines):
        return _lines_are_planned(folder, change)
    files = telling(change)
    if not all(_is_as_planned(folder, planned, file.name) for file in files):
        return False
    if not is_made(folder, planned, change):
        return True
    return all(
        file.name.endswith(LOG)
        and digest_batches(folder.at(file.name), int(file.name.removesuffix(LOG)), folder.tree)
        == planned[file.name].digest
        for file in files
    )


def _is_as_planned(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> bool:
    current, plan = folder.state(name), planned.get(name)
    if current is None or plan is None:
        return current is None and plan is None
    return (current.size, current.mtime_ns) == (plan.size, plan.mtime_ns)


def logs_made(changes: Iterable[Change]) -> dict[str, FileChange]:
    """Return the planned result for each log that the changes touch, by name."""
    return {file.name: file for change in changes for file in change.files if file.name.endswith(LOG)}


def is_log_of_plan(
    folder: PartitionFolder,
    planned: Mapping[str, FileFingerprint],
    made: Mapping[str, FileChange],
    name: str,
) -> bool:
    """Return whether a log has its planned old state or its planned new state (``logs_made``).

    Raises:
        OSError: the log could not be read.
    """
    return _is_as_planned(folder, planned, name) or (
        name in made and _becomes(folder, planned, made[name], name)
    )


def is_made(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change) -> bool:
    """Return whether the files that show a change have their new state.

    Raises:
        OSError: a file could not be read.
    """
    if isinstance(change, ChangeLines):
        data = _data(folder, change)
        if data is not None and change.trusts:
            return bool(entries_in(data, change.lines))
        return data is not None and has_new_entries(data, change.lines)
    return all(_becomes(folder, planned, file, file.name) for file in telling(change))


def _becomes(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], file: FileChange, path: str
) -> bool:
    """Return whether a path holds the new file, judged by digest if the plan has one, else by size and time."""
    current = folder.state(path)
    if current is None or file.goes:
        return current is None and file.goes
    if file.digest:
        return current.size == file.size and digest_file(folder.at(path)) == file.digest
    pending = planned.get(file.name + SWAP) if file.how == "swapped" else None
    mtime_ns = file.mtime_ns if pending is None else pending.mtime_ns
    return (current.size, current.mtime_ns) == (file.size, mtime_ns)


# -- a rollback by hand


def names_by_hand(change: Change, planned: Mapping[str, FileFingerprint]) -> list[str]:
    """Return every name in the partition folder that an original or a new file of a change can have.

    Two kinds of logs are not listed: a log that is cut in place, and the log that a broker's swap becomes.
    """
    if not change.in_order:
        return [file.name for file in change.files if file.how != "cut"]
    stem = change.files[0].name.removesuffix(LOG)
    own = [stem + extension + suffix for extension in SEGMENT_SUFFIXES for suffix in ("", SWAP, CLEANED)]
    if change.files[0].how == "swapped":
        own = [name for name in own if not name.startswith(stem + LOG)]
    olds = [file.name for file in change.files if file.how != "swap" and file.name in planned]
    return list(dict.fromkeys((*own, *olds)))


def may_be_replaced(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change, name: str
) -> bool:
    """Return whether a file may be replaced, because the change made this file or a broker can rebuild it.

    Raises:
        OSError: the file cannot be read.
    """
    if isinstance(change, ChangeLines):
        return _only_planned_lines_differ(folder, change)
    # During a swap a file has another name. A file that does not show the change is an index: a broker can rebuild it.
    final, files = (
        name.removesuffix(SWAP).removesuffix(CLEANED),
        {file.name: file for file in telling(change)},
    )
    file = files.get(final) or files.get(name)
    return file is None or _becomes(folder, planned, file, name)


# -- entries of a checkpoint: the file is identified by its entries, not by its bytes


def _lines_are_planned(folder: PartitionFolder, change: ChangeLines) -> bool:
    """Return whether the entries that a plan changes are still as planned; other entries may have changed.

    If the plan may change only some of its entries, one unchanged entry is enough: another run can change it later.
    """
    data, lines = _data(folder, change), change.lines
    if data is not None and change.trusts:
        unchanged = entries_left(data, lines)
        return bool(unchanged) and len(unchanged) + len(entries_in(data, lines)) == len(lines)
    return data is not None and with_entries(data, lines) is not None


def _only_planned_lines_differ(folder: PartitionFolder, change: ChangeLines) -> bool:
    """Return whether a checkpoint differs from its backup only by the plan's entries."""
    kept, old = folder.names.keep(change.name), NO_LINES
    if folder.state(kept) is not None:
        old = read_whole(folder.at(kept), LARGEST_BYTES, folder.tree)
    new = read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)
    return with_entries(old, entries_in(new, change.lines)) == new


def _data(folder: PartitionFolder, change: ChangeLines) -> bytes | None:
    if folder.state(change.name) is None:
        return NO_LINES if change.size_before < 0 else None
    return read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)


def current_data(folder: PartitionFolder, change: ChangeLines) -> bytes:
    """Return the bytes of a checkpoint; those of an empty checkpoint if no file exists and the plan expects none.

    Raises:
        OSError: the file cannot be read.
    """
    if change.size_before < 0 and folder.state(change.name) is None:
        return NO_LINES
    return read_whole(folder.at(change.name), LARGEST_BYTES, folder.tree)


def has_more(folder: PartitionFolder, change: Change, intent: Intent) -> bool:
    """Return whether a committed change left entries of a checkpoint for a later run.

    The result is False if another program has written the file since the change.

    Raises:
        OSError: a file could not be read.
    """
    if not isinstance(change, ChangeLines) or not change.trusts:
        return False
    if not folder.holds(change.name, intent.new(change.name)):
        return False
    return bool(entries_left(current_data(folder, change), change.lines))
