"""The consents that a plan rests on, and the risks that its reviewer must know. Only this module has their texts.

Each has a short sentence, which is a line of the plan's short page, and more for ``krepair show PLAN --section risks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.formats.broker_version import version_of
from krepair.formats.words import few, names_text
from krepair.plan.changes import trusted_after
from krepair.plan.facts import setting
from krepair.plan.keep import AUTO, INPLACE
from krepair.plan.model import Evidence, PartitionPlan, Plan, Policy, Risk, RootPlan
from krepair.rules.evidence import BY_TIME

_FEW: Final = 3

EVERY_REPLICA: Final = "every-replica"
LAGGING_REPLICA: Final = "lagging-replica"
LATE_READERS: Final = "late-readers"
ANOTHER_REPLICA: Final = "another-replica"
OTHERS_HAVE: Final = "others-have"
KEPT_ORIGINALS: Final = "kept-originals"
ASSUMED: Final = "assumed-high-watermark"
KEEPING: Final = {INPLACE: "keep-inplace", AUTO: "keep-auto"}
"""Mode of keeping originals -> code of its risk; every other mode has ``keep-until-verified``."""
_UNTIL_VERIFIED: Final = "keep-until-verified"
_BLOAT_FIXED_IN: Final = (2, 2, 1)


# -- consents


class Consent(NamedTuple):
    """One kind of consent that was given for a plan.

    Attributes:
        option: option that was typed, without its values.
        values: values that were given to it; may be empty.
        text: the consent in one short sentence.
        more: consequences of the consent.
        folders: partitions that rest on it, in the order of the plan.
    """

    option: str
    values: tuple[str, ...]
    text: str
    more: str
    folders: tuple[str, ...]


def consents_of(plan: Plan) -> tuple[Consent, ...]:
    """Return every kind of consent of a plan."""
    return tuple(_consents(plan))


def _consents(plan: Plan) -> Iterator[Consent]:
    policy = plan.policy
    changing = tuple(partition.folder for partition in plan.changing)
    if policy.accepted_losses:
        yield Consent(
            "--accept-data-loss",
            policy.accepted_losses,
            _what_is_lost(plan),
            "They are kept until purge.",
            tuple(
                partition.folder for partition in plan.changing if ANOTHER_REPLICA in risk_codes(partition)
            ),
        )
    if policy.others.only_replica:
        logs = names_text(policy.others.own_metadata)
        held = (
            f"{logs} does not contradict it."
            if logs
            else "No metadata log was found that could contradict it."
        )
        yield Consent(
            "--only-replica",
            policy.others.only_replica,
            "Whoever made this plan stated that no other replica exists. krepair cannot prove it. If it is false, "
            "another replica may serve deleted values.",
            f"And read_committed readers may stall there. {held}",
            _resting_on(plan, "only-replica"),
        )
    if policy.others.as_broker:
        yield Consent(
            "--as-broker",
            (),
            "Markers and tombstones go by time alone.",
            "A replica that was away for longer than delete.retention.ms and comes back may serve deleted values "
            "again, and read_committed readers may stall.",
            _resting_on(plan, "as-broker"),
        )
    if policy.assume_high_watermark:
        yield Consent(
            "--assume-high-watermark",
            (policy.assume_high_watermark,),
            "The log end counts as the high watermark.",
            "What is removed rests on records that may not be on other replicas. If this broker loses them after its "
            "start, the older records are gone. Make sure that this replica was in sync.",
            changing,
        )


def _is_alone(partition: PartitionPlan) -> bool:
    """Return whether a consent says that a partition has no other replica; it also states the risk if it has one."""
    return isinstance(partition.evidence, Evidence) and partition.evidence.kind == "only-replica"


def _resting_on(plan: Plan, kind: str) -> tuple[str, ...]:
    return tuple(
        partition.folder
        for partition in plan.partitions
        if isinstance(partition.evidence, Evidence) and partition.evidence.kind == kind
    )


# -- risks


def risk_codes(partition: PartitionPlan) -> frozenset[str]:
    """Return the codes of the risks that a plan must state for the changes of a partition."""
    codes = set()
    for change in partition.changes:
        if change.decides_on:
            codes |= {EVERY_REPLICA, LAGGING_REPLICA}
        if any(source.by_key is not None for source in change.decides_on):
            codes.add(LATE_READERS)
        if change.consents:
            codes.add(ANOTHER_REPLICA)
    return frozenset(codes)


def risks_of(
    policy: Policy,
    partitions: Sequence[PartitionPlan],
    root: RootPlan | None,
    *,
    copied_mtimes: Sequence[str],
    dead_cleaner: Sequence[str],
) -> tuple[Risk, ...]:
    """Return the risks of a plan that follow from its own values.

    Args:
        policy: policy of the plan.
        partitions: partitions of the plan, in order.
        root: changes of the root, or None.
        copied_mtimes: folders whose modification times look copied (KR106).
        dead_cleaner: folders whose cleaner makes no progress (KR104).
    """
    return (
        *_of_the_start(partitions, root),
        *_of_losses(partitions),
        *_of_rewriting(policy, partitions, copied_mtimes, dead_cleaner),
        *_of_keeping(
            policy.keep, changes=root is not None or any(partition.changes for partition in partitions)
        ),
    )


def _of_the_start(partitions: Sequence[PartitionPlan], root: RootPlan | None) -> Iterator[Risk]:
    """Yield risks of an advanced recovery point: the start trusts the log below, where records may be missing."""
    trusted = trusted_after(() if root is None else root.changes)
    if not trusted:
        return
    yield Risk(
        code="still-unclean",
        text="For elections and in-sync replicas the stop stays a crash.",
        more="Leader election, in-sync replicas and catching up are as after a crash. Only the recovery of the logs, "
        "which the broker would do at its start, is done before it. Producers that are expired by the clock of the "
        "plan are not in the new snapshots. If the disk lost bytes that it had reported as written, no later start "
        "will notice it.",
    )
    short = [
        f"{partition.folder} ({partition.log_end_offset} of {partition.high_watermark})"
        for partition in partitions
        if (partition.topic, partition.partition) in trusted
        and partition.log_end_offset < partition.high_watermark
    ]
    if short:
        yield Risk(
            code="below-high-watermark",
            text=f"Committed records are missing in {names_text(short)}.",
            more="The log ends below the recorded high watermark. Make another replica the leader before you start "
            "this broker. A start without krepair would not bring them back.",
        )


def _what_is_lost(plan: Plan) -> str:
    """Return the offsets whose records are lost, as a reviewer must know them before he agrees."""
    lost = [
        f"{partition.folder} {removed.first_lost} "
        + (f"to {removed.last_lost}" if removed.last_lost >= 0 else "to the log end")
        for partition in plan.changing
        for change in partition.changes
        for removed in change.damage_removed
        if removed.consent
    ]
    more = f" and {len(lost) - _FEW:,} more ranges" if len(lost) > _FEW else ""
    shown = f"{', '.join(lost[:_FEW])}{more}"
    return (
        f"The records of these offsets are lost: {shown}." if lost else "What these lines prove is given up."
    )


def _of_losses(partitions: Sequence[PartitionPlan]) -> Iterator[Risk]:
    losing = [partition.folder for partition in partitions if ANOTHER_REPLICA in risk_codes(partition)]
    if losing:
        yield Risk(
            code=ANOTHER_REPLICA,
            text=f"Another replica may still have what is lost in {few(losing)}: then fetch it from there instead.",
            more="If another replica of the partition is in sync, let the broker fetch the partition again while the "
            "cluster runs: move the partition away from this broker and back, see The way back in docs/compare.md. "
            "With --replicas ID=LOGDIR the plan says which replica has the records. Do not delete or move the folder "
            "by hand: if this broker is alone in the ISR, that empties every replica. A replica from which records "
            "were cut differs from the other replicas from there on.",
        )


def _of_rewriting(
    policy: Policy,
    partitions: Sequence[PartitionPlan],
    copied_mtimes: Sequence[str],
    dead_cleaner: Sequence[str],
) -> Iterator[Risk]:
    changing = [partition for partition in partitions if EVERY_REPLICA in risk_codes(partition)]
    if not changing:
        return
    if not all(_is_alone(partition) for partition in changing):
        yield Risk(
            code=EVERY_REPLICA,
            text="The other replicas stay as they are; each broker needs its own plan.",
        )
        yield Risk(
            code=LAGGING_REPLICA,
            text="Replace a follower that was behind longer than delete.retention.ms.",
            more="To replace it, move the partition away from its broker and back: see The way back in "
            "docs/compare.md. Do not delete its folder by hand. The replica may have fetched an emptied batch without "
            "its marker, and then it would keep a transaction that never ends.",
        )
    if any(LATE_READERS in risk_codes(partition) for partition in partitions):
        yield Risk(
            code=LATE_READERS,
            text="Late readers miss what goes: older records of a key, tombstones.",
            more="Records go that have a later record of their key, and tombstones past their horizon. A consumer, a "
            "Streams restore or a replica that was further behind than delete.retention.ms does not see such a "
            "tombstone and keeps the old value of the key: let it read from the beginning. A consumer that needs every "
            "change, not only the last value, misses the removed records.",
        )
    yield from _comes_back(policy, changing, dead_cleaner)
    yield from _forced(policy, changing)
    if any(partition.keeps_all for partition in changing):
        yield Risk(
            code="unclean-election",
            text="If an unclean leader was elected, undo this before the broker starts.",
            more="If another replica was elected leader in an unclean way while this broker was down, records on which "
            "this plan rests may not be in the log of the new leader. Then undo this plan before you start this "
            "broker.",
        )
    if any(
        isinstance(partition.evidence, Evidence) and partition.evidence.kind == "in-sync"
        for partition in changing
    ):
        yield Risk(
            code="in-sync-only",
            text="That replicas are in sync proves less than their logs would.",
            more="Where markers and tombstones go because all other replicas are in sync, two risks remain. A broker "
            "that is killed may lose its unflushed tail and read on from this one. A new replica may copy one part of "
            "the log from another replica, and the other part from this one after a change of leader. --replicas rules "
            "both out.",
        )
    copied = sorted({partition.folder for partition in changing}.intersection(copied_mtimes))
    if copied:
        yield Risk(
            code="mtimes-copied",
            text=f"Modification times look copied in {few(copied)}.",
            more="They are the clock for markers, so check that the delete horizon is right.",
        )
    if policy.assume_high_watermark:
        yield Risk(
            code=ASSUMED,
            text="The log end counts as the high watermark.",
            more="The high watermark of the checkpoint is not used, because you chose the log end. Make sure that this "
            "replica was in sync.",
        )


def _of_keeping(keep: str, *, changes: bool) -> Iterator[Risk]:
    """Yield the risk of the mode in which originals are kept."""
    if not changes:
        return
    code = KEEPING.get(keep, _UNTIL_VERIFIED)
    if keep == INPLACE:
        yield Risk(
            code=code,
            text="The originals stay until krepair purge.",
            more="They are in the partition folders. Until then apply makes the disk fuller, not emptier.",
        )
        return
    first = (
        "Where the disk has no room for originals, apply itself frees them"
        if keep == AUTO
        else "Apply itself frees the originals"
    )
    yield Risk(
        code=code,
        text=f"{first}.",
        more="It does so after it has read the new files again and verified them. A change whose originals are freed "
        "cannot be undone: undo takes changes back, the last one first, and stops at the first such change.",
    )


def _comes_back(
    policy: Policy, changing: Sequence[PartitionPlan], dead_cleaner: Sequence[str]
) -> Iterator[Risk]:
    known = version_of(policy.broker_version)
    still = sorted({partition.folder for partition in changing}.intersection(dead_cleaner))
    text = more = ""
    if known and known < _BLOAT_FIXED_IN:
        text = f"The space fills up again with broker {policy.broker_version}: it keeps markers."
        more = "It keeps emptied batches and their markers forever (KAFKA-8335, fixed in 2.2.1)."
    elif still:
        text = f"The space fills up again: the cleaner makes no progress in {few(still)}."
        more = "Find out why, and start it again."
    elif not known:
        text = "The space fills up again if this broker is older than 2.2.1."
        more = "--broker-version was not given (KAFKA-8335). It does, too, if its cleaner is dead or switched off."
    if text:
        yield Risk(code="comes-back", text=text, more=more)


def _forced(policy: Policy, changing: Sequence[PartitionPlan]) -> Iterator[Risk]:
    late = sorted(
        partition.folder
        for partition in changing
        if policy.horizon.isdigit()
        and _may_be_later(partition)
        and int(policy.horizon) > policy.now_ms - _retention_ms(policy, partition.topic)
    )
    if late:
        yield Risk(
            code="horizon-forced",
            text=f"The delete horizon is later than settings promise in {few(late)}.",
            more="It is later than now minus delete.retention.ms. Consumers and replicas that are behind have less "
            "time to read the end of a transaction than the topic's settings promise.",
        )


def _may_be_later(partition: PartitionPlan) -> bool:
    """Return whether the horizon of a partition may be later than now minus ``delete.retention.ms``."""
    evidence = partition.evidence
    return not isinstance(evidence, Evidence) or not (evidence.keeps_all or evidence.kind in BY_TIME)


def _retention_ms(policy: Policy, topic: str) -> int:
    try:
        return int(setting(policy, topic, "delete.retention.ms"))
    except ValueError:
        return 0
