"""What the pictures of the pages of ``check`` and ``compare`` show: plain values, worked out from the report alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final, NamedTuple

from krepair.checks.rule import Finding, Severity
from krepair.ops.by_rule import by_rule
from krepair.ops.compare import CompareReport
from krepair.ops.reports import LogDirReport, PartitionSummary
from krepair.plan.log_contents import Content, ContentRange
from krepair.plan.pictures import MOST_BARS, BeforeAfter, IndexTail, longest_tails, most_first
from krepair.rules.replicas import model as m

DAMAGE_RULES: Final = frozenset({"KR301", "KR302", "KR303", "KR304", "KR305"})
"""Rules whose findings say how many bytes of a ``.log`` are damaged."""

ZERO_TAIL: Final = "KR201"


@dataclass(frozen=True, kw_only=True, slots=True)
class Makeup:
    """What the logs of one partition, or of several together, are made of.

    Attributes:
        name: folder name, or how many partitions.
        runs: the kinds, each once.
        alike: how many more partitions are made of the same.
    """

    name: str
    runs: tuple[ContentRange, ...]
    alike: int = 0

    @property
    def bytes(self) -> int:
        """Of all kinds."""
        return sum(run.bytes for run in self.runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleCount:
    """One rule that found something.

    Attributes:
        code: ``KRnnn``.
        severity: of the rule.
        title: of the rule.
        fix: name for ``--fix``, or ``none``.
        findings: how many.
        partitions: in how many.
        bytes: that they are about.
    """

    code: str
    severity: Severity
    title: str
    fix: str
    findings: int
    partitions: int
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DiskSpace:
    """What the next start needs on this disk, and what there is.

    Attributes:
        free: bytes.
        needed: bytes that the next start may write.
        kept: bytes of originals that applied plans keep.
    """

    free: int
    needed: int
    kept: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckPictures:
    """Everything that the page of one log directory draws.

    Attributes:
        rules: what was found, worst first.
        makeup: of the partitions with most markers, emptied batches and damage.
        start: ``.log`` bytes now and after the next start, where the start takes some away.
        tails: time indexes with a tail of zeros, longest first.
        tails_left_out: how many more there are.
        space: None where it was not worked out.
    """

    rules: tuple[RuleCount, ...]
    makeup: tuple[Makeup, ...]
    start: tuple[BeforeAfter, ...]
    tails: tuple[IndexTail, ...]
    tails_left_out: int
    space: DiskSpace | None


def check_pictures(report: LogDirReport) -> CheckPictures:
    """What there is to draw of one log directory."""
    tails = longest_tails(_tails(report.findings))
    known = report.start_needs_bytes >= 0 and report.free_bytes >= 0
    return CheckPictures(
        rules=tuple(_rules(report.findings)),
        makeup=_makeups(report),
        start=most_first(_after_start(report)),
        tails=tails[:MOST_BARS],
        tails_left_out=max(0, len(tails) - MOST_BARS),
        space=DiskSpace(
            free=report.free_bytes,
            needed=report.start_needs_bytes,
            kept=sum(max(plan.bytes, 0) for plan in report.kept),
        )
        if known
        else None,
    )


def _rules(findings: Iterable[Finding]) -> list[RuleCount]:
    return [
        RuleCount(
            code=row.rule,
            severity=row.severity,
            title=row.title,
            fix=row.fix,
            findings=row.findings,
            partitions=len(row.partitions),
            bytes=row.bytes,
        )
        for row in by_rule(findings)
    ]


def _makeups(report: LogDirReport) -> tuple[Makeup, ...]:
    damaged: Counter[str] = Counter()
    for finding in report.findings:
        if finding.rule in DAMAGE_RULES:
            damaged[finding.partition] += finding.bytes
    rows = [_makeup(partition, damaged[partition.partition]) for partition in report.partitions]
    rows = [row for row in rows if any(run.content != Content.RECORDS for run in row.runs)]
    rows.sort(key=lambda row: (-_not_records(row), row.runs, row.name))
    rows = [_and_alike(list(alike)) for _, alike in groupby(rows, key=lambda row: row.runs)]
    shown, rest = rows[:MOST_BARS], rows[MOST_BARS:]
    if rest:
        sums: Counter[Content] = Counter()
        for row in rest:
            sums.update({run.content: run.bytes * (1 + row.alike) for run in row.runs})
        runs = tuple(ContentRange(content, sums[content]) for content in Content if sums[content])
        others = sum(1 + row.alike for row in rest)
        shown.append(Makeup(name=f"{others:,} others together", runs=runs))
    return tuple(shown)


def _and_alike(rows: Sequence[Makeup]) -> Makeup:
    return replace(rows[0], alike=len(rows) - 1)


def _not_records(row: Makeup) -> int:
    return sum(run.bytes for run in row.runs if run.content != Content.RECORDS)


def _makeup(partition: PartitionSummary, damaged: int) -> Makeup:
    damaged = min(damaged, partition.log_bytes)
    rest = partition.log_bytes - partition.marker_bytes - partition.emptied_bytes - damaged
    runs = (
        ContentRange(Content.RECORDS, rest),
        ContentRange(Content.MARKERS, partition.marker_bytes),
        ContentRange(Content.EMPTIED, partition.emptied_bytes),
        ContentRange(Content.DAMAGED, damaged),
    )
    return Makeup(name=partition.partition, runs=tuple(run for run in runs if run.bytes > 0))


def _after_start(report: LogDirReport) -> Iterable[BeforeAfter]:
    now = {partition.partition: partition.log_bytes for partition in report.partitions}
    for line in report.forecast:
        # without segments the start was not played through: nothing is wrong with the partition
        if line.log_bytes and line.partition in now:
            after = sum(size for _, size in line.log_bytes)
            if after < now[line.partition]:
                yield BeforeAfter(name=line.partition, before=now[line.partition], after=after)


def _tails(findings: Iterable[Finding]) -> Iterable[IndexTail]:
    for finding in findings:
        if finding.rule == ZERO_TAIL and finding.position >= 0 and finding.bytes > 0:
            yield IndexTail(
                partition=finding.partition,
                file=finding.file,
                entry_bytes=finding.position,
                zero_bytes=finding.bytes,
            )


# -- what the pictures of a comparison show

_BAD: Final = frozenset({m.DIVERGED, m.DAMAGED, m.CANNOT_TELL})
_MOST: Final = 200


class ReplicaBar(NamedTuple):
    """One replica.

    Attributes:
        broker: whose.
        start: log start offset.
        end: log end offset.
        stands_at: last stable offset, where readers of committed records end.
        state: in a word.
        wrong_from: first offset at which it is wrong or in doubt, -1 none.
    """

    broker: int
    start: int
    end: int
    stands_at: int
    state: str
    wrong_from: int


class PartitionPicture(NamedTuple):
    """One partition that is not as it should be.

    Attributes:
        name: of the partition.
        verdict: on it.
        low: lowest offset of any replica.
        high: highest log end offset.
        bars: of its replicas.
    """

    name: str
    verdict: str
    low: int
    high: int
    bars: tuple[ReplicaBar, ...]


def compare_pictures(report: CompareReport) -> tuple[PartitionPicture, ...]:
    """The partitions to draw, in order."""
    bad = [one for one in report.partitions if one.verdict in _BAD and one.replicas]
    return tuple(map(_picture, bad[:_MOST]))


def _picture(one: m.PartitionVerdict) -> PartitionPicture:
    return PartitionPicture(
        name=one.name,
        verdict=one.verdict,
        low=min(column.log_start for column in one.replicas),
        high=max(column.log_end for column in one.replicas),
        bars=tuple(
            ReplicaBar(
                broker=column.broker,
                start=column.log_start,
                end=column.log_end,
                stands_at=column.last_stable_offset,
                state=column.state,
                wrong_from=min(
                    (
                        max(found.offset, column.log_start)
                        for found in one.disagreements
                        if column.broker in found.brokers and m.VERDICT_OF[found.kind] != m.IS_BEHIND
                    ),
                    default=-1,
                ),
            )
            for column in one.replicas
        ),
    )
