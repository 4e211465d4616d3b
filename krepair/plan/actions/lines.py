"""The plan layer's code for ``ChangeLines``: lines of a checkpoint of the root change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT
from krepair.formats.words import count_text
from krepair.plan.actions.action import ROUNDING_BYTES, PlannedAction, Space, Touched
from krepair.plan.actions.listing import LINES
from krepair.plan.facts import OnDisk, PartitionFacts
from krepair.plan.model import ChangeLines, FileFingerprint
from krepair.plan.objection import Objection
from krepair.rules.checkpoint_lines import raised

_LONGEST_NUMBER = 20


class Lines(PlannedAction[ChangeLines]):
    """Implements ``PlannedAction`` for ``ChangeLines``."""

    kind = ChangeLines
    listing = LINES

    def touches(self, change: ChangeLines) -> Touched:
        return Touched((), (change.name,), ())

    def trusts(self, change: ChangeLines) -> frozenset[tuple[str, int]]:
        """Those whose recovery point rises."""
        if change.name != RECOVERY_POINT_CHECKPOINT:
            return frozenset()
        return frozenset((line.topic, line.partition) for line in raised(change.lines))

    def new_offsets(self, change: ChangeLines) -> Iterator[tuple[str, int, int]]:
        """Those of its lines."""
        for line in change.lines:
            if line.new is not None:
                yield line.topic, line.partition, line.new

    def space(self, change: ChangeLines, on_disk: OnDisk) -> Space:
        """The size of the new file: each changed line may become longer by one number."""
        before = max(change.size_before, 0)
        added = sum(len(line.topic.encode()) + _LONGEST_NUMBER for line in change.lines if line.old is None)
        made = on_disk.takes(before + added + _LONGEST_NUMBER * len(change.lines))
        return Space(made=made, back=on_disk.back([change.name]), peak=made + ROUNDING_BYTES, log_shrinks=0)

    def review(self, facts: PartitionFacts, change: ChangeLines) -> Iterator[Objection]:
        """Such a change is not allowed in a partition."""
        yield Objection("RV28", change.change_id, "lines of a checkpoint change, in a partition")

    def review_in_root(self, change: ChangeLines, file: FileFingerprint) -> Iterator[Objection]:
        """There must be a line, each must change, none may be there twice, and all offsets must be possible."""
        where = change.change_id
        if change.size_before != file.size:
            yield Objection("RV28", where, f"size_before is {change.size_before}, the file has {file.size}")
        if not change.lines:
            yield Objection("RV28", where, "no line changes")
        news = [(line.topic, line.partition) for line in change.lines if line.new is not None]
        if len(news) != len(set(news)):
            yield Objection("RV28", where, "two lines of one partition stay")
        for line in change.lines:
            if line.old == line.new or (line.new is not None and line.new < 0):
                text = f"{line.topic}-{line.partition}: {line.old} becomes {line.new}"
                yield Objection("RV28", where, text)

    def summary(self, changes: Sequence[ChangeLines]) -> Iterator[str]:
        lines = sum(len(change.lines) for change in changes)
        yield (
            f"{count_text(lines, 'line changes', 'lines change')} in {count_text(len(changes), 'checkpoint')} "
            f"of the root, "
            "after everything else."
        )

    def mends(self, change: ChangeLines) -> tuple[str, ...]:
        return (change.rule,)

    def goes(self, changes: Sequence[ChangeLines]) -> Iterator[str]:
        yield f"{count_text(sum(len(change.lines) for change in changes), 'line')} of checkpoints changed"

    def rows(self, change: ChangeLines) -> Iterator[tuple[str, ...]]:
        """One row per line."""
        for line in change.lines:
            yield (
                change.name,
                change.rule,
                f"{line.topic}-{line.partition}",
                "missing" if line.old is None else f"{line.old:,}",
                "gone" if line.new is None else f"{line.new:,}",
            )
