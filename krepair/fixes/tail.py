"""Changes of a plan for damaged logs: a torn tail is cut, anything else only by a consent that names it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from krepair.checks.catalogue import Finding
from krepair.errors import UsageError
from krepair.fixes.damage import (
    Damaged,
    Loss,
    damage_findings,
    damages_of,
    look_at_damage,
    maps_of,
    prices,
    unmapped,
    valid_ranges,
)
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.gates import waits_for_leftovers, why_untouched
from krepair.fixes.ground import Ground, place_of
from krepair.fixes.logs import read_logs
from krepair.fixes.second_readings import Applied, Job, gone_job, mended_log_jobs
from krepair.fixes.staging import Staging, Work, error_of
from krepair.fixes.survey import Sight, Survey
from krepair.formats.filenames import log_name, offset_name, segment_name
from krepair.logdir.values import FileRef, LogDir, Partition
from krepair.options import Options
from krepair.pipeline.jobs import MAKE_MENDED
from krepair.plan.model import Change, KeepOriginal, MendLog, NewCompanion, RemovedRange, SetAside
from krepair.rules.model import LeftAlone
from krepair.rules.refetch import REFETCHED

if TYPE_CHECKING:
    from krepair.pipeline.damage import MendedItem, MendedResult

TAIL_SEEN: Sight[TailDecision] = Sight("what becomes of damage")
_SHOWN_AT_MOST = 20
_FEW = 5


class TailDecision(NamedTuple):
    """What is planned for the damage of a partition.

    Attributes:
        changes: in the order in which they are carried out.
        notes: for the reviewer.
        left: what is left for want of a consent, None if nothing is.
    """

    changes: tuple[MendLog | SetAside, ...] = ()
    notes: tuple[str, ...] = ()
    left: LeftAlone | None = None


class Tail(Fix):
    """Damaged logs: a torn tail is cut; anything else is cut out, or cut off as a broker would, by consent."""

    name = "tail"
    ways = ("excise", "broker")
    after = ("leftovers",)
    mends = frozenset({"KR301", "KR302", "KR303", "KR304", "KR305"})

    def check_options(self, options: Options) -> None:
        """A consent means nothing where this fix is not asked for.

        Raises:
            UsageError: there is one, and no ``--fix tail``.
        """
        if options.accepted_losses and not self.is_asked(options.fixes):
            raise UsageError(
                f"--accept-data-loss {options.accepted_losses[0]}: means nothing without --fix tail",
                next_command="krepair plan LOGDIR --fix tail --accept-data-loss RULE:TOPIC-PARTITION:OFFSET "
                "--out PLAN",
            )

    def reads_whole(self, partition: Partition, way: str) -> bool:
        """Damage may be anywhere."""
        del way
        return bool(partition.segments)

    def look(self, ground: Ground, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Map the damage; for a plan, also work out the files that the logs become.

        Raises:
            UsageError: a consent does not name a damage that is there.
        """
        if purpose == "check":
            look_at_damage(ground, surveys)
            return
        touched = [one for one in surveys if not why_untouched(one.partition, one.settings)]
        read_logs(ground, touched)
        look_at_damage(ground, touched)
        _check_untouched(ground.options, surveys)
        decide(ground, touched)
        for survey in surveys:
            why = why_untouched(survey.partition, survey.settings)
            if why:
                survey.put(TAIL_SEEN, TailDecision(notes=(f"its logs are left alone: {why}",)))

    def findings(self, ground: Ground, survey: Survey) -> Iterator[Finding]:
        """KR301 to KR305, with the price of each way out."""
        return damage_findings(ground.view, survey)

    def propose(self, ground: Ground, survey: Survey) -> Proposal:
        """What was decided."""
        del ground
        seen = survey.seen(TAIL_SEEN) or TailDecision()
        return Proposal(changes=seen.changes, notes=seen.notes, left=seen.left)

    def owns(self, change: Change) -> bool:
        """A log without its damage, and segments behind a cut."""
        return isinstance(change, MendLog) or (isinstance(change, SetAside) and change.rule != REFETCHED)

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        """Make the logs without their damage again; nothing is staged for a segment that is set aside."""
        jobs: list[tuple[Staging, MendLog, MendedItem]] = []
        for staging in stagings:
            logs = [change for change in staging.changes if isinstance(change, MendLog)]
            if logs:
                with staging.taking_problems():
                    staging.folder.make_private_folders()
                    jobs += [
                        (staging, change, mended_item(work, staging, change, staging.stage_folder))
                        for change in logs
                    ]
        if not jobs:
            return
        for index, result in work.engine.run(MAKE_MENDED, [item for _, _, item in jobs]):
            staging, change, _ = jobs[index]
            wrong = result.why if result.failure else _not_as_planned(change, result)
            if wrong:
                staging.problem = staging.problem or error_of(result.failure or "changed", wrong)

    def second_readings(self, applied: Applied, change: Change) -> Iterator[Job]:
        """Logs are walked from end to end and held against what is kept. A set aside segment is gone, and kept."""
        if isinstance(change, SetAside):
            yield gone_job(applied, change.names)
        else:
            assert isinstance(change, MendLog)
            yield from mended_log_jobs(applied, change)


