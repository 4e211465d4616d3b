"""Directories that an earlier krepair left behind, put on a disk again; see ``tools/make_half_done.py``.

A plan, its copy, the journal and what the fence has seen name the host, the path and the inode of the log directory,
and inodes of files. No file system gives a file an inode of our choice. So the files are written anew (the names of
one file as hard links of one file). Then those numbers and names, and nothing else, are replaced in the JSON. This
module reads that JSON by itself and uses no type of krepair, so a changed format is not hidden. What was sealed is
sealed again: the SHA-256 of the plan, the plan id that is its beginning, the CRC-32 of each journal line. Each use
proves that this reading is right: with nothing replaced it gives every byte and every seal back.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import socket
import stat
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from tests.fixture_dirs import FIXTURES

PRIVATE = "krepair~"
LOCK = ".lock"

Files = dict[str, tuple[Any, ...]]
"""Name -> mode, user and group (0 where we may not give files away), time, SHA-256; what a broker sees."""


class End(NamedTuple):
    """How the earlier krepair went on from a state.

    Attributes:
        code: its exit code.
        files: what was there then.
    """

    code: int
    files: Files


@dataclass(frozen=True)
class State:
    """One state as it was recorded.

    Attributes:
        scene: of ``tools/torture/scenes.py``.
        steps: how it came about, as ``apply@17a``.
        plan: text of the plan file.
        entries: files and folders, a folder before what is in it.
        before: what was there before the plan was applied.
        ends: verb -> how the earlier krepair went on.
        blobs: bytes of files.
    """

    scene: str
    steps: str
    plan: str
    entries: tuple[dict[str, Any], ...]
    before: Files
    ends: dict[str, End]
    blobs: dict[str, bytes]

    def open_intents(self, journals: str = "/journal") -> set[str]:
        """What the journals whose names end so announced without having come to its end; pure reading of JSON."""
        out: set[str] = set()
        for entry in self.entries:
            if entry["name"].endswith(journals):
                out |= _open_intents(self.blobs[entry["blob"]])
        return out


class Placed(NamedTuple):
    """A state on a disk.

    Attributes:
        log_dir: the log directory.
        plan: its plan file.
    """

    log_dir: Path
    plan: Path


@functools.cache
def states(version: str) -> tuple[State, ...]:
    """All states that were recorded of a version of krepair."""
    packed = (FIXTURES / f"earlier-{version}.json.zst").read_bytes()
    document = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    blobs = {key: base64.b64decode(text) for key, text in document["blobs"].items()}
    return tuple(
        State(
            scene=one["scene"],
            steps=one["steps"],
            plan=one["plan"],
            entries=tuple(one["entries"]),
            before=_files(one["before"]),
            ends={verb: End(end["code"], _files(end["files"])) for verb, end in one["ends"].items()},
            blobs=blobs,
        )
        for one in document["states"]
    )


def _files(recorded: dict[str, list[Any]]) -> Files:
    return {name: _comparable(*row) for name, row in recorded.items()}


def _comparable(mode: int, user: int, group: int, mtime_ns: int, content: str) -> tuple[Any, ...]:
    owner = (user, group) if os.geteuid() == 0 else (0, 0)
    return (mode, *owner, mtime_ns, content)


def look(log_dir: Path) -> Files:
    """What a broker sees in a log directory now."""
    out: Files = {}
    for path in [log_dir, *log_dir.rglob("*")]:
        name = os.path.relpath(path, log_dir)
        if PRIVATE in name or name == LOCK:
            continue
        found = path.lstat()
        is_file = stat.S_ISREG(found.st_mode)
        content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
        mtime_ns = found.st_mtime_ns if is_file else 0
        out[name] = _comparable(found.st_mode, found.st_uid, found.st_gid, mtime_ns, content)
    return out


def private(log_dir: Path) -> list[str]:
    """What is there of krepair's own."""
    return [str(path) for path in log_dir.rglob(f"{PRIVATE}*")]


def place(state: State, root: Path) -> Placed:
    """Write a state to ``root/logs`` and its plan to ``root/plan``."""
    log_dir = root / "logs"
    inodes = _write(state, log_dir, root / "gone")
    moved = _Moved(state.plan, log_dir, inodes)
    for entry in state.entries:
        if PRIVATE in entry["name"] and "blob" in entry:
            _rewrite(log_dir / entry["name"], moved.data(entry["name"], state.blobs[entry["blob"]]))
    for folder in sorted(log_dir.rglob(f"{PRIVATE}*")):
        folder.rename(folder.with_name(moved.name(folder.name)))
    plan = root / "plan"
    plan.write_text(moved.plan)
    return Placed(log_dir, plan)


def _write(state: State, log_dir: Path, gone: Path) -> dict[int, int]:
    """Write all files; gives the new inode of each recorded one.

    An inode that is named and that no file has any more becomes that of a file outside of the log directory.
    """
    inodes: dict[int, int] = {}
    first: dict[int, Path] = {}
    for entry in state.entries:
        path = log_dir / entry["name"]
        if "blob" not in entry:
            path.mkdir()
            _give(path, entry)
        elif entry["inode"] in first:
            os.link(first[entry["inode"]], path)
            continue
        else:
            path.write_bytes(state.blobs[entry["blob"]])
            _give(path, entry)
            first[entry["inode"]] = path
        inodes[entry["inode"]] = path.stat().st_ino
    gone.mkdir()
    named: set[int] = set()
    _inodes_in(json.loads(state.plan), named)
    for entry in state.entries:
        if entry["name"].endswith("/journal"):
            for line in state.blobs[entry["blob"]].splitlines():
                if (record := _record(line)) is not None:
                    _inodes_in(record, named)
        elif entry["name"].endswith("seen.json"):
            seen = json.loads(state.blobs[entry["blob"]])
            named |= {row[2] for row in seen.values() if row is not None}
    for inode in named - inodes.keys() - {0}:
        (gone / str(inode)).touch()
        inodes[inode] = (gone / str(inode)).stat().st_ino
    return inodes


