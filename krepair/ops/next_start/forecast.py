"""What the next broker start would do to each partition, as far as this version can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.checks.recovery_time import duration_text, recovery_seconds
from krepair.checks.retention import FIRST_WITHOUT_SANITY_CHECK, Deletions
from krepair.formats.filenames import LOG_START_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.ops.findings.identity import Metadata
from krepair.ops.findings.marked import marked_forecast
from krepair.ops.fixes.checkpoints import SeenCheckpoint
from krepair.ops.fixes.damage import cut_by_recovery, recovered_bases, unmapped
from krepair.ops.fixes.leftovers import swap_forecast
from krepair.ops.fixes.snapshots import snapshot_forecast
from krepair.ops.next_start.refusal import Version, forgotten_epochs, refusal, reservations
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
        line = _line(view, each, version)
        recovered_from = line.segments[0] if line.segments and not view.clean_shutdown else -1
        forgotten = snapshot_forecast(each, version, recovered_from)
        for more in (forgotten_epochs(view, each), forgotten, reserved):
            line = replace(line, text=f"{line.text}; {more}") if more else line
        if each.partition.folder in emptied:
            yield _emptied(line, emptied[each.partition.folder])
            continue
        deleted = going.get(each.partition.folder)
        yield _with_deletions(line, deleted) if deleted and deleted.expected else line
    if not refused:
        for folder, expected, text in marked_forecast(view, version):
            yield ForecastLine(partition=folder, expected=expected, text=text)


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
    return replace(line, expected=expected, text=text)


def refusal_line(each: Surveyed, why: str) -> ForecastLine:
    """The line of a partition that is not even loaded."""
    return ForecastLine(
        partition=each.partition.folder, expected="refuse", text=f"the broker does not start: {why}"
    )


def _line(view: LogDir, each: Surveyed, version: Version) -> ForecastLine:
    partition = each.partition
    if partition.unreadable:
        return ForecastLine(partition=partition.folder, expected="unknown", text=partition.unreadable)
    swaps = swap_forecast(each)
    if swaps and each.leftovers is not None and each.leftovers.left:
        return ForecastLine(partition=partition.folder, expected="unknown", text=swaps)
    line = _loaded(view, each, version)
    return replace(line, text=f"{swaps}; then: {line.text}") if swaps else line


def _loaded(view: LogDir, each: Surveyed, version: Version) -> ForecastLine:
    """The line of a partition once its swaps are finished."""
    partition = each.partition
    if not partition.segments:
        text = "no .log: the broker begins an empty one"
        return ForecastLine(partition=partition.folder, expected="start", text=text)
    if view.clean_shutdown:
        return _after_clean_stop(view, each, version)
    point = view.recovery_point.offsets.get((partition.topic, partition.number), 0)
    bases = recovered_bases(each, point)
    said = f"not cleanly stopped: {len(bases)} segments from the recovery point {point} on are read"
    return _recovered(view, each, bases, said)


def _after_clean_stop(view: LogDir, each: Surveyed, version: Version) -> ForecastLine:
    """Nothing is read, but for segments whose index is missing, from 2.3 on (NoSuchFileException in loadSegmentFiles).

    Up to 2.2 an index that is missing is made anew and stays empty.
    """
    folder = each.partition.folder
    rebuilds = version is None or version >= FIRST_WITHOUT_SANITY_CHECK
    bases = [segment.base_offset for segment in each.partition.segments if rebuilds and segment.index is None]
    if not bases:
        return ForecastLine(partition=folder, expected="start", text="cleanly stopped: its logs are not read")
    said = f"cleanly stopped, but {len(bases)} segments have no .index: these are read"
    return _recovered(view, each, bases, said)


def _recovered(view: LogDir, each: Surveyed, bases: Sequence[int], said: str) -> ForecastLine:
    """Of a partition of which segments are read, and cut where they are damaged."""
    chosen = set(bases)
    facts = [one for one in each.segments if one.base_offset in chosen]
    read = sum(segment.log.size for segment in each.partition.segments if segment.base_offset in chosen)
    seconds = recovery_seconds(read, sum(one.summary.batches for one in facts))
    line = ForecastLine(
        partition=each.partition.folder,
        expected="recover",
        text=f"{said}, {duration_text(seconds)}",
        bytes_read=read,
        segments=tuple(bases),
        seconds=round(seconds, 3),
    )
    damaged = next((one for one in facts if one.summary.damage), None)
    if damaged is None:
        return line
    if unmapped(each):
        where = f"{damaged.base_offset:020d}.log at position {damaged.summary.valid_bytes}"
        return replace(line, expected="truncate", text=f"recovery cuts {where} and drops what follows")
    text = cut_by_recovery(each, chosen, alone=view.clean_shutdown)
    return replace(line, expected="truncate", text=text) if text else line
