"""Pre-recovery: what an unclean start would do to the segments above the recovery points, done and verified before it.

It decides nothing that the other fixes do not decide: from the segment that holds the recovery point on, it takes what
``tail``, ``index`` and ``snapshots`` work out, and the epochs as a recovery appends them. New are an empty segment at
the log end, so that nothing else is left to recover, and the line of the recovery point, which is raised last of all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from krepair.checks.recovery_time import recovery_seconds, recovery_text
from krepair.checks.retention import FIRST_WITHOUT_SANITY_CHECK
from krepair.commit.fence import standing_fences
from krepair.derive.epochs import epochs_of_log
from krepair.durable.tree import Tree
from krepair.engine.choice import WorkKind
from krepair.engine.items import Failed
from krepair.errors import RefusedError
from krepair.fixes.context import Context, place_of
from krepair.fixes.epochs import log_start_of, read_epochs_file
from krepair.fixes.files import RECOVERED, made_anew, removed
from krepair.fixes.fix import Fix, Purpose, Seen, SeenRoot
from krepair.fixes.index import (
    index_changes,
    look_at_indexes,
    read_logs_and_indexes,
    rebuilt_by_a_load,
    transaction_index,
)
from krepair.fixes.logs import parts_after, read_logs_after
from krepair.fixes.producers_at_end import replayed_from
from krepair.fixes.second_readings import SecondReading
from krepair.fixes.snapshots import rules_now, see_snapshots, target_of
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import LogFacts, Sight, Survey
from krepair.fixes.tail import TAIL_SEEN, damaged_logs, damages_in, decide, look_at_damage
from krepair.fixes.untouched import waits_for_leftovers_alone, why_untouched
from krepair.formats.checkpoint import encode_epochs
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    log_name,
    offset_name,
    segment_name,
)
from krepair.formats.words import count_text
from krepair.logdir.config import log_dirs_left_out
from krepair.logdir.reading import read_whole
from krepair.logdir.reading import why as why_unreadable
from krepair.logdir.values import FileRef, LogDir
from krepair.next_command import Next
from krepair.plan.changes import bases_touched, changes_logs
from krepair.plan.model import (
    Change,
    ChangeLines,
    KeepOriginal,
    MendLog,
    ReplaceFile,
    RollSegment,
    SetAside,
)
from krepair.rules.aborts import may_be_untrue
from krepair.rules.checkpoint_lines import ChangedLine
from krepair.rules.damage import unmapped
from krepair.rules.model import LeftAlone, SegmentFacts
from krepair.rules.recovery import (
    PointLine,
    choose_epochs,
    floor_of,
    left_to,
    why_damage_stays,
    why_ends_differ,
    why_not_rolled,
    why_point_stays,
)
from krepair.rules.snapshots import SeenSnapshots, SnapshotReason

CLEAN = (
    "the broker was stopped cleanly: its next start recovers nothing, so there is nothing to do beforehand"
)
_FEW = 3


class Recovery(Fix):
    """After an unclean stop: the work of the next start is done before it, and the recovery points are raised."""

    name = "recovery"
    reads_logs = True
    work = WorkKind.RECOVER
    after = ("leftovers", "markers", "tail", "epochs", "snapshots", "index")

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """Nothing, where no partition has anything to win."""
        seen = (survey.seen(RECOVERY_SEEN) for survey in surveys)
        return self.name if any(one is not None and one.before > one.after for one in seen) else ""

    def read(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Read the segments that a start would recover, in one job, and work out what it would leave.

        Raises:
            RefusedError: a fence of an unfinished plan is up: it has lowered a recovery point.
        """
        if context.view.clean_shutdown:
            if purpose == "plan":
                for survey in surveys:
                    survey.put(RECOVERY_SEEN, Recovered(Seen(notes=(f"recovery: {CLEAN}",))))
            return
        if purpose == "check":
            for survey in surveys:
                _look_at_gain(context, survey)
            return
        refuse_standing_fences(context.view)
        ranges = [Range(context, survey) for survey in surveys if survey.partition.segments]
        look_at_ranges(context, ranges)
        for one in ranges:
            one.survey.put(RECOVERY_SEEN, one.outcome())

    def look(self, context: Context, survey: Survey) -> Seen:
        """The files of the range as a recovery would leave them, and the new segment."""
        return (survey.seen(RECOVERY_SEEN) or Recovered()).seen

    def look_root(self, context: Context) -> SeenRoot:
        """The lines of the recovery points, in the order of the partitions."""
        seen = {
            survey.partition.folder: one
            for survey in context.surveys.values()
            if (one := survey.seen(RECOVERY_SEEN)) is not None
        }
        raised = [one for one in seen.values() if one.line is not None]
        if not raised:
            return SeenRoot()
        file = context.view.recovery_point.file
        text = _sums(seen)
        change = ChangeLines(
            change_id=f"./{RECOVERY_POINT_CHECKPOINT}",
            name=RECOVERY_POINT_CHECKPOINT,
            rule=RECOVERED,
            lines=tuple(one.line for one in raised if one.line is not None),
            size_before=-1 if file is None else file.size,
            reason=text,
            undo=KeepOriginal(),
        )
        others = (f"recovery: {other}" for other in _other_log_dirs(context))
        return SeenRoot(changes=(change,), notes=(f"recovery: {text}", *others))

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        from krepair.fixes import recovery_staging

        recovery_staging.stage(work, stagings)

    def second_readings(self, work: Work, staging: Staging) -> Iterator[SecondReading]:
        """Every segment that is no longer read is read again; every small file is as planned."""
        from krepair.fixes.recovery_staging import second_readings

        return second_readings(work, staging)


