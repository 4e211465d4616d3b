"""The plan layer's code for ``MendLog``: damaged bytes are removed from a log, and only with a consent that names them.

Torn tails need no consent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from krepair.formats.filenames import INDEX_SUFFIXES, segment_name
from krepair.formats.words import count_text
from krepair.plan.actions.action import (
    ANOTHER_REPLICA,
    ROUNDING_BYTES,
    BytesRead,
    LogEffect,
    PlannedAction,
    Space,
    Touched,
)
from krepair.plan.actions.listing import DATA_THAT_GOES
from krepair.plan.actions.log_contents import Content, ContentRange, Fate, summed
from krepair.plan.facts import HEX_32, OnDisk, PartitionFacts
from krepair.plan.model import MendLog, RemovedRange
from krepair.plan.objection import Objection
from krepair.plan.view import size_text

TAIL_FIX: Final = "tail"
BY_CONSENT: Final = frozenset({"KR302", "KR303", "KR304", "KR305"})
"""Rules of damage that needs a person's consent before bytes are removed."""

_TORN: Final = frozenset({"KR301", "KR305"})
_INDEX_ENTRY_BYTES: Final = 8
_MOST_RUNS: Final = 100


class Mend(PlannedAction[MendLog]):
    """Implements ``PlannedAction`` for ``MendLog``."""

    kind = MendLog
    listing = DATA_THAT_GOES

    def touches(self, change: MendLog) -> Touched:
        """The log, and those of its indexes that change."""
        names = (change.name, *(companion.name for companion in change.companions))
        return Touched((change.base_offset,), names, ())

    def may_move_log_end(self, change: MendLog, bases: Sequence[int]) -> bool:
        """Whether bytes at the end of the last log are removed. ``SetAside`` answers for segments behind a cut."""
        at_the_end = any(removed.end == change.size_before for removed in change.removed)
        return at_the_end and change.base_offset >= max(bases, default=-1)

    def log_effect(self, change: MendLog) -> LogEffect:
        ranges = tuple((one.start, one.end) for one in change.removed)
        return LogEffect(ranges={change.base_offset: (change.size_before, ranges)})

    def lost_inside(self, change: MendLog) -> Iterator[tuple[int, int]]:
        """The damaged ranges that something follows."""
        for one in change.removed if change.method == "excise" else ():
            if one.last_lost >= one.first_lost:
                yield one.first_lost, one.last_lost + 1

    def space(self, change: MendLog, on_disk: OnDisk) -> Space:
        """For a cut only the cut bytes are copied, because the log stays in place. Otherwise a new log is written."""
        gone = change.size_before - change.size_after
        made = on_disk.takes(*(companion.size_after for companion in change.companions))
        back = on_disk.back(companion.name for companion in change.companions)
        log, rest = on_disk.back([change.name]), on_disk.takes(change.size_after)
        copied = 0
        if change.method == "cut":
            back += max(log - rest, 0)
            copied = on_disk.takes(gone)
        else:
            made += rest
            back += log
        return Space(
            made=made,
            back=back,
            peak=made + copied + (len(change.companions) + 2) * ROUNDING_BYTES,
            log_shrinks=gone,
            kept_anew=copied - max(log - rest, 0) if copied else 0,
        )

    def work(self, change: MendLog) -> BytesRead:
        """The log is read to mend it, and once more before it is swapped in."""
        return BytesRead(stage=change.size_before, verify=change.size_after, apply=2 * change.size_before)

    def risks(self, change: MendLog) -> tuple[str, ...]:
        """If more than a torn tail is removed, another replica may have the lost records."""
        return (ANOTHER_REPLICA,) if any(removed.consent for removed in change.removed) else ()

    def review(self, facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
        """Ranges, sizes and digests must fit, and a person must have consented to the loss of each range."""
        yield from _log(facts, change)
        yield from _indexes(facts, change)
        for removed in change.removed:
            yield from _consent(facts, change, removed)

    def review_all(self, facts: PartitionFacts, changes: Sequence[MendLog]) -> Iterator[Objection]:
        """Only the fix tail removes bytes."""
        if TAIL_FIX not in facts.fixes:
            yield Objection(
                "RV29", facts.partition.folder, "data is removed, but tail is not among the fixes"
            )

    def summary(self, changes: Sequence[MendLog]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'log loses', 'logs lose')} damaged bytes, which are kept; the indexes follow."

    def mends(self, change: MendLog) -> tuple[str, ...]:
        return tuple(dict.fromkeys(removed.rule for removed in change.removed))

    def goes(self, changes: Sequence[MendLog]) -> Iterator[str]:
        size = sum(removed.end - removed.start for change in changes for removed in change.removed)
        yield f"{size_text(size)} of damage cut out of {count_text(len(changes), 'log')}"

    def records_lost(self, change: MendLog) -> int:
        """Those in the removed ranges; a torn tail holds none."""
        lost = [removed.records for removed in change.removed if removed.consent]
        return -1 if any(count < 0 for count in lost) else sum(lost)

    def fate(self, change: MendLog, sizes: Mapping[str, int]) -> Fate:
        """The parts of the log in their order, unless there are many: the reader wants to see where it is damaged."""
        lost = Content.CUT if change.method == "cut" else Content.DAMAGED
        runs, position = [], 0
        for gap in change.removed:
            runs += [
                ContentRange(Content.LEFT, gap.start - position),
                ContentRange(lost, gap.end - gap.start),
            ]
            position = gap.end
        runs.append(ContentRange(Content.LEFT, change.size_before - position))
        few = len(runs) <= _MOST_RUNS
        before = tuple(run for run in runs if run.bytes > 0) if few else summed(runs)
        after = summed(((Content.LEFT, change.size_after),))
        return Fate({change.base_offset: before}, {change.base_offset: after})

    def rows(self, change: MendLog) -> Iterator[tuple[str, ...]]:
        """One row per range; a torn tail has no consent."""
        for removed in change.removed:
            lost = f"{removed.first_lost} to {removed.last_lost}"
            yield (
                change.change_id,
                removed.rule,
                change.method,
                f"{removed.start:,}",
                f"{removed.end - removed.start:,}",
                lost if removed.last_lost >= removed.first_lost else "-",
                f"{removed.records:,}" if removed.records >= 0 else "?",
                removed.consent or "none needed",
            )


