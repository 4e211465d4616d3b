"""Real log directories, the options they were made under, and the verbs on them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from krepair.commit.reports import ApplyReport
from krepair.durable.disk import Disk
from krepair.ops.apply import apply
from krepair.ops.plan import make_plan
from krepair.ops.undo import undo
from krepair.options import EngineName, Options
from krepair.plan.model import PartitionPlan, Plan, RewriteSegments
from tests import naive
from tests.fixture_dirs import unpack

BLOAT = "offsets-bloat-2.2.0-clean"
TV2 = "offsets-tv2-4.3.1"
OLD_FORMAT = "oldformat-2.2.1-before"
FAR = "4000000000000"
KEYS = ("delete.retention.ms", "segment.bytes", "index.interval.bytes")


@dataclass
class Scene:
    """One copy of a fixture.

    Attributes:
        path: the log directory.
        now_ms: a minute after its newest file.
        settings: of its first compacted topic, as its broker had them.
        horizon: ``--delete-horizon``.
        engine: where the work is done.
        master: Spark master URL.
    """

    path: Path
    horizon: str = FAR
    engine: EngineName = EngineName.INLINE
    master: str = ""
    now_ms: int = 0
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        newest = max(each.stat().st_mtime_ns for each in self.path.rglob("*.log"))
        self.now_ms = self.now_ms or newest // 1_000_000 + 60_000
        manifest = msgspec.json.decode((self.path / "lab-manifest.json").read_bytes())
        config = next(
            (each["config"] for each in manifest["topics"].values() if "cleanup.policy" in each["config"]), {}
        )
        self.settings = {key: config[key] for key in KEYS if key in config} | self.settings

    def options(self, **changed: object) -> Options:
        """What the command line would hand over."""
        return Options(
            **{
                "settings": tuple(self.settings.items()),
                "now_ms": self.now_ms,
                "delete_horizon": self.horizon,
                "engine": self.engine,
                "master": self.master,
            }
            | changed  # type: ignore[arg-type]
        )

    def plan(self, **changed: object) -> Plan:
        """``krepair plan``."""
        return make_plan(str(self.path), self.options(**changed))

    def apply(self, plan: Plan, disk: Disk | None = None) -> ApplyReport:
        """``krepair apply``."""
        return apply(plan, self.options(), disk=disk)

    def undo(self, plan: Plan, disk: Disk | None = None) -> ApplyReport:
        """``krepair undo``."""
        return undo(plan, self.options(), disk=disk)


def scene(tmp_path: Path, name: str = BLOAT, **given: object) -> Scene:
    """A fresh copy of a fixture."""
    return Scene(unpack(name, tmp_path), **given)  # type: ignore[arg-type]


def part(plan: Plan, folder: str) -> PartitionPlan:
    """A partition's part of the plan."""
    return next(each for each in plan.partitions if each.folder == folder)


def rewrites(plan: PartitionPlan) -> list[RewriteSegments]:
    """Its rewritten groups."""
    return [change for change in plan.changes if isinstance(change, RewriteSegments)]


def whole_log(folder: Path) -> bytes:
    """All ``.log`` bytes of a partition, in offset order."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def markers(log: bytes) -> int:
    """Commit and abort markers in it, counted by the slow twin."""
    return sum(batch.ends_transaction for batch in naive.parse(log))


def outcomes(report: ApplyReport) -> dict[str, set[str]]:
    """Partition -> how its changes ended."""
    out: dict[str, set[str]] = {}
    for result in report.results:
        out.setdefault(result.partition, set()).add(result.outcome)
    return out


def tree(root: Path, *, private: bool = True) -> dict[str, tuple[object, ...]]:
    """Every entry below: kind and mode, owner, group; of a file also mtime, and a digest of its bytes."""
    out: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        shown = str(path.relative_to(root))
        if not private and "krepair~" in shown:
            continue
        found = path.lstat()
        row: tuple[object, ...] = (oct(found.st_mode), found.st_uid, found.st_gid)
        if stat.S_ISREG(found.st_mode):
            attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
            row += (found.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest(), repr(attributes))
        out[shown] = row
    return out


def cannot_be_read(monkeypatch: pytest.MonkeyPatch, path: Path, code: int = errno.EIO) -> None:
    """From here on, the system does not give the bytes of this file."""
    inode = path.stat().st_ino

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(descriptor: int, *given: Any) -> Any:
            if os.fstat(descriptor).st_ino == inode:
                raise OSError(code, os.strerror(code))
            return real(descriptor, *given)

        return call

    for name in ("preadv", "pread"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
