"""Versions of Kafka that can read the log directories of a node, and formats that a version cannot read (KR805).

The formats in use are known from files that are read anyway: the metadata log and its snapshot,
``bootstrap.checkpoint``, ``quorum-state`` and ``meta.properties``. The table in ``krepair.formats.kafka_versions``
lists the formats that each version reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, Severity, StartEffect
from krepair.formats.broker_version import VersionNumber
from krepair.formats.filenames import META_PROPERTIES
from krepair.formats.kafka_versions import (
    ASKS_FOR_KRAFT_PROPERTIES,
    BOOTSTRAP_LEVEL,
    COMPARES_META_PROPERTIES,
    KRAFT_SINCE,
    LINES,
    METADATA_VERSION,
    RELEASES,
    ZOOKEEPER_UNTIL,
    UnreadFormat,
    UsedFormat,
    not_read,
    range_text,
    release_of,
)
from krepair.logdir.values import LogDir
from krepair.start.metadata_log import MetadataLog
from krepair.start.topic_settings import TopicConfigs, recorded_configs, takes_settings

PREVIEW_SINCE: Final = (3, 0, 0)
_NAMED_AT_MOST: Final = 3


class Readable(NamedTuple):
    """Formats in use by the directories of one node, and the releases that can read them.

    Attributes:
        used: path of the log directory -> formats in use.
        of_kraft: True if a KRaft node wrote the directories.
        differing: difference between the ``meta.properties`` of two directories, or empty.
        configs: topic settings in the metadata log.
        releases: releases in the table that can read all directories, ascending.
    """

    used: dict[str, tuple[UsedFormat, ...]]
    of_kraft: bool
    differing: str
    configs: TopicConfigs
    releases: tuple[VersionNumber, ...]

    @property
    def range(self) -> str:
        """Oldest and newest of the releases, in words."""
        return range_text(self.releases)


def readable_of(views: Sequence[LogDir], metadata_log: MetadataLog | None) -> Readable:
    """Return the formats in use by the log directories of a node, and the releases that can read them.

    Args:
        views: all directories of the node that were given.
        metadata_log: the node's metadata log, None if no given directory has one.
    """
    used = {view.path: tuple(_used_in(view, metadata_log)) for view in views}
    of_kraft = metadata_log is not None or any(view.meta_version == 1 for view in views)
    configs = recorded_configs(
        None if metadata_log is None or metadata_log.examined is None else metadata_log.examined.image
    )
    needed = Readable(used, of_kraft, _differing(views), configs, ())
    releases = [release for release in RELEASES if _reads(release, needed)]
    return needed._replace(releases=tuple(releases))


def _reads(version: VersionNumber, needed: Readable) -> bool:
    if version < KRAFT_SINCE if needed.of_kraft else version >= ZOOKEEPER_UNTIL:
        return False
    every = (used_by_all for used in needed.used.values() for used_by_all in used)
    reads = not any(not_read(version, every)) and not _why_differing(version, needed)
    return reads and takes_settings(version, needed.configs)


def _used_in(view: LogDir, metadata_log: MetadataLog | None) -> Iterator[UsedFormat]:
    if view.meta_version >= 0:
        yield UsedFormat(META_PROPERTIES, view.meta_version, META_PROPERTIES)
    if metadata_log is not None and metadata_log.place == view.path:
        yield from metadata_log.used
        if metadata_log.examined is not None:
            yield from metadata_log.examined.image.used.values()


def _differing(views: Sequence[LogDir]) -> str:
    """Return the first difference between two ``meta.properties`` that a broker of 3.0 to 3.6 refuses, or empty."""
    known = [view for view in views if view.meta_properties is not None and not view.meta_damage]
    for other in known[1:]:
        first = known[0]
        for word, here, there in (
            ("directory.id", first.directory_id, other.directory_id),
            ("version", str(first.meta_version), str(other.meta_version)),
        ):
            if here != there:
                shown = f"{word}={here or 'nothing'} in {first.path}, {there or 'nothing'} in {other.path}"
                return f"{META_PROPERTIES} says {shown}"
    return ""


def _why_differing(version: VersionNumber, needed: Readable) -> str:
    since, under_kraft, under_zookeeper = COMPARES_META_PROPERTIES
    until = under_kraft if needed.of_kraft else under_zookeeper
    return needed.differing if since <= version < until else ""


def readable_findings(
    view: LogDir, needed: Readable, version: VersionNumber | None, *, kraft: bool = False
) -> Iterator[Finding]:
    """Yield the formats of a directory that a version cannot read (KR805).

    Args:
        needed: formats in use by the directories of the node.
        version: version that starts; None if none was typed: then only formats that no release reads are findings.
        kraft: True if the node is known to run without ZooKeeper.
    """
    if version is None:
        if not needed.releases:
            yield from _not_read_by_any(view, needed)
        return
    can = _who_can(needed)
    if needed.of_kraft and PREVIEW_SINCE <= version < KRAFT_SINCE:
        text = (
            f"KRaft of {release_of(version)} was a preview (KIP-833), and its start is not predicted; {can}"
        )
        yield Finding(rule="KR805", evidence=text, start=StartEffect.UNKNOWN, severity=Severity.CONFUSING)
        return
    causes = list(not_read(version, needed.used[view.path]))
    name = ".".join(map(str, version))
    asks_since, asks_until = ASKS_FOR_KRAFT_PROPERTIES
    if causes:
        yield _finding(name, causes, can)
    elif version >= ZOOKEEPER_UNTIL and view.meta_version == 0 and not view.cluster_id:
        text = f"broker {name} does not start: {META_PROPERTIES} has no cluster.id, as one of 2.2 or older; {can}"
        yield Finding(rule="KR805", file=META_PROPERTIES, evidence=text)
    elif kraft and view.meta_version == 0 and asks_since <= version < asks_until:
        text = f"broker {name} does not start: {META_PROPERTIES} is of ZooKeeper (version=0), and it reads 1; {can}"
        yield Finding(rule="KR805", file=META_PROPERTIES, evidence=text)
    elif why := _why_differing(version, needed):
        text = f"broker {name} does not start: {why}, and this version wants them alike; {can}"
        yield Finding(rule="KR805", file=META_PROPERTIES, evidence=text)


def _not_read_by_any(view: LogDir, needed: Readable) -> Iterator[Finding]:
    newest = RELEASES[-1]
    causes = list(not_read(newest, needed.used[view.path]))
    if causes:
        yield _finding(release_of(newest), causes, _who_can(needed), unknown=True)


def _finding(
    name: str, causes: Sequence[UnreadFormat], readable_by: str, *, unknown: bool = False
) -> Finding:
    first = sorted(causes, key=lambda cause: (_order(cause.used), cause.used.what))[:_NAMED_AT_MOST]
    more = f" and {len(causes) - len(first)} more" if len(causes) > len(first) else ""
    texts = "; ".join(map(_text, first))
    does = "is not known to start" if unknown else "does not start"
    return Finding(
        rule="KR805",
        file=first[0].used.where.partition(":")[0],
        evidence=f"broker {name} {does}: {texts}{more}; {readable_by}",
        start=StartEffect.UNKNOWN if unknown else None,
    )


def _order(used: UsedFormat) -> int:
    """Return the sort key of a cause: a cause that one command can change comes first."""
    return 0 if used.what == METADATA_VERSION else 1 if not used.what.startswith("record ") else 2


def _text(cause: UnreadFormat) -> str:
    used = cause.used
    since = _release_with(used)
    feature = f"{used.what} at level {used.level}"
    if used.what.startswith("record "):
        feature = f"records of type {used.what.removeprefix('record ')} in version {used.level}"
    elif used.what == BOOTSTRAP_LEVEL:
        feature = f"{METADATA_VERSION} at level {used.level}"
    elif used.what == META_PROPERTIES:
        feature = f"version={used.level}"
    of = f" (of {since})" if since else " (of a version that krepair does not know)"
    source = f" ({cause.line.source})" if cause.line is not None else ""
    return f"{used.where} has {feature}{of}, and {cause.text}{source}"


def _release_with(used: UsedFormat) -> str:
    """Return the first release that reads a format; empty if none does."""
    known = (line.since for line in LINES if line.what == used.what and line.least <= used.level <= line.most)
    first = min(known, default=None)
    return "" if first is None else release_of(first)


def _who_can(needed: Readable) -> str:
    if needed.releases:
        return f"of the versions that krepair knows, {needed.range} can read it"
    return "no version that krepair knows can read it"