RECOVERY = Recovery()


def _other_log_dirs(context: Context) -> Iterator[str]:
    """What becomes of the other directories of the broker that were not stopped cleanly: each has a plan of its own."""
    for path in log_dirs_left_out([context.view.path], context.options.config):
        if os.path.isdir(path) and not os.path.lexists(f"{path}/{CLEAN_SHUTDOWN}"):
            yield f"{path} is another log directory of this broker; without a plan of its own the start recovers it"


def refuse_standing_fences(view: LogDir) -> None:
    """Refuse while any fence is up.

    Raises:
        RefusedError: one is.
    """
    with Tree(view.path, view.inode) as tree:
        places = standing_fences(tree, view.path)
    if places:
        raise RefusedError(
            f"{places[0]}: the fence of an unfinished plan is up, and has lowered a recovery point; end that plan",
            next_command=Next.of("undo", view.path),
        )


def _look_at_gain(context: Context, survey: Survey) -> None:
    """For ``check``, which has read everything: how many bytes a start would read that it need not read."""
    one = Range(context, survey)
    if (
        one.left is None
        and one.spares_reading
        and not any(facts.summary.damage for facts in survey.segments[:-1])
    ):
        survey.put(RECOVERY_SEEN, Recovered(before=one.before))


def _sums(seen: Mapping[str, Recovered]) -> str:
    """What a start would read of the partitions that are made ready, and what it still reads of all, and why."""
    ready = [one for one in seen.values() if one.before > one.after]
    before = sum(one.before for one in ready)
    seconds = recovery_seconds(before, sum(one.batches for one in ready))
    return (
        f"the next start would read {before:,} bytes of {count_text(len(ready), 'partition')} that this plan makes "
        f"ready ({recovery_text(seconds)}, one recovery thread); {_still_read(seen)}"
    )


def _still_read(seen: Mapping[str, Recovered]) -> str:
    rest = {folder: one for folder, one in seen.items() if one.after}
    if not rest:
        return "afterwards it reads nothing of the partitions of this plan"
    folders: dict[str, list[str]] = {}
    for folder, one in rest.items():
        folders.setdefault(one.still, []).append(folder)
    each = "; ".join(f"{_few(names)} ({why})" for why, names in folders.items())
    total = sum(one.after for one in rest.values())
    return f"afterwards it still reads {total:,} bytes of {count_text(len(rest), 'partition')}: {each}"


def _few(names: Sequence[str]) -> str:
    more = len(names) - _FEW
    text = ", ".join(names[:_FEW])
    return f"{text} and {more:,} more" if more > 0 else text


# -- look: each step takes all partitions, so that what the engine reads of them is read together


