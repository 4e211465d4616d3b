"""A log directory that was copied or restored since a plan was begun in it: proven, and then taken for the plan's.

Between runs a directory is known by what it is: by ``meta.properties``, by each journal of the plan, and by the bytes
of what the plan keeps and made. Within one run the open directory and its inode stay the identity.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.durable.disk import Disk
from krepair.errors import RefusedError, StalePlanError, UnreadableError
from krepair.journal.fence import move_seen
from krepair.journal.folder import PartitionFolder
from krepair.journal.journals_seen import JournalsSeen
from krepair.journal.moved import Rebound, adopt, has_moved, rebind, timed
from krepair.journal.record import JOURNAL_NAME, Here, Journal
from krepair.logdir.reading import why
from krepair.ops.located import Located, check_broker
from krepair.ops.target import journal_folder, targets_of
from krepair.plan.model import FileFingerprint, PartitionPlan, Plan
from krepair.plan.view import bytes_words


class Part(NamedTuple):
    """A folder with a journal of the plan.

    Attributes:
        folder: of a partition, or of the root.
        partition: its part of the plan; None if there is no plan.
    """

    folder: PartitionFolder
    partition: PartitionPlan | None


class Settled(NamedTuple):
    """What a verb goes on with.

    Attributes:
        plan: with the inodes that its files have here.
        moved: whether the directory is a copy of the one that the plan was made of.
        notes: what has to be said of that.
    """

    plan: Plan
    moved: bool
    notes: tuple[str, ...]


class _Moved(NamedTuple):
    part: Part
    journal: Journal
    rebound: Rebound


def settle(
    located: Located,
    disk: Disk,
    *,
    made_too: bool,
    write: bool = True,
    goes_on: bool = False,
    journals: JournalsSeen | None = None,
) -> Settled:
    """Prove that a directory is the plan's although its inodes are others, and make the journals fit it.

    To be called under the lock, before the first change.

    Args:
        located: see ``krepair.ops.target.check_target``.
        disk: what writes.
        made_too: whether what the plan made has to be as it was, too: for everything but purge.
        write: whether journals are written anew; ``verify`` writes nothing.
        goes_on: whether more is to be done of the plan than what its journals tell of.
        journals: of the plan, as they were seen under the lock; None: each is read here.

    Raises:
        StalePlanError: something is not as it was; it is named, and nothing was changed.
        UnreadableError: something could not be looked at.
    """
    plan = located.plan
    parts = [Part(journal_folder(disk, plan, target), target) for target in targets_of(plan)]
    if goes_on and not located.is_plans and not any(_has_journal(part.folder) for part in parts):
        raise StalePlanError(
            f"{plan.log_dir}: is another directory than the one the plan was made of, and there is no journal of the "
            "plan in it; nothing was changed",
            next_command=f"krepair plan {shlex.quote(plan.log_dir)} --out PLAN",
        )
    moved, notes = settle_parts(
        parts,
        located.here,
        is_plans=located.is_plans,
        made_too=made_too,
        write=write,
        journals=journals,
    )
    return Settled(_as_here(plan, parts), True, notes) if moved else Settled(plan, False, ())


def settle_parts(
    parts: Iterable[Part],
    here: Here,
    *,
    is_plans: bool,
    made_too: bool,
    write: bool = True,
    journals: JournalsSeen | None = None,
) -> tuple[bool, tuple[str, ...]]:
    """As ``settle``, where the plan may be lost; returns whether the directory was moved, and what to say of that.

    Raises:
        StalePlanError: something is not as it was; it is named, and nothing was changed.
        RefusedError: a journal is damaged, and the directory is not the plan's own.
        UnreadableError: something could not be looked at.
    """
    try:
        found, adopted = _look(parts, here, journals, is_plans=is_plans, made_too=made_too)
        if found and write:
            for one in found:
                _adopt(one, here)
    except OSError as error:
        raise UnreadableError(f"{error.filename}: could not be looked at: {why(error)}") from error
    return bool(found) or adopted or not is_plans, _notes(found, here)


def _look(
    parts: Iterable[Part],
    here: Here,
    journals: JournalsSeen | None,
    *,
    is_plans: bool,
    made_too: bool,
) -> tuple[list[_Moved], bool]:
    """The journals that do not fit, all of them proven; and whether any was made to fit before."""
    found: list[_Moved] = []
    adopted = False
    for part in parts:
        journal = _journal(part.folder, journals, strict=not is_plans)
        if journal is None:
            continue
        known = journal.here
        adopted = adopted or (known is not None and known.adopted)
        if not has_moved(part.folder, journal, here, is_plans=is_plans):
            continue
        if known is not None:
            _check_record(journal, known, here)
        rebound = rebind(part.folder, journal, part.partition, made_too=made_too)
        if rebound.wrong:
            raise StalePlanError(
                f"{rebound.wrong[0]}; {here.log_dir} is another directory than the one in which the plan was begun, "
                "and is not a copy of it as the plan has left it; nothing was changed"
            )
        found.append(_Moved(part, journal, rebound))
    rebounds = timed(one.rebound for one in found)
    return [one._replace(rebound=rebound) for one, rebound in zip(found, rebounds, strict=True)], adopted


def _check_record(journal: Journal, known: Here, here: Here) -> None:
    """What the journal says of its directory is true of this one, and its plan is this one."""
    check_broker(here, known.cluster_id, known.broker_id, known.directory_id, exact=True)
    if known.plan_digest and here.plan_digest and known.plan_digest != here.plan_digest:
        raise StalePlanError(f"{journal.path}: is of another plan with the same id; nothing was changed")


def _journal(folder: PartitionFolder, journals: JournalsSeen | None, *, strict: bool) -> Journal | None:
    """None where there is none. One that is damaged proves nothing; in the plan's own directory its own run says so."""
    try:
        if not folder.tree.is_folder(folder.private):
            return None
    except OSError:
        return None  # behind a link, or not to be read: its own run says so, and leaves it alone
    try:
        return folder.journal() if journals is None else journals.of(folder)
    except (RefusedError, OSError):
        if strict and not _went(folder):
            raise
        return None


