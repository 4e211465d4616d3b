"""The driver's part of verifying key compactions: it sends the tasks of ``compaction.check`` to an engine.

All groups are compared with their sources first; then the keys of each partition are checked.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from krepair.engine.engine import Engine
from krepair.engine.items import Failed, FailureKind, LogsItem, Place
from krepair.kernels.check_compacted import ROW_WORDS
from krepair.rewrite.compaction.check import join_items
from krepair.rewrite.compaction.items import CheckedSource, CheckItem, CheckResult
from krepair.rewrite.compaction.rows import RowFile

_INLINE_BYTES = 64 << 20
_MIN_ROWS_INLINE = 1 << 9


@dataclass(frozen=True)
class GroupToProve:
    """Group in the compaction range, changed or not.

    Attributes:
        sources: sources of the group at their present paths, ascending.
        result: absolute path of the new ``.log``; for a segment that does not change, the path of its ``.log``.
    """

    sources: tuple[CheckedSource, ...]
    result: str


@dataclass
class PartitionToProve:
    """Partition to verify, with all groups in the compaction range: any of them may hold the last record of a key.

    Attributes:
        groups: groups of the partition, ascending.
        logs: valid batches of all original segments.
        now_ms: current time in epoch milliseconds, compared with delete horizons.
        elsewhere: logs of other replicas, whose records keep tombstones.
        failure: kind of failure, empty if nothing is wrong.
        why: file, position and expectation of the failure.
        records: number of records read of the sources.
        kept: number of records in the results.
        keys: number of distinct keys.
        aborted: aborted transactions, see ``find_aborted``; None if there are no transactions.
        beside: results of the sources that were verified while they were written, by the path of their new log.
    """

    place: Place
    groups: tuple[GroupToProve, ...]
    logs: LogsItem
    now_ms: int
    elsewhere: tuple[LogsItem, ...] = ()
    failure: FailureKind = ""
    why: str = ""
    records: int = 0
    kept: int = 0
    keys: int = 0
    rows: list[RowFile] = field(default_factory=list)
    aborted: bytes | None = None
    beside: dict[str, list[CheckResult | Failed]] = field(default_factory=dict)

    def take_failed(self, failed: Failed) -> None:
        """Record a failure of the partition; only the first one is kept."""
        if not self.failure:
            self.failure, self.why = failed.kind, f"{self.place.folder}: {failed.why}"

    def take_checked(self, result: CheckResult | Failed) -> None:
        """Record the result of a group or a source."""
        if isinstance(result, Failed):
            self.take_failed(result)
            return
        self.records += result.records
        self.kept += result.kept
        self.rows += result.rows


class Verification:
    """One verification of partitions. A source may be verified while its new log is written.

    Args:
        partitions: partitions whose results are staged, applied, or about to be written.
        scratch: path of a scratch folder on the hosts of the tasks, empty if there is none.
    """

    def __init__(self, engine: Engine, partitions: Sequence[PartitionToProve], scratch: str) -> None:
        self._engine = engine
        self._scratch = scratch
        self._points = secrets.token_bytes(16)
        sources = sum(len(group.sources) for partition in partitions for group in partition.groups)
        self._rows_inline = max(_INLINE_BYTES // (8 * ROW_WORDS) // max(sources, 1), _MIN_ROWS_INLINE)

    def item(self, partition: PartitionToProve, sources: Sequence[CheckedSource], result: str) -> CheckItem:
        """Build the item that checks sources of a partition."""
        return CheckItem(
            place=partition.place,
            sources=tuple(sources),
            result=result,
            now_ms=partition.now_ms,
            aborted=partition.aborted or b"",
            transactions=partition.aborted is not None,
            points=self._points,
            rows_inline=self._rows_inline,
            scratch=self._scratch,
        )

    def finish(self, partitions: Sequence[PartitionToProve]) -> None:
        """Verify the groups that were not verified during writing, then all keys; record results in the partitions.

        Args:
            partitions: partitions that have not failed or ended earlier.
        """
        from krepair.rewrite.compaction.check import check_group, check_join

        todo: list[tuple[PartitionToProve, GroupToProve]] = []
        for partition in partitions:
            for group in partition.groups:
                known = partition.beside.get(group.result, [])
                if len(known) < len(group.sources):
                    todo.append((partition, group))
                    continue
                for result in known:
                    partition.take_checked(result)
        todo = [each for each in todo if not each[0].failure]
        items = [self.item(partition, group.sources, group.result) for partition, group in todo]
        for index, result in self._engine.map(check_group, items):
            todo[index][0].take_checked(result)
        _read_elsewhere(self._engine, partitions, self._points, self._rows_inline, self._scratch)
        joins = [
            (partition, item)
            for partition in partitions
            if not partition.failure
            for item in join_items(partition.place, partition.rows)
        ]
        for index, joined in self._engine.map(check_join, [item for _, item in joins]):
            if isinstance(joined, Failed):
                joins[index][0].take_failed(joined)
            else:
                joins[index][0].keys += joined


def prove(engine: Engine, partitions: Sequence[PartitionToProve], scratch: str) -> None:
    """Verify partitions whose results all exist, see ``Verification``."""
    Verification(engine, partitions, scratch).finish(partitions)


def _read_elsewhere(
    engine: Engine, partitions: Sequence[PartitionToProve], points: bytes, rows_inline: int, scratch: str
) -> None:
    """Add the rows of the committed records of other replicas, where no record is known to be aborted."""
    from krepair.rewrite.compaction.check import check_group
    from krepair.rewrite.compaction.tasks import find_aborted

    logs = [
        (partition, log) for partition in partitions if not partition.failure for log in partition.elsewhere
    ]
    aborted: dict[int, bytes] = {}
    for index, ranges in engine.map(find_aborted, [log for _, log in logs]):
        if isinstance(ranges, Failed):
            logs[index][0].take_failed(ranges)
        else:
            aborted[index] = ranges
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
            aborted=aborted[index],
            points=points,
            rows_inline=rows_inline,
            scratch=scratch,
            elsewhere=True,
        )
        for each, log, index, base, size in work
        for path in (f"{log.place.stem(base)}.log",)
    ]
    for index, result in engine.map(check_group, items):
        if isinstance(result, Failed):
            work[index][0].take_failed(result)
        else:
            work[index][0].rows += result.rows
