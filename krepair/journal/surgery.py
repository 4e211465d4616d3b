"""Damaged bytes leave a ``.log``: truncated in place, or replaced by a log without them; and back again.

The indexes go first. A time index holds no positions and a transaction index none either, so the new ones are true of
the old log and of the new one. Of a new offset index only the front is true of both, when bytes leave the middle: the
front takes its place, then the log changes, then the whole index follows. So at every instant each index is true of the
log beside it, on every version, and no order of renames depends on one.

A log is truncated in place, not rewritten: on a full disk there is no room for a second one, and inode, owner and
attributes stay. The cut bytes are copied, synced and read back before; undo writes them behind the log again, and only
if nobody else has.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping

from krepair.durable.attributes import read_attributes
from krepair.errors import RefusedError, StalePlanError
from krepair.formats.filenames import FileKind, parse_file_name
from krepair.formats.filenames import FileState as NameState
from krepair.journal.folder import PartitionFolder
from krepair.journal.freshness import check_no_pending_swap, unchanged
from krepair.journal.record import CompanionStates, FileState, LogIntent
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.reading import opened_for_reading
from krepair.plan.model import FileFingerprint, MendLog

_CHUNK_BYTES = 1 << 20
_INDEX = ".index"
CUT = ".cut"
"""Ends the name under which the cut bytes of a log are kept."""


def begin_surgery(
    folder: PartitionFolder, planned: Mapping[str, FileFingerprint], change: MendLog
) -> LogIntent:
    """The intent, once every file is found as it was planned and staged.

    Raises:
        StalePlanError: a file changed since the plan was made, or a swap is pending.
        RefusedError: a staged file is missing; or the log has another name, which would be cut with it.
    """
    check_no_pending_swap(folder)
    original = unchanged(folder, planned, change.name)
    if original is None:
        raise StalePlanError(f"{folder.at(change.name)}: is gone since the plan was made")
    if change.method == "cut" and os.lstat(folder.at(change.name)).st_nlink > 1:
        raise RefusedError(
            f"{folder.at(change.name)}: has more names than this one (hard links); cutting it would cut them all: "
            "give this name a copy of its own first"
        )
    companions = tuple(
        CompanionStates(
            original=unchanged(folder, planned, new.name),
            replacement=_staged(folder, new.name, new.size_after),
        )
        for new in change.companions
    )
    replacement = None
    if change.method == "excise":
        replacement = _staged(folder, change.name, change.size_after)
    return LogIntent(
        change_id=change.change_id,
        original=original,
        replacement=replacement,
        size_after=change.size_after,
        digest_removed=change.digest_removed,
        companions=companions,
        front_bytes=change.front_bytes,
        last=not _logs_behind(folder, change.name),
    )


def _staged(folder: PartitionFolder, name: str, size: int) -> FileState:
    staged = folder.state(folder.names.stage(name))
    if staged is None or staged.size != size:
        found = "nothing" if staged is None else f"{staged.size} bytes"
        raise RefusedError(f"{folder.at(folder.names.stage(name))}: expected {size} bytes, found {found}")
    return staged


def _logs_behind(folder: PartitionFolder, name: str) -> list[str]:
    logs = [parse_file_name(each) for each in folder.file_names()]
    own = parse_file_name(name).base_offset or 0
    return [
        each.name
        for each in logs
        if each.kind is FileKind.LOG and each.state is NameState.LIVE and (each.base_offset or 0) > own
    ]


def is_mended(folder: PartitionFolder, intent: LogIntent) -> bool:
    """Whether the log has lost its bytes: the commit of the change."""
    found = folder.state(intent.original.name)
    if found is None:
        return False
    if intent.replacement is not None:
        return found == intent.replacement
    return (found.inode, found.size) == (intent.original.inode, intent.size_after)


def can_operate(folder: PartitionFolder, intent: LogIntent) -> bool:
    """Whether an interrupted change is committed, or has all it needs to be."""
    if is_mended(folder, intent):
        return True
    staged = [each.replacement for each in intent.companions]
    if intent.replacement is not None:
        staged.append(intent.replacement)
    here = all(
        state in (folder.state(folder.names.stage(state.name)), folder.state(state.name)) for state in staged
    )
    return here and folder.state(intent.original.name) == intent.original


def operate(folder: PartitionFolder, intent: LogIntent) -> None:
    """Carries the change out; may be repeated after a crash at any call.

    Raises:
        StalePlanError: a file changed since the intent.
        OSError: a call failed.
    """
    mended = is_mended(folder, intent)
    if not mended and folder.state(intent.original.name) != intent.original:
        raise StalePlanError(f"{folder.at(intent.original.name)}: changed while the apply was interrupted")
    index = _index_of(intent)
    for each in intent.companions:
        if not mended:
            _keep(folder, each)
        if each is not index or intent.replacement is None:
            _swap_in(folder, each)
    if intent.replacement is None:
        _cut(folder, intent)
        return
    if not mended:
        if index is not None:
            _put_front(folder, intent, index, folder.names.stage(index.replacement.name))
        _keep_file(folder, intent.original)
        _rename(folder, folder.names.stage(intent.original.name), intent.original.name)
    if index is not None:
        _swap_in(folder, index)


def _index_of(intent: LogIntent) -> CompanionStates | None:
    return next((each for each in intent.companions if each.replacement.name.endswith(_INDEX)), None)


def _keep(folder: PartitionFolder, each: CompanionStates) -> None:
    found = folder.state(each.replacement.name)
    if each.original is not None and found == each.original:
        _keep_file(folder, each.original)


def _keep_file(folder: PartitionFolder, original: FileState) -> None:
    kept = folder.names.keep(original.name)
    if folder.state(kept) == original:
        return
    _remove(folder, kept)
    folder.disk.link(folder.at(original.name), folder.at(kept))
    folder.disk.sync_dir(folder.at(folder.names.keep()))


def _swap_in(folder: PartitionFolder, each: CompanionStates) -> None:
    """Renames a staged index over the one that is kept."""
    name = each.replacement.name
    if folder.state(name) == each.replacement:
        return
    if each.original is not None and folder.state(folder.names.keep(name)) != each.original:
        raise StalePlanError(f"{folder.at(name)}: changed while the apply was interrupted")
    if folder.state(folder.names.stage(name)) != each.replacement:
        raise StalePlanError(f"{folder.at(folder.names.stage(name))}: is not the file that was staged")
    _rename(folder, folder.names.stage(name), name)


def _put_front(folder: PartitionFolder, intent: LogIntent, index: CompanionStates, source: str) -> None:
    """Puts the part of the new index that is true of both logs in its place."""
    name = index.replacement.name
    with opened_for_reading(folder.at(source)) as descriptor:
        data = os.pread(descriptor, intent.front_bytes, 0)
    made = folder.names.out(f"{name}.front")
    _remove(folder, made)
    folder.disk.create(folder.at(made), data)
    folder.disk.set_attributes(folder.at(made), read_attributes(folder.at(source)))
    folder.disk.sync_file(folder.at(made))
    _rename(folder, made, name)


def _rename(folder: PartitionFolder, source: str, target: str) -> None:
    folder.disk.rename(folder.at(source), folder.at(target))
    folder.disk.sync_dir(os.path.dirname(folder.at(target)))
    folder.disk.sync_dir(os.path.dirname(folder.at(source)))


def _remove(folder: PartitionFolder, path: str) -> None:
    if os.path.lexists(folder.at(path)):
        folder.disk.unlink(folder.at(path))


# -- in place


def _cut(folder: PartitionFolder, intent: LogIntent) -> None:
    name, original = intent.original.name, intent.original
    if not is_mended(folder, intent):
        _keep_cut_bytes(folder, intent)
        folder.disk.truncate(folder.at(name), intent.size_after)
        folder.disk.sync_file(folder.at(name))
    _give_time_back(folder, original)


def _give_time_back(folder: PartitionFolder, original: FileState) -> None:
    path = folder.at(original.name)
    attributes = read_attributes(path)
    if attributes.mtime_ns != original.mtime_ns:
        folder.disk.set_attributes(path, attributes._replace(mtime_ns=original.mtime_ns))
    folder.disk.sync_file(path)


def _keep_cut_bytes(folder: PartitionFolder, intent: LogIntent) -> None:
    """A copy of what goes, synced and read back, before anything goes."""
    kept = folder.names.keep(intent.original.name + CUT)
    size = intent.original.size - intent.size_after
    if _digest(folder.at(kept), 0, size) == intent.digest_removed:
        return
    _remove(folder, kept)
    made = folder.names.out(intent.original.name + CUT)
    _remove(folder, made)
    folder.disk.reserve(folder.at(made), size)
    _copy(folder, intent.original.name, intent.size_after, made, 0, size)
    folder.disk.sync_file(folder.at(made))
    if _digest(folder.at(made), 0, size) != intent.digest_removed:
        where = f"{folder.at(intent.original.name)}: its bytes from position {intent.size_after} on"
        raise StalePlanError(f"{where} are not those of the plan")
    _rename(folder, made, kept)


def _copy(folder: PartitionFolder, source: str, start: int, target: str, at: int, size: int) -> None:
    for done, piece in _pieces(folder.at(source), start, size):
        folder.disk.write_at(folder.at(target), at + done, [memoryview(piece)])


def _pieces(path: str, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    done = 0
    with opened_for_reading(path) as descriptor:
        while done < size and (piece := os.pread(descriptor, min(_CHUNK_BYTES, size - done), start + done)):
            yield done, piece
            done += len(piece)


def _digest(path: str, start: int, size: int) -> str:
    """Of so many bytes of a file; empty if there is none, or it is shorter."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    read = 0
    try:
        for _, piece in _pieces(path, start, size):
            digest.update(piece)
            read += len(piece)
    except FileNotFoundError:
        return ""
    return digest.hexdigest() if read == size else ""


