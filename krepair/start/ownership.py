"""Files that the broker's user cannot read or write (KR605), judged by the owner and group of most files."""

from __future__ import annotations

import grp
import pwd
import shlex
import stat
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from krepair.checks.catalogue import Finding, StartEffect
from krepair.durable.tree import without_links
from krepair.formats.broker_version import VersionNumber
from krepair.formats.filenames import (
    CLEANER_CHECKPOINT,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOCK,
    LOG,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    TIME_INDEX,
    TXN_INDEX,
)
from krepair.formats.words import count_text
from krepair.logdir.reading import status_of
from krepair.logdir.values import FolderStatus, LogDir, Partition
from krepair.next_command import NOTHING, Next
from krepair.start.refusal import MAPS_INDEXES_LAZILY

_ROOT_UID = 0


class Node(NamedTuple):
    """Owner and mode of a file or folder.

    Attributes:
        partition: name of the partition folder, empty for the root and its files.
        name: file name, empty for a folder itself.
        uid: numeric id of the owner.
        gid: numeric id of the group.
        mode: permission bits of the file.
        is_folder: True for a folder, which also needs search permission.
    """

    partition: str
    name: str
    uid: int
    gid: int
    mode: int
    is_folder: bool = False


def nodes_of(view: LogDir) -> Iterator[Node]:
    """Yield everything that a broker opens, files of the root first; files that vanish while it lists are omitted."""
    yield Node("", "", view.uid, view.gid, view.mode, is_folder=True)
    yield from _listed(view.path)
    for partition in (*view.partitions, *view.marked):
        if partition.is_link:
            continue
        status = partition.folder_status or _status_of(partition.path)
        if status is None:
            continue
        yield Node(partition.folder, "", *status, is_folder=True)
        for file in partition.files():
            yield Node(partition.folder, file.name, file.uid, file.gid, file.mode)


def _status_of(path: str) -> FolderStatus | None:
    try:
        status = status_of(path)
    except OSError:
        return None
    return FolderStatus(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def _listed(path: str) -> Iterator[Node]:
    try:
        entries = without_links().entries(path)
    except OSError:
        return
    for name, status in entries:
        if stat.S_ISREG(status.st_mode):
            yield Node("", name, status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))


def usual_owner(nodes: Iterable[Node]) -> tuple[int, int]:
    """Return owner and group of most files, which the broker presumably runs as; the first met wins a tie."""
    counts = Counter((node.uid, node.gid) for node in nodes)
    return counts.most_common(1)[0][0]


def lacks(node: Node, uid: int, gid: int) -> str:
    """Return the permissions that a user lacks: ``r``, ``w``, and ``x`` for a folder; root lacks none."""
    if uid == _ROOT_UID:
        return ""
    shift = 6 if node.uid == uid else 3 if node.gid == gid else 0
    bits = node.mode >> shift
    wanted = {"r": 4, "w": 2} | ({"x": 1} if node.is_folder else {})
    return "".join(letter for letter, bit in wanted.items() if not bits & bit)


_OPENED_IN_ROOT: Final = {
    LOCK: "rw",
    META_PROPERTIES: "r",
    RECOVERY_POINT_CHECKPOINT: "r",
    LOG_START_CHECKPOINT: "r",
    REPLICATION_CHECKPOINT: "r",
    CLEANER_CHECKPOINT: "r",
    # A checkpoint is written under this name first, soon after the start; if that fails, the directory goes offline.
    f"{RECOVERY_POINT_CHECKPOINT}.tmp": "w",
    f"{LOG_START_CHECKPOINT}.tmp": "w",
    f"{REPLICATION_CHECKPOINT}.tmp": "w",
}
"""Permissions that a broker needs for each file of the root that it opens."""


def _needed(node: Node, active: Container[str], versions: Sequence[VersionNumber], *, clean: bool) -> str:
    """Return the permissions that a start needs for a node.

    Args:
        active: names of the active segment's files and the newest snapshot of its partition.
        versions: versions that may start.
        clean: True after a clean shutdown.
    """
    if node.is_folder:
        # A leader cannot create its epoch file in a read-only folder; after an unclean stop that may lead to KR804.
        return "rwx" if not node.partition or clean else "rx"
    if not node.partition:
        return _OPENED_IN_ROOT.get(node.name, "")
    if node.name.endswith((LOG, TXN_INDEX)):
        return "rw"
    if node.name in {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}:
        return "r"
    if node.name == f"{LEADER_EPOCH_CHECKPOINT}.tmp":
        return "w"
    if node.name.endswith((INDEX, TIME_INDEX)):
        every = any(version < MAPS_INDEXES_LAZILY for version in versions)
        return "rw" if node.name in active or every else "r"
    return "r" if node.name in active else ""


