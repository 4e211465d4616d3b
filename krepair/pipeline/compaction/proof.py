"""Runs the verification of key compactions on an engine: all groups, then all keys; see ``compaction_check``."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from krepair.pipeline.compaction.check import (
    AbortsItem,
    AbortsResult,
    CheckedRows,
    CheckedSource,
    CheckItem,
    CheckJoinResult,
    CheckResult,
    join_items,
)
from krepair.pipeline.compaction.check_items import CHECKED_ROW_BYTES
from krepair.pipeline.compaction.items import OffsetFile
from krepair.pipeline.engines.engine import Engine
from krepair.pipeline.items import FailureKind, Place
from krepair.pipeline.jobs import CHECK_JOIN, CHECK_KEYS, FIND_ABORT_RANGES

_INLINE_BYTES = 64 << 20
_ROWS_INLINE_AT_LEAST = 1 << 9


@dataclass(frozen=True)
class GroupToProve:
    """One group below the bound, changed or not.

    Attributes:
        sources: ascending, where they are now.
        result: absolute path of the new ``.log``; of a segment that does not change the path of its source.
    """

    sources: tuple[CheckedSource, ...]
    result: str


@dataclass(frozen=True)
class LogElsewhere:
    """The log of another replica.

    Attributes:
        place: where.
        segments: (base offset, bytes) of all segments, ascending; all of it are valid batches.
    """

    place: Place
    segments: tuple[tuple[int, int], ...]

    @property
    def logs(self) -> tuple[tuple[str, int], ...]:
        """(absolute path, bytes) of the segments."""
        return tuple((f"{self.place.stem(base)}.log", size) for base, size in self.segments)


@dataclass
class PartitionToProve:
    """One partition: every group below the bound, since a key's last record may lie in any of them.

    Attributes:
        place: where.
        groups: ascending.
        logs: (absolute path, bytes of valid batches) of all segments as they were, for their markers.
        now_ms: the clock for stamps.
        elsewhere: logs of other replicas: their records hold tombstones back.
        wants_gone: whether the tombstones that are gone are wanted.
        failure: kind of failure, empty if all is right.
        why: file, position, what was expected.
        records: read of the sources.
        kept: in the results.
        keys: distinct ones.
        gone: where it was asked for, offsets of the tombstones that are gone.
    """

    place: Place
    groups: tuple[GroupToProve, ...]
    logs: tuple[tuple[str, int], ...]
    now_ms: int
    elsewhere: tuple[LogElsewhere, ...] = ()
    wants_gone: bool = False
    failure: FailureKind = ""
    why: str = ""
    records: int = 0
    kept: int = 0
    keys: int = 0
    rows: list[CheckedRows] = field(default_factory=list)
    ranges: bytes = b""
    gone: list[OffsetFile] = field(default_factory=list)

    def take(self, result: AbortsResult | CheckResult | CheckJoinResult) -> None:
        """Note what is wrong; the first thing counts."""
        if result.failure and not self.failure:
            self.failure, self.why = result.failure, f"{self.place.folder}: {result.why}"


Asking = tuple[PartitionToProve, GroupToProve]
"""A group that has to be checked again, with the aborted transactions known."""


def prove(engine: Engine, partitions: Sequence[PartitionToProve], scratch: str) -> None:
    """Verify partitions; what came of it is put into each.

    Args:
        engine: where tasks run.
        partitions: with staged or applied results.
        scratch: path of a scratch folder on their hosts, empty if there is none.
    """
    points = secrets.token_bytes(16)
    work = [(partition, group) for partition in partitions for group in partition.groups]
    rows_inline = max(_INLINE_BYTES // CHECKED_ROW_BYTES // max(len(work), 1), _ROWS_INLINE_AT_LEAST)

    def check(work: Sequence[Asking], *, ranges_known: bool) -> list[Asking]:
        items = [
            CheckItem(
                place=each.place,
                sources=group.sources,
                result=group.result,
                now_ms=each.now_ms,
                ranges=each.ranges,
                ranges_known=ranges_known,
                points=points,
                rows_inline=rows_inline,
                scratch=scratch,
            )
            for each, group in work
        ]
        asking = []
        for index, result in engine.run(CHECK_KEYS, items):
            each = work[index][0]
            if result.asks_ranges:
                asking.append(work[index])
                continue
            each.take(result)
            each.records += result.records
            each.kept += result.kept
            each.rows += result.rows
        return asking

    # most topics have no transactions; a group that has some stops at the first of them
    asking = check(work, ranges_known=False)
    _find_ranges(
        engine, [partition for partition in partitions if any(one is partition for one, _ in asking)]
    )
    check([one for one in asking if not one[0].failure], ranges_known=True)
    _read_elsewhere(engine, partitions, points, rows_inline, scratch)
    joins = [
        (partition, item)
        for partition in partitions
        if not partition.failure
        for item in join_items(partition.place, partition.rows, gone=partition.wants_gone, scratch=scratch)
    ]
    for index, joined in engine.run(CHECK_JOIN, [item for _, item in joins]):
        joins[index][0].take(joined)
        joins[index][0].keys += joined.keys
        joins[index][0].gone.append(joined.gone)


def _read_elsewhere(
    engine: Engine, partitions: Sequence[PartitionToProve], points: bytes, rows_inline: int, scratch: str
) -> None:
    """Enter the committed records that other replicas hold; without markers none of theirs counts as aborted."""
    logs = [
        (partition, log) for partition in partitions if not partition.failure for log in partition.elsewhere
    ]
    ranges: dict[int, bytes] = {}
    aborts = [AbortsItem(place=log.place, logs=log.logs) for _, log in logs]
    for index, found in engine.run(FIND_ABORT_RANGES, aborts):
        logs[index][0].take(found)
        ranges[index] = found.ranges
    work = [
        (each, log, index, base, size)
        for index, (each, log) in enumerate(logs)
        if not each.failure
        for base, size in log.segments
    ]
    items = [
        CheckItem(
            place=log.place,
            sources=(CheckedSource(base_offset=base, path=path, size=size, horizon_passed=False),),
            result=path,
            now_ms=each.now_ms,
            ranges=ranges[index],
            points=points,
            rows_inline=rows_inline,
            scratch=scratch,
            elsewhere=True,
        )
        for each, log, index, base, size in work
        for path in (f"{log.place.stem(base)}.log",)
    ]
    for index, result in engine.run(CHECK_KEYS, items):
        work[index][0].take(result)
        work[index][0].rows += result.rows


def _find_ranges(engine: Engine, partitions: Sequence[PartitionToProve]) -> None:
    """Find the aborted transactions of partitions."""
    items = [AbortsItem(place=partition.place, logs=partition.logs) for partition in partitions]
    for index, found in engine.run(FIND_ABORT_RANGES, items):
        partitions[index].take(found)
        partitions[index].ranges = found.ranges
