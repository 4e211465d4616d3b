"""Partitions that krepair never changes, and partitions whose leftovers must be handled first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from krepair.fixes.analysis import PartitionAnalysis, ResultKey
from krepair.formats.filenames import METADATA_TOPIC
from krepair.logdir.config import TopicSettings
from krepair.logdir.values import Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.rules.model import Skipped

_BESIDE: ResultKey[PartitionAnalysis] = ResultKey("beside leftovers")
LEFTOVERS_FIRST: Final = Next.of("plan", LOG_DIR, "--fix", "leftovers", out=PLAN)


def waits_for_leftovers_alone(partition: Partition, settings: TopicSettings) -> bool:
    """Return whether a swap is the only reason why a partition's files are not changed.

    A start deletes a ``.cleaned`` and reads the other files as they are, so a ``.cleaned`` alone is no obstacle.
    """
    return bool(partition.waiting_swap) and not _why_never_touched(partition, settings)


def why_untouched(partition: Partition, settings: TopicSettings) -> str:
    """Return why a partition's files are not changed, or empty."""
    never = _why_never_touched(partition, settings)
    if never or not partition.waiting_swap:
        return never
    return (
        f"{partition.waiting_swap} waits to be finished by a broker; first --fix leftovers, then plan again"
    )


def _why_never_touched(partition: Partition, settings: TopicSettings) -> str:
    if partition.unreadable:
        return partition.unreadable
    if partition.topic == METADATA_TOPIC:
        return f"{METADATA_TOPIC} is the KRaft metadata log"
    if settings.tiered:
        return settings.tiered
    for special in partition.special_logs:
        return f"{special.name}: a regular file was expected, found a {special.kind}"
    return ""


def analyses_apart(analyses: Iterable[PartitionAnalysis]) -> list[PartitionAnalysis]:
    """Return a separate analysis of each partition whose only obstacle is its leftovers.

    No part of that analysis enters a plan. The analysis only shows whether the plan skips a needed repair.
    """
    waiting = []
    for analysis in analyses:
        partition, settings = analysis.partition, analysis.settings
        if waits_for_leftovers_alone(partition, settings):
            separate = analysis_apart(analysis) or PartitionAnalysis(
                partition, settings, analysis.high_watermark
            )
            analysis.put(_BESIDE, separate)
            waiting.append(separate)
    return waiting


def analysis_apart(analysis: PartitionAnalysis) -> PartitionAnalysis | None:
    """Return the separate analysis of a partition with leftovers, or None if there is none."""
    return analysis.result(_BESIDE)


def left_for_leftovers(partition: Partition, repairs: str) -> Skipped:
    """Return the reason for skipping a partition that needs a repair, but has leftovers.

    Args:
        repairs: files that would be repaired, such as ``indexes``.
    """
    first = f"first --fix leftovers, then plan its {repairs} again"
    why = f"{partition.waiting_swap}: a broker left it, and one plan cannot repair both: {first}"
    return Skipped("leftovers", why, LEFTOVERS_FIRST, damaged=True)


def cannot_compact(partition: Partition, settings: TopicSettings) -> Skipped | None:
    """Return why a partition is not compacted, whatever its log holds; None if it may be."""
    reasons = (
        (
            partition.topic == METADATA_TOPIC,
            "refused-topic",
            f"{METADATA_TOPIC} is the KRaft metadata log; krepair never changes it",
        ),
        (
            bool(settings.tiered),
            "tiered",
            f"{settings.tiered}; krepair never changes it",
        ),
        (bool(partition.unreadable), "unreadable", partition.unreadable),
        (
            not settings.compacts,
            "not-compacted",
            "cleanup.policy has no compact; only compacted topics are cleaned",
        ),
    )
    for applies, code, text in reasons:
        if applies:
            return Skipped(code, text, damaged=code == "unreadable")
    odd = _odd_file(partition)
    if odd is None and not partition.segments:
        return Skipped("empty", "the folder has no .log file")
    return odd


def _odd_file(partition: Partition) -> Skipped | None:
    """Return the reason for skipping a partition with leftovers or with special files in place of its own, or None."""
    for leftover in partition.leftovers:
        if leftover.kind != "foreign":
            advice = "finish or remove it first (--fix leftovers), then plan again"
            why = f"{leftover.file.name}: a broker left it; {advice}"
            return Skipped("leftovers", why, LEFTOVERS_FIRST, damaged=True)
    special = partition.special
    if special is None:
        return None
    text = f"{special.name}: a regular file was expected, found a {special.kind}"
    return Skipped("special-file", text, damaged=True)
