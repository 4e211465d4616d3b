"""Runs the verification of key compactions on an engine: all groups, then all keys.

See ``krepair.rewrite.compaction.check``.
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


@dataclass
class PartitionToProve:
    """One partition: every group below the bound, since a key's last record may lie in any of them.

    Attributes:
        place: where.
        groups: ascending.
        logs: the valid batches of all segments as they were.
        now_ms: the clock for stamps.
        elsewhere: logs of other replicas: their records hold tombstones back.
        failure: kind of failure, empty if all is right.
        why: file, position, what was expected.
        records: read of the sources.
        kept: in the results.
        keys: distinct ones.
        aborted: see ``find_aborted``; None: there are no transactions.
        beside: result of a group -> what came of those of its sources that were proven while they were written.
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
        """Note what is wrong; the first thing counts."""
        if not self.failure:
            self.failure, self.why = failed.kind, f"{self.place.folder}: {failed.why}"

    def take_checked(self, result: CheckResult | Failed) -> None:
        """Note what came of a group or a source."""
        if isinstance(result, Failed):
            self.take_failed(result)
            return
        self.records += result.records
        self.kept += result.kept
        self.rows += result.rows


class Verification:
    """One verification of partitions. What is written while it lasts may be proven beside it, source by source.

    Args:
        engine: where tasks run.
        partitions: with results that are staged, applied, or about to be written.
        scratch: path of a scratch folder on their hosts, empty if there is none.
    """

    def __init__(self, engine: Engine, partitions: Sequence[PartitionToProve], scratch: str) -> None:
        self._engine = engine
        self._scratch = scratch
        self._points = secrets.token_bytes(16)
        sources = sum(len(group.sources) for one in partitions for group in one.groups)
        self._rows_inline = max(_INLINE_BYTES // (8 * ROW_WORDS) // max(sources, 1), _ROWS_INLINE_AT_LEAST)

    def item(self, one: PartitionToProve, sources: Sequence[CheckedSource], result: str) -> CheckItem:
        """The item that checks sources of a partition."""
        return CheckItem(
            place=one.place,
            sources=tuple(sources),
            result=result,
            now_ms=one.now_ms,
            aborted=one.aborted or b"",
            transactions=one.aborted is not None,
            points=self._points,
            rows_inline=self._rows_inline,
            scratch=self._scratch,
        )

    def finish(self, partitions: Sequence[PartitionToProve]) -> None:
        """Check all that was not proven while it was written, then the keys of all; it is put into each partition.

        Args:
            partitions: those that are there to the end.
        """
        from krepair.rewrite.compaction.check import check_group, check_join

        todo: list[tuple[PartitionToProve, GroupToProve]] = []
        for one in partitions:
            for group in one.groups:
                known = one.beside.get(group.result, [])
                if len(known) < len(group.sources):
                    todo.append((one, group))
                    continue
                for result in known:
                    one.take_checked(result)
        todo = [each for each in todo if not each[0].failure]
        items = [self.item(one, group.sources, group.result) for one, group in todo]
        for index, result in self._engine.map(check_group, items):
            todo[index][0].take_checked(result)
        _read_elsewhere(self._engine, partitions, self._points, self._rows_inline, self._scratch)
        joins = [
            (one, item) for one in partitions if not one.failure for item in join_items(one.place, one.rows)
        ]
        for index, joined in self._engine.map(check_join, [item for _, item in joins]):
            if isinstance(joined, Failed):
                joins[index][0].take_failed(joined)
            else:
                joins[index][0].keys += joined


def prove(engine: Engine, partitions: Sequence[PartitionToProve], scratch: str) -> None:
    """Verify partitions whose results are all there, see ``Verification``."""
    Verification(engine, partitions, scratch).finish(partitions)


def _read_elsewhere(
    engine: Engine, partitions: Sequence[PartitionToProve], points: bytes, rows_inline: int, scratch: str
) -> None:
    """Enter the committed records that other replicas hold; without markers none of theirs counts as aborted."""
    from krepair.rewrite.compaction.check import check_group
    from krepair.rewrite.compaction.tasks import find_aborted

    logs = [
        (partition, log) for partition in partitions if not partition.failure for log in partition.elsewhere
    ]
    aborted: dict[int, bytes] = {}
    for index, found in engine.map(find_aborted, [log for _, log in logs]):
        if isinstance(found, Failed):
            logs[index][0].take_failed(found)
        else:
            aborted[index] = found
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
