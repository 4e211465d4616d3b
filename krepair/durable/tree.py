"""A directory that was opened once, and everything below it, reached without following a link.

Whoever may write a log directory may also put a symbolic link where krepair expects a folder or a file of its own, at
any moment. So a path is never resolved from the root of the file system again: it is walked from one descriptor of the
directory, and a link in the place of any of its components is an error (``ELOOP``), not a way out. Linux 5.6 does the
walk in one call (``openat2``, with ``RESOLVE_BENEATH`` and ``RESOLVE_NO_SYMLINKS``); elsewhere it is done component by
component.
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
from collections.abc import Iterator
from functools import cache
from typing import Final

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_TRIES = 64
"""``openat2`` gives up with ``EAGAIN`` when a folder on the way is renamed at that moment."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO in the place of a file must not make us wait for its other end.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What a kernel, or a sandbox around it, answers that does not have the call.
_NO_OPENAT2 = frozenset({errno.ENOSYS, errno.EPERM, errno.E2BIG})
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})


_HOW_BYTES: Final = 24
"""``struct open_how``: flags, mode, resolve, each of 64 bits."""


class Tree:
    """One directory and what is below it. Can be pickled; the descriptor is opened at the first use.

    Args:
        path: absolute, and free of links itself.
        inode: that the directory must have; None takes any.
        step_by_step: whether to do without ``openat2``; a test may ask for it.
    """

    def __init__(self, path: str = "/", inode: int | None = None, *, step_by_step: bool = False) -> None:
        self.path = path.rstrip("/") or "/"
        self._inode = inode
        self._step_by_step = step_by_step
        self._descriptor = -1
        self._finalizer: weakref.finalize[[int], Tree] | None = None

    def close(self) -> None:
        """Close the descriptor: an open one keeps the file system busy. The next use opens it again."""
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
        """Open a file or folder; returns a descriptor that the caller closes.

        Args:
            path: absolute, below the directory.
            flags: of ``open``; no link is followed and no FIFO waited for, whatever they say.
            mode: of a file that is created.

        Raises:
            OSError: ``ELOOP`` where a link stands for any component, ``EXDEV`` of a path that is not below the
                directory, ``ESTALE`` if the directory is another one, or what the system says.
        """
        if flags & os.O_CREAT:
            _file_name(path)
        below = self._below(path)
        mode = mode if flags & os.O_CREAT else 0
        # As every open of Python: the call below is not Python's, and a step tells only a name.
        sys.audit("open", path, None, flags)
        try:
            if self._step_by_step or not _has_openat2():
                return self._walk(below, flags | _FILE_FLAGS, mode)
            return _openat2(self._root(), below, flags | _FILE_FLAGS, mode)
        except OSError as error:
            _name(error, path)
            raise

    def open_folder(self, path: str) -> int:
        """Open a folder for calls relative to it; returns a descriptor that the caller closes.

        Raises:
            OSError: as ``open``.
        """
        return self.open(path, _FOLDER_FLAGS)

    @contextlib.contextmanager
    def place(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder of a path and the path's last component, which need not exist.

        Raises:
            OSError: as ``open``; an error of the body gets the whole path for its file name.
        """
        parent, name = _file_name(path)
        with _named(path):
            folder = self.open_folder(parent)
            try:
                yield folder, name
            finally:
                os.close(folder)

    def status(self, path: str) -> os.stat_result | None:
        """What ``lstat`` says of a path; None if nothing has the name.

        Raises:
            OSError: as ``open``; a path that cannot be looked at is never taken for one that is not there.
        """
        if (path.rstrip("/") or "/") == self.path:
            with _named(path):
                return os.fstat(self._root())
        try:
            # As ``place``, without a context manager: this is called more often than anything else here.
            parent, name = _file_name(path)
            folder = self.open_folder(parent)
            try:
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
            finally:
                os.close(folder)
        except OSError as error:
            _name(error, path)
            if error.errno in _NOT_THERE:
                return None
            raise

    def is_there(self, path: str) -> bool:
        """Whether anything, a link too, has the name."""
        return self.status(path) is not None

    def is_folder(self, path: str) -> bool:
        """Whether a real folder has the name; False if nothing has it, or something else."""
        found = self.status(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def entries(self, path: str) -> list[tuple[str, os.stat_result]]:
        """Name and ``lstat`` of everything in a folder, by name. What goes meanwhile is not listed."""
        found = []
        folder = self.open_folder(path)
        try:
            with _named(path), os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
        finally:
            os.close(folder)
        return sorted(found, key=lambda pair: pair[0])

    def names(self, path: str) -> list[str]:
        """Names of everything in a folder, ascending."""
        folder = self.open_folder(path)
        try:
            with _named(path):
                return sorted(os.listdir(folder))
        finally:
            os.close(folder)

    @contextlib.contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> Iterator[int]:
        """Open a regular file; yields the descriptor.

        Raises:
            OSError: as ``open``; ``EINVAL`` for anything that is no regular file.
        """
        descriptor = self.open(path, flags, mode)
        try:
            with _named(path):
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "is not a regular file")
                yield descriptor
        finally:
            os.close(descriptor)

    def read(self, path: str, at_most: int) -> bytes | None:
        """The first ``at_most`` bytes of a regular file; None if nothing has the name.

        Raises:
            OSError: as ``opened``.
        """
        try:
            with self.opened(path) as descriptor:
                pieces = []
                position = 0
                while position < at_most and (piece := os.pread(descriptor, at_most - position, position)):
                    pieces.append(piece)
                    position += len(piece)
                return b"".join(pieces)
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
                with _named(self.path):
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
        """The path relative to the directory."""
        if not path.startswith("/"):
            raise OSError(errno.EINVAL, "path is not absolute", path)
        prefix = self.path if self.path == "/" else self.path + "/"
        below = "" if path.rstrip("/") == self.path else path.removeprefix(prefix)
        inside = path.startswith(prefix) or below == ""
        # Most paths have no name that begins with a dot; only of the others each name is looked at.
        stays = "/." not in f"/{below}" or not any(name in {".", ".."} for name in below.split("/"))
        if not inside or not stays:
            raise OSError(errno.EXDEV, f"is not below {self.path}", path)
        return below.strip("/") or "."

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
            # A link where a folder was to be opened is a link first.
            if any(_is_link(name, folder) for name in (*folders, last)):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            raise
        finally:
            self._leave(folder)

    def _leave(self, folder: int) -> None:
        if folder != self._descriptor:
            os.close(folder)


def _file_name(path: str) -> tuple[str, str]:
    """The folder and the last component of a path that names a file."""
    parent, name = os.path.split(path)
    if name in {"", ".", ".."}:
        raise OSError(errno.EINVAL, "path does not end in a file name", path)
    return parent, name


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Errors of the body get the whole path for their file name."""
    try:
        yield
    except OSError as error:
        _name(error, path)
        raise


def _name(error: OSError, path: str) -> None:
    """Of a call on a descriptor the system gives that number, or nothing, for a name."""
    if not isinstance(error.filename, str | bytes) or not os.path.isabs(os.fsdecode(error.filename)):
        error.filename = path
        del error.filename2  # None would be printed


def _openat2(folder: int, below: str, flags: int, mode: int) -> int:
    # RESOLVE_NO_SYMLINKS says more, and with O_NOFOLLOW a link in the place of a folder is told as ENOTDIR.
    how = _how(flags & ~os.O_NOFOLLOW, mode)
    code = errno.EAGAIN
    for _ in range(_TRIES):
        descriptor = _libc().syscall(_OPENAT2, folder, os.fsencode(below), how, _HOW_BYTES)
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in {errno.EAGAIN, errno.EINTR}:
            break
    raise OSError(code, os.strerror(code))


@cache
def _how(flags: int, mode: int) -> bytes:
    """The few ways in which files are opened, as the system wants them told."""
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
    """The whole file system, for paths that are not known to be below one directory; still no link is followed."""
    return Tree("/")
