"""Which versions of Kafka can read the log directories of a node, and what a version cannot read (KR805).

What a directory needs is known from files that are read anyway: the metadata log and its snapshot,
``bootstrap.checkpoint``, ``quorum-state`` and ``meta.properties``. What a version reads stands in one table,
``krepair.formats.kafka_versions``.
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
    NotRead,
    Used,
    not_read,
    range_text,
    release_of,
)
from krepair.logdir.values import LogDir
from krepair.start.metadata_log import SeenMetadata
from krepair.start.topic_settings import TopicConfigs, recorded_configs, takes_settings

PREVIEW_SINCE: Final = (3, 0, 0)
_NAMED_AT_MOST: Final = 3


class Readable(NamedTuple):
    """What the directories of one node need of a version, and which releases have it.

    Attributes:
        used: by path of the log directory.
        of_kraft: whether a node of KRaft wrote them.
        differing: what differs between the ``meta.properties`` of two of them, or empty.
        configs: settings of the topics of the cluster, as the metadata log has them.
        releases: those of the table that can read all of them, ascending.
    """

    used: dict[str, tuple[Used, ...]]
    of_kraft: bool
    differing: str
    configs: TopicConfigs
    releases: tuple[VersionNumber, ...]

    @property
    def range(self) -> str:
        """Return the oldest and the newest release, in words."""
        return range_text(self.releases)


def readable_of(views: Sequence[LogDir], seen: SeenMetadata | None) -> Readable:
    """Return what the log directories of a node need, and which releases have it.

    Args:
        views: all directories of the node that were given.
        seen: its metadata log, None if none of them holds one.
    """
    used = {view.path: tuple(_used_in(view, seen)) for view in views}
    of_kraft = seen is not None or any(view.meta_version == 1 for view in views)
    configs = recorded_configs(None if seen is None or seen.examined is None else seen.examined.image)
    needed = Readable(used, of_kraft, _differing(views), configs, ())
    releases = [one for one in RELEASES if _reads(one, needed)]
    return needed._replace(releases=tuple(releases))


def _reads(version: VersionNumber, needed: Readable) -> bool:
    if version < KRAFT_SINCE if needed.of_kraft else version >= ZOOKEEPER_UNTIL:
        return False
    every = (one for used in needed.used.values() for one in used)
    reads = not any(not_read(version, every)) and not _why_differing(version, needed)
    return reads and takes_settings(version, needed.configs)


def _used_in(view: LogDir, seen: SeenMetadata | None) -> Iterator[Used]:
    if view.meta_version >= 0:
        yield Used(META_PROPERTIES, view.meta_version, META_PROPERTIES)
    if seen is not None and seen.place == view.path:
        yield from seen.used
        if seen.examined is not None:
            yield from seen.examined.image.used.values()


def _differing(views: Sequence[LogDir]) -> str:
    """Return what two directories do not have in common, of all that a broker of 3.0 to 3.6 compares."""
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
    """Yield what a version cannot read of a directory (KR805).

    Args:
        view: the log directory.
        needed: of its node.
        version: that is to start; None if it was not typed: then only what no release reads is a finding.
        kraft: whether the node is known to run without ZooKeeper.
    """
    if version is None:
        if not needed.releases:
            yield from _not_read_by_any(view, needed)
        return
    can = _who_can(needed)
    if needed.of_kraft and PREVIEW_SINCE <= version < KRAFT_SINCE:
        text = f"KRaft of {release_of(version)} was a preview (KIP-833), and is not foretold; {can}"
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


def _finding(name: str, causes: Sequence[NotRead], can: str, *, unknown: bool = False) -> Finding:
    worst = sorted(causes, key=lambda one: (_order(one.used), one.used.what))[:_NAMED_AT_MOST]
    more = f" and {len(causes) - len(worst)} more" if len(causes) > len(worst) else ""
    said = "; ".join(map(_text, worst))
    does = "is not known to start" if unknown else "does not start"
    return Finding(
        rule="KR805",
        file=worst[0].used.where.partition(":")[0],
        evidence=f"broker {name} {does}: {said}{more}; {can}",
        start=StartEffect.UNKNOWN if unknown else None,
    )


def _order(used: Used) -> int:
    """Return the place of a cause: what one command may change comes first."""
    return 0 if used.what == METADATA_VERSION else 1 if not used.what.startswith("record ") else 2


def _text(one: NotRead) -> str:
    used = one.used
    since = _release_with(used)
    what = f"{used.what} at level {used.level}"
    if used.what.startswith("record "):
        what = f"records of type {used.what.removeprefix('record ')} in version {used.level}"
    elif used.what == BOOTSTRAP_LEVEL:
        what = f"{METADATA_VERSION} at level {used.level}"
    elif used.what == META_PROPERTIES:
        what = f"version={used.level}"
    of = f" (of {since})" if since else " (of a version that krepair does not know)"
    source = f" ({one.line.source})" if one.line is not None else ""
    return f"{used.where} has {what}{of}, and {one.text}{source}"


def _release_with(used: Used) -> str:
    """Return the first release that reads it; empty if none does."""
    known = (line.since for line in LINES if line.what == used.what and line.least <= used.level <= line.most)
    first = min(known, default=None)
    return "" if first is None else release_of(first)


def _who_can(needed: Readable) -> str:
    if needed.releases:
        return f"of the versions that krepair knows, {needed.range} can read it"
    return "no version that krepair knows can read it"
