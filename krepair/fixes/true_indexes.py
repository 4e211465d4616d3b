"""Check of indexes that a broker wrote while it finished one of krepair's changes: they must match their logs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence

from krepair.commit.folder import PartitionFolder
from krepair.engine.items import Failed, LogsItem, Place
from krepair.formats.filenames import (
    INDEX,
    TIME_INDEX,
    TXN_INDEX,
    FileKind,
    NameState,
    base_offset_of,
    parse_file_name,
    segment_name,
)

_INTERVAL_BYTES = 1 << 30
"""Index interval in bytes for a check of entries that a broker wrote: they must be true, but may be far apart."""


def untrue_index(folder: PartitionFolder, names: Sequence[str]) -> str:
    """Read indexes with their logs; describe the error of the first untrue index, or return an empty text.

    Args:
        names: names of index files in the folder.
    """
    from krepair.rewrite.indexes.segment import InspectItem, inspect

    place = Place(
        host=socket.gethostname(),
        log_dir=folder.log_dir,
        log_dir_inode=os.stat(folder.log_dir).st_ino,
        folder=folder.folder,
    )
    sizes = _log_sizes(folder)
    bases = sorted({base for name in names if (base := base_offset_of(name)) is not None})
    for base in bases:
        wanted = {name for name in names if base_offset_of(name) == base}
        if base not in sizes:
            return f"{folder.at(min(wanted))} has no log beside it"
        item = InspectItem(
            place=place,
            base_offset=base,
            log_bytes=sizes[base],
            interval_bytes=_INTERVAL_BYTES,
            active=base == max(sizes),
            depth="check",
        )
        result = inspect(item)
        if isinstance(result, Failed):
            return result.why
        for suffix, _, _, text in result.problems:
            if suffix in (INDEX, TIME_INDEX) and segment_name(base, suffix) in wanted:
                return f"{folder.at(segment_name(base, suffix))}: {text}"
    return _untrue_transactions(
        folder, place, sizes, {base for base in bases if segment_name(base, TXN_INDEX) in names}
    )


def _log_sizes(folder: PartitionFolder) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for file in map(parse_file_name, folder.file_names()):
        state = folder.state(file.name)
        if file.kind is FileKind.LOG and file.state is NameState.LIVE and file.base_offset is not None:
            sizes[file.base_offset] = state.size if state is not None else 0
    return sizes


def _untrue_transactions(
    folder: PartitionFolder, place: Place, sizes: dict[int, int], bases: set[int]
) -> str:
    if not bases:
        return ""
    from krepair.rewrite.indexes.transactions import inspect_txn

    upto = tuple(sorted((base, size) for base, size in sizes.items() if base <= max(bases)))
    result = inspect_txn(LogsItem(place=place, segments=upto))
    if isinstance(result, Failed):
        return result.why
    if 0 <= result.damaged <= max(bases):
        return f"{folder.at(segment_name(result.damaged, '.log'))}: is damaged"
    for problem in result.problems:
        if problem.base_offset in bases:
            return f"{folder.at(segment_name(problem.base_offset, TXN_INDEX))}: {problem.text}"
    return ""
