"""The figures of a plan that follow from other fields, for the builder.

What they say of space is worked out in ``krepair.plan.space``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from krepair.plan.actions.table import action_of
from krepair.plan.facts import OnDisk
from krepair.plan.model import PartitionPlan, Plan, Policy, ReasonTally
from krepair.plan.space import freed_at_apply, on_top
from krepair.rules.reasons import Reason

_ORDER: Final = {reason.value: place for place, reason in enumerate(Reason)}
READ_BYTES_PER_SECOND: Final = 600_000_000
WRITTEN_BYTES_PER_SECOND: Final = 200_000_000


def add_tallies(tallies: Iterable[ReasonTally]) -> tuple[ReasonTally, ...]:
    """Sums by reason, in the order of ``Reason``; an unknown code comes last."""
    batches: dict[str, int] = {}
    size: dict[str, int] = {}
    for tally in tallies:
        batches[tally.reason] = batches.get(tally.reason, 0) + tally.batches
        size[tally.reason] = size.get(tally.reason, 0) + tally.bytes
    codes = sorted(batches, key=lambda code: (_ORDER.get(code, len(_ORDER)), code))
    return tuple(ReasonTally(reason=code, batches=batches[code], bytes=size[code]) for code in codes)


def with_figures(partition: PartitionPlan, policy: Policy) -> PartitionPlan:
    """The partition with all figures that follow from its changes and files."""
    on_disk = OnDisk.of(partition.files, policy)
    spaces = [(change, action_of(change).space(change, on_disk)) for change in partition.changes]
    return replace(
        partition,
        log_bytes_after=partition.log_bytes_before - sum(space.log_shrinks for _, space in spaces),
        freed_at_apply=sum(freed_at_apply(change, space) for change, space in spaces),
        freed_at_purge=sum(space.back - space.made for _, space in spaces),
        peak_extra_bytes=on_top(partition, policy).peak,
        reasons=add_tallies(
            tally
            for change in partition.changes
            for source in action_of(change).sources(change)
            for tally in source.reasons
        ),
    )


def made_bytes(partitions: Iterable[PartitionPlan], policy: Policy) -> int:
    """Bytes that apply writes, and that ``krepair verify PLAN`` reads."""
    return sum(
        action_of(change).space(change, on_disk).made
        for partition in partitions
        for on_disk in (OnDisk.of(partition.files, policy),)
        for change in partition.changes
    )


def expected_seconds(partitions: Iterable[PartitionPlan], policy: Policy) -> float:
    """Estimated seconds of apply, at a fixed and cautious rate.

    With a rate measured on the host, two plans of the same directory would differ.
    """
    changing = [partition for partition in partitions if partition.changes]
    read = sum(action_of(change).work(change).apply for one in changing for change in one.changes)
    return round(read / READ_BYTES_PER_SECOND + made_bytes(changing, policy) / WRITTEN_BYTES_PER_SECOND, 1)


def verify_seconds(plan: Plan) -> float:
    """Estimated seconds of ``krepair verify PLAN``, at the fixed rate of ``expected_seconds``."""
    return made_bytes(plan.changing, plan.policy) / READ_BYTES_PER_SECOND
