"""Find work that the journal does not know: a record may have been damaged on the disk, or be gone.

A damaged last record looks like one that was torn by a crash. A torn one was never durable, so nothing of what it
announces was done. A damaged one was, and its change may be half done. Of a journal that lost its end between two
records nothing can be seen at all. The files tell: before the first file of a partition changes, its original is in
``keep/`` or the new file is a ``.swap`` or ``.cleaned``.

Where a journal cannot be gone by, a person types the lines that put the originals back, and nothing else. The plan and
the disk tell them. A change has lines only if each of its originals is in its place or kept, as the plan knows it, and
nobody but this plan has written what is in the way. Nothing is removed: what the plan made moves into the private
sub-folder, which goes with the purge.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from krepair.commit.by_disk import is_ours, logs_made, names_by_hand
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
    """Check that no original goes with the work folder: the content of each kept file is also in its place.

    To be asked wherever the journal says that nothing is applied.

    Raises:
        DamagedJournalError: a kept file is not in its place; the message names it.
        OSError: something could not be looked at.
    """
    for name in _kept_alone(folder, journal, frozenset()):
        raise journal.damaged(
            f"{folder.at(folder.names.keep(name))}: is kept and not in its place, but the journal has no record of a "
            "change; the journal may be damaged, and nothing is removed"
        )


def is_all_recorded(folder: PartitionFolder, journal: Journal) -> bool:
    """Return whether each kept file that is not in its place belongs to a change that the journal knows.

    Raises:
        OSError: something could not be looked at.
    """
    return not _kept_alone(folder, journal, _known(journal))


def check_all_recorded(
    folder: PartitionFolder, journal: Journal, planned: Collection[str] = (), made: Iterable[str] = ()
) -> None:
    """Check that nothing was done but what the records say.

    To be asked before ``Journal.settle``, which removes a last record that is not whole.

    Args:
        journal: as it was read.
        planned: names of all files that were there when the plan was made. Where they are not known, and the last
            record is not whole, a swap of a broker is taken for one of ours; ``apply`` tells them apart.
        made: names of all files that the plan makes, read only where the last record is not whole. A new one keeps no
            original, so only its name tells of it.

    Raises:
        DamagedJournalError: files tell of more than the records do; the message names one.
        OSError: something could not be looked at.
    """
    known = _known(journal)
    telling = [folder.names.keep(name) for name in _kept_alone(folder, journal, known)]
    # While a change is half done no other one was begun, so a torn record is of that one.
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
    """Return what else such a file can mean."""
    if not name.endswith((SWAP, CLEANED)):
        return ""
    return (
        "; if a broker was started since, it is of a cleaning that was stopped: start that broker, stop it, and run "
        "this again"
    )


def _known(journal: Journal) -> frozenset[str]:
    """Return the final names of all files of the changes that are done or half done."""
    at_work = (journal.intents[change] for change in journal.at_work())
    return frozenset(_final(name) for intent in at_work for name in intent.names)


def _final(name: str) -> str:
    return name.removesuffix(CUT).removesuffix(SWAP).removesuffix(CLEANED)


def swaps_in(folder: PartitionFolder) -> list[str]:
    """Return the names of the ``.swap`` and ``.cleaned`` in a partition folder.

    Raises:
        OSError: it could not be listed.
    """
    names = map(parse_file_name, folder.file_names())
    return [name.name for name in names if name.state in {NameState.SWAP, NameState.CLEANED}]


def swaps_of_kept(folder: PartitionFolder, planned: Collection[str] = ()) -> list[str]:
    """Return the names of the ``.swap`` and ``.cleaned`` at whose base offset a log, or a swap, is kept.

    A swap of ours keeps one of them before it begins. One that is kept itself, or that is planned, was there when the
    plan was made.

    Raises:
        OSError: something could not be looked at.
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
    """Return the names in ``keep/`` of files that are not in place, and not kept for a known change."""
    return [
        name
        for name in _not_in_place(folder, _kept_names(folder))
        if _final(name) not in known and not _is_given_back(folder, journal, name)
    ]


