"""Folders that a start does not simply load: ``-delete``, ``-future``, ``-stray``, misnamed, or duplicated folders.

A broker calls a folder stray because of its topic id, not its contents: the records may exist nowhere else
(KAFKA-15605). No version loads a folder that holds a file of a broker's suffix without an offset in its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from krepair.checks.catalogue import Finding, StartEffect
from krepair.checks.side_by_side import SideBySide
from krepair.engine.engine import Engine
from krepair.engine.items import Failed
from krepair.fixes.context import log_of
from krepair.fixes.epochs import read_epochs_file
from krepair.formats.broker_version import Version, VersionNumber
from krepair.formats.damage import Damage
from krepair.formats.filenames import INDEX_KINDS, SUFFIXES, FileKind, NameState, parse_file_name
from krepair.formats.partition_metadata import topic_id_text
from krepair.formats.words import count_text
from krepair.logdir.values import LogDir, Partition
from krepair.logdir.view import FUTURE, read_metadata

STRAY_SINCE: Final = (3, 6, 1)
STRAY_WITHOUT_ID_SINCE: Final = (3, 7, 1)
"""Fix version of KAFKA-16814; 3.7.0 throws instead."""
READS_EVERY_SWAP_SINCE: Final = (3, 0, 0)
EMPTY_DELETE_LOADS_SINCE: Final = (2, 3, 0)


def marked_findings(
    view: LogDir, versions: Sequence[VersionNumber], strays: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield the ``-delete``, ``-future`` and ``-stray`` folders of the root (KR604).

    Args:
        versions: versions that may start.
        strays: folder -> description of a stray folder's contents, see ``contents_of_strays``.
    """
    version = versions[0] if len(versions) == 1 else None
    ending = {name for version in versions for name, _ in marked_refusals(view, version)}
    for partition in view.marked:
        files = partition.files()
        size = sum(file.size for file in files)
        is_stray = any(becomes_stray(view, partition, version) for version in versions)
        yield Finding(
            rule="KR604",
            partition=partition.folder if is_stray else "",
            file="" if is_stray else partition.folder,
            evidence="; ".join(
                [
                    f"{count_text(len(files), 'file')} of {size} bytes",
                    _BECOMES_STRAY if is_stray else _fate(partition, version),
                    *([strays[partition.folder]] if partition.folder in strays else []),
                ]
            ),
            bytes=size,
            start=StartEffect.ENDS
            if partition.folder in ending
            else StartEffect.ASIDE
            if is_stray
            else StartEffect.NONE,
        )