def mended_item(work: Work, staging: Staging, change: MendLog, target: str) -> MendedItem:
    """The item that makes a log without its damage, and its indexes; without a target it only reads the new one."""
    from krepair.pipeline.damage import MendedItem

    return MendedItem(
        place=work.place(staging),
        base_offset=change.base_offset,
        size=change.size_before if target else change.size_after,
        without=tuple((one.start, one.end) for one in change.removed) if target else (),
        interval_bytes=work.index_interval_bytes(staging),
        target=target,
        with_log=bool(target) and change.method == "excise",
    )


def _not_as_planned(change: MendLog, made: MendedResult) -> str:
    """How what was worked out anew differs from the plan, or empty."""
    companions = {
        segment_name(change.base_offset, one.suffix): one for one in made.companions if not one.same
    }
    planned = {one.name: (one.size_before, one.size_after, one.digest_after) for one in change.companions}
    again = {name: (one.size_before, one.size_after, one.digest_after) for name, one in companions.items()}
    log = (made.size, made.digest, made.digest_gone, made.last_offset)
    if log != (change.size_after, change.digest_after, change.digest_removed, change.last_offset):
        return f"{change.change_id}: the bytes that go and stay are not those of the plan"
    if planned != again:
        return f"{change.change_id}: its indexes worked out anew are not those of the plan"
    return ""


TAIL = Tail()


def decide(ground: Ground, touched: Sequence[Survey]) -> None:
    """Decide about mapped damage, and work out the files that the logs become; see ``TAIL_SEEN``.

    Raises:
        UsageError: a consent does not name a damage that is there.
    """
    found = {survey.partition.folder: damages_of(ground.view, survey) for survey in touched}
    _check_consents(ground.options, found)
    drafts = []
    for survey in touched:
        draft = _Draft(ground.view, survey, found[survey.partition.folder], ground.options)
        survey.put(TAIL_SEEN, TailDecision(notes=tuple(draft.notes), left=draft.left))
        if draft.without:
            drafts.append(draft)
    jobs = [(draft, base, without) for draft in drafts for base, without in sorted(draft.without.items())]
    items = [draft.item(base, without) for draft, base, without in jobs]
    for index, result in ground.engine.run(MAKE_MENDED, items):
        draft, base, _ = jobs[index]
        draft.made[base] = result
    for draft in drafts:
        draft.survey.put(TAIL_SEEN, draft.decision())


