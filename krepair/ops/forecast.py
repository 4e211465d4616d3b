"""What the next broker start would do to each partition, as far as this version can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.checks.retention import Deletions
from krepair.formats.filenames import LOG_START_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.ops.checkpoints import SeenCheckpoint
from krepair.ops.identity import Metadata
from krepair.ops.refusal import Version, forgotten_epochs, refusal, reservations
from krepair.ops.reports import ForecastLine
from krepair.ops.survey import Surveyed
from krepair.rules.checkpoints import LineDecision


class RootFacts(NamedTuple):
    """What was seen in the root of a log directory.

    Attributes:
        checkpoints: its offset checkpoints.
        metadata: the ``partition.metadata`` of its partitions.
    """

    checkpoints: tuple[SeenCheckpoint, ...]
    metadata: Metadata

    def log_starts_past_end(self) -> tuple[LineDecision, ...]:
        """The lines that make a broker delete a whole partition."""
        return tuple(
            line
            for one in self.checkpoints
            if one.mended.kind.name == LOG_START_CHECKPOINT
            for line in one.mended.past_end
        )


def forecast(
    view: LogDir,
    surveyed: Sequence[Surveyed],
    going: Mapping[str, Deletions],
    root: RootFacts,
    version: Version,
) -> Iterator[ForecastLine]:
    """One line per partition: start, recover, truncate, delete, refuse, or unknown.

    Args:
        view: the log directory.
        surveyed: its partitions.
        going: folder -> what retention by time deletes.
        root: what was seen in the root.
        version: of the broker that is to start, None if not known.
    """
    refused = refusal(view, surveyed, root.metadata, version)
    reserved = reservations(view, version)
    emptied = {f"{line.topic}-{line.partition}": line for line in root.log_starts_past_end()}
    for each in surveyed:
        if refused:
            yield refusal_line(each, refused)
            continue
        line = _line(view, each)
        for more in (forgotten_epochs(view, each), reserved):
            line = replace(line, text=f"{line.text}; {more}") if more else line
        if each.partition.folder in emptied:
            yield _emptied(line, emptied[each.partition.folder])
            continue
        deleted = going.get(each.partition.folder)
        yield _with_deletions(line, deleted) if deleted and deleted.expected else line


def _emptied(line: ForecastLine, start: LineDecision) -> ForecastLine:
    """Of a partition whose log start is past its log end: ``deleteSegmentsIfLogStartGreaterThanLogEnd``."""
    text = f"log start {start.offset} is past the log end {start.end}: every segment is deleted"
    return replace(line, expected="delete", text=f"{line.text}; {text}")


def _with_deletions(line: ForecastLine, going: Deletions) -> ForecastLine:
    """The line of a partition of which retention deletes segments; a refusal or a cut log says more than that."""
    names = ", ".join(f"{base:020d}" for base in going.expected)
    text = f"{line.text}; then retention deletes {len(going.expected)} segments: {names}"
    if going.too_early:
        text += f"; {len(going.too_early)} of them before their time"
    expected = "delete" if line.expected in {"start", "recover"} else line.expected
    return ForecastLine(partition=line.partition, expected=expected, text=text, bytes_read=line.bytes_read)


def refusal_line(each: Surveyed, why: str) -> ForecastLine:
    """The line of a partition that is not even loaded."""
    return ForecastLine(
        partition=each.partition.folder, expected="refuse", text=f"the broker does not start: {why}"
    )


def _line(view: LogDir, each: Surveyed) -> ForecastLine:
    partition = each.partition
    if partition.unreadable:
        return ForecastLine(partition=partition.folder, expected="unknown", text=partition.unreadable)
    if any(leftover.kind == "swap" for leftover in partition.leftovers):
        return ForecastLine(
            partition=partition.folder, expected="unknown", text="a .swap file would be completed first"
        )
    if view.clean_shutdown:
        return ForecastLine(
            partition=partition.folder, expected="start", text="cleanly stopped: its logs are not read"
        )
    point = view.recovery_point.offsets.get((partition.topic, partition.number), 0)
    recovered = _recovered_bases(each, point)
    damaged = [facts for facts in each.segments if facts.base_offset in recovered and facts.summary.damage]
    read = sum(segment.log.size for segment in partition.segments if segment.base_offset in recovered)
    if damaged:
        first = damaged[0]
        where = f"{first.base_offset:020d}.log at position {first.summary.valid_bytes}"
        text = f"recovery cuts {where} and drops what follows"
        return ForecastLine(partition=partition.folder, expected="truncate", text=text, bytes_read=read)
    text = f"not cleanly stopped: {len(recovered)} segments from the recovery point {point} on are read"
    return ForecastLine(partition=partition.folder, expected="recover", text=text, bytes_read=read)


def _recovered_bases(each: Surveyed, point: int) -> set[int]:
    """Base offsets of the segments that hold offsets at or above the recovery point."""
    bases = [segment.base_offset for segment in each.partition.segments]
    ends = [*bases[1:], 2**63 - 1]
    return {base for base, end in zip(bases, ends, strict=True) if end > point}
