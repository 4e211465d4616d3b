"""Begin a change: check the files of the change again, and record what a later run needs to resume it.

Right before each change, krepair compares the partition's files with the plan. Before krepair undoes a change, it
checks that no broker has written to the log since the change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from msgspec.structs import replace

from krepair.commit.by_disk import LARGEST_BYTES, current_data
from krepair.commit.change_files import ChangeFiles, check_is_still_its_log
from krepair.commit.executor import Executor
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import ExecutorName, FileState, Intent, LostBytes, Order
from krepair.commit.mend import MendLogs, logs_behind
from krepair.commit.segments import FinishSwaps, SwapGroups, check_nothing_between
from krepair.errors import RefusedError, StalePlanError, VerifyFailedError
from krepair.formats.filenames import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    FileKind,
    FileName,
    NameState,
    offset_name,
    parse_file_name,
    segment_name,
)
from krepair.logdir.fingerprint import digest_file
from krepair.logdir.reading import read_whole
from krepair.plan.changes import (
    Change,
    ChangeLines,
    CompleteSwap,
    FileChange,
    MendLog,
    RewriteSegments,
    bases_touched,
    names_removed,
)
from krepair.plan.model import FileFingerprint, PartitionPlan
from krepair.rules.changed_entries import entries_in, entries_left, with_entries

_EXECUTORS: Final[dict[ExecutorName, Executor]] = {
    "files": ChangeFiles(),
    "log": MendLogs(),
    "segments": SwapGroups(),
    "swap": FinishSwaps(),
}


def executor_of(intent: Intent) -> Executor:
    """Return the executor that carries out or undoes a change that has begun."""
    return _EXECUTORS[intent.executor]


class StagedGroup(NamedTuple):
    """Evidence that the staged files of a rewritten group are unchanged, used until their last reading.

    Attributes:
        parts: part of the new ``.log`` that comes from each source, see ``krepair.checks.parts``.
        made: digest of each new index, 32 hex digits, by file name.
    """

    parts: tuple[tuple[int, int], ...] = ()
    made: Mapping[str, str] = {}


@dataclass(frozen=True)
class Target:
    """The partition in which a change is carried out.

    Attributes:
        folder: folder of the partition.
        partition: part of the plan for this partition.
        order: order of a swap's renames.
        staged: evidence of rewritten groups' staged files, by change id.
    """

    folder: PartitionFolder
    partition: PartitionPlan
    order: Order
    staged: Mapping[str, StagedGroup] = field(default_factory=dict)

    @cached_property
    def planned(self) -> Mapping[str, FileFingerprint]:
        """Fingerprints of the partition's files in the plan, by name."""
        return self.partition.by_name


def are_together(change: Change) -> bool:
    """Return whether a change shares its syncs with neighbouring changes; rewritten segments never share them.

    Every change still has its own commit.
    """
    return not change.segments and change.has_originals


def check_before(target: Target, changes: Sequence[Change]) -> None:
    """Check that the files of changes that are carried out together are still as planned.

    Call this before any file of these changes is staged.

    Raises:
        StalePlanError: a file changed, appeared or disappeared since the plan was made; the message names it.
        RefusedError: the plan would remove the newest producer snapshot.
    """
    for change in changes:
        if isinstance(change, RewriteSegments):
            check_fresh(target.folder, target.partition, change)
    # Changes that only remove files may run beside a pending swap: they never remove a file that it needs, but may
    # remove the file that makes the swap void. No start that finishes a swap reads the leader epochs.
    made = {file.name for change in changes for file in change.files if file.how == "made"}
    if are_together(changes[0]) and made - {LEADER_EPOCH_CHECKPOINT}:
        _check_no_swap(target.folder, _may_wait(target))


def check_not_written_since(
    folder: PartitionFolder,
    change: Change,
    intent: Intent,
    state: str,
    planned: Mapping[str, FileFingerprint],
    made: Mapping[str, FileChange],
) -> None:
    """Check that no broker has written to the log since the change, so that the change can be undone.

    Args:
        change: change of the plan.
        intent: intent with which the change began.
        state: state of the change in the journal.
        made: planned result for each log that the plan changes, by name.

    Raises:
        StalePlanError: a broker has written to the log; the message names the file that shows it.
    """
    if not intent.made:
        check_is_still_its_log(folder, intent.originals[0].name, planned, made)
    if isinstance(change, RewriteSegments | CompleteSwap) and state == "committed":
        check_nothing_between(folder, change, planned)