# -- back


def check_mended(folder: PartitionFolder, intent: LogIntent) -> None:
    """Checks that the log is as apply left it, so that nothing written since is lost or mixed with what comes back.

    Raises:
        StalePlanError: it was written since, or segments came behind it; the message names the file.
    """
    found, name = folder.state(intent.original.name), intent.original.name
    expected = intent.replacement
    if expected is None:
        expected = FileState(
            name=name, size=intent.size_after, mtime_ns=intent.original.mtime_ns, inode=intent.original.inode
        )
    if found != expected:
        raise StalePlanError(
            f"{folder.at(name)}: was written since the plan was applied; nothing was changed"
        )
    behind = _logs_behind(folder, name) if intent.last else []
    if behind:
        raise StalePlanError(
            f"{folder.at(behind[0])}: was written since the plan was applied; nothing was changed"
        )


def put_log_back(folder: PartitionFolder, intent: LogIntent) -> None:
    """Gives the log its bytes again and the indexes back; may be repeated, also before anything was changed.

    Raises:
        StalePlanError: the log was written since, or what was kept is gone.
        OSError: a call failed.
    """
    if intent.replacement is None:
        _give_bytes_back(folder, intent)
    else:
        _put_old_log_back(folder, intent)
    for each in intent.companions:
        _put_companion_back(folder, each)
    folder.disk.sync_dir(folder.path)
    originals = [intent.original.name, *(each.replacement.name for each in intent.companions)]
    for name in [*originals, intent.original.name + CUT]:
        _remove(folder, folder.names.keep(name))
    for name in [*originals, intent.original.name + CUT, *(f"{each}.front" for each in originals)]:
        _remove(folder, folder.names.out(name))


