"""The plan layer's code for ``RollSegment``: a new empty segment at the log end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from krepair.checks.catalogue import RULES
from krepair.formats.filenames import MAX_OFFSET, offset_name
from krepair.formats.words import count_text
from krepair.plan.actions.action import ROUNDING_BYTES, PlannedAction, Space, Touched
from krepair.plan.actions.listing import ROLLS
from krepair.plan.facts import OnDisk, PartitionFacts
from krepair.plan.model import RollSegment
from krepair.plan.objection import Objection

_FIX = "recovery"


class Roll(PlannedAction[RollSegment]):
    """Implements ``PlannedAction`` for ``RollSegment``."""

    kind = RollSegment
    listing = ROLLS

    def has_originals(self, change: RollSegment) -> bool:
        """No: no file had its names before."""
        return False

    def touches(self, change: RollSegment) -> Touched:
        """Its three files; it touches no existing log."""
        return Touched((), change.names, ())

    def space(self, change: RollSegment, on_disk: OnDisk) -> Space:
        """No bytes; three files."""
        return Space(made=0, back=0, peak=len(change.names) * ROUNDING_BYTES, log_shrinks=0)

    def review(self, facts: PartitionFacts, change: RollSegment) -> Iterator[Objection]:
        """The segment must begin at the log end, and no file may have one of its names."""
        where = change.change_id
        rule = RULES.get(change.rule)
        if rule is None or rule.fix != _FIX or _FIX not in facts.fixes:
            yield Objection("RV25", where, f"{change.rule!r} is not a rule that the chosen fixes mend")
        if where != f"{facts.partition.folder}/{offset_name(change.base_offset)}":
            yield Objection("RV09", where, f"is not segment {change.base_offset} of this folder")
        end = facts.partition.log_end_offset
        if change.base_offset != end or not max(facts.bases, default=-1) < end <= MAX_OFFSET:
            yield Objection("RV30", where, f"the log ends at offset {end}, a segment cannot begin elsewhere")
        for name in change.names:
            if name in facts.files:
                yield Objection("RV30", where, f"{name} is there already")

    def review_all(self, facts: PartitionFacts, changes: Sequence[RollSegment]) -> Iterator[Objection]:
        """There may be only one, and it must be last: the log before it must be whole when it is made."""
        if facts.partition.changes[-1] is not changes[0]:  # nor is the first of two
            yield Objection("RV30", facts.partition.folder, "a new segment is not the last change")

    def summary(self, changes: Sequence[RollSegment]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'partition')}: an empty segment is added at the log end."

    def mends(self, change: RollSegment) -> tuple[str, ...]:
        return (change.rule,)

    def goes(self, changes: Sequence[RollSegment]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'empty segment')} added"

    def rows(self, change: RollSegment) -> Iterator[tuple[str, ...]]:
        yield (change.change_id, change.rule, f"{change.base_offset:,}", change.reason)
