"""Offsets that no record has in a topic whose offsets should follow each other: KR310, KR311.

A leader gives each record the next offset. So in a topic that was never compacted each offset from the log start to the
log end has a record: a gap between two segments, or between batches of one, is where records were. Compaction makes
such gaps and means no harm, so all depends on what is known of the topic's ``cleanup.policy``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity
from krepair.fixes.epochs import log_start_of
from krepair.fixes.gone_ends import kept_names
from krepair.fixes.markers import MARKER_CLASSES
from krepair.fixes.survey import Survey
from krepair.formats.filenames import METADATA_TOPIC, base_offset_of, log_name
from krepair.formats.words import count_text
from krepair.kernels import classes as c
from krepair.logdir.config import DEFAULT, Setting
from krepair.logdir.values import LogDir, Partition
from krepair.rules.model import SegmentFacts

_SHOWN_AT_MOST: Final = 3
_CAUSES: Final = (
    "usual causes: the topic was compacted once, an earlier --fix tail=excise removed them, or a log file was lost or "
    "moved away (here, or on the replica from which this one was copied)"
)
_NOT_KNOWN: Final = (
    "if the topic is or was compacted, this is normal; if not, these records are lost. Its cleanup.policy is not "
    "known here: give the output of kafka-configs.sh --describe with --topic-config, or --set cleanup.policy=delete"
)
_POLICY: Final = "cleanup.policy"
_EMPTIED: Final = [c.EMPTIED, c.EMPTIED_PRODUCER, c.EMPTIED_MARKER, c.EMPTIED_LAST]


class Gap(NamedTuple):
    """Offsets that no record has.

    Attributes:
        start: the first of the range.
        end: the offset after the range.
        missing: how many of the range have no record; all of them, if the range lies between two segments.
        base_offset: of the segment that the range lies in, -1 between two segments.
    """

    start: int
    end: int
    missing: int
    base_offset: int = -1


def missing_findings(view: LogDir, survey: Survey) -> Iterator[Finding]:
    """KR310 where the topic is known not to be compacted, KR311 where that is not known.

    KR310 is data loss only where somebody has set the policy, and nothing shows an earlier cleaning.

    Nothing is said of a topic that is compacted, nor of one that is not known but stands in
    ``cleaner-offset-checkpoint``: only a cleaner writes there.
    """
    partition = survey.partition
    if partition.topic == METADATA_TOPIC or survey.settings.remote_storage_enable or survey.settings.compacts:
        return
    if len(survey.segments) != len(partition.segments):
        return
    gaps = gaps_of(survey.segments, log_start_of(view, partition, survey.segments))
    gaps = _unexplained(partition, gaps) if gaps else gaps
    if not gaps:
        return
    policy = next(one for one in survey.settings.settings if one.key == _POLICY)
    cleaned_to = view.cleaner.offsets.get(partition.key, -1)
    known = survey.settings.policy_is_known
    if not known and cleaned_to >= 0:
        return
    if known and cleaned_to >= gaps[-1].end:
        text = f"cleaner-offset-checkpoint stands at {cleaned_to}: the topic was compacted once, which leaves gaps"
        yield _finding("KR311", partition, gaps, text)
    elif known:
        told = policy.source != DEFAULT and cleaned_to < 0 and not _was_cleaned(survey.segments)
        text = f"the topic is not compacted ({_told(policy)}); {_CAUSES}"
        yield _finding("KR310", partition, gaps, text, None if told else Severity.CONFUSING)
    else:
        yield _finding("KR311", partition, gaps, _NOT_KNOWN)


def gaps_of(segments: Sequence[SegmentFacts], log_start: int) -> list[Gap]:
    """Every range of offsets without records, ascending.

    Where damage or messages of v0 and v1 hide what a segment holds, nothing is said of it.

    Args:
        segments: all of the partition, ascending.
        log_start: offsets below it are deleted.
    """
    gaps: list[Gap] = []
    for place, facts in enumerate(segments):
        summary = facts.summary
        if not summary.is_whole:
            continue
        end = max(summary.last_offset + 1, facts.base_offset)
        if summary.batches and not summary.old_format and facts.base_offset >= log_start:
            missing = end - facts.base_offset - _taken(facts)
            if missing > 0:
                gaps.append(Gap(facts.base_offset, end, missing, facts.base_offset))
        following = segments[place + 1].base_offset if place + 1 < len(segments) else end
        start = max(end, log_start)
        if start < following:
            gaps.append(Gap(start, following, following - start))
    return gaps


def _taken(facts: SegmentFacts) -> int:
    """Offsets that records of a segment take; a control batch has one record."""
    tallies = facts.summary.tallies
    controls = tallies[[*MARKER_CLASSES, c.CONTROL_OTHER], c.T_BATCHES]
    return int(tallies[c.RECORDS, c.T_RECORDS] + controls.sum())


def _unexplained(partition: Partition, gaps: Sequence[Gap]) -> list[Gap]:
    """What is left of the gaps without those that our own kept originals, or a swap that waits, fill."""
    swaps = {leftover.base_offset for leftover in partition.leftovers if leftover.kind == "swap"}
    filled = _kept_bases(partition) | swaps
    if not filled:
        return list(gaps)
    bases = sorted(filled | {segment.base_offset for segment in partition.segments})
    ends = dict(pairwise(bases))
    left: list[Gap] = []
    for gap in gaps:
        if gap.base_offset >= 0:
            left += [gap] if gap.base_offset not in filled else []
            continue
        start = gap.start
        for base in sorted(filled):
            until = min(ends.get(base, base), gap.end)
            if base <= start < until:
                start = until
            elif start < base < until:
                left.append(Gap(start, base, base - start))
                start = until
        if start < gap.end:
            left.append(Gap(start, gap.end, gap.end - start))
    return left


def _kept_bases(partition: Partition) -> set[int]:
    """Base offsets of the logs of which krepair keeps the original, or what it cut off."""
    named = ((base_offset_of(name), name.split(".")[1:2]) for name in kept_names(partition))
    return {base for base, kind in named if base is not None and kind == ["log"]}


def _was_cleaned(segments: Sequence[SegmentFacts]) -> bool:
    """Whether batches without records are left: only a cleaner makes them."""
    return any(int(one.summary.tallies[_EMPTIED, c.T_BATCHES].sum()) for one in segments)


def _finding(
    rule: str, partition: Partition, gaps: Sequence[Gap], why: str, severity: Severity | None = None
) -> Finding:
    missing = sum(gap.missing for gap in gaps)
    shown = "; ".join(_shown(gap) for gap in gaps[:_SHOWN_AT_MOST])
    more = (
        f"; and {count_text(len(gaps) - _SHOWN_AT_MOST, 'more place')}" if len(gaps) > _SHOWN_AT_MOST else ""
    )
    deleted = _deleted_inside(partition, gaps)
    return Finding(
        rule=rule,
        partition=partition.folder,
        evidence=f"{count_text(missing, 'offset')} without a record: {shown}{more}{deleted}; {why}",
        severity=severity,
    )


def _shown(gap: Gap) -> str:
    if gap.base_offset >= 0:
        name = log_name(gap.base_offset)
        return f"{gap.missing} of those from {gap.start} to {gap.end - 1} in {name}"
    return f"{gap.start} to {gap.end - 1} are in no segment"


def _deleted_inside(partition: Partition, gaps: Sequence[Gap]) -> str:
    """A log that a broker set aside to delete may be what fills the gap: it goes at the next start."""
    for leftover in partition.leftovers:
        base = leftover.base_offset
        if leftover.kind == "deleted" and any(
            gap.start <= base < gap.end for gap in gaps if gap.base_offset < 0
        ):
            return f"; {leftover.file.name} may be what is missing, and the next start deletes it"
    return ""


def _told(policy: Setting) -> str:
    return f"{_POLICY}={policy.value}, {policy.source}"
