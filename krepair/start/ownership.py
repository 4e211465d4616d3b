"""Files that the broker's user could not read or write (KR605): owner, group and mode against those of most files."""

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
    """A file or folder.

    Attributes:
        partition: partition folder that it is or lies in, empty in the root.
        name: file name, empty for a folder itself.
        uid: owner.
        gid: group.
        mode: permission bits.
        is_folder: whether it is a folder: then it has to be searched as well.
    """

    partition: str
    name: str
    uid: int
    gid: int
    mode: int
    is_folder: bool = False


def nodes_of(view: LogDir) -> Iterator[Node]:
    """Everything that a broker opens, the root's own files first; a file that is removed meanwhile is left out."""
    yield Node("", "", view.uid, view.gid, view.mode, is_folder=True)
    yield from _listed(view.path)
    for partition in (*view.partitions, *view.marked):
        if partition.is_link:
            continue
        found = partition.folder_status or _status_of(partition.path)
        if found is None:
            continue
        yield Node(partition.folder, "", *found, is_folder=True)
        for file in partition.files():
            yield Node(partition.folder, file.name, file.uid, file.gid, file.mode)


def _status_of(path: str) -> FolderStatus | None:
    try:
        found = status_of(path)
    except OSError:
        return None
    return FolderStatus(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def _listed(path: str) -> Iterator[Node]:
    try:
        entries = without_links().entries(path)
    except OSError:
        return
    for name, found in entries:
        if stat.S_ISREG(found.st_mode):
            yield Node("", name, found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))


def usual_owner(nodes: Iterable[Node]) -> tuple[int, int]:
    """Owner and group of most files: the user that the broker runs as; the first met, if as many have another."""
    counts = Counter((node.uid, node.gid) for node in nodes)
    return counts.most_common(1)[0][0]


def lacks(node: Node, uid: int, gid: int) -> str:
    """What a user may not do with a file, or empty: ``r``, ``w``, and ``x`` of a folder. Root may do all."""
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
    # A checkpoint is written under this name first, soon after the start, and the directory fails where that does.
    f"{RECOVERY_POINT_CHECKPOINT}.tmp": "w",
    f"{LOG_START_CHECKPOINT}.tmp": "w",
    f"{REPLICATION_CHECKPOINT}.tmp": "w",
}
"""What a broker needs of a file of the root; it opens no other. A new one is written beside the old one."""


class _Opening(NamedTuple):
    """What decides which files a start opens, and how.

    Attributes:
        active: names of a partition's active segment and newest snapshot.
        versions: those that may start.
        clean: whether the broker was cleanly stopped.
    """

    active: Container[str]
    versions: Sequence[VersionNumber]
    clean: bool


def _needed(node: Node, opening: _Opening) -> str:
    if node.is_folder:
        # In a folder that it cannot write a leader has no epoch file. After an unclean stop it may come to KR804.
        return "rwx" if not node.partition or opening.clean else "rx"
    if not node.partition:
        return _OPENED_IN_ROOT.get(node.name, "")
    if node.name.endswith((LOG, TXN_INDEX)):
        return "rw"
    if node.name in {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA}:
        return "r"
    if node.name == f"{LEADER_EPOCH_CHECKPOINT}.tmp":
        return "w"
    if node.name.endswith((INDEX, TIME_INDEX)):
        every = any(one < MAPS_INDEXES_LAZILY for one in opening.versions)
        return "rw" if node.name in opening.active or every else "r"
    return "r" if node.name in opening.active else ""


def ownership_findings(
    view: LogDir, nodes: Iterable[Node], versions: Sequence[VersionNumber]
) -> Iterator[Finding]:
    """One finding for all files of a folder that are alike, and do the same to a start.

    Args:
        view: the log directory.
        nodes: as ``nodes_of`` gives them.
        versions: those that may start.
    """
    active = {one.folder: _active(one) for one in (*view.partitions, *view.marked)}
    known = list(nodes)
    uid, gid = usual_owner(known)
    alike: dict[tuple[str, int, int, int, str, StartEffect], list[Node]] = {}
    for node in known:
        missing = lacks(node, uid, gid)
        if missing:
            opening = _Opening(active.get(node.partition, frozenset()), versions, view.clean_shutdown)
            needed = set(_needed(node, opening)) & set(missing)
            effect = StartEffect.DIRECTORY if needed else StartEffect.NONE
            key = (node.partition, node.uid, node.gid, node.mode, missing, effect)
            alike.setdefault(key, []).append(node)
    # After a start as root: one command for all of them.
    given_away = all((one.uid, one.gid) != (uid, gid) for one, *_ in alike.values())
    one_for_all = _owner_of_all(uid, gid, view.path) if len(alike) > 1 and given_away else NOTHING
    for (*_, effect), found in alike.items():
        first = found[0]
        more = f" and {count_text(len(found) - 1, 'more file')}" if len(found) > 1 else ""
        yield Finding(
            rule="KR605",
            partition=first.partition,
            file=first.name,
            evidence=said_of(view, first, (uid, gid), lacks(first, uid, gid), more),
            start=effect,
            command=one_for_all or _for_all(view, found, (uid, gid)),
        )


def _active(partition: Partition) -> frozenset[str]:
    """The files of a partition that a start opens though it recovers nothing, besides those of every segment."""
    files = [file for one in partition.segments[-1:] for file in one.files()]
    return frozenset(file.name for file in (*files, *(one.file for one in partition.snapshots[-1:])))


def _for_all(view: LogDir, alike: Sequence[Node], usual: tuple[int, int]) -> Next:
    """What gives all of them to the usual owner: one name, or the folder with all that is in it."""
    first = alike[0]
    path = _path(view, first)
    if len(alike) == 1 or (first.uid, first.gid) == usual:
        return Next.by_hand(_command(path, first, usual, lacks(first, *usual)) if len(alike) == 1 else "")
    return _owner_of_all(*usual, "/".join(part for part in (view.path, first.partition) if part))


def _owner_of_all(uid: int, gid: int, folder: str) -> Next:
    return Next.by_hand(f"chown -R {_user(uid)}:{_group(gid)} {shlex.quote(folder)}")


def _path(view: LogDir, node: Node) -> str:
    return "/".join(part for part in (view.path, node.partition, node.name) if part)


def said_of(view: LogDir, node: Node, usual: tuple[int, int], missing: str, more: str = "") -> str:
    """What is wrong with the owner, group and mode of a file, and what to type.

    Args:
        view: the log directory.
        node: the file or folder.
        usual: owner and group of most files.
        missing: what that user may not do with it, as ``lacks`` says.
        more: words after its name, for others that are alike.
    """
    where = _path(view, node)
    return (
        f"{node.name or node.partition or 'the log directory'}{more}: {_user(node.uid)}:{_group(node.gid)} "
        f"{node.mode:04o}; most files are of {_user(usual[0])}:{_group(usual[1])}, who has no {_words(missing)}; "
        f"{_command(where, node, usual, missing)}"
    )


def _words(missing: str) -> str:
    return " and no ".join({"r": "read", "w": "write", "x": "search"}[letter] for letter in missing)


def _command(path: str, node: Node, usual: tuple[int, int], missing: str) -> str:
    name = shlex.quote(path)
    if (node.uid, node.gid) == usual:
        return f"chmod u+{missing} {name}"
    owned = f"chown {_user(usual[0])}:{_group(usual[1])} {name}"
    still = lacks(node._replace(uid=usual[0], gid=usual[1]), *usual)
    return f"{owned} && chmod u+{still} {name}" if still else owned


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
