"""A log directory that was copied: the journals of a plan are made to fit the inodes of the copy.

A journal knows every file by name, size, time and inode. Whoever copies a directory to another disk, or restores it,
gets other inodes, and often numbers that were some other file's. So no inode is believed in a directory that may not be
the one in which it was written down. Each file is looked for in the places that it can have, and is known by its size
and its bytes: by the digest of the journal or of the plan, where there is one. Then the journal is written anew, in one
step, with the inodes as they are, and says where they hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from krepair.durable.tree import Tree
from krepair.formats.castagnoli import crc32c
from krepair.journal.actions.mend import CUT
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import (
    ApplyIntent,
    AsideIntent,
    FileState,
    Freed,
    Here,
    Intent,
    Journal,
    LogIntent,
    Record,
    ReplaceIntent,
    RollIntent,
    SwapIntent,
    Together,
    new_journal,
)
from krepair.journal.steps import CLEANED, SWAP
from krepair.logdir.fingerprint import digest_batches, digest_content, digest_file
from krepair.plan.model import Change, CompleteSwap, FileFingerprint, MendLog, PartitionPlan, ReplaceFile

_LOG: Final = ".log"
_CHUNK_BYTES: Final = 1 << 20
_AT_WORK: Final = frozenset({"committing", "committed", "undoing"})

Check = Callable[[str, Tree], bool]
"""Whether the file at an absolute path of a tree holds the bytes that are known."""


class _Known(NamedTuple):
    """A file of an intent.

    Attributes:
        state: as it was recorded.
        made: whether krepair made it; else it is an original.
        check: of its bytes; None if nobody knows them.
        must: whether it has to be there.
    """

    state: FileState
    made: bool
    check: Check | None
    must: bool


class Rebound(NamedTuple):
    """What became of the files of a journal in another directory.

    Attributes:
        states: each recorded file -> the same as it is here.
        wrong: what is not as it was: file and what was expected; empty if all is.
        times_lost: whether a file has its bytes, and another time.
    """

    states: Mapping[FileState, FileState]
    wrong: tuple[str, ...]
    times_lost: bool


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
            copied = _copied_names(intent)
            for one in _files(intent, None, {}, None):
                if not one.made and one.state.name not in copied:
                    yield one.state


def _is_other(folder: PartitionFolder, known: FileState) -> bool:
    """Whether a kept file is the one of the record by size and time, and has another inode."""
    found = folder.state(folder.names.keep(known.name))
    return (
        found is not None
        and (found.size, found.mtime_ns) == (known.size, known.mtime_ns)
        and found.inode != known.inode
    )


def _copied_names(intent: Intent) -> frozenset[str]:
    group = intent.group if isinstance(intent, SwapIntent) else intent
    return frozenset(group.copied) if isinstance(group, ApplyIntent) else frozenset()


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
    planned = {} if partition is None else {file.name: file for file in partition.files}
    states: dict[FileState, FileState] = {}
    wrong: list[str] = []
    cut: list[LogIntent] = []
    times_lost = False
    for change_id, state in journal.states.items():
        intent = journal.intents[change_id]
        must = state in _AT_WORK and journal.purging is None
        freed = journal.freed.get(change_id) if state == "freed" else None
        taken: set[str] = set()
        done = made_too and state in {"committed", "freed"} and journal.purging is None
        for known in _files(intent, changes.get(change_id), planned, freed):
            path, found, problem = _look(folder, known if read else known._replace(check=None), taken)
            if found is not None:
                taken |= {path} if known.made else set()
                times_lost = times_lost or found.mtime_ns != known.state.mtime_ns
                states[known.state] = msgspec.structs.replace(found, name=known.state.name)
                continue
            states.setdefault(known.state, msgspec.structs.replace(known.state, inode=0))
            # Where a change is half done, another file may still, or again, have the name of what it makes.
            if (done if known.made else must) and (problem or (known.must and (known.made or must))):
                wrong.append(problem or f"{folder.at(folder.names.keep(known.state.name))}: is not there")
        if isinstance(intent, LogIntent) and intent.replacement is None:
            cut.append(intent)
            lost = _cut_problem(folder, intent) if must and read else ""
            wrong += [lost] if lost else []
    for one in cut:
        _bind_cut(folder, one, states, times_lost=times_lost)
    return Rebound(states, tuple(wrong), times_lost)


def _look(folder: PartitionFolder, known: _Known, taken: set[str]) -> tuple[str, FileState | None, str]:
    """Where a file is, as it is there; or what is wrong with the one that has its place."""
    state, problem = known.state, ""
    found = [(path, here) for path in _places(folder, known) if (here := folder.state(path)) is not None]
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


def _places(folder: PartitionFolder, known: _Known) -> tuple[str, ...]:
    name, names = known.state.name, folder.names
    if known.made:
        return (names.stage(name), name + SWAP, name + CLEANED, names.out(name), name)
    return (name, names.keep(name), names.out(f"{name}.back"), names.out(name))


def _bind_cut(
    folder: PartitionFolder, intent: LogIntent, states: dict[FileState, FileState], *, times_lost: bool
) -> None:
    """A log that is cut in place stays the same file, whatever its size is."""
    here = folder.state(intent.original.name)
    if here is not None and intent.size_after <= here.size <= intent.original.size:
        mtime_ns = here.mtime_ns if times_lost else intent.original.mtime_ns
        states[intent.original] = msgspec.structs.replace(
            intent.original, inode=here.inode, mtime_ns=mtime_ns
        )


def _cut_problem(folder: PartitionFolder, intent: LogIntent) -> str:
    """What is wrong with the kept bytes of a log that has lost them, or empty."""
    here, kept = folder.state(intent.original.name), folder.names.keep(intent.original.name + CUT)
    if here is None or here.size != intent.size_after:
        return ""
    if folder.state(kept) is None:
        return f"{folder.at(kept)}: is not there"
    if digest_file(folder.at(kept), folder.tree) != intent.digest_removed:
        return f"{folder.at(kept)}: its bytes are not those that were cut"
    return ""


# -- the files of an intent, and how their bytes are known


def _files(
    intent: Intent, change: Change | None, planned: Mapping[str, FileFingerprint], freed: Freed | None
) -> list[_Known]:
    """What krepair made comes first: an original is then not looked for where that is."""
    match intent:
        case ApplyIntent():
            made = [
                _made_of_group(intent, state, {} if freed is None else freed.made) for state in intent.merged
            ]
            originals, digests = list(intent.originals), intent.digests
        case SwapIntent():
            made = _made_of_swap(intent, change, planned)
            originals, digests = list(intent.group.originals), intent.group.digests
        case ReplaceIntent():
            made = _made_of_replace(intent, change)
            originals = [] if intent.original is None else [intent.original]
            digests = {intent.name: intent.digest}
        case LogIntent():
            made = _made_of_log(intent, change)
            originals = [one.original for one in intent.companions if one.original is not None]
            originals += [] if intent.replacement is None else [intent.original]
            digests = intent.digests
        case AsideIntent():
            made, originals, digests = [], list(intent.files), intent.digests
        case RollIntent():
            made = [_Known(state, True, None, True) for state in intent.files]
            originals, digests = [], {}

    def check(one: FileState) -> Check | None:
        return _content_check(digests.get(one.name, "")) or _planned_check(planned.get(one.name))

    return [*made, *(_Known(one, False, check(one), freed is None) for one in originals)]


def _made_of_group(group: ApplyIntent, state: FileState, freed: Mapping[str, str]) -> _Known:
    """A broker may make the indexes of a new segment anew; its log it only ever cuts."""
    is_log = state.name.endswith(_LOG)
    if state.name in freed:
        return _Known(state, True, _content_check(freed[state.name]), is_log)
    check = _parts_check(group.parts) if is_log else _file_check(group.made.get(state.name, ""))
    return _Known(state, True, check, is_log)


def _made_of_swap(
    intent: SwapIntent, change: Change | None, planned: Mapping[str, FileFingerprint]
) -> list[_Known]:
    news = {new.name: new.digest for new in change.makes} if isinstance(change, CompleteSwap) else {}
    log, *indexes = intent.group.merged
    return [
        _Known(log, True, _planned_check(planned.get(log.name + SWAP)), True),
        *(_Known(one, True, _file_check(news.get(one.name, "")), False) for one in indexes),
    ]


def _made_of_replace(intent: ReplaceIntent, change: Change | None) -> list[_Known]:
    digest = change.digest_after if isinstance(change, ReplaceFile) else ""
    new = [] if intent.replacement is None else [_Known(intent.replacement, True, _file_check(digest), True)]
    return new + ([] if intent.over is None else [_Known(intent.over, True, None, False)])


def _made_of_log(intent: LogIntent, change: Change | None) -> list[_Known]:
    mend = change if isinstance(change, MendLog) else None
    news = {} if mend is None else {new.name: new.digest_after for new in mend.companions}
    made = [
        _Known(one.replacement, True, _file_check(news.get(one.replacement.name, "")), True)
        for one in intent.companions
    ]
    if intent.replacement is not None:
        digest = "" if mend is None else mend.digest_after
        made.append(_Known(intent.replacement, True, _file_check(digest), True))
    return made


def _content_check(digest: str) -> Check | None:
    return (lambda path, tree: digest_content(path, tree) == digest) if digest else None


def _file_check(digest: str) -> Check | None:
    return (lambda path, tree: digest_file(path, tree) == digest) if digest else None


def _planned_check(planned: FileFingerprint | None) -> Check | None:
    if planned is None or not planned.digest:
        return None
    name, digest = planned.name.removesuffix(SWAP), planned.digest
    if not name.endswith(_LOG):
        return _file_check(digest)
    base_offset = int(name.partition(".")[0])
    return lambda path, tree: digest_batches(path, base_offset, tree, check_crc=True) == digest


def _parts_check(parts: tuple[tuple[int, int], ...]) -> Check | None:
    return (lambda path, tree: _has_parts(path, tree, parts)) if parts else None


def _has_parts(path: str, tree: Tree, parts: Iterable[tuple[int, int]]) -> bool:
    with tree.opened(path) as descriptor:
        position = 0
        for size, expected in parts:
            found, end = 0, position + size
            while position < end:
                piece = os.pread(descriptor, min(end - position, _CHUNK_BYTES), position)
                if not piece:
                    return False
                found = crc32c(piece, found)
                position += len(piece)
            if size and found != expected:
                return False
    return True


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
