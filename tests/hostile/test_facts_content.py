"""A facts file with a valid digest and hostile content ends like a damaged one, in little memory."""

from __future__ import annotations

import hashlib
import json
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zstandard
from msgspec.structs import replace

from krepair.errors import ExitCode
from krepair.formats import facts_file as ff
from tests.ops.replicas_read import broker, cleaned, whole

pytestmark = pytest.mark.replicas
MEMORY = 3 << 30
MANY = 3000


class Parts(NamedTuple):
    """The parts of a facts file between its prolog and its trailer."""

    head: bytes
    body: bytes
    table: bytes


def taken_apart(data: bytes) -> Parts:
    size = ff._PROLOG.size
    head = size + ff._PROLOG.unpack(data[:size])[2]
    position = ff._TRAILER.unpack(data[-ff._TRAILER.size :])[0]
    return Parts(data[size:head], data[head:position], data[position : -ff._TRAILER.size])


def put_together(parts: Parts) -> bytes:
    data = ff._PROLOG.pack(ff.MAGIC, ff.VERSION, len(parts.head)) + parts.head + parts.body
    data += parts.table + struct.pack("<Q", len(data))
    return data + hashlib.sha256(data).digest() + ff.END


def placed(**values: int) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        table = [{**one, **values} for one in json.loads(parts.table)]
        return parts._replace(table=json.dumps(table).encode())

    return changed


def first_blocks(blocks: bytes, count: int, size: int) -> Callable[[Parts], Parts]:
    """All sections are these blocks, and the table tells no lie of their sizes."""

    def changed(parts: Parts) -> Parts:
        place = {"position": ff._PROLOG.size + len(parts.head), "blocks": count}
        return placed(**place, packed_bytes=len(blocks), bytes=size)(parts._replace(body=blocks + parts.body))

    return changed


def claiming_frame() -> bytes:
    """A block whose frame says that it has 2^42 bytes."""
    frame = bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 42) + bytes([1, 0, 0])
    return ff._BLOCK.pack(len(frame), 16) + frame


def zeros() -> bytes:
    packed = zstandard.ZstdCompressor().compress(bytes(ff.BLOCK_BYTES))
    return ff._BLOCK.pack(len(packed), ff.BLOCK_BYTES) + packed


def bad_text(field: str, old: bytes) -> Callable[[Parts], Parts]:
    def changed(parts: Parts) -> Parts:
        found: bytes = getattr(parts, field)
        assert old in found
        return parts._replace(**{field: found.replace(old, old + b"\xff", 1)})

    return changed


HOSTILE: dict[str, Callable[[Parts], Parts]] = {
    "position-past-the-end": placed(position=1 << 40),
    "position-2^62": placed(position=1 << 62),
    "position-10^30": placed(position=10**30),
    "position-negative": placed(position=-5),
    "blocks-negative": placed(blocks=-1),
    "packed-negative": placed(packed_bytes=-1),
    "bytes-negative": placed(bytes=-1),
    "bytes-10^30": placed(bytes=10**30),
    "text-of-the-header": bad_text("head", b'"host":"'),
    "text-of-the-table": bad_text("table", b'"name":"'),
    "frame-claims-2^42": first_blocks(claiming_frame(), 1, 16),
    "many-blocks": first_blocks(zeros() * MANY, MANY, MANY * ff.BLOCK_BYTES),
    "more-bytes-than-said": first_blocks(zeros() * MANY, MANY, 16),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hostile")
    broker(root, 1, whole())
    broker(root, 2, cleaned())
    assert krepair("facts", root / "b2", "--out", root / "good.facts").returncode == ExitCode.DONE
    return root


def krepair(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "krepair", *map(str, words)]
    limit = (MEMORY, MEMORY)
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )


def compared(root: Path, path: Path) -> subprocess.CompletedProcess[str]:
    return krepair("compare", f"1={root / 'b1'}", f"2={path}", "--engine", "inline")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_content_is_unreadable_and_the_file_is_named(name: str, root: Path) -> None:
    path = root / f"{list(HOSTILE).index(name)}.facts"
    path.write_bytes(put_together(HOSTILE[name](taken_apart((root / "good.facts").read_bytes()))))
    ended = compared(root, path)
    text = ended.stdout + ended.stderr
    assert ended.returncode == ExitCode.UNREADABLE, text
    assert str(path) in text
    assert "Traceback" not in text


def test_the_parts_put_together_are_the_file(root: Path) -> None:
    good = (root / "good.facts").read_bytes()
    assert put_together(taken_apart(good)) == good


def test_a_secret_that_is_no_hex_is_unreadable(root: Path) -> None:
    good = (root / "good.facts").read_bytes()
    reader = ff.FactsReader(lambda position, size: good[position : position + size], len(good))
    out = bytearray()
    writer = ff.FactsWriter(out.extend, replace(reader.header, secret="no hex"))
    for name in reader.sections:
        writer.section(name, reader.blocks(name))
    writer.finish()
    path = root / "secret.facts"
    path.write_bytes(out)
    ended = compared(root, path)
    text = ended.stdout + ended.stderr
    assert ended.returncode == ExitCode.UNREADABLE, text
    assert f"{path}: its content cannot be read: non-hexadecimal number" in text