def _put_old_log_back(folder: PartitionFolder, intent: LogIntent) -> None:
    name = intent.original.name
    if folder.state(name) == intent.original:
        return
    if folder.state(name) != intent.replacement:
        raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
    if folder.state(folder.names.keep(name)) != intent.original:
        raise StalePlanError(f"{folder.at(folder.names.keep(name))}: the kept original is gone or changed")
    index = _index_of(intent)
    if index is not None and folder.state(index.replacement.name) == index.replacement:
        _put_front(folder, intent, index, index.replacement.name)
    _rename(folder, folder.names.keep(name), name)


def _give_bytes_back(folder: PartitionFolder, intent: LogIntent) -> None:
    name, original, start = intent.original.name, intent.original, intent.size_after
    found = folder.state(name)
    if found == original:
        return
    if found is None or found.inode != original.inode or not start <= found.size <= original.size:
        raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
    size, kept = original.size - start, folder.names.keep(name + CUT)
    if _digest(folder.at(name), start, size) != intent.digest_removed:
        if _digest(folder.at(kept), 0, size) != intent.digest_removed:
            raise StalePlanError(f"{folder.at(kept)}: the kept bytes are gone or changed; the log stays")
        if not _is_our_beginning(folder, intent, found.size - start):
            raise StalePlanError(f"{folder.at(name)}: was written since the plan was applied")
        _copy(folder, kept, 0, name, start, size)
        folder.disk.sync_file(folder.at(name))
        if _digest(folder.at(name), start, size) != intent.digest_removed:
            raise StalePlanError(f"{folder.at(name)}: what was written back reads back differently")
    _give_time_back(folder, original)


def _is_our_beginning(folder: PartitionFolder, intent: LogIntent, size: int) -> bool:
    """Whether what lies behind the cut is what an interrupted undo wrote: the kept bytes, then at most zeros."""
    kept = _pieces(folder.at(folder.names.keep(intent.original.name + CUT)), 0, size)
    differs = False
    for (_, one), (_, other) in zip(
        kept, _pieces(folder.at(intent.original.name), intent.size_after, size), strict=True
    ):
        same = 0 if differs else _common(one, other)
        differs = differs or same < len(one)
        if other[same:].strip(b"\0"):
            return False
    return True


def _common(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    if one == other:
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _put_companion_back(folder: PartitionFolder, each: CompanionStates) -> None:
    """An index may have been touched by a broker since; with its log as it was, the kept one is as good as any."""
    name = each.replacement.name
    found = folder.state(name)
    if each.original is None:
        if found is not None:
            folder.disk.unlink(folder.at(name))
        return
    if found == each.original:
        return
    if folder.state(folder.names.keep(name)) != each.original:
        raise StalePlanError(f"{folder.at(folder.names.keep(name))}: the kept original is gone or changed")
    folder.disk.rename(folder.at(folder.names.keep(name)), folder.at(name))
