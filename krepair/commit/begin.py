"""Begin a change: check its files once more, and record what the change needs to be resumed.

A partition must still be what the plan was made of, which is seen right before each change; before one goes back, no
broker may have gone on with the log.
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
from krepair.rules.checkpoint_lines import lines_in, lines_left, with_lines

_EXECUTORS: Final[dict[ExecutorName, Executor]] = {
    "files": ChangeFiles(),
    "log": MendLogs(),
    "segments": SwapGroups(),
    "swap": FinishSwaps(),
}


def executor_of(intent: Intent) -> Executor:
    """Return the executor that carries out, or takes back, a change that has begun."""
    return _EXECUTORS[intent.executor]


class StagedGroup(NamedTuple):
    """Evidence of a rewritten group's staged files, used until these files are read for the last time.

    Attributes:
        parts: what each source gave to the new ``.log``, see ``krepair.checks.parts``.
        made: name -> 32 hex digits over the bytes of each new index.
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
        staged: change id -> how the staged files of a rewritten group are known.
    """

    folder: PartitionFolder
    partition: PartitionPlan
    order: Order
    staged: Mapping[str, StagedGroup] = field(default_factory=dict)

    @cached_property
    def planned(self) -> Mapping[str, FileFingerprint]:
        """Fingerprints of the partition's files as they were planned, by name."""
        return self.partition.by_name


def are_together(change: Change) -> bool:
    """Return whether a change of a file shares one set of barriers with its neighbours; a segment never does.

    Each is still committed, or not, by itself.
    """
    return not change.segments and change.has_originals


def check_before(target: Target, changes: Sequence[Change]) -> None:
    """Checks, before anything is staged for changes that are carried out together, that they are not stale.

    Raises:
        StalePlanError: a file changed, came or went since the plan was made; the message names it.
        RefusedError: the plan would remove the newest producer snapshot.
    """
    for change in changes:
        if isinstance(change, RewriteSegments):
            check_fresh(target.folder, target.partition, change)
    # A removal never touches a file that a pending swap needs, and may take away what makes the swap void.
    if are_together(changes[0]) and any(file.how == "made" for change in changes for file in change.files):
        _check_no_swap(target.folder, names_removed(target.partition.changes))


def check_not_gone_on(
    folder: PartitionFolder,
    change: Change,
    intent: Intent,
    state: str,
    planned: Mapping[str, FileFingerprint],
    made: Mapping[str, FileChange],
) -> None:
    """Checks, before a change is taken back, that no broker has gone on with the log in its way.

    Args:
        change: change of the plan.
        intent: intent with which the change began.
        state: state of the change in the journal.
        made: what the plan makes of the logs that it changes, by name.

    Raises:
        StalePlanError: one has; the message names the file that tells.
    """
    if not intent.made:
        check_is_still_its_log(folder, intent.originals[0].name, planned, made)
    if isinstance(change, RewriteSegments | CompleteSwap) and state == "committed":
        check_nothing_between(folder, change, planned)


def begin(target: Target, change: Change) -> Intent:
    """Return the intent of a change, once every file is as planned and staged as planned.

    Raises:
        StalePlanError: a file changed, came or went since the plan was made; the message names it.
        RefusedError: a staged file is missing or is not the plan's; or a change cannot be made of what is there.
        VerifyFailedError: a staged file holds other bytes than were made.
        OSError: a file could not be looked at.
    """
    match change:
        case RewriteSegments():
            return _group(target, change)
        case CompleteSwap():
            return _swap(target, change)
        case ChangeLines():
            return _lines(target, change)
        case MendLog():
            _check_no_swap(target.folder)
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
    """Return the intent for whole files, or for a log that loses bytes; the ``.log`` first, which is staged last."""
    folder, files = target.folder, change.files
    files = files if files[0].name.endswith(LOG) else files[::-1]
    olds = [_old(target, file) for file in files]
    made = [
        staged_file(folder, file.name, file.size, file.digest)
        for file in files
        if file.how in {"made", "new"}
    ]
    return Intent(change_id=change.change_id, executor="files", originals=_these(*olds), made=tuple(made))


def _old(target: Target, file: FileChange) -> FileState | None:
    folder, cut = target.folder, file.how == "cut"
    old = (unchanged if cut else original)(folder, target.planned, file.name)
    if old is None and (file.goes or (file.name.endswith(LOG) and file.how != "new")):
        raise RefusedError(f"{folder.at(file.name)}: is to be changed, but the plan has no such file")
    status = folder.tree.status(folder.at(file.name)) if cut else None
    if status is not None and status.st_nlink > 1:
        raise RefusedError(
            f"{folder.at(file.name)}: has other names (hard links), and a cut would reach all of them; "
            "replace this one by a copy first"
        )
    return old


def _these(*states: FileState | None) -> tuple[FileState, ...]:
    return tuple(state for state in states if state is not None)


