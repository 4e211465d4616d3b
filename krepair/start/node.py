"""Which node is to start: roles, voters and the place of its metadata log, by its configuration or as files tell."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from krepair.fixes.context import told_version
from krepair.formats.broker_version import LATEST_TRIED, VersionNumber, version_of
from krepair.formats.filenames import METADATA_TOPIC
from krepair.logdir.config_files import read_server_properties
from krepair.logdir.log_dirs import configured_id, configured_log_dirs
from krepair.logdir.values import LogDir, Partition
from krepair.options import Options

KRAFT_SINCE: Final = (3, 0, 0)
KRAFT_ONLY_SINCE: Final = (4, 0, 0)
PROVEN_VERSIONS: Final[tuple[VersionNumber, ...]] = ((2, 2, 1), (3, 9, 2), LATEST_TRIED)
"""The brokers whose starts were watched; without ``--broker-version`` the start is foretold for each."""

_VOTER: Final = re.compile(r"(\d+)@.*")


class StartingNode(NamedTuple):
    """The node whose log directories were given.

    Attributes:
        versions: those that may start; one if it was typed.
        kraft: whether it runs without ZooKeeper; None if nothing tells, as of files of ZooKeeper under a broker of 4.x.
        controller: whether it is a controller; None if nothing tells.
        alone: whether its configuration names static voters, and only this node.
        configured_id: its id by the configuration; empty if that does not tell.
        node_id: the same, else by ``meta.properties``; empty if neither tells.
        metadata_dir: path of the given directory in which its metadata log belongs; empty if it is not among them, or
            the configuration was not given.
    """

    versions: tuple[VersionNumber, ...]
    kraft: bool | None
    controller: bool | None
    alone: bool
    configured_id: str
    node_id: str
    metadata_dir: str


def node_of(views: Sequence[LogDir], options: Options) -> StartingNode:
    """What is known of the node.

    Args:
        views: the log directories that were given.
        options: with the configuration and the version, where they were typed.

    Raises:
        UsageError: the configuration cannot be read.
    """
    config = options.config
    lines = {} if config is None else read_server_properties(config)
    given = {key: line.value for key, line in lines.items()}
    roles = {role.strip() for role in given.get("process.roles", "").split(",")} - {""}
    voters = [_VOTER.fullmatch(one.strip()) for one in given.get("controller.quorum.voters", "").split(",")]
    configured = configured_id(config)
    node_id = configured or next((view.broker_id for view in views if view.broker_id), "")
    return StartingNode(
        versions=_versions(views, options),
        kraft=_is_kraft(views, bool(roles), "zookeeper.connect" in given, version_of(options.broker_version)),
        controller=("controller" in roles) if roles else None,
        alone="controller" in roles and [one[1] for one in voters if one] == [node_id],
        configured_id=configured,
        node_id=node_id,
        metadata_dir=_metadata_dir(views, config, given.get("metadata.log.dir", "")),
    )


def metadata_log_of(view: LogDir) -> Partition | None:
    """The folder of the metadata log, if the directory has one."""
    return next((one for one in view.partitions if one.topic == METADATA_TOPIC), None)


def _versions(views: Sequence[LogDir], options: Options) -> tuple[VersionNumber, ...]:
    typed = version_of(options.broker_version)
    if typed is not None:
        return (typed,)
    oldest = max((version_of(told_version(view)) or (0, 0, 0) for view in views), default=(0, 0, 0))
    return tuple(one for one in PROVEN_VERSIONS if one >= oldest)


def _is_kraft(
    views: Sequence[LogDir], roles: bool, zookeeper: bool, version: VersionNumber | None
) -> bool | None:
    if roles or any(view.meta_version == 1 or metadata_log_of(view) for view in views):
        return True
    if zookeeper or (version is not None and version < KRAFT_SINCE):
        return False
    if version is not None and version >= KRAFT_ONLY_SINCE:
        return None
    return False if any(view.meta_version == 0 for view in views) else None


def _metadata_dir(views: Sequence[LogDir], config: str | None, typed: str) -> str:
    """The given directory that the configuration means.

    Where none of ``log.dirs`` is on this host, as many directories as it names are taken for copies, in its order.
    """
    configured = configured_log_dirs(config)
    place = typed.strip() or next(iter(configured), "")
    for view in views:
        if place and os.path.realpath(place) == view.path:
            return view.path
    if place in configured and len(views) == len(configured) and not any(map(os.path.exists, configured)):
        return views[configured.index(place)].path
    return ""
