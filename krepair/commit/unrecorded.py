"""Find changes that the journal does not record, because a record was damaged on the disk or lost.

A damaged last record looks like a record that was torn by a crash. A torn record was never durable, so its change was
not begun. A damaged record was durable, so its change may have been begun. And a journal that lost its last records
looks complete. Only the files show an unrecorded change: before the first file of a partition changes, its original is
in ``keep/``, or the new file is a ``.swap`` or ``.cleaned``.

If a journal cannot be trusted, krepair derives from the plan and the files shell commands that restore the originals,
and a person types these commands. A change has commands only if each original is in its place or kept, in its planned
state, and no other program has written the files that the commands replace. The commands delete none of the plan's new
files: they move these files into the work folder, which purge removes.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from krepair.commit.by_disk import logs_made, may_be_replaced, names_by_hand
from krepair.commit.change_files import check_is_still_its_log
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import FileState, Intent, Journal
from krepair.commit.mend import CUT, is_given_back, lines_of_cut
from krepair.commit.steps import CLEANED
from krepair.errors import KrepairError, StalePlanError
from krepair.formats.filenames import INDEX_SUFFIXES, LOG, SWAP, FileKind, NameState, parse_file_name
from krepair.logdir.fingerprint import digest_batches, digest_file
from krepair.plan.changes import Change, FileChange, MendLog
from krepair.plan.model import FileFingerprint, PartitionPlan


def check_nothing_kept(folder: PartitionFolder, journal: Journal) -> None:
    """Check that the work folder holds no only copy of an original: each backup also exists in its place.

    Call this before the work folder is removed because the journal says that nothing is applied.

    Raises:
        DamagedJournalError: the original of a backup is not in its place; the message names the file.
        OSError: a file could not be read.
    """
    for name in _kept_alone(folder, journal, frozenset()):
        raise journal.damaged(
            f"{folder.at(folder.names.keep(name))}: is kept and not in its place, but the journal has no record of a "
            "change; the journal may be damaged, and nothing is removed"
        )


def is_all_recorded(folder: PartitionFolder, journal: Journal) -> bool:
    """Return whether each backup whose original is not in place belongs to a change in the journal.

    Raises:
        OSError: a file could not be read.
    """
    return not _kept_alone(folder, journal, _known(journal))


def check_all_recorded(
    folder: PartitionFolder, journal: Journal, planned: Collection[str] = (), made: Iterable[str] = ()
) -> None:
    """Check that the journal has a record of every change of which the files show signs.

    Call this before ``Journal.settle``, which removes an incomplete last record.

    Args:
        journal: the journal as it was read.
        planned: names of all files that existed when the plan was made. If ``planned`` is empty and the last record is
            incomplete, a broker's swap is treated as krepair's; ``apply`` distinguishes both.
        made: names of all files that the plan makes, used only if the last record is incomplete. A new file has no kept
            original, so only its name shows that the change was begun.

    Raises:
        DamagedJournalError: a file belongs to a change without a record; the message names the file.
        OSError: a file could not be read.
    """
    known = _known(journal)
    telling = [folder.names.keep(name) for name in _kept_alone(folder, journal, known)]
    # No other change begins before an unfinished change is done, so a torn record belongs to the unfinished change.
    swaps = (
        swaps_in(folder) if journal.is_torn and not journal.unfinished() else swaps_of_kept(folder, planned)
    )
    telling += [name for name in swaps if name not in planned and _final(name) not in known]
    if journal.is_torn:
        telling += sorted(set(made).difference(planned, known).intersection(folder.file_names()))
    if not journal.intents and folder.tree.is_folder(f"{folder.private}/fence"):
        telling.append(f"{folder.names.private}/fence")
    if telling:
        reason = "its last record is damaged" if journal.is_torn else "a record is gone"
        raise journal.damaged(
            f"{journal.path}: {reason}, and {folder.at(telling[0])} tells that a change was begun which the others do "
            f"not know; nothing was changed, and the originals are in {folder.at(folder.names.keep())}"
            f"{_or_of_a_broker(telling[0])}"
        )


def _or_of_a_broker(name: str) -> str:
    """Return the part of the message that names another possible origin of a ``.swap`` or ``.cleaned``; else empty."""
    if not name.endswith((SWAP, CLEANED)):
        return ""
    return (
        "; if a broker was started since, it is of a cleaning that was stopped: start that broker, stop it, and run "
        "this again"
    )


def _known(journal: Journal) -> frozenset[str]:
    """Return the final names of all files of changes that were begun and not undone."""
    at_work = (journal.intents[change] for change in journal.at_work())
    return frozenset(_final(name) for intent in at_work for name in intent.names)


def _final(name: str) -> str:
    return name.removesuffix(CUT).removesuffix(SWAP).removesuffix(CLEANED)


def swaps_in(folder: PartitionFolder) -> list[str]:
    """Return the names of the ``.swap`` and ``.cleaned`` files in a partition folder.

    Raises:
        OSError: the folder could not be listed.
    """
    names = map(parse_file_name, folder.file_names())
    return [name.name for name in names if name.state in {NameState.SWAP, NameState.CLEANED}]


def swaps_of_kept(folder: PartitionFolder, planned: Collection[str] = ()) -> list[str]:
    """Return the names of ``.swap`` and ``.cleaned`` files at whose base offset ``keep/`` has a log or a swap.

    Before krepair begins a swap, it keeps such a file. A swap that is itself kept or is in the plan existed when the
    plan was made, and is not returned.

    Raises:
        OSError: a file could not be read.
    """
    swaps = swaps_in(folder)
    kept = set(_kept_names(folder)) if swaps else set()
    bases = {name.partition(".")[0] for name in kept if name.endswith((LOG, SWAP))}
    return [
        name for name in swaps if name not in kept and name not in planned and name.partition(".")[0] in bases
    ]


def _kept_names(folder: PartitionFolder) -> list[str]:
    try:
        return folder.tree.names(folder.at(folder.names.keep()))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _kept_alone(folder: PartitionFolder, journal: Journal, known: Collection[str]) -> list[str]:
    """Return the names in ``keep/`` of backups whose originals are not in place and that belong to no known change."""
    return [
        name
        for name in _not_in_place(folder, _kept_names(folder))
        if _final(name) not in known and not _is_given_back(folder, journal, name)
    ]


def last_copies(folder: PartitionFolder, names: Iterable[str] | None = None) -> list[str]:
    """Return the names in ``keep/`` of files that may be the last copy of their content.

    An index whose log is in its place is not returned, because the log can be read without that index.

    Args:
        names: names in ``keep/`` to check; None for all names.

    Raises:
        OSError: a file could not be read.
    """
    return [
        name
        for name in _not_in_place(folder, _kept_names(folder) if names is None else names)
        if not name.endswith(INDEX_SUFFIXES) or folder.state(f"{name.partition('.')[0]}{LOG}") is None
    ]


def kept_for(folder: PartitionFolder, intent: Intent) -> list[str]:
    """Return the names in ``keep/`` that belong to a change, except cut bytes that the log has again."""
    touched = frozenset(map(_final, intent.names))
    return [
        name
        for name in _kept_names(folder)
        if _final(name) in touched and not is_given_back(folder, intent, name)
    ]


def _not_in_place(folder: PartitionFolder, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if is_displaced(folder, name))


def is_displaced(folder: PartitionFolder, name: str) -> bool:
    """Return whether ``keep/`` has a file of this name whose content is not in its place.

    Raises:
        OSError: a file could not be read.
    """
    path = folder.names.keep(name)
    kept, current = folder.state(path), folder.state(name)
    return kept is not None and (current is None or not _is_same(folder, path, kept, name, current))


def _is_same(folder: PartitionFolder, kept_at: str, kept: FileState, name: str, here: FileState) -> bool:
    """Return whether a backup and the file in its place are one file, or two equal files in a copied directory."""
    if folder.is_one_file(kept_at, name):
        return True
    if (kept.size, kept.mtime_ns) != (here.size, here.mtime_ns):
        return False
    return folder.digested(kept_at, kept) == folder.digested(name, kept)


def _is_given_back(folder: PartitionFolder, journal: Journal, name: str) -> bool:
    """Return whether the log has the cut bytes in a backup again; a power cut may undo the removal of that backup."""
    return any(is_given_back(folder, intent, name) for intent in journal.intents.values())


# -- by hand


class ByHand(NamedTuple):
    """Shell commands that restore the originals of a partition.

    Attributes:
        lines: shell commands in the order in which to type them; empty if every original is in its place.
        left: reason why a change and all earlier changes have no commands: change id, file and error; else empty.
    """

    lines: tuple[str, ...]
    left: str


def by_hand(folder: PartitionFolder, partition: PartitionPlan) -> ByHand:
    """Return the commands for a partition, last change first, up to the first change that cannot be rolled back.

    Raises:
        OSError: a file could not be read.
    """
    lines: list[str] = []
    written, made = _log_written_since(folder, partition), logs_made(partition.changes)
    for change in partition.changes[::-1]:
        try:
            lines += _lines(folder, partition, change, written, made)
        except KrepairError as error:
            return ByHand(tuple(lines), f"{change.change_id} stays: {error.message}")
    return ByHand(tuple(lines), "")


def _lines(
    folder: PartitionFolder,
    partition: PartitionPlan,
    change: Change,
    written: str,
    made: Mapping[str, FileChange],
) -> list[str]:
    planned, crc_told = partition.by_name, bool(change.decides_on)
    away: list[str] = []
    back = [line for file in change.files for line in _lines_of_log(folder, planned, change, file)]
    for name in names_by_hand(change, planned):
        plan, current = planned.get(name), folder.state(name)
        kept = folder.names.keep(name)
        is_kept = plan is not None and _is_as_planned(folder, kept, plan, crc_told=crc_told)
        if plan is None:
            if current is None:
                continue
        elif is_kept:
            if not change.in_order and name in change.takes_out:
                check_is_still_its_log(folder, name, planned, made)
            # Without a digest in the plan a new file may look like the old file: then compare the file with the backup.
            if not is_displaced(folder, name):
                continue
        elif _is_as_planned(folder, name, plan, crc_told=crc_told):
            continue
        if current is not None and not may_be_replaced(folder, planned, change, name):
            raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
        if plan is None:
            away.append(_move_line(folder.at(name), f"{folder.private}/{name}"))
        elif is_kept:
            back.append(_move_line(folder.at(kept), folder.at(name)))
        else:
            raise StalePlanError(f"{folder.at(name)}: its original is neither in its place nor kept")
    at_log_end = not change.in_order and any(file.name.endswith(LOG) for file in change.files)
    if written and at_log_end and (away or back):
        raise StalePlanError(f"{written}: a broker has written to the log since")
    return [*away, *back]


def _lines_of_log(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: Change, file: FileChange
) -> Sequence[str]:
    """Return the commands for a log that cannot be restored by renaming a file from ``keep/``.

    Raises:
        StalePlanError: the log cannot be restored.
        OSError: the log cannot be read.
    """
    if isinstance(change, MendLog) and file.how == "cut":
        return lines_of_cut(folder, planned[file.name], change)
    swap = file.name + SWAP
    if file.how != "swapped" or may_be_replaced(folder, planned, change, swap):
        return ()
    if not may_be_replaced(folder, planned, change, file.name):
        raise StalePlanError(f"{folder.at(swap)}: is gone, and so is the segment that it became")
    return (_move_line(folder.at(file.name), folder.at(swap)),)


def _move_line(source: str, target: str) -> str:
    return f"mv {shlex.quote(source)} {shlex.quote(target)}"


def _log_written_since(folder: PartitionFolder, partition: PartitionPlan) -> str:
    """Return the first log that the plan neither changes nor lists in its present state; empty if there is none."""
    planned = partition.by_name
    changed = {name for change in partition.changes for name in change.touches}
    for name in map(parse_file_name, folder.file_names()):
        if name.kind is not FileKind.LOG or name.state is not NameState.LIVE or name.name in changed:
            continue
        plan, current = planned.get(name.name), folder.state(name.name)
        if current is not None and (plan is None or plan.size != current.size):
            return folder.at(name.name)
    return ""


def _is_as_planned(folder: PartitionFolder, path: str, planned: FileFingerprint, *, crc_told: bool) -> bool:
    """Return whether a file has the planned size and time, and the planned digest if the plan has a digest.

    For a log that was already damaged, the plan has no digest of all bytes.

    Raises:
        OSError: the file cannot be read.
    """
    current = folder.state(path)
    if current is None or (current.size, current.mtime_ns) != (planned.size, planned.mtime_ns):
        return False
    if not planned.digest or (LOG in planned.name and not crc_told):
        return True
    if planned.name.endswith(LOG):
        base_offset = int(planned.name.partition(".")[0])
        digest = digest_batches(folder.at(path), base_offset, folder.tree, check_crc=True)
        return digest == planned.digest
    return digest_file(folder.at(path), folder.tree) == planned.digest
