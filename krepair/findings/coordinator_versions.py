"""Groups and transactional ids that a version of Kafka cannot load (KR807).

A coordinator loads every record of its partition. At a value of a later version the load of the whole partition ends;
before 3.4.1 also at a key that it does not know (``GroupMetadataManager.doLoadGroupsAndOffsets`` 2.2.1, 3.4.1;
``TransactionStateManager`` 2.2.1; ``CoordinatorLoaderImpl`` 3.9.0, 4.4.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from krepair.checks.catalogue import Finding
from krepair.engine.engine import Engine
from krepair.engine.items import Failed, LogsItem
from krepair.fixes.context import log_of, place_of
from krepair.formats.broker_version import VersionNumber
from krepair.formats.damage import shown
from krepair.formats.filenames import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from krepair.formats.kafka_versions import IGNORES_UNKNOWN_KEYS_SINCE, UsedFormat, lines_of, not_read
from krepair.formats.words import names_text
from krepair.logdir.values import LogDir, Partition

if TYPE_CHECKING:
    from krepair.look.coordinators.record_versions import RecordVersion

TYPES: Final = {
    OFFSETS_TOPIC: {0: "offset_commit", 1: "offset_commit", 2: "group_metadata"},
    TRANSACTIONS_TOPIC: {0: "transaction_state"},
}
"""Topic -> version of the key -> the value's name in the table of versions."""
VersionsInUse = Sequence[tuple[Partition, Sequence["RecordVersion"]]]
Cause = tuple[int, str]


def versions_in_use(view: LogDir, engine: Engine, *, whole: bool) -> VersionsInUse:
    """Read the versions of the records of each coordinator's partition, in the order of the partitions.

    Args:
        whole: True to read each partition whole. Else its newest segment with batches tells: a second reading of all
            coordinators' logs would make ``check`` twice as slow, and a broker writes its own versions at the log end.
    """
    partitions = [
        partition
        for partition in view.partitions
        if partition.topic in TYPES and partition.segments and not partition.unreadable
    ]
    if not partitions:
        return ()
    from krepair.look.coordinators.record_versions import read_record_versions

    items = [
        LogsItem(
            place=place_of(view, partition),
            segments=partition.log_sizes
            if whole
            else tuple(sized for sized in partition.log_sizes if sized[1])[-1:],
        )
        for partition in partitions
    ]
    # the scan of all logs has reported what cannot be read already
    return tuple(
        (partitions[index], result.found)
        for index, result in engine.map(read_record_versions, items)
        if not isinstance(result, Failed)
    )


def causes_in(
    partition: Partition, versions_used: Iterable[RecordVersion], version: VersionNumber
) -> list[Cause]:
    """Return each reason why a version does not load a partition, with the offset at which its load ends."""
    return [
        (record.first_offset, text)
        for record in versions_used
        if (text := _why_not(partition.topic, record.key, record.value, version))
    ]


def coordinator_findings(
    view: LogDir, in_use: VersionsInUse, version: VersionNumber | None, engine: Engine
) -> Iterator[Finding]:
    """Yield KR807 for each partition that the typed version cannot load.

    Args:
        in_use: versions of the records of the coordinators' partitions.
        version: Kafka version that is to be started, None if none was typed.
        engine: engine that reads the partitions.
    """
    for partition, versions_used in in_use if version is not None else ():
        if version is not None and (causes := causes_in(partition, versions_used, version)):
            yield _finding(view, partition, version, min(causes), engine)


def _why_not(topic: str, key: int, value: int, version: VersionNumber) -> str:
    """Return why a version does not load a record; empty if it does."""
    name = TYPES[topic].get(key)
    if name is None:
        return "" if version >= IGNORES_UNKNOWN_KEYS_SINCE else f"its key has version {key}"
    if value < 0 or not any(not_read(version, [UsedFormat(name, value, topic)])):
        return ""
    line = lines_of(version).get(name)
    reads = "" if line is None else f"; it reads up to {line.most} ({line.source})"
    return f"its value of {name} has version {value}{reads}"


def _finding(
    view: LogDir, partition: Partition, version: VersionNumber, cause: Cause, engine: Engine
) -> Finding:
    offset, text = cause
    name = ".".join(map(str, version))
    return Finding(
        rule="KR807",
        partition=partition.folder,
        evidence=f"the coordinator of a broker {name} does not load this partition: the load ends at offset {offset}, "
        f"{text}; {_lost(view, partition, engine)}",
        first_offset=offset,
    )


def _lost(view: LogDir, partition: Partition, engine: Engine) -> str:
    """Return text naming the groups or transactional ids that the coordinator will not know."""
    names = _names(view, partition, engine)
    noun = "groups" if partition.topic == OFFSETS_TOPIC else "transactional ids"
    if not names:
        return f"{noun} of it are not known to it"
    return f"not known to it are the {noun} {names_text([shown(name) for name in names])}"


def _names(view: LogDir, partition: Partition, engine: Engine) -> Sequence[str]:
    if partition.topic == OFFSETS_TOPIC:
        from krepair.look.coordinators.groups import read_groups

        return sorted(
            group.group
            for _, groups_read in engine.map(read_groups, [log_of(view, partition)])
            if not isinstance(groups_read, Failed)
            for group in groups_read.groups
        )
    from krepair.look.coordinators.transactions import read_transactions

    return sorted(
        owner.transactional_id
        for _, read in engine.map(read_transactions, [log_of(view, partition)])
        if not isinstance(read, Failed)
        for owner in read.states
    )
