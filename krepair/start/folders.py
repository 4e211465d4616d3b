"""Folders that a start does not load as they are: marked (``-delete``, ``-future``, ``-stray``), odd, or there twice.

A broker takes a folder for stray by its topic id, not by its contents. Its records may be nowhere else (KAFKA-15605).
A folder that holds a name without an offset is loaded by no version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from krepair.checks.catalogue import Finding, StartEffect
from krepair.checks.side_by_side import SideBySide
from krepair.engine.engine import Engine
from krepair.engine.items import Failed
from krepair.fixes.context import place_of
from krepair.formats.broker_version import Version, VersionNumber
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX_KINDS, SUFFIXES, FileKind, NameState, parse_file_name
from krepair.formats.partition_metadata import topic_id_text
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import FUTURE, read_metadata

if TYPE_CHECKING:
    from krepair.engine.items import LogsItem

STRAY_SINCE: Final = (3, 6, 1)
STRAY_WITHOUT_ID_SINCE: Final = (3, 7, 1)
"""KAFKA-16814; 3.7.0 throws instead."""
READS_EVERY_SWAP_SINCE: Final = (3, 0, 0)
EMPTY_DELETE_LOADS_SINCE: Final = (2, 3, 0)


def marked_findings(
    view: LogDir, versions: Sequence[VersionNumber], strays: Mapping[str, str]
) -> Iterator[Finding]:
    """What the root has of folders that are deleted, moved or not wanted (KR604).

    Args:
        view: the log directory.
        versions: those that may start.
        strays: folder -> what a stray folder holds, see ``contents_of_strays``.
    """
    version = versions[0] if len(versions) == 1 else None
    ending = {name for one in versions for name, _ in marked_refusals(view, one)}
    for partition in view.marked:
        files = partition.files()
        size = sum(file.size for file in files)
        aside = any(becomes_stray(view, partition, one) for one in versions)
        yield Finding(
            rule="KR604",
            partition=partition.folder if aside else "",
            file="" if aside else partition.folder,
            evidence="; ".join(
                [
                    f"{count_text(len(files), 'file')} of {size} bytes",
                    _BECOMES_STRAY if aside else _fate(partition, version),
                    *([strays[partition.folder]] if partition.folder in strays else []),
                ]
            ),
            bytes=size,
            start=StartEffect.ENDS
            if partition.folder in ending
            else StartEffect.ASIDE
            if aside
            else StartEffect.NONE,
        )


def _fate(partition: Partition, version: Version) -> str:
    if partition.unreadable:
        return partition.unreadable
    if partition.role == FUTURE:
        return (
            "a replica that is being moved here from another log directory, and the broker goes on with that; if you "
            "do not want it, move the folder out of the log directory while the broker is stopped"
        )
    if partition.role == "stray":
        kept = "a broker since 3.6.1 loads it and never deletes it by itself"
        stops = "one before 3.6.1 does not start"
        return f"{kept}, {stops}" if version is None else kept if version >= STRAY_SINCE else stops
    text = "the broker deletes it after its start (file.delete.delay.ms)"
    if _crashes(partition, version):
        text = "without a .log a broker of 2.2 does not start"
        text += "; later ones delete it" if version is None else ""
    return (
        f"{text}; to remove it earlier, move the folder out of the log directory while the broker is stopped"
    )


def _crashes(partition: Partition, version: Version) -> bool:
    """Whether loading it fails: a -delete folder is not given a first segment by the versions that do not expect it."""
    return not partition.segments and (version is None or version < EMPTY_DELETE_LOADS_SINCE)


def marked_refusals(view: LogDir, version: Version) -> Iterator[tuple[str, str]]:
    """Marked folders that keep a broker from starting, and why."""
    places = {one.key: one.folder for one in view.partitions}
    for partition in view.marked:
        if partition.role == FUTURE and not becomes_stray(view, partition, version):
            taken = places.setdefault(partition.key, partition.folder)
            if taken != partition.folder:
                yield (
                    partition.folder,
                    f"folder {partition.folder} cannot take the place of {taken} beside it",
                )
        if partition.role == "delete" and not partition.unreadable and _crashes(partition, version):
            yield (
                partition.folder,
                f"folder {partition.folder} has no .log, which a broker of 2.2 does not load",
            )
        if partition.role == "stray" and (version is None or version < STRAY_SINCE):
            yield (
                partition.folder,
                f"a broker before 3.6.1 does not know folder {partition.folder} as a partition",
            )


def becomes_stray(view: LogDir, partition: Partition, version: Version) -> bool:
    """Whether KRaft puts a ``-future`` folder aside, since it has no topic id.

    ``LogManager.isStrayKraftReplica`` (3.9.0); seen on 3.9.2 and 4.4.0.
    """
    has_id = partition.partition_metadata is not None or bool(partition.unreadable)
    since = version is None or version >= STRAY_WITHOUT_ID_SINCE
    return view.meta_version == 1 and partition.role == FUTURE and not has_id and since


_BECOMES_STRAY: Final = (
    "a replica that was being moved here, without partition.metadata: a broker of KRaft since 3.7.1 renames it to "
    "-stray, and moves nothing; if you do not need what is in it, move it out of the log directory"
)


def marked_forecast(
    view: LogDir, version: Version
) -> Iterator[tuple[str, Literal["delete", "start", "stray", "unknown"], str]]:
    """Folder, what becomes of it in a word, and in words; where a broker starts at all."""
    for partition in view.marked:
        if partition.unreadable:
            yield partition.folder, "unknown", partition.unreadable
            continue
        if becomes_stray(view, partition, version):
            yield partition.folder, "stray", _BECOMES_STRAY
            continue
        yield partition.folder, "delete" if partition.role == "delete" else "start", _fate(partition, version)


_REFUSED = "a broker with both log directories does not start: move one of the two folders out"


def duplicate_findings(view: LogDir, others: Sequence[LogDir], engine: Engine) -> Iterator[Finding]:
    """Partitions of a log directory that another one has too, both read and held against each other.

    Args:
        view: the log directory.
        others: the other ones that were given.
        engine: where both logs are read.
    """
    twins: list[_Twins] = []
    for other in others:
        if other.path != view.path:
            there = {partition.key: partition for partition in other.partitions}
            twins += [(view, here, other, there[here.key]) for here in view.partitions if here.key in there]
    for (_, here, _, _), evidence in zip(twins, _told(twins, engine), strict=True):
        yield Finding(rule="KR603", partition=here.folder, evidence=f"{evidence}; {_REFUSED}")


_Twins = tuple[LogDir, Partition, LogDir, Partition]


def _told(twins: Sequence[_Twins], engine: Engine) -> list[str]:
    if not twins:
        return []
    from krepair.start.same_batches import TwoLogsItem, compare_two_logs

    told: dict[int, str] = {}
    to_read = []
    for number, (_, here, _, there) in enumerate(twins):
        bad = here.unreadable or there.unreadable or _log_not_read(here) or _log_not_read(there)
        if bad:
            told[number] = f"also {there.path}, which cannot be held against it: {bad}"
        else:
            to_read.append(number)
    items = [
        TwoLogsItem(first=log_of(twins[number][0], twins[number][1]), second=log_of(*twins[number][2:]))
        for number in to_read
    ]
    for index, result in engine.map(compare_two_logs, items):
        there = twins[to_read[index]][3]
        if isinstance(result, Failed):
            told[to_read[index]] = f"also {there.path}, but the two cannot be compared: {result.why}"
        else:
            ends = f"also {there.path}: the log here ends at {result.first_end}, there at {result.second_end}"
            told[to_read[index]] = f"{ends}; {_damaged(result)}{said_of_both(result)}"
    return [told[number] for number in range(len(twins))]


def log_of(view: LogDir, partition: Partition) -> LogsItem:
    """The whole log of a partition, as a task takes it."""
    from krepair.engine.items import LogsItem

    return LogsItem(place=place_of(view, partition), segments=partition.log_sizes)


def _damaged(seen: SideBySide) -> str:
    """Which log was compared up to a damage only, or empty."""
    where = [word for word, bad in (("here", seen.first_damaged), ("there", seen.second_damaged)) if bad]
    return "".join(f"the one {word} is damaged there, and what lies behind was not read; " for word in where)


def said_of_both(seen: SideBySide) -> str:
    """Which log is the beginning of which, in words; "here" is the first."""
    if seen.differ:
        every = count_text(seen.same + seen.differ, "batch", "batches")
        return (
            f"they are not the same log: the batch that ends at {seen.first_difference} differs "
            f"({seen.differ} of {every}); compare with the other replicas to see which one "
            "is right"
        )
    if not seen.first_end or not seen.second_end:
        return f"the one {'here' if not seen.first_end else 'there'} holds no valid batch"
    lacks = _lacks(seen)
    if not seen.after_second and not seen.after_first:
        return (
            f"they end alike{lacks}"
            if lacks
            else f"both hold the same {count_text(seen.same, 'batch', 'batches')}"
        )
    longer, shorter = ("here", "there") if seen.after_second else ("there", "here")
    going = count_text(seen.after_second or seen.after_first, "batch", "batches")
    if lacks:
        return f"the one {longer} goes on for {going}{lacks}"
    return f"the one {shorter} is the beginning of the one {longer}, which goes on for {going}"


def _lacks(seen: SideBySide) -> str:
    """Batches that one lacks below the other's end: it was compacted, cut at its start, or damaged."""
    parts = [
        f"{count} of their common offsets are only {where}"
        for count, where in ((seen.only_first, "here"), (seen.only_second, "there"))
        if count
    ]
    text = ", ".join(parts)
    return f"; batches: {text} (compaction, or a log start that moved)" if text else ""


