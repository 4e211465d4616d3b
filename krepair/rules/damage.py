"""Judgement of damaged logs: torn tail or other damage, the cost of each repair, and what a broker's recovery would do.

``--fix tail`` and ``recovery`` use it, and the forecast of the next start. It opens no file: ``rewrite.damage`` has
read the logs and mapped their valid and damaged ranges.

Source: ``LogSegment.recover``, ``Log.recoverLog`` (2.2.1), ``LogLoader.recoverLog`` (3.9).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from krepair.formats.filenames import log_name, segment_name
from krepair.kernels import classes as c
from krepair.kernels.scan import SegmentSummary
from krepair.rules.model import SegmentFacts

TORN_TAIL: Final = "KR301"
ZEROS: Final = "KR305"
OffsetsRecovery = Literal["", "empties", "splits", "jumps", "stops"]
"""Effect of wrong offsets on a broker's recovery, or empty if it notices nothing.

``empties``: it truncates the segment to 0. ``splits``: it splits the segment and loses nothing. ``jumps``: it splits
the segment, and the log end jumps to the wrong offset. ``stops``: it fails, and the broker does not start.
"""
_VALID_CHECKSUM: Final = frozenset({c.D_OFFSET_ORDER, c.D_OFFSET_RANGE, c.D_COUNTS, c.D_CONTROL})
_RULE: Final = {c.D_OFFSET_ORDER: "KR303", c.D_OFFSET_RANGE: "KR304", c.D_ZEROS: ZEROS}
_UNNOTICED: Final = "a broker's recovery does not notice it"
_WRONG_OFFSETS: Final = frozenset({"KR303", "KR304"})


class ValidRange(Struct, frozen=True, kw_only=True):
    """Range of consecutive valid batches.

    Attributes:
        start: position of the first batch.
        end: position after the last batch.
        first_offset: base offset of the first batch.
        first_is_old: True if the first batch is a v0 or v1 message; for a wrapper, ``first_offset`` is the offset of
            its last inner message.
        last_offset: last offset of the last batch.
        batches: number of batches.
        records: number of records in data batches; a v0 or v1 message counts as one.
    """

    start: int
    end: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    first_is_old: bool = False


class DamagedRange(Struct, frozen=True, kw_only=True):
    """Damaged bytes between valid batches, or after the last one.

    Attributes:
        start: position of the first damaged byte.
        end: position after the last damaged byte.
        damage: kind of damage (``classes.D_*``) at ``start``.
        text: what was expected and found at ``start``.
        first_lost: offset after the last valid batch before the range.
        next_offset: offset of the next valid batch in this log, -1 if there is none.
        records: record count of the one batch in the range by its header, -1 if no header is readable.
        last_lost: last offset by that header, -1 if no header is readable.
        zeros: True if all bytes are zeros.
    """

    start: int
    end: int
    damage: int
    text: str
    first_lost: int
    next_offset: int
    records: int
    last_lost: int
    zeros: bool

    @property
    def bytes(self) -> int:
        """Size of the range in bytes."""
        return self.end - self.start

    @property
    def partial(self) -> bool:
        """True if the range can only be the rest of a torn write: cut short, or nothing but zeros."""
        return self.zeros or self.damage in (c.D_TORN, c.D_PAST_END)

    @property
    def checksummed(self) -> bool:
        """True if the batch at the range's start has a valid checksum, and only its offsets or records are wrong."""
        return self.damage in _VALID_CHECKSUM


class DamageMap(Struct, frozen=True, kw_only=True):
    """Valid and damaged ranges of a damaged log, which together cover the file.

    Attributes:
        why: reason why the log could not be read; empty if it was read.
        unknown: True if the reason is a batch of a later version than krepair knows, which is no damage.
        valid: valid ranges, ascending; an empty first range is left out.
        damaged: damaged ranges, ascending.
        complete: True if the search for valid batches after the last damage was completed.
        recovery: effect on a broker's recovery of wrong offsets in batches with valid checksums, see
            ``rewrite.damage.recovery_of_offsets``; computed only if some are wrong.
        cut: position at which a broker's recovery truncates the log for the damage there; the size of the log if
            nowhere; -1 if it was not computed.
    """

    why: str = ""
    unknown: bool = False
    valid: tuple[ValidRange, ...] = ()
    damaged: tuple[DamagedRange, ...] = ()
    complete: bool = True
    recovery: OffsetsRecovery = ""
    cut: int = -1


