"""Disks for tests: one that records calls, one that stops, one that fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from krepair.durable.disk import Attributes, Disk
from krepair.durable.tree import Tree

ALL_KINDS = frozenset(
    {
        "make_dir",
        "remove_dir",
        "create",
        "append",
        "reserve",
        "write_at",
        "truncate",
        "rename",
        "link",
        "copy",
        "unlink",
        "set_attributes",
        "sync_file",
        "sync_dir",
        "sync_file_system",
        "check_written",
    }
)
NAME_CHANGING = frozenset({"rename", "link", "unlink", "make_dir", "remove_dir", "create", "copy"})
FILE_CHANGING = ALL_KINDS - {"sync_file", "sync_dir", "sync_file_system", "check_written"}


class SimulatedCrash(BaseException):
    """The process is gone: no ``except Exception`` of the code under test may catch it."""


class Call(NamedTuple):
    """One call: its kind, path, second path or empty, and whatever else matters for a comparison."""

    kind: str
    path: str
    target: str = ""
    detail: str = ""

    def shown(self, root: str) -> str:
        """One line with paths relative to ``root``."""
        paths = [os.path.relpath(path, root) for path in (self.path, self.target) if path]
        return " ".join([self.kind, *paths, self.detail]).rstrip()


class PassingDisk:
    """Passes each call on to ``inner`` after ``_before`` has seen it."""

    def __init__(self, inner: Disk) -> None:
        self.inner = inner

    @property
    def tree(self) -> Tree:
        return self.inner.tree

    def _before(self, call: Call) -> None:
        raise NotImplementedError

    def _after(self, call: Call) -> None:
        return

    @contextlib.contextmanager
    def _around(self, call: Call) -> Iterator[None]:
        self._before(call)
        yield
        self._after(call)

    def make_dir(self, path: str, mode: int = 0o700, owner: tuple[int, int] | None = None) -> None:
        with self._around(Call("make_dir", path, detail=oct(mode))):
            self.inner.make_dir(path, mode, owner)

    def remove_dir(self, path: str) -> None:
        with self._around(Call("remove_dir", path)):
            self.inner.remove_dir(path)

    def create(
        self,
        path: str,
        data: bytes,
        like: Attributes | None = None,
        owner: tuple[int, int] | None = None,
        *,
        synced: bool = True,
    ) -> None:
        with self._around(
            Call("create", path, detail=f"{len(data)} bytes{'' if synced else ', not synced'}")
        ):
            self.inner.create(path, data, like, owner, synced=synced)

    def append(self, path: str, data: bytes) -> None:
        with self._around(Call("append", path, detail=f"{len(data)} bytes")):
            self.inner.append(path, data)

    def reserve(self, path: str, size: int) -> None:
        with self._around(Call("reserve", path, detail=f"{size} bytes")):
            self.inner.reserve(path, size)

    def write_at(self, path: str, position: int, pieces: list[memoryview]) -> int:
        with self._around(
            Call("write_at", path, detail=f"{sum(piece.nbytes for piece in pieces)} bytes at {position}")
        ):
            return self.inner.write_at(path, position, pieces)

    def truncate(self, path: str, size: int) -> None:
        with self._around(Call("truncate", path, detail=f"{size} bytes")):
            self.inner.truncate(path, size)

    def rename(self, source: str, target: str) -> None:
        with self._around(Call("rename", source, target)):
            self.inner.rename(source, target)

    def link(self, source: str, target: str) -> None:
        with self._around(Call("link", source, target)):
            self.inner.link(source, target)

    def copy(self, source: str, target: str) -> None:
        with self._around(Call("copy", source, target)):
            self.inner.copy(source, target)

    def unlink(self, path: str) -> None:
        with self._around(Call("unlink", path)):
            self.inner.unlink(path)

    def set_attributes(self, path: str, attributes: Attributes, inode: int = 0) -> None:
        with self._around(Call("set_attributes", path, detail=f"mtime_ns {attributes.mtime_ns}")):
            self.inner.set_attributes(path, attributes, inode)

    def sync_file(self, path: str) -> None:
        with self._around(Call("sync_file", path)):
            self.inner.sync_file(path)

    def sync_dir(self, path: str) -> None:
        with self._around(Call("sync_dir", path)):
            self.inner.sync_dir(path)

    def check_written(self, path: str) -> None:
        with self._around(Call("check_written", path)):
            self.inner.check_written(path)

    def sync_file_system(self, path: str, folders: Iterable[str] = ()) -> bool:
        call = Call("sync_file_system", path)
        self._before(call)
        done = self.inner.sync_file_system(path, folders)
        self._after(call if done else call._replace(detail="not done"))
        return done


class RecordingDisk(PassingDisk):
    """Lists the calls that happened, in order; one that raised is not among them."""

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []

    def _before(self, call: Call) -> None:
        return

    def _after(self, call: Call) -> None:
        self.calls.append(call)

    def kinds(self) -> list[str]:
        """The kinds of the calls, in order."""
        return [call.kind for call in self.calls]


class StoppingDisk(PassingDisk):
    """Stops before the ``stop_before``-th call (from 1) of the given kinds, and before all after it."""

    def __init__(self, inner: Disk, stop_before: int, kinds: Collection[str] = FILE_CHANGING) -> None:
        super().__init__(inner)
        self.stop_before = stop_before
        self.stop_kinds = frozenset(kinds)
        self.seen = 0
        self.stopped_at: Call | None = None

    def _before(self, call: Call) -> None:
        if self.stopped_at is not None:
            # A finally block of the code under test would not run after a real crash either.
            raise SimulatedCrash(f"{call} after the crash")
        if call.kind not in self.stop_kinds:
            return
        self.seen += 1
        if self.seen == self.stop_before:
            self.stopped_at = call
            raise SimulatedCrash(f"before call {self.seen}: {call}")


class FailingDisk(PassingDisk):
    """Fails the ``fail_at``-th call (from 1) of the given kinds; with ``forever`` all later ones too."""

    def __init__(
        self,
        inner: Disk,
        fail_at: int,
        errno: int,
        *,
        forever: bool = False,
        kinds: Collection[str] = ALL_KINDS,
    ) -> None:
        super().__init__(inner)
        self.fail_at = fail_at
        self.errno = errno
        self.forever = forever
        self.fail_kinds = frozenset(kinds)
        self.seen = 0
        self.failed: list[Call] = []

    def _before(self, call: Call) -> None:
        if call.kind not in self.fail_kinds:
            return
        self.seen += 1
        if self.seen == self.fail_at or (self.forever and self.seen > self.fail_at):
            self.failed.append(call)
            raise OSError(self.errno, os.strerror(self.errno), call.path)
