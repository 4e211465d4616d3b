"""Search for replicas that still have the records removed by a plan, if ``--replicas`` names their directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as with_fields
from typing import Final

from krepair.fixes.analysis import PartitionAnalysis, log_end_of
from krepair.fixes.replicas import GivenBroker, parse_brokers
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

_MOST_PARTITIONS: Final = 20
"""Number of partitions whose losses are listed; a plan of thousands must stay readable."""


def loss_risks(
    view: LogDir,
    options: Options,
    plans: Sequence[PartitionPlan],
    analyses: Mapping[str, PartitionAnalysis],
    compare: Callable[[Sequence[GivenBroker], Options], Sequence[PartitionVerdict]],
) -> tuple[Risk, ...]:
    """Return one risk for each lost range: the replicas that still have its records, and the next step.

    If more than 20 partitions lose records, the last risk says only that there are more.

    Args:
        options: options as typed; without ``--replicas`` there is no risk.
        plans: planned changes of each partition.
        analyses: analysis of each partition, by folder.
        compare: function that compares replicas, as ``krepair compare`` does.

    Raises:
        KrepairError: ``compare`` failed.
    """
    # Without its own broker id, krepair cannot tell this replica from the others, so every statement about "other"
    # replicas could be about this one. The plan then names the loss without its holders.
    if not options.replicas or not view.broker_id.isdecimal():
        return ()
    own_id = int(view.broker_id)
    losing = {
        plan.folder: (plan, ranges) for plan in plans if (ranges := _lost_ranges(plan, analyses[plan.folder]))
    }
    others = parse_brokers(options.replicas) if losing else ()
    brokers = [broker for broker in others if broker.broker_id != own_id]
    if not brokers:
        return ()
    names = tuple((plan.topic, plan.partition) for plan, _ in losing.values())
    mine = GivenBroker(broker_id=own_id, log_dirs=(view.path,))
    compared = compare(
        sorted((mine, *brokers), key=lambda broker: broker.broker_id),
        with_fields(options, topics=(), partitions=names),
    )
    verdicts = {verdict.name: verdict for verdict in compared}
    risks = [
        _risk_of_loss(view, plan, removed, verdicts.get(f"{plan.topic}-{plan.partition}"), own_id, brokers)
        for plan, ranges in list(losing.values())[:_MOST_PARTITIONS]
        for removed in ranges
    ]
    if len(losing) > _MOST_PARTITIONS:
        text = "More partitions lose records; select fewer with --topic or --partition to see each."
        risks.append(Risk(code=OTHERS_HAVE, text=text))
    return tuple(risks)


def _lost_ranges(plan: PartitionPlan, analysis: PartitionAnalysis) -> tuple[CutRange, ...]:
    """Return the ranges that a partition loses, from the start of the log to its end; the epoch change last."""
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
    own_id: int,
    brokers: Sequence[GivenBroker],
) -> Risk:
    holders = Holders()
    if verdict is not None:
        end = next((column.log_end for column in verdict.replicas if column.broker == own_id), OPEN)
        if removed.end == OPEN and end > removed.first:  # the comparison read past the damage
            removed = removed._replace(end=end)
        others = (column for column in verdict.replicas if column.broker != own_id)
        holders = who_has(removed, others, verdict.right, verdict.diverges_from(own_id))
    loss = describe_loss(plan.folder, removed, holders)
    advice = (loss.advice,) if loss.holders else ()
    return Risk(
        code=OTHERS_HAVE,
        text=f"{loss.extent} {loss.holders or loss.advice}",
        more=" ".join((*advice, *_compare_command(view, plan, holders, own_id, brokers))),
    )


def _compare_command(
    view: LogDir, plan: PartitionPlan, holders: Holders, own_id: int, brokers: Sequence[GivenBroker]
) -> Iterator[str]:
    if not holders.confirmed and holders.unsure:
        typed = (f"{own_id}={view.path}", *(broker.text for broker in brokers))
        yield f"Next: {Next.of('compare', *typed, '--partition', plan.folder)}"
