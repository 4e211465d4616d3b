"""Which other replicas have what a plan cuts from a log; said in the plan where ``--replicas`` names directories."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from krepair.fixes.survey import Survey, log_end_of
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.ops.sides import Side, parse_sides
from krepair.options import Options
from krepair.plan.actions.action import OTHERS_HAVE
from krepair.plan.actions.table import action_of
from krepair.plan.effects import changes_logs
from krepair.plan.model import PartitionPlan, Risk
from krepair.rules.model import SegmentFacts
from krepair.rules.replicas.cut import OPEN, Gone, Having, Part, told, who_has
from krepair.rules.replicas.model import PartitionVerdict

_MOST: Final = 20


def others_have(
    view: LogDir, options: Options, plans: Sequence[PartitionPlan], surveys: Mapping[str, Survey]
) -> tuple[Risk, ...]:
    """One risk for each partition that loses something: who else has it, and what to do.

    Args:
        view: the log directory.
        options: as typed; without ``--replicas`` nothing is said.
        plans: what the plan does to each partition.
        surveys: folder -> what was seen of it.

    Raises:
        KrepairError: see ``krepair.ops.compare.compare``.
    """
    if not options.replicas or not view.broker_id.isdecimal():
        return ()
    me = int(view.broker_id)
    losing = {one.folder: (one, found) for one in plans if (found := _gone(one, surveys[one.folder]))}
    others = parse_sides(options.replicas) if losing else ()
    sides = [side for side in others if side.broker_id != me]
    if not sides:
        return ()
    from krepair.ops.compare import compare

    names = tuple((plan.topic, plan.partition) for plan, _ in losing.values())
    mine = Side(broker_id=me, log_dirs=(view.path,))
    report = compare(
        sorted((mine, *sides), key=lambda side: side.broker_id), replace(options, topics=(), partitions=names)
    )
    verdicts = {one.name: one for one in report.partitions}
    risks = [
        _risk(view, plan, gone, verdicts.get(f"{plan.topic}-{plan.partition}"), me, sides)
        for plan, found in list(losing.values())[:_MOST]
        for gone in found
    ]
    if len(losing) > _MOST:
        text = "There are more such partitions: make plans for fewer of them, and each is told."
        risks.append(Risk(code=OTHERS_HAVE, text=text))
    return tuple(risks)


def _gone(plan: PartitionPlan, survey: Survey) -> tuple[Gone, ...]:
    """What a partition loses, in ascending order of offsets."""
    return (*_start(plan, survey), *_middle(plan), *_end(plan, survey), *_epochs(plan))


def _start(plan: PartitionPlan, survey: Survey) -> Iterator[Gone]:
    if any(action_of(one).sources(one) for one in plan.changes):
        return  # what a cleaner may remove is decided by the evidence, not here
    before, after = _bases(survey.segments), _bases(survey.segments_after)
    if before and after and after[0] > before[0]:
        yield Gone(Part.START, before[0], after[0])


def _bases(segments: Sequence[SegmentFacts]) -> list[int]:
    return sorted(one.base_offset for one in segments)


def _middle(plan: PartitionPlan) -> Iterator[Gone]:
    for change in plan.changes:
        for first, end in action_of(change).lost_inside(change):
            yield Gone(Part.MIDDLE, first, end)


def _end(plan: PartitionPlan, survey: Survey) -> Iterator[Gone]:
    if not survey.segments_after and not plan.changes:
        return
    end = plan.log_end_offset
    bases = _bases(survey.segments)
    cut = any(changes_logs([one]) and action_of(one).may_move_log_end(one, bases) for one in plan.changes)
    known = max(log_end_of(survey.segments), survey.high_watermark)
    if known > end:
        yield Gone(Part.END, end, known)
    elif cut:
        yield Gone(Part.END, end, OPEN)


def _epochs(plan: PartitionPlan) -> Iterator[Gone]:
    if any(LEADER_EPOCH_CHECKPOINT in action_of(one).touches(one).makes for one in plan.changes):
        yield Gone(Part.EPOCHS)


def _risk(
    view: LogDir,
    plan: PartitionPlan,
    gone: Gone,
    verdict: PartitionVerdict | None,
    me: int,
    sides: Sequence[Side],
) -> Risk:
    others = () if verdict is None else [one for one in verdict.replicas if one.broker != me]
    having = who_has(gone, others, () if verdict is None else verdict.right)
    what, who, *more = (*told(plan.folder, gone, having), "")
    text = f"{what} {who}".rstrip()
    return Risk(
        code=OTHERS_HAVE,
        text=text,
        more=" ".join((*filter(None, more), *_command(view, plan, having, me, sides))),
    )


def _command(
    view: LogDir, plan: PartitionPlan, having: Having, me: int, sides: Sequence[Side]
) -> Iterator[str]:
    if not having.right and having.unsure:
        typed = " ".join(shlex.quote(side.text) for side in sides)
        yield f"Next: krepair compare {shlex.quote(f'{me}={view.path}')} {typed} --partition {shlex.quote(plan.folder)}"
