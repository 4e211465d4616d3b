"""Loads ``faults.c`` into processes: it counts their calls below a folder, kills them at one, or makes one fail.

A process takes part when it was started under ``environment(control)``. Its forks do too. What happens is set in a
control block that is shared memory, and what happened can be read from it after the process is gone.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
import subprocess
import sys
import tempfile
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("faults.c")
VARIABLE: Final = "TORTURE_CONTROL"
_PATH_BYTES: Final = 200
_ENTRIES: Final = 16384
_MAGIC: Final = 0x746F7274


class Kind(IntEnum):
    """Kind of a system call; the order is that of ``faults.c``."""

    CREATE = 0
    WRITE = 1
    TRUNCATE = 2
    RENAME = 3
    LINK = 4
    UNLINK = 5
    MKDIR = 6
    RMDIR = 7
    FSYNC = 8
    SYNCFS = 9
    UTIMES = 10
    CHMOD = 11
    CHOWN = 12
    COPY = 13
    CLONE = 14
    SETXATTR = 15
    ALLOCATE = 16
    SYMLINK = 17
    MKNOD = 18
    OPEN = 19
    STAT = 20
    READ = 21
    LISTDIR = 22
    GETXATTR = 23
    LOCK = 24
    STATVFS = 25
    ACCESS = 26
    READLINK = 27
    OPENWRITE = 28


class Mode(IntEnum):
    """Effect at the call whose number is set."""

    RECORD = 0
    KILL_BEFORE = 1
    KILL_AFTER = 2
    KILL_TORN = 3
    FAIL_ONCE = 4
    FAIL_FOREVER = 5
    SHORT_ONCE = 6
    SHORT_FOREVER = 7
    SHORT_THEN_FAIL = 8
    FAIL_THRICE = 9
    PAUSE = 10


def mask(*kinds: Kind) -> int:
    """Return one bit for each kind."""
    return sum(1 << kind for kind in set(kinds))


CHANGING: Final = mask(*(kind for kind in Kind if kind < Kind.OPEN))
LOOKING: Final = mask(*(kind for kind in Kind if kind >= Kind.OPEN))
ALL_KINDS: Final = CHANGING | LOOKING


class Fault(NamedTuple):
    """A fault to inject.

    Attributes:
        mode: effect on the call.
        number: number of the counted call, from 1; 0 for none.
        error: errno of a call that fails.
        counted: kinds of calls that are counted, see ``mask``.
        failing: kinds that fail after the first, where the mode goes on failing.
    """

    mode: Mode = Mode.RECORD
    number: int = 0
    error: int = 0
    counted: int = CHANGING
    failing: int = 0


class Call(NamedTuple):
    """One call that was made.

    Attributes:
        kind: kind of the call.
        error: errno that the process saw, 0 if it went well.
        inode: (device, inode) of the file before the call, zeros if there was none.
        amount: bytes moved, or the new size.
        number: number among the counted calls, from 1; 0 if it was not counted.
        injected: true if the error, or the short write, was injected.
        path: relative to the root.
        target: second path, or empty.
    """

    kind: Kind
    error: int
    inode: tuple[int, int]
    amount: int
    number: int
    injected: bool
    path: str
    target: str

    def __str__(self) -> str:
        """Return the call in one line."""
        paths = f"{self.path} -> {self.target}" if self.target else self.path
        end = f" = {errno.errorcode.get(self.error, self.error)}" if self.error else ""
        return f"{self.kind.name.lower()} {paths}{end}{' (made to fail)' if self.injected and self.error else ''}"


class _Entry(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("device", ctypes.c_uint64),
        ("inode", ctypes.c_uint64),
        ("amount", ctypes.c_int64),
        ("number", ctypes.c_uint32),
        ("injected", ctypes.c_uint32),
        ("path", ctypes.c_char * _PATH_BYTES),
        ("target", ctypes.c_char * _PATH_BYTES),
    ]


class _Control(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_uint32),
        ("entry_bytes", ctypes.c_uint32),
        ("armed", ctypes.c_uint32),
        ("mode", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("counted", ctypes.c_uint64),
        ("failing", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("logged", ctypes.c_uint32),
        ("happened", ctypes.c_uint32),
        ("spare", ctypes.c_uint32),
        ("root", ctypes.c_char * 512),
        ("other", ctypes.c_char * 512),
        ("entries", _Entry * _ENTRIES),
    ]


class Control:
    """A control block in a file, shared with every process that was started under it.

    Args:
        path: path of the file; created if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = ctypes.sizeof(_Control)
            if os.fstat(descriptor).st_size != size:
                os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._block = _Control.from_buffer(self._map)
        self._block.magic = _MAGIC
        self._block.entry_bytes = ctypes.sizeof(_Entry)

    def set(self, root: Path, fault: Fault, other: Path | None = None) -> None:
        """Say what is to happen below a folder, and forget what has; nothing happens before ``arm``.

        Args:
            root: folder that is watched.
            fault: fault to inject.
            other: a second folder, below which it happens, too.
        """
        block = self._block
        block.armed = 0
        block.mode, block.number, block.error = int(fault.mode), fault.number, fault.error
        block.counted, block.failing = fault.counted, fault.failing
        block.count = block.logged = block.happened = 0
        block.root = os.fsencode(root)
        block.other = b"" if other is None else os.fsencode(other)

    def arm(self) -> None:
        """Count calls from now on."""
        self._block.armed = 1

    def disarm(self) -> None:
        """Inject nothing from now on."""
        self._block.armed = 0

    def copy_of(self, other: Control) -> None:
        """Take over what happened under another one."""
        ctypes.memmove(ctypes.addressof(self._block), ctypes.addressof(other._block), ctypes.sizeof(_Control))

    @property
    def count(self) -> int:
        """Calls that were counted."""
        return self._block.count

    @property
    def happened(self) -> bool:
        """True if the fault was injected."""
        return self._block.happened > 0

    def calls(self) -> list[Call]:
        """All calls below the folder, including kinds that are not counted.

        Raises:
            AssertionError: there were more than the block holds.
        """
        logged = self._block.logged
        assert logged <= _ENTRIES, f"{logged} calls, {_ENTRIES} can be written down"
        return [
            Call(
                Kind(entry.kind),
                entry.error,
                (entry.device, entry.inode),
                entry.amount,
                entry.number,
                bool(entry.injected),
                os.fsdecode(entry.path),
                os.fsdecode(entry.target),
            )
            for entry in self._block.entries[:logged]
        ]


