"""The cache of compiled kernels on disk, so that only the first run has to compile.

krepair runs the machine code in the cache, often as root. So a file is loaded only if nobody but this user or root can
have written it: folder and file must belong to one of them, must not be writable by others, and must not be links. If a
file cannot be saved or loaded, the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from typing import Final

CACHE_VARIABLE: Final = "KREPAIR_CACHE_DIR"
_HEADER: Final = b"krepair kernel 1\n"
_SET_NAME: Final = re.compile(r"kernels-[0-9a-f]{32}")
_UNUSED_DAYS: Final = 30
_LEAST_FREE_BYTES: Final = 64 << 20
"""Free space below which a default folder is not used, because an apply may need the space.

A folder that ``KREPAIR_CACHE_DIR`` names is used even then.
"""
INSTALLED_FOLDER: Final = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compiled")
"""Folder that ``krepair warm`` fills, beside the sources, for all users of this installation."""


def digest_of(*parts: str) -> str:
    """Return 32 hex digits that identify the given texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()[:32]


def user_folders() -> list[str]:
    """Return the absolute paths of folders in which this user's compiled kernels may be saved, best first."""
    named = os.environ.get(CACHE_VARIABLE, "")
    home = os.environ.get("XDG_CACHE_HOME", "") or os.path.join(os.path.expanduser("~"), ".cache")
    candidates = [named, os.path.join(home, "krepair")]
    with contextlib.suppress(OSError):  # in a container there may be no temporary folder at all
        candidates.append(os.path.join(tempfile.gettempdir(), f"krepair-{os.geteuid()}"))
    return [path for path in candidates if os.path.isabs(path)]


def is_trusted(status: os.stat_result) -> bool:
    """Return whether only this user or root can have written a file or folder with this status."""
    return status.st_uid in {0, os.geteuid()} and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


class CodeCache:
    """One set of compiled kernels, for one version of the compiler and one kind of processor.

    Each kernel has one file per signature and per version of its code, see ``file_name``. So a change of one kernel
    leaves the files of the others valid, and two versions of krepair share the kernels that are the same in both.

    Args:
        digest: digest of the compiler's version and the processor; part of the folder's name.
    """

    def __init__(self, digest: str) -> None:
        self._set = f"kernels-{digest}"
        self._readable: list[int] | None = None
        self._writable: int | None = None
        self._mode = 0o600

    def load(self, name: str) -> bytes | None:
        """Return the payload that was saved under a name, or None. A damaged file counts as none."""
        if self._readable is None:
            opened = (self._opened(folder) for folder in [INSTALLED_FOLDER, *user_folders()])
            self._readable = [folder for folder in opened if folder is not None]
        loaded = (_read(folder, name) for folder in self._readable)
        return next((payload for payload in loaded if payload is not None), None)

    def save(self, name: str, payload: bytes) -> None:
        """Save a payload in the first writable folder; save nothing if no folder is writable."""
        if self._writable is not None and _written(self._writable, name, payload, self._mode):
            return
        for path in user_folders():
            if path != os.environ.get(CACHE_VARIABLE, "") and not _has_room(path):
                continue
            folder = self._made(path)
            if folder is not None and _written(folder, name, payload, self._mode):
                self._writable = folder
                return

    def keep_for_everybody(self, path: str) -> str:
        """Save kernels only in the folder ``path`` from now on, readable for all users.

        Returns:
            The path of this set in the folder.

        Raises:
            OSError: the folder cannot be made, or another user may write there too.
        """
        _make_folder(path, 0o755)
        outer = _open_trusted(path, None)
        try:
            self._writable, self._mode = _made_set(outer, self._set, 0o755), 0o644
        finally:
            os.close(outer)
        return os.path.join(path, self._set)

    def _opened(self, path: str) -> int | None:
        """Open this set in a folder; None unless both folder and set can be trusted."""
        try:
            outer = _open_trusted(path, None)
        except OSError:
            return None
        try:
            return _open_trusted(self._set, outer)
        except OSError:
            return None
        finally:
            os.close(outer)

    def _made(self, path: str) -> int | None:
        """Open this set in a folder, and create both if they are missing; None if they cannot be trusted."""
        try:
            _make_folder(path, 0o700)
            outer = _open_trusted(path, None)
        except OSError:
            return None
        try:
            return _made_set(outer, self._set, 0o700)
        except OSError:
            return None
        finally:
            os.close(outer)


def _has_room(path: str) -> bool:
    """Return whether the file system has ``_LEAST_FREE_BYTES`` free; the broker's disk may be full."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    try:
        state = os.statvfs(path)
    except OSError:
        return False
    return state.f_bavail * state.f_frsize >= _LEAST_FREE_BYTES


def _made_set(outer: int, name: str, mode: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=outer)
        os.chmod(name, mode, dir_fd=outer)
        _remove_unused(outer, name)
    return _open_trusted(name, outer)


def file_name(function: str, signature: str, made_of: str) -> str:
    """Return the file name of one kernel and one signature; ``made_of`` is the digest of its code."""
    return f"{function}-{digest_of(signature)[:16]}-{made_of[:16]}"


def _make_folder(path: str, mode: int) -> None:
    """Make a folder and its parents. Only the last one gets exactly this mode; the umask does not change it."""
    if os.path.isdir(path):
        return
    os.makedirs(os.path.dirname(path), 0o700 if mode == 0o700 else 0o755, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
        os.chmod(path, mode)


def _open_trusted(path: str, parent: int | None) -> int:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    if is_trusted(os.fstat(folder)):
        return folder
    os.close(folder)
    raise PermissionError(1, "somebody else may write here", path)


def _read(folder: int, name: str) -> bytes | None:
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or not is_trusted(status):
            return None
        with os.fdopen(os.dup(file), "rb") as stream:
            content = stream.read()
    except OSError:
        return None
    finally:
        os.close(file)
    start = len(_HEADER) + 32
    payload = content[start:]
    whole = content[:start] == _HEADER + hashlib.sha256(payload).digest()
    return payload if whole else None


def _written(folder: int, name: str, payload: bytes, mode: int) -> bool:
    try:
        _write(folder, name, payload, mode)
    except OSError:
        return False
    _remove_earlier(folder, name)
    return True


def _write(folder: int, name: str, payload: bytes, mode: int) -> None:
    """Write to another name and rename, so that nobody reads half a file."""
    fresh = f".{name}.{os.getpid()}.{time.monotonic_ns()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(fresh, flags, mode, dir_fd=folder)
    try:
        with os.fdopen(file, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(_HEADER + hashlib.sha256(payload).digest() + payload)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise


def _remove_unused(outer: int, current: str) -> None:
    """Remove sets of other versions to which nothing was added for ``_UNUSED_DAYS`` days."""
    with contextlib.suppress(OSError):
        for name in list(_other_sets(outer, current)):
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=outer)
            try:
                if not _is_old(os.fstat(folder)):
                    continue
                for file in os.listdir(folder):
                    os.unlink(file, dir_fd=folder)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=outer)


def _remove_earlier(folder: int, current: str) -> None:
    """Remove files of earlier versions of a kernel, for the same signature, that are ``_UNUSED_DAYS`` days old."""
    same = current.rpartition("-")[0] + "-"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(same) and name != current and _is_old(os.lstat(name, dir_fd=folder)):
                os.unlink(name, dir_fd=folder)


def _is_old(status: os.stat_result) -> bool:
    return status.st_mtime < time.time() - _UNUSED_DAYS * 86_400


def _other_sets(outer: int, current: str) -> Iterator[str]:
    for name in os.listdir(outer):
        if name != current and _SET_NAME.fullmatch(name):
            yield name