def _fate(partition: Partition, version: Version) -> str:
    if partition.unreadable:
        return partition.unreadable
    if partition.role == FUTURE:
        return (
            "a replica that is being moved here from another log directory, and the broker resumes the move; if you "
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
    """Return True if loading an empty -delete folder fails: before 2.3 a broker creates no first segment in it."""
    return not partition.segments and (version is None or version < EMPTY_DELETE_LOADS_SINCE)


def marked_refusals(view: LogDir, version: Version) -> Iterator[tuple[str, str]]:
    """Yield each marked folder that keeps a broker from starting, with the reason."""
    places = {partition.key: partition.folder for partition in view.partitions}
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
    """Return True if a KRaft broker puts a ``-future`` folder aside because it has no topic id.

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
    """Yield each marked folder with the effect of a successful start, as a keyword and as text."""
    for partition in view.marked:
        unread = partition.unreadable or read_epochs_file(partition).wrong
        if unread:
            yield partition.folder, "unknown", unread
        elif becomes_stray(view, partition, version):
            yield partition.folder, "stray", _BECOMES_STRAY
        elif partition.role == "delete":
            yield partition.folder, "delete", _fate(partition, version)
        else:
            text = "" if view.clean_shutdown else "its log is recovered, which is not foretold; "
            yield partition.folder, "unknown" if text else "start", text + _fate(partition, version)


_REFUSED = "a broker with both log directories does not start: move one of the two folders out"


def duplicate_findings(view: LogDir, others: Sequence[LogDir], engine: Engine) -> Iterator[Finding]:
    """Yield partitions that another log directory holds too, with a comparison of both logs (KR603).

    Args:
        others: the other log directories that were given.
        engine: engine that reads both logs.
    """
    pairs: list[_FolderPair] = []
    for other in others:
        if other.path != view.path:
            by_key = {partition.key: partition for partition in other.partitions}
            pairs += [(view, here, other, by_key[here.key]) for here in view.partitions if here.key in by_key]
    for (_, here, _, _), evidence in zip(pairs, _compare_pairs(pairs, engine), strict=True):
        # no command: only the user can know which of the two logs is the wanted one
        yield Finding(rule="KR603", partition=here.folder, evidence=f"{evidence}; {_REFUSED}")


_FolderPair = tuple[LogDir, Partition, LogDir, Partition]


def _compare_pairs(pairs: Sequence[_FolderPair], engine: Engine) -> list[str]:
    """Return the comparison of each pair of logs, in words."""
    if not pairs:
        return []
    from krepair.start.same_batches import compare_two_logs

    texts: dict[int, str] = {}
    to_read = []
    for number, (_, here, _, other) in enumerate(pairs):
        bad = here.unreadable or other.unreadable or _log_not_read(here) or _log_not_read(other)
        if bad:
            texts[number] = f"also {other.path}, which cannot be compared with it: {bad}"
        else:
            to_read.append(number)
    items = [(log_of(*pairs[number][:2]), log_of(*pairs[number][2:])) for number in to_read]
    for index, result in engine.map(compare_two_logs, items):
        other = pairs[to_read[index]][3]
        if isinstance(result, Failed):
            texts[to_read[index]] = f"also {other.path}, but the two cannot be compared: {result.why}"
        else:
            ends = f"also {other.path}: the log here ends at {result.first_end}, there at {result.second_end}"
            texts[to_read[index]] = f"{ends}; {_damaged(result)}{comparison_text(result)}"
    return [texts[number] for number in range(len(pairs))]


def _damaged(comparison: SideBySide) -> str:
    """Return a clause that names each log that was only compared up to its damage, or an empty text."""
    where = [
        word
        for word, bad in (("here", comparison.first_damaged), ("there", comparison.second_damaged))
        if bad
    ]
    return "".join(f"the one {word} is damaged there, and what lies behind was not read; " for word in where)


def comparison_text(comparison: SideBySide) -> str:
    """Return in words how the two logs relate, such as which is a prefix of the other; "here" is the first."""
    if comparison.differ:
        every = count_text(comparison.same + comparison.differ, "batch", "batches")
        return (
            f"they are not the same log: the batch that ends at {comparison.first_difference} differs "
            f"({comparison.differ} of {every}); compare with the other replicas to see which one "
            "is right"
        )
    if not comparison.first_end or not comparison.second_end:
        return f"the one {'here' if not comparison.first_end else 'there'} holds no valid batch"
    lacks = _lacks_text(comparison)
    if not comparison.after_second and not comparison.after_first:
        return (
            f"they end alike{lacks}"
            if lacks
            else f"both hold the same {count_text(comparison.same, 'batch', 'batches')}"
        )
    longer, shorter = ("here", "there") if comparison.after_second else ("there", "here")
    more_batches = count_text(comparison.after_second or comparison.after_first, "batch", "batches")
    if lacks:
        return f"the one {longer} continues for {more_batches}{lacks}"
    return f"the one {shorter} is the beginning of the one {longer}, which continues for {more_batches}"


def _lacks_text(comparison: SideBySide) -> str:
    """Return a clause about batches that only one log has below both ends: the other was compacted or cut."""
    parts = [
        f"{count} of their common offsets are only {where}"
        for count, where in ((comparison.only_first, "here"), (comparison.only_second, "there"))
        if count
    ]
    text = ", ".join(parts)
    return f"; batches: {text} (compaction, or a log start that moved)" if text else ""


_ONLY_HERE: Final = "its records are only here, so keep the folder"


def contents_of_strays(view: LogDir, engine: Engine) -> dict[str, str]:
    """Return, by stray folder, a description of its contents and whether the folder may be removed."""
    normal = {partition.key: partition for partition in view.partitions}
    strays = [folder for folder in view.marked if folder.role == "stray" and not folder.unreadable]
    texts = {
        stray.folder: f"{_holds_text(stray)}; no {stray.topic}-{stray.number} beside it can be read: keep the folder"
        for stray in strays
    }
    pairs = [
        (stray, normal[stray.key])
        for stray in strays
        if stray.key in normal and not normal[stray.key].unreadable
    ]
    if not pairs:
        return texts
    from krepair.start.same_batches import compare_two_logs

    items = [(log_of(view, stray), log_of(view, partition)) for stray, partition in pairs]
    for index, result in engine.map(compare_two_logs, items):
        stray, partition = pairs[index]
        both = f"{_holds_text(stray)}; {partition.folder} beside it: {_holds_text(partition)}"
        unread = _log_not_read(stray)
        if unread:
            texts[stray.folder] = f"{both}; {unread}: keep the folder"
        elif isinstance(result, Failed):
            texts[stray.folder] = f"{both}; the two cannot be compared ({result.why}): keep the folder"
        else:
            texts[stray.folder] = f"{both}; {_verdict(result, partition)}"
    return texts


def _log_not_read(partition: Partition) -> str:
    """Return why some records of a folder were not read, or empty: a ``.log.swap`` may hold the only copy of them."""
    for leftover in partition.leftovers:
        if parse_file_name(leftover.file.name).kind is FileKind.LOG:
            return f"{leftover.file.name} in {partition.folder} was not read"
    return ""


def _verdict(comparison: SideBySide, normal: Partition) -> str:
    if comparison.first_damaged:
        end = comparison.first_end
        return f"its log is damaged at offset {end}, and what lies behind was not read: keep the folder"
    if not comparison.first_end:
        return "it holds no batch; if you do not need it, move the folder out of the log directory"
    if comparison.second_end < comparison.first_end or comparison.only_first or comparison.differ:
        return f"it ends at offset {comparison.first_end}, {normal.folder} at {comparison.second_end}: {_ONLY_HERE}"
    return f"{normal.folder} holds all of it ({comparison_text(comparison)}); it may be moved out of the log directory"


def _holds_text(partition: Partition) -> str:
    """Return first offset, log bytes and topic id of a folder in words, from its listing and ``partition.metadata``."""
    segments: Sequence[tuple[int, int]] = partition.log_sizes
    first = (
        f"from offset {segments[0][0]}, {sum(size for _, size in segments)} bytes of logs"
        if segments
        else "no log"
    )
    return f"{first}, {_topic_id(partition)}"


def _topic_id(partition: Partition) -> str:
    metadata = read_metadata(partition)
    if metadata is None:
        return "no topic id"
    return (
        "topic id damaged" if isinstance(metadata, Damage) else f"topic id {topic_id_text(metadata.topic_id)}"
    )


def names_without_an_offset(partition: Partition, version: Version) -> Iterator[str]:
    """Yield file names on which ``offsetFromFile`` throws during loading (seen on 2.2.1, 3.9.2, 4.3.1, 4.4.0)."""
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
