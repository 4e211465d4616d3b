"""Reads and sets owner, group, mode, extended attributes and modification time of files.

A new file gets all of them from the file that it replaces. The broker rarely runs as the user of the operator, and it
uses the mtime of a segment as its clock for tombstones and markers.
"""

from __future__ import annotations

import errno
import os
import stat

from krepair.durable.disk import Attributes
from krepair.durable.tree import Tree, without_links

# The kernel computes these from the content of a file. On another content they would mark the file as forged.
_OF_CONTENT = frozenset({"security.ima", "security.evm"})
# A new file may have attributes from the start. Of these, the following may be removed: no system policy sets them.
_REMOVABLE = ("user.", "system.posix_acl_")
_NO_XATTRS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def read_attributes(path: str, tree: Tree | None = None) -> Attributes:
    """Read the attributes that a new file gets from an old one.

    Args:
        path: absolute path of a regular file or a directory. No component of it may be a link.
        tree: the tree that holds the path; None for any place.

    Raises:
        OSError: the path cannot be opened for reading.
    """
    descriptor = (tree or without_links()).open(path, os.O_RDONLY)
    try:
        return attributes_of(descriptor)
    except OSError as error:
        # For a call on a descriptor the system does not give the file name.
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def attributes_of(descriptor: int) -> Attributes:
    """Read the attributes of an open file. If the file system has no extended attributes, there are none.

    Raises:
        OSError: the attributes cannot be read.
    """
    status = os.fstat(descriptor)
    return Attributes(
        uid=status.st_uid,
        gid=status.st_gid,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        xattrs=_xattrs_of(descriptor),
    )


def give_attributes(descriptor: int, attributes: Attributes) -> None:
    """Set the attributes of an open file, the mtime last.

    The owner is set only if it is wrong, so that an operator who is not root can work on files of their own. The owner
    is set before the mode, because a new owner clears the set-id bits.

    Raises:
        OSError: an attribute could not be set; others may be set already.
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
        # Otherwise a default ACL of the folder could change who may read the file.
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
