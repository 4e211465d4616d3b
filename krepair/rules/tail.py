"""Decisions of ``--fix tail``: which bytes and segments of damaged logs are removed, and what needs a consent.

A torn tail is cut. Other damage is removed only with a consent that names this damage: either the damage alone is cut
out, or the log is truncated there as a broker would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from krepair.formats.filenames import log_name
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.rules.damage import DamageAssessment, Loss
from krepair.rules.model import Skipped

TailMode = Literal["excise", "broker"]
_SHOWN_AT_MOST: Final = 20
_FEW: Final = 5


class TailLog(NamedTuple):
    """Log of one segment.

    Attributes:
        base_offset: base offset of the segment.
        size: size of the file in bytes.
        names: number of hard links of the file.
    """

    base_offset: int
    size: int
    names: int


class LogCut(NamedTuple):
    """Bytes that are removed from one log.

    Attributes:
        log: log from which bytes are removed.
        damages: damaged ranges that are removed, ascending.
        as_broker: True if everything from the damage on and all later segments are removed.
    """

    log: TailLog
    damages: tuple[DamageAssessment, ...]
    as_broker: bool = False

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """(start, end) positions of the removed bytes, for each damaged range."""
        if self.as_broker:
            return ((self.damages[0].range.start, self.log.size),)
        return tuple((damage.range.start, damage.range.end) for damage in self.damages)

    @property
    def at_end(self) -> bool:
        """True if the bytes are removed from the end of the log, so that no other bytes move."""
        return len(self.bounds) == 1 and self.bounds[0][1] == self.log.size

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses from removing each damaged range."""
        return tuple(
            damage.loss_if_truncated if self.as_broker else damage.loss_if_excised for damage in self.damages
        )

    @property
    def reason(self) -> str:
        """One line for the reviewer: the removed bytes, and why krepair may remove these bytes."""
        text = self.damages[0].range.text
        if len(self.damages) > 1:
            text += f" (and {len(self.damages) - 1} more)"
        if all(damage.padding for damage in self.damages):
            return f"space that was allocated ahead: {text}"
        if all(damage.torn for damage in self.damages):
            return f"torn tail: {text}"
        way = "damage at the end" if self.at_end else "only the damage"
        return f"{'as a broker would' if self.as_broker else way}, by consent: {text}"


class TailChoice(NamedTuple):
    """Decision on the damage of one partition.

    Attributes:
        cuts: cuts of its logs, ascending.
        aside: base offsets of the segments after a cut, which are moved to the backup, the highest offset first.
        notes: lines for the reviewer.
        left: reason why damage is not repaired, such as a missing consent; None if all damage is repaired.
    """

    cuts: tuple[LogCut, ...] = ()
    aside: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    left: Skipped | None = None


class LogEnd(NamedTuple):
    """End of a partition's log after the cuts, and the files that contain an offset of this log.

    Attributes:
        end: offset after the last batch.
        points: name -> offset in the root's checkpoint entries.
        snapshots: offset -> file name of the producer snapshots that are not removed.
        log_start: log start offset; records below it were deleted.
    """

    end: int
    points: Mapping[str, int]
    snapshots: Mapping[int, str]
    log_start: int = 0


def choose_cuts(
    damages: Sequence[DamageAssessment], logs: Sequence[TailLog], consents: Collection[str], way: TailMode
) -> TailChoice:
    """Choose the bytes to remove from the logs of one partition.

    Args:
        damages: damage of the partition, ascending.
        logs: all logs of the partition, ascending.
        consents: values of ``--accept-data-loss``.
        way: ``excise`` to cut out only the damage, ``broker`` to truncate as a broker would.
    """
    notes, cuts = list(_consent_notes(damages, consents)), []
    ways = _cut_as_broker if way == "broker" else _cuts_by_excision
    for cut in ways(damages, logs, consents):
        if isinstance(cut, str):
            notes.append(cut)
        elif cut.at_end and cut.log.names > 1:
            notes.append(
                f"{log_name(cut.log.base_offset)}: left as it is: it has {cut.log.names} names (hard links), and "
                "cutting it in place would cut them all; give this name a copy of its own first"
            )
        else:
            cuts.append(cut)
    ends = [cut.log.base_offset for cut in cuts if cut.as_broker]
    # The last segment is moved first: a broker that is started half-way through then finds a shorter log, never a log
    # with a missing segment in its middle.
    aside = tuple(log.base_offset for log in reversed(logs) if ends and log.base_offset > ends[0])
    return TailChoice(tuple(cuts), aside, tuple(notes), _why_it_waits(damages, consents, way))


def _why_it_waits(
    damages: Sequence[DamageAssessment], consents: Collection[str], way: TailMode
) -> Skipped | None:
    whole = next((damage for damage in damages if damage.why_not_excisable), None)
    if whole is not None and way == "excise":
        consent = ("--accept-data-loss", whole.consent)
        return Skipped(
            "damage",
            f"{log_name(whole.base_offset)} at position {whole.range.start}: {whole.why_not_excisable}",
            Next.of("plan", LOG_DIR, "--fix", "tail=broker", *consent, out=PLAN),
            damaged=True,
        )
    missing = [damage.consent for damage in damages if damage.consent and damage.consent not in consents]
    if not missing:
        return None
    more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
    words = (word for consent in missing[:_FEW] for word in ("--accept-data-loss", consent))
    return Skipped(
        "damage",
        f"damage that is not a torn tail waits for a consent: {', '.join(missing[:_FEW])}{more}",
        Next.of("plan", LOG_DIR, "--fix", "tail", *words, out=PLAN),
        damaged=True,
    )