class DamagedLogs(NamedTuple):
    """Logs of one partition, some of which may be damaged.

    Attributes:
        folder: name of the partition folder.
        segments: facts of the readable logs, ascending.
        maps: damage maps of the damaged logs, by base offset.
        listed: number of logs in the folder.
        log_start: log start offset; records below it were deleted, and no consumer sees them.
        unread_aborts: base offsets of the segments whose ``.txnindex`` could not be read.
    """

    folder: str
    segments: Sequence[SegmentFacts]
    maps: Mapping[int, DamageMap]
    listed: int
    log_start: int = 0
    unread_aborts: Collection[int] = ()


class WriteProgress(NamedTuple):
    """Offsets of a partition's log that were certainly written, or flushed to disk, when its broker stopped.

    Attributes:
        flushed: recovery point: offsets below it were on the disk, so no power cut has torn them.
        recorded: higher one of recovery point and high watermark: offsets below it certainly existed, later ones may
            have existed. INT64_MAX after a clean stop, because then every written offset was flushed.
        preallocated: True if the topic's ``preallocate`` is on, so that the active log ends with zeros after a kill.
    """

    flushed: int
    recorded: int = 0
    preallocated: bool = False


class Loss(NamedTuple):
    """Cost of one way to repair damage.

    Attributes:
        bytes: lost bytes of ``.log`` files.
        first: first offset that no batch holds any more.
        last: last offset that no batch holds any more, -1 if unknown.
        records: number of lost records that consumers could see, by readable batch headers, else by offsets; -1 if
            unknown.
        at_most: True if some records are counted by their offsets, so that ``records`` may be too high.
        at_least: True if some bytes allow no estimate, so that ``records`` may be too low.
        segments: number of whole segments that are removed.
        last_at_most: True if ``last`` is only an upper bound: a v0 or v1 message follows, which may wrap earlier ones.
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
        """Describe the loss in words."""
        bound = "at most " if self.last_at_most else ""
        offsets = (
            f"offsets {self.first} to {bound}{self.last}" if self.last >= self.first else _no_offsets(self)
        )
        records = "records whose number is not known"
        if self.records >= 0:
            words = {(True, False): "at most ", (False, True): "at least ", (True, True): "about "}
            records = f"{words.get((self.at_most, self.at_least), '')}{_count_text(self.records, 'record')}"
        whole = f", {_count_text(self.segments, 'later segment')} among them" if self.segments else ""
        return f"{_count_text(self.bytes, 'byte')}{whole}, {offsets}, {records}"


def _count_text(count: int, word: str) -> str:
    """Format a count without separators, like the offsets and positions in the same text."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def _no_offsets(loss: Loss) -> str:
    return f"offsets from {loss.first} on" if loss.last < 0 else "no offsets"


def _loss_above(loss: Loss, log_start: int) -> Loss:
    """Restrict a loss to records at or above the log start offset."""
    if loss.first >= log_start or loss.last < 0:
        return loss
    if loss.last < log_start:
        return loss._replace(records=0, at_most=False, at_least=False)
    most = loss.last - log_start + 1
    return loss._replace(records=most if loss.records < 0 else min(loss.records, most), at_most=True)


class DamageAssessment(NamedTuple):
    """One damaged range of a partition, with its possible repairs and their costs.

    Attributes:
        base_offset: base offset of the range's segment.
        rule: finding code ``KRnnn``.
        torn: True if it is the torn tail of the partition, which is cut without consent.
        consent: value for ``--accept-data-loss``; empty if nothing is lost, or no repair is offered.
        loss_if_excised: cost of cutting out only these bytes.
        loss_if_truncated: cost of truncating the segment here and deleting all later segments, as a broker's recovery
            does.
        recovery: description of what a broker's recovery does here.
        log_start: log start offset of the partition.
        why_not_excisable: reason why this range must not be cut out alone, or empty.
        padding: True if the bytes are zeros that a broker preallocated, so that nothing is missing.
        deletes_later_segments: True if a broker's recovery that truncates here deletes later segments.
    """

    base_offset: int
    range: DamagedRange
    rule: str
    torn: bool
    consent: str
    loss_if_excised: Loss
    loss_if_truncated: Loss
    recovery: str
    log_start: int = 0
    why_not_excisable: str = ""
    padding: bool = False
    deletes_later_segments: bool = False

    @property
    def harmless(self) -> bool:
        """True if the bytes may be removed without consent."""
        return self.torn or self.padding

    @property
    def description(self) -> str:
        """Description of what each repair costs, and which consent it needs."""
        if self.padding:
            cost = f"; {self.recovery}" if self.deletes_later_segments else ""
            return f"space that a broker allocated ahead (preallocate): no record is missing; --fix tail cuts it{cost}"
        if self.torn:
            lost = self.range.zeros and self.rule == TORN_TAIL
            zeros = "; records since the last checkpoint may be lost" if lost else ""
            return f"a torn tail: --fix tail cuts it and keeps the bytes{zeros}; {self.recovery}"
        if not self.consent:
            return f"{self.recovery}; krepair has no fix for it"
        if self.why_not_excisable:
            consent = f"consent for tail=broker: --accept-data-loss {self.consent}"
            return f"{self.recovery}; {self.why_not_excisable}; {consent}"
        below = f" (the log start is {self.log_start})" if self.loss_if_excised.first < self.log_start else ""
        return (
            f"{self.recovery}; "
            f"cutting out only the damage: {self.loss_if_excised.text()}{below}; "
            f"consent: --accept-data-loss {self.consent}"
        )


