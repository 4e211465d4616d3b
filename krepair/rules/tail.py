"""What becomes of damaged logs: which bytes go, which segments are set aside, and what waits for a consent. Pure.

A torn tail is cut. Anything else goes only by a consent that names it: cut out alone, or cut off as a broker would.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from krepair.formats.filenames import log_name
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.rules.damage import Damaged, Loss
from krepair.rules.model import LeftAlone

TailWay = Literal["excise", "broker"]
_SHOWN_AT_MOST: Final = 20
_FEW: Final = 5


class TailLog(NamedTuple):
    """One log of a partition.

    Attributes:
        base_offset: of its segment.
        size: bytes of the file.
        names: of the file (hard links).
    """

    base_offset: int
    size: int
    names: int


class LogCut(NamedTuple):
    """What goes from one log.

    Attributes:
        log: the log.
        damages: that it is freed of, ascending.
        as_broker: whether everything from the damage on goes, and all later segments.
    """

    log: TailLog
    damages: tuple[Damaged, ...]
    as_broker: bool = False

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """(start, end) of the bytes that go, one for each damage."""
        if self.as_broker:
            return ((self.damages[0].range.start, self.log.size),)
        return tuple((one.range.start, one.range.end) for one in self.damages)

    @property
    def at_end(self) -> bool:
        """Whether the log is only made shorter."""
        return len(self.bounds) == 1 and self.bounds[0][1] == self.log.size

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What each costs."""
        return tuple(one.broker if self.as_broker else one.excised for one in self.damages)

    @property
    def reason(self) -> str:
        """For the reviewer."""
        text = self.damages[0].range.text
        if len(self.damages) > 1:
            text += f" (and {len(self.damages) - 1} more)"
        if all(one.padding for one in self.damages):
            return f"space that was allocated ahead: {text}"
        if all(one.torn for one in self.damages):
            return f"torn tail: {text}"
        way = "damage at the end" if self.at_end else "only the damage"
        return f"{'as a broker would' if self.as_broker else way}, by consent: {text}"


class TailChoice(NamedTuple):
    """What is decided about the damage of one partition.

    Attributes:
        cuts: ascending.
        aside: base offsets of segments that are set aside behind a cut, in the order in which they go: from the end.
        notes: for the reviewer.
        left: what is left for want of a consent, None if nothing is.
    """

    cuts: tuple[LogCut, ...] = ()
    aside: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    left: LeftAlone | None = None


class LogEnd(NamedTuple):
    """Where a partition's log ends after the cuts, and what other files say of it.

    Attributes:
        end: offset after the last batch.
        points: name -> offset, of the lines of the root's checkpoints.
        snapshots: offset -> file name, of producer snapshots that stay.
        log_start: records below it were deleted.
    """

    end: int
    points: Mapping[str, int]
    snapshots: Mapping[int, str]
    log_start: int = 0


def choose_cuts(
    damages: Sequence[Damaged], logs: Sequence[TailLog], consents: Collection[str], way: TailWay
) -> TailChoice:
    """Which bytes go.

    Args:
        damages: of the partition, ascending.
        logs: all of its logs, ascending.
        consents: as typed after ``--accept-data-loss``.
        way: cut out only the damage, or cut off as a broker would.
    """
    notes, cuts = list(_told(damages, consents)), []
    ways = _as_broker if way == "broker" else _excised
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
    aside = tuple(log.base_offset for log in reversed(logs) if ends and log.base_offset > ends[0])
    return TailChoice(tuple(cuts), aside, tuple(notes), _waits(damages, consents, way))


def _waits(damages: Sequence[Damaged], consents: Collection[str], way: TailWay) -> LeftAlone | None:
    whole = next((one for one in damages if one.unended >= 0), None)
    if whole is not None and way == "excise":
        consent = ("--accept-data-loss", whole.consent)
        return LeftAlone(
            "damage",
            f"{log_name(whole.base_offset)} at position {whole.range.start}: {whole.why_not_alone}",
            Next.of("plan", LOG_DIR, "--fix", "tail=broker", *consent, out=PLAN),
            damaged=True,
        )
    missing = [one.consent for one in damages if one.consent and one.consent not in consents]
    if not missing:
        return None
    more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
    asked = (word for consent in missing[:_FEW] for word in ("--accept-data-loss", consent))
    return LeftAlone(
        "damage",
        f"damage that is not a torn tail waits for a consent: {', '.join(missing[:_FEW])}{more}",
        Next.of("plan", LOG_DIR, "--fix", "tail", *asked, out=PLAN),
        damaged=True,
    )


