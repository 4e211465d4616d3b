"""Creates a state of the disk model on a real file system, with the inodes of the recording."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from tools.torture.disk_model import State
from tools.torture.recording import PRIVATE, Attrs, Watch, attrs_of

LOCK = ".lock"
Tree = dict[str, tuple[Attrs, bytes]]


def read_state(watch: Watch) -> State:
    """Read the log directory as it is now."""
    files: dict[str, int] = {}
    folders: dict[str, int] = {}
    for path, entry in _walk(watch.root, ""):
        (folders if entry.is_dir(follow_symlinks=False) else files)[path] = entry.inode()
    data, attrs = {}, {}
    for path, node in files.items():
        with open(f"{watch.root}/{path}", "rb") as file:
            data[node], attrs[node] = file.read(), attrs_of(file.fileno())
    for path, node in folders.items():
        attrs[node] = attrs_of(f"{watch.root}/{path}")
    return State(files, folders, data, attrs)


def _walk(root: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(f"{root}/{prefix}") as entries:
        listed = list(entries)
    for entry in listed:
        yield f"{prefix}{entry.name}", entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(root, f"{prefix}{entry.name}/")


def public_tree(state: State) -> Tree:
    """Return what a broker sees: everything but krepair's own folders and the lock file. A folder has no bytes."""
    entries = [*state.files.items(), *state.folders.items()]
    return {
        path: (state.attrs[node], state.data.get(node, b""))
        for path, node in entries
        if PRIVATE not in path and path != LOCK
    }


def has_private(state: State) -> bool:
    """Return whether any folder of krepair is left."""
    return any(PRIVATE in path for path in state.folders)


def differences(actual: Tree, expected: Tree) -> list[str]:
    """Return the differences from what is expected, a line per path."""
    out = []
    for path in sorted(actual.keys() | expected.keys()):
        was, now = expected.get(path), actual.get(path)
        if was == now:
            continue
        if was is None or now is None:
            out.append(f"{path}: {'is there' if was is None else 'is gone'}")
        elif was[1] != now[1]:
            out.append(f"{path}: {len(now[1])} other bytes than the {len(was[1])} expected")
        else:
            out.append(f"{path}: {now[0]} instead of {was[0]}")
    return out


class RealTree:
    """The log directory, made to look like one state after the other.

    Args:
        watch: knows which inodes have to live on, and where removed ones are.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.root = watch.root

    def put(self, state: State) -> None:
        """Make the log directory that state; only what differs is touched."""
        present: dict[int, str] = {}
        self._clear("", state, present, keep=True)
        for path in sorted(state.folders):
            whole = f"{self.root}/{path}"
            if not os.path.isdir(whole):
                os.rename(f"{self.watch.pool}/{state.folders[path]}", whole)
        for path, node in state.files.items():
            whole = f"{self.root}/{path}"
            if node not in present:
                os.rename(f"{self.watch.pool}/{node}", whole)
                present[node] = whole
            elif not os.path.exists(whole):
                os.link(present[node], whole)
        for node, whole in present.items():
            self._fill(whole, state.data[node], state.attrs[node])
        for path, node in state.folders.items():
            _give(f"{self.root}/{path}", state.attrs[node])

    def _clear(self, prefix: str, state: State, present: dict[int, str], *, keep: bool) -> None:
        with os.scandir(f"{self.root}/{prefix}") as entries:
            listed = [(entry.name, entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, node, is_folder in listed:
            path = f"{prefix}{name}"
            if is_folder:
                same = keep and state.folders.get(path) == node
                self._clear(f"{path}/", state, present, keep=same)
                if not same:
                    os.rmdir(f"{self.root}/{path}")
            elif keep and state.files.get(path) == node:
                present[node] = f"{self.root}/{path}"
            else:
                os.unlink(f"{self.root}/{path}")

    def _fill(self, path: str, data: bytes, attrs: Attrs) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(descriptor).st_size
            if size != len(data) or os.pread(descriptor, size, 0) != data:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, data, 0)
        finally:
            os.close(descriptor)
        _give(path, attrs)


def _give(path: str, attrs: Attrs) -> None:
    status = os.stat(path)
    if (status.st_uid, status.st_gid) != (attrs.uid, attrs.gid):
        os.chown(path, attrs.uid, attrs.gid)
    if stat.S_IMODE(status.st_mode) != attrs.mode:
        os.chmod(path, attrs.mode)
    if stat.S_ISDIR(status.st_mode):
        return
    if status.st_mtime_ns != attrs.mtime_ns:
        os.utime(path, ns=(attrs.mtime_ns, attrs.mtime_ns))
    if attrs.xattrs:
        for name, value in attrs.xattrs:
            with contextlib.suppress(OSError):
                os.setxattr(path, name, value)
