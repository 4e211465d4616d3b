"""Folders that a broker has put aside (``-stray``): what each holds, and what the folder in its place holds (KR604).

A broker takes a folder for stray by its topic id, not by its contents. Its records may be nowhere else (KAFKA-15605).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from krepair.checks.side_by_side import SideBySide
from krepair.formats import partition_metadata
from krepair.formats.partition_metadata import PartitionMetadata, topic_id_text
from krepair.logdir.reading import read_whole
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import Failed
from krepair.start.duplicates import log_of, said

_ONLY_HERE: Final = "its records are only here, so keep the folder"


def contents_of_strays(view: LogDir, engine: Engine) -> dict[str, str]:
    """Folder -> offsets, topic id, what the folder of its partition holds, and whether it may go."""
    normal = {one.key: one for one in view.partitions}
    strays = [one for one in view.marked if one.role == "stray" and not one.unreadable]
    told = {
        one.folder: f"{_holds(one)}; there is no {one.topic}-{one.number}: {_ONLY_HERE}" for one in strays
    }
    pairs = [(one, normal[one.key]) for one in strays if one.key in normal and not normal[one.key].unreadable]
    if not pairs:
        return told
    from krepair.pipeline.same_batches import TwoLogsItem, compare_two_logs

    items = [TwoLogsItem(first=log_of(view, stray), second=log_of(view, place)) for stray, place in pairs]
    for index, result in engine.map(compare_two_logs, items):
        stray, place = pairs[index]
        both = f"{_holds(stray)}; {place.folder} beside it: {_holds(place)}"
        if isinstance(result, Failed):
            told[stray.folder] = f"{both}; the two cannot be compared ({result.why}): keep the folder"
        else:
            told[stray.folder] = f"{both}; {_verdict(result, place)}"
    return told


def _verdict(seen: SideBySide, place: Partition) -> str:
    if not seen.first_end:
        return "it holds no batch; if you do not need it, move the folder out of the log directory"
    if seen.second_end < seen.first_end or seen.only_first or seen.differ:
        return f"it ends at offset {seen.first_end}, {place.folder} at {seen.second_end}: {_ONLY_HERE}"
    return f"{place.folder} holds all of it ({said(seen)}); it may be moved out of the log directory"


def _holds(partition: Partition) -> str:
    """First offset, bytes and topic id, as the listing and ``partition.metadata`` tell."""
    segments: Sequence[tuple[int, int]] = partition.log_sizes
    first = (
        f"from offset {segments[0][0]}, {sum(size for _, size in segments)} bytes of logs"
        if segments
        else "no log"
    )
    return f"{first}, {_topic_id(partition)}"


def _topic_id(partition: Partition) -> str:
    file = partition.partition_metadata
    if file is None:
        return "no topic id"
    try:
        found = partition_metadata.decode(read_whole(file.path, partition_metadata.MAX_BYTES + 1))
    except OSError:
        return "topic id not readable"
    return (
        f"topic id {topic_id_text(found.topic_id)}"
        if isinstance(found, PartitionMetadata)
        else "topic id damaged"
    )