def _consent_notes(damages: Sequence[DamageAssessment], consents: Collection[str]) -> Iterator[str]:
    harmful = [damage for damage in damages if not damage.harmless]
    for damage in harmful[:_SHOWN_AT_MOST]:
        where = f"{log_name(damage.base_offset)} at position {damage.range.start}"
        consented = "consent given: " if damage.consent in consents else ""
        yield f"{consented}{where}: {damage.rule}: {damage.range.text}; {damage.description}"
    if len(harmful) > _SHOWN_AT_MOST:
        yield f"{len(harmful) - _SHOWN_AT_MOST} more damaged ranges; krepair check names them all"


def _cuts_by_excision(
    damages: Sequence[DamageAssessment], logs: Sequence[TailLog], consents: Collection[str]
) -> Iterator[LogCut | str]:
    """Yield one cut for each damaged segment, or a message if the segment is not cut.

    A cut must remove all damage of its segment, because the remaining log must be valid to its end.
    """
    for log in logs:
        ranges = tuple(damage for damage in damages if damage.base_offset == log.base_offset)
        missing = [damage for damage in ranges if not damage.harmless and damage.consent not in consents]
        if any(damage.why_not_excisable for damage in ranges):
            continue
        if ranges and not missing:
            yield LogCut(log, ranges)
        elif len(missing) < len(ranges):
            more = missing[0].consent
            also = (
                f"--accept-data-loss {more} as well"
                if more
                else f"{missing[0].rule}, which has no way out here"
            )
            yield (
                f"{log_name(log.base_offset)}: nothing is cut yet, since it has other damage: it needs {also}"
            )


def _cut_as_broker(
    damages: Sequence[DamageAssessment], logs: Sequence[TailLog], consents: Collection[str]
) -> Iterator[LogCut | str]:
    """Yield one cut from the first consented damage on, or a message if a broker would truncate at earlier damage."""
    first = next((damage for damage in damages if damage.consent in consents or damage.torn), None)
    if first is None:
        return
    here = [damage for damage in damages if damage.base_offset == first.base_offset]
    if here[0] is not first:
        where = f"position {here[0].range.start} ({here[0].consent or here[0].rule})"
        yield f"{log_name(first.base_offset)}: nothing is cut yet: its first damage is at {where}"
        return
    log = next(log for log in logs if log.base_offset == first.base_offset)
    yield LogCut(log, (first,), as_broker=True)


def wrong_consent(text: str, damages_by_folder: Mapping[str, Sequence[DamageAssessment]]) -> str:
    """Return a message for a consent that names no damage, with the valid consents; empty if the consent is valid.

    Args:
        text: value of ``--accept-data-loss``: ``RULE:TOPIC-PARTITION:OFFSET``.
        damages_by_folder: partition folder -> damage, for every partition that the plan examines.
    """
    rule, folder, offset = parts_of_consent(text)
    if folder not in damages_by_folder:
        return f"--accept-data-loss {text}: {folder} is not among the partitions that this plan looks at"
    offered = [damage for damage in damages_by_folder[folder] if damage.consent]
    if text in {damage.consent for damage in offered}:
        return ""
    if not offered:
        return f"--accept-data-loss {text}: {folder} has no damage that needs a consent"
    lines = "; ".join(
        f"type --accept-data-loss {damage.consent} ({damage.description})" for damage in offered[:_FEW]
    )
    wrong = (
        "is not a first lost offset" if rule in {damage.rule for damage in offered} else "is not its damage"
    )
    return f"--accept-data-loss {text}: {rule} at offset {offset} {wrong} in {folder}: {lines}"


def parts_of_consent(text: str) -> tuple[str, str, str]:
    """Split a consent into rule, folder and offset. Only the topic's name may contain colons."""
    rule, _, rest = text.partition(":")
    folder, _, offset = rest.rpartition(":")
    return rule, folder, offset


def notes_on_end(
    choice: TailChoice, ends: LogEnd | None, fixes: Collection[str], *, writers: bool
) -> Iterator[str]:
    """Yield notes for the reviewer on the consequences of the cuts.

    Args:
        choice: decision on the damage.
        ends: new end of the log; None if no cut changes the log end.
        fixes: names of the plan's fixes.
        writers: True if producers with ids write to the partition.
    """
    if ends is not None:
        past = [
            f"{name} {offset} (--fix checkpoints)"
            for name, offset in ends.points.items()
            if offset > ends.end and "checkpoints" not in fixes
        ]
        names = [name for offset, name in ends.snapshots.items() if offset > ends.end]
        if names and "snapshots" not in fixes:
            past.append(f"{', '.join(names[:_FEW])} (--fix snapshots)")
        if past:
            yield (
                f"past the new log end {ends.end}: {'; '.join(past)}; a broker drops them by itself at its next start"
            )
        if ends.log_start > ends.end:
            becomes = (
                "--fix checkpoints removes its line, and deleted records are back"
                if "checkpoints" in fixes
                else f"the next start deletes every segment here and begins at {ends.log_start}"
            )
            yield f"the log start {ends.log_start} lies above the new log end {ends.end}: {becomes}"
    if writers and any(not damage.harmless for cut in choice.cuts for damage in cut.damages):
        yield (
            "producers write to it: if a marker was among the lost bytes, its transaction never ends and "
            "read_committed consumers wait there; krepair check reports it (KR103)"
        )