def begin(target: Target, change: Change) -> Intent:
    """Check the originals and the staged files of a change; return its intent record.

    Raises:
        StalePlanError: a file changed, appeared or disappeared since the plan was made; the message names it.
        RefusedError: a staged file is missing or differs from the plan, or the change does not fit these files.
        VerifyFailedError: the bytes of a staged file differ from those that krepair wrote.
        OSError: a file could not be read.
    """
    match change:
        case RewriteSegments():
            return _group(target, change)
        case CompleteSwap():
            return _swap(target, change)
        case ChangeLines():
            return _lines(target, change)
        case MendLog():
            _check_no_swap(target.folder, _may_wait(target))
            lost = LostBytes(
                size_after=change.size_after,
                digest_after=change.digest_after,
                digest_removed=change.digest_removed,
                front_bytes=change.front_bytes,
                last=not logs_behind(target.folder, change.name),
            )
            return replace(_files(target, change), executor="log", lost=lost)
        case _:
            return _files(target, change)


def _files(target: Target, change: Change) -> Intent:
    """Return the intent record for whole files or a log that loses bytes; the ``.log`` is first, though staged last."""
    folder, files = target.folder, change.files
    files = files if files[0].name.endswith(LOG) else files[::-1]
    olds = [_original_to_replace(target, file) for file in files]
    made = [
        staged_file(folder, file.name, file.size, file.digest)
        for file in files
        if file.how in {"made", "new"}
    ]
    return Intent(
        change_id=change.change_id, executor="files", originals=_without_none(*olds), made=tuple(made)
    )


def _original_to_replace(target: Target, file: FileChange) -> FileState | None:
    folder, cut = target.folder, file.how == "cut"
    old = (unchanged if cut else unchanged_with_digest)(folder, target.planned, file.name)
    if old is None and (file.goes or (file.name.endswith(LOG) and file.how != "new")):
        raise RefusedError(f"{folder.at(file.name)}: is to be changed, but the plan has no such file")
    status = folder.tree.status(folder.at(file.name)) if cut else None
    if status is not None and status.st_nlink > 1:
        raise RefusedError(
            f"{folder.at(file.name)}: has other names (hard links), and a cut would reach all of them; "
            "replace this one by a copy first"
        )
    return old


def _without_none(*states: FileState | None) -> tuple[FileState, ...]:
    return tuple(state for state in states if state is not None)


def _group(target: Target, change: RewriteSegments) -> Intent:
    """Check the sources and the staged files of a rewritten group; return the group's intent record."""
    folder, staged = target.folder, target.staged.get(change.change_id, StagedGroup())
    originals = check_fresh(folder, target.partition, change)
    log, *indexes = check_staged(folder, change, staged.made)
    originals, log = add_missing_digests(folder, originals, log, folder.names.stage(log.name))
    return Intent(
        change_id=change.change_id,
        executor="segments",
        originals=originals,
        made=(log, *indexes),
        order=target.order,
        parts=staged.parts,
        digests=dict(staged.made),
    )


def _swap(target: Target, change: CompleteSwap) -> Intent:
    """Check every file of a broker's pending swap; return the intent record of the swap's completion."""
    folder, planned = target.folder, target.planned
    log = segment_name(change.base_offset, ".log")
    pending = unchanged(folder, planned, log + SWAP)
    if pending is None:
        raise StalePlanError(f"{folder.at(log + SWAP)}: is gone since the plan was made")
    _check_others(folder, planned, change)
    bad = {offset_name(base) for base in change.copied}
    copied = [name for name in change.goes if name.partition(".")[0] in bad and not name.endswith(SWAP)]
    olds = [
        state for name in change.goes if (state := unchanged_with_digest(folder, planned, name)) is not None
    ]
    originals, new = add_missing_digests(folder, olds, replace(pending, name=log), log + SWAP)
    return Intent(
        change_id=change.change_id,
        executor="swap",
        originals=originals,
        made=(new, *(staged_file(folder, index.name, index.size, index.digest) for index in change.makes)),
        order=target.order,
        copied=tuple(copied),
    )


def _check_others(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: CompleteSwap
) -> None:
    """Check that the plan lists every pending swap in the folder, and every segment that this swap may replace."""
    for text in folder.file_names():
        name = parse_file_name(text)
        if name.state is NameState.CLEANED and (name.base_offset or 0) <= change.base_offset:
            raise StalePlanError(f"{folder.at(text)}: makes the swap void, and the plan does not say so")
        pending = name.state is NameState.SWAP
        live = name.kind is FileKind.LOG and name.state is NameState.LIVE and name.base_offset is not None
        reached = live and change.base_offset <= (name.base_offset or 0) <= change.last_offset
        if (pending or reached) and text not in planned:
            raise StalePlanError(f"{folder.at(text)}: was not there when the plan was made")