def ownership_findings(
    view: LogDir, nodes: Iterable[Node], versions: Sequence[VersionNumber]
) -> Iterator[Finding]:
    """Yield one finding for all files of a folder with equal owner, mode and effect on a start (KR605).

    Args:
        nodes: nodes that ``nodes_of`` returned.
        versions: versions that may start.
    """
    active = {partition.folder: _active(partition) for partition in (*view.partitions, *view.marked)}
    all_nodes = list(nodes)
    uid, gid = usual_owner(all_nodes)
    alike: dict[tuple[str, int, int, int, str, StartEffect], list[Node]] = {}
    for node in all_nodes:
        missing = lacks(node, uid, gid)
        if missing:
            opened = active.get(node.partition, frozenset())
            needed = _needed(node, opened, versions, clean=view.clean_shutdown)
            lacking = set(needed) & set(missing)
            effect = StartEffect.DIRECTORY if lacking else StartEffect.NONE
            key = (node.partition, node.uid, node.gid, node.mode, missing, effect)
            alike.setdefault(key, []).append(node)
    # After a start as root all files belong to root: one chown -R repairs them all.
    all_foreign = all((node.uid, node.gid) != (uid, gid) for node, *_ in alike.values())
    chown_all = _owner_of_all(uid, gid, view.path) if len(alike) > 1 and all_foreign else NOTHING
    for (*_, effect), similar in alike.items():
        first = similar[0]
        more = f" and {count_text(len(similar) - 1, 'more file')}" if len(similar) > 1 else ""
        yield Finding(
            rule="KR605",
            partition=first.partition,
            file=first.name,
            evidence=owner_evidence(view, first, (uid, gid), lacks(first, uid, gid), more),
            start=effect,
            command=chown_all or _for_all(view, similar, (uid, gid)),
        )


def _active(partition: Partition) -> frozenset[str]:
    """Return the files that a start opens only in the active segment, and the newest snapshot."""
    files = [file for segment in partition.segments[-1:] for file in segment.files()]
    return frozenset(
        file.name for file in (*files, *(snapshot.file for snapshot in partition.snapshots[-1:]))
    )


def _for_all(view: LogDir, alike: Sequence[Node], usual: tuple[int, int]) -> Next:
    """Return the command that gives files to the usual owner: for a single file, or for the whole folder."""
    first = alike[0]
    path = _path(view, first)
    if len(alike) == 1 or (first.uid, first.gid) == usual:
        return Next.by_hand(_command(path, first, usual, lacks(first, *usual)) if len(alike) == 1 else "")
    return _owner_of_all(*usual, "/".join(part for part in (view.path, first.partition) if part))


def _owner_of_all(uid: int, gid: int, folder: str) -> Next:
    return Next.by_hand(f"chown -R {_user(uid)}:{_group(gid)} {shlex.quote(folder)}")


def _path(view: LogDir, node: Node) -> str:
    return "/".join(part for part in (view.path, node.partition, node.name) if part)


def owner_evidence(view: LogDir, node: Node, usual: tuple[int, int], missing: str, more: str = "") -> str:
    """Describe the wrong owner, group or mode of a file, with the command that corrects it.

    Args:
        node: the file or folder.
        usual: owner and group of most files.
        missing: permissions that the usual owner lacks, see ``lacks``.
        more: clause after the file's name that counts similar files.
    """
    path = _path(view, node)
    return (
        f"{node.name or node.partition or 'the log directory'}{more}: {_user(node.uid)}:{_group(node.gid)} "
        f"{node.mode:04o}; most files are of {_user(usual[0])}:{_group(usual[1])}, who has no {_words(missing)}; "
        f"{_command(path, node, usual, missing)}"
    )


def _words(missing: str) -> str:
    return " and no ".join({"r": "read", "w": "write", "x": "search"}[letter] for letter in missing)


def _command(path: str, node: Node, usual: tuple[int, int], missing: str) -> str:
    name = shlex.quote(path)
    if (node.uid, node.gid) == usual:
        return f"chmod u+{missing} {name}"
    owned = f"chown {_user(usual[0])}:{_group(usual[1])} {name}"
    lacking = lacks(node._replace(uid=usual[0], gid=usual[1]), *usual)
    return f"{owned} && chmod u+{lacking} {name}" if lacking else owned


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
