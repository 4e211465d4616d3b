"""Choice of the order of commit (P1 or P2), with or without the recovery guard.

krepair chooses for a new plan, and again right before the plan is applied, because the choice depends on the active
segments of all partitions, to which a broker may have written since. The plan has a digest of the sizes and times of
these segments: if the digest is the same, no segment is read again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from krepair.checks.tail import is_torn_tail
from krepair.durable.scratch import Scratch
from krepair.engine.engine import Engine
from krepair.errors import PersonDecidesError, RefusedError, UsageError
from krepair.fixes.context import Context, oldest_writer_version
from krepair.fixes.logs import read_active_segments
from krepair.formats.broker_version import version_of
from krepair.formats.filenames import RECOVERY_POINT_CHECKPOINT, log_name
from krepair.kernels.classes import D_NONE
from krepair.logdir.config import load_settings
from krepair.logdir.fingerprint import DIGEST_BYTES
from krepair.logdir.values import LogDir, Partition
from krepair.next_command import LOG_DIR, PLAN, Next
from krepair.options import Options
from krepair.plan.model import Commit, PartitionPlan, Plan
from krepair.rules.model import SegmentFacts

_LAST_WITH_P1: Final = (2, 8)


def commit_of(context: Context, partitions: Sequence[PartitionPlan], root: Collection[str]) -> Commit:
    """Choose the order in which the changes of a plan are swapped in, and the recovery guard.

    Args:
        partitions: partitions of the plan.
        root: names of the root's files that the plan changes before all other files.

    Raises:
        PersonDecidesError: the order depends on an unknown broker version, or the recovery guard depends on a damaged
            file that the plan does not repair.
    """
    lowest = lowest_changes(partitions)
    if lowest:
        version = context.options.broker_version or oldest_writer_version(context.view)
        commit = choose_commit(lowest, _all_damage(context), version)
        damage = context.view.recovery_point.damage
        if commit.fence and damage and RECOVERY_POINT_CHECKPOINT not in root:
            fixes = context.options.fixes
            is_named = "checkpoints" in fixes
            first = Next.of("plan", LOG_DIR, "--fix", ",".join((*fixes, "checkpoints")), out=PLAN)
            raise PersonDecidesError(
                f"{RECOVERY_POINT_CHECKPOINT} is damaged: byte {damage[0].position}: {damage[0].text}; apply lowers "
                "an entry of it while files are swapped, so a plan has to repair it first",
                next_command=Next.of("explain", "KR403") if is_named else first,
            )
        return replace(commit, looked_at=active_segments(context.view))
    some = bool(root) or any(partition.changes for partition in partitions)
    why = "each file is replaced by one rename" if some else "nothing to commit"
    return Commit(order="P1", fence=True, why=why)


def lowest_changes(partitions: Iterable[PartitionPlan]) -> dict[str, int]:
    """Return the lowest base offset from which recovery must begin during the changes, by partition folder."""
    lowest: dict[str, int] = {}
    for partition in partitions:
        froms = [change.recovers_from for change in partition.changes]
        bases = [base for base in froms if base is not None]
        if bases:
            lowest[partition.folder] = min(bases)
    return lowest


def active_segments(view: LogDir) -> str:
    """Return 32 hex digits over name, size and time of every active segment, and the clean-shutdown marker."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    digest.update(b"clean" if view.clean_shutdown else b"unclean")
    for partition in view.partitions:
        last = [(active.log.name, active.log.size, active.log.mtime_ns) for active in partition.segments[-1:]]
        digest.update(os.fsencode(f"{partition.folder}\0{last}\0{partition.unreadable}\0"))
    return digest.hexdigest()


def damage_now(
    plan: Plan,
    view: LogDir,
    remaining: Sequence[PartitionPlan],
    engine: Engine,
    scratch: Scratch,
    keeps_marker: bool,
) -> str:
    """Return why the plan's recovery guard would do harm now: the first log that a recovery would cut; or empty.

    Active segments that differ from those of the plan are read again.

    Args:
        plan: the plan that is applied or undone.
        view: the log directory now.
        remaining: targets with the changes that are still to be made or undone.
        scratch: scratch folder for data that does not fit into memory.
        keeps_marker: True if a recovery guard holds the clean-shutdown marker and will restore the marker.
    """
    # If the digest equals the plan's, no active segment was damaged after the plan was made.
    if (
        not plan.commit.fence
        or not lowest_changes(remaining)
        or plan.commit.looked_at == active_segments(view)
    ):
        return ""
    options, settings = Options(now_ms=plan.policy.now_ms), load_settings(None, None, {})
    clean = view._replace(clean_shutdown=view.clean_shutdown or keeps_marker)
    met = _damage_met(Context(clean, settings, options, engine, scratch), remaining)
    if not met:
        return ""
    return (
        f"{met[0].folder}/{log_name(met[0].base_offset)} is damaged, and was not when the plan was made: under "
        "the recovery guard a broker that starts before the swap ends would cut it"
    )


