"""Files that the broker's user could not read or write (KR605): owner, group and mode against those of most files."""

from __future__ import annotations

import grp
import pwd
import shlex
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from krepair.checks.catalogue import Finding
from krepair.durable.tree import without_links
from krepair.formats.words import count_text
from krepair.logdir.reading import status_of
from krepair.logdir.values import FolderStatus, LogDir

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


def ownership_findings(view: LogDir, nodes: Iterable[Node]) -> Iterator[Finding]:
    """One finding for all files of a folder that are alike.

    Args:
        view: the log directory.
        nodes: as ``nodes_of`` gives them.
    """
    known = list(nodes)
    uid, gid = usual_owner(known)
    alike: dict[tuple[str, int, int, int, str], list[Node]] = {}
    for node in known:
        missing = lacks(node, uid, gid)
        if missing:
            alike.setdefault((node.partition, node.uid, node.gid, node.mode, missing), []).append(node)
    for found in alike.values():
        first = found[0]
        more = f" and {count_text(len(found) - 1, 'more file')}" if len(found) > 1 else ""
        yield Finding(
            rule="KR605",
            partition=first.partition,
            file=first.name,
            evidence=said_of(view, first, (uid, gid), lacks(first, uid, gid), more),
            command=_for_all(view, found, (uid, gid)),
        )


def _for_all(view: LogDir, alike: Sequence[Node], usual: tuple[int, int]) -> str:
    """What gives all of them to the usual owner: one name, or the folder with all that is in it."""
    first = alike[0]
    path = _path(view, first)
    if len(alike) == 1 or (first.uid, first.gid) == usual:
        return _command(path, first, usual, lacks(first, *usual)) if len(alike) == 1 else ""
    folder = "/".join(part for part in (view.path, first.partition) if part)
    return f"chown -R {_user(usual[0])}:{_group(usual[1])} {shlex.quote(folder)}"


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
