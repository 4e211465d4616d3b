"""What a start of a broker takes on the disk: blocks that it fills, and length that it only reserves.

Seen on 2.2.1, 3.9.2 and 4.3.1: the two indexes of an active segment are extended to ``segment.index.bytes`` by
truncation, which takes no block until an entry is written. What does take blocks: indexes that are rebuilt, a producer
snapshot for each recovered segment and one at the log end, and each checkpoint, written aside before it is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding
from krepair.fixes.survey import Survey
from krepair.formats import offset_index, producer_snapshot, time_index, txn_index
from krepair.logdir.space import VolumeSpace, read_space
from krepair.logdir.values import FileRef, LogDir
from krepair.rules.grouping import index_entries_at_most
from krepair.start.line import ForecastLine

_BLOCK_BYTES: Final = 4096
_SMALLEST_MESSAGE_BYTES: Final = 26
_LINE_BYTES: Final = 24
"""Of a checkpoint, besides the topic's name."""


class StartSpace(NamedTuple):
    """What the next start takes on the disk of a log directory.

    Attributes:
        needs_bytes: what it may have to write, in whole blocks.
        reserves_bytes: by how much it extends files without writing to them.
        free_bytes: what the file system has left, -1 if it cannot say.
        largest: what takes most of ``needs_bytes``, one line.
        no_new_file: whether the file system has no inode left.
    """

    needs_bytes: int
    reserves_bytes: int
    free_bytes: int
    largest: str
    no_new_file: bool = False


def start_space(view: LogDir, surveys: Sequence[Survey], lines: Mapping[str, ForecastLine]) -> StartSpace:
    """Work out what the start that ``lines`` forecast takes.

    Args:
        view: the log directory.
        surveys: its partitions.
        lines: folder -> forecast.
    """
    space = _space_of(view)
    block = space.block_bytes if space else _BLOCK_BYTES
    started = [one for one in surveys if one.segments and not one.partition.unreadable]
    kinds = {
        "indexes that are rebuilt": sum(
            _whole(size, block) for survey in started for size in _rebuilt(survey, lines)
        ),
        "producer snapshots": sum(
            count * _whole(size, block) for survey in started for count, size in (_snapshots(survey, lines),)
        ),
        "checkpoints": _checkpoints(view, block),
    }
    kind, size = max(kinds.items(), key=lambda pair: pair[1])
    return StartSpace(
        needs_bytes=sum(kinds.values()),
        reserves_bytes=sum(_reserved(survey) for survey in started),
        free_bytes=max(space.free_bytes, 0) if space else -1,
        largest=f"{kind} {size} bytes",
        no_new_file=space is not None and space.free_inodes == 0,
    )


def needed_at_most(view: LogDir) -> int:
    """Bytes that the next start may write, told by the listing alone: as ``start_space``, or more.

    After an unclean stop, each active segment is recovered: its indexes are made anew and a snapshot is written.
    """
    block = _BLOCK_BYTES
    needed = _checkpoints(view, block)
    if view.clean_shutdown:
        return needed
    for partition in view.partitions:
        if partition.segments and not partition.unreadable:
            log = partition.segments[-1].log.size
            newest = partition.snapshots[-1].file.size if partition.snapshots else 0
            # A batch has at least 61 bytes, or 26 of the old formats; an entry for each is the most there can be.
            entries = log // _SMALLEST_MESSAGE_BYTES + 1
            needed += _whole(entries * (offset_index.ENTRY_SIZE + time_index.ENTRY_SIZE), block)
            needed += _whole(newest, block) + 4 * block
    return needed


def space_findings(space: StartSpace) -> Iterator[Finding]:
    """KR703: what the next start writes does not fit."""
    if 0 <= space.free_bytes < space.needs_bytes:
        yield Finding(
            rule="KR703",
            evidence=(
                f"the next start writes up to {space.needs_bytes} bytes ({space.largest}), {space.free_bytes} bytes "
                f"are free; indexes that it extends by {space.reserves_bytes} bytes more take room as they fill"
            ),
            bytes=space.needs_bytes - space.free_bytes,
        )
    if space.no_new_file:
        yield Finding(
            rule="KR703",
            evidence="the file system has room for no new file (no inode is free, see df -i); each checkpoint is "
            "written to a new file first",
        )


def _space_of(view: LogDir) -> VolumeSpace | None:
    try:
        return read_space(view.path)
    except OSError:
        return None  # a forecast without it is better than none


def _whole(size: int, block: int) -> int:
    return -(-size // block) * block


def _rebuilt(survey: Survey, lines: Mapping[str, ForecastLine]) -> Iterator[int]:
    """Sizes of the index files that are made anew, at most."""
    recovered = set(lines[survey.partition.folder].segments)
    for facts in survey.segments:
        if facts.base_offset not in recovered:
            continue
        summary = facts.summary
        entries = index_entries_at_most(summary.valid_bytes, survey.settings.index_interval_bytes)
        entries = min(entries, summary.batches + 1)
        yield entries * offset_index.ENTRY_SIZE
        yield entries * time_index.ENTRY_SIZE
        yield len(facts.entries) * txn_index.ENTRY_SIZE


def _snapshots(survey: Survey, lines: Mapping[str, ForecastLine]) -> tuple[int, int]:
    """How many snapshots are written, and the size of one at most."""
    producers = max((len(facts.summary.rows) for facts in survey.segments), default=0)
    newest = survey.partition.snapshots[-1].file.size if survey.partition.snapshots else 0
    size = max(producer_snapshot.HEADER_SIZE + producers * producer_snapshot.ENTRY_SIZE, newest)
    recovered = len(lines[survey.partition.folder].segments)
    return (recovered + 1 if recovered else 0), size


def _checkpoints(view: LogDir, block: int) -> int:
    """The four of the root and one of a partition, each beside the old one."""
    lines = sum(len(partition.topic) + _LINE_BYTES for partition in view.partitions)
    return 4 * _whole(lines, block) + 2 * block


def _reserved(survey: Survey) -> int:
    """By how much the indexes of the active segment are extended."""
    segment = survey.partition.segments[-1]
    most = survey.settings.segment_index_bytes
    return sum(
        max(most - most % entry - _size(file), 0)
        for file, entry in (
            (segment.index, offset_index.ENTRY_SIZE),
            (segment.time_index, time_index.ENTRY_SIZE),
        )
    )


def _size(file: FileRef | None) -> int:
    return 0 if file is None else file.size
