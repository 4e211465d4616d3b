"""Folders that a broker marked (``-delete``, ``-future``, ``-stray``) and folders that are none of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from krepair.checks.catalogue import Finding, StartEffect
from krepair.formats.broker_version import Version, VersionNumber
from krepair.formats.words import count_text
from krepair.logdir.replica import FUTURE
from krepair.logdir.values import LogDir, Partition

STRAY_SINCE: Final = (3, 6, 1)
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
        yield Finding(
            rule="KR604",
            file=partition.folder,
            evidence="; ".join(
                [
                    f"{count_text(len(files), 'file')} of {size} bytes",
                    _fate(partition, version),
                    *([strays[partition.folder]] if partition.folder in strays else []),
                ]
            ),
            bytes=size,
            start=StartEffect.ENDS if partition.folder in ending else StartEffect.NONE,
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
    for partition in view.marked:
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


def marked_forecast(view: LogDir, version: Version) -> Iterator[tuple[str, Literal["delete", "start"], str]]:
    """Folder, what becomes of it in a word, and in words; where a broker starts at all."""
    for partition in view.marked:
        yield partition.folder, "delete" if partition.role == "delete" else "start", _fate(partition, version)
