"""Layout of the plan file: partitions without changes are grouped by the text that they share.

Often only one of 10,000 partitions changes; people read the file, and a part of it is kept in the log directory. So a
partition without changes contributes only its folder name, and everything that it shares with others is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from krepair.plan.model import Evidence, HorizonChoice, KeyCompaction, PartitionPlan, Plan, Span
from krepair.rules.reasons import LAG

NAME: Final = "{partition}"
"""Placeholder for the partition's folder in a text that several partitions share."""


class Unchanged(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions without changes that share all fields below, which mean the same as in ``PartitionPlan``.

    Attributes:
        partitions: folder names of the partitions, by topic and number.
        topic: topic of a single partition whose folder name is not ``topic-number``; else empty.
        partition: number of that single partition.
        why: reason for skipping them; ``{partition}`` stands for the folder of each partition.
        next_command: the next command to type; ``{partition}`` stands for the folder of each partition.
        status: ``nothing`` (nothing to do) or ``left alone`` (see ``why``).
        code: code of the reason for skipping them, such as ``damage``; else empty.
        span: the offsets that may be compacted, or None.
        horizon_ms: delete horizon, epoch milliseconds; 0 if no choice of it would remove anything.
        horizons: the result of each choice of the horizon.
        uncleanable_bytes: bytes of each partition that cannot be cleaned (KIP-346).
        notes: lines for the reviewer; ``{partition}`` stands for the folder of each partition.
        compaction: result of key compaction; absent if ``compact`` did not decide on them.
        evidence: facts about the other replicas, without their ``logs``; absent if nothing was decided on markers or
            keys.
    """

    partitions: tuple[str, ...] = ()
    topic: str = ""
    partition: int = 0
    status: Literal["change", "nothing", "left alone"]
    code: str = ""
    why: str = ""
    next_command: str = ""
    span: Span | None = None
    horizon_ms: int = 0
    horizons: tuple[HorizonChoice, ...] = ()
    uncleanable_bytes: int = 0
    notes: tuple[str, ...] = ()
    compaction: KeyCompaction | UnsetType = UNSET
    evidence: Evidence | UnsetType = UNSET


class PlanDocument(Plan, frozen=True, kw_only=True):
    """A plan as its file stores it; ``partitions`` are those that change, or whose recovery point advances.

    Attributes:
        unchanged: groups of all other partitions; absent if there are none, and in the copy that is kept for undo.
    """

    unchanged: tuple[Unchanged, ...] | UnsetType = UNSET


_SHARED: Final = tuple(
    name for name in Unchanged.__struct_fields__ if name not in {"partitions", "topic", "partition"}
)


def for_the_reader(partition: PartitionPlan) -> PartitionPlan:
    """Return a partition without changes, reduced to what the reader of the plan needs to know."""
    bare = PartitionPlan(
        topic=partition.topic,
        partition=partition.partition,
        folder=partition.folder,
        status=partition.status,
        code=partition.code,
        why=partition.why,
        next_command=partition.next_command,
        uncleanable_bytes=partition.uncleanable_bytes,
        notes=partition.notes,
    )
    if partition.status == "left alone":
        return bare
    evidence, span = partition.evidence, partition.span
    some_would_go = len({choice.log_bytes_after for choice in partition.horizons}) > 1
    return replace(
        bare,
        span=span if span is not None and span.limit == LAG else None,
        horizon_ms=partition.horizon_ms if some_would_go else 0,
        horizons=partition.horizons if some_would_go else (),
        compaction=partition.compaction,
        evidence=evidence if isinstance(evidence, UnsetType) else replace(evidence, logs=()),
    )


def split_unchanged(plan: Plan) -> tuple[Plan, tuple[Unchanged, ...]]:
    """Return the plan without the partitions that only the reader needs, and those partitions in groups."""
    whole: list[PartitionPlan] = []
    alike: dict[Unchanged, list[str]] = {}
    for partition in plan.partitions:
        if (
            partition.changes
            or partition != for_the_reader(partition)
            or any(NAME in text for text in _texts(partition))
        ):
            whole.append(partition)
        else:
            alike.setdefault(_shared_by(partition), []).append(partition.folder)
    groups = tuple(replace(shared, partitions=tuple(names)) for shared, names in alike.items())
    return replace(plan, partitions=tuple(whole)), groups


def _texts(partition: PartitionPlan | Unchanged) -> tuple[str, ...]:
    return partition.why, partition.next_command, *partition.notes


def _shared_by(partition: PartitionPlan) -> Unchanged:
    fields = {name: getattr(partition, name) for name in _SHARED}
    fields["why"], fields["next_command"], *notes = (
        text.replace(partition.folder, NAME) for text in _texts(partition)
    )
    fields["notes"] = tuple(notes)
    if partition.folder != f"{partition.topic}-{partition.partition}":
        fields |= {"topic": partition.topic, "partition": partition.partition}
    return Unchanged(**fields)


def join_unchanged(document: PlanDocument) -> Plan:
    """Return the plan that a document stores, with all partitions by topic and number."""
    fields = {name: getattr(document, name) for name in Plan.__struct_fields__}
    if not isinstance(document.unchanged, UnsetType):
        partitions = [*document.partitions, *_partitions_of(document.unchanged)]
        partitions.sort(key=lambda partition: (partition.topic, partition.partition, partition.folder))
        fields["partitions"] = tuple(partitions)
    return Plan(**fields)


def _partitions_of(groups: Iterable[Unchanged]) -> Iterator[PartitionPlan]:
    for group in groups:
        fields = {name: value for name, value in asdict(group).items() if name in _SHARED}
        for folder in group.partitions:
            topic, _, number = folder.rpartition("-")
            if group.topic or not number.isdecimal():
                topic, number = group.topic, str(group.partition)
            fields["why"], fields["next_command"], *notes = (
                text.replace(NAME, folder) for text in _texts(group)
            )
            fields["notes"] = tuple(notes)
            yield PartitionPlan(topic=topic, partition=int(number), folder=folder, **fields)
