"""The plan layer's code for ``SetAside``: a whole segment behind a cut is moved out and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.formats.filenames import SEGMENT_SUFFIXES, offset_name, segment_name
from krepair.formats.words import count_text
from krepair.plan.actions.action import (
    ANOTHER_REPLICA,
    REMOVAL_BYTES,
    LogEffect,
    PlannedAction,
    Space,
    Touched,
)
from krepair.plan.actions.listing import DATA_THAT_GOES
from krepair.plan.actions.log_contents import Content, Fate, removed
from krepair.plan.actions.mend import BY_CONSENT, TAIL_FIX
from krepair.plan.facts import OnDisk, PartitionFacts
from krepair.plan.model import Change, MendLog, SetAside
from krepair.plan.objection import Objection

_OF_A_SEGMENT: Final = (*SEGMENT_SUFFIXES, ".snapshot")


class Aside(PlannedAction[SetAside]):
    """Implements ``PlannedAction`` for ``SetAside``."""

    kind = SetAside
    listing = DATA_THAT_GOES

    def touches(self, change: SetAside) -> Touched:
        """The files of the segment."""
        return Touched((change.base_offset,), (), change.names)

    def may_move_log_end(self, change: SetAside, bases: Sequence[int]) -> bool:
        """Always: the log then ends at the cut before it."""
        return True

    def log_effect(self, change: SetAside) -> LogEffect:
        return LogEffect(segments=(change.base_offset,))

    def space(self, change: SetAside, on_disk: OnDisk) -> Space:
        """Nothing is made; the files are only moved."""
        return Space(
            made=0,
            back=on_disk.back(change.names),
            peak=REMOVAL_BYTES * len(change.names),
            log_shrinks=on_disk.sizes.get(segment_name(change.base_offset, ".log"), 0),
        )

    def risks(self, change: SetAside) -> tuple[str, ...]:
        """Another replica may have what is lost here."""
        return (ANOTHER_REPLICA,)

    def review(self, facts: PartitionFacts, change: SetAside) -> Iterator[Objection]:
        """Its files must be those of one segment, and a person must have consented to the loss."""
        where, stem = change.change_id, offset_name(change.base_offset)
        expected = [stem + suffix for suffix in _OF_A_SEGMENT if stem + suffix in facts.files]
        if where != f"{facts.partition.folder}/{stem}" or list(change.names) != expected:
            yield Objection("RV30", where, f"the files of segment {change.base_offset} are {expected}")
        if change.bytes != sum(facts.sizes.get(name, 0) for name in change.names):
            yield Objection("RV30", where, "bytes are not those of its files")
        if change.consent not in facts.policy.accepted_losses or change.rule not in BY_CONSENT:
            yield Objection("RV29", where, f"a segment is set aside without consent ({change.consent!r})")

    def review_all(self, facts: PartitionFacts, changes: Sequence[SetAside]) -> Iterator[Objection]:
        """All segments behind a cut must be set aside with its consent, the highest first, and before the cut."""
        folder, consent = facts.partition.folder, changes[0].consent
        if TAIL_FIX not in facts.fixes:
            yield Objection("RV29", folder, "segments are set aside, but tail is not among the fixes")
        cut = _cut(facts.partition.changes, consent)
        if cut is None or any(change.consent != consent for change in changes):
            yield Objection("RV30", folder, "segments are set aside without a cut of the same consent")
            return
        behind = [base for base in facts.bases if base > cut.base_offset]
        if [change.base_offset for change in changes] != behind[::-1]:
            text = "not all segments behind the cut are set aside, the highest first"
            yield Objection("RV30", folder, text)
        order = [change.change_id for change in facts.partition.changes if change in (*changes, cut)]
        if order != [*(change.change_id for change in changes), cut.change_id]:
            yield Objection("RV30", folder, "segments behind a cut are set aside after it")

    def summary(self, changes: Sequence[SetAside]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'whole segment is', 'whole segments are')} set aside, and kept until purge."

    def mends(self, change: SetAside) -> tuple[str, ...]:
        return (change.rule,)

    def goes(self, changes: Sequence[SetAside]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'whole segment')} set aside"

    def records_lost(self, change: SetAside) -> int:
        """All that its valid batches hold."""
        return change.records

    def fate(self, change: SetAside, sizes: Mapping[str, int]) -> Fate:
        """The whole segment is taken out."""
        size = sizes.get(segment_name(change.base_offset, ".log"), 0)
        return removed(change.base_offset, size, Content.ASIDE)

    def rows(self, change: SetAside) -> Iterator[tuple[str, ...]]:
        yield (
            change.change_id,
            change.rule,
            "set aside",
            "all",
            f"{change.bytes:,}",
            "-",
            f"{change.records:,}" if change.records >= 0 else "all",
            change.consent,
        )


def _cut(changes: Sequence[Change], consent: str) -> MendLog | None:
    """The cut with this consent; None if there is none."""
    for change in changes:
        if isinstance(change, MendLog) and change.method == "cut" and _consent_of(change) == consent:
            return change
    return None


def _consent_of(cut: MendLog) -> str | None:
    return cut.removed[0].consent if cut.removed else None