def _lines(target: Target, change: ChangeLines) -> Intent:
    """Check that only the planned entries of the checkpoint change; return the intent record."""
    folder, path = target.folder, target.folder.at(change.name)
    original, staged = folder.state(change.name), folder.state(folder.names.stage(change.name))
    if original is None and change.size_before >= 0:
        raise StalePlanError(f"{path}: is gone since the plan was made")
    if original is not None and change.size_before < 0:
        raise StalePlanError(f"{path}: was not there when the plan was made")
    if staged is None:
        raise RefusedError(f"{folder.at(folder.names.stage(change.name))}: is missing")
    made = read_whole(folder.at(folder.names.stage(change.name)), LARGEST_BYTES, folder.tree)
    data, lines = current_data(folder, change), change.lines
    if change.trusts:
        lines = entries_in(made, entries_left(data, lines))
    wanted = with_entries(data, lines)
    if wanted is None:
        raise StalePlanError(f"{path}: its lines are not those that the plan changes")
    if made != wanted:
        raise VerifyFailedError(
            f"{folder.at(folder.names.stage(change.name))}: is not the file on the disk with the plan's lines; "
            "it replaced nothing"
        )
    if original is not None:
        original = folder.digested(change.name, original)
    staged = folder.digested(folder.names.stage(change.name), staged)
    return Intent(
        change_id=change.change_id, executor="files", originals=_without_none(original), made=(staged,)
    )


# -- checks of the present files against the plan, and of the staged files


def check_fresh(
    folder: PartitionFolder, partition: PartitionPlan, change: RewriteSegments
) -> tuple[FileState, ...]:
    """Check every file that a group replaces, and the logs with higher base offsets.

    The active segment may have grown, because a broker appends only there. The caller must recompute everything that
    depends on the active segment: open transactions, producers, high watermark, and order of commit.

    Returns:
        The originals: files that the group replaces, and producer snapshots that it removes.

    Raises:
        StalePlanError: a file changed, appeared or disappeared since the plan was made; the message names it.
        RefusedError: the plan would remove the newest producer snapshot.
    """
    planned = partition.by_name
    present = _check_no_swap(folder)
    _check_snapshots(folder, present, change)
    _check_logs_behind(folder, partition, planned, present, change)
    names = [segment_name(s.base_offset, e) for s in change.sources for e in SEGMENT_SUFFIXES]
    states = [unchanged(folder, planned, name) for name in [*names, *change.removes_snapshots]]
    # A log whose digest is in the plan is valid to its end. That digest and the CRCs of the batches prove the log's
    # content, so the log is not read again.
    return tuple(
        state
        if state.name.endswith(LOG) and planned[state.name].digest
        else folder.digested(state.name, state)
        for state in states
        if state is not None
    )


def _may_wait(target: Target) -> Collection[str]:
    """Return the swaps that the plan removes, and the ``.cleaned`` files in the plan: a start deletes both unread."""
    cleaned = (name for name in target.planned if parse_file_name(name).state is NameState.CLEANED)
    return names_removed(target.partition.changes).union(cleaned)


def _check_no_swap(folder: PartitionFolder, may_wait: Collection[str] = ()) -> list[FileName]:
    """Check that no swap is pending except those in ``may_wait``; return the names of the folder's files."""
    present = [parse_file_name(name) for name in folder.file_names()]
    for name in present:
        if name.state in {NameState.SWAP, NameState.CLEANED} and name.name not in may_wait:
            raise StalePlanError(
                f"{folder.at(name.name)}: was not there when the plan was made; krepair begins no swap while another "
                "one is pending"
            )
    return present


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
            not in bases_touched(partition.changes)  # last, because this call visits all changes
        )
        if not may_have_grown and not _is_result_of_change(folder, partition, name):
            unchanged(folder, planned, name)


def _is_result_of_change(folder: PartitionFolder, partition: PartitionPlan, name: str) -> bool:
    """Return whether another change of the plan made this log; such changes are carried out before groups."""
    current = folder.state(name)
    return any(
        file.name == name
        and current is not None
        and (current.size, current.mtime_ns) == (file.size, file.mtime_ns)
        for change in partition.changes
        for file in change.files
    )


def grown(folder: PartitionFolder, planned: FileFingerprint) -> FileState | None:
    """Return the state of a log that has only grown since the plan was made; None for any other log."""
    current = folder.state(planned.name)
    if current is None or current.size <= planned.size or not planned.digest:
        return None
    return current if folder.begins_with(current, planned) else None