def rule_of(damage: int, *, torn: bool = False) -> str:
    """Return the finding code for a kind of damage (``classes.D_*``)."""
    return _RULE.get(damage, TORN_TAIL if torn else "KR302")


def valid_range(summary: SegmentSummary, start: int = 0) -> ValidRange:
    """Build the range of valid batches that a scan found from a position of a log."""
    return ValidRange(
        start=start,
        end=start + summary.valid_bytes,
        first_offset=summary.first_offset,
        last_offset=summary.last_offset,
        batches=summary.batches,
        records=int(summary.tallies[:, c.T_RECORDS].sum()),
        first_is_old=summary.old_batches > 0 and summary.old_position == 0,
    )


def why_not_mapped(logs: DamagedLogs) -> str:
    """Return why the damage of a partition is not fully known; empty if it is."""
    for base_offset, mapped in sorted(logs.maps.items()):
        if mapped.why:
            return mapped.why
        if not mapped.complete:
            text = "krepair stopped searching after the damage: too many positions look like batch headers"
            return f"{log_name(base_offset)}: {text}"
    if len(logs.segments) != logs.listed:
        return "not all of its segments could be read"
    return ""


def valid_ranges(logs: DamagedLogs, facts: SegmentFacts) -> tuple[ValidRange, ...]:
    """Return the valid ranges of a segment."""
    mapped = logs.maps.get(facts.base_offset)
    if mapped is not None:
        return mapped.valid
    return (valid_range(facts.summary),) if facts.summary.batches else ()


def damages_of(logs: DamagedLogs, written: WriteProgress) -> tuple[DamageAssessment, ...]:
    """Return every damaged range of a partition that could be mapped, ascending."""
    if why_not_mapped(logs):
        return ()
    damages = []
    later = _summaries_of_later_segments(logs)
    for number, facts in enumerate(logs.segments):
        mapped = logs.maps.get(facts.base_offset)
        if mapped is None:
            continue
        active, here = number == len(logs.segments) - 1, valid_ranges(logs, facts)
        for damaged in mapped.damaged:
            torn = active and _is_torn_write(damaged, written.flushed)
            next_base = -1 if active else logs.segments[number + 1].base_offset
            padding = _is_padding(damaged, next_base, written)
            rule = ZEROS if padding else _rule_of_range(damaged, written, torn=torn)
            harmless = torn or padding or (rule == "KR304" and mapped.recovery == "splits")
            broker = _cut_loss(logs, number, damaged.start, later[number])
            following = next((intact for intact in here if intact.start >= damaged.end), later[number].first)
            damages.append(
                DamageAssessment(
                    base_offset=facts.base_offset,
                    range=damaged,
                    rule=rule,
                    torn=torn,
                    consent="" if harmless else f"{rule}:{logs.folder}:{damaged.first_lost}",
                    loss_if_excised=_loss_above(_loss_by_excision(damaged, following), logs.log_start),
                    loss_if_truncated=broker,
                    recovery=_recovery(logs, number, damaged, rule, broker, later[number]),
                    log_start=logs.log_start,
                    why_not_excisable=""
                    if harmless
                    else _why_not_excisable(logs, facts, damaged, following, later[number]),
                    padding=padding,
                    deletes_later_segments=later[number].segments > 0,
                )
            )
    return tuple(damages)


