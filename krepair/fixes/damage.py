"""Damage in logs: what is valid behind it, what each way out costs, and the findings that say so."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from krepair.checks.catalogue import Finding
from krepair.fixes.ground import Ground, place_of
from krepair.fixes.survey import Sight, Survey
from krepair.formats.filenames import log_name
from krepair.kernels import classes as c
from krepair.kernels.scan import INT64_MAX
from krepair.logdir.values import LogDir
from krepair.pipeline.jobs import MAP_DAMAGE
from krepair.rules.model import SegmentFacts

if TYPE_CHECKING:
    from krepair.pipeline.damage import DamagedRange, MapItem, MapResult, ValidRange

DAMAGE_SEEN: Sight[dict[int, MapResult]] = Sight("damage")
TORN_TAIL = "KR301"
_INT32_MAX = 2**31 - 1
_RULE = {c.D_OFFSET_ORDER: "KR303", c.D_OFFSET_RANGE: "KR304", c.D_ZEROS: "KR305"}
_UNNOTICED = "a broker's recovery does not notice it"
_WRONG_OFFSETS = frozenset({"KR303", "KR304"})


class Loss(NamedTuple):
    """What one way out of damage costs.

    Attributes:
        bytes: of ``.log`` files.
        first: the first offset that no batch has any more.
        last: the last one, -1 where it cannot be told.
        records: by the headers of batches that can be read, else by the offsets; -1 where nothing can be told.
        at_most: whether some are counted by the offsets, of which there may be more than records.
        at_least: whether there are bytes of which nothing can be told.
        segments: whole segments that go.
        last_at_most: whether ``last`` is only a bound: a message of v0 or v1 follows, which may wrap earlier ones.
    """

    bytes: int
    first: int
    last: int
    records: int
    at_most: bool
    segments: int = 0
    last_at_most: bool = False
    at_least: bool = False

    def text(self) -> str:
        """In words."""
        bound = "at most " if self.last_at_most else ""
        offsets = (
            f"offsets {self.first} to {bound}{self.last}" if self.last >= self.first else _no_offsets(self)
        )
        records = "an unknown number of records"
        if self.records >= 0:
            words = {(True, False): "at most ", (False, True): "at least ", (True, True): "about "}
            records = f"{words.get((self.at_most, self.at_least), '')}{_counted(self.records, 'record')}"
        whole = f", {_counted(self.segments, 'later segment')} among them" if self.segments else ""
        return f"{_counted(self.bytes, 'byte')}{whole}, {offsets}, {records}"


def _counted(count: int, word: str) -> str:
    """In plain digits, as the other numbers of this text: a person compares them with offsets and positions."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def _no_offsets(loss: Loss) -> str:
    return f"offsets from {loss.first} on" if loss.last < 0 else "no offsets"


class Damaged(NamedTuple):
    """One damaged range of a partition, with all that is said about it.

    Attributes:
        base_offset: of its segment.
        range: the bytes.
        rule: ``KRnnn``.
        torn: whether it is the torn tail of the partition: cut without a consent.
        consent: what has to be typed after ``--accept-data-loss``; empty where nothing is lost, or no way is offered.
        excised: what cutting out only these bytes costs.
        broker: what cutting the segment here and dropping all later ones costs, as a broker's recovery does.
        recovery: what a broker's recovery that comes to it does, in words.
    """

    base_offset: int
    range: DamagedRange
    rule: str
    torn: bool
    consent: str
    excised: Loss
    broker: Loss
    recovery: str


def maps_of(survey: Survey) -> Mapping[int, MapResult]:
    """Maps of the damaged logs of a partition, by base offset."""
    return survey.seen(DAMAGE_SEEN) or {}


def look_at_damage(ground: Ground, surveys: Sequence[Survey]) -> None:
    """Map every damaged log of partitions that were read."""
    work = [
        (survey, number)
        for survey in surveys
        for number, facts in enumerate(survey.segments)
        if facts.summary.damage
    ]
    if not work:
        return
    items = [_item(ground.view, survey, number) for survey, number in work]
    maps: dict[str, dict[int, MapResult]] = {}
    for index, result in ground.engine.run(MAP_DAMAGE, items):
        survey, number = work[index]
        base_offset = survey.segments[number].base_offset
        maps.setdefault(survey.partition.folder, {})[base_offset] = result
    for survey in surveys:
        if survey.partition.folder in maps:
            survey.put(DAMAGE_SEEN, maps[survey.partition.folder])


def _item(log_dir: LogDir, survey: Survey, number: int) -> MapItem:
    from krepair.pipeline.damage import MapItem

    facts = survey.segments[number]
    bases = [segment.base_offset for segment in survey.partition.segments]
    later = [base for base in bases if base > facts.base_offset]
    return MapItem(
        place=place_of(log_dir, survey.partition),
        base_offset=facts.base_offset,
        size=facts.summary.file_size,
        first=_valid_front(facts),
        damage=facts.summary.damage,
        text=facts.summary.damage_text,
        highest=min(facts.base_offset + _INT32_MAX, later[0] - 1 if later else INT64_MAX),
        interval_bytes=survey.settings.index_interval_bytes,
        next_base=later[0] if later else -1,
    )


