"""Where the next coordinator of a group looks, and whether its commits lie within the logs that are here.

A group belongs to one partition of ``__consumer_offsets``, by its name and the number of partitions. Where that number
was raised, the coordinator of a group looks in another partition than the one that holds its commits.

Source: ``GroupMetadataManager.partitionFor`` and ``Utils.abs`` (2.2.1, 3.9), ``GroupCoordinatorService.partitionFor``
(4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from krepair.fixes.checkpoints import log_ends
from krepair.formats.filenames import OFFSETS_TOPIC
from krepair.logdir.values import LogDir
from krepair.pipeline.coordinators.group_model import Commit, Group
from krepair.pipeline.engines.engine import Engine
from krepair.start.metadata_log import see_metadata_log

_DEFAULT: Final = 50
"""``offsets.topic.num.partitions``, where nobody sets it."""


def partition_of_group(group: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that a group belongs to: Java's hash of its name."""
    units = group.encode("utf-16-be", "surrogatepass")
    code = 0
    for place in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[place : place + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def partitions_of_topic(view: LogDir, groups: Sequence[Group]) -> tuple[int, bool]:
    """How many partitions ``__consumer_offsets`` has, 0 if nothing tells; and whether the metadata log tells it.

    Where that is not here all are here, if none below the highest one is missing; or it is Kafka's default, if
    every group lies where that number puts it.

    Args:
        view: the log directory.
        groups: as they lie in it.
    """
    metadata = see_metadata_log([view])
    image = None if metadata is None else metadata.image
    if image is not None:
        ids = [topic_id for topic_id, name in image.topics.items() if name == OFFSETS_TOPIC]
        if ids:
            return len(image.numbers.get(ids[0], ())), True
    here = {one.number for one in view.partitions if one.topic == OFFSETS_TOPIC}
    highest = max(here, default=-1)
    all_here = len(here) if len(here) == highest + 1 else 0
    for number in (all_here, _DEFAULT):
        if number > highest and all(_lies_in(one) == partition_of_group(one.group, number) for one in groups):
            return number, False
    return all_here, False


def with_places(groups: Iterable[Group], partitions: int) -> tuple[Group, ...]:
    """The groups, each with the partition where its coordinator looks, and the commits that it does not see there.

    Args:
        groups: as they were read.
        partitions: of ``__consumer_offsets``; 0 if not known.
    """
    if not partitions:
        return tuple(groups)
    return tuple(_with_place(one, partition_of_group(one.group, partitions)) for one in groups)


def _with_place(group: Group, looks_in: int) -> Group:
    unseen = 0 if looks_in == _lies_in(group) else len(group.commits)
    return replace(group, coordinator_partition=looks_in, unseen_commits=unseen)


def _lies_in(group: Group) -> int:
    return int(group.partition.rpartition("-")[2])


def with_ranges(groups: Iterable[Group], view: LogDir, engine: Engine) -> tuple[Group, ...]:
    """The groups, each commit with the ends of its partition's log, where that lies in the log directory."""
    groups = tuple(groups)
    committed = {(commit.topic, commit.partition) for group in groups for commit in group.commits}
    here = [one for one in view.partitions if one.key in committed and one.segments]
    ends = log_ends(view, engine, of=here)
    starts = {
        one.key: max(one.segments[0].base_offset, view.log_start.offsets.get(one.key, 0)) for one in here
    }

    def ranged(commit: Commit) -> Commit:
        key = (commit.topic, commit.partition)
        start, end = starts.get(key, -1), ends.get(key)
        if end is None or commit.problem:
            return replace(commit, log_start=start)
        out = not start <= commit.offset <= end
        return replace(commit, log_start=start, log_end=end, out_of_range=out)

    return tuple(replace(group, commits=tuple(map(ranged, group.commits))) for group in groups)
