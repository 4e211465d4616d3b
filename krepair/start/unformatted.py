"""Directories of a node that are unformatted, empty or missing, beside good ones (KR407).

A disk that is not mounted leaves an empty folder. If that folder is formatted and the node starts, its replicas are
empty. So the finding asks about the mount first, then names the partitions that belong there, and gives the format
command last.

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
    """Directory of a broker that is not formatted, or cannot be read.

    Attributes:
        path: absolute path of the directory.
        is_folder: True if it is a folder that can be listed.
        names: names of the directory's entries.
        why: reason why the directory cannot be used.
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
    """Return the finding for an unusable directory, with the partitions that belong in it and the format command.

    Args:
        directory: directory that no broker can use.
        views: usable directories of the same node.
        node: the node that starts.
        missing: partitions of the node that have no folder.
        config: path of the node's configuration, None if it was not given.
    """
    known = {view.directory_id for view in views}
    missing_here = [
        partition.folder
        for partition in missing
        if partition.directory not in known or not partition.directory
    ]
    sentences = [
        _what(directory),
        "is its disk mounted? If not, its folder is empty, and a start makes its replicas empty",
    ]
    if missing_here:
        count = count_text(len(missing_here), "partition")
        sentences.append(
            f"the metadata log places {count} on this node that no directory holds: {few(missing_here)}"
        )
    format_it = _format(views, config)
    kraft = node.kraft is not False
    if kraft:
        sentences.append(
            f"a node of KRaft does not start with it; only if it is a new, empty disk: {format_it}"
        )
    return Finding(
        rule="KR407",
        file=META_PROPERTIES,
        evidence="; ".join(sentences),
        start=StartEffect.ENDS if kraft else StartEffect.NONE,
        severity=None if kraft else Severity.CONFUSING,
        command=NOTHING if missing_here or not kraft else Next.by_hand(format_it),
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