class Recovered(NamedTuple):
    """What is planned for one partition.

    Attributes:
        seen: its changes.
        line: of the recovery point, None if it stays.
        before: bytes that a start would read of it.
        batches: in them.
        after: bytes that it will read.
        still: why it will read them; empty if it will read none.
    """

    seen: Seen = Seen()
    line: ChangedLine | None = None
    before: int = 0
    batches: int = 0
    after: int = 0
    still: str = ""


RECOVERY_SEEN: Sight[Recovered] = Sight("what an unclean start would recover")


class Range:
    """One partition from the segment on that holds its recovery point, while it is worked out.

    Attributes:
        survey: of the partition.
        part: a survey of the range alone.
        below: one of the segments before it.
        floor: base offset of its first segment.
        point: the line as it is, None if there is none.
        left: why it is left alone, or None.
        log_end: offset at which the log will end.
        roll: whether it gets a new segment.
        changes: to its log, worked out so far.
        small: the small files to make or remove, but for indexes.
        aborts: the transaction indexes to make.
        notes: for the reviewer.
    """

    def __init__(self, context: Context, survey: Survey) -> None:
        partition = survey.partition
        self.survey = survey
        self.view = context.view
        self.key = partition.key
        points = context.view.recovery_point.offsets
        self.point: int | None = points.get(self.key)
        found = floor_of([segment.base_offset for segment in partition.segments], self.point or 0)
        self.floor = 0 if found is None else found
        segments = tuple(one for one in partition.segments if one.base_offset >= self.floor)
        self.part = Survey(
            partition._replace(segments=segments), survey.settings, high_watermark=survey.high_watermark
        )
        before = tuple(one for one in partition.segments if one.base_offset < self.floor)
        self.below = Survey(partition._replace(segments=before), survey.settings)
        self.before = sum(segment.log.size for segment in segments)
        self.changes: list[Change] = []
        self.notes: list[str] = []
        self.log_end = 0
        self.small: list[ReplaceFile] = []
        self.aborts: list[ReplaceFile] = []
        self.not_rolled = why_not_rolled(partition.topic, context.version)
        self.roll = not self.not_rolled
        self.left = self._why_left()

    def _why_left(self) -> LeftAlone | None:
        partition, settings, view = self.survey.partition, self.survey.settings, self.view
        special = next((one for one in partition.specials if one.name.endswith(SEGMENT_SUFFIXES)), None)
        return why_point_stays(
            PointLine(
                special=None if special is None else (special.name, special.kind),
                untouched=why_untouched(partition, settings),
                first="leftovers" if waits_for_leftovers_alone(partition, settings) else "",
                marked=[one.folder for one in view.marked if one.key == self.key],
                is_file=all(one.name != RECOVERY_POINT_CHECKPOINT for one in view.foreign),
                damaged=bool(view.recovery_point.damage),
            )
        )

    @property
    def spares_reading(self) -> bool:
        """Whether a start would read less of it afterwards."""
        return self.before > (0 if self.roll else self.part.partition.segments[-1].log.size)

    def leave(self, code: str, text: str, fix: str = "") -> None:
        """Leave the partition as it is."""
        self.left = self.left or left_to(code, text, fix)

    @property
    def all_changes(self) -> list[Change]:
        """Those of the fixes before, and those of the range."""
        return [*self.survey.changes, *self.changes]

    # -- what comes of it

    def outcome(self) -> Recovered:
        """The changes, their order, and what is told."""
        if self.left is not None:
            note = f"recovery: its recovery point stays: {self.left.why}"
            still = f"left alone, code {self.left.code}"
            return self._still_reads(Seen(left=self.left, left_note=note), still)
        folder = self.survey.partition.folder
        if not self.spares_reading:
            text = (
                f"{self.not_rolled}; the next start still reads its {self.before:,} bytes"
                if self.not_rolled and self.before
                else self.not_rolled or "the next start reads nothing that it need not"
            )
            return self._still_reads(Seen(notes=(f"recovery: {text}",)), self.not_rolled)
        if self.not_rolled:
            self.notes.append(f"recovery: {self.not_rolled}; its active segment is still read")
        taken = {change.name for change in self.survey.changes if isinstance(change, ReplaceFile)}
        indexes, _ = index_changes(self.part, bases_touched(self.all_changes))
        small = (*self.small, *indexes, *self.aborts)
        made: list[Change] = [replace(one, rule=RECOVERED) for one in small if one.name not in taken]
        made += self.changes
        last = self.part.segments_after[-1]
        size = last.summary.valid_bytes
        if self.roll and size:
            made.append(
                RollSegment(
                    change_id=f"{folder}/{offset_name(self.log_end)}",
                    base_offset=self.log_end,
                    rule=RECOVERED,
                    reason="with it, what is before it is no longer read at a start",
                    undo=KeepOriginal(),
                )
            )
        topic, number = self.key
        line = ChangedLine(topic=topic, partition=number, old=self.point, new=self.log_end)
        after, raises = 0 if self.roll else size, line.old != line.new
        return Recovered(
            Seen(
                changes=tuple(made),
                notes=(self._told(after), *self.notes),
                log_end=self.log_end,
                raises_point=raises,
            ),
            line=line if raises else None,
            before=self.before,
            batches=sum(facts.summary.batches for facts in self.part.segments),
            after=after,
            still=self.not_rolled if after else "",
        )

    def _still_reads(self, seen: Seen, still: str) -> Recovered:
        return Recovered(seen, before=self.before, after=self.before, still=still)

    def _told(self, after: int) -> str:
        mark = self.survey.high_watermark
        valid = sum(facts.summary.valid_bytes for facts in self.part.segments_after)
        text = (
            f"recovery: recovery point {'missing' if self.point is None else self.point}, log end {self.log_end}, "
            f"high watermark {'unknown' if mark < 0 else mark}, {self.before - valid} bytes cut; a start would read "
            f"{self.before} bytes of {count_text(len(self.part.segments), 'segment')}, afterwards {after}"
        )
        if mark > self.log_end:
            text += f"; committed records are missing here: offsets {self.log_end} to {mark - 1}"
            text += "; let another replica lead"
        return text


