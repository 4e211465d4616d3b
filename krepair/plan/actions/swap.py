"""The plan layer's code for ``CompleteSwap``: a swap that a broker began is completed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from krepair.formats.filenames import INDEX_SUFFIXES, MAX_OFFSET, SEGMENT_SUFFIXES, segment_name
from krepair.formats.words import count_text
from krepair.plan.actions.action import ROUNDING_BYTES, BytesRead, PlannedAction, Space, Touched
from krepair.plan.actions.listing import SWAPS
from krepair.plan.actions.log_contents import Content, ContentRange, Fate, summed
from krepair.plan.facts import OnDisk, PartitionFacts
from krepair.plan.model import CompleteSwap
from krepair.plan.objection import Objection

_LEFTOVERS_FIX = "leftovers"
_RULE = "KR601"


class Swap(PlannedAction[CompleteSwap]):
    """Implements ``PlannedAction`` for ``CompleteSwap``."""

    kind = CompleteSwap
    listing = SWAPS
    in_order = True

    def touches(self, change: CompleteSwap) -> Touched:
        """The new segment's files, those of the segments replaced, and the files of the swap."""
        log = segment_name(change.base_offset, ".log")
        makes = (log, *(made.name for made in change.makes))
        gone = tuple(name for name in change.goes if name not in makes)
        return Touched(tuple(sorted({change.base_offset, *change.replaces})), makes, (f"{log}.swap", *gone))

    def may_move_log_end(self, change: CompleteSwap, bases: Sequence[int]) -> bool:
        """Whether no segment follows the swap."""
        return change.last_offset >= max(bases, default=-1)

    def space(self, change: CompleteSwap, on_disk: OnDisk) -> Space:
        """Space for the new indexes, and for the real copies of damaged segments. The log only changes its name."""
        made = on_disk.takes(*(file.size for file in change.makes))
        copies = on_disk.takes(
            *(
                on_disk.sizes.get(segment_name(base, suffix), 0)
                for base in change.copied
                for suffix in SEGMENT_SUFFIXES
            )
        )
        return Space(
            made=made,
            back=on_disk.back(change.goes),
            peak=copies + made + len(SEGMENT_SUFFIXES) * ROUNDING_BYTES,
            log_shrinks=_segment_bytes(change.replaces, (".log",), on_disk.sizes) - change.log_bytes,
        )

    def work(self, change: CompleteSwap) -> BytesRead:
        """Its log is read to make the indexes, and again when the segment is verified."""
        return BytesRead(stage=change.log_bytes, verify=change.log_bytes, apply=change.log_bytes)

    def review(self, facts: PartitionFacts, change: CompleteSwap) -> Iterator[Objection]:
        """The swap must be there and not void, and must replace exactly the segments that a broker would replace."""
        where, base = change.change_id, change.base_offset
        log = segment_name(base, ".log.swap")
        if _LEFTOVERS_FIX not in facts.fixes or change.rule != _RULE:
            yield Objection("RV31", where, f"a swap is completed by --fix leftovers alone, for {_RULE}")
        in_place = where == f"{facts.partition.folder}/{log}"
        if not 0 <= base <= change.last_offset < MAX_OFFSET or not in_place:
            yield Objection("RV31", where, "its offsets or its change_id are wrong")
        if any(_base_of(name) <= base for name in facts.files if name.endswith(".cleaned")):
            yield Objection(
                "RV31",
                where,
                "there is a .cleaned at or below its offset: every broker throws this swap away",
            )
        yield from _replaced(facts, change)
        names = [made.name for made in change.makes]
        own = {segment_name(base, suffix) for suffix in INDEX_SUFFIXES}
        if names != sorted(set(names)) or not set(names) <= own:
            yield Objection("RV31", where, "it makes files that are not its own indexes")

    def summary(self, changes: Sequence[CompleteSwap]) -> Iterator[str]:
        """How many swaps, and how many segments they replace."""
        gone = sum(len(change.replaces) for change in changes)
        yield (
            f"{count_text(len(changes), 'swap')} that a broker did not finish: completed as every broker would. "
            f"{count_text(gone, 'segment is', 'segments are')} replaced; no batch changes."
        )

    def mends(self, change: CompleteSwap) -> tuple[str, ...]:
        return (change.rule,)

    def goes(self, changes: Sequence[CompleteSwap]) -> Iterator[str]:
        yield f"{count_text(len(changes), 'swap')} completed"

    def fate(self, change: CompleteSwap, sizes: Mapping[str, int]) -> Fate:
        """The replaced segments are moved out, and the swap becomes a segment."""
        before: dict[int, tuple[ContentRange, ...]] = {}
        for base_offset in change.replaces:
            size = sizes.get(segment_name(base_offset, ".log"), 0)
            before[base_offset] = summed(((Content.REPLACED, size),))
        new = summed(((Content.LEFT, change.log_bytes),))
        return Fate(before, {change.base_offset: new})

    def rows(self, change: CompleteSwap) -> Iterator[tuple[str, ...]]:
        yield (
            change.change_id,
            f"{change.log_bytes:,}",
            f"{change.base_offset} to {change.last_offset}",
            ", ".join(map(str, change.replaces)) or "none that is left",
            change.reason,
        )


def _segment_bytes(bases: Sequence[int], suffixes: Sequence[str], sizes: Mapping[str, int]) -> int:
    return sum(sizes.get(segment_name(base, suffix), 0) for base in bases for suffix in suffixes)


def _base_of(name: str) -> int:
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else -1


def _replaced(facts: PartitionFacts, change: CompleteSwap) -> Iterator[Objection]:
    where, base = change.change_id, change.base_offset
    covered = tuple(other for other in facts.bases if base <= other <= change.last_offset)
    if change.replaces != covered:
        yield Objection(
            "RV31",
            where,
            f"it replaces segments {list(change.replaces)}; every broker replaces {list(covered)}",
        )
    segments = sorted({base, *covered})
    names = [segment_name(segment, suffix) for segment in segments for suffix in SEGMENT_SUFFIXES]
    names += [segment_name(base, f"{suffix}.swap") for suffix in INDEX_SUFFIXES]
    if change.goes != tuple(sorted(name for name in names if name in facts.files)):
        yield Objection("RV31", where, "the files that it removes are not those of the segments replaced")
    if not set(change.copied) <= set(change.replaces):
        yield Objection("RV31", where, "it copies a segment that it does not replace")
