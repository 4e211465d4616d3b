"""Whether files tell of work that the journal does not know: its last record may have been damaged on the disk.

Such a record looks like one that was torn by a crash. A torn one was never durable, so nothing of what it announces was
done. A damaged one was, and its change may be half done. The files tell the two apart: before the first file of a
partition changes, its original is in ``keep/`` or the new file is a ``.swap`` or ``.cleaned``.
"""

from __future__ import annotations

from collections.abc import Collection

from krepair.errors import RefusedError
from krepair.formats.filenames import FileState, parse_file_name
from krepair.journal.actions.mend import CUT
from krepair.journal.actions.table import action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import Journal
from krepair.journal.steps import CLEANED, SWAP

_AT_WORK = frozenset({"committing", "committed", "undoing", "freed"})


def check_nothing_kept(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that no original would go with the private sub-folder: what each kept file holds is also in its place.

    To be asked wherever the journal says that nothing is applied.

    Raises:
        RefusedError: a kept file is not in its place; the message names it.
        OSError: something could not be looked at.
    """
    for name in _kept_alone(folder, journal, frozenset()):
        raise RefusedError(
            f"{folder.at(folder.names.keep(name))}: is kept and not in its place, but the journal has no record of a "
            "change; the journal may be damaged, and nothing is removed",
            next_command=f"krepair check {folder.log_dir}",
        )


def is_all_recorded(folder: PartitionFolder, journal: Journal) -> bool:
    """Whether each kept file that is not in its place is kept for a change that the journal knows.

    Raises:
        OSError: something could not be looked at.
    """
    return not _kept_alone(folder, journal, _known(journal))


def check_all_recorded(folder: PartitionFolder, journal: Journal, planned: Collection[str] = ()) -> None:
    """Checks, where the journal ends in a record that is not whole, that nothing was done of what it announced.

    To be asked before ``Journal.settle``, which removes that record. While a change is half done there is nothing to
    ask: then no other one was begun, and the record that is not whole is of that one.

    Args:
        folder: the partition folder.
        journal: as it was read.
        planned: names of all files that were there when the plan was made. Where they are not known, a swap of a
            broker is taken for one of ours; ``apply`` tells them apart.

    Raises:
        RefusedError: files tell of more than the records do; the message names one.
        OSError: something could not be looked at.
    """
    if not journal.is_torn or journal.unfinished():
        return
    known = _known(journal)
    telling = [folder.names.keep(name) for name in _kept_alone(folder, journal, known)]
    telling += [name for name in _swaps(folder) if name not in planned and _final(name) not in known]
    if telling:
        raise RefusedError(
            f"{journal.path}: its last record is damaged, and {folder.at(telling[0])} tells that a change was begun "
            "which the records before it do not know; nothing was changed, and the originals are in "
            f"{folder.at(folder.names.keep())}",
            next_command=f"krepair check {folder.log_dir}",
        )


def _known(journal: Journal) -> frozenset[str]:
    """Final names of all files of the changes that are done or half done."""
    at_work = [one for change, one in journal.intents.items() if journal.states[change] in _AT_WORK]
    return frozenset(_final(name) for one in at_work for name in action_of(one).touches(one))


def _final(name: str) -> str:
    return name.removesuffix(CUT).removesuffix(SWAP).removesuffix(CLEANED)


def _swaps(folder: PartitionFolder) -> list[str]:
    names = map(parse_file_name, folder.file_names())
    return [name.name for name in names if name.state in {FileState.SWAP, FileState.CLEANED}]


def _kept_alone(folder: PartitionFolder, journal: Journal, known: Collection[str]) -> list[str]:
    """Names in ``keep/`` of files that are not in their places, and not kept for a change that is known."""
    keep = folder.names.keep()
    if not folder.tree.is_folder(folder.at(keep)):
        return []
    alone = []
    for name in folder.tree.names(folder.at(keep)):
        kept, here = folder.state(f"{keep}/{name}"), folder.state(name)
        linked = kept is None or (here is not None and here.inode == kept.inode)
        if not linked and _final(name) not in known and not _is_given_back(folder, journal, name):
            alone.append(name)
    return alone


def _is_given_back(folder: PartitionFolder, journal: Journal, name: str) -> bool:
    """Whether the bytes of a kept file are back without it: its removal may have been lost with the power."""
    return any(action_of(intent).is_given_back(folder, intent, name) for intent in journal.intents.values())
