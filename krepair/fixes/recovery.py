"""Pre-recovery: what an unclean start would do to the segments above the recovery points, done and verified before it.

It decides nothing that the other fixes do not decide: from the segment that holds the recovery point on, it takes what
``tail``, ``index`` and ``snapshots`` work out, and the epochs as a recovery appends them. New are an empty segment at
the log end, so that nothing else is left to recover, and the line of the recovery point, which is raised last of all.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence

from krepair.checks.recovery_time import recovery_seconds, recovery_text
from krepair.durable.tree import Tree
from krepair.errors import RefusedError
from krepair.fixes.context import Context
from krepair.fixes.files import RECOVERED
from krepair.fixes.fix import Fix, Proposal, Purpose
from krepair.fixes.recovery_look import RECOVERY_SEEN, Range, Recovered, look_at_ranges
from krepair.fixes.second_readings import Applied, SecondReading
from krepair.fixes.staging import Staging, Work
from krepair.fixes.survey import Survey
from krepair.formats.filenames import (
    CLEAN_SHUTDOWN,
    RECOVERY_POINT_CHECKPOINT,
)
from krepair.formats.words import count_text
from krepair.journal.fence import standing_fences
from krepair.logdir.log_dirs import log_dirs_left_out
from krepair.logdir.values import LogDir, Partition
from krepair.pipeline.engines.costs import WorkKind
from krepair.plan.model import (
    Change,
    ChangeLines,
    KeepOriginal,
    ReplaceFile,
    RollSegment,
)

CLEAN = (
    "the broker was stopped cleanly: its next start recovers nothing, so there is nothing to do beforehand"
)
_FEW = 3


class Recovery(Fix):
    """After an unclean stop: the work of the next start is done before it, and the recovery points are raised."""

    name = "recovery"
    work = WorkKind.RECOVER
    after = ("leftovers", "markers", "tail", "epochs", "snapshots", "index")
    mends = frozenset({RECOVERED, "KR804"})

    def best_way(self, surveys: Sequence[Survey]) -> str:
        """Nothing, where no partition has anything to win."""
        seen = (survey.seen(RECOVERY_SEEN) for survey in surveys)
        return self.name if any(one is not None and one.before > one.after for one in seen) else ""

    def reads_whole(self, partition: Partition, way: str) -> bool:
        """What is above the recovery point, which is not known here."""
        return bool(partition.segments)

    def look(self, context: Context, surveys: Sequence[Survey], purpose: Purpose) -> None:
        """Read the segments that a start would recover, in one job, and work out what it would leave.

        Raises:
            RefusedError: a fence of an unfinished plan is up: it has lowered a recovery point.
        """
        if context.view.clean_shutdown:
            if purpose == "plan":
                for survey in surveys:
                    survey.put(RECOVERY_SEEN, Recovered(notes=(f"recovery: {CLEAN}",)))
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

    def propose(self, context: Context, survey: Survey) -> Proposal:
        """The files of the range as a recovery would leave them, and the new segment."""
        seen = survey.seen(RECOVERY_SEEN) or Recovered()
        note = "" if seen.left is None else f"recovery: its recovery point stays: {seen.left.why}"
        return Proposal(
            changes=seen.changes,
            notes=seen.notes,
            left=seen.left,
            left_note=note,
            log_end=seen.log_end,
            raises_point=seen.line is not None,
        )

    def propose_root(self, context: Context) -> Proposal:
        """The lines of the recovery points, in the order of the partitions."""
        seen = {
            survey.partition.folder: one
            for survey in context.surveys.values()
            if (one := survey.seen(RECOVERY_SEEN)) is not None
        }
        raised = [one for one in seen.values() if one.line is not None]
        if not raised:
            return Proposal()
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
        return Proposal(root_changes=(change,), notes=(f"recovery: {text}", *others))

    def owns(self, change: Change) -> bool:
        """All that makes a partition ready for a start, but for cut logs."""
        return isinstance(change, ReplaceFile | RollSegment | ChangeLines) and change.rule == RECOVERED

    def stage(self, work: Work, stagings: Sequence[Staging]) -> None:
        from krepair.fixes import recovery_staging

        recovery_staging.stage(work, stagings)

    def second_readings(self, applied: Applied) -> Iterator[SecondReading]:
        """Every segment that is no longer read is read again; every small file is as planned."""
        from krepair.fixes.recovery_readings import second_readings

        return second_readings(applied)


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
            next_command=f"krepair undo {shlex.quote(view.path)}",
        )


def _look_at_gain(context: Context, survey: Survey) -> None:
    """For ``check``, which has read everything: how many bytes a start would read that it need not read."""
    one = Range(context, survey)
    if one.left is None and one.wins and not any(facts.summary.damage for facts in survey.segments[:-1]):
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
