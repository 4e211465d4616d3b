"""Carry out steps: link files of a partition into ``keep/``, rename, remove and sync them.

Four operations are not made of steps: the cut of a log in place (``mend.py``), the removal of files that a broker left
(``folder.py``), purge, and the fence.

Every step checks the files before it acts, so that a list of steps can be repeated from its start after a crash, or
after a broker has completed a part of it. A folder is synced only if a name in it has changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import Intent
from krepair.commit.steps import (
    Becomes,
    GiveBack,
    Keep,
    KeepOld,
    PutBack,
    PutFront,
    PutNew,
    PutOver,
    Remove,
    Rename,
    Step,
    SyncDir,
    TakeNew,
    TakeOld,
    Unlink,
)
from krepair.durable.attributes import read_attributes
from krepair.errors import RefusedError, StalePlanError, VerifyFailedError


def run(folder: PartitionFolder, steps: Iterable[Step], group: Intent | None = None) -> None:
    """Carry out steps, except those that were done before.

    Args:
        group: intent of the group whose files the steps change; None if the steps name their files themselves.

    Raises:
        StalePlanError: a file is neither an original nor the new one: another program wrote it.
        RefusedError: an original would be removed that is not kept.
        VerifyFailedError: a staged file is not the one that krepair made.
        OSError: a call failed; the steps before it were done.
    """
    for step in steps:
        match step:
            case SyncDir():
                folder.sync(step.path)
            case Remove():
                folder.remove(step.path)
            case KeepOld():
                _keep_old(folder, step)
            case PutNew():
                _put_new(folder, step)
            case PutFront():
                _put_front(folder, step)
            case TakeOld():
                _take_old(folder, step)
            case GiveBack():
                _give_back(folder, step)
            case TakeNew():
                _take_new(folder, step)
            case _:
                assert group is not None, f"{step} needs the intent of its group"
                _run_of_group(folder, step, group)


# -- files that are identified by size, time and digest


def _keep_old(folder: PartitionFolder, step: KeepOld) -> None:
    file = step.file
    if folder.holds(step.kept, file.old):
        return
    if not folder.holds(file.name, file.old):
        if file.new is not None and folder.holds(file.name, file.new):
            raise RefusedError(f"{folder.at(step.kept)}: the original is not kept although it was replaced")
        raise _changed(folder, file.name)
    folder.remove(step.kept)
    folder.give(file.name, step.kept)


def _put_new(folder: PartitionFolder, step: PutNew) -> None:
    file = step.file
    if folder.holds(file.name, file.new):
        return
    if file.foreign != "goes":
        if not folder.holds(file.name, file.over or file.old):
            raise _changed(folder, file.name)
    elif file.old is not None and not folder.holds(step.kept, file.over or file.old):
        raise _changed(folder, file.name)
    if not folder.holds(step.staged, file.new):
        raise _not_staged(folder, step.staged)
    # stage/ needs no sync: if a power cut restores the name there, it is only a second link to the file.
    folder.put_over(step.staged, file.name)


def _put_front(folder: PartitionFolder, step: PutFront) -> None:
    with folder.tree.opened(folder.at(step.source)) as descriptor:
        data = os.pread(descriptor, step.size, 0)
    folder.remove(step.via)
    folder.disk.create(folder.at(step.via), data, read_attributes(folder.at(step.source), folder.tree))
    folder.rename(step.via, step.name)


def _take_old(folder: PartitionFolder, step: TakeOld) -> None:
    if folder.state(step.file.name) is None:
        return
    if not folder.holds(step.file.name, step.file.old):
        raise _changed(folder, step.file.name)
    folder.remove(step.file.name)


def _give_back(folder: PartitionFolder, step: GiveBack) -> None:
    file = step.file
    if folder.holds(file.name, file.old):
        return
    _check_not_foreign(folder, file)
    if not folder.holds(step.kept, file.old):
        raise StalePlanError(
            f"{folder.at(step.kept)}: the kept original is gone or changed, so the new file stays"
        )
    folder.rename(step.kept, file.name)


def _take_new(folder: PartitionFolder, step: TakeNew) -> None:
    file = step.file
    if folder.state(file.name) is None or (file.foreign == "stays" and not folder.holds(file.name, file.new)):
        return
    _check_not_foreign(folder, file)
    folder.rename(file.name, step.out)


def _check_not_foreign(folder: PartitionFolder, file: Becomes) -> None:
    if file.foreign != "stops" or folder.state(file.name) is None:
        return
    if not any(known is not None and folder.holds(file.name, known) for known in (file.new, file.over)):
        raise StalePlanError(f"{folder.at(file.name)}: was written since the plan was applied")


def _changed(folder: PartitionFolder, name: str) -> StalePlanError:
    return StalePlanError(f"{folder.at(name)}: changed while the apply was interrupted")


def _not_staged(folder: PartitionFolder, path: str) -> VerifyFailedError:
    return VerifyFailedError(f"{folder.at(path)}: is not the file that krepair made; nothing was replaced")


# -- files of a group of segments


def _run_of_group(folder: PartitionFolder, step: Step, group: Intent) -> None:
    match step:
        case Rename():
            _rename(folder, step, group)
        case Keep():
            _keep(folder, step, group)
        case PutBack():
            _put_back(folder, step, group)
        case PutOver():
            _put_over(folder, step, group)
        case Unlink():
            _unlink(folder, step, group)


def _check_staged(folder: PartitionFolder, path: str, group: Intent) -> None:
    """Check that a file in ``stage/`` is still the one that the intent records."""
    place, _, name = path.rpartition("/")
    made = next((state for state in group.made if state.name == name), None)
    if place == folder.names.stage() and (made is None or not folder.holds(path, made)):
        raise _not_staged(folder, path)


def _rename(folder: PartitionFolder, step: Rename, group: Intent) -> None:
    if folder.state(step.source) is None or folder.is_original(group, step.source):
        return
    folder.check_log(step.source, group)
    folder.check_log(step.target, group)
    _check_staged(folder, step.source, group)
    folder.rename(step.source, step.target)


def _keep(folder: PartitionFolder, step: Keep, group: Intent) -> None:
    source, kept = folder.state(step.source), folder.state(step.target)
    if source is None:
        raise StalePlanError(f"{folder.at(step.source)}: is gone since the plan was made")
    copied = step.source in group.copied
    if kept is not None:
        same = (kept.size, kept.mtime_ns) == (source.size, source.mtime_ns)
        if same and (copied or folder.is_one_file(step.source, step.target)):
            return
        folder.remove(step.target)
    folder.give(step.source, step.target, step.via if copied else "")


def _put_back(folder: PartitionFolder, step: PutBack, group: Intent) -> None:
    if folder.is_original(group, step.target):
        return
    if folder.state(step.source) is None:
        raise StalePlanError(f"{folder.at(step.source)}: the kept original is gone, so the new segment stays")
    if folder.state(step.target) is not None:
        if step.target.endswith(".log"):
            raise StalePlanError(f"{folder.at(step.target)}: was written since the plan was applied")
        folder.remove(step.target)
    folder.give(step.source, step.target, step.via if step.target in group.copied else "")


def _put_over(folder: PartitionFolder, step: PutOver, group: Intent) -> None:
    if folder.is_original(group, step.target):
        return
    if folder.state(step.source) is None:
        raise StalePlanError(f"{folder.at(step.source)}: the kept original is gone; nothing more is changed")
    folder.remove(step.via)
    folder.give(step.source, step.via)
    folder.rename(step.via, step.target)


def _unlink(folder: PartitionFolder, step: Unlink, group: Intent) -> None:
    if not folder.is_original(group, step.path):
        return
    if folder.state(folder.names.keep(step.path)) is None:
        raise RefusedError(
            f"{folder.at(step.path)}: is not kept in {folder.at(folder.names.keep())}; it stays"
        )
    folder.remove(step.path)