# -- the steps, each for all partitions


def look_at_ranges(context: Context, ranges: Sequence[Range]) -> None:
    """Work out what becomes of the ranges from which a start would read less; of the others nothing is read."""
    for step in (_look_below, _read, _cut, _measure, _see_snapshots, _see_aborts):
        step(context, [one for one in ranges if one.left is None and one.spares_reading])


def _look_below(context: Context, ranges: Sequence[Range]) -> None:
    """Where a broker checks all indexes when it loads a log, those before the ranges have to be right.

    Up to 2.2 it recovers a segment for a wrong index, with the snapshots behind it removed. Only because it also read
    what is above the recovery point did it find the transactions again that were open there (seen on 2.2.1).
    """
    if context.version is not None and context.version >= FIRST_WITHOUT_SANITY_CHECK:
        return
    of = {id(one.below): one for one in ranges}
    for survey, segment, found in rebuilt_by_a_load(context, [one.below for one in ranges]):
        one = of[id(survey)]
        replaced = {name for change in one.survey.changes for name in change.touches}
        names = {segment_name(segment.base_offset, suffix) for suffix in (INDEX, TIME_INDEX)}
        if isinstance(found, Failed):
            one.leave("unreadable", found.why)
        elif not names & replaced:
            text = f"an index of {segment.log.name} is not right: a broker up to 2.2 recovers that segment"
            one.leave("index", text, "index,recovery")


def _read(context: Context, ranges: Sequence[Range]) -> None:
    """Every batch of the ranges, and their indexes; what earlier fixes have read is not read again."""
    unread = [one for one in ranges if one.survey.log is None]
    read_logs_and_indexes(context, [one.part for one in unread], "regenerate", trim_active=True)
    known = [one for one in ranges if one.survey.log is not None]
    for one in known:
        one.part.log = _from(one.survey.log, one.floor)
    look_at_indexes(context, [one.part for one in known], "regenerate", trim_active=True)
    for one in ranges:
        one.part.log_after = _from(one.survey.log_after, one.floor)
        for facts in one.part.segments:
            one.survey.digests[log_name(facts.base_offset)] = facts.summary.headers
        problem = one.part.log.problem if one.part.log is not None else None
        if problem is not None and problem.code != "txnindex-damage":
            one.left = problem
        elif len(one.part.segments) != len(one.part.partition.segments):
            one.leave("unreadable", "not all of its segments could be read")