def _is_padding(damaged: DamagedRange, next_base: int, written: WriteProgress) -> bool:
    """Return whether zeros at the end of a log are preallocated space, so that no record is missing.

    In an inactive segment this is certain if the next segment begins at exactly the next offset (KAFKA-5431: cleaned
    segments kept the zeros). In the active segment only the setting ``preallocate`` distinguishes such zeros from a
    write that a power cut has lost. The recorded offset is only a lower bound: zeros that begin below it have replaced
    records that existed, so they are no padding. Zeros above it prove nothing by themselves, because the high watermark
    may be five seconds old. Source: ``LogSegment.open``, ``FileRecords.open`` (3.9).
    """
    if not damaged.zeros or damaged.next_offset >= 0:
        return False
    if next_base >= 0:
        return damaged.first_lost == next_base
    return written.preallocated and damaged.first_lost >= written.recorded


def _rule_of_range(damaged: DamagedRange, written: WriteProgress, *, torn: bool) -> str:
    """Return the finding code of a damaged range; zeros at the end of a log count as a torn tail."""
    if torn and damaged.zeros and damaged.first_lost >= written.recorded:
        return TORN_TAIL
    return rule_of(damaged.damage, torn=torn)


def _why_not_excisable(
    logs: DamagedLogs,
    facts: SegmentFacts,
    damaged: DamagedRange,
    following: ValidRange | None,
    later: _LaterSegments,
) -> str:
    """Return the reason why a range must not be cut out while later batches are kept; empty if it may be cut out.

    The records of an aborted transaction must not be kept without its marker, because consumers would read them. A
    ``.txnindex`` has no checksum: if an entry cannot be true, nobody knows which marker it means. If nothing follows
    the range, the log ends there, as after a broker's truncation.
    """
    if following is None and not later.segments:
        return ""
    name = segment_name(facts.base_offset, ".txnindex")
    producer, first, marker, _ = facts.entries.T
    untrue = (first < 0) | (first > marker) | (marker < facts.base_offset) | (producer < 0)
    if facts.base_offset in logs.unread_aborts or untrue.any():
        return (
            f"it cannot be cut out alone: {name} is damaged too; it may have listed a transaction whose abort "
            "marker is among these bytes; without it consumers would read aborted records"
        )
    lost = (first < damaged.first_lost) & (damaged.first_lost <= marker)
    if following is not None:
        lost &= marker < following.first_offset
    if not lost.any():
        return ""
    return (
        "it cannot be cut out alone: by the .txnindex it holds the marker that aborted a transaction of producer "
        f"{int(producer[lost][0])}, whose records would stay; without it consumers would read them as committed, or "
        "miss later ones"
    )


def _recovery(
    logs: DamagedLogs, number: int, damaged: DamagedRange, rule: str, broker: Loss, later: _LaterSegments
) -> str:
    """Describe what a broker's recovery does when it reaches a damaged range."""
    if rule not in _WRONG_OFFSETS:
        return f"a broker's recovery cuts here: {broker.text()} are lost"
    mapped = logs.maps[logs.segments[number].base_offset]
    if mapped.recovery == "splits":
        return "a broker's recovery splits the segment there and loses nothing"
    if mapped.recovery == "empties":
        why = "a broker's recovery meets an index entry with a lower offset than before, and truncates the segment to 0"
        return f"{why}: {_cut_loss(logs, number, 0, later).text()} are lost"
    if not mapped.recovery and damaged.start < mapped.cut < damaged.end:
        loss = _cut_loss(logs, number, mapped.cut, later)
        return f"a broker's recovery does not notice it, and cuts at position {mapped.cut}: {loss.text()} are lost"
    effects = {
        "jumps": "a broker's recovery splits the segment, and the log end jumps there",
        "stops": "recovery fails there, and the broker does not start",
    }
    return f"{effects.get(mapped.recovery, _UNNOTICED)}; cutting here costs {broker.text()}"


def _is_torn_write(damaged: DamagedRange, flushed: int) -> bool:
    """Return whether a range is the rest of an unfinished write, so that no acknowledged record is in it.

    Nothing valid follows such a range, and it was not flushed or is cut short. A complete batch below the recovery
    point was valid when it was flushed: if its checksum is wrong now, the disk has changed it.
    """
    if damaged.next_offset >= 0 or damaged.checksummed:
        return False
    return damaged.partial or damaged.first_lost >= flushed


def _records_of(damaged: DamagedRange, last: int) -> tuple[int, bool]:
    """Return the number of records in a damaged range, -1 if unknown, and whether that is only an upper bound."""
    if damaged.records >= 0:
        return damaged.records, False
    if last >= 0:
        return max(last - damaged.first_lost + 1, 0), True
    return (0, False) if damaged.zeros else (-1, True)