def unchanged(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> FileState | None:
    """Check that a file has the planned size and time; return its state, or None if plan and folder both lack the file.

    Raises:
        StalePlanError: the file changed, appeared or disappeared since the plan was made; the message names it.
    """
    current, plan = folder.state(name), planned.get(name)
    if current is None and plan is None:
        return None
    if current is None:
        raise StalePlanError(f"{folder.at(name)}: is gone since the plan was made")
    if plan is None:
        raise StalePlanError(f"{folder.at(name)}: was not there when the plan was made")
    if (current.size, current.mtime_ns) != (plan.size, plan.mtime_ns):
        message = (
            f"{folder.at(name)}: changed since the plan was made: expected {plan.size} bytes of mtime {plan.mtime_ns}, "
            f"found {current.size} of {current.mtime_ns}"
        )
        raise StalePlanError(message)
    return current


def unchanged_with_digest(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str
) -> FileState | None:
    """Check a file as ``unchanged`` does; return its state with a digest of its content."""
    state = unchanged(folder, planned, name)
    return None if state is None else folder.digested(name, state)


def check_staged(
    folder: PartitionFolder, change: RewriteSegments, made: Mapping[str, str] | None = None
) -> tuple[FileState, ...]:
    """Check that the staged files of a group match the plan; return their states, the log first.

    Args:
        change: rewritten group.
        made: digest of each staged index, by name; the log needs none, because it was read when it was verified.

    Raises:
        RefusedError: the log is missing or empty, or has another size or modification time.
        VerifyFailedError: the bytes of an index differ from those that krepair wrote.
    """
    staged = [
        state if extension == LOG else folder.digested(path, state)
        for extension in SEGMENT_SUFFIXES
        for path in (folder.names.stage(segment_name(change.base_offset, extension)),)
        if (state := folder.state(path)) is not None
    ]
    log = segment_name(change.base_offset, ".log")
    if not staged or staged[0].name != log:
        raise RefusedError(f"{folder.at(folder.names.stage(log))}: the staged file is missing")
    if staged[0].size == 0:
        raise RefusedError(
            f"{folder.at(folder.names.stage(log))}: has no bytes; a broker that meets an empty .swap brings the "
            "originals back"
        )
    if (staged[0].size, staged[0].mtime_ns) != (change.log_bytes, change.mtime_ns):
        message = (
            f"{folder.at(folder.names.stage(log))}: expected {change.log_bytes} bytes of mtime {change.mtime_ns}, "
            f"found {staged[0].size} of {staged[0].mtime_ns}"
        )
        raise RefusedError(message)
    for name, digest in (made or {}).items():
        if digest_file(folder.at(folder.names.stage(name)), folder.tree) != digest:
            path = folder.at(folder.names.stage(name))
            raise VerifyFailedError(
                f"{path}: its bytes are not those that krepair wrote; nothing was replaced"
            )
    return tuple(staged)


def add_missing_digests(
    folder: PartitionFolder, originals: Sequence[FileState], log: FileState, path: str
) -> tuple[tuple[FileState, ...], FileState]:
    """Add digests to an old and a new log that agree in name, size and time and so differ only in content.

    Args:
        log: state of the new log, with its final name.
        path: present path of the new log.

    Returns:
        The originals and the new log.
    """
    if not any(
        (state.name, state.size, state.mtime_ns) == (log.name, log.size, log.mtime_ns) for state in originals
    ):
        return tuple(originals), log
    known = (folder.digested(state.name, state) if state.name == log.name else state for state in originals)
    return tuple(known), folder.digested(path, log)


def staged_file(folder: PartitionFolder, name: str, size: int, digest: str) -> FileState:
    """Check the content of a staged file right before it is swapped in; return the file's state.

    Args:
        name: final name of the file.
        size: expected size in bytes.
        digest: 32 hex digits over the bytes that krepair wrote.

    Raises:
        RefusedError: the file is missing, or has another size.
        VerifyFailedError: the bytes of the file differ from those that krepair wrote.
    """
    path = folder.names.stage(name)
    staged = folder.state(path)
    if staged is None or staged.size != size:
        size_text = "nothing" if staged is None else f"{staged.size} bytes"
        raise RefusedError(f"{folder.at(path)}: expected {size} bytes, found {size_text}")
    if digest_file(folder.at(path), folder.tree) != digest:
        raise VerifyFailedError(
            f"{folder.at(path)}: its bytes are no longer those of the plan; nothing was replaced"
        )
    return staged if name.endswith(LOG) else folder.digested(path, staged)
