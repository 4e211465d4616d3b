"""Plans that remove something, for the review."""

from __future__ import annotations

from typing import Any

from krepair.plan.model import (
    KeepOriginal,
    MendLog,
    NewCompanion,
    PartitionPlan,
    RemovedRange,
    ReplaceFile,
    SetAside,
)
from tests.plan.plans import DIGEST, fingerprint, replaced_file

FOLDER = "t-0"
CONSENT = "KR302:t-0:40"
MTIME_NS = 1_700_000_000_000_000_000


def segment(base: int, size: int) -> list[Any]:
    stem = f"{base:020d}"
    names = [(f"{stem}.index", 8), (f"{stem}.log", size), (f"{stem}.timeindex", 12)]
    return [fingerprint(name, each, MTIME_NS) for name, each in names]


FILES = [
    *segment(0, 1000),
    *segment(100, 800),
    fingerprint(f"{100:020d}.snapshot", 40, MTIME_NS),
    *segment(200, 600),
]
FILES.sort(key=lambda file: file.name)


def removed(**fields: Any) -> RemovedRange:
    values: dict[str, Any] = {
        "start": 300,
        "end": 400,
        "rule": "KR302",
        "consent": CONSENT,
        "first_lost": 40,
        "last_lost": 49,
        "records": 10,
    }
    return RemovedRange(**(values | fields))


def log(base: int = 0, size: int = 1000, **fields: Any) -> MendLog:
    ranges = fields.get("removed", (removed(),))
    gone = sum(one.end - one.start for one in ranges)
    values: dict[str, Any] = {
        "change_id": f"{FOLDER}/{base:020d}.log",
        "name": f"{base:020d}.log",
        "base_offset": base,
        "method": "excise",
        "removed": ranges,
        "size_before": size,
        "size_after": size - gone,
        "digest_removed": DIGEST,
        "digest_after": DIGEST,
        "mtime_ns": MTIME_NS,
        "last_offset": base + 99,
        "companions": (
            NewCompanion(name=f"{base:020d}.index", size_before=8, size_after=16, digest_after=DIGEST),
        ),
        "front_bytes": 8,
        "reason": "only the damage",
        "undo": KeepOriginal(),
    }
    return MendLog(**(values | fields))


def aside(base: int, **fields: Any) -> SetAside:
    """A segment behind a cut, with all of its files."""
    names = [f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex", ".snapshot")]
    sizes = {file.name: file.size for file in FILES}
    names = [name for name in names if name in sizes]
    values: dict[str, Any] = {
        "change_id": f"{FOLDER}/{base:020d}",
        "base_offset": base,
        "names": tuple(names),
        "bytes": sum(sizes[name] for name in names),
        "records": 100,
        "rule": "KR302",
        "consent": CONSENT,
        "reason": "behind the cut",
        "undo": KeepOriginal(),
    }
    return SetAside(**(values | fields))


def replaced(name: str, size: int = 8) -> ReplaceFile:
    """An index made anew."""
    return replaced_file(name, folder=FOLDER, rule="KR203", size_before=size)


def partition_with(*changes: Any, **fields: Any) -> PartitionPlan:
    """Three segments that end at offset 300, and changes of them."""
    values: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "folder": FOLDER,
        "status": "change" if changes else "nothing",
        "log_end_offset": 300,
        "files": tuple(FILES),
        "changes": changes,
        "log_bytes_before": 2400,
    }
    return PartitionPlan(**(values | fields))
