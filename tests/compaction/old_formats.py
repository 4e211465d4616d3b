"""Partitions with messages of v0 and v1."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from krepair.formats import message_set as ms
from krepair.rules.model import MarkerPolicy
from tests import encoders
from tests.builders import NOW_MS, Batch, LogDir, data
from tests.compaction.trying import UNLIMITED
from tests.rules.facts import POLICY


def policy(log_end: int, horizon_ms: int = UNLIMITED) -> MarkerPolicy:
    return replace(
        POLICY,
        horizon=str(horizon_ms),
        segment_bytes=100_000,
        segment_index_bytes=4096,
        index_interval_bytes=200,
        high_watermark=log_end,
    )


def entry(chance: random.Random, offset: int, magic: int, keys: int) -> tuple[Batch, int]:
    """A message or a wrapper, and the offset after it."""

    def message(at: int) -> ms.Message:
        time = NOW_MS - chance.randint(0, 10**6) if magic else ms.NO_TIMESTAMP
        value = None if chance.random() < 0.15 else b"v%d" % at * chance.randint(0, 5)
        return ms.Message(at, magic, 0, time, b"k%d" % chance.randrange(keys), value)

    codec = chance.choice([0, 0, 1, 2, 3])
    if codec == 0:
        one = message(offset)
    else:
        inner, at = [], offset
        for _ in range(chance.randint(1, 5)):
            inner.append(message(at))
            at += 1 + (chance.random() < 0.2)
        append_time = NOW_MS - 5 if magic and chance.random() < 0.3 else None
        one = encoders.wrapped(tuple(inner), codec, log_append_time=append_time)
    raw = encoders.encode_message(one)
    return Batch(raw, offset, one.offset, 0, -1, -1, -1, one.timestamp, 1), one.offset + 1


def partition_of(seed: int, root: Path) -> tuple[Path, int]:
    """A folder of one format, with an active segment of v2."""
    chance = random.Random(seed)
    partition = LogDir(root).partition("t", index_interval_bytes=200)
    offset = 0
    for number in range(chance.randint(1, 4)):
        base, batches = offset, []
        for _ in range(chance.randint(1, 12)):
            batch, offset = entry(chance, offset, seed % 2, chance.choice([3, 8, 30]))
            batches.append(batch)
            offset += chance.random() < 0.1
        partition.segment(*batches, base_offset=base, mtime_ms=NOW_MS - 1000 * (10 - number))
    partition.segment(data(offset, 2))
    folder = partition.write(snapshots=False)
    (folder / "leader-epoch-checkpoint").unlink()
    return folder, offset + 2
