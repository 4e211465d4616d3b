"""Whether files tell of work that the journal does not know: a record may have been damaged on the disk, or be gone.

A damaged last record looks like one that was torn by a crash. A torn one was never durable, so nothing of what it
announces was done. A damaged one was, and its change may be half done. Of a journal that lost its end between two
records nothing can be seen at all. The files tell: before the first file of a partition changes, its original is in
``keep/`` or the new file is a ``.swap`` or ``.cleaned``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from krepair.formats.filenames import INDEX_SUFFIXES, LOG, SWAP, NameState, parse_file_name
from krepair.journal.actions.mend import CUT
from krepair.journal.actions.table import action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState, Intent, Journal
from krepair.journal.steps import CLEANED


def check_nothing_kept(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that no original would go with the private sub-folder: what each kept file holds is also in its place.

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
    """Whether each kept file that is not in its place is kept for a change that the journal knows.

    Raises:
        OSError: something could not be looked at.
    """
    return not _kept_alone(folder, journal, _known(journal))


def check_all_recorded(
    folder: PartitionFolder, journal: Journal, planned: Collection[str] = (), made: Iterable[str] = ()
) -> None:
    """Checks that nothing was done but what the records say.

    To be asked before ``Journal.settle``, which removes a last record that is not whole.

    Args:
        folder: the partition folder.
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
    swaps = _swaps(folder) if journal.is_torn and not journal.unfinished() else swaps_of_kept(folder)
    telling += [name for name in swaps if name not in planned and _final(name) not in known]
    if journal.is_torn:
        telling += sorted(set(made).difference(planned, known).intersection(folder.file_names()))
    if not journal.intents and folder.tree.is_folder(f"{folder.private}/fence"):
        telling.append(f"{folder.names.private}/fence")
    if telling:
        what = "its last record is damaged" if journal.is_torn else "a record is gone"
        raise journal.damaged(
            f"{journal.path}: {what}, and {folder.at(telling[0])} tells that a change was begun which the others do "
            f"not know; nothing was changed, and the originals are in {folder.at(folder.names.keep())}"
            f"{_or_of_a_broker(telling[0])}"
        )


def _or_of_a_broker(name: str) -> str:
    """What else such a file can tell."""
    if not name.endswith((SWAP, CLEANED)):
        return ""
    return (
        "; if a broker was started since, it is of a cleaning that was stopped: start that broker, stop it, and run "
        "this again"
    )


def _known(journal: Journal) -> frozenset[str]:
    """Final names of all files of the changes that are done or half done."""
    at_work = (journal.intents[change] for change in journal.at_work())
    return frozenset(_final(name) for one in at_work for name in one.names)


def _final(name: str) -> str:
    return name.removesuffix(CUT).removesuffix(SWAP).removesuffix(CLEANED)


def _swaps(folder: PartitionFolder) -> list[str]:
    names = map(parse_file_name, folder.file_names())
    return [name.name for name in names if name.state in {NameState.SWAP, NameState.CLEANED}]


def swaps_of_kept(folder: PartitionFolder) -> list[str]:
    """Names of the ``.swap`` and ``.cleaned`` in a partition folder at whose base offset something is kept.

    Raises:
        OSError: something could not be looked at.
    """
    swaps = _swaps(folder)
    bases = {name.partition(".")[0] for name in _kept_names(folder)} if swaps else set()
    return [name for name in swaps if name.partition(".")[0] in bases]


def _kept_names(folder: PartitionFolder) -> list[str]:
    try:
        return folder.tree.names(folder.at(folder.names.keep()))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _kept_alone(folder: PartitionFolder, journal: Journal, known: Collection[str]) -> list[str]:
    """Names in ``keep/`` of files that are not in their places, and not kept for a change that is known."""
    return [
        name
        for name in _not_in_place(folder, _kept_names(folder))
        if _final(name) not in known and not _is_given_back(folder, journal, name)
    ]


def last_copies(folder: PartitionFolder, names: Iterable[str] | None = None) -> list[str]:
    """Names in ``keep/`` of files that may be the last copy of what they hold.

    An index is none where its log is in its place: that is read without it.

    Args:
        folder: the partition folder.
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
    """Names in ``keep/`` that belong to a change, and hold what is not back without them."""
    touched = frozenset(map(_final, intent.names))
    return [
        name
        for name in _kept_names(folder)
        if _final(name) in touched and not action_of(intent).is_given_back(folder, intent, name)
    ]


def _not_in_place(folder: PartitionFolder, names: Iterable[str]) -> Iterator[str]:
    return (name for name in names if is_displaced(folder, name))


def is_displaced(folder: PartitionFolder, name: str) -> bool:
    """Whether a file of a name is kept, and what it holds is not in its place.

    Raises:
        OSError: something could not be looked at.
    """
    path = folder.names.keep(name)
    kept, here = folder.state(path), folder.state(name)
    return kept is not None and (here is None or not _is_same(folder, path, kept, name, here))


def _is_same(folder: PartitionFolder, kept_at: str, kept: FileState, name: str, here: FileState) -> bool:
    """Whether a kept file is the one in its place: a link of it, or what a copy of the directory made of a link."""
    if folder.is_one_file(kept_at, name):
        return True
    if (kept.size, kept.mtime_ns) != (here.size, here.mtime_ns):
        return False
    return folder.digested(kept_at, kept) == folder.digested(name, kept)


def _is_given_back(folder: PartitionFolder, journal: Journal, name: str) -> bool:
    """Whether the bytes of a kept file are back without it: its removal may have been lost with the power."""
    return any(action_of(intent).is_given_back(folder, intent, name) for intent in journal.intents.values())
