"""Whether new segments have been damaged since apply: then what is kept of them may be the last good copy.

Only a file that is still the one that apply made, and was written since, is read. So this costs nothing where all is
well. A broker cleans a closed segment into another file, cuts it at the end of a batch, and writes nothing else to it.
So a closed segment that holds anything but batches was not written by a broker. The last segment is not asked: a
broker may be writing to it. A byte that changed on the disk by itself leaves no trace here, only ``verify`` finds it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from krepair.errors import RefusedError
from krepair.formats.filenames import FileKind, NameState, base_offset_of, parse_file_name
from krepair.journal.folder import PartitionFolder
from krepair.journal.record import FileState, Journal
from krepair.logdir.fingerprint import scan_batches


def check_still_good(folder: PartitionFolder, journal: Journal) -> None:
    """Checks that no new segment was damaged since apply, before its originals go.

    Raises:
        RefusedError: one was; the message names file and position.
        OSError: a file could not be looked at.
    """
    if journal.purging:
        return
    written = [log for log in _made(journal) if _was_written(folder, log)]
    last = _last_base(folder) if written else -1
    for log in written:
        base_offset = base_offset_of(log.name)
        if base_offset is not None and base_offset < last:
            _check_batches(folder, log, base_offset)


def _made(journal: Journal) -> Iterator[FileState]:
    """The new logs of changes whose originals are kept."""
    for change_id, state in journal.states.items():
        intent = journal.intents[change_id]
        if state == "committed" and intent.kind == "rewrite segments":
            yield intent.log


def _was_written(folder: PartitionFolder, log: FileState) -> bool:
    return folder.state(log.name) is not None and not folder.holds(log.name, log)


def _last_base(folder: PartitionFolder) -> int:
    names = map(parse_file_name, folder.file_names())
    logs = (one for one in names if one.kind is FileKind.LOG and one.state is NameState.LIVE)
    return max((one.base_offset for one in logs if one.base_offset is not None), default=-1)


def _check_batches(folder: PartitionFolder, log: FileState, base_offset: int) -> None:
    path = folder.at(log.name)
    summary = scan_batches(path, base_offset, folder.tree)
    found = folder.state(log.name)
    if not summary.damage or found is None or found.size < summary.file_size:
        return  # a broker may cut or delete it at this moment
    raise RefusedError(
        f"{path}: was written since apply and is damaged at byte {summary.valid_bytes} ({summary.damage_text}). What "
        f"is kept may be the last good copy, so nothing was purged of {folder.folder}. Mend this file first",
        next_command=f"krepair check {shlex.quote(folder.log_dir)}",
    )
