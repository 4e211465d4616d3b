"""Carry out steps: link a partition's files into ``keep/``, rename files, remove files, and sync folders.

Four operations do not consist of steps: the cut of a log in place (``mend.py``), the removal of a broker's leftovers
(``group.py``), purge, and the recovery guard.

Before every step, ``OwnFiles`` decides whether the step is still to be done. So a list of steps can be repeated from
its start after a crash, or after a broker has completed some of the steps. A folder is synced only if a name in the
folder has changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from krepair.commit.folder import PartitionFolder
from krepair.commit.steps import Keep, MoveOut, Put, PutFront, Remove, Restore, Step, SyncDir, Take
from krepair.durable.attributes import read_attributes


class OwnFiles(Protocol):
    """Files of one change; each method returns whether a step is still to be done, and raises if it must not be.

    Each method raises ``StalePlanError`` if a file is neither an original nor a new file, ``RefusedError`` if an
    original would be lost, and ``VerifyFailedError`` if the content of a staged file differs from what krepair wrote.
    """

    def may_keep(self, name: str, kept: str) -> bool:
        """Return whether the original must still be secured under the path ``kept``."""

    def may_put(self, source: str, target: str) -> bool:
        """Return whether the new file must still be renamed."""

    def may_take(self, name: str) -> bool:
        """Return whether the original must still be removed."""

    def may_restore(self, kept: str, name: str) -> bool:
        """Return whether the original must still be restored under its name."""

    def may_move_out(self, source: str, target: str) -> bool:
        """Return whether the new file must still be moved away."""


def run(folder: PartitionFolder, steps: Iterable[Step], files: OwnFiles | None = None) -> None:
    """Carry out the steps that are not done yet.

    Args:
        files: files of the change; None if the steps only remove and sync.

    Raises:
        StalePlanError, RefusedError, VerifyFailedError: a step must not be carried out, see ``OwnFiles``.
        OSError: a call failed; the steps before it were done.
    """
    for step in steps:
        match step:
            case SyncDir(path):
                folder.sync(path)
            case Remove(path):
                folder.remove(path)
            case PutFront():
                _put_front(folder, step)
            case _:
                assert files is not None, f"{step} needs the files of its change"
                _run_of_change(folder, step, files)


def _run_of_change(folder: PartitionFolder, step: Step, files: OwnFiles) -> None:
    match step:
        case Keep(name, kept, via) if files.may_keep(name, kept):
            folder.remove(kept)
            folder.give(name, kept, via)
        case Put(sources, target):
            for source in sources:
                if files.may_put(source, target):
                    folder.rename(source, target)
        case Take(name) if files.may_take(name):
            folder.remove(name)
        case Restore(kept, name) if files.may_restore(kept, name):
            _restore(folder, step)
        case MoveOut(sources, target):
            for source in sources:
                if files.may_move_out(source, target):
                    folder.rename(source, target)


def _restore(folder: PartitionFolder, step: Restore) -> None:
    match step.how:
        case "moved":
            folder.rename(step.kept, step.name)
        case "over":
            folder.remove(step.via)
            folder.give(step.kept, step.via)
            folder.rename(step.via, step.name)
        case _:
            folder.remove(step.name)
            folder.give(step.kept, step.name, step.via if step.how == "copied" else "")


def _put_front(folder: PartitionFolder, step: PutFront) -> None:
    with folder.tree.opened(folder.at(step.source)) as descriptor:
        data = os.pread(descriptor, step.size, 0)
    folder.remove(step.via)
    folder.disk.create(folder.at(step.via), data, read_attributes(folder.at(step.source), folder.tree))
    folder.rename(step.via, step.name)