def _valid_front(facts: SegmentFacts) -> ValidRange:
    from krepair.pipeline.damage import ValidRange

    summary = facts.summary
    return ValidRange(
        start=0,
        end=summary.valid_bytes,
        first_offset=summary.first_offset,
        last_offset=summary.last_offset,
        batches=summary.batches,
        records=int(summary.tallies[:, c.T_RECORDS].sum()),
        first_is_old=summary.old_batches > 0 and summary.old_position == 0,
    )


def unmapped(survey: Survey) -> str:
    """Why the damage of a partition is not known to its end, or empty."""
    for base_offset, found in sorted(maps_of(survey).items()):
        if found.failure:
            return found.why
        if not found.complete:
            text = "the search behind its damage was given up: too many places look like batches"
            return f"{log_name(base_offset)}: {text}"
    if len(survey.segments) != len(survey.partition.segments):
        return "not all of its segments could be read"
    return ""


def valid_ranges(survey: Survey, facts: SegmentFacts) -> tuple[ValidRange, ...]:
    """What is valid in a segment."""
    found = maps_of(survey).get(facts.base_offset)
    if found is not None:
        return found.valid
    return (_valid_front(facts),) if facts.summary.batches else ()


def damages_of(log_dir: LogDir, survey: Survey) -> tuple[Damaged, ...]:
    """Every damaged range of a partition that could be mapped, ascending."""
    if unmapped(survey):
        return ()
    flushed = _flushed_to(log_dir, survey)
    found = []
    for number, facts in enumerate(survey.segments):
        mapped = maps_of(survey).get(facts.base_offset)
        if mapped is None:
            continue
        active = number == len(survey.segments) - 1
        for one in mapped.damaged:
            torn = active and _is_torn(one, flushed)
            rule = _RULE.get(one.damage, TORN_TAIL if torn else "KR302")
            harmless = torn or (rule == "KR304" and mapped.recovery == "splits")
            consent = "" if harmless else f"{rule}:{survey.partition.folder}:{one.first_lost}"
            broker = broker_loss(survey, number, one.start)
            found.append(
                Damaged(
                    base_offset=facts.base_offset,
                    range=one,
                    rule=rule,
                    torn=torn,
                    consent=consent,
                    excised=_excised(survey, number, one),
                    broker=broker,
                    recovery=_recovery(survey, number, one, rule, broker),
                )
            )
    return tuple(found)


def _recovery(survey: Survey, number: int, one: DamagedRange, rule: str, broker: Loss) -> str:
    """What a broker's recovery does that comes to a damage."""
    if rule not in _WRONG_OFFSETS:
        return f"a broker's recovery cuts here: {broker.text()} are lost"
    mapped = maps_of(survey)[survey.segments[number].base_offset]
    if mapped.recovery == "splits":
        return "a broker's recovery splits the segment there and loses nothing"
    if mapped.recovery == "empties":
        why = "a broker's recovery comes to an index entry that goes back and empties the segment"
        return f"{why}: {broker_loss(survey, number, 0).text()} are lost"
    if not mapped.recovery and one.start < mapped.cut < one.end:
        loss = broker_loss(survey, number, mapped.cut)
        return f"a broker's recovery does not notice it, and cuts at position {mapped.cut}: {loss.text()} are lost"
    what = {
        "strays": "a broker's recovery splits the segment, and the log end jumps there",
        "stops": "a broker whose recovery comes to it does not start",
    }
    return f"{what.get(mapped.recovery, _UNNOTICED)}; cutting here costs {broker.text()}"


def _flushed_to(log_dir: LogDir, survey: Survey) -> int:
    """Offsets below it were on disk when the broker stopped, so no power cut has torn them."""
    if log_dir.clean_shutdown:
        return INT64_MAX
    return log_dir.recovery_point.offsets.get((survey.partition.topic, survey.partition.number), 0)


def _is_torn(one: DamagedRange, flushed: int) -> bool:
    """The rest of a write that never ended: behind it nothing is valid, and it was not flushed, or is not whole.

    A whole batch with a wrong checksum that had been flushed was a batch once: its disk has changed it.
    """
    if one.next_offset >= 0 or one.checksummed:
        return False
    return one.partial or one.first_lost >= flushed


def _records_of(one: DamagedRange, last: int) -> tuple[int, bool]:
    """Records of a damaged range, and whether that is only a bound; -1 if nothing tells."""
    if one.records >= 0:
        return one.records, False
    if last >= 0:
        return max(last - one.first_lost + 1, 0), True
    return (0, False) if one.zeros else (-1, True)


