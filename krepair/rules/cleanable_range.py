"""Cleanable range of a log, which compaction may change, and delete horizon, up to which markers may be removed.

Source: LogCleanerManager.cleanableOffsets and Cleaner.doClean (2.2.1), KAFKA-13194 (high watermark).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from krepair.formats.filenames import log_name
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import time_text
from krepair.next_command import LOG_DIR, Next
from krepair.rules.model import CleanableRange, MarkerPolicy, SegmentFacts, Skipped
from krepair.rules.producers import ProducerStates
from krepair.rules.reasons import LAG


def find_cleanable_range(
    segments: Sequence[SegmentFacts], scan: ProducerStates, broker: ProducerStates, policy: MarkerPolicy
) -> CleanableRange:
    """Find the segments that may be compacted.

    The cleanable range never contains the active segment. It ends at the base offset of the segment that holds the
    lowest of these offsets: the first offset of an open transaction; the high watermark; the first offset of a
    completed transaction whose marker is not below the high watermark; the first record younger than
    ``min.compaction.lag.ms``.
    """
    limits = [
        (
            segments[-1].base_offset,
            "active segment",
            "the active segment begins there",
        )
    ]
    # Both states count: the snapshot may know an open transaction whose batches are missing from the log, and the log
    # may have one that began after the snapshot.
    for states in (scan, broker):
        offset, producer_id = states.first_open()
        if offset != INT64_MAX:
            text = f"producer {producer_id} has a transaction open since offset {offset}"
            limits.append((offset, "open transaction", text))
    # A new leader may still truncate records at or above the high watermark. If such a record superseded an older
    # record, compaction would have removed the older record, and both would be lost (KAFKA-13194).
    limits.append((policy.high_watermark, "high watermark", f"the high watermark is {policy.high_watermark}"))
    if scan.min_unreplicated != INT64_MAX:
        since = scan.min_unreplicated
        text = (
            f"a transaction since offset {since} ends at or above the high watermark {policy.high_watermark}"
        )
        limits.append((scan.min_unreplicated, "high watermark", text))
    if policy.min_compaction_lag_ms > 0:
        limits.extend(_lag_limit(segments, policy))
    offset, limit, text = min(limits, key=lambda each: each[0])
    return _range_up_to(segments, offset, limit, text)


def _lag_limit(segments: Sequence[SegmentFacts], policy: MarkerPolicy) -> list[tuple[int, str, str]]:
    """Limit the range at the first segment whose largest timestamp is younger than the lag, if there is one.

    Source: LogCleanerManager.cleanableOffsets (2.2.1).
    """
    youngest = policy.now_ms - policy.min_compaction_lag_ms
    for segment in segments:
        summary = segment.summary
        largest = summary.max_timestamp if summary.max_timestamp >= 0 else segment.mtime_ms
        if largest > youngest:
            holds = (
                f"the batch that ends at offset {summary.offset_of_max} has a record of {time_text(largest)}"
            )
            if summary.max_timestamp < 0:
                holds = f"it has no timestamps, and its file is of {time_text(largest)}"
            text = (
                f"the cleaner leaves {log_name(segment.base_offset)} and what follows alone until "
                f"min.compaction.lag.ms={policy.min_compaction_lag_ms} is over: {holds}"
            )
            return [(segment.base_offset, LAG, text)]
    return []


def _range_up_to(segments: Sequence[SegmentFacts], offset: int, limit: str, text: str) -> CleanableRange:
    count = 0
    for place in range(len(segments) - 1):
        if segments[place + 1].base_offset > offset:
            break
        count += 1
    end = segments[count].base_offset
    return CleanableRange(segments[0].base_offset, end, count, limit, text)


NONE = "none"
"""Choice that keeps all markers and tombstones, because nothing is known of other replicas."""


def horizon_choices(
    segments: Sequence[SegmentFacts], cleanable: CleanableRange, policy: MarkerPolicy
) -> list[tuple[str, int, bool]]:
    """List all choices of the delete horizon: (name, epoch ms, True if the policy uses it)."""
    in_range = segments[: cleanable.segments]
    filled = [segment for segment in in_range if segment.summary.batches] or list(in_range)
    newest = filled[-1].mtime_ms - policy.delete_retention_ms if filled else 0
    # the mtime of a segment may lie in the future
    newest = min(newest, policy.now_ms - policy.delete_retention_ms)
    below = [segment for segment in segments if segment.base_offset < policy.first_dirty_offset]
    # From 3.1 on the broker's next pass only writes delete horizons into batches (KIP-534); it removes none of them.
    next_pass = below[-1].mtime_ms - policy.delete_retention_ms if below and not policy.writes_horizons else 0
    next_pass = min(next_pass, policy.now_ms - policy.delete_retention_ms)
    choices = [(NONE, 0), ("next-pass", next_pass), ("newest", newest)]
    if policy.horizon not in {"next-pass", "newest"}:
        choices.append(("TIME", min(int(policy.horizon), policy.latest_horizon_ms)))
    choices.append(("unlimited", INT64_MAX))
    wanted = policy.horizon if policy.horizon in {"next-pass", "newest"} else "TIME"
    wanted = NONE if policy.keeps_all else wanted
    return [(name, max(horizon, 0), name == wanted) for name, horizon in choices]


def chosen_horizon(segments: Sequence[SegmentFacts], cleanable: CleanableRange, policy: MarkerPolicy) -> int:
    """Return the delete horizon that the policy uses, in epoch milliseconds."""
    return next(horizon for _, horizon, chosen in horizon_choices(segments, cleanable, policy) if chosen)


def first_problem(segments: Sequence[SegmentFacts]) -> Skipped | None:
    """Return the reason for skipping the partition, or None: an inactive segment is damaged, or two overlap."""
    for segment in segments:
        summary = segment.summary
        where = f"{log_name(segment.base_offset)}, position {summary.valid_bytes}"
        if segment is not segments[-1] and not summary.is_whole:
            return Skipped(
                "damage", f"{where}: {summary.damage_text}", Next.of("check", LOG_DIR), damaged=True
            )
    # If overlapping segments became one, the offsets in the new log would decrease.
    for segment, after in pairwise(segments):
        if segment.end_offset > after.base_offset:
            text = (
                f"{log_name(segment.base_offset)}: a last offset below {after.base_offset}, where the next segment "
                f"begins, was expected, found {segment.summary.last_offset}"
            )
            return Skipped("overlap", text, Next.of("check", LOG_DIR), damaged=True)
    return None
