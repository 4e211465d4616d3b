"""Remove damaged bytes from a ``.log``, by a cut in place or by a new log; and restore these bytes.

The indexes are replaced first. Time and transaction indexes hold no positions, so the new indexes are correct for the
old log and for the new log. If bytes are removed from the middle, only the front of the new offset index is correct for
both logs: first the front is put in place, then the log changes, then the whole index is put in place. So at every
instant each index is correct for its log, and the order of the renames does not depend on the broker's version.

A log is truncated in place, not rewritten: a full disk has no room for a second log, and inode, owner and attributes
are preserved. Before the cut, the bytes are copied, synced and read back. Undo appends them to the log again, but only
if no other program has written to the log.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterator, Sequence

import numpy as np

from krepair.commit.change_files import WholeFiles, all_at_hand, kept_files
from krepair.commit.executor import ExecutionResult, Executor, KeptFile
from krepair.commit.folder import PartitionFolder
from krepair.commit.journal import COPY_NAME, FileState, Intent, LostBytes
from krepair.commit.stepping import run
from krepair.commit.steps import (
    Becomes,
    Names,
    PutFront,
    Remove,
    Step,
    SyncDir,
    files_back,
    forget_files,
    keep_files,
    swap_files,
)
from krepair.durable.attributes import read_attributes
from krepair.errors import StalePlanError
from krepair.formats.filenames import CLEAN_SHUTDOWN, INDEX, FileKind, NameState, parse_file_name
from krepair.logdir.fingerprint import DIGEST_BYTES, digest_front
from krepair.plan.model import FileFingerprint, MendLog

_CHUNK_BYTES = 1 << 20
FRONT = ".front"
CUT = ".cut"
"""Suffix of the file in ``keep/`` that holds a log's cut bytes."""


