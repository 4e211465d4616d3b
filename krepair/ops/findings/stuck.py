"""What a partition waits for: transactions that nobody ends, and bytes that the cleaner never gets past."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from krepair.checks.catalogue import Finding
from krepair.kernels import classes as c
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.values import LogDir
from krepair.ops.next_start.refusal import Version
from krepair.ops.survey import Surveyed
from krepair.rules.model import SegmentFacts
from krepair.rules.producers import all_ids, states_by_scan

COORDINATOR_SLACK_MS: Final = 5 * 60 * 1000
"""Beyond ``transaction.max.timeout.ms`` kafka-transactions.sh find-hanging waits as long (KIP-664)."""

READS_LARGE_BATCHES_SINCE: Final = (2, 0, 0)
"""KAFKA-6834; before, a batch above ``max.message.bytes`` killed the cleaner."""

SPLITS_OVERFLOWED_SEGMENTS_SINCE: Final = (2, 0, 0)
"""KAFKA-6264."""

_UNSTEPPABLE: Final = frozenset({c.D_LENGTH, c.D_PAST_END, c.D_ZEROS, c.D_TORN, c.D_OLD_LENGTH})
"""Damage at which the cleaner finds no next batch; of a wrong CRC alone it takes no notice."""

_SHOWN_AT_MOST: Final = 3


def newest_time_ms(surveyed: Sequence[Surveyed], now_ms: int) -> int:
    """The largest timestamp of the log directory that is not in the future: when its broker last wrote, -1 if none."""
    stamps = (facts.summary.max_timestamp for each in surveyed for facts in each.segments)
    return max((stamp for stamp in stamps if stamp <= now_ms), default=-1)


def transaction_findings(each: Surveyed, newest_ms: int, most_ms: int) -> Iterator[Finding]:
    """KR103: transactions that were open for longer than any coordinator allows when the broker last wrote.

    Args:
        each: a partition; one that was not read whole is not judged, nor one with damage before its tail, behind
            which a marker may lie.
        newest_ms: when its broker last wrote.
        most_ms: ``transaction.max.timeout.ms``.
    """
    known = each.segments and len(each.segments) == len(each.partition.segments)
    if not known or any(not facts.summary.is_whole for facts in each.segments[:-1]):
        return
    states = states_by_scan(each.segments, all_ids(each.segments, ()), INT64_MAX)
    ages = newest_ms - states.timestamp
    hanging = np.flatnonzero(
        states.known & (states.open_first >= 0) & (ages > most_ms + COORDINATOR_SLACK_MS)
    )
    if len(hanging) == 0:
        return
    order = hanging[np.argsort(states.open_first[hanging], kind="stable")]
    shown = "; ".join(
        f"producer {states.ids[place]}, epoch {states.epoch[place]}, open since offset {states.open_first[place]}, "
        f"silent for {ages[place] // 60_000} minutes"
        for place in order[:_SHOWN_AT_MOST].tolist()
    )
    first = int(states.open_first[order[0]])
    waiting = sum(
        segment.log.size
        for segment, facts in zip(each.partition.segments, each.segments, strict=True)
        if facts.summary.last_offset >= first
    )
    yield Finding(
        rule="KR103",
        partition=each.partition.folder,
        evidence=f"{len(hanging)} transactions without a marker, by the times of their batches: {shown}",
        bytes=waiting,
    )


def cleaner_findings(view: LogDir, each: Surveyed, version: Version) -> Iterator[Finding]:
    """KR105: what of a compacted partition ends a pass of the cleaner each time."""
    if not each.settings.compacts:
        return
    first_dirty = view.cleaner.offsets.get((each.partition.topic, each.partition.number), -1)
    for facts in each.segments[:-1]:
        position, text = _stops_cleaner(each, facts, version)
        if text:
            where = (
                "in what it cleans next" if facts.summary.last_offset >= first_dirty else "in its clean part"
            )
            yield Finding(
                rule="KR105",
                partition=each.partition.folder,
                file=f"{facts.base_offset:020d}.log",
                position=position,
                evidence=f"{text}; {where}",
            )


def _stops_cleaner(each: Surveyed, facts: SegmentFacts, version: Version) -> tuple[int, str]:
    """Position and words, empty if nothing does."""
    summary = facts.summary
    if summary.damage in _UNSTEPPABLE:
        return summary.valid_bytes, f"the cleaner finds no next batch: {summary.damage_text}"
    overflows = summary.damage == c.D_OFFSET_RANGE
    if overflows and version is not None and version < SPLITS_OVERFLOWED_SEGMENTS_SINCE:
        return summary.valid_bytes, f"offsets too far from the base offset: {summary.damage_text}"
    most = each.settings.max_message_bytes
    large = version is not None and version < READS_LARGE_BATCHES_SINCE
    if large and summary.largest_batch > most:
        return -1, f"a batch of {summary.largest_batch} bytes, above max.message.bytes={most}"
    return -1, ""