def _check_untouched(options: Options, surveys: Sequence[Survey]) -> None:
    """A consent for a partition that is left as it is: said with the reason, and with what comes first."""
    for survey in surveys:
        folder = survey.partition.folder
        why = why_untouched(survey.partition, survey.settings)
        if why and any(
            text.partition(":")[2].rpartition(":")[0] == folder for text in options.accepted_losses
        ):
            raise UsageError(
                f"--accept-data-loss: {folder}: its logs are left alone: {why}",
                next_command=(
                    "krepair plan LOGDIR --fix leftovers --out PLAN"
                    if waits_for_leftovers(survey.partition)
                    else ""
                ),
            )


def _check_consents(options: Options, found: dict[str, tuple[Damaged, ...]]) -> None:
    for text in options.accepted_losses:
        rule, _, rest = text.partition(":")
        folder, _, offset = rest.rpartition(":")
        if folder not in found:
            raise UsageError(
                f"--accept-data-loss {text}: {folder} is not among the partitions that this plan looks at"
            )
        offered = [one for one in found[folder] if one.consent]
        if text in {one.consent for one in offered}:
            continue
        if not offered:
            raise UsageError(f"--accept-data-loss {text}: {folder} has no damage that needs a consent")
        lines = "; ".join(f"type --accept-data-loss {one.consent} ({prices(one)})" for one in offered[:_FEW])
        wrong = "is not a first lost offset" if rule in {one.rule for one in offered} else "is not its damage"
        raise UsageError(f"--accept-data-loss {text}: {rule} at offset {offset} {wrong} in {folder}: {lines}")


