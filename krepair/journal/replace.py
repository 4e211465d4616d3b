"""One file at a time: the staged one is renamed over the old one, or the old one only goes; it is kept either way.

A new file is renamed straight out of the private sub-folder: every instant has the old file or the new one, both
whole, and a broker never sees a name that it would clean away. A file that goes is linked into ``keep/`` first: every
instant has it under its own name, or kept. A link is enough even for a damaged file, since nothing opens it once its
name is gone.
"""

from __future__ import annotations

import os

from krepair.errors import StalePlanError
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState, ReplaceIntent


def _is(found: FileState | None, known: FileState | None) -> bool:
    return found is not None and known is not None and found == known


def check_replaced(folder: PartitionFolder, intent: ReplaceIntent) -> bool:
    """Whether the new file is in its place, untouched; of a file that goes: whether it is gone, and kept."""
    found = folder.state(intent.name)
    if intent.replacement is None:
        return found is None and _is(folder.state(folder.names.keep(intent.name)), intent.original)
    return _is(found, intent.replacement)


def can_be_replaced(folder: PartitionFolder, intent: ReplaceIntent) -> bool:
    """Whether an interrupted change has all that it needs to go on: what it made, or what it began with."""
    if check_replaced(folder, intent):
        return True
    if intent.replacement is None:
        return _is(folder.state(intent.name), intent.original)
    return _is(folder.state(folder.names.stage(intent.name)), intent.replacement)


def replace_file(folder: PartitionFolder, intent: ReplaceIntent) -> None:
    """Keeps the original and renames the staged file over it, or removes its name; may be repeated.

    Raises:
        StalePlanError: the file changed since the intent.
        OSError: a call failed.
    """
    name, disk, names = intent.name, folder.disk, folder.names
    if not check_replaced(folder, intent):
        if folder.state(name) != intent.original:
            raise StalePlanError(f"{folder.at(name)}: changed while the apply was interrupted")
        kept = folder.at(names.keep(name))
        if intent.original is not None and folder.state(names.keep(name)) != intent.original:
            if os.path.lexists(kept):
                disk.unlink(kept)
            disk.link(folder.at(name), kept)
            disk.sync_dir(folder.at(names.keep()))
        if intent.replacement is None:
            disk.unlink(folder.at(name))
        else:
            disk.rename(folder.at(names.stage(name)), folder.at(name))
    disk.sync_dir(folder.path)
    disk.sync_dir(folder.at(names.stage()))


def put_replaced_back(folder: PartitionFolder, intent: ReplaceIntent) -> None:
    """Renames the kept original over the new file; may be repeated, also before the file was replaced at all.

    Raises:
        StalePlanError: the file is neither the new one nor the original, or the kept original is gone.
        OSError: a call failed.
    """
    name, disk, names = intent.name, folder.disk, folder.names
    found, kept = folder.state(name), folder.at(names.keep(name))
    if not _is(found, intent.original) and found is not None and not _is(found, intent.replacement):
        raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
    if intent.original is None:
        if found is not None:
            disk.rename(folder.at(name), folder.at(names.out(name)))
    elif not _is(found, intent.original):
        if folder.state(names.keep(name)) != intent.original:
            raise StalePlanError(f"{kept}: the kept original is gone or changed; the new file stays")
        disk.rename(kept, folder.at(name))
    disk.sync_dir(folder.path)
    for leftover in (kept, folder.at(names.out(name))):
        if os.path.lexists(leftover):
            disk.unlink(leftover)


def is_gone_by_others(folder: PartitionFolder, intent: ReplaceIntent) -> bool:
    """Whether a file that was to go went before it was kept: a broker that was started in between deleted it."""
    return (
        intent.replacement is None
        and folder.state(intent.name) is None
        and folder.state(folder.names.keep(intent.name)) is None
    )
