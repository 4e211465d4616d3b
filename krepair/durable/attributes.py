"""Reading and setting of owner, group, mode, extended attributes and modification time of files.

A new file gets all of them from the file that it replaces. The broker rarely runs as the operator's user, and it uses
the mtime of a segment as its clock for tombstones and transaction markers.
"""

from __future__ import annotations

import errno
import os
import stat

from krepair.durable.disk import Attributes
from krepair.durable.tree import Tree, without_links

# The kernel computes these from the content of a file. Copied to other content, they would mark the file as forged.
_OF_CONTENT = frozenset({"security.ima", "security.evm"})
# Attributes of a new file that may be removed, because no system policy sets them.
_REMOVABLE = ("user.", "system.posix_acl_")
_NO_XATTRS = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


def read_attributes(path: str, tree: Tree | None = None) -> Attributes:
    """Read the attributes that a new file gets from an old one.

    Args:
        path: absolute path of a regular file or a directory. No component of it may be a link.
        tree: tree that holds the path; None for any place.

    Raises:
        OSError: the path cannot be opened for reading.
    """
    descriptor = (tree or without_links()).open(path, os.O_RDONLY)
    try:
        return attributes_of(descriptor)
    except OSError as error:
        # The error of a call on a descriptor does not name the file.
        error.filename = path
        raise
    finally:
        os.close(descriptor)


def attributes_of(descriptor: int) -> Attributes:
    """Read the attributes of an open file; no extended ones if the file system does not support them.

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

    The owner is set only if it differs, so that an operator who is not root can work on files of their own. The owner
    is set before the mode, because a change of owner clears the set-id bits.

    Raises:
        OSError: an attribute could not be set; others may already be set.
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
    xattrs: dict[str, bytes] = {}
    for name in sorted(names):
        if name in _OF_CONTENT:
            continue
        try:
            xattrs[name] = os.getxattr(descriptor, name)
        except OSError as error:
            if error.errno not in _NO_XATTRS | {errno.ENODATA}:
                raise
    return xattrs


def _give_xattrs(descriptor: int, wanted: dict[str, bytes]) -> None:
    present = _xattrs_of(descriptor)
    for name in present.keys() - wanted.keys():
        # Otherwise a default ACL of the folder would change who may read the file.
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