def _group(target: Target, change: RewriteSegments) -> Intent:
    """Return the intent of a rewritten group, once every file is as planned and the new ones are staged."""
    folder, staged = target.folder, target.staged.get(change.change_id, StagedGroup())
    originals = check_fresh(folder, target.partition, change)
    log, *indexes = check_staged(folder, change, staged.made)
    originals, log = told_apart(folder, originals, log, folder.names.stage(log.name))
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
    """Return the intent that completes a broker's swap, after checking every file once more."""
    folder, planned = target.folder, target.planned
    log = segment_name(change.base_offset, ".log")
    pending = unchanged(folder, planned, log + SWAP)
    if pending is None:
        raise StalePlanError(f"{folder.at(log + SWAP)}: is gone since the plan was made")
    _check_others(folder, planned, change)
    bad = {offset_name(base) for base in change.copied}
    copied = [name for name in change.goes if name.partition(".")[0] in bad and not name.endswith(SWAP)]
    olds = [state for name in change.goes if (state := original(folder, planned, name)) is not None]
    originals, new = told_apart(folder, olds, replace(pending, name=log), log + SWAP)
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
    """Check that the plan knows every segment and leftover in the folder."""
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
    """Return the intent, once the staged file differs from the current one by the planned entries alone."""
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
        lines = lines_in(made, lines_left(data, lines))
    wanted = with_lines(data, lines)
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
    return Intent(change_id=change.change_id, executor="files", originals=_these(original), made=(staged,))


# -- whether files are as they were planned, or staged


def check_fresh(
    folder: PartitionFolder, partition: PartitionPlan, change: RewriteSegments
) -> tuple[FileState, ...]:
    """Check every file that a group replaces, and the logs behind it.

    The active segment may have grown: a broker appends there and nowhere else. What follows from it (open transactions,
    producers, the high watermark, the order of commit) whoever applies the plan has to work out again.

    Returns:
        The originals: what the group replaces, and the producer snapshots that go with it.

    Raises:
        StalePlanError: a file changed, came or went since the plan was made; the message names it.
        RefusedError: the plan would remove the newest producer snapshot.
    """
    planned = partition.by_name
    present = _check_no_swap(folder)
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


def _check_no_swap(folder: PartitionFolder, but: Collection[str] = ()) -> list[FileName]:
    """Check that no swap is pending but those that the plan removes; return the files of the folder."""
    present = [parse_file_name(name) for name in folder.file_names()]
    for name in present:
        if name.state in {NameState.SWAP, NameState.CLEANED} and name.name not in but:
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
            not in bases_touched(partition.changes)  # asked of all changes, so only where it matters
        )
        if not may_have_grown and not _is_as_made(folder, partition, name):
            unchanged(folder, planned, name)


def _is_as_made(folder: PartitionFolder, partition: PartitionPlan, name: str) -> bool:
    """Return whether another change of the plan made this log; such a change is carried out before groups are."""
    current = folder.state(name)
    return any(
        file.name == name
        and current is not None
        and (current.size, current.mtime_ns) == (file.size, file.mtime_ns)
        for change in partition.changes
        for file in change.files
    )


def grown(folder: PartitionFolder, planned: FileFingerprint) -> FileState | None:
    """Return the state of a log that has grown behind the batches that the plan saw; None of any other log."""
    current = folder.state(planned.name)
    if current is None or current.size <= planned.size or not planned.digest:
        return None
    return current if folder.begins_with(current, planned) else None


def unchanged(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> FileState | None:
    """Check that a file is the planned one; return None if there is none, as planned.

    Raises:
        StalePlanError: it changed, came or went since the plan was made; the message names it.
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


def original(folder: PartitionFolder, planned: Mapping[str, FileFingerprint], name: str) -> FileState | None:
    """Return the same as ``unchanged``, with a digest of the content."""
    state = unchanged(folder, planned, name)
    return None if state is None else folder.digested(name, state)


def check_staged(
    folder: PartitionFolder, change: RewriteSegments, made: Mapping[str, str] | None = None
) -> tuple[FileState, ...]:
    """Check that the staged files of a group are those of the plan.

    Args:
        change: rewritten group.
        made: name -> digest of each staged index; the log was read when it was verified.

    Raises:
        RefusedError: one is missing, or of another size or modification time; or it would be empty.
        VerifyFailedError: an index is not the one that was made.
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


def told_apart(
    folder: PartitionFolder, originals: Sequence[FileState], log: FileState, path: str
) -> tuple[tuple[FileState, ...], FileState]:
    """Return originals and new log of a group, with digests where size and time cannot tell old from new.

    Args:
        log: the new one, by its final name.
        path: present path of the new log.
    """
    if not any(
        (state.name, state.size, state.mtime_ns) == (log.name, log.size, log.mtime_ns) for state in originals
    ):
        return tuple(originals), log
    known = (folder.digested(state.name, state) if state.name == log.name else state for state in originals)
    return tuple(known), folder.digested(path, log)


def staged_file(folder: PartitionFolder, name: str, size: int, digest: str) -> FileState:
    """Read a staged file again, right before it is swapped in.

    Args:
        name: final name of the file.
        size: expected size in bytes.
        digest: 32 hex digits over the bytes that it must hold.

    Raises:
        RefusedError: it is missing, or of another size.
        VerifyFailedError: its bytes are not those that were made.
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
