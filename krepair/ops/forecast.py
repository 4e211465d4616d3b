"""What the next broker start would do to each partition, as far as this version can tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from krepair.checks.retention import Deletions
from krepair.logdir.values import LogDir
from krepair.ops.reports import ForecastLine
from krepair.ops.survey import Surveyed


def forecast(
    view: LogDir, surveyed: Sequence[Surveyed], going: Mapping[str, Deletions]
) -> Iterator[ForecastLine]:
    """One line per partition: start, recover, truncate, delete, refuse, or unknown.

    Args:
        view: the log directory.
        surveyed: its partitions.
        going: folder -> what retention by time deletes.
    """
    refusal = _refusal(view)
    for each in surveyed:
        if refusal:
            yield refusal_line(each, refusal)
            continue
        line = _line(view, each)
        deleted = going.get(each.partition.folder)
        yield _with_deletions(line, deleted) if deleted and deleted.expected else line


def _with_deletions(line: ForecastLine, going: Deletions) -> ForecastLine:
    """The line of a partition of which retention deletes segments; a refusal or a cut log says more than that."""
    names = ", ".join(f"{base:020d}" for base in going.expected)
    text = f"{line.text}; then retention deletes {len(going.expected)} segments: {names}"
    if going.too_early:
        text += f"; {len(going.too_early)} of them before their time"
    expected = "delete" if line.expected in {"start", "recover"} else line.expected
    return ForecastLine(partition=line.partition, expected=expected, text=text, bytes_read=line.bytes_read)


def _refusal(view: LogDir) -> str:
    """Why no broker starts on this directory, or empty."""
    folder = next((entry.name for entry in view.foreign if entry.kind == "folder"), "")
    if folder:
        return f"folder {folder} in the root is no partition"
    for checkpoint in (view.recovery_point, view.log_start, view.high_watermark, view.cleaner):
        if checkpoint.file is not None and not checkpoint.broker_reads:
            return f"{checkpoint.file.name} cannot be read by a broker"
    return ""


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
