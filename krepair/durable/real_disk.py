"""The ``Disk`` that really writes.

Names are resolved with ``openat``: the folder of a file is opened first and the call made relative to it, so
that a folder swapped for a symlink between a check and a call cannot lead it elsewhere. A symlink in the
place of a file is never followed; below ``root`` none is followed in the place of a folder either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from krepair.durable.attributes import attributes_of, give_attributes
from krepair.durable.disk import Attributes
from krepair.durable.writeback import begin_writeback

_PIECES_AT_ONCE = os.sysconf("SC_IOV_MAX")
_COPY_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20
_WRITEBACK_FROM_BYTES = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h, _IOW(0x94, 9, int): share all blocks of another file
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A FIFO in the place of a file must not make us wait for its other end.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE_MODE = 0o600
# What copy_file_range says where it cannot be used but read and write can.
_NO_COPY_RANGE = frozenset(
    {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
)


class _Place(NamedTuple):
    """Where a name is: an open folder and the last component of the path."""

    folder: int
    name: str


class RealDisk:
    """Implements ``krepair.durable.disk.Disk`` on the file systems of this host. Can be pickled.

    Args:
        root: resolved path of the log directory. Under it no symlink is followed at all. Elsewhere (a folder
            of kept originals) symlinks on the way to a folder are the operator's business.
    """

    def __init__(self, root: str | None = None) -> None:
        self.root = None if root is None else root.rstrip("/") or "/"

    def make_dir(self, path: str, mode: int = 0o700, owner: tuple[int, int] | None = None) -> None:
        """Create a directory; it must not exist. ``owner`` (uid, gid) is given only where it is another."""
        with self._at(path) as place:
            os.mkdir(place.name, 0o700, dir_fd=place.folder)
            try:
                # The umask of the operator has no say in who may look into the folder.
                os.chmod(place.name, mode, dir_fd=place.folder)
                found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
                if owner is not None and (found.st_uid, found.st_gid) != owner:
                    os.chown(place.name, *owner, dir_fd=place.folder, follow_symlinks=False)
            except OSError:
                os.rmdir(place.name, dir_fd=place.folder)
                raise

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        with self._at(path) as place:
            os.rmdir(place.name, dir_fd=place.folder)

    def create(self, path: str, data: bytes) -> None:
        """Create a file that must not exist, write ``data`` and fsync it; a failure leaves no file."""
        with self._at(path) as place, _new_file(place) as target:
            _write_all(target, 0, [memoryview(data)])
            os.fsync(target)

    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file and fsync it; a failure cuts it back to its size before."""
        with self._at(path) as place, _opened(place, os.O_WRONLY) as target:
            size = os.fstat(target).st_size
            try:
                _write_all(target, size, [memoryview(data)])
                os.fsync(target)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(target, size)
                raise

    def reserve(self, path: str, size: int) -> None:
        """Create a file of ``size`` zero bytes if it is not there.

        Several tasks may call it for the same file while others already write into it: it only ever makes the
        file longer. Blocks are not allocated, since the C library may do that by writing zeros under the
        others' feet.

        Raises:
            OSError: ``EEXIST`` if the file is there and longer.
        """
        with self._at(path) as place, _opened(place, os.O_WRONLY | os.O_CREAT) as target:
            present = os.fstat(target).st_size
            if present > size:
                raise OSError(errno.EEXIST, f"file of {present} bytes is there, {size} were to be reserved")
            if present < size:
                os.ftruncate(target, size)

    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        """Write the pieces one after the other from ``position`` of an existing file; returns all bytes.

        After a failure some of them may be in the file: it is a staged file and will be made anew.
        """
        with self._at(path) as place, _opened(place, os.O_WRONLY) as target:
            written = _write_all(target, position, pieces)
            if written >= _WRITEBACK_FROM_BYTES:
                begin_writeback(target, position, written)
            return written

    def truncate(self, path: str, size: int) -> None:
        """Cut a file of ours to ``size`` bytes."""
        with self._at(path) as place, _opened(place, os.O_WRONLY) as target:
            os.ftruncate(target, size)

    def rename(self, source: str, target: str) -> None:
        """Rename over ``target`` if it is there; a symlink there is replaced, not followed."""
        with self._at(source) as old, self._at(target) as new:
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)

    def link(self, source: str, target: str) -> None:
        """Make a hard link to a regular file; ``target`` must not exist."""
        with self._at(source) as old, self._at(target) as new:
            _must_be_regular(os.stat(old.name, dir_fd=old.folder, follow_symlinks=False))
            os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)

    def copy(self, source: str, target: str) -> None:
        """Make a synced copy with all attributes; ``target`` must not exist; a failure leaves no file."""
        with self._at(source) as old, _opened(old, os.O_RDONLY) as reader:
            attributes = attributes_of(reader)
            with self._at(target) as new, _new_file(new) as writer:
                _copy_content(reader, writer)
                give_attributes(writer, attributes)
                os.fsync(writer)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self._at(path) as place:
            os.unlink(place.name, dir_fd=place.folder)

    def set_attributes(self, path: str, attributes: Attributes) -> None:
        """Set owner, group, mode, extended attributes and, last, mtime."""
        with self._at(path) as place, _opened(place, os.O_RDONLY) as target:
            give_attributes(target, attributes)

    def sync_file(self, path: str) -> None:
        """Make a file durable. After a failure write a new one, never retry (ATC'20)."""
        with self._at(path) as place, _opened(place, os.O_RDONLY) as target:
            os.fsync(target)

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        with _named(path):
            folder = self._open_folder(path)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[_Place]:
        """Open the folder of ``path``; an error inside gets the whole path for its file name."""
        if not os.path.isabs(path):
            raise OSError(errno.EINVAL, "path is not absolute", path)
        parent, name = os.path.split(path)
        if name in {"", ".", ".."}:
            raise OSError(errno.EINVAL, "path does not end in a file name", path)
        with _named(path):
            folder = self._open_folder(parent)
            try:
                yield _Place(folder, name)
            finally:
                os.close(folder)

    def _open_folder(self, path: str) -> int:
        below = self._components_below_root(path)
        if below is None:
            return os.open(path, _FOLDER_FLAGS)
        assert self.root is not None
        folder = os.open(self.root, _FOLDER_FLAGS | os.O_NOFOLLOW)
        for name in below:
            try:
                inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _components_below_root(self, path: str) -> list[str] | None:
        if self.root is None:
            return None
        whole = os.path.normpath(path)
        if whole == self.root:
            return []
        prefix = self.root if self.root == "/" else self.root + "/"
        return whole.removeprefix(prefix).split("/") if whole.startswith(prefix) else None


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is None or not os.path.isabs(os.fsdecode(error.filename)):
            error.filename = path
            error.filename2 = None
        raise


