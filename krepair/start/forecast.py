"""Forecast of what the next broker start does to each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from krepair.checks.recovery_time import recovery_seconds, recovery_text
from krepair.checks.retention import Deletions
from krepair.fixes.analysis import PartitionAnalysis, next_start_of
from krepair.fixes.leftovers import LEFTOVERS_RESULT, swap_forecast
from krepair.fixes.snapshots import snapshot_forecast
from krepair.formats.broker_version import Version, version_text
from krepair.formats.filenames import METADATA_TOPIC, offset_name
from krepair.formats.words import count_text
from krepair.loading.next_start import LoadedLog
from krepair.logdir.values import LogDir
from krepair.rules.checkpoints import EntryDecision
from krepair.start.findings import Starting
from krepair.start.folders import marked_forecast
from krepair.start.line import ForecastLine
from krepair.start.loaded import outcome_text, simulated_of, why_unknown
from krepair.start.refusal import RootFacts, forgotten_epochs, reservations

_NOT_READ = "cleanly stopped: its logs are not read"


def forecast(
    view: LogDir,
    analyses: Sequence[PartitionAnalysis],
    deletions: Mapping[str, Deletions],
    root: RootFacts,
    version: Version,
    starting: Starting,
) -> Iterator[ForecastLine]:
    """Yield one forecast line per partition: start, recover, truncate, delete, stray, refuse or unknown.

    Args:
        analyses: partitions of the log directory.
        deletions: folder -> segments that time-based retention deletes.
        root: facts about the root of the log directory.
        version: version of the broker that starts, None if not known.
        starting: reasons that end the start or put folders aside.
    """
    reserved = reservations(view, version)
    emptied = {f"{line.topic}-{line.partition}": line for line in root.log_starts_past_end()}
    for analysis in analyses:
        folder = analysis.partition.folder
        if starting.refused:
            yield refusal_line(folder, starting.refused)
            continue
        if starting.not_known:
            yield unknown_line(folder, starting.not_known)
            continue
        if analysis.partition.topic == METADATA_TOPIC:
            yield _of_metadata(folder, cuts=starting.cuts_metadata)
            continue
        aside = starting.aside.get(folder) or starting.all_aside
        if aside:
            yield aside_line(folder, aside, deletes=starting.deletes)
            continue
        # From here on the start reaches the partition's log; whatever ends it, or moves the folder, comes before.
        line = _line_of(view, analysis, version)
        forgotten = snapshot_forecast(analysis, next_start_of(analysis).of(version))
        for more in (forgotten_epochs(view, analysis), forgotten, reserved):
            line = replace(line, text=f"{line.text}; {more}") if more else line
        if folder in emptied and not simulated_of(analysis):
            yield _emptied(line, emptied[folder])
            continue
        due = deletions.get(folder)
        yield _with_deletions(line, due) if due and due.expected else line
    if not starting.refused and not starting.not_known:
        for folder, expected, text in marked_forecast(view, version):
            yield ForecastLine(partition=folder, expected=expected, text=text)


def _of_metadata(folder: str, *, cuts: bool) -> ForecastLine:
    if cuts:
        explanation = (
            "recovery, which a node of KRaft does at every start, cuts it at its first damaged batch"
        )
        return ForecastLine(partition=folder, expected="truncate", text=explanation)
    explanation = "a node of KRaft recovers it at every start; its records are not replayed here"
    return ForecastLine(partition=folder, expected="start", text=explanation)


def _emptied(line: ForecastLine, start: EntryDecision) -> ForecastLine:
    """Return the line of a partition whose log start is past its log end: every segment is deleted.

    Source: ``deleteSegmentsIfLogStartGreaterThanLogEnd``.
    """
    text = f"log start {start.offset} is past the log end {start.end}: every segment is deleted"
    emptied = ((start.offset, 0),)
    return replace(
        line, expected="delete", text=f"{line.text}; {text}", log_bytes=emptied, log_end=start.offset
    )


def _with_deletions(line: ForecastLine, deletions: Deletions) -> ForecastLine:
    """Add the segments that retention deletes to a line; a refusal or truncation keeps its own keyword."""
    if deletions.if_delete:
        text = f"{line.text}; its cleanup.policy is not known, so the forecast does not include retention"
        return replace(line, text=text)
    names = ", ".join(offset_name(base) for base in deletions.expected)
    text = f"{line.text}; then retention deletes {count_text(len(deletions.expected), 'segment')}: {names}"
    if deletions.too_early:
        text += f"; {len(deletions.too_early)} of them before their time"
    expected = "delete" if line.expected in {"start", "recover"} else line.expected
    return replace(line, expected=expected, text=text)


def with_another(lines: Sequence[ForecastLine], log_dir: str, other: Starting) -> tuple[ForecastLine, ...]:
    """Return the lines of a directory, corrected for another directory of the same broker.

    Args:
        lines: forecast for the directory alone.
        log_dir: path of the other directory.
        other: outcome of the start in the other directory, which may end the broker or put all partitions aside.
    """
    line: Callable[[str, str], ForecastLine]
    if other.ends_broker:
        line, text = refusal_line, f"{other.ends_broker} (in {log_dir})"
    elif other.all_aside:
        line = partial(aside_line, deletes=other.deletes)
        text = f"{other.all_aside} (in {log_dir})"
    elif other.not_known:
        line, text = unknown_line, f"{other.not_known} (in {log_dir})"
    else:
        return tuple(lines)
    return tuple(
        line_now if line_now.expected in {"refuse", "stray"} else line(line_now.partition, text)
        for line_now in lines
    )


def refusal_line(folder: str, why: str) -> ForecastLine:
    """Return the line of a partition that is never loaded because the broker does not start."""
    return ForecastLine(partition=folder, expected="refuse", text=f"the broker does not start: {why}")


def unknown_line(folder: str, why: str) -> ForecastLine:
    """Return the line of a partition for which the start cannot be predicted."""
    return ForecastLine(partition=folder, expected="unknown", text=f"not known: {why}")


def aside_line(folder: str, why: str, *, deletes: bool = False) -> ForecastLine:
    """Return the line of a partition whose folder is renamed to -stray, or deleted by KRaft brokers before 3.7."""
    if deletes:
        return ForecastLine(partition=folder, expected="delete", text=f"deleted by the broker: {why}")
    return ForecastLine(partition=folder, expected="stray", text=f"put aside (-stray): {why}")


def _line_of(view: LogDir, analysis: PartitionAnalysis, version: Version) -> ForecastLine:
    swaps = swap_forecast(analysis)
    leftovers = analysis.result(LEFTOVERS_RESULT)
    pending = leftovers is not None and bool(leftovers.skip_reason) and not simulated_of(analysis)
    reason = why_unknown(analysis) or (swaps if pending else "")
    if reason:
        return ForecastLine(partition=analysis.partition.folder, expected="unknown", text=reason)
    line = _line_after_load(view, analysis, version)
    return replace(line, text=f"{swaps}; then: {line.text}") if swaps else line


def _line_after_load(view: LogDir, analysis: PartitionAnalysis, version: Version) -> ForecastLine:
    """Return the line of a partition once the broker has finished its interrupted swaps."""
    partition = analysis.partition
    if not partition.segments and not simulated_of(analysis):
        text = "no .log: the broker begins an empty one"
        return ForecastLine(partition=partition.folder, expected="start", text=text)
    if simulated_of(analysis) and version is None:
        return _by_version(view, analysis)
    outcome = next_start_of(analysis).of(version)
    if outcome is not None and simulated_of(analysis):
        return _simulated(view, analysis, outcome)
    if view.clean_shutdown:
        return _after_clean_stop(analysis)
    point = view.recovery_point.offsets.get(partition.key, 0)
    outcome = outcome or LoadedLog()
    since = f"from the recovery point {point} on"
    read = count_text(len(outcome.recovered), f"segment {since} is read", f"segments {since} are read")
    return _recovered(analysis, outcome, f"not cleanly stopped: {read}")


def _after_clean_stop(analysis: PartitionAnalysis) -> ForecastLine:
    """Return the line of a sound partition after a clean stop: a start reads none of its segments."""
    return ForecastLine(partition=analysis.partition.folder, expected="start", text=_NOT_READ)


def _recovered(analysis: PartitionAnalysis, outcome: LoadedLog, cause: str) -> ForecastLine:
    """Return the line of a partition with segments that recovery reads."""
    recovered = frozenset(outcome.recovered)
    batches = sum(facts.summary.batches for facts in analysis.segments if facts.base_offset in recovered)
    seconds = recovery_seconds(outcome.bytes_read, batches)
    return ForecastLine(
        partition=analysis.partition.folder,
        expected="recover",
        text=f"{cause}, {recovery_text(seconds)}",
        bytes_read=outcome.bytes_read,
        segments=outcome.recovered,
        seconds=round(seconds, 3),
    )


def _simulated(view: LogDir, analysis: PartitionAnalysis, outcome: LoadedLog) -> ForecastLine:
    """Return the line of a partition whose start was simulated for one version."""
    if outcome.failure:
        return refusal_line(
            analysis.partition.folder, f"{analysis.partition.folder}/{outcome.file}: {outcome.failure}"
        )
    if not outcome.recovered:
        line = _after_clean_stop(analysis)
    elif view.clean_shutdown:
        read = count_text(len(outcome.recovered), "segment is read", "segments are read")
        cause = f"cleanly stopped, but {read}: no .index, or one that contradicts itself"
        line = _recovered(analysis, outcome, cause)
    else:
        point = view.recovery_point.offsets.get(analysis.partition.key, 0)
        many = count_text(len(outcome.recovered), "segment")
        cause = f"not cleanly stopped: reads {many}, the recovery point is {point}"
        line = _recovered(analysis, outcome, cause)
    cut, dropped = outcome.cut, outcome.dropped
    text = outcome_text(analysis, outcome)
    text = f"{line.text}; {text}" if text else line.text
    line = replace(line, text=text, log_bytes=outcome.segments, log_end=outcome.log_end)
    if dropped and not cut:
        return replace(line, expected="delete")
    return replace(line, expected="truncate") if cut else line


def _by_version(view: LogDir, analysis: PartitionAnalysis) -> ForecastLine:
    """Return the newest version's line when the version is unknown, with the versions whose outcome differs."""
    *earlier, (newest, outcome) = sorted(simulated_of(analysis).items())
    line = _simulated(view, analysis, outcome)
    others = []
    for version, loaded in earlier:
        other = _simulated(view, analysis, loaded)
        if (other.expected, other.log_bytes, other.log_end) != (line.expected, line.log_bytes, line.log_end):
            others.append(f"{version_text(version)}: {other.expected}: {other.text}")
    if not others:
        return line
    text = f"this depends on the version; {version_text(newest)}: {line.text}; {'; '.join(others)}"
    return replace(line, text=text)
