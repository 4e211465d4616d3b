"""Directories of a node that are not formatted, empty, or not there, beside good ones (KR407).

A disk that is not mounted leaves an empty folder. If that is formatted and the node starts, its replicas are empty. So
the question for the mount comes first, then the partitions that belong there, and the command that formats it last.

Source: ``KafkaRaftServer.initializeLogDirs``, ``MetaPropertiesEnsemble.verify`` (3.9.0); seen on 3.9.2.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding, Severity, StartEffect
from krepair.formats.damage import shown
from krepair.formats.filenames import META_PROPERTIES
from krepair.formats.words import count_text, few
from krepair.logdir.values import LogDir
from krepair.next_command import NOTHING, Next
from krepair.start.identity import StartingNode
from krepair.start.placed import Missing


class UnusableDir(NamedTuple):
    """A directory of a broker that is none of Kafka's yet, or cannot be read.

    Attributes:
        path: absolute path.
        is_folder: whether it is a folder that can be listed.
        names: what lies in it, by name.
        why: why it cannot be used, in words.
    """

    path: str
    is_folder: bool
    names: tuple[str, ...]
    why: str


def unformatted_finding(
    directory: UnusableDir,
    views: Sequence[LogDir],
    node: StartingNode,
    missing: Sequence[Missing],
    config: str | None,
) -> Finding:
    """Return what is wrong with a directory, what belongs in it, and what formats it.

    Args:
        directory: which.
        views: the good ones of the same node.
        node: which node starts.
        missing: its partitions that have no folder.
        config: path of its configuration, None if it was not given.
    """
    known = {view.directory_id for view in views}
    belong = [one.folder for one in missing if one.directory not in known or not one.directory]
    said = [
        _what(directory),
        "is its disk mounted? If not, its folder is empty, and a start makes its replicas empty",
    ]
    if belong:
        many = count_text(len(belong), "partition")
        said.append(f"the metadata log places {many} on this node that no directory holds: {few(belong)}")
    format_it = _format(views, config)
    kraft = node.kraft is not False
    if kraft:
        said.append(f"a node of KRaft does not start with it; only if it is a new, empty disk: {format_it}")
    return Finding(
        rule="KR407",
        file=META_PROPERTIES,
        evidence="; ".join(said),
        start=StartEffect.ENDS if kraft else StartEffect.NONE,
        severity=None if kraft else Severity.CONFUSING,
        command=NOTHING if belong or not kraft else Next.by_hand(format_it),
    )


def _what(directory: UnusableDir) -> str:
    if not directory.is_folder:
        return directory.why
    if not directory.names:
        return "the directory is empty: it was not formatted"
    names = ", ".join(map(shown, directory.names[:3]))
    return f"no {META_PROPERTIES}, and nothing of a broker here (found {names}): it was not formatted"


def _format(views: Sequence[LogDir], config: str | None) -> str:
    cluster = next((view.cluster_id for view in views if view.cluster_id), "CLUSTER_ID")
    file = "server.properties" if config is None else shlex.quote(config)
    return f"kafka-storage.sh format --cluster-id {cluster} --config {file} --ignore-formatted"