_ONLY_HERE: Final = "its records are only here, so keep the folder"


def contents_of_strays(view: LogDir, engine: Engine) -> dict[str, str]:
    """Folder -> offsets, topic id, what the folder of its partition holds, and whether it may go."""
    normal = {one.key: one for one in view.partitions}
    strays = [one for one in view.marked if one.role == "stray" and not one.unreadable]
    told = {
        one.folder: f"{_holds(one)}; no {one.topic}-{one.number} beside it can be read: keep the folder"
        for one in strays
    }
    pairs = [(one, normal[one.key]) for one in strays if one.key in normal and not normal[one.key].unreadable]
    if not pairs:
        return told
    from krepair.start.same_batches import TwoLogsItem, compare_two_logs

    items = [TwoLogsItem(first=log_of(view, stray), second=log_of(view, place)) for stray, place in pairs]
    for index, result in engine.map(compare_two_logs, items):
        stray, place = pairs[index]
        both = f"{_holds(stray)}; {place.folder} beside it: {_holds(place)}"
        unread = _log_not_read(stray)
        if unread:
            told[stray.folder] = f"{both}; {unread}: keep the folder"
        elif isinstance(result, Failed):
            told[stray.folder] = f"{both}; the two cannot be compared ({result.why}): keep the folder"
        else:
            told[stray.folder] = f"{both}; {_verdict(result, place)}"
    return told


