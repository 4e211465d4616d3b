"""Reads and gives files their owner, group, mode, extended attributes and modification time.

A broker rarely runs as the operator, and its clock for tombstones and markers is the mtime of a segment, so a
new file takes over all of them from the file it replaces.
"""

from __future__ import annotations

import errno
import os
import stat

from krepair.durable.disk import Attributes
from krepair.durable.tree import Tree, without_links

# The kernel computes these from the content of a file: taken over, they would declare the new file forged.
_OF_CONTENT = frozenset({"security.ima", "security.evm"})
# Of the attributes that a new file is born with, these are not forced on it by the system's policy.
_REMOVABLE = ("user.", "system.posix_acl_")
_NO_XATTRS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def read_attributes(path: str, tree: Tree | None = None) -> Attributes:
    """Read what a new file takes over.

    Args:
        path: a regular file or a directory. No link is followed in the place of any component.
        tree: the directory below which it is; None if it may be anywhere.

    Raises:
        OSError: the path cannot be opened for reading.
    """
    descriptor = (tree or without_links()).open(path, os.O_RDONLY)
    try:
        return attributes_of(descriptor)
    except OSError as error:
        # Of a call on a descriptor the system does not say the name.
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def attributes_of(descriptor: int) -> Attributes:
    """Read the attributes of an open file; a file system without extended attributes has none."""
    status = os.fstat(descriptor)
    return Attributes(
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        xattrs=_xattrs_of(descriptor),
    )


def give_attributes(descriptor: int, attributes: Attributes) -> None:
    """Give an open file the attributes, mtime last.

    The owner stays as it is when it is right already, so that an operator who is not root can work on files
    of his own. Owner goes before mode, because changing it clears set-id bits.

    Raises:
        OSError: one of them could not be set; the file then has some of them.
    """
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (attributes.uid, attributes.gid):
        os.fchown(descriptor, attributes.uid, attributes.gid)
    _give_xattrs(descriptor, attributes.xattrs)
    os.fchmod(descriptor, attributes.mode)
    os.utime(descriptor, ns=(status.st_atime_ns, attributes.mtime_ns))


def _xattrs_of(descriptor: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            return {}
        raise
    found: dict[str, bytes] = {}
    for name in sorted(names):
        if name in _OF_CONTENT:
            continue
        try:
            found[name] = os.getxattr(descriptor, name)
        except OSError as error:
            if error.errno not in _NO_XATTRS | {errno.ENODATA}:
                raise
    return found


def _give_xattrs(descriptor: int, wanted: dict[str, bytes]) -> None:
    present = _xattrs_of(descriptor)
    for name in present.keys() - wanted.keys():
        # A default ACL of the folder would otherwise let more, or fewer, read the new file than the old one.
        if name.startswith(_REMOVABLE):
            os.removexattr(descriptor, name)
    for name, value in wanted.items():
        if name in _OF_CONTENT or present.get(name) == value:
            continue
        try:
            os.setxattr(descriptor, name, value)
        except OSError as error:
            if error.errno not in _NO_XATTRS:
                raise
