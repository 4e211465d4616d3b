"""Access to files below one directory that is safe against symbolic links.

krepair often runs as root, and whoever may write a log directory could put a link in place of a folder or file at any
moment. So the directory is opened once, and each path below it is walked from that descriptor; a component that is a
link is an error (``ELOOP``). Linux 5.6 does the walk in one call (``openat2`` with ``RESOLVE_BENEATH`` and
``RESOLVE_NO_SYMLINKS``). On other systems krepair walks component by component.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import sys
import weakref
from functools import cache
from typing import Final

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_TRIES = 64
"""Number of attempts: ``openat2`` fails with ``EAGAIN`` if a folder on the path is renamed at that moment."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: if a FIFO has taken the place of a file, krepair must not wait for its other end.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Errors of a kernel or sandbox without this call.
_NO_OPENAT2 = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG})
_PIECE_BYTES = 1 << 16
_KEPT_AT_MOST = 16
"""Number of folder descriptors kept open: work on one partition needs at most ten."""
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})
_DOTS = frozenset({".", ".."})
_OF_NAMES: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_HOW_BYTES: Final = 24
"""Size of ``struct open_how``: flags, mode and resolve, 64 bits each."""


class Tree:
    """One directory and everything below it. Can be pickled. Its descriptor is opened on first use.

    Args:
        path: absolute path without links.
        inode: inode that the directory must have; None for any.
        step_by_step: True to walk without ``openat2``, for tests.
    """

    def __init__(self, path: str = "/", inode: int | None = None, *, step_by_step: bool = False) -> None:
        self.path = path.rstrip("/") or "/"
        self._prefix = self.path if self.path == "/" else f"{self.path}/"
        self._inode = inode
        self._step_by_step = step_by_step
        self._descriptor = -1
        self._finalizer: weakref.finalize[[int], Tree] | None = None
        self._kept: dict[str, int] = {}
        self._keepers = 0

    def close(self) -> None:
        """Close the descriptor, because an open one keeps the file system busy; the next use reopens it."""
        self.let_go()
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer, self._descriptor = None, -1

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Tree], tuple[str, int | None]]:
        return Tree, (self.path, self._inode)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a file or folder; return a descriptor that the caller closes.

        Args:
            path: absolute path of the directory or of something below it.
            flags: flags of ``open``. ``O_NOFOLLOW`` and ``O_NONBLOCK`` are always added.
            mode: permission bits of a file that is created.

        Raises:
            OSError: ``ELOOP`` if a component is a link, ``EXDEV`` if the path is not below the directory, ``ESTALE`` if
                the directory has another inode, or any other error of the system.
        """
        if flags & os.O_CREAT:
            _file_name(path)
        else:
            mode = 0
        below = self._below(path)
        try:
            if self._kept and not flags & os.O_DIRECTORY:
                parent, _, name = path.rpartition("/")
                if parent in self._kept and name:
                    return os.open(name, flags | _FILE_FLAGS, mode, dir_fd=self._kept[parent])
            if "/" not in below:  # a path of one component needs no walk
                return self._open_in(self._root(), below, flags | _FILE_FLAGS, mode)
            # Python reports every open to audit hooks. The calls below bypass Python or know only a part of the path.
            sys.audit("open", path, None, flags)
            if self._step_by_step or not _has_openat2():
                return self._walk(below, flags | _FILE_FLAGS, mode)
            return _openat2(self._root(), below, flags | _FILE_FLAGS, mode)
        except OSError as error:
            _name(error, path)
            raise

    def open_folder(self, path: str) -> int:
        """Open a folder for calls relative to it; return a descriptor that the caller closes.

        Raises:
            OSError: see ``open``.
        """
        return self.open(path, _FOLDER_FLAGS)

    def keeping_folders(self) -> Keeping:
        """Keep visited folders open while the body of the context manager runs, so that opening a file is one call.

        A folder that is kept open stays the same folder even if another one takes over its name. So the body should be
        short, such as the work on one partition between two journal records; a longer one should call ``let_go``
        between its parts.
        """
        return Keeping(self)

    def keep(self) -> None:
        """Start to keep visited folders open, until ``keep_no_more``."""
        self._keepers += 1

    def keep_no_more(self) -> None:
        """Close the folders that are kept open since ``keep``, and keep no more."""
        self._keepers -= 1
        if not self._keepers:
            self.let_go()

    def let_go(self, path: str = "") -> None:
        """Close the folders that are kept open: all of them, or the folder ``path`` and those below it."""
        below = f"{path}/"
        for kept in tuple(self._kept):
            if not path or kept == path or kept.startswith(below):
                os.close(self._kept.pop(kept))

    def reached(self, path: str) -> Reached:
        """Return a context manager that gives the descriptor of a folder, for calls relative to it.

        Raises:
            OSError: on entry, see ``open``.
        """
        return Reached(self, path)

    def reach(self, path: str) -> tuple[int, bool]:
        """Return the descriptor of a folder, and whether it stays open; if not, the caller closes it.

        Raises:
            OSError: see ``open``.
        """
        if path == self.path:
            return self._root(), True
        if path in self._kept:
            return self._kept[path], True
        folder = self.open_folder(path)
        stays_open = self._keepers > 0 and len(self._kept) < _KEPT_AT_MOST
        if stays_open:
            self._kept[path] = folder
        return folder, stays_open

    def place(self, path: str) -> Parent:
        """Return a context manager that gives (descriptor of a path's folder, last component of the path).

        The last component need not exist.

        Raises:
            OSError: on entry, see ``open``. An error of the body gets the whole path as its file name.
        """
        return Parent(self, path)

    def status(self, path: str) -> os.stat_result | None:
        """Return the ``lstat`` of a path; None if the path does not exist.

        Raises:
            OSError: see ``open``. A path that cannot be looked up does not count as missing.
        """
        if (path.rstrip("/") or "/") == self.path:
            with named(path):
                return os.fstat(self._root())
        try:  # like ``place`` without its context manager, because this method is called more often than any other here
            parent, name = _file_name(path)
            folder, stays_open = self.reach(parent)
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            finally:
                if not stays_open:
                    os.close(folder)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            _name(error, path)
            raise

    def is_there(self, path: str) -> bool:
        """Return whether a path exists, even as a link.

        Raises:
            OSError: see ``status``.
        """
        return self.status(path) is not None

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder and not a link to one.

        Raises:
            OSError: see ``status``.
        """
        path_status = self.status(path)
        return path_status is not None and stat.S_ISDIR(path_status.st_mode)

    def entries(self, path: str) -> list[tuple[str, os.stat_result]]:
        """List name and ``lstat`` of a folder's entries, by name, without entries that disappear during the listing.

        Raises:
            OSError: see ``open``.
        """
        listed = []
        with self.reached(path) as folder, named(path), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    listed.append((entry.name, entry.stat(follow_symlinks=False)))
        return sorted(listed, key=lambda pair: pair[0])

    def names(self, path: str) -> list[str]:
        """List the names of all entries of a folder, ascending.

        Raises:
            OSError: see ``open``.
        """
        with self.reached(path) as folder, named(path):
            return sorted(os.listdir(folder))

    def file_names(self, path: str) -> list[str]:
        """List the names of a folder's entries except folders, without a ``stat`` if the listing gives the kind.

        Raises:
            OSError: see ``open``.
        """
        with self.reached(path) as folder, named(path), os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if not entry.is_dir(follow_symlinks=False))

    def opened(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> Opened:
        """Return a context manager that opens a regular file and gives its descriptor.

        Raises:
            OSError: on entry, see ``open``; ``EINVAL`` if the path is not a regular file.
        """
        return Opened(self, path, flags, mode)

    def opened_with_status(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> OpenedWithStatus:
        """Open a regular file like ``opened``, and also give its status at opening."""
        return OpenedWithStatus(self, path, flags, mode)

    def read(self, path: str, at_most: int) -> bytes | None:
        """Read the first ``at_most`` bytes of a regular file; None if the path does not exist.

        Raises:
            OSError: see ``opened``; or a read error.
        """
        try:
            with self.opened_with_status(path) as (descriptor, status):
                return read_descriptor(descriptor, at_most, status.st_size)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise

    # -- the walk

    def _root(self) -> int:
        if self._descriptor < 0:
            whole = self.path == "/"
            descriptor = os.open("/", _FOLDER_FLAGS) if whole else without_links().open_folder(self.path)
            try:
                with named(self.path):
                    other = self._inode is not None and os.fstat(descriptor).st_ino != self._inode
                if other:
                    raise OSError(errno.ESTALE, "is another directory than it was", self.path)
            except OSError:
                os.close(descriptor)
                raise
            self._descriptor = descriptor
            self._finalizer = weakref.finalize(self, os.close, descriptor)
        return self._descriptor

    def _below(self, path: str) -> str:
        """Return the path relative to the directory."""
        if path.startswith(self._prefix):
            below = path[len(self._prefix) :].strip("/")
            # Most paths have no component that begins with a dot, so only the others have every component checked.
            if "/." not in path or _DOTS.isdisjoint(below.split("/")):
                return below or "."
        elif path.startswith("/") and path.rstrip("/") == self.path:
            return "."
        elif not path.startswith("/"):
            raise OSError(errno.EINVAL, "path is not absolute", path)
        raise OSError(errno.EXDEV, f"is not below {self.path}", path)

    def _walk(self, below: str, flags: int, mode: int) -> int:
        *folders, last = below.split("/")
        folder = self._root()
        try:
            for name in filter(None, folders):
                inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
                self._leave(folder)
                folder = inner
            return os.open(last, flags, mode, dir_fd=folder)
        except NotADirectoryError:
            # The system may report ENOTDIR for a link in place of a folder. The caller must get ELOOP.
            if any(_is_link(name, folder) for name in (*folders, last)):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            raise
        finally:
            self._leave(folder)

    def _open_in(self, folder: int, name: str, flags: int, mode: int) -> int:
        try:
            return os.open(name, flags, mode, dir_fd=folder)
        except NotADirectoryError:
            # see ``_walk``
            if _is_link(name, folder):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            raise

    def _leave(self, folder: int) -> None:
        if folder != self._descriptor:
            os.close(folder)


class Keeping:
    """Context in which visited folders stay open; see ``Tree.keeping_folders``."""

    __slots__ = ("_tree",)

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def __enter__(self) -> None:
        self._tree.keep()

    def __exit__(self, *exception: object) -> None:
        self._tree.keep_no_more()


class Reached:
    """Context with an open folder, see ``Tree.reached``. A generator would cost more time than most bodies."""

    __slots__ = ("_folder", "_path", "_stays_open", "_tree")

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path

    def __enter__(self) -> int:
        self._folder, self._stays_open = self._tree.reach(self._path)
        return self._folder

    def __exit__(self, *exception: object) -> None:
        if not self._stays_open:
            os.close(self._folder)


class Parent:
    """Context with the open folder of a file, and the file's name; see ``Tree.place``."""

    __slots__ = ("_name", "_path", "_reached")

    def __init__(self, tree: Tree, path: str) -> None:
        parent, self._name = _file_name(path)
        self._path, self._reached = path, Reached(tree, parent)

    def __enter__(self) -> tuple[int, str]:
        with named(self._path):
            return self._reached.__enter__(), self._name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._reached.__exit__()
        if isinstance(error, OSError):
            _name(error, self._path)


class _OpenFile:
    """Context with an open regular file."""

    __slots__ = ("_descriptor", "_flags", "_mode", "_path", "_tree")

    def __init__(self, tree: Tree, path: str, flags: int, mode: int) -> None:
        self._tree, self._path, self._flags, self._mode = tree, path, flags, mode

    def _open(self) -> tuple[int, os.stat_result]:
        self._descriptor = self._tree.open(self._path, self._flags, self._mode)
        try:
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file")
        except OSError as error:
            self.__exit__(OSError, error, None)
            raise
        return self._descriptor, status

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        os.close(self._descriptor)
        if isinstance(error, OSError):
            _name(error, self._path)


class Opened(_OpenFile):
    """Context with the descriptor of a file, see ``Tree.opened``."""

    __slots__ = ()

    def __enter__(self) -> int:
        return self._open()[0]


class OpenedWithStatus(_OpenFile):
    """Context with descriptor and status of a file, see ``Tree.opened_with_status``."""

    __slots__ = ()

    def __enter__(self) -> tuple[int, os.stat_result]:
        return self._open()


class Named:
    """Context that names the file in errors of its body; see ``named``."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            _name(error, self._path)


def named(path: str) -> Named:
    """Return a context manager that puts the whole path into errors of its body."""
    return Named(path)


def _file_name(path: str) -> tuple[str, str]:
    """Split the path of a file into (path of the folder, last component)."""
    parent, _, name = path.rpartition("/")
    if not name or name in _DOTS:
        raise OSError(errno.EINVAL, "path does not end in a file name", path)
    return parent or "/", name


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _name(error: OSError, path: str) -> None:
    """Set the file name of an error: after a call on a descriptor it is a number or missing."""
    if not isinstance(error.filename, str | bytes) or not os.path.isabs(os.fsdecode(error.filename)):
        error.filename = path
        del error.filename2  # None would be printed


def _openat2(folder: int, below: str, flags: int, mode: int) -> int:
    # RESOLVE_NO_SYMLINKS covers O_NOFOLLOW. With both, a link in place of a folder would give ENOTDIR, not ELOOP.
    how = _how(flags & ~os.O_NOFOLLOW, mode)
    name = below.encode(*_OF_NAMES)
    code = errno.EAGAIN
    for _ in range(_TRIES):
        descriptor = _libc().syscall(_OPENAT2, folder, name, how, _HOW_BYTES)
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code))


@cache
def _how(flags: int, mode: int) -> bytes:
    """Return the bytes of ``struct open_how``, cached because files are opened with only a few flags."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    return struct.pack("@QQQ", flags, mode, resolve)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


@cache
def _has_openat2() -> bool:
    root = os.open("/", _FOLDER_FLAGS)
    try:
        os.close(_openat2(root, ".", _FOLDER_FLAGS, 0))
    except OSError as error:
        if error.errno in _NO_OPENAT2:
            return False
        raise
    finally:
        os.close(root)
    return True


@cache
def without_links() -> Tree:
    """Return the tree of the whole file system, for paths anywhere whose components are no links either."""
    return Tree("/")


def read_descriptor(descriptor: int, at_most: int, size: int = -1) -> bytes:
    """Read the first bytes of an open file.

    ``os.pread`` allocates the requested size before it reads, so at most the file's apparent size is requested.

    Args:
        at_most: largest number of bytes to read.
        size: size of the file as seen before, in bytes; negative to look it up.

    Raises:
        OSError: a read error.
    """
    pieces = []
    position, size = 0, os.fstat(descriptor).st_size if size < 0 else size
    while position < at_most:
        wanted = min(at_most - position, max(size - position, _PIECE_BYTES))
        piece = os.pread(descriptor, wanted, position)
        if not piece:
            break
        pieces.append(piece)
        position += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