def _log_not_read(partition: Partition) -> str:
    """Why not all records of a folder were read: a ``.log.swap`` or the like may hold the only copy of some."""
    for one in partition.leftovers:
        if parse_file_name(one.file.name).kind is FileKind.LOG:
            return f"{one.file.name} in {partition.folder} was not read"
    return ""


def _verdict(seen: SideBySide, place: Partition) -> str:
    if seen.first_damaged:
        return f"its log is damaged at offset {seen.first_end}, and what lies behind was not read: keep the folder"
    if not seen.first_end:
        return "it holds no batch; if you do not need it, move the folder out of the log directory"
    if seen.second_end < seen.first_end or seen.only_first or seen.differ:
        return f"it ends at offset {seen.first_end}, {place.folder} at {seen.second_end}: {_ONLY_HERE}"
    return f"{place.folder} holds all of it ({said_of_both(seen)}); it may be moved out of the log directory"


def _holds(partition: Partition) -> str:
    """First offset, bytes and topic id, as the listing and ``partition.metadata`` tell."""
    segments: Sequence[tuple[int, int]] = partition.log_sizes
    first = (
        f"from offset {segments[0][0]}, {sum(size for _, size in segments)} bytes of logs"
        if segments
        else "no log"
    )
    return f"{first}, {_topic_id(partition)}"


def _topic_id(partition: Partition) -> str:
    found = read_metadata(partition)
    if found is None:
        return "no topic id"
    return "topic id damaged" if isinstance(found, Damage) else f"topic id {topic_id_text(found.topic_id)}"


def names_without_an_offset(partition: Partition, version: Version) -> Iterator[str]:
    """File names on which ``offsetFromFile`` throws while a folder is loaded (seen on 2.2.1, 3.9.2, 4.3.1, 4.4.0)."""
    every_swap = version is None or version >= READS_EVERY_SWAP_SINCE
    throws: dict[NameState, Collection[FileKind]] = {
        NameState.LIVE: SUFFIXES,
        NameState.CLEANED: tuple(FileKind),
        NameState.SWAP: tuple(FileKind) if every_swap else (FileKind.LOG, *INDEX_KINDS),
        NameState.DELETED: (),
    }
    for leftover in partition.leftovers:
        name = parse_file_name(leftover.file.name)
        if name.base_offset is None and name.kind in throws[name.state]:
            yield leftover.file.name
