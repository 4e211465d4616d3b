"""The implementation of ``Disk`` that really changes files.

Every path is walked from one descriptor of the log directory (see ``krepair.durable.tree``), and each call is relative
to the folder that was reached. So a link that somebody puts there, even during the run, cannot lead a call to another
place.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from krepair.durable.attributes import attributes_of, give_attributes
from krepair.durable.disk import Attributes
from krepair.durable.medium import make_sure_it_is_written, sync_file_system
from krepair.durable.tree import Tree, named
from krepair.durable.writing_error import as_writing_error, writes
from krepair.durable.written import note

_SYNC_FILE_RANGE_WRITE = 2  # linux/fs.h


def _find() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function.restype = ctypes.c_int
    return function


_SYNC_FILE_RANGE = _find()


def begin_writeback(descriptor: int, position: int, count: int) -> None:
    """Start writing ``count`` bytes from ``position`` of an open file to the disk, ignoring errors.

    This only spreads the load; ``fsync`` or ``check_written`` later reports the errors.
    """
    if _SYNC_FILE_RANGE is not None and count > 0:
        _SYNC_FILE_RANGE(descriptor, position, count, _SYNC_FILE_RANGE_WRITE)


def drop_from_cache(path: str, tree: Tree) -> None:
    """Tell the kernel to drop the pages of a synced file, so that the next read comes from the disk.

    Raises:
        OSError: the file cannot be opened.
    """
    with tree.opened(path) as descriptor, contextlib.suppress(OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


_PIECES_AT_ONCE = os.sysconf("SC_IOV_MAX")
_COPY_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 20
_WRITEBACK_FROM_BYTES = 1 << 20
_FICLONE = 0x40049409  # linux/fs.h, _IOW(0x94, 9, int): share all blocks of another file
# Errors with which copy_file_range reports that it does not work here; read and write do.
_NO_COPY_RANGE = frozenset(
    {errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
)


class RealDisk:
    """Implementation of ``krepair.durable.disk.Disk`` on the file systems of this host. Can be pickled.

    Args:
        root: resolved path of the log directory, or its tree. Nothing outside of it is changed. By default every path
            can be changed; even then no component of a path may be a link.
    """

    def __init__(self, root: str | Tree = "/") -> None:
        self.tree = Tree(root) if isinstance(root, str) else root

    @writes
    def make_dir(self, path: str, mode: int = 0o700, owner: tuple[int, int] | None = None) -> None:
        """Create a directory that must not exist; change its ``owner`` (uid, gid) only if it differs."""
        with self.tree.place(path) as (folder, name):
            os.mkdir(name, 0o700, dir_fd=folder)
            try:
                made = os.open(
                    name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
                )
                try:
                    _give_owner(made, owner)
                    # The operator's umask must not change who may read the folder.
                    os.fchmod(made, mode)
                finally:
                    os.close(made)
            except OSError:
                os.rmdir(name, dir_fd=folder)
                raise

    @writes
    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""
        with self.tree.place(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)
        self.tree.let_go(path)

    @writes
    def create(
        self,
        path: str,
        data: bytes,
        like: Attributes | None = None,
        owner: tuple[int, int] | None = None,
        *,
        synced: bool = True,
    ) -> None:
        """Create a file that must not exist, write ``data`` and fsync it. After a failure there is no file.

        Without ``synced`` it is not durable until ``sync_file_system`` or ``sync_file``.
        """
        with self._new_file(path) as target:
            if like is None:
                # The owner comes first: a killed process must leave no file whose content its owner cannot read.
                _give_owner(target, owner)
            _write_all(target, 0, [memoryview(data)])
            if like is not None:
                give_attributes(target, like)
            if synced:
                os.fsync(target)

    @writes
    def append(self, path: str, data: bytes) -> None:
        """Append to an existing file and fsync it. After a failure it is truncated to its old size."""
        with self._changing(path, os.O_WRONLY) as (target, status):
            size = status.st_size
            try:
                _write_all(target, size, [memoryview(data)])
                os.fsync(target)
            except BaseException:
                # The journal lives here: half a record followed by a later whole one would read as damage, and a
                # record whose fsync failed must not be believed after a power cut.
                with contextlib.suppress(OSError):
                    os.ftruncate(target, size)
                raise

    @writes
    def reserve(self, path: str, size: int) -> None:
        """Create a file of ``size`` zero bytes unless it exists.

        Several tasks may call it for the same file while others already write to it, because it only extends the file.
        It allocates no blocks: the C library may do that by writing zeros, over bytes that others have written.

        Raises:
            OSError: ``EEXIST`` if the file exists and is longer.
        """
        with (
            contextlib.suppress(FileExistsError),
            self.tree.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL),
        ):
            pass
        with self._changing(path, os.O_WRONLY) as (target, status):
            present = status.st_size
            if present > size:
                raise OSError(errno.EEXIST, f"file of {present} bytes is there, {size} were to be reserved")
            if present < size:
                os.ftruncate(target, size)

    @writes
    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        """Write consecutive pieces into an existing file from ``position``; return the number of bytes written.

        After a failure some of the bytes may be in the file. That does no harm: it is a staged file, which will be
        created again.
        """
        with self._changing(path, os.O_WRONLY) as (target, _):
            written = _write_all(target, position, pieces)
            if written >= _WRITEBACK_FROM_BYTES:
                begin_writeback(target, position, written)
            return written

    @writes
    def truncate(self, path: str, size: int) -> None:
        """Truncate a file to ``size`` bytes."""
        with self._changing(path, os.O_WRONLY) as (target, _):
            os.ftruncate(target, size)

    @writes
    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; a file or symlink with the name ``target`` is replaced."""
        with self.tree.place(source) as (old, old_name), self.tree.place(target) as (new, new_name):
            os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)
        # A descriptor kept for the old name would lead later calls into the folder that was renamed away.
        for path in (source, target):
            self.tree.let_go(path)

    @writes
    def link(self, source: str, target: str) -> None:
        """Create a hard link to a regular file; ``target`` must not exist."""
        with self.tree.place(source) as (old, old_name), self.tree.place(target) as (new, new_name):
            _must_be_regular(os.stat(old_name, dir_fd=old, follow_symlinks=False))
            os.link(old_name, new_name, src_dir_fd=old, dst_dir_fd=new, follow_symlinks=False)

    def copy(self, source: str, target: str) -> None:
        """Create a durable copy with all attributes; ``target`` must not exist. A failure leaves no copy."""
        with self.tree.opened(source) as reader:
            attributes = attributes_of(reader)
            with _copy_error_with_file_system(target), self._new_file(target) as writer:
                _copy_content(reader, writer)
                give_attributes(writer, attributes)  # after the content, as each write sets the mtime
                os.fsync(writer)

    @writes
    def unlink(self, path: str) -> None:
        """Remove a file."""
        with self.tree.place(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    @writes
    def set_attributes(self, path: str, attributes: Attributes, inode: int = 0) -> None:
        """Set owner, group, mode, extended attributes, then mtime; the file must have ``inode`` if given."""
        with self._changing(path, os.O_RDONLY, inode) as (target, _):
            give_attributes(target, attributes)

    @writes
    def sync_file(self, path: str) -> None:
        """Make the content of a file durable.

        After a failure write a new file: a second call may succeed although data is lost (Rebello et al., ATC'20).
        """
        with self.tree.opened(path) as target:
            os.fsync(target)

    @writes
    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self.tree.reached(path) as folder:
            try:
                os.fsync(folder)
            except OSError as error:
                error.filename = path
                raise

    @writes
    def sync_file_system(self, path: str, folders: Iterable[str] = ()) -> bool:
        """Make everything on the file system of these folders durable; return False if that is impossible."""
        return sync_file_system(self.tree, path, folders)

    @writes
    def check_written(self, path: str) -> None:
        """Raise the error that occurred when ``sync_file_system`` wrote a file out."""
        with self.tree.opened(path) as written:
            make_sure_it_is_written(written, barrier=False)

    @contextlib.contextmanager
    def _changing(self, path: str, flags: int, inode: int = 0) -> Iterator[tuple[int, os.stat_result]]:
        """Open a file to change it, after checking that it belongs to this tree and has no other name.

        Yields the descriptor and the file's status at opening.
        """
        # The folder comes first: if folders are kept open, the file is then opened in that same folder.
        device = self._device_of_folder(path)
        with self.tree.opened_with_status(path, flags) as (descriptor, status):
            if status.st_dev != device:
                raise OSError(errno.EXDEV, "is on another file system than its folder")
            # A second name may be a backup in ``keep/``: a write through this one would change the backup as well.
            if status.st_nlink != 1:
                raise OSError(errno.EINVAL, f"has {status.st_nlink} names (hard links), expected one")
            if inode and status.st_ino != inode:
                raise OSError(
                    errno.EINVAL, f"is another file than it was (inode {status.st_ino}, not {inode})"
                )
            note(path)
            yield descriptor, status

    def _device_of_folder(self, path: str) -> int:
        """Return the device of a path's folder; a file on another device is mounted and not part of the log."""
        with self.tree.reached(os.path.dirname(path)) as folder, named(path):
            return os.fstat(folder).st_dev

    @contextlib.contextmanager
    def _new_file(self, path: str) -> Iterator[int]:
        """Open a file that must not exist, for writing. It is removed if the body fails."""
        # O_EXCL creates a regular file. No fstat checks that, because a failing fstat would leave the file behind.
        descriptor = self.tree.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        note(path)
        try:
            yield descriptor
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(path)
            raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _copy_error_with_file_system(target: str) -> Iterator[None]:
    """Turn errors of the body into write errors, except an I/O error, which may concern either file."""
    try:
        yield
    except OSError as error:
        write_error = error if error.errno == errno.EIO else as_writing_error(error, target)
        if write_error is error:
            raise
        raise write_error from error


def _must_be_regular(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")


def _give_owner(descriptor: int, owner: tuple[int, int] | None) -> None:
    """Set owner and group only if they differ, because not every user may set them."""
    if owner is None:
        return
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != owner:
        os.fchown(descriptor, *owner)


def _write_all(descriptor: int, position: int, pieces: list[memoryview]) -> int:
    """Write all pieces, with as many calls as it takes; return the number of bytes written."""
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
        # Blocks cannot be shared, so the bytes are copied.
        if not _copy_by_range(reader, writer):
            _copy_by_chunks(reader, writer)


def _copy_by_range(reader: int, writer: int) -> bool:
    """Copy in the kernel, without the holes; return False if that does not work."""
    size = os.fstat(reader).st_size
    for start, end in _pieces(reader, size):
        position = start
        while position < end:
            try:
                taken = os.copy_file_range(
                    reader, writer, min(_COPY_BYTES, end - position), position, position
                )
            except OSError as error:
                if position == start and error.errno in _NO_COPY_RANGE:
                    return False
                raise
            if taken == 0:
                # Some file systems return 0 before the end. The copy by chunks finds the real end.
                return False
            position += taken
    _end_at(writer, size)
    return True


def _copy_by_chunks(reader: int, writer: int) -> None:
    size = os.fstat(reader).st_size
    for start, end in _pieces(reader, size):
        position = start
        while position < end and (chunk := os.pread(reader, min(_CHUNK_BYTES, end - position), position)):
            _write_all(writer, position, [memoryview(chunk)])
            position += len(chunk)
    _end_at(writer, size)


def _end_at(writer: int, size: int) -> None:
    """Extend a copy that ends in a hole to the length of its original."""
    if os.fstat(writer).st_size < size:
        os.ftruncate(writer, size)


def _pieces(reader: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of everything but holes: a broker preallocates indexes of 10 MiB, most of it a hole."""
    end = 0
    while end < size:
        try:
            start = os.lseek(reader, end, os.SEEK_DATA)
            end = os.lseek(reader, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:
                yield end, size  # this file system cannot tell where holes are
            return
        yield start, min(end, size)