def _loss_by_excision(damaged: DamagedRange, following: ValidRange | None) -> Loss:
    """Compute the loss of cutting out only the damaged bytes; ``following`` is the next valid range, if any."""
    if following is None:
        records, at_most = _records_of(damaged, damaged.last_lost)
        return Loss(damaged.bytes, damaged.first_lost, damaged.last_lost, records, at_most)
    last = following.first_offset - 1
    records, at_most = _records_of(damaged, last)
    return Loss(
        damaged.bytes, damaged.first_lost, last, records, at_most, last_at_most=following.first_is_old
    )


def broker_loss(logs: DamagedLogs, number: int, start: int, *, alone: bool = False) -> Loss:
    """Compute the loss if a broker truncates a segment and deletes all later ones.

    Args:
        logs: logs with damage maps.
        number: index of the segment.
        start: position of the cut.
        alone: True if later segments are kept, as when only this segment is recovered for its missing index.
    """
    return _cut_loss(
        logs, number, start, _NO_LATER_SEGMENTS if alone else _summaries_of_later_segments(logs)[number]
    )


def _cut_loss(logs: DamagedLogs, number: int, start: int, later: _LaterSegments) -> Loss:
    """Compute the loss of truncating segment ``number`` at position ``start`` and deleting the ``later`` segments.

    A cut inside a damaged range also loses the part of its records below the cut, whose number no header tells: then
    the count is a lower bound.
    """
    facts = logs.segments[number]
    here = logs.maps[facts.base_offset]
    kept = [intact for intact in here.valid if intact.end <= start]
    counts = _counts(
        [intact for intact in here.valid if intact.end > start],
        [damage for damage in here.damaged if damage.start >= start],
    ).combined_with(later.counts)
    first = kept[-1].last_offset + 1 if kept else facts.base_offset
    cut_inside_damage = any(damage.start < start < damage.end for damage in here.damaged)
    at_least = counts.at_least or cut_inside_damage
    loss = Loss(
        facts.summary.file_size - start + later.bytes,
        first,
        -1 if counts.last is None else counts.last,
        -1 if at_least and not counts.records else counts.records,
        counts.at_most,
        later.segments,
        at_least=at_least,
    )
    return _loss_above(loss, logs.log_start)


class _Counts(NamedTuple):
    """Content of valid and damaged ranges.

    Attributes:
        last: last offset, None if there are no ranges.
        records: number of records, as far as it is known.
        at_most: True if ``records`` may be too high, see ``Loss``.
        at_least: True if ``records`` may be too low, see ``Loss``.
    """

    last: int | None = None
    records: int = 0
    at_most: bool = False
    at_least: bool = False

    def combined_with(self, other: _Counts) -> _Counts:
        """Add the content of other ranges."""
        return _Counts(
            max((last for last in (self.last, other.last) if last is not None), default=None),
            self.records + other.records,
            self.at_most or other.at_most,
            self.at_least or other.at_least,
        )


def _counts(valid: Sequence[ValidRange], damaged: Sequence[DamagedRange]) -> _Counts:
    last = max(
        [intact.last_offset for intact in valid] + [damage.last_lost for damage in damaged], default=None
    )
    records, at_most, at_least = sum(intact.records for intact in valid), False, False
    for damage in damaged:
        count, bound = _records_of(
            damage, damage.next_offset - 1 if damage.next_offset >= 0 else damage.last_lost
        )
        records += max(count, 0)
        at_most = at_most or (bound and count >= 0)
        at_least = at_least or count < 0
    return _Counts(last, records, at_most, at_least)


class _LaterSegments(NamedTuple):
    """Summary of all segments after one segment.

    Attributes:
        segments: number of these segments.
        bytes: bytes of their logs.
        counts: content of these segments.
        first: first valid range in them, None if there is none.
    """

    segments: int = 0
    bytes: int = 0
    counts: _Counts = _Counts()
    first: ValidRange | None = None


_NO_LATER_SEGMENTS: Final = _LaterSegments()


def _summaries_of_later_segments(logs: DamagedLogs) -> list[_LaterSegments]:
    """Summarize the later segments of each segment, in one pass from the last segment to the first."""
    summaries, later = [], _NO_LATER_SEGMENTS
    for facts in reversed(logs.segments):
        summaries.append(later)
        valid = valid_ranges(logs, facts)
        damaged = logs.maps[facts.base_offset].damaged if facts.base_offset in logs.maps else ()
        later = _LaterSegments(
            later.segments + 1,
            later.bytes + facts.summary.file_size,
            later.counts.combined_with(_counts(valid, damaged)),
            valid[0] if valid else later.first,
        )
    return summaries[::-1]
