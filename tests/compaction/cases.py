"""Small logs with keys, each built record by record."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from krepair.rewrite.compaction.partitions import Compaction
from krepair.rules.model import MarkerPolicy
from tests import codecs, naive
from tests.builders import NOW_MS, Batch, LogDir, Record, data
from tests.compaction import twin
from tests.compaction.compacting import Compacted, compacted, proven, written
from tests.compaction.directories import through_verbs
from tests.rules.facts import POLICY

OLD, YOUNG = NOW_MS - 10_000, NOW_MS - 10
BASE = replace(
    POLICY, horizon=str(NOW_MS - 5_000), segment_bytes=100_000, producer_expiry_ms=0, high_watermark=2**40
)


def rec(key: str | None, value: str | None = "v", **more: object) -> Record:
    return Record(None if key is None else key.encode(), None if value is None else value.encode(), **more)  # type: ignore[arg-type]


def recs(*keys: str) -> list[Record]:
    """``k`` has a value, ``k-`` is a tombstone."""
    return [rec(key.rstrip("-"), None if key.endswith("-") else "v") for key in keys]


def batch(offset: int, *keys: str, codec: int = 0, **more: object) -> Batch:
    """A batch older than all clocks of these tests."""
    made = data(offset, recs(*keys), **{"timestamp": OLD, **more})  # type: ignore[arg-type]
    return replace(made, raw=codecs.packed(made.raw, codec))


Segment = Sequence[Batch] | tuple[Sequence[Batch], int]


def made(root: Path, *segments: Segment, policy: MarkerPolicy = BASE, bases: Sequence[int] = ()) -> Compacted:
    """Compact segments, by the engine and by the verbs; the active one is added. Whatever is done is verified."""
    partition = LogDir(root).partition("t")
    for number, segment in enumerate(segments):
        batches, mtime = segment if isinstance(segment, tuple) else (segment, OLD)
        base = bases[number] if bases else None
        partition.segment(*batches, base_offset=base, mtime_ms=mtime)
    partition.segment(batch(partition.log_end, "active"))
    folder = partition.write(snapshots=False)
    policy = replace(policy, high_watermark=min(policy.high_watermark, partition.log_end))
    found = compacted(folder, policy)
    by_verbs = through_verbs(folder, policy)
    assert by_verbs == (found.logs or {int(path.stem): path.read_bytes() for path in folder.glob("*.log")})
    if isinstance(found.compaction, Compaction):
        results = written(found.logs, folder, folder / "krepair~results")
        assert proven(folder, found, results).why == ""
    return found


def left(found: Compacted) -> list[int]:
    """Offsets of the records below the bound that are left."""
    end = found.done.decision.cleanable.end_offset
    return [
        record.offset
        for base, log in found.logs.items()
        if base < end
        for one in naive.parse(log)
        if not one.control
        for record in twin.records(log[one.position : one.position + one.size])
    ]


def packed_well(batch: Batch) -> Batch:
    """With its records compressed by gzip at the highest level: what krepair writes later is longer."""
    packer = zlib.compressobj(9, wbits=31)
    body = packer.compress(batch.raw[61:]) + packer.flush()
    attributes = struct.unpack_from(">h", batch.raw, 21)[0] | 1
    return replace(batch, raw=codecs.sealed(batch.raw, body, attributes=attributes))


def words(random_: random.Random, count: int) -> bytes:
    """Text that the levels of gzip pack differently."""
    return b" ".join(random_.choice((b"offset", b"commit", b"group", b"topic")) for _ in range(count))


def same_length(root: Path) -> Path:
    """One segment that loses a record and is as long afterwards: where its loss is what the higher level saved."""
    random_ = random.Random(13)
    kept = [Record(b"k%d" % number, words(random_, 700)) for number in range(20)]
    noise = random_.randbytes(4000)
    # with the zlib of today it is 367: looked for from there on, up and down
    for size in sorted(range(4000), key=lambda size: abs(size - 367)):
        whole = data(0, [Record(b"gone", noise[:size]), *kept], timestamp=OLD)
        left = codecs.packed(
            codecs.sealed(whole.raw, b"".join(r.raw for r in twin.records(whole.raw)[1:])), 1
        )
        first = packed_well(whole)
        if len(first.raw) == len(left):
            break
    else:
        pytest.fail(f"no record that goes makes the two equally long: {len(first.raw)} and {len(left)} bytes")
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(first, mtime_ms=OLD)
    partition.segment(batch(21, "gone"), mtime_ms=OLD)
    partition.segment(batch(22, "active"))
    directory.write()
    return root / "logs"


def small(root: Path) -> Path:
    """Three segments with the same keys, and an active one."""
    directory = LogDir(root / "logs")
    partition = directory.partition("t", index_interval_bytes=200)
    partition.segment(batch(0, "a", "b", "c"), batch(3, "a", "d-"), mtime_ms=OLD)
    partition.segment(batch(5, "b", "e", codec=4), batch(7, "a"), mtime_ms=OLD)
    partition.segment(batch(8, "c", "f-"), mtime_ms=OLD)
    partition.segment(batch(10, "active"))
    directory.write()
    return root / "logs"
