"""Records each call by which a verb changes files, and keeps the files that it removes.

The calls are caught in Python's ``os`` module, below ``krepair.durable``: so an fsync that ``RealDisk`` itself
leaves out is left out of the recording, too, and a change that goes round ``Disk`` is in it. At the end of a
recording the tree that the model makes of it is compared with the real one, so no call can be overlooked.

A file is known by its inode number. A plan and a journal hold inode numbers; therefore no inode may be given to
another file while states of it are still tried: what is removed is moved into a pool next to the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import inspect
import linecache
import os
import stat
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, NamedTuple

from krepair.durable import medium, tree

_KREPAIR = f"{os.sep}krepair{os.sep}"
_WRITES = (
    "write",
    "pwrite",
    "writev",
    "pwritev",
    "ftruncate",
    "copy_file_range",
    "sendfile",
    "posix_fallocate",
)
_GIVES = ("fchmod", "fchown", "utime", "setxattr", "removexattr", "chmod", "chown")
_SYNCS = ("fsync", "fdatasync")
_FICLONE = 0x40049409
PRIVATE = "krepair~"


class Attrs(NamedTuple):
    """Attributes of an inode besides its bytes; ``mtime_ns`` of a folder is ignored and 0."""

    mode: int
    uid: int
    gid: int
    mtime_ns: int
    xattrs: tuple[tuple[str, bytes], ...] = ()


class Born(NamedTuple):
    """A new inode with a name. ``data`` is None for a folder."""

    folder: int
    name: str
    node: int
    data: bytes | None
    attrs: Attrs


class Named(NamedTuple):
    """One more name of an inode."""

    folder: int
    name: str
    node: int


class Unnamed(NamedTuple):
    """A name that goes."""

    folder: int
    name: str
    node: int


class Moved(NamedTuple):
    """A rename."""

    folder: int
    name: str
    to_folder: int
    to_name: str
    node: int


class Wrote(NamedTuple):
    """The bytes of a file after a write or a truncation, and what else of the inode went with them."""

    node: int
    data: bytes
    attrs: Attrs


class Gave(NamedTuple):
    """New attributes."""

    node: int
    attrs: Attrs


EVERYTHING = -1
"""What was synced where it was the whole file system."""


class Synced(NamedTuple):
    """An fsync of a file or folder, or of ``EVERYTHING``; ``site`` says which line of krepair asked for it."""

    node: int
    site: str


class Ended(NamedTuple):
    """A verb came to its end with this exit code: what it claimed has to be durable from here on."""

    verb: str
    code: int


Event = Born | Named | Unnamed | Moved | Wrote | Gave | Synced | Ended


def attrs_of(path: int | str) -> Attrs:
    """Return the attributes of an open file or of a path, as they are now."""
    status = os.stat(path)
    folder = stat.S_ISDIR(status.st_mode)
    names = () if folder else os.listxattr(path)
    xattrs = tuple((name, os.getxattr(path, name)) for name in sorted(names))
    mtime_ns = 0 if folder else status.st_mtime_ns
    return Attrs(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, mtime_ns, xattrs)


class KilledError(BaseException):
    """The process is gone: nothing in the code under test may catch it."""


class Watch:
    """Recorder of the calls of this process that change files below one folder.

    Args:
        root: path of the log directory.
        pool: a folder on the same file system, outside of it: what loses its last name goes there.
    """

    def __init__(self, root: str, pool: str) -> None:
        self.root = root
        self.pool = pool
        self.device = os.stat(root).st_dev
        self.files: set[int] = set()
        self.folders: set[int] = set()
        self.events: list[Event] | None = None
        self.kill_at = sys.maxsize
        self.believes_syncfs = False
        """Whether a sync of the whole file system makes anything durable; without it krepair has to do without."""
        self.on_event: Callable[[Event], None] | None = None
        self._real: dict[str, Any] = {}
        self._see_tree(root)

    def _see_tree(self, top: str) -> None:
        self.folders.add(os.stat(top).st_ino)
        with os.scandir(top) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._see_tree(entry.path)
                else:
                    self.files.add(entry.inode())

    def forget(self, files: set[int], folders: set[int]) -> None:
        """Goes back to knowing only these; the others are files like any other from now on."""
        self.files, self.folders = set(files), set(folders)

    @contextlib.contextmanager
    def recording(self) -> Iterator[list[Event]]:
        """Collects events while the body runs."""
        self.events = []
        try:
            yield self.events
        finally:
            self.events, self.kill_at = None, sys.maxsize

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        """Record nothing while the body runs."""
        events, self.events = self.events, None
        try:
            yield
        finally:
            self.events = events

    def _note(self, event: Event) -> None:
        if self.events is not None:
            self.events.append(event)
            if self.on_event is not None:
                self.on_event(event)

    def _alive(self) -> None:
        """Ends the process, so to speak, before the call that was chosen, and before each after it."""
        if self.events is not None and len(self.events) >= self.kill_at:
            raise KilledError

    # -- catching

    def __enter__(self) -> Watch:
        own: dict[str, Callable[..., Any]] = {
            "open": self._open,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
            "unlink": self._unlink,
            "remove": self._unlink,
            "rename": self._rename,
            "replace": self._rename,
            "link": self._link,
            **{name: functools.partial(self._write, name) for name in _WRITES},
            **{name: functools.partial(self._give, name) for name in _GIVES},
            **{name: functools.partial(self._sync, name) for name in _SYNCS},
        }
        for name, function in own.items():
            self._real[name] = getattr(os, name)
            setattr(os, name, function)
        # One openat2 would hide from us in which folder a file is made; the walk step by step ends in the same.
        has_openat2 = self._real["openat2"] = tree._has_openat2  # noqa: SLF001 - krepair has no switch for it
        tree._has_openat2 = lambda: self.events is None and has_openat2()  # type: ignore[assignment] # noqa: SLF001
        self._real["syncfs"] = medium._SYNCFS  # noqa: SLF001 - no function of os that could be caught
        medium._SYNCFS = self._syncfs  # noqa: SLF001
        self._real["ioctl"] = fcntl.ioctl
        fcntl.ioctl = self._ioctl  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        fcntl.ioctl = self._real.pop("ioctl")
        medium._SYNCFS = self._real.pop("syncfs")  # noqa: SLF001
        tree._has_openat2 = self._real.pop("openat2")  # noqa: SLF001
        for name, function in self._real.items():
            setattr(os, name, function)
        self._real.clear()

    def _place(self, path: str, dir_fd: int | None) -> tuple[int, str]:
        """Return (inode of the folder, name); inode 0 for a folder that is not watched."""
        head, name = os.path.split(os.fsdecode(path))
        if head:
            folder = os.stat(head, dir_fd=dir_fd).st_ino
        else:
            folder = os.stat(".").st_ino if dir_fd is None else os.fstat(dir_fd).st_ino
        return (folder if folder in self.folders else 0), name

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        real = self._real["open"]
        if self.events is None or not flags & (os.O_CREAT | os.O_TRUNC):
            return int(real(path, flags, mode, dir_fd=dir_fd))
        self._alive()
        folder, name = self._place(path, dir_fd)
        there = True
        try:
            os.lstat(path) if dir_fd is None else os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            there = False
        descriptor = int(real(path, flags, mode, dir_fd=dir_fd))
        if folder and not there:
            node = os.fstat(descriptor).st_ino
            self.files.add(node)
            self._note(Born(folder, name, node, b"", attrs_of(descriptor)))
        elif folder and flags & os.O_TRUNC:
            self._wrote(descriptor)
        return descriptor

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._alive()
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if self.events is None:
            return
        folder, name = self._place(path, dir_fd)
        if folder:
            status = os.stat(path, dir_fd=dir_fd)
            self.folders.add(status.st_ino)
            attrs = Attrs(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, 0)
            self._note(Born(folder, name, status.st_ino, None, attrs))

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._alive()
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        folder, name = self._place(path, dir_fd)
        if status.st_ino not in self.folders or status.st_dev != self.device:
            self._real["rmdir"](path, dir_fd=dir_fd)
            return
        descriptor = self._real["open"](path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd)
        try:
            if os.listdir(descriptor):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        finally:
            os.close(descriptor)
        self._real["rename"](path, f"{self.pool}/{status.st_ino}", src_dir_fd=dir_fd)
        if self.events is not None and folder:
            self._note(Unnamed(folder, name, status.st_ino))

    def _is_last(self, status: os.stat_result) -> bool:
        """Return whether an inode that must survive is about to lose its last name."""
        return status.st_nlink == 1 and status.st_ino in self.files and status.st_dev == self.device

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._alive()
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
        folder, name = self._place(path, dir_fd) if self.events is not None else (0, "")
        if self._is_last(status):
            self._real["rename"](path, f"{self.pool}/{status.st_ino}", src_dir_fd=dir_fd)
        else:
            self._real["unlink"](path, dir_fd=dir_fd)
        if self.events is not None and folder:
            self._note(Unnamed(folder, name, status.st_ino))

    def _rename(
        self, src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        self._alive()
        node = os.stat(src, dir_fd=src_dir_fd, follow_symlinks=False).st_ino
        watched = self.events is not None
        folder, name = self._place(src, src_dir_fd) if watched else (0, "")
        to_folder, to_name = self._place(dst, dst_dir_fd) if watched else (0, "")
        try:
            old = os.stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False)
        except FileNotFoundError:
            old = None
        if old is not None and old.st_ino != node and self._is_last(old):
            self._real["rename"](dst, f"{self.pool}/{old.st_ino}", src_dir_fd=dst_dir_fd)
        self._real["rename"](src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        if self.events is not None and folder and to_folder and (old is None or old.st_ino != node):
            self._note(Moved(folder, name, to_folder, to_name, node))

    def _link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        self._alive()
        self._real["link"](
            src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=follow_symlinks
        )
        if self.events is None:
            return
        folder, name = self._place(dst, dst_dir_fd)
        if folder:
            status = os.stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False)
            if status.st_ino in self.files:
                self._note(Named(folder, name, status.st_ino))
            else:
                self._named_at_last(
                    folder, name, status.st_ino, dst if dst_dir_fd is None else _at(dst_dir_fd, dst)
                )

    def _named_at_last(self, folder: int, name: str, node: int, path: str) -> None:
        """Record the first name of a file made without one (``O_TMPFILE``); its earlier writes are pending."""
        self.files.add(node)
        with open(path, "rb") as file:
            self._note(Born(folder, name, node, b"", attrs_of(file.fileno())))
            self._note(Wrote(node, file.read(), attrs_of(file.fileno())))

    def _write(self, call: str, *args: Any, **kwargs: Any) -> Any:
        self._alive()
        done = self._real[call](*args, **kwargs)
        if self.events is not None:
            target = args[1] if call == "copy_file_range" else args[0]
            self._wrote(target)
        return done

    def _wrote(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if self.events is not None and status.st_ino in self.files:
            self._note(Wrote(status.st_ino, _content(descriptor, status.st_size), attrs_of(descriptor)))

    def _give(self, call: str, target: Any, *args: Any, **kwargs: Any) -> Any:
        self._alive()
        done = self._real[call](target, *args, **kwargs)
        if self.events is None:
            return done
        dir_fd = kwargs.get("dir_fd")
        status = os.fstat(target) if isinstance(target, int) else os.stat(target, dir_fd=dir_fd)
        if status.st_ino in self.files:
            self._note(Gave(status.st_ino, attrs_of(target if dir_fd is None else _at(dir_fd, target))))
        elif status.st_ino in self.folders:
            attrs = Attrs(stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, 0)
            self._note(Gave(status.st_ino, attrs))
        return done

    def _sync(self, call: str, descriptor: int) -> None:
        self._alive()
        node = os.fstat(descriptor).st_ino
        if self.events is None or not (node in self.files or node in self.folders):
            return
        place = place_of(os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), self.root))
        self._note(Synced(node, f"{call_site(inspect.currentframe())} [{place}]"))

    def _syncfs(self, descriptor: int) -> int:
        self._alive()
        if self.events is not None and self.believes_syncfs:
            self._note(Synced(EVERYTHING, f"{call_site(inspect.currentframe())} [file system]"))
        return 0

    def _ioctl(self, descriptor: int, request: int, *args: Any) -> Any:
        # It would share blocks without a call that could be seen; the copy does the same slower.
        if request == _FICLONE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return self._real["ioctl"](descriptor, request, *args)


def _at(dir_fd: int, name: str) -> str:
    return f"/proc/self/fd/{dir_fd}/{name}"


def _content(descriptor: int, size: int) -> bytes:
    # The descriptor may be open for writing only.
    reader = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
    try:
        return os.pread(reader, size, 0)
    finally:
        os.close(reader)


def place_of(path: str) -> str:
    """Return the kind of a path in the log directory: with the line that syncs it, it names a sync."""
    names = path.split("/")
    private = next((number for number, name in enumerate(names) if name.startswith(PRIVATE)), -1)
    inner = names[private + 1 :]
    if private < 0 and path == ".":
        return "log directory"
    if private < 0:
        return "partition folder" if len(names) == 1 and "." not in path else "file"
    if inner and inner[0] in _FOLDERS:
        return inner[0]
    return "journal" if inner == ["journal"] else "private folder"


def call_site(frame: FrameType | None) -> str:
    """Return krepair's line that asked for a sync: the innermost one whose function is not named after it."""
    while frame is not None:
        code = frame.f_code
        plumbing = "sync" in code.co_name or code.co_name in _PLUMBING or code.co_filename.endswith(_GIVEN_ON)
        if _KREPAIR in code.co_filename and not plumbing:
            return _shown(code, frame.f_lineno)
        frame = frame.f_back
    return "?"


_FOLDERS = frozenset({"stage", "keep", "out", "fence"})
_PLUMBING = frozenset({"__exit__", "__enter__", "run_files"})
_GIVEN_ON = ("/commit/stepping.py", "/durable/writing_error.py")
"""Carry steps out, and say what an error means; who asks for a sync is who calls them."""


@functools.lru_cache(maxsize=1000)
def _shown(code: CodeType, line: int) -> str:
    module = code.co_filename.rpartition(_KREPAIR)[2]
    text = linecache.getline(code.co_filename, line).partition("  #")[0].strip()
    return f"{module} {code.co_qualname}: {text}"