def _told(damages: Sequence[Damaged], consents: Collection[str]) -> Iterator[str]:
    told = [one for one in damages if not one.harmless]
    for one in told[:_SHOWN_AT_MOST]:
        where = f"{log_name(one.base_offset)} at position {one.range.start}"
        given = "consent given: " if one.consent in consents else ""
        yield f"{given}{where}: {one.rule}: {one.range.text}; {one.price}"
    if len(told) > _SHOWN_AT_MOST:
        yield f"{len(told) - _SHOWN_AT_MOST} more damaged ranges; krepair check names them all"


def _excised(
    damages: Sequence[Damaged], logs: Sequence[TailLog], consents: Collection[str]
) -> Iterator[LogCut | str]:
    """Per segment: all of its damaged ranges, or none, since what stays has to be valid from end to end."""
    for log in logs:
        ranges = tuple(one for one in damages if one.base_offset == log.base_offset)
        missing = [one for one in ranges if not one.harmless and one.consent not in consents]
        if any(one.unended >= 0 for one in ranges):
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


def _as_broker(
    damages: Sequence[Damaged], logs: Sequence[TailLog], consents: Collection[str]
) -> Iterator[LogCut | str]:
    """Everything from the first damage that is consented to; damage before it would make the broker cut there."""
    first = next((one for one in damages if one.consent in consents or one.torn), None)
    if first is None:
        return
    here = [one for one in damages if one.base_offset == first.base_offset]
    if here[0] is not first:
        where = f"position {here[0].range.start} ({here[0].consent or here[0].rule})"
        yield f"{log_name(first.base_offset)}: nothing is cut yet: its first damage is at {where}"
        return
    log = next(one for one in logs if one.base_offset == first.base_offset)
    yield LogCut(log, (first,), as_broker=True)


def wrong_consent(text: str, found: Mapping[str, Sequence[Damaged]]) -> str:
    """Why a consent means nothing, with those that would; empty if it names a damage that is there.

    Args:
        text: as typed after ``--accept-data-loss``: ``RULE:TOPIC-PARTITION:OFFSET``.
        found: damage by partition folder, of every partition that is looked at.
    """
    rule, folder, offset = parts_of_consent(text)
    if folder not in found:
        return f"--accept-data-loss {text}: {folder} is not among the partitions that this plan looks at"
    offered = [one for one in found[folder] if one.consent]
    if text in {one.consent for one in offered}:
        return ""
    if not offered:
        return f"--accept-data-loss {text}: {folder} has no damage that needs a consent"
    lines = "; ".join(f"type --accept-data-loss {one.consent} ({one.price})" for one in offered[:_FEW])
    wrong = "is not a first lost offset" if rule in {one.rule for one in offered} else "is not its damage"
    return f"--accept-data-loss {text}: {rule} at offset {offset} {wrong} in {folder}: {lines}"


def parts_of_consent(text: str) -> tuple[str, str, str]:
    """Rule, folder and offset of a consent as it is typed. A topic's name may have colons, in none of the other two."""
    rule, _, rest = text.partition(":")
    folder, _, offset = rest.rpartition(":")
    return rule, folder, offset


def notes_on_end(
    choice: TailChoice, ends: LogEnd | None, asked: Collection[str], *, writers: bool
) -> Iterator[str]:
    """What a reviewer has to know of what follows from the cuts.

    Args:
        choice: what is cut.
        ends: where the log ends then; None where no cut changes that.
        asked: fixes of the plan.
        writers: whether producers with ids write to the partition.
    """
    if ends is not None:
        past = [
            f"{name} {offset} (--fix checkpoints)"
            for name, offset in ends.points.items()
            if offset > ends.end and "checkpoints" not in asked
        ]
        names = [name for offset, name in ends.snapshots.items() if offset > ends.end]
        if names and "snapshots" not in asked:
            past.append(f"{', '.join(names[:_FEW])} (--fix snapshots)")
        if past:
            yield (
                f"past the new log end {ends.end}: {'; '.join(past)}; a broker drops them by itself at its next start"
            )
        if ends.log_start > ends.end:
            becomes = (
                "--fix checkpoints removes its line, and deleted records are back"
                if "checkpoints" in asked
                else f"the next start deletes every segment here and begins at {ends.log_start}"
            )
            yield f"the log start {ends.log_start} lies above the new log end {ends.end}: {becomes}"
    if writers and any(not one.harmless for cut in choice.cuts for one in cut.damages):
        yield (
            "producers write to it: if a marker was among the lost bytes, its transaction never ends and "
            "read_committed consumers wait there; krepair check tells (KR103)"
        )