class MendLogs(Executor):
    """Executor for damaged logs."""

    def is_committed(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether the log has lost its bytes."""
        log = _log_of(intent)
        if log.new is not None:
            return folder.holds(log.name, log.new)
        current = folder.state(log.name)
        return (
            current is not None
            and current.size == lost_of(intent).size_after
            and _is_the_log(folder, intent, current)
        )

    def can_go_on(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an interrupted change is committed, or still has every file that the commit needs."""
        if self.is_committed(folder, intent):
            return True
        return folder.holds(intent.originals[0].name, intent.originals[0]) and all_at_hand(
            folder, _files(intent)
        )

    def go_on(self, folder: PartitionFolder, intents: Sequence[Intent]) -> ExecutionResult:
        """Carry the change out, or resume it.

        Raises:
            StalePlanError: a file changed after the intent record was written.
            OSError: a call failed.
        """
        [intent] = intents
        mended = self.is_committed(folder, intent)
        if not mended and not folder.holds(intent.originals[0].name, intent.originals[0]):
            raise StalePlanError(
                f"{folder.at(intent.originals[0].name)}: changed while the apply was interrupted"
            )
        run(
            folder,
            _mending_steps(intent, folder.names, mended=mended),
            WholeFiles(folder, _files(intent)),
        )
        if is_cut(intent):
            _cut(folder, intent, mended=mended)
        return ExecutionResult(1)

    def is_back(self, folder: PartitionFolder, intent: Intent) -> bool:
        """Return whether an undo has begun to restore the log.

        Signs are a log that was cut in place and has some of its bytes again, a replaced log that is the original
        again, or the front of the new offset index in place.
        """
        original, lost = intent.originals[0], lost_of(intent)
        if not is_cut(intent):
            return folder.holds(original.name, original) or _has_front(folder, intent)
        current = folder.state(original.name)
        more = current.size - lost.size_after if current is not None else 0
        if not 0 < more <= original.size - lost.size_after:
            return False
        if folder.state(folder.names.keep(original.name + CUT)) is not None:
            return _is_only_cut_bytes(folder, intent, more)
        # A broker may have appended the same number of bytes.
        return _digest(folder, original.name, lost.size_after, more) == lost.digest_removed

    def check_undo(self, folder: PartitionFolder, intent: Intent, state: str) -> None:
        """Check that a committed log is as apply left it, or that an interrupted undo of the log can be resumed."""
        if state == "committed" and not self.is_back(folder, intent):
            check_mended(folder, intent)
        else:
            _check_can_come_back(folder, intent, was_mended=True)

    def go_back(
        self, folder: PartitionFolder, intents: Sequence[Intent], *, committed: bool
    ) -> ExecutionResult:
        """Append the lost bytes to the log again, if the log ever lost bytes, and restore the indexes; may be repeated.

        Raises:
            StalePlanError: the log was written since, or the kept bytes are gone.
            OSError: a call failed.
        """
        [intent], names = intents, folder.names
        files = WholeFiles(folder, _files(intent))
        _check_can_come_back(folder, intent, was_mended=committed)
        if is_cut(intent):
            _give_bytes_back(folder, intent, was_mended=committed)
        else:
            run(folder, _steps_to_the_old_log(folder, intent), files)
        back = [step for file in _companions(intent) for step in files_back([file], names)]
        forget = forget_files([*intent.names, intent.originals[0].name + CUT], names)
        fronts = [Remove(names.out(name + FRONT)) for name in intent.names]
        run(folder, [*back, SyncDir(""), *forget, *fronts], files)
        return ExecutionResult(1)

    def kept(self, folder: PartitionFolder, intent: Intent) -> list[KeptFile]:
        """Return the backups of the indexes, and of the whole log or the cut bytes."""
        original, lost, files = intent.originals[0], lost_of(intent), kept_files(folder, _files(intent))
        if is_cut(intent) and self.is_committed(folder, intent):
            name, size = original.name + CUT, original.size - lost.size_after
            cut = FileState(name=name, size=size, mtime_ns=0, digest=lost.digest_removed)
            files.append(KeptFile(folder.names.keep(name), cut, plain=True))
        return files


def is_given_back(folder: PartitionFolder, intent: Intent, kept: str) -> bool:
    """Return whether a file in ``keep/`` holds cut bytes that are in the log again, at their old position."""
    if intent.lost is None or not is_cut(intent) or kept != intent.originals[0].name + CUT:
        return False
    original, lost = intent.originals[0], intent.lost
    size = original.size - lost.size_after
    return _digest(folder, original.name, lost.size_after, size) == lost.digest_removed


def cut_names(intent: Intent) -> tuple[str, ...]:
    """Return the names in ``keep/`` of bytes that were cut from a log in place."""
    return (intent.originals[0].name + CUT,) if intent.lost is not None and is_cut(intent) else ()


def holds_part(folder: PartitionFolder, intent: Intent, name: str) -> bool:
    """Return whether a file is in an intermediate state of the change: neither the original nor a staged file.

    Such a file is the front of an index, or a log that was cut in place and has some of its bytes again.
    """
    original, lost = intent.originals[0], lost_of(intent)
    if name != original.name or not is_cut(intent):
        index = _index_of(intent)
        return index is not None and name == index.name and _has_front(folder, intent)
    current = folder.state(name)
    if current is None or not lost.size_after <= current.size <= original.size:
        return False
    more = current.size - lost.size_after
    kept = folder.state(folder.names.keep(name + CUT)) is not None
    return _is_the_log(folder, intent, current) and (
        not more or (kept and _is_only_cut_bytes(folder, intent, more))
    )


def logs_behind(folder: PartitionFolder, name: str) -> list[str]:
    """Return the names of the logs with higher base offsets than this log."""
    own = parse_file_name(name).base_offset or 0
    files = [parse_file_name(file) for file in folder.file_names()]
    logs = [file for file in files if file.kind is FileKind.LOG and file.state is NameState.LIVE]
    return [log.name for log in logs if (log.base_offset or 0) > own]


def lost_of(intent: Intent) -> LostBytes:
    """Return the record of the removed bytes, which ``Intent.is_whole`` guarantees for every change of a log."""
    assert intent.lost is not None
    return intent.lost


def is_cut(intent: Intent) -> bool:
    """Return whether the log is truncated in place."""
    return _log_of(intent).new is None


def _log_of(intent: Intent) -> Becomes:
    log = intent.originals[0]
    return Becomes(log.name, log, intent.new(log.name))


def _files(intent: Intent) -> list[Becomes]:
    """Return the indexes, and the log if it is replaced."""
    return [*_companions(intent), *([] if is_cut(intent) else [_log_of(intent)])]


def _companions(intent: Intent) -> list[Becomes]:
    """Return the index files; a rewritten index may be replaced, because the backup fits the old log."""
    log = intent.originals[0].name
    return [
        Becomes(new.name, intent.old(new.name), new, None, "goes") for new in intent.made if new.name != log
    ]


def _index_of(intent: Intent) -> FileState | None:
    """Return the new offset index."""
    return next((new for new in intent.made if new.name.endswith(INDEX)), None)


def _mending_steps(intent: Intent, names: Names, *, mended: bool) -> list[Step]:
    """Return all steps except the cut in place.

    Args:
        mended: True if the log has lost its bytes.
    """
    index, log, companions = _index_of(intent), _log_of(intent), _companions(intent)
    in_place = is_cut(intent)
    if index is not None and lost_of(intent).front_bytes == index.size:
        index = None  # correct for both logs, so put in place whole, like the other indexes
    steps: list[Step] = []
    if not mended:
        steps += [*keep_files(companions if in_place else [*companions, log], names), SyncDir(names.keep())]
    for file in companions:
        if in_place or index is None or file.name != index.name:
            steps += swap_files([file], names)
    steps.append(SyncDir(""))
    if in_place:
        return steps
    if index is not None and not mended:
        steps += _front_steps(intent, index.name, names.stage(index.name), names)
    if not mended:
        steps += [*swap_files([log], names), SyncDir("")]
    if index is not None:
        file = next(companion for companion in companions if companion.name == index.name)
        steps += [*swap_files([file], names), SyncDir("")]
    return steps


def _front_steps(intent: Intent, name: str, source: str, names: Names) -> list[Step]:
    """Return the steps that put in place the front of the new index, which is correct for both logs."""
    front = PutFront(name, source, names.out(name + FRONT), lost_of(intent).front_bytes)
    return [front, SyncDir(""), SyncDir(names.out())]


def _has_front(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether the front of the new index is in place; its time differs from that of an index cut by a broker."""
    index = _index_of(intent)
    if index is None or lost_of(intent).front_bytes == index.size:
        return False
    current, front = folder.state(index.name), (lost_of(intent).front_bytes, index.mtime_ns)
    return current is not None and (current.size, current.mtime_ns) == front


# -- in place


def _cut(folder: PartitionFolder, intent: Intent, *, mended: bool) -> None:
    original = intent.originals[0]
    if not mended:
        _keep_cut_bytes(folder, intent)
        folder.disk.truncate(folder.at(original.name), lost_of(intent).size_after)
    _give_time_back(folder, original)


def _give_time_back(folder: PartitionFolder, original: FileState) -> None:
    """Restore the log's modification time, and sync it.

    The time is set even if it is right already, so that the fsync has a change to write, even after a failed fsync.
    """
    path = folder.at(original.name)
    attributes = read_attributes(path, folder.tree)
    folder.disk.set_attributes(path, attributes._replace(mtime_ns=original.mtime_ns))
    folder.disk.sync_file(path)


def _keep_cut_bytes(folder: PartitionFolder, intent: Intent) -> None:
    """Copy the bytes to be cut, sync the copy, and read the copy back: after the cut it is the only one."""
    kept = folder.names.keep(intent.originals[0].name + CUT)
    size = intent.originals[0].size - lost_of(intent).size_after
    if _digest(folder, kept, 0, size) == lost_of(intent).digest_removed:
        return  # the copy was synced before it got this name
    folder.remove(kept)
    made = folder.names.out(intent.originals[0].name + CUT)
    folder.remove(made)
    folder.disk.reserve(folder.at(made), size)
    _copy(folder, intent.originals[0].name, lost_of(intent).size_after, made, 0, size)
    folder.disk.set_attributes(
        folder.at(made), read_attributes(folder.at(intent.originals[0].name), folder.tree)
    )
    folder.disk.sync_file(folder.at(made))
    if _digest(folder, made, 0, size) != lost_of(intent).digest_removed:
        where = (
            f"{folder.at(intent.originals[0].name)}: its bytes from position {lost_of(intent).size_after} on"
        )
        raise StalePlanError(f"{where} are not those of the plan")
    folder.rename(made, kept)
    folder.sync(folder.names.keep())


def _copy(folder: PartitionFolder, source: str, start: int, target: str, at: int, size: int) -> None:
    for done, piece in _pieces(folder, source, start, size):
        folder.disk.write_at(folder.at(target), at + done, [memoryview(piece)])


def _pieces(folder: PartitionFolder, path: str, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    done = 0
    with folder.tree.opened(folder.at(path)) as descriptor:
        while done < size and (piece := os.pread(descriptor, min(_CHUNK_BYTES, size - done), start + done)):
            yield done, piece
            done += len(piece)


def _digest(folder: PartitionFolder, path: str, start: int, size: int) -> str:
    """Return the digest of ``size`` bytes of a file; empty if the file is missing or shorter."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    read = 0
    try:
        for _, piece in _pieces(folder, path, start, size):
            digest.update(piece)
            read += len(piece)
    except FileNotFoundError:
        return ""
    return digest.hexdigest() if read == size else ""


# -- back


def lines_of_cut(folder: PartitionFolder, plan: FileFingerprint, change: MendLog) -> Sequence[str]:
    """Return the shell commands that append the cut bytes to the log again and restore the log's time.

    Raises:
        StalePlanError: the log cannot be restored.
        OSError: the log, or the kept bytes, cannot be read.
    """
    log, kept = change.name, folder.names.keep(change.name + CUT)
    size, current, cut = plan.size - change.size_after, folder.state(log), folder.state(kept)
    if current is None or not change.size_after <= current.size <= plan.size:
        raise StalePlanError(f"{folder.at(log)}: was written since the plan was applied")
    path, bytes_kept = shlex.quote(folder.at(log)), shlex.quote(folder.at(kept))
    if current.size == plan.size and _digest(folder, log, change.size_after, size) == change.digest_removed:
        lines = [f"rm {bytes_kept}"] if cut is not None else []
    elif _digest(folder, kept, 0, size) != change.digest_removed:
        raise StalePlanError(f"{folder.at(kept)}: does not hold the bytes that were cut")
    elif digest_front(folder.at(log), change.size_after, folder.tree) != change.digest_after or not _is_kept(
        folder, log, change.size_after, current.size - change.size_after
    ):
        raise StalePlanError(f"{folder.at(log)}: was written since the plan was applied")
    else:
        shorten = [f"truncate -s {change.size_after} {path}"] if current.size > change.size_after else []
        lines = [*shorten, f"cat {bytes_kept} >> {path} && rm {bytes_kept}"]
    if lines and current.size < plan.size and not logs_behind(folder, log):
        check_not_trusted(folder, log)
    timed = not lines and current.mtime_ns == plan.mtime_ns
    seconds, rest = divmod(plan.mtime_ns, 1_000_000_000)
    return lines if timed else [*lines, f"touch -m -d @{seconds}.{rest:09} {path}"]


def check_mended(folder: PartitionFolder, intent: Intent) -> None:
    """Check that the log is as apply left it, so that undo neither loses later records nor mixes them with old bytes.

    Raises:
        StalePlanError: the log was written since, or newer segments exist; the message names the file.
    """
    name, original = intent.originals[0].name, intent.originals[0]
    cut = FileState(name=name, size=lost_of(intent).size_after, mtime_ns=original.mtime_ns)
    if not folder.holds(name, intent.new(name) or cut):
        raise folder.written_since(name)
    if lost_of(intent).last:
        for behind in logs_behind(folder, name):
            raise folder.written_since(behind)


def check_not_trusted(folder: PartitionFolder, name: str) -> None:
    """Check, before damaged bytes return to a log end, that no broker was stopped cleanly since apply.

    After a clean stop the next start skips recovery, and the broker would append behind the damaged bytes: nobody could
    read these records, and a later recovery would truncate them. Without a marker, or with the marker from before
    apply, the restored log is as safe as it was before apply. This check compares times, so it is only for journals
    without a listing, which are damaged or of 1.0.0; see ``visited.check_evidence``. The time of apply is that of the
    plan's copy, because each run rewrites the journal.

    Raises:
        StalePlanError: a broker was stopped cleanly since apply.
    """
    marker = folder.tree.status(f"{folder.log_dir}/{CLEAN_SHUTDOWN}")
    applied = folder.tree.status(f"{folder.private}/{COPY_NAME}")
    if marker is not None and applied is not None and marker.st_mtime_ns > applied.st_mtime_ns:
        raise StalePlanError(
            f"{folder.at(name)}: a broker was stopped cleanly since the plan was applied; the next one starts without "
            "recovery, and would write behind the damaged bytes"
        )


def _steps_to_the_old_log(folder: PartitionFolder, intent: Intent) -> list[Step]:
    log, index, names = _log_of(intent), _index_of(intent), folder.names
    steps: list[Step] = [*files_back([log], names), SyncDir("")]
    comes = folder.holds(log.name, log.new) and folder.holds(names.keep(log.name), log.old)
    if comes and index is not None and folder.holds(index.name, index):
        name = index.name
        return [*_front_steps(intent, name, name, names), *steps]
    return steps


def _give_bytes_back(folder: PartitionFolder, intent: Intent, *, was_mended: bool) -> None:
    """Append the cut bytes to the log again.

    Size and time do not show whether the bytes were appended: after a power cut, both may be those of the original
    although bytes are missing. A log that had lost bytes gets the bytes again, even if the bytes can be read, as long
    as the copy exists: the fsync after the last write may have failed.
    """
    name, original, start = intent.originals[0].name, intent.originals[0], lost_of(intent).size_after
    size, kept = original.size - start, folder.names.keep(name + CUT)
    writes = not _is_whole(folder, intent) or (was_mended and folder.state(kept) is not None)
    if writes:
        _copy(folder, kept, 0, name, start, size)
        folder.disk.sync_file(folder.at(name))
        if _digest(folder, name, start, size) != lost_of(intent).digest_removed:
            raise StalePlanError(f"{folder.at(name)}: what was written back reads back differently")
    if was_mended or writes or not folder.holds(name, original):
        _give_time_back(folder, original)


def _check_can_come_back(folder: PartitionFolder, intent: Intent, *, was_mended: bool) -> None:
    """Check that the log is in a state that krepair leaves, and that a backup of its lost bytes exists.

    Raises:
        StalePlanError: the log was written since, or the kept bytes are gone.
    """
    name, original, start = intent.originals[0].name, intent.originals[0], lost_of(intent).size_after
    written = folder.written_since(name)
    if not is_cut(intent):
        if not folder.holds(name, original) and not folder.holds(name, intent.new(name)):
            raise written
        return
    current, kept = folder.state(name), folder.names.keep(name + CUT)
    if (
        current is None
        or not start <= current.size <= original.size
        or not _is_the_log(folder, intent, current)
    ):
        raise written
    if _is_whole(folder, intent) and not (was_mended and folder.state(kept) is not None):
        return
    if _digest(folder, kept, 0, original.size - start) != lost_of(intent).digest_removed:
        raise StalePlanError(
            f"{folder.at(kept)}: the kept bytes are gone or changed, so the log stays as it is"
        )
    if not _is_only_cut_bytes(folder, intent, current.size - start):
        raise written


def _is_whole(folder: PartitionFolder, intent: Intent) -> bool:
    """Return whether the bytes that were cut from a log in place are at the log's end again."""
    name, start = intent.originals[0].name, lost_of(intent).size_after
    return _digest(folder, name, start, intent.originals[0].size - start) == lost_of(intent).digest_removed


def _is_the_log(folder: PartitionFolder, intent: Intent, found: FileState) -> bool:
    """Return whether a log that is cut in place is still the planned log, by its time or by its remaining bytes."""
    if found.mtime_ns == intent.originals[0].mtime_ns:
        return True
    return (
        digest_front(folder.at(found.name), lost_of(intent).size_after, folder.tree)
        == lost_of(intent).digest_after
    )


def _is_only_cut_bytes(folder: PartitionFolder, intent: Intent, size: int) -> bool:
    return _is_kept(folder, intent.originals[0].name, lost_of(intent).size_after, size)


def _is_kept(folder: PartitionFolder, name: str, start: int, size: int) -> bool:
    """Return whether the log has only kept bytes behind the cut, or zeros where a power cut lost kept bytes."""
    kept = _pieces(folder, folder.names.keep(name + CUT), 0, size)
    log = _pieces(folder, name, start, size)
    for (_, kept_piece), (_, log_piece) in zip(kept, log, strict=True):
        bytes_kept, bytes_found = np.frombuffer(kept_piece, np.uint8), np.frombuffer(log_piece, np.uint8)
        if len(kept_piece) != len(log_piece) or not ((bytes_found == bytes_kept) | (bytes_found == 0)).all():
            return False
    return True
