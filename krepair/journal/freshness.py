"""Whether a partition still is what the plan was made of, looked at right before each change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import (
    LOG,
    SEGMENT_SUFFIXES,
    FileKind,
    FileName,
    NameState,
    parse_file_name,
    segment_name,
)
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState
from krepair.logdir.fingerprint import digest_file
from krepair.plan.changes import bases_touched
from krepair.plan.model import FileFingerprint, NewFile, PartitionPlan, ReplaceFile, RewriteSegments


def check_fresh(
    folder: PartitionFolder, partition: PartitionPlan, change: RewriteSegments
) -> tuple[FileState, ...]:
    """Checks every file that a group replaces, and the logs behind it.

    The active segment may have grown: a broker appends there and nowhere else. What follows from it (open transactions,
    producers, the high watermark, the order of commit) whoever applies the plan has to work out again.

    Returns:
        The originals: what the group replaces, and the producer snapshots that go with it.

    Raises:
        StalePlanError: a file changed, came or went since the plan was made; the message names it.
        RefusedError: the plan would remove the newest producer snapshot.
    """
    planned = partition.by_name
    present = [parse_file_name(name) for name in folder.file_names()]
    _check_no_swap(folder, present)
    _check_snapshots(folder, present, change)
    _check_logs_behind(folder, partition, planned, present, change)
    names = [segment_name(s.base_offset, e) for s in change.sources for e in SEGMENT_SUFFIXES]
    states = [unchanged(folder, planned, name) for name in [*names, *change.removes_snapshots]]
    # Of a log that is valid throughout, the plan's digest and the batches' own CRCs say all.
    return tuple(
        state
        if state.name.endswith(LOG) and planned[state.name].digest
        else folder.digested(state.name, state)
        for state in states
        if state is not None
    )


def _check_no_swap(folder: PartitionFolder, present: list[FileName]) -> None:
    for name in present:
        if name.state in {NameState.SWAP, NameState.CLEANED}:
            raise StalePlanError(
                f"{folder.at(name.name)}: was not there when the plan was made; krepair begins no swap while another "
                "one is pending"
            )


def _check_snapshots(folder: PartitionFolder, present: list[FileName], change: RewriteSegments) -> None:
    snapshots = [n.name for n in present if n.kind is FileKind.SNAPSHOT and n.state is NameState.LIVE]
    if snapshots and max(snapshots) in change.removes_snapshots:
        raise RefusedError(f"{folder.at(max(snapshots))}: is the newest producer snapshot, which must stay")


def _check_logs_behind(
    folder: PartitionFolder,
    partition: PartitionPlan,
    planned: Mapping[str, FileFingerprint],
    present: list[FileName],
    change: RewriteSegments,
) -> None:
    last = change.sources[-1].base_offset
    known = {name for name in planned if LOG in name and parse_file_name(name).kind is FileKind.LOG}
    names = {n.name for n in present if n.kind is FileKind.LOG and n.state is NameState.LIVE} | known
    active = max(known, default="")
    for name in sorted(names):
        base_offset = parse_file_name(name).base_offset
        if base_offset is None or base_offset <= last:
            continue
        may_have_grown = (
            name == active
            and grown(folder, planned[name]) is not None
            and base_offset
            not in bases_touched(partition.changes)  # asked of all changes, so only where it matters
        )
        if not may_have_grown:
            unchanged(folder, planned, name)


def grown(folder: PartitionFolder, planned: FileFingerprint) -> FileState | None:
    """State of a log that is longer now, and begins with the batches that the plan has seen; else None."""
    found = folder.state(planned.name)
    if found is None or found.size <= planned.size or not planned.digest:
        return None
    return found if folder.begins_with(found, planned) else None


def unchanged(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> FileState | None:
    """Checks that a file is the one of the plan; None if it is not there and was not.

    Raises:
        StalePlanError: it changed, came or went since the plan was made; the message names it.
    """
    found, plan = folder.state(name), planned.get(name)
    if found is None and plan is None:
        return None
    if found is None:
        raise StalePlanError(f"{folder.at(name)}: is gone since the plan was made")
    if plan is None:
        raise StalePlanError(f"{folder.at(name)}: was not there when the plan was made")
    if (found.size, found.mtime_ns) != (plan.size, plan.mtime_ns):
        message = (
            f"{folder.at(name)}: changed since the plan was made: expected {plan.size} bytes of mtime {plan.mtime_ns}, "
            f"found {found.size} of {found.mtime_ns}"
        )
        raise StalePlanError(message)
    return found


def original(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> FileState | None:
    """As ``unchanged``, with a digest of what it holds."""
    found = unchanged(folder, planned, name)
    return None if found is None else folder.digested(name, found)


def check_staged(
    folder: PartitionFolder, change: RewriteSegments, made: Mapping[str, str] | None = None
) -> tuple[FileState, ...]:
    """Checks that the staged files of a group are what the plan says.

    Args:
        folder: the partition folder.
        change: the group.
        made: name -> digest of each staged index; the log was read when it was verified.

    Raises:
        RefusedError: one is missing, or of another size or modification time; or it would be empty.
        VerifyFailedError: an index is not the one that was made.
    """
    found = [
        state if extension == LOG else folder.digested(path, state)
        for extension in SEGMENT_SUFFIXES
        for path in (folder.names.stage(segment_name(change.base_offset, extension)),)
        if (state := folder.state(path)) is not None
    ]
    log = segment_name(change.base_offset, ".log")
    if not found or found[0].name != log:
        raise RefusedError(f"{folder.at(folder.names.stage(log))}: the staged file is missing")
    if found[0].size == 0:
        raise RefusedError(
            f"{folder.at(folder.names.stage(log))}: has no bytes; a broker that meets an empty .swap brings the "
            "originals back"
        )
    if (found[0].size, found[0].mtime_ns) != (change.log_bytes, change.mtime_ns):
        message = (
            f"{folder.at(folder.names.stage(log))}: expected {change.log_bytes} bytes of mtime {change.mtime_ns}, "
            f"found {found[0].size} of {found[0].mtime_ns}"
        )
        raise RefusedError(message)
    for name, digest in (made or {}).items():
        if digest_file(folder.at(folder.names.stage(name)), folder.tree) != digest:
            path = folder.at(folder.names.stage(name))
            raise VerifyFailedError(
                f"{path}: its bytes are not those that krepair wrote; nothing was replaced"
            )
    return tuple(found)


def told_apart(
    folder: PartitionFolder, originals: Sequence[FileState], log: FileState, path: str
) -> tuple[tuple[FileState, ...], FileState]:
    """The originals and the new log of a group, each with a digest where size and time do not tell old and new apart.

    Args:
        folder: the partition folder.
        originals: all of them.
        log: the new one, by its final name.
        path: where it is now.
    """
    if not any((one.name, one.size, one.mtime_ns) == (log.name, log.size, log.mtime_ns) for one in originals):
        return tuple(originals), log
    known = (folder.digested(one.name, one) if one.name == log.name else one for one in originals)
    return tuple(known), folder.digested(path, log)


def check_no_pending_swap(folder: PartitionFolder) -> None:
    """Checks once, before the first of many files is replaced, that no swap is pending in the folder.

    Raises:
        StalePlanError: one is; the message names it.
    """
    _check_no_swap(folder, [parse_file_name(name) for name in folder.file_names()])


def check_fresh_file(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: ReplaceFile
) -> tuple[FileState | None, FileState | None]:
    """Checks the file that is replaced and the staged one.

    Args:
        folder: the partition folder, see also ``check_no_pending_swap``.
        planned: the plan's fingerprints by name.
        change: the file.

    Returns:
        The file as it is (None if the plan says there was none), and the staged one (None if the file only goes).

    Raises:
        StalePlanError: the file changed since the plan was made.
        RefusedError: the staged file is missing or of another size; or there is nothing to remove.
        VerifyFailedError: the staged file is not the plan's.
    """
    old = original(folder, planned, change.name)
    if change.method == "remove":
        if old is None:
            raise RefusedError(f"{folder.at(change.name)}: is to be removed, but the plan has no such file")
        return old, None
    return old, staged_file(folder, change.name, change.size_after, change.digest_after)


def staged_file(folder: PartitionFolder, name: str, size: int, digest: str) -> FileState:
    """Reads a staged file again, right before it is swapped in.

    Args:
        folder: the partition folder.
        name: its final name.
        size: that it must have.
        digest: 32 hex digits over the bytes that it must hold.

    Raises:
        RefusedError: it is missing, or of another size.
        VerifyFailedError: its bytes are not those that were made.
    """
    path = folder.names.stage(name)
    staged = folder.state(path)
    if staged is None or staged.size != size:
        found = "nothing" if staged is None else f"{staged.size} bytes"
        raise RefusedError(f"{folder.at(path)}: expected {size} bytes, found {found}")
    if digest_file(folder.at(path), folder.tree) != digest:
        raise VerifyFailedError(
            f"{folder.at(path)}: its bytes are no longer those of the plan; nothing was replaced"
        )
    return staged if name.endswith(LOG) else folder.digested(path, staged)


def check_staged_files(folder: PartitionFolder, makes: Iterable[NewFile]) -> tuple[FileState, ...]:
    """Checks that the staged files are there and are those of the plan.

    Raises:
        RefusedError: one is missing.
        VerifyFailedError: one is another.
    """
    return tuple(staged_file(folder, made.name, made.size, made.digest) for made in makes)