@contextlib.contextmanager
def _opened(place: _Place, flags: int) -> Iterator[int]:
    descriptor = os.open(place.name, flags | _FILE_FLAGS, _NEW_FILE_MODE, dir_fd=place.folder)
    try:
        _must_be_regular(os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _new_file(place: _Place) -> Iterator[int]:
    """Open a file that must not exist, for writing; it is removed again when the body fails."""
    with _opened(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        try:
            yield descriptor
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(place.name, dir_fd=place.folder)
            raise


def _must_be_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")


def _write_all(descriptor: int, position: int, pieces: list[memoryview]) -> int:
    """Write everything, however little the kernel takes at once."""
    written = 0
    first = 0
    pending = [piece.cast("B") if piece.nbytes else memoryview(b"") for piece in pieces]
    while first < len(pending):
        if not len(pending[first]):
            first += 1
            continue
        taken = os.pwritev(descriptor, pending[first : first + _PIECES_AT_ONCE], position + written)
        if taken == 0:
            raise OSError(errno.EIO, f"nothing could be written at position {position + written}")
        written += taken
        while first < len(pending) and taken >= len(pending[first]):
            taken -= len(pending[first])
            first += 1
        if taken:
            pending[first] = pending[first][taken:]
    return written


def _copy_content(reader: int, writer: int) -> None:
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError:
        # Whatever the reason not to share blocks, the bytes can still be copied.
        if not _copy_by_range(reader, writer):
            _copy_by_chunks(reader, writer)


def _copy_by_range(reader: int, writer: int) -> bool:
    """Copy in the kernel; returns whether that is possible here."""
    position = 0
    size = os.fstat(reader).st_size
    while position < size:
        try:
            taken = os.copy_file_range(reader, writer, min(_COPY_BYTES, size - position), position, position)
        except OSError as error:
            if position == 0 and error.errno in _NO_COPY_RANGE:
                return False
            raise
        if taken == 0:
            # Some file systems answer 0 although there is more; the chunked copy sees the true end.
            return False
        position += taken
    return True


def _copy_by_chunks(reader: int, writer: int) -> None:
    position = 0
    while chunk := os.pread(reader, _CHUNK_BYTES, position):
        _write_all(writer, position, [memoryview(chunk)])
        position += len(chunk)