def last_copies(folder: PartitionFolder, names: Iterable[str] | None = None) -> list[str]:
    """Return the names in ``keep/`` of files that may be the last copy of their content.

    An index is none where its log is in its place: that is read without it.

    Args:
        names: in ``keep/``; None: all of them.

    Raises:
        OSError: something could not be looked at.
    """
    return [
        name
        for name in _not_in_place(folder, _kept_names(folder) if names is None else names)
        if not name.endswith(INDEX_SUFFIXES) or folder.state(f"{name.partition('.')[0]}{LOG}") is None
    ]


def kept_for(folder: PartitionFolder, intent: Intent) -> list[str]:
    """Return the names in ``keep/`` that belong to a change, and whose content is not back without them."""
    touched = frozenset(map(_final, intent.names))
    return [
        name
        for name in _kept_names(folder)
        if _final(name) in touched and not is_given_back(folder, intent, name)
    ]


def _not_in_place(folder: PartitionFolder, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if is_displaced(folder, name))


def is_displaced(folder: PartitionFolder, name: str) -> bool:
    """Return whether a file of a name is kept, and its content is not in its place.

    Raises:
        OSError: something could not be looked at.
    """
    path = folder.names.keep(name)
    kept, current = folder.state(path), folder.state(name)
    return kept is not None and (current is None or not _is_same(folder, path, kept, name, current))


def _is_same(folder: PartitionFolder, kept_at: str, kept: FileState, name: str, here: FileState) -> bool:
    """Return whether a kept file is the one in its place: a link of it, or what a copied directory made of a link."""
    if folder.is_one_file(kept_at, name):
        return True
    if (kept.size, kept.mtime_ns) != (here.size, here.mtime_ns):
        return False
    return folder.digested(kept_at, kept) == folder.digested(name, kept)


def _is_given_back(folder: PartitionFolder, journal: Journal, name: str) -> bool:
    """Return whether a kept file's bytes are back without it: its removal may have been lost with the power."""
    return any(is_given_back(folder, intent, name) for intent in journal.intents.values())


# -- by hand


class ByHand(NamedTuple):
    """Shell commands that put the originals of a partition back.

    Attributes:
        lines: of a shell, in the order in which they are typed; empty if every original is in its place.
        left: why a change, and those before it, have no lines: its id, a file, and what is wrong; else empty.
    """

    lines: tuple[str, ...]
    left: str


def by_hand(folder: PartitionFolder, partition: PartitionPlan) -> ByHand:
    """Return the commands for a partition, last change first, up to the first change that cannot come back.

    Raises:
        OSError: a file could not be looked at.
    """
    lines: list[str] = []
    gone_on, made = _gone_on(folder, partition), logs_made(partition.changes)
    for change in partition.changes[::-1]:
        try:
            lines += _lines(folder, partition, change, gone_on, made)
        except KrepairError as error:
            return ByHand(tuple(lines), f"{change.change_id} stays: {error.message}")
    return ByHand(tuple(lines), "")


def _lines(
    folder: PartitionFolder,
    partition: PartitionPlan,
    change: Change,
    gone_on: str,
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
            # Where no digest is known, a new file may look like the old one: then what is kept tells.
            if not is_displaced(folder, name):
                continue
        elif _is_as_planned(folder, name, plan, crc_told=crc_told):
            continue
        if current is not None and not is_ours(folder, planned, change, name):
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
    """Return the commands for a log that no rename out of ``keep/`` brings back.

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
    """Return a log that the plan neither changes nor knows in this state; empty if there is none."""
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
    """Return whether a file has the size, the time and the digest of the plan.

    Of a log that was damaged before, no digest is known of all its bytes.

    Raises:
        OSError: it cannot be read.
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