def _log(facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
    where, file = change.change_id, facts.files.get(change.name)
    if (
        change.name != segment_name(change.base_offset, ".log")
        or where != f"{facts.partition.folder}/{change.name}"
    ):
        yield Objection("RV09", where, f"{change.name!r} is not the log of segment {change.base_offset}")
    if file is None or (change.size_before, change.mtime_ns) != (file.size, file.mtime_ns):
        yield Objection("RV30", where, "size or modification time is not that of its fingerprint")
    places = [place for removed in change.removed for place in (removed.start, removed.end)]
    if not places or places != sorted(set(places)) or places[0] < 0 or places[-1] > change.size_before:
        yield Objection("RV30", where, "the removed ranges do not ascend, or are not inside of the file")
    gone = sum(removed.end - removed.start for removed in change.removed)
    if gone != change.size_before - change.size_after or change.size_after < 0:
        sizes = f"{change.size_before} to {change.size_after} bytes"
        yield Objection("RV30", where, f"{gone} bytes are removed, but the size changes from {sizes}")
    at_the_end = len(change.removed) == 1 and change.removed[0].end == change.size_before
    if (change.method == "cut") != at_the_end:
        yield Objection("RV30", where, f"method {change.method!r} does not fit the removed ranges")
    if change.method == "cut" and change.removed and change.removed[0].first_lost != change.last_offset + 1:
        text = f"offset {change.last_offset} is the last that stays, {change.removed[0].first_lost} the first lost one"
        yield Objection("RV30", where, text)
    if any(min(removed.last_lost, removed.records) < -1 for removed in change.removed):
        yield Objection("RV30", where, "a lost offset or a number of lost records is negative")
    if not HEX_32.fullmatch(change.digest_after) or not HEX_32.fullmatch(change.digest_removed):
        yield Objection("RV30", where, "a digest is not 32 hex digits")


def _indexes(facts: PartitionFacts, change: MendLog) -> Iterator[Objection]:
    where = change.change_id
    names = [companion.name for companion in change.companions]
    own = {segment_name(change.base_offset, suffix) for suffix in INDEX_SUFFIXES}
    if len(set(names)) != len(names) or not set(names) <= own:
        yield Objection("RV30", where, "a replaced index is not one of this segment")
    for companion in change.companions:
        name = companion.name
        if companion.size_before != facts.sizes.get(name, -1) or companion.size_after < 0:
            yield Objection("RV30", where, f"{name}: size_before is not that of its fingerprint")
        if not HEX_32.fullmatch(companion.digest_after):
            yield Objection("RV30", where, f"{name}: digest_after is not 32 hex digits")
        if name.endswith(".index") and not 0 <= change.front_bytes <= companion.size_after:
            yield Objection("RV30", where, f"{name}: its front is larger than itself")
    if change.front_bytes % _INDEX_ENTRY_BYTES:
        yield Objection("RV30", where, "the front of the index ends within an entry")


def _consent(facts: PartitionFacts, change: MendLog, removed: RemovedRange) -> Iterator[Objection]:
    where = change.change_id
    if not removed.consent:
        of_last = change.base_offset == max(facts.bases, default=-1)
        if not of_last or removed.end != change.size_before or removed.rule not in _TORN:
            yield Objection(
                "RV29",
                where,
                f"bytes from position {removed.start} are removed without consent, and they are not a torn tail",
            )
        return
    expected = f"{removed.rule}:{facts.partition.folder}:{removed.first_lost}"
    if removed.consent != expected or removed.rule not in BY_CONSENT:
        text = f"consent {removed.consent!r} is not the one for this damage, {expected!r}"
        yield Objection("RV29", where, text)
    elif removed.consent not in facts.policy.accepted_losses:
        yield Objection("RV29", where, f"consent {removed.consent!r} is not among those that were given")
