"""Makes a sealed plan from decided partitions: sums, risks, estimate. Pure: the time is in the policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET

from krepair import __version__
from krepair.formats.broker_version import version_of
from krepair.formats.words import all_printable
from krepair.plan.actions.action import (
    ANOTHER_REPLICA,
    EVERY_REPLICA,
    LAGGING_REPLICA,
    LATE_READERS,
    OTHERS_HAVE,
)
from krepair.plan.effects import trusted_after
from krepair.plan.facts import setting
from krepair.plan.figures import expected_seconds, risks_of, with_figures
from krepair.plan.keep import AUTO, INPLACE
from krepair.plan.model import (
    Asked,
    Commit,
    Evidence,
    PartitionPlan,
    Plan,
    Policy,
    Preview,
    Risk,
    RootPlan,
)
from krepair.plan.planfile import seal
from krepair.plan.space import decided, plan_peak_bytes
from krepair.rules.evidence import BY_TIME

_BLOAT_FIXED_IN: Final = (2, 2, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogDirFacts:
    """The place at which a plan was made.

    Attributes:
        host: host name.
        path: absolute path of the log directory.
        cluster_id: from ``meta.properties``, may be empty.
        broker_id: from ``meta.properties``, may be empty.
        directory_id: from ``meta.properties``, may be empty.
    """

    host: str
    path: str
    cluster_id: str = ""
    broker_id: str = ""
    directory_id: str = ""


def build_plan(
    facts: LogDirFacts,
    policy: Policy,
    partitions: Sequence[PartitionPlan],
    commit: Commit,
    *,
    copied_mtimes: Sequence[str] = (),
    dead_cleaner: Sequence[str] = (),
    root: RootPlan | None = None,
    kept: Sequence[str] = (),
    others_have: Sequence[str] = (),
    asked: Asked | None = None,
    preview: Preview | None = None,
) -> Plan:
    """Build and seal a plan.

    All figures that follow from others (freed, peak, sums, tallies of a partition) are computed here, see
    ``krepair.plan.figures``. Values of the partitions for them are ignored.

    Args:
        facts: the place at which the plan is made.
        policy: inputs of the decisions.
        partitions: partitions, in any order.
        commit: how changes are swapped in.
        copied_mtimes: folders whose modification times look copied (KR106).
        dead_cleaner: folders whose cleaner stands still (KR104).
        root: changes of checkpoint files in the root, if any.
        kept: one or two sentences for each earlier plan whose originals are still kept.
        others_have: sentences for each partition that loses records or changes its epochs: who else has them.
        asked: the options that were given, as far as they are not in the policy.
        preview: set if the plan is made while a broker is running.
    """
    figured = [with_figures(partition, policy) for partition in partitions]
    figured.sort(key=lambda partition: (partition.topic, partition.partition, partition.folder))
    damaged = [partition for partition in figured if partition.uncleanable_bytes]
    plan = Plan(
        tool_version=__version__,
        host=facts.host,
        log_dir=facts.path,
        cluster_id=facts.cluster_id,
        broker_id=facts.broker_id,
        directory_id=facts.directory_id,
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
            *(Risk(code=OTHERS_HAVE, text=text) for text in others_have),
            *(Risk(code="kept-originals", text=text) for text in kept),
            *_risks_of_root(figured, root),
            *_risks(policy, figured, copied_mtimes, dead_cleaner, with_root=root is not None),
        ),
        asked=UNSET if asked is None else asked,
        preview=UNSET if preview is None else preview,
    )
    plan = _encodable(plan)
    if policy.keep != INPLACE:
        figured = [with_figures(partition, policy) for partition in decided(plan)]
        freed = sum(partition.freed_at_apply for partition in figured)
        plan = msgspec.structs.replace(plan, partitions=tuple(figured), freed_at_apply=freed)
    return seal(msgspec.structs.replace(plan, peak_extra_bytes=plan_peak_bytes(plan)))


def _encodable(plan: Plan) -> Plan:
    """The plan, with names that are not UTF-8 spelled out, because JSON cannot hold them."""
    try:
        msgspec.json.encode(plan)
    except UnicodeEncodeError:
        spelled: Plan = msgspec.convert(all_printable(msgspec.to_builtins(plan)), Plan)
        return spelled
    return plan


_KEEP_INPLACE: Final = Risk(
    code="keep-inplace",
    text="The originals stay in the partition folders. Until krepair purge, apply makes the disk fuller, not emptier.",
)

_UNTIL_VERIFIED: Final = Risk(
    code="keep-until-verified",
    text="Apply itself frees the originals, after it has read the new files again and verified them. A change whose "
    "originals are freed cannot be undone: undo takes changes back, the last one first, and stops at the first such "
    "change.",
)

_AUTO: Final = Risk(
    code="keep-auto",
    text="Where the disk has no room for originals, apply itself frees them, after it has read the new files again and "
    "verified them. The first lines say of how many changes there is no undo then. Undo takes changes back, the last "
    "one first, and stops at the first such change.",
)

_ANOTHER_REPLICA: Final = Risk(
    code=ANOTHER_REPLICA,
    text="If another replica of the partition is in sync, it has the records that are lost here. Then let the broker "
    "fetch the partition anew while the cluster runs: move the partition away from this broker and back, see The way "
    "back in docs/compare.md. With --replicas ID=LOGDIR the plan says which replica has them. Do not delete or move "
    "the folder by hand: if this broker is alone in the ISR, that empties every replica. A replica from which records "
    "were cut differs from the other replicas from there on.",
)

_LATE_READERS: Final = (
    "This plan removes records that have a later record of their key, and tombstones past their horizon. A consumer, "
    "a Streams restore or a replica that was further behind than delete.retention.ms does not see such a tombstone and "
    "keeps the old value of the key: let it read from the beginning. A consumer that needs every change, not only the "
    "last value, misses the removed records."
)


_IN_SYNC: Final = Risk(
    code="in-sync-only",
    text="Where markers and tombstones go because all other replicas are in sync, two risks remain. A broker that is "
    "killed may lose its unflushed tail and read on from this one. A new replica may copy one part of the log from "
    "another replica, and the other part from this one after a change of leader. --replicas rules both out.",
)

_UNCLEAN_ELECTION: Final = Risk(
    code="unclean-election",
    text="If another replica was elected leader in an unclean way while this broker was down, records on which this "
    "plan rests may not be in the log of the new leader. Then undo this plan before you start this broker.",
)

_STILL_UNCLEAN: Final = Risk(
    code="still-unclean",
    text="The stop stays unclean. Leader election, in-sync replicas and catching up are as after a crash. Only the "
    "recovery of the logs, which the broker would do at its start, is done before it. Producers that are expired by "
    "the clock of the plan are not in the new snapshots. If the disk lost bytes that it had reported as written, no "
    "later start will notice it.",
)


def _risks_of_root(partitions: Sequence[PartitionPlan], root: RootPlan | None) -> tuple[Risk, ...]:
    """Risks of a recovery point that rises: the start trusts the log below it, and committed records may be missing."""
    trusted = trusted_after(() if root is None else root.changes)
    if not trusted:
        return ()
    short = [
        f"{one.folder} ({one.log_end_offset} of {one.high_watermark})"
        for one in partitions
        if (one.topic, one.partition) in trusted and one.log_end_offset < one.high_watermark
    ]
    if not short:
        return (_STILL_UNCLEAN,)
    text = (
        f"Committed records are missing: the log ends below the recorded high watermark in {_list(short)}. Make "
        "another replica the leader before you start this broker. A start without krepair would not bring them back."
    )
    return (_STILL_UNCLEAN, Risk(code="below-high-watermark", text=text))


def _risks(
    policy: Policy,
    partitions: Sequence[PartitionPlan],
    copied_mtimes: Sequence[str],
    dead_cleaner: Sequence[str],
    *,
    with_root: bool,
) -> tuple[Risk, ...]:
    told = [(partition, risks_of(partition)) for partition in partitions]
    changing = [partition for partition, codes in told if EVERY_REPLICA in codes]
    kept = _of_keeping(policy.keep, partitions, with_root=with_root)
    of_losses = (_ANOTHER_REPLICA,) if any(ANOTHER_REPLICA in codes for _, codes in told) else ()
    if not changing:
        return (*of_losses, *kept)
    risks = [
        *of_losses,
        Risk(
            code=EVERY_REPLICA,
            text="This plan is for one replica. Every other replica needs a plan of its own.",
        ),
        Risk(
            code=LAGGING_REPLICA,
            text="A replica that was further behind than delete.retention.ms before this apply must be fetched anew: "
            "move the partition away from its broker and back, see The way back in docs/compare.md. Do not delete its "
            "folder by hand. It may have fetched an emptied batch without its marker, and then it would keep a "
            "transaction that never ends.",
        ),
    ]
    if any(LATE_READERS in codes for _, codes in told):
        risks.append(Risk(code=LATE_READERS, text=_LATE_READERS))
    comes_back = _comes_back(policy, changing, dead_cleaner)
    if comes_back:
        risks.append(Risk(code="comes-back", text=comes_back))
    forced = _forced(policy, changing)
    if forced:
        risks.append(Risk(code="horizon-forced", text=forced))
    if any(partition.keeps_all for partition in changing):
        risks.append(_UNCLEAN_ELECTION)
    if any(isinstance(one.evidence, Evidence) and one.evidence.kind == "in-sync" for one in changing):
        risks.append(_IN_SYNC)
    folders = {partition.folder for partition in changing}
    copied = sorted(folders.intersection(copied_mtimes))
    if copied:
        risks.append(
            Risk(
                code="mtimes-copied",
                text=f"Modification times look copied in {_list(copied)}. They are the clock for markers, so check "
                "that the delete horizon is right.",
            )
        )
    risks += kept
    if policy.assume_high_watermark:
        risks.append(
            Risk(
                code="assumed-high-watermark",
                text="The high watermark of the checkpoint is not used, because you chose the log end. Make sure that "
                "this replica was in sync.",
            )
        )
    return tuple(risks)


def _of_keeping(keep: str, partitions: Sequence[PartitionPlan], *, with_root: bool) -> tuple[Risk, ...]:
    """The risks of the way in which originals are kept."""
    if not with_root and not any(partition.changes for partition in partitions):
        return ()
    return ({INPLACE: _KEEP_INPLACE, AUTO: _AUTO}.get(keep, _UNTIL_VERIFIED),)


def _comes_back(policy: Policy, changing: Sequence[PartitionPlan], dead_cleaner: Sequence[str]) -> str:
    known = version_of(policy.broker_version)
    still = sorted({partition.folder for partition in changing}.intersection(dead_cleaner))
    if known and known < _BLOAT_FIXED_IN:
        return (
            f"The space will fill up again: broker {policy.broker_version} keeps emptied batches and their markers "
            "forever (KAFKA-8335, fixed in 2.2.1)."
        )
    if still:
        return (
            f"The space will fill up again if the cleaner stays stopped: it stands still in {_list(still)}."
        )
    if not known:
        return (
            "The space will fill up again if the broker is older than 2.2.1 (KAFKA-8335), or if its cleaner is dead or "
            "switched off. The version is not known here, because --broker-version was not given."
        )
    return ""


def _forced(policy: Policy, changing: Sequence[PartitionPlan]) -> str:
    if not policy.horizon.isdigit():
        return ""
    late = sorted(
        partition.folder
        for partition in changing
        if _may_be_later(partition)
        and int(policy.horizon) > policy.now_ms - _retention_ms(policy, partition.topic)
    )
    if not late:
        return ""
    return (
        f"The delete horizon is later than now minus delete.retention.ms in {_list(late)}. Consumers and replicas that "
        "are behind have less time to read the end of a transaction than the topic's settings promise."
    )


def _may_be_later(partition: PartitionPlan) -> bool:
    """Whether the horizon of a partition may be later than now minus ``delete.retention.ms``."""
    evidence = partition.evidence
    return not isinstance(evidence, Evidence) or not (evidence.keeps_all or evidence.kind in BY_TIME)


def _retention_ms(policy: Policy, topic: str) -> int:
    try:
        return int(setting(policy, topic, "delete.retention.ms"))
    except ValueError:
        return 0


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
