"""A small log directory with two groups and an index to mend, its plan, and its staged files.

The journal never looks into a segment, so the content is arbitrary, but each file's is its own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from krepair.commit.executor import ExecutionResult
from krepair.commit.folder import PartitionFolder
from krepair.commit.guards import Guards, SafePoints
from krepair.commit.partition import commit_partition, undo_partition
from krepair.commit.result import ChangeResult
from krepair.durable.disk import Disk
from krepair.durable.real_disk import RealDisk
from krepair.errors import KrepairError, RefusedError
from krepair.logdir.fingerprint import digest_bytes
from krepair.plan.model import (
    Change,
    Commit,
    FileFingerprint,
    KeepOriginal,
    MendLog,
    NewCompanion,
    PartitionPlan,
    ReplaceFile,
    RewriteSegments,
    RollSegment,
    SetAside,
    SourceSegment,
)

PLAN_ID = "0123abcd"
FOLDER = "t-0"
EXTENSIONS = (".log", ".index", ".timeindex", ".txnindex")
POINTS = b"0\n2\no 0 7\nt 0 660\n"
LOWERED = b"0\n2\no 0 7\nt 0 100\n"
MARKER = b'{"version":0,"brokerEpoch":17}'
BASES = (0, 100, 200, 300, 400, 500, 600)
GROUPS = ((100, (100, 200, 300)), (400, (400, 500)))
FENCED = Commit(order="P1", fence=True, why="")
P1 = Commit(order="P1", fence=False, why="")
P2 = Commit(order="P2", fence=False, why="")
Tree = dict[str, tuple[int, int, bytes]]


class FreeLock:
    """A lock that is always held."""

    def check(self) -> None:
        """It is."""


class LockUntil:
    """A lock that is lost after it was checked so often."""

    def __init__(self, good: int, error: KrepairError | None = None) -> None:
        self.left = good
        self.error = error or RefusedError("the lock's file was replaced")

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise self.error


class UnsyncedDisk(RealDisk):
    """A real disk without syncs: a process crash needs none, and they cost most of the time."""

    def sync_dir(self, path: str) -> None:
        os.stat(path)

    def sync_file(self, path: str) -> None:
        os.stat(path)


def name(base: int, extension: str = ".log") -> str:
    return f"{base:020d}{extension}"


def put(path: Path, data: bytes, mtime_s: int, mode: int = 0o640) -> None:
    path.write_bytes(data)
    path.chmod(mode)
    os.utime(path, ns=(mtime_s * 1_000_000_000 + 7, mtime_s * 1_000_000_000 + 7))


def whole(came: ExecutionResult) -> None:
    """Raises what stopped an executor."""
    if came.error is not None:
        raise came.error


def tree(root: Path, *, private: bool = True) -> Tree:
    """Every file below: mode, mtime, bytes. ``private``: also krepair's own."""
    out: Tree = {}
    for path in sorted(root.rglob("*")):
        shown = str(path.relative_to(root))
        if not private and "krepair~" in shown:
            continue
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            out[shown] = (stat.S_IMODE(found.st_mode), found.st_mtime_ns, path.read_bytes())
        elif "krepair~" in shown:
            out[shown + "/"] = (0, 0, b"")
    return out


def fingerprint(path: Path) -> FileFingerprint:
    found = path.stat()
    return FileFingerprint(name=path.name, size=found.st_size, mtime_ns=found.st_mtime_ns, digest="")


def source(base: int, log_bytes: int) -> SourceSegment:
    return SourceSegment(
        base_offset=base,
        log_bytes=log_bytes,
        batches=1,
        kept_bytes=1,
        kept_batches=1,
        kept_records=1,
        kept_markers=0,
        reasons=(),
        drop_unstamped=False,
        carried_open=(),
        keep_positions=(),
        protected=(),
        last_position=-1,
        decisions="",
        aborted_kept=(),
    )


def rewrite(
    folder: Path,
    base: int,
    sources: tuple[int, ...],
    staged: dict[str, bytes],
    mtime_ns: int,
    last_offset: int,
) -> RewriteSegments:
    return RewriteSegments(
        change_id=f"{folder.name}/{base:020d}",
        base_offset=base,
        sources=tuple(source(each, (folder / name(each)).stat().st_size) for each in sources),
        log_bytes=len(staged[".log"]),
        index_bytes_at_most=sum(len(staged[e]) for e in staged if e != ".log"),
        batches=1,
        mtime_ns=mtime_ns,
        last_offset=last_offset,
        removes_snapshots=tuple(
            name(each, ".snapshot") for each in sources[1:] if (folder / name(each, ".snapshot")).exists()
        ),
        undo=KeepOriginal(),
    )


def replaced(path: Path, new: bytes | None) -> ReplaceFile:
    """A file of a partition folder becomes these bytes, or goes."""
    return ReplaceFile(
        change_id=f"{path.parent.name}/{path.name}",
        name=path.name,
        method="remove" if new is None else "regenerate",
        rule="KR201",
        size_before=path.stat().st_size if path.exists() else -1,
        size_after=-1 if new is None else len(new),
        digest_after="" if new is None else digest_bytes(new),
        reason="",
        undo=KeepOriginal(),
    )


