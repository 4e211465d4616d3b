"""Build a sealed plan from decided partitions: sums, risks, estimate. Pure: the time comes from the policy."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from krepair import __version__
from krepair.formats.words import all_printable
from krepair.logdir.values import LogDir
from krepair.plan.changes import trusted_after
from krepair.plan.document import for_the_reader
from krepair.plan.fit import with_undo_decided
from krepair.plan.keep import INPLACE
from krepair.plan.model import Commit, PartitionPlan, Plan, Policy, Preview, Risk, RootPlan
from krepair.plan.planfile import seal
from krepair.plan.risks import risks_of
from krepair.plan.space import expected_seconds, plan_peak_bytes, with_figures


def build_plan(
    view: LogDir,
    policy: Policy,
    partitions: Sequence[PartitionPlan],
    commit: Commit,
    *,
    copied_mtimes: Sequence[str] = (),
    dead_cleaner: Sequence[str] = (),
    root: RootPlan | None = None,
    kept: Sequence[Risk] = (),
    loss_risks: Sequence[Risk] = (),
    asked: Sequence[str] = (),
    preview: Preview | None = None,
) -> Plan:
    """Build and seal a plan.

    All figures that follow from others (freed, peak, sums, tallies of a partition) are computed here, see
    ``krepair.plan.space``. Values of the partitions for them are ignored.

    Args:
        view: the log directory for which the plan is made.
        policy: inputs of the decisions.
        partitions: partitions, in any order.
        commit: order of renames, and whether a recovery guard is needed.
        copied_mtimes: folders whose modification times look copied (KR106).
        dead_cleaner: folders whose cleaner makes no progress (KR104).
        root: changes of checkpoint files in the root, if any.
        kept: risks of earlier plans whose originals are still kept, one for each plan.
        loss_risks: risks of partitions that lose records or change their leader epochs: the replicas that still have
            these records.
        asked: options of the command line that the plan was made with.
        preview: set if the plan is made while a broker is running.
    """
    raised = trusted_after(() if root is None else root.changes)
    figured = [
        with_figures(partition, policy)
        if partition.changes or (partition.topic, partition.partition) in raised
        else for_the_reader(partition)
        for partition in partitions
    ]
    figured.sort(key=lambda partition: (partition.topic, partition.partition, partition.folder))
    damaged = [partition for partition in figured if partition.uncleanable_bytes]
    plan = Plan(
        tool_version=__version__,
        host=view.host,
        log_dir=view.path,
        cluster_id=view.cluster_id,
        broker_id=view.broker_id,
        directory_id=view.directory_id,
        policy=policy,
        commit=commit,
        partitions=tuple(figured),
        root=root,
        freed_at_apply=sum(partition.freed_at_apply for partition in figured),
        freed_at_purge=sum(partition.freed_at_purge for partition in figured),
        expected_seconds=expected_seconds(figured, policy),
        uncleanable_partitions=len(damaged),
        uncleanable_bytes=sum(partition.uncleanable_bytes for partition in damaged),
        risks=(
            *loss_risks,
            *kept,
            *risks_of(policy, figured, root, copied_mtimes=copied_mtimes, dead_cleaner=dead_cleaner),
        ),
        asked=tuple(asked),
        preview=UNSET if preview is None else preview,
    )
    plan = _encodable(plan)
    if policy.keep != INPLACE:
        figured = [
            with_figures(partition, policy) if partition.changes else partition
            for partition in with_undo_decided(plan)
        ]
        freed = sum(partition.freed_at_apply for partition in figured)
        plan = msgspec.structs.replace(plan, partitions=tuple(figured), freed_at_apply=freed)
    return seal(msgspec.structs.replace(plan, peak_extra_bytes=plan_peak_bytes(plan)))


def _encodable(plan: Plan) -> Plan:
    """Return the plan with every name that is not UTF-8 spelled out, because JSON cannot hold such names."""
    try:
        msgspec.json.encode(plan)
    except UnicodeEncodeError:
        spelled: Plan = msgspec.convert(all_printable(msgspec.to_builtins(plan)), Plan)
        return spelled
    return plan