class _Draft:
    """What becomes of one partition's damage, before the new files are worked out."""

    def __init__(
        self, log_dir: LogDir, survey: Survey, damages: tuple[Damaged, ...], options: Options
    ) -> None:
        self.log_dir = log_dir
        self.survey = survey
        self.partition: Partition = survey.partition
        self.accepted = frozenset(options.accepted_losses)
        self.asked = options.fixes
        self.notes: list[str] = []
        self.without: dict[int, tuple[Damaged, ...]] = {}
        self.aside: tuple[int, ...] = ()
        self.aside_for: Damaged | None = None
        self.made: dict[int, MendedResult] = {}
        self.left: LeftAlone | None = None
        why = unmapped(survey) if maps_of(survey) or not survey.segments else ""
        if why and self.partition.segments:
            self.left = LeftAlone("damage", f"its damage is left alone: {why}", damaged=True)
            return
        self._tell(damages)
        if TAIL.way(options.fixes) == "broker":
            self._as_the_broker(damages)
        else:
            self._excise(damages)

    def _tell(self, damages: tuple[Damaged, ...]) -> None:
        told = [one for one in damages if not one.torn]
        missing = [one.consent for one in told if one.consent and one.consent not in self.accepted]
        if missing:
            more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
            asked = " ".join(f"--accept-data-loss {consent}" for consent in missing[:_FEW])
            self.left = LeftAlone(
                "damage",
                f"damage that is not a torn tail waits for a consent: {', '.join(missing[:_FEW])}{more}",
                f"krepair plan LOGDIR --fix tail {asked} --out PLAN",
                damaged=True,
            )
        for one in told[:_SHOWN_AT_MOST]:
            where = f"{log_name(one.base_offset)} at position {one.range.start}"
            given = "consent given: " if one.consent in self.accepted else ""
            self.notes.append(f"{given}{where}: {one.rule}: {one.range.text}; {prices(one)}")
        if len(told) > _SHOWN_AT_MOST:
            self.notes.append(
                f"{len(told) - _SHOWN_AT_MOST} more damaged ranges; krepair check names them all"
            )

    def _excise(self, damages: tuple[Damaged, ...]) -> None:
        """Per segment: all of its damaged ranges, or none, since what stays has to be valid from end to end."""
        by_segment: dict[int, list[Damaged]] = {}
        for one in damages:
            by_segment.setdefault(one.base_offset, []).append(one)
        for base_offset, ranges in by_segment.items():
            missing = [one for one in ranges if not one.torn and one.consent not in self.accepted]
            if not missing:
                self._take(base_offset, tuple(ranges))
            elif len(missing) < len(ranges):
                more = missing[0].consent
                also = (
                    f"--accept-data-loss {more} as well"
                    if more
                    else f"{missing[0].rule}, which has no way out here"
                )
                self.notes.append(
                    f"{log_name(base_offset)}: nothing is cut yet, since it has other damage: it needs {also}"
                )

    def _as_the_broker(self, damages: tuple[Damaged, ...]) -> None:
        """Everything from the first damage that is consented to; damage before it would make the broker cut there."""
        first = next((one for one in damages if one.consent in self.accepted or one.torn), None)
        if first is None:
            return
        before = [
            one
            for one in damages
            if one.base_offset == first.base_offset and one.range.start < first.range.start
        ]
        if before:
            self.notes.append(
                f"{log_name(first.base_offset)}: nothing is cut yet: its first damage is at position "
                f"{before[0].range.start} ({before[0].consent or before[0].rule})"
            )
            return
        self._take(first.base_offset, (first,), to_end=True)
        if first.base_offset in self.without:
            later = [
                one.base_offset for one in self.partition.segments if one.base_offset > first.base_offset
            ]
            self.aside, self.aside_for = tuple(reversed(later)), first

    def _take(self, base_offset: int, ranges: tuple[Damaged, ...], *, to_end: bool = False) -> None:
        log = self._log_of(base_offset)
        at_end = to_end or (len(ranges) == 1 and ranges[0].range.end == log.size)
        if at_end and log.nlink > 1:
            self.notes.append(
                f"{log.name}: left as it is: it has {log.nlink} names (hard links), and cutting it in place would cut "
                "them all; give this name a copy of its own first"
            )
            return
        self.without[base_offset] = ranges

    def _log_of(self, base_offset: int) -> FileRef:
        return next(one.log for one in self.partition.segments if one.base_offset == base_offset)

    def _bounds(self, base_offset: int, ranges: tuple[Damaged, ...]) -> tuple[tuple[int, int], ...]:
        if self.aside_for is not None and self.aside_for.base_offset == base_offset:
            return ((ranges[0].range.start, self._log_of(base_offset).size),)
        return tuple((one.range.start, one.range.end) for one in ranges)

    def item(self, base_offset: int, ranges: tuple[Damaged, ...]) -> MendedItem:
        """Work out the files that a segment becomes."""
        from krepair.pipeline.damage import MendedItem

        return MendedItem(
            place=place_of(self.log_dir, self.partition),
            base_offset=base_offset,
            size=self._log_of(base_offset).size,
            without=self._bounds(base_offset, ranges),
            interval_bytes=self.survey.settings.index_interval_bytes,
        )

    def decision(self) -> TailDecision:
        """The changes, now that the new files are known."""
        failed = next(((base, one) for base, one in sorted(self.made.items()) if one.failure), None)
        if failed is not None:
            left = LeftAlone(failed[1].failure, f"{log_name(failed[0])}: {failed[1].why}", damaged=True)
            return TailDecision(notes=tuple(self.notes), left=left)
        changes: list[MendLog | SetAside] = [self._set_aside(base) for base in self.aside]
        for base_offset, ranges in sorted(self.without.items()):
            changes.append(self._mend(base_offset, ranges))
        self.notes.extend(self._what_follows())
        consented = any(not one.torn for ranges in self.without.values() for one in ranges)
        if consented and any(len(facts.summary.rows) for facts in self.survey.segments):
            self.notes.append(
                "producers write to it: if a marker was among the lost bytes, its transaction never ends and "
                "read_committed consumers wait there; krepair check tells (KR103)"
            )
        return TailDecision(tuple(changes), tuple(self.notes), self.left)

    def _mend(self, base_offset: int, ranges: tuple[Damaged, ...]) -> MendLog:
        made, log = self.made[base_offset], self._log_of(base_offset)
        bounds = self._bounds(base_offset, ranges)
        cut = len(bounds) == 1 and bounds[0][1] == log.size
        return MendLog(
            change_id=f"{self.partition.folder}/{log.name}",
            name=log.name,
            base_offset=base_offset,
            method="cut" if cut else "excise",
            removed=tuple(
                _removed(one, start, end, one.broker if self.aside_for is one else one.excised)
                for one, (start, end) in zip(ranges, bounds, strict=True)
            ),
            size_before=log.size,
            size_after=made.size,
            digest_removed=made.digest_gone,
            digest_after=made.digest,
            mtime_ns=log.mtime_ns,
            last_offset=made.last_offset,
            companions=tuple(
                NewCompanion(
                    name=segment_name(base_offset, companion.suffix),
                    size_before=companion.size_before,
                    size_after=companion.size_after,
                    digest_after=companion.digest_after,
                )
                for companion in made.companions
                if not companion.same
            ),
            front_bytes=max((companion.front_bytes for companion in made.companions), default=0),
            reason=self._reason(ranges, cut=cut),
            undo=KeepOriginal(),
        )

    def _reason(self, ranges: tuple[Damaged, ...], *, cut: bool) -> str:
        text = ranges[0].range.text
        if len(ranges) > 1:
            text += f" (and {len(ranges) - 1} more)"
        if all(one.torn for one in ranges):
            return f"torn tail: {text}"
        way = (
            "as a broker would"
            if self.aside_for is not None
            else "damage at the end"
            if cut
            else "only the damage"
        )
        return f"{way}, by consent: {text}"

    def _set_aside(self, base_offset: int) -> SetAside:
        assert self.aside_for is not None
        segment = next(one for one in self.partition.segments if one.base_offset == base_offset)
        facts = next(one for one in self.survey.segments if one.base_offset == base_offset)
        files = [
            *segment.files(),
            *(one.file for one in self.partition.snapshots if one.offset == base_offset),
        ]
        return SetAside(
            change_id=f"{self.partition.folder}/{offset_name(base_offset)}",
            base_offset=base_offset,
            names=tuple(file.name for file in files),
            bytes=sum(file.size for file in files),
            records=sum(one.records for one in valid_ranges(self.survey, facts)),
            rule=self.aside_for.rule,
            consent=self.aside_for.consent,
            reason=f"it lies behind the cut in {log_name(self.aside_for.base_offset)}",
            undo=KeepOriginal(),
        )

    def _what_follows(self) -> Iterator[str]:
        """What lies past the new log end in other files, which a broker drops by itself and other fixes mend."""
        last = self.partition.segments[-1].base_offset
        ends = self.aside_for.base_offset if self.aside_for is not None else last
        if ends not in self.made:
            return
        end = self.made[ends].last_offset + 1
        key = (self.partition.topic, self.partition.number)
        past: list[str] = []
        for name, points in (
            ("recovery point", self.log_dir.recovery_point.offsets),
            ("high watermark", self.log_dir.high_watermark.offsets),
        ):
            if points.get(key, -1) > end and "checkpoints" not in self.asked:
                past.append(f"{name} {points[key]} (--fix checkpoints)")
        gone = {*self.aside} if self.aside_for is not None else set()
        names = [
            one.file.name for one in self.partition.snapshots if one.offset > end and one.offset not in gone
        ]
        if names and "snapshots" not in self.asked:
            past.append(f"{', '.join(names[:_FEW])} (--fix snapshots)")
        if past:
            yield f"past the new log end {end}: {'; '.join(past)}; a broker drops them by itself at its next start"


def _removed(one: Damaged, start: int, end: int, loss: Loss) -> RemovedRange:
    return RemovedRange(
        start=start,
        end=end,
        rule=one.rule,
        consent=one.consent,
        first_lost=loss.first,
        last_lost=loss.last,
        records=loss.records,
    )
