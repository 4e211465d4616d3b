"""What the journals of a plan tell of the folder that holds copies of its originals, and whether it is that folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from krepair.errors import RefusedError, StalePlanError
from krepair.formats.filenames import private_folder
from krepair.journal.actions.table import action_of
from krepair.journal.copies import Copies
from krepair.journal.folder import PartitionFolder
from krepair.journal.journals_seen import JournalsSeen
from krepair.journal.record import FileState


class FreedOriginals(NamedTuple):
    """Originals that apply has freed, of which there are copies.

    Attributes:
        folder: of their partition.
        originals: as they were.
        digests: name -> digest of what each held.
        identity: of the folder of the copies, as their journal names it; empty in a journal of an earlier krepair.
        going: whether a purge of them was begun.
    """

    folder: PartitionFolder
    originals: Sequence[FileState]
    digests: Mapping[str, str]
    identity: str
    going: bool


class CopiesTold(NamedTuple):
    """What the journals of one plan tell of its copies.

    Attributes:
        paths: of the folder of copies; more than one only if somebody wrote a journal.
        identities: of it, likewise.
        freed: what is only there, as far as records tell.
    """

    paths: frozenset[str]
    identities: frozenset[str]
    freed: tuple[FreedOriginals, ...]

    def needed(self, copies: Copies) -> bool:
        """Whether undo has to bring anything.

        Raises:
            OSError: a kept file could not be read.
        """
        return any(copies.are_needed(one.folder, one.originals, one.digests) for one in self.freed)


def told_of(folders: Iterable[PartitionFolder], journals: JournalsSeen | None = None) -> CopiesTold:
    """What the journals tell; one that cannot be read tells nothing, and its own run says why.

    Args:
        folders: of the plan.
        journals: of them, as they were seen under the lock; None: each is read here.
    """
    paths, identities, freed = set(), set(), []
    for folder in folders:
        with contextlib.suppress(OSError, RefusedError, StalePlanError):
            if not folder.tree.is_folder(folder.private):
                continue
            journal = folder.journal() if journals is None else journals.of(folder)
            if journal.copies is not None:
                paths.add(journal.copies.path)
                identities.add(journal.copies.identity)
            for change_id, record in journal.freed.items():
                if not record.copies or journal.states[change_id] != "freed":
                    continue
                own, place = os.path.split(record.copies)
                path, name = os.path.split(own)
                if (name, place) != (private_folder(folder.plan_id), folder.folder):
                    continue
                paths.add(path)
                intent = journal.intents[change_id]
                freed.append(
                    FreedOriginals(
                        folder,
                        action_of(intent).originals(intent),
                        record.originals,
                        "" if journal.copies is None else journal.copies.identity,
                        journal.purging is not None,
                    )
                )
    return CopiesTold(frozenset(paths), frozenset(identities), tuple(freed))


def check_copies(copies: Copies, told: CopiesTold, *, whole: bool) -> None:
    """Checks that the folder of copies is the one of which the journals of a plan tell.

    Of copies that an earlier krepair made no journal names the folder: the copies themselves prove it.

    Args:
        copies: of the plan.
        told: what its journals tell.
        whole: whether such copies are all read; else it is enough that the plan has its folder.

    Raises:
        RefusedError: it is not; nothing was changed.
        OSError: it could not be looked at.
    """
    copies.check_there()
    if len(told.identities) > 1:
        raise RefusedError(
            f"{copies.path}: the journals name more than one folder of copies: {', '.join(sorted(told.identities))}; "
            "nothing was changed"
        )
    for identity in told.identities:
        copies.check_is(identity)
    for one in told.freed:
        if one.identity or one.going:
            continue
        if not copies.has_own_folder():
            raise RefusedError(
                f"{copies.place(one.folder)}: is not there, but the journal says that originals were copied into it; "
                "is its file system mounted? Nothing was changed"
            )
        wrong = copies.what_is_missing(one.folder, one.originals, one.digests) if whole else ""
        if wrong:
            raise RefusedError(f"{wrong}; nothing was changed")
