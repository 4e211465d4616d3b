"""What the next broker start would do to each partition, as far as this version can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.checks.recovery_time import recovery_seconds, recovery_text
from krepair.checks.retention import Deletions
from krepair.fixes.checkpoints import SeenCheckpoint
from krepair.fixes.damage import recovered_bases
from krepair.fixes.leftovers import swap_forecast
from krepair.fixes.snapshots import snapshot_forecast
from krepair.fixes.survey import Surveyed
from krepair.formats.filenames import LOG_START_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.ops.findings.identity import Metadata
from krepair.ops.findings.marked import marked_forecast
from krepair.ops.next_start.refusal import Version, forgotten_epochs, refusal, reservations
from krepair.ops.next_start.rehearsal import cut_segments, outcome_for, outcome_text
from krepair.ops.reports import ForecastLine
from krepair.pipeline.rehearse import Rehearsed
from krepair.rules.checkpoints import LineDecision

_NOT_READ = "cleanly stopped: its logs are not read"


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
        if each.partition.folder in emptied and not each.rehearsed:
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
    emptied = ((start.offset, 0),)
    return replace(
        line, expected="delete", text=f"{line.text}; {text}", log_bytes=emptied, log_end=start.offset
    )


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
    if each.rehearsed and version is None:
        return _by_version(view, each)
    outcome = outcome_for(each, version)
    if outcome is not None:
        return _rehearsed(view, each, outcome)
    if view.clean_shutdown:
        return _after_clean_stop(each)
    point = view.recovery_point.offsets.get((partition.topic, partition.number), 0)
    bases = recovered_bases(each, point)
    said = f"not cleanly stopped: {len(bases)} segments from the recovery point {point} on are read"
    return _recovered(each, bases, said)


def _after_clean_stop(each: Surveyed) -> ForecastLine:
    """Nothing is read of a partition in which nothing is wrong."""
    return ForecastLine(partition=each.partition.folder, expected="start", text=_NOT_READ)


def _recovered(each: Surveyed, bases: Sequence[int], said: str) -> ForecastLine:
    """Of a partition of which segments are read."""
    chosen = set(bases)
    facts = [one for one in each.segments if one.base_offset in chosen]
    read = sum(segment.log.size for segment in each.partition.segments if segment.base_offset in chosen)
    seconds = recovery_seconds(read, sum(one.summary.batches for one in facts))
    return ForecastLine(
        partition=each.partition.folder,
        expected="recover",
        text=f"{said}, {recovery_text(seconds)}",
        bytes_read=read,
        segments=tuple(bases),
        seconds=round(seconds, 3),
    )


def _rehearsed(view: LogDir, each: Surveyed, outcome: Rehearsed) -> ForecastLine:
    """Of a partition whose start was played through for one version."""
    if outcome.failure:
        return refusal_line(each, f"{each.partition.folder}/{outcome.file}: {outcome.failure}")
    if not outcome.recovered:
        line = ForecastLine(partition=each.partition.folder, expected="start", text=_NOT_READ)
    elif view.clean_shutdown:
        reasons = "have no .index, or one that contradicts itself: these are read"
        said = f"cleanly stopped, but {len(outcome.recovered)} segments {reasons}"
        line = _recovered(each, outcome.recovered, said)
    else:
        point = view.recovery_point.offsets.get((each.partition.topic, each.partition.number), 0)
        said = (
            f"not cleanly stopped: {len(outcome.recovered)} segments are read, the recovery point is {point}"
        )
        line = _recovered(each, outcome.recovered, said)
    cut, gone = cut_segments(each, outcome)
    text = outcome_text(each, outcome)
    text = f"{line.text}; {text}" if text else line.text
    line = replace(line, text=text, log_bytes=outcome.sizes, log_end=outcome.log_end)
    if gone and not cut:
        return replace(line, expected="delete")
    return replace(line, expected="truncate") if cut else line


def _by_version(view: LogDir, each: Surveyed) -> ForecastLine:
    """Of a partition whose start was played through, and the version is not known: the newest's, and who differs."""
    outcomes = [each.rehearsed[one] for one in sorted(each.rehearsed)]
    line = _rehearsed(view, each, outcomes[-1])
    others = []
    for outcome in outcomes[:-1]:
        other = _rehearsed(view, each, outcome)
        if (other.expected, other.log_bytes) != (line.expected, line.log_bytes):
            others.append(f"{_name_of(outcome.version)}: {other.expected}: {other.text}")
    if not others:
        return line
    newest = _name_of(outcomes[-1].version)
    return replace(line, text=f"this depends on the version; {newest}: {line.text}; {'; '.join(others)}")


def _name_of(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