def _give(path: Path, entry: dict[str, Any]) -> None:
    if os.geteuid() == 0:
        os.chown(path, *entry["owner"])
    os.chmod(path, stat.S_IMODE(entry["mode"]))
    if "mtime_ns" in entry:
        os.utime(path, ns=(entry["mtime_ns"], entry["mtime_ns"]))


def _rewrite(path: Path, data: bytes) -> None:
    """Other bytes in the same file, under its old time."""
    found = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


class _Moved:
    """Replaces host, path, file system and inodes in what the earlier krepair wrote.

    Attributes:
        plan: text of the plan for the new place.
    """

    def __init__(self, plan: str, log_dir: Path, inodes: dict[int, int]) -> None:
        old = json.loads(plan)
        assert _sealed(old) == plan, "the plan's seal is not what we take it for"
        self._inodes = inodes | {0: 0}
        self._old_plan, self._old_id = plan, old["plan_id"]
        new = self._mapped(old) | {"host": socket.gethostname(), "log_dir": str(log_dir)}
        self.plan = _sealed(new)
        self._id = json.loads(self.plan)["plan_id"]
        self._here = {
            "host": socket.gethostname(),
            "log_dir": str(log_dir),
            "file_system": f"{os.statvfs(log_dir).f_fsid:x}",
            "plan_digest": json.loads(self.plan)["digest"],
        }
        assert f'"{old["log_dir"]}' not in self.plan, "the plan names its directory elsewhere"

    def name(self, name: str) -> str:
        """Name of a private folder."""
        assert self._old_id in name
        return name.replace(self._old_id, self._id)

    def data(self, name: str, data: bytes) -> bytes:
        """Bytes of a private file."""
        last = name.rsplit("/", 1)[1]
        if data == self._old_plan.encode():
            return self.plan.encode()
        if last == "journal":
            return b"".join(self._line(line) for line in data.splitlines(keepends=True))
        if last == "seen.json":
            rows = json.loads(data)
            assert _compact(rows) == data
            return _compact({k: v and [*v[:2], self._inodes[v[2]]] for k, v in rows.items()})
        return data

    def _line(self, line: bytes) -> bytes:
        record = _record(line)
        if record is None:  # torn by the kill
            return line
        assert _journal_line(record) == line, "the journal's line is not what we take it for"
        return _journal_line(self._here_now(self._mapped(record)))

    def _here_now(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record with the directory of which it tells being the new one, wherever it was recorded."""
        if record["type"] == "together":
            return record | {"records": [self._here_now(one) for one in record["records"]]}
        if record["type"] != "here":
            return record
        assert self._here.keys() <= record.keys()
        return record | self._here

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._mapped(one) for one in value]
        if not isinstance(value, dict):
            return value
        out = {}
        for key, one in value.items():
            if key in {"inode", "log_dir_inode"}:
                out[key] = self._inodes[one]
            elif key == "plan_id":
                out[key] = self._id if hasattr(self, "_id") else one
            else:
                out[key] = self._mapped(one)
        return out


def _sealed(plan: dict[str, Any]) -> str:
    """The plan's text, its digest and id worked out."""
    digest = hashlib.sha256(_pretty(plan | {"digest": "", "plan_id": ""}).encode()).hexdigest()
    return _pretty(plan | {"digest": digest, "plan_id": digest[:8]})


def _pretty(value: Any) -> str:
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False) + "\n"


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _record(line: bytes) -> dict[str, Any] | None:
    """The record of a journal's line, None of one that was torn."""
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        return None
    record: dict[str, Any] = json.loads(body)
    return record


def _journal_line(record: dict[str, Any]) -> bytes:
    body = _compact(record)
    return b"%08x %b\n" % (zlib.crc32(body), body)


def _inodes_in(value: Any, found: set[int]) -> None:
    if isinstance(value, dict):
        found |= {one for key, one in value.items() if key in {"inode", "log_dir_inode"}}
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _inodes_in(one, found)


def _open_intents(journal: bytes) -> set[str]:
    opened: dict[str, str] = {}
    out = set()
    for line in journal.splitlines():
        record = _record(line)
        for one in [record] if record and record["type"] != "together" else (record or {}).get("records", []):
            if one["type"] == "purge":
                out.add("purge")
            elif one["type"] == "done":
                opened.pop(one["change_id"], None)
            elif one["type"] not in {"journal", "here", "freed"}:
                opened[one["change_id"]] = _kind(one)
    return out | set(opened.values())


def _kind(record: dict[str, Any]) -> str:
    """Words of the journal, and which of two ways a log or a file goes."""
    if record["type"] in {"log", "replace"}:
        return f"{record['type']}, {'new file' if record.get('replacement') else 'no new file'}"
    return str(record["type"])