def commit_now(
    plan: Plan, view: LogDir, remaining: Sequence[PartitionPlan], harm: str, broker_version: str
) -> Commit:
    """Return the order of commit for the present broker, with the plan's recovery guard if the guard does no harm.

    Args:
        plan: the plan that is applied or undone.
        view: the log directory now.
        remaining: targets with the changes that are still to be made or undone.
        harm: result of ``damage_now``.
        broker_version: value of ``--broker-version``; empty: that of the plan.

    Raises:
        RefusedError: the order depends on the broker's version, which is unknown.
        UsageError: the version is malformed.
    """
    if not lowest_changes(remaining) or (plan.commit.fence and not harm):
        return plan.commit
    version = broker_version or plan.policy.broker_version or oldest_writer_version(view)
    if not version:
        raise RefusedError(
            f"{harm or f'plan {plan.plan_id} goes without the recovery guard'}; nothing says which broker will be "
            "started, so the safe order of the swaps is not known; nothing was changed: type the same command with "
            "--broker-version VERSION"
        )
    return Commit(order=_order_for(version), fence=False, why=f"the order for broker {version}")


def _damage_met(context: Context, partitions: Sequence[PartitionPlan]) -> list[DamagedSegment]:
    """Return the damaged active segments that a recovery under the guard would cut now.

    Closed segments are known by their fingerprints. Without a clean-shutdown marker a broker recovers active segments
    in any case, with or without the recovery guard.
    """
    if not context.view.clean_shutdown:
        return []
    return damage_in_reach(lowest_changes(partitions), _damaged_last(context, frozenset()))


def _all_damage(context: Context) -> list[DamagedSegment]:
    """Return the damage of all logs that were read, and of the active segments of all other partitions.

    The recovery guard makes a broker recover those active segments. Without a clean-shutdown marker a broker recovers
    active segments in any case.
    """
    read = [analysis for analysis in context.analyses.values() if analysis.segments]
    damaged = [
        DamagedSegment(analysis.partition.folder, facts.base_offset, active=active)
        for analysis in read
        for facts in analysis.segments
        for active in (facts is analysis.segments[-1],)
        if _would_lose(context.view, analysis.partition, facts, active=active)
    ]
    if context.view.clean_shutdown:
        damaged += _damaged_last(context, {analysis.partition.folder for analysis in read})
    return damaged


def _damaged_last(context: Context, but: Collection[str]) -> list[DamagedSegment]:
    """Return the damaged active segments of readable partitions, except those in the folders ``but``."""
    readable = [
        partition
        for partition in context.view.partitions
        if partition.segments and not partition.unreadable and partition.folder not in but
    ]
    active = read_active_segments(context.view, context.engine, readable, context.analyses)
    return [
        DamagedSegment(partition.folder, facts.base_offset, active=True)
        for partition in readable
        if (facts := active.get(partition.folder)) is not None
        if _would_lose(context.view, partition, facts, active=True)
    ]


def _would_lose(view: LogDir, partition: Partition, facts: SegmentFacts, *, active: bool) -> bool:
    """Return whether a recovery under the guard could cut records that the next start would leave.

    A torn tail holds no complete batch, so a cut loses nothing. Without a clean-shutdown marker the active segment is
    recovered in any case.
    """
    if facts.summary.damage == D_NONE:
        return False
    path = f"{partition.path}/{log_name(facts.base_offset)}"
    return not (active and (not view.clean_shutdown or is_torn_tail(path, facts.summary)))


# -- pure functions: the order, and whether with the recovery guard


class DamagedSegment(NamedTuple):
    """Segment that a recovery would cut.

    Attributes:
        folder: name of the partition folder.
        active: True for the last segment of the partition.
    """

    folder: str
    base_offset: int
    active: bool


def damage_in_reach(
    lowest_groups: Mapping[str, int], damaged: Iterable[DamagedSegment]
) -> list[DamagedSegment]:
    """Return the damaged segments that a recovery with the guard would cut, together with all later segments.

    Args:
        lowest_groups: partition folder -> base offset of its first group.
        damaged: every damaged segment of the log directory that is known.
    """
    return sorted(
        segment
        for segment in damaged
        if segment.active
        or (segment.folder in lowest_groups and segment.base_offset >= lowest_groups[segment.folder])
    )


def choose_commit(
    lowest_groups: Mapping[str, int], damaged: Iterable[DamagedSegment], broker_version: str
) -> Commit:
    """Choose P1 with the recovery guard; or, if recovery would meet damage, the version's order without a guard.

    Args:
        lowest_groups: partition folder -> base offset of its first group.
        damaged: every damaged segment of the log directory that is known.
        broker_version: version of the broker that will be started next, such as ``3.9.2``; empty if unknown.

    Raises:
        PersonDecidesError: a recovery would meet damage and the version is unknown.
        UsageError: the version is malformed.
    """
    reach = damage_in_reach(lowest_groups, damaged)
    if not reach:
        why = "safe at every moment on every version, since the recovery guard is set"
        return Commit(order="P1", fence=True, why=why)
    first = f"{reach[0].folder}/{log_name(reach[0].base_offset)}"
    if not broker_version:
        message = (
            f"{first} is damaged. Under the recovery guard (with a lowered recovery point) a broker that starts before "
            "the swap ends would cut it there. Without the recovery guard the safe order of renames depends on the "
            "broker's version, and that is not known"
        )
        raise PersonDecidesError(
            message, next_command=Next.of("plan", LOG_DIR, "--broker-version", "VERSION", out=PLAN)
        )
    order = _order_for(broker_version)
    meets = f"recovery would meet damage in {first}"
    why = f"without the recovery guard, since {meets}; the order for broker {broker_version}"
    return Commit(order=order, fence=False, why=why)


def _order_for(broker_version: str) -> Literal["P1", "P2"]:
    version = version_of(broker_version)
    if version is None:
        raise UsageError(f"--broker-version {broker_version}: expected a version like 3.9.2")
    return "P1" if version[:2] <= _LAST_WITH_P1 else "P2"
