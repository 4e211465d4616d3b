"""Search for replicas that still have the records removed by a plan, if ``--replicas`` names their directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Final

from krepair.fixes.analysis import PartitionAnalysis, log_end_of
from krepair.fixes.replicas import Side, parse_sides
from krepair.formats.filenames import LEADER_EPOCH_CHECKPOINT
from krepair.logdir.values import LogDir
from krepair.next_command import Next
from krepair.options import Options
from krepair.plan.changes import changes_logs
from krepair.plan.model import PartitionPlan, Risk
from krepair.plan.risks import OTHERS_HAVE
from krepair.rules.evidence import OPEN, CutPart, CutRange, Holders, describe_loss, who_has
from krepair.rules.model import SegmentFacts
from krepair.rules.replicas.model import PartitionVerdict

_MOST: Final = 20


def others_have(
    view: LogDir,
    options: Options,
    plans: Sequence[PartitionPlan],
    analyses: Mapping[str, PartitionAnalysis],
    compare: Callable[[Sequence[Side], Options], Sequence[PartitionVerdict]],
) -> tuple[Risk, ...]:
    """Return one risk for each loss of a partition: the replicas that have the records, and the next step.

    Args:
        options: options as typed; without ``--replicas`` there is no risk.
        plans: planned changes of each partition.
        analyses: analysis of each partition, by folder.
        compare: function that compares replicas, as ``krepair compare`` does.

    Raises:
        KrepairError: ``compare`` failed.
    """
    if not options.replicas or not view.broker_id.isdecimal():
        return ()
    me = int(view.broker_id)
    losing = {
        plan.folder: (plan, ranges) for plan in plans if (ranges := _lost_ranges(plan, analyses[plan.folder]))
    }
    others = parse_sides(options.replicas) if losing else ()
    sides = [side for side in others if side.broker_id != me]
    if not sides:
        return ()
    names = tuple((plan.topic, plan.partition) for plan, _ in losing.values())
    mine = Side(broker_id=me, log_dirs=(view.path,))
    compared = compare(
        sorted((mine, *sides), key=lambda side: side.broker_id),
        with_fields(options, topics=(), partitions=names),
    )
    verdicts = {verdict.name: verdict for verdict in compared}
    risks = [
        _risk_of_loss(view, plan, removed, verdicts.get(f"{plan.topic}-{plan.partition}"), me, sides)
        for plan, ranges in list(losing.values())[:_MOST]
        for removed in ranges
    ]
    if len(losing) > _MOST:
        text = "There are more such partitions: plan fewer of them at once to see each."
        risks.append(Risk(code=OTHERS_HAVE, text=text))
    return tuple(risks)


def _lost_ranges(plan: PartitionPlan, analysis: PartitionAnalysis) -> tuple[CutRange, ...]:
    """Return the ranges that a partition loses, in ascending order of offsets."""
    return (
        *_lost_at_start(plan, analysis),
        *_lost_in_the_middle(plan),
        *_lost_at_end(plan, analysis),
        *_changed_epochs(plan),
    )


def _lost_at_start(plan: PartitionPlan, analysis: PartitionAnalysis) -> Iterator[CutRange]:
    if any(change.decides_on for change in plan.changes):
        return  # evidence, not this comparison, decides what a cleaner may remove
    before, after = _base_offsets(analysis.segments), _base_offsets(analysis.segments_after)
    if before and after and after[0] > before[0]:
        yield CutRange(CutPart.START, before[0], after[0])


def _base_offsets(segments: Sequence[SegmentFacts]) -> list[int]:
    return sorted(segment.base_offset for segment in segments)


def _lost_in_the_middle(plan: PartitionPlan) -> Iterator[CutRange]:
    for change in plan.changes:
        for first, end in change.lost_inside():
            yield CutRange(CutPart.MIDDLE, first, end)


def _lost_at_end(plan: PartitionPlan, analysis: PartitionAnalysis) -> Iterator[CutRange]:
    if not analysis.segments_after and not plan.changes:
        return
    end = plan.log_end_offset
    bases = _base_offsets(analysis.segments)
    cut = any(changes_logs([change]) and change.may_move_log_end(bases) for change in plan.changes)
    known = max(log_end_of(analysis.segments), analysis.high_watermark)
    if known > end:
        yield CutRange(CutPart.END, end, known)
    elif cut:
        yield CutRange(CutPart.END, end, OPEN)


def _changed_epochs(plan: PartitionPlan) -> Iterator[CutRange]:
    if any(LEADER_EPOCH_CHECKPOINT in change.leaves for change in plan.changes):
        yield CutRange(CutPart.EPOCHS)


def _risk_of_loss(
    view: LogDir,
    plan: PartitionPlan,
    removed: CutRange,
    verdict: PartitionVerdict | None,
    me: int,
    sides: Sequence[Side],
) -> Risk:
    having = Holders()
    if verdict is not None:
        end = next((column.log_end for column in verdict.replicas if column.broker == me), OPEN)
        if removed.end == OPEN and end > removed.first:  # the comparison read past the damage
            removed = removed._replace(end=end)
        others = (column for column in verdict.replicas if column.broker != me)
        having = who_has(removed, others, verdict.right, verdict.own_tail(me))
    loss, who, *more = (*describe_loss(plan.folder, removed, having), "")
    text = f"{loss} {who}".rstrip()
    return Risk(
        code=OTHERS_HAVE,
        text=text,
        more=" ".join((*filter(None, more), *_compare_command(view, plan, having, me, sides))),
    )


def _compare_command(
    view: LogDir, plan: PartitionPlan, having: Holders, me: int, sides: Sequence[Side]
) -> Iterator[str]:
    if not having.right and having.unsure:
        typed = (f"{me}={view.path}", *(side.text for side in sides))
        yield f"Next: {Next.of('compare', *typed, '--partition', plan.folder)}"
