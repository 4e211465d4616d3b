"""A log directory that was copied: the journals of a plan are made to fit the inodes of the copy.

A journal knows every file by name, size, time and inode. Whoever copies a directory to another disk, or restores it,
gets other inodes, and often numbers that were some other file's. So no inode is believed in a directory that may not be
the one in which it was written down. Each file is looked for in the places that it can have, and is known by its size
and its bytes: by the digest of the journal or of the plan, where there is one. Then the journal is written anew, in one
step, with the inodes as they are, and says where they hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from krepair.formats.filenames import SWAP
from krepair.journal.actions.known_by_plan import check_by_plan, has_lost_its_time
from krepair.journal.actions.table import action_for, action_of
from krepair.journal.folder import PartitionFolder
from krepair.journal.known_files import InPlace, KnownFile
from krepair.journal.record import FileState, Here, Journal, Record, Together, new_journal
from krepair.journal.steps import CLEANED
from krepair.plan.model import PartitionPlan

_AT_WORK: Final = frozenset({"committing", "committed", "undoing"})


class Rebound(NamedTuple):
    """What became of the files of a journal in another directory.

    Attributes:
        states: each recorded file -> the same as it is here.
        wrong: what is not as it was: file and what was expected; empty if all is.
        times_lost: whether a file has its bytes, and another time.
        torn_bytes: of originals that are in their places and kept, and are two files here: they were one.
        in_place: files that a change makes other ones without giving them other inodes; ``timed`` binds them.
    """

    states: Mapping[FileState, FileState]
    wrong: tuple[str, ...]
    times_lost: bool
    torn_bytes: int = 0
    in_place: tuple[InPlace, ...] = ()


def has_moved(folder: PartitionFolder, journal: Journal, here: Here, *, is_plans: bool) -> bool:
    """Whether the inodes of a journal may not hold here.

    Args:
        folder: the partition folder.
        journal: its journal.
        here: the directory as it is.
        is_plans: whether host and inode of the directory are those of the plan: for journals of an earlier krepair.

    Raises:
        OSError: a file could not be looked at.
    """
    known = journal.here
    same = (
        is_plans
        if known is None
        else (known.file_system, known.inode, known.host) == (here.file_system, here.inode, here.host)
    )
    return not same or any(_is_other(folder, known) for known in _kept_states(journal))


def _kept_states(journal: Journal) -> Iterator[FileState]:
    for change_id, state in journal.states.items():
        if state in _AT_WORK:
            intent = journal.intents[change_id]
            action = action_of(intent)
            for one in action.known_files(intent, None, {}, {}):
                if not one.made and one.state.name not in action.copied_names(intent):
                    yield one.state


def _is_other(folder: PartitionFolder, known: FileState) -> bool:
    """Whether a kept file is the one of the record by size and time, and has another inode."""
    found = folder.state(folder.names.keep(known.name))
    return (
        found is not None
        and (found.size, found.mtime_ns) == (known.size, known.mtime_ns)
        and found.inode != known.inode
    )


def rebind(
    folder: PartitionFolder,
    journal: Journal,
    partition: PartitionPlan | None,
    *,
    made_too: bool,
    read: bool = True,
) -> Rebound:
    """Finds every file of a journal where it is now; writes nothing.

    Args:
        folder: the partition folder.
        journal: its journal.
        partition: its part of the plan; None if there is no plan: then fewer digests are known.
        made_too: whether what krepair made has to be as it was; else only the originals that are kept.
        read: whether bytes are read; else size and time have to do.

    Raises:
        StalePlanError: something else than a regular file has a name.
        OSError: a file could not be looked at.
    """
    changes = {} if partition is None else {change.change_id: change for change in partition.changes}
    planned = {} if partition is None else partition.by_name
    states: dict[FileState, FileState] = {}
    wrong: list[str] = []
    in_place: list[InPlace] = []
    times_lost, torn_bytes = False, 0
    for change_id, state in journal.states.items():
        if change_id not in journal.intents:
            continue  # a rebuilt journal says of a change only that it was never begun
        intent, change = journal.intents[change_id], changes.get(change_id)
        # Lines of a checkpoint have the intent of any replaced file, and no digest.
        action = action_of(intent) if change is None else action_for(change)
        must = state in _AT_WORK and journal.purging is None
        freed = journal.freed[change_id].made if state == "freed" else {}
        taken: set[str] = set()
        done = made_too and state in {"committed", "freed"} and journal.purging is None
        for known in action.known_files(intent, change, planned, freed):
            # What was freed is elsewhere: a file in its place that holds the same (an empty index) is the new one.
            freed_here = state == "freed" and not known.made
            places = (folder.names.keep(known.state.name),) if freed_here else _places(folder, known)
            check = (known.check or check_by_plan(folder, known, change)) if read else None
            path, found, problem = _look(folder, known._replace(check=check), places, taken)
            if found is not None:
                taken |= {path} if known.made else set()
                times_lost = times_lost or found.mtime_ns != known.state.mtime_ns
                copied = known.state.name in action.copied_names(intent)
                torn_bytes += 0 if known.made or copied else _torn(folder, path, found)
                states[known.state] = msgspec.structs.replace(found, name=known.state.name)
                continue
            states.setdefault(known.state, msgspec.structs.replace(known.state, inode=0))
            # Where a change is half done, another file may still, or again, have the name of what it makes.
            if (done if known.made else must) and (problem or (known.must and (known.made or must))):
                wrong.append(problem or f"{folder.at(folder.names.keep(known.state.name))}: is not there")
        same = action.in_place(folder, intent)
        if same is not None:
            wrong += [same.problem] if same.problem and must and read else []
            lost = has_lost_its_time(folder, same, change) if read else None
            times_lost = times_lost or lost is True
            if lost is False:
                # It was written since, whatever became of other files: its recorded time shows that.
                states.update(_in_place_here([same], times_lost=False))
            else:
                in_place.append(same)
    return Rebound(states, tuple(wrong), times_lost, torn_bytes, tuple(in_place))


def timed(rebounds: Iterable[Rebound]) -> list[Rebound]:
    """Binds the files that changes make other ones in their places.

    That a copy has lost times is true of the whole directory, and such a file alone may not tell it: its bytes change.
    Where times are lost it has the time that it has here; else the recorded one, by which a later write is found.

    Args:
        rebounds: of all journals of the directory.
    """
    rebounds = list(rebounds)
    lost = any(one.times_lost for one in rebounds)
    return [
        one._replace(states={**one.states, **dict(_in_place_here(one.in_place, times_lost=lost))})
        for one in rebounds
    ]


def _in_place_here(in_place: Iterable[InPlace], *, times_lost: bool) -> Iterator[tuple[FileState, FileState]]:
    for one in in_place:
        if one.here is not None:
            mtime_ns = one.here.mtime_ns if times_lost else one.recorded.mtime_ns
            yield (
                one.recorded,
                msgspec.structs.replace(one.recorded, inode=one.here.inode, mtime_ns=mtime_ns),
            )


def _torn(folder: PartitionFolder, path: str, found: FileState) -> int:
    """Bytes of the kept file beside an original in its place, where a copy has made two files of one; else 0."""
    kept = folder.state(folder.names.keep(found.name)) if path == found.name else None
    return kept.size if kept is not None and kept.inode != found.inode and kept.size == found.size else 0


def _look(
    folder: PartitionFolder, known: KnownFile, places: Sequence[str], taken: set[str]
) -> tuple[str, FileState | None, str]:
    """Where a file is, as it is there; or what is wrong with the one that has its place."""
    state, problem = known.state, ""
    found = [(path, here) for path in places if (here := folder.state(path)) is not None]
    same_size = [(path, here) for path, here in found if here.size == state.size]
    # What is surely the one comes first; then what has its time; then what has its bytes only.
    same_size.sort(key=lambda one: (one[0] in taken, one[1].mtime_ns != state.mtime_ns))
    for path, here in same_size:
        timed = here.mtime_ns == state.mtime_ns
        if known.check is None and not timed and state.size:
            continue
        if known.check is None or known.check(folder.at(path), folder.tree):
            return path, here, ""
        if timed or path == folder.names.keep(state.name):
            problem = problem or (
                f"{folder.at(path)}: its bytes are not those that plan {folder.plan_id} has put there"
            )
    return "", None, problem


def _places(folder: PartitionFolder, known: KnownFile) -> tuple[str, ...]:
    name, names = known.state.name, folder.names
    if known.made:
        return (names.stage(name), name + SWAP, name + CLEANED, names.out(name), name)
    return (name, names.keep(name), names.out(f"{name}.back"), names.out(name))


# -- the journal written anew


def bound(journal: Journal, rebound: Rebound) -> None:
    """Puts the files as they are here into a journal in memory."""
    for change_id, intent in journal.intents.items():
        journal.intents[change_id] = _mapped(intent, rebound.states)


def adopt(folder: PartitionFolder, journal: Journal, rebound: Rebound, here: Here) -> None:
    """Writes a journal anew with the inodes as they are here; in one step, durably, and may be repeated.

    Raises:
        OSError: a call failed; the journal is the old one or the new one.
    """
    records = [_mapped(record, rebound.states) for record in map(_without_here, journal.records()) if record]
    # It goes before a purge that was begun: behind that one no record may follow.
    first = msgspec.structs.replace(here, adopted=True)
    new_journal(folder.disk, folder.private, folder.plan_id, folder.folder, folder.owner(), [first, *records])


def _without_here(record: Record) -> Record | None:
    """What was said of the directory in which the inodes held."""
    if isinstance(record, Together):
        return Together(records=tuple(one for one in record.records if not isinstance(one, Here)))
    return None if isinstance(record, Here) else record


def _mapped(value: Any, states: Mapping[FileState, FileState]) -> Any:
    if isinstance(value, FileState):
        return states.get(value, value)
    if isinstance(value, tuple):
        return tuple(_mapped(one, states) for one in value)
    if isinstance(value, Struct):
        fields = {name: _mapped(getattr(value, name), states) for name in value.__struct_fields__}
        return type(value)(**fields)
    return value