def _went(folder: PartitionFolder) -> bool:
    """Whether a broker has taken the folder away meanwhile: purge works beside a running one."""
    with contextlib.suppress(OSError):
        return not folder.tree.is_there(folder.private)
    return False


def _has_journal(folder: PartitionFolder) -> bool:
    return folder.tree.is_there(f"{folder.private}/{JOURNAL_NAME}")


def _adopt(one: _Moved, here: Here) -> None:
    folder = one.part.folder
    try:
        move_seen(folder.disk, folder.log_dir, f"{folder.private}/fence")
        adopt(folder, one.journal, one.rebound, here)
    except (OSError, StalePlanError):
        if not _went(folder):
            raise


def _notes(found: Sequence[_Moved], here: Here) -> tuple[str, ...]:
    if not found:
        return ()
    moved = (
        f"The directory was moved since the plan was begun: the files of {here.log_dir} have other inodes. What the "
        "plan keeps is there, byte for byte."
    )
    notes = [moved]
    if any(one.rebound.times_lost for one in found):
        notes.append(
            "The copy has lost times of files. Kept originals come back with the times that they have here."
        )
    torn = sum(one.rebound.torn_bytes for one in found)
    if torn:
        notes.append(
            f"The copy has torn hard links apart: {bytes_words(torn)} of originals were one file under two names, "
            "and are two files here. They take that space until undo or purge has ended."
        )
    return tuple(notes)


def notes_of_fences(not_given_back: Sequence[str]) -> tuple[str, ...]:
    """What to say where a fence went down as after a broker's start."""
    if not not_given_back:
        return ()
    text = (
        f"The clean-shutdown marker was not given back (fence of {', '.join(not_given_back[:3])}): files of active "
        "segments are not as they were when it was set aside, because a broker was started since, or because a copy "
        "of the directory has lost their times. The next start recovers the active segments."
    )
    return (text,)


def _as_here(plan: Plan, parts: Sequence[Part]) -> Plan:
    """The plan with the inodes that its files have here, where they have the size and time of the plan."""
    folders = {part.folder.folder: part.folder for part in parts}
    partitions = tuple(
        replace(one, files=_files_here(folders[one.folder], one.files)) if one.folder in folders else one
        for one in plan.partitions
    )
    root = plan.root
    if root is not None:
        root_folder = next(part.folder for part in parts if part.folder.path == plan.log_dir)
        root = replace(root, files=_files_here(root_folder, root.files))
    return replace(plan, partitions=partitions, root=root)


def _files_here(folder: PartitionFolder, files: tuple[FileFingerprint, ...]) -> tuple[FileFingerprint, ...]:
    return tuple(_file_here(folder, file) for file in files)


def _file_here(folder: PartitionFolder, file: FileFingerprint) -> FileFingerprint:
    with contextlib.suppress(OSError, StalePlanError):
        for path in (file.name, folder.names.keep(file.name)):
            found = folder.state(path)
            if found is not None and (found.size, found.mtime_ns) == (file.size, file.mtime_ns):
                return replace(file, inode=found.inode)
    return replace(file, inode=0)