def mended(
    path: Path,
    method: Literal["cut", "excise"],
    removed: bytes,
    after: bytes,
    made: dict[str, bytes],
    front: int,
) -> MendLog:
    """A log loses bytes.

    Args:
        path: of the log, as it is before.
        method: whether they are its end, or the log is made anew without them.
        removed: what goes.
        after: the log as it becomes.
        made: its new indexes.
        front: so many bytes of the offset index are put in place before the log is.
    """
    found, base = path.stat(), int(path.stem)
    sizes = {file: index.stat().st_size if (index := path.with_name(file)).exists() else -1 for file in made}
    return MendLog(
        change_id=f"{path.parent.name}/{path.name}",
        name=path.name,
        base_offset=base,
        method=method,
        removed=(),
        size_before=found.st_size,
        size_after=len(after),
        digest_removed=digest_bytes(removed),
        digest_after=digest_bytes(after),
        mtime_ns=found.st_mtime_ns,
        last_offset=base + 10,
        companions=tuple(
            NewCompanion(
                name=file, size_before=sizes[file], size_after=len(data), digest_after=digest_bytes(data)
            )
            for file, data in made.items()
        ),
        front_bytes=front,
        reason="",
        undo=KeepOriginal(),
    )


def set_aside(base: int, names: tuple[str, ...]) -> SetAside:
    """A segment is taken out."""
    return SetAside(
        change_id=f"{FOLDER}/{base:020d}",
        base_offset=base,
        names=names,
        bytes=0,
        records=0,
        rule="",
        consent="",
        reason="",
        undo=KeepOriginal(),
    )


def rolled(base: int) -> RollSegment:
    """An empty segment is put at the log end."""
    return RollSegment(
        change_id=f"{FOLDER}/{base:020d}", base_offset=base, rule="KR701", reason="", undo=KeepOriginal()
    )


def write_staged(folder: Path, base: int, staged: dict[str, bytes], mtime_ns: int) -> None:
    stage = folder / f"krepair~{PLAN_ID}" / "stage"
    stage.mkdir(parents=True, exist_ok=True)
    for extension, content in staged.items():
        path = stage / name(base, extension)
        path.write_bytes(content)
        path.chmod(0o640)
        os.utime(path, ns=(mtime_ns, mtime_ns))


class Scene:
    """The directory, its plan, and the verbs on it with any disk."""

    def __init__(self, root: Path, *, index_change: bool = True, txn_index: bool = True) -> None:
        self.root = root
        self.path = root / FOLDER
        self.path.mkdir(parents=True)
        self._write_root()
        for place, base in enumerate(BASES):
            for extension in (*EXTENSIONS[: 4 if place % 2 else 3], ".snapshot"):
                if extension != ".snapshot" or base:
                    put(self.path / name(base, extension), f"{base}{extension} ".encode() * 5, 1_000 + base)
        put(self.path / name(660, ".snapshot"), b"newest", 2_000)
        put(self.path / "leader-epoch-checkpoint", b"0\n1\n0 0\n", 900)
        self.staged = {
            base: {e: f"new {base}{e} ".encode() * 3 for e in EXTENSIONS if txn_index or e != ".txnindex"}
            for base, _ in GROUPS
        }
        self.new_index = b"mended index"
        changes: list[Change] = [
            rewrite(
                self.path,
                base,
                sources,
                self.staged[base],
                (1_000 + sources[-1]) * 10**9 + 7,
                sources[-1] + 99,
            )
            for base, sources in GROUPS
        ]
        if index_change:
            changes.insert(0, replaced(self.path / name(0, ".timeindex"), self.new_index))
        self.partition = PartitionPlan(
            topic="t",
            partition=0,
            folder=FOLDER,
            status="change",
            files=tuple(fingerprint(path) for path in sorted(self.path.iterdir())),
            changes=tuple(changes),
        )
        self.before = tree(root)

    def _write_root(self) -> None:
        put(self.root / "recovery-point-offset-checkpoint", POINTS, 500, 0o644)
        put(self.root / "replication-offset-checkpoint", POINTS, 501)
        put(self.root / "meta.properties", b"version=0\n", 502)
        put(self.root / ".kafka_cleanshutdown", MARKER, 503, 0o600)
        put(self.root / ".lock", b"", 504)
        (self.root / "o-0").mkdir()
        for extension in EXTENSIONS[:3]:
            put(self.root / "o-0" / name(0, extension), b"other", 600)

    def stage(self, change: Change) -> None:
        """What staging does before the journal begins."""
        if isinstance(change, RewriteSegments):
            write_staged(self.path, change.base_offset, self.staged[change.base_offset], change.mtime_ns)
        else:
            stage = self.path / f"krepair~{PLAN_ID}" / "stage"
            stage.mkdir(parents=True, exist_ok=True)
            put(stage / change.name, self.new_index, 3_000)

    def folder(self, disk: Disk | None = None) -> PartitionFolder:
        return PartitionFolder(disk or UnsyncedDisk(), str(self.root), FOLDER, PLAN_ID)

    def guards(self, safe_points: SafePoints | None = None) -> Guards:
        return Guards(FreeLock(), safe_points or SafePoints())

    def apply(
        self, commit: Commit = FENCED, disk: Disk | None = None, stage: Callable[[Change], None] | None = None
    ) -> list[ChangeResult]:
        return commit_partition(
            self.folder(disk),
            self.partition,
            commit,
            self.guards(),
            stage or self.stage,
        )

    def undo(self, commit: Commit = FENCED, disk: Disk | None = None) -> list[ChangeResult]:
        return undo_partition(self.folder(disk), self.partition, commit, self.guards())

    def now(self) -> Tree:
        """The directory without krepair's own files."""
        return tree(self.root, private=False)