def _from(log: LogFacts | None, floor: int) -> LogFacts | None:
    if log is None:
        return None
    return log._replace(segments=tuple(one for one in log.segments if one.base_offset >= floor))


def _cut(context: Context, ranges: Sequence[Range]) -> None:
    """Torn tails are cut; of a partition with other damage nothing changes."""
    look_at_damage(context, [one.part for one in ranges if not changes_logs(one.survey.changes)])
    torn = []
    for one in ranges:
        if changes_logs(one.survey.changes):
            if any(isinstance(change, SetAside) or _is_by_consent(change) for change in one.survey.changes):
                one.leave(
                    "damage",
                    "bytes of its log go by a consent; once that is applied, plan its recovery",
                    "recovery",
                )
            elif any(facts.summary.damage for facts in one.part.segments_after):
                one.leave("damage", "damage is left in what a start would read", "tail,recovery")
            continue
        damages = damages_in(context.view, one.part)
        one.left = one.left or why_damage_stays(damages, unmapped(damaged_logs(one.part)))
        if one.left is None and damages:
            torn.append(one)
    decide(context, [one.part for one in torn])
    for one in torn:
        seen = one.part.seen(TAIL_SEEN) or Seen()
        if not seen.changes:
            text = "its torn tail cannot be cut" if seen.left is None else seen.left.why
            one.leave("damage", "; ".join([text, *seen.notes]))
            continue
        one.changes += seen.changes
        one.part.changes += seen.changes
    read_logs_after(context, [one.part for one in torn if one.left is None])


def _is_by_consent(change: Change) -> bool:
    return isinstance(change, MendLog) and any(removed.consent for removed in change.removed)


def _measure(context: Context, ranges: Sequence[Range]) -> None:
    """Where each log ends, and whether anything speaks against it; and its leader epochs."""
    for one in ranges:
        segments = one.part.segments_after
        one.log_end = segments[-1].end_offset
        start = context.view.log_start.offsets.get(one.key, 0)
        one.left = one.left or why_ends_differ(segments, one.point or 0, start)
        taken = {segment_name(one.log_end, suffix) for suffix in SEGMENT_SUFFIXES}
        orphan = next((file.name for file in one.survey.partition.orphan_indexes if file.name in taken), "")
        if orphan and one.roll and segments[-1].summary.valid_bytes:
            text = f"{orphan} is without its log, where the new segment would be"
            one.leave("leftovers", text, "leftovers")
        if one.left is None:
            _see_epochs(context, one, segments)


def _see_epochs(context: Context, one: Range, segments: Sequence[SegmentFacts]) -> None:
    partition = one.survey.partition
    if any(
        isinstance(each, ReplaceFile) and each.name == LEADER_EPOCH_CHECKPOINT for each in one.survey.changes
    ):
        return
    file = read_epochs_file(partition)
    log_start = log_start_of(context.view, partition, segments)
    log = epochs_of_log(
        [each.summary for each in segments], log_start, compacted=one.survey.settings.compacts
    )
    chosen = choose_epochs(file.recorded, log, segments, context.version, file.wrong)
    one.left = one.left or chosen.left
    if chosen.entries is None:
        return
    if file.digest:
        one.survey.digests[LEADER_EPOCH_CHECKPOINT] = file.digest
    count = count_text(len(chosen.entries), "entry", "entries")
    one.small.append(
        made_anew(
            partition.folder,
            LEADER_EPOCH_CHECKPOINT,
            partition.leader_epoch_checkpoint,
            encode_epochs(chosen.entries),
            RECOVERED,
            f"{count}: a recovery appends the epochs of the batches that it reads",
        )
    )


