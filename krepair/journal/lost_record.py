"""What the files tell of a change whose record is lost: which one is the original, and which one krepair made.

The plan knows every original by size, time and inode, and most of them by a digest, too. What was made is known by size
and time, or by its digest. So an intent can be made again without the journal. Only inodes of what was made, and the
digests that the journal had besides, are taken from the disk as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from krepair.formats.filenames import LOG, SWAP
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState
from krepair.journal.steps import CLEANED
from krepair.logdir.fingerprint import DIGEST_BYTES, digest_batches, digest_content, digest_file
from krepair.plan.model import FileFingerprint

_NOT_THE_PLANS = "0" * (2 * DIGEST_BYTES)


def nobody(name: str) -> FileState:
    """Stands for a file that is gone. No file on a disk is equal to it."""
    return FileState(name=name, size=-1, mtime_ns=-1, inode=0)


def as_planned(planned: FileFingerprint) -> FileState:
    """The file of the plan."""
    return FileState(name=planned.name, size=planned.size, mtime_ns=planned.mtime_ns, inode=planned.inode)


def original_of(folder: PartitionFolder, planned: FileFingerprint) -> FileState:
    """An original as it is known: as it was planned, or the copy of it that was brought back from elsewhere.

    Raises:
        OSError: a file could not be looked at.
    """
    name, known = planned.name, as_planned(planned)
    kept, here = folder.state(folder.names.keep(name)), folder.state(name)
    if known.inode in {found.inode for found in (kept, here) if found is not None}:
        return known
    for path, found in ((folder.names.keep(name), kept), (name, here)):
        same = found is not None and (found.size, found.mtime_ns) == (known.size, known.mtime_ns)
        if found is not None and same and holds_the_plans(folder, path, planned):
            return found
    return known


def holds_the_plans(folder: PartitionFolder, path: str, planned: FileFingerprint) -> bool:
    """Whether a file has the plan's digest: one that was written anew may have the size and time of the old one.

    Raises:
        OSError: it cannot be read.
    """
    if not planned.digest:
        return True
    if not planned.name.endswith(LOG):
        # What a broker left half swapped is known by its batches, as the log that it becomes.
        return planned.name.endswith(SWAP) or digest_file(folder.at(path), folder.tree) == planned.digest
    base_offset = int(planned.name.partition(".")[0])
    return digest_batches(folder.at(path), base_offset, folder.tree) == planned.digest


def places_of(folder: PartitionFolder, name: str) -> tuple[str, ...]:
    """Where a new file may be, its own place first."""
    return (name, name + SWAP, name + CLEANED, folder.names.out(name), folder.names.stage(name))


def made_of(
    folder: PartitionFolder,
    name: str,
    is_it: Callable[[str, FileState], bool],
    originals: Iterable[FileState] = (),
) -> FileState | None:
    """The new file of a name, wherever it is; None if there is none.

    Args:
        folder: the partition folder.
        name: its final name.
        is_it: whether a file at a path can be it.
        originals: that it cannot be.

    Raises:
        OSError: a file could not be looked at.
    """
    inodes = {original.inode for original in originals}
    for path in places_of(folder, name):
        found = folder.state(path)
        if found is not None and found.inode not in inodes and is_it(path, found):
            return replace(found, name=name)
    return None


def holds(folder: PartitionFolder, size: int, digest: str) -> Callable[[str, FileState], bool]:
    """Whether a file has so many bytes, and the plan's digest over them."""
    return lambda path, found: found.size == size and digest_file(folder.at(path), folder.tree) == digest


def digests_of(
    folder: PartitionFolder,
    originals: Iterable[FileState],
    planned: Mapping[str, FileFingerprint],
    known: Mapping[str, str],
) -> dict[str, str]:
    """Name -> digest of what an original must hold, for whoever reads it before it is put back.

    Where the journal still says it, that counts. Else the plan's digest decides whether what is there is right; a log
    is held against the plan batch by batch, and needs none. What neither knows is left out.

    Raises:
        OSError: a file cannot be read.
    """
    digests = {}
    for original in originals:
        name, plan = original.name, planned.get(original.name)
        if name in known:
            digests[name] = known[name]
            continue
        kept = folder.names.keep(name)
        path = kept if folder.state(kept) is not None else name
        by_batches = name.endswith(LOG) and plan is not None and bool(plan.digest)
        if by_batches or folder.state(path) is None:
            continue
        if plan is not None and plan.digest and not name.endswith(LOG):
            right = digest_file(folder.at(path), folder.tree) == plan.digest
            digests[name] = digest_content(folder.at(path), folder.tree) if right else _NOT_THE_PLANS
        elif name.endswith(LOG):
            # Nobody knows what it held; a log with damage in it has no other way back.
            digests[name] = digest_content(folder.at(path), folder.tree)
    return digests