def library() -> Path:
    """Return the compiled library; compile it if this version of its source was not compiled here yet.

    Raises:
        RuntimeError: there is no C compiler, or it fails.
    """
    source = SOURCE.read_bytes()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "krepair-torture"
    path = folder / f"faults-{hashlib.sha256(source).hexdigest()[:16]}.so"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        made = Path(work) / path.name
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise RuntimeError("make torture needs a C compiler (Debian: apt install gcc)") from None
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}:\n{done.stderr}")
        made.rename(path)
    return path


def environment(control: Path) -> dict[str, str]:
    """Return the environment of a process that takes part."""
    return os.environ | {"LD_PRELOAD": str(library()), VARIABLE: str(control)}


def takes_part() -> bool:
    """Return whether this process was started under a control block."""
    return VARIABLE in os.environ and str(library()) in os.environ.get("LD_PRELOAD", "")


def start_again(arguments: list[str]) -> None:
    """Replace this process by itself under a control block of its own, unless it is under one already."""
    if takes_part():
        return
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    descriptor, path = tempfile.mkstemp(prefix="krepair-torture-", dir=folder)
    os.close(descriptor)
    Control(Path(path))
    os.execve(sys.executable, [sys.executable, *arguments], environment(Path(path)))


_own: Control | None = None


def own_control() -> Control:
    """Return the control block of this process; its file is removed, the memory stays.

    Processes that are started, not forked, need a control block of their own.
    """
    global _own  # noqa: PLW0603 - there is one per process
    if _own is None:
        path = Path(os.environ[VARIABLE])
        _own = Control(path)
        path.unlink()
    return _own