def _see_snapshots(context: Context, ranges: Sequence[Range]) -> None:
    """The producers at each log end, from the newest snapshot at or below the range on, as a recovery does."""
    rules = rules_now(context)
    targets = []
    for one in ranges:
        partition = one.survey.partition
        facts = (*one.survey.segments_after, *one.part.segments_after)
        target = target_of(context.view, partition, facts, one.all_changes, one.survey.settings)
        targets.append(target.recovered(one.floor, one.log_end))
    found = see_snapshots(targets, rules, context.engine, clean=False, always=True)
    for one, seen in zip(ranges, found, strict=True):
        if seen is None or seen.left or seen.data is None or seen.log_end != one.log_end:
            one.leave("producers", f"its producers cannot be told: {seen.left if seen else 'no log'}")
        else:
            _take_snapshots(one, seen)


def _take_snapshots(one: Range, seen: SeenSnapshots) -> None:
    folder, data = one.survey.partition.folder, seen.data or b""
    there = next((each for each in one.survey.partition.snapshots if each.offset == one.log_end), None)
    file = None if there is None else there.file
    if one.log_end > seen.bases[0] and not (file is not None and same_bytes(file, data)):
        text = f"{seen.producers} producers, {seen.open_transactions} of them with an open transaction, at the log end"
        name = segment_name(one.log_end, ".snapshot")
        one.small.append(made_anew(folder, name, file, data, RECOVERED, text))
    one.small += [
        removed(folder, file, RECOVERED, reason.value)
        for file, reason in seen.judged.wrong
        if reason is SnapshotReason.PAST_END
    ]
    if seen.open_transactions:
        count = count_text(seen.open_transactions, "transaction is", "transactions are")
        one.notes.append(
            f"recovery: {count} open at its log end, as after any crash: read_committed stops there until it ends"
        )


def _see_aborts(context: Context, ranges: Sequence[Range]) -> None:
    """The transaction indexes of the ranges, held against a replay from where the first open transaction began."""
    from krepair.rewrite.indexes.transactions import TxnItem, inspect_txn

    chosen = [one for one in ranges if _has_transactions(one)]
    items = []
    for one in chosen:
        partition = one.survey.partition
        try:
            start = replayed_from(partition, one.floor)
        except OSError as error:
            one.leave("unreadable", f"a producer snapshot could not be read: {why_unreadable(error)}")
            start = one.floor
        parts = [part for part in parts_after(partition, one.all_changes) if part.base_offset >= start]
        items.append(
            TxnItem(
                place=place_of(context.view, partition),
                segments=tuple((part.base_offset, part.size) for part in parts),
                present=tuple(part.base_offset for part in parts if part.segment.txn_index),
            )
        )
    for index, result in context.engine.map(inspect_txn, items):
        one = chosen[index]
        if isinstance(result, Failed):
            one.leave("unreadable", result.why)
            continue
        touched, made = bases_touched(one.all_changes), _transaction_indexes_cut(one.all_changes)
        for each in result.problems:
            if each.base_offset not in touched:
                if each.base_offset >= one.floor:
                    one.aborts.append(transaction_index(one.survey.partition.folder, each, RECOVERED))
            elif made.get(each.base_offset) != each.digest_after:
                name = segment_name(each.base_offset, ".txnindex")
                text = f"{name}: {each.text}; its log changes too: change that first, then recover it"
                one.leave(
                    "txnindex-disagrees", text, "tail" if each.base_offset in made else "index=regenerate"
                )


def _transaction_indexes_cut(changes: Sequence[Change]) -> dict[int, str]:
    """Base offset -> digest of the ``.txnindex``, of logs that are cut; empty where the file stays as it is."""
    return {
        change.base_offset: next(
            (new.digest_after for new in change.companions if new.name.endswith(".txnindex")), ""
        )
        for change in changes
        if isinstance(change, MendLog)
    }


def _has_transactions(one: Range) -> bool:
    """Whether a replay may find a transaction index of the range that is not true."""
    segments = one.part.partition.segments
    entries = any(segment.txn_index and segment.txn_index.size for segment in segments)
    return may_be_untrue(entries=entries, summaries=(facts.summary for facts in one.part.segments))


def same_bytes(file: FileRef, data: bytes) -> bool:
    """Whether a file holds these bytes; one that cannot be read does not."""
    try:
        return read_whole(file.path, len(data) + 1) == data
    except OSError:
        return False
