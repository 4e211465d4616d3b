"""The form of a plan in its file: partitions without changes are written by what they have in common.

A plan of 10,000 partitions of which one changes is read by people, and a part of it is kept in the log directory. So a
partition without changes has its name there, and what it has in common with others stands once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict, replace

from krepair.plan.model import Evidence, HorizonChoice, KeyCompaction, PartitionPlan, Plan, Span
from krepair.rules.reasons import LAG

NAME: Final = "{partition}"
"""Stands for the folder of a partition in a text that is the same for several partitions."""


class Unchanged(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partitions without changes, of which the same is told; a field means what it means in ``PartitionPlan``.

    Attributes:
        partitions: names of their folders, by topic and number.
        topic: of a folder whose name is not topic and number of its partition, which stands alone; else empty.
        partition: number of the partition then.
        why: why they are left alone; ``{partition}`` is the folder of each.
        next_command: the next command to type, likewise.
        status: see there.
        code: see there.
        span: see there.
        horizon_ms: see there.
        horizons: see there.
        uncleanable_bytes: see there.
        notes: lines for the reviewer, likewise.
        compaction: see there.
        evidence: see there, without its ``logs``.
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
    """A plan as it is written; ``partitions`` are those that change, or whose recovery point is raised.

    Attributes:
        unchanged: the others; absent if there are none, and in the copy that is kept for undo.
    """

    unchanged: tuple[Unchanged, ...] | UnsetType = UNSET


_SHARED: Final = tuple(
    name for name in Unchanged.__struct_fields__ if name not in {"partitions", "topic", "partition"}
)


def for_the_reader(partition: PartitionPlan) -> PartitionPlan:
    """A partition without changes, with nothing but what the reader of the plan is told of it."""
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


def parted(plan: Plan) -> tuple[Plan, tuple[Unchanged, ...]]:
    """A plan without the partitions that are told to the reader alone, and those."""
    whole: list[PartitionPlan] = []
    alike: dict[Unchanged, list[str]] = {}
    for one in plan.partitions:
        if one.changes or one != for_the_reader(one) or any(NAME in text for text in _texts(one)):
            whole.append(one)
        else:
            alike.setdefault(_shared_by(one), []).append(one.folder)
    groups = tuple(replace(shared, partitions=tuple(names)) for shared, names in alike.items())
    return replace(plan, partitions=tuple(whole)), groups


def _texts(one: PartitionPlan | Unchanged) -> tuple[str, ...]:
    return one.why, one.next_command, *one.notes


def _shared_by(one: PartitionPlan) -> Unchanged:
    fields = {name: getattr(one, name) for name in _SHARED}
    fields["why"], fields["next_command"], *notes = (text.replace(one.folder, NAME) for text in _texts(one))
    fields["notes"] = tuple(notes)
    if one.folder != f"{one.topic}-{one.partition}":
        fields |= {"topic": one.topic, "partition": one.partition}
    return Unchanged(**fields)


def joined(document: PlanDocument) -> Plan:
    """The plan of a document, with all its partitions by topic and number."""
    fields = {name: getattr(document, name) for name in Plan.__struct_fields__}
    if not isinstance(document.unchanged, UnsetType):
        all_of_them = [*document.partitions, *_partitions_of(document.unchanged)]
        all_of_them.sort(key=lambda one: (one.topic, one.partition, one.folder))
        fields["partitions"] = tuple(all_of_them)
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