def _excised(survey: Survey, number: int, one: DamagedRange) -> Loss:
    """What is lost without the damaged bytes alone."""
    following = [ran for ran in valid_ranges(survey, survey.segments[number]) if ran.start >= one.end]
    for facts in survey.segments[number + 1 :]:
        following += valid_ranges(survey, facts)[:1]
    if not following:
        records, at_most = _records_of(one, one.last_lost)
        return Loss(one.bytes, one.first_lost, one.last_lost, records, at_most)
    last = following[0].first_offset - 1
    records, at_most = _records_of(one, last)
    return Loss(one.bytes, one.first_lost, last, records, at_most, last_at_most=following[0].first_is_old)


def broker_loss(survey: Survey, number: int, start: int, *, alone: bool = False) -> Loss:
    """What is lost when a broker cuts a segment and deletes all later ones.

    Args:
        survey: mapped.
        number: of the segment.
        start: position of the cut.
        alone: whether later segments stay, as where only this one is recovered for its missing index.

    Source: LogSegment.recover, Log.recoverLog (2.2.1), LogLoader.recoverLog (3.9).
    """
    facts = survey.segments[number]
    later = () if alone else survey.segments[number + 1 :]
    size = facts.summary.file_size - start + sum(one.summary.file_size for one in later)
    here = maps_of(survey)[facts.base_offset]
    kept = [ran for ran in here.valid if ran.end <= start]
    valid = [ran for ran in here.valid if ran.end > start]
    gaps = [gap for gap in here.damaged if gap.start >= start]
    within = any(gap.start < start < gap.end for gap in here.damaged)
    for one in later:
        valid += valid_ranges(survey, one)
        gaps += maps_of(survey)[one.base_offset].damaged if one.base_offset in maps_of(survey) else ()
    first = kept[-1].last_offset + 1 if kept else facts.base_offset
    last = max([ran.last_offset for ran in valid] + [gap.last_lost for gap in gaps], default=-1)
    records, at_most, at_least = sum(ran.records for ran in valid), False, within
    for gap in gaps:
        count, bound = _records_of(gap, gap.next_offset - 1 if gap.next_offset >= 0 else gap.last_lost)
        records += max(count, 0)
        at_most = at_most or (bound and count >= 0)
        at_least = at_least or count < 0
    if at_least and not records:
        records = -1
    return Loss(size, first, last, records, at_most, len(later), at_least=at_least)


def recovered_bases(survey: Survey, point: int) -> list[int]:
    """Base offsets of the segments that hold offsets at or above the recovery point, ascending."""
    return [segment.base_offset for segment, end in survey.partition.segments_with_ends() if end > point]


def damage_findings(log_dir: LogDir, survey: Survey) -> Iterator[Finding]:
    """Every damaged range with the price of each way out."""
    folder = survey.partition.folder
    why = unmapped(survey) if maps_of(survey) else ""
    for base_offset, found in sorted(maps_of(survey).items()):
        if found.failure == "unreadable":
            yield Finding(rule="KR308", partition=folder, file=log_name(base_offset), evidence=found.why)
    if why:
        for facts in survey.segments:
            if facts.summary.damage:
                yield _unmapped_finding(survey, facts, why)
        return
    for one in damages_of(log_dir, survey):
        yield Finding(
            rule=one.rule,
            partition=folder,
            file=log_name(one.base_offset),
            position=one.range.start,
            evidence=f"{one.range.text}; {_where(one)}; {prices(one)}",
            bytes=one.range.bytes,
            command=_command(log_dir, one),
            first_offset=one.excised.first,
            last_offset=one.excised.last,
            records_lost=0 if one.torn else one.excised.records,
            bytes_lost=0 if one.torn else one.excised.bytes,
        )


def _command(log_dir: LogDir, one: Damaged) -> str:
    """What mends it with the least loss; empty where no way out is offered."""
    if not one.torn and not one.consent:
        return ""
    words = ["krepair", "plan", log_dir.path, "--fix", "tail"]
    words += [] if one.torn else ["--accept-data-loss", one.consent]
    return shlex.join([*words, "--out", "PLAN"])


def _unmapped_finding(survey: Survey, facts: SegmentFacts, why: str) -> Finding:
    rest = facts.summary.file_size - facts.summary.valid_bytes
    return Finding(
        rule=_RULE.get(facts.summary.damage, "KR302"),
        partition=survey.partition.folder,
        file=log_name(facts.base_offset),
        position=facts.summary.valid_bytes,
        evidence=f"{facts.summary.damage_text}; {rest} bytes from here to the end of the file; {why}",
        bytes=rest,
    )


def _where(one: Damaged) -> str:
    if one.range.next_offset >= 0:
        following = f"the next valid batch, at position {one.range.end} (offset {one.range.next_offset})"
        return f"{one.range.bytes} bytes to {following}"
    return f"{one.range.bytes} bytes to the end of the file, no valid batch among them"


def prices(one: Damaged) -> str:
    """What each way out costs, and what has to be typed for it."""
    if one.torn:
        return f"a torn tail: --fix tail cuts it and keeps the bytes; {one.recovery}"
    if not one.consent:
        return f"{one.recovery}; krepair offers no way out"
    return (
        f"{one.recovery}; "
        f"cutting out only the damage: {one.excised.text()}; "
        f"consent: --accept-data-loss {one.consent}"
    )
